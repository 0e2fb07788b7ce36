//! Doorbells: how a process wakes another that sleeps on a completion channel.
//!
//! A channel is a datagram socket in the run directory. Who rings sends the number of the completion
//! queue that has something, and for which of its armings that is.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::shared::arming::Arming;

/// A ring: the completion queue's number, and its armed word.
pub(crate) const RING_LEN: usize = 8;

/// What rings a channel: a socket of the ringer's own.
#[derive(Debug)]
pub(crate) struct Doorbell {
    /// Until there is nobody to be woken any more.
    socket: RwLock<Option<OwnedFd>>,
    address: SocketAddrUnix,
    /// What is wrong with it was said.
    has_warned: AtomicBool,
}

impl Doorbell {
    /// Connects to a channel, if it is there. Waits for nobody.
    pub(crate) fn new(path: &Path) -> rustix::io::Result<Self> {
        let (socket, address) = (datagram_socket()?, SocketAddrUnix::new(path)?);
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(Doorbell {
                socket: RwLock::new(Some(socket)),
                address,
                has_warned: AtomicBool::new(false),
            }),
            Err(e) => Err(e),
        }
    }

    /// Rings no more: the channel's process has gone.
    pub(crate) fn close(&self) {
        let mut socket = self.socket.write().unwrap_or_else(PoisonError::into_inner);
        *socket = None;
    }

    /// Makes the channel readable, and says for which arming of which queue. Waits for nobody.
    pub(crate) fn ring(&self, cq: u32, arming: Arming) {
        let mut ring = [0; RING_LEN];
        let (number, word) = ring.split_at_mut(4);
        number.copy_from_slice(&cq.to_le_bytes());
        word.copy_from_slice(&arming.to_bytes());
        self.send(&ring);
    }

    /// Makes the channel readable, for events that its owner knows of.
    pub(crate) fn ring_for_nobody(&self) {
        self.send(&[]);
    }

    fn send(&self, ring: &[u8]) {
        let socket = self.socket.read().unwrap_or_else(PoisonError::into_inner);
        let Some(socket) = &*socket else {
            return;
        };
        let send = || {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            rustix::net::send(socket, ring, flags)
        };
        let rung = match send() {
            // The channel was closed; another one may have its name by now.
            Err(Errno::CONNREFUSED | Errno::CONNRESET | Errno::NOTCONN) => {
                rustix::net::connect(socket, &self.address).and_then(|()| send())
            }
            rung => rung,
        };
        match rung {
            // A full channel is readable already, and its owner knows what that may mean.
            Ok(_) | Err(Errno::AGAIN) => {}
            // Nobody is there to be woken: nobody has the name, or whoever has it does not listen to us.
            Err(e @ (Errno::NOENT | Errno::CONNREFUSED | Errno::PIPE | Errno::PERM)) => {
                tracing::debug!(error = %e, "nobody hears a completion channel's ring");
            }
            // A peer may bring it about as often as it likes.
            Err(e) if !self.has_warned.swap(true, Ordering::Relaxed) => {
                tracing::warn!(error = %e, "cannot ring a completion channel");
            }
            Err(_) => {}
        }
    }
}

/// A socket to ring with, or to be rung at.
pub(crate) fn datagram_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
}

/// Has the kernel refuse messages with descriptors, where it can (since Linux 6.16). Requests
/// carry none, and closing somebody's descriptor can take as long as he likes.
pub(crate) fn refuse_descriptors(socket: &OwnedFd) {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let off: libc::c_int = 0;
    // SAFETY: the option's value is an int, which outlives the call.
    let refused = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if refused != 0 {
        tracing::debug!("the kernel passes descriptors on; they are closed");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use rustix::net::Shutdown;
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;

    /// Counts warnings.
    struct Warnings(Arc<AtomicU32>);

    impl Subscriber for Warnings {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let warns = *event.metadata().level() <= Level::WARN;
            self.0.fetch_add(u32::from(warns), Ordering::Relaxed);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn whoever_is_rung_does_not_say_how_often_that_is_warned_of() {
        let directory = tempfile::tempdir().expect("a directory");
        let address = |name| SocketAddrUnix::new(directory.path().join(name)).expect("short");
        let channel = |name| {
            let socket = datagram_socket().expect("a socket");
            rustix::net::bind(&socket, &address(name)).expect("bound");
            let doorbell = Doorbell::new(&directory.path().join(name)).expect("it is there");
            (socket, doorbell)
        };
        let (deaf, one) = channel("deaf");
        rustix::net::shutdown(&deaf, Shutdown::Both).expect("shut down");
        let (busy, other) = channel("busy");
        rustix::net::connect(&busy, &address("deaf")).expect("connected");
        let (gone, third) = channel("gone");
        drop(gone);
        std::fs::remove_file(directory.path().join("gone")).expect("removed");
        let no_channel = std::os::unix::net::UnixListener::bind(directory.path().join("gone"));
        let _no_channel = no_channel.expect("bound");
        let warnings = Arc::new(AtomicU32::new(0));
        let subscriber = Warnings(Arc::clone(&warnings));
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..3 {
                one.ring_for_nobody();
                other.ring_for_nobody();
            }
            assert_eq!(warnings.load(Ordering::Relaxed), 0);
            for _ in 0..3 {
                third.ring_for_nobody();
            }
            assert_eq!(warnings.load(Ordering::Relaxed), 1, "once a doorbell");
        });
    }
}
