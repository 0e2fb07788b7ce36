//! Copies to and from memory that only its owner can reach, as they are asked for: its agent makes them
//! ([`crate::contact::delegated`]), through a stage of the inbox that it has made for whoever asks.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use verbs::{Access, Gid};

use crate::contact::over::Over;
use crate::contact::protocol::{Message, OP_COPY};
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
    /// The connection over which it is asked for.
    pub(crate) over: Over,
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
        let request = Message::operands(OP_COPY, self.key, 0, self.addr, gid);
        self.over.put(kind, request)
    }

    /// `None` for a message that asks for no copy that there could be.
    pub(crate) fn of(message: &Message) -> Option<Self> {
        let word =
            |at: usize| u32::from_le_bytes(std::array::from_fn(|i| message.gid.0[at + i])) as usize;
        let (stage, len) = (word(0), word(4));
        let (over, kind) = Over::of(message);
        let way = match kind {
            WRITE => Way::Write,
            READ => Way::Read,
            _ => return None,
        };
        let can_be = stage < STAGES && (1..=STAGE_LEN).contains(&len);
        can_be.then_some(CopyRequest {
            over,
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
    /// Those who wait for one.
    waiting: AtomicU32,
    /// When one was last given back: the peer answers.
    freed: Mutex<Option<Instant>>,
}

const _: () = assert!(STAGES <= u32::BITS as usize);

impl Stages {
    /// Takes one, if any is free. Whoever gets none waits, and comes before those who have not waited: one that gives its
    /// stage back, and wants one again, does not take it from under the others.
    pub(crate) fn take(self: &Arc<Self>, waits: &mut Option<Waits>) -> Option<Staged> {
        let free = |taken: u32| {
            let number = taken.trailing_ones();
            ((number as usize) < STAGES).then_some(taken | 1 << number)
        };
        let free_count = STAGES - self.taken.load(Ordering::Relaxed).count_ones() as usize;
        let comes_after = self.waiting.load(Ordering::Relaxed) as usize >= free_count;
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        let before = match waits.is_none() && comes_after {
            true => None,
            false => self.taken.fetch_update(success, failure, free).ok(),
        };
        let Some(before) = before else {
            waits.get_or_insert_with(|| Waits::for_one_of(self));
            return None;
        };
        *waits = None;
        Some(Staged {
            stages: Arc::clone(self),
            number: before.trailing_ones() as usize,
        })
    }

    fn freed(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a stage, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waits {
    stages: Arc<Stages>,
    since: Instant,
}

impl Waits {
    fn for_one_of(stages: &Arc<Stages>) -> Self {
        stages.waiting.fetch_add(1, Ordering::Relaxed);
        Waits {
            stages: Arc::clone(stages),
            since: Instant::now(),
        }
    }

    /// Since when the peer has answered nobody, as far as this one has waited.
    pub(crate) fn since(&self) -> Instant {
        let freed = *self.stages.freed();
        freed.map_or(self.since, |freed| freed.max(self.since))
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.stages.waiting.fetch_sub(1, Ordering::Relaxed);
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
        *self.stages.freed() = Some(Instant::now());
        let others = !(1u32 << self.number);
        self.stages.taken.fetch_and(others, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use verbs::QpNum;

    use super::*;
    use crate::contact::over::KIND_SHIFT;

    const REQUEST: CopyRequest = CopyRequest {
        over: Over {
            qpn: QpNum::MAX.0,
            epoch: u16::MAX,
            from_epoch: 7,
        },
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
        let take = || stages.take(&mut None);
        let mut taken: Vec<_> = std::iter::from_fn(take).collect();
        let numbers: Vec<_> = taken.iter().map(Staged::number).collect();
        assert_eq!(numbers, Vec::from_iter(0..STAGES));
        drop(taken.remove(5));
        assert_eq!(take().map(|one| one.number()), Some(5));
        drop(taken);
        assert_eq!(take().map(|one| one.number()), Some(0));
    }

    #[test]
    fn who_has_waited_for_a_stage_comes_before_who_gives_one_back() {
        let stages = Arc::new(Stages::default());
        let mut taken: Vec<_> = std::iter::from_fn(|| stages.take(&mut None)).collect();
        let (mut first, mut second) = (None, None);
        assert!(stages.take(&mut first).is_none() && first.is_some());
        let began = first.as_ref().expect("it waits").since();
        while Instant::now() == began {}
        drop(taken.pop());
        let since = first.as_ref().expect("it waits").since();
        assert!(since > began, "the peer answers");
        // Whoever has given it back.
        assert!(stages.take(&mut second).is_none() && second.is_some());
        assert!(stages.take(&mut first).is_some() && first.is_none());
        assert!(stages.take(&mut second).is_some());
        // Who gives up holds nobody up.
        taken.clear();
        let held: Vec<_> = (1..STAGES).map(|_| stages.take(&mut None)).collect();
        assert!(held.iter().all(Option::is_some));
        first = Some(Waits::for_one_of(&stages));
        assert!(stages.take(&mut None).is_none());
        drop(first);
        assert!(stages.take(&mut None).is_some());
    }
}
