//! A link: from one of our queue pairs to one of a peer's, with the lane between them.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use verbs::{Access, Gid, Transport, VerbsError};

use crate::adapter::Adapter;
use crate::channel;
use crate::lane::{Full, Writer};
use crate::layout::{
    CQS, CREDIT_BAD, CqEntry, CqInbox, Credit, Kind, LANES, QpEntry, RECEIVES, RECVS, SRQS,
    SrqEntry, qp_index, qp_instance,
};
use crate::peer::{Peer, peer_of};
use crate::recv::{gid_bytes, gid_words};

/// Whether the peer has a RECV for the next message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ready {
    /// Yes, with room for so many bytes.
    Room(u64),
    /// Yes, but its buffers cannot be used.
    Bad,
    /// No.
    No,
}

/// How to wake the peer's poller.
#[derive(Debug)]
struct Bell {
    armed: *const CqEntry,
    fired: *const CqInbox,
    fd: OwnedFd,
}

#[derive(Debug)]
struct Lane {
    number: usize,
    writer: Writer,
    bell: Option<Bell>,
    /// Something was sent since the bell was last looked at.
    unrung: bool,
}

/// A link to a peer's queue pair.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: Arc<Peer>,
    pub(crate) qpn: u32,
    entry: *const QpEntry,
    /// The peer's word when it was last looked at closely.
    word: u64,
    epoch: u16,
    /// The rest is what the entry said then.
    pub(crate) qkey: u32,
    pub(crate) pd: u32,
    srq: Option<*const SrqEntry>,
    recv_depth: u32,
    credits: *const [Credit; RECVS],
    /// RECVs of the peer that this link has consumed.
    sent: u64,
    lane: Option<Lane>,
}

// SAFETY: the pointers lead to the peer's segments, which `peer` keeps mapped; they are accessed
// through atomics only.
unsafe impl Send for Link {}

/// Who the peer's queue pair has to be connected to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Us {
    pub(crate) gid: Gid,
    pub(crate) qpn: u32,
    pub(crate) transport: Transport,
}

fn transport_bits(transport: Transport) -> u64 {
    match transport {
        Transport::Rc => 1,
        Transport::Uc => 2,
        Transport::Ud => 3,
    }
}

/// Makes a queue pair's word.
pub(crate) fn word(generation: u32, transport: Transport, access: Access, receives: bool) -> u64 {
    u64::from(generation) << 32
        | u64::from(access.bits()) << 8
        | transport_bits(transport) << 4
        | if receives { RECEIVES } else { 0 }
}

impl Link {
    /// Contacts the peer, which may block for the contact time-out.
    pub(crate) fn open(adapter: &Adapter, gid: Gid, qpn: u32) -> Result<Self, VerbsError> {
        let peer = peer_of(adapter, gid, qp_instance(qpn))?;
        let index = qp_index(qpn);
        let entry: *const QpEntry = &raw const peer.published().qps[index];
        let credits: *const [Credit; RECVS] = &raw const peer.published().credits[index];
        Ok(Link {
            peer,
            qpn,
            entry,
            word: 0,
            epoch: 0,
            qkey: 0,
            pd: 0,
            srq: None,
            recv_depth: 0,
            credits,
            sent: 0,
            lane: None,
        })
    }

    /// What the peer's queue pair lets us do.
    #[inline]
    pub(crate) fn allowed(&self) -> Access {
        Access::from_bits_truncate((self.word >> 8) as u32 & 0xff)
    }

    /// Whether the peer's queue pair takes our messages now. Costs one load when nothing has
    /// changed.
    #[inline]
    pub(crate) fn is_up(&mut self, us: &Us) -> bool {
        if self.peer.is_dead() {
            return false;
        }
        // SAFETY: the entry stays mapped.
        let word = unsafe { &*self.entry }.word.load(Ordering::Acquire);
        if word == self.word && word & RECEIVES != 0 {
            return true;
        }
        self.look_again(us, word)
    }

    #[cold]
    fn look_again(&mut self, us: &Us, word: u64) -> bool {
        self.word = 0;
        // SAFETY: the entry stays mapped.
        let entry = unsafe { &*self.entry };
        if word & RECEIVES == 0 || word >> 4 & 0xf != transport_bits(us.transport) {
            return false;
        }
        if us.transport != Transport::Ud {
            let gid = Gid(gid_bytes(&entry.peer_gid));
            if gid != us.gid || entry.peer_qpn.load(Ordering::Relaxed) != us.qpn {
                return false;
            }
        }
        let epoch = (entry.epoch_and_timer.load(Ordering::Relaxed) >> 16) as u16;
        if epoch != self.epoch {
            self.close_lane();
            self.sent = 0;
            self.epoch = epoch;
        }
        self.qkey = entry.qkey.load(Ordering::Relaxed);
        self.pd = entry.pd.load(Ordering::Relaxed);
        self.recv_depth = entry.recv_depth.load(Ordering::Relaxed);
        self.srq = match entry.srq.load(Ordering::Relaxed) as usize {
            0 => None,
            srq if srq <= SRQS => Some(&raw const self.peer.published().srqs[srq - 1]),
            _ => return false,
        };
        if self.srq.is_none()
            && us.transport != Transport::Ud
            && !(self.recv_depth.is_power_of_two() && self.recv_depth as usize <= RECVS)
        {
            return false;
        }
        self.word = word;
        true
    }

    /// How long the peer asks us to wait when it has no RECV, as a code.
    pub(crate) fn rnr_timer(&self) -> u8 {
        // SAFETY: the entry stays mapped.
        unsafe { &*self.entry }
            .epoch_and_timer
            .load(Ordering::Relaxed) as u8
    }

    /// Whether the peer has a RECV for our next message (RC and UC).
    #[inline]
    pub(crate) fn ready(&self) -> Ready {
        if let Some(srq) = self.srq {
            // SAFETY: the entry stays mapped.
            let srq = unsafe { &*srq };
            let consumed = srq.consumed.load(Ordering::Acquire);
            let free = srq.posted.load(Ordering::Acquire) > consumed;
            return if free {
                Ready::Room(u64::MAX)
            } else {
                Ready::No
            };
        }
        let slot = self.sent as usize & (self.recv_depth as usize - 1);
        // SAFETY: the credits stay mapped, and `look_again` has checked the depth.
        let credit = unsafe { &(*self.credits)[slot] }.load(Ordering::Acquire);
        if (credit >> 32) as u32 != (self.sent as u32).wrapping_add(1) {
            return Ready::No;
        }
        match credit as u32 {
            len if len & CREDIT_BAD != 0 => Ready::Bad,
            len => Ready::Room(u64::from(len)),
        }
    }

    /// Notes that a message has consumed a RECV of the peer.
    #[inline]
    pub(crate) fn consume(&mut self) {
        self.sent += 1;
    }

    /// Opens the lane, if it is not open.
    fn lane(&mut self, adapter: &Adapter, us: &Us) -> Result<&mut Lane, VerbsError> {
        if self.lane.is_none() {
            self.lane = Some(self.open_lane(adapter, us)?);
        }
        match &mut self.lane {
            Some(lane) => Ok(lane),
            None => Err(VerbsError::NoSuch {
                what: "lane",
                number: 0,
            }),
        }
    }

    /// Takes a free lane of the peer's inbox and announces it to the completion queue that the
    /// peer's queue pair receives on. Needs nothing of the peer but its memory, except when its
    /// completion queue has a channel, whose descriptor must be asked for.
    #[cold]
    fn open_lane(&self, adapter: &Adapter, us: &Us) -> Result<Lane, VerbsError> {
        // SAFETY: the entry stays mapped.
        let entry = unsafe { &*self.entry };
        let cq = entry.recv_cq.load(Ordering::Relaxed) as usize;
        if cq >= CQS {
            return Err(VerbsError::invalid(
                "peer's queue pair",
                "its completion queue",
            ));
        }
        let bell = match entry.channel.load(Ordering::Relaxed) {
            0 => None,
            channel => Some(Bell {
                armed: &raw const self.peer.published().cqs[cq],
                fired: &raw const self.peer.inbox().cqs[cq],
                fd: self.peer.channel(adapter, channel - 1)?,
            }),
        };
        let inbox = self.peer.inbox();
        // Different senders start looking at different places.
        let start = (adapter.incarnation as usize).wrapping_add(us.qpn as usize * 7);
        let take = |lane: &usize| {
            let owner: &AtomicU64 = &inbox.lanes[*lane].owner;
            owner.load(Ordering::Relaxed) == 0
                && owner
                    .compare_exchange(0, adapter.incarnation, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        };
        let number = (0..LANES)
            .map(|step| (start.wrapping_add(step)) % LANES)
            .find(take)
            .ok_or(VerbsError::Exhausted {
                what: "lanes into the peer",
                max: LANES as u64,
            })?;
        let header = &inbox.lanes[number];
        let gid = gid_words(us.gid);
        header.src_gid[0].store(gid[0], Ordering::Relaxed);
        header.src_gid[1].store(gid[1], Ordering::Relaxed);
        header.src_qpn.store(us.qpn, Ordering::Relaxed);
        header.dst_qpn.store(self.qpn, Ordering::Relaxed);
        let list: &AtomicU32 = &inbox.cqs[cq].new_lanes;
        let mut first = list.load(Ordering::Relaxed);
        loop {
            header.next.store(first, Ordering::Relaxed);
            let linked = list.compare_exchange(
                first,
                number as u32 + 1,
                Ordering::Release,
                Ordering::Relaxed,
            );
            match linked {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
        let writer = Writer::new(
            &inbox.lines[number],
            &self.peer.published().lane_heads[number].consumed,
            Arc::<Peer>::clone(&self.peer),
        );
        Ok(Lane {
            number,
            writer,
            bell,
            unrung: false,
        })
    }

    /// Sends one message through the lane.
    #[inline]
    #[allow(clippy::too_many_arguments)] // One call a message; the parts have nothing in common.
    pub(crate) fn push(
        &mut self,
        adapter: &Adapter,
        us: &Us,
        kind: Kind,
        flags: u8,
        imm: u32,
        reported_len: u32,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<(), NoLane> {
        let lane = match &mut self.lane {
            Some(lane) => lane,
            None => self.lane(adapter, us).map_err(|e| {
                tracing::debug!(error = %e, "cannot open a lane");
                NoLane::Refused
            })?,
        };
        lane.unrung = true;
        let pushed = lane.writer.push(kind, flags, imm, reported_len, len, fill);
        pushed.map_err(|Full| NoLane::Full)
    }

    /// Wakes the peer's poller if it sleeps and something was sent since. Called once after a
    /// batch.
    #[inline]
    pub(crate) fn ring(&mut self, solicited: bool) {
        let Some(lane) = &mut self.lane else {
            return;
        };
        let unrung = std::mem::take(&mut lane.unrung);
        let Some(bell) = lane.bell.as_ref().filter(|_| unrung) else {
            return;
        };
        // Pairs with the fence in the peer's `arm`.
        fence(Ordering::SeqCst);
        // SAFETY: the entries stay mapped.
        let (armed, fired) = unsafe { (&*bell.armed, &*bell.fired) };
        let armed = armed.armed.load(Ordering::Relaxed);
        if armed == 1 || (armed == 2 && solicited) {
            fired.fired.store(1, Ordering::Relaxed);
            channel::ring(bell.fd.as_fd());
        }
    }

    /// Tells the peer that nothing more comes through the lane.
    pub(crate) fn close_lane(&mut self) {
        let Some(mut lane) = self.lane.take() else {
            return;
        };
        if self.peer.is_dead() {
            return;
        }
        let nothing = |_: *mut u8| ();
        // Without room for the message the mark below does, a little later.
        let _ = lane.writer.push(Kind::Close, 0, 0, 0, 0, nothing);
        self.peer.inbox().lanes[lane.number]
            .closed
            .store(1, Ordering::Release);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close_lane();
    }
}

/// Why a message could not go through the lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoLane {
    /// The lane is full; it will have room when the peer polls.
    Full,
    /// There is no lane to be had.
    Refused,
}
