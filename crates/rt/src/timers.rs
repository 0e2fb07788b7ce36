//! A core's timers: a binary heap whose entries know their place.
//!
//! Most timers are timeouts that never fire, so cancelling must not leave anything behind: an
//! entry's slot keeps its position in the heap, and a cancelled one is taken out in O(log n).

use std::task::Waker;

use slab::Slab;

use crate::time::Instant;

/// Names one timer until [`Timers::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerKey(u32);

#[derive(Clone, Copy)]
struct Entry {
    deadline: Instant,
    /// Equal deadlines fire in the order they were set.
    seq: u64,
    slot: u32,
}

impl Entry {
    fn before(&self, other: &Self) -> bool {
        (self.deadline, self.seq) < (other.deadline, other.seq)
    }
}

struct Slot {
    /// Where the entry is in the heap; `FIRED` once it has left it.
    place: u32,
    waker: Waker,
}

const FIRED: u32 = u32::MAX;

/// The timers of one core. Memory grows to the most timers that were ever set at once.
#[derive(Default)]
pub(crate) struct Timers {
    heap: Vec<Entry>,
    slots: Slab<Slot>,
    seq: u64,
}

impl Timers {
    pub(crate) fn insert(&mut self, deadline: Instant, waker: Waker) -> TimerKey {
        let place = u32::try_from(self.heap.len()).expect("fewer than 2^32 timers");
        let slot = self.slots.insert(Slot { place, waker });
        let slot = u32::try_from(slot).expect("fewer than 2^32 timers");
        self.seq += 1;
        self.heap.push(Entry {
            deadline,
            seq: self.seq,
            slot,
        });
        self.sift_up(self.heap.len() - 1);
        TimerKey(slot)
    }

    /// Forgets a timer, fired or not.
    pub(crate) fn remove(&mut self, key: TimerKey) {
        let slot = self.slots.remove(key.0 as usize);
        if slot.place != FIRED {
            self.take_out(slot.place as usize);
        }
    }

    /// Whether the timer has fired; if not, it will wake `waker`.
    pub(crate) fn check(&mut self, key: TimerKey, waker: &Waker) -> bool {
        let slot = &mut self.slots[key.0 as usize];
        if slot.place == FIRED {
            return true;
        }
        slot.waker.clone_from(waker);
        false
    }

    /// Fires what is due at `now`, in order, and returns how many.
    pub(crate) fn fire(&mut self, now: Instant) -> usize {
        let mut count = 0;
        while let Some(first) = self.heap.first().copied()
            && first.deadline <= now
        {
            self.take_out(0);
            let slot = &mut self.slots[first.slot as usize];
            slot.place = FIRED;
            slot.waker.wake_by_ref();
            count += 1;
        }
        count
    }

    /// The next deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.first().map(|first| first.deadline)
    }

    fn take_out(&mut self, place: usize) {
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            // The entry that came from the end may belong above or below.
            self.settle(place);
            self.sift_up(place);
            self.sift_down(place);
        }
    }

    /// Writes an entry's place into its slot.
    fn settle(&mut self, place: usize) {
        let slot = self.heap[place].slot as usize;
        self.slots[slot].place = u32::try_from(place).expect("fewer than 2^32 timers");
    }

    fn sift_up(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if !self.heap[place].before(&self.heap[parent]) {
                return;
            }
            self.heap.swap(place, parent);
            self.settle(place);
            self.settle(parent);
            place = parent;
        }
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            let right = left + 1;
            let Some(first) = self.heap.get(left) else {
                return;
            };
            let child = match self.heap.get(right) {
                Some(second) if second.before(first) => right,
                _ => left,
            };
            if !self.heap[child].before(&self.heap[place]) {
                return;
            }
            self.heap.swap(place, child);
            self.settle(place);
            self.settle(child);
            place = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    use std::task::Wake;

    use proptest::prelude::*;

    use super::*;

    struct Log(u64, Arc<Mutex<Vec<u64>>>);

    impl Wake for Log {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64),
        Remove(usize),
        Advance(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u64..50).prop_map(Step::Insert),
            2 => any::<usize>().prop_map(Step::Remove),
            1 => (0u64..20).prop_map(Step::Advance),
        ]
    }

    proptest! {
        #[test]
        fn timers_agree_with_a_sorted_map(steps in prop::collection::vec(step(), 1..200)) {
            let fired = Arc::new(Mutex::new(Vec::new()));
            let mut timers = Timers::default();
            let mut model = BTreeMap::new();
            let mut live = Vec::new();
            let mut now = 0;
            for (id, step) in (0u64..).zip(steps) {
                match step {
                    Step::Insert(delta) => {
                        let waker = Arc::new(Log(id, fired.clone())).into();
                        let key = timers.insert(Instant::from_ns(now + delta), waker);
                        model.insert((now + delta, id), ());
                        live.push((key, now + delta, id));
                    }
                    Step::Remove(at) if !live.is_empty() => {
                        let (key, deadline, id) = live.swap_remove(at % live.len());
                        timers.remove(key);
                        model.remove(&(deadline, id));
                    }
                    Step::Remove(_) => {}
                    Step::Advance(delta) => {
                        now += delta;
                        timers.fire(Instant::from_ns(now));
                        let later = model.split_off(&(now + 1, 0));
                        let expected: Vec<u64> = model.keys().map(|(_, id)| *id).collect();
                        model = later;
                        prop_assert_eq!(std::mem::take(&mut *fired.lock().unwrap()), expected);
                    }
                }
                let next = model.keys().next().map(|(deadline, _)| Instant::from_ns(*deadline));
                prop_assert_eq!(timers.next(), next);
            }
        }
    }
}
