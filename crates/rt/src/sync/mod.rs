//! Synchronisation between tasks of one core: no atomics, no locks, nothing is `Send`.
//!
//! What crosses cores is in [`crate::cross`].

mod notify;
mod queue;
mod semaphore;
mod waiters;

pub use notify::Notify;
pub use queue::{QueueReceiver, QueueSender, queue};
pub use semaphore::{Permit, Semaphore};
