//! Queue pairs: their state, and posting to them.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use verbs::nic::{AsyncEvent, NicQp};
use verbs::state::QpMachine;
use verbs::{
    Access, Gid, PostError, PostReason, QpAttr, QpCaps, QpNum, QpState, RecvWr, SendWr, Transport,
    VerbsError, Wc, WcStatus,
};

use crate::adapter::Adapter;
use crate::cq::CqShared;
use crate::credit;
use crate::handover::Handover;
use crate::layout::{qp_index, qp_instance};
use crate::link::{self, Link};
use crate::memory;
use crate::pair_entry::{self, Pair};
use crate::quiescence::Activity;
use crate::recv::gid_words;
use crate::recv_queue::{Recv, RecvQueue};
use crate::send::Sender;
use crate::srq::SrqShared;

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
    recvs: RecvQueue,
    pub(crate) send: Handover<Sender>,
    machine: Mutex<QpMachine>,
    state: AtomicU8,
    /// Changes when the queue pair starts anew from RESET.
    epoch: AtomicU16,
    destroyed: AtomicBool,
}

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

    fn store_state(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_rts(&self) -> bool {
        self.state.load(Ordering::Acquire) == QpState::Rts as u8
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

    pub(crate) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    pub(crate) fn machine(&self) -> MutexGuard<'_, QpMachine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this connected queue pair's peer is that one.
    pub(crate) fn is_peer(&self, gid: Gid, qpn: u32) -> bool {
        let attr = self.machine().attr();
        attr.dest_gid == Some(gid) && attr.dest_qpn == Some(QpNum(qpn))
    }

    /// Whether this queue pair is connected to one of a process.
    pub(crate) fn is_connected_to(&self, gid: Gid, instance: u32) -> bool {
        let attr = self.machine().attr();
        let connected = !matches!(attr.state, Some(QpState::Reset | QpState::Init));
        let there = |qpn: QpNum| qp_instance(qpn.0) == instance;
        self.transport != Transport::Ud
            && connected
            && attr.dest_gid == Some(gid)
            && attr.dest_qpn.is_some_and(there)
    }

    /// Takes the next RECV.
    #[inline]
    pub(crate) fn next_recv(&self, adapter: &Adapter, into: &mut Recv) -> bool {
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
        let depth = (self.caps.recv_wr_max as usize).max(1).next_power_of_two();
        let timer = u32::from(attr.min_rnr_timer.unwrap_or(0));
        let pair = Pair {
            peer_gid: gid_words(attr.dest_gid.unwrap_or_default()),
            peer_qpn: attr.dest_qpn.map_or(u32::MAX, |qpn| qpn.0),
            qkey: attr.qkey.unwrap_or_default().0,
            recv_cq: self.recv_cq.num as u32,
            srq: self.srq.as_ref().map_or(0, |srq| srq.num as u32 + 1),
            channel: channel.map_or(0, |(number, _)| *number as u32 + 1),
            recv_depth: depth as u32,
            pd: self.pd as u32,
            epoch_and_timer: u32::from(self.epoch()) << 16 | timer,
        };
        pair_entry::announce(entry, word, &pair);
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
            self.adapter
                .events
                .force_push(AsyncEvent::QpFatal(QpNum(self.num)));
            self.recv_cq.attend(&self.adapter, self);
        }
        // Sends that wait are flushed by the poller of their completion queue.
        if self.send.is_shared() {
            self.send_cq.attend(&self.adapter, self);
        }
    }

    /// Completes the RECVs of a queue pair in error; false when there are more than fit.
    pub(crate) fn flush_recvs(&self, out: &mut [Wc], n: &mut usize) -> bool {
        let mut recv = Recv::default();
        while *n < out.len() {
            if !self.recvs.pop(&mut recv) {
                return true;
            }
            let status = WcStatus::WrFlushErr;
            out[*n] = Wc {
                id: recv.id,
                status,
                qpn: QpNum(self.num),
                ..Wc::default()
            };
            *n += 1;
        }
        false
    }

    /// Carries on with sends that wait. Called by the poller of their completion queue.
    pub(crate) fn progress(self: &Arc<Self>) {
        self.send.help(|sender| sender.progress(self));
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

/// A queue pair as its owner holds it.
#[derive(Debug)]
pub(crate) struct SoftQp {
    shared: Arc<QpShared>,
    activity: Arc<Activity>,
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
}

impl SoftQp {
    pub(crate) fn new(adapter: &Arc<Adapter>, parts: Parts) -> Self {
        let recv_depth = if parts.srq.is_some() {
            1
        } else {
            parts.caps.recv_wr_max as usize
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
            recvs: RecvQueue::new(recv_depth, parts.caps.recv_sge_max as usize),
            send: Handover::new(Sender::new(adapter.gid, parts.num, parts.transport)),
            machine: Mutex::new(QpMachine::new(parts.transport)),
            state: AtomicU8::new(QpState::Reset as u8),
            epoch: AtomicU16::new(1),
            destroyed: AtomicBool::new(false),
        });
        SoftQp {
            shared,
            activity: adapter.quiescence.activity(),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<QpShared> {
        &self.shared
    }

    /// The owner's access to the send side. `self` is borrowed mutably, so there is one owner.
    fn own<R>(&mut self, work: impl FnOnce(&Arc<QpShared>, &mut Sender) -> R) -> R {
        let shared = &self.shared;
        // Registered memory stays meanwhile, and who wants to visit waits.
        let _active = self.activity.enter();
        // SAFETY: only the owner of the `SoftQp` gets here, through `&mut self`.
        unsafe {
            shared.send.own(|sender| {
                let result = work(shared, sender);
                (result, sender.is_unfinished())
            })
        }
    }

    /// Starts anew: nothing posted, nobody connected. The state is RESET already.
    fn reset(&mut self) {
        let shared = Arc::clone(&self.shared);
        // Lanes that were opened before do not lead here any more.
        shared.epoch.fetch_add(1, Ordering::AcqRel);
        shared.recv_cq.attend(&shared.adapter, &shared);
        // A poller that has looked at the state before may be taking a RECV for a message of such a
        // lane. Those that come later find the state, and drop the lanes first.
        shared.adapter.quiescence.wait();
        self.own(|_, sender| sender.clear());
        shared.recvs.restart();
        if shared.srq.is_none() {
            let slots = self.credit_slots();
            for credit in &shared.adapter.credits(qp_index(shared.num))[..slots] {
                credit.store(0, Ordering::Relaxed);
            }
        }
    }

    fn credit_slots(&self) -> usize {
        (self.shared.caps.recv_wr_max as usize)
            .max(1)
            .next_power_of_two()
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
        let slot = number as usize & (self.credit_slots() - 1);
        let credit = &shared.adapter.credits(qp_index(shared.num))[slot];
        credit::publish(credit, number, usable.then_some(len));
    }
}

impl NicQp for SoftQp {
    fn num(&self) -> QpNum {
        QpNum(self.shared.num)
    }

    fn transport(&self) -> Transport {
        self.shared.transport
    }

    fn modify(&mut self, attr: &QpAttr) -> Result<(), VerbsError> {
        let shared = Arc::clone(&self.shared);
        let (before, to) = {
            let machine = shared.machine();
            (machine.state(), machine.check(attr)?)
        };
        if let Some(port) = attr.port
            && port != 1
        {
            return Err(VerbsError::NoSuch {
                what: "port",
                number: port.into(),
            });
        }
        let mut opened = None;
        if before == QpState::Init
            && to == QpState::Rtr
            && let (Some(gid), Some(qpn)) = (attr.dest_gid, attr.dest_qpn)
        {
            opened = Some(Link::open(&shared.adapter, gid, qpn.0)?);
        }
        {
            let mut machine = shared.machine();
            machine.modify(attr)?;
            shared.publish(&machine);
            shared.store_state(machine.state());
            let attr = machine.attr();
            drop(machine);
            if to == QpState::Reset {
                self.reset();
            }
            self.own(|_, sender| {
                if let Some(link) = opened {
                    sender.connect(link);
                }
                sender.set_retries(&attr);
            });
        }
        if to == QpState::Err && before != QpState::Err {
            self.own(|shared, sender| sender.flush(shared));
            shared.recv_cq.attend(&shared.adapter, &shared);
        }
        if before == QpState::Sqd && to == QpState::Rts {
            self.own(|shared, sender| sender.progress(shared));
            if shared.send.is_shared() {
                shared.send_cq.attend(&shared.adapter, &shared);
            }
        }
        Ok(())
    }

    fn query(&self) -> QpAttr {
        self.shared.machine().attr()
    }

    #[inline]
    fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let was_shared = self.shared.send.is_shared();
        let result = self.own(|shared, sender| sender.post(shared, wrs));
        if !was_shared && self.shared.send.is_shared() {
            self.shared
                .send_cq
                .attend(&self.shared.adapter, &self.shared);
        }
        result
    }

    #[inline]
    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        let shared = &self.shared;
        if shared.srq.is_some() {
            return Err(PostError {
                index: 0,
                reason: PostReason::SharedReceiveQueue,
            });
        }
        let state = shared.state();
        if state == QpState::Reset {
            return Err(PostError {
                index: 0,
                reason: PostReason::State(state),
            });
        }
        let connected = shared.transport != Transport::Ud;
        for (index, wr) in wrs.iter().enumerate() {
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
                self.publish_credit(number, wr);
            }
        }
        if state == QpState::Err {
            shared.recv_cq.attend(&shared.adapter, shared);
        }
        Ok(())
    }
}

impl Drop for SoftQp {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        let index = qp_index(shared.num);
        shared
            .adapter
            .qp_entry(index)
            .word
            .store(0, Ordering::Release);
        shared.destroyed.store(true, Ordering::Release);
        shared.store_state(QpState::Reset);
        shared.epoch.fetch_add(1, Ordering::AcqRel);
        self.own(|_, sender| sender.clear());
        // Its lanes are dropped by the poller that holds them.
        shared.recv_cq.attend(&shared.adapter, &shared);
        let mut tables = shared.adapter.tables();
        let removed = tables.qps.remove(index);
        debug_assert!(removed.is_ok(), "a queue pair is removed once");
        if let Some(users) = tables.pds.get_mut(shared.pd) {
            *users -= 1;
        }
    }
}
