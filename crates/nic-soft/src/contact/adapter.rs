//! An adapter among those of its host: its number and its published segment.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use verbs::{Gid, GidEntry, GidKind, Mtu, PortAttr, VerbsError};

use crate::contact::membership::Membership;
use crate::contact::protocol::Message;
use crate::shared::header::{self, Owner};
use crate::shared::layout::{
    CqEntry, Credit, Header, MrEntry, Published, QP_INDEX_BITS, QPS, QpEntry, RECVS, SrqEntry,
    VERSION,
};
use crate::shared::route::Route;
use crate::shared::segment::{Mapping, Source, Writers};
use crate::sync::peer_epoch::PeerEpoch;
use crate::sync::quiescence::Quiescence;
use crate::sync::released::Released;

/// What the agent's epoll descriptor reports.
pub(crate) const TOKEN_LISTENER: u64 = 0;
pub(crate) const TOKEN_STOP: u64 = 1;
pub(crate) const TOKEN_WAKE: u64 = 2;
/// Tokens from here on are connections.
pub(crate) const TOKEN_FIRST: u64 = 3;
/// Set in the tokens of connections that this adapter opened.
pub(crate) const TOKEN_OUTGOING: u64 = 1 << 63;

/// Addresses of a port at most.
const GIDS_MAX: usize = 256;

/// How to make one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a> {
    pub(crate) gid: Gid,
    pub(crate) aliases: &'a [GidEntry],
    pub(crate) run_dir: &'a Path,
    pub(crate) contact_timeout: Duration,
    pub(crate) memfd: bool,
    pub(crate) fails_with_peers: bool,
    pub(crate) datagrams_wait: bool,
}

/// One opened software NIC, as far as other processes have to do with it.
#[derive(Debug)]
#[repr(C, align(64))] // What posts and polls look at lies on the first line.
pub(crate) struct Adapter {
    /// Moves when a peer has gone, ours or theirs, or an address handle.
    pub(crate) peer_epoch: PeerEpoch,
    /// For each queue pair, how far its requests' completions have been polled.
    pub(crate) released: Box<[Released]>,
    published: Mapping,
    pub(crate) gid: Gid,
    /// The port's table: that GID, and other addresses behind it.
    gids: Vec<GidEntry>,
    pub(crate) contact_timeout: Duration,
    pub(crate) source: Source,
    /// Drawn anew for every adapter ever opened; names it among all of them.
    pub(crate) incarnation: u64,
    pub(crate) published_file: OwnedFd,
    pub(crate) quiescence: Quiescence,
    /// Whether reliable connections fail when their peer's process ends.
    pub(crate) fails_with_peers: bool,
    /// Whether datagrams complete only when contact with their receiver's process has been made.
    pub(crate) datagrams_wait: bool,
    /// For each number of a queue pair, the connections that were begun under it.
    epochs: Box<[AtomicU16]>,
    /// Messages that were dropped for want of room, and of RECVs.
    unsent: AtomicU64,
    unreceived: AtomicU64,
    /// Peers find no queue pair here that takes anything, though some do.
    pub(crate) keeps_peers_waiting: AtomicBool,
    /// The last number that changed with an object's description.
    generation: AtomicU32,
    /// The agent's epoll descriptor, to which connections are added.
    pub(crate) agent_epoll: OwnedFd,
    /// Readable when the agent is to look after everything again.
    pub(crate) agent_wake: OwnedFd,
    // Dropped last: whoever takes the number next uses the same names in the run directory.
    pub(crate) membership: Membership,
}

/// The port of a device of these addresses.
pub(crate) fn port_attr(gid: Gid, aliases: &[GidEntry]) -> PortAttr {
    let mut port = PortAttr::active(gid, Mtu::B4096);
    port.gids = table(gid, aliases);
    port
}

impl Adapter {
    pub(crate) fn new(options: Options<'_>) -> Result<Self, VerbsError> {
        let Options {
            gid,
            aliases,
            run_dir,
            contact_timeout,
            memfd,
            fails_with_peers,
            datagrams_wait,
        } = options;
        let membership = Membership::join(run_dir, gid)?;
        let source = Source::choose(memfd, run_dir);
        let (published_file, published) =
            source.create("vervain-published", size_of::<Published>(), Writers::Owner)?;
        let incarnation = loop {
            let drawn = random_u64()?;
            if drawn != 0 {
                break drawn;
            }
        };
        let quiescence = Quiescence::new();
        let agent_epoll = epoll::create(CreateFlags::CLOEXEC)
            .map_err(|e| VerbsError::io("creating an epoll", e))?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let agent_wake = eventfd(0, flags).map_err(|e| VerbsError::io("creating an eventfd", e))?;
        let adapter = Adapter {
            gid,
            gids: table(gid, aliases),
            contact_timeout,
            source,
            incarnation,
            published_file,
            published,
            peer_epoch: PeerEpoch::new(),
            released: (0..QPS).map(|_| Released::new()).collect(),
            epochs: (0..QPS).map(|_| AtomicU16::new(0)).collect(),
            unsent: AtomicU64::new(0),
            unreceived: AtomicU64::new(0),
            quiescence,
            fails_with_peers,
            datagrams_wait,
            keeps_peers_waiting: AtomicBool::new(false),
            generation: AtomicU32::new((incarnation >> 32) as u32 | 1),
            agent_epoll,
            agent_wake,
            membership,
        };
        adapter.sign(&adapter.published().header);
        Ok(adapter)
    }

    /// Writes a segment's header.
    pub(crate) fn sign(&self, header: &Header) {
        let owner = Owner {
            instance: self.membership.number(),
            incarnation: self.incarnation,
        };
        header::sign(header, owner);
    }

    /// A port: there is one.
    pub(crate) fn port(&self, port: u8) -> Result<PortAttr, VerbsError> {
        if port != 1 {
            let (what, number) = ("port", u64::from(port));
            return Err(VerbsError::NoSuch { what, number });
        }
        let mut port = port_attr(self.gid, &[]);
        port.gids.clone_from(&self.gids);
        Ok(port)
    }

    fn is_own(&self, gid: Gid) -> bool {
        self.gids.iter().any(|own| own.gid == gid)
    }

    /// The GID by which a device is known in the run directory: processes of one device have the same names for it.
    pub(crate) fn device_of(&self, gid: Gid) -> Gid {
        match self.is_own(gid) {
            true => self.gid,
            false => gid,
        }
    }

    /// What the headers of a lane's datagrams say, which its sender has announced: as it says where the names are
    /// those of its device and ours.
    pub(crate) fn received_route(&self, sender: Gid, lane: &Message) -> Route {
        let is_name_of_sender = self.device_of(lane.from) == sender;
        let is_for_us = self.is_own(lane.gid) || lane.gid.is_multicast();
        Route {
            from: if is_name_of_sender { lane.from } else { sender },
            to: if is_for_us { lane.gid } else { self.gid },
        }
    }

    pub(crate) fn published(&self) -> &Published {
        // SAFETY: the mapping has the layout's size and holds only atomics, for which any bytes
        // are valid; it lives as long as the adapter.
        unsafe { self.published.start().cast::<Published>().as_ref() }
    }

    pub(crate) fn qp_entry(&self, index: usize) -> &QpEntry {
        &self.published().qps[index]
    }

    pub(crate) fn mr_entry(&self, index: usize) -> &MrEntry {
        &self.published().mrs[index]
    }

    pub(crate) fn cq_entry(&self, index: usize) -> &CqEntry {
        &self.published().cqs[index]
    }

    pub(crate) fn srq_entry(&self, index: usize) -> &SrqEntry {
        &self.published().srqs[index]
    }

    pub(crate) fn credits(&self, qp_index: usize) -> &[Credit; RECVS] {
        &self.published().credits[qp_index]
    }

    /// A number for a connection of a queue pair, which none had lately under the queue pair's
    /// number: whoever was connected before notices.
    pub(crate) fn next_epoch(&self, qp_index: usize) -> u16 {
        self.epochs[qp_index]
            .fetch_add(1, Ordering::AcqRel)
            .wrapping_add(1)
    }

    pub(crate) fn qpn(&self, index: usize) -> u32 {
        self.membership.number() << QP_INDEX_BITS | index as u32
    }

    /// Counts a message of an unreliable queue pair for which the peer had no room.
    #[cold]
    pub(crate) fn count_unsent(&self) {
        self.unsent.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message that found no RECV.
    #[cold]
    pub(crate) fn count_unreceived(&self) {
        self.unreceived.fetch_add(1, Ordering::Relaxed);
    }

    /// Messages that were dropped: for want of room, and of RECVs.
    pub(crate) fn dropped(&self) -> (u64, u64) {
        let (unsent, unreceived) = (&self.unsent, &self.unreceived);
        (
            unsent.load(Ordering::Relaxed),
            unreceived.load(Ordering::Relaxed),
        )
    }

    /// Has the agent look after everything again now: it may think that it has more time.
    #[cold]
    pub(crate) fn wake_agent(&self) {
        // It takes a 1, unless so many came that it is readable anyway.
        let _ = rustix::io::write(&self.agent_wake, &1u64.to_ne_bytes());
    }

    /// The agent has been woken, and looks after everything next.
    pub(crate) fn note_woken(&self) {
        // Nothing to read is no harm.
        let _ = rustix::io::read(&self.agent_wake, &mut [0; 8]);
    }

    /// Has the agent take what comes over an outgoing connection, and notice its end. `token` names
    /// it.
    pub(crate) fn watch(&self, connection: impl AsFd, token: u64) -> Result<(), VerbsError> {
        let data = EventData::new_u64(TOKEN_OUTGOING | token);
        epoll::add(&self.agent_epoll, connection, data, EventFlags::IN)
            .map_err(|e| VerbsError::io("watching a connection", e))
    }

    /// Has the agent told of other events of an outgoing connection that it watches.
    pub(crate) fn watch_anew(
        &self,
        connection: impl AsFd,
        token: u64,
        events: EventFlags,
    ) -> rustix::io::Result<()> {
        let data = EventData::new_u64(TOKEN_OUTGOING | token);
        epoll::modify(&self.agent_epoll, connection, data, events)
    }

    /// A number that no object of this adapter was described with lately; never 0.
    pub(crate) fn next_generation(&self) -> u32 {
        let next = |generation: u32| Some(generation.wrapping_add(1).max(1));
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let updated = self.generation.fetch_update(success, failure, next);
        let before = updated.unwrap_or_else(|before| before);
        before.wrapping_add(1).max(1)
    }

    /// Checks a segment of a peer.
    pub(crate) fn check_header(
        header: &Header,
        instance: u32,
        incarnation: u64,
    ) -> Result<(), VerbsError> {
        let found = header::read(header).map_err(|version| {
            let why = format!("its layout is version {version}, ours is {VERSION}");
            VerbsError::invalid("peer's segment", why)
        })?;
        let expected = Owner {
            instance,
            incarnation,
        };
        if found != expected {
            return Err(VerbsError::invalid(
                "peer's segment",
                "it belongs to another instance",
            ));
        }
        Ok(())
    }
}

/// A GID table: a device's GID first, though it may be described among the others.
fn table(gid: Gid, aliases: &[GidEntry]) -> Vec<GidEntry> {
    let (kind, interface) = (GidKind::RoceV2, 0);
    let unknown = GidEntry {
        gid,
        kind,
        interface,
    };
    let described = aliases.iter().find(|alias| alias.gid == gid);
    let mut gids = vec![*described.unwrap_or(&unknown)];
    gids.extend(aliases.iter().filter(|alias| alias.gid != gid));
    // An address vector names one by a byte.
    gids.truncate(GIDS_MAX);
    gids
}

/// Eight random bytes of the kernel.
pub(crate) fn random_u64() -> Result<u64, VerbsError> {
    let mut bytes = [0u8; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .map_err(|e| VerbsError::io("reading /dev/urandom", e))?;
    Ok(u64::from_le_bytes(bytes))
}
