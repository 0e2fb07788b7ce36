//! Questions to a peer: the file behind one of its regions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::contact::adapter::Adapter;
use crate::shared::mr_entry::Described;

/// Questions to a peer that it has not answered, at most. So few answers always find room in the
/// connection: a peer drops whoever does not take its answers.
pub(crate) const QUESTIONS_MAX: usize = 16;

/// The question for the file behind a region of a peer.
#[derive(Debug)]
pub(crate) struct Question {
    key: u32,
    region: Described,
    /// When whoever asks began to wait.
    since: Instant,
    is_sent: AtomicBool,
    is_answered: AtomicBool,
}

impl Question {
    pub(crate) fn new(key: u32, region: &Described, since: Instant) -> Arc<Self> {
        Arc::new(Question {
            key,
            region: *region,
            since,
            is_sent: AtomicBool::new(false),
            is_answered: AtomicBool::new(false),
        })
    }

    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// The region, as it was described to whoever asks.
    pub(crate) fn region(&self) -> &Described {
        &self.region
    }

    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    pub(crate) fn is_for(&self, key: u32, region: &Described) -> bool {
        self.key == key && self.region == *region
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent.load(Ordering::Relaxed)
    }

    pub(crate) fn note_sent(&self) {
        self.is_sent.store(true, Ordering::Relaxed);
    }

    /// Whether the answer has come. Then the peer has the mapping, if there is one for us.
    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Acquire)
    }

    pub(crate) fn note_answered(&self) {
        self.is_answered.store(true, Ordering::Release);
    }

    /// Whether whoever asked has waited long enough.
    pub(crate) fn is_overdue(&self, adapter: &Adapter) -> bool {
        self.since.elapsed() >= adapter.contact_timeout
    }
}
