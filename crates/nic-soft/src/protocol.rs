//! What adapters say to each other on first contact: small fixed messages over a Unix
//! sequenced-packet socket, with file descriptors beside them.
//!
//! ```text
//! request  | op u32 | arg u32 | incarnation u64 | version u32 | zero u32 |
//! reply    | status u32 | arg u32 | incarnation u64 | version u32 | zero u32 |
//! ```

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::layout::VERSION;

/// Bytes of a request and of a reply.
pub(crate) const MESSAGE_LEN: usize = 24;

/// Asks who is there; the reply carries the published segment and the inbox.
pub(crate) const OP_HELLO: u32 = 1;
/// Asks for the file behind the region with key `arg`.
pub(crate) const OP_REGION: u32 = 2;
/// Asks for the event descriptor of channel `arg`.
pub(crate) const OP_CHANNEL: u32 = 3;

/// The reply's status: as asked.
pub(crate) const STATUS_OK: u32 = 0;
/// The reply's status: there is no such thing.
pub(crate) const STATUS_NO_SUCH: u32 = 1;
/// The reply's status: the versions differ.
pub(crate) const STATUS_VERSION: u32 = 2;

/// A request or a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    /// Operation or status.
    pub(crate) code: u32,
    pub(crate) arg: u32,
    pub(crate) incarnation: u64,
    pub(crate) version: u32,
}

impl Message {
    pub(crate) fn new(code: u32, arg: u32, incarnation: u64) -> Self {
        Message {
            code,
            arg,
            incarnation,
            version: VERSION,
        }
    }

    fn emit(&self) -> [u8; MESSAGE_LEN] {
        let mut bytes = [0; MESSAGE_LEN];
        bytes[0..4].copy_from_slice(&self.code.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.arg.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MESSAGE_LEN] = bytes.try_into().ok()?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let low = u64::from(word(8));
        Some(Message {
            code: word(0),
            arg: word(4),
            incarnation: low | u64::from(word(12)) << 32,
            version: word(16),
        })
    }
}

/// Sends a message with up to two descriptors. Never blocks.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    message: &Message,
    fds: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    let bytes = message.emit();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags).map(|_| ())
}

/// Receives a message and its descriptors. `None` at the end of the connection; a message of
/// another length is an error.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
) -> rustix::io::Result<Option<(Message, Vec<OwnedFd>)>> {
    let mut bytes = [0u8; MESSAGE_LEN + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    match Message::parse(&bytes[..received.bytes]) {
        Some(message) => Ok(Some((message, fds))),
        None => Err(Errno::BADMSG),
    }
}

/// Checks that the process at the other end is of this user, and returns its number.
pub(crate) fn check_user(socket: impl AsFd) -> rustix::io::Result<rustix::process::Pid> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    if peer.uid == rustix::process::geteuid() {
        Ok(peer.pid)
    } else {
        Err(Errno::PERM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_back_and_other_lengths_do_not() {
        let message = Message::new(7, 9, 0x0123_4567_89ab_cdef);
        let bytes = message.emit();
        assert_eq!(Message::parse(&bytes), Some(message));
        for len in 0..MESSAGE_LEN {
            assert_eq!(Message::parse(&bytes[..len]), None);
        }
        assert_eq!(Message::parse(&[0; MESSAGE_LEN + 1]), None);
    }
}
