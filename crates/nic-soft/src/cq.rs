//! Completion queues.
//!
//! Completions of send work requests wait in a ring of this process, because whoever posts makes
//! them. Completions of RECVs are made while polling: the poller looks into the lanes that lead to
//! the queue pairs of this completion queue and moves what it finds into their RECVs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_queue::ArrayQueue;
use verbs::nic::{AsyncEvent, NicCq};
use verbs::{CqError, CqNum, QpState, VerbsError, Wc};

use crate::adapter::Adapter;
use crate::channel::ChannelShared;
use crate::layout::LANES;
use crate::qp::QpShared;
use crate::quiescence::Activity;
use crate::recv::RecvLane;

/// What a completion queue shares with its queue pairs.
#[derive(Debug)]
pub(crate) struct CqShared {
    pub(crate) num: usize,
    local: ArrayQueue<Wc>,
    overrun: AtomicBool,
    /// Queue pairs that need the poller: unfinished sends, RECVs to flush, lanes to drop.
    attention: Mutex<Vec<Arc<QpShared>>>,
    attention_len: AtomicUsize,
    pub(crate) channel: Option<(usize, Arc<ChannelShared>)>,
    /// Set when the queue's owner has dropped it: completions go nowhere.
    closed: AtomicBool,
    /// Held while new lanes are taken up.
    pub(crate) adopting: Mutex<()>,
}

impl CqShared {
    pub(crate) fn new(
        num: usize,
        depth: usize,
        channel: Option<(usize, Arc<ChannelShared>)>,
    ) -> Self {
        CqShared {
            num,
            local: ArrayQueue::new(depth),
            overrun: AtomicBool::new(false),
            attention: Mutex::new(Vec::new()),
            attention_len: AtomicUsize::new(0),
            channel,
            closed: AtomicBool::new(false),
            adopting: Mutex::new(()),
        }
    }

    /// Adds a completion of a send work request; false when the queue overran, which its queue
    /// pairs do not survive.
    #[inline]
    #[must_use]
    pub(crate) fn complete(&self, adapter: &Adapter, wc: Wc) -> bool {
        let fits = self.local.push(wc).is_ok();
        if !fits {
            self.overrun(adapter);
        }
        // A failed request counts as solicited.
        self.notify(adapter, !wc.is_ok());
        fits || self.closed.load(Ordering::Relaxed)
    }

    #[cold]
    fn overrun(&self, adapter: &Adapter) {
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        if !self.overrun.swap(true, Ordering::AcqRel) {
            adapter
                .events
                .force_push(AsyncEvent::CqError(CqNum(self.num as u32)));
        }
    }

    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Relaxed)
    }

    /// Raises an event if the queue is armed for one.
    #[inline]
    pub(crate) fn notify(&self, adapter: &Adapter, solicited: bool) {
        let Some((_, channel)) = &self.channel else {
            return;
        };
        // Pairs with the fence in `arm`: either the poller sees the completion when it polls once
        // more after arming, or this sees the queue armed.
        fence(Ordering::SeqCst);
        let armed = adapter.cq_entry(self.num).armed.load(Ordering::Relaxed);
        if armed == 1 || (armed == 2 && solicited) {
            adapter.cq_inbox(self.num).fired.store(1, Ordering::Relaxed);
            channel.ring();
        }
    }

    pub(crate) fn is_armed(&self, adapter: &Adapter) -> bool {
        adapter.cq_entry(self.num).armed.load(Ordering::Acquire) != 0
    }

    pub(crate) fn is_fired(&self, adapter: &Adapter) -> bool {
        adapter.cq_inbox(self.num).fired.load(Ordering::Acquire) != 0
    }

    pub(crate) fn disarm(&self, adapter: &Adapter) {
        adapter.cq_entry(self.num).armed.store(0, Ordering::Release);
        adapter.cq_inbox(self.num).fired.store(0, Ordering::Release);
    }

    /// Has the poller look after a queue pair.
    pub(crate) fn attend(&self, adapter: &Adapter, qp: &Arc<QpShared>) {
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        let mut attention = self
            .attention
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !attention.iter().any(|one| Arc::ptr_eq(one, qp)) {
            attention.push(Arc::clone(qp));
        }
        self.attention_len.store(attention.len(), Ordering::Release);
        drop(attention);
        self.notify(adapter, true);
    }
}

/// A completion queue as its owner holds it.
#[derive(Debug)]
pub(crate) struct SoftCq {
    adapter: Arc<Adapter>,
    shared: Arc<CqShared>,
    activity: Arc<Activity>,
    lanes: Vec<RecvLane>,
    /// Where the next poll starts, so that no lane starves the others.
    next: usize,
    departures_seen: u64,
}

impl SoftCq {
    pub(crate) fn new(adapter: Arc<Adapter>, shared: Arc<CqShared>) -> Self {
        let activity = adapter.quiescence.activity();
        let departures_seen = adapter.departures.load(Ordering::Acquire);
        SoftCq {
            adapter,
            shared,
            activity,
            lanes: Vec::new(),
            next: 0,
            departures_seen,
        }
    }

    /// Takes up lanes that peers have announced. What they wrote is checked: a lane counts only if
    /// it is owned, is not taken up already, and leads to a queue pair of this queue.
    #[cold]
    fn adopt(&mut self) {
        let _held = self
            .shared
            .adopting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let inbox = self.adapter.cq_inbox(self.shared.num);
        let mut next = inbox.new_lanes.swap(0, Ordering::AcqRel) as usize;
        for _ in 0..LANES {
            let Some(lane) = next.checked_sub(1).filter(|lane| *lane < LANES) else {
                return;
            };
            let header = self.adapter.lane_header(lane);
            next = header.next.load(Ordering::Acquire) as usize;
            if let Some(lane) = RecvLane::adopt(&self.adapter, lane, self.shared.num) {
                self.lanes.push(lane);
            }
        }
    }

    /// Looks after queue pairs that need it.
    #[cold]
    fn attend(&mut self, out: &mut [Wc], n: &mut usize) {
        let taken = {
            let mut attention = self
                .shared
                .attention
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            self.shared.attention_len.store(0, Ordering::Release);
            std::mem::take(&mut *attention)
        };
        let mut unfinished = Vec::new();
        for qp in taken {
            let mut again = false;
            if qp.send_cq.num == self.shared.num {
                qp.progress();
                again |= qp.send.is_shared();
            }
            if qp.recv_cq.num == self.shared.num {
                self.lanes.retain_mut(|lane| lane.is_current());
                if qp.state() == QpState::Err {
                    again |= !qp.flush_recvs(out, n);
                }
            }
            if again {
                unfinished.push(qp);
            }
        }
        if !unfinished.is_empty() {
            let mut attention = self
                .shared
                .attention
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            for qp in unfinished {
                if !attention.iter().any(|one| Arc::ptr_eq(one, &qp)) {
                    attention.push(qp);
                }
            }
            self.shared
                .attention_len
                .store(attention.len(), Ordering::Release);
        }
    }

    /// Ends the lanes of senders that have gone, once they are empty.
    #[cold]
    fn bury(&mut self) {
        self.departures_seen = self.adapter.departures.load(Ordering::Acquire);
        for lane in &mut self.lanes {
            lane.note_departures(&self.adapter);
        }
    }
}

impl NicCq for SoftCq {
    fn num(&self) -> CqNum {
        CqNum(self.shared.num as u32)
    }

    fn poll(&mut self, out: &mut [Wc]) -> Result<usize, CqError> {
        let activity = Arc::as_ptr(&self.activity);
        // SAFETY: the activity lives as long as `self.activity`, which outlives this call; going
        // through the pointer keeps `self` free for the calls below.
        let _active = unsafe { &*activity }.enter();
        if self.shared.is_overrun() {
            return Err(CqError::Overrun);
        }
        let mut n = 0;
        if self
            .adapter
            .cq_inbox(self.shared.num)
            .new_lanes
            .load(Ordering::Relaxed)
            != 0
        {
            self.adopt();
        }
        if self.adapter.departures.load(Ordering::Relaxed) != self.departures_seen {
            self.bury();
        }
        if self.shared.attention_len.load(Ordering::Relaxed) != 0 {
            self.attend(out, &mut n);
        }
        while n < out.len() && !self.shared.local.is_empty() {
            let Some(wc) = self.shared.local.pop() else {
                break;
            };
            out[n] = wc;
            n += 1;
        }
        let mut ended = false;
        let lanes = self.lanes.len();
        for _ in 0..lanes {
            if n == out.len() {
                break;
            }
            if self.next >= lanes {
                self.next = 0;
            }
            let lane = &mut self.lanes[self.next];
            n += lane.drain(&self.adapter, &mut out[n..]);
            ended |= lane.has_ended();
            self.next += 1;
        }
        if ended {
            self.lanes.retain_mut(|lane| !lane.has_ended());
        }
        Ok(n)
    }

    fn arm(&mut self, solicited_only: bool) -> Result<(), VerbsError> {
        if self.shared.channel.is_none() {
            let why = "it was made without a completion channel";
            return Err(VerbsError::invalid("completion queue", why));
        }
        self.adapter
            .cq_inbox(self.shared.num)
            .fired
            .store(0, Ordering::Relaxed);
        let armed = if solicited_only { 2 } else { 1 };
        self.adapter
            .cq_entry(self.shared.num)
            .armed
            .store(armed, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Ok(())
    }
}

impl Drop for SoftCq {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.adapter
            .cq_entry(self.shared.num)
            .armed
            .store(0, Ordering::Release);
        self.adopt();
        self.lanes.clear();
        self.shared
            .attention
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        let removed = self.adapter.tables().cqs.remove(self.shared.num);
        debug_assert!(removed.is_ok(), "a completion queue is removed once");
    }
}
