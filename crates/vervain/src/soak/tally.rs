//! What was done, counted.

use serde::Serialize;

use super::wire::Kind;
use super::world::Failure;

/// Answers of a hundred that may go unjudged.
const UNJUDGED_PERCENT_MAX: u64 = 1;

/// What a client did.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Operations by kind, as they were asked.
    pub(super) asked: [u64; Kind::Touch as usize + 1],
    pub(super) hits: u64,
    pub(super) misses: u64,
    /// Answers that the search for an order has judged.
    pub(super) checked: u64,
    /// Answers about keys that were given up before.
    pub(super) unjudged: u64,
    /// Keys that were given up because the search gave up.
    pub(super) keys_undecided: u64,
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
        self.unjudged += other.unjudged;
        self.keys_undecided += other.keys_undecided;
        self.unknown += other.unknown;
        self.not_sent += other.not_sent;
        self.busy += other.busy;
        self.processes += other.processes;
        self.connects += other.connects;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    /// Whether so many answers were judged that no wrong one among them says something.
    pub(super) fn enough_judged(&self) -> Result<(), Failure> {
        let answers = self.checked + self.unjudged;
        if self.unjudged * 100 <= answers * UNJUDGED_PERCENT_MAX {
            return Ok(());
        }
        Err(Failure::Unjudged(format!(
            "{} of {answers} answers were not judged; the search gave {} keys up",
            self.unjudged, self.keys_undecided
        )))
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
