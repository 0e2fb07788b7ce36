//! What waits for the poller of a completion queue, until the queue's owner has dropped it.
//!
//! Posters and the agent add to it at any time. After [`WorkList::close`], new entries are dropped:
//! nobody would take them, and they hold references to the completion queue.

use std::sync::PoisonError;

use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering};

/// A list of things to do.
pub(crate) trait List: Default {
    /// How many there are.
    fn len(&self) -> usize;
}

/// The list and its end.
#[derive(Debug)]
#[repr(C)] // What pollers look at lies beside what stands before the list.
pub(crate) struct WorkList<L> {
    /// How much there is to do: the poller looks at this alone.
    len: AtomicUsize,
    /// Set when the queue's owner has dropped it.
    closed: AtomicBool,
    list: Mutex<L>,
}

impl<L: List> WorkList<L> {
    pub(crate) fn new() -> Self {
        WorkList {
            list: Mutex::new(L::default()),
            len: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Changes the list; does nothing once it is closed.
    pub(crate) fn change(&self, change: impl FnOnce(&mut L)) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: whoever closes it takes the list afterwards.
        if self.is_closed() {
            return;
        }
        change(&mut list);
        self.len.store(list.len(), Ordering::Release);
    }

    /// Whether there is nothing to do. What was added before a ring that woke the caller, or
    /// before the caller armed its queue, it sees.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Takes everything.
    pub(crate) fn take(&self) -> L {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        self.len.store(0, Ordering::Release);
        std::mem::take(&mut *list)
    }

    /// Takes everything, and nothing is added any more.
    #[must_use]
    pub(crate) fn close(&self) -> L {
        self.closed.store(true, Ordering::Release);
        self.take()
    }

    /// Whether the queue's owner has dropped it.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}
