//! Seeds of the simulation: that they are fine, that they repeat, and that they see what is wrong.
//!
//! `VERVAIN_SIMULATE_SEEDS` says how many are run.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use conformance::model::Broken;
use simulation::{Counts, Failure, Options, Plan, run};

/// Runs seeds on all cores, and returns the sum of what happened, and the failures.
fn run_seeds(seeds: u64, options: &Options) -> (Counts, Vec<(u64, Failure)>) {
    let next = AtomicU64::new(0);
    let sum = Mutex::new((Counts::default(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    let report = run(&Plan::draw(seed), options);
                    let mut sum = sum.lock().expect("nobody panics with the lock");
                    sum.0.add(&report.counts);
                    sum.1.extend(report.failure.map(|failure| (seed, failure)));
                }
            });
        }
    });
    sum.into_inner().expect("nobody panics with the lock")
}

#[test]
fn every_answer_of_many_seeds_is_explained_and_everything_ends() {
    let seeds = std::env::var("VERVAIN_SIMULATE_SEEDS")
        .map_or(500, |text| text.parse().expect("a number of seeds"));
    let (counts, failures) = run_seeds(seeds, &Options::default());
    if let Some((seed, failure)) = failures.first() {
        let count = failures.len();
        panic!(
            "{count} of {seeds} seeds failed; seed {seed}: {failure}\n\
             replay it with a trace: cargo lab simulate --seed {seed} --trace"
        );
    }
    println!("{counts:?}");
    // All of it has happened, and nearly all of it could be decided.
    let happened = [
        counts.hits,
        counts.timed_out,
        counts.unknown,
        counts.repeats,
        counts.crashes,
        counts.restarts,
        counts.breaks,
        counts.stalls,
        counts.evictions,
        counts.network.lost,
        counts.network.cut,
        counts.network.doubled,
        counts.network.slow,
    ];
    assert!(
        happened.iter().all(|count| *count > seeds / 10),
        "{counts:?}"
    );
    assert!(counts.undecided * 100 <= counts.histories, "{counts:?}");
}

#[test]
fn a_seed_repeats_byte_for_byte() {
    let options = Options {
        trace: true,
        ..Options::default()
    };
    for seed in 0..6 {
        let first = run(&Plan::draw(seed), &options);
        let second = run(&Plan::draw(seed), &options);
        assert!(first.trace.len() > 10_000);
        assert!(first.trace == second.trace, "seed {seed} went two ways");
        assert_eq!(first.counts, second.counts);
        // Nor does writing it down change anything.
        let untraced = run(&Plan::draw(seed), &Options::default());
        assert_eq!(untraced.counts, first.counts);
    }
}

/// A network that breaks a promise that HERD relies on gives wrong answers, and they are found.
#[test]
fn a_network_that_breaks_its_promises_is_found_out() {
    for broken in [
        Broken::Doubled,
        Broken::Reordered,
        Broken::LastLineFirst,
        Broken::Changed,
    ] {
        let options = Options {
            broken: Some(broken),
            ..Options::default()
        };
        let (_, failures) = run_seeds(60, &options);
        let lies = failures
            .iter()
            .filter(|(_, failure)| matches!(failure, Failure::Lie(_)));
        let count = lies.count();
        println!("{broken:?}: {count} of 60 seeds");
        assert!(count > 0, "{broken:?} is not noticed: {failures:?}");
    }
}

#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    let mut running = Command::new(env!("CARGO_BIN_EXE_simulation"))
        .args(["--seed", "0", "--trace"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    drop(running.stdout.take());
    let ended = running.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && said.is_empty(),
        "{ended:?}: {said}"
    );
}
