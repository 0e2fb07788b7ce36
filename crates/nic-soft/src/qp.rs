//! Queue pairs: their state, and posting to them.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use verbs::nic::{AsyncEvent, QpCtl, QpParts, RecvHalf, SendHalf};
use verbs::state::QpMachine;
use verbs::wr::GRH_LEN;
use verbs::{
    Access, Dest, Gid, LentRecvs, Mtu, Polled, PostError, PostReason, QpAttr, QpCaps, QpNum,
    QpState, RecvBatch, RecvWr, SendBatch, SendLimits, Transport, UdDest, VerbsError, Wc, WcStatus,
    rules,
};

use crate::adapter::Adapter;
use crate::cq::CqShared;
use crate::credit;
use crate::events::is_of;
use crate::handover::Handover;
use crate::layout::{qp_index, qp_instance};
use crate::link::{self, Link};
use crate::memory;
use crate::pair_entry::{self, Pair};
use crate::peer::peer_at_once;
use crate::quiescence::{Active, Activity};
use crate::recv::gid_words;
use crate::recv_queue::{Recv, RecvQueue};
use crate::send::{MESSAGE_LEN_MAX, RD_ATOMIC_MAX, Sender};
use crate::srq::SrqShared;
use crate::sync::light_barrier;

/// What a queue pair's owner, its pollers and its adapter share.
#[derive(Debug)]
pub(crate) struct QpShared {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) num: u32,
    pub(crate) pd: usize,
    pub(crate) transport: Transport,
    pub(crate) caps: QpCaps,
    pub(crate) signal_all: bool,
    pub(crate) send_cq: Arc<CqShared>,
    pub(crate) recv_cq: Arc<CqShared>,
    pub(crate) srq: Option<Arc<SrqShared>>,
    pub(crate) lent: Option<LentRecvs>,
    pub(crate) limits: SendLimits,
    /// Where its requests are counted from, apart from those of earlier queue pairs of its number.
    pub(crate) posted_first: u64,
    recvs: RecvQueue,
    /// RECVs that have a credit each.
    credit_slots: usize,
    pub(crate) send: Handover<Sender>,
    /// Held by whoever changes the state, who is active in the send side now and then.
    control: Mutex<Arc<Activity>>,
    machine: Mutex<QpMachine>,
    state: AtomicU8,
    /// Changes when the queue pair starts anew from RESET.
    epoch: AtomicU16,
    destroyed: AtomicBool,
    /// How far it has come with failing: [`DRAINING`], [`FLUSHED`], or neither.
    failing: AtomicU8,
    /// RECVs that were taken for messages whose ends did not come.
    held: Mutex<Vec<Recv>>,
    has_held: AtomicBool,
    /// The incarnation of the adapter that it was connected to.
    peer_incarnation: AtomicU64,
}

/// In ERR: no sender takes a message for delivered any more that is not in its lane. What is there
/// is still received.
const DRAINING: u8 = 1;
/// In ERR: the lanes are empty, and RECVs are flushed.
const FLUSHED: u8 = 2;

const STATES: [QpState; 7] = [
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::Sqd,
    QpState::Sqe,
    QpState::Err,
];

impl QpShared {
    #[inline]
    pub(crate) fn state(&self) -> QpState {
        STATES[usize::from(self.state.load(Ordering::Acquire))]
    }

    /// Bytes that a message with its header takes at most, when messages are lent.
    pub(crate) fn lent_len(&self) -> Option<usize> {
        let header = match self.transport {
            Transport::Ud => GRH_LEN,
            _ => 0,
        };
        self.lent.map(|lent| lent.len as usize + header)
    }

    fn store_state(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Release);
    }

    #[inline]
    fn is(&self, state: QpState) -> bool {
        self.state.load(Ordering::Acquire) == state as u8
    }

    #[inline]
    pub(crate) fn is_rts(&self) -> bool {
        self.is(QpState::Rts)
    }

    /// Whether the send half may touch the send side: RTS, SQD, SQE and ERR.
    #[inline]
    fn takes_posts(&self) -> bool {
        self.state.load(Ordering::Acquire) >= QpState::Rts as u8
    }

    #[inline]
    pub(crate) fn receives(&self) -> bool {
        const RECEIVING: u32 = 1 << QpState::Rtr as u32
            | 1 << QpState::Rts as u32
            | 1 << QpState::Sqd as u32
            | 1 << QpState::Sqe as u32;
        RECEIVING >> self.state.load(Ordering::Acquire) & 1 != 0
    }

    pub(crate) fn epoch(&self) -> u16 {
        self.epoch.load(Ordering::Acquire)
    }

    /// What was connected or sent before does not lead here any more.
    fn begin_epoch(&self) {
        let epoch = self.adapter.next_epoch(qp_index(self.num));
        self.epoch.store(epoch, Ordering::Release);
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    pub(crate) fn machine(&self) -> MutexGuard<'_, QpMachine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this connected queue pair's peer is that one.
    pub(crate) fn is_peer(&self, gid: Gid, qpn: u32) -> bool {
        let attr = self.machine().attr();
        attr.dest_gid() == Some(gid) && attr.dest_qpn == Some(QpNum(qpn))
    }

    /// Whether this queue pair is connected to one of a process.
    pub(crate) fn is_connected_to(&self, gid: Gid, instance: u32) -> bool {
        let attr = self.machine().attr();
        let connected = !matches!(attr.state, Some(QpState::Reset | QpState::Init));
        let there = |qpn: QpNum| qp_instance(qpn.0) == instance;
        self.transport != Transport::Ud
            && connected
            && attr.dest_gid() == Some(gid)
            && attr.dest_qpn.is_some_and(there)
    }

    /// Completes a send work request, the `position`th; false when the completion queue overran.
    #[inline]
    #[must_use]
    pub(crate) fn complete_send(&self, wc: Wc, position: u64) -> bool {
        let position = self.posted_first + position;
        self.send_cq.complete(&self.adapter, wc, position)
    }

    pub(crate) fn peer_incarnation(&self) -> u64 {
        self.peer_incarnation.load(Ordering::Acquire)
    }

    /// Whether it takes what is in its lanes: it has not failed, or is reading them to their end.
    #[inline]
    pub(crate) fn takes_messages(&self) -> bool {
        self.receives() || self.is_before_flush()
    }

    #[cold]
    fn is_before_flush(&self) -> bool {
        self.state() == QpState::Err && self.failing.load(Ordering::Acquire) != FLUSHED
    }

    /// Whether the poller is to read the lanes to their end now.
    pub(crate) fn is_draining(&self) -> bool {
        self.state() == QpState::Err && self.failing.load(Ordering::Acquire) == DRAINING
    }

    /// Whether its RECVs are to be flushed.
    pub(crate) fn is_flushed(&self) -> bool {
        self.state() == QpState::Err && self.failing.load(Ordering::Acquire) == FLUSHED
    }

    /// The lanes are empty.
    pub(crate) fn start_flushing(&self) {
        self.failing.store(FLUSHED, Ordering::Release);
    }

    /// Peers can see by now that it has failed. Has the poller read its lanes to their end, and flush
    /// its RECVs then.
    fn drain_and_flush(self: &Arc<Self>) {
        self.adapter.quiescence.fence_everybody();
        self.failing.store(DRAINING, Ordering::Release);
        self.recv_cq.attend(&self.adapter, self);
    }

    fn held(&self) -> MutexGuard<'_, Vec<Recv>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a RECV back that was taken for a message whose end does not come.
    #[cold]
    pub(crate) fn hold(&self, recv: Recv) {
        self.held().push(recv);
        self.has_held.store(true, Ordering::Release);
    }

    #[cold]
    fn take_held(&self, into: &mut Recv) -> bool {
        let mut held = self.held();
        let first = (!held.is_empty()).then(|| held.remove(0));
        self.has_held.store(!held.is_empty(), Ordering::Release);
        drop(held);
        first.is_some_and(|recv| {
            *into = recv;
            true
        })
    }

    /// Takes the next RECV.
    #[inline]
    pub(crate) fn next_recv(&self, adapter: &Adapter, into: &mut Recv) -> bool {
        if self.has_held.load(Ordering::Relaxed) && self.take_held(into) {
            return true;
        }
        match &self.srq {
            None => self.recvs.pop(into),
            Some(srq) => srq.pop(adapter, into),
        }
    }

    /// Tells peers what this queue pair is now.
    fn publish(&self, machine: &QpMachine) {
        let entry = self.adapter.qp_entry(qp_index(self.num));
        let attr = machine.attr();
        let word = if machine.state() == QpState::Reset {
            0
        } else {
            let access = if self.transport == Transport::Ud {
                Access::empty()
            } else {
                machine.access()
            };
            let generation = self.adapter.next_generation();
            link::word(generation, self.transport, access, machine.receives())
        };
        let channel = self.recv_cq.channel.as_ref();
        let timer = u32::from(attr.min_rnr_timer.unwrap_or(0));
        let pair = Pair {
            peer_gid: gid_words(attr.dest_gid().unwrap_or_default()),
            peer_qpn: attr.dest_qpn.map_or(u32::MAX, |qpn| qpn.0),
            qkey: attr.qkey.unwrap_or_default().0,
            recv_cq: self.recv_cq.num as u32,
            srq: self.srq.as_ref().map_or(0, |srq| srq.num as u32 + 1),
            channel: channel.map_or(0, |(number, _)| *number as u32 + 1),
            recv_depth: self.credit_slots as u32,
            pd: self.pd as u32,
            epoch_and_timer: u32::from(self.epoch()) << 16 | timer,
        };
        pair_entry::announce(entry, word, &pair);
    }

    /// Raises an asynchronous event that is about it, as long as it is there.
    pub(crate) fn tell(&self, event: AsyncEvent) {
        let is_gone = || self.destroyed.load(Ordering::Acquire);
        self.adapter.events.raise(event, is_gone);
    }

    /// Goes to the state of failure: by itself, or because a peer broke the rules.
    pub(crate) fn enter_error(self: &Arc<Self>, sending: bool) {
        {
            let mut machine = self.machine();
            if matches!(machine.state(), QpState::Reset | QpState::Err) {
                return;
            }
            machine.fail(sending);
            self.store_state(machine.state());
            self.publish(&machine);
        }
        if self.state() == QpState::Err {
            self.tell(AsyncEvent::QpFatal(QpNum(self.num)));
            self.drain_and_flush();
        }
        // Sends that wait are flushed by the poller of their completion queue.
        if self.send.is_shared() {
            self.send_cq.attend(&self.adapter, self);
        }
    }

    /// The peer of this reliable connection has died: its owner may be waiting for nothing but its
    /// messages.
    pub(crate) fn lose_peer(self: &Arc<Self>) {
        self.tell(AsyncEvent::PeerGone(QpNum(self.num)));
        self.enter_error(false);
    }

    /// Completes the RECVs of a queue pair in error; false when there are more than fit. Those of
    /// the NIC's own nobody has posted, so that they complete nothing.
    pub(crate) fn flush_recvs(&self, out: &mut Polled) -> bool {
        let mut recv = Recv::default();
        while !out.is_full() {
            let held = self.has_held.load(Ordering::Relaxed) && self.take_held(&mut recv);
            if self.lent.is_some() || !(held || self.recvs.pop(&mut recv)) {
                return true;
            }
            let status = WcStatus::WrFlushErr;
            out.push(Wc {
                id: recv.id,
                status,
                qpn: QpNum(self.num),
                ..Wc::default()
            });
        }
        false
    }

    /// Posts one of the NIC's own RECVs. Called by one thread at a time: the poller, and nobody
    /// polls while the queue pair starts anew.
    pub(crate) fn post_lent(&self) {
        let Some(lent) = self.lent.filter(|_| self.transport != Transport::Ud) else {
            return; // Datagrams need none: their room is the lane's.
        };
        if let Some(number) = self.recvs.push(0, &[]) {
            self.publish_credit(number, Some(u64::from(lent.len)));
        }
    }

    /// Takes back what was told of RECVs: those of an earlier connection, or of an earlier queue pair
    /// of this number.
    fn withdraw_credits(&self) {
        if self.srq.is_none() {
            for credit in &self.adapter.credits(qp_index(self.num))[..self.credit_slots] {
                credit.store(0, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn publish_credit(&self, number: u64, room: Option<u64>) {
        let slot = number as usize & (self.credit_slots - 1);
        let credit = &self.adapter.credits(qp_index(self.num))[slot];
        credit::publish(credit, number, room);
    }

    /// Access to the send side for the control half.
    ///
    /// # Safety
    /// The send side was recalled for this, and no post that had not seen that is under way.
    unsafe fn control<R>(
        self: &Arc<Self>,
        activity: &Activity,
        work: impl FnOnce(&Arc<Self>, &mut Sender) -> R,
    ) -> R {
        // Registered memory stays meanwhile.
        let _active = activity.enter();
        // SAFETY: the caller's promise.
        unsafe {
            self.send.visit_waiting(|sender| {
                let result = work(self, sender);
                (result, sender.is_unfinished())
            })
        }
    }

    /// The same while the send half may be posting.
    fn interrupt<R>(
        self: &Arc<Self>,
        activity: &Activity,
        work: impl FnOnce(&Arc<Self>, &mut Sender) -> R,
    ) -> R {
        self.send.recall();
        self.adapter.quiescence.wait();
        // SAFETY: recalled, and what was under way then is over.
        unsafe { self.control(activity, work) }
    }

    /// Carries on with sends that wait: called by the poller of their completion queue, and by the
    /// NIC's own thread, which is told how long it may leave them alone.
    pub(crate) fn progress(self: &Arc<Self>) -> Duration {
        let mut pause = Duration::ZERO;
        self.send.help(|sender| {
            let unfinished = sender.progress(self);
            pause = unfinished.unwrap_or_default();
            unfinished.is_some()
        });
        pause
    }

    /// Whether the send side may lead to a process.
    pub(crate) fn may_lead_to(&self, gid: Gid, instance: u32) -> bool {
        self.transport == Transport::Ud || self.is_connected_to(gid, instance)
    }

    /// Drops what leads to peers that have gone; false when somebody is at the send side just now.
    ///
    /// # Safety
    /// As for [`Handover::visit`].
    pub(crate) unsafe fn forget_departed(&self) -> bool {
        let forget = |sender: &mut Sender| {
            let departed = sender.take_departed(&self.adapter);
            (departed, sender.is_unfinished())
        };
        // SAFETY: the caller's promise. What was taken goes when the lock has been given back.
        unsafe { self.send.visit(forget) }.is_some()
    }
}

/// What a queue pair is made of.
pub(crate) struct Parts {
    pub(crate) num: u32,
    pub(crate) pd: usize,
    pub(crate) transport: Transport,
    pub(crate) caps: QpCaps,
    pub(crate) signal_all: bool,
    pub(crate) send_cq: Arc<CqShared>,
    pub(crate) recv_cq: Arc<CqShared>,
    pub(crate) srq: Option<Arc<SrqShared>>,
    pub(crate) lent: Option<LentRecvs>,
}

/// Makes a queue pair.
pub(crate) fn create(adapter: &Arc<Adapter>, parts: Parts) -> (Arc<QpShared>, QpParts) {
    let (recv_depth, sge_max) = match (&parts.srq, parts.lent) {
        (Some(_), _) => (1, 1),
        (None, Some(lent)) => (lent.count as usize, 1),
        (None, None) => (
            parts.caps.recv_wr_max as usize,
            parts.caps.recv_sge_max as usize,
        ),
    };
    let credited = match parts.lent {
        Some(lent) => lent.count,
        None => parts.caps.recv_wr_max,
    };
    let limits = SendLimits {
        transport: parts.transport,
        inline_max: parts.caps.inline_max,
        sge_max: parts.caps.send_sge_max,
        message_len_max: match parts.transport {
            Transport::Ud => Mtu::B4096.bytes() as u32,
            _ => MESSAGE_LEN_MAX,
        },
    };
    let shared = Arc::new(QpShared {
        adapter: Arc::clone(adapter),
        num: parts.num,
        pd: parts.pd,
        transport: parts.transport,
        caps: parts.caps,
        signal_all: parts.signal_all,
        send_cq: parts.send_cq,
        recv_cq: parts.recv_cq,
        srq: parts.srq,
        lent: parts.lent,
        limits,
        posted_first: adapter.first_position(qp_index(parts.num)),
        recvs: RecvQueue::new(recv_depth, sge_max),
        credit_slots: (credited as usize).max(1).next_power_of_two(),
        send: Handover::new(Sender::new(
            adapter.gid,
            parts.num,
            parts.transport,
            parts.pd,
        )),
        control: Mutex::new(adapter.quiescence.activity()),
        machine: Mutex::new(QpMachine::new(parts.transport)),
        state: AtomicU8::new(QpState::Reset as u8),
        epoch: AtomicU16::new(adapter.next_epoch(qp_index(parts.num))),
        destroyed: AtomicBool::new(false),
        failing: AtomicU8::new(0),
        held: Mutex::new(Vec::new()),
        has_held: AtomicBool::new(false),
        peer_incarnation: AtomicU64::new(0),
    });
    shared.withdraw_credits();
    for _ in 0..shared.lent.map_or(0, |lent| lent.count) {
        shared.post_lent();
    }
    let life = Arc::new(Life(Arc::clone(&shared)));
    let ctl = SoftCtl {
        shared: Arc::clone(&shared),
        _life: Arc::clone(&life),
    };
    let send = SoftSend {
        shared: Arc::clone(&shared),
        activity: adapter.quiescence.activity(),
        _life: Arc::clone(&life),
    };
    let recv = SoftRecv {
        shared: Arc::clone(&shared),
        activity: adapter.quiescence.activity(),
        _life: life,
    };
    let parts = QpParts::new(Arc::new(ctl), Box::new(send), Box::new(recv));
    (shared, parts)
}

/// The queue pair as its parts hold it. Dropping the last of them destroys it.
#[derive(Debug)]
struct Life(Arc<QpShared>);

impl Drop for Life {
    fn drop(&mut self) {
        let shared = &self.0;
        let index = qp_index(shared.num);
        shared
            .adapter
            .qp_entry(index)
            .word
            .store(0, Ordering::Release);
        shared.destroyed.store(true, Ordering::Release);
        shared.store_state(QpState::Reset);
        shared.begin_epoch();
        {
            let activity = shared.lock_control();
            shared.send.recall();
            // SAFETY: recalled, and there is no send half any more.
            unsafe { shared.control(&activity, |_, sender| sender.clear()) };
        }
        let own = QpNum(shared.num);
        shared.adapter.events.forget(|event| is_of(event, own));
        // Its lanes are dropped by the poller that holds them.
        shared.recv_cq.attend(&shared.adapter, shared);
        let mut tables = shared.adapter.tables();
        let removed = tables.qps.remove(index);
        debug_assert!(removed.is_ok(), "a queue pair is removed once");
        if let Some(users) = tables.pds.get_mut(shared.pd) {
            *users -= 1;
        }
    }
}

/// The control half.
#[derive(Debug)]
struct SoftCtl {
    shared: Arc<QpShared>,
    _life: Arc<Life>,
}

impl QpShared {
    fn lock_control(&self) -> MutexGuard<'_, Arc<Activity>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts anew: nothing posted, nobody connected. The state is RESET already.
    fn reset(self: &Arc<Self>, activity: &Activity) {
        // Lanes that were opened before do not lead here any more.
        self.begin_epoch();
        self.recv_cq.attend(&self.adapter, self);
        // A poller that has looked at the state before may be taking a RECV for a message of such a
        // lane, and the receive half may be posting one. Those that come later find the state, and
        // drop the lanes first.
        self.interrupt(activity, |_, sender| sender.clear());
        self.recvs.restart();
        self.failing.store(0, Ordering::Release);
        self.held().clear();
        self.has_held.store(false, Ordering::Release);
        self.withdraw_credits();
        for _ in 0..self.lent.map_or(0, |lent| lent.count) {
            self.post_lent();
        }
    }
}

impl QpCtl for SoftCtl {
    fn num(&self) -> QpNum {
        QpNum(self.shared.num)
    }

    fn transport(&self) -> Transport {
        self.shared.transport
    }

    fn modify(&self, attr: &QpAttr) -> Result<(), VerbsError> {
        let shared = &self.shared;
        let activity = shared.lock_control();
        let (before, to, own_port) = {
            let machine = shared.machine();
            (machine.state(), machine.check(attr)?, machine.attr().port)
        };
        rules::check_names(attr, own_port, |port| shared.adapter.port(port))?;
        rules::check_depths(attr, RD_ATOMIC_MAX)?;
        if before == QpState::Sqd
            && let Some(gid) = attr.dest_gid()
            && shared.machine().attr().dest_gid() != Some(gid)
        {
            // Another address is another adapter here, which knows nothing of the connection.
            let what = "moving a connection to another address";
            return Err(VerbsError::Unsupported { what });
        }
        let mut opened = None;
        if before == QpState::Init
            && to == QpState::Rtr
            && let (Some(gid), Some(qpn)) = (attr.dest_gid(), attr.dest_qpn)
        {
            let link = Link::open(&shared.adapter, gid, qpn.0)?;
            let incarnation = link.peer.incarnation;
            shared
                .peer_incarnation
                .store(incarnation, Ordering::Release);
            opened = Some(link);
        }
        let attr = {
            let mut machine = shared.machine();
            machine.modify(attr)?;
            shared.publish(&machine);
            // Before RTS nobody posts. What posting needs is there before the state says so.
            if !matches!(to, QpState::Rts) {
                shared.store_state(to);
            }
            machine.attr()
        };
        if to == QpState::Reset {
            shared.reset(&activity);
        }
        let peer = opened.as_ref().map(|link| Arc::clone(&link.peer));
        let prepare = |_: &Arc<QpShared>, sender: &mut Sender| {
            if let Some(link) = opened {
                sender.connect(link);
            }
            sender.set_attributes(&attr);
        };
        let is_idle = matches!(before, QpState::Reset | QpState::Init | QpState::Rtr);
        if to == QpState::Reset || (is_idle && to != QpState::Err) {
            shared.send.recall();
            // SAFETY: recalled; in these states the send half does not touch the send side, and
            // what it had begun before was over when the queue pair went to RESET.
            unsafe { shared.control(&activity, prepare) };
        } else {
            shared.interrupt(&activity, prepare);
        }
        if to == QpState::Rts {
            shared.finish_rts();
        }
        // Who fails the connections to a peer that dies passes over those that are not there yet.
        if shared.transport == Transport::Rc && peer.is_some_and(|peer| peer.is_dead()) {
            shared.lose_peer();
        }
        if to == QpState::Err && before != QpState::Err {
            shared.interrupt(&activity, |shared, sender| sender.flush(shared));
            shared.drain_and_flush();
        }
        if before == QpState::Sqd && to == QpState::Rts {
            shared.interrupt(&activity, |shared, sender| sender.progress(shared));
            if shared.send.is_shared() {
                shared.has_unfinished();
            }
        }
        Ok(())
    }

    fn caps(&self) -> QpCaps {
        self.shared.caps
    }

    fn query(&self) -> QpAttr {
        self.shared.machine().attr()
    }
}

impl QpShared {
    /// Some requests have to wait: the poller of their completion queue carries on with them, or the
    /// NIC's own thread, if that sleeps.
    #[cold]
    fn has_unfinished(self: &Arc<Self>) {
        self.send_cq.attend(&self.adapter, self);
        self.adapter.unfinished.add(self);
    }

    /// Lets the send half post, unless the queue pair has failed meanwhile.
    fn finish_rts(&self) {
        let machine = self.machine();
        self.store_state(machine.state());
    }
}

/// The send half.
#[derive(Debug)]
struct SoftSend {
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
        let gid = adapter.address(to.ah, shared.pd)?;
        // A process that was contacted before is not waited for.
        peer_at_once(adapter, gid, qp_instance(to.qpn.0))?;
        shared.send.recall();
        // SAFETY: recalled, and this is the send half, which is not posting.
        unsafe {
            shared.send.visit_waiting(|sender| {
                let dest = sender.prepare(adapter, to);
                (dest, sender.is_unfinished())
            })
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
            if let Some(mut alone) = unsafe { shared.send.alone() } {
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
            shared.send.own(|sender| {
                let was_unfinished = sender.is_unfinished();
                let result = sender.post(&self.shared, batch, done);
                let is_unfinished = sender.is_unfinished();
                ((result, is_unfinished && !was_unfinished), is_unfinished)
            })
        };
        drop(active);
        if began {
            self.shared.has_unfinished();
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

    #[inline]
    fn publish_credit(&self, number: u64, wr: &RecvWr<'_>) {
        let shared = &self.shared;
        let mut len = 0u64;
        let mut usable = true;
        for sge in wr.sges {
            len += u64::from(sge.len);
            usable &= sge.len == 0
                || memory::local(&shared.adapter, shared.pd as u32, sge, Access::LOCAL_WRITE)
                    .is_some();
        }
        shared.publish_credit(number, usable.then_some(len));
    }
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
        let connected = shared.transport != Transport::Ud;
        for (index, wr) in batch.iter().enumerate() {
            if wr.sges.len() > shared.recvs.sge_max() {
                return Err(PostError {
                    index,
                    reason: PostReason::TooManySges,
                });
            }
            let Some(number) = shared.recvs.push(wr.id, wr.sges) else {
                return Err(PostError {
                    index,
                    reason: PostReason::QueueFull,
                });
            };
            if connected {
                self.publish_credit(number, &wr);
            }
        }
        // Pairs with the fence of whoever fails: one that does so now either finds the RECVs, or is
        // found to have failed.
        light_barrier();
        if shared.is(QpState::Err) {
            shared.recv_cq.attend(&shared.adapter, shared);
        }
        Ok(())
    }
}
