//! The socket on which an adapter is called, whatever descriptors the process has left.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::process::Pid;

use crate::contact::adapter::{Adapter, TOKEN_LISTENER};
use crate::contact::protocol::PeerSocket;

/// A listening socket that the agent watches.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    /// Given up for a moment when descriptors run out, so that a connection can be refused.
    spare: Option<OwnedFd>,
    /// Times that nobody could be taken.
    failures: u64,
}

/// What has come of taking a connection.
#[derive(Debug)]
pub(crate) enum Accepted {
    Connection(OwnedFd),
    /// One was refused, because there is no descriptor for it; its process.
    Refused(Option<Pid>),
    /// None is there.
    Nobody,
    /// None can be taken just now. The socket is not watched any more: it would stay readable, and the
    /// agent would spin. [`Listener::watch`] comes a little later.
    Failed,
}

impl Listener {
    /// Has the agent watch a socket that listens.
    pub(crate) fn new(socket: OwnedFd, adapter: &Adapter) -> rustix::io::Result<Self> {
        let spare = spare();
        let listener = Listener {
            socket,
            spare,
            failures: 0,
        };
        listener.watch(adapter)?;
        Ok(listener)
    }

    /// Watches the socket again after [`Accepted::Failed`].
    pub(crate) fn watch(&self, adapter: &Adapter) -> rustix::io::Result<()> {
        let data = EventData::new_u64(TOKEN_LISTENER);
        epoll::add(&adapter.agent_epoll, &self.socket, data, EventFlags::IN)
    }

    /// Takes a connection. Waits for nobody.
    pub(crate) fn accept(&mut self, adapter: &Adapter) -> Accepted {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        self.accept_by(adapter, |socket| rustix::net::accept_with(socket, flags))
    }

    fn accept_by(
        &mut self,
        adapter: &Adapter,
        mut accept: impl FnMut(&OwnedFd) -> rustix::io::Result<OwnedFd>,
    ) -> Accepted {
        if self.spare.is_none() {
            self.spare = spare();
        }
        let mut refuses = false;
        loop {
            match accept(&self.socket) {
                // The next call takes a spare one again.
                Ok(socket) if refuses => {
                    return Accepted::Refused(PeerSocket::new(socket).ok().map(|one| one.pid()));
                }
                Ok(socket) => return Accepted::Connection(socket),
                Err(Errno::AGAIN) => return Accepted::Nobody,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::MFILE | Errno::NFILE) if self.spare.take().is_some() => refuses = true,
                // Another thread may have taken the descriptor that was given up.
                Err(e) => return self.fail(adapter, e),
            }
        }
    }

    fn fail(&mut self, adapter: &Adapter, error: Errno) -> Accepted {
        self.failures += 1;
        // It may last, and be tried a hundred times a second.
        if self.failures.is_power_of_two() {
            tracing::warn!(%error, times = self.failures, "cannot accept a peer");
        }
        match epoll::delete(&adapter.agent_epoll, self.socket.as_fd()) {
            Ok(()) => Accepted::Failed,
            Err(_) => Accepted::Nobody,
        }
    }
}

fn spare() -> Option<OwnedFd> {
    rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .ok()
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use rustix::event::epoll::Event;
    use rustix::fs::Timespec;
    use rustix::net::{AddressFamily, SocketType};

    use super::*;
    use crate::testing::adapter_without_agent;

    #[test]
    fn nobody_waits_for_descriptors_and_the_spare_one_is_taken_again() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let adapter = adapter_without_agent(run_dir.path());
        // One from which nobody can be taken in.
        let flags = SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let mut listener = Listener::new(socket.expect("a socket"), &adapter).expect("watched");
        listener.spare = None;
        let is_reported = || {
            let mut space = [MaybeUninit::<Event>::uninit(); 1];
            let events = epoll::wait(&adapter.agent_epoll, &mut space, Some(&Timespec::default()));
            !events.expect("asked").0.is_empty()
        };
        assert!(is_reported());
        assert!(matches!(listener.accept(&adapter), Accepted::Failed));
        assert!(listener.spare.is_some());
        assert!(!is_reported(), "the agent would spin");
        listener.watch(&adapter).expect("watched again");
        assert!(is_reported());
    }
    #[test]
    fn only_who_was_taken_in_place_of_the_spare_descriptor_was_refused() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let adapter = adapter_without_agent(run_dir.path());
        let socket = adapter.membership.listen().expect("listens");
        let mut listener = Listener::new(socket, &adapter).expect("watched");
        let (one, _theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::empty(),
            None,
        )
        .expect("sockets");
        let mut results = vec![Ok(one), Err(Errno::MFILE)];
        let accepted = listener.accept_by(&adapter, |_| results.pop().expect("asked twice"));
        let own = Some(rustix::process::getpid());
        assert!(matches!(accepted, Accepted::Refused(pid) if pid == own));
        // Another thread is faster.
        let mut results = vec![Err(Errno::MFILE), Err(Errno::MFILE)];
        let accepted = listener.accept_by(&adapter, |_| results.pop().expect("asked twice"));
        assert!(matches!(accepted, Accepted::Failed));
    }
}
