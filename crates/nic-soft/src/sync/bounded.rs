//! A queue of a fixed depth, which many threads add to and one takes from: completions of send work
//! requests, on their way from whoever posts to the poller.
//!
//! A producer claims a position, fills its slot and says so there. One that stands still in between
//! keeps what was added behind it from being taken, and nobody else waiting; it finds out afterwards
//! ([`Bounded::is_followed`]).

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Ordering, UnsafeCell};

#[derive(Debug)]
struct Slot<T> {
    /// One more than the position whose value is here.
    filled: AtomicU64,
    value: UnsafeCell<T>,
}

/// The queue: two pairs of lines, and the slots.
#[derive(Debug)]
pub(crate) struct Bounded<T> {
    claimed: CachePadded<Claimed<T>>,
    /// Positions that were taken.
    head: CachePadded<AtomicU64>,
}

/// What both sides look at each time.
#[derive(Debug)]
struct Claimed<T> {
    /// Positions that were claimed.
    tail: AtomicU64,
    /// A power of two.
    slots: Box<[Slot<T>]>,
    /// Values that it takes; not more than there are slots.
    depth: AtomicU64,
}

// SAFETY: a slot's value is touched by one thread at a time: by the producer that has claimed a
// position of it, until it says that the slot is filled, and then by the one that takes, until `head`
// has passed.
unsafe impl<T: Send> Sync for Bounded<T> {}

impl<T: Copy + Default> Bounded<T> {
    /// One for `depth` values.
    pub(crate) fn new(depth: usize) -> Self {
        let slot = |_| Slot {
            filled: AtomicU64::new(0),
            value: UnsafeCell::new(T::default()),
        };
        Bounded {
            claimed: CachePadded::new(Claimed {
                tail: AtomicU64::new(0),
                slots: (0..depth.max(1).next_power_of_two()).map(slot).collect(),
                depth: AtomicU64::new(depth as u64),
            }),
            head: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// Changes how many values it takes: not more than [`capacity`](Self::capacity), and none with 0. A producer that is
    /// adding one may not see that yet; one that adds its next value does.
    pub(crate) fn set_depth(&self, depth: usize) {
        debug_assert!(depth <= self.capacity());
        self.claimed.depth.store(depth as u64, Ordering::Relaxed);
    }

    /// Values that there are slots for.
    pub(crate) fn capacity(&self) -> usize {
        self.claimed.slots.len()
    }

    /// Values that were added, or are being added, and not taken.
    pub(crate) fn len(&self) -> usize {
        // First: what is added and taken in between does not count, however long this stands still.
        let tail = self.claimed.tail.load(Ordering::Acquire);
        let head = self.head.load(Ordering::Acquire);
        tail.saturating_sub(head) as usize
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &Slot<T> {
        let slots = &self.claimed.slots;
        &slots[position as usize & (slots.len() - 1)]
    }

    /// Adds a value, and says at which position; `None` when the queue is full. What has been taken, as
    /// far as the caller can know, leaves room.
    #[inline(always)]
    #[must_use]
    pub(crate) fn push(&self, value: T) -> Option<u64> {
        // Acquire, and Release with the claim: what the others have seen taken, whose values are counted,
        // is seen here too.
        let Claimed {
            tail: last, depth, ..
        } = &*self.claimed;
        let mut tail = last.load(Ordering::Acquire);
        loop {
            // Pairs with the store in `take`: whatever was in the slot has been read. Others may have
            // claimed and taken more since, so that `head` is ahead of `tail`; then the claim fails.
            let used = tail.wrapping_sub(self.head.load(Ordering::Acquire));
            if used as i64 >= depth.load(Ordering::Relaxed) as i64 {
                return None;
            }
            let (success, failure) = (Ordering::Release, Ordering::Acquire);
            match last.compare_exchange_weak(tail, tail + 1, success, failure) {
                Ok(_) => break,
                Err(now) => tail = now,
            }
        }
        let slot = self.slot(tail);
        slot.value.with_mut(|to| {
            // SAFETY: the position was claimed, and there are at least as many slots as values.
            unsafe { *to = value }
        });
        slot.filled.store(tail + 1, Ordering::Release);
        Some(tail)
    }

    /// Whether others have added values behind one at this position, which could not be taken before it.
    /// After a `SeqCst` fence this is true of those whose fence came before that of a poll which did not
    /// find this one.
    #[inline]
    pub(crate) fn is_followed(&self, position: u64) -> bool {
        self.claimed.tail.load(Ordering::Relaxed) != position + 1
    }

    /// Shows the oldest value to `look`, and takes it. There is room for another when this returns.
    ///
    /// # Safety
    /// One thread at a time calls this, and `look` does not.
    #[inline(always)]
    pub(crate) unsafe fn take<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        let head = self.head.load(Ordering::Relaxed);
        // Most polls find none, and look at no slot.
        if head == self.claimed.tail.load(Ordering::Relaxed) {
            return None;
        }
        let slot = self.slot(head);
        if slot.filled.load(Ordering::Acquire) != head + 1 {
            return None;
        }
        let result = slot.value.with_mut(|value| {
            // SAFETY: it was filled, and stays until `head` has passed.
            look(unsafe { &*value })
        });
        self.head.store(head + 1, Ordering::Release);
        Some(result)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_depth_that_changes_holds_for_what_is_added_then() {
        let queue = Bounded::new(5);
        // SAFETY: there is no other thread.
        let take = || unsafe { queue.take(|value| *value) };
        assert_eq!(queue.capacity(), 8);
        assert!((0..5).all(|value| queue.push(value).is_some()));
        assert_eq!((queue.push(5), queue.len()), (None, 5));
        queue.set_depth(8);
        assert!((5..8).all(|value| queue.push(value).is_some()));
        queue.set_depth(0);
        assert!((0..8).all(|value| take() == Some(value)));
        assert_eq!((queue.push(8), queue.len(), take()), (None, 0, None));
    }

    #[test]
    fn as_many_fit_as_were_asked_for_and_they_come_out_in_order() {
        for depth in [1, 3, 4, 7] {
            let queue = Bounded::new(depth);
            // SAFETY: there is no other thread.
            let take = || unsafe { queue.take(|value| *value) };
            let mut next = 0;
            for round in 0..20 {
                assert_eq!(take(), None);
                let count = depth - round % depth;
                assert!((next..next + count).all(|value| queue.push(value).is_some()));
                let rest = (next + count..next + depth).all(|value| queue.push(value).is_some());
                assert!(rest && queue.push(0).is_none(), "{depth} fit, and no more");
                assert!((next..next + depth).all(|value| take() == Some(value)));
                next += depth;
            }
        }
    }
}
