//! Atomics on memory that its owner does not share, as they are asked for: its agent carries them out
//! ([`crate::contact::delegated`]), with the instruction that everybody uses on shared memory.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use verbs::Gid;

use crate::contact::over::Over;
use crate::contact::protocol::{Message, OP_ATOMIC};

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
    /// The connection over which it is asked for.
    pub(crate) over: Over,
    /// The region's key.
    pub(crate) key: u32,
    /// The word's address, as work requests name it.
    pub(crate) addr: u64,
    pub(crate) change: Change,
}

/// Which change it is, as a message says it.
const COMPARE_SWAP: u32 = 1;
const FETCH_ADD: u32 = 2;

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
        let request = Message::operands(OP_ATOMIC, self.key, 0, self.addr, gid);
        self.over.put(kind, request)
    }

    /// `None` for a message that asks for no atomic.
    pub(crate) fn of(message: &Message) -> Option<Self> {
        let operand =
            |at: usize| u64::from_le_bytes(std::array::from_fn(|i| message.gid.0[at + i]));
        let (over, kind) = Over::of(message);
        let change = match kind {
            COMPARE_SWAP => Change::CompareSwap {
                expect: operand(0),
                swap: operand(8),
            },
            FETCH_ADD => Change::FetchAdd { add: operand(0) },
            _ => return None,
        };
        Some(AtomicRequest {
            over,
            key: message.a,
            addr: message.c,
            change,
        })
    }
}

#[cfg(test)]
mod tests {
    use verbs::QpNum;

    use super::*;
    use crate::contact::over::KIND_SHIFT;

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
                over: Over {
                    qpn: QpNum::MAX.0,
                    epoch: 0,
                    from_epoch: u16::MAX,
                },
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
}
