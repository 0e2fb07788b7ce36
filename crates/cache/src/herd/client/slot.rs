//! What a client remembers of a request in flight.

use crate::herd::wire::request::Op;

/// In `Slot::transfer`: a request of its own.
pub(super) const NO_TRANSFER: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Free,
    /// Composed and in the batch, not yet posted.
    Queued,
    /// Under way.
    Sent,
    /// Nobody waits for the answer any more, but the server must still come past it.
    Abandoned,
}

/// Whether it is one of the usual requests: a GET or a SET that is no part of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Usual {
    Get,
    Set,
    No,
}

impl Usual {
    /// That of a request that is no part of a transfer.
    #[inline(always)]
    pub(super) fn of(op: Op) -> Self {
        match op {
            Op::Get => Usual::Get,
            Op::Set => Usual::Set,
            _ => Usual::No,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) tag: u64,
    pub(super) posted_ns: u64,
    pub(super) deadline_ns: u64,
    pub(super) retry_at_ns: u64,
    pub(super) id: u32,
    pub(super) piece: (u32, u32),
    pub(super) state: State,
    pub(super) op: Op,
    pub(super) usual: Usual,
    pub(super) len: u16,
    /// Repeats whose completions have not come: until then the NIC may read the slot's memory.
    pub(super) repeats_in_flight: u16,
    pub(super) doublings: u16,
    pub(super) transfer: u32,
    pub(super) generation: u16,
}

pub(super) const FREE: Slot = Slot {
    tag: 0,
    posted_ns: 0,
    deadline_ns: 0,
    retry_at_ns: 0,
    id: 0,
    piece: (0, 0),
    state: State::Free,
    op: Op::Noop,
    usual: Usual::No,
    len: 0,
    repeats_in_flight: 0,
    doublings: 0,
    transfer: NO_TRANSFER,
    generation: 0,
};

const _: () = assert!(size_of::<Slot>() == 64);

impl Slot {
    /// Whether the next request may lie there.
    #[inline(always)]
    pub(super) fn is_unused(&self) -> bool {
        self.state == State::Free && self.repeats_in_flight == 0
    }
}
