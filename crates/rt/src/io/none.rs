//! No sockets: what a simulated core has, and one that has ended.

use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use rustix::io::Errno;

use super::{Backend, Completion, Descriptor, IoKind, Op, OpKey};

/// Refuses everything. Public calls that open a socket check the kind first; what gets here are
/// sockets that have outlived their core.
pub(crate) struct NoSockets;

impl Backend for NoSockets {
    fn kind(&self) -> IoKind {
        IoKind::None
    }

    fn wants_nonblocking(&self) -> bool {
        false
    }

    fn start(&mut self, _: Rc<Descriptor>, _: Op) -> OpKey {
        OpKey::default()
    }

    fn poll(&mut self, _: OpKey, _: &Waker) -> Poll<Completion> {
        Poll::Ready(Completion {
            result: Err(Errno::CANCELED),
            op: Op::Recv(Vec::new()),
        })
    }

    fn cancel(&mut self, _: OpKey) {}

    fn turn(&mut self, _: bool) -> usize {
        0
    }

    fn has_work(&mut self) -> bool {
        false
    }

    fn watch(&mut self, _: BorrowedFd<'_>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn wait(&mut self, _: Option<Duration>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn unwatch(&mut self) {}
}
