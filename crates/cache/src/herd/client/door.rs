//! Where a server's door is, and a stream to it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use super::Control;

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
        // A time-out of no time would mean for ever.
        let timeout = timeout.max(Duration::from_millis(1));
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

/// A stream to a server.
#[derive(Debug)]
pub enum Door {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Door {
    /// Lets reads and writes return at once instead of waiting.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_nonblocking(&self) -> io::Result<()> {
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
