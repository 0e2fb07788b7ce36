//! Send queues: what was posted and is not finished, in order.
//!
//! The posting thread has requests carried out by the path to the peer (`path/connection.rs`, or the link
//! to a datagram's receiver), and makes the completion. Only what cannot be done at once is kept
//! (`queue/kept.rs`): when the peer has no RECV or no room, is not ready yet, has not said yet where its
//! memory is, contact with a datagram's receiver is being made, or the queue pair is in SQD.
//!
//! The usual requests go a short way of their own (`queue/usual.rs`), which leaves to this one
//! whatever is odd.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs::{
    Dest, Op, PostError, PostReason, Qkey, QpAttr, QpNum, QpState, SendBatch, SendFlags, SendWr,
    Transport, UdDest, VendorErr, VerbsError, Wc, WcOpcode, WcStatus, rules,
};

use crate::contact::adapter::Adapter;
use crate::contact::contacts::Contacts;
use crate::contact::delegated::Patience;
use crate::memory::local::Local;
use crate::memory::mr::Regions;
use crate::path::connection::{self, Connection, Outcome, Progress, Wait, message_flags};
use crate::path::link::{Link, Us};
use crate::queue::qp::QpShared;
use crate::send::address::{Address, AddressHandles};
use crate::send::dests::{Dests, Missing};
use crate::send::early::Datagram;
use crate::send::queue::kept::Kept;
use crate::shared::cause::Cause;
use crate::shared::layout::qp_index;

mod kept;
mod multicast;
mod usual;

/// READs and atomics under way on a queue pair at most, which is easily kept to: they are carried out
/// one at a time.
pub(crate) const RD_ATOMIC_MAX: u8 = 128;

/// What led to peers that have gone.
#[derive(Debug)]
pub(crate) struct Departed {
    _connection: connection::Departed,
    _links: Vec<Link>,
}

/// The send side of a queue pair.
#[derive(Debug)]
pub(crate) struct SendQueue {
    us: Us,
    connection: Connection,
    dests: Dests,
    /// Whose windows are bound.
    regions: Arc<Regions>,
    /// The queue pair's own key (UD).
    qkey: Qkey,
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
    /// What it sends to a group that it is in does not come back to it.
    pub(crate) blocks_own_multicast: bool,
}

fn opcode(op: &Op) -> WcOpcode {
    match op {
        Op::Send { .. } => WcOpcode::Send,
        Op::Write { .. } => WcOpcode::Write,
        Op::Read { .. } => WcOpcode::Read,
        Op::CompareSwap { .. } => WcOpcode::CompareSwap,
        Op::FetchAdd { .. } => WcOpcode::FetchAdd,
        Op::SendInvalidate { .. } => WcOpcode::Send,
        Op::BindWindow(_) => WcOpcode::BindWindow,
        Op::LocalInvalidate { .. } => WcOpcode::LocalInvalidate,
    }
}

impl SendQueue {
    pub(crate) fn new(
        us: Us,
        pd: usize,
        handles: Arc<AddressHandles>,
        contacts: Arc<Contacts>,
        regions: Arc<Regions>,
    ) -> Self {
        SendQueue {
            regions,
            us,
            connection: Connection::new(us),
            dests: Dests::new(us, pd, handles, contacts),
            qkey: Qkey::default(),
            kept: VecDeque::new(),
            paused: Duration::ZERO,
            posted: 0,
            freed: 0,
            timeout: None,
            retries: 0,
            rnr_retries: None,
            blocks_own_multicast: false,
        }
    }

    pub(crate) fn is_unfinished(&self) -> bool {
        !self.kept.is_empty() || self.dests.is_waiting()
    }

    pub(crate) fn connect(&mut self, link: Link, epoch: u16) {
        self.connection.connect(link, epoch);
    }

    /// Takes out what leads to peers that have gone.
    pub(crate) fn take_departed(&mut self, adapter: &Adapter) -> Departed {
        Departed {
            _connection: self.connection.take_departed(),
            _links: self.dests.take_departed(adapter),
        }
    }

    /// Takes over what the queue pair's attributes say of sending.
    pub(crate) fn set_attributes(&mut self, attr: &QpAttr) {
        self.qkey = attr.qkey.unwrap_or_default();
        // InfiniBand specification, volume 1, section 9.7.6.1.3; 0 waits for ever.
        let ns = |code: u8| Duration::from_nanos(4096u64 << code.min(31));
        self.timeout = attr.timeout.filter(|code| *code != 0).map(ns);
        self.retries = u32::from(attr.retry_count.unwrap_or(0));
        self.rnr_retries = attr.rnr_retry.filter(|count| *count != 7).map(u32::from);
        let reliable = self.us.transport == Transport::Rc;
        let patience = match self.timeout {
            Some(timeout) => Patience::AtLeast(timeout * (self.retries + 1)),
            None if reliable => Patience::ForEver,
            None => Patience::AtLeast(Duration::ZERO),
        };
        self.connection.set_patience(patience);
    }

    /// How many requests find room now, which grows as completions are polled.
    pub(crate) fn room(&mut self, qp: &QpShared) -> u32 {
        self.has_room(qp);
        let used = self.posted - self.freed;
        qp.caps.send_wr_max.saturating_sub(used as u32)
    }

    /// Requests taken so far.
    pub(crate) fn posted(&self) -> u64 {
        self.posted
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
        self.freed = self.posted;
        self.connection.clear();
        self.dests.clear();
    }

    /// Looks a datagram's destination up. The caller has begun to make contact with its process.
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
        self.connection.ring();
        result
    }

    /// Whether the queue has room, now that the completions polled meanwhile are counted. A request
    /// takes room until its completion, or that of a later one, has been polled.
    #[cold]
    fn has_room(&mut self, qp: &QpShared) -> bool {
        let released = qp.adapter.released[qp_index(qp.num)].polled();
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
        let mut progress = Progress::default();
        match self.execute(qp, wr, None, len, &mut progress) {
            Outcome::Done => {
                self.succeed(qp, self.posted, wr.id, wr.flags, opcode(&wr.op), len);
            }
            Outcome::Failed(cause) => self.fail(qp, self.posted, wr.id, cause),
            Outcome::Wait(wait) => match self.give_up_at_once(wait) {
                Some(cause) => self.fail(qp, self.posted, wr.id, cause),
                None => self.keep(wr, len, progress, Some((wait, Instant::now()))),
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
            self.complete(qp, self.posted, wr.id, None);
            return Ok(());
        }
        self.progress(qp);
        if self.kept.is_empty() && qp.state() == QpState::Rts {
            return self.post_one(qp, wr);
        }
        self.keep(wr, len, Progress::default(), None);
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
            return qp.signal_send(position, id, opcode, len);
        }
        true
    }

    /// Completes a request that was not carried out: it failed for a cause, or was flushed.
    fn complete(&self, qp: &Arc<QpShared>, position: u64, id: u64, cause: Option<Cause>) {
        let wc = Wc {
            id,
            status: cause.map_or(WcStatus::WrFlushErr, Cause::status),
            vendor_err: cause.map_or(VendorErr::default(), VendorErr::from),
            qpn: QpNum(qp.num),
            ..Wc::default()
        };
        if !qp.complete_send(wc, position) {
            qp.enter_error(false);
        }
    }

    /// A request has failed: it completes with its error, the queue pair goes to the state of
    /// failure, and everything behind it is flushed.
    #[cold]
    fn fail(&mut self, qp: &Arc<QpShared>, position: u64, id: u64, cause: Cause) {
        self.complete(qp, position, id, Some(cause));
        qp.enter_error(true);
        let by_peer = matches!(
            cause.status(),
            WcStatus::RemAccessErr | WcStatus::RemInvReqErr
        );
        if by_peer {
            self.connection.fail_peer(&qp.adapter);
        }
        self.flush(qp);
    }

    /// Has a request carried out, as far as it goes. `address` is where a kept datagram goes.
    #[inline]
    fn execute(
        &mut self,
        qp: &QpShared,
        wr: &SendWr<'_>,
        address: Option<Address>,
        len: u32,
        progress: &mut Progress,
    ) -> Outcome {
        let (adapter, len) = (&qp.adapter, len as usize);
        let local = match Local::check(adapter, qp.pd as u32, wr) {
            Ok(local) => local,
            Err(cause) => return Outcome::Failed(cause),
        };
        match (wr.op, wr.to) {
            (Op::Send { imm }, Some(to)) => {
                self.datagram(adapter, &to, address, imm, wr.flags, &local, len)
            }
            (Op::BindWindow(bind), _) => {
                let done = self.regions.bind(qp.num, qp.pd, &bind);
                done.map_or_else(Outcome::Failed, |()| Outcome::Done)
            }
            (Op::LocalInvalidate { rkey }, _) => {
                let done = self.regions.windows().invalidate(adapter, qp.num, rkey);
                done.map_or_else(Outcome::Failed, |()| Outcome::Done)
            }
            _ => {
                let connection = &mut self.connection;
                connection.carry_out(adapter, wr, &local, len, progress)
            }
        }
    }

    /// A datagram: into the receiver's lane, or nowhere.
    #[inline]
    #[allow(clippy::too_many_arguments)] // The parts of one request, as for `send`.
    fn datagram(
        &mut self,
        adapter: &Arc<Adapter>,
        to: &UdDest,
        address: Option<Address>,
        imm: Option<u32>,
        flags: SendFlags,
        local: &Local<'_>,
        len: usize,
    ) -> Outcome {
        let us = self.us;
        let qkey = to.qkey.sent_by(self.qkey);
        let link = match address {
            Some(address) => self.dests.link_to(adapter, address, to.qpn.0),
            None => self.dests.link(adapter, to),
        };
        let link = match link {
            Ok(link) => link,
            Err(Missing::Handle) => return Outcome::Failed(Cause::NoHandle),
            Err(Missing::Peer) => {
                adapter.count_unsent();
                return Outcome::Done;
            }
            Err(Missing::Contact(contact, route)) => {
                if self.dests.waits_for(adapter, &contact) {
                    return Outcome::Wait(Wait::Contact);
                }
                return match Datagram::gathered(local, len, (qkey, imm, flags)) {
                    Ok(datagram) => {
                        self.dests.keep(adapter, contact, to.qpn.0, route, datagram);
                        Outcome::Done
                    }
                    Err(cause) => Outcome::Failed(cause),
                };
            }
            Err(Missing::Group(route)) => {
                let gather = || Datagram::gathered(local, len, (qkey, imm, flags));
                return self.multicast(adapter, route, gather);
            }
        };
        if let Err(cause) = local.fetch(0..len) {
            return Outcome::Failed(cause);
        }
        // SAFETY: the lane has room for `len` bytes, which the payload has.
        let fill = |to: *mut u8| unsafe { local.gather(0, to, len) };
        let (flags, imm) = (message_flags(imm, flags), imm.unwrap_or(0));
        link.send_datagram(adapter, &us, qkey, flags, imm, len, fill);
        Outcome::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Host, send_queue};

    #[test]
    fn time_outs_are_those_of_their_codes() {
        let mut sender = send_queue(&Host::new().open());
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

    #[test]
    fn an_answer_is_waited_for_as_long_as_all_tries_take() {
        let mut sender = send_queue(&Host::new().open());
        let mut patience = |timeout, count| {
            let mut attr = QpAttr::default();
            attr.timeout = Some(timeout);
            attr.retry_count = Some(count);
            sender.set_attributes(&attr);
            sender.connection.patience()
        };
        let tries = |count| Patience::AtLeast(count * Duration::from_nanos(4096 << 20));
        assert_eq!(patience(20, 0), tries(1));
        assert_eq!(patience(20, 7), tries(8));
        assert_eq!(patience(0, 7), Patience::ForEver);
    }
}
