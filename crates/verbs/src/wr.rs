//! Work requests: what is posted to a queue.

use crate::attr::Access;
use crate::names::{AhNum, Lkey, Qkey, QpNum, RemoteAddr, Rkey};

/// A piece of registered local memory: a scatter/gather element.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Sge {
    /// Virtual address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// The key of the region around it.
    pub lkey: Lkey,
}

/// Where the bytes of a send work request come from, or go to for READs and atomics.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Carried in the request itself; the bytes may be reused once the post returns.
    Inline(&'a [u8]),
    /// Carried in the request itself, gathered from several pieces.
    InlineParts(&'a [&'a [u8]]),
    /// Gathered from (or scattered to) registered memory, which must stay as it is until the
    /// request has completed.
    Gather(&'a [Sge]),
}

impl Payload<'_> {
    /// Bytes in all.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Payload::Inline(bytes) => bytes.len(),
            Payload::InlineParts(parts) => parts.iter().map(|part| part.len()).sum(),
            Payload::Gather(sges) => sges.iter().map(|sge| sge.len as usize).sum(),
        }
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a send work request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Consumes a RECV of the peer.
    Send {
        /// 32 bits for the receiver's completion.
        imm: Option<u32>,
    },
    /// Writes into the peer's memory. With immediate data it also consumes a RECV, after the
    /// data is in place.
    Write {
        /// Where to.
        remote: RemoteAddr,
        /// 32 bits for the receiver's completion.
        imm: Option<u32>,
    },
    /// Reads from the peer's memory.
    Read {
        /// Where from.
        remote: RemoteAddr,
    },
    /// Compares 8 bytes of the peer's memory with `expect` and, if equal, swaps in `swap`. The
    /// value before arrives in the payload. Atomic against other operations of the same NIC.
    CompareSwap {
        /// Where; a multiple of 8.
        remote: RemoteAddr,
        /// The value to compare with.
        expect: u64,
        /// The value to put there.
        swap: u64,
    },
    /// Adds to 8 bytes of the peer's memory; the value before arrives in the payload.
    FetchAdd {
        /// Where; a multiple of 8.
        remote: RemoteAddr,
        /// What to add, wrapping.
        add: u64,
    },
    /// A SEND that takes the peer's key away on its arrival, which the peer's completion says: that of a
    /// window of the second kind bound over the peer's queue pair.
    SendInvalidate {
        /// The peer's key.
        rkey: Rkey,
    },
    /// Binds a memory window of this side, so that peers reach what it covers.
    BindWindow(WindowBind),
    /// Takes the key of a window of the second kind away that was bound over this queue pair.
    LocalInvalidate {
        /// The key.
        rkey: Rkey,
    },
}

/// What a memory window is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowBind {
    /// The window, by the key that it is to have: the window's own but for the low 8 bits, which are the
    /// user's to choose.
    pub rkey: Rkey,
    /// The region, by its local key. It allows windows.
    pub region: Lkey,
    /// The first byte, as work requests name it in the region.
    pub addr: u64,
    /// Bytes. None unbinds a window of the first kind.
    pub len: u64,
    /// What peers may do.
    pub access: Access,
    /// Peers name the first byte 0 instead of `addr`. Windows of the second kind only.
    pub is_zero_based: bool,
}

bitflags::bitflags! {
    /// How a send work request is carried out.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct SendFlags: u8 {
        /// Makes a completion when done. An error makes one in any case.
        const SIGNALED = 1;
        /// Starts only when all READs and atomics before it have completed.
        const FENCE = 1 << 1;
        /// Raises a solicited event at the receiver.
        const SOLICITED = 1 << 2;
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct UdDest {
    /// The peer's port.
    pub ah: AhNum,
    /// The peer's queue pair.
    pub qpn: QpNum,
    /// The peer's queue key.
    pub qkey: Qkey,
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// What to do.
    pub op: Op,
    /// With which bytes.
    pub payload: Payload<'a>,
    /// How.
    pub flags: SendFlags,
    /// Where to (UD only).
    pub to: Option<UdDest>,
}

/// A RECV: room for one incoming message. For UD the first 40 bytes hold the global route header.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// Where the message goes.
    pub sges: &'a [Sge],
}

/// Bytes before the payload in a UD RECV: the global route header.
pub const GRH_LEN: usize = 40;
