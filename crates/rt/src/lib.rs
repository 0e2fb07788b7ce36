//! A task runtime for storage services: one cooperative scheduler a core.
//!
//! The runtime is the TRT of uDepot (Kourtis et al., FAST'19, section 3): each thread owns a core,
//! and a core owns its tasks, pollers, timers and sockets. Nothing moves between cores but
//! messages. A turn of the loop takes one time stamp, gives each poller a budget, fires timers,
//! collects the wakes of other cores, runs tasks within a budget, and submits and reaps I/O. A
//! core with nothing to do spins for a while, then sleeps until something wakes it.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`Core`], [`Handle`], [`Config`] | the scheduler, what tasks ask of it, how it is set up |
//! | [`poller`] | engines that a core drives without tasks |
//! | [`net`] | TCP and Unix sockets over io_uring, or epoll where that is refused |
//! | [`sync`] | between tasks of one core, without atomics |
//! | [`cross`] | between cores: channel, oneshot, notification |
//! | [`time`] | instants and clocks |
//! | [`memory`] | whether what is freed goes back to the system |
//! | [`threads`] | cores on pinned threads, and the signal that stops them |
//! | [`ManualCore`] | a core that a simulation turns, with whatever [`Sockets`] it has |
//!
//! ```
//! use std::time::Duration;
//!
//! let mut core = rt::Core::new(rt::Config::default())?;
//! let handle = core.handle();
//! let sum = core.block_on(async {
//!     let task = handle.spawn({
//!         let handle = handle.clone();
//!         async move {
//!             handle.sleep(Duration::from_millis(1)).await;
//!             20
//!         }
//!     });
//!     22 + task.await.expect("the task does not panic")
//! });
//! assert_eq!(sum, 42);
//! # Ok::<(), rt::CoreError>(())
//! ```

// Loom's tests take up the files that they explore; the rest does not run there.
#![cfg(not(loom))]

mod config;
pub mod cross;
mod handle;
mod io;
mod manual;
pub mod memory;
pub mod net;
pub mod poller;
mod scheduler;
pub mod sync;
mod task;
pub mod threads;
pub mod time;
mod timers;

pub use config::{Config, IdleMode};
pub use handle::{Elapsed, Handle, Monitor, Sleep};
pub use io::{IoKind, SocketNum, Sockets};
pub use manual::{ManualCore, Next};
pub use poller::{Arm, Poller, PollerGuard};
pub use scheduler::{Core, CoreError};
pub use task::{JoinError, JoinHandle};
pub use time::{Clock, Instant, ManualClock, SystemClock};
