//! Which server, and by which way.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use ::cache::herd::client::Control;
use verbs::typed::Context;

/// Where a server's door is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(addr) => addr.fmt(f),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Address {
    /// Opens a blocking stream whose reads and writes end after `timeout`.
    ///
    /// # Errors
    /// What the system says.
    pub fn dial(&self, timeout: Duration) -> io::Result<Door> {
        match self {
            Address::Tcp(addr) => {
                let stream = TcpStream::connect_timeout(addr, timeout)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                Ok(Door::Tcp(stream))
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                Ok(Door::Unix(stream))
            }
        }
    }
}

/// The server of a run.
#[derive(Clone, Debug)]
pub enum Target {
    /// HERD's requests through a NIC.
    Nic {
        /// The opened NIC. Each thread makes its own queues on it.
        context: Context,
        /// Where to shake hands.
        door: Address,
    },
    /// The Memcache text protocol, with any server that speaks it.
    Socket(Address),
}

impl Target {
    /// The way's name in reports.
    pub fn transport(&self) -> &'static str {
        match self {
            Target::Nic { .. } => "nic",
            Target::Socket(Address::Tcp(_)) => "tcp",
            Target::Socket(Address::Unix(_)) => "unix",
        }
    }

    /// Where the server's door is.
    pub fn door(&self) -> &Address {
        match self {
            Target::Nic { door, .. } | Target::Socket(door) => door,
        }
    }
}

/// A stream to a server.
#[derive(Debug)]
pub enum Door {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Door {
    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Door::Tcp(stream) => stream.set_nonblocking(true),
            Door::Unix(stream) => stream.set_nonblocking(true),
        }
    }
}

impl Read for Door {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Door::Tcp(stream) => stream.read(buffer),
            Door::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Door {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Door::Tcp(stream) => stream.write(bytes),
            Door::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Door::Tcp(stream) => stream.as_fd(),
            Door::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Control for Door {
    fn is_closed(&mut self) -> bool {
        match self {
            Door::Tcp(stream) => stream.is_closed(),
            Door::Unix(stream) => stream.is_closed(),
        }
    }
}
