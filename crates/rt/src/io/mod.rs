//! Socket operations, batched: a task starts one, the core's next turn carries it out.
//!
//! Both back ends own an operation's buffer and its socket from start to completion, whatever
//! becomes of the task that asked; so a dropped future is sound with the ring, and a descriptor's
//! number is never reused under an operation in flight.

mod epoll;
mod none;
mod ops;
mod simulated;
mod uring;

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use rustix::net::{self, SocketAddrAny, sockopt};

use crate::net::Addr;
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
    /// Sockets that somebody else makes up: a core of a simulated network.
    Simulated,
    /// No sockets: a simulated core on its own.
    None,
}

/// The number of a simulated socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketNum(pub usize);

/// The sockets of a simulated core: streams of bytes between addresses. No call waits; the core makes
/// one that answers [`Poll::Pending`] again in each of its turns.
pub trait Sockets {
    /// A new socket, connected to nobody.
    fn open(&self) -> SocketNum;

    /// A socket that listens on an address; port 0 is for one that is free.
    ///
    /// # Errors
    /// If somebody listens there, or it is not this machine's.
    fn listen(&self, addr: &Addr) -> io::Result<SocketNum>;

    /// Connects a socket, in as many calls as it takes.
    fn connect(&self, socket: SocketNum, to: &Addr) -> Poll<io::Result<()>>;

    /// The next connection of a listening socket.
    fn accept(&self, socket: SocketNum) -> Poll<io::Result<SocketNum>>;

    /// Takes bytes that have arrived; none at the end of the stream.
    fn recv(&self, socket: SocketNum, into: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Takes the first of these bytes on, as many as there is room for.
    fn send(&self, socket: SocketNum, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Ends one direction or both.
    ///
    /// # Errors
    /// If the socket is not connected.
    fn shutdown(&self, socket: SocketNum, how: std::net::Shutdown) -> io::Result<()>;

    /// The address of the socket itself.
    ///
    /// # Errors
    /// If it has none yet.
    fn local_addr(&self, socket: SocketNum) -> io::Result<Addr>;

    /// The address of the socket at the other end.
    ///
    /// # Errors
    /// If the socket is not connected.
    fn peer_addr(&self, socket: SocketNum) -> io::Result<Addr>;

    /// Nobody has the socket any more. Its peer reads the end of the stream after what was sent.
    fn close(&self, socket: SocketNum);
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

/// A socket.
pub(crate) struct Descriptor {
    socket: Which,
    /// That of the task that waited last. It is the same one as a rule, and counting a waker's users up
    /// and down takes two locked instructions.
    waker: Cell<Option<Waker>>,
}

/// Whose sockets these are. A core has those of its back end only.
enum Which {
    Kernel(OwnedFd),
    Simulated(Rc<dyn Sockets>, SocketNum),
}

impl Descriptor {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            socket: Which::Kernel(fd),
            waker: Cell::new(None),
        }
    }

    pub(crate) fn simulated(sockets: Rc<dyn Sockets>, num: SocketNum) -> Self {
        Self {
            socket: Which::Simulated(sockets, num),
            waker: Cell::new(None),
        }
    }

    /// The connection that an accept on this socket has opened. Called once for each completion.
    pub(crate) fn accepted(&self, num: usize) -> Self {
        match &self.socket {
            Which::Kernel(_) => Self::new(ops::accepted(num)),
            Which::Simulated(sockets, _) => Self::simulated(Rc::clone(sockets), SocketNum(num)),
        }
    }

    fn number(&self) -> SocketNum {
        match &self.socket {
            Which::Kernel(_) => unreachable!("a socket belongs to its core's back end"),
            Which::Simulated(_, num) => *num,
        }
    }

    /// Has small writes of a TCP connection sent at once (TCP_NODELAY), and a peer whose machine has gone
    /// found out some day (SO_KEEPALIVE).
    pub(crate) fn tune(&self) -> io::Result<()> {
        if let Which::Kernel(fd) = &self.socket {
            sockopt::set_tcp_nodelay(fd, true)?;
            sockopt::set_socket_keepalive(fd, true)?;
        }
        Ok(())
    }

    pub(crate) fn shutdown(&self, how: std::net::Shutdown) -> io::Result<()> {
        let of_kernel = match how {
            std::net::Shutdown::Read => net::Shutdown::Read,
            std::net::Shutdown::Write => net::Shutdown::Write,
            std::net::Shutdown::Both => net::Shutdown::Both,
        };
        match &self.socket {
            Which::Kernel(fd) => Ok(net::shutdown(fd, of_kernel)?),
            Which::Simulated(sockets, num) => sockets.shutdown(*num, how),
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<Addr> {
        match &self.socket {
            Which::Kernel(fd) => Addr::from_any(&net::getsockname(fd)?),
            Which::Simulated(sockets, num) => sockets.local_addr(*num),
        }
    }

    /// The peer's address; an unnamed Unix socket has an empty path.
    pub(crate) fn peer_addr(&self) -> io::Result<Addr> {
        match &self.socket {
            Which::Kernel(fd) => match net::getpeername(fd)? {
                Some(addr) => Addr::from_any(&addr),
                None => Ok(Addr::Unix(std::path::PathBuf::new())),
            },
            Which::Simulated(sockets, num) => sockets.peer_addr(*num),
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

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Which::Simulated(sockets, num) = &self.socket {
            sockets.close(*num);
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Which::Kernel(fd) => fd.as_fd(),
            Which::Simulated(..) => unreachable!("a socket belongs to its core's back end"),
        }
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Which::Kernel(fd) => fd.fmt(f),
            Which::Simulated(_, num) => num.fmt(f),
        }
    }
}

/// What a core needs from its I/O.
pub(crate) trait Backend {
    fn kind(&self) -> IoKind;

    /// The sockets, where they are simulated.
    fn sockets(&self) -> Option<Rc<dyn Sockets>> {
        None
    }

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
        Some(IoKind::Simulated | IoKind::None) => Ok(Box::new(NoSockets)),
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

/// Simulated sockets.
pub(crate) fn simulated(sockets: Rc<dyn Sockets>) -> Box<dyn Backend> {
    Box::new(simulated::Simulated::new(sockets))
}
