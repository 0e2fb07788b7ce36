//! Carrying out send work requests.
//!
//! The posting thread does the work: it copies into the peer's memory or lane, and makes the
//! completion. Only what cannot be done at once is kept: when the peer has no RECV or no room, is
//! not ready yet, or the queue pair is in SQD. Kept requests are carried on by whoever posts to the
//! queue pair or polls its completion queue next, or by the NIC's own thread (`unfinished.rs`).
//!
//! The usual requests go a short way of their own (`send/usual.rs`), which leaves to this one
//! whatever is odd.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs::attr::rnr_timer_us;
use verbs::{
    Dest, Gid, Op, Payload, PostError, PostReason, Qkey, QpAttr, QpNum, QpState, SendBatch,
    SendFlags, SendWr, Sge, Transport, UdDest, VerbsError, Wc, WcOpcode, WcStatus, mem, rules,
};

use crate::adapter::Adapter;
use crate::credit::Ready;
use crate::dests::{Dests, Missing};
use crate::lane::PIECE_MAX;
use crate::layout::{FIRST, IMM, Kind, LAST, SOLICITED, qp_index};
use crate::link::{Link, NoLane, Us};
use crate::payload::Local;
use crate::qp::QpShared;
use crate::remote::{Region, RemoteMemory};

mod usual;

/// Bytes of a message at most (RC and UC).
pub(crate) const MESSAGE_LEN_MAX: u32 = 1 << 30;

/// READs and atomics under way on a queue pair at most, which is easily kept to: they are carried out
/// one at a time.
pub(crate) const RD_ATOMIC_MAX: u8 = 128;

/// In `Kept::sent`: the data of a WRITE with immediate data is in place.
const PLACED: usize = usize::MAX - 1;
/// In `Kept::sent`: all is in the lane, but the peer's queue pair was changing.
const UNCONFIRMED: usize = usize::MAX;

/// What a request waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    /// For a RECV of the peer.
    Recv,
    /// For room in the lane.
    Room,
    /// For the peer's queue pair to take messages, or to be known gone.
    Peer,
}

/// How far a request has come.
enum Step {
    Done(WcStatus),
    Wait(Wait),
}

/// A kept request.
#[derive(Debug)]
struct Kept {
    /// Requests posted up to this one.
    position: u64,
    id: u64,
    op: Op,
    flags: SendFlags,
    to: Option<UdDest>,
    /// Where the address handle led when the request was posted.
    gid: Option<Gid>,
    inline: Option<Box<[u8]>>,
    sges: Box<[Sge]>,
    len: u32,
    /// Bytes of a SEND already in the lane.
    sent: usize,
    waiting: Option<(Wait, Instant)>,
    tries: u32,
}

/// What led to peers that have gone. Their memory goes with it.
#[derive(Debug)]
pub(crate) struct Departed {
    _links: (Option<Link>, Vec<Link>),
    _regions: Vec<Region>,
}

/// The send side of a queue pair.
#[derive(Debug)]
pub(crate) struct Sender {
    us: Us,
    link: Option<Link>,
    /// The peer that the queue pair was connected to has gone, and the link with it.
    peer_gone: bool,
    dests: Dests,
    /// The queue pair's own key (UD).
    qkey: Qkey,
    remote: RemoteMemory,
    kept: VecDeque<Kept>,
    /// How long the NIC's own thread was last told to leave them alone.
    paused: Duration,
    /// Requests taken so far, counted from `QpShared::posted_first`.
    posted: u64,
    /// Those whose room in the queue was free when last looked.
    freed: u64,
    timeout: Option<Duration>,
    retries: u32,
    rnr_retries: Option<u32>,
}

fn opcode(op: &Op) -> WcOpcode {
    match op {
        Op::Send { .. } => WcOpcode::Send,
        Op::Write { .. } => WcOpcode::Write,
        Op::Read { .. } => WcOpcode::Read,
        Op::CompareSwap { .. } => WcOpcode::CompareSwap,
        Op::FetchAdd { .. } => WcOpcode::FetchAdd,
    }
}

impl Sender {
    pub(crate) fn new(gid: Gid, qpn: u32, transport: Transport, pd: usize) -> Self {
        Sender {
            us: Us {
                gid,
                qpn,
                transport,
            },
            link: None,
            peer_gone: false,
            dests: Dests::new(pd),
            qkey: Qkey::default(),
            remote: RemoteMemory::default(),
            kept: VecDeque::new(),
            paused: Duration::ZERO,
            posted: 0,
            freed: 0,
            timeout: None,
            retries: 0,
            rnr_retries: None,
        }
    }

    pub(crate) fn is_unfinished(&self) -> bool {
        !self.kept.is_empty()
    }

    pub(crate) fn connect(&mut self, link: Link) {
        // One that went before this was not found here by those who take out what leads to it.
        self.peer_gone = link.peer.is_dead();
        self.link = (!self.peer_gone).then_some(link);
    }

    /// Takes out what leads to peers that have gone.
    pub(crate) fn take_departed(&mut self, adapter: &Adapter) -> Departed {
        let link = self.link.take_if(|link| link.peer.is_dead());
        self.peer_gone |= link.is_some();
        Departed {
            _links: (link, self.dests.take_departed(adapter)),
            _regions: self.remote.take_departed(),
        }
    }

    fn is_peer_gone(&self) -> bool {
        let dead = |link: &Link| link.peer.is_dead();
        self.peer_gone || self.link.as_ref().is_some_and(dead)
    }

    /// Takes over what the queue pair's attributes say of sending.
    pub(crate) fn set_attributes(&mut self, attr: &QpAttr) {
        self.qkey = attr.qkey.unwrap_or_default();
        // InfiniBand specification, volume 1, section 9.7.6.1.3; 0 waits for ever.
        let ns = |code: u8| Duration::from_nanos(4096u64 << code.min(31));
        self.timeout = attr.timeout.filter(|code| *code != 0).map(ns);
        self.retries = u32::from(attr.retry_count.unwrap_or(0));
        self.rnr_retries = attr.rnr_retry.filter(|count| *count != 7).map(u32::from);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
        self.freed = self.posted;
        self.link = None;
        self.peer_gone = false;
        self.dests.clear();
        self.remote.clear();
    }

    /// Looks a datagram's destination up. The caller has made contact with its process.
    pub(crate) fn prepare(
        &mut self,
        adapter: &Arc<Adapter>,
        to: &UdDest,
    ) -> Result<Dest, VerbsError> {
        let dest = self.dests.prepare(adapter, to);
        dest.map_err(|_| VerbsError::Unreachable {
            peer: format!("queue pair {}", to.qpn),
            why: "its process, or the address handle, has just gone".into(),
        })
    }

    /// Posts a batch, of which the first `done` requests have been [carried out](Self::post_usual).
    pub(crate) fn post(
        &mut self,
        qp: &Arc<QpShared>,
        batch: &SendBatch,
        done: usize,
    ) -> Result<(), PostError> {
        if qp.transport == Transport::Ud {
            self.dests.refresh(&qp.adapter);
        }
        let is_checked = *batch.limits() == qp.limits;
        let mut result = Ok(());
        let depth = u64::from(qp.caps.send_wr_max);
        let mut index = done;
        while let Some(wqe) = batch.wqes().get(index) {
            let wr = batch.request(wqe);
            let posted = match self.posted - self.freed < depth || self.has_room(qp) {
                true => {
                    self.posted += 1;
                    let posted = self.post_one(qp, &wr);
                    self.posted -= u64::from(posted.is_err());
                    posted
                }
                false => Err(self.refusal(qp, &wr)),
            };
            if let Err(reason) = posted {
                result = Err(PostError { index, reason });
                break;
            }
            index += 1;
            if is_checked && qp.is_rts() && self.kept.is_empty() {
                index = self.post_usual(qp, batch, index);
            }
        }
        if let Some(link) = &mut self.link {
            link.ring();
        }
        result
    }

    /// Whether the queue has room, now that the completions polled meanwhile are counted. A request
    /// takes room until its completion, or that of a later one, has been polled.
    #[cold]
    fn has_room(&mut self, qp: &QpShared) -> bool {
        let released = qp.adapter.released(qp_index(qp.num));
        // What was posted before RESET is not waited for, whenever it is polled.
        let freed = released.wrapping_sub(qp.posted_first);
        if freed <= self.posted {
            self.freed = self.freed.max(freed);
        }
        self.posted - self.freed < u64::from(qp.caps.send_wr_max)
    }

    /// Why a request is refused that finds no room.
    #[cold]
    fn refusal(&self, qp: &QpShared, wr: &SendWr<'_>) -> PostReason {
        match qp.state() {
            state @ (QpState::Reset | QpState::Init | QpState::Rtr) => PostReason::State(state),
            _ => rules::check(&qp.limits, wr)
                .err()
                .unwrap_or(PostReason::QueueFull),
        }
    }

    #[inline]
    fn post_one(&mut self, qp: &Arc<QpShared>, wr: &SendWr<'_>) -> Result<(), PostReason> {
        let state = qp.state();
        if state != QpState::Rts || !self.kept.is_empty() {
            return self.post_slowly(qp, wr, state);
        }
        let len = rules::check(&qp.limits, wr)?;
        let mut sent = 0;
        match self.execute(qp, wr, None, len, &mut sent) {
            Step::Done(WcStatus::Success) => {
                self.succeed(qp, self.posted, wr.id, wr.flags, opcode(&wr.op), len);
            }
            Step::Done(status) => self.fail(qp, self.posted, wr.id, status),
            Step::Wait(wait) => match self.give_up_at_once(wait) {
                Some(status) => self.fail(qp, self.posted, wr.id, status),
                None => self.keep(&qp.adapter, wr, len, sent, Some((wait, Instant::now()))),
            },
        }
        Ok(())
    }

    #[cold]
    fn post_slowly(
        &mut self,
        qp: &Arc<QpShared>,
        wr: &SendWr<'_>,
        state: QpState,
    ) -> Result<(), PostReason> {
        match state {
            QpState::Reset | QpState::Init | QpState::Rtr => return Err(PostReason::State(state)),
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => {}
        }
        let len = rules::check(&qp.limits, wr)?;
        if matches!(state, QpState::Sqe | QpState::Err) {
            self.flush(qp);
            self.complete(qp, self.posted, wr.id, WcStatus::WrFlushErr);
            return Ok(());
        }
        self.progress(qp);
        if self.kept.is_empty() && qp.state() == QpState::Rts {
            return self.post_one(qp, wr);
        }
        self.keep(&qp.adapter, wr, len, 0, None);
        Ok(())
    }

    /// Completes a request that was carried out; false when the queue pair did not survive that.
    #[inline]
    fn succeed(
        &self,
        qp: &Arc<QpShared>,
        position: u64,
        id: u64,
        flags: SendFlags,
        opcode: WcOpcode,
        len: u32,
    ) -> bool {
        if flags.contains(SendFlags::SIGNALED) || qp.signal_all {
            return self.signal(qp, position, id, opcode, len);
        }
        true
    }

    #[inline]
    fn signal(
        &self,
        qp: &Arc<QpShared>,
        position: u64,
        id: u64,
        opcode: WcOpcode,
        len: u32,
    ) -> bool {
        let wc = Wc {
            id,
            opcode,
            byte_len: len,
            qpn: QpNum(qp.num),
            ..Wc::default()
        };
        let fits = qp.complete_send(wc, position);
        if !fits {
            qp.enter_error(false);
        }
        fits
    }

    fn complete(&self, qp: &Arc<QpShared>, position: u64, id: u64, status: WcStatus) {
        let qpn = QpNum(qp.num);
        let wc = Wc {
            id,
            status,
            qpn,
            ..Wc::default()
        };
        if !qp.complete_send(wc, position) {
            qp.enter_error(false);
        }
    }

    /// A request has failed: it completes with its error, the queue pair goes to the state of
    /// failure, and everything behind it is flushed.
    #[cold]
    fn fail(&mut self, qp: &Arc<QpShared>, position: u64, id: u64, status: WcStatus) {
        self.complete(qp, position, id, status);
        qp.enter_error(true);
        let by_peer = matches!(status, WcStatus::RemAccessErr | WcStatus::RemInvReqErr);
        if by_peer && let Some(link) = &mut self.link {
            // The responder of a refused request fails as well.
            let nothing = |_: *mut u8| ();
            if link
                .push(&qp.adapter, &self.us, Kind::Fail, 0, 0, 0, 0, nothing)
                .is_ok()
            {
                link.ring();
            }
        }
        self.flush(qp);
    }

    /// Completes everything that waits: as flushed, but for what was under way to a peer that has
    /// died.
    pub(crate) fn flush(&mut self, qp: &Arc<QpShared>) {
        let dead = self.is_peer_gone();
        while let Some(kept) = self.kept.pop_front() {
            let status = match kept.waiting {
                Some(_) if dead => WcStatus::RetryExcErr,
                _ => WcStatus::WrFlushErr,
            };
            self.complete(qp, kept.position, kept.id, status);
        }
    }

    #[cold]
    fn keep(
        &mut self,
        adapter: &Adapter,
        wr: &SendWr<'_>,
        len: u32,
        sent: usize,
        waiting: Option<(Wait, Instant)>,
    ) {
        let address = |to: UdDest| self.dests.address(adapter, to.ah).ok();
        let gid = wr.to.and_then(address);
        let (inline, sges): (Option<Box<[u8]>>, Box<[Sge]>) = match wr.payload {
            Payload::Inline(bytes) => (Some(bytes.into()), Box::default()),
            Payload::InlineParts(parts) => (Some(parts.concat().into()), Box::default()),
            Payload::Gather(sges) => (None, sges.into()),
        };
        self.kept.push_back(Kept {
            position: self.posted,
            id: wr.id,
            op: wr.op,
            flags: wr.flags,
            to: wr.to,
            gid,
            inline,
            sges,
            len,
            sent,
            waiting,
            tries: 0,
        });
    }

    /// Carries on with kept requests. While some are left, says after which time the NIC's own
    /// thread is to try again; zero for as soon as it does.
    pub(crate) fn progress(&mut self, qp: &Arc<QpShared>) -> Option<Duration> {
        let unfinished = self.try_again(qp);
        // Also for a part of a message, which may have filled the lane.
        if let Some(link) = &mut self.link {
            link.ring();
        }
        let pause = unfinished.then(|| self.pause());
        if let Some(pause) = pause {
            if pause < self.paused {
                qp.adapter.unfinished.ring();
            }
            self.paused = pause;
        }
        pause
    }

    fn try_again(&mut self, qp: &Arc<QpShared>) -> bool {
        let state = qp.state();
        match state {
            QpState::Rts | QpState::Sqd => {}
            QpState::Sqe | QpState::Err => {
                self.flush(qp);
                return false;
            }
            _ => return !self.kept.is_empty(),
        }
        // In SQD what has begun comes to its end, and the rest waits.
        let may_begin = state == QpState::Rts;
        while let Some(mut kept) = self.next_kept(may_begin) {
            let wr = SendWr {
                id: kept.id,
                op: kept.op,
                payload: match &kept.inline {
                    Some(bytes) => Payload::Inline(bytes),
                    None => Payload::Gather(&kept.sges),
                },
                flags: kept.flags,
                to: kept.to,
            };
            match self.execute(qp, &wr, kept.gid, kept.len, &mut kept.sent) {
                Step::Done(WcStatus::Success) => {
                    let (flags, len) = (wr.flags, kept.len);
                    if !self.succeed(qp, kept.position, wr.id, flags, opcode(&wr.op), len) {
                        self.flush(qp);
                        return false;
                    }
                }
                Step::Done(status) => {
                    self.fail(qp, kept.position, kept.id, status);
                    return false;
                }
                Step::Wait(wait) => {
                    if let Some(status) = self.give_up(&mut kept, wait, Instant::now()) {
                        self.fail(qp, kept.position, kept.id, status);
                        return false;
                    }
                    self.kept.push_front(kept);
                    break;
                }
            }
        }
        !self.kept.is_empty()
    }

    /// Takes the first kept request, if it has begun or may begin.
    fn next_kept(&mut self, may_begin: bool) -> Option<Kept> {
        let first = self.kept.front()?;
        if may_begin || first.sent > 0 {
            return self.kept.pop_front();
        }
        None
    }

    /// Whether a request has waited long enough, and what becomes of it then.
    fn give_up(&self, kept: &mut Kept, wait: Wait, now: Instant) -> Option<WcStatus> {
        let since = match kept.waiting {
            Some((before, since)) if before == wait => since,
            _ => {
                kept.waiting = Some((wait, now));
                kept.tries = 0;
                return self.give_up_at_once(wait);
            }
        };
        let (limit, max, status) = match wait {
            // There will be room when the peer polls, however long that takes.
            Wait::Room => return None,
            Wait::Recv => {
                // The first try was before the first time that it waited for.
                let max = self.rnr_retries.map(|max| max.saturating_sub(1));
                (Some(self.rnr_timer()), max, WcStatus::RnrRetryExcErr)
            }
            Wait::Peer => {
                if self.is_peer_gone() {
                    return Some(WcStatus::RetryExcErr);
                }
                (self.timeout, Some(self.retries), WcStatus::RetryExcErr)
            }
        };
        let limit = limit?;
        if now - since < limit {
            return None;
        }
        kept.tries += 1;
        kept.waiting = Some((wait, now));
        max.filter(|max| kept.tries > *max).map(|_| status)
    }

    /// What becomes of a request that is not tried a second time.
    fn give_up_at_once(&self, wait: Wait) -> Option<WcStatus> {
        let is_last = wait == Wait::Recv && self.rnr_retries == Some(0);
        is_last.then_some(WcStatus::RnrRetryExcErr)
    }

    /// How long the peer asks to wait when it has no RECV.
    fn rnr_timer(&self) -> Duration {
        let timer = self.link.as_ref().map_or(0, Link::rnr_timer);
        Duration::from_micros(rnr_timer_us(timer))
    }

    /// How long the NIC's own thread waits before it tries again, if that is longer than usual.
    fn pause(&self) -> Duration {
        match self.kept.front().and_then(|kept| kept.waiting) {
            Some((Wait::Recv, _)) => self.rnr_timer(),
            _ => Duration::ZERO,
        }
    }

    /// Carries a request out, as far as it goes. `gid` is where a kept datagram goes.
    #[inline]
    fn execute(
        &mut self,
        qp: &Arc<QpShared>,
        wr: &SendWr<'_>,
        gid: Option<Gid>,
        len: u32,
        sent: &mut usize,
    ) -> Step {
        let adapter = &*qp.adapter;
        let local = match Local::check(adapter, qp.pd as u32, wr) {
            Ok(local) => local,
            Err(status) => return Step::Done(status),
        };
        if let (Op::Send { imm }, Some(to)) = (wr.op, wr.to) {
            return self.datagram(&qp.adapter, &to, gid, imm, wr.flags, &local, len as usize);
        }
        let us = self.us;
        let nobody = || match qp.transport {
            Transport::Rc => Step::Wait(Wait::Peer),
            _ => Step::Done(WcStatus::Success),
        };
        let Some(link) = &mut self.link else {
            return if self.peer_gone {
                nobody()
            } else {
                Step::Done(WcStatus::LocQpOpErr)
            };
        };
        if !link.is_up(&us) {
            return nobody();
        }
        if *sent > 0 {
            match (link.goes_on(), us.transport) {
                (true, _) if *sent == UNCONFIRMED => return Step::Done(WcStatus::Success),
                (true, _) => {}
                (false, Transport::Rc) => return Step::Done(WcStatus::RetryExcErr),
                (false, _) => return Step::Done(WcStatus::Success),
            }
        }
        let result = match wr.op {
            Op::Send { imm } => {
                return send(
                    adapter,
                    &us,
                    link,
                    imm,
                    wr.flags,
                    &local,
                    len as usize,
                    sent,
                );
            }
            Op::Write { remote, imm: None } => Self::write(
                adapter,
                &mut self.remote,
                link,
                remote,
                &local,
                len as usize,
            ),
            Op::Write {
                remote,
                imm: Some(imm),
            } => {
                // Asked once: with a shared queue, others may take the RECV at any time.
                let has_recv = *sent > 0 || link.ready() != Ready::No;
                if !has_recv && us.transport == Transport::Rc {
                    return Step::Wait(Wait::Recv);
                }
                let written = match *sent {
                    // The data is in place, and may have been used since.
                    PLACED => Ok(()),
                    _ => {
                        let memory = &mut self.remote;
                        Self::write(adapter, memory, link, remote, &local, len as usize)
                    }
                };
                let announced = written.and_then(|()| {
                    *sent = PLACED;
                    link.has_begun();
                    match has_recv {
                        true => announce(adapter, &us, link, imm, wr.flags, len),
                        false => Ok(()),
                    }
                });
                if announced.is_ok() && us.transport == Transport::Rc && !link.has_delivered(&us) {
                    *sent = UNCONFIRMED;
                    return Step::Wait(Wait::Peer);
                }
                announced
            }
            Op::Read { remote } => {
                let needed = rules::remote_access(&wr.op);
                access(
                    adapter,
                    &mut self.remote,
                    link,
                    remote,
                    len as usize,
                    needed,
                )
                .and_then(|place| match place {
                    Some(place) => {
                        // SAFETY: the pieces were checked for local writing, and the place for
                        // their length in all.
                        let read = unsafe { place.read(local.pieces()) };
                        read.map_err(Refused::Status)
                    }
                    None => Ok(()),
                })
            }
            Op::CompareSwap {
                remote,
                expect,
                swap,
            } => self.atomic(adapter, remote, &local, |word| {
                use std::sync::atomic::Ordering::{AcqRel, Acquire};
                match word.compare_exchange(expect, swap, AcqRel, Acquire) {
                    Ok(before) | Err(before) => before,
                }
            }),
            Op::FetchAdd { remote, add } => self.atomic(adapter, remote, &local, |word| {
                word.fetch_add(add, std::sync::atomic::Ordering::AcqRel)
            }),
        };
        match (result, qp.transport) {
            (Ok(()), _) => Step::Done(WcStatus::Success),
            (Err(Refused::Wait(wait)), Transport::Rc) => Step::Wait(wait),
            (Err(Refused::Status(status)), Transport::Rc) => Step::Done(status),
            // Nobody tells an unreliable connection what became of its message.
            (Err(_), _) => Step::Done(WcStatus::Success),
        }
    }

    #[inline]
    fn write(
        adapter: &Adapter,
        memory: &mut RemoteMemory,
        link: &Link,
        remote: verbs::RemoteAddr,
        local: &Local<'_>,
        len: usize,
    ) -> Result<(), Refused> {
        let place = access(
            adapter,
            memory,
            link,
            remote,
            len,
            verbs::Access::REMOTE_WRITE,
        )?;
        let Some(place) = place else { return Ok(()) };
        // SAFETY: the pieces were checked, and the place for their length in all.
        let written = unsafe {
            match *local {
                Local::One(piece) => place.write(std::iter::once(piece)),
                _ => place.write(local.pieces()),
            }
        };
        written.map_err(Refused::Status)
    }

    fn atomic(
        &mut self,
        adapter: &Adapter,
        remote: verbs::RemoteAddr,
        local: &Local<'_>,
        operate: impl FnOnce(&std::sync::atomic::AtomicU64) -> u64,
    ) -> Result<(), Refused> {
        if !remote.addr.is_multiple_of(8) {
            return Err(Refused::Status(WcStatus::RemInvReqErr));
        }
        let Some(link) = &self.link else {
            return Err(Refused::Status(WcStatus::LocQpOpErr));
        };
        let needed = verbs::Access::REMOTE_ATOMIC;
        let place = access(adapter, &mut self.remote, link, remote, 8, needed)?;
        let Some(word) = place.as_ref().and_then(|place| place.word()) else {
            return Err(Refused::Status(WcStatus::RemInvReqErr));
        };
        let before = operate(word).to_ne_bytes();
        if let Some((to, _)) = local.pieces().next() {
            // SAFETY: the one piece has 8 bytes and was checked for local writing.
            unsafe { mem::place(to, before.as_ptr(), 8) };
        }
        Ok(())
    }

    /// A datagram: into the receiver's lane, or nowhere.
    #[inline]
    #[allow(clippy::too_many_arguments)] // The parts of one request, as for `send`.
    fn datagram(
        &mut self,
        adapter: &Arc<Adapter>,
        to: &UdDest,
        gid: Option<Gid>,
        imm: Option<u32>,
        flags: SendFlags,
        local: &Local<'_>,
        len: usize,
    ) -> Step {
        let us = self.us;
        let qkey = to.qkey.sent_by(self.qkey);
        let link = match gid {
            Some(gid) => self.dests.link_to(adapter, gid, to.qpn.0),
            None => self.dests.link(adapter, to),
        };
        let link = match link {
            Ok(link) => link,
            Err(Missing::Handle) => return Step::Done(WcStatus::LocQpOpErr),
            Err(Missing::Peer) => return Step::Done(WcStatus::Success),
        };
        if link.is_up(&us) && link.qkey == qkey.0 {
            let message_flags = message_flags(imm, flags) | FIRST | LAST;
            let fill = |to: *mut u8| {
                // SAFETY: the lane has room for `len` bytes, which the payload has.
                unsafe { local.gather(0, to, len) };
            };
            let imm = imm.unwrap_or(0);
            let pushed = link.push(
                adapter,
                &us,
                Kind::Send,
                message_flags,
                imm,
                len as u32,
                len,
                fill,
            );
            if pushed.is_ok() {
                link.ring();
            }
        }
        Step::Done(WcStatus::Success)
    }
}

/// Why an operation was not carried out.
#[derive(Clone, Copy, Debug)]
enum Refused {
    Status(WcStatus),
    Wait(Wait),
}

fn message_flags(imm: Option<u32>, flags: SendFlags) -> u8 {
    let imm = if imm.is_some() { IMM } else { 0 };
    imm | if flags.contains(SendFlags::SOLICITED) {
        SOLICITED
    } else {
        0
    }
}

/// Finds and checks a remote range; `None` for one without bytes, which touches no memory.
#[inline]
fn access(
    adapter: &Adapter,
    memory: &mut RemoteMemory,
    link: &Link,
    remote: verbs::RemoteAddr,
    len: usize,
    needed: verbs::Access,
) -> Result<Option<crate::remote::Place>, Refused> {
    if !link.allowed().contains(needed) {
        return Err(Refused::Status(WcStatus::RemAccessErr));
    }
    if len == 0 {
        return Ok(None);
    }
    memory
        .resolve(adapter, &link.peer, link.pd, remote, len, needed)
        .map(Some)
        .map_err(Refused::Status)
}

/// Tells the peer that a WRITE with immediate data is in place.
fn announce(
    adapter: &Adapter,
    us: &Us,
    link: &mut Link,
    imm: u32,
    flags: SendFlags,
    len: u32,
) -> Result<(), Refused> {
    let nothing = |_: *mut u8| ();
    let flags = message_flags(Some(imm), flags);
    match link.push(adapter, us, Kind::WriteImm, flags, imm, len, 0, nothing) {
        Ok(_) => {
            link.consume();
            Ok(())
        }
        Err(NoLane::Full) => Err(Refused::Wait(Wait::Room)),
        Err(NoLane::Refused) => Err(Refused::Wait(Wait::Peer)),
    }
}

/// A SEND over a connection: whole, or in pieces.
#[inline]
#[allow(clippy::too_many_arguments)] // The parts of one request; a struct would be built per message.
fn send(
    adapter: &Adapter,
    us: &Us,
    link: &mut Link,
    imm: Option<u32>,
    flags: SendFlags,
    local: &Local<'_>,
    len: usize,
    sent: &mut usize,
) -> Step {
    let reliable = us.transport == Transport::Rc;
    let lost = |wait| {
        if reliable {
            Step::Wait(wait)
        } else {
            Step::Done(WcStatus::Success)
        }
    };
    let message_flags = message_flags(imm, flags);
    let imm = imm.unwrap_or(0);
    if *sent == 0 {
        let (kind, status) = match link.ready() {
            Ready::No => return lost(Wait::Recv),
            Ready::Bad => (Some(Kind::BadRecv), WcStatus::RemOpErr),
            Ready::Room(room) if (len as u64) > room => {
                (Some(Kind::TooLong), WcStatus::RemInvReqErr)
            }
            Ready::Room(_) => (None, WcStatus::Success),
        };
        if let Some(kind) = kind {
            let nothing = |_: *mut u8| ();
            return match link.push(
                adapter,
                us,
                kind,
                message_flags,
                imm,
                len as u32,
                0,
                nothing,
            ) {
                Ok(_) if reliable => Step::Done(status),
                Ok(_) => Step::Done(WcStatus::Success),
                Err(NoLane::Full) => lost(Wait::Room),
                Err(NoLane::Refused) => lost(Wait::Peer),
            };
        }
    }
    loop {
        let now = (len - *sent).min(PIECE_MAX);
        let first = if *sent == 0 { FIRST } else { 0 };
        let last = if *sent + now == len { LAST } else { 0 };
        let from = *sent;
        let fill = |to: *mut u8| {
            // SAFETY: the lane has room for `now` bytes, which the payload has from there on.
            unsafe { local.gather(from, to, now) };
        };
        let piece_flags = message_flags | first | last;
        match link.push(
            adapter,
            us,
            Kind::Send,
            piece_flags,
            imm,
            now as u32,
            now,
            fill,
        ) {
            Ok(_) => *sent += now,
            Err(no_lane) => {
                if *sent > 0 {
                    link.has_begun();
                }
                return match no_lane {
                    // An unreliable message that has begun is not cut off in the middle either: the
                    // receiver would wait for its end with a RECV in hand.
                    NoLane::Full if *sent > 0 => Step::Wait(Wait::Room),
                    NoLane::Full => lost(Wait::Room),
                    NoLane::Refused => lost(Wait::Peer),
                };
            }
        }
        if last != 0 {
            link.consume();
            if reliable && !link.has_delivered(us) {
                *sent = UNCONFIRMED;
                return Step::Wait(Wait::Peer);
            }
            return Step::Done(WcStatus::Success);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        Kept {
            position: 1,
            id: 0,
            op: Op::Send { imm: None },
            flags: SendFlags::empty(),
            to: None,
            gid: None,
            inline: None,
            sges: Box::default(),
            len: 0,
            sent: 0,
            waiting: None,
            tries: 0,
        }
    }

    #[test]
    fn requests_are_tried_as_often_as_the_attributes_say() {
        let mut sender = Sender::new(Gid::default(), 2, Transport::Rc, 1);
        // How many times such a request waits, which is found to wait once in each step.
        let waits = |sender: &Sender, wait, step| {
            let (mut kept, mut now) = (kept(), Instant::now());
            (0..100).find(|_| {
                let given_up = sender.give_up(&mut kept, wait, now);
                now += step;
                given_up.is_some()
            })
        };
        for count in 0..=7 {
            let mut attr = QpAttr::default();
            attr.timeout = Some(8);
            attr.retry_count = Some(count);
            attr.rnr_retry = Some(count);
            sender.set_attributes(&attr);
            let (timeout, rnr) = (Duration::from_nanos(4096 << 8), sender.rnr_timer());
            let count = u32::from(count);
            // 7 is for ever.
            let finite = (count < 7).then_some(count);
            assert_eq!(waits(&sender, Wait::Recv, rnr), finite);
            assert_eq!(waits(&sender, Wait::Recv, rnr / 2), finite.map(|n| 2 * n));
            assert_eq!(waits(&sender, Wait::Peer, timeout), Some(count + 1));
            assert_eq!(waits(&sender, Wait::Room, timeout), None);
        }
    }

    #[test]
    fn time_outs_are_those_of_their_codes() {
        let mut sender = Sender::new(Gid::default(), 2, Transport::Rc, 1);
        let mut timeout = |code| {
            let mut attr = QpAttr::default();
            attr.timeout = Some(code);
            sender.set_attributes(&attr);
            sender.timeout
        };
        assert_eq!(timeout(0), None);
        assert_eq!(timeout(1), Some(Duration::from_nanos(8192)));
        assert_eq!(timeout(14), Some(Duration::from_nanos(4096 << 14)));
        assert_eq!(timeout(31), Some(Duration::from_nanos(4096 << 31)));
    }
}
