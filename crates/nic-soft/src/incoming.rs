//! Connections that peers have opened: who is there, and what they ask for.
//!
//! A connecting process says which adapter it is: GID, instance, incarnation. It is believed when
//! the process that listens as that instance is the one that has connected, which the kernel
//! knows. From then on, whatever comes through the connection and through the inbox that it was
//! given is of that adapter.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Pid;
use verbs::{Gid, QpNum};

use crate::adapter::Adapter;
use crate::inbox::{PeerInbox, Peerage};
use crate::instance::socket_of;
use crate::layout::{INSTANCES, LANES, VERSION, mr_index, qp_instance};
use crate::protocol::{
    self, Message, OP_HELLO, OP_LANE, OP_REGION, OP_SWEEP, STATUS_EXHAUSTED, STATUS_IDENTITY,
    STATUS_NO_SUCH, STATUS_OK, STATUS_VERSION,
};
use crate::recv::RecvLane;

pub(crate) const TOKEN_LISTENER: u64 = 0;
pub(crate) const TOKEN_STOP: u64 = 1;
pub(crate) const TOKEN_UNFINISHED: u64 = 2;
/// Tokens from here on are connections.
const TOKEN_FIRST: u64 = 3;

/// Connections at most, of all peers.
pub(crate) const CONNECTIONS_MAX: usize = 4096;
/// Connections of one process at most. Each of its adapters has one.
pub(crate) const CONNECTIONS_OF_ONE_MAX: usize = 128;
/// Lanes of one process at most: each costs its receiver a look now and then.
pub(crate) const LANES_OF_ONE_MAX: usize = 2 * LANES;
/// Connections of one process that have not said who they are, at most.
const STRANGERS_OF_ONE_MAX: usize = 64;
/// Connections taken in one turn.
const ACCEPTS: usize = 64;
/// Messages of one connection read in one turn.
const MESSAGES: usize = 16;
/// Times that a connection may ask for what it cannot have.
const REFUSALS_MAX: u32 = 1024;

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    pid: Pid,
    /// The inbox, once it is known whose it is.
    inbox: Option<Arc<PeerInbox>>,
    refusals: u32,
}

/// An adapter's listening socket and the connections that came from it.
#[derive(Debug)]
pub(crate) struct Incoming {
    listener: Option<OwnedFd>,
    /// Given up for a moment when descriptors run out, so that a connection can be refused.
    spare: Option<OwnedFd>,
    connections: HashMap<u64, Connection>,
    next_token: u64,
    /// Connections refused or ended because they broke the rules.
    pub(crate) refused: u64,
}

impl Incoming {
    pub(crate) fn new() -> Self {
        Incoming {
            listener: None,
            spare: None,
            connections: HashMap::new(),
            next_token: TOKEN_FIRST,
            refused: 0,
        }
    }

    /// Binds the adapter's socket.
    pub(crate) fn listen(&mut self, adapter: &Adapter) -> rustix::io::Result<()> {
        let listener = listen(&adapter.instance.socket())?;
        let data = EventData::new_u64(TOKEN_LISTENER);
        epoll::add(&adapter.agent_epoll, &listener, data, EventFlags::IN)?;
        self.listener = Some(listener);
        self.spare = spare();
        Ok(())
    }

    /// Ends everything: peers notice that this adapter has gone.
    pub(crate) fn close(&mut self, adapter: &Adapter) {
        self.listener = None;
        let tokens: Vec<u64> = self.connections.keys().copied().collect();
        for token in tokens {
            self.end(adapter, token);
        }
    }

    /// Connections, and the inboxes of those that have one.
    pub(crate) fn count(&self) -> usize {
        self.connections.len()
    }

    fn refuse(&mut self, why: &str, pid: Pid) {
        self.refused += 1;
        // Whoever wants to fill the log gets a line for twice as much work each time.
        if self.refused.is_power_of_two() {
            let (pid, refused) = (pid.as_raw_nonzero(), self.refused);
            tracing::warn!(pid, why, refused, "refused a peer");
        }
    }

    /// Takes new connections.
    pub(crate) fn accept(&mut self, adapter: &Adapter) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.listener else {
                return;
            };
            let socket = match rustix::net::accept_with(listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(e @ (Errno::MFILE | Errno::NFILE)) if self.spare.take().is_some() => {
                    // The listener would stay readable, and the agent would spin.
                    tracing::warn!(error = %e, "refused a peer");
                    drop(rustix::net::accept_with(listener, flags));
                    self.refused += 1;
                    self.spare = spare();
                    continue;
                }
                Err(e) => {
                    tracing::warn!(error = %e, "cannot accept a peer");
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    return;
                }
            };
            let pid = match protocol::check_user(&socket) {
                Ok(pid) => pid,
                Err(e) => {
                    self.refused += 1;
                    tracing::warn!(error = %e, "refused a peer of another user");
                    continue;
                }
            };
            let is_stranger = |one: &&Connection| one.pid == pid && one.inbox.is_none();
            let strangers = self.connections.values().filter(is_stranger).count();
            if self.connections.len() >= CONNECTIONS_MAX || strangers >= STRANGERS_OF_ONE_MAX {
                self.refuse("too many connections", pid);
                continue;
            }
            let token = self.next_token;
            self.next_token += 1;
            let data = EventData::new_u64(token);
            if let Err(e) = epoll::add(&adapter.agent_epoll, &socket, data, EventFlags::IN) {
                tracing::warn!(error = %e, "cannot watch a peer");
                continue;
            }
            let connection = Connection {
                socket,
                pid,
                inbox: None,
                refusals: 0,
            };
            self.connections.insert(token, connection);
        }
    }

    /// Serves what those who have said who they are have sent by now.
    pub(crate) fn serve_all_known(&mut self, adapter: &Adapter) {
        let known = self
            .connections
            .iter()
            .filter(|(_, one)| one.inbox.is_some());
        let tokens: Vec<u64> = known.map(|(token, _)| *token).collect();
        for token in tokens {
            // A peer has so many lanes to announce at most, and what it asks besides is its own affair.
            let turns = LANES.div_ceil(MESSAGES) + 1;
            let _ = (0..turns).find(|_| !self.serve(adapter, token));
        }
    }

    /// Serves what a connection has sent by now, but not more than its share of a turn; whether there
    /// may be more.
    fn serve(&mut self, adapter: &Adapter, token: u64) -> bool {
        for _ in 0..MESSAGES {
            let Some(connection) = self.connections.get(&token) else {
                return false;
            };
            let pid = connection.pid;
            let served = match protocol::receive(connection.socket.as_fd()) {
                Ok(Some((_, fds))) if !fds.is_empty() => Err("it sent descriptors"),
                Ok(Some((request, _))) => self.answer(adapter, token, &request),
                Err(Errno::AGAIN) => return false,
                // An answer that the peer left unread when it went is told once, and before what it
                // had sent.
                Err(Errno::INTR | Errno::CONNRESET) => continue,
                Err(Errno::BADMSG) => Err("it sent a message of a wrong length"),
                // The end, however it came.
                Ok(None) | Err(_) => {
                    self.end(adapter, token);
                    return false;
                }
            };
            if let Err(why) = served {
                self.refuse(why, pid);
                self.end(adapter, token);
                return false;
            }
        }
        true
    }

    fn end(&mut self, adapter: &Adapter, token: u64) {
        let Some(ended) = self.connections.remove(&token) else {
            return;
        };
        if let Some(inbox) = ended.inbox {
            inbox.mark_gone();
            adapter.departures.announce();
            if inbox.lanes_used() > 0 {
                adapter.wake_pollers();
            }
        }
    }

    /// Answers a request. An error ends the connection.
    fn answer(
        &mut self,
        adapter: &Adapter,
        token: u64,
        request: &Message,
    ) -> Result<(), &'static str> {
        if request.version != VERSION && request.code == OP_HELLO {
            self.reply(adapter, token, STATUS_VERSION, 0, &[])?;
            return Err("it speaks another version");
        }
        let known = self
            .connections
            .get(&token)
            .and_then(|one| one.inbox.clone());
        match (request.code, known) {
            (OP_HELLO, None) => self.hello(adapter, token, request),
            (OP_REGION, Some(inbox)) => self.region(adapter, token, inbox.peer, request.a),
            (OP_LANE, Some(inbox)) => open_lane(adapter, &inbox, request),
            (OP_SWEEP, Some(inbox)) => {
                inbox.sweep();
                Ok(())
            }
            (OP_HELLO, Some(_)) => Err("it introduced itself twice"),
            (OP_REGION | OP_LANE | OP_SWEEP, None) => Err("it did not introduce itself"),
            _ => Err("it asked for something unknown"),
        }
    }

    fn reply(
        &self,
        adapter: &Adapter,
        token: u64,
        status: u32,
        a: u32,
        fds: &[std::os::fd::BorrowedFd<'_>],
    ) -> Result<(), &'static str> {
        let Some(connection) = self.connections.get(&token) else {
            return Ok(());
        };
        let message = Message::answer(status, a, adapter.incarnation);
        match protocol::send(connection.socket.as_fd(), &message, fds) {
            // It has gone; what it sent before is read all the same.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(_) => Err("it does not take its answer"),
        }
    }

    fn hello(
        &mut self,
        adapter: &Adapter,
        token: u64,
        request: &Message,
    ) -> Result<(), &'static str> {
        let Some(pid) = self.connections.get(&token).map(|one| one.pid) else {
            return Ok(());
        };
        let peer = Peerage {
            gid: request.gid,
            instance: request.a,
            incarnation: request.c,
        };
        if !is_held_by(adapter, peer.gid, peer.instance, pid) {
            self.reply(adapter, token, STATUS_IDENTITY, 0, &[])?;
            return Err("it is not the instance that it says it is");
        }
        if adapter.held_by(pid).0 >= CONNECTIONS_OF_ONE_MAX {
            let max = CONNECTIONS_OF_ONE_MAX as u32;
            self.reply(adapter, token, STATUS_EXHAUSTED, max, &[])?;
            return Err("its process has too many connections");
        }
        let (file, inbox) = match PeerInbox::new(adapter, peer, pid) {
            Ok(made) => made,
            Err(error) => {
                tracing::warn!(%error, "no inbox for a peer");
                let max = CONNECTIONS_MAX as u32;
                return self.reply(adapter, token, STATUS_EXHAUSTED, max, &[]);
            }
        };
        let fds = [adapter.published_file.as_fd(), file.as_fd()];
        self.reply(adapter, token, STATUS_OK, 0, &fds)?;
        let inbox = Arc::new(inbox);
        adapter.note_inbox(&inbox);
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.inbox = Some(inbox);
        }
        Ok(())
    }

    /// Hands out the file behind a region. It goes to those that a queue pair of its protection
    /// domain is connected to, and to nobody else.
    fn region(
        &mut self,
        adapter: &Adapter,
        token: u64,
        peer: Peerage,
        key: u32,
    ) -> Result<(), &'static str> {
        let found = {
            let tables = adapter.tables();
            let slot = tables.mrs.get(mr_index(key)).ok();
            slot.filter(|slot| slot.key == key)
                .and_then(|slot| Some((slot.pd, slot.file.clone()?)))
        };
        let leads_there = |pd| adapter.leads_to(pd, peer.gid, peer.instance);
        if let Some((pd, file)) = found
            && leads_there(pd)
        {
            return self.reply(adapter, token, STATUS_OK, key, &[(*file).as_fd()]);
        }
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.refusals += 1;
            if connection.refusals > REFUSALS_MAX {
                return Err("it keeps asking for what is not there");
            }
        }
        self.reply(adapter, token, STATUS_NO_SUCH, key, &[])
    }
}

/// Serves a connection that has something to say.
pub(crate) fn serve(adapter: &Adapter, token: u64) {
    adapter.incoming().serve(adapter, token);
}

/// The same, for a connection that has said who it is.
pub(crate) fn serve_known(adapter: &Adapter, token: u64) {
    let mut incoming = adapter.incoming();
    let known = |one: &Connection| one.inbox.is_some();
    if incoming.connections.get(&token).is_some_and(known) {
        incoming.serve(adapter, token);
    }
}

/// Takes up a lane that a peer has opened.
fn open_lane(
    adapter: &Adapter,
    inbox: &Arc<PeerInbox>,
    request: &Message,
) -> Result<(), &'static str> {
    let (lane, src_qpn) = (request.a as usize, request.b);
    let (dst_qpn, epoch) = (request.c as u32, (request.c >> 32) as u16);
    if src_qpn > QpNum::MAX.0 || qp_instance(src_qpn) != inbox.peer.instance {
        return Err("it opened a lane for a queue pair of somebody else");
    }
    if adapter.held_by(inbox.pid).1 >= LANES_OF_ONE_MAX {
        return Err("its process has too many lanes");
    }
    if !inbox.open(lane) {
        return Err("it opened a lane twice, or one that is none");
    }
    match RecvLane::adopt(adapter, inbox, lane, src_qpn, dst_qpn, epoch) {
        Some(lane) => lane.arrive(adapter),
        // The queue pair has gone or started anew meanwhile, or never was the peer's. The lane
        // waits for its sender to close it.
        None => inbox.retire(lane),
    }
    Ok(())
}

/// Whether an instance's socket is listened on by a process.
fn is_held_by(adapter: &Adapter, gid: Gid, instance: u32, pid: Pid) -> bool {
    if instance >= INSTANCES {
        return false;
    }
    let holder = || -> rustix::io::Result<Pid> {
        let address = SocketAddrUnix::new(socket_of(&adapter.run_dir, gid, instance))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::SEQPACKET;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        // Needs nobody's answer: the kernel connects to whoever listens.
        rustix::net::connect(&socket, &address)?;
        protocol::check_user(&socket)
    };
    match holder() {
        Ok(holder) => holder == pid,
        Err(e) => {
            tracing::debug!(error = %e, instance, "nobody listens as that instance");
            false
        }
    }
}

/// Binds an adapter's socket.
fn listen(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    refuse_descriptors(&socket);
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, 1024)?;
    Ok(socket)
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

fn spare() -> Option<OwnedFd> {
    rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .ok()
}
