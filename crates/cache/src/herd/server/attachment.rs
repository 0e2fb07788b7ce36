//! What a core holds of a client.

use verbs::typed::{AddressHandle, QueuePair, Uc};
use verbs::{Qkey, QpNum};

use crate::herd::memory::Chunk;
use crate::herd::slots::Geometry;
use crate::herd::wire::answer::Head;

/// How a mutation ended, kept until its slot is used again, so that a repeat is answered and not
/// carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    /// The answer's head; `head.id` is 0 where there is none yet.
    pub(super) head: Head,
    /// The body, with `head.is_number`.
    pub(super) number: u64,
}

/// A client's connection to one core: made by the [`Acceptor`](super::Acceptor) on a control
/// thread, used by the core's [`Server`](super::Server), and given back to the acceptor.
#[derive(Debug)]
pub struct Attachment {
    pub(super) client: u32,
    pub(super) core: u32,
    /// Where the client writes its requests to this core.
    pub(super) chunk: Chunk,
    pub(super) geometry: Geometry,
    /// The id of its first request.
    pub(super) first_id: u32,
    pub(super) uc: QueuePair<Uc>,
    pub(super) ah: AddressHandle,
    pub(super) ud_qpn: QpNum,
    pub(super) qkey: Qkey,
    pub(super) results: Box<[Stored]>,
    /// For each slot, the id of its request that waits for the engine, or 0.
    pub(super) pending: Box<[u32]>,
    /// How many of the client's requests wait.
    pub(super) pending_count: u32,
}

impl Attachment {
    /// The client's number.
    pub fn client(&self) -> u32 {
        self.client
    }

    /// The core it belongs to.
    pub fn core(&self) -> u32 {
        self.core
    }

    /// Whether this request waits for the engine.
    pub(super) fn is_pending(&self, id: u32) -> bool {
        self.pending[self.geometry.slot(id)] == id
    }

    /// How many more of its requests may wait.
    pub(super) fn room(&self) -> u16 {
        (self.geometry.window as u32).saturating_sub(self.pending_count) as u16
    }

    /// Who asks, as engines know it: the numbers of other doors' connections have another first bit.
    #[inline]
    pub(super) fn connection(&self) -> u64 {
        1 << 63 | u64::from(self.client)
    }
}
