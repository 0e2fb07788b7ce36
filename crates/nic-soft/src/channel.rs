//! Completion channels: a socket that peers can ring, and that only its owner can read.
//!
//! A channel is a datagram socket in the run directory. Who rings sends the number of the
//! completion queue that has something, and for which of its armings that is. Peers have no descriptor of the socket itself, so that
//! nobody can take a ring away or shut the socket down. Its queue is short and may be full of
//! anybody's rings: then it is readable, which is what a ring is for, and its owner takes it that
//! every armed queue was rung.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use verbs::nic::NicChannel;
use verbs::{ChannelNum, CqNum, VerbsError};

use crate::adapter::Adapter;
use crate::arming::Arming;
use crate::cq::CqShared;
use crate::rings::{self, RINGS, Ring};

/// A ring: the completion queue's number, and its armed word.
const RING_LEN: usize = 8;

/// What the channel and its completion queues share.
#[derive(Debug)]
pub(crate) struct ChannelShared {
    socket: OwnedFd,
    path: PathBuf,
    /// For completions of this process.
    bell: Bell,
    /// So many rings taken at once mean that some may have been lost.
    full: usize,
    cqs: Mutex<Vec<Weak<CqShared>>>,
    adapter: Weak<Adapter>,
    num: usize,
    /// Its owner has dropped it.
    is_closed: AtomicBool,
}

impl ChannelShared {
    /// Binds a channel's socket.
    pub(crate) fn new(adapter: &Arc<Adapter>, num: usize) -> Result<Self, VerbsError> {
        let path = adapter.instance.channel(num);
        let bound = || -> rustix::io::Result<(OwnedFd, Bell)> {
            let socket = datagram_socket()?;
            crate::incoming::refuse_descriptors(&socket);
            // The number is ours; whatever has its name is not, and most likely is not there.
            let _ = std::fs::remove_file(&path);
            rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
            Ok((socket, Bell::new(&path)?))
        };
        let (socket, bell) =
            bound().map_err(|e| VerbsError::io("creating a completion channel", e))?;
        Ok(ChannelShared {
            socket,
            path,
            bell,
            full: queue_len().min(RINGS),
            cqs: Mutex::new(Vec::new()),
            adapter: Arc::downgrade(adapter),
            num,
            is_closed: AtomicBool::new(false),
        })
    }

    /// Whether completion queues can be made on it.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
    }

    pub(crate) fn add(&self, cq: &Arc<CqShared>) {
        let mut cqs = self.cqs.lock().unwrap_or_else(PoisonError::into_inner);
        cqs.retain(|one| one.strong_count() > 0);
        cqs.push(Arc::downgrade(cq));
    }

    /// Makes the channel readable, for a queue of this process that has an event.
    pub(crate) fn ring(&self) {
        self.bell.ring_for_nobody();
    }

    /// Takes the rings that are there before one of the queues is armed anew: the channel is readable
    /// afterwards only if there are events.
    pub(crate) fn note_rings(&self, adapter: &Adapter) -> Result<(), VerbsError> {
        let cqs = self.cqs();
        let sleepers = cqs.iter().map(|cq| cq.sleeper(adapter));
        rings::take_rings(sleepers.clone(), self.full, || self.take_ring())?;
        if sleepers.clone().any(|one| one.has_event()) {
            self.bell.ring_for_nobody();
        }
        Ok(())
    }

    fn cqs(&self) -> Vec<Arc<CqShared>> {
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
        // Only now is the number another channel's: peers ring by it.
        if let Some(adapter) = self.adapter.upgrade() {
            let removed = adapter.tables().channels.remove(self.num);
            debug_assert!(removed.is_ok(), "a channel is removed once");
        }
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

fn datagram_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
}

/// What rings a channel: a socket of the ringer's own.
#[derive(Debug)]
pub(crate) struct Bell {
    /// Until there is nobody to be woken any more.
    socket: RwLock<Option<OwnedFd>>,
    address: SocketAddrUnix,
}

impl Bell {
    /// Connects to a channel, if it is there. Waits for nobody.
    pub(crate) fn new(path: &Path) -> rustix::io::Result<Self> {
        let (socket, address) = (datagram_socket()?, SocketAddrUnix::new(path)?);
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(Bell {
                socket: RwLock::new(Some(socket)),
                address,
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
    fn ring_for_nobody(&self) {
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
            // Nobody is there to be woken.
            Err(Errno::NOENT | Errno::CONNREFUSED) => {}
            Err(e) => tracing::warn!(error = %e, "cannot ring a completion channel"),
        }
    }
}

/// A completion channel as its owner holds it.
#[derive(Debug)]
pub(crate) struct SoftChannel {
    adapter: Arc<Adapter>,
    shared: Arc<ChannelShared>,
    /// The queue that an event named last.
    last: u32,
}

impl SoftChannel {
    pub(crate) fn new(adapter: Arc<Adapter>, shared: Arc<ChannelShared>) -> Self {
        SoftChannel {
            adapter,
            shared,
            last: u32::MAX,
        }
    }
}

impl NicChannel for SoftChannel {
    fn num(&self) -> ChannelNum {
        ChannelNum(self.shared.num as u32)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.shared.socket.as_fd()
    }

    fn event(&mut self) -> Result<Option<CqNum>, VerbsError> {
        let cqs = self.shared.cqs();
        let sleepers = cqs.iter().map(|cq| cq.sleeper(&self.adapter));
        let take = || self.shared.take_ring();
        let ring = || self.shared.bell.ring_for_nobody();
        let event = rings::event(sleepers, &mut self.last, self.shared.full, take, ring)?;
        Ok(event.map(CqNum))
    }
}

impl Drop for SoftChannel {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
    }
}
