//! How far the completions of a queue pair have been polled, which is what frees its send queue.
//!
//! A queue pair's number is used again, and completions of its predecessor may still be polled then,
//! from another completion queue and so by another thread. Positions of requests say whose they are:
//! each queue pair counts its own from a place beyond all those before it. In 64 bits that is for ever: a
//! thousand million requests a second take 500 years.

use crate::sync::quiescence::Quiescence;
use crate::sync::{AtomicU64, Ordering};

/// What is known of a number's queue pairs.
#[derive(Debug)]
pub(crate) struct Released {
    /// Where the present queue pair counts from.
    first: AtomicU64,
    /// How far its completions have been polled.
    polled: AtomicU64,
    /// Where the next one counts from; 0 while there was none.
    next: AtomicU64,
}

impl Released {
    pub(crate) fn new() -> Self {
        Released {
            first: AtomicU64::new(0),
            polled: AtomicU64::new(0),
            next: AtomicU64::new(0),
        }
    }

    /// Says where a new queue pair counts its requests from. If there was one of its number before,
    /// waits for the polls that are under way; the caller must not be in one.
    pub(crate) fn begin(&self, quiescence: &Quiescence) -> u64 {
        let first = self.next.load(Ordering::Relaxed);
        self.first.store(first, Ordering::Relaxed);
        if first > 0 {
            // A poll that has found the old number may still note what it took. Later ones find the
            // new number.
            quiescence.wait();
        }
        self.polled.store(first, Ordering::Relaxed);
        first
    }

    /// The present queue pair goes, whose last request has this position. Before its number is free.
    pub(crate) fn end(&self, position: u64) {
        self.next.store(position + 1, Ordering::Relaxed);
    }

    /// A completion has been polled, by the one who polls its completion queue. The caller is inside
    /// an operation that the quiescence knows of.
    #[inline]
    pub(crate) fn note(&self, position: u64) {
        // One of an earlier queue pair says nothing. Those of the present one are polled in order, by
        // one thread at a time, so that nobody else stores here.
        if position > self.first.load(Ordering::Relaxed) {
            self.polled.store(position, Ordering::Release);
        }
    }

    /// How far completions have been polled. Whoever finds room by that finds it in their completion
    /// queue as well.
    pub(crate) fn polled(&self) -> u64 {
        self.polled.load(Ordering::Acquire)
    }
}
