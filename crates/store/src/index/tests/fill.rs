//! How full an index gets, what it takes, and what an insert does for growth.

use super::*;
use crate::index::growth::Growth;
use crate::index::region::LINES_MAX;

/// Entries of a region.
const REGION: u64 = LINES_MAX as u64 * SLOTS as u64;

#[test]
fn an_entry_takes_eight_bytes_and_a_stored_one_at_most_ten() {
    assert_eq!(size_of::<Line>(), SLOTS * 8);
    let expected = 1_500_000;
    let index = Index::new(&Options::for_entries(expected)).expect("an index");
    let (mut worst, mut worst_before): (f64, f64) = (0.0, 0.0);
    for number in 0..expected * 3 / 2 {
        index
            .insert(hash_of(number), place_of(number, 0))
            .expect("room");
        let per_entry = index.bytes() as f64 / (number + 1) as f64;
        // At every moment.
        if number >= expected {
            worst = worst.max(per_entry);
        } else if number >= expected / 2 {
            worst_before = worst_before.max(per_entry);
        }
    }
    let slots = index.capacity();
    assert!(
        (index.bytes() as f64 / slots as f64) < 8.01,
        "8 bytes a slot, and little beside"
    );
    println!("bytes an entry: at most {worst_before:.2}, then at most {worst:.2}");
    assert!(worst < 10.0, "{worst:.2} bytes an entry");
    // Growth by a fourth is the largest step on the way.
    assert!(worst_before < 11.1, "{worst_before:.2} bytes an entry");
}

#[test]
fn with_a_limit_it_gets_full_and_loses_nothing() {
    let limit = 24 * REGION * 8;
    let options = Options {
        shards: 3,
        region_lines: LINES_MAX,
        regions: 1,
        bytes_max: limit,
    };
    let index = Index::new(&options).expect("an index");
    let mut stored = Vec::new();
    let mut refused = 0;
    for number in 0..24 * REGION {
        match index.insert(hash_of(number), place_of(number, 0)) {
            Ok(()) => stored.push(number),
            Err(full) => {
                if refused == 0 {
                    let load = index.len() as f64 / (24 * REGION) as f64;
                    println!("full at {:.1} %: {full}", load * 100.0);
                    assert!(load > 0.9, "full at {load:.3}");
                    assert_eq!((full.entries, full.bytes_max), (index.len(), limit));
                }
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && index.regions() == 24);
    assert_eq!(index.len(), stored.len() as u64);
    for &number in &stored {
        assert!(found(&index, hash_of(number)).contains(&place_of(number, 0)));
    }
    // Room that is made is found.
    for &number in &stored[..1000] {
        assert!(index.remove(hash_of(number), place_of(number, 0)));
    }
    for &number in &stored[..1000] {
        index
            .insert(hash_of(number), place_of(number, 1))
            .expect("room for as many as were removed");
    }
}

#[test]
fn no_insert_does_more_for_growth_than_to_look_through_a_region() {
    let index = small(1, LINES_MAX);
    let (mut regions, mut moved_most, mut moved) = (0, 0, 0);
    for number in 0..40 * REGION {
        let mut growth = Growth::default();
        index
            .insert_with(hash_of(number), place_of(number, 0), &mut growth)
            .expect("room");
        assert!(growth.regions <= 1, "{growth:?}");
        regions += u64::from(growth.regions);
        moved += u64::from(growth.moved);
        moved_most = moved_most.max(growth.moved);
    }
    let grown = index.regions();
    assert!(grown > 40, "{grown} regions");
    // Growth ends: each region has given to each newer one.
    assert!(grown * (grown - 1) / 2 - regions < grown);
    assert!(u64::from(moved_most) <= REGION / 2 + REGION / 20);
    // Each region gets as many as it holds, and holds them until others give to newer ones.
    assert!(moved < index.len() + index.len() / 10);
    println!("{grown} regions, {moved} moved, {moved_most} by one insert");
}

#[test]
fn growth_ends_with_few_inserts() {
    let index = small(1, LINES_MAX);
    let mut number = 0;
    let mut growing = 0;
    while index.regions() < 20 {
        index
            .insert(hash_of(number), place_of(number, 0))
            .expect("room");
        number += 1;
        growing = if index.growing() == 0 { 0 } else { growing + 1 };
        assert!(growing <= index.regions(), "an insert, a region");
    }
}

#[test]
fn options_that_make_no_index_are_refused() {
    let good = Options::for_entries(1 << 20);
    let refused = |options: Options| Index::new(&options).map(drop).expect_err("refused");
    let none = Options {
        shards: 0,
        ..good.clone()
    };
    assert!(matches!(refused(none), CreateError::Shards));
    for region_lines in [0, 1, 3, 2048] {
        let options = Options {
            region_lines,
            ..good.clone()
        };
        assert!(matches!(refused(options), CreateError::RegionLines(_)));
    }
    for regions in [0, 129] {
        let options = Options {
            regions,
            ..good.clone()
        };
        assert!(matches!(refused(options), CreateError::Regions(_)));
    }
    let poor = Options {
        bytes_max: 1000,
        ..good.clone()
    };
    assert!(matches!(refused(poor), CreateError::Limit { .. }));
    let huge = Options {
        shards: u32::MAX,
        ..good
    };
    assert!(matches!(refused(huge), CreateError::Memory(_)));
}
