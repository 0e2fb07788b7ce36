//! TCP and Unix sockets of a core.
//!
//! Buffers are passed by value and come back with the result: the core owns them while the kernel
//! works on them, so dropping a future is sound on both back ends. It is not free of effect: a
//! dropped receive may have taken bytes from the stream, a dropped send may have sent some. Close
//! the connection then. A dropped accept loses nothing.

mod listener;
mod stream;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, addr::SocketAddrArg,
    socket_with,
};

use crate::handle::Handle;
use crate::io::{Completion, Descriptor, IoKind, Op, OpKey};
use crate::scheduler::Inner;

pub use listener::{ListenOptions, Listener, bind};
pub use stream::{RecvHalf, SendHalf, Sending, Stream};

/// Where a socket listens or connects to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Addr {
    /// An IP address and a TCP port.
    Tcp(SocketAddr),
    /// A path in the file system.
    Unix(PathBuf),
}

impl From<SocketAddr> for Addr {
    fn from(addr: SocketAddr) -> Self {
        Self::Tcp(addr)
    }
}

impl From<&Path> for Addr {
    fn from(path: &Path) -> Self {
        Self::Unix(path.to_owned())
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Addr::Tcp(addr) => addr.fmt(f),
            Addr::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Addr {
    fn to_any(&self) -> io::Result<SocketAddrAny> {
        Ok(match self {
            Addr::Tcp(addr) => addr.as_any(),
            Addr::Unix(path) => SocketAddrUnix::new(path)?.as_any(),
        })
    }

    pub(crate) fn from_any(any: &SocketAddrAny) -> io::Result<Self> {
        if any.address_family() == AddressFamily::UNIX {
            let unix = SocketAddrUnix::try_from(any.clone())?;
            let path = unix.path().map(|path| {
                use std::os::unix::ffi::OsStringExt;
                PathBuf::from(std::ffi::OsString::from_vec(path.to_bytes().to_vec()))
            });
            // A client's end usually has no name.
            return Ok(Addr::Unix(path.unwrap_or_default()));
        }
        Ok(Addr::Tcp(SocketAddr::try_from(any.clone())?))
    }
}

/// A descriptor and the core that works on it.
struct Socket {
    inner: Rc<Inner>,
    fd: Rc<Descriptor>,
}

impl Socket {
    /// A new stream socket for `addr`, as the core's back end wants it.
    fn open(core: &Handle, addr: &SocketAddrAny) -> io::Result<Self> {
        if let Some(sockets) = core.sockets() {
            let num = sockets.open();
            return Ok(Self::new(core, Descriptor::simulated(sockets, num)));
        }
        let (family, kind) = (addr.address_family(), SocketType::STREAM);
        Self::adopt(core, socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
    }

    /// A socket made elsewhere, made to be as the core's back end wants it.
    fn adopt(core: &Handle, fd: OwnedFd) -> io::Result<Self> {
        if matches!(core.io_kind(), IoKind::None | IoKind::Simulated) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "a simulated core has no sockets of the machine's",
            ));
        }
        rustix::io::ioctl_fionbio(&fd, core.inner.io.borrow().wants_nonblocking())?;
        Ok(Self::new(core, Descriptor::new(fd)))
    }

    fn new(core: &Handle, fd: Descriptor) -> Self {
        Self {
            inner: core.inner.clone(),
            fd: Rc::new(fd),
        }
    }

    fn start(&self, op: Op) -> OpKey {
        self.inner.io.borrow_mut().start(self.fd.clone(), op)
    }

    /// Carries out one operation.
    async fn run(&self, op: Op) -> Completion {
        let mut flight = Flight {
            inner: &self.inner,
            key: Some(self.start(op)),
        };
        poll_fn(|cx| {
            let key = flight.key.expect("polled until it is complete");
            let polled = self.inner.io.borrow_mut().poll(key, cx.waker());
            if polled.is_ready() {
                flight.key = None;
            }
            polled
        })
        .await
    }
}

/// An operation in flight; dropping it gives the operation up.
struct Flight<'a> {
    inner: &'a Inner,
    key: Option<OpKey>,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.inner.io.borrow_mut().cancel(key);
        }
    }
}
