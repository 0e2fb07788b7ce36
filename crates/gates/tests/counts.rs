//! Counting real drivers: the counts are the same each time.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::Path;

use lab::gates::cases::{CASES, Case, How, Metric};
use lab::gates::trace::{Counted, watch};

/// Watches a few rounds of a case.
fn count(name: &str, rounds: u64) -> Vec<Counted> {
    let driver = Path::new(env!("CARGO_BIN_EXE_gates-driver"));
    let case = CASES.iter().find(|case| case.name == name).expect("a case");
    let (counted, _) = watch(driver, case, 1, rounds).expect("counted");
    counted
}

#[test]
fn a_codec_is_counted_the_same_each_time() {
    let (one, other) = (count("codec-get", 2), count("codec-get", 3));
    assert_eq!(one.len(), 1);
    let instructions = one[0].counts[&Metric::Instructions];
    assert!(instructions > 100.0, "{instructions}");
    // Exact, whatever the length.
    assert_eq!(one[0].counts, other[0].counts);
    for metric in [Metric::Allocations, Metric::Syscalls, Metric::Locked] {
        assert_eq!(one[0].counts[&metric], 0.0, "{metric:?}");
    }
}

#[test]
fn allocations_are_counted() {
    // No hot path allocates, so that none of them shows whether allocations are seen at all.
    let case = Case {
        name: "probe",
        meaning: "three calls of the allocator",
        how: How::Stepped {
            rounds_before: 1,
            rounds: 4,
            needs: None,
        },
        sides: &["server"],
    };
    let driver = Path::new(env!("CARGO_BIN_EXE_gates-driver"));
    let (counted, _) = watch(driver, &case, 1, 4).expect("counted");
    assert_eq!(counted[0].counts[&Metric::Allocations], 3.0);
}

#[test]
fn a_compare_and_swap_locks() {
    let counted = count("nic-cas", 1);
    assert!(counted[0].counts[&Metric::Locked] >= 1.0);
    assert!(
        counted[0].counts[&Metric::SharedLines] >= 2.0,
        "there and back"
    );
}

#[test]
fn both_sides_of_a_get_are_counted() {
    let counted = count("herd-get-1", 16);
    let [client, server] = &counted[..] else {
        panic!("two sides");
    };
    assert_eq!((client.side, server.side), ("client", "server"));
    for side in [client, server] {
        assert_eq!(side.counts[&Metric::Allocations], 0.0);
        assert_eq!(side.counts[&Metric::Syscalls], 0.0);
        // The request's line goes there, the answer's back.
        assert!(side.counts[&Metric::Transfers] >= 2.0, "{}", side.side);
    }
}
