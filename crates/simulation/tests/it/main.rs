//! Seeds of the simulation: that they are fine, that they repeat, and that they see what is wrong.
//!
//! `VERVAIN_SIMULATE_SEEDS` says how many are run.

use std::process::{Command, Stdio};

use conformance::model::Broken;
use sim::{World, twice};
use simulation::command::run_seeds;
use simulation::{Failure, Options, Plan, run};

#[test]
fn every_answer_of_many_seeds_is_explained_and_everything_ends() {
    let seeds = std::env::var("VERVAIN_SIMULATE_SEEDS")
        .map_or(500, |text| text.parse().expect("a number of seeds"));
    let (_, counts, failures) = run_seeds(0..seeds, None, &Options::default(), |_, _| true);
    if let Some((seed, failure)) = failures.first() {
        let count = failures.len();
        panic!(
            "{count} of {seeds} seeds failed; seed {seed}: {failure}\n\
             replay it with a trace: cargo lab simulate --seed {seed} --trace"
        );
    }
    println!("{counts:?}");
    // All of it has happened, and nearly all of it could be decided.
    for what in [
        "answered with an item",
        "timed out",
        "connection lost",
        "sent again",
        "clients died",
        "servers died",
        "streams broken",
        "server stalled",
        "cores stalled",
        "clients stalled",
        "NICs stalled",
        "clients cut off",
        "all clients cut off",
        "clock jumps",
        "items pushed out",
        "answers that came later",
        "messages lost",
        "messages cut",
        "messages doubled",
        "messages slow",
    ] {
        assert!(counts.of(what) > seeds / 10, "{what}: {counts:?}");
    }
    let (undecided, all) = ("histories undecided", "histories checked");
    assert!(counts.of(undecided) * 100 <= counts.of(all), "{counts:?}");
}

/// What panics on a node is the cache as a rule, and not told as the simulation's failure.
#[test]
fn a_panic_on_a_node_is_told_as_one() {
    let ran = World::of(1, 1).run(0, |_| async { panic!("on purpose") });
    let failed = Failure::from(ran.map(|(): ()| ()).expect_err("it panics"));
    assert!(
        matches!(&failed, Failure::Panicked(why) if why.contains("on purpose")),
        "{failed}"
    );
}

#[test]
fn a_seed_repeats_byte_for_byte() {
    let options = Options {
        trace: true,
        ..Options::default()
    };
    let came = |seed, options: &Options| {
        let report = run(&Plan::draw(seed), options);
        (report.trace, report.counts, report.turns)
    };
    for seed in 0..6 {
        let traced = twice(seed, |seed| came(seed, &options));
        assert!(traced.0.len() > 10_000);
        // Nor does writing it down change anything.
        let untraced = came(seed, &Options::default());
        assert_eq!((untraced.1, untraced.2), (traced.1, traced.2));
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
        let (.., failures) = run_seeds(0..60, None, &options, |_, _| true);
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
