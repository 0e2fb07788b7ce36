//! Queue pairs as their owners hold them: the control half, the send half and the receive half.

use std::sync::{Arc, Weak};

use verbs::nic::{QpCtl, QpParts, RecvHalf, SendHalf};
use verbs::{
    Access, Dest, Gid, PostError, PostReason, QpAttr, QpCaps, QpNum, QpState, RecvBatch, RecvWr,
    SendBatch, SendLimits, Sge, Transport, UdDest, VerbsError, rules,
};

use crate::contact::adapter::Adapter;
use crate::device::objects::Registry;
use crate::memory::mr::{self, Regions};
use crate::memory::pd::PdUse;
use crate::path::link::{Link, Us};
use crate::queue::qp::{Parts, QpShared};
use crate::send::queue::{RD_ATOMIC_MAX, SendQueue};
use crate::send::side::SendSide;
use crate::shared::layout::{qp_index, qp_instance};
use crate::shared::route::Route;
use crate::sync::light_barrier;
use crate::sync::quiescence::{Active, Activity};
use crate::sync::table::Slot;

/// Multicast groups of a queue pair at most.
pub(crate) const GROUPS_MAX: usize = 8192;

/// Makes a queue pair of the number that `slot` holds.
pub(crate) fn create(
    objects: &Arc<Registry>,
    slot: Slot<Weak<SendSide>>,
    pd: PdUse,
    parts: Parts,
) -> QpParts {
    let adapter = &objects.adapter;
    let blocks_own_multicast = parts.blocks_own_multicast;
    let shared = QpShared::new(adapter, &objects.events, parts);
    let us = Us {
        gid: adapter.gid,
        qpn: shared.num,
        transport: shared.transport,
    };
    let handles = Arc::clone(&objects.handles);
    let contacts = Arc::clone(&objects.contacts);
    let regions = Arc::clone(&objects.regions);
    let mut sender = SendQueue::new(us, shared.pd, handles, contacts, Arc::clone(&regions));
    sender.blocks_own_multicast = blocks_own_multicast;
    let side = SendSide::new(&shared, sender);
    slot.set(Arc::downgrade(&side));
    let life = Arc::new(Life {
        objects: Arc::clone(objects),
        side: Arc::clone(&side),
        regions,
        _slot: slot,
        _pd: pd,
    });
    let ctl = SoftCtl {
        objects: Arc::clone(objects),
        side: Arc::clone(&side),
        _life: Arc::clone(&life),
    };
    let send = SoftSend {
        objects: Arc::clone(objects),
        side,
        shared: Arc::clone(&shared),
        activity: adapter.quiescence.activity(),
        _life: Arc::clone(&life),
    };
    let recv = SoftRecv {
        shared,
        activity: adapter.quiescence.activity(),
        _life: life,
    };
    QpParts::new(Arc::new(ctl), Box::new(send), Box::new(recv))
}

/// The queue pair as its parts hold it. Dropping the last of them destroys it.
#[derive(Debug)]
struct Life {
    objects: Arc<Registry>,
    side: Arc<SendSide>,
    regions: Arc<Regions>,
    // Freed last: another queue pair may have the number then.
    _slot: Slot<Weak<SendSide>>,
    _pd: PdUse,
}

impl Drop for Life {
    fn drop(&mut self) {
        let (side, shared) = (&self.side, &self.side.qp);
        while let Some(contact) = side.carry_on_for_contact() {
            self.objects.contacts.wait(&*self.objects, &contact);
        }
        shared.destroy();
        for group in std::mem::take(&mut *shared.groups()) {
            shared.adapter.membership.leave_group(group, shared.num);
        }
        {
            let activity = side.lock_control();
            side.queue.recall();
            // SAFETY: recalled, and there is no send half any more.
            let posted = unsafe {
                side.control(&activity, |_, sender| {
                    sender.clear();
                    sender.posted()
                })
            };
            let released = &shared.adapter.released[qp_index(shared.num)];
            released.end(shared.posted_first + posted);
        }
        shared.forget_events();
        // The number is another queue pair's later.
        let windows = self.regions.windows();
        windows.unbind_all_over(&shared.adapter, shared.num);
        // Its lanes are dropped by the poller that holds them.
        shared.recv_cq.wake_for(&shared.adapter, shared);
    }
}

/// The control half.
#[derive(Debug)]
struct SoftCtl {
    objects: Arc<Registry>,
    side: Arc<SendSide>,
    _life: Arc<Life>,
}

impl SoftCtl {
    /// Starts anew: nothing posted, nobody connected. The state is RESET already.
    fn reset(&self, activity: &Activity, attr: &QpAttr) {
        let shared = &self.side.qp;
        // Lanes that were opened before do not lead here any more.
        shared.begin_epoch();
        shared.recv_cq.wake_for(&shared.adapter, shared);
        // A poller that has looked at the state before may be taking a RECV for a message of such a
        // lane, and the receive half may be posting one. Those that come later find the state, and
        // drop the lanes first.
        self.side.interrupt(activity, |_, sender| {
            sender.clear();
            sender.set_attributes(attr);
        });
        shared.restart_recvs();
    }
}

impl QpCtl for SoftCtl {
    fn num(&self) -> QpNum {
        QpNum(self.side.qp.num)
    }

    fn transport(&self) -> Transport {
        self.side.qp.transport
    }

    fn modify(&self, attr: &QpAttr) -> Result<(), VerbsError> {
        let (side, shared) = (&self.side, &self.side.qp);
        let activity = side.lock_control();
        let (before, to, own_port) = {
            let machine = shared.machine();
            (machine.state(), machine.check(attr)?, machine.attr().port)
        };
        rules::check_names(attr, own_port, |port| shared.adapter.port(port))?;
        rules::check_depths(attr, RD_ATOMIC_MAX)?;
        if before == QpState::Sqd
            && let Some(device) = shared.peer_device(attr)
            && shared.peer_device(&shared.machine().attr()) != Some(device)
        {
            // Another address is another adapter here, which knows nothing of the connection.
            let what = "moving a connection to another address";
            return Err(VerbsError::Unsupported { what });
        }
        let mut opened = None;
        if before == QpState::Init
            && to == QpState::Rtr
            && let (Some(gid), Some(qpn)) = (shared.peer_device(attr), attr.dest_qpn)
        {
            let contacts = &self.objects.contacts;
            let peer = contacts.peer_of(&*self.objects, gid, qp_instance(qpn.0))?;
            shared.set_peer_incarnation(peer.incarnation);
            let route = Route {
                from: shared.adapter.gid,
                to: gid,
            };
            opened = Some(Link::to(peer, qpn.0, route));
        }
        // It may have failed meanwhile, and then stays so if no other state is asked for.
        let (from, to, attr) = {
            let mut machine = shared.machine();
            let from = machine.state();
            let to = machine.modify(attr)?;
            shared.publish(&machine);
            // What posting needs is there before the state says so.
            if to != QpState::Rts {
                shared.store_state(to);
            }
            (from, to, machine.attr())
        };
        let peer = opened.as_ref().map(|link| Arc::clone(&link.peer));
        if to == QpState::Reset {
            self.reset(&activity, &attr);
        } else {
            // Before RTS nobody posts, but it may fail at any time, and then takes posts at once.
            side.interrupt(&activity, |_, sender| {
                if let Some(link) = opened {
                    sender.connect(link, shared.epoch());
                }
                sender.set_attributes(&attr);
            });
        }
        if to == QpState::Rts {
            shared.finish_rts();
        }
        // Who fails the connections to a peer that dies passes over those that are not there yet.
        if shared.transport == Transport::Rc && peer.is_some_and(|peer| peer.is_dead()) {
            QpShared::lose_peer(&shared.adapter, vec![Arc::clone(shared)]);
        }
        if to == QpState::Err && from != QpState::Err {
            side.interrupt(&activity, |shared, sender| sender.flush(shared));
            shared.adapter.quiescence.fence_everybody();
            shared.drain_and_flush(shared.epoch());
        }
        if from == QpState::Sqd && to == QpState::Rts {
            side.interrupt(&activity, |shared, sender| sender.progress(shared));
            if side.queue.is_shared() {
                self.objects.has_unfinished(side);
            }
        }
        Ok(())
    }

    fn attach_mcast(&self, group: Gid) -> Result<(), VerbsError> {
        let shared = &self.side.qp;
        rules::check_mcast(shared.transport, group)?;
        let mut groups = shared.groups();
        if groups.contains(&group) {
            return Ok(());
        }
        if groups.len() == GROUPS_MAX {
            let (what, max) = ("multicast groups of a queue pair", GROUPS_MAX as u64);
            return Err(VerbsError::Exhausted { what, max });
        }
        // First: who finds it there sends, and it is to be received.
        groups.insert(group);
        let joined = shared.adapter.membership.join_group(group, shared.num);
        if joined.is_err() {
            groups.remove(&group);
        }
        joined
    }

    fn detach_mcast(&self, group: Gid) -> Result<(), VerbsError> {
        let shared = &self.side.qp;
        let mut groups = shared.groups();
        if !groups.remove(&group) {
            return Err(VerbsError::invalid("multicast group", "not in it"));
        }
        shared.adapter.membership.leave_group(group, shared.num);
        Ok(())
    }

    fn caps(&self) -> QpCaps {
        self.side.qp.caps
    }

    fn query(&self) -> QpAttr {
        self.side.qp.machine().attr()
    }
}

/// The send half.
#[derive(Debug)]
#[repr(align(64))] // On one line.
struct SoftSend {
    objects: Arc<Registry>,
    side: Arc<SendSide>,
    shared: Arc<QpShared>,
    activity: Arc<Activity>,
    _life: Arc<Life>,
}

impl SendHalf for SoftSend {
    fn limits(&self) -> SendLimits {
        self.shared.limits
    }

    fn prepare(&mut self, to: &UdDest) -> Result<Dest, VerbsError> {
        let shared = &self.shared;
        if shared.transport != Transport::Ud {
            let why = "only datagrams have destinations";
            return Err(VerbsError::invalid("destination", why));
        }
        let adapter = &shared.adapter;
        let gid = self.objects.handles.address(to.ah, shared.pd)?.gid;
        if !gid.is_multicast() {
            // Nobody waits for its process to answer.
            self.objects.contacts.approach(gid, qp_instance(to.qpn.0))?;
        }
        self.side.queue.recall();
        // SAFETY: recalled, and this is the send half, which is not posting.
        unsafe {
            self.side.queue.visit_waiting(|sender| {
                let dest = sender.prepare(adapter, to);
                (dest, sender.is_unfinished())
            })
        }
    }

    fn room(&mut self) -> u32 {
        let _active = self.activity.enter();
        // SAFETY: only the owner of the send half gets here, through `&mut self`.
        unsafe {
            self.side
                .queue
                .own(|sender| (sender.room(&self.shared), sender.is_unfinished()))
        }
    }

    #[inline]
    fn post(&mut self, batch: &SendBatch) -> Result<(), PostError> {
        let shared = &self.shared;
        // Registered memory stays meanwhile, and who wants to visit waits.
        let active = self.activity.enter();
        let mut done = 0;
        // What the batch has checked for the queue pair's limits holds for all of its requests.
        if shared.is_rts() && *batch.limits() == shared.limits {
            // SAFETY: only the owner of the send half gets here, through `&mut self`.
            if let Some(mut alone) = unsafe { self.side.queue.alone() } {
                done = alone.value().post_usual(shared, batch, 0);
            }
        }
        if done == batch.len() {
            return Ok(());
        }
        self.post_rest(active, batch, done)
    }
}

impl SoftSend {
    /// Posts what is not usual of a batch, or everything when the queue pair is in an odd state.
    #[inline(never)]
    fn post_rest(
        &self,
        active: Active<'_>,
        batch: &SendBatch,
        done: usize,
    ) -> Result<(), PostError> {
        let shared = &*self.shared;
        if !shared.takes_posts() {
            return self.refuse(batch, done);
        }
        // SAFETY: only the owner of the send half gets here, through its `&mut self`.
        let (result, began) = unsafe {
            self.side.queue.own(|sender| {
                let was_unfinished = sender.is_unfinished();
                let result = sender.post(&self.shared, batch, done);
                let is_unfinished = sender.is_unfinished();
                ((result, is_unfinished && !was_unfinished), is_unfinished)
            })
        };
        drop(active);
        if began {
            self.objects.has_unfinished(&self.side);
        }
        result
    }

    #[cold]
    fn refuse(&self, batch: &SendBatch, done: usize) -> Result<(), PostError> {
        if done == batch.len() {
            return Ok(());
        }
        let reason = PostReason::State(self.shared.state());
        Err(PostError {
            index: done,
            reason,
        })
    }
}

/// The receive half.
#[derive(Debug)]
struct SoftRecv {
    shared: Arc<QpShared>,
    activity: Arc<Activity>,
    _life: Arc<Life>,
}

impl SoftRecv {
    /// Why it takes no RECVs.
    #[cold]
    fn refusal(&self) -> PostError {
        let reason = match &*self.shared {
            shared if shared.srq.is_some() => PostReason::SharedReceiveQueue,
            shared if shared.lent.is_some() => PostReason::LentRecvs,
            _ => PostReason::State(QpState::Reset),
        };
        PostError { index: 0, reason }
    }

    /// Adds RECVs to the queue, and has `note` tell of each by its number there.
    #[inline(always)]
    fn add(&self, batch: &RecvBatch, note: impl Fn(u64, &RecvWr<'_>)) -> Result<(), PostError> {
        let recvs = &self.shared.recvs;
        for (index, wr) in batch.iter().enumerate() {
            if wr.sges.len() > recvs.sge_max() {
                let reason = PostReason::TooManySges;
                return Err(PostError { index, reason });
            }
            let Some(number) = recvs.push(wr.id, wr.sges) else {
                let reason = PostReason::QueueFull;
                return Err(PostError { index, reason });
            };
            note(number, &wr);
        }
        Ok(())
    }

    // A function of its own, so that RECVs of datagrams, which have no credits, keep their registers.
    #[inline(never)]
    fn add_credited(&self, batch: &RecvBatch) -> Result<(), PostError> {
        self.add(batch, |number, wr| self.publish_credit(number, wr))
    }

    #[inline(always)]
    fn publish_credit(&self, number: u64, wr: &RecvWr<'_>) {
        let shared = &self.shared;
        let len = wr.sges.iter().map(|sge| u64::from(sge.len)).sum();
        let usable = can_receive(&shared.adapter, shared.pd, wr.sges);
        shared.publish_credit(number, usable.then_some(len));
    }

    /// RECVs of datagrams, for a poller that may sleep: its senders are told of those that will fail, before
    /// they are there.
    #[inline(never)]
    fn add_watched(&self, batch: &RecvBatch) -> Result<(), PostError> {
        let shared = &self.shared;
        let usable = |wr: RecvWr<'_>| can_receive(&shared.adapter, shared.pd, wr.sges);
        let is_flawed = !batch.iter().all(usable);
        if is_flawed {
            shared.note_flaw();
        }
        let added = self.add(batch, |_, _| {});
        if is_flawed {
            // A datagram may have come meanwhile, for which its sender did not ring.
            shared.recv_cq.notify(&shared.adapter, true);
        }
        added
    }
}

/// Whether the buffers of a RECV can be used. The caller is inside an operation that the quiescence knows
/// of.
#[inline(always)]
pub(crate) fn can_receive(adapter: &Adapter, pd: usize, sges: &[Sge]) -> bool {
    let (pd, needed) = (pd as u32, Access::LOCAL_WRITE);
    sges.iter().all(|sge| {
        sge.len == 0
            || mr::local(adapter, pd, sge, needed).is_some()
            // Its pages may come until they are needed.
            || mr::on_demand(adapter, pd, sge, needed).is_ok()
    })
}

impl RecvHalf for SoftRecv {
    #[inline]
    fn post(&mut self, batch: &RecvBatch) -> Result<(), PostError> {
        let shared = &self.shared;
        // A queue pair that starts anew waits for this.
        let _active = self.activity.enter();
        if shared.srq.is_some() || shared.lent.is_some() || shared.is(QpState::Reset) {
            return Err(self.refusal());
        }
        let posted = match shared.transport {
            Transport::Ud if shared.recv_cq.channel.is_some() => self.add_watched(batch),
            Transport::Ud => self.add(batch, |_, _| {}),
            Transport::Rc | Transport::Uc => self.add_credited(batch),
        };
        // Pairs with the fence of whoever fails: one that does so now either finds the RECVs, or is
        // found to have failed.
        light_barrier();
        if shared.is(QpState::Err) {
            shared.recv_cq.wake_for(&shared.adapter, shared);
        }
        posted
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use verbs::typed::{QpOptions, QueuePair, Ud, Wr};
    use verbs::{Access, Qkey, QpAttr, QpState, RecvWr, VerbsError, Wc, WcStatus};

    use crate::SoftNic;
    use crate::contact::objects::Objects;
    use crate::queue::qp::QpShared;
    use crate::shared::layout::qp_index;
    use crate::testing::{Host, Side, peer};

    fn made<T>(made: Result<T, VerbsError>) -> T {
        made.expect("made")
    }

    /// Posts a RECV, whose memory goes: nothing comes for it.
    fn post_recv(side: &mut Side) {
        let memory = side.pd.allocate(64, Access::EVERYTHING).expect("memory");
        let sges = [memory.sge(0..64)];
        let recv = RecvWr { id: 1, sges: &sges };
        side.qp.post_recv(&[recv]).expect("posted");
    }

    #[test]
    fn what_fails_again_does_not_receive_again() {
        let host = Host::new();
        let nic = host.open();
        let mut side = Side::alone_on(&nic);
        post_recv(&mut side);
        side.qp.modify(&QpAttr::to(QpState::Err)).expect("to ERR");
        let mut out = [Wc::default()];
        while side.cq.poll(&mut out).expect("no overrun") == 0 {}
        assert_eq!(out[0].status, WcStatus::WrFlushErr);
        let shared = side.shared(&nic);
        assert!(shared.is_flushed());
        // Whoever had it fail at the same time, and comes to this only now.
        shared.drain_and_flush(shared.epoch());
        assert!(shared.is_flushed() && !shared.takes_messages());
    }

    #[test]
    fn a_recv_in_front_of_one_that_is_refused_is_flushed() {
        let host = Host::new();
        let nic = host.open();
        let mut side = Side::alone_on(&nic);
        side.qp.modify(&QpAttr::to(QpState::Err)).expect("to ERR");
        let mut out = [Wc::default()];
        while !side.shared(&nic).is_flushed() {
            assert_eq!(side.cq.poll(&mut out), Ok(0));
        }
        let sges = vec![Default::default(); side.qp.caps().recv_sge_max as usize + 1];
        let recvs = [(1, 0), (2, sges.len())].map(|(id, count)| RecvWr {
            id,
            sges: &sges[..count],
        });
        let refused = side.qp.post_recv(&recvs).expect_err("too many elements");
        assert_eq!(refused.index, 1);
        assert_eq!(side.cq.poll(&mut out), Ok(1));
        assert_eq!((out[0].id, out[0].status), (1, WcStatus::WrFlushErr));
    }

    #[test]
    fn what_has_started_anew_is_not_drained_for_an_earlier_failure() {
        let host = Host::new();
        let nic = host.open();
        let mut side = Side::alone_on(&nic);
        let shared = side.shared(&nic);
        let (state, epoch) = shared.fail(false).expect("it was well");
        assert_eq!(state, QpState::Err);
        // Its owner hears of it before whoever has it fail goes on.
        side.qp.modify(&QpAttr::to(QpState::Reset)).expect("reset");
        let own = side.qp.endpoint().expect("a GID");
        side.connect(&own);
        QpShared::drain_all(nic.adapter(), &[(Arc::clone(&shared), epoch)]);
        shared.fail(false).expect("it is well");
        assert!(!shared.is_draining(), "not everybody can see that yet");
    }

    /// Attributes of an UD queue pair's first step.
    fn to_init() -> QpAttr {
        let mut attr = QpAttr::to(QpState::Init);
        (attr.pkey_index, attr.port) = (Some(0), Some(1));
        attr.qkey = Some(Qkey(7));
        attr
    }

    #[test]
    fn a_change_of_state_waits_for_a_post_whatever_state_that_has_found() {
        let host = Host::new();
        let nic = host.open();
        let side = Side::on(&nic);
        let mut qp: QueuePair<Ud> = made(side.pd.create_qp(&QpOptions::on(&side.cq)));
        let sender = nic.objects.qps.get(qp_index(qp.num().0));
        let sender = sender.expect("a number").upgrade().expect("it is there");
        let activity = nic.adapter().quiescence.activity();
        std::thread::scope(|scope| {
            // As one that has found the queue pair failed, which it may be between two steps.
            let active = activity.enter();
            // SAFETY: nobody posts.
            let changing = unsafe {
                sender.queue.own(|_| {
                    let changing = scope.spawn(|| qp.modify(&to_init()));
                    while !sender.qp.is(QpState::Init) && !changing.is_finished() {
                        std::thread::yield_now();
                    }
                    // If it does not wait, it has the time to come in.
                    for _ in 0..1000 {
                        std::thread::yield_now();
                    }
                    assert!(!changing.is_finished(), "it did not wait");
                    (changing, false)
                })
            };
            drop(active);
            let changed = changing.join().expect("it does not meet the post");
            changed.expect("to INIT");
        });
    }

    #[test]
    fn a_change_that_races_with_a_failure_leaves_the_state_that_there_is() {
        let host = Host::new();
        let nic = host.open();
        let side = Side::on(&nic);
        let mut qp: QueuePair<Ud> = made(side.pd.create_qp(&QpOptions::on(&side.cq)));
        let shared = nic.objects.qp_at(qp_index(qp.num().0));
        let shared = shared.expect("it is there");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    shared.fail(false);
                }
            });
            let mut differs = false;
            for _ in 0..20_000 {
                // What fails in between is tried again in the next round.
                let _ = qp.modify(&QpAttr::to(QpState::Reset));
                let _ = qp.modify(&to_init());
                // It asks for no state, and stays in whichever there is.
                let _ = qp.modify(&QpAttr::default());
                let machine = shared.machine();
                differs |= shared.state() != machine.state();
            }
            done.store(true, Ordering::Relaxed);
            assert!(!differs);
        });
    }

    #[test]
    fn a_connection_outlives_its_peer_until_something_is_sent_where_that_is_asked_for() {
        let host = Host::new();
        let mut options = host.options();
        options.fails_with_peers = false;
        let (us, them) = (SoftNic::open(&options).expect("open"), host.open());
        let (mut ours, mut theirs) = (Side::on(&us), Side::on(&them));
        ours.connect(&theirs.qp.endpoint().expect("a GID"));
        theirs.connect(&ours.qp.endpoint().expect("a GID"));
        // One takes the message of its peer, and one stays.
        let memory = ours.pd.allocate(64, Access::EVERYTHING).expect("memory");
        for id in 0..2 {
            let sges = [memory.sge(0..64)];
            let recv = RecvWr { id, sges: &sges };
            ours.qp.post_recv(&[recv]).expect("posted");
        }
        let peer = peer(&us, &them);
        let mut out = [Wc::default()];
        let sent = theirs.qp.post_send(&[Wr::send_inline(b"hello").id(4)]);
        sent.expect("posted");
        while ours.cq.poll(&mut out) == Ok(0) {
            std::thread::yield_now();
        }
        assert!(out[0].is_ok(), "{:?}", out[0]);
        drop((theirs, them));
        while !peer.is_dead() {
            std::thread::yield_now();
        }
        us.objects.peer_gone(&peer);
        for _ in 0..3 {
            assert_eq!(ours.cq.poll(&mut out), Ok(0), "the RECV stays");
        }
        assert_eq!(ours.qp.state(), QpState::Rts);
        assert!(ours.context.async_event().is_none());
        ours.qp
            .post_send(&[Wr::send_inline(b"anybody?").id(9)])
            .expect("posted");
        // Its RECV may be flushed before or after.
        while ours.cq.poll(&mut out) == Ok(0) || out[0].id != 9 {
            std::thread::yield_now();
        }
        assert_eq!(out[0].status, WcStatus::RetryExcErr);
        assert_eq!(ours.qp.state(), QpState::Err);
    }

    #[test]
    fn what_was_destroyed_does_not_fail() {
        let host = Host::new();
        let nic = host.open();
        let mut side = Side::alone_on(&nic);
        post_recv(&mut side);
        let (index, shared) = (qp_index(side.qp.num().0), side.shared(&nic));
        let Side {
            context,
            mut cq,
            qp,
            ..
        } = side;
        drop(qp);
        // Whoever found it connected to a peer that has died, and comes to this only now.
        QpShared::lose_peer(nic.adapter(), vec![Arc::clone(&shared)]);
        assert_eq!(shared.state(), QpState::Reset);
        let word = &nic.adapter().qp_entry(index).word;
        assert_eq!(word.load(Ordering::Relaxed), 0, "the number is free");
        let mut out = [Wc::default()];
        for _ in 0..3 {
            assert_eq!(cq.poll(&mut out), Ok(0), "its RECVs went with it");
        }
        assert!(context.async_event().is_none());
    }
}
