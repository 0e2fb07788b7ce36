//! Shards as bytes and back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;

fn dump(index: &Index) -> Vec<Vec<u8>> {
    let shards = 0..index.shards();
    shards
        .map(|shard| {
            let mut bytes = Vec::new();
            index.dump(shard, &mut bytes);
            bytes
        })
        .collect()
}

fn load(parts: &[Vec<u8>]) -> Index {
    let index = Index::new(&shape(&parts[0]).expect("a shape")).expect("an index");
    // In any order, by several threads.
    thread::scope(|scope| {
        for half in [0, 1] {
            let index = &index;
            let parts = parts.iter().enumerate().rev();
            scope.spawn(move || {
                for (number, part) in parts.filter(|(number, _)| number % 2 == half) {
                    assert_eq!(index.load(part).expect("a shard"), number as u32);
                }
            });
        }
    });
    index
}

#[test]
fn an_index_comes_back_from_its_bytes() {
    for (shards, lines, entries) in [(1, 2, 0), (5, 16, 3000), (3, 1024, 200_000)] {
        let index = small(shards, lines);
        let stored: Vec<u64> = (0..entries)
            .filter(|&number| index.insert(hash_of(number), place_of(number, 0)).is_ok())
            .collect();
        let parts = dump(&index);
        let again = load(&parts);
        assert_eq!(
            (again.len(), again.regions()),
            (index.len(), index.regions())
        );
        for &number in &stored {
            assert_eq!(
                found(&again, hash_of(number)),
                found(&index, hash_of(number))
            );
        }
        // It goes on as the first one would.
        for number in entries..entries + entries / 2 {
            let (hash, place) = (hash_of(number), place_of(number, 0));
            assert_eq!(
                again.insert(hash, place).is_ok(),
                index.insert(hash, place).is_ok()
            );
        }
        let per_entry = parts.iter().map(Vec::len).sum::<usize>() as f64 / entries.max(1) as f64;
        assert!(
            entries < 10_000 || per_entry < 9.0,
            "{per_entry:.2} bytes an entry"
        );
    }
}

#[test]
fn what_stays_while_others_change_is_in_the_bytes_once() {
    for seed in 0..if cfg!(miri) { 1 } else { 20u64 } {
        let index = small(2, 64);
        // These stay; those come meanwhile, so that shards grow.
        let stay = 1500;
        for number in 0..stay {
            index
                .insert(hash_of(number), place_of(number, 0))
                .expect("room");
        }
        let ended = AtomicBool::new(false);
        let mut dumps = Vec::new();
        thread::scope(|scope| {
            let (index, ended) = (&index, &ended);
            scope.spawn(move || {
                for number in 1 << 20..(1 << 20) + 15_000 {
                    let number = number + (seed << 16);
                    let _full = index.insert(hash_of(number), place_of(number, 0));
                }
                ended.store(true, Ordering::Relaxed);
            });
            while !ended.load(Ordering::Relaxed) && dumps.len() < 200 {
                dumps.push(dump(index));
            }
        });
        for parts in dumps {
            let again = load(&parts);
            for number in 0..stay {
                let places = found(&again, hash_of(number));
                let times = places.iter().filter(|&&place| place == place_of(number, 0));
                assert_eq!(times.count(), 1, "{number} of {seed}");
            }
            // None twice, also among those that came: what is taken away has gone.
            for number in 0..stay {
                assert!(again.remove(hash_of(number), place_of(number, 0)));
                let places = found(&again, hash_of(number));
                assert!(!places.contains(&place_of(number, 0)));
            }
            assert_eq!(again.len(), count(&again), "what is counted can be found");
        }
    }
}

/// Entries that are where they are looked for.
fn count(index: &Index) -> u64 {
    let mut count = 0;
    for shard in 0..index.shards() {
        let regions = index.shards[shard as usize].state().regions();
        for number in 0..regions {
            let region = index.region(shard, number).lock();
            let entries = (0..region.slots()).map(|slot| region.slot(slot));
            count += entries
                .filter(|&entry| entry != entry::EMPTY)
                .filter(|&entry| index.directory.region(regions, entry::group(entry)) == number)
                .count() as u64;
        }
    }
    count
}

#[test]
fn bytes_that_are_no_shard_are_refused() {
    let index = small(3, 16);
    for number in 0..600 {
        index
            .insert(hash_of(number), place_of(number, 0))
            .expect("room");
    }
    let good = dump(&index);
    let fresh = || small(3, 16);
    assert!(matches!(fresh().load(&[]), Err(LoadError::Format(_))));
    let index = fresh();
    for at in (0..good[1].len()).filter(|at| at % 5 == 0 || *at < 80) {
        let mut bad = good[1].clone();
        bad[at] ^= 1 << (at % 8);
        index.load(&bad).expect_err("a flipped bit");
        index.load(&bad[..at]).expect_err("a cut");
        assert!(index.is_empty());
    }
    let other = small(4, 16);
    assert!(matches!(
        other.load(&good[1]),
        Err(LoadError::Shape { shards: 3, .. })
    ));
    let index = fresh();
    index.load(&good[1]).expect("a shard");
    assert!(matches!(index.load(&good[1]), Err(LoadError::NotEmpty(1))));
    // Right checksums do not make nonsense right.
    let mut random = fastrand::Rng::with_seed(1);
    let mut index = fresh();
    for _ in 0..2000 {
        let mut bad = good[2].clone();
        for _ in 0..3 {
            let near = 64 + random.usize(0..bad.len());
            let at = random.usize(4..bad.len().min(near));
            bad[at] = random.u8(..);
        }
        bad.truncate(random.usize(bad.len() / 2..=bad.len()));
        let checksum = xxhash_rust::xxh3::xxh3_64(&bad[16..]);
        bad[8..16].copy_from_slice(&checksum.to_le_bytes());
        // It may be right by chance; what counts is that it does no harm.
        if index.load(&bad).is_ok() {
            index = fresh();
        }
    }
}

#[test]
fn a_limit_holds_when_loading() {
    let index = small(1, 64);
    for number in 0..10_000 {
        index
            .insert(hash_of(number), place_of(number, 0))
            .expect("room");
    }
    let parts = dump(&index);
    let mut options = shape(&parts[0]).expect("a shape");
    options.bytes_max = index.bytes() / 2;
    let poor = Index::new(&options).expect("an index");
    assert!(matches!(poor.load(&parts[0]), Err(LoadError::Full(_))));
}
