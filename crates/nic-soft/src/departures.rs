//! Counts those who have gone, and what has been given up: whoever remembers such things looks at
//! the count alone, and through what he remembers only when it has moved.

use crate::sync::{AtomicU64, Ordering};

/// The count of an adapter.
#[derive(Debug)]
pub(crate) struct Departures(AtomicU64);

/// How far somebody has seen it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen(u64);

impl Departures {
    pub(crate) fn new() -> Self {
        Departures(AtomicU64::new(0))
    }

    /// Something has gone, and is marked so.
    pub(crate) fn announce(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// Whether anything has gone since.
    #[inline]
    pub(crate) fn since(&self, seen: Seen) -> bool {
        self.0.load(Ordering::Relaxed) != seen.0
    }

    /// Everything that has gone up to here is seen to be marked.
    pub(crate) fn look(&self) -> Seen {
        Seen(self.0.load(Ordering::Acquire))
    }
}

impl Default for Seen {
    /// Nothing seen yet.
    fn default() -> Self {
        Seen(0)
    }
}
