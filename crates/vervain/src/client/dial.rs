//! Streams to a server's door.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use cache::herd::client::Control;

use crate::cli::ClientFlags;

/// A TCP or Unix stream.
#[derive(Debug)]
pub(super) enum Door {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Opens a stream to the door, with time-outs.
pub(super) fn open(flags: &ClientFlags) -> io::Result<Door> {
    // A zero time-out would mean for ever.
    let limit = flags.timeout.max(Duration::from_millis(1));
    let timeout = Some(limit);
    match &flags.unix {
        Some(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(timeout)?;
            stream.set_write_timeout(timeout)?;
            Ok(Door::Unix(stream))
        }
        None => {
            let stream = TcpStream::connect_timeout(&flags.server, limit)?;
            stream.set_read_timeout(timeout)?;
            stream.set_write_timeout(timeout)?;
            stream.set_nodelay(true)?;
            Ok(Door::Tcp(stream))
        }
    }
}

/// The door's name, for errors.
pub(super) fn name(flags: &ClientFlags) -> String {
    match &flags.unix {
        Some(path) => path.display().to_string(),
        None => flags.server.to_string(),
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
        match self {
            Door::Tcp(stream) => stream.flush(),
            Door::Unix(stream) => stream.flush(),
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
