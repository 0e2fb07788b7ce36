//! A queue pair on which things go wrong.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::plan::{Fault, Random};
use super::{Change, OWN, Rewrite, Shared, lock};
use crate::attr::{Access, QpAttr, QpCaps, QpInit, QpState, Transport};
use crate::batch::{Dest, SendBatch, SendLimits};
use crate::error::{PostError, PostReason, VerbsError};
use crate::names::{AhNum, CqNum, Gid, Qkey, QpNum, RemoteAddr};
use crate::nic::{Nic, NicMr, QpCtl, RecvHalf, SendHalf};
use crate::rules;
use crate::wc::WcOpcode;
use crate::wr::{Op, Payload, SendFlags, SendWr, Sge, UdDest};

/// Late datagrams of a queue pair at most; when there are as many, the next is not late.
const SLOTS: usize = 64;

/// The control half.
#[derive(Debug)]
pub(super) struct FaultyCtl {
    pub(super) core: Arc<Mutex<Core>>,
    pub(super) num: QpNum,
    pub(super) transport: Transport,
}

impl QpCtl for FaultyCtl {
    fn num(&self) -> QpNum {
        self.num
    }

    fn transport(&self) -> Transport {
        self.transport
    }

    fn modify(&self, attr: &QpAttr) -> Result<(), VerbsError> {
        lock(&self.core).modify(attr)
    }

    fn attach_mcast(&self, group: Gid) -> Result<(), VerbsError> {
        lock(&self.core).ctl.attach_mcast(group)
    }

    fn detach_mcast(&self, group: Gid) -> Result<(), VerbsError> {
        lock(&self.core).ctl.detach_mcast(group)
    }

    fn query(&self) -> QpAttr {
        lock(&self.core).ctl.query()
    }

    fn caps(&self) -> QpCaps {
        lock(&self.core).ctl.caps()
    }
}

/// The send half, which polls of completion queues may also reach.
#[derive(Debug)]
pub(super) struct FaultySend {
    pub(super) core: Arc<Mutex<Core>>,
}

impl SendHalf for FaultySend {
    fn limits(&self) -> SendLimits {
        lock(&self.core).limits
    }

    fn prepare(&mut self, to: &UdDest) -> Result<Dest, VerbsError> {
        lock(&self.core).send.prepare(to)
    }

    fn room(&mut self) -> u32 {
        lock(&self.core).room()
    }

    fn post(&mut self, batch: &SendBatch) -> Result<(), PostError> {
        lock(&self.core).post_send(batch)
    }
}

/// A queue pair and what is late on it.
#[derive(Debug)]
pub(super) struct Core {
    ctl: Arc<dyn QpCtl>,
    send: Box<dyn SendHalf>,
    /// Holds one request on its way to `send`.
    batch: SendBatch,
    init: QpInit,
    /// What users may post; `send` takes a little more.
    limits: SendLimits,
    shared: Arc<Shared>,
    rng: Random,
    /// Requests accepted so far.
    accepted: u64,
    /// UC requests held back, and calls until they go out.
    stalled: VecDeque<Stalled>,
    stall_calls: u32,
    /// Copies of datagrams that go out later (UD).
    late: VecDeque<Late>,
    /// Memory for their bytes: a slot of a packet each.
    staging: Option<Arc<dyn NicMr>>,
    slot_len: usize,
    free: Vec<u32>,
    /// Counts RESETs, so that copies from before are told from those after.
    epoch: u16,
}

/// A UC request held back.
#[derive(Debug)]
struct Stalled {
    id: u64,
    op: Op,
    flags: SendFlags,
    bytes: Option<Vec<u8>>,
    sges: Vec<Sge>,
}

/// A copy of a datagram.
#[derive(Debug)]
struct Late {
    slot: u32,
    len: u32,
    op: Op,
    flags: SendFlags,
    to: UdDest,
    calls: u32,
}

impl Core {
    pub(super) fn new(
        nic: &dyn Nic,
        init: &QpInit,
        shared: Arc<Shared>,
    ) -> Result<(Core, Box<dyn RecvHalf>), VerbsError> {
        let device = nic.device();
        let late = init.transport == Transport::Ud && shared.injects();
        let mut inner = *init;
        let caps = &mut inner.caps;
        if late && caps.send_wr_max <= device.qp_wr_max {
            let deeper = caps.send_wr_max.saturating_add(SLOTS as u32);
            caps.send_wr_max = deeper.min(device.qp_wr_max);
        }
        if !shared.plan.spares(init.transport) {
            // Copies and requests that are to fail have one element.
            caps.send_sge_max = caps.send_sge_max.max(1);
        }
        let slot_len = nic.port(1)?.mtu.bytes();
        let staging = match late {
            true => Some(nic.allocate(init.pd, SLOTS * slot_len, Access::LOCAL_WRITE)?),
            false => None,
        };
        let qp = nic.create_qp(&inner)?;
        let inner = qp.send.limits();
        let limits = SendLimits {
            sge_max: init.caps.send_sge_max,
            ..inner
        };
        let core = Core {
            rng: Random(shared.plan.seed ^ (u64::from(qp.num().0) << 32)),
            ctl: qp.ctl,
            send: qp.send,
            batch: SendBatch::new(inner, 1),
            init: *init,
            limits,
            shared,
            accepted: 0,
            stalled: VecDeque::new(),
            stall_calls: 0,
            late: VecDeque::new(),
            staging,
            slot_len,
            free: (0..SLOTS as u32).collect(),
            epoch: 0,
        };
        Ok((core, qp.recv))
    }

    pub(super) fn num(&self) -> QpNum {
        self.ctl.num()
    }

    pub(super) fn completes_on(&self, cq: CqNum) -> bool {
        self.init.send_cq == cq || self.init.recv_cq == cq
    }

    fn modify(&mut self, attr: &QpAttr) -> Result<(), VerbsError> {
        self.ctl.modify(attr)?;
        match attr.state {
            Some(QpState::Reset) => {
                self.stalled.clear();
                self.late.clear();
                self.free = (0..SLOTS as u32).collect();
                self.epoch = self.epoch.wrapping_add(1);
                self.shared.forget(self.num());
            }
            // The new state says what becomes of what is held back: kept, sent or flushed.
            Some(_) => self.resume(),
            None => {}
        }
        Ok(())
    }

    /// Requests that a post takes; those that wait for others take room here, and later there.
    fn room(&mut self) -> u32 {
        let inside = self.send.room();
        let held = self.stalled.len() as u32;
        match held {
            0 => inside,
            held => inside.min(self.init.caps.send_wr_max.saturating_sub(held)),
        }
    }

    fn post_send(&mut self, batch: &SendBatch) -> Result<(), PostError> {
        if self.shared.plan.spares(self.init.transport) {
            return self.send.post(batch);
        }
        for (index, wr) in batch.iter().enumerate() {
            let posted = self.post_one(&wr);
            posted.map_err(|reason| PostError { index, reason })?;
            self.tick();
        }
        Ok(())
    }

    fn post_one(&mut self, wr: &SendWr<'_>) -> Result<(), PostReason> {
        let transport = self.init.transport;
        rules::check(&self.limits, wr)?;
        let shared = Arc::clone(&self.shared);
        let fault = shared.plan.fault(transport, self.accepted, &mut self.rng);
        // What stays on this side is not lost on the way.
        let is_local = matches!(wr.op, Op::BindWindow(_) | Op::LocalInvalidate { .. });
        let fault = fault.filter(|_| !is_local);
        match fault {
            Some(Fault::Delay) if transport == Transport::Uc => {
                if self.stalled.is_empty() {
                    self.stall_calls = self.shared.plan.delay_calls;
                }
                self.hold(wr)?;
            }
            _ if !self.stalled.is_empty() => self.hold(wr)?,
            Some(Fault::Drop) => self.post_lost(wr)?,
            Some(Fault::Error) => self.post_failing(wr)?,
            Some(fault @ (Fault::Delay | Fault::Duplicate)) => {
                let copy = self.copy(wr);
                let lost = copy.is_some() && fault == Fault::Delay;
                let posted = match lost {
                    true => self.post_lost(wr),
                    false => self.pass(wr),
                };
                match (posted, copy) {
                    (Ok(()), copy) => self.late.extend(copy),
                    (Err(reason), copy) => {
                        self.free.extend(copy.map(|copy| copy.slot));
                        return Err(reason);
                    }
                }
            }
            None => self.pass(wr)?,
        }
        self.accepted += 1;
        Ok(())
    }

    fn pass(&mut self, wr: &SendWr<'_>) -> Result<(), PostReason> {
        self.batch.clear();
        self.batch.push(wr)?;
        let posted = self.send.post(&self.batch);
        posted.map_err(|error| error.reason)
    }

    /// Posts a request that does nothing at its receiver.
    fn post_lost(&mut self, wr: &SendWr<'_>) -> Result<(), PostReason> {
        if let Some(to) = wr.to {
            let qkey = Qkey(to.qkey.0 ^ 0x2a55_aa2a);
            let to = Some(UdDest { qkey, ..to });
            return self.pass(&SendWr { to, ..*wr });
        }
        let op = Op::Write {
            remote: RemoteAddr::default(),
            imm: None,
        };
        let payload = Payload::Gather(&[]);
        let lost = SendWr { op, payload, ..*wr };
        let signaled = self.init.signal_all || wr.flags.contains(SendFlags::SIGNALED);
        match wr.op {
            Op::Send { .. } if signaled => self.pass_as(&lost, Change::Opcode(WcOpcode::Send)),
            _ => self.pass(&lost),
        }
    }

    /// Posts a request that fails.
    fn post_failing(&mut self, wr: &SendWr<'_>) -> Result<(), PostReason> {
        let sges = [self.shared.sge_of_foreign()];
        let failing = SendWr {
            op: Op::Send { imm: None },
            payload: Payload::Gather(&sges),
            ..*wr
        };
        let status = self.shared.plan.rc_error;
        self.pass_as(&failing, Change::Status(status))
    }

    /// Posts a request whose completion is to look different.
    fn pass_as(&mut self, wr: &SendWr<'_>, change: Change) -> Result<(), PostReason> {
        let (qpn, id) = (self.num(), wr.id);
        // First, because the completion may be polled before the post has returned.
        self.shared.rewrite(Rewrite { qpn, id, change });
        let posted = self.pass(wr);
        if posted.is_err() {
            self.shared.take_back(qpn, id);
        }
        posted
    }

    /// Holds a UC request back.
    fn hold(&mut self, wr: &SendWr<'_>) -> Result<(), PostReason> {
        match self.ctl.query().state.unwrap_or(QpState::Reset) {
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => {}
            state => return Err(PostReason::State(state)),
        }
        if self.stalled.len() >= self.init.caps.send_wr_max as usize {
            return Err(PostReason::QueueFull);
        }
        let (bytes, sges) = match wr.payload {
            Payload::Inline(bytes) => (Some(bytes.to_vec()), Vec::new()),
            Payload::InlineParts(parts) => (Some(parts.concat()), Vec::new()),
            Payload::Gather(sges) => (None, sges.to_vec()),
        };
        self.stalled.push_back(Stalled {
            id: wr.id,
            op: wr.op,
            flags: wr.flags,
            bytes,
            sges,
        });
        Ok(())
    }

    /// Copies a datagram into a free slot, if there is one and its bytes can be found.
    fn copy(&mut self, wr: &SendWr<'_>) -> Option<Late> {
        let (to, staging) = (wr.to?, self.staging.clone()?);
        let bytes = match wr.payload {
            Payload::Inline(bytes) => bytes.to_vec(),
            Payload::InlineParts(parts) => parts.concat(),
            Payload::Gather(sges) => self.fetch(sges)?,
        };
        let slot = self.free.pop()?;
        staging.write(slot as usize * self.slot_len, &bytes);
        Some(Late {
            slot,
            len: bytes.len() as u32,
            op: wr.op,
            flags: wr.flags | SendFlags::SIGNALED,
            to,
            calls: self.shared.plan.delay_calls,
        })
    }

    fn fetch(&self, sges: &[Sge]) -> Option<Vec<u8>> {
        let regions = lock(&self.shared.regions);
        let mut bytes = Vec::new();
        for sge in sges {
            let region = regions.get(&sge.lkey.0)?.upgrade()?;
            let offset = usize::try_from(sge.addr.checked_sub(region.addr())?).ok()?;
            let (start, len) = (bytes.len(), sge.len as usize);
            if offset > region.len() || len > region.len() - offset {
                return None;
            }
            bytes.resize(start + len, 0);
            region.read(offset, &mut bytes[start..]);
        }
        Some(bytes)
    }

    /// Time passes: what is late may go out.
    pub(super) fn tick(&mut self) {
        self.stall_calls = self.stall_calls.saturating_sub(1);
        if self.stall_calls == 0 {
            self.resume();
        }
        for late in &mut self.late {
            late.calls = late.calls.saturating_sub(1);
        }
        while self.late.front().is_some_and(|late| late.calls == 0) {
            if !self.post_copy() {
                return;
            }
        }
    }

    /// Posts the first late datagram; `false` when there is no room for it yet.
    fn post_copy(&mut self) -> bool {
        let (Some(staging), Some(late)) = (self.staging.clone(), self.late.pop_front()) else {
            return false;
        };
        let sges = [Sge {
            addr: staging.addr() + (late.slot as usize * self.slot_len) as u64,
            len: late.len,
            lkey: staging.lkey(),
        }];
        let wr = SendWr {
            id: (OWN << 32) | (u64::from(self.epoch) << 16) | u64::from(late.slot),
            op: late.op,
            payload: Payload::Gather(&sges),
            flags: late.flags,
            to: Some(late.to),
        };
        match self.pass(&wr) {
            Err(PostReason::QueueFull) => {
                self.late.push_front(late);
                return false;
            }
            Err(_) => self.free.push(late.slot), // It is late for ever.
            Ok(()) => {}
        }
        true
    }

    /// Late datagrams to an address handle that goes are late for ever: posted without it, they would fail
    /// and stop the queue pair.
    pub(super) fn lose_copies_to(&mut self, ah: AhNum) {
        let free = &mut self.free;
        self.late.retain(|late| {
            let stays = late.to.ah != ah;
            if !stays {
                free.push(late.slot);
            }
            stays
        });
    }

    /// A copy has completed, so that its slot is free, unless RESET has freed it already.
    pub(super) fn sent_copy(&mut self, number: u32) {
        if number >> 16 == u32::from(self.epoch) {
            self.free.push(number & 0xffff);
        }
    }

    /// Posts what was held back, as far as there is room.
    fn resume(&mut self) {
        while let Some(held) = self.stalled.pop_front() {
            let payload = match &held.bytes {
                Some(bytes) => Payload::Inline(bytes),
                None => Payload::Gather(&held.sges),
            };
            let wr = SendWr {
                id: held.id,
                op: held.op,
                payload,
                flags: held.flags,
                to: None,
            };
            match self.pass(&wr) {
                Err(PostReason::QueueFull) => {
                    self.stalled.push_front(held);
                    return;
                }
                // Nothing else can be wrong with it: it was checked when it was accepted, and
                // RESET, the only state after RTS that takes no requests, has dropped it.
                posted => debug_assert!(posted.is_ok(), "{posted:?}"),
            }
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.shared.forget(self.num());
    }
}
