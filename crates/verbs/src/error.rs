//! What can go wrong: on the control path, when posting, and with a completion queue.

use crate::attr::{QpState, Transport};

/// An error of the control path: making, changing and destroying objects.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// An argument is outside what the device can do.
    #[error("{what} is {value}, but the device allows at most {max}")]
    Limit {
        /// What was asked for.
        what: &'static str,
        /// How much of it.
        value: u64,
        /// How much there is.
        max: u64,
    },
    /// The device has no more of this.
    #[error("no more {what} on this device (limit {max})")]
    Exhausted {
        /// What ran out.
        what: &'static str,
        /// How many there are in all.
        max: u64,
    },
    /// An argument makes no sense.
    #[error("invalid {what}: {why}")]
    Invalid {
        /// The argument.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A number names nothing.
    #[error("no such {what}: {number:#x}")]
    NoSuch {
        /// The kind of object.
        what: &'static str,
        /// The number given.
        number: u64,
    },
    /// There is no such state transition.
    #[error("a {transport:?} queue pair cannot go from {from:?} to {to:?}")]
    Transition {
        /// The queue pair's transport.
        transport: Transport,
        /// Its state.
        from: QpState,
        /// The state asked for.
        to: QpState,
    },
    /// A transition lacks an attribute.
    #[error("{from:?} to {to:?} needs {attribute}")]
    MissingAttribute {
        /// The state before.
        from: QpState,
        /// The state after.
        to: QpState,
        /// The attribute that is missing.
        attribute: &'static str,
    },
    /// A transition does not take an attribute.
    #[error("{from:?} to {to:?} does not take {attribute}")]
    UnexpectedAttribute {
        /// The state before.
        from: QpState,
        /// The state after.
        to: QpState,
        /// The attribute that is too many.
        attribute: &'static str,
    },
    /// The object is still in use.
    #[error("{what} is still in use")]
    Busy {
        /// The kind of object.
        what: &'static str,
    },
    /// The peer cannot be reached.
    #[error("cannot reach {peer}: {why}")]
    Unreachable {
        /// The peer, as far as it is known.
        peer: String,
        /// What happened.
        why: String,
    },
    /// This NIC cannot do that.
    #[error("{what} is not supported by this NIC")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
    },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

impl VerbsError {
    /// An `Invalid` error.
    pub fn invalid(what: &'static str, why: impl Into<String>) -> Self {
        VerbsError::Invalid {
            what,
            why: why.into(),
        }
    }

    /// An `Io` error.
    pub fn io(what: &'static str, source: impl Into<std::io::Error>) -> Self {
        VerbsError::Io {
            what,
            source: source.into(),
        }
    }
}

/// Why a work request was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostReason {
    /// The queue is full.
    #[error("the queue is full")]
    QueueFull,
    /// The batch is full: post it and go on.
    #[error("the batch is full")]
    BatchFull,
    /// The queue pair's state does not take work requests of this kind.
    #[error("the queue pair is in state {0:?}")]
    State(QpState),
    /// The transport does not have this operation.
    #[error("{0:?} does not carry this operation")]
    Operation(Transport),
    /// More bytes inline than the queue pair allows.
    #[error("more inline bytes than the queue pair allows")]
    InlineTooLong,
    /// READs and atomics cannot be inline, and atomics need one element of 8 bytes.
    #[error("this operation cannot have such a payload")]
    Payload,
    /// More scatter/gather elements than the queue pair allows.
    #[error("more scatter/gather elements than the queue pair allows")]
    TooManySges,
    /// The message is longer than the transport or the device allows.
    #[error("the message is too long")]
    TooLong,
    /// A datagram without an address handle, or a connected request with one.
    #[error("a datagram needs an address handle, other requests have none")]
    Address,
    /// The queue pair takes its RECVs from an SRQ.
    #[error("this queue pair receives from a shared receive queue")]
    SharedReceiveQueue,
    /// The NIC posts the queue pair's RECVs itself.
    #[error("the NIC posts this queue pair's RECVs")]
    LentRecvs,
}

/// A batch stopped at a work request that was not accepted. Those before it were posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("work request {index} of the batch: {reason}")]
pub struct PostError {
    /// The position in the batch of the first request that was not posted.
    pub index: usize,
    /// Why it was not posted.
    pub reason: PostReason,
}

/// A completion queue that has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CqError {
    /// More completions than the queue holds. Completions were lost, so its queue pairs are in
    /// error and the queue must be made again.
    #[error("completion queue overrun: make it deeper, or poll it more often")]
    Overrun,
}
