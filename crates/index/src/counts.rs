//! What an index has done, for tests and metrics.

/// Counters since the index was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were carried out or refused.
    pub requests: u64,
    /// Requests that were answered at once, from memory.
    pub quick: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Writes in them.
    pub writes: u64,
    /// Transactions that had to be done again, because a row had changed.
    pub conflicts: u64,
    /// Transactions whose end had to be found out by reading.
    pub unknown: u64,
    /// Reads of the engine: rows and scans.
    pub reads: u64,
    /// Repeats that got the original answer.
    pub repeats: u64,
}
