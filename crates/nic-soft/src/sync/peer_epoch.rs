//! Peer epoch. It moves when a peer has gone or an address handle was destroyed; what is cached of
//! peers and handles is validated anew only then.

use crate::sync::{AtomicU64, Ordering};

/// The epoch of an adapter.
#[derive(Debug)]
pub(crate) struct PeerEpoch(AtomicU64);

/// The epoch that a cache was validated in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen(u64);

impl PeerEpoch {
    pub(crate) fn new() -> Self {
        PeerEpoch(AtomicU64::new(0))
    }

    /// Begins another epoch: something has gone, and is marked so.
    pub(crate) fn advance(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// Whether anything has gone since a cache was validated.
    #[inline]
    pub(crate) fn differs_from(&self, seen: Seen) -> bool {
        self.0.load(Ordering::Relaxed) != seen.0
    }

    /// The epoch to validate a cache in: what has gone before it is seen to be marked.
    pub(crate) fn read(&self) -> Seen {
        Seen(self.0.load(Ordering::Acquire))
    }
}

impl Default for Seen {
    /// Nothing seen yet.
    fn default() -> Self {
        Seen(0)
    }
}
