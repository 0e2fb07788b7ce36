//! Shared receive queues.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use verbs::nic::{NicSrq, RecvHalf};
use verbs::{PostError, RecvBatch, SrqNum};

use crate::adapter::Adapter;
use crate::cq::CqShared;
use crate::recv_queue::{Recv, RecvQueue};
use crate::srq_entry;

/// What a shared receive queue shares with its queue pairs.
#[derive(Debug)]
pub(crate) struct SrqShared {
    pub(crate) num: usize,
    pub(crate) pd: usize,
    recvs: RecvQueue,
    /// Whether some poller has found no RECV for a message.
    is_awaited: AtomicBool,
    /// The queues of such pollers, and whether a message raises a solicited event.
    awaiting: Mutex<Vec<(Weak<CqShared>, bool)>>,
    /// How often they were rung and forgotten.
    round: AtomicU32,
}

impl SrqShared {
    pub(crate) fn new(num: usize, pd: usize, depth: usize, sge_max: usize) -> Self {
        SrqShared {
            num,
            pd,
            recvs: RecvQueue::new(depth, sge_max),
            is_awaited: AtomicBool::new(false),
            awaiting: Mutex::new(Vec::new()),
            round: AtomicU32::new(0),
        }
    }

    /// Has the next post ring a poller whose message waits for a RECV, and says in which round.
    /// Afterwards the poller looks once more. In the same round it need not ask again: should the
    /// post be ringing just now, it looks whether the queue is armed only after the round has ended.
    pub(crate) fn await_post(&self, cq: &Arc<CqShared>, solicited: bool) -> u32 {
        let mut awaiting = self.awaiting.lock().unwrap_or_else(PoisonError::into_inner);
        let known = awaiting
            .iter_mut()
            .find(|(one, _)| one.as_ptr() == Arc::as_ptr(cq));
        match known {
            Some((_, any_solicited)) => *any_solicited |= solicited,
            None => awaiting.push((Arc::downgrade(cq), solicited)),
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

    /// Rings those who wait for RECVs, some of which have been posted.
    fn ring(&self, adapter: &Adapter) {
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
                cq.notify(adapter, solicited);
            }
        }
    }

    /// Takes a RECV and tells peers that there is one fewer.
    pub(crate) fn pop(&self, adapter: &Adapter, into: &mut Recv) -> bool {
        srq_entry::take(adapter.srq_entry(self.num), &self.recvs, into)
    }
}

/// A shared receive queue as its owner holds it.
#[derive(Debug)]
pub(crate) struct SoftSrq {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) shared: Arc<SrqShared>,
}

impl NicSrq for SoftSrq {
    fn num(&self) -> SrqNum {
        SrqNum(self.shared.num as u32)
    }
}

impl RecvHalf for SoftSrq {
    fn post(&mut self, batch: &RecvBatch) -> Result<(), PostError> {
        let entry = self.adapter.srq_entry(self.shared.num);
        let posted = srq_entry::post(entry, &self.shared.recvs, batch);
        self.shared.ring(&self.adapter);
        posted
    }
}

impl Drop for SoftSrq {
    fn drop(&mut self) {
        let mut tables = self.adapter.tables();
        let removed = tables.srqs.remove(self.shared.num);
        debug_assert!(removed.is_ok(), "a shared receive queue is removed once");
        if let Some(users) = tables.pds.get_mut(self.shared.pd) {
            *users -= 1;
        }
    }
}
