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
    pub(super) uc: QueuePair<Uc>,
    pub(super) ah: AddressHandle,
    pub(super) ud_qpn: QpNum,
    pub(super) qkey: Qkey,
    pub(super) results: Box<[Stored]>,
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
}
