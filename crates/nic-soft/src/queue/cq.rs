//! Completion queues, as their queue pairs and channels see them.
//!
//! Completions of send work requests wait in a ring of this process, because whoever posts makes
//! them. Completions of RECVs are made while polling: the poller looks into the lanes that lead to
//! the queue pairs of this completion queue and moves what it finds into their RECVs.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use verbs::nic::AsyncEvent;
use verbs::{CqNum, Polled, Wc};

use crate::contact::adapter::Adapter;
use crate::queue::arrival::Arrival;
use crate::queue::channel::{ChannelShared, Wakes};
use crate::queue::events::Events;
use crate::shared::arming;
use crate::shared::layout::qp_index;
use crate::shared::wakeup::Sleeper;
use crate::sync::bounded::Bounded;
use crate::sync::table::Slot;
use crate::sync::work_list::{List, WorkList};

/// When so many lanes wait to be taken up, nobody polls: those of dead senders are dropped then, and
/// each time that the number has doubled. The lanes of the living are bounded for each process.
const NEW_LANES_MAX: usize = 1 << 13;

/// A queue pair, as the completion queues know it on which it completes.
pub(crate) trait Completes: Sized + Send + Sync + Debug + 'static {
    /// Fails queue pairs whose completion queue has overrun.
    fn enter_error_all(adapter: &Adapter, all: Vec<Arc<Self>>);
}

/// What a completion queue shares with its queue pairs, of the type `Q`.
#[derive(Debug)]
#[repr(C)] // What every poll and completion looks at lies on one line behind the ring.
pub(crate) struct CqShared<Q> {
    local: Bounded<Completed>,
    /// It has overrun, or holds what found no room in the ring.
    is_odd: AtomicBool,
    overrun: AtomicBool,
    /// There is an event of an earlier arming.
    owed: AtomicBool,
    pub(crate) channel: Option<Arc<ChannelShared>>,
    spilled: Mutex<Spilled>,
    /// Closed when the queue's owner has dropped it: then completions go nowhere.
    work: WorkList<Waiting<Q>>,
    events: Arc<Events>,
    /// The queue pairs that complete here, which do not survive an overrun.
    qps: Mutex<Vec<Weak<Q>>>,
    /// Its number, in use as long as one of its queue pairs is there.
    slot: Slot<Weak<CqShared<Q>>>,
}

/// Completions beyond those that the ring holds: of a queue that was made larger, or does not mind an overrun. Once there is one, those
/// behind it come here too, until the poller has taken all: so they stay in order.
#[derive(Debug)]
struct Spilled {
    /// Completions that the queue is to hold in all; `usize::MAX` for one that does not mind an overrun, however large it is made.
    depth: usize,
    /// Those that the ring takes while nothing is here.
    in_ring: usize,
    rest: VecDeque<Completed>,
}

/// The completion of a send work request, and how far its polling frees the send queue.
#[derive(Clone, Copy, Debug, Default)]
struct Completed {
    wc: Wc,
    position: u64,
}

/// What waits for the poller.
#[derive(Debug)]
pub(crate) struct Waiting<Q> {
    /// Queue pairs that need it: unfinished sends, RECVs to flush, lanes to drop.
    pub(crate) qps: Vec<Arc<Q>>,
    /// Lanes that peers have opened.
    pub(crate) lanes: Vec<Arrival<Q>>,
}

impl<Q> Default for Waiting<Q> {
    fn default() -> Self {
        let (qps, lanes) = (Vec::new(), Vec::new());
        Waiting { qps, lanes }
    }
}

impl<Q> List for Waiting<Q> {
    fn len(&self) -> usize {
        self.qps.len() + self.lanes.len()
    }
}

impl<Q> Waiting<Q> {
    fn add(&mut self, qp: &Arc<Q>) {
        if !self.qps.iter().any(|one| Arc::ptr_eq(one, qp)) {
            self.qps.push(Arc::clone(qp));
        }
    }
}

impl<Q: Completes> CqShared<Q> {
    pub(crate) fn new(
        slot: Slot<Weak<CqShared<Q>>>,
        (depth, ignores_overrun): (usize, bool),
        channel: Option<Arc<ChannelShared>>,
        events: &Arc<Events>,
    ) -> Arc<Self> {
        let shared = Arc::new(CqShared {
            local: Bounded::new(depth),
            is_odd: AtomicBool::new(false),
            overrun: AtomicBool::new(false),
            spilled: Mutex::new(Spilled {
                depth: if ignores_overrun { usize::MAX } else { depth },
                in_ring: depth,
                rest: VecDeque::new(),
            }),
            work: WorkList::new(),
            channel,
            owed: AtomicBool::new(false),
            events: Arc::clone(events),
            qps: Mutex::default(),
            slot,
        });
        shared.slot.set(Arc::downgrade(&shared));
        if let Some(channel) = &shared.channel {
            let weak: Weak<CqShared<Q>> = Arc::downgrade(&shared);
            channel.add(weak);
        }
        shared
    }

    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.slot.number()
    }

    /// Whether queue pairs can be made on it.
    pub(crate) fn is_open(&self) -> bool {
        !self.work.is_closed()
    }

    /// Notes a queue pair that completes here.
    pub(crate) fn add(&self, qp: &Arc<Q>) {
        let mut qps = self.qps.lock().unwrap_or_else(PoisonError::into_inner);
        qps.retain(|one| one.strong_count() > 0);
        qps.push(Arc::downgrade(qp));
    }

    /// Adds a completion of a send work request; false when the queue overran, which its queue
    /// pairs do not survive.
    #[inline]
    #[must_use]
    pub(crate) fn complete(&self, adapter: &Adapter, wc: Wc, position: u64) -> bool {
        let Some(place) = self.local.push(Completed { wc, position }) else {
            return self.spill(adapter, Completed { wc, position });
        };
        if self.channel.is_some() {
            self.completed(adapter, place, wc.is_ok());
        }
        true
    }

    /// Wakes the poller for a completion at a place in the queue, if it waits for that.
    #[inline(never)]
    fn completed(&self, adapter: &Adapter, place: u64, is_ok: bool) {
        // A failed request counts as solicited.
        self.notify(adapter, !is_ok);
        // So does what kept others from being polled, which may have failed and rung too early.
        if is_ok && self.local.is_followed(place) {
            self.notify(adapter, true);
        }
    }

    fn spilled(&self) -> MutexGuard<'_, Spilled> {
        // Every change leaves it as it may be.
        self.spilled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a completion that has found no room in the ring; as [`complete`](Self::complete).
    #[cold]
    fn spill(&self, adapter: &Adapter, completed: Completed) -> bool {
        let mut spilled = self.spilled();
        let held = self.local.len() + spilled.rest.len();
        if held >= spilled.depth {
            drop(spilled);
            return self.overrun(adapter);
        }
        // Whoever adds another one comes here as well.
        self.local.set_depth(0);
        spilled.rest.push_back(completed);
        self.is_odd.store(true, Ordering::Relaxed);
        drop(spilled);
        self.notify(adapter, !completed.wc.is_ok());
        true
    }

    /// Takes completions of the ring, and then what found no room there; true when somebody adds one to the ring just now,
    /// behind which others wait.
    ///
    /// # Safety
    /// As for [`take_completions`](Self::take_completions).
    #[cold]
    pub(crate) unsafe fn take_spilled(&self, adapter: &Adapter, out: &mut Polled) -> bool {
        let mut spilled = self.spilled();
        // SAFETY: the caller's promise.
        unsafe { self.take_completions(adapter, out) };
        // Nobody adds to the ring any more but who had begun to.
        if self.local.len() > 0 {
            return !spilled.rest.is_empty();
        }
        while !out.is_full() {
            let Some(Completed { wc, position }) = spilled.rest.pop_front() else {
                break;
            };
            out.push(wc);
            adapter.released[qp_index(wc.qpn.0)].note(position);
        }
        if spilled.rest.is_empty() {
            self.local.set_depth(spilled.in_ring);
            self.is_odd.store(self.is_overrun(), Ordering::Relaxed);
        }
        false
    }

    /// Changes how many completions it holds; false for fewer than there are.
    pub(crate) fn resize(&self, depth: usize) -> bool {
        let mut spilled = self.spilled();
        if self.local.len() + spilled.rest.len() > depth {
            return false;
        }
        if spilled.depth != usize::MAX {
            spilled.depth = depth;
        }
        spilled.in_ring = depth.min(self.local.capacity());
        if spilled.rest.is_empty() {
            self.local.set_depth(spilled.in_ring);
        }
        true
    }

    /// Notes that a completion has found no room; whether nobody minds.
    #[cold]
    fn overrun(&self, adapter: &Adapter) -> bool {
        if self.work.is_closed() {
            return true;
        }
        if !self.overrun.swap(true, Ordering::AcqRel) {
            // Not before a poller that has just taken all, and has not seen this, finds nothing odd any more.
            let spilled = self.spilled();
            self.is_odd.store(true, Ordering::Relaxed);
            drop(spilled);
            let event = AsyncEvent::CqError(CqNum(self.number() as u32));
            self.events.raise(event, || self.work.is_closed());
            // What they receive could not be told any more.
            let qps = self.qps.lock().unwrap_or_else(PoisonError::into_inner);
            let all = qps.iter().filter_map(Weak::upgrade).collect();
            drop(qps);
            Q::enter_error_all(adapter, all);
        }
        // Its poller finds the error.
        self.notify(adapter, true);
        self.work.is_closed()
    }

    /// Whether the poller has to look closer.
    #[inline]
    pub(crate) fn is_odd(&self) -> bool {
        self.is_odd.load(Ordering::Relaxed)
    }

    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Relaxed)
    }

    /// Raises an event if the queue is armed for one.
    #[inline]
    pub(crate) fn notify(&self, adapter: &Adapter, solicited: bool) {
        let Some(channel) = &self.channel else {
            return;
        };
        self.sleeper(adapter).notify(solicited, || channel.ring());
    }

    /// This queue as its channel sees it.
    #[inline]
    pub(crate) fn sleeper<'a>(&'a self, adapter: &'a Adapter) -> Sleeper<'a> {
        Sleeper {
            number: self.number() as u32,
            entry: adapter.cq_entry(self.number()),
            owed: &self.owed,
        }
    }

    /// Has the poller look after a queue pair, and wakes it.
    pub(crate) fn wake_for(&self, adapter: &Adapter, qp: &Arc<Q>) {
        self.work.change(|work| work.add(qp));
        self.notify(adapter, true);
    }

    /// Has the poller read a lane. Its sender may have rung before, when the poller could not find
    /// the messages yet.
    pub(crate) fn arrive(&self, adapter: &Adapter, lane: Arrival<Q>) {
        let solicited = lane.holds_solicited();
        self.work.change(|work| {
            let count = work.lanes.len();
            if count >= NEW_LANES_MAX && count.is_power_of_two() {
                work.lanes.retain(|lane| !lane.is_orphaned());
            }
            work.lanes.push(lane);
        });
        self.notify(adapter, solicited);
    }

    /// Takes completions of send work requests.
    ///
    /// # Safety
    /// One thread at a time calls this: the queue's owner.
    #[inline(always)]
    pub(crate) unsafe fn take_completions(&self, adapter: &Adapter, out: &mut Polled) {
        while !out.is_full() {
            let put = |Completed { wc, position }: &Completed| {
                out.push(*wc);
                (wc.qpn, *position)
            };
            // SAFETY: the caller's promise.
            let Some((qpn, position)) = (unsafe { self.local.take(put) }) else {
                break;
            };
            // Room in the send queue says that there is room here too.
            adapter.released[qp_index(qpn.0)].note(position);
        }
    }

    /// Whether something waits for the poller.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.work.is_empty()
    }

    /// Takes what waits for the poller.
    pub(crate) fn take_work(&self) -> Waiting<Q> {
        self.work.take()
    }

    /// Its owner drops it: it completes nothing any more, and nobody sleeps on it.
    pub(crate) fn close(&self, adapter: &Adapter) {
        let left = self.work.close();
        arming::disarm(adapter.cq_entry(self.number()));
        // Its queue pairs may keep it on its channel, which is to name it no more.
        self.owed.store(false, Ordering::Release);
        drop(left);
        let overrun = AsyncEvent::CqError(CqNum(self.number() as u32));
        self.events.forget(|event| event == overrun);
    }
}

impl<Q: Completes> Wakes for CqShared<Q> {
    fn sleeper<'a>(&'a self, adapter: &'a Adapter) -> Sleeper<'a> {
        CqShared::sleeper(self, adapter)
    }

    fn notify(&self, adapter: &Adapter, solicited: bool) {
        CqShared::notify(self, adapter, solicited);
    }
}

#[cfg(test)]
mod tests {
    use verbs::CqInit;
    use verbs::nic::Nic;

    use super::*;
    use crate::testing::Host;

    #[test]
    fn a_queue_that_does_not_mind_an_overrun_minds_none_when_resized() {
        let host = Host::new();
        let nic = host.open();
        for ignores_overrun in [true, false] {
            let mut init = CqInit::new(1);
            init.ignores_overrun = ignores_overrun;
            let mut cq = nic.create_cq(&init).expect("a queue");
            cq.resize(2).expect("a larger one");
            let shared = nic.objects.cq(cq.num()).expect("it is there");
            let complete = || shared.complete(nic.adapter(), Wc::default(), 0);
            assert!(complete() && complete());
            assert_eq!(complete(), ignores_overrun);
            assert_eq!(shared.is_overrun(), !ignores_overrun);
        }
    }

    #[test]
    fn an_overrun_is_not_forgotten_by_a_poller_that_has_just_taken_all() {
        let host = Host::new();
        let nic = host.open();
        let mut cq = nic.create_cq(&CqInit::new(1)).expect("a queue");
        let shared = nic.objects.cq(cq.num()).expect("it is there");
        let complete = || shared.complete(nic.adapter(), Wc::default(), 0);
        assert!(complete());
        std::thread::scope(|scope| {
            // A poller that has taken what was spilled, and has found no overrun.
            let spilled = shared.spilled();
            let was_overrun = shared.is_overrun();
            let overruns = scope.spawn(|| shared.overrun(nic.adapter()));
            while !shared.is_overrun() {
                std::thread::yield_now();
            }
            // If it does not wait for the poller, it has the time to go on.
            for _ in 0..10_000 {
                std::thread::yield_now();
            }
            assert!(!overruns.is_finished(), "it did not wait");
            shared.is_odd.store(was_overrun, Ordering::Relaxed);
            drop(spilled);
            assert!(!overruns.join().expect("noted"), "somebody minds");
        });
        assert!(shared.is_odd());
        let mut out = Polled::new(4);
        assert!(cq.poll(&mut out).is_err(), "its poller finds it");
    }
}
