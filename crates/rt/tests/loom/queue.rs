//! A model of crossbeam's `ArrayQueue`, which loom cannot look into: the same stamps, the same
//! orderings, in the same order (crossbeam-queue 0.3.14, `array_queue.rs`).

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering, fence};
use loom::thread::yield_now;

struct Slot<T> {
    stamp: AtomicUsize,
    value: UnsafeCell<Option<T>>,
}

pub(crate) struct ArrayQueue<T> {
    head: AtomicUsize,
    tail: AtomicUsize,
    slots: Box<[Slot<T>]>,
    one_lap: usize,
}

// SAFETY: a slot's value is touched by who has moved `tail` (or `head`) past it and not yet stored
// its stamp, which is one thread.
unsafe impl<T: Send> Send for ArrayQueue<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for ArrayQueue<T> {}

impl<T> ArrayQueue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity > 0);
        ArrayQueue {
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            slots: (0..capacity)
                .map(|stamp| Slot {
                    stamp: AtomicUsize::new(stamp),
                    value: UnsafeCell::new(None),
                })
                .collect(),
            one_lap: (capacity + 1).next_power_of_two(),
        }
    }

    /// The slot of a position, and the position behind it.
    fn place(&self, position: usize) -> (&Slot<T>, usize) {
        let index = position & (self.one_lap - 1);
        let next = if index + 1 < self.slots.len() {
            position + 1
        } else {
            (position & !(self.one_lap - 1)) + self.one_lap
        };
        (&self.slots[index], next)
    }

    pub(crate) fn push(&self, value: T) -> Result<(), T> {
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            let (slot, next) = self.place(tail);
            let stamp = slot.stamp.load(Ordering::Acquire);
            if tail == stamp {
                let moved = self.tail.compare_exchange_weak(
                    tail,
                    next,
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                );
                match moved {
                    Ok(_) => {
                        // SAFETY: the slot is this thread's until the stamp is stored.
                        slot.value.with_mut(|at| unsafe { *at = Some(value) });
                        slot.stamp.store(tail + 1, Ordering::Release);
                        return Ok(());
                    }
                    Err(now) => tail = now,
                }
            } else if stamp + self.one_lap == tail + 1 {
                fence(Ordering::SeqCst);
                if self.head.load(Ordering::Relaxed) + self.one_lap == tail {
                    return Err(value);
                }
                yield_now();
                tail = self.tail.load(Ordering::Relaxed);
            } else {
                yield_now();
                tail = self.tail.load(Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn pop(&self) -> Option<T> {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let (slot, next) = self.place(head);
            let stamp = slot.stamp.load(Ordering::Acquire);
            if head + 1 == stamp {
                let moved = self.head.compare_exchange_weak(
                    head,
                    next,
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                );
                match moved {
                    Ok(_) => {
                        // SAFETY: the slot is this thread's until the stamp is stored.
                        let value = slot.value.with_mut(|at| unsafe { (*at).take() });
                        slot.stamp.store(head + self.one_lap, Ordering::Release);
                        return value;
                    }
                    Err(now) => head = now,
                }
            } else if stamp == head {
                fence(Ordering::SeqCst);
                if self.tail.load(Ordering::Relaxed) == head {
                    return None;
                }
                yield_now();
                head = self.head.load(Ordering::Relaxed);
            } else {
                yield_now();
                head = self.head.load(Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        let head = self.head.load(Ordering::SeqCst);
        self.tail.load(Ordering::SeqCst) == head
    }

    pub(crate) fn len(&self) -> usize {
        let (head, tail) = (
            self.head.load(Ordering::SeqCst),
            self.tail.load(Ordering::SeqCst),
        );
        let of =
            |position: usize| position / self.one_lap * self.slots.len() + position % self.one_lap;
        of(tail).saturating_sub(of(head))
    }
}
