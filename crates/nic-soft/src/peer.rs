//! A peer adapter, seen from here: its segments, and its regions as far as they were used.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, epoll};
use rustix::fs::Timespec;
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Pid;
use verbs::{Gid, VerbsError};

use crate::adapter::Adapter;
use crate::agent;
use crate::allotment::Allotment;
use crate::channel::Bell;
use crate::instance::{channel_of, socket_of};
use crate::layout::{CHANNELS, Inbox, LANE_LINES, LaneHead, Line, MrEntry, Published, mr_index};
use crate::protocol::{
    self, Message, STATUS_EXHAUSTED, STATUS_IDENTITY, STATUS_OK, STATUS_VERSION,
};
use crate::region::Described;
use crate::segment::Mapping;

/// A peer adapter. It stays mapped while somebody holds it, also after it has died.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) gid: Gid,
    pub(crate) instance: u32,
    pub(crate) incarnation: u64,
    pub(crate) pid: Pid,
    token: u64,
    published: Mapping,
    /// What the peer has made for us to write.
    inbox: Mapping,
    allotment: Allotment,
    /// Its channels, while some lane of ours rings them.
    bells: Mutex<HashMap<usize, Weak<Bell>>>,
    /// Requests go out one at a time; the connection's end is the peer's.
    connection: Mutex<()>,
    /// Until the peer has gone: whoever still holds it then holds no descriptor.
    socket: Mutex<Option<Arc<OwnedFd>>>,
    dead: AtomicBool,
    /// Its regions by key, each as it was described when it was mapped.
    regions: Mutex<HashMap<u32, (Described, Arc<Mapping>)>>,
}

/// The peer that holds an instance number, contacted if it was not yet. May block for the
/// adapter's contact time-out.
pub(crate) fn peer_of(adapter: &Adapter, gid: Gid, instance: u32) -> Result<Arc<Peer>, VerbsError> {
    if let Some(peer) = known(adapter, gid, instance) {
        return Ok(peer);
    }
    let contacted = dial(adapter, gid, instance, true)
        .map_err(|e| nobody_answers(gid, instance, e))
        .and_then(|socket| introduce(adapter, gid, instance, socket));
    // Only now: whoever comes meanwhile waits as well, for its first datagram would be lost.
    adapter.contacts().note(gid, instance);
    contacted
}

/// The same for whoever must not be held up: a process that was contacted before and has gone, or
/// has only fallen silent, is contacted again in the background.
pub(crate) fn peer_at_once(
    adapter: &Arc<Adapter>,
    gid: Gid,
    instance: u32,
) -> Result<Arc<Peer>, VerbsError> {
    if let Some(peer) = known(adapter, gid, instance) {
        return Ok(peer);
    }
    if adapter.contacts().is_new(gid, instance) {
        return peer_of(adapter, gid, instance);
    }
    let later = |why: &str| VerbsError::Unreachable {
        peer: format!("instance {instance} of {gid}"),
        why: why.into(),
    };
    let Some(attempt) = Attempt::begin(adapter, gid, instance) else {
        return Err(later("it is being contacted"));
    };
    let socket =
        dial(adapter, gid, instance, false).map_err(|e| nobody_answers(gid, instance, e))?;
    let stop = socket
        .try_clone()
        .map_err(|e| VerbsError::io("duplicating a descriptor", e))?;
    let stop = Arc::new(stop);
    let waits_at = Arc::downgrade(&stop);
    let work = move || {
        // Goes with the attempt, whenever somebody looks at what has become of it.
        let _stop = stop;
        if let Err(error) = introduce(&attempt.adapter, gid, instance, socket) {
            tracing::debug!(%error, "a peer was contacted again in vain");
        }
    };
    // Not under the lock, which a thread that cannot be started would want to drop its attempt.
    let thread = std::thread::Builder::new()
        .name("nic-soft contact".into())
        .spawn(work)
        .map_err(|e| VerbsError::io("starting a thread", e))?;
    let mut contacts = adapter.contacts();
    contacts.threads.retain(|(_, one)| !one.is_finished());
    contacts.threads.push((waits_at, thread));
    let is_closed = contacts.is_closed;
    drop(contacts);
    if is_closed {
        stop_contacting(adapter);
    }
    Err(later("it is being contacted again"))
}

/// Ends all attempts in the background, also those that begin later: they hold the adapter, and
/// its number with it.
pub(crate) fn stop_contacting(adapter: &Adapter) {
    let threads = {
        let mut contacts = adapter.contacts();
        contacts.is_closed = true;
        std::mem::take(&mut contacts.threads)
    };
    for (socket, thread) in threads {
        // Wakes it. A socket that its peer has shut down already needs it no more.
        if let Some(socket) = socket.upgrade() {
            let _ = rustix::net::shutdown(&*socket, Shutdown::Both);
        }
        if thread.join().is_err() {
            tracing::error!("contacting a peer panicked");
        }
    }
}

fn known(adapter: &Adapter, gid: Gid, instance: u32) -> Option<Arc<Peer>> {
    let known = {
        let peers = adapter.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.get(&(gid, instance)).cloned()
    };
    // One whose end has not been noticed yet may have a successor of its number.
    known.filter(|peer| !peer.is_dead() && peer.is_connected())
}

/// Says who we are over a fresh connection, and keeps the peer that answers.
fn introduce(
    adapter: &Adapter,
    gid: Gid,
    instance: u32,
    socket: OwnedFd,
) -> Result<Arc<Peer>, VerbsError> {
    // Not under the lock: the peer may be slow to answer, and our own agent needs the lock.
    let peer = Arc::new(Peer::introduced(adapter, gid, instance, socket)?);
    let replaced = {
        let mut peers = adapter.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = peers.get(&(gid, instance))
            && first.incarnation == peer.incarnation
            && !first.is_dead()
        {
            return Ok(Arc::clone(first));
        }
        peer.watch(adapter)?;
        peers.insert((gid, instance), Arc::clone(&peer))
    };
    if let Some(before) = replaced {
        // Nobody would notice its end any more.
        agent::ended(adapter, before);
        adapter.departures.announce();
    }
    Ok(peer)
}

/// Which processes were contacted before, and which are being contacted in the background.
#[derive(Debug, Default)]
pub(crate) struct Contacts {
    before: HashSet<(Gid, u32)>,
    under_way: HashSet<(Gid, u32)>,
    /// The threads of the attempts, and the sockets that they wait at.
    threads: Vec<(Weak<OwnedFd>, JoinHandle<()>)>,
    /// The adapter is being closed.
    is_closed: bool,
}

impl Contacts {
    /// Processes remembered at most.
    const BEFORE_MAX: usize = 1 << 16;
    /// Attempts at once at most.
    const UNDER_WAY_MAX: usize = 16;

    fn is_new(&self, gid: Gid, instance: u32) -> bool {
        !self.before.contains(&(gid, instance))
    }

    fn note(&mut self, gid: Gid, instance: u32) {
        if self.before.len() >= Self::BEFORE_MAX {
            self.before.clear();
        }
        self.before.insert((gid, instance));
    }
}

/// An attempt to contact a process, alone in trying to.
struct Attempt {
    adapter: Arc<Adapter>,
    key: (Gid, u32),
}

impl Attempt {
    fn begin(adapter: &Arc<Adapter>, gid: Gid, instance: u32) -> Option<Self> {
        let mut contacts = adapter.contacts();
        let key = (gid, instance);
        let room = contacts.under_way.len() < Contacts::UNDER_WAY_MAX;
        (room && contacts.under_way.insert(key)).then(|| Attempt {
            adapter: Arc::clone(adapter),
            key,
        })
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.adapter.contacts().under_way.remove(&self.key);
    }
}

fn nobody_answers(gid: Gid, instance: u32, error: rustix::io::Errno) -> VerbsError {
    VerbsError::Unreachable {
        peer: format!("instance {instance} of {gid}"),
        why: format!("no process answers there: {error}"),
    }
}

impl Peer {
    fn introduced(
        adapter: &Adapter,
        gid: Gid,
        instance: u32,
        socket: OwnedFd,
    ) -> Result<Self, VerbsError> {
        let unreachable = |why: String| VerbsError::Unreachable {
            peer: format!("instance {instance} of {gid}"),
            why,
        };
        let pid = protocol::check_user(&socket)
            .map_err(|e| unreachable(format!("it belongs to another user: {e}")))?;
        let us = (adapter.gid, adapter.instance.number(), adapter.incarnation);
        let (reply, fds) = ask(&socket, &Message::hello(us.0, us.1, us.2))
            .map_err(|e| unreachable(format!("it does not answer: {e}")))?;
        match reply.code {
            STATUS_OK => {}
            STATUS_VERSION => {
                let why = format!("it speaks version {}", reply.version);
                return Err(unreachable(why));
            }
            STATUS_EXHAUSTED => {
                return Err(VerbsError::Exhausted {
                    what: "connections to the peer",
                    max: reply.a.into(),
                });
            }
            STATUS_IDENTITY => {
                return Err(unreachable("it takes us for somebody else".into()));
            }
            status => return Err(unreachable(format!("it answers {status}"))),
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
            incarnation: reply.c,
            pid,
            token: adapter.next_token(),
            published,
            inbox,
            allotment: Allotment::default(),
            bells: Mutex::new(HashMap::new()),
            connection: Mutex::new(()),
            socket: Mutex::new(Some(Arc::new(socket))),
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

    fn inbox(&self) -> &Inbox {
        // SAFETY: as for `published`.
        unsafe { self.inbox.start().cast::<Inbox>().as_ref() }
    }

    pub(crate) fn mr_entry(&self, index: usize) -> Option<&MrEntry> {
        self.published().mrs.get(index)
    }

    /// Names the connection to the agent. Ours: two peers can say that they are the same
    /// incarnation, and the end of one must not be the other's.
    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// The connection, while there is one.
    fn socket(&self) -> rustix::io::Result<Arc<OwnedFd>> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket.clone().ok_or(rustix::io::Errno::CONNRESET)
    }

    /// Whether the peer's process holds its end of the connection. As long as it does, its number is
    /// not another process's.
    pub(crate) fn is_connected(&self) -> bool {
        let Ok(socket) = self.socket() else {
            return false;
        };
        let mut fds = [PollFd::new(&*socket, PollFlags::RDHUP)];
        let now = Timespec::default();
        loop {
            match rustix::event::poll(&mut fds, Some(&now)) {
                // A signal says nothing of the peer, though nothing was waited for.
                Err(rustix::io::Errno::INTR) => {}
                polled => return matches!(polled, Ok(0)),
            }
        }
    }

    /// Has the agent notice the peer's end.
    fn watch(&self, adapter: &Adapter) -> Result<(), VerbsError> {
        let socket = self
            .socket()
            .map_err(|e| VerbsError::io("watching a connection", e))?;
        agent::watch(adapter, &socket, self.token)
    }

    fn mark_dead(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// Takes the peer for gone. The agent is told by the connection, which ends here if it has not
    /// ended already.
    pub(crate) fn hang_up(&self) {
        self.mark_dead();
        // What has ended already is as good.
        if let Ok(socket) = self.socket() {
            let _ = rustix::net::shutdown(&*socket, Shutdown::Both);
        }
    }

    /// Closes what leads to a peer that has gone.
    pub(crate) fn close(&self, adapter: &Adapter) {
        let socket = self
            .socket
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(socket) = socket
            // Somebody may be using it just now. Level-triggered: the hang-up would be reported
            // until he has done.
            && let Err(e) = epoll::delete(&adapter.agent_epoll, &*socket)
        {
            tracing::debug!(error = %e, "forgetting a peer's connection");
        }
        let bells = {
            let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *bells)
        };
        for bell in bells.into_values().filter_map(|one| one.upgrade()) {
            bell.close();
        }
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
        region: &Described,
    ) -> Result<Arc<Mapping>, VerbsError> {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, mapping)) = regions.get(&key)
            && known == region
        {
            return Ok(Arc::clone(mapping));
        }
        // Regions that are there no more let go of their memory. A peer may write what it likes into
        // its entries: it loses mappings of its own memory by that.
        regions.retain(|old, _| {
            let entry = self.mr_entry(mr_index(*old));
            entry.is_some_and(|entry| entry.key.load(Ordering::Acquire) == *old)
        });
        let fds = self.request(adapter, &Message::region(key))?;
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
        regions.insert(key, (*region, Arc::clone(&mapping)));
        Ok(mapping)
    }

    /// What rings one of its channels. Waits for nobody.
    pub(crate) fn bell(&self, adapter: &Adapter, channel: usize) -> Result<Arc<Bell>, VerbsError> {
        if channel >= CHANNELS {
            let why = "its completion channel";
            return Err(VerbsError::invalid("peer's queue pair", why));
        }
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that no bell comes after those that the peer's end has closed.
        if self.is_dead() {
            return Err(self.unreachable(rustix::io::Errno::CONNRESET));
        }
        if let Some(bell) = bells.get(&channel).and_then(Weak::upgrade) {
            return Ok(bell);
        }
        let path = channel_of(&adapter.run_dir, self.gid, self.instance, channel);
        let bell = Bell::new(&path)
            .map_err(|e| VerbsError::io("connecting to a peer's completion channel", e))?;
        let bell = Arc::new(bell);
        bells.retain(|_, one| one.strong_count() > 0);
        bells.insert(channel, Arc::downgrade(&bell));
        Ok(bell)
    }

    /// A lane of our inbox there: its lines, and how far the peer has come.
    pub(crate) fn lane(&self, lane: usize) -> (&[Line; LANE_LINES], &LaneHead) {
        (&self.inbox().lines[lane].0, &self.inbox().heads[lane])
    }

    /// Opens a lane between two queue pairs: its number, and how many times it was opened. Waits
    /// for nobody. One that is to go on behind a full lane is refused when too many lanes are left to
    /// be read.
    pub(crate) fn open_lane(
        &self,
        src_qpn: u32,
        dst_qpn: u32,
        epoch: u16,
        is_behind: bool,
    ) -> Result<(usize, u32), VerbsError> {
        let heads = &self.inbox().heads;
        let taken = match is_behind {
            true => self.allotment.take_behind(heads),
            false => self.allotment.take(heads),
        };
        if taken.is_err() {
            // There may be lanes that were closed since the peer looked last. If this does not go
            // through either, the next attempt asks again.
            let _ = self.tell(&Message::sweep());
        }
        let lane = taken?;
        if let Err(e) = self.tell(&Message::lane(lane as u32, src_qpn, dst_qpn, epoch)) {
            self.allotment.give_back(lane);
            return Err(VerbsError::io("announcing a lane", e));
        }
        Ok((lane, self.allotment.opened(lane)))
    }

    /// Gives a lane back, in which nothing will be written any more.
    pub(crate) fn close_lane(&self, lane: usize, opened: u32) {
        let tail = &self.inbox().tails[lane];
        tail.closed.store(opened, Ordering::Release);
        self.allotment.give_back(lane);
    }

    /// Whether the peer has read a lane to its end that was closed.
    pub(crate) fn has_read(&self, lane: usize, opened: u32) -> bool {
        let released = self.inbox().heads[lane].released.load(Ordering::Relaxed);
        // Another link may have used it since.
        released.wrapping_sub(opened) as i32 >= 0
    }

    /// Sends what has no answer.
    fn tell(&self, message: &Message) -> rustix::io::Result<()> {
        protocol::send(self.socket()?.as_fd(), message, &[])
    }

    fn unreachable(&self, error: rustix::io::Errno) -> VerbsError {
        VerbsError::Unreachable {
            peer: format!("instance {} of {}", self.instance, self.gid),
            why: error.to_string(),
        }
    }

    fn request(&self, adapter: &Adapter, request: &Message) -> Result<Vec<OwnedFd>, VerbsError> {
        let _one_at_a_time = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let unreachable = |e| self.unreachable(e);
        let socket = self.socket().map_err(unreachable)?;
        if self.is_dead() {
            return Err(unreachable(rustix::io::Errno::CONNRESET));
        }
        let asked = ask_and_serve(adapter, &socket, request);
        if asked.is_err() {
            // An answer that comes late would be taken for the next one's. Datagrams find the
            // process again by a new connection.
            self.mark_dead();
            adapter.departures.announce();
        }
        let (reply, fds) = asked.map_err(unreachable)?;
        if reply.code != STATUS_OK {
            return Err(VerbsError::NoSuch {
                what: "object of the peer",
                number: request.a.into(),
            });
        }
        Ok(fds)
    }
}

/// Connects to a process. Unless it may wait, a process that takes no more connections is as one
/// that is not there.
fn dial(adapter: &Adapter, gid: Gid, instance: u32, wait: bool) -> rustix::io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(socket_of(&adapter.run_dir, gid, instance))?;
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    let limit = Some(adapter.contact_timeout);
    rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Recv, limit)?;
    rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, limit)?;
    rustix::io::ioctl_fionbio(&socket, !wait)?;
    rustix::net::connect(&socket, &address)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

/// Asks, and answers those who ask this adapter meanwhile: the caller may be the agent, may hold what
/// the agent waits for, or the peer may be doing just the same.
fn ask_and_serve(
    adapter: &Adapter,
    socket: &OwnedFd,
    request: &Message,
) -> rustix::io::Result<(Message, Vec<OwnedFd>)> {
    use rustix::io::Errno;
    protocol::send(socket.as_fd(), request, &[])?;
    let deadline = Instant::now() + adapter.contact_timeout;
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    loop {
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&pause)) {
            Ok(0) if Instant::now() > deadline => return Err(Errno::TIMEDOUT),
            Ok(0) => agent::catch_up(adapter),
            Ok(_) => match protocol::receive(socket.as_fd()) {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => return Err(Errno::CONNRESET),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            },
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

fn ask(socket: &OwnedFd, request: &Message) -> rustix::io::Result<(Message, Vec<OwnedFd>)> {
    use rustix::io::Errno;
    protocol::send(socket.as_fd(), request, &[])?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SoftNic, SoftOptions};

    #[test]
    fn attempts_at_once_are_bounded() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let nic = SoftNic::open(&SoftOptions::new(run_dir.path())).expect("an adapter");
        let adapter = &nic.adapter;
        let begin = |instance| Attempt::begin(adapter, adapter.gid, instance);
        let mut under_way: Vec<_> = (0..16).map(|n| begin(n).expect("room")).collect();
        assert!(begin(16).is_none(), "there are enough");
        under_way.pop();
        let next = begin(16).expect("room");
        assert!(begin(0).is_none(), "it is under way already");
        drop((under_way, next));
        assert!(begin(0).is_some(), "its attempt is over");
    }
}
