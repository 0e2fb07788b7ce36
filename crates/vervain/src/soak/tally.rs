//! What was done, counted.

use serde::Serialize;

use super::wire::Kind;

/// What a client did.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Operations by kind, as they were asked.
    pub(super) asked: [u64; Kind::ALL.len()],
    pub(super) hits: u64,
    pub(super) misses: u64,
    /// Answers that were compared with the model.
    pub(super) checked: u64,
    pub(super) unknown: u64,
    pub(super) not_sent: u64,
    pub(super) busy: u64,
    /// Processes that were started, and connections that they made.
    pub(super) processes: u64,
    pub(super) connects: u64,
    /// Nanoseconds of the longest time in which nothing was answered.
    pub(super) longest_ns: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Tally) {
        for (sum, more) in self.asked.iter_mut().zip(other.asked) {
            *sum += more;
        }
        self.hits += other.hits;
        self.misses += other.misses;
        self.checked += other.checked;
        self.unknown += other.unknown;
        self.not_sent += other.not_sent;
        self.busy += other.busy;
        self.processes += other.processes;
        self.connects += other.connects;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    pub(super) fn operations(&self) -> u64 {
        self.asked.iter().sum()
    }
}

/// What the server used at most.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Peak {
    pub(super) resident_bytes: u64,
    pub(super) descriptors: usize,
}
