//! Sockets of a simulated core: whatever somebody else says sockets are.

use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use rustix::io::Errno;

use super::ops::Ops;
use super::{Backend, Completion, Descriptor, IoKind, Op, OpKey, SocketNum, Sockets};
use crate::net::Addr;

/// Tries every operation under way once a turn.
pub(super) struct Simulated {
    sockets: Rc<dyn Sockets>,
    ops: Ops,
}

impl Simulated {
    pub(super) fn new(sockets: Rc<dyn Sockets>) -> Self {
        Self {
            sockets,
            ops: Ops::default(),
        }
    }

    /// What has come of an operation; `None` while it is under way.
    fn attempt(&mut self, key: OpKey) -> Option<Result<usize, Errno>> {
        let slot = self.ops.slot_mut(key)?;
        let socket = slot.fd.number();
        let tried = match &mut slot.op {
            Op::Accept => self.sockets.accept(socket).map_ok(|SocketNum(num)| num),
            Op::Connect(addr) => match Addr::from_any(addr) {
                Ok(addr) => self.sockets.connect(socket, &addr).map_ok(|()| 0),
                Err(error) => Poll::Ready(Err(error)),
            },
            Op::Recv(buf) => {
                let room = buf.capacity() - buf.len();
                let mut bytes = vec![0; room];
                let received = self.sockets.recv(socket, &mut bytes);
                if let Poll::Ready(Ok(count)) = received {
                    buf.extend_from_slice(&bytes[..count]);
                }
                received
            }
            Op::Send { .. } => loop {
                let Op::Send { buf, at, .. } = &slot.op else {
                    unreachable!("an operation stays what it is");
                };
                match self.sockets.send(socket, &buf[*at..]) {
                    Poll::Ready(Ok(count)) if slot.must_send_more(count) => {}
                    Poll::Ready(Ok(count)) => {
                        break Poll::Ready(Ok(slot.sent().unwrap_or(count)));
                    }
                    other => break other,
                }
            },
        };
        match tried {
            Poll::Pending => None,
            Poll::Ready(result) => Some(result.map_err(|error| errno(&error))),
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Errno::CONNREFUSED,
        io::ErrorKind::ConnectionReset => Errno::CONNRESET,
        io::ErrorKind::BrokenPipe => Errno::PIPE,
        io::ErrorKind::TimedOut => Errno::TIMEDOUT,
        io::ErrorKind::NotConnected => Errno::NOTCONN,
        _ => Errno::from_io_error(error).unwrap_or(Errno::IO),
    }
}

impl Backend for Simulated {
    fn kind(&self) -> IoKind {
        IoKind::Simulated
    }

    fn sockets(&self) -> Option<Rc<dyn Sockets>> {
        Some(Rc::clone(&self.sockets))
    }

    fn wants_nonblocking(&self) -> bool {
        false
    }

    fn start(&mut self, fd: Rc<Descriptor>, op: Op) -> OpKey {
        self.ops.insert(fd, op)
    }

    fn poll(&mut self, key: OpKey, waker: &Waker) -> Poll<Completion> {
        self.ops.poll(key, waker)
    }

    fn cancel(&mut self, key: OpKey) {
        if self.ops.orphan(key) {
            self.ops.complete(key, Err(Errno::CANCELED));
        }
    }

    fn turn(&mut self, _: bool) -> usize {
        let mut done = 0;
        for key in self.ops.keys_running() {
            if let Some(result) = self.attempt(key) {
                self.ops.complete(key, result);
                done += 1;
            }
        }
        done
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
