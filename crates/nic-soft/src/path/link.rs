//! A link: from one of our queue pairs to one of a peer's, with the lane between them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use verbs::{Access, Gid, Qkey, Transport, VerbsError, mem};

use crate::contact::adapter::Adapter;
use crate::contact::doorbell::Doorbell;
use crate::contact::over::Over;
use crate::contact::peer::Peer;
use crate::shared::arming;
use crate::shared::credit::{self, Ready};
use crate::shared::lane::{Full, LONGEST_IN_LANE, Writer};
use crate::shared::layout::{
    CqEntry, Credit, FAILS, FIRST, FLAWED, GOES_ON, Kind, LAST, QpEntry, RECEIVES, RECVS,
    SOLICITED, SRQS, SrqEntry, qp_index,
};
use crate::shared::qp_entry::{self, gid_words, transport_bits};
use crate::shared::route::Route;
use crate::shared::srq_entry;
use crate::sync::light_barrier;

/// How to wake the peer's poller.
#[derive(Debug)]
struct Waking {
    armed: *const CqEntry,
    cq: u32,
    doorbell: Arc<Doorbell>,
}

#[derive(Debug)]
struct Lane {
    number: usize,
    /// How many times the lane was opened.
    opened: u32,
    writer: Writer,
    waking: Option<Waking>,
    /// Something was sent since the doorbell was last looked at.
    unrung: bool,
    /// One of them raises a solicited event.
    solicited: bool,
}

impl Lane {
    /// [`Link::ring`], where somebody may sleep.
    #[cold]
    #[inline(never)]
    fn ring(&mut self) {
        let unrung = std::mem::take(&mut self.unrung);
        let solicited = std::mem::take(&mut self.solicited);
        let Some(waking) = self.waking.as_ref().filter(|_| unrung) else {
            return;
        };
        // SAFETY: the entry stays mapped.
        if let Some(arming) = arming::must_ring(unsafe { &*waking.armed }, solicited) {
            waking.doorbell.ring(waking.cq, arming);
        }
    }
}

/// A link to a peer's queue pair.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: Arc<Peer>,
    pub(crate) qpn: u32,
    pub(crate) route: Route,
    entry: *const QpEntry,
    /// The peer's word when it was last looked at closely.
    word: u64,
    /// The peer's epoch then; none before the first time.
    epoch: Option<u16>,
    /// The rest is what the entry said then.
    pub(crate) qkey: u32,
    /// What a datagram's request says for this queue pair, if that does not depend on the sender's
    /// own key, and if none of its RECVs may fail; otherwise no key at all.
    pub(crate) plain_qkey: u64,
    /// Some of its RECVs for datagrams may fail.
    is_flawed: bool,
    pub(crate) pd: u32,
    srq: Option<*const SrqEntry>,
    recv_cq: u32,
    channel: u32,
    recv_depth: u32,
    credits: *const [Credit; RECVS],
    /// RECVs of the peer that this link, and those before it, have used.
    sent: u32,
    /// Those of a shared queue that were seen to be taken.
    taken: u32,
    /// The connection that the message under way has begun on, since it had to wait.
    begun_on: Option<u16>,
    lane: Option<Lane>,
    /// Lanes that were closed because they were full and that the peer has not read yet, as far as it
    /// is known: their numbers, and how many times they were opened.
    left: Vec<(usize, u32)>,
    /// No other lane was to be had when the peer had given lanes back so many times.
    refused_at: Option<u32>,
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

/// A key that no request says.
const NO_QKEY: u64 = u64::MAX;

impl Link {
    /// A link to a queue pair of a peer, whose datagrams' headers say this.
    pub(crate) fn to(peer: Arc<Peer>, qpn: u32, route: Route) -> Self {
        let index = qp_index(qpn);
        let entry: *const QpEntry = &raw const peer.published().qps[index];
        let credits: *const [Credit; RECVS] = &raw const peer.published().credits[index];
        Link {
            peer,
            qpn,
            route,
            entry,
            word: 0,
            epoch: None,
            qkey: 0,
            plain_qkey: NO_QKEY,
            is_flawed: false,
            pd: 0,
            srq: None,
            recv_cq: 0,
            channel: 0,
            recv_depth: 0,
            credits,
            sent: 0,
            taken: 0,
            begun_on: None,
            lane: None,
            left: Vec::new(),
            refused_at: None,
        }
    }

    /// What the peer's queue pair lets us do.
    #[inline]
    pub(crate) fn allowed(&self) -> Access {
        qp_entry::access(self.word)
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

    /// Whether it takes our messages, and has said nothing new since it was looked at.
    #[inline(always)]
    pub(crate) fn is_as_before(&self) -> bool {
        // SAFETY: the entry stays mapped.
        let word = unsafe { &*self.entry }.word.load(Ordering::Acquire);
        word == self.word && word & RECEIVES != 0 && !self.peer.is_dead()
    }

    #[cold]
    fn look_again(&mut self, us: &Us, word: u64) -> bool {
        self.word = 0;
        // SAFETY: the entry stays mapped.
        let entry = unsafe { &*self.entry };
        if word & RECEIVES == 0 || word >> 4 & 0xf != transport_bits(us.transport) {
            return false;
        }
        // One that changes just now is up later.
        let Some(pair) = qp_entry::read(entry, word) else {
            return false;
        };
        let ours = pair.peer_gid == gid_words(us.gid) && pair.peer_qpn == us.qpn;
        if us.transport != Transport::Ud && !ours {
            return false;
        }
        let epoch = pair.epoch();
        self.qkey = pair.qkey;
        self.is_flawed = word & FLAWED != 0;
        self.plain_qkey = match Qkey(pair.qkey).is_controlled() || self.is_flawed {
            true => NO_QKEY,
            false => u64::from(pair.qkey),
        };
        self.pd = pair.pd;
        self.recv_cq = pair.recv_cq;
        self.channel = pair.channel;
        self.recv_depth = pair.recv_depth;
        self.srq = match pair.srq as usize {
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
        if self.epoch != Some(epoch) {
            self.close_lane();
            self.epoch = Some(epoch);
            let before = self.peer.take_used_recvs(self.qpn, epoch);
            self.sent = before.unwrap_or_else(|| self.received());
            self.taken = self.received();
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

    /// RECVs of the peer that were used, as it has told: those of a shared queue each when it is taken.
    fn received(&self) -> u32 {
        // SAFETY: the entry and the credits stay mapped.
        let (entry, credits) = unsafe { (&*self.entry, &*self.credits) };
        match self.srq {
            Some(_) => credits[0].load(Ordering::Acquire) as u32,
            None => entry.received.load(Ordering::Acquire),
        }
    }

    /// Whether the peer has a RECV for our next message (RC and UC).
    #[inline]
    pub(crate) fn ready(&mut self) -> Ready {
        if let Some(srq) = self.srq {
            // SAFETY: the entry stays mapped.
            return self.ready_of(unsafe { &*srq });
        }
        match self.look_at_credit() {
            Ready::No if self.skips_used() => self.look_at_credit(),
            ready => ready,
        }
    }

    /// The same where the RECVs are those of a shared queue. Our messages that were not received yet take
    /// some of them. Others' do too, and which RECV comes next is not known: what none has room for is
    /// refused.
    #[inline]
    fn ready_of(&mut self, srq: &SrqEntry) -> Ready {
        match srq_entry::count(srq) > self.unread() || self.were_taken(srq) {
            true => Ready::Room(srq.longest.load(Ordering::Relaxed).into()),
            false => Ready::No,
        }
    }

    /// The flag of a SEND of this length that may fail where it is received, because not every RECV of a
    /// shared queue has room for it: what fails counts as solicited.
    #[inline]
    pub(crate) fn risk(&self, len: usize) -> u8 {
        match self.srq {
            // SAFETY: the entry stays mapped.
            Some(srq) if len > unsafe { &*srq }.shortest.load(Ordering::Relaxed) as usize => {
                SOLICITED
            }
            _ => 0,
        }
    }

    /// Our messages that have not taken a RECV of a shared queue yet, as far as we have seen.
    #[inline]
    fn unread(&self) -> u64 {
        (self.sent.wrapping_sub(self.taken) as i32).max(0) as u64
    }

    /// Looks how many of our messages have taken a RECV.
    #[cold]
    fn were_taken(&mut self, srq: &SrqEntry) -> bool {
        let count = srq_entry::count(srq);
        self.taken = self.received();
        count > self.unread()
    }

    #[inline]
    fn look_at_credit(&self) -> Ready {
        let slot = self.sent as usize & (self.recv_depth as usize - 1);
        debug_assert!(slot < RECVS, "a depth that was checked");
        // SAFETY: the credits stay mapped, and `look_again` has checked the depth.
        let credit = unsafe { &(*self.credits)[slot] };
        credit::look(credit, self.sent.into())
    }

    /// Passes over RECVs that a process in our place had used before, and of which the peer has told
    /// only since this link began.
    #[cold]
    fn skips_used(&mut self) -> bool {
        let received = self.received();
        let is_behind = (received.wrapping_sub(self.sent) as i32) > 0;
        if is_behind {
            self.sent = received;
        }
        is_behind
    }

    /// Notes that a message has consumed a RECV of the peer.
    #[inline]
    pub(crate) fn consume(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Whether the message pushed last was delivered: the peer's queue pair still takes messages, on
    /// the same connection. Then it is received, even if the queue pair fails right after: whoever
    /// fails says so, has all senders pass a fence, and reads its lanes to their end.
    #[inline]
    pub(crate) fn has_delivered(&mut self) -> bool {
        light_barrier();
        // SAFETY: the entry stays mapped.
        let word = unsafe { &*self.entry }.word.load(Ordering::Acquire);
        if word == self.word {
            return true;
        }
        // Whoever carries the request out looks again.
        self.has_begun();
        false
    }

    /// The connection to the peer's queue pair as it was looked at last, by the epoch of our queue pair.
    pub(crate) fn over(&self, from_epoch: u16) -> Over {
        Over {
            qpn: self.qpn,
            epoch: self.epoch.unwrap_or_default(),
            from_epoch,
        }
    }

    /// Notes that a message has begun and has to wait.
    pub(crate) fn has_begun(&mut self) {
        self.begun_on = self.epoch;
    }

    /// Whether a message that has begun, and had to wait, goes on now that the peer's queue pair
    /// takes messages: yes, if this is the same connection still. What was sent on another one has
    /// gone with it.
    pub(crate) fn goes_on(&self) -> bool {
        self.begun_on.is_some() && self.begun_on == self.epoch
    }

    /// Opens the lane.
    #[cold]
    #[inline(never)]
    fn begin_lane(&mut self, adapter: &Adapter, us: &Us) -> Result<(), NoLane> {
        let opened = self.open_lane(adapter, us, false).map_err(|e| {
            tracing::debug!(error = %e, "cannot open a lane");
            if us.transport != Transport::Rc {
                adapter.count_unsent();
            }
            NoLane::Refused
        })?;
        self.lane = Some(opened);
        Ok(())
    }

    /// Takes a free lane of our inbox at the peer, and announces it to the peer's agent. Waits for
    /// nobody: what is written meanwhile is found once the agent has taken the lane up.
    fn open_lane(&self, adapter: &Adapter, us: &Us, is_behind: bool) -> Result<Lane, VerbsError> {
        let (peer, cq) = (&self.peer, self.recv_cq);
        let Some(armed) = peer.published().cqs.get(cq as usize) else {
            let why = "its completion queue";
            return Err(VerbsError::invalid("peer's queue pair", why));
        };
        let waking = match self.channel {
            0 => None,
            channel => Some(Waking {
                armed,
                cq,
                doorbell: peer.doorbell(adapter, channel as usize - 1)?,
            }),
        };
        let epoch = self.epoch.unwrap_or_default();
        let (number, opened) = peer.open_lane((us.qpn, self.qpn), epoch, self.route, is_behind)?;
        let (lines, head) = peer.lane(number);
        Ok(Lane {
            number,
            opened,
            writer: Writer::new(lines, &head.consumed, Arc::<Peer>::clone(peer)),
            waking,
            unrung: false,
            solicited: false,
        })
    }

    /// Sends datagrams without immediate data one after the other, each with its flags. What finds no
    /// room is dropped, as UD allows.
    #[inline(always)]
    pub(crate) fn push_datagrams<'b>(
        &mut self,
        adapter: &Adapter,
        us: &Us,
        datagrams: impl Iterator<Item = (u8, &'b [u8])> + Clone,
    ) {
        let mut datagrams = datagrams;
        loop {
            let unsent = match &mut self.lane {
                Some(lane) => {
                    if lane.waking.is_some() {
                        lane.unrung = true;
                        let mut rest = datagrams.clone();
                        lane.solicited |= rest.any(|(flags, _)| flags & SOLICITED != 0);
                    }
                    lane.writer.push_sends(&mut datagrams)
                }
                None => datagrams.next(),
            };
            let Some((flags, bytes)) = unsent else {
                return;
            };
            self.push_datagram(adapter, us, flags, bytes);
        }
    }

    /// One of them, which finds no lane, or no room at the first look.
    #[cold]
    #[inline(never)]
    fn push_datagram(&mut self, adapter: &Adapter, us: &Us, flags: u8, bytes: &[u8]) {
        let (from, len) = (bytes.as_ptr(), bytes.len());
        // SAFETY: the lane has room for the bytes.
        let fill = |to: *mut u8| unsafe { mem::put(to, from, len) };
        let _ = self.push(adapter, us, Kind::Send, flags, 0, len as u32, len, fill);
    }

    /// Sends one datagram, unless the peer's queue pair does not take it. What finds no room is dropped,
    /// as UD allows. `fill` writes its bytes.
    #[allow(clippy::too_many_arguments)] // As for `push`.
    pub(crate) fn send_datagram(
        &mut self,
        adapter: &Adapter,
        us: &Us,
        qkey: Qkey,
        flags: u8,
        imm: u32,
        len: usize,
        fill: impl Fn(*mut u8),
    ) {
        if !self.is_up(us) || self.qkey != qkey.0 {
            return;
        }
        let risk = if self.is_flawed { SOLICITED } else { 0 };
        let flags = flags | risk | FIRST | LAST;
        let _ = self.push(adapter, us, Kind::Send, flags, imm, len as u32, len, fill);
        // Also when it found no room: nobody makes any but the receiver.
        self.ring();
    }

    /// Whether a message, or a piece of one, of so many bytes finds room now. If not, the peer's poller is to be woken, because nobody
    /// else makes any. What is unreliable goes on in another lane.
    #[cold]
    pub(crate) fn finds_room(&mut self, us: &Us, len: usize) -> bool {
        let Some(lane) = self.lane.as_mut().filter(|_| us.transport == Transport::Rc) else {
            return true;
        };
        let has_room = lane.writer.finds_room(len);
        if !has_room {
            (lane.unrung, lane.solicited) = (true, true);
        }
        has_room
    }

    /// Sends one message through the lane.
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
        fill: impl Fn(*mut u8),
    ) -> Result<(), NoLane> {
        if self.lane.is_none() {
            self.begin_lane(adapter, us)?;
        }
        let Some(lane) = &mut self.lane else {
            return Err(NoLane::Refused);
        };
        if lane.waking.is_some() {
            lane.unrung = true;
            lane.solicited |= is_solicited(kind, flags);
        }
        let pushed = lane.writer.push(kind, flags, imm, reported_len, len, &fill);
        if pushed == Ok(()) {
            return Ok(());
        }
        self.push_behind(adapter, us, kind, flags, imm, reported_len, len, &fill)
    }

    /// The rest of `push` for a lane that is full.
    #[cold]
    #[inline(never)]
    #[allow(clippy::too_many_arguments)] // As above.
    fn push_behind(
        &mut self,
        adapter: &Adapter,
        us: &Us,
        kind: Kind,
        flags: u8,
        imm: u32,
        reported_len: u32,
        len: usize,
        fill: &dyn Fn(*mut u8),
    ) -> Result<(), NoLane> {
        if let Some(lane) = &mut self.lane {
            // Nobody makes room but the peer's poller, for whatever completions it may wait.
            lane.solicited = true;
        }
        // What is reliable waits for room.
        if us.transport == Transport::Rc {
            return Err(NoLane::Full);
        }
        let Some(lane) = self.go_on(adapter, us) else {
            // And so does the rest of a message.
            if kind != Kind::Send || flags & FIRST != 0 {
                adapter.count_unsent();
            }
            return Err(NoLane::Full);
        };
        lane.unrung = true;
        lane.solicited = is_solicited(kind, flags);
        let pushed = lane.writer.push(kind, flags, imm, reported_len, len, fill);
        pushed.map_err(|Full| NoLane::Full)
    }

    /// Goes on in another lane when this one is full, as long as the peer may have RECVs for what is in
    /// those that it has not read. A connection asks for a RECV before each message, a datagram does
    /// not.
    #[cold]
    fn go_on(&mut self, adapter: &Adapter, us: &Us) -> Option<&mut Lane> {
        let peer = &self.peer;
        self.left
            .retain(|(number, opened)| !peer.has_read(*number, *opened));
        // Read first: what is given back from here on is tried for the next time.
        let at = peer.given_back();
        let depth = match self.srq {
            Some(_) => RECVS,
            None => (self.recv_depth as usize).min(RECVS),
        };
        let is_enough =
            us.transport == Transport::Ud && self.left.len() >= depth.div_ceil(LONGEST_IN_LANE);
        if is_enough || self.refused_at == Some(at) {
            return None;
        }
        match self.open_lane(adapter, us, true) {
            Ok(lane) => {
                // Nobody looks at the full one's doorbell any more.
                self.ring();
                if let Some(Lane { number, opened, .. }) = self.lane {
                    self.left.push((number, opened));
                }
                self.end_lane(GOES_ON);
                self.refused_at = None;
                Some(self.lane.insert(lane))
            }
            Err(e) => {
                tracing::debug!(error = %e, "cannot go on in another lane");
                // Whatever else it was may be over by the next message.
                let is_exhausted = matches!(e, VerbsError::Exhausted { .. });
                self.refused_at = is_exhausted.then_some(at);
                None
            }
        }
    }

    /// Wakes the peer's poller if it sleeps and something was sent since. Called once after a
    /// batch.
    #[inline(always)]
    pub(crate) fn ring(&mut self) {
        if let Some(lane) = &mut self.lane
            && lane.waking.is_some()
        {
            lane.ring();
        }
    }

    /// Tells the peer that nothing more comes through the lane.
    pub(crate) fn close_lane(&mut self) {
        self.end_lane(0);
    }

    /// The same, and that the connection must fail. For that there is room in a full lane, too.
    #[cold]
    pub(crate) fn fail_peer(&mut self, adapter: &Adapter, us: &Us) {
        if self.lane.is_none() && self.begin_lane(adapter, us).is_err() {
            return; // There is no way to it.
        }
        let Some(mut lane) = self.end_lane(FAILS) else {
            return;
        };
        (lane.unrung, lane.solicited) = (true, true);
        lane.ring();
    }

    fn end_lane(&mut self, flags: u8) -> Option<Lane> {
        let mut lane = self.lane.take()?;
        lane.writer.close(flags);
        self.peer.close_lane(lane.number, lane.opened);
        Some(lane)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close_lane();
        if let Some(epoch) = self.epoch.filter(|_| self.sent != 0) {
            self.peer.note_used_recvs(self.qpn, epoch, self.sent);
        }
    }
}

/// Whether a message raises a solicited event. What fails counts as solicited.
#[inline(always)]
fn is_solicited(kind: Kind, flags: u8) -> bool {
    flags & SOLICITED != 0 || !matches!(kind, Kind::Send | Kind::WriteImm | Kind::SendEnd)
}

/// Why a message could not go through the lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoLane {
    /// The lane is full; it will have room when the peer polls.
    Full,
    /// There is no lane to be had.
    Refused,
}
