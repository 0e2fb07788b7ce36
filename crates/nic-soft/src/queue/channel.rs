//! Completion channels: a socket that peers can ring, and that only its owner can read.
//!
//! Peers have no descriptor of the socket itself, so that nobody can take a ring away or shut the
//! socket down. Its queue is short and may be full of anybody's rings: then it is readable, which is
//! what a ring is for, and its owner takes it that every armed queue was rung.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketAddrUnix};
use verbs::VerbsError;

use crate::contact::adapter::Adapter;
use crate::contact::doorbell::{Doorbell, RING_LEN, datagram_socket, refuse_descriptors};
use crate::shared::arming::Arming;
use crate::shared::wakeup::{self, RINGS, Ring, Sleeper};
use crate::sync::table::Slot;

/// A completion queue, as channels and shared receive queues see it.
pub(crate) trait Wakes: Send + Sync + std::fmt::Debug {
    /// Whether it is armed, and whom rings are for.
    fn sleeper<'a>(&'a self, adapter: &'a Adapter) -> Sleeper<'a>;
    /// Raises an event if it is armed for one.
    fn notify(&self, adapter: &Adapter, solicited: bool);
}

/// What the channel and its completion queues share.
#[derive(Debug)]
pub(crate) struct ChannelShared {
    socket: OwnedFd,
    path: PathBuf,
    /// For completions of this process.
    doorbell: Doorbell,
    /// So many rings taken at once mean that some may have been lost.
    full: usize,
    cqs: Mutex<Vec<Weak<dyn Wakes>>>,
    /// Its owner has dropped it.
    is_closed: AtomicBool,
    // Freed last, when nobody finds the socket any more: peers ring by the number.
    slot: Slot<Weak<ChannelShared>>,
    // After it: it holds the instance's number, of which the socket has its name.
    _adapter: Arc<Adapter>,
}

impl ChannelShared {
    /// Binds a channel's socket.
    pub(crate) fn new(
        adapter: &Arc<Adapter>,
        slot: Slot<Weak<ChannelShared>>,
    ) -> Result<Arc<Self>, VerbsError> {
        let path = adapter.membership.own_channel(slot.number());
        let bound = || -> rustix::io::Result<(OwnedFd, Doorbell)> {
            let socket = datagram_socket()?;
            refuse_descriptors(&socket);
            // The number is ours; whatever has its name is not, and most likely is not there.
            let _ = std::fs::remove_file(&path);
            rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
            Ok((socket, Doorbell::new(&path)?))
        };
        let (socket, doorbell) =
            bound().map_err(|e| VerbsError::io("creating a completion channel", e))?;
        let shared = Arc::new(ChannelShared {
            socket,
            path,
            doorbell,
            full: queue_len().min(RINGS),
            cqs: Mutex::new(Vec::new()),
            is_closed: AtomicBool::new(false),
            slot,
            _adapter: Arc::clone(adapter),
        });
        shared.slot.set(Arc::downgrade(&shared));
        Ok(shared)
    }

    pub(crate) fn number(&self) -> usize {
        self.slot.number()
    }

    /// Readable while there are rings.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Its owner drops it: completion queues that have it keep it, and no other one can.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Whether completion queues can be made on it.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
    }

    /// Adds a completion queue.
    pub(crate) fn add(&self, cq: Weak<dyn Wakes>) {
        let mut cqs = self.cqs.lock().unwrap_or_else(PoisonError::into_inner);
        cqs.retain(|one| one.strong_count() > 0);
        cqs.push(cq);
    }

    /// Makes the channel readable, for a queue of this process that has an event.
    pub(crate) fn ring(&self) {
        self.doorbell.ring_for_nobody();
    }

    /// Takes the rings that are there before one of the queues is armed anew: the channel is readable
    /// afterwards only if there are events.
    pub(crate) fn note_rings(&self, adapter: &Adapter) -> Result<(), VerbsError> {
        let cqs = self.cqs();
        let sleepers = cqs.iter().map(|cq| cq.sleeper(adapter));
        wakeup::take_rings(sleepers.clone(), self.full, || self.take_ring())?;
        if sleepers.clone().any(|one| one.has_event()) {
            self.doorbell.ring_for_nobody();
        }
        Ok(())
    }

    /// Takes an event: the number of a queue that was rung for, the next one after `last`.
    pub(crate) fn event(
        &self,
        adapter: &Adapter,
        last: &mut u32,
    ) -> Result<Option<u32>, VerbsError> {
        let cqs = self.cqs();
        let sleepers = cqs.iter().map(|cq| cq.sleeper(adapter));
        let ring = || self.doorbell.ring_for_nobody();
        wakeup::event(sleepers, last, self.full, || self.take_ring(), ring)
    }

    fn cqs(&self) -> Vec<Arc<dyn Wakes>> {
        let cqs = self.cqs.lock().unwrap_or_else(PoisonError::into_inner);
        cqs.iter().filter_map(Weak::upgrade).collect()
    }

    /// Takes a ring out of the socket. Anybody can write there.
    fn take_ring(&self) -> Result<Ring, VerbsError> {
        let mut bytes = [0; RING_LEN + 1];
        match rustix::net::recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((RING_LEN, _)) => {
                let [a, b, c, d, arming @ .., _] = bytes;
                let cq = u32::from_le_bytes([a, b, c, d]);
                Ok(Ring::For(cq, Arming::from_bytes(arming)))
            }
            Ok(_) | Err(Errno::INTR) => Ok(Ring::Nobody),
            Err(Errno::AGAIN) => Ok(Ring::End),
            Err(e) => Err(VerbsError::io("reading a completion channel", e)),
        }
    }
}

impl Drop for ChannelShared {
    fn drop(&mut self) {
        // A file that somebody removed already is as good as removed.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// How many datagrams a socket made now takes in before senders find it full: one more than the
/// kernel's limit says.
fn queue_len() -> usize {
    let limit = std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen");
    // Without it, the kernel's default.
    limit
        .ok()
        .and_then(|limit| limit.trim().parse().ok())
        .unwrap_or(10)
}

#[cfg(test)]
mod tests {
    use verbs::ChannelNum;
    use verbs::nic::Nic;

    use crate::testing::Host;

    #[test]
    fn the_number_of_an_instance_is_free_when_its_channels_have_gone() {
        let host = Host::new();
        let nic = host.open();
        let instance = nic.usage().instance;
        let channel = nic.create_channel().expect("a channel");
        let ChannelNum(number) = channel.num();
        // As a completion queue holds it that goes after the others.
        let shared = nic
            .objects
            .channel(ChannelNum(number))
            .expect("it is there");
        let path = shared.path.clone();
        drop((channel, nic));
        let next = host.open();
        assert_ne!(next.usage().instance, instance, "its socket is there");
        assert!(path.exists());
        drop(shared);
        assert!(!path.exists());
        assert_eq!(host.open().usage().instance, instance);
    }
}
