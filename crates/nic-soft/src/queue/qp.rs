//! Queue pairs, as those who send, receive and poll for them see them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use verbs::nic::AsyncEvent;
use verbs::state::QpMachine;
use verbs::wr::GRH_LEN;
use verbs::{
    Access, Gid, LentRecvs, Mtu, Polled, QpAttr, QpCaps, QpNum, QpState, SendLimits, Transport, Wc,
    WcOpcode, WcStatus,
};

use crate::contact::adapter::Adapter;
use crate::contact::objects::NewLane;
use crate::queue::arrival::Arrival;
use crate::queue::cq::{Completes, CqShared};
use crate::queue::events::{Events, is_of};
use crate::queue::srq::SrqShared;
use crate::shared::credit;
use crate::shared::layout::{FLAWED, MESSAGE_LEN_MAX, qp_index, qp_instance};
use crate::shared::qp_entry::{self, Pair, gid_words};
use crate::shared::recv_queue::{Recv, RecvQueue};

/// A completion queue of queue pairs.
pub(crate) type Cq = CqShared<QpShared>;

/// What the send queue of a queue pair, which stands above it, does for those who fail it or poll for
/// it.
pub(crate) trait SendWork: Send + Sync + std::fmt::Debug {
    /// Whether requests wait.
    fn is_unfinished(&self) -> bool;
    /// Carries on with those that wait, and says how long they may be left alone then.
    fn progress(&self) -> Duration;
}

/// What a queue pair is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) num: u32,
    pub(crate) pd: usize,
    pub(crate) transport: Transport,
    pub(crate) caps: QpCaps,
    pub(crate) signal_all: bool,
    pub(crate) blocks_own_multicast: bool,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) srq: Option<Arc<SrqShared>>,
    pub(crate) lent: Option<LentRecvs>,
}

/// What a queue pair's owner, its pollers and its adapter share.
#[derive(Debug)]
#[repr(C, align(64))] // The send queue looks at the first line, pollers at the second as well.
pub(crate) struct QpShared {
    pub(crate) send_cq: Arc<Cq>,
    /// Where its requests are counted from, apart from those of earlier queue pairs of its number.
    pub(crate) posted_first: u64,
    pub(crate) limits: SendLimits,
    pub(crate) caps: QpCaps,
    pub(crate) num: u32,
    pub(crate) transport: Transport,
    pub(crate) signal_all: bool,
    state: AtomicU8,
    /// How far it has come with failing: [`DRAINING`], [`FLUSHED`], or neither.
    failing: AtomicU8,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) srq: Option<Arc<SrqShared>>,
    pub(crate) pd: usize,
    pub(crate) lent: Option<LentRecvs>,
    /// Changes when the queue pair starts anew from RESET.
    epoch: AtomicU16,
    destroyed: AtomicBool,
    has_held: AtomicBool,
    pub(crate) recvs: RecvQueue,
    /// RECVs that have a credit each.
    credit_slots: usize,
    /// Its send queue, as long as somebody can post to it.
    send: OnceLock<Weak<dyn SendWork>>,
    events: Arc<Events>,
    machine: Mutex<QpMachine>,
    /// RECVs of its own that were taken for messages which did not use them.
    held: Mutex<Vec<Recv>>,
    /// The incarnation of the adapter that it was connected to.
    peer_incarnation: AtomicU64,
    /// A RECV was posted for datagrams whose buffers cannot be used.
    is_flawed: AtomicBool,
    /// The multicast groups that it is in.
    groups: Mutex<BTreeSet<Gid>>,
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
    /// Makes one, in RESET.
    pub(crate) fn new(adapter: &Arc<Adapter>, events: &Arc<Events>, parts: Parts) -> Arc<Self> {
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
            posted_first: adapter.released[qp_index(parts.num)].begin(&adapter.quiescence),
            recvs: RecvQueue::new(recv_depth, sge_max),
            credit_slots: (credited as usize).max(1).next_power_of_two(),
            send: OnceLock::new(),
            events: Arc::clone(events),
            machine: Mutex::new(QpMachine::new(parts.transport)),
            state: AtomicU8::new(QpState::Reset as u8),
            epoch: AtomicU16::new(adapter.next_epoch(qp_index(parts.num))),
            destroyed: AtomicBool::new(false),
            failing: AtomicU8::new(0),
            held: Mutex::new(Vec::new()),
            has_held: AtomicBool::new(false),
            peer_incarnation: AtomicU64::new(0),
            is_flawed: AtomicBool::new(false),
            groups: Mutex::default(),
        });
        shared.withdraw_credits();
        shared.post_all_lent();
        for cq in [&shared.send_cq, &shared.recv_cq] {
            cq.add(&shared);
        }
        shared
    }

    /// Says which send queue is its own, before anybody posts.
    pub(crate) fn set_send(&self, send: Weak<dyn SendWork>) {
        let set = self.send.set(send);
        debug_assert!(set.is_ok(), "a queue pair has one send queue");
    }

    fn send(&self) -> Option<Arc<dyn SendWork>> {
        self.send.get().and_then(Weak::upgrade)
    }

    /// Whether requests wait in its send queue.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.send().is_some_and(|send| send.is_unfinished())
    }

    /// Carries on with requests that wait in its send queue: for the poller of their completion queue.
    pub(crate) fn progress(&self) {
        if let Some(send) = self.send() {
            send.progress();
        }
    }

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

    pub(crate) fn store_state(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is(&self, state: QpState) -> bool {
        self.state.load(Ordering::Acquire) == state as u8
    }

    #[inline]
    pub(crate) fn is_rts(&self) -> bool {
        self.is(QpState::Rts)
    }

    /// Whether the send half may touch the send side: RTS, SQD, SQE and ERR.
    #[inline]
    pub(crate) fn takes_posts(&self) -> bool {
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
    pub(crate) fn begin_epoch(&self) {
        let epoch = self.adapter.next_epoch(qp_index(self.num));
        self.epoch.store(epoch, Ordering::Release);
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    pub(crate) fn machine(&self) -> MutexGuard<'_, QpMachine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The GID by which the device is known that the attributes name.
    pub(crate) fn peer_device(&self, attr: &QpAttr) -> Option<Gid> {
        attr.dest_gid().map(|gid| self.adapter.device_of(gid))
    }

    /// Whether this connected queue pair's peer is that one.
    pub(crate) fn is_peer(&self, gid: Gid, qpn: u32) -> bool {
        let attr = self.machine().attr();
        self.peer_device(&attr) == Some(gid) && attr.dest_qpn == Some(QpNum(qpn))
    }

    pub(crate) fn groups(&self) -> MutexGuard<'_, BTreeSet<Gid>> {
        // Every change is a single step.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has its poller read a lane that was opened to it. Otherwise the lane waits for its sender to close
    /// it: if it was opened for another connection, or by somebody whom the queue pair is not connected to.
    pub(crate) fn take_lane(self: &Arc<Self>, new: NewLane) {
        let NewLane {
            mut lane,
            src_qpn,
            dst_qpn,
            epoch,
            route,
        } = new;
        let from_peer = || self.is_peer(lane.inbox().peer.gid, src_qpn);
        let fits = self.transport == Transport::Ud || from_peer();
        if self.num != dst_qpn || self.epoch() != epoch || !fits {
            return;
        }
        lane.accept();
        let arrival = Arrival {
            lane,
            qp: Arc::clone(self),
            src_qpn,
            epoch,
            route,
        };
        self.recv_cq.arrive(&self.adapter, arrival);
    }

    /// Whether this queue pair is connected to one of a process.
    pub(crate) fn is_connected_to(&self, gid: Gid, instance: u32) -> bool {
        let attr = self.machine().attr();
        let connected = !matches!(attr.state, Some(QpState::Reset | QpState::Init));
        let there = |qpn: QpNum| qp_instance(qpn.0) == instance;
        self.transport != Transport::Ud
            && connected
            && self.peer_device(&attr) == Some(gid)
            && attr.dest_qpn.is_some_and(there)
    }

    /// Completes a send work request, the `position`th; false when the completion queue overran.
    #[inline]
    #[must_use]
    pub(crate) fn complete_send(&self, wc: Wc, position: u64) -> bool {
        let position = self.posted_first + position;
        self.send_cq.complete(&self.adapter, wc, position)
    }

    /// Completes a request that was carried out; false when the queue pair did not survive that.
    #[inline]
    pub(crate) fn signal_send(
        self: &Arc<Self>,
        position: u64,
        id: u64,
        opcode: WcOpcode,
        len: u32,
    ) -> bool {
        let wc = Wc {
            id,
            opcode,
            byte_len: len,
            qpn: QpNum(self.num),
            ..Wc::default()
        };
        let fits = self.complete_send(wc, position);
        if !fits {
            self.enter_error(false);
        }
        fits
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

    /// Everybody can see by now that it has failed. Has the poller read its lanes to their end, and
    /// flush its RECVs then: once, whoever has it fail besides. Nothing if it has started anew since the
    /// epoch in which it failed.
    pub(crate) fn drain_and_flush(self: &Arc<Self>, epoch: u16) {
        // Held until it is noted: whoever starts it anew does so before or after this.
        let machine = self.machine();
        if machine.state() != QpState::Err || self.epoch() != epoch {
            return;
        }
        let begins = |failing| (failing != FLUSHED).then_some(DRAINING);
        let begun = self
            .failing
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, begins);
        drop(machine);
        if begun.is_ok() {
            self.recv_cq.wake_for(&self.adapter, self);
        }
    }

    fn held(&self) -> MutexGuard<'_, Vec<Recv>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a RECV back that was taken for a message which does not use it.
    #[cold]
    pub(crate) fn hold(&self, recv: Recv) {
        if let Some(srq) = &self.srq {
            srq.give_back(&self.adapter, recv);
            return;
        }
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

    /// The queue of its RECVs, if the next one is there: none was put back, and no other queue pair
    /// takes any.
    #[inline(always)]
    pub(crate) fn usual_recvs(&self) -> Option<&RecvQueue> {
        let is_usual = self.srq.is_none() && !self.has_held.load(Ordering::Relaxed);
        is_usual.then_some(&self.recvs)
    }

    /// Takes the next RECV.
    #[inline]
    pub(crate) fn next_recv(&self, adapter: &Adapter, into: &mut Recv) -> bool {
        if self.has_held.load(Ordering::Relaxed) && self.take_held(into) {
            return true;
        }
        match &self.srq {
            None => self.recvs.pop(into),
            Some(srq) => srq.pop(adapter, into, || self.count_shared(1)),
        }
    }

    /// Tells its peer that it has taken so many RECVs from the shared queue, or has put one back. For the
    /// poller.
    #[inline]
    fn count_shared(&self, change: i32) {
        if self.transport != Transport::Ud {
            let taken = &self.adapter.credits(qp_index(self.num))[0];
            let count = (taken.load(Ordering::Relaxed) as u32).wrapping_add_signed(change);
            taken.store(count.into(), Ordering::Relaxed);
        }
    }

    /// A message whose end does not come gives the RECV back that it has taken, in this epoch of the queue pair
    /// or in an earlier one.
    #[cold]
    pub(crate) fn take_back(&self, recv: Recv, is_current: bool) {
        self.hold(recv);
        if is_current && self.srq.is_some() {
            self.count_shared(-1);
        }
    }

    /// Tells peers what this queue pair is now.
    pub(crate) fn publish(&self, machine: &QpMachine) {
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
            let is_kept_back = self.adapter.keeps_peers_waiting.load(Ordering::Acquire);
            let receives = machine.receives() && !is_kept_back;
            let word = qp_entry::word(generation, self.transport, access, receives);
            match self.is_flawed.load(Ordering::Acquire) {
                true => word | FLAWED,
                false => word,
            }
        };
        let channel = self.recv_cq.channel.as_ref();
        let timer = u32::from(attr.min_rnr_timer.unwrap_or(0));
        let pair = Pair {
            peer_gid: gid_words(self.peer_device(&attr).unwrap_or_default()),
            peer_qpn: attr.dest_qpn.map_or(u32::MAX, |qpn| qpn.0),
            qkey: attr.qkey.unwrap_or_default().0,
            recv_cq: self.recv_cq.number() as u32,
            srq: self.srq.as_ref().map_or(0, |srq| srq.number() as u32 + 1),
            channel: channel.map_or(0, |channel| channel.number() as u32 + 1),
            recv_depth: self.credit_slots as u32,
            pd: self.pd as u32,
            epoch_and_timer: u32::from(self.epoch()) << 16 | timer,
        };
        qp_entry::announce(entry, word, &pair);
    }

    /// Has peers look at it, and at what they reach over it, anew.
    pub(crate) fn publish_anew(&self) {
        self.publish(&self.machine());
    }

    /// Tells peers that a RECV for datagrams is about to be there whose buffers cannot be used.
    #[cold]
    pub(crate) fn note_flaw(&self) {
        let machine = self.machine();
        if !self.is_flawed.swap(true, Ordering::AcqRel) {
            self.publish(&machine);
        }
    }

    /// Raises an asynchronous event that is about it, as long as it is there.
    pub(crate) fn tell(&self, event: AsyncEvent) {
        let is_gone = || self.destroyed.load(Ordering::Acquire);
        self.events.raise(event, is_gone);
    }

    /// Goes to the state of failure: by itself, or because a peer broke the rules.
    pub(crate) fn enter_error(self: &Arc<Self>, sending: bool) {
        match self.fail(sending) {
            None => {}
            Some((QpState::Err, epoch)) => {
                QpShared::drain_all(&self.adapter, &[(Arc::clone(self), epoch)]);
            }
            Some(_) => self.flush_sends(),
        }
    }

    /// What comes after [`QpShared::fail`] where that has led to ERR, each in an epoch.
    pub(crate) fn drain_all(adapter: &Adapter, all: &[(Arc<Self>, u16)]) {
        if !all.is_empty() {
            // Each fence disturbs every thread of every adapter.
            adapter.quiescence.fence_everybody();
        }
        for (qp, epoch) in all {
            qp.drain_and_flush(*epoch);
            qp.flush_sends();
        }
    }

    /// Tells everybody that it has failed, and says in which state and epoch it is now; `None` if it had
    /// failed before. In ERR, [`QpShared::drain_all`] comes next.
    pub(crate) fn fail(&self, sending: bool) -> Option<(QpState, u16)> {
        let (state, epoch) = {
            let mut machine = self.machine();
            if matches!(machine.state(), QpState::Reset | QpState::Err) {
                return None;
            }
            machine.fail(sending);
            self.store_state(machine.state());
            self.publish(&machine);
            (machine.state(), self.epoch())
        };
        if state == QpState::Err {
            self.tell(AsyncEvent::QpFatal(QpNum(self.num)));
        }
        Some((state, epoch))
    }

    /// Sends that wait are flushed by the poller of their completion queue.
    fn flush_sends(self: &Arc<Self>) {
        if self.is_unfinished() {
            self.send_cq.wake_for(&self.adapter, self);
        }
    }

    /// The peer of these reliable connections has died: their owners may be waiting for nothing but its
    /// messages.
    pub(crate) fn lose_peer(adapter: &Adapter, all: Vec<Arc<Self>>) {
        if !adapter.fails_with_peers {
            return;
        }
        for qp in &all {
            qp.tell(AsyncEvent::PeerGone(QpNum(qp.num)));
        }
        QpShared::enter_error_all(adapter, all);
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

    /// Tells how many RECVs were used. All that was sent before has been received, and whoever sends
    /// next may start anew. For the poller.
    #[cold]
    pub(crate) fn publish_received(&self) {
        let taken = self.recvs.taken() as u32;
        let used = taken.wrapping_sub(self.held().len() as u32);
        let entry = self.adapter.qp_entry(qp_index(self.num));
        entry.received.store(used, Ordering::Release);
    }

    /// Takes back what was told of RECVs: those of an earlier connection, or of an earlier queue pair
    /// of this number.
    fn withdraw_credits(&self) {
        let entry = self.adapter.qp_entry(qp_index(self.num));
        entry.received.store(0, Ordering::Relaxed);
        let used = match self.srq {
            Some(_) => 1,
            None => self.credit_slots,
        };
        for credit in &self.adapter.credits(qp_index(self.num))[..used] {
            credit.store(0, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn publish_credit(&self, number: u64, room: Option<u64>) {
        let slot = number as usize & (self.credit_slots - 1);
        let credit = &self.adapter.credits(qp_index(self.num))[slot];
        credit::publish(credit, number, room);
    }

    /// Forgets its RECVs, and how far it had come with failing. Nobody receives or posts meanwhile.
    pub(crate) fn restart_recvs(&self) {
        self.recvs.restart();
        self.failing.store(0, Ordering::Release);
        self.held().clear();
        self.has_held.store(false, Ordering::Release);
        self.is_flawed.store(false, Ordering::Release);
        self.withdraw_credits();
        self.post_all_lent();
    }

    fn post_all_lent(&self) {
        for _ in 0..self.lent.map_or(0, |lent| lent.count) {
            self.post_lent();
        }
    }

    /// Lets the send half post, unless the queue pair has failed meanwhile.
    pub(crate) fn finish_rts(&self) {
        let machine = self.machine();
        self.store_state(machine.state());
    }

    /// It is destroyed: it fails no more, and peers find it no more.
    pub(crate) fn destroy(&self) {
        // Whoever has it fail meanwhile, or later, finds it in RESET, where nothing fails.
        let mut machine = self.machine();
        let reset = machine.modify(&QpAttr::to(QpState::Reset));
        debug_assert!(reset.is_ok(), "any state leads to RESET");
        let entry = self.adapter.qp_entry(qp_index(self.num));
        entry.word.store(0, Ordering::Release);
        self.destroyed.store(true, Ordering::Release);
        self.store_state(QpState::Reset);
        drop(machine);
        self.begin_epoch();
    }

    /// Drops the events about it that nobody has taken.
    pub(crate) fn forget_events(&self) {
        let own = QpNum(self.num);
        self.events.forget(|event| is_of(event, own));
    }

    pub(crate) fn set_peer_incarnation(&self, incarnation: u64) {
        self.peer_incarnation.store(incarnation, Ordering::Release);
    }
}

impl Completes for QpShared {
    /// The same as [`QpShared::enter_error`] for several, which costs one fence.
    fn enter_error_all(adapter: &Adapter, all: Vec<Arc<Self>>) {
        let fails = |qp: Arc<Self>| {
            let (state, epoch) = qp.fail(false)?;
            (state == QpState::Err).then_some((qp, epoch))
        };
        let failed: Vec<_> = all.into_iter().filter_map(fails).collect();
        QpShared::drain_all(adapter, &failed);
    }
}

const _: () = {
    assert!(std::mem::offset_of!(QpShared, adapter) <= 64);
    assert!(std::mem::offset_of!(QpShared, recvs) <= 128);
};
