//! A peer adapter, seen from here: its segments, and its regions as far as they were used.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Pid;
use verbs::{Gid, VerbsError};

use crate::adapter::Adapter;
use crate::instance::socket_of;
use crate::layout::{Inbox, MrEntry, Published, mr_index};
use crate::protocol::{self, Message, OP_CHANNEL, OP_HELLO, OP_REGION, STATUS_OK, STATUS_VERSION};
use crate::segment::Mapping;
use crate::{agent, memory};

/// A peer adapter. It stays mapped while somebody holds it, also after it has died.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) gid: Gid,
    pub(crate) instance: u32,
    pub(crate) incarnation: u64,
    pub(crate) pid: Pid,
    published: Mapping,
    inbox: Mapping,
    /// Requests go out one at a time; the connection's end is the peer's.
    connection: Mutex<()>,
    socket: OwnedFd,
    dead: AtomicBool,
    regions: Mutex<HashMap<u32, Arc<Mapping>>>,
}

/// The peer that holds an instance number, contacted if it was not yet. May block for the
/// adapter's contact time-out.
pub(crate) fn peer_of(adapter: &Adapter, gid: Gid, instance: u32) -> Result<Arc<Peer>, VerbsError> {
    let known = || {
        let peers = adapter.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers
            .get(&(gid, instance))
            .filter(|peer| !peer.is_dead())
            .cloned()
    };
    if let Some(peer) = known() {
        return Ok(peer);
    }
    // Not under the lock: the peer may be slow to answer, and our own agent needs the lock.
    let peer = Arc::new(Peer::contact(adapter, gid, instance)?);
    let mut peers = adapter.peers.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(first) = peers.get(&(gid, instance))
        && first.incarnation == peer.incarnation
        && !first.is_dead()
    {
        return Ok(Arc::clone(first));
    }
    agent::watch(adapter, &peer.socket, peer.token())?;
    peers.insert((gid, instance), Arc::clone(&peer));
    Ok(peer)
}

impl Peer {
    fn contact(adapter: &Adapter, gid: Gid, instance: u32) -> Result<Self, VerbsError> {
        let unreachable = |why: String| VerbsError::Unreachable {
            peer: format!("instance {instance} of {gid}"),
            why,
        };
        let socket = connect(adapter, gid, instance)
            .map_err(|e| unreachable(format!("no process answers there: {e}")))?;
        let pid = protocol::check_user(&socket)
            .map_err(|e| unreachable(format!("it belongs to another user: {e}")))?;
        let (reply, fds) = ask(&socket, adapter.incarnation, OP_HELLO, 0)
            .map_err(|e| unreachable(format!("it does not answer: {e}")))?;
        if reply.code == STATUS_VERSION {
            return Err(unreachable(format!("it speaks version {}", reply.version)));
        }
        let [published_file, inbox_file] = <[OwnedFd; 2]>::try_from(fds)
            .map_err(|fds| unreachable(format!("it sent {} descriptors, not 2", fds.len())))?;
        let published =
            adapter
                .source
                .map_foreign(&published_file, size_of::<Published>(), false)?;
        let inbox = adapter
            .source
            .map_foreign(&inbox_file, size_of::<Inbox>(), true)?;
        let peer = Peer {
            gid,
            instance,
            incarnation: reply.incarnation,
            pid,
            published,
            inbox,
            connection: Mutex::new(()),
            socket,
            dead: AtomicBool::new(false),
            regions: Mutex::new(HashMap::new()),
        };
        Adapter::check_header(&peer.published().header, instance, peer.incarnation)?;
        Adapter::check_header(&peer.inbox().header, instance, peer.incarnation)?;
        Ok(peer)
    }

    pub(crate) fn published(&self) -> &Published {
        // SAFETY: the mapping has the layout's size, cannot shrink, and holds only atomics, for
        // which any bytes are valid.
        unsafe { self.published.start().cast::<Published>().as_ref() }
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        // SAFETY: as for `published`.
        unsafe { self.inbox.start().cast::<Inbox>().as_ref() }
    }

    pub(crate) fn mr_entry(&self, index: usize) -> Option<&MrEntry> {
        self.published().mrs.get(index)
    }

    /// Names the connection to the agent.
    pub(crate) fn token(&self) -> u64 {
        self.incarnation & (u64::MAX >> 1)
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(crate) fn mark_dead(&self) {
        self.dead.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// The memory of one of its shared regions, mapped here. May block when it is used for the
    /// first time.
    pub(crate) fn region(
        &self,
        adapter: &Adapter,
        key: u32,
        region: &memory::Described,
    ) -> Result<Arc<Mapping>, VerbsError> {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mapping) = regions.get(&key) {
            return Ok(Arc::clone(mapping));
        }
        // A region of the same number was here before and is gone: the key differs.
        regions.retain(|old, _| mr_index(*old) != mr_index(key));
        let (_, fds) = self.request(adapter, OP_REGION, key)?;
        let file = fds.into_iter().next().ok_or(VerbsError::NoSuch {
            what: "memory region of the peer",
            number: key.into(),
        })?;
        let len = usize::try_from(region.len)
            .map_err(|_| VerbsError::invalid("peer's region", "it is larger than memory"))?;
        use verbs::Access;
        let writable = region
            .access
            .intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let mapping = Arc::new(adapter.source.map_foreign(&file, len, writable)?);
        regions.insert(key, Arc::clone(&mapping));
        Ok(mapping)
    }

    /// The event descriptor of one of its channels.
    pub(crate) fn channel(&self, adapter: &Adapter, number: u32) -> Result<OwnedFd, VerbsError> {
        let (_, fds) = self.request(adapter, OP_CHANNEL, number)?;
        fds.into_iter().next().ok_or(VerbsError::NoSuch {
            what: "completion channel of the peer",
            number: number.into(),
        })
    }

    fn request(
        &self,
        adapter: &Adapter,
        op: u32,
        arg: u32,
    ) -> Result<(Message, Vec<OwnedFd>), VerbsError> {
        let _one_at_a_time = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let unreachable = |e: rustix::io::Errno| VerbsError::Unreachable {
            peer: format!("instance {} of {}", self.instance, self.gid),
            why: e.to_string(),
        };
        if self.is_dead() {
            return Err(unreachable(rustix::io::Errno::CONNRESET));
        }
        let asked = ask(&self.socket, adapter.incarnation, op, arg);
        if asked.is_err() {
            // An answer that comes late would be taken for the next one's.
            self.mark_dead();
        }
        let (reply, fds) = asked.map_err(unreachable)?;
        if reply.code != STATUS_OK {
            return Err(VerbsError::NoSuch {
                what: "object of the peer",
                number: arg.into(),
            });
        }
        Ok((reply, fds))
    }
}

fn connect(adapter: &Adapter, gid: Gid, instance: u32) -> rustix::io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(socket_of(&adapter.run_dir, gid, instance))?;
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    let limit = Some(adapter.contact_timeout);
    rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Recv, limit)?;
    rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, limit)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

fn ask(
    socket: &OwnedFd,
    incarnation: u64,
    op: u32,
    arg: u32,
) -> rustix::io::Result<(Message, Vec<OwnedFd>)> {
    use rustix::io::Errno;
    protocol::send(socket.as_fd(), &Message::new(op, arg, incarnation), &[])?;
    loop {
        match protocol::receive(socket.as_fd()) {
            Ok(Some(reply)) => return Ok(reply),
            Ok(None) => return Err(Errno::CONNRESET),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
            Err(e) => return Err(e),
        }
    }
}
