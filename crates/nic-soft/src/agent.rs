//! The agent: a thread of each adapter that answers first contacts, takes new lanes up, notices who
//! has gone, and tries requests again that could not be carried out yet.
//!
//! Everything it does is bounded, and it waits for nobody: a peer
//! that does not read its answers loses the connection.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, Weak};
use std::thread::JoinHandle;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::Timespec;
use rustix::io::Errno;
use verbs::VerbsError;

use crate::adapter::Adapter;
use crate::burial::Burial;
use crate::incoming::{self, TOKEN_LISTENER, TOKEN_STOP, TOKEN_UNFINISHED};
use crate::peer::{self, Peer};

/// Set in the tokens of connections that this adapter opened; see [`watch`].
const TOKEN_OUTGOING: u64 = 1 << 63;
/// Turns in which [`catch_up`] serves peers at most.
const CATCH_UP_TURNS: usize = 256;
/// Events taken at once.
const EVENTS: usize = 64;

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
    pub(crate) fn start(adapter: &Arc<Adapter>, clock: fn() -> u64) -> Result<Self, VerbsError> {
        let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
            .map_err(|e| VerbsError::io("creating an eventfd", e))?;
        let data = EventData::new_u64(TOKEN_STOP);
        epoll::add(&adapter.agent_epoll, &stop, data, EventFlags::IN)
            .map_err(|e| VerbsError::io("watching an eventfd", e))?;
        let data = EventData::new_u64(TOKEN_UNFINISHED);
        let wake = adapter.unfinished.wake();
        epoll::add(&adapter.agent_epoll, wake, data, EventFlags::IN)
            .map_err(|e| VerbsError::io("watching an eventfd", e))?;
        adapter
            .incoming()
            .listen(adapter)
            .map_err(|e| VerbsError::io("listening for peers", e))?;
        let weak = Arc::downgrade(adapter);
        let epoll = adapter
            .agent_epoll
            .try_clone()
            .map_err(|e| VerbsError::io("duplicating a descriptor", e))?;
        let of_thread = weak.clone();
        let thread = std::thread::Builder::new()
            .name("nic-soft agent".into())
            .spawn(move || run(&of_thread, &epoll, clock))
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
        let rang = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        debug_assert!(rang.is_ok(), "an eventfd takes a 1");
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the software NIC's agent panicked");
        }
        if let Some(adapter) = self.adapter.upgrade() {
            // A file that somebody removed already is as good as removed.
            let _ = std::fs::remove_file(adapter.instance.socket());
            adapter.incoming().close(&adapter);
            peer::stop_contacting(&adapter);
        }
    }
}

/// Nanoseconds of the system's monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The sooner of two times to sleep, the second being a moment of the clock.
fn pause(
    again: Option<Timespec>,
    deadline_ns: Option<u64>,
    clock: fn() -> u64,
) -> Option<Timespec> {
    let Some(deadline_ns) = deadline_ns else {
        return again;
    };
    let left_ns = deadline_ns.saturating_sub(clock());
    let left = Timespec {
        tv_sec: (left_ns / 1_000_000_000) as i64,
        tv_nsec: (left_ns % 1_000_000_000) as i64,
    };
    Some(again.map_or(left, |again| again.min(left)))
}

fn run(adapter: &Weak<Adapter>, epoll: &OwnedFd, clock: fn() -> u64) {
    let mut burial = Burial::default();
    let mut deadline_ns = None;
    loop {
        let mut space = [MaybeUninit::<Event>::uninit(); EVENTS];
        let timeout = pause(burial.comes_again_after(), deadline_ns, clock);
        let events = match epoll::wait(epoll, &mut space, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => continue,
            Err(e) => {
                tracing::error!(error = %e, "the software NIC's agent cannot wait");
                return;
            }
        };
        let Some(adapter) = adapter.upgrade() else {
            return;
        };
        for event in events {
            match event.data.u64() {
                TOKEN_STOP => return,
                // Looked after in every turn.
                TOKEN_UNFINISHED => {}
                TOKEN_LISTENER => adapter.incoming().accept(&adapter),
                token if token & TOKEN_OUTGOING != 0 => {
                    outgoing_ended(&adapter, token & !TOKEN_OUTGOING);
                }
                token => incoming::serve(&adapter, token),
            }
        }
        burial.carry_on(&adapter);
        deadline_ns = adapter.unfinished.carry_on(clock());
    }
}

/// Does what the agent has to do for known peers, without waiting for the agent's turn: lanes that
/// they have announced by now are taken up when this returns.
pub(crate) fn catch_up(adapter: &Adapter) {
    // A peer has so many lanes at most.
    for _ in 0..CATCH_UP_TURNS {
        if !serve_peers(adapter) {
            break;
        }
    }
    // What the agent has read by now it deals with before it gives this lock back.
    drop(adapter.incoming());
}

/// As [`catch_up`], and leaves nothing out that a peer has sent by now: whether a descriptor is ready
/// cannot be asked while another thread asks, which finds it not ready for a moment.
pub(crate) fn catch_up_with_all(adapter: &Adapter) {
    adapter.incoming().serve_all_known(adapter);
}

/// Serves known peers that have something to say; false when none has.
fn serve_peers(adapter: &Adapter) -> bool {
    let mut space = [MaybeUninit::<Event>::uninit(); EVENTS];
    let now = Timespec::default();
    // The agent looks again, whatever went wrong here.
    let Ok((events, _)) = epoll::wait(&adapter.agent_epoll, &mut space, Some(&now)) else {
        return false;
    };
    let mut any = false;
    for event in events {
        let token = event.data.u64();
        let others = matches!(token, TOKEN_STOP | TOKEN_LISTENER | TOKEN_UNFINISHED);
        if !others && token & TOKEN_OUTGOING == 0 {
            incoming::serve_known(adapter, token);
            any = true;
        }
    }
    any
}

fn outgoing_ended(adapter: &Adapter, token: u64) {
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
        self::ended(adapter, peer);
    }
    adapter.departures.announce();
}

/// Takes a peer for gone, and leaves to the agent what leads there.
pub(crate) fn ended(adapter: &Adapter, peer: Arc<Peer>) {
    peer.hang_up();
    adapter.fail_connections(&peer);
    adapter.departed().push(peer);
}
