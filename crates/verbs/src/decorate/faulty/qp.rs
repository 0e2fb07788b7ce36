//! A queue pair on which things go wrong.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::late::LateSends;
use super::pieces::{PIECES_MAX, Part, pieces};
use super::plan::Fault;
use super::small::Small;
use super::{Change, OWN, Rewrite, Shared, lock};
use crate::attr::{Access, QpAttr, QpCaps, QpInit, QpState, Transport};
use crate::batch::{Dest, SendBatch, SendLimits};
use crate::error::{PostError, PostReason, VerbsError};
use crate::names::{AhNum, CqNum, Gid, Qkey, QpNum, RemoteAddr, Rkey, VendorErr};
use crate::nic::{AsyncEvent, Nic, NicMr, QpCtl, RecvHalf, SendHalf};
use crate::rules;
use crate::wc::{Wc, WcOpcode, WcStatus};
use crate::wr::{Op, Payload, SendFlags, SendWr, Sge, UdDest};

/// Late datagrams of a queue pair at most; when there are as many, the next is not late.
const SLOTS: usize = 64;

/// The lower half of the number of a WRITE's pieces that go before its last one.
const PIECE: u32 = u32::MAX;
/// How often the sender gives its processor away behind each, so that others can look.
const PAUSE_YIELDS: u32 = 100;

/// The control half.
#[derive(Debug)]
pub(super) struct FaultyCtl {
    pub(super) core: Arc<Mutex<Core>>,
    pub(super) num: QpNum,
    pub(super) transport: Transport,
    pub(super) shared: Arc<Shared>,
}

impl QpCtl for FaultyCtl {
    fn num(&self) -> QpNum {
        self.num
    }

    fn transport(&self) -> Transport {
        self.transport
    }

    fn modify(&self, attr: &QpAttr) -> Result<(), VerbsError> {
        if attr.state == Some(QpState::Rtr) {
            self.shared.wait_before_rtr();
        }
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
        lock(&self.core).caps()
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
    /// How many queue pairs this NIC had before.
    ordinal: u64,
    /// Requests accepted so far.
    accepted: u64,
    /// Requests not accepted yet at which something has happened already, should they be posted again.
    happened: Vec<u64>,
    /// How many were accepted, and which one is refused, when `room` last ended before a refusal.
    foreseen: Option<(u64, u64)>,
    /// The next request that names a key revokes it.
    revokes: bool,
    /// Completions that wait for a message.
    pub(super) late: LateSends,
    /// How a piece of a WRITE has failed that went before the others.
    blame: Option<(WcStatus, VendorErr)>,
    /// UC requests held back, and calls until they go out.
    stalled: VecDeque<Stalled>,
    stall_calls: u32,
    /// Copies of datagrams that go out later (UD).
    copies: VecDeque<Late>,
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
    to: Option<UdDest>,
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
        let late = init.transport == Transport::Ud && shared.plan.repeats_datagrams();
        let in_steps = init.transport != Transport::Ud && shared.plan.places_in_pieces();
        let mut inner = *init;
        let caps = &mut inner.caps;
        if late && caps.send_wr_max <= device.qp_wr_max {
            let deeper = caps.send_wr_max.saturating_add(SLOTS as u32);
            caps.send_wr_max = deeper.min(device.qp_wr_max);
        }
        if in_steps && caps.send_wr_max <= device.qp_wr_max {
            let deeper = caps.send_wr_max.saturating_mul(PIECES_MAX as u32);
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
            inline_max: match shared.plan.is_small {
                true => init.caps.inline_max,
                false => inner.inline_max,
            },
            ..inner
        };
        let core = Core {
            ordinal: shared.qps_made.fetch_add(1, Ordering::Relaxed),
            ctl: qp.ctl,
            send: qp.send,
            batch: SendBatch::new(inner, 1),
            init: *init,
            limits,
            shared,
            accepted: 0,
            happened: Vec::new(),
            foreseen: None,
            revokes: false,
            late: LateSends::default(),
            blame: None,
            stalled: VecDeque::new(),
            stall_calls: 0,
            copies: VecDeque::new(),
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

    pub(super) fn sends_on(&self, cq: CqNum) -> bool {
        self.init.send_cq == cq
    }

    pub(super) fn ctl(&self) -> Arc<dyn QpCtl> {
        Arc::clone(&self.ctl)
    }

    fn caps(&self) -> QpCaps {
        let mut caps = self.ctl.caps();
        if self.shared.plan.is_small {
            caps = self.init.caps;
        }
        caps
    }

    fn modify(&mut self, attr: &QpAttr) -> Result<(), VerbsError> {
        if self.shared.plan.is_small {
            rules::check_depths(attr, Small::DEVICE.rd_atomic_max)?;
        }
        self.ctl.modify(attr)?;
        match attr.state {
            Some(QpState::Reset) => {
                self.stalled.clear();
                self.copies.clear();
                self.free = (0..SLOTS as u32).collect();
                self.epoch = self.epoch.wrapping_add(1);
                self.late.clear();
                self.blame = None;
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
        let mut room = self.send.room();
        if self.init.transport != Transport::Ud && self.shared.plan.places_in_pieces() {
            // Each may become so many.
            room /= PIECES_MAX as u32;
        }
        let held = self.stalled.len() as u32;
        if held > 0 {
            room = room.min(self.init.caps.send_wr_max.saturating_sub(held));
        }
        self.before_refusal(room)
    }

    /// Of so many requests those before the first that is to be refused: for whoever posts all of them or none. If that one
    /// is the next, its post refuses it.
    fn before_refusal(&mut self, room: u32) -> u32 {
        if self.shared.plan.spares(self.init.transport) {
            return room;
        }
        if let Some((accepted, nth)) = self.foreseen.take()
            && accepted == self.accepted
        {
            // Nothing was posted since it was told, because there were more requests than these.
            self.happened.push(nth);
        }
        let count = room.min(self.init.caps.send_wr_max);
        let is_refused = |ahead: &u32| {
            let nth = self.accepted + u64::from(*ahead);
            self.fault_at(nth) == Some(Fault::NoMemory)
        };
        let refused = (0..count).find(is_refused);
        match refused.filter(|ahead| *ahead > 0) {
            Some(ahead) => {
                self.foreseen = Some((self.accepted, self.accepted + u64::from(ahead)));
                ahead
            }
            None => room,
        }
    }

    fn post_send(&mut self, batch: &SendBatch) -> Result<(), PostError> {
        if self.shared.plan.spares(self.init.transport) {
            return self.send.post(batch);
        }
        for (index, wr) in batch.iter().enumerate() {
            let posted = self.post_one(&wr);
            posted.map_err(|reason| PostError { index, reason })?;
            self.shared.pass_time();
            self.tick();
        }
        Ok(())
    }

    fn post_one(&mut self, wr: &SendWr<'_>) -> Result<(), PostReason> {
        rules::check(&self.limits, wr)?;
        let fate = match self.fault_at(self.accepted) {
            Some(fault) if fault.is_incident() => {
                self.happened.push(self.accepted);
                self.suffer(fault)?;
                None
            }
            other => other,
        };
        self.carry_out(&self.without_revoked(wr), fate)?;
        self.revokes &= remote(&wr.op).is_none();
        if self.shared.replies_first && self.is_signaled(wr) {
            self.late.marks.push_back(fate == Some(Fault::ReplyFirst));
        }
        self.accepted += 1;
        let accepted = self.accepted;
        self.happened.retain(|nth| *nth >= accepted);
        Ok(())
    }

    /// What happens to a request that is not accepted yet.
    fn fault_at(&self, nth: u64) -> Option<Fault> {
        if self.happened.contains(&nth) {
            return None;
        }
        let plan = &self.shared.plan;
        plan.fault(self.init.transport, self.ordinal, nth)
    }

    /// Something happens at a request.
    fn suffer(&mut self, fault: Fault) -> Result<(), PostReason> {
        let condition = &self.shared.condition;
        match fault {
            Fault::NoMemory => return Err(PostReason::QueueFull),
            Fault::Revoke => self.revokes = true,
            Fault::Kill => condition.kill(),
            Fault::Freeze(calls) => self.shared.freeze(calls),
            Fault::PortDown(calls) => condition.port_down(calls),
            Fault::DeviceFatal => self.shared.fail(),
            Fault::QpFatal => {
                // One that is not connected takes no requests either.
                let _ = self.ctl.modify(&QpAttr::to(QpState::Err));
                condition.raise(AsyncEvent::QpCatastrophe(self.num()));
            }
            _ => {}
        }
        Ok(())
    }

    /// A request by a revoked key names one that nobody has.
    fn without_revoked<'a>(&self, wr: &SendWr<'a>) -> SendWr<'a> {
        let Some(named) = remote(&wr.op) else {
            return *wr;
        };
        let condition = &self.shared.condition;
        if self.revokes {
            condition.revoke(named.rkey);
        }
        match condition.is_revoked(named.rkey) {
            true => SendWr {
                op: with_key(wr.op, Rkey(u32::MAX)),
                ..*wr
            },
            false => *wr,
        }
    }

    /// Posts a request, or what comes of it.
    fn carry_out(&mut self, wr: &SendWr<'_>, fate: Option<Fault>) -> Result<(), PostReason> {
        let shared = Arc::clone(&self.shared);
        let transport = self.init.transport;
        let cqs = [self.init.send_cq, self.init.recv_cq];
        let may_wait = || !shared.condition.is_slept_on(cqs);
        match fate {
            _ if is_local(&wr.op) && self.stalled.is_empty() => self.pass(wr),
            _ if shared.condition.is_unreachable() => match transport {
                Transport::Rc => self.post_failing(wr, WcStatus::RetryExcErr),
                _ => self.post_lost(wr),
            },
            _ if shared.condition.holds_requests() && may_wait() => self.hold(wr),
            Some(Fault::Delay) if transport == Transport::Uc && may_wait() => {
                if self.stalled.is_empty() {
                    self.stall_calls = self.shared.plan.delay_calls;
                }
                self.hold(wr)
            }
            _ if !self.stalled.is_empty() => self.hold(wr),
            Some(Fault::Drop) => self.post_lost(wr),
            Some(Fault::Error) => self.post_failing(wr, shared.plan.rc_error),
            Some(Fault::NotReady) if takes_recv(&wr.op) => {
                self.post_failing(wr, WcStatus::RnrRetryExcErr)
            }
            Some(Fault::Placement) => self.post_in_pieces(wr),
            Some(fault @ (Fault::Delay | Fault::Duplicate)) if transport == Transport::Ud => {
                self.post_copied(wr, fault == Fault::Delay)
            }
            _ => self.pass(wr),
        }
    }

    /// Posts a datagram that comes later too, or only later.
    fn post_copied(&mut self, wr: &SendWr<'_>, is_late: bool) -> Result<(), PostReason> {
        let copy = self.copy(wr);
        let posted = match is_late && copy.is_some() {
            true => self.post_lost(wr),
            false => self.pass(wr),
        };
        match posted {
            Ok(()) => self.copies.extend(copy),
            Err(_) => self.free.extend(copy.map(|copy| copy.slot)),
        }
        posted
    }

    /// Posts a WRITE as pieces, one after the other with pauses between them.
    fn post_in_pieces(&mut self, wr: &SendWr<'_>) -> Result<(), PostReason> {
        let Op::Write { remote, .. } = wr.op else {
            return self.pass(wr);
        };
        let mut random = self.shared.plan.draws(self.ordinal, self.accepted);
        let mut pieces = pieces(wr.payload.len(), &mut random);
        let Some(last) = pieces.pop().filter(|_| !pieces.is_empty()) else {
            return self.pass(wr);
        };
        if self.send.room() as usize <= pieces.len() {
            // All of it goes out or nothing.
            return self.pass(wr);
        }
        let to = |piece: &Range<usize>| RemoteAddr {
            addr: remote.addr.wrapping_add(piece.start as u64),
            ..remote
        };
        for piece in &pieces {
            let part = Part::of(wr.payload, piece);
            self.pass(&SendWr {
                id: (OWN << 32) | u64::from(PIECE),
                op: Op::Write {
                    remote: to(piece),
                    imm: None,
                },
                payload: part.payload(),
                flags: wr
                    .flags
                    .difference(SendFlags::SIGNALED | SendFlags::SOLICITED),
                to: None,
            })?;
            (0..PAUSE_YIELDS).for_each(|_| std::thread::yield_now());
        }
        if let Op::Write { imm: Some(_), .. } = wr.op {
            // Its completion says how long all of it is; by now the bytes have been placed out of order.
            return self.pass(wr);
        }
        let part = Part::of(wr.payload, &last);
        let op = Op::Write {
            remote: to(&last),
            imm: None,
        };
        let payload = part.payload();
        self.pass(&SendWr { op, payload, ..*wr })
    }

    fn is_signaled(&self, wr: &SendWr<'_>) -> bool {
        self.init.signal_all || wr.flags.contains(SendFlags::SIGNALED)
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
        match wr.op {
            Op::Send { .. } if self.is_signaled(wr) => {
                self.pass_as(&lost, Change::Opcode(WcOpcode::Send))
            }
            _ => self.pass(&lost),
        }
    }

    /// Posts a request that fails.
    fn post_failing(&mut self, wr: &SendWr<'_>, status: WcStatus) -> Result<(), PostReason> {
        let sges = [self.shared.sge_of_foreign()];
        let failing = SendWr {
            op: Op::Send { imm: None },
            payload: Payload::Gather(&sges),
            ..*wr
        };
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

    /// Holds a request back, and so all behind it.
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
            to: wr.to,
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
        if self.stall_calls == 0 && !self.shared.condition.holds_requests() {
            self.resume();
        }
        for late in &mut self.copies {
            late.calls = late.calls.saturating_sub(1);
        }
        while self.copies.front().is_some_and(|late| late.calls == 0) {
            if !self.post_copy() {
                return;
            }
        }
    }

    /// Nothing waits for further calls: what is late goes out now.
    pub(super) fn let_go(&mut self) {
        self.stall_calls = 0;
        for late in &mut self.copies {
            late.calls = 0;
        }
        self.tick();
    }

    /// Posts the first late datagram; `false` when there is no room for it yet.
    fn post_copy(&mut self) -> bool {
        let (Some(staging), Some(late)) = (self.staging.clone(), self.copies.pop_front()) else {
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
                self.copies.push_front(late);
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
        self.copies.retain(|late| {
            let stays = late.to.ah != ah;
            if !stays {
                free.push(late.slot);
            }
            stays
        });
    }

    /// A request of this layer's own has completed.
    pub(super) fn sent_own(&mut self, wc: &Wc) {
        let number = wc.id as u32;
        if number == PIECE {
            // What is behind it is flushed, and it was to blame.
            let is_first = !wc.is_ok() && wc.status != WcStatus::WrFlushErr;
            self.blame = is_first
                .then_some((wc.status, wc.vendor_err))
                .or(self.blame);
            return;
        }
        // A copy's slot is free, unless RESET has freed it already.
        if number >> 16 == u32::from(self.epoch) {
            self.free.push(number & 0xffff);
        }
    }

    /// How a piece of a request has failed, for the completion of the last.
    pub(super) fn take_blame(&mut self) -> Option<(WcStatus, VendorErr)> {
        self.blame.take()
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
                to: held.to,
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

/// Whether an operation stays on this side, and so is not lost on the way.
fn is_local(op: &Op) -> bool {
    matches!(op, Op::BindWindow(_) | Op::LocalInvalidate { .. })
}

/// The remote memory that an operation names.
fn remote(op: &Op) -> Option<RemoteAddr> {
    match op {
        Op::Write { remote, .. }
        | Op::Read { remote }
        | Op::CompareSwap { remote, .. }
        | Op::FetchAdd { remote, .. } => Some(*remote),
        _ => None,
    }
}

fn with_key(mut op: Op, key: Rkey) -> Op {
    match &mut op {
        Op::Write { remote, .. }
        | Op::Read { remote }
        | Op::CompareSwap { remote, .. }
        | Op::FetchAdd { remote, .. } => remote.rkey = key,
        _ => {}
    }
    op
}

/// Whether an operation consumes a RECV of the peer.
fn takes_recv(op: &Op) -> bool {
    use Op::{Send, SendInvalidate, Write};
    matches!(
        op,
        Send { .. } | SendInvalidate { .. } | Write { imm: Some(_), .. }
    )
}
