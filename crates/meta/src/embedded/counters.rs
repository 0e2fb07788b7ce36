//! What an engine has done so far.

use std::sync::atomic::{AtomicU64, Ordering};

/// One count, of all threads.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts themselves.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) gets: Count,
    pub(super) scans: Count,
    pub(super) committed: Count,
    pub(super) conflicts: Count,
    pub(super) failed: Count,
    pub(super) groups: Count,
    pub(super) journal_bytes: Count,
    pub(super) checkpoints: Count,
    pub(super) stalls: Count,
}

/// What an engine was asked for and has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads of one row.
    pub gets: u64,
    /// Scans.
    pub scans: u64,
    /// Transactions that were carried out.
    pub committed: u64,
    /// Transactions of which a comparison failed.
    pub conflicts: u64,
    /// Transactions with another end.
    pub failed: u64,
    /// Durable writes of the journal: each makes a group of transactions durable.
    pub groups: u64,
    /// Bytes of those.
    pub journal_bytes: u64,
    /// Times that rows went from memory to the database.
    pub checkpoints: u64,
    /// Times that a group had to wait for that.
    pub stalls: u64,
}

impl Counters {
    pub(super) fn counts(&self) -> Counts {
        Counts {
            gets: self.gets.now(),
            scans: self.scans.now(),
            committed: self.committed.now(),
            conflicts: self.conflicts.now(),
            failed: self.failed.now(),
            groups: self.groups.now(),
            journal_bytes: self.journal_bytes.now(),
            checkpoints: self.checkpoints.now(),
            stalls: self.stalls.now(),
        }
    }
}
