//! The door: NFSv4.0, 4.1 and 4.2 over any file system.
//!
//! A [`Door`] belongs to one core. It holds what the protocol has beyond files: clients, sessions,
//! stateids, exports, signed handles. What is a matter of files, the conflicts of opens, locks and
//! delegations included, is asked of the [`FileSystem`].
//!
//! | file | what is in it |
//! | --- | --- |
//! | `connection`, `budget` | a client's connection: records in, answers out, calls back; and what all take |
//! | `call` | one call: RPC, then a compound of 4.0, or of 4.1 and 4.2 with its slot |
//! | `compound`, `operations`, `lengths` | operations one after the other, one concern a file; what their results take |
//! | `clients`, `sessions`, `states`, `owners` | who there is, and what they hold |
//! | `measure` | calls by operation, how long they took, and the log of slow ones |
//! | `turns` | requests of one owner at one file, one after the other |
//! | `grace`, `lapse`, `conflicts` | reclaiming after a restart, leases that run out, who is in whose way |
//! | `recall` | delegations wanted back |
//! | `handles`, `exports`, `attributes`, `status` | what files are called, where and to whom they are served |

mod attributes;
mod budget;
mod call;
mod clients;
mod compound;
mod conflicts;
mod connection;
mod exports;
mod grace;
mod handles;
mod lapse;
mod lengths;
mod measure;
mod operations;
mod owners;
mod recall;
mod sessions;
mod states;
mod status;
mod turns;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use files::{Answer, Caller, Error, FileSystem, Request};
use rt::net::Listener;
use thiserror::Error as ThisError;

pub use measure::{Latencies, OperationCounts};

pub use exports::{Export, ExportError, Network, NotNetwork, Squash};

use crate::wire;

use clients::Clients;
use exports::Exports;
use handles::Handles;
use sessions::Sessions;
use states::{ClientId, States};

/// Bytes of a READ or WRITE at most.
pub(crate) const IO_MAX: u32 = 1 << 20;

/// Bytes of a request or an answer at most: a WRITE of the largest size, and what surrounds it.
pub(crate) const RECORD_MAX: usize = IO_MAX as usize + (64 << 10);

/// Before the file system is asked again for what has to be.
const PAUSE: Duration = Duration::from_secs(1);

/// Where the row with the server's instance is.
const INSTANCE: &[u8] = b"instance";

/// Where the row is with the lease that clients have been told of, numbers little-endian:
///
/// ```text
///  0         1       8             16
///  | version | zeros | milliseconds |
/// ```
const LEASE: &[u8] = b"lease";

const LEASE_VERSION: u8 = 1;

/// How a door is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is served.
    pub exports: Vec<Export>,
    /// How long a client that is silent keeps what it holds. Then it keeps it until somebody else wants
    /// it.
    pub lease: Duration,
    /// Clients at most; further ones are told to come again.
    pub clients_max: usize,
    /// Opens, lock-owners' locks of files and delegations at most that a client has, and owners with them;
    /// further ones are refused, with RESOURCE in 4.0 and DELAY in 4.1. A client that has half as many gets
    /// no further delegation.
    pub states_max: usize,
    /// Connections at most; further ones are closed at once.
    pub connections_max: usize,
    /// Bytes of requests that are carried out, and of answers to them until their clients have taken
    /// those, over all connections. Beyond that a connection has one request at a time, and data and
    /// listings are not read before others have taken theirs: a client that does not within a lease is
    /// disconnected.
    pub bytes_max: usize,
    /// Bytes of answers that sessions keep for their clients' repeats. Where it is short, further
    /// sessions get fewer slots, down to one for an answer of 2 KiB.
    pub kept_max: usize,
    /// Whether files are delegated to clients.
    pub delegations: bool,
    /// Calls that take so long are written to the log, with what they waited for.
    pub slow: Option<Duration>,
}

impl Options {
    /// These exports, a lease of 90 seconds, 10,000 clients and connections, 100,000 states a client, 256 MiB
    /// of requests and answers, as many of answers that are kept, delegations.
    #[must_use]
    pub fn new(exports: Vec<Export>) -> Self {
        Self {
            exports,
            lease: Duration::from_secs(90),
            clients_max: 10_000,
            states_max: 100_000,
            connections_max: 10_000,
            bytes_max: 256 << 20,
            kept_max: 256 << 20,
            delegations: true,
            slow: None,
        }
    }
}

/// Why there is no door.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum DoorError {
    /// The exports cannot be served together.
    #[error(transparent)]
    Exports(#[from] ExportError),
    /// The rows of clients cannot be read or written.
    #[error("the file system does not tell which clients it had: {0}")]
    Rows(Error),
    /// A row is not what a door of this version has written.
    #[error("the row {key:?} of a client or session is damaged, or of a later version")]
    Damaged {
        /// Under which key.
        key: String,
    },
}

/// What has been done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Compounds that were carried out.
    pub compounds: u64,
    /// Their operations.
    pub operations: u64,
    /// Answers that were repeated from a slot.
    pub repeats: u64,
    /// Delegations that were given.
    pub delegations: u64,
    /// Delegations that were wanted back.
    pub recalls: u64,
    /// Clients that lost what they held.
    pub forgotten: u64,
    /// Connections that are open.
    pub connections: u64,
    /// Bytes of requests that are carried out, and of answers that wait for their clients.
    pub bytes: u64,
    /// Clients.
    pub clients: u64,
    /// Sessions.
    pub sessions: u64,
    /// Bytes of answers that they may keep for repeats.
    pub kept_max: u64,
    /// Opens, locks and delegations.
    pub states: u64,
    /// Owners of opens and locks.
    pub owners: u64,
    /// Opens.
    pub opens: u64,
    /// Lock-owners' locks of a file.
    pub locks: u64,
    /// Delegations that clients have.
    pub delegated: u64,
    /// Bytes of calls.
    pub bytes_in: u64,
    /// Bytes of answers.
    pub bytes_out: u64,
    /// Calls that took longer than [`Options::slow`].
    pub slow: u64,
}

/// A door of a core.
pub struct Door {
    core: rt::Handle,
    fs: Rc<dyn FileSystem>,
    handles: Handles,
    exports: Exports,
    lease_ms: u64,
    clients_max: usize,
    states_max: usize,
    connections_max: usize,
    kept_max: usize,
    budget: Rc<budget::Budget>,
    delegations: bool,
    /// Which start of the server this is.
    instance: u32,
    clients: RefCell<Clients>,
    sessions: RefCell<Sessions>,
    states: RefCell<States>,
    turns: turns::Turns,
    /// What the row of the lease says; none: there is no row, or it is not read yet.
    lease_before_ms: Cell<Option<u64>>,
    wanted_back: recall::WantedBack,
    /// Until when clients claim what they held before; none: the grace period is over.
    grace_until_ms: Cell<Option<u64>>,
    grace_over: rt::sync::Notify,
    /// The room that clients without a lease keep.
    space: RefCell<lapse::Space>,
    /// For tasks of its own.
    me: Weak<Self>,
    counts: Cell<Counts>,
    measures: measure::Measures,
}

impl Door {
    /// A door to a file system: reads which clients there were, and begins their grace period if there
    /// were any.
    ///
    /// # Errors
    /// [`DoorError`].
    pub async fn open(
        core: &rt::Handle,
        fs: Rc<dyn FileSystem>,
        options: Options,
    ) -> Result<Rc<Self>, DoorError> {
        let exports = Exports::new(options.exports)?;
        let instance = next_instance(&*fs).await?;
        let door = Rc::new_cyclic(|me| Self {
            core: core.clone(),
            handles: Handles::new(&fs.secret()),
            exports,
            lease_ms: options.lease.as_millis() as u64,
            clients_max: options.clients_max,
            states_max: options.states_max,
            connections_max: options.connections_max,
            kept_max: options.kept_max,
            budget: Rc::new(budget::Budget::new(options.bytes_max)),
            delegations: options.delegations,
            instance,
            clients: RefCell::new(Clients::new(instance)),
            sessions: RefCell::default(),
            states: RefCell::new(States::new(instance)),
            turns: turns::Turns::default(),
            lease_before_ms: Cell::new(None),
            wanted_back: recall::WantedBack::default(),
            grace_until_ms: Cell::new(None),
            grace_over: rt::sync::Notify::new(),
            space: RefCell::default(),
            me: me.clone(),
            counts: Cell::default(),
            measures: measure::Measures::new(core, options.slow),
            fs,
        });
        door.restore().await?;
        Ok(door)
    }

    /// Accepts connections for ever.
    pub async fn serve(self: Rc<Self>, mut listener: Listener) {
        loop {
            match listener.accept().await {
                Ok(stream) if self.counts.get().connections >= self.connections_max as u64 => {
                    tracing::warn!("a connection too many was closed");
                    drop(stream);
                }
                Ok(stream) => {
                    drop(self.core.spawn(connection::serve(Rc::clone(&self), stream)));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    self.core.sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    /// Keeps the door in order, for ever: ends the grace period, lapses, calls delegations back.
    pub async fn keep(self: Rc<Self>) {
        let grace = self.core.spawn(grace::keep(Rc::clone(&self)));
        let recalls = self.core.spawn(recall::keep(Rc::clone(&self)));
        let own = self.core.spawn(recall::keep_own(Rc::clone(&self)));
        // They end with the core alone.
        drop((grace.await, recalls.await, own.await));
    }

    /// What has been done so far, and what there is.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (opens, locks, delegated) = self.states.borrow().by_kind();
        let (bytes_in, bytes_out, slow) = self.measures.totals();
        Counts {
            bytes: self.budget.taken() as u64,
            opens,
            locks,
            delegated,
            bytes_in,
            bytes_out,
            slow,
            clients: self.clients.borrow().len() as u64,
            sessions: self.sessions.borrow().len() as u64,
            kept_max: self.sessions.borrow().kept_max() as u64,
            states: self.states.borrow().count() as u64,
            owners: self.states.borrow().owners.count() as u64,
            ..self.counts.get()
        }
    }

    /// Calls by what they were for, since the door was opened.
    #[must_use]
    pub fn operations(&self) -> Vec<OperationCounts> {
        self.measures.operations()
    }

    /// Whether clients are still claiming what they held before the restart.
    #[must_use]
    pub fn is_in_grace(&self) -> bool {
        self.grace_until_ms.get().is_some()
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    fn now_ms(&self) -> u64 {
        self.core.now().as_ns() / 1_000_000
    }

    /// What all doors of this file system are called: the second half of its secret, hashed.
    fn owner_id(&self) -> [u8; 16] {
        self.handles.owner_id()
    }

    /// The sequence number of a client's next CREATE_SESSION.
    fn session_sequence(&self, id: ClientId) -> u32 {
        let clients = self.clients.borrow();
        clients.get(id).map_or(1, |client| client.session_sequence)
    }

    /// A client has said something.
    ///
    /// # Errors
    /// STALE_CLIENTID; DELAY while it is being struck off.
    fn renew(&self, id: ClientId) -> Result<(), wire::Nfsstat4> {
        let mut clients = self.clients.borrow_mut();
        let client = clients.get_mut(id).filter(|client| client.is_confirmed);
        let client = client.ok_or(wire::Nfsstat4::NFS4ERR_STALE_CLIENTID)?;
        if client.is_leaving {
            return Err(wire::Nfsstat4::NFS4ERR_DELAY);
        }
        client.renewed_ms = self.now_ms();
        client.has_returned = true;
        Ok(())
    }

    /// A client of 4.0 has said something. One of before a restart has to introduce itself again: it
    /// learns by this that it has to reclaim (RFC 7530, section 9.6.2).
    ///
    /// # Errors
    /// STALE_CLIENTID.
    fn renew_without_session(&self, id: ClientId) -> Result<(), wire::Nfsstat4> {
        let clients = self.clients.borrow();
        let client = clients.get(id).filter(|client| client.record.family == 0);
        if client.is_none() || !self.is_of_this_start(id) {
            return Err(wire::Nfsstat4::NFS4ERR_STALE_CLIENTID);
        }
        drop(clients);
        self.renew(id)
    }

    /// Whether a client has got its number since the server started.
    fn is_of_this_start(&self, id: ClientId) -> bool {
        id >> 32 == u64::from(self.instance)
    }

    /// The client that a stateid belongs to, where no session says so.
    fn client_of(&self, stateid: &wire::Stateid4) -> Result<ClientId, wire::Nfsstat4> {
        let states = self.states.borrow();
        let found = match states.find(stateid, None)? {
            states::Named::State(num) => states.get(num).map(|state| state.client),
            _ => None,
        };
        drop(states);
        let client = found.ok_or(wire::Nfsstat4::NFS4ERR_BAD_STATEID)?;
        self.renew_without_session(client)?;
        Ok(client)
    }

    /// Whether a client's lease holds and it holds something, or may claim it in the grace period.
    fn is_alive_with_state(&self, id: ClientId) -> bool {
        let clients = self.clients.borrow();
        let Some(client) = clients.get(id) else {
            return false;
        };
        if self.is_in_grace() && client.has_claims() {
            return true;
        }
        let is_alive = !client.is_lapsed(self.now_ms(), self.lease_ms);
        is_alive && self.states.borrow().holds_something(id)
    }
}

/// The number of this start: one more than the last one's, kept before anything is answered.
async fn next_instance(fs: &dyn FileSystem) -> Result<u32, DoorError> {
    let damaged = || DoorError::Damaged {
        key: "instance".to_string(),
    };
    let rows = rows(fs).await?;
    let row = rows.iter().find(|(key, _)| key == INSTANCE);
    let last = match row {
        Some((_, value)) => {
            let bytes = value.as_slice().try_into().map_err(|_| damaged())?;
            u32::from_le_bytes(bytes)
        }
        None => 0,
    };
    let instance = last.checked_add(1).ok_or_else(damaged)?;
    let request = Request::PutRecord {
        key: INSTANCE.to_vec(),
        value: instance.to_le_bytes().to_vec(),
    };
    fs.call(&Caller::ROOT, request)
        .await
        .map_err(DoorError::Rows)?;
    Ok(instance)
}

fn lease_row(lease_ms: u64) -> Vec<u8> {
    let mut row = vec![LEASE_VERSION, 0, 0, 0, 0, 0, 0, 0];
    row.extend(lease_ms.to_le_bytes());
    row
}

/// The milliseconds of a lease's row; none: it is no such row of this version.
fn lease_of_row(row: &[u8]) -> Option<u64> {
    let (head, lease_ms) = row.split_first_chunk::<8>()?;
    let is_known = *head == [LEASE_VERSION, 0, 0, 0, 0, 0, 0, 0];
    let lease_ms = lease_ms.try_into().map(u64::from_le_bytes).ok();
    lease_ms.filter(|_| is_known)
}

/// All rows of doors.
async fn rows(fs: &dyn FileSystem) -> Result<Vec<(Vec<u8>, Vec<u8>)>, DoorError> {
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    loop {
        let after = all.last().map(|(key, _)| key.clone()).unwrap_or_default();
        let answer = fs.call(&Caller::ROOT, Request::Records { after }).await;
        match answer.map_err(DoorError::Rows)? {
            Answer::Records(page) if page.is_empty() => return Ok(all),
            Answer::Records(page) => all.extend(page),
            _ => return Err(DoorError::Rows(Error::Io)),
        }
    }
}
