//! What adapters say to each other on first contact and when lanes begin: small fixed messages over
//! a Unix sequenced-packet socket, with file descriptors beside the answers.
//!
//! ```text
//! request  | op u32     | version u32 | a u32 | b u32 | c u64 | gid 16 |
//! answer   | status u32 | version u32 | a u32 | b u32 | c u64 | gid 16 |
//! ```
//!
//! What `a`, `b` and `c` are depends on the operation; [`Message`] has a constructor for each.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use verbs::Gid;

use crate::shared::layout::VERSION;
use crate::shared::segment::close_aside;

/// Bytes of a request and of an answer.
pub(crate) const MESSAGE_LEN: usize = 40;

/// Says who is there; the answer carries the published segment and an inbox of the asker's own.
pub(crate) const OP_HELLO: u32 = 1;
/// Asks for the file behind the region with key `a`.
pub(crate) const OP_REGION: u32 = 2;
/// Announces lane `a`, from queue pair `b` to the one in `c`. Has no answer.
pub(crate) const OP_LANE: u32 = 3;
/// Asks to look for lanes that were closed since this was last asked. Has no answer.
pub(crate) const OP_SWEEP: u32 = 4;

/// The answer's status: as asked.
pub(crate) const STATUS_OK: u32 = 0;
/// The answer's status: there is no such thing.
pub(crate) const STATUS_NO_SUCH: u32 = 1;
/// The answer's status: the versions differ.
pub(crate) const STATUS_VERSION: u32 = 2;
/// The answer's status: the asker is not who it says it is.
pub(crate) const STATUS_IDENTITY: u32 = 3;
/// The answer's status: there is no room for another peer; `a` says how many there are at most.
pub(crate) const STATUS_EXHAUSTED: u32 = 4;
/// The answer's status: who the asker is cannot be found out just now. It is to ask again.
pub(crate) const STATUS_LATER: u32 = 5;

/// A request or an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    /// Operation or status.
    pub(crate) code: u32,
    pub(crate) version: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u64,
    pub(crate) gid: Gid,
}

impl Message {
    fn new(code: u32, a: u32, b: u32, c: u64) -> Self {
        Message {
            code,
            version: VERSION,
            a,
            b,
            c,
            gid: Gid::default(),
        }
    }

    pub(crate) fn hello(gid: Gid, instance: u32, incarnation: u64) -> Self {
        let message = Message::new(OP_HELLO, instance, 0, incarnation);
        Message { gid, ..message }
    }

    pub(crate) fn region(key: u32) -> Self {
        Message::new(OP_REGION, key, 0, 0)
    }

    /// `epoch` is the receiving queue pair's when the lane was opened.
    pub(crate) fn lane(lane: u32, src_qpn: u32, dst_qpn: u32, epoch: u16) -> Self {
        let to = u64::from(dst_qpn) | u64::from(epoch) << 32;
        Message::new(OP_LANE, lane, src_qpn, to)
    }

    pub(crate) fn sweep() -> Self {
        Message::new(OP_SWEEP, 0, 0, 0)
    }

    pub(crate) fn answer(status: u32, a: u32, incarnation: u64) -> Self {
        Message::new(status, a, 0, incarnation)
    }

    fn emit(&self) -> [u8; MESSAGE_LEN] {
        let mut bytes = [0; MESSAGE_LEN];
        bytes[0..4].copy_from_slice(&self.code.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.version.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.a.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.b.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.c.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.gid.0);
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MESSAGE_LEN] = bytes.try_into().ok()?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mut gid = Gid::default();
        gid.0.copy_from_slice(&bytes[24..40]);
        Some(Message {
            code: word(0),
            version: word(4),
            a: word(8),
            b: word(12),
            c: u64::from(word(16)) | u64::from(word(20)) << 32,
            gid,
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
    // A byte more than a message has, so that a longer one is known from its length.
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
        close_aside(fds);
        return Ok(None);
    }
    match Message::parse(&bytes[..received.bytes]) {
        Some(message) => Ok(Some((message, fds))),
        None => {
            close_aside(fds);
            Err(Errno::BADMSG)
        }
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
        let gid = Gid(std::array::from_fn(|i| i as u8 + 1));
        for message in [
            Message::hello(gid, 9, 0x0123_4567_89ab_cdef),
            Message::region(7 << 16 | 3),
            Message::lane(1, 2, 3, 4),
        ] {
            let bytes = message.emit();
            assert_eq!(Message::parse(&bytes), Some(message));
            for len in 0..MESSAGE_LEN {
                assert_eq!(Message::parse(&bytes[..len]), None);
            }
        }
        assert_eq!(Message::parse(&[0; MESSAGE_LEN + 1]), None);
    }
}
