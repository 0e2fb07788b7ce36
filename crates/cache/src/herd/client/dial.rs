//! The control stream: how a client reaches a server's door, and speaks with it once.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::net::RecvFlags;

use crate::herd::wire::handshake::{DOOR_FULL, HandshakeError, Message, Refusal};

/// Bytes of a line at most: room for 256 cores.
const LINE_LEN_MAX: usize = 64 << 10;

/// A byte stream to the server's door. The connection lives as long as the stream.
pub trait Control: Read + Write + std::fmt::Debug {
    /// Whether the server has closed it. Never blocks.
    fn is_closed(&mut self) -> bool;
}

/// Makes control streams, again after a connection was lost. May block; set time-outs on the
/// stream.
pub trait Dial {
    /// What it makes.
    type Stream: Control;

    /// Makes one.
    ///
    /// # Errors
    /// What the system says.
    fn dial(&mut self) -> io::Result<Self::Stream>;
}

impl<S: Control, F: FnMut() -> io::Result<S>> Dial for F {
    type Stream = S;

    fn dial(&mut self) -> io::Result<S> {
        self()
    }
}

fn peer_is_gone(socket: impl AsFd) -> bool {
    let mut byte = [0];
    match rustix::net::recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((count, _)) => count == 0,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
        Err(_) => true,
    }
}

impl Control for UnixStream {
    fn is_closed(&mut self) -> bool {
        peer_is_gone(self.as_fd())
    }
}

impl Control for TcpStream {
    fn is_closed(&mut self) -> bool {
        peer_is_gone(self.as_fd())
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The door is shut, or the stream broke.
    #[error("the server's door: {0}")]
    Io(#[from] io::Error),
    /// What came is no handshake.
    #[error("the server's handshake: {0}")]
    Handshake(#[from] HandshakeError),
    /// The server said no.
    #[error("the server refused: {0}")]
    Refused(#[from] Refusal),
    /// The server's numbers make no sense.
    #[error("the server's {0} makes no sense")]
    Nonsense(&'static str),
    /// The local NIC said no.
    #[error(transparent)]
    Nic(#[from] verbs::VerbsError),
    /// A RECV could not be posted.
    #[error("posting RECVs: {0}")]
    Post(#[from] verbs::PostError),
}

/// Whether the other side has closed.
fn is_gone(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
    kinds.contains(&error.kind())
}

/// Sends a message and reads the server's answer.
pub(super) fn converse(
    stream: &mut (impl Read + Write),
    message: &Message,
) -> Result<Message, ConnectError> {
    let mut line = message.to_line();
    line.push_str("\r\n");
    let sent = stream
        .write_all(line.as_bytes())
        .and_then(|()| stream.flush());
    match sent {
        Err(error) if !is_gone(&error) => return Err(error.into()),
        // A server that closed the door at once may have said why.
        _ => {}
    }
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    // The server says nothing unasked, so nothing behind the line is lost.
    while !answer.ends_with(b"\n") {
        match stream.read(&mut piece) {
            Ok(0) => {
                let end = io::ErrorKind::UnexpectedEof.into();
                return Err(sent.err().unwrap_or(end).into());
            }
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(sent.err().unwrap_or(error).into()),
        }
        if answer.len() > LINE_LEN_MAX {
            return Err(HandshakeError::Length.into());
        }
    }
    if answer == DOOR_FULL.as_bytes() {
        return Err(Refusal::Full.into());
    }
    match Message::from_line(&answer)? {
        Message::Refuse(why) => Err(why.into()),
        message => Ok(message),
    }
}
