//! What cores share: channels, replies and notifications between them.
//!
//! A wake of a core that is awake costs no system call; a sleeping one is rung through its
//! eventfd, once a sleep.

pub(crate) mod atomics;
pub(crate) mod inbox;
pub(crate) mod shutdown;
pub(crate) mod waker_cell;

mod channel;
mod notify;
mod oneshot;

pub use channel::{ChannelReceiver, ChannelSender, TrySendError, channel};
pub use notify::{Notified, Notifier, notify};
pub use oneshot::{OneshotReceiver, OneshotSender, oneshot};
