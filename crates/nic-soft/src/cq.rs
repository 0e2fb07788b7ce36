//! Completion queues.
//!
//! Completions of send work requests wait in a ring of this process, because whoever posts makes
//! them. Completions of RECVs are made while polling: the poller looks into the lanes that lead to
//! the queue pairs of this completion queue and moves what it finds into their RECVs.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;
use verbs::nic::{AsyncEvent, NicCq};
use verbs::{CqError, CqNum, Polled, VerbsError, Wc};

use crate::adapter::Adapter;
use crate::agent;
use crate::arming::{self, Asked, Then};
use crate::channel::ChannelShared;
use crate::departures::Seen;
use crate::layout::qp_index;
use crate::qp::QpShared;
use crate::quiescence::Activity;
use crate::recv::{Left, RecvLane};
use crate::rings::Sleeper;
use crate::todo::{List, Todo};

/// Lanes that one poll looks at, the others being for the next polls: so many quiet lanes of one
/// peer cost the others a bounded time.
const LOOKS: usize = 64;
/// When so many lanes wait to be taken up, nobody polls: those of dead senders are dropped then, and
/// each time that the number has doubled. The lanes of the living are bounded for each process.
const NEW_LANES_MAX: usize = 1 << 13;

/// What a completion queue shares with its queue pairs.
#[derive(Debug)]
pub(crate) struct CqShared {
    pub(crate) num: usize,
    local: ArrayQueue<Completed>,
    overrun: AtomicBool,
    /// Closed when the queue's owner has dropped it: then completions go nowhere.
    todo: Todo<Waiting>,
    pub(crate) channel: Option<(usize, Arc<ChannelShared>)>,
    /// There is an event of an earlier arming.
    owed: AtomicBool,
}

/// The completion of a send work request, and how far its polling frees the send queue.
#[derive(Debug)]
struct Completed {
    /// In a cell, because `Option<Completed>` would hide its tag in an enumeration otherwise, and the
    /// compiler then moves the completion byte by byte.
    wc: Cell<Wc>,
    position: u64,
}

/// What waits for the poller.
#[derive(Debug, Default)]
struct Waiting {
    /// Queue pairs that need it: unfinished sends, RECVs to flush, lanes to drop.
    qps: Vec<Arc<QpShared>>,
    /// Lanes that peers have opened.
    lanes: Vec<RecvLane>,
}

impl List for Waiting {
    fn len(&self) -> usize {
        self.qps.len() + self.lanes.len()
    }
}

impl Waiting {
    fn attend(&mut self, qp: &Arc<QpShared>) {
        if !self.qps.iter().any(|one| Arc::ptr_eq(one, qp)) {
            self.qps.push(Arc::clone(qp));
        }
    }
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
            todo: Todo::new(),
            channel,
            owed: AtomicBool::new(false),
        }
    }

    /// Adds a completion of a send work request; false when the queue overran, which its queue
    /// pairs do not survive.
    #[inline]
    #[must_use]
    pub(crate) fn complete(&self, adapter: &Adapter, wc: Wc, position: u64) -> bool {
        let fits = self
            .local
            .push(Completed {
                wc: Cell::new(wc),
                position,
            })
            .is_ok();
        if !fits {
            self.overrun(adapter);
        }
        // A failed request counts as solicited.
        self.notify(adapter, !wc.is_ok());
        fits || self.todo.is_closed()
    }

    #[cold]
    fn overrun(&self, adapter: &Adapter) {
        if self.todo.is_closed() {
            return;
        }
        if !self.overrun.swap(true, Ordering::AcqRel) {
            let event = AsyncEvent::CqError(CqNum(self.num as u32));
            let is_gone = || self.todo.is_closed();
            adapter.events.raise(event, is_gone);
            // What they receive could not be told any more.
            let is_own = |cq: &Arc<CqShared>| std::ptr::eq(&raw const **cq, self);
            for qp in adapter.qps() {
                if is_own(&qp.send_cq) || is_own(&qp.recv_cq) {
                    qp.enter_error(false);
                }
            }
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
        self.sleeper(adapter).notify(solicited, || channel.ring());
    }

    /// This queue as its channel sees it.
    #[inline]
    pub(crate) fn sleeper<'a>(&'a self, adapter: &'a Adapter) -> Sleeper<'a> {
        Sleeper {
            number: self.num as u32,
            entry: adapter.cq_entry(self.num),
            owed: &self.owed,
        }
    }

    /// Has the poller look after a queue pair.
    pub(crate) fn attend(&self, adapter: &Adapter, qp: &Arc<QpShared>) {
        self.todo.change(|todo| todo.attend(qp));
        self.notify(adapter, true);
    }

    /// Has the poller read a lane. Its sender may have rung before, when the poller could not find
    /// the messages yet.
    pub(crate) fn arrive(&self, adapter: &Adapter, lane: RecvLane) {
        let solicited = lane.holds_solicited();
        self.todo.change(|todo| {
            let count = todo.lanes.len();
            if count >= NEW_LANES_MAX && count.is_power_of_two() {
                todo.lanes.retain(|lane| !lane.is_orphaned());
            }
            todo.lanes.push(lane);
        });
        self.notify(adapter, solicited);
    }
}

/// A queue pair that the poller has to look after in every poll, until nothing is left to do.
#[derive(Debug)]
struct Tended {
    qp: Arc<QpShared>,
    /// It drains, and the lanes that peers had announced when it failed have been taken up since.
    is_caught_up: bool,
}

/// A completion queue as its owner holds it.
#[derive(Debug)]
pub(crate) struct SoftCq {
    adapter: Arc<Adapter>,
    shared: Arc<CqShared>,
    activity: Arc<Activity>,
    lanes: Vec<RecvLane>,
    /// Queue pairs with unfinished sends, lanes to drain or RECVs to flush.
    tended: Vec<Tended>,
    /// Where the next poll starts, so that no lane starves the others.
    next: usize,
    /// After arming, nothing may be overlooked until a poll has seen every lane.
    look_at_all: bool,
    /// What was asked for when arming, until a poll after the event has found something.
    asked: Asked,
    departures_seen: Seen,
}

impl SoftCq {
    pub(crate) fn new(adapter: Arc<Adapter>, shared: Arc<CqShared>) -> Self {
        let activity = adapter.quiescence.activity();
        let departures_seen = adapter.departures.look();
        SoftCq {
            adapter,
            shared,
            activity,
            lanes: Vec::new(),
            tended: Vec::new(),
            next: 0,
            look_at_all: false,
            asked: Asked::Nothing,
            departures_seen,
        }
    }

    /// Takes up what waits for the poller.
    fn take_up(&mut self) {
        if self.shared.todo.is_empty() {
            return;
        }
        let Waiting { qps, lanes } = self.shared.todo.take();
        for qp in qps {
            let known = self.tended.iter_mut().find(|one| Arc::ptr_eq(&one.qp, &qp));
            match known {
                // It may have started anew and failed again.
                Some(known) => known.is_caught_up = false,
                None => self.tended.push(Tended {
                    qp,
                    is_caught_up: false,
                }),
            }
        }
        for lane in lanes {
            // A sender that found its lane full goes on in another one.
            match self.lanes.iter_mut().find(|one| one.has_ends_of(&lane)) {
                Some(before) => before.append(lane),
                None => self.lanes.push(lane),
            }
        }
        // A queue pair that starts anew, or goes, is among those just taken, or its new epoch is
        // seen here: its old lanes are not to take RECVs of the new connection, even those that
        // the agent hands over only now.
        self.lanes.retain_mut(|lane| {
            lane.note_departures();
            lane.is_current()
        });
    }

    /// Looks after queue pairs that need it; true when the poll has to be cut short.
    #[cold]
    fn look_after(&mut self, out: &mut Polled) -> bool {
        self.take_up();
        let own = self.shared.num;
        for Tended { qp, .. } in &self.tended {
            if qp.send_cq.num == own {
                qp.progress();
            }
        }
        // A queue pair may fail at any time: by a send just now, or in another thread. What peers
        // sent through new lanes before that is received; so the lanes that are announced are taken
        // up after it was seen to drain, and before its lanes count as empty.
        let drains = |one: &Tended| one.qp.recv_cq.num == own && one.qp.is_draining();
        let mut any_new = false;
        for one in &mut self.tended {
            let drains = drains(one);
            any_new |= drains && !one.is_caught_up;
            one.is_caught_up = drains;
        }
        if any_new {
            let caught_up: Vec<bool> = self.tended.iter().map(|one| one.is_caught_up).collect();
            agent::catch_up_with_all(&self.adapter);
            self.take_up();
            // What was named once more is as it was: it cannot start anew before this poll ends.
            for (one, was) in self.tended.iter_mut().zip(caught_up) {
                one.is_caught_up = was;
            }
        }
        let mut is_cut = false;
        let mut tended = std::mem::take(&mut self.tended);
        tended.retain_mut(|one| self.tend(one, out, &mut is_cut));
        self.tended = tended;
        is_cut
    }

    /// Does for a queue pair what can be done now; false when nothing is left.
    fn tend(&mut self, one: &mut Tended, out: &mut Polled, is_cut: &mut bool) -> bool {
        let (qp, own) = (&one.qp, self.shared.num);
        let mut again = qp.send_cq.num == own && qp.send.is_shared();
        if qp.recv_cq.num == own {
            one.is_caught_up &= qp.is_draining();
            if one.is_caught_up {
                match self.drain_to_the_end(qp, out) {
                    Left::Nothing | Left::Ended => qp.start_flushing(),
                    left => *is_cut |= left == Left::More,
                }
            }
            again |= qp.is_draining() || (qp.is_flushed() && !qp.flush_recvs(out));
        }
        again
    }

    /// Receives what is left for a queue pair that has failed, and says what there is still.
    fn drain_to_the_end(&mut self, qp: &QpShared, out: &mut Polled) -> Left {
        for lane in self.lanes.iter_mut().filter(|lane| lane.leads_to(qp)) {
            match lane.drain(&self.adapter, out) {
                Left::Nothing | Left::Ended => {}
                left => return left,
            }
        }
        let lanes = self.lanes.iter_mut().filter(|lane| lane.leads_to(qp));
        lanes.for_each(RecvLane::give_up_message);
        Left::Nothing
    }

    /// Asks for an event. Afterwards the queue is to be polled once more.
    fn ask(&mut self, solicited_only: bool) {
        // What peers sent through new lanes before this is not to raise an event.
        agent::catch_up(&self.adapter);
        self.look_at_all = true;
        self.asked = self.shared.sleeper(&self.adapter).arm(solicited_only);
    }

    /// After a poll since arming: whether to poll once more, because an event was taken and nothing
    /// was there.
    #[cold]
    fn polled_since_arming(&mut self, found: bool) -> bool {
        match arming::polled(self.adapter.cq_entry(self.shared.num), found) {
            Then::Wait => false,
            Then::Forget => {
                self.asked = Asked::Nothing;
                false
            }
            Then::ArmAnew => {
                self.ask(self.asked == Asked::Solicited);
                true
            }
        }
    }

    /// Ends the lanes of senders that have gone, once they are empty.
    #[cold]
    fn bury(&mut self) {
        self.departures_seen = self.adapter.departures.look();
        for lane in &mut self.lanes {
            lane.note_departures();
        }
    }
}

impl NicCq for SoftCq {
    fn num(&self) -> CqNum {
        CqNum(self.shared.num as u32)
    }

    fn poll(&mut self, out: &mut Polled) -> Result<usize, CqError> {
        loop {
            let found = self.look(out)?;
            if self.asked == Asked::Nothing || !self.polled_since_arming(found > 0) {
                return Ok(found);
            }
        }
    }

    fn arm(&mut self, solicited_only: bool) -> Result<(), VerbsError> {
        let Some((_, channel)) = &self.shared.channel else {
            let why = "it was made without a completion channel";
            return Err(VerbsError::invalid("completion queue", why));
        };
        channel.note_rings(&self.adapter)?;
        self.ask(solicited_only);
        Ok(())
    }
}

impl SoftCq {
    /// Polls once.
    #[inline]
    fn look(&mut self, out: &mut Polled) -> Result<usize, CqError> {
        out.clear();
        let activity = Arc::as_ptr(&self.activity);
        // SAFETY: the activity lives as long as `self.activity`, which outlives this call; going
        // through the pointer keeps `self` free for the calls below.
        let _active = unsafe { &*activity }.enter();
        if self.shared.is_overrun() {
            return Err(CqError::Overrun);
        }
        if self.adapter.departures.since(self.departures_seen) {
            self.bury();
        }
        let mut is_cut = false;
        if !self.shared.todo.is_empty() || !self.tended.is_empty() {
            is_cut = self.look_after(out);
        }
        while !out.is_full() && !self.shared.local.is_empty() {
            let Some(Completed { wc, position }) = self.shared.local.pop() else {
                break;
            };
            let wc = wc.into_inner();
            self.adapter.release(qp_index(wc.qpn.0), position);
            out.push(wc);
        }
        let mut ended = false;
        let lanes = self.lanes.len();
        let looks = if self.look_at_all {
            lanes
        } else {
            lanes.min(LOOKS)
        };
        for _ in 0..looks {
            if out.is_full() {
                break;
            }
            if self.next >= lanes {
                self.next = 0;
            }
            let lane = &mut self.lanes[self.next];
            match lane.drain(&self.adapter, out) {
                Left::Nothing => {}
                left => {
                    ended |= left == Left::Ended;
                    is_cut |= left == Left::More;
                }
            }
            self.next += 1;
        }
        if ended {
            self.lanes.retain_mut(|lane| !lane.has_ended());
        }
        self.look_at_all &= out.is_full();
        if is_cut && out.completions().is_empty() {
            // Whoever finds nothing after arming sleeps, although there may be more.
            self.shared.notify(&self.adapter, true);
        }
        Ok(out.completions().len())
    }
}

impl Drop for SoftCq {
    fn drop(&mut self) {
        let left = self.shared.todo.close();
        arming::disarm(self.adapter.cq_entry(self.shared.num));
        self.lanes.clear();
        self.tended.clear();
        drop(left);
        let overrun = AsyncEvent::CqError(CqNum(self.shared.num as u32));
        self.adapter.events.forget(|event| event == overrun);
        let removed = self.adapter.tables().cqs.remove(self.shared.num);
        debug_assert!(removed.is_ok(), "a completion queue is removed once");
    }
}
