//! Operations on a peer's memory that only the peer's process can carry out: its agent does.
//!
//! A request is sent once, over a connection that neither loses nor repeats anything, so it is carried
//! out once or, if the connection ends, not at all. Whoever asked and does not hear of it does not know.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use verbs::{Access, Gid};

use crate::contact::adapter::Adapter;
use crate::contact::atomic::AtomicRequest;
use crate::contact::copy::{CopyRequest, Staged};
use crate::contact::over::Over;
use crate::contact::protocol::{Message, OP_ATOMIC, OP_COPY, STATUS_OK, STATUS_REFUSED};
use crate::contact::question::QUESTIONS_MAX;
use crate::shared::cause::Cause;
use crate::shared::layout::STAGES;

// Whoever may ask for one more copy finds a stage for it, but for those whose answers nobody has taken up yet.
const _: () = assert!(STAGES >= QUESTIONS_MAX);

/// What a peer is asked to carry out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delegated {
    /// An atomic, which the kernel does not make on another process's memory.
    Atomic(AtomicRequest),
    /// A piece of a WRITE or of a READ, for a process for which the kernel does not copy.
    Copy(CopyRequest),
}

impl Delegated {
    fn message(&self) -> Message {
        match self {
            Delegated::Atomic(request) => request.message(),
            Delegated::Copy(request) => request.message(),
        }
    }

    /// The connection over which it is asked for.
    pub(crate) fn over(&self) -> Over {
        match self {
            Delegated::Atomic(request) => request.over,
            Delegated::Copy(request) => request.over,
        }
    }

    /// The right that it needs.
    pub(crate) fn needed(&self) -> Access {
        match self {
            Delegated::Atomic(_) => Access::REMOTE_ATOMIC,
            Delegated::Copy(request) => request.needed(),
        }
    }

    /// `None` for a message that asks for nothing of the kind.
    pub(crate) fn of(message: &Message) -> Option<Self> {
        match message.code {
            OP_ATOMIC => AtomicRequest::of(message).map(Delegated::Atomic),
            OP_COPY => CopyRequest::of(message).map(Delegated::Copy),
            _ => None,
        }
    }
}

/// The answer: the word before an atomic, or why nothing was done.
pub(crate) fn answer(outcome: Result<u64, Cause>) -> Message {
    match outcome {
        Ok(before) => Message::operands(STATUS_OK, 0, 0, before, Gid::default()),
        Err(cause) => Message::operands(STATUS_REFUSED, cause as u32, 0, 0, Gid::default()),
    }
}

/// How long a queue pair waits for what its peer's process is to carry out: as its attributes say, and for the contact
/// time-out at least, because processes take longer to answer than cards do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    AtLeast(Duration),
    ForEver,
}

impl Patience {
    pub(crate) fn is_over(self, adapter: &Adapter, since: Instant) -> bool {
        match self {
            Patience::AtLeast(time) => since.elapsed() >= time.max(adapter.contact_timeout),
            Patience::ForEver => false,
        }
    }
}

/// What a peer was asked to carry out, or is to be.
#[derive(Debug)]
pub(crate) struct DelegatedQuestion {
    request: Delegated,
    /// The stage of a copy: nobody else's before the answer has come, though nobody may wait for it any more.
    stage: Option<Staged>,
    /// When whoever asks began to wait.
    since: Instant,
    is_sent: AtomicBool,
    answer: OnceLock<Result<u64, Cause>>,
}

impl DelegatedQuestion {
    pub(crate) fn new(request: Delegated, stage: Option<Staged>, since: Instant) -> Self {
        DelegatedQuestion {
            request,
            stage,
            since,
            is_sent: AtomicBool::new(false),
            answer: OnceLock::new(),
        }
    }

    pub(crate) fn request(&self) -> &Delegated {
        &self.request
    }

    pub(crate) fn stage(&self) -> Option<&Staged> {
        self.stage.as_ref()
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
    pub(crate) fn is_overdue(&self, adapter: &Adapter, patience: Patience) -> bool {
        patience.is_over(adapter, self.since)
    }
}

/// What a peer may say of why it has refused one.
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
    use crate::contact::atomic::Change;

    #[test]
    fn patience_is_the_longer_of_two_times() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let adapter = crate::testing::adapter_without_agent(run_dir.path());
        let second = adapter.contact_timeout;
        let before = |time| Instant::now().checked_sub(time).expect("the machine runs");
        let is_over = |patience: Patience, time| patience.is_over(&adapter, before(time));
        let at_once = Patience::AtLeast(Duration::ZERO);
        assert!(is_over(at_once, second));
        // Nobody stands still for so long.
        assert!(!at_once.is_over(&adapter, Instant::now() + 3600 * second));
        let longer = Patience::AtLeast(10_000 * second);
        assert!(!is_over(longer, second));
        assert!(!is_over(Patience::ForEver, second));
    }

    #[test]
    fn answers_read_back_and_other_answers_are_refusals() {
        let request = Delegated::Atomic(AtomicRequest {
            over: Over {
                qpn: 2,
                epoch: 0,
                from_epoch: 0,
            },
            key: 1 << 16 | 1,
            addr: 8,
            change: Change::FetchAdd { add: 1 },
        });
        let asked = || DelegatedQuestion::new(request, None, Instant::now());
        let mut outcomes: Vec<_> = REFUSALS.map(Err).to_vec();
        outcomes.extend([Ok(0), Ok(u64::MAX)]);
        for outcome in outcomes {
            let question = asked();
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
            let question = asked();
            assert!(!question.take(&reply));
            assert_eq!(question.outcome(), Some(Err(Cause::RemoteMemory)));
        }
    }
}
