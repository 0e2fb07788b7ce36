//! What the loop of a thread needs of the way to a server.

use super::RunError;
use super::report::ConnectionStats;

/// So many looks in vain, and the CPU is offered to others.
const LOOKS_UNTIL_YIELD: u32 = 1024;

/// A request as it goes to a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request<'a> {
    Get { key: &'a [u8] },
    Put { key: &'a [u8], value: &'a [u8] },
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer<'a> {
    Value(&'a [u8]),
    Missing,
    Stored,
    Refused,
    TimedOut,
    Unknown,
}

/// A way to a server, used by one thread: a connection, or many.
pub(super) trait Connection {
    /// Begins a turn: what is submitted from here on is sent at this time. Much time may have
    /// passed since the last turn.
    fn turn(&mut self, now_ns: u64);

    /// Takes a request and returns `true`, or `false` when there is no room for it.
    fn submit(&mut self, request: &Request<'_>, tag: u64) -> Result<bool, RunError>;

    /// Sends what was submitted and hands out answers; returns how many.
    fn poll(
        &mut self,
        now_ns: u64,
        sink: &mut impl FnMut(u64, Answer<'_>),
    ) -> Result<usize, RunError>;

    /// Lets others run after looking in vain `looks` times in a row. It may only sleep when told
    /// so: when nothing is to be done before an answer comes.
    fn idle(&mut self, looks: u32, may_sleep: bool) -> Result<(), RunError>;

    /// Whether items are stored beforehand, as fast as may be, from here on.
    fn preload(&mut self, _on: bool) {}

    /// How it fared; over a socket there is nothing to tell.
    fn stats(&self) -> Option<ConnectionStats> {
        None
    }
}

/// Spins for a while, then offers the CPU to others.
pub(super) fn spin(looks: u32) {
    if looks.is_multiple_of(LOOKS_UNTIL_YIELD) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}
