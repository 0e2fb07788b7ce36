//! What this machine can do at all: the limits that other measurements run against.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`LimitRun`], [`LimitReport`] |
//! | `line.rs` | a cache line that two threads share |
//! | `between.rs` | two cores: a line there and back, a ring one way, HERD's exchange of slots |
//! | `alone.rs` | one core: stalls, reads at random places, copies |

mod alone;
mod between;
mod line;

use std::time::Duration;

use serde::Serialize;

use crate::machine::{Machine, allowed_cpus};
use crate::units;

/// Stalls are rare, so they are looked for this many times as long as anything else.
const STALLS_EACH: u32 = 5;

/// The settings of a run.
#[derive(clap::Args, Clone, Debug)]
pub struct LimitRun {
    /// The two CPUs to measure between [default: the first and the last].
    #[arg(long, value_name = "A,B", value_parser = crate::machine::two_cpus)]
    pub cpus: Option<[usize; 2]>,
    /// How long each measurement takes.
    #[arg(long = "for", value_name = "TIME", default_value = "300ms", value_parser = units::duration)]
    pub each: Duration,
    /// Memory that random reads spread over; far more than the caches hold.
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = units::size)]
    pub memory: usize,
    /// Slots of the exchange, one measurement each.
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1,4,16,32,64"
    )]
    pub windows: Vec<usize>,
    /// Bytes of a copy, one measurement each.
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = units::size,
          default_value = "64,512,4K,32K,256K,1M")]
    pub copies: Vec<usize>,
}

/// Throughput of the exchange with a number of slots.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Exchange {
    /// Slots, all under way at once.
    pub window: usize,
    /// Millions of exchanges a second.
    pub mops: f64,
}

/// What two cores can do together: the limits that a service with its client on another core runs
/// against.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BetweenCores {
    /// The CPUs that the threads were pinned to.
    pub cpus: Option<[usize; 2]>,
    /// A line from one core to the other and one back, in nanoseconds, the mean.
    pub pingpong_ns: f64,
    /// Lines of 64 bytes one way through a ring, in millions a second.
    pub ring_mops: f64,
    /// HERD's exchange without verbs or tables: a line there, a line and a flag back.
    pub exchange: Vec<Exchange>,
}

impl BetweenCores {
    /// The throughput of the exchange at its best window, in millions a second.
    pub fn exchange_mops(&self) -> f64 {
        let mops = self.exchange.iter().map(|one| one.mops);
        mops.fold(0.0, f64::max)
    }
}

/// Measures what two cores can do together, each part for `each`, with a thread on each of `cpus`
/// if this process may use them.
pub fn between_cores(
    cpus: Option<[usize; 2]>,
    each: Duration,
    windows: &[usize],
    progress: &mut dyn FnMut(&str),
) -> BetweenCores {
    let allowed = allowed_cpus();
    let cpus = cpus.filter(|cpus| cpus.iter().all(|cpu| allowed.contains(cpu)));
    progress("ping-pong");
    let pingpong_ns = between::pingpong(cpus, each);
    progress("ring");
    let ring_mops = between::ring(cpus, each);
    let mut exchange = Vec::with_capacity(windows.len());
    for &window in windows {
        progress("exchange");
        let mops = between::exchange(cpus, each, window);
        exchange.push(Exchange { window, mops });
    }
    BetweenCores {
        cpus,
        pingpong_ns,
        ring_mops,
        exchange,
    }
}

/// Throughput of copies of a size.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Copies {
    /// Bytes of one copy.
    pub bytes: usize,
    /// Billions of bytes a second.
    pub gb_per_s: f64,
}

/// What a run has found out.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LimitReport {
    /// The machine.
    pub machine: Machine,
    /// The version that measured.
    pub version: &'static str,
    /// Two cores together.
    #[serde(flatten)]
    pub between: BetweenCores,
    /// The longest time for which a loop on the first CPU did not run, in microseconds: no latency
    /// measured here can have a better worst case for long.
    pub stall_longest_us: f64,
    /// Percent of the time for which it did not run, in pauses of 100 microseconds and more.
    pub stalled_percent: f64,
    /// A read whose place depends on the read before it, in nanoseconds.
    pub dependent_read_ns: f64,
    /// Reads that do not depend on each other, in millions a second: what prefetching can reach.
    pub independent_reads_mops: f64,
    /// Copies within the caches and beyond, by size.
    pub copies: Vec<Copies>,
}

impl LimitRun {
    /// Runs all measurements, one after the other. `progress` is told the name of each as it
    /// starts. CPUs that this process may not use are left to the kernel's choice.
    pub fn run(&self, progress: &mut dyn FnMut(&str)) -> LimitReport {
        let between = between_cores(self.cpus, self.each, &self.windows, progress);
        progress("stalls");
        let cpu = between.cpus.map(|[first, _]| first);
        let (stall_longest_us, stalled_percent) = alone::stalls(cpu, STALLS_EACH * self.each);
        progress("random reads");
        let places = alone::Places::new(self.memory);
        let dependent_read_ns = places.dependent_ns(self.each);
        let independent_reads_mops = places.independent_mops(self.each);
        drop(places);
        let mut copies = Vec::new();
        for &bytes in &self.copies {
            progress("copies");
            let gb_per_s = alone::copy_gb_per_s(bytes, self.each);
            copies.push(Copies { bytes, gb_per_s });
        }
        LimitReport {
            machine: Machine::this(),
            version: env!("CARGO_PKG_VERSION"),
            between,
            stall_longest_us,
            stalled_percent,
            dependent_read_ns,
            independent_reads_mops,
            copies,
        }
    }
}
