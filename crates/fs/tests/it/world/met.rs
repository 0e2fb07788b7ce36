//! What people have gone through in a run: a test asserts that enough of each has happened.

use std::cell::Cell;

/// What people have gone through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Met {
    /// Connections that were lost.
    pub(crate) breaks: Cell<u64>,
    /// Files that had lost unstable writes.
    pub(crate) losses: Cell<u64>,
    /// Commits that told another verifier than the writes before.
    pub(crate) doubts: Cell<u64>,
    /// Opens that were claimed again.
    pub(crate) claims: Cell<u64>,
    /// Refusals for want of room.
    pub(crate) refusals: Cell<u64>,
    /// File systems that were closed in order.
    pub(crate) closes: Cell<u64>,
    /// Clients whose lease has run out.
    pub(crate) lapses: Cell<u64>,
}

impl Met {
    pub(crate) fn note_close(&self, is_closed: bool) {
        count(&self.closes, is_closed.into());
    }
}

/// Counts more of something.
pub(super) fn count(of: &Cell<u64>, more: u64) {
    of.set(of.get() + more);
}
