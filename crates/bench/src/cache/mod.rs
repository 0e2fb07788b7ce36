//! Runs against a cache server. In a closed loop each client thread keeps a window of requests under
//! way, and sends the next one when an answer has come; at a rate requests are due at times of their
//! own, and their latency counts from there.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`CacheRun`]: the settings |
//! | `target.rs` | which server, and by which way |
//! | `threads.rs`, `gate.rs` | the threads, and the phases in which they go |
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
mod gate;
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

use std::time::Duration;

use serde::Serialize;

use crate::workload::{CHECKABLE_LEN_MIN, Distribution, Generator, Mix, Workload, WorkloadError};

pub use arrivals::{Arrival, Rate, Schedule};
pub use connection::spin;
pub use limit::{Limit, SocketLimit};
pub use loads::{Load, LoadReport, LoadSweep, Rates};
pub use report::as_seconds;
pub use report::{
    CacheReport, ConnectionStats, Counts, Latencies, Percentiles, PreloadReport, Settings,
    ThreadReport,
};
pub use tally::histogram;
pub use target::{Address, Door, Target};

/// Requests under way on a connection at most.
const WINDOW_MAX: u32 = 1 << 16;
/// Requests a second at most: there is no clock for more.
const RATE_MAX: f64 = 1e9;

/// Why a run ended without a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct CacheRun {
    /// Which server.
    pub target: Target,
    /// Reads and updates.
    pub mix: Mix,
    /// Hot and cold items.
    pub distribution: Distribution,
    /// How many items there are.
    pub items: u64,
    /// Bytes of a key.
    pub key_len: usize,
    /// Bytes of a value.
    pub value_len: usize,
    /// Requests under way at most: to one core over a NIC (a power of two; the server may allow
    /// fewer), on one connection over a socket.
    pub window: u32,
    /// Keys of one `get` over a socket; each counts as a request. 1 over a NIC.
    pub multiget: usize,
    /// Connections of a thread.
    pub connections: usize,
    /// Client threads.
    pub threads: usize,
    /// Requests that are due at this rate; nothing for a closed loop.
    pub rate: Option<Rate>,
    /// Where the threads run.
    pub pinning: Pinning,
    /// How long to measure.
    pub length: Length,
    /// How long to run before.
    pub warm_up: Length,
    /// Store every item once, first of all.
    pub preload: bool,
    /// What repeats the requests exactly.
    pub seed: u64,
    /// Check that each value read is a whole value of its item.
    pub verify: bool,
    /// A request is given up after so long.
    pub timeout: Duration,
}

impl CacheRun {
    /// YCSB's workload B as in HERD's figures, on one thread: a million items of 16 and 32 bytes,
    /// drawn uniformly, 16 requests under way, 10 seconds.
    pub fn new(target: Target) -> Self {
        CacheRun {
            target,
            mix: Mix::B,
            distribution: Distribution::Uniform,
            items: 1 << 20,
            key_len: 16,
            value_len: 32,
            window: 16,
            multiget: 1,
            connections: 1,
            threads: 1,
            rate: None,
            pinning: Pinning::None,
            length: Length::Time(Duration::from_secs(10)),
            warm_up: Length::Time(Duration::from_secs(1)),
            preload: true,
            seed: 1,
            verify: false,
            timeout: Duration::from_secs(1),
        }
    }

    /// Runs. `progress` is told, from this thread and a few times a second, how many items of how
    /// many the preload has stored; at the end too, when that has grown.
    ///
    /// # Errors
    /// Settings that make no sense, a server that cannot be reached, a socket that broke. Single
    /// requests that fail are counted in the report.
    pub fn run(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CacheReport, RunError> {
        let generator = self.check()?;
        threads::run(self, &generator, progress)
    }

    fn check(&self) -> Result<Generator, RunError> {
        if self.threads == 0 {
            return Err(RunError::Setting("there is at least one client thread"));
        }
        if self.window == 0 {
            return Err(RunError::Setting("the window is at least 1"));
        }
        if self.window > WINDOW_MAX {
            return Err(RunError::Setting("the window is at most 65536"));
        }
        if let Some(rate) = self.rate
            && !(rate.per_second >= 1.0 && rate.per_second <= RATE_MAX)
        {
            return Err(RunError::Setting("a rate lies between 1 and 10^9 a second"));
        }
        if self.connections == 0 {
            return Err(RunError::Setting("a thread has at least one connection"));
        }
        if self.multiget == 0 || self.multiget > self.window as usize {
            return Err(RunError::Setting(
                "a multiget has at least one key, and no more than the window",
            ));
        }
        if matches!(self.target, Target::Nic { .. }) && self.multiget > 1 {
            return Err(RunError::Setting("a multiget needs a socket"));
        }
        if matches!(self.target, Target::Nic { .. }) && !self.window.is_power_of_two() {
            return Err(RunError::Setting("over a NIC the window is a power of two"));
        }
        if self.value_len == 0 {
            return Err(RunError::Setting("a value has at least 1 byte"));
        }
        if self.verify && self.value_len < CHECKABLE_LEN_MIN {
            return Err(RunError::Setting(
                "values that are verified have at least 24 bytes",
            ));
        }
        if self.timeout.is_zero() {
            return Err(RunError::Setting("a request takes longer than no time"));
        }
        if let Pinning::Cpus(cpus) = &self.pinning
            && cpus.is_empty()
        {
            return Err(RunError::Setting("the list of CPUs is empty"));
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
