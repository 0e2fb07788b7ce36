//! `cargo lab simulate`: runs seeds, and shows what went wrong and how to see it again.

use std::io::{ErrorKind, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::{Counts, Failure, Options, Plan, Report};

/// Which seeds.
#[derive(clap::Args, Debug)]
pub struct SimulateFlags {
    /// Runs so many seeds.
    #[arg(long, default_value_t = 500, value_name = "N")]
    seeds: u64,
    /// Begins with this one.
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    from: u64,
    /// Runs this seed only.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Prints everything that happens; with --seed.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Goes on after a seed that fails.
    #[arg(long)]
    keep_going: bool,
    /// Threads; by default as many as there are cores.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// Prints a line.
macro_rules! say {
    ($($part:tt)*) => {
        write(format_args!("{}\n", format_args!($($part)*)))
    };
}

/// Prints. A reader who has seen enough (`| head`) ends the run, which is no error.
fn write(text: std::fmt::Arguments<'_>) {
    if let Err(error) = std::io::stdout().lock().write_fmt(text) {
        if error.kind() == ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        eprintln!("cannot print what came of it: {error}");
        std::process::exit(2);
    }
}

/// Runs; false when a seed failed.
pub fn run(flags: &SimulateFlags) -> bool {
    match flags.seed {
        Some(seed) => one(seed, flags.trace),
        None => many(flags),
    }
}

/// Runs a seed; a panic is a failure of it.
fn run_seed(seed: u64, trace: bool) -> Report {
    let options = Options {
        trace,
        ..Options::default()
    };
    let ran = catch_unwind(AssertUnwindSafe(|| crate::run(&Plan::draw(seed), &options)));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
        let why = text.unwrap_or_else(|| "a panic without a message".to_string());
        Report {
            counts: Counts::default(),
            failure: Some(Failure::Broken(format!("panicked: {why}"))),
            trace: String::new(),
        }
    })
}

fn one(seed: u64, trace: bool) -> bool {
    let report = run_seed(seed, trace);
    write(format_args!("{}", report.trace));
    match &report.failure {
        None => {
            say!("seed {seed}: fine");
            print_counts(&report.counts);
            true
        }
        Some(failure) => {
            say!("seed {seed}: {failure}");
            if !trace {
                say!("{}", replay(seed));
            }
            false
        }
    }
}

fn replay(seed: u64) -> String {
    format!("replay it with a trace: cargo lab simulate --seed {seed} --trace")
}

fn many(flags: &SimulateFlags) -> bool {
    let began = Instant::now();
    let end = flags.from.saturating_add(flags.seeds);
    let next = AtomicU64::new(flags.from);
    let sum = Mutex::new((Counts::default(), Vec::new(), 0));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return;
        }
        let report = run_seed(seed, false);
        let mut sum = sum.lock().expect("nobody panics with the lock");
        sum.0.add(&report.counts);
        sum.2 += 1;
        if let Some(failure) = report.failure {
            say!("seed {seed}: {failure}\n{}\n", replay(seed));
            sum.1.push(seed);
            if !flags.keep_going {
                next.store(end, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..flags.threads.unwrap_or(cores).max(1) {
            scope.spawn(work);
        }
    });
    let (counts, mut failed, ran) = sum.into_inner().expect("nobody panics with the lock");
    say!(
        "{ran} seeds from {} in {:.1} s",
        flags.from,
        began.elapsed().as_secs_f64()
    );
    print_counts(&counts);
    if failed.is_empty() {
        say!("no wrong answer, nothing stuck, nothing kept");
        return true;
    }
    failed.sort_unstable();
    say!("{} seeds failed: {failed:?}", failed.len());
    false
}

fn print_counts(counts: &Counts) {
    let network = &counts.network;
    say!(
        "  commands   {} ({} answered, {} with an item; {} timed out, {} unknown)",
        counts.operations,
        counts.answered,
        counts.hits,
        counts.timed_out,
        counts.unknown
    );
    say!(
        "  messages   {} ({} lost, {} cut, {} doubled, {} slow)",
        network.sent,
        network.lost,
        network.cut,
        network.doubled,
        network.slow
    );
    say!(
        "  faults     {} clients died, {} servers, {} streams broke, {} stalls",
        counts.crashes,
        counts.restarts,
        counts.breaks,
        counts.stalls
    );
    say!("  items      {} pushed out", counts.evictions);
    say!(
        "  checked    {} histories, {} undecided",
        counts.histories,
        counts.undecided
    );
}
