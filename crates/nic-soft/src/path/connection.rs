//! The path of a connection: it carries operations out over shared memory, as far as they go.
//!
//! In which order operations come here, and what becomes of those that have to wait, is the send
//! queue's business. What waits is told what for ([`Wait`]), and how far it has come ([`Progress`]), and
//! is brought again with both.
//!
//! The usual operations go a short way of their own (`path/connection/usual.rs`).

use verbs::{Access, Op, RemoteAddr, SendFlags, SendWr, Transport, mem, rules};

use crate::contact::adapter::Adapter;
use crate::contact::atomic::{AtomicRequest, Change};
use crate::contact::copy::Way;
use crate::contact::delegated::{Delegated, Patience};
use crate::memory::local::Local;
use crate::path::connection::delegation::Delegation;
use crate::path::link::{Link, NoLane, Us};
use crate::path::remote::{Place, Region, RemoteMemory, Unmoved, Unresolved};
use crate::shared::cause::Cause;
use crate::shared::credit::Ready;
use crate::shared::lane::PIECE_MAX;
use crate::shared::layout::{FIRST, IMM, Kind, LANE_LINES, LAST, LINE, SOLICITED};

mod delegation;
mod usual;

/// What an operation waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// For a RECV of the peer.
    Recv,
    /// For room in the lane.
    Room,
    /// For the peer's queue pair to take messages, or to be known gone.
    Peer,
    /// For the peer's process to say where its memory is, or to carry out what it alone can.
    Answer,
    /// For contact with the process of a datagram's receiver.
    Contact,
}

/// What has come of an operation.
pub(crate) enum Outcome {
    Done,
    Failed(Cause),
    Wait(Wait),
}

/// How far an operation has come that had to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Progress {
    /// The peer has seen nothing of it.
    #[default]
    Nothing,
    /// So many bytes of a SEND are in the lane.
    Sent(usize),
    /// The data of a WRITE with immediate data is in place.
    Placed,
    /// All is in the lane, but the peer's queue pair was changing.
    Unconfirmed,
    /// The peer's process was asked for an atomic.
    Asked,
    /// So many bytes of a WRITE or a READ were copied by the peer's process, which may have been asked for more.
    Copied(usize),
}

impl Progress {
    pub(crate) fn has_begun(self) -> bool {
        self != Progress::Nothing
    }

    /// So many bytes were copied by the peer's process.
    fn copied(self) -> usize {
        match self {
            Progress::Copied(done) => done,
            _ => 0,
        }
    }

    /// Whether the peer's process was asked to do it, or some of it.
    fn is_delegated(self) -> bool {
        matches!(self, Progress::Asked | Progress::Copied(_))
    }
}

/// Why an operation was not carried out.
#[derive(Clone, Copy, Debug)]
enum Refused {
    Failed(Cause),
    /// For a cause on this side, which is told whatever the transport.
    Here(Cause),
    Wait(Wait),
    /// Only the peer's process can copy, from or to this address.
    Delegate(RemoteAddr, Way),
}

impl Refused {
    /// Why bytes were not moved from or to an address.
    fn to_move(why: Unmoved, remote: RemoteAddr, way: Way) -> Self {
        match why {
            Unmoved::Failed(cause) => Refused::Failed(cause),
            Unmoved::Refused => Refused::Delegate(remote, way),
        }
    }
}

/// What led to a peer that has gone. Its memory goes with it.
#[derive(Debug)]
pub(crate) struct Departed {
    _link: Option<Link>,
    _regions: Vec<Region>,
}

/// The path of a queue pair to the one that it is connected to.
#[derive(Debug)]
pub(crate) struct Connection {
    us: Us,
    link: Option<Link>,
    /// The peer that the queue pair was connected to has gone, and the link with it.
    peer_gone: bool,
    memory: RemoteMemory,
    delegation: Delegation,
    /// The queue pair's own epoch.
    epoch: u16,
    /// How often the window had been bound whose key the request under way takes away.
    revokes: u32,
}

impl Connection {
    /// One that leads nowhere.
    pub(crate) fn new(us: Us) -> Self {
        Connection {
            us,
            link: None,
            peer_gone: false,
            memory: RemoteMemory::default(),
            delegation: Delegation::of(us.transport),
            epoch: 0,
            revokes: 0,
        }
    }

    /// Leads to another queue pair from the epoch on that ours has begun.
    pub(crate) fn connect(&mut self, link: Link, epoch: u16) {
        self.epoch = epoch;
        // One that went before this was not found here by those who take out what leads to it.
        self.peer_gone = link.peer.is_dead();
        self.link = (!self.peer_gone).then_some(link);
    }

    /// Has it wait so long for what the peer's process is to carry out.
    pub(crate) fn set_patience(&mut self, patience: Patience) {
        self.delegation.patience = patience;
    }

    /// How long it waits for what the peer's process is to carry out.
    #[cfg(test)]
    pub(crate) fn patience(&self) -> Patience {
        self.delegation.patience
    }

    /// Leaves what the peer's process was asked for alone: the request has been flushed, or given up.
    pub(crate) fn forget_asked(&mut self) {
        self.delegation.forget();
    }

    /// Leads nowhere again.
    pub(crate) fn clear(&mut self) {
        *self = Connection::new(self.us);
    }

    /// Takes out what leads to a peer that has gone.
    pub(crate) fn take_departed(&mut self) -> Departed {
        let link = self.link.take_if(|link| link.peer.is_dead());
        self.peer_gone |= link.is_some();
        Departed {
            _link: link,
            _regions: self.memory.take_departed(),
        }
    }

    pub(crate) fn is_peer_gone(&self) -> bool {
        let dead = |link: &Link| link.peer.is_dead();
        self.peer_gone || self.link.as_ref().is_some_and(dead)
    }

    /// How long the peer asks to wait when it has no RECV, as a code.
    pub(crate) fn rnr_timer(&self) -> u8 {
        self.link.as_ref().map_or(0, Link::rnr_timer)
    }

    /// Wakes the peer's poller if it sleeps and something was sent since.
    #[inline(always)]
    pub(crate) fn ring(&mut self) {
        if let Some(link) = &mut self.link {
            link.ring();
        }
    }

    /// Has the peer's queue pair fail, as a responder does that has refused a request.
    #[cold]
    pub(crate) fn fail_peer(&mut self, adapter: &Adapter) {
        if let Some(link) = &mut self.link {
            link.fail_peer(adapter, &self.us);
        }
    }

    /// Carries an operation out, from where it has come to, as far as it goes.
    #[inline]
    pub(crate) fn carry_out(
        &mut self,
        adapter: &Adapter,
        wr: &SendWr<'_>,
        local: &Local<'_>,
        len: usize,
        progress: &mut Progress,
    ) -> Outcome {
        if progress.is_delegated()
            && let Some(outcome) = {
                let link = self.link.as_ref();
                self.delegation
                    .take_up(adapter, link, wr, local, len, progress)
            }
        {
            return outcome;
        }
        let us = self.us;
        let nobody = |is_gone: bool| {
            if us.transport == Transport::Rc {
                return Outcome::Wait(Wait::Peer);
            }
            if is_gone {
                adapter.count_unsent();
            }
            Outcome::Done
        };
        let Some(link) = &mut self.link else {
            return if self.peer_gone {
                nobody(true)
            } else {
                Outcome::Failed(Cause::NotConnected)
            };
        };
        if !link.is_as_before() {
            if !link.is_up(&us) {
                return nobody(link.peer.is_dead());
            }
            self.memory.look_anew();
        }
        if progress.has_begun() {
            match (link.goes_on(), us.transport) {
                (true, _) if *progress == Progress::Unconfirmed => return Outcome::Done,
                (true, _) => {}
                (false, Transport::Rc) => return Outcome::Failed(Cause::ConnectionEnded),
                (false, _) => return Outcome::Done,
            }
        }
        let memory = &mut self.memory;
        let carried = match wr.op {
            Op::Send { imm } => {
                let rest = (imm.unwrap_or(0), message_flags(imm, wr.flags));
                return send::<false>(adapter, &us, link, rest, local, len, progress);
            }
            Op::SendInvalidate { rkey } => {
                if *progress == Progress::Nothing {
                    match memory.check_revocable(&link.peer, link.qpn, rkey) {
                        Ok(bound) => self.revokes = bound,
                        Err(cause) => return Outcome::Failed(cause),
                    }
                }
                let rest = (rkey.0, message_flags(None, wr.flags));
                let sent = send::<true>(adapter, &us, link, rest, local, len, progress);
                if matches!(sent, Outcome::Done) || *progress == Progress::Unconfirmed {
                    memory.revoke(rkey, self.revokes);
                }
                return sent;
            }
            // Of this side: the send queue has done them.
            Op::BindWindow(_) | Op::LocalInvalidate { .. } => Ok(()),
            Op::Write { remote, imm: None } => write(adapter, memory, link, remote, local, len),
            Op::Write {
                remote,
                imm: Some(imm),
            } => {
                // Asked once: with a shared queue, others may take the RECV at any time. An unreliable message
                // that finds none has begun all the same.
                let reliable = us.transport == Transport::Rc;
                let has_recv = (reliable && progress.has_begun()) || link.ready() != Ready::No;
                if !has_recv && reliable {
                    return Outcome::Wait(Wait::Recv);
                }
                let written = match *progress {
                    // The data is in place, and may have been used since.
                    Progress::Placed => Ok(()),
                    _ => write(adapter, memory, link, remote, local, len),
                };
                let announced = written.and_then(|()| {
                    *progress = Progress::Placed;
                    link.has_begun();
                    match has_recv {
                        true => announce(adapter, &us, link, imm, wr.flags, len as u32),
                        false => {
                            adapter.count_unreceived();
                            Ok(())
                        }
                    }
                });
                if announced.is_ok() && us.transport == Transport::Rc && !link.has_delivered() {
                    *progress = Progress::Unconfirmed;
                    return Outcome::Wait(Wait::Peer);
                }
                announced
            }
            Op::Read { remote } => {
                let needed = rules::remote_access(&wr.op);
                let place = access(adapter, memory, link, remote, len, needed);
                place.and_then(|place| match place {
                    Some(place) => {
                        fetch_for(&place, local, len)?;
                        // SAFETY: the pieces were checked for local writing, and the place for
                        // their length in all.
                        let read = unsafe { place.read(local.pieces()) };
                        read.map_err(|why| Refused::to_move(why, remote, Way::Read))
                    }
                    None => Ok(()),
                })
            }
            Op::CompareSwap {
                remote,
                expect,
                swap,
            } => {
                let change = Change::CompareSwap { expect, swap };
                return self.atomic(adapter, remote, change, local, progress);
            }
            Op::FetchAdd { remote, add } => {
                let change = Change::FetchAdd { add };
                return self.atomic(adapter, remote, change, local, progress);
            }
        };
        match (carried, us.transport) {
            (Ok(()), _) => Outcome::Done,
            (Err(Refused::Delegate(remote, way)), _) => {
                let (epoch, delegation) = (self.epoch, &mut self.delegation);
                let piece = (remote, way);
                delegation.ask_for_piece(adapter, link, epoch, piece, local, len, progress)
            }
            (Err(Refused::Wait(wait)), Transport::Rc) => Outcome::Wait(wait),
            // It has not been sent yet.
            (Err(Refused::Wait(Wait::Answer)), _) => Outcome::Wait(Wait::Answer),
            (Err(Refused::Failed(cause)), Transport::Rc) => Outcome::Failed(cause),
            (Err(Refused::Here(cause)), _) => Outcome::Failed(cause),
            // Nobody tells an unreliable connection what became of its message.
            (Err(_), _) => Outcome::Done,
        }
    }

    /// Carries an atomic out, or has the peer's process do so where its memory is not mapped here.
    fn atomic(
        &mut self,
        adapter: &Adapter,
        remote: RemoteAddr,
        change: Change,
        local: &Local<'_>,
        progress: &mut Progress,
    ) -> Outcome {
        let Some(link) = &self.link else {
            return Outcome::Failed(Cause::NotConnected);
        };
        if !remote.addr.is_multiple_of(8) {
            return Outcome::Failed(Cause::Misaligned);
        }
        let needed = Access::REMOTE_ATOMIC;
        let place = match access(adapter, &mut self.memory, link, remote, 8, needed) {
            Ok(place) => place,
            Err(Refused::Wait(wait)) => return Outcome::Wait(wait),
            Err(Refused::Failed(cause) | Refused::Here(cause)) => return Outcome::Failed(cause),
            Err(Refused::Delegate(..)) => None,
        };
        // Where the word before cannot be put, nothing is done.
        if let Err(cause) = local.fetch(0..8) {
            return Outcome::Failed(cause);
        }
        if let Some(word) = place.as_ref().and_then(Place::word) {
            put_word(local, change.make(word));
            return Outcome::Done;
        }
        if !matches!(place, Some(Place::Private { addr, .. }) if addr.is_multiple_of(8)) {
            return Outcome::Failed(Cause::OutOfAtomics);
        }
        let request = AtomicRequest {
            over: link.over(self.epoch),
            key: remote.rkey.0,
            addr: remote.addr,
            change,
        };
        *progress = Progress::Asked;
        self.delegation
            .ask(adapter, link, Delegated::Atomic(request))
    }
}

/// The flags of a message in a lane that its request decides.
pub(crate) fn message_flags(imm: Option<u32>, flags: SendFlags) -> u8 {
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
    remote: RemoteAddr,
    len: usize,
    needed: Access,
) -> Result<Option<Place>, Refused> {
    if !link.allowed().contains(needed) {
        return Err(Refused::Failed(Cause::QueuePairRight));
    }
    if len == 0 {
        return Ok(None);
    }
    memory
        .resolve(
            adapter,
            &link.peer,
            (link.pd, link.qpn),
            remote,
            len,
            needed,
        )
        .map(Some)
        .map_err(|why| match why {
            Unresolved::Failed(cause) => Refused::Failed(cause),
            Unresolved::Asked => Refused::Wait(Wait::Answer),
        })
}

#[inline]
fn write(
    adapter: &Adapter,
    memory: &mut RemoteMemory,
    link: &Link,
    remote: RemoteAddr,
    local: &Local<'_>,
    len: usize,
) -> Result<(), Refused> {
    let place = access(adapter, memory, link, remote, len, Access::REMOTE_WRITE)?;
    let Some(place) = place else { return Ok(()) };
    fetch_for(&place, local, len)?;
    // SAFETY: the pieces were checked, and the place for their length in all.
    let written = unsafe {
        match *local {
            Local::One(piece) => place.write(std::iter::once(piece)),
            _ => place.write(local.pieces()),
        }
    };
    written.map_err(|why| Refused::to_move(why, remote, Way::Write))
}

/// Has the pages of a payload be there, of which all is copied from or to a place now. What the peer's process copies goes in
/// pieces, each of which asks for its own.
#[inline]
fn fetch_for(place: &Place, local: &Local<'_>, len: usize) -> Result<(), Refused> {
    match place {
        Place::Private { pid: None, .. } => Ok(()),
        _ => local.fetch(0..len).map_err(Refused::Here),
    }
}

/// Puts the word that an atomic has found where its request says.
fn put_word(local: &Local<'_>, before: u64) {
    let before = before.to_ne_bytes();
    if let Some((to, _)) = local.pieces().next() {
        // SAFETY: the one piece has 8 bytes and was checked for local writing.
        unsafe { mem::place(to, before.as_ptr(), 8) };
    }
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

/// A SEND over a connection: whole, or in pieces. One that takes a key away ends with a message that says so.
#[inline]
#[allow(clippy::too_many_arguments)] // The parts of one request; a struct would be built per message.
fn send<const INVALIDATES: bool>(
    adapter: &Adapter,
    us: &Us,
    link: &mut Link,
    (imm, flags): (u32, u8),
    local: &Local<'_>,
    len: usize,
    progress: &mut Progress,
) -> Outcome {
    let reliable = us.transport == Transport::Rc;
    let lost = |wait| {
        if reliable {
            Outcome::Wait(wait)
        } else {
            Outcome::Done
        }
    };
    let message_flags = flags | link.risk(len);
    let mut sent = match *progress {
        Progress::Sent(sent) => sent,
        _ => 0,
    };
    if sent == 0 {
        let refused = match link.ready() {
            Ready::No => {
                if !reliable {
                    adapter.count_unreceived();
                }
                return lost(Wait::Recv);
            }
            Ready::Bad => Some((Kind::BadRecv, Cause::PeerRecvMemory)),
            Ready::Room(room) if (len as u64) > room => Some((Kind::TooLong, Cause::PeerRecvRoom)),
            Ready::Room(_) => None,
        };
        if let Some((kind, cause)) = refused {
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
                Ok(_) if reliable => Outcome::Failed(cause),
                Ok(_) => Outcome::Done,
                Err(NoLane::Full) => lost(Wait::Room),
                Err(NoLane::Refused) => lost(Wait::Peer),
            };
        }
    }
    let mut there = match local {
        Local::OnDemand(_) => sent,
        _ => len,
    };
    loop {
        let now = (len - sent).min(PIECE_MAX);
        let is_end = INVALIDATES && sent == len;
        let kind = if is_end { Kind::SendEnd } else { Kind::Send };
        let first = if sent == 0 { FIRST } else { 0 };
        let is_last = if INVALIDATES {
            is_end
        } else {
            sent + now == len
        };
        let last = if is_last { LAST } else { 0 };
        let from = sent;
        let fill = |to: *mut u8| {
            // SAFETY: the lane has room for `now` bytes, which the payload has from there on.
            unsafe { local.gather(from, to, now) };
        };
        let piece_flags = message_flags | first | last;
        let has_room = there >= sent + now || link.finds_room(us, now);
        if there < sent + now && has_room {
            // No more goes into a lane at once.
            there = len.min(sent + LANE_LINES * LINE);
            if let Err(cause) = local.fetch(sent..there) {
                return Outcome::Failed(cause);
            }
        }
        let pushed = match has_room {
            true => link.push(adapter, us, kind, piece_flags, imm, now as u32, now, fill),
            false => Err(NoLane::Full),
        };
        match pushed {
            Ok(_) => sent += now,
            Err(no_lane) => {
                if sent > 0 {
                    *progress = Progress::Sent(sent);
                    link.has_begun();
                }
                return match no_lane {
                    // An unreliable message that has begun is not cut off in the middle either: the
                    // receiver would wait for its end with a RECV in hand.
                    NoLane::Full if sent > 0 => Outcome::Wait(Wait::Room),
                    NoLane::Full => lost(Wait::Room),
                    NoLane::Refused => lost(Wait::Peer),
                };
            }
        }
        if last != 0 {
            link.consume();
            if reliable && !link.has_delivered() {
                *progress = Progress::Unconfirmed;
                return Outcome::Wait(Wait::Peer);
            }
            return Outcome::Done;
        }
    }
}
