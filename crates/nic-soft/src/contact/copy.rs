//! Copies to and from memory that only its owner can reach, as they are asked for: its agent makes them
//! ([`crate::contact::delegated`]), through a stage of the inbox that it has made for whoever asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use verbs::{Access, Gid, QpNum};

use crate::contact::protocol::{KIND_SHIFT, Message, OP_COPY, to_qp};
use crate::shared::layout::{STAGE_LEN, STAGES};

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// From the stage to the region.
    Write,
    /// From the region to the stage.
    Read,
}

/// A copy as its sender asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CopyRequest {
    /// The queue pair over which it is asked for.
    pub(crate) qpn: u32,
    /// The region's key.
    pub(crate) key: u32,
    /// The first byte's address, as work requests name it.
    pub(crate) addr: u64,
    /// 1 to [`STAGE_LEN`].
    pub(crate) len: usize,
    /// The stage's number, below [`STAGES`].
    pub(crate) stage: usize,
    pub(crate) way: Way,
}

const WRITE: u32 = 1;
const READ: u32 = 2;

impl CopyRequest {
    /// The right that it needs.
    pub(crate) fn needed(&self) -> Access {
        match self.way {
            Way::Write => Access::REMOTE_WRITE,
            Way::Read => Access::REMOTE_READ,
        }
    }

    pub(crate) fn message(&self) -> Message {
        let kind = match self.way {
            Way::Write => WRITE,
            Way::Read => READ,
        };
        let mut gid = Gid::default();
        gid.0[..4].copy_from_slice(&(self.stage as u32).to_le_bytes());
        gid.0[4..8].copy_from_slice(&(self.len as u32).to_le_bytes());
        Message::operands(OP_COPY, self.key, to_qp(self.qpn, kind), self.addr, gid)
    }

    /// `None` for a message that asks for no copy that there could be.
    pub(crate) fn of(message: &Message) -> Option<Self> {
        let word =
            |at: usize| u32::from_le_bytes(std::array::from_fn(|i| message.gid.0[at + i])) as usize;
        let (stage, len) = (word(0), word(4));
        let way = match message.b >> KIND_SHIFT {
            WRITE => Way::Write,
            READ => Way::Read,
            _ => return None,
        };
        let can_be = stage < STAGES && (1..=STAGE_LEN).contains(&len);
        can_be.then_some(CopyRequest {
            qpn: message.b & QpNum::MAX.0,
            key: message.a,
            addr: message.c,
            len,
            stage,
            way,
        })
    }
}

/// Which stages of an inbox are taken, as the one who writes the inbox counts them.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    /// A bit for each that is.
    taken: AtomicU32,
}

const _: () = assert!(STAGES <= u32::BITS as usize);

impl Stages {
    /// Takes one, if any is free.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Staged> {
        let free = |taken: u32| {
            let number = taken.trailing_ones();
            ((number as usize) < STAGES).then_some(taken | 1 << number)
        };
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        let before = self.taken.fetch_update(success, failure, free).ok()?;
        Some(Staged {
            stages: Arc::clone(self),
            number: before.trailing_ones() as usize,
        })
    }
}

/// A stage that is taken, until this is dropped.
#[derive(Debug)]
pub(crate) struct Staged {
    stages: Arc<Stages>,
    number: usize,
}

impl Staged {
    pub(crate) fn number(&self) -> usize {
        self.number
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let others = !(1u32 << self.number);
        self.stages.taken.fetch_and(others, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: CopyRequest = CopyRequest {
        qpn: QpNum::MAX.0,
        key: 7 << 16 | 3,
        addr: u64::MAX - 7,
        len: STAGE_LEN,
        stage: STAGES - 1,
        way: Way::Write,
    };

    #[test]
    fn requests_read_back_and_others_are_none() {
        let read = CopyRequest {
            len: 1,
            way: Way::Read,
            ..REQUEST
        };
        for request in [REQUEST, read] {
            assert_eq!(CopyRequest::of(&request.message()), Some(request));
        }
        for (stage, len) in [(STAGES, 1), (0, 0), (0, STAGE_LEN + 1)] {
            let wrong = CopyRequest {
                stage,
                len,
                ..REQUEST
            };
            assert_eq!(CopyRequest::of(&wrong.message()), None);
        }
        let mut message = REQUEST.message();
        for kind in [0, 3, 0xff] {
            message.b = kind << KIND_SHIFT;
            assert_eq!(CopyRequest::of(&message), None);
        }
    }

    #[test]
    fn a_stage_is_taken_once_until_it_is_dropped() {
        let stages = Arc::new(Stages::default());
        let mut taken: Vec<_> = std::iter::from_fn(|| stages.take()).collect();
        let numbers: Vec<_> = taken.iter().map(Staged::number).collect();
        assert_eq!(numbers, Vec::from_iter(0..STAGES));
        drop(taken.remove(5));
        assert_eq!(stages.take().map(|one| one.number()), Some(5));
        drop(taken);
        assert_eq!(stages.take().map(|one| one.number()), Some(0));
    }
}
