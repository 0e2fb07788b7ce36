//! Shared receive queues.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use verbs::nic::AsyncEvent;
use verbs::{PostError, RecvBatch, Sge, SrqNum};

use crate::contact::adapter::Adapter;
use crate::queue::channel::Wakes;
use crate::queue::events::Events;
use crate::shared::layout::SrqEntry;
use crate::shared::recv_queue::{Recv, RecvQueue};
use crate::shared::srq_entry;
use crate::sync::table::Slot;

/// In what is armed: the limit, below the count of armings.
const LIMIT: u64 = u32::MAX as u64;

/// What a shared receive queue shares with its queue pairs.
#[derive(Debug)]
pub(crate) struct SrqShared {
    recvs: RecvQueue,
    depth: usize,
    /// RECVs that were taken for messages which did not use them after all: for the next ones.
    returned: Mutex<Vec<Recv>>,
    /// How many they are.
    returned_count: AtomicUsize,
    /// An event is to be raised when there are fewer RECVs than the lower half says; 0 for none. The upper half counts armings, so that
    /// one of the same limit is told from the last.
    armed: AtomicU64,
    /// RECVs were returned, or there is a limit: whoever takes one looks closer.
    is_odd: AtomicBool,
    events: Arc<Events>,
    /// Whether some poller has found no RECV for a message.
    is_awaited: AtomicBool,
    /// The queues of such pollers, and whether a message raises a solicited event.
    awaiting: Mutex<Vec<(Weak<dyn Wakes>, bool)>>,
    /// How often they were rung and forgotten.
    round: AtomicU32,
    /// Its owner has dropped it.
    is_closed: AtomicBool,
    /// Its number, in use as long as one of its queue pairs is there.
    slot: Slot<Weak<SrqShared>>,
}

impl SrqShared {
    pub(crate) fn new(
        adapter: &Adapter,
        slot: Slot<Weak<SrqShared>>,
        depth: usize,
        sge_max: usize,
        events: &Arc<Events>,
    ) -> Arc<Self> {
        srq_entry::reset(adapter.srq_entry(slot.number()));
        let shared = Arc::new(SrqShared {
            recvs: RecvQueue::new(depth, sge_max),
            depth,
            returned: Mutex::new(Vec::new()),
            returned_count: AtomicUsize::new(0),
            armed: AtomicU64::new(0),
            is_odd: AtomicBool::new(false),
            events: Arc::clone(events),
            is_awaited: AtomicBool::new(false),
            awaiting: Mutex::new(Vec::new()),
            round: AtomicU32::new(0),
            is_closed: AtomicBool::new(false),
            slot,
        });
        shared.slot.set(Arc::downgrade(&shared));
        shared
    }

    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.slot.number()
    }

    /// Whether queue pairs can be made on it.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
    }

    /// Its owner drops it.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let own = self.limit_event();
        self.events.forget(|event| event == own);
    }

    /// Adds RECVs, and rings those who wait for some.
    /// `is_usable` says whether the buffers of one can be used.
    pub(crate) fn post(
        &self,
        adapter: &Adapter,
        batch: &RecvBatch,
        is_usable: impl Fn(&[Sge]) -> bool,
    ) -> Result<(), PostError> {
        let entry = adapter.srq_entry(self.number());
        let returned = self.returned_count.load(Ordering::Relaxed) as u64;
        let (posted, is_shorter) = srq_entry::post(entry, &self.recvs, returned, batch, is_usable);
        // What waits for one that has no room for it fails.
        self.ring(adapter, is_shorter);
        posted
    }

    /// Has the next post ring a poller whose message waits for a RECV, and says in which round.
    /// Afterwards the poller looks once more. In the same round it need not ask again: should the
    /// post be ringing just now, it looks whether the queue is armed only after the round has ended.
    pub(crate) fn await_post<C: Wakes + 'static>(&self, cq: &Arc<C>, solicited: bool) -> u32 {
        let mut awaiting = self.awaiting.lock().unwrap_or_else(PoisonError::into_inner);
        let known = awaiting
            .iter_mut()
            .find(|(one, _)| std::ptr::addr_eq(one.as_ptr(), Arc::as_ptr(cq)));
        match known {
            Some((_, any_solicited)) => *any_solicited |= solicited,
            None => {
                let cq: Weak<C> = Arc::downgrade(cq);
                awaiting.push((cq, solicited));
            }
        }
        self.is_awaited.store(true, Ordering::Relaxed);
        let round = self.round();
        drop(awaiting);
        // Pairs with the fence in `ring`.
        fence(Ordering::SeqCst);
        round
    }

    /// Rounds of ringing that have ended or are under way.
    pub(crate) fn round(&self) -> u32 {
        self.round.load(Ordering::Acquire)
    }

    /// Rings those who wait for RECVs, some of which have been posted; all as for a solicited message, if
    /// any may fail.
    fn ring(&self, adapter: &Adapter, any_fails: bool) {
        fence(Ordering::SeqCst);
        if !self.is_awaited.load(Ordering::Relaxed) {
            return;
        }
        let awaiting = {
            let mut awaiting = self.awaiting.lock().unwrap_or_else(PoisonError::into_inner);
            self.is_awaited.store(false, Ordering::Relaxed);
            self.round.fetch_add(1, Ordering::Release);
            std::mem::take(&mut *awaiting)
        };
        for (cq, solicited) in awaiting {
            if let Some(cq) = cq.upgrade() {
                cq.notify(adapter, solicited || any_fails);
            }
        }
    }

    /// Takes a RECV and tells peers that there is one fewer. `note` has told the sender before.
    pub(crate) fn pop(&self, adapter: &Adapter, into: &mut Recv, note: impl Fn()) -> bool {
        let entry = adapter.srq_entry(self.number());
        if self.is_odd.load(Ordering::Relaxed) {
            return self.pop_odd(entry, into, &note);
        }
        srq_entry::take(entry, &self.recvs, into, note)
    }

    #[cold]
    fn pop_odd(&self, entry: &SrqEntry, into: &mut Recv, note: &dyn Fn()) -> bool {
        let taken =
            self.pop_returned(entry, into, note) || srq_entry::take(entry, &self.recvs, into, note);
        if taken {
            self.look_at_limit(entry);
        }
        taken
    }

    /// The event of the limit.
    fn limit_event(&self) -> AsyncEvent {
        AsyncEvent::SrqLimit(SrqNum(self.number() as u32))
    }

    /// Raises the event if there are fewer RECVs than the limit.
    fn look_at_limit(&self, entry: &SrqEntry) {
        let armed = self.armed.load(Ordering::Acquire);
        if srq_entry::count(entry) < u64::from(armed as u32) {
            self.disarm(armed);
        }
    }

    /// Raises the event of an arming: once, whoever sees first that there are fewer RECVs than its limit, and not if it was armed anew since.
    fn disarm(&self, armed: u64) {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let rest = armed & !LIMIT;
        let disarmed = self.armed.compare_exchange(armed, rest, success, failure);
        if disarmed.is_ok() {
            self.note_odd(&self.returned());
            let is_gone = || !self.is_open();
            self.events.raise(self.limit_event(), is_gone);
        }
    }

    /// Asks for an event when there are fewer RECVs than this, which may be now.
    pub(crate) fn arm_limit(&self, adapter: &Adapter, limit: u32) {
        let arm = |armed: u64| Some((armed & !LIMIT).wrapping_add(LIMIT + 1) | u64::from(limit));
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        // It always does.
        let _ = self.armed.fetch_update(success, failure, arm);
        self.note_odd(&self.returned());
        // Who is taking RECVs and has not seen that it is odd has done so before this goes on.
        adapter.quiescence.wait();
        self.look_at_limit(adapter.srq_entry(self.number()));
    }

    /// RECVs that it holds.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The limit that waits for its event.
    pub(crate) fn limit(&self) -> u32 {
        self.armed.load(Ordering::Relaxed) as u32
    }

    /// Whether whoever takes a RECV looks closer.
    fn note_odd(&self, returned: &[Recv]) {
        let is_odd = !returned.is_empty() || self.limit() > 0;
        self.is_odd.store(is_odd, Ordering::Relaxed);
    }

    fn returned(&self) -> MutexGuard<'_, Vec<Recv>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pop_returned(&self, entry: &SrqEntry, into: &mut Recv, note: &dyn Fn()) -> bool {
        let mut returned = self.returned();
        if returned.is_empty() {
            return false;
        }
        *into = returned.remove(0);
        self.returned_count.store(returned.len(), Ordering::Relaxed);
        self.note_odd(&returned);
        note();
        srq_entry::note_taken(entry);
        true
    }

    /// Puts a RECV back that was taken for a message which does not use it: any queue pair's next
    /// message may.
    #[cold]
    pub(crate) fn give_back(&self, adapter: &Adapter, recv: Recv) {
        {
            let mut returned = self.returned();
            returned.push(recv);
            self.returned_count.store(returned.len(), Ordering::Relaxed);
            self.note_odd(&returned);
            srq_entry::note_returned(adapter.srq_entry(self.number()));
        }
        self.ring(adapter, false);
    }
}

#[cfg(test)]
mod tests {
    use verbs::SrqInit;
    use verbs::nic::Nic;

    use super::*;
    use crate::testing::{Host, Side};

    #[test]
    fn a_limit_that_is_armed_anew_outlives_a_look_at_the_old_count() {
        let host = Host::new();
        let nic = host.open();
        let side = Side::on(&nic);
        let made = nic.create_srq(&SrqInit::new(side.pd.num(), 4, 1));
        let mut srq = made.expect("a queue");
        let shared = nic.objects.srq(srq.num()).expect("it is there");
        let event = shared.limit_event();
        // Armed with RECVs enough, so that nothing is raised.
        let mut batch = RecvBatch::with_capacity(4, 0);
        for id in 0..4 {
            batch.push(id, &[]);
        }
        srq.post(&batch).expect("posted");
        srq.arm_limit(2).expect("armed");
        assert_eq!(nic.async_event(), None);
        // Whoever takes a RECV has looked at the count of an earlier time, and stands still.
        let seen = shared.armed.load(Ordering::Acquire);
        srq.arm_limit(2).expect("armed anew");
        shared.disarm(seen);
        assert_eq!((shared.limit(), nic.async_event()), (2, None));
        // The new arming has its event, once.
        let mut recv = Recv::default();
        for left in (0..4).rev() {
            assert!(shared.pop(nic.adapter(), &mut recv, || {}));
            let raised = (left == 1).then_some(event);
            assert_eq!(nic.async_event(), raised, "{left} are left");
        }
    }
}
