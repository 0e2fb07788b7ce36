//! A queue pair's published entry, as its owner writes it and peers read it.
//!
//! The owner takes the entry's word away before it changes the rest, and gives it a new one
//! afterwards. A peer that finds the same word before and after has read what belongs together; as
//! long as it finds that word again, it need not read the rest.

use verbs::{Access, Gid, Transport};

use crate::shared::layout::{QpEntry, RECEIVES};
use crate::sync::{Ordering, fence};

/// What an entry says besides its word; the fields are those of [`QpEntry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) peer_gid: [u64; 2],
    pub(crate) peer_qpn: u32,
    pub(crate) qkey: u32,
    pub(crate) recv_cq: u32,
    pub(crate) srq: u32,
    pub(crate) channel: u32,
    pub(crate) recv_depth: u32,
    pub(crate) pd: u32,
    pub(crate) epoch_and_timer: u32,
}

impl Pair {
    pub(crate) fn epoch(&self) -> u16 {
        epoch(self.epoch_and_timer)
    }
}

/// The epoch that an entry says.
pub(crate) fn epoch(epoch_and_timer: u32) -> u16 {
    (epoch_and_timer >> 16) as u16
}

/// Says what the queue pair is now. `word` is one that the entry never had, or 0 for a queue pair
/// that peers are to leave alone. Where the word alone changes, it is never missing: a peer that finds
/// none takes the queue pair for one that takes no messages.
pub(crate) fn announce(entry: &QpEntry, word: u64, pair: &Pair) {
    if word != 0 && fields(entry) == *pair {
        entry.word.store(word, Ordering::Release);
        return;
    }
    entry.word.store(0, Ordering::Release);
    // Pairs with the fence in `read`: who finds any of what follows finds the last word gone.
    fence(Ordering::Release);
    entry.peer_gid[0].store(pair.peer_gid[0], Ordering::Relaxed);
    entry.peer_gid[1].store(pair.peer_gid[1], Ordering::Relaxed);
    entry.peer_qpn.store(pair.peer_qpn, Ordering::Relaxed);
    entry.qkey.store(pair.qkey, Ordering::Relaxed);
    entry.recv_cq.store(pair.recv_cq, Ordering::Relaxed);
    entry.srq.store(pair.srq, Ordering::Relaxed);
    entry.channel.store(pair.channel, Ordering::Relaxed);
    entry.recv_depth.store(pair.recv_depth, Ordering::Relaxed);
    entry.pd.store(pair.pd, Ordering::Relaxed);
    entry
        .epoch_and_timer
        .store(pair.epoch_and_timer, Ordering::Relaxed);
    if word != 0 {
        entry.word.store(word, Ordering::Release);
    }
}

/// What the entry says under `word`, which was loaded from it with acquire ordering; `None` when it
/// has changed meanwhile.
pub(crate) fn read(entry: &QpEntry, word: u64) -> Option<Pair> {
    let pair = fields(entry);
    fence(Ordering::Acquire);
    (entry.word.load(Ordering::Relaxed) == word).then_some(pair)
}

fn fields(entry: &QpEntry) -> Pair {
    Pair {
        peer_gid: [
            entry.peer_gid[0].load(Ordering::Relaxed),
            entry.peer_gid[1].load(Ordering::Relaxed),
        ],
        peer_qpn: entry.peer_qpn.load(Ordering::Relaxed),
        qkey: entry.qkey.load(Ordering::Relaxed),
        recv_cq: entry.recv_cq.load(Ordering::Relaxed),
        srq: entry.srq.load(Ordering::Relaxed),
        channel: entry.channel.load(Ordering::Relaxed),
        recv_depth: entry.recv_depth.load(Ordering::Relaxed),
        pd: entry.pd.load(Ordering::Relaxed),
        epoch_and_timer: entry.epoch_and_timer.load(Ordering::Relaxed),
    }
}

/// A GID as an entry holds it.
pub(crate) fn gid_words(gid: Gid) -> [u64; 2] {
    let (low, high) = gid.0.split_at(8);
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    [word(low), word(high)]
}

/// A transport in a word.
pub(crate) fn transport_bits(transport: Transport) -> u64 {
    match transport {
        Transport::Rc => 1,
        Transport::Uc => 2,
        Transport::Ud => 3,
    }
}

/// The rights that a word has room for: all but the optional ones, which give none.
pub(crate) const ACCESS_MASK: u32 = 0xff;
const _: () = assert!(Access::EVERYTHING.bits() & !ACCESS_MASK == 0);

/// The transport that a word says.
pub(crate) fn transport(word: u64) -> Option<Transport> {
    let said = |one: &Transport| transport_bits(*one) == word >> 4 & 0xf;
    [Transport::Rc, Transport::Uc, Transport::Ud]
        .into_iter()
        .find(said)
}

/// The rights that a word says.
#[inline]
pub(crate) fn access(word: u64) -> Access {
    Access::from_bits_truncate((word >> 8) as u32 & ACCESS_MASK)
}

/// Makes a queue pair's word.
pub(crate) fn word(generation: u32, transport: Transport, access: Access, receives: bool) -> u64 {
    u64::from(generation) << 32
        | u64::from(access.bits() & ACCESS_MASK) << 8
        | transport_bits(transport) << 4
        | if receives { RECEIVES } else { 0 }
}
