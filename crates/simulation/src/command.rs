//! `cargo lab simulate`: runs seeds, and shows what went wrong and how to see it again.

use std::io::{ErrorKind, Write};
use std::ops::Range;
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
fn run_seed(seed: u64, options: &Options) -> Report {
    let ran = catch_unwind(AssertUnwindSafe(|| crate::run(&Plan::draw(seed), options)));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
        let why = text.unwrap_or_else(|| "a panic without a message".to_string());
        Report {
            failure: Some(Failure::Panicked(why)),
            ..Report::default()
        }
    })
}

fn one(seed: u64, trace: bool) -> bool {
    let options = Options {
        trace,
        ..Options::default()
    };
    let report = run_seed(seed, &options);
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

/// Runs seeds on so many threads, or on all cores. Returns how many ran, what happened in all of them,
/// and what failed; `told` is told of a failure at once, and says whether to go on.
pub fn run_seeds(
    seeds: Range<u64>,
    threads: Option<usize>,
    options: &Options,
    told: impl Fn(u64, &Failure) -> bool + Sync,
) -> (u64, Counts, Vec<(u64, Failure)>) {
    let next = AtomicU64::new(seeds.start);
    let sum = Mutex::new((0, Counts::default(), Vec::new()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= seeds.end {
            return;
        }
        let report = run_seed(seed, options);
        let mut sum = sum.lock().expect("nobody panics with the lock");
        sum.0 += 1;
        sum.1.add(&report.counts);
        if let Some(failure) = report.failure {
            if !told(seed, &failure) {
                next.store(seeds.end, Ordering::Relaxed);
            }
            sum.2.push((seed, failure));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.unwrap_or(cores).max(1) {
            scope.spawn(work);
        }
    });
    sum.into_inner().expect("nobody panics with the lock")
}

fn many(flags: &SimulateFlags) -> bool {
    let began = Instant::now();
    let seeds = flags.from..flags.from.saturating_add(flags.seeds);
    let told = |seed, failure: &Failure| {
        say!("seed {seed}: {failure}\n{}\n", replay(seed));
        flags.keep_going
    };
    let (ran, counts, failed) = run_seeds(seeds, flags.threads, &Options::default(), told);
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
    let mut failed: Vec<u64> = failed.into_iter().map(|(seed, _)| seed).collect();
    failed.sort_unstable();
    say!("{} seeds failed: {failed:?}", failed.len());
    false
}

fn print_counts(counts: &Counts) {
    for (what, often) in &counts.0 {
        say!("  {what:<24}{often:>12}");
    }
}
