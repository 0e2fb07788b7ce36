//! Queues of RECVs: filled by the thread that posts, emptied by the threads that poll.
//!
//! A queue pair's own queue has one thread at each end. A shared receive queue can have several
//! consumers, which agree by compare-and-swap: an entry is read first and is theirs if the head has
//! not moved meanwhile, because a poster overwrites an entry only after the head has passed it.

use crossbeam_utils::CachePadded;
use verbs::{Lkey, Sge};

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Scatter elements of a RECV at most.
pub(crate) const SGE_MAX: usize = 16;

#[derive(Debug, Default)]
struct Element {
    addr: AtomicU64,
    len_and_key: AtomicU64,
}

impl Element {
    #[inline(always)]
    fn store(&self, sge: &Sge) {
        let len_and_key = u64::from(sge.len) << 32 | u64::from(sge.lkey.0);
        self.addr.store(sge.addr, Ordering::Relaxed);
        self.len_and_key.store(len_and_key, Ordering::Relaxed);
    }

    #[inline(always)]
    fn load(&self) -> Sge {
        let word = self.len_and_key.load(Ordering::Relaxed);
        Sge {
            addr: self.addr.load(Ordering::Relaxed),
            len: (word >> 32) as u32,
            lkey: Lkey(word as u32),
        }
    }
}

#[derive(Debug, Default)]
struct Entry {
    id: AtomicU64,
    count: AtomicU32,
    first: Element,
}

/// A RECV taken from a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recv {
    pub(crate) id: u64,
    count: usize,
    sges: [Sge; SGE_MAX],
}

impl Recv {
    pub(crate) fn sges(&self) -> &[Sge] {
        &self.sges[..self.count]
    }
}

/// The queue.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    mask: u64,
    depth: u64,
    sge_max: usize,
    entries: Box<[Entry]>,
    /// Elements after an entry's first.
    more: Box<[Element]>,
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
}

impl RecvQueue {
    pub(crate) fn new(depth: usize, sge_max: usize) -> Self {
        let slots = depth.max(1).next_power_of_two();
        RecvQueue {
            mask: slots as u64 - 1,
            depth: depth as u64,
            sge_max,
            entries: (0..slots).map(|_| Entry::default()).collect(),
            more: (0..slots * sge_max.saturating_sub(1))
                .map(|_| Element::default())
                .collect(),
            head: CachePadded::new(AtomicU64::new(0)),
            tail: CachePadded::new(AtomicU64::new(0)),
        }
    }

    pub(crate) fn sge_max(&self) -> usize {
        self.sge_max
    }

    fn more_of(&self, position: u64) -> &[Element] {
        let each = self.sge_max.saturating_sub(1);
        let start = (position & self.mask) as usize * each;
        &self.more[start..start + each]
    }

    /// Adds a RECV and returns its sequence number; `None` when the queue is full. Called by one
    /// thread at a time, with at most `sge_max` elements.
    #[inline(always)]
    pub(crate) fn push(&self, id: u64, sges: &[Sge]) -> Option<u64> {
        debug_assert!(sges.len() <= self.sge_max.max(1), "elements that fit");
        let tail = self.tail.load(Ordering::Relaxed);
        if tail - self.head.load(Ordering::Acquire) >= self.depth {
            return None;
        }
        let entry = &self.entries[(tail & self.mask) as usize];
        entry.id.store(id, Ordering::Relaxed);
        entry.count.store(sges.len() as u32, Ordering::Relaxed);
        if let Some((first, rest)) = sges.split_first() {
            entry.first.store(first);
            if !rest.is_empty() {
                self.store_more(tail, rest);
            }
        }
        self.tail.store(tail + 1, Ordering::Release);
        Some(tail)
    }

    /// Whether one more fits, when `others` take room as well.
    #[inline]
    pub(crate) fn has_room_beside(&self, others: u64) -> bool {
        let used = self.tail.load(Ordering::Relaxed) - self.head.load(Ordering::Acquire);
        used + others < self.depth
    }

    #[inline(always)]
    fn read(&self, position: u64, into: &mut Recv) {
        let entry = &self.entries[(position & self.mask) as usize];
        into.id = entry.id.load(Ordering::Relaxed);
        into.count = entry.count.load(Ordering::Relaxed) as usize;
        into.sges[0] = entry.first.load();
        if into.count > 1 {
            self.load_more(position, into);
        }
    }

    // What has several elements goes by calls, so that what has one is compiled into the caller.
    #[cold]
    #[inline(never)]
    fn store_more(&self, position: u64, sges: &[Sge]) {
        for (to, sge) in self.more_of(position).iter().zip(sges) {
            to.store(sge);
        }
    }

    #[cold]
    #[inline(never)]
    fn load_more(&self, position: u64, into: &mut Recv) {
        into.count = into.count.min(self.sge_max);
        let more = self.more_of(position);
        for (to, from) in into.sges[1..into.count].iter_mut().zip(more) {
            *to = from.load();
        }
    }

    /// The number and the element of the oldest RECV, if it has one element. For queues with one
    /// consumer at a time, who [takes](Self::take_first) it.
    #[inline(always)]
    pub(crate) fn first_single(&self) -> Option<(u64, Sge)> {
        let head = self.head.load(Ordering::Relaxed);
        if head == self.tail.load(Ordering::Acquire) {
            return None;
        }
        let entry = &self.entries[(head & self.mask) as usize];
        let is_single = entry.count.load(Ordering::Relaxed) == 1;
        is_single.then(|| (entry.id.load(Ordering::Relaxed), entry.first.load()))
    }

    /// Takes the RECV that [`first_single`](Self::first_single) has found.
    #[inline(always)]
    pub(crate) fn take_first(&self) {
        let head = self.head.load(Ordering::Relaxed);
        self.head.store(head + 1, Ordering::Release);
    }

    /// Takes the oldest RECV. For queues with one consumer at a time.
    #[inline]
    pub(crate) fn pop(&self, into: &mut Recv) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        if head == self.tail.load(Ordering::Acquire) {
            return false;
        }
        self.read(head, into);
        self.head.store(head + 1, Ordering::Release);
        true
    }

    /// Takes the oldest RECV. For queues with several consumers.
    pub(crate) fn pop_shared(&self, into: &mut Recv) -> bool {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            if head == self.tail.load(Ordering::Acquire) {
                return false;
            }
            self.read(head, into);
            let taken =
                self.head
                    .compare_exchange(head, head + 1, Ordering::AcqRel, Ordering::Acquire);
            match taken {
                Ok(_) => return true,
                Err(moved) => head = moved,
            }
        }
    }

    /// How many RECVs were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.head.load(Ordering::Relaxed)
    }

    /// Forgets every RECV and starts counting from 0 again. The caller makes sure that nobody else
    /// uses the queue.
    pub(crate) fn restart(&self) {
        self.tail.store(0, Ordering::Relaxed);
        self.head.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn sges(count: usize, seed: u64) -> Vec<Sge> {
        let one = |i: usize| Sge {
            addr: seed + i as u64,
            len: i as u32 + 1,
            lkey: Lkey(seed as u32),
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn recvs_come_out_as_they_went_in_over_many_laps() {
        let queue = RecvQueue::new(5, 4);
        let mut recv = Recv::default();
        let (mut pushed, mut popped) = (0u64, 0u64);
        for step in 0..1000u64 {
            for _ in 0..step % 7 {
                let posted = queue.push(pushed, &sges(pushed as usize % 5, pushed));
                assert_eq!(posted.is_none(), pushed - popped == 5);
                if let Some(number) = posted {
                    assert_eq!(number, pushed);
                    pushed += 1;
                }
            }
            for _ in 0..step % 5 {
                if let Some((id, sge)) = queue.first_single() {
                    assert_eq!((id, [sge].as_slice()), (popped, &*sges(1, popped)));
                    if step % 3 == 0 {
                        queue.take_first();
                        popped += 1;
                        continue;
                    }
                }
                let got = if step % 2 == 0 {
                    queue.pop(&mut recv)
                } else {
                    queue.pop_shared(&mut recv)
                };
                assert_eq!(got, popped < pushed);
                if got {
                    assert_eq!(recv.id, popped);
                    assert_eq!(recv.sges(), sges(popped as usize % 5, popped));
                    popped += 1;
                }
            }
        }
        assert!(popped > 500);
    }

    #[test]
    fn several_consumers_take_each_recv_once() {
        let queue = RecvQueue::new(64, 2);
        let taken: Vec<_> = std::thread::scope(|scope| {
            let consumers: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let (mut mine, mut recv) = (Vec::new(), Recv::default());
                        while mine.last() != Some(&u64::MAX) {
                            if queue.pop_shared(&mut recv) {
                                assert!(recv.id == u64::MAX || recv.sges()[0].addr == recv.id);
                                mine.push(recv.id);
                            } else {
                                std::thread::yield_now();
                            }
                        }
                        mine.pop();
                        mine
                    })
                })
                .collect();
            for id in (0..20_000).chain([u64::MAX; 3]) {
                while queue
                    .push(
                        id,
                        &[Sge {
                            addr: id,
                            len: 1,
                            lkey: Lkey(1),
                        }],
                    )
                    .is_none()
                {
                    std::thread::yield_now();
                }
            }
            consumers
                .into_iter()
                .flat_map(|one| one.join().expect("a consumer"))
                .collect()
        });
        let mut sorted = taken;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20_000).collect::<Vec<_>>());
    }
}
