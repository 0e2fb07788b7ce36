//! Batches of work requests, owned and composed in place by whoever posts them.
//!
//! A NIC gets a whole batch in one virtual call. Its entries (work queue elements, WQEs) have a
//! fixed form: 64 bytes each, inline bytes in one buffer, elements in another. Nothing here
//! allocates after the batch was made, as long as its entries fit the limits it was made with.
//!
//! ```text
//! SendBatch   wqes    | Wqe | Wqe | ...            64 bytes each, a cache line
//!             bytes   | kept | inline bytes of the first | of the second | ...
//!             sges    | elements of the first | ...
//! ```
//! What does not depend on memory or on the peer is checked when a request is composed
//! ([`rules::check`]), so that the NIC checks one thing a batch: that it was made with its limits.
//!
//! # Example
//! ```
//! use verbs::batch::{SendBatch, SendLimits};
//! use verbs::{Op, SendFlags, Transport};
//!
//! let limits = SendLimits { transport: Transport::Uc, inline_max: 64, sge_max: 1, message_len_max: 1 << 20 };
//! let mut batch = SendBatch::new(limits, 16);
//! let mut draft = batch.inline(Op::Send { imm: None }, None, 64).unwrap();
//! draft.bytes()[..5].copy_from_slice(b"hello");
//! draft.id(7).flags(SendFlags::SIGNALED).commit(5);
//! drop(batch.inline(Op::Send { imm: None }, None, 64)); // abandoned
//! assert_eq!(batch.len(), 1);
//! ```

use std::ops::Range;

use crate::attr::{Access, Transport};
use crate::error::{PostError, PostReason};
use crate::names::{AhNum, Lkey, Qkey, QpNum, RemoteAddr, Rkey};
use crate::rules;
use crate::wc::WcOpcode;
use crate::wr::{Op, Payload, RecvWr, SendFlags, SendWr, Sge, UdDest, WindowBind};

/// What a send queue takes: a batch made with these is not checked again request by request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendLimits {
    /// The queue pair's transport.
    pub transport: Transport,
    /// Bytes inline at most.
    pub inline_max: u32,
    /// Gather elements at most.
    pub sge_max: u32,
    /// Bytes of a message at most: for UD the path's packet size, otherwise the device's.
    pub message_len_max: u32,
}

/// A datagram's destination, with a NIC's own hint of where it is. A hint may be out of date: a NIC
/// checks that what it finds there is `to`, and looks `to` up when it is not.
// In this order it is two words, those of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Dest {
    /// The destination.
    pub to: UdDest,
    /// The NIC's hint, [`Dest::NO_HINT`] when it has given none.
    pub hint: u32,
}

impl Dest {
    /// No hint.
    pub const NO_HINT: u32 = u32::MAX;
}

impl From<UdDest> for Dest {
    #[inline]
    fn from(to: UdDest) -> Self {
        let hint = Dest::NO_HINT;
        Dest { to, hint }
    }
}

/// An address handle and a queue pair number in a word.
#[inline]
pub fn key_of(to: &UdDest) -> u64 {
    u64::from(to.ah.0) | u64::from(to.qpn.0) << 32
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Room for a request's bytes. In debug builds what its sender leaves as it was is told from what it has
/// written.
#[inline(always)]
fn lent(room: &mut [u8]) -> &mut [u8] {
    if cfg!(debug_assertions) {
        room.fill(0xa5);
    }
    room
}

/// Has immediate data.
const IMM: u8 = 1;
/// Carries its bytes; otherwise they are gathered.
const INLINE: u8 = 1 << 1;
/// Takes a key away: the peer's, in place of immediate data.
const INVALIDATES: u8 = 1 << 2;
/// A window's addresses begin with 0.
const ZERO_BASED: u8 = 1 << 3;

/// A send work request as it stands in a batch.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Wqe {
    id: u64,
    addr: u64,
    /// An atomic's operands, or a datagram's destination.
    words: [u64; 2],
    rkey: u32,
    imm: u32,
    /// The first inline byte, or the first element.
    start: u32,
    /// Elements.
    count: u32,
    len: u32,
    opcode: WcOpcode,
    flags: SendFlags,
    shape: u8,
}

const _: () = assert!(size_of::<Wqe>() == 64);

impl Wqe {
    const NONE: Wqe = Wqe {
        id: 0,
        addr: 0,
        words: [0; 2],
        rkey: 0,
        imm: 0,
        start: 0,
        count: 0,
        len: 0,
        opcode: WcOpcode::Send,
        flags: SendFlags::empty(),
        shape: 0,
    };

    #[inline(always)]
    fn new(op: &Op, dest: Option<Dest>) -> Self {
        let (mut addr, mut rkey, mut words, mut imm) = (0, 0, [0; 2], None);
        let mut shape = 0;
        let mut at = |remote: &RemoteAddr| (addr, rkey) = (remote.addr, remote.rkey.0);
        let opcode = match op {
            Op::Send { imm: with } => {
                imm = *with;
                WcOpcode::Send
            }
            Op::Write { remote, imm: with } => {
                at(remote);
                imm = *with;
                WcOpcode::Write
            }
            Op::Read { remote } => {
                at(remote);
                WcOpcode::Read
            }
            Op::CompareSwap {
                remote,
                expect,
                swap,
            } => {
                at(remote);
                words = [*expect, *swap];
                WcOpcode::CompareSwap
            }
            Op::FetchAdd { remote, add } => {
                at(remote);
                words = [*add, 0];
                WcOpcode::FetchAdd
            }
            Op::SendInvalidate { rkey: peers } => {
                (rkey, shape) = (peers.0, INVALIDATES);
                WcOpcode::Send
            }
            Op::BindWindow(bind) => {
                (addr, rkey) = (bind.addr, bind.rkey.0);
                let access = u64::from(bind.access.bits());
                words = [bind.len, u64::from(bind.region.0) | access << 32];
                shape = if bind.is_zero_based { ZERO_BASED } else { 0 };
                WcOpcode::BindWindow
            }
            Op::LocalInvalidate { rkey: own } => {
                rkey = own.0;
                WcOpcode::LocalInvalidate
            }
        };
        if let Some(Dest { to, hint }) = dest {
            words = [key_of(&to), u64::from(to.qkey.0) | u64::from(hint) << 32];
        }
        Wqe {
            id: 0,
            addr,
            words,
            rkey,
            imm: imm.unwrap_or(0),
            opcode,
            shape: if imm.is_some() { IMM } else { shape },
            ..Wqe::NONE
        }
    }

    /// Comes back in the completion.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What kind of completion it makes.
    #[inline]
    pub fn opcode(&self) -> WcOpcode {
        self.opcode
    }

    /// How it is carried out.
    #[inline]
    pub fn flags(&self) -> SendFlags {
        self.flags
    }

    /// Bytes of its payload.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether its payload has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it carries its bytes.
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.shape & INLINE != 0
    }

    /// Its immediate data.
    #[inline]
    pub fn imm(&self) -> Option<u32> {
        (self.shape & IMM != 0).then_some(self.imm)
    }

    /// Whether it carries its bytes and has no immediate data, as most requests.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.shape == INLINE
    }

    /// Whether it is a WRITE of which the same is true.
    #[inline]
    pub fn is_plain_write(&self) -> bool {
        self.opcode == WcOpcode::Write && self.is_plain()
    }

    /// Whether it goes where another datagram goes.
    #[inline]
    pub fn has_dest_of(&self, other: &Wqe) -> bool {
        self.words == other.words
    }

    /// The place in the peer's memory, for what has one.
    #[inline]
    pub fn remote(&self) -> RemoteAddr {
        RemoteAddr {
            addr: self.addr,
            rkey: Rkey(self.rkey),
        }
    }

    /// A datagram's destination; without a meaning on other transports.
    #[inline]
    pub fn dest(&self) -> Dest {
        let [key, rest] = self.words;
        Dest {
            to: UdDest {
                ah: AhNum(key as u32),
                qpn: QpNum((key >> 32) as u32),
                qkey: Qkey(rest as u32),
            },
            hint: (rest >> 32) as u32,
        }
    }

    /// A compare-and-swap's expected and new value, or what a fetch-and-add adds.
    #[inline]
    pub fn operands(&self) -> [u64; 2] {
        self.words
    }

    /// What it does.
    #[inline]
    pub fn op(&self) -> Op {
        let (remote, imm) = (self.remote(), self.imm());
        match self.opcode {
            WcOpcode::Write => Op::Write { remote, imm },
            WcOpcode::Read => Op::Read { remote },
            WcOpcode::CompareSwap => Op::CompareSwap {
                remote,
                expect: self.words[0],
                swap: self.words[1],
            },
            WcOpcode::FetchAdd => Op::FetchAdd {
                remote,
                add: self.words[0],
            },
            WcOpcode::BindWindow => Op::BindWindow(WindowBind {
                rkey: remote.rkey,
                region: Lkey(self.words[1] as u32),
                addr: remote.addr,
                len: self.words[0],
                access: Access::from_bits_retain((self.words[1] >> 32) as u32),
                is_zero_based: self.shape & ZERO_BASED != 0,
            }),
            WcOpcode::LocalInvalidate => Op::LocalInvalidate { rkey: remote.rkey },
            _ if self.shape & INVALIDATES != 0 => Op::SendInvalidate { rkey: remote.rkey },
            _ => Op::Send { imm },
        }
    }
}

/// The first length that does not go inline; 0 for requests that the queue does not take at all.
#[derive(Clone, Copy, Debug)]
struct InlineBelow {
    /// Of SENDs and WRITEs without a destination of their own.
    connected: usize,
    /// Of SENDs with one.
    datagram: usize,
    /// Of SENDs that take a key away.
    invalidating: usize,
}

impl InlineBelow {
    fn new(limits: &SendLimits) -> Self {
        let below = limits.inline_max.min(limits.message_len_max) as usize + 1;
        let (connected, datagram) = match limits.transport {
            Transport::Rc | Transport::Uc => (below, 0),
            Transport::Ud => (0, below),
        };
        InlineBelow {
            connected,
            datagram,
            invalidating: if limits.transport == Transport::Rc {
                below
            } else {
                0
            },
        }
    }

    #[inline(always)]
    fn of(&self, op: &Op, has_dest: bool) -> usize {
        match (op, has_dest) {
            (Op::Send { .. } | Op::Write { .. }, false) => self.connected,
            (Op::Send { .. }, true) => self.datagram,
            (Op::SendInvalidate { .. }, false) => self.invalidating,
            _ => 0,
        }
    }
}

/// A batch of send work requests. Reused: whoever posts it clears it afterwards, and the typed
/// handles do that themselves.
#[derive(Debug)]
pub struct SendBatch {
    limits: SendLimits,
    inline_below: InlineBelow,
    /// Those of before the last clearing stay behind the first `len`.
    wqes: Box<[Wqe]>,
    len: usize,
    bytes: Box<[u8]>,
    bytes_used: usize,
    /// Where those begin that the sender keeps, before all others.
    kept_at: usize,
    /// How many it keeps.
    kept_len: usize,
    /// Where the first request's inline bytes begin.
    inline_at: usize,
    sges: Vec<Sge>,
    sges_used: usize,
}

impl SendBatch {
    /// A batch of up to `capacity` requests of a send queue with these limits.
    ///
    /// Cost: memory for `capacity` entries, each with its inline bytes and elements.
    pub fn new(limits: SendLimits, capacity: usize) -> Self {
        SendBatch::with_kept(limits, capacity, 0)
    }

    /// As [`new`](Self::new), with `kept_len` bytes that [`kept`](Self::kept) lends: requests that
    /// may be posted again are composed there once. They begin at a cache line.
    pub fn with_kept(limits: SendLimits, capacity: usize, kept_len: usize) -> Self {
        let inline_len = (limits.inline_max as usize).next_multiple_of(8) * capacity;
        let bytes: Box<[u8]> = vec![0; LINE + kept_len.next_multiple_of(8) + inline_len].into();
        let start = bytes.as_ptr().align_offset(LINE).min(LINE);
        let inline_at = start + kept_len.next_multiple_of(8);
        SendBatch {
            limits,
            inline_below: InlineBelow::new(&limits),
            wqes: vec![Wqe::NONE; capacity].into(),
            len: 0,
            bytes,
            bytes_used: inline_at,
            kept_at: start,
            kept_len,
            inline_at,
            sges: Vec::with_capacity(capacity.saturating_mul(limits.sge_max as usize)),
            sges_used: 0,
        }
    }

    /// The bytes that the sender keeps, whatever becomes of the batch.
    #[inline]
    pub fn kept(&self) -> &[u8] {
        &self.bytes[self.kept_at..][..self.kept_len]
    }

    /// The same, to compose requests in. Those that are in the batch change with them.
    #[inline]
    pub fn kept_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.kept_at..][..self.kept_len]
    }

    /// The limits it was made with.
    #[inline]
    pub fn limits(&self) -> &SendLimits {
        &self.limits
    }

    /// Requests in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Requests that still fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.wqes.len() - self.len
    }

    /// Empties it.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
        self.bytes_used = self.inline_at;
        self.sges_used = 0;
    }

    /// Begins a request that carries its bytes, up to `len_max` of them: [`Draft::bytes`] lends
    /// the room, [`Draft::commit`] appends the request, and dropping the draft abandons it.
    ///
    /// # Errors
    /// `BatchFull`; `InlineTooLong`, `Operation`, `Address`, `Payload`, `TooLong`.
    #[inline(always)]
    pub fn inline(
        &mut self,
        op: Op,
        dest: Option<Dest>,
        len_max: usize,
    ) -> Result<Draft<'_>, PostReason> {
        if !self.takes_inline(&op, dest.is_some(), len_max) {
            return Err(self.refusal(op, dest.is_some(), true, 0, len_max));
        }
        let Some(wqe) = self.wqes.get_mut(self.len) else {
            return Err(PostReason::BatchFull);
        };
        *wqe = Wqe::new(&op, dest);
        wqe.shape |= INLINE;
        wqe.start = self.bytes_used as u32;
        // Every entry so far has used at most its part of the buffer.
        let bytes = lent(&mut self.bytes[self.bytes_used..][..len_max]);
        Ok(Draft {
            wqe,
            is_inline: true,
            bytes,
            len: &mut self.len,
            bytes_used: &mut self.bytes_used,
            sges_used: &mut self.sges_used,
        })
    }

    /// Appends a request that carries a range of the bytes that the sender [keeps](Self::kept), as
    /// they are when the batch is posted.
    ///
    /// # Errors
    /// As [`inline`](Self::inline).
    ///
    /// # Panics
    /// When the range is outside those bytes.
    #[inline(always)]
    pub fn push_kept(
        &mut self,
        op: Op,
        dest: Option<Dest>,
        range: Range<usize>,
        (id, flags): (u64, SendFlags),
    ) -> Result<(), PostReason> {
        self.push_kept_mut(op, dest, range, (id, flags)).map(|_| ())
    }

    /// As [`push_kept`](Self::push_kept), and lends the bytes, which may be composed anew.
    ///
    /// # Errors
    /// As [`inline`](Self::inline).
    ///
    /// # Panics
    /// When the range is outside the bytes that are kept.
    #[inline(always)]
    pub fn push_kept_mut(
        &mut self,
        op: Op,
        dest: Option<Dest>,
        range: Range<usize>,
        (id, flags): (u64, SendFlags),
    ) -> Result<&mut [u8], PostReason> {
        let (len, is_reversed) = range.end.overflowing_sub(range.start);
        let is_there = !is_reversed && range.end <= self.kept_len;
        if !is_there || !self.takes_inline(&op, dest.is_some(), len) {
            return Err(self.kept_refusal(op, dest.is_some(), range));
        }
        let at = self.kept_at + range.start;
        self.append(&op, dest, at..at + len, (id, flags))?;
        Ok(&mut self.bytes[at..at + len])
    }

    /// Appends a request that carries `len` bytes, and lends the room for them: [`inline`](Self::inline)
    /// in one step, for requests that are not abandoned. The room holds bytes of earlier requests, perhaps
    /// to other peers: what the caller does not write goes out as it is.
    ///
    /// # Errors
    /// As [`inline`](Self::inline).
    #[inline(always)]
    pub fn push_inline(
        &mut self,
        op: Op,
        dest: Option<Dest>,
        len: usize,
        (id, flags): (u64, SendFlags),
    ) -> Result<&mut [u8], PostReason> {
        if !self.takes_inline(&op, dest.is_some(), len) {
            return Err(self.refusal(op, dest.is_some(), true, 0, len));
        }
        let at = self.bytes_used;
        self.append(&op, dest, at..at + len, (id, flags))?;
        // The next one's bytes start on a word.
        self.bytes_used = at + ((len + 7) & !7);
        Ok(lent(&mut self.bytes[at..at + len]))
    }

    /// Appends a request that was checked, and carries these bytes of the buffer.
    #[inline(always)]
    fn append(
        &mut self,
        op: &Op,
        dest: Option<Dest>,
        bytes: Range<usize>,
        (id, flags): (u64, SendFlags),
    ) -> Result<(), PostReason> {
        let Some(wqe) = self.wqes.get_mut(self.len) else {
            return Err(PostReason::BatchFull);
        };
        let new = Wqe::new(op, dest);
        *wqe = Wqe {
            id,
            flags,
            start: bytes.start as u32,
            len: (bytes.end - bytes.start) as u32,
            shape: new.shape | INLINE,
            ..new
        };
        self.len += 1;
        Ok(())
    }

    /// Why no queue takes a request with a range of the bytes that are kept.
    ///
    /// # Panics
    /// When there is no such range.
    #[cold]
    #[inline(never)]
    fn kept_refusal(&self, op: Op, has_dest: bool, range: Range<usize>) -> PostReason {
        assert!(
            range.start <= range.end && range.end <= self.kept_len,
            "outside the bytes that are kept"
        );
        self.refusal(op, has_dest, true, 0, range.len())
    }

    /// Whether such a request goes inline. Short for `rules::check_shape`: most of it is known where
    /// this is inlined.
    #[inline(always)]
    fn takes_inline(&self, op: &Op, has_dest: bool, len: usize) -> bool {
        len < self.inline_below.of(op, has_dest)
    }

    /// Has a SEND or WRITE of the batch carry immediate data.
    ///
    /// # Panics
    /// When there is no such request at `index`.
    pub fn set_imm(&mut self, index: usize, imm: u32) {
        let wqe = &mut self.wqes[..self.len][index];
        let carries = matches!(wqe.opcode, WcOpcode::Send | WcOpcode::Write);
        assert!(carries, "an operation without immediate data");
        wqe.imm = imm;
        wqe.shape |= IMM;
    }

    /// Begins a request whose bytes are gathered from (or scattered to) registered memory.
    ///
    /// # Errors
    /// `BatchFull`; `TooManySges`, `Operation`, `Address`, `Payload`, `TooLong`.
    #[inline]
    pub fn gather(
        &mut self,
        op: Op,
        dest: Option<Dest>,
        sges: &[Sge],
    ) -> Result<Draft<'_>, PostReason> {
        let len = match sges {
            [one] => one.len as usize,
            _ => sges.iter().map(|sge| sge.len as usize).sum(),
        };
        rules::check_shape(&self.limits, &op, dest.is_some(), false, sges.len(), len)?;
        let Some(wqe) = self.wqes.get_mut(self.len) else {
            return Err(PostReason::BatchFull);
        };
        // Those of a draft that was abandoned, or of before the last clearing, are behind it.
        self.sges.truncate(self.sges_used);
        *wqe = Wqe::new(&op, dest);
        wqe.start = self.sges_used as u32;
        wqe.count = sges.len() as u32;
        wqe.len = len as u32;
        match sges {
            [one] => self.sges.push(*one),
            _ => self.sges.extend_from_slice(sges),
        }
        Ok(Draft {
            wqe,
            is_inline: false,
            bytes: &mut [],
            len: &mut self.len,
            bytes_used: &mut self.bytes_used,
            sges_used: &mut self.sges_used,
        })
    }

    /// Why no queue with these limits takes a request.
    #[cold]
    #[inline(never)]
    fn refusal(&self, op: Op, has_dest: bool, inline: bool, sges: usize, len: usize) -> PostReason {
        rules::check_shape(&self.limits, &op, has_dest, inline, sges, len)
            .err()
            .unwrap_or(PostReason::Payload)
    }

    /// Appends one request, copying its bytes or elements.
    ///
    /// # Errors
    /// `BatchFull`, or why no such queue takes it.
    #[inline]
    pub fn push(&mut self, wr: &SendWr<'_>) -> Result<(), PostReason> {
        let dest = wr.to.map(Dest::from);
        match wr.payload {
            Payload::Gather(sges) => {
                let draft = self.gather(wr.op, dest, sges)?;
                draft.id(wr.id).flags(wr.flags).commit_gathered();
            }
            Payload::Inline(bytes) => {
                let mut draft = self.inline(wr.op, dest, bytes.len())?;
                draft.bytes().copy_from_slice(bytes);
                draft.id(wr.id).flags(wr.flags).commit(bytes.len());
            }
            Payload::InlineParts(parts) => {
                let len = wr.payload.len();
                let mut draft = self.inline(wr.op, dest, len)?;
                let mut room = draft.bytes();
                for part in parts {
                    let (now, rest) = room.split_at_mut(part.len());
                    now.copy_from_slice(part);
                    room = rest;
                }
                draft.id(wr.id).flags(wr.flags).commit(len);
            }
        }
        Ok(())
    }

    /// Appends a list of requests: those up to the first that is not accepted.
    ///
    /// # Errors
    /// That request's position in the list, and why: `BatchFull` when the batch has no room.
    pub fn extend<'a>(
        &mut self,
        wrs: impl IntoIterator<Item = &'a SendWr<'a>>,
    ) -> Result<(), PostError> {
        for (index, wr) in wrs.into_iter().enumerate() {
            self.push(wr)
                .map_err(|reason| PostError { index, reason })?;
        }
        Ok(())
    }

    /// The entries, for a NIC.
    #[inline]
    pub fn wqes(&self) -> &[Wqe] {
        &self.wqes[..self.len]
    }

    /// The bytes that an entry carries; none when they are gathered.
    #[inline]
    pub fn inline_bytes(&self, wqe: &Wqe) -> &[u8] {
        if !wqe.is_inline() {
            return &[];
        }
        let start = wqe.start as usize;
        &self.bytes[start..start + wqe.len as usize]
    }

    /// The elements that an entry gathers from or scatters to; none when it carries its bytes.
    #[inline]
    pub fn elements(&self, wqe: &Wqe) -> &[Sge] {
        let start = wqe.start as usize;
        match wqe.is_inline() {
            true => &[],
            false => &self.sges[start..start + wqe.count as usize],
        }
    }

    /// An entry as a work request.
    #[inline]
    pub fn request(&self, wqe: &Wqe) -> SendWr<'_> {
        let payload = match wqe.is_inline() {
            true => Payload::Inline(self.inline_bytes(wqe)),
            false => Payload::Gather(self.elements(wqe)),
        };
        let to = match self.limits.transport {
            Transport::Ud => Some(wqe.dest().to),
            _ => None,
        };
        SendWr {
            id: wqe.id,
            op: wqe.op(),
            payload,
            flags: wqe.flags,
            to,
        }
    }

    /// The entries as work requests.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = SendWr<'_>> {
        self.wqes().iter().map(|wqe| self.request(wqe))
    }
}

/// A request under composition, in its place in the batch, of which it is no part yet.
#[derive(Debug)]
#[must_use = "a draft that is not committed is abandoned"]
pub struct Draft<'b> {
    wqe: &'b mut Wqe,
    is_inline: bool,
    bytes: &'b mut [u8],
    len: &'b mut usize,
    bytes_used: &'b mut usize,
    sges_used: &'b mut usize,
}

impl Draft<'_> {
    /// The room for its bytes, `len_max` of them; what they hold is not defined.
    #[inline]
    pub fn bytes(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Sets the number that comes back in the completion.
    #[inline]
    pub fn id(self, id: u64) -> Self {
        self.wqe.id = id;
        self
    }

    /// Sets how it is carried out.
    #[inline]
    pub fn flags(self, flags: SendFlags) -> Self {
        self.wqe.flags = flags;
        self
    }

    /// Appends the request with the first `len` bytes of the room.
    ///
    /// # Panics
    /// When `len` is more than was asked for, or the request gathers.
    #[inline]
    pub fn commit(self, len: usize) {
        assert!(self.is_inline, "a request that gathers has no room");
        assert!(
            len <= self.bytes.len(),
            "longer than the room that was lent"
        );
        self.wqe.len = len as u32;
        // The next one's bytes start on a word.
        *self.bytes_used += (len + 7) & !7;
        *self.len += 1;
    }

    /// Appends a request that gathers.
    ///
    /// # Panics
    /// When the request carries its bytes.
    #[inline]
    pub fn commit_gathered(self) {
        assert!(!self.is_inline, "how many bytes it carries is not said");
        *self.sges_used += self.wqe.count as usize;
        *self.len += 1;
    }
}

/// A RECV as it stands in a batch.
#[derive(Clone, Copy, Debug, Default)]
struct RecvWqe {
    id: u64,
    start: u32,
    count: u32,
}

/// A batch of RECVs. Reused like a [`SendBatch`].
#[derive(Debug, Default)]
pub struct RecvBatch {
    wqes: Vec<RecvWqe>,
    sges: Vec<Sge>,
}

impl RecvBatch {
    /// A batch with memory for so many RECVs of so many elements. It grows if there are more.
    pub fn with_capacity(recvs: usize, sges: usize) -> Self {
        RecvBatch {
            wqes: Vec::with_capacity(recvs),
            sges: Vec::with_capacity(recvs * sges),
        }
    }

    /// Appends a RECV.
    #[inline]
    pub fn push(&mut self, id: u64, sges: &[Sge]) {
        self.wqes.push(RecvWqe {
            id,
            start: self.sges.len() as u32,
            count: sges.len() as u32,
        });
        self.sges.extend_from_slice(sges);
    }

    /// Appends a list of RECVs.
    pub fn extend<'a>(&mut self, wrs: impl IntoIterator<Item = &'a RecvWr<'a>>) {
        for wr in wrs {
            self.push(wr.id, wr.sges);
        }
    }

    /// RECVs in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.wqes.len()
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.wqes.is_empty()
    }

    /// Empties it.
    #[inline]
    pub fn clear(&mut self) {
        self.wqes.clear();
        self.sges.clear();
    }

    /// The RECVs.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RecvWr<'_>> {
        self.wqes.iter().map(|wqe| {
            let start = wqe.start as usize;
            RecvWr {
                id: wqe.id,
                sges: &self.sges[start..start + wqe.count as usize],
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> SendBatch {
        let limits = SendLimits {
            transport: Transport::Rc,
            inline_max: 64,
            sge_max: 2,
            message_len_max: 1 << 20,
        };
        SendBatch::new(limits, 4)
    }

    const SEND: Op = Op::Send { imm: None };

    #[test]
    fn no_range_outside_the_bytes_that_are_kept_goes_out() {
        let limits = *batch().limits();
        let kept = 16;
        // As wrapped around: eight bytes that end four into those that are kept.
        let before = 4usize.wrapping_sub(8)..4;
        let reversed = Range { start: 9, end: 8 };
        for range in [before, reversed, 17..17, 12..20, usize::MAX..usize::MAX] {
            let mut batch = SendBatch::with_kept(limits, 1, kept);
            let said = range.clone();
            let push = || batch.push_kept(SEND, None, range, (0, SendFlags::empty()));
            let pushed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(push));
            let why = pushed.expect_err("refused").downcast::<&str>();
            let why = why.expect("a literal");
            assert_eq!(*why, "outside the bytes that are kept", "{said:?}");
        }
    }

    #[test]
    #[should_panic(expected = "a request that gathers")]
    fn a_request_that_gathers_is_not_committed_with_bytes() {
        let sges = [Sge::default()];
        batch()
            .gather(SEND, None, &sges)
            .expect("drafted")
            .commit(0);
    }

    #[test]
    #[should_panic(expected = "is not said")]
    fn a_request_that_carries_its_bytes_says_how_many() {
        batch()
            .inline(SEND, None, 8)
            .expect("drafted")
            .commit_gathered();
    }
}
