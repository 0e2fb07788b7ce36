//! Runs against a cache server. In a closed loop each client thread keeps a window of requests under
//! way, and sends the next one when an answer has come; at a rate requests are due at times of their
//! own, and their latency counts from there.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`CacheRun`]: the settings |
//! | `target.rs` | which server, and by which way |
//! | `threads.rs` | the threads, and the phases in which they go |
//! | `drive.rs` | the loop of a thread |
//! | `arrivals.rs` | [`Rate`]: when requests are due that do not wait for the server |
//! | `connection.rs` | what the loop needs of the way to a server |
//! | `nic.rs`, `fleet.rs` | a client of HERD through a NIC, and many of them in a thread |
//! | `socket.rs`, `reply.rs` | a connection through a socket, by the Memcache protocol |
//! | `sockets.rs` | the sockets of a thread |
//! | `tally.rs` | what a thread counts and times |
//! | `report.rs` | [`CacheReport`] |
//! | `loads.rs` | [`LoadSweep`]: latency at offered loads |
//! | `limit.rs` | [`Limit`]: what a run is up against |
//! | `show.rs` | these as tables |

mod arrivals;
mod connection;
mod drive;
mod fleet;
mod limit;
mod loads;
mod nic;
mod reply;
mod report;
pub mod show;
mod socket;
mod sockets;
mod tally;
mod target;
mod threads;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::units;
use crate::workload::{CHECKABLE_LEN_MIN, Distribution, Generator, Mix, Workload, WorkloadError};

pub use arrivals::{Arrival, Rate, Schedule};
pub use limit::{Limit, SocketLimit};
pub use loads::{Load, LoadReport, LoadSweep, Rates};
pub use report::as_seconds;
pub use report::{
    CacheReport, ConnectionStats, Counts, Latencies, Percentiles, PreloadReport, ThreadReport,
};
pub use tally::{Sample, histogram};
pub use target::{Address, Door, Target};

/// Requests under way on a connection at most.
const WINDOW_MAX: u32 = 1 << 16;
/// Requests a second at most: there is no clock for more.
const RATE_MAX: f64 = 1e9;

/// Why a run ended without a report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no such workload.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(&'static str),
    /// The door is shut, or the connection broke.
    #[error("the connection to the server: {0}")]
    Io(#[from] std::io::Error),
    /// The server does not speak HERD, or refused.
    #[error(transparent)]
    Connect(#[from] ::cache::herd::client::ConnectError),
    /// The NIC refused.
    #[error(transparent)]
    Nic(#[from] verbs::VerbsError),
    /// The server sent what is no answer.
    #[error("the server answers `{0}`")]
    Answer(String),
    /// Nothing came for as long as a request may take.
    #[error("the server has not answered for {0:?}")]
    Silent(Duration),
    /// A client thread panicked.
    #[error("a client thread panicked")]
    Panicked,
}

/// How long something goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// Until this time is over; what is under way is still waited for.
    #[serde(rename = "seconds", serialize_with = "report::as_seconds")]
    Time(Duration),
    /// So many requests, all threads together.
    Operations(u64),
}

/// Which CPUs the client threads run on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pinning {
    /// Wherever the kernel lets them.
    None,
    /// The last CPUs of the process, one each: a server starts with the first ones. When that
    /// leaves none for the server, no thread is pinned.
    Last,
    /// These, in turn.
    Cpus(Vec<usize>),
}

/// A run's report, and each of its requests.
#[derive(Debug)]
pub struct Sampled {
    /// The report.
    pub report: CacheReport,
    /// The requests that were measured, by when they were due.
    pub samples: Vec<Sample>,
    /// Pauses of the threads' loops of 50 microseconds and more: when each ended, and how long it
    /// was. Somebody else had the CPU.
    pub pauses: Vec<(u64, u64)>,
}

/// The settings of a run, which are arguments of a command line as well, as far as they are told
/// there as they are here.
#[derive(clap::Args, Clone, Debug, Serialize)]
pub struct CacheRun {
    /// Which server.
    #[arg(skip = Target::Socket(Address::Unix(PathBuf::new())))]
    #[serde(flatten)]
    pub target: Target,
    /// Reads and updates: YCSB's a (50 % reads), b (95 %) or c (all); put:5, put:50 or put:100 for
    /// so many percent of updates; or the permille of reads.
    #[arg(long, value_name = "MIX", default_value = "b")]
    #[serde(flatten)]
    pub mix: Mix,
    /// Which items: uniform, zipf (theta .99) or zipf:THETA.
    #[arg(long, value_name = "NAME", default_value = "uniform")]
    pub distribution: Distribution,
    /// Items in the cache.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub items: u64,
    /// Bytes of a key.
    #[arg(long = "key-size", value_name = "SIZE", default_value = "16", value_parser = units::size)]
    pub key_len: usize,
    /// Bytes of a value.
    #[arg(long = "value-size", value_name = "SIZE", default_value = "32", value_parser = units::size)]
    pub value_len: usize,
    /// Requests under way at most: to one core over a NIC (a power of two; the server may allow
    /// fewer), on one connection over a socket.
    #[arg(skip = 16_u32)]
    pub window: u32,
    /// Keys of one `get` over a socket; each counts as a request.
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::count::<1, 1024>)]
    pub multiget: usize,
    /// Connections (HERD clients, or sockets) of each client thread.
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::count::<1, 65536>)]
    pub connections: usize,
    /// Client threads.
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::count::<1, 1024>)]
    pub threads: usize,
    /// Requests that are due at this rate; nothing for a closed loop.
    #[arg(skip)]
    pub rate: Option<Rate>,
    /// Where the threads run.
    #[arg(skip = Pinning::None)]
    pub pinning: Pinning,
    /// How long to measure.
    #[arg(skip = Length::Time(Duration::from_secs(10)))]
    pub length: Length,
    /// How long to run before.
    #[arg(skip = Length::Time(Duration::from_secs(1)))]
    pub warm_up: Length,
    /// Store every item once, first of all.
    #[arg(skip = true)]
    pub preload: bool,
    /// Repeats the requests exactly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Check that each value read is a whole value of its item.
    #[arg(long)]
    pub verify: bool,
    /// A request is given up after so long.
    #[arg(skip = Duration::from_secs(1))]
    #[serde(rename = "timeout_s", serialize_with = "as_seconds")]
    pub timeout: Duration,
}

impl CacheRun {
    /// YCSB's workload B as in HERD's figures, on one thread: a million items of 16 and 32 bytes,
    /// drawn uniformly, 16 requests under way, 10 seconds.
    pub fn new(target: Target) -> Self {
        CacheRun {
            target,
            ..units::usual()
        }
    }

    /// Runs. `progress` is told, from this thread and a few times a second, how many items of how
    /// many the preload has stored; at the end too, when that has grown.
    ///
    /// # Errors
    /// Settings that make no sense, a server that cannot be reached, a socket that broke. Single
    /// requests that fail are counted in the report.
    pub fn run(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CacheReport, RunError> {
        Ok(threads::run(self, &self.generator()?, None, progress)?.report)
    }

    /// The same, with each request that was measured. Times count from `epoch`. Each thread calls
    /// `begin` when the items are stored, and goes on when it returns.
    ///
    /// # Errors
    /// As [`CacheRun::run`].
    pub fn sample(&self, epoch: Instant, begin: &(dyn Fn() + Sync)) -> Result<Sampled, RunError> {
        let sampling = threads::Sampling { epoch, begin };
        threads::run(self, &self.generator()?, Some(&sampling), &mut |_, _| {})
    }

    fn generator(&self) -> Result<Generator, RunError> {
        self.check(matches!(self.target, Target::Nic { .. }))
    }

    /// Whether the settings make sense, over a NIC or over a socket: [`CacheRun::run`] asks too. Gives
    /// what draws the requests.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn check(&self, over_nic: bool) -> Result<Generator, RunError> {
        let is_rate = |rate: Rate| (1.0..=RATE_MAX).contains(&rate.per_second);
        let is_list =
            |pinning: &Pinning| !matches!(pinning, Pinning::Cpus(cpus) if cpus.is_empty());
        let rules = [
            (self.threads > 0, "there is at least one client thread"),
            (self.window > 0, "the window is at least 1"),
            (self.window <= WINDOW_MAX, "the window is at most 65536"),
            (
                self.rate.is_none_or(is_rate),
                "a rate lies between 1 and 10^9 a second",
            ),
            (self.connections > 0, "a thread has at least one connection"),
            (
                (1..=self.window as usize).contains(&self.multiget),
                "a multiget has at least one key, and no more than the window",
            ),
            (
                !over_nic || self.multiget == 1,
                "a multiget needs a socket: --socket",
            ),
            (
                !over_nic || self.window.is_power_of_two(),
                "over a NIC the window is a power of two",
            ),
            (self.value_len > 0, "a value has at least 1 byte"),
            (
                !self.verify || self.value_len >= CHECKABLE_LEN_MIN,
                "values that are verified have at least 24 bytes",
            ),
            (
                !self.timeout.is_zero(),
                "a request takes longer than no time",
            ),
            (is_list(&self.pinning), "the list of CPUs is empty"),
        ];
        if let Some((_, why)) = rules.into_iter().find(|(holds, _)| !holds) {
            return Err(RunError::Setting(why));
        }
        let workload = Workload {
            mix: self.mix,
            distribution: self.distribution,
            items: self.items,
            key_len: self.key_len,
        };
        Ok(workload.generator(self.seed)?)
    }
}
