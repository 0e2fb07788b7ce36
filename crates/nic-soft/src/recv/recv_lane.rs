//! The receiving end of a lane: from lines to RECVs and completions.

mod datagrams;

use std::collections::VecDeque;
use std::sync::Arc;

use verbs::wr::GRH_LEN;
use verbs::{Access, Gid, Polled, QpNum, Transport, VendorErr, Wc, WcFlags, WcOpcode, WcStatus};

use self::datagrams::grh;
use crate::contact::adapter::Adapter;
use crate::contact::inbox::{InboxLane, Peerage};
use crate::memory::local;
use crate::queue::arrival::Arrival;
use crate::queue::qp::QpShared;
use crate::shared::cause::Cause;
use crate::shared::lane::{self, Found, LookAhead, Message, Reader};
use crate::shared::layout::{FAILS, FIRST, GOES_ON, IMM, Kind, LAST, MESSAGE_LEN_MAX, mr_index};
use crate::shared::mr_entry;
use crate::shared::recv_queue::Recv;

/// Messages that complete nothing which are taken in one poll.
const WASTED_MAX: usize = 256;

/// A lane that leads to one of our queue pairs.
#[derive(Debug)]
pub(crate) struct RecvLane {
    /// Keeps the reader's memory mapped.
    lane: InboxLane,
    reader: Reader,
    qp: Arc<QpShared>,
    epoch: u16,
    src_qpn: u32,
    grh: [u8; GRH_LEN],
    /// The RECV taken last. It lives here because it is large and a message short.
    recv: Recv,
    /// How far the RECV is filled, while pieces of its message are still coming in.
    partial: Option<usize>,
    /// The pieces so far of a message that is to be lent.
    pieces: Vec<u8>,
    way: Way,
    /// Bytes of a message that is thrown away are skipped until its last piece.
    skipping: bool,
    /// How the poller is rung for a RECV that a message waits for.
    awaited: Option<Awaited>,
    /// What was looked at beyond the message that waits.
    ahead: Option<LookAhead>,
    state: State,
    /// It has ended, and perhaps in the middle of a message, of which the rest is in another lane.
    goes_on: bool,
    /// Lanes in which its sender went on, to be read when this one has ended.
    behind: VecDeque<RecvLane>,
}

/// What a shared receive queue was told of a message that waits for a RECV.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    /// When: the queue forgets it when it rings.
    round: u32,
    /// Whether the message, or one behind it, raises a solicited event.
    solicited: bool,
}

/// How its messages are received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Short,
    /// Each only while the queue pair is in this multicast group.
    Group(Gid),
    /// Not at all: a RECV has failed before them.
    Broken,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    /// The sender has gone: what is there is the rest.
    Orphaned,
    /// Nothing is read from it any more.
    Ended,
    /// As above, and the sender has said that it writes no more.
    Closed,
}

impl RecvLane {
    /// Takes up a lane.
    pub(crate) fn new(arrival: Arrival<QpShared>) -> Self {
        let Arrival {
            lane,
            qp,
            src_qpn,
            epoch,
            route,
        } = arrival;
        RecvLane {
            reader: lane.reader(),
            epoch,
            src_qpn,
            grh: grh(route.from, route.to),
            lane,
            qp,
            recv: Recv::default(),
            partial: None,
            pieces: Vec::new(),
            way: match route.group() {
                Some(group) => Way::Group(group),
                None => Way::Short,
            },
            skipping: false,
            awaited: None,
            ahead: None,
            state: State::Open,
            goes_on: false,
            behind: VecDeque::new(),
        }
    }

    /// Whether the queue pair is still the one the lane was opened for.
    pub(crate) fn is_current(&self) -> bool {
        self.qp.epoch() == self.epoch && !self.qp.is_destroyed()
    }

    pub(crate) fn note_sender_gone(&mut self) {
        if self.state == State::Open && self.lane.inbox().is_gone() {
            self.state = State::Orphaned;
        }
    }

    /// Who sends through it, and the queue pair that receives.
    pub(crate) fn ends(&self) -> (Peerage, &Arc<QpShared>) {
        (self.lane.inbox().peer, &self.qp)
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended | State::Closed)
    }

    /// Moves messages into RECVs and makes their completions. Stops when the lane is empty, the
    /// RECVs are used up or `out` is full, and says what is left.
    #[inline]
    pub(crate) fn drain(&mut self, adapter: &Adapter, out: &mut Polled) -> Left {
        let mut wasted = 0;
        if self.takes_datagrams() {
            match self.qp.lent_len() {
                Some(len_max) => self.lend_datagrams(len_max, out),
                None => self.take_datagrams(adapter, out),
            }
        }
        while !out.is_full() {
            let message = match self.reader.peek() {
                Found::Message(message) => message,
                Found::Nothing => {
                    match self.state {
                        State::Open => return Left::Nothing,
                        State::Orphaned => {}
                        // It came to its end while it was read for a queue pair that failed.
                        State::Ended | State::Closed => return Left::Ended,
                    }
                    let left = self.sender_left();
                    if left != Left::Ended || !self.go_on() {
                        return left;
                    }
                    continue;
                }
                Found::Garbage => {
                    self.fail("unreadable bytes in a lane");
                    return Left::Ended;
                }
            };
            // Datagrams are short.
            let taken = match message.kind {
                Kind::Send if self.takes_datagrams() => self.datagram(adapter, &message, out),
                _ => self.take(adapter, &message, out),
            };
            match taken {
                Taken::Nothing => {
                    self.reader.consume(&message);
                    wasted += 1;
                    // A peer that writes such messages as fast as they are read must not keep the
                    // poller here.
                    if self.has_ended() {
                        return Left::Ended;
                    }
                    if wasted == WASTED_MAX {
                        return Left::More;
                    }
                }
                Taken::Completed => {
                    self.reader.consume(&message);
                    // Datagrams need no RECVs of the NIC's own.
                    if self.qp.transport != Transport::Ud && self.qp.lent.is_some() {
                        self.qp.post_lent();
                    }
                }
                Taken::Later(left) => return left,
                Taken::Ended => {
                    self.goes_on = message.flags & GOES_ON != 0;
                    // Its sender has announced the next lane, which is taken up in time. If the sender
                    // has gone since, that lane is among what waits to be taken up, or there is none.
                    if self.goes_on
                        && self.behind.is_empty()
                        && (self.state == State::Open || self.qp.recv_cq.has_work())
                    {
                        return Left::Nothing;
                    }
                    self.reader.consume(&message);
                    if !self.goes_on {
                        self.note_sender_done();
                    }
                    self.state = State::Closed;
                    self.lane.note_closed();
                    if !self.go_on() {
                        return Left::Ended;
                    }
                    wasted += 1;
                    if wasted == WASTED_MAX {
                        return Left::More;
                    }
                }
            }
        }
        Left::Room
    }

    /// Whether it is still read, and another lane has the same two ends.
    pub(crate) fn has_ends_of(&self, other: &RecvLane) -> bool {
        !self.has_ended()
            && self.src_qpn == other.src_qpn
            && Arc::ptr_eq(&self.qp, &other.qp)
            && Arc::ptr_eq(self.lane.inbox(), other.lane.inbox())
            && self.epoch == other.epoch
            && self.grh == other.grh
    }

    /// Has a lane read when this one, and those that are behind it, have ended.
    pub(crate) fn append(&mut self, lane: RecvLane) {
        self.behind.push_back(lane);
    }

    /// Goes on with the lane in which the sender went on, if there is one.
    fn go_on(&mut self) -> bool {
        let Some(mut next) = self.behind.pop_front() else {
            return false;
        };
        next.behind = std::mem::take(&mut self.behind);
        if self.way == Way::Broken {
            next.way = Way::Broken;
        }
        if self.goes_on {
            (next.recv, next.partial) = (self.recv, self.partial.take());
            next.pieces = std::mem::take(&mut self.pieces);
            next.skipping = self.skipping;
        }
        next.note_sender_gone();
        *self = next;
        true
    }

    /// Whether it leads to a queue pair.
    pub(crate) fn leads_to(&self, qp: &QpShared) -> bool {
        std::ptr::eq(&raw const *self.qp, qp)
    }

    /// Puts the RECV back of a message whose end does not come.
    pub(crate) fn give_up_message(&mut self) {
        if self.partial.take().is_some() {
            self.qp.take_back(self.recv, self.is_current());
        }
    }

    /// Its sender sends nothing more. Whoever sends next from its queue pair has started anew.
    fn note_sender_done(&mut self) {
        if self.is_current() {
            self.give_up_message();
            self.qp.publish_received();
        }
    }

    /// Takes the next RECV for a message. When a shared queue has none, the poller is rung as soon as
    /// there is one.
    #[inline]
    fn next_recv(&mut self, adapter: &Adapter) -> bool {
        self.qp.next_recv(adapter, &mut self.recv) || self.await_recv(adapter)
    }

    #[cold]
    fn await_recv(&mut self, adapter: &Adapter) -> bool {
        let Some(srq) = &self.qp.srq else {
            return false;
        };
        // The messages behind the one that waits wait with it. Those that raise a solicited event
        // were rung for in vain.
        let mut solicited = look_ahead(&self.reader, &mut self.ahead);
        for lane in &mut self.behind {
            solicited |= look_ahead(&lane.reader, &mut lane.ahead);
        }
        let is_known = |one: &Awaited| one.round == srq.round() && one.solicited == solicited;
        if self.awaited.as_ref().is_some_and(is_known) {
            // The next post rings as it is.
            return false;
        }
        let round = srq.await_post(&self.qp.recv_cq, solicited);
        self.awaited = Some(Awaited { round, solicited });
        // One that was posted before is there; those that are posted from now on ring.
        self.qp.next_recv(adapter, &mut self.recv)
    }

    #[inline(never)]
    fn take(&mut self, adapter: &Adapter, message: &Message, out: &mut Polled) -> Taken {
        let receives = match self.way {
            Way::Short => true,
            Way::Group(group) => self.qp.groups().contains(&group),
            Way::Broken => false,
        };
        if !receives || !self.qp.takes_messages() {
            return match message.kind {
                Kind::Close => Taken::Ended,
                _ => Taken::Nothing,
            };
        }
        match message.kind {
            Kind::Send if self.qp.transport == Transport::Ud => {
                self.datagram(adapter, message, out)
            }
            Kind::Send if self.qp.lent.is_some() => self.lent_piece(adapter, message, out),
            Kind::Send => self.piece(adapter, message, out),
            Kind::Close => {
                // A queue pair for datagrams is not this peer's alone.
                if message.flags & FAILS != 0 && self.qp.transport != Transport::Ud {
                    self.qp.enter_error(false);
                }
                Taken::Ended
            }
            Kind::Pad => Taken::Nothing,
            // The queue pair is not this peer's alone, so it must not fail for it.
            _ if self.qp.transport == Transport::Ud => {
                self.fail("what is no datagram in a lane for datagrams");
                Taken::Nothing
            }
            Kind::WriteImm => self.write_imm(adapter, message, out),
            Kind::SendEnd => self.send_end(adapter, message, out),
            Kind::TooLong => self.failed_recv(adapter, Cause::RecvRoom, out),
            Kind::BadRecv => self.failed_recv(adapter, Cause::RecvMemory, out),
        }
    }

    fn completion(&self, message: &Message, byte_len: usize) -> Wc {
        let mut flags = WcFlags::empty();
        flags.set(WcFlags::WITH_IMM, message.flags & IMM != 0);
        Wc {
            id: self.recv.id,
            status: WcStatus::Success,
            opcode: WcOpcode::Recv,
            flags,
            byte_len: byte_len as u32,
            imm: message.imm,
            qpn: QpNum(self.qp.num),
            src_qpn: QpNum(self.src_qpn),
            vendor_err: VendorErr::default(),
        }
    }

    /// A piece of a message of a connected queue pair for the poller's own memory. One that comes
    /// in several pieces is put together here first.
    fn lent_piece(&mut self, adapter: &Adapter, message: &Message, out: &mut Polled) -> Taken {
        let last = message.flags & LAST != 0;
        let len = message.len as usize;
        if message.flags & FIRST != 0 {
            let Some(room) = out.lend(len) else {
                return Taken::Later(Left::Room);
            };
            self.skipping = false;
            self.give_up_message();
            if !self.qp.next_recv(adapter, &mut self.recv) {
                return self.no_recv(adapter);
            }
            if self.qp.lent_len().is_some_and(|max| len > max) {
                self.skipping = !last;
                return self.recv_failed(Cause::RecvRoom, out);
            }
            if last {
                // SAFETY: the room is the message's length.
                unsafe { lane::copy_out(message, 0, room.as_mut_ptr(), len) };
                out.push_lent(self.completion(message, len));
                return Taken::Completed;
            }
            self.pieces.clear();
        } else if self.partial.is_none() || self.skipping {
            self.skipping = !last;
            return Taken::Nothing;
        }
        let filled = self.pieces.len();
        let whole = filled + len;
        if self.qp.lent_len().is_some_and(|max| whole > max) {
            self.partial = None;
            self.skipping = !last;
            return self.recv_failed(Cause::RecvRoom, out);
        }
        if last && out.lend(whole).is_none() {
            return Taken::Later(Left::Room);
        }
        self.pieces.resize(whole, 0);
        // SAFETY: there is room for the piece behind what is there.
        unsafe { lane::copy_out(message, 0, self.pieces[filled..].as_mut_ptr(), len) };
        if !last {
            self.partial = Some(whole);
            return Taken::Nothing;
        }
        self.partial = None;
        if let Some(room) = out.lend(whole) {
            room.copy_from_slice(&self.pieces);
        }
        out.push_lent(self.completion(message, whole));
        Taken::Completed
    }

    /// A piece of a message of a connected queue pair.
    #[inline]
    fn piece(&mut self, adapter: &Adapter, message: &Message, out: &mut Polled) -> Taken {
        let last = message.flags & LAST != 0;
        let filled = if message.flags & FIRST != 0 {
            self.skipping = false;
            self.give_up_message();
            if !self.next_recv(adapter) {
                return self.no_recv(adapter);
            }
            0
        } else {
            match self.partial.take() {
                Some(filled) if !self.skipping => filled,
                _ => {
                    self.skipping = !last;
                    return Taken::Nothing;
                }
            }
        };
        let (pd, len) = (self.qp.pd as u32, message.len as usize);
        match scatter(adapter, pd, &self.recv, filled, message.payload, len) {
            Ok(()) if last => {
                out.push(self.completion(message, filled + len));
                Taken::Completed
            }
            Ok(()) => {
                self.partial = Some(filled + len);
                Taken::Nothing
            }
            Err(cause) => {
                self.skipping = !last;
                self.recv_failed(cause, out)
            }
        }
    }

    fn write_imm(&mut self, adapter: &Adapter, message: &Message, out: &mut Polled) -> Taken {
        // Nobody has seen these bytes pass; but so many at once there cannot have been.
        if message.len > MESSAGE_LEN_MAX {
            self.fail("a longer message than there can be");
            return Taken::Nothing;
        }
        if !self.next_recv(adapter) {
            return self.no_recv(adapter);
        }
        let mut wc = self.completion(message, message.len as usize);
        wc.opcode = WcOpcode::RecvWriteImm;
        out.push(wc);
        Taken::Completed
    }

    /// The end of a SEND that takes a key away. It is gone before the completion that says so is seen.
    #[cold]
    fn send_end(&mut self, adapter: &Adapter, message: &Message, out: &mut Polled) -> Taken {
        if message.len != 0 || message.flags & LAST == 0 {
            self.fail("bytes in a message that has none");
            return Taken::Nothing;
        }
        let taken = match self.qp.lent.is_some() {
            true => self.lent_piece(adapter, message, out),
            false => self.piece(adapter, message, out),
        };
        // What the RECV has no room for takes no key away.
        if !matches!(taken, Taken::Completed) || self.way == Way::Broken {
            return taken;
        }
        let (key, qpn) = (message.imm, self.qp.num);
        let entry = adapter.published().mrs.get(mr_index(key));
        let is_gone = entry.is_none_or(|entry| {
            mr_entry::revoke(entry, key, qpn) || mr_entry::describe(entry, key).is_none()
        });
        // The sender has looked whether it may.
        if !is_gone {
            self.fail("a key taken away that is no window's of this queue pair");
        } else if let Some(wc) = out.last_mut() {
            wc.flags |= WcFlags::WITH_INV;
        }
        taken
    }

    /// A message for which the sender saw a RECV, but there is none. With a shared receive queue
    /// another queue pair took it, and the message waits. Otherwise the sender is wrong.
    fn no_recv(&mut self, adapter: &Adapter) -> Taken {
        if self.qp.srq.is_some() {
            return Taken::Later(Left::Unreceived);
        }
        if self.qp.transport == Transport::Rc {
            self.fail("a message without a RECV");
        } else {
            adapter.count_unreceived();
        }
        self.skipping = true;
        Taken::Nothing
    }

    fn failed_recv(&mut self, adapter: &Adapter, cause: Cause, out: &mut Polled) -> Taken {
        if !self.next_recv(adapter) {
            return self.no_recv(adapter);
        }
        self.recv_failed(cause, out)
    }

    /// The RECV taken last completes with an error, which its queue pair does not survive.
    fn recv_failed(&mut self, cause: Cause, out: &mut Polled) -> Taken {
        self.way = Way::Broken;
        self.qp.enter_error(false);
        out.push(Wc {
            id: self.recv.id,
            status: cause.status(),
            vendor_err: cause.into(),
            qpn: QpNum(self.qp.num),
            ..Wc::default()
        });
        Taken::Completed
    }

    /// Ends a lane that is empty and whose sender has gone.
    #[cold]
    fn sender_left(&mut self) -> Left {
        // Whose lane it is was checked when it was taken up; the queue pair may be another's now.
        let fails = self.qp.transport == Transport::Rc && self.qp.adapter.fails_with_peers;
        if fails && self.is_current() {
            // The sender may live, and only its connection have ended: what it sends until it can see
            // that the queue pair has failed is received.
            if !self.qp.is_draining() && !self.qp.is_flushed() {
                return Left::SenderGone;
            }
            if !matches!(self.reader.peek(), Found::Nothing) {
                return Left::More;
            }
        }
        tracing::debug!(
            lane = self.lane.number(),
            qp = self.qp.num,
            "a lane's sender has gone"
        );
        self.note_sender_done();
        self.state = State::Ended;
        Left::Ended
    }

    #[cold]
    fn fail(&mut self, why: &'static str) {
        self.lane
            .inbox()
            .complain(why, self.lane.number(), self.qp.num);
        if self.qp.transport != Transport::Ud && self.is_current() {
            self.qp.enter_error(false);
        }
        self.state = State::Ended;
    }
}

impl Drop for RecvLane {
    fn drop(&mut self) {
        // A RECV of a shared queue is another's, whatever has become of this queue pair.
        if self.is_current() || self.qp.srq.is_some() {
            self.give_up_message();
        }
    }
}

/// What is left in a lane that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// Nothing for now.
    Nothing,
    /// Nothing, and nothing more comes.
    Ended,
    /// Nothing, and the connections to its sender are to fail, which has gone.
    SenderGone,
    /// The poll has no more room for completions or lent messages.
    Room,
    /// A message that waits for a RECV of a shared queue.
    Unreceived,
    /// Perhaps more of what completes nothing, which a poll takes a bounded number of.
    More,
}

enum Taken {
    /// The message is done with, without a completion.
    Nothing,
    /// The message is done with, and its completion is there.
    Completed,
    /// The message stays where it is.
    Later(Left),
    /// The sender has closed the lane.
    Ended,
}

/// Whether a message that is in a lane by now raises a solicited event.
fn look_ahead(reader: &Reader, ahead: &mut Option<LookAhead>) -> bool {
    let ahead = ahead.get_or_insert_with(|| LookAhead::from(reader));
    ahead.finds_solicited(reader)
}

/// Scatters bytes into a RECV from its byte `from` on.
fn scatter(
    adapter: &Adapter,
    pd: u32,
    recv: &Recv,
    from: usize,
    mut source: *const u8,
    mut len: usize,
) -> Result<(), Cause> {
    let mut skip = from;
    for sge in recv.sges() {
        if len == 0 {
            return Ok(());
        }
        let room = sge.len as usize;
        if skip >= room {
            skip -= room;
            continue;
        }
        let now = len.min(room - skip);
        let to = local::part(adapter, pd, sge, skip..skip + now, Access::LOCAL_WRITE)?;
        // SAFETY: the part was checked, and `source` has `len` bytes left.
        unsafe {
            verbs::mem::fetch(to, source, now);
            source = source.add(now);
        }
        len -= now;
        skip = 0;
    }
    if len == 0 {
        Ok(())
    } else {
        Err(Cause::RecvRoom)
    }
}
