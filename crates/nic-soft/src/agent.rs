//! The agent: a thread of each adapter that answers first contacts and notices who has gone.
//!
//! It takes no part in moving data. Everything it does is bounded, and a peer that does not read
//! its answers loses the connection.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::thread::JoinHandle;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use verbs::VerbsError;

use crate::adapter::Adapter;
use crate::layout::{VERSION, mr_index};
use crate::protocol::{
    self, Message, OP_CHANNEL, OP_HELLO, OP_REGION, STATUS_NO_SUCH, STATUS_OK, STATUS_VERSION,
};

const TOKEN_LISTENER: u64 = 0;
const TOKEN_STOP: u64 = 1;
/// Tokens from here on are incoming connections.
const TOKEN_INCOMING: u64 = 2;
/// Set in the tokens of connections that this adapter opened; see [`watch`].
const TOKEN_OUTGOING: u64 = 1 << 63;
/// Incoming connections at most.
const CONNECTIONS_MAX: usize = 8192;

/// The running thread. Dropping it stops and joins the thread.
#[derive(Debug)]
pub(crate) struct Agent {
    stop: OwnedFd,
    adapter: Weak<Adapter>,
    thread: Option<JoinHandle<()>>,
}

/// Makes the epoll descriptor that an adapter and its agent share.
pub(crate) fn create_epoll() -> Result<OwnedFd, VerbsError> {
    epoll::create(CreateFlags::CLOEXEC).map_err(|e| VerbsError::io("creating an epoll", e))
}

/// Has the agent notice the end of an outgoing connection. `token` names it.
pub(crate) fn watch(adapter: &Adapter, connection: &OwnedFd, token: u64) -> Result<(), VerbsError> {
    let data = EventData::new_u64(TOKEN_OUTGOING | token);
    epoll::add(&adapter.agent_epoll, connection, data, EventFlags::RDHUP)
        .map_err(|e| VerbsError::io("watching a connection", e))
}

impl Agent {
    /// Binds the adapter's socket and starts the thread.
    pub(crate) fn start(adapter: &Arc<Adapter>) -> Result<Self, VerbsError> {
        let listener = listen(adapter).map_err(|e| VerbsError::io("listening for peers", e))?;
        let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
            .map_err(|e| VerbsError::io("creating an eventfd", e))?;
        for (fd, token) in [(&listener, TOKEN_LISTENER), (&stop, TOKEN_STOP)] {
            epoll::add(
                &adapter.agent_epoll,
                fd,
                EventData::new_u64(token),
                EventFlags::IN,
            )
            .map_err(|e| VerbsError::io("watching the adapter's socket", e))?;
        }
        let weak = Arc::downgrade(adapter);
        let epoll = adapter
            .agent_epoll
            .try_clone()
            .map_err(|e| VerbsError::io("duplicating a descriptor", e))?;
        let worker = Worker {
            adapter: weak.clone(),
            epoll,
            listener,
            incoming: HashMap::new(),
            next_token: TOKEN_INCOMING,
        };
        let thread = std::thread::Builder::new()
            .name("nic-soft agent".into())
            .spawn(move || worker.run())
            .map_err(|e| VerbsError::io("starting the agent", e))?;
        Ok(Agent {
            stop,
            adapter: weak,
            thread: Some(thread),
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(adapter) = self.adapter.upgrade() {
            // A file that somebody removed already is as good as removed.
            let _ = std::fs::remove_file(adapter.instance.socket());
        }
        let rang = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        debug_assert!(rang.is_ok(), "an eventfd takes a 1");
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the software NIC's agent panicked");
        }
    }
}

fn listen(adapter: &Adapter) -> rustix::io::Result<OwnedFd> {
    let path = adapter.instance.socket();
    // What is there was left by a process that died: the number is ours now.
    match std::fs::remove_file(&path) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(Errno::from_io_error(&e).unwrap_or(Errno::IO)),
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
    rustix::net::listen(&socket, 1024)?;
    Ok(socket)
}

struct Connection {
    socket: OwnedFd,
    /// Who is there, once it has said so.
    incarnation: Option<u64>,
}

struct Worker {
    adapter: Weak<Adapter>,
    epoll: OwnedFd,
    listener: OwnedFd,
    incoming: HashMap<u64, Connection>,
    next_token: u64,
}

impl Worker {
    fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                None,
            ) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(e) => {
                    tracing::error!(error = %e, "the software NIC's agent cannot wait");
                    return;
                }
            }
            let Some(adapter) = self.adapter.upgrade() else {
                return;
            };
            for event in &events {
                if self.handle(&adapter, *event).is_break() {
                    return;
                }
            }
        }
    }

    fn handle(&mut self, adapter: &Adapter, event: Event) -> std::ops::ControlFlow<()> {
        match event.data.u64() {
            TOKEN_STOP => return std::ops::ControlFlow::Break(()),
            TOKEN_LISTENER => self.accept(),
            token if token & TOKEN_OUTGOING != 0 => {
                self.outgoing_ended(adapter, token & !TOKEN_OUTGOING);
            }
            token => self.serve(adapter, token),
        }
        std::ops::ControlFlow::Continue(())
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let socket = match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(e) => {
                    // Out of descriptors, most likely. The listener stays readable, so wait a
                    // little instead of spinning.
                    tracing::warn!(error = %e, "cannot accept a peer");
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    return;
                }
            };
            if let Err(e) = protocol::check_user(&socket) {
                tracing::warn!(error = %e, "refused a peer of another user");
                continue;
            }
            if self.incoming.len() >= CONNECTIONS_MAX {
                tracing::warn!(
                    limit = CONNECTIONS_MAX,
                    "refused a peer: too many connections"
                );
                continue;
            }
            let token = self.next_token;
            self.next_token += 1;
            let data = EventData::new_u64(token);
            match epoll::add(&self.epoll, &socket, data, EventFlags::IN) {
                Ok(()) => {
                    self.incoming.insert(
                        token,
                        Connection {
                            socket,
                            incarnation: None,
                        },
                    );
                }
                Err(e) => tracing::warn!(error = %e, "cannot watch a peer"),
            }
        }
    }

    fn serve(&mut self, adapter: &Adapter, token: u64) {
        let Some(connection) = self.incoming.get_mut(&token) else {
            return;
        };
        let alive = match protocol::receive(connection.socket.as_fd()) {
            Ok(Some((request, _))) => answer(adapter, connection, &request),
            Err(Errno::AGAIN | Errno::INTR) => true,
            Ok(None) | Err(_) => false,
        };
        if !alive && let Some(ended) = self.incoming.remove(&token) {
            drop(ended.socket);
            let again = |other: &Connection| other.incarnation == ended.incarnation;
            if let Some(incarnation) = ended.incarnation
                && !self.incoming.values().any(again)
            {
                adapter.note_gone(incarnation);
                adapter.sweep_lanes();
                adapter.free_unannounced_lanes(incarnation);
            }
        }
    }

    fn outgoing_ended(&self, adapter: &Adapter, token: u64) {
        let ended: Vec<_> = {
            let mut peers = adapter.peers.lock().unwrap_or_else(PoisonError::into_inner);
            let keys: Vec<_> = peers
                .iter()
                .filter(|(_, peer)| peer.token() == token)
                .map(|(key, _)| *key)
                .collect();
            keys.iter().filter_map(|key| peers.remove(key)).collect()
        };
        for peer in ended {
            // Level-triggered: without this the hang-up would be reported for ever.
            if let Err(e) = epoll::delete(&self.epoll, peer.socket()) {
                tracing::debug!(error = %e, "forgetting a peer's connection");
            }
            peer.mark_dead();
            adapter.fail_connections(&peer);
        }
        adapter.departures.fetch_add(1, Ordering::Release);
    }
}

/// Answers a request; false when the connection should end.
fn answer(adapter: &Adapter, connection: &mut Connection, request: &Message) -> bool {
    let reply = |status| Message::new(status, request.arg, adapter.incarnation);
    let socket = connection.socket.as_fd();
    if request.version != VERSION {
        let refused = protocol::send(socket, &reply(STATUS_VERSION), &[]);
        tracing::warn!(
            version = request.version,
            ?refused,
            "a peer speaks another version"
        );
        return false;
    }
    let sent = match request.code {
        OP_HELLO if request.incarnation != 0 => {
            connection.incarnation = Some(request.incarnation);
            adapter.note_back(request.incarnation);
            let fds = [adapter.published_file.as_fd(), adapter.inbox_file.as_fd()];
            protocol::send(socket, &reply(STATUS_OK), &fds)
        }
        OP_REGION => {
            let file = {
                let tables = adapter.tables();
                let slot = tables.mrs.get(mr_index(request.arg)).ok();
                slot.filter(|slot| slot.key == request.arg)
                    .and_then(|slot| slot.file.clone())
            };
            match file {
                Some(file) => protocol::send(socket, &reply(STATUS_OK), &[(*file).as_fd()]),
                None => protocol::send(socket, &reply(STATUS_NO_SUCH), &[]),
            }
        }
        OP_CHANNEL => {
            let channel = adapter
                .tables()
                .channels
                .get(request.arg as usize)
                .ok()
                .cloned();
            match channel {
                Some(channel) => protocol::send(socket, &reply(STATUS_OK), &[channel.fd()]),
                None => protocol::send(socket, &reply(STATUS_NO_SUCH), &[]),
            }
        }
        _ => return false,
    };
    if let Err(e) = sent {
        tracing::warn!(error = %e, fd = socket.as_raw_fd(), "a peer does not take its answer");
        return false;
    }
    true
}
