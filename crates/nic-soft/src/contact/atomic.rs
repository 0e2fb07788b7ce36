//! Atomics on memory that its owner does not share: the owner's agent carries them out, with the
//! instruction that everybody uses on shared memory.
//!
//! A request is sent once, over a connection that neither loses nor repeats anything, so it is carried
//! out once or, if the connection ends, not at all. Whoever asked and does not hear of it does not know.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use verbs::{Gid, QpNum};

use crate::contact::adapter::Adapter;
use crate::contact::protocol::{Message, OP_ATOMIC, STATUS_OK, STATUS_REFUSED};
use crate::shared::cause::Cause;

/// What becomes of the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    CompareSwap { expect: u64, swap: u64 },
    FetchAdd { add: u64 },
}

impl Change {
    /// Makes it, and returns the word before.
    pub(crate) fn make(self, word: &AtomicU64) -> u64 {
        match self {
            Change::CompareSwap { expect, swap } => {
                match word.compare_exchange(expect, swap, AcqRel, Acquire) {
                    Ok(before) | Err(before) => before,
                }
            }
            Change::FetchAdd { add } => word.fetch_add(add, AcqRel),
        }
    }
}

/// An atomic as its sender asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AtomicRequest {
    /// The queue pair that it goes to.
    pub(crate) qpn: u32,
    /// The region's key.
    pub(crate) key: u32,
    /// The word's address, as work requests name it.
    pub(crate) addr: u64,
    pub(crate) change: Change,
}

/// Above the queue pair's number in a message: which change it is.
const COMPARE_SWAP: u32 = 1;
const FETCH_ADD: u32 = 2;
const KIND_SHIFT: u32 = 24;
const _: () = assert!(QpNum::MAX.0 >> KIND_SHIFT == 0);

impl AtomicRequest {
    pub(crate) fn message(&self) -> Message {
        let (kind, operands) = match self.change {
            Change::CompareSwap { expect, swap } => (COMPARE_SWAP, [expect, swap]),
            Change::FetchAdd { add } => (FETCH_ADD, [add, 0]),
        };
        let mut gid = Gid::default();
        let (first, second) = gid.0.split_at_mut(8);
        first.copy_from_slice(&operands[0].to_le_bytes());
        second.copy_from_slice(&operands[1].to_le_bytes());
        let to = self.qpn | kind << KIND_SHIFT;
        Message::operands(OP_ATOMIC, self.key, to, self.addr, gid)
    }

    /// `None` for a message that asks for no atomic.
    pub(crate) fn of(message: &Message) -> Option<Self> {
        let operand =
            |at: usize| u64::from_le_bytes(std::array::from_fn(|i| message.gid.0[at + i]));
        let change = match message.b >> KIND_SHIFT {
            COMPARE_SWAP => Change::CompareSwap {
                expect: operand(0),
                swap: operand(8),
            },
            FETCH_ADD => Change::FetchAdd { add: operand(0) },
            _ => return None,
        };
        Some(AtomicRequest {
            qpn: message.b & QpNum::MAX.0,
            key: message.a,
            addr: message.c,
            change,
        })
    }
}

/// The answer: the word before, or why nothing was done.
pub(crate) fn answer(outcome: Result<u64, Cause>) -> Message {
    match outcome {
        Ok(before) => Message::operands(STATUS_OK, 0, 0, before, Gid::default()),
        Err(cause) => Message::operands(STATUS_REFUSED, cause as u32, 0, 0, Gid::default()),
    }
}

/// An atomic that a peer was asked for, or is to be.
#[derive(Debug)]
pub(crate) struct AtomicQuestion {
    request: AtomicRequest,
    /// When whoever asks began to wait.
    since: Instant,
    is_sent: AtomicBool,
    answer: OnceLock<Result<u64, Cause>>,
}

impl AtomicQuestion {
    pub(crate) fn new(request: AtomicRequest) -> Self {
        AtomicQuestion {
            request,
            since: Instant::now(),
            is_sent: AtomicBool::new(false),
            answer: OnceLock::new(),
        }
    }

    pub(crate) fn message(&self) -> Message {
        self.request.message()
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent.load(Relaxed)
    }

    pub(crate) fn note_sent(&self) {
        self.is_sent.store(true, Relaxed);
    }

    /// The word before, or why it was refused, once that is known.
    pub(crate) fn outcome(&self) -> Option<Result<u64, Cause>> {
        self.answer.get().copied()
    }

    /// Takes the peer's answer; false when it is none.
    pub(crate) fn take(&self, reply: &Message) -> bool {
        let outcome = match reply.code {
            STATUS_OK => Some(Ok(reply.c)),
            STATUS_REFUSED => refusal(reply.a).map(Err),
            _ => None,
        };
        let is_right = outcome.is_some();
        // It is asked once, and answered once.
        let _ = self.answer.set(outcome.unwrap_or(Err(Cause::RemoteMemory)));
        is_right
    }

    /// Whether whoever asked has waited long enough.
    pub(crate) fn is_overdue(&self, adapter: &Adapter) -> bool {
        self.since.elapsed() >= adapter.contact_timeout
    }
}

/// What a peer may say of why it has refused an atomic.
const REFUSALS: [Cause; 9] = [
    Cause::PeerNotReady,
    Cause::QueuePairRight,
    Cause::RemoteKey,
    Cause::RemoteDomain,
    Cause::RemoteRight,
    Cause::RemoteRange,
    Cause::RemotePages,
    Cause::Misaligned,
    Cause::OutOfAtomics,
];

fn refusal(number: u32) -> Option<Cause> {
    REFUSALS.into_iter().find(|cause| *cause as u32 == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_back() {
        let changes = [
            Change::CompareSwap {
                expect: u64::MAX - 1,
                swap: 0x0123_4567_89ab_cdef,
            },
            Change::FetchAdd { add: u64::MAX },
        ];
        for change in changes {
            let request = AtomicRequest {
                qpn: QpNum::MAX.0,
                key: 7 << 16 | 3,
                addr: u64::MAX - 7,
                change,
            };
            assert_eq!(AtomicRequest::of(&request.message()), Some(request));
        }
        for kind in [0, 3, 0xff] {
            let none = Message::operands(OP_ATOMIC, 1, kind << KIND_SHIFT, 8, Gid::default());
            assert_eq!(AtomicRequest::of(&none), None);
        }
    }

    #[test]
    fn answers_read_back_and_other_answers_are_refusals() {
        let request = AtomicRequest {
            qpn: 2,
            key: 1 << 16 | 1,
            addr: 8,
            change: Change::FetchAdd { add: 1 },
        };
        let mut outcomes: Vec<_> = REFUSALS.map(Err).to_vec();
        outcomes.extend([Ok(0), Ok(u64::MAX)]);
        for outcome in outcomes {
            let question = AtomicQuestion::new(request);
            assert_eq!(question.outcome(), None);
            assert!(question.take(&answer(outcome)));
            assert_eq!(question.outcome(), Some(outcome));
        }
        // Not of what only this side can know.
        let wrong = [
            answer(Err(Cause::LocalKey)),
            answer(Err(Cause::PeerGone)),
            Message::operands(77, 0, 0, 0, Gid::default()),
        ];
        for reply in wrong {
            let question = AtomicQuestion::new(request);
            assert!(!question.take(&reply));
            assert_eq!(question.outcome(), Some(Err(Cause::RemoteMemory)));
        }
    }
}
