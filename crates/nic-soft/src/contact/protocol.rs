//! What adapters say to each other on first contact and when lanes begin: small fixed messages over
//! a Unix sequenced-packet socket, with file descriptors beside the answers.
//!
//! ```text
//! request  | op u32     | version u32 | a u32 | b u32 | c u64 | gid 16 | from 16 |
//! answer   | status u32 | version u32 | a u32 | b u32 | c u64 | gid 16 | from 16 |
//! ```
//!
//! What `a`, `b` and `c` are depends on the operation; [`Message`] has a constructor for each.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, sockopt,
};
use rustix::process::Pid;
use verbs::Gid;

use crate::contact::foreign::{self, Foreign};
use crate::shared::layout::VERSION;
use crate::shared::route::Route;

/// Bytes of a request and of an answer.
pub(crate) const MESSAGE_LEN: usize = 56;

/// Says who is there; the answer carries the published segment and an inbox of the asker's own.
pub(crate) const OP_HELLO: u32 = 1;
/// Asks for the file behind the region with key `a`.
pub(crate) const OP_REGION: u32 = 2;
/// Announces lane `a`, from queue pair `b` to the one in `c`; its datagrams' headers say that they go from `from` to
/// `gid`. Has no answer.
pub(crate) const OP_LANE: u32 = 3;
/// Asks to look for lanes that were closed since this was last asked. Has no answer.
pub(crate) const OP_SWEEP: u32 = 4;
/// Asks for an atomic on the word at address `c` in the region with key `a`, over the connection in `b` and `from`
/// (`contact/over.rs`); what it does is there, too, and in the GID's place (`contact/atomic.rs`). The answer carries
/// the word before in `c`.
pub(crate) const OP_ATOMIC: u32 = 5;
/// Asks for a copy between a stage of the inbox and the memory from address `c` on in the region with key `a`, over
/// a connection as for an atomic; which stage and how many bytes stand in the GID's place (`contact/copy.rs`).
/// Answered as an atomic is.
pub(crate) const OP_COPY: u32 = 6;

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
/// The answer's status: an atomic or a copy was not carried out; `a` says why, as a completion does.
pub(crate) const STATUS_REFUSED: u32 = 6;

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
    pub(crate) from: Gid,
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
            from: Gid::default(),
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
    pub(crate) fn lane(lane: u32, src_qpn: u32, dst_qpn: u32, epoch: u16, route: Route) -> Self {
        let to = u64::from(dst_qpn) | u64::from(epoch) << 32;
        Message {
            gid: route.to,
            from: route.from,
            ..Message::new(OP_LANE, lane, src_qpn, to)
        }
    }

    pub(crate) fn sweep() -> Self {
        Message::new(OP_SWEEP, 0, 0, 0)
    }

    /// One that uses every place.
    pub(crate) fn operands(code: u32, a: u32, b: u32, c: u64, gid: Gid) -> Self {
        let message = Message::new(code, a, b, c);
        Message { gid, ..message }
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
        bytes[40..56].copy_from_slice(&self.from.0);
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MESSAGE_LEN] = bytes.try_into().ok()?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let gid = |at: usize| Gid(std::array::from_fn(|i| bytes[at + i]));
        Some(Message {
            code: word(0),
            version: word(4),
            a: word(8),
            b: word(12),
            c: u64::from(word(16)) | u64::from(word(20)) << 32,
            gid: gid(24),
            from: gid(40),
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

/// Descriptors that the kernel lets a message have.
const FDS_MAX: usize = 253;
/// Messages that are read before a connection is closed, at most: more than an honest peer leaves.
const UNREAD_MAX: usize = 20;

/// A connection to another process of this user. Dropping it holds nobody up, whatever lies there
/// that nobody has read.
#[derive(Debug)]
pub(crate) struct PeerSocket {
    /// Always there, but while it is dropped.
    socket: Option<Foreign>,
}

/// What lies in a connection.
#[derive(Debug)]
enum Found {
    /// A message of so many bytes.
    Message(usize, Vec<Foreign>),
    /// Nothing, and there will be nothing any more.
    End,
}

impl PeerSocket {
    /// A connection, if the process at its other end is of this user.
    ///
    /// # Errors
    /// `PERM` if it is of another one, and `NOBUFS` if too many of its descriptors wait to be closed.
    pub(crate) fn new(socket: OwnedFd) -> rustix::io::Result<Self> {
        let peer = sockopt::socket_peercred(&socket)?;
        let socket = PeerSocket {
            socket: Some(Foreign::new(socket, peer.pid)),
        };
        if peer.uid != rustix::process::geteuid() {
            return Err(Errno::PERM);
        }
        match foreign::has_too_many(peer.pid) {
            true => Err(Errno::NOBUFS),
            false => Ok(socket),
        }
    }

    /// The process at the other end.
    pub(crate) fn pid(&self) -> Pid {
        self.inner().pid()
    }

    fn inner(&self) -> &Foreign {
        let socket = self.socket.as_ref();
        socket.expect("it is there until it is dropped")
    }

    /// Receives a message and its descriptors. `None` at the end of the connection; a message of
    /// another length is an error. One for whose descriptors this process has no room stays there,
    /// which is `MFILE`. From a process of whose descriptors too many wait to be closed, nothing is
    /// received: that is `NOBUFS`. One thread at a time receives.
    pub(crate) fn receive(&self) -> rustix::io::Result<Option<(Message, Vec<Foreign>)>> {
        // A byte more than a message has, so that a longer one is known from its length.
        let mut bytes = [0u8; MESSAGE_LEN + 1];
        match self.take(&mut bytes)? {
            Found::End => Ok(None),
            Found::Message(len, fds) => {
                let message = Message::parse(&bytes[..len]).ok_or(Errno::BADMSG)?;
                Ok(Some((message, fds)))
            }
        }
    }

    fn take(&self, bytes: &mut [u8]) -> rustix::io::Result<Found> {
        if foreign::has_too_many(self.pid()) {
            return Err(Errno::NOBUFS);
        }
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1), ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        // Looked at first: what the kernel has no place for when it is taken out, it closes at once,
        // which may take as long as its sender likes.
        let found = rustix::net::recvmsg(
            self,
            &mut [IoSliceMut::new(bytes)],
            &mut control,
            RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC,
        )?;
        let mut is_message = found.bytes > 0;
        let mut fds = Vec::new();
        for message in control.drain() {
            is_message = true;
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if found.flags.contains(ReturnFlags::CTRUNC) {
            // The message has them all; none of these is the last of its kind.
            return Err(Errno::MFILE);
        }
        if !is_message {
            return Ok(Found::End);
        }
        let fds = fds.into_iter().map(|fd| Foreign::new(fd, self.pid()));
        let fds = fds.collect();
        rustix::net::recv(self, &mut [0; 1], RecvFlags::DONTWAIT)?;
        Ok(Found::Message(found.bytes, fds))
    }

    /// Ends the connection, and reads what is left there; whether that was all.
    fn is_emptied(&self) -> bool {
        // From here on the kernel says with each message who has sent it, and nothing at the end.
        let is_told = sockopt::set_socket_passcred(self, true);
        if is_told.is_err() || rustix::net::shutdown(self, Shutdown::Both).is_err() {
            return false;
        }
        for _ in 0..UNREAD_MAX {
            match self.is_at_end() {
                Ok(true) => return true,
                Ok(false) if self.take(&mut [0; 1]).is_ok() => {}
                Err(Errno::INTR | Errno::CONNRESET) => {}
                Ok(false) | Err(_) => return false,
            }
        }
        false
    }

    /// Whether nothing lies there, of a connection that has ended. Takes no descriptor.
    fn is_at_end(&self) -> rustix::io::Result<bool> {
        let found = rustix::net::recvmsg(
            self,
            &mut [IoSliceMut::new(&mut [0; 1])],
            &mut RecvAncillaryBuffer::default(),
            RecvFlags::PEEK | RecvFlags::DONTWAIT,
        )?;
        // An empty message would say at least who has sent it.
        Ok(found.bytes == 0 && !found.flags.contains(ReturnFlags::CTRUNC))
    }
}

impl AsFd for PeerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner().as_fd()
    }
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        let is_emptied = self.is_emptied();
        if let Some(socket) = self.socket.take()
            && is_emptied
        {
            socket.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_back_and_other_lengths_do_not() {
        let gid = Gid(std::array::from_fn(|i| i as u8 + 1));
        let route = Route {
            from: Gid([7; 16]),
            to: gid,
        };
        for message in [
            Message::hello(gid, 9, 0x0123_4567_89ab_cdef),
            Message::region(7 << 16 | 3),
            Message::lane(1, 2, 3, 4, route),
        ] {
            let bytes = message.emit();
            assert_eq!(Message::parse(&bytes), Some(message));
            for len in 0..MESSAGE_LEN {
                assert_eq!(Message::parse(&bytes[..len]), None);
            }
        }
        assert_eq!(Message::parse(&[0; MESSAGE_LEN + 1]), None);
    }

    #[test]
    fn a_connection_that_is_dropped_is_read_to_its_end() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType};
        let pair = || {
            let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::NONBLOCK);
            let pair = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None);
            let (ours, theirs) = pair.expect("sockets");
            (PeerSocket::new(ours).expect("of this user"), theirs)
        };
        let (file, _end) = rustix::pipe::pipe().expect("a pipe");
        let say = |to: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
            let (bytes, flags) = ([IoSlice::new(bytes)], SendFlags::empty());
            rustix::net::sendmsg(to, &bytes, &mut control, flags).expect("sent");
        };
        let (ours, theirs) = pair();
        assert!(ours.is_emptied(), "nothing came");
        assert!(ours.is_emptied(), "and nothing can come");
        let refused = rustix::net::send(&theirs, b"more", SendFlags::NOSIGNAL);
        assert_eq!(refused, Err(Errno::PIPE));
        for is_alive in [true, false] {
            let (ours, theirs) = pair();
            // Messages without a byte are not the end.
            say(&theirs, b"", &[]);
            say(&theirs, b"", &[file.as_fd()]);
            say(&theirs, b"a word", &[file.as_fd()]);
            if !is_alive {
                drop(theirs);
            }
            assert!(ours.is_emptied());
        }
        let (ours, theirs) = pair();
        (0..=UNREAD_MAX).for_each(|_| say(&theirs, b"", &[]));
        assert!(!ours.is_emptied(), "too many to read here");
    }
}
