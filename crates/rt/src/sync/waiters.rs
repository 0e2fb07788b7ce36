//! Tasks that wait for the same thing, first come, first served.

use std::collections::VecDeque;
use std::task::Waker;

use slab::Slab;

/// So many may have given up before anybody looks how many they are.
const FEW: usize = 8;

/// One waiting task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaiterKey(usize);

enum Waiter {
    Waiting(Waker),
    Chosen,
    /// Gave up while queued; its slot is freed when its turn comes.
    Gone,
}

/// A queue of waiting tasks. Memory grows to twice the most that ever waited at once, and a little.
#[derive(Default)]
pub(crate) struct Waiters {
    slots: Slab<Waiter>,
    order: VecDeque<usize>,
    waiting: usize,
}

impl Waiters {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    pub(crate) fn push(&mut self, waker: Waker) -> WaiterKey {
        let slot = self.slots.insert(Waiter::Waiting(waker));
        self.order.push_back(slot);
        self.waiting += 1;
        WaiterKey(slot)
    }

    /// Chooses the task that waits longest and wakes it; `false` if nobody waits.
    pub(crate) fn choose(&mut self) -> bool {
        while let Some(slot) = self.order.pop_front() {
            match std::mem::replace(&mut self.slots[slot], Waiter::Chosen) {
                Waiter::Waiting(waker) => {
                    self.waiting -= 1;
                    waker.wake();
                    return true;
                }
                Waiter::Gone => {
                    self.slots.remove(slot);
                }
                Waiter::Chosen => unreachable!("a chosen waiter has left the queue"),
            }
        }
        false
    }

    /// Whether the task was chosen (which ends its wait); if not, `waker` will be woken.
    pub(crate) fn check(&mut self, key: WaiterKey, waker: &Waker) -> bool {
        match &mut self.slots[key.0] {
            Waiter::Waiting(old) => {
                old.clone_from(waker);
                false
            }
            Waiter::Chosen => {
                self.slots.remove(key.0);
                true
            }
            Waiter::Gone => unreachable!("a waiter that gave up does not ask again"),
        }
    }

    /// Frees the slots of those who gave up behind one who stays.
    fn forget_gone(&mut self) {
        let slots = &mut self.slots;
        self.order.retain(|slot| {
            let is_gone = matches!(slots[*slot], Waiter::Gone);
            if is_gone {
                slots.remove(*slot);
            }
            !is_gone
        });
    }

    /// Ends a wait early; `true` means that the task had been chosen and must pass that on.
    pub(crate) fn leave(&mut self, key: WaiterKey) -> bool {
        if matches!(self.slots[key.0], Waiter::Chosen) {
            self.slots.remove(key.0);
            return true;
        }
        self.slots[key.0] = Waiter::Gone;
        self.waiting -= 1;
        if self.order.len() >= 2 * self.waiting + FEW {
            self.forget_gone();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_give_up_behind_one_who_stays_leave_nothing_behind() {
        let mut waiters = Waiters::default();
        let first = waiters.push(Waker::noop().clone());
        for _ in 0..10_000 {
            let other = waiters.push(Waker::noop().clone());
            assert!(!waiters.leave(other));
        }
        assert!(waiters.order.len() < 16 && waiters.slots.len() < 16);
        let last = waiters.push(Waker::noop().clone());
        assert!(waiters.choose() && waiters.check(first, Waker::noop()));
        assert!(!waiters.check(last, Waker::noop()));
        assert!(waiters.choose() && waiters.check(last, Waker::noop()));
        assert!(!waiters.choose());
        assert!(waiters.slots.is_empty());
    }
}
