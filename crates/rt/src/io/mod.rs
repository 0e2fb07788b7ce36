//! Socket operations, batched: a task starts one, the core's next turn carries it out.
//!
//! Both back ends own an operation's buffer and its socket from start to completion, whatever
//! becomes of the task that asked; so a dropped future is sound with the ring, and a descriptor's
//! number is never reused under an operation in flight.

mod epoll;
mod none;
mod ops;
mod uring;

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use rustix::net::SocketAddrAny;

use crate::task::Shared;

pub(crate) use none::NoSockets;
pub(crate) use ops::OpKey;

/// How a core does its socket I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoKind {
    /// io_uring: one system call a turn for all connections.
    Uring,
    /// epoll and one system call an operation, where io_uring is refused.
    Epoll,
    /// No sockets: a simulated core.
    None,
}

/// One operation on a socket, with what it owns.
pub(crate) enum Op {
    Accept,
    /// The address is shared, not boxed: it must not count as moved when the operation is.
    Connect(Rc<SocketAddrAny>),
    /// Appends to the buffer's spare capacity, which is not empty.
    Recv(Vec<u8>),
    /// Sends the buffer. `at` bytes of it have gone so far.
    Send {
        buf: Vec<u8>,
        at: usize,
        /// Ends when all has gone; otherwise when a part has.
        whole: bool,
    },
}

/// An operation that has ended, and what it owned. The number is an operation's count of bytes, all
/// of them for a whole send, or the descriptor that an accept has opened.
pub(crate) struct Completion {
    pub(crate) result: Result<usize, rustix::io::Errno>,
    pub(crate) op: Op,
}

/// A socket's descriptor.
pub(crate) struct Descriptor {
    fd: OwnedFd,
    /// That of the task that waited last. It is the same one as a rule, and counting a waker's users up
    /// and down takes two locked instructions.
    waker: Cell<Option<Waker>>,
}

impl Descriptor {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            waker: Cell::new(None),
        }
    }

    /// A waker that wakes the same task.
    fn waker_like(&self, waker: &Waker) -> Waker {
        let kept = self.waker.take().filter(|kept| kept.will_wake(waker));
        kept.unwrap_or_else(|| waker.clone())
    }

    /// Keeps a waker for the next wait.
    fn keep_waker(&self, waker: Waker) {
        self.waker.set(Some(waker));
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fd.fmt(f)
    }
}

/// What a core needs from its I/O.
pub(crate) trait Backend {
    fn kind(&self) -> IoKind;

    /// Whether sockets have to be non-blocking.
    fn wants_nonblocking(&self) -> bool;

    /// Queues an operation.
    fn start(&mut self, fd: Rc<Descriptor>, op: Op) -> OpKey;

    /// The completion of an operation, which ends it; if it is not there, `waker` will be woken.
    fn poll(&mut self, key: OpKey, waker: &Waker) -> Poll<Completion>;

    /// Ends an operation nobody will ask for again.
    fn cancel(&mut self, key: OpKey);

    /// Carries out what is queued and collects what is complete, without waiting. `quiet` tells
    /// that the core has found nothing else to do. Returns how much it did.
    fn turn(&mut self, quiet: bool) -> usize;

    /// Whether a turn would find something to do without asking the kernel.
    fn has_work(&mut self) -> bool;

    /// Watches `fd` for readability during the next wait.
    fn watch(&mut self, fd: BorrowedFd<'_>) -> io::Result<()>;

    /// Sleeps until something completes, a watched descriptor is readable, the bell rings or
    /// `timeout` passes; then ends all watches.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Ends all watches without waiting.
    fn unwatch(&mut self);
}

/// io_uring, or epoll where the kernel or its policy refuses the ring.
pub(crate) fn open(shared: Arc<Shared>, forced: Option<IoKind>) -> io::Result<Box<dyn Backend>> {
    match forced {
        Some(IoKind::Uring) => Ok(Box::new(uring::Uring::new(shared)?)),
        Some(IoKind::Epoll) => Ok(Box::new(epoll::Epoll::new(shared)?)),
        Some(IoKind::None) => Ok(Box::new(NoSockets)),
        None => match uring::Uring::new(shared.clone()) {
            Ok(ring) => Ok(Box::new(ring)),
            Err(error) => {
                static WARNED: std::sync::Once = std::sync::Once::new();
                WARNED.call_once(|| {
                    tracing::warn!(%error, "io_uring is not available, sockets use epoll");
                });
                Ok(Box::new(epoll::Epoll::new(shared)?))
            }
        },
    }
}
