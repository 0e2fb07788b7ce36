//! What a core is told at its start.

use std::sync::Arc;
use std::time::Duration;

use crate::io::IoKind;
use crate::time::{Clock, SystemClock};

/// What a core does when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleMode {
    /// Looks again and again: the lowest latency, and a whole CPU.
    Poll,
    /// Looks for a while, then sleeps until something wakes it.
    Sleep {
        /// How long to look first. A wake-up costs some 10 us or more, a look almost nothing.
        spin: Duration,
    },
}

/// How a core runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// What to do when there is nothing to do.
    pub idle: IdleMode,
    /// Tasks that one turn of the loop runs at most.
    pub task_budget: usize,
    /// Units of work that one turn gives each poller at most.
    pub poller_budget: usize,
    /// The seed of the core's random numbers.
    pub seed: u64,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// A fixed way of doing I/O; `None` takes io_uring, or epoll where that is refused.
    pub io: Option<IoKind>,
    /// The CPU that [`crate::threads`] pins the core to.
    pub cpu: Option<usize>,
}

impl Default for Config {
    /// Spins for 100 us, then sleeps; the machine's clock; seed 0.
    fn default() -> Self {
        Self {
            idle: IdleMode::Sleep {
                spin: Duration::from_micros(100),
            },
            task_budget: 256,
            poller_budget: 64,
            seed: 0,
            clock: Arc::new(SystemClock),
            io: None,
            cpu: None,
        }
    }
}
