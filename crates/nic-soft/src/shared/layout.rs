//! What adapters share, drawn in `docs/design/nic-soft.md`.
//!
//! The *published* segment is written by its owner only; peers map it read-only (sealed so).
//! An *inbox* is written by one peer, for which the owner made it, and mapped by nobody else. The
//! owner trusts nothing in it: whatever is read from there is checked before it is used.
//!
//! All fields are atomics, little-endian as the machine; both ends run on one host.

use crate::sync::{AtomicU32, AtomicU64};

/// `VRVNSOFT`, read as a little-endian word.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"VRVNSOFT");
/// Changes with every change of these layouts.
pub(crate) const VERSION: u32 = 10;

/// Low bits of a queue pair number: its index in the adapter. The bits above are the instance.
pub(crate) const QP_INDEX_BITS: u32 = 14;
/// Queue pairs of an adapter. Indices 0 and 1 stay unused: QP0 and QP1 are not for users.
pub(crate) const QPS: usize = 1 << QP_INDEX_BITS;
/// Adapters that can share a GID.
pub(crate) const INSTANCES: u32 = 1 << (24 - QP_INDEX_BITS);
/// Memory regions of an adapter. A key is `index << 16 | variant`.
pub(crate) const MRS: usize = 1 << 15;
/// Completion queues of an adapter.
pub(crate) const CQS: usize = 1 << 14;
/// Completion channels of an adapter.
pub(crate) const CHANNELS: usize = 1 << 12;
/// Shared receive queues of an adapter.
pub(crate) const SRQS: usize = 1 << 10;
/// Lanes that one peer can open into an adapter.
pub(crate) const LANES: usize = if cfg!(loom) { 2 } else { 1 << 11 };
/// Lanes into one peer that were closed because they were full, and that it has not read yet.
pub(crate) const LEFT_MAX: usize = if cfg!(loom) { 1 } else { 1 << 8 };
/// Bytes of a line, the unit of a lane.
pub(crate) const LINE: usize = 64;
/// Lines of a lane.
pub(crate) const LANE_LINES: usize = if cfg!(loom) { 4 } else { 4096 };
/// Stages of an inbox.
pub(crate) const STAGES: usize = 16;
/// Bytes of a stage.
pub(crate) const STAGE_LEN: usize = 128 << 10;
/// Bytes of a message at most (RC and UC).
pub(crate) const MESSAGE_LEN_MAX: u32 = 1 << 30;
/// RECVs that can be posted to a queue pair.
pub(crate) const RECVS: usize = 4096;

/// The first bytes of both segments.
#[repr(C, align(64))]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) instance: AtomicU32,
    pub(crate) incarnation: AtomicU64,
}

/// A queue pair as peers see it. `word` is stored last with release ordering, so that a peer that
/// finds the word it remembers finds the other fields as it remembers them.
#[repr(C, align(64))]
pub(crate) struct QpEntry {
    /// `generation << 32 | access << 8 | transport << 4 | FLAWED | RECEIVES`; 0 when there is none.
    pub(crate) word: AtomicU64,
    pub(crate) peer_gid: [AtomicU64; 2],
    pub(crate) peer_qpn: AtomicU32,
    pub(crate) qkey: AtomicU32,
    pub(crate) recv_cq: AtomicU32,
    /// Shared receive queue + 1, or 0.
    pub(crate) srq: AtomicU32,
    /// Completion channel of the receive queue + 1, or 0.
    pub(crate) channel: AtomicU32,
    pub(crate) recv_depth: AtomicU32,
    pub(crate) pd: AtomicU32,
    /// Changes when the queue pair starts anew from RESET: what was connected to it before is not
    /// any more. 16 bits of it share a word with the timer code.
    pub(crate) epoch_and_timer: AtomicU32,
    /// RECVs of its own that were used when its peer last ended a lane, or had gone: where a peer that
    /// starts anew begins to count them. Apart from the word.
    pub(crate) received: AtomicU32,
}

/// In `QpEntry::word`: messages are taken.
pub(crate) const RECEIVES: u64 = 1;
/// In `QpEntry::word`: datagrams may meet RECVs whose buffers cannot be used. What fails wakes whoever
/// waits for solicited messages, so senders ring for each as for those.
pub(crate) const FLAWED: u64 = 1 << 1;

/// A memory region as peers see it. `key` is stored last; 0 when there is none.
#[repr(C, align(64))]
pub(crate) struct MrEntry {
    pub(crate) key: AtomicU32,
    pub(crate) access: AtomicU32,
    /// The protection domain, with [`WINDOW`] for a memory window, which is no local memory, or [`ON_DEMAND`].
    pub(crate) pd: AtomicU32,
    /// 1: shared from birth, mapped by peers. 2: private, reached through the kernel.
    pub(crate) kind: AtomicU32,
    /// The address of its first byte in work requests.
    pub(crate) addr: AtomicU64,
    pub(crate) len: AtomicU64,
    /// The address of its first byte in its owner's process.
    pub(crate) start: AtomicU64,
    /// Where its first byte is in its file, if it has one.
    pub(crate) in_file: AtomicU64,
    /// The one queue pair that reaches it; 0 when all of its protection domain do.
    pub(crate) qpn: AtomicU32,
    /// How many times the key was given to something else before, or to the same anew.
    pub(crate) given: AtomicU32,
}

/// In `MrEntry::pd`: a memory window.
pub(crate) const WINDOW: u32 = 1 << 31;
/// In `MrEntry::pd`: a region whose pages come and go. So it is none of the domain to those who look at this word alone, before
/// they use memory without asking whether it is there.
pub(crate) const ON_DEMAND: u32 = 1 << 30;

/// `MrEntry::kind`: a file that peers map.
pub(crate) const KIND_SHARED: u32 = 1;
/// `MrEntry::kind`: private memory, reached with process_vm_readv and process_vm_writev, or by its owner alone.
pub(crate) const KIND_PRIVATE: u32 = 2;

/// A completion queue as peers see it.
#[repr(C, align(64))]
pub(crate) struct CqEntry {
    /// `armings << 2 | what the last one has come to`; `shared/arming.rs` says what.
    pub(crate) armed: AtomicU32,
}

/// A shared receive queue as peers see it.
#[repr(C, align(64))]
pub(crate) struct SrqEntry {
    /// RECVs posted so far.
    pub(crate) posted: AtomicU64,
    /// RECVs consumed so far.
    pub(crate) consumed: AtomicU64,
    /// The room of the longest RECV that was ever posted, whatever its buffers.
    pub(crate) longest: AtomicU32,
    /// That of the shortest one; nothing, if the buffers of any could not be used.
    pub(crate) shortest: AtomicU32,
}

/// One RECV's credit: `(sequence number + 1) << 32 | length`, with `CREDIT_BAD` when its
/// buffers cannot be used. A queue pair that receives from a shared queue has none; its first word says
/// how many RECVs it has taken from there.
pub(crate) type Credit = AtomicU64;

/// In a credit's length: the RECV's scatter list names memory it may not write.
pub(crate) const CREDIT_BAD: u32 = 1 << 31;

/// The published segment. Sparse: what is not used takes no memory.
#[repr(C, align(4096))]
pub(crate) struct Published {
    pub(crate) header: Header,
    pub(crate) cqs: [CqEntry; CQS],
    pub(crate) srqs: [SrqEntry; SRQS],
    pub(crate) qps: [QpEntry; QPS],
    pub(crate) mrs: [MrEntry; MRS],
    pub(crate) credits: [[Credit; RECVS]; QPS],
}

/// How far the receiver has come in a lane. The receiver writes it and never reads it: the sender
/// could write here too, and would mislead nobody but itself.
#[repr(C, align(64))]
pub(crate) struct LaneHead {
    /// Lines consumed since the lane was opened.
    pub(crate) consumed: AtomicU64,
    /// How many times the lane was opened and given back.
    pub(crate) released: AtomicU32,
}

/// What the sender says of a lane besides its messages.
#[repr(C, align(64))]
pub(crate) struct LaneTail {
    /// How many times the lane was opened and closed.
    pub(crate) closed: AtomicU32,
}

/// A line of a lane: the header of a message, or bytes of one.
///
/// ```text
///  0        2     3      4        8       12      16                 64
///  | lap u16|kind |flags | len u32| imm u32| - u32 | payload ...      |
/// ```
#[repr(C, align(64))]
pub(crate) struct Line {
    /// `len << 32 | flags << 24 | kind << 16 | lap`, stored last.
    pub(crate) word: AtomicU64,
    pub(crate) imm: AtomicU32,
    pub(crate) reserved: AtomicU32,
    pub(crate) payload: [AtomicU64; 6],
}

/// Bytes before a message's payload.
pub(crate) const MESSAGE_HEADER_LEN: usize = 16;

/// One peer's inbox. Sparse as well.
#[repr(C, align(4096))]
pub(crate) struct Inbox {
    pub(crate) header: Header,
    /// How many times lanes of the inbox were given back. The owner writes it, as it does `heads`.
    pub(crate) given_back: AtomicU32,
    pub(crate) heads: [LaneHead; LANES],
    pub(crate) tails: [LaneTail; LANES],
    pub(crate) lines: [LaneLines; LANES],
    pub(crate) stages: [Stage; STAGES],
}

/// A lane's ring. Whole pages, so that a lane's memory can be given back.
#[repr(C, align(4096))]
pub(crate) struct LaneLines(pub(crate) [Line; LANE_LINES]);

/// Where bytes lie between a peer and memory that only its owner, who is also the inbox's, can reach. Written by
/// either, one at a time: the peer until it asks for a copy, the owner until it answers.
#[repr(C, align(4096))]
pub(crate) struct Stage(pub(crate) [AtomicU64; STAGE_LEN / 8]);

/// What a message in a lane is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Fills the lines up to the lane's end.
    Pad = 1,
    /// A piece of a SEND.
    Send = 2,
    /// A WRITE with immediate data has been done; `len` bytes.
    WriteImm = 3,
    /// A SEND longer than the RECV for it; `len` bytes, not carried.
    TooLong = 4,
    /// A SEND for a RECV whose buffers cannot be used.
    BadRecv = 5,
    /// The sender writes no more.
    Close = 6,
    /// The end of a SEND, without bytes, which takes the key away that stands in place of immediate data.
    SendEnd = 7,
}

impl Kind {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Kind::Pad,
            2 => Kind::Send,
            3 => Kind::WriteImm,
            4 => Kind::TooLong,
            5 => Kind::BadRecv,
            6 => Kind::Close,
            7 => Kind::SendEnd,
            _ => return None,
        })
    }
}

/// Message flag: the first piece.
pub(crate) const FIRST: u8 = 1;
/// Message flag: the last piece.
pub(crate) const LAST: u8 = 1 << 1;
/// Message flag: carries immediate data.
pub(crate) const IMM: u8 = 1 << 2;
/// Message flag: raises a solicited event.
pub(crate) const SOLICITED: u8 = 1 << 3;

/// Flag of [`Kind::Close`]: what comes next, perhaps in the middle of a message, comes through another
/// lane that was announced before.
pub(crate) const GOES_ON: u8 = 1;
/// Flag of [`Kind::Close`]: the sender found that this connection must fail.
pub(crate) const FAILS: u8 = 1 << 1;

/// The index of a queue pair in its adapter.
pub(crate) fn qp_index(qpn: u32) -> usize {
    (qpn & ((1 << QP_INDEX_BITS) - 1)) as usize
}

/// The instance a queue pair number belongs to.
pub(crate) fn qp_instance(qpn: u32) -> u32 {
    (qpn & 0x00ff_ffff) >> QP_INDEX_BITS
}

/// The region index in a key.
pub(crate) fn mr_index(key: u32) -> usize {
    (key >> 16) as usize
}

// Loom's atomics are larger.
#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Header>() == 64);
    assert!(size_of::<QpEntry>() == 64);
    assert!(size_of::<MrEntry>() == 64);
    assert!(size_of::<CqEntry>() == 64);
    assert!(size_of::<LaneHead>() == 64);
    assert!(size_of::<LaneTail>() == 64);
    assert!(size_of::<LaneLines>() == LANE_LINES * LINE);
    assert!(size_of::<Line>() == LINE);
    assert!(size_of::<Stage>() == STAGE_LEN);
    assert!(MRS <= 1 << 16);
    assert!(cfg!(target_endian = "little"));
};
