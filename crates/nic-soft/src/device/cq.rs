//! Completion queues, as their owners poll them.
//!
//! A poll takes the completions of send work requests, and looks into the lanes that lead to the
//! queue pairs of this completion queue, whose messages it moves into their RECVs.

use std::sync::Arc;

use verbs::nic::NicCq;
use verbs::{CqError, CqNum, Polled, VerbsError};

use crate::contact::adapter::Adapter;
use crate::device::agent;
use crate::device::limits::check_depth;
use crate::device::objects::Registry;
use crate::queue::cq::Waiting;
use crate::queue::qp::{Cq, QpShared};
use crate::recv::recv_lane::{Left, RecvLane};
use crate::shared::arming::{self, Asked, Then};
use crate::sync::peer_epoch::Seen;
use crate::sync::quiescence::Activity;

/// Lanes that one poll looks at, the others being for the next polls: so many quiet lanes of one
/// peer cost the others a bounded time.
const LOOKS: usize = 64;
/// A queue pair that the poller has to look after in every poll, until nothing is left to do.
#[derive(Debug)]
struct BusyQp {
    qp: Arc<QpShared>,
    /// It drains, and the lanes that peers had announced when it failed have been taken up since.
    is_caught_up: bool,
}

/// A completion queue as its owner holds it.
#[derive(Debug)]
#[repr(align(64))] // On as few lines as it has bytes for.
pub(crate) struct SoftCq {
    adapter: Arc<Adapter>,
    objects: Arc<Registry>,
    shared: Arc<Cq>,
    activity: Arc<Activity>,
    lanes: Vec<RecvLane>,
    /// Queue pairs with unfinished sends, lanes to drain or RECVs to flush.
    busy: Vec<BusyQp>,
    /// Where the next poll starts, so that no lane starves the others.
    next: usize,
    /// The last poll had no room for what is in the lanes: they have the first turn in the next.
    lanes_first: bool,
    /// After arming, nothing may be overlooked until a poll has seen every lane.
    look_at_all: bool,
    /// What was asked for when arming, until a poll after the event has found something.
    asked: Asked,
    epoch_seen: Seen,
}

impl SoftCq {
    pub(crate) fn new(objects: &Arc<Registry>, shared: Arc<Cq>) -> Self {
        let adapter = Arc::clone(&objects.adapter);
        let activity = adapter.quiescence.activity();
        let epoch_seen = adapter.peer_epoch.read();
        SoftCq {
            adapter,
            objects: Arc::clone(objects),
            shared,
            activity,
            lanes: Vec::new(),
            busy: Vec::new(),
            next: 0,
            lanes_first: false,
            look_at_all: false,
            asked: Asked::Nothing,
            epoch_seen,
        }
    }

    /// Takes up what waits for the poller.
    fn take_up(&mut self) {
        if !self.shared.has_work() {
            return;
        }
        let Waiting { qps, lanes } = self.shared.take_work();
        for qp in qps {
            let known = self.busy.iter_mut().find(|one| Arc::ptr_eq(&one.qp, &qp));
            match known {
                // It may have started anew and failed again.
                Some(known) => known.is_caught_up = false,
                None => self.busy.push(BusyQp {
                    qp,
                    is_caught_up: false,
                }),
            }
        }
        for arrival in lanes {
            let lane = RecvLane::new(arrival);
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
            lane.note_sender_gone();
            lane.is_current()
        });
    }

    /// Serves the queue pairs that need it; true when the poll has to be cut short.
    #[cold]
    fn look_after(&mut self, out: &mut Polled) -> bool {
        self.take_up();
        let own = self.shared.number();
        for BusyQp { qp, .. } in &self.busy {
            if qp.send_cq.number() == own {
                qp.progress();
            }
        }
        // A queue pair may fail at any time: by a send just now, or in another thread. What peers
        // sent through new lanes before that is received; so the lanes that are announced are taken
        // up after it was seen to drain, and before its lanes count as empty.
        let drains = |one: &BusyQp| one.qp.recv_cq.number() == own && one.qp.is_draining();
        let mut any_new = false;
        for one in &mut self.busy {
            let drains = drains(one);
            any_new |= drains && !one.is_caught_up;
            one.is_caught_up = drains;
        }
        if any_new {
            let caught_up: Vec<bool> = self.busy.iter().map(|one| one.is_caught_up).collect();
            agent::catch_up_with_all(&self.objects);
            self.take_up();
            // What was named once more is as it was: it cannot start anew before this poll ends.
            for (one, was) in self.busy.iter_mut().zip(caught_up) {
                one.is_caught_up = was;
            }
        }
        let mut is_cut = false;
        let mut busy = std::mem::take(&mut self.busy);
        busy.retain_mut(|one| self.serve(one, out, &mut is_cut));
        self.busy = busy;
        is_cut
    }

    /// Does for a queue pair what can be done now; false when nothing is left.
    fn serve(&mut self, one: &mut BusyQp, out: &mut Polled, is_cut: &mut bool) -> bool {
        let (qp, own) = (&one.qp, self.shared.number());
        let mut again = qp.send_cq.number() == own && qp.is_unfinished();
        if qp.recv_cq.number() == own {
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
        agent::catch_up(&self.objects);
        self.look_at_all = true;
        self.asked = self.shared.sleeper(&self.adapter).arm(solicited_only);
    }

    /// After a poll since arming: whether to poll once more, because an event was taken and nothing
    /// was there.
    #[cold]
    fn polled_since_arming(&mut self, found: bool) -> bool {
        match arming::polled(self.adapter.cq_entry(self.shared.number()), found) {
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
    fn note_senders_gone(&mut self) {
        self.epoch_seen = self.adapter.peer_epoch.read();
        for lane in &mut self.lanes {
            lane.note_sender_gone();
        }
    }
}

impl NicCq for SoftCq {
    fn num(&self) -> CqNum {
        CqNum(self.shared.number() as u32)
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
        let Some(channel) = &self.shared.channel else {
            let why = "it was made without a completion channel";
            return Err(VerbsError::invalid("completion queue", why));
        };
        channel.note_rings(&self.adapter)?;
        self.ask(solicited_only);
        Ok(())
    }

    fn resize(&mut self, depth: u32) -> Result<(), VerbsError> {
        check_depth(depth)?;
        match self.shared.resize(depth as usize) {
            true => Ok(()),
            false => {
                let why = "it holds more completions";
                Err(VerbsError::invalid("completion queue", why))
            }
        }
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
        let mut is_cut = false;
        if self.shared.is_odd() {
            if self.shared.is_overrun() {
                return Err(CqError::Overrun);
            }
            // SAFETY: this is the queue's owner, through `&mut self`.
            is_cut = unsafe { self.shared.take_spilled(&self.adapter, out) };
        }
        if self.adapter.peer_epoch.differs_from(self.epoch_seen) {
            self.note_senders_gone();
        }
        if self.shared.has_work() || !self.busy.is_empty() {
            if !self.lanes_first {
                // That a request has failed comes before what is flushed for it.
                // SAFETY: this is the queue's owner, through `&mut self`.
                unsafe { self.shared.take_completions(&self.adapter, out) };
            }
            is_cut |= self.look_after(out);
        }
        let lanes_first = std::mem::take(&mut self.lanes_first);
        if !lanes_first {
            // SAFETY: this is the queue's owner, through `&mut self`.
            unsafe { self.shared.take_completions(&self.adapter, out) };
            // Whoever polls a little at a time, and has requests complete all the time, receives too.
            self.lanes_first = out.is_full();
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
                Left::SenderGone => {
                    let (sender, qp) = lane.ends();
                    self.objects.fail_all_of(sender, qp);
                }
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
        if lanes_first {
            // SAFETY: as above.
            unsafe { self.shared.take_completions(&self.adapter, out) };
        }
        if self.look_at_all {
            // One that was short of room, or cut, has seen every lane, but not to its end.
            self.look_at_all = out.was_short() || is_cut;
        }
        if is_cut && out.completions().is_empty() {
            // Whoever finds nothing after arming sleeps, although there may be more.
            self.shared.notify(&self.adapter, true);
        }
        Ok(out.completions().len())
    }
}

impl Drop for SoftCq {
    fn drop(&mut self) {
        self.shared.close(&self.adapter);
    }
}

#[cfg(test)]
mod tests {
    use verbs::typed::{ConnectOptions, Context, QpOptions, QueuePair, Uc, Wr};
    use verbs::{Access, RecvWr, Wc};

    use super::*;
    use crate::SoftNic;
    use crate::shared::lane::{LONGEST_IN_LANE, PIECE_MAX};
    use crate::testing::Host;

    #[test]
    fn a_message_over_the_ends_of_two_lanes_outlives_its_sender() {
        // Three go through two lanes, and the fourth begins in the second and ends in a third.
        const LEN: usize = (2 * LONGEST_IN_LANE / 3 - 1) * PIECE_MAX;
        let host = Host::new();
        let open = || host.open();
        let end = |nic: &Arc<SoftNic>| {
            let context = Context::new(Arc::<SoftNic>::clone(nic));
            let pd = context.alloc_pd().expect("a domain");
            let cq = context.create_cq(64).expect("a queue");
            let qp: QueuePair<Uc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
            let memory = pd.allocate(LEN, Access::LOCAL_WRITE).expect("memory");
            (memory, qp, cq)
        };
        let nic = open();
        let (mut here, mut there) = (end(&nic), end(&open()));
        let endpoints = [&here, &there].map(|one| one.1.endpoint().expect("a GID"));
        let options = ConnectOptions::default();
        here.1.connect(&endpoints[1], &options).expect("connected");
        there.1.connect(&endpoints[0], &options).expect("connected");
        let sges = [here.0.sge(0..LEN)];
        for id in 0..4 {
            let recv = RecvWr { id, sges: &sges };
            here.1.post_recv(&[recv]).expect("posted");
        }
        let send = |there: &mut (_, QueuePair<Uc>, verbs::typed::CompletionQueue), sges: &_| {
            there.1.post_send(&[Wr::send(sges)]).expect("posted");
            assert_eq!(there.2.poll(&mut [Wc::default()]), Ok(1));
        };
        let sges = [there.0.sge(0..LEN)];
        (0..3).for_each(|_| send(&mut there, &sges));
        nic.catch_up();
        assert_eq!(nic.usage().lanes, 2);
        // The owner's poll, step by step.
        let shared = nic.objects.cq(here.2.num());
        let shared = shared.expect("the queue");
        let mut queue = SoftCq::new(&nic.objects, shared);
        queue.take_up();
        // The agent takes the third lane up, and the end of its sender, only now.
        send(&mut there, &sges);
        nic.catch_up();
        assert_eq!(nic.usage().lanes, 3);
        drop((there, sges));
        while nic.usage().connections > 0 {
            std::thread::yield_now();
        }
        let mut out = Polled::new(16);
        let _ = queue.lanes[0].drain(nic.adapter(), &mut out);
        let mut received = out.completions().len();
        while nic.usage().lanes > 0 {
            received += queue.poll(&mut out).expect("no overrun");
        }
        assert_eq!(received, 4);
    }
}
