//! An adapter: its segments, its tables of objects, its peers.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::process::Pid;
use verbs::{AhNum, ChannelNum, Gid, Mtu, PortAttr, Transport, VerbsError};

use crate::channel::ChannelShared;
use crate::cq::CqShared;
use crate::departures::Departures;
use crate::events::Events;
use crate::header::{self, Owner};
use crate::inbox::PeerInbox;
use crate::incoming::Incoming;
use crate::instance::Instance;
use crate::layout::{
    CHANNELS, CQS, CqEntry, Credit, Header, MRS, MrEntry, Published, QP_INDEX_BITS, QPS, QpEntry,
    RECVS, SRQS, SrqEntry, VERSION,
};
use crate::memory::MrSlot;
use crate::nic::{SoftOptions, Usage};
use crate::peer::{Contacts, Peer};
use crate::qp::QpShared;
use crate::quiescence::Quiescence;
use crate::segment::{Mapping, Source, Writers};
use crate::srq::SrqShared;
use crate::unfinished::Unfinished;

/// Protection domains of an adapter at most.
pub(crate) const PDS: usize = 1 << 16;
/// Address handles of an adapter at most.
pub(crate) const AHS: usize = 1 << 20;

/// A table of numbered objects. Numbers are reused only after all others were used, so that an old
/// number is unlikely to name a new object.
#[derive(Debug)]
pub(crate) struct Table<T> {
    what: &'static str,
    slots: Vec<Option<T>>,
    first: usize,
    next: usize,
    max: usize,
}

impl<T> Table<T> {
    pub(crate) fn new(what: &'static str, first: usize, max: usize) -> Self {
        Table {
            what,
            slots: Vec::new(),
            first,
            next: first,
            max,
        }
    }

    /// Takes a free number.
    pub(crate) fn insert(&mut self, value: T) -> Result<usize, VerbsError> {
        self.insert_with(|_| Ok(value))
    }

    /// Takes a free number for something that has to know it.
    pub(crate) fn insert_with(
        &mut self,
        make: impl FnOnce(usize) -> Result<T, VerbsError>,
    ) -> Result<usize, VerbsError> {
        self.insert_where(|_| true, make)
    }

    /// As [`Table::insert_with`], of the free numbers that `is_free` knows nothing against.
    pub(crate) fn insert_where(
        &mut self,
        is_free: impl Fn(usize) -> bool,
        make: impl FnOnce(usize) -> Result<T, VerbsError>,
    ) -> Result<usize, VerbsError> {
        let span = self.max - self.first;
        for step in 0..span {
            let index = self.first + (self.next - self.first + step) % span;
            if index >= self.slots.len() {
                self.slots.resize_with(index + 1, || None);
            }
            if self.slots[index].is_none() && is_free(index) {
                self.slots[index] = Some(make(index)?);
                self.next = if index + 1 == self.max {
                    self.first
                } else {
                    index + 1
                };
                return Ok(index);
            }
        }
        Err(VerbsError::Exhausted {
            what: self.what,
            max: span as u64,
        })
    }

    pub(crate) fn get(&self, number: usize) -> Result<&T, VerbsError> {
        let slot = self.slots.get(number).and_then(Option::as_ref);
        slot.ok_or(VerbsError::NoSuch {
            what: self.what,
            number: number as u64,
        })
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.slots.get_mut(number).and_then(Option::as_mut)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }

    pub(crate) fn count(&self) -> usize {
        self.iter().count()
    }

    pub(crate) fn remove(&mut self, number: usize) -> Result<T, VerbsError> {
        let slot = self.slots.get_mut(number).and_then(Option::take);
        slot.ok_or(VerbsError::NoSuch {
            what: self.what,
            number: number as u64,
        })
    }
}

/// What control-path calls share, under one lock.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Protection domains and how many objects use each.
    pub(crate) pds: Table<u32>,
    pub(crate) mrs: Table<MrSlot>,
    pub(crate) cqs: Table<Arc<CqShared>>,
    pub(crate) srqs: Table<Arc<SrqShared>>,
    pub(crate) channels: Table<Weak<ChannelShared>>,
    pub(crate) qps: Table<Option<Weak<QpShared>>>,
    pub(crate) ahs: Table<Ah>,
    pub(crate) variant: u16,
    pub(crate) generation: u32,
}

/// An address handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ah {
    pub(crate) gid: Gid,
    pub(crate) pd: usize,
}

/// One opened software NIC.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) name: String,
    pub(crate) gid: Gid,
    pub(crate) run_dir: PathBuf,
    pub(crate) contact_timeout: Duration,
    pub(crate) source: Source,
    /// Whether memory of the caller may be moved into shared memory in place.
    pub(crate) remap: bool,
    /// Drawn anew for every adapter ever opened; names it among all of them.
    pub(crate) incarnation: u64,
    pub(crate) published_file: OwnedFd,
    published: Mapping,
    tables: Mutex<Tables>,
    pub(crate) peers: Mutex<HashMap<(Gid, u32), Arc<Peer>>>,
    contacts: Mutex<Contacts>,
    /// Peers that have gone, until the agent looks after what leads to them.
    departed: Mutex<Vec<Arc<Peer>>>,
    tokens: AtomicU64,
    incoming: Mutex<Incoming>,
    /// The inboxes of peers, also of those that have gone while pollers still read their lanes.
    inboxes: Mutex<Vec<Weak<PeerInbox>>>,
    /// Counts peers gone, ours or theirs, and address handles.
    pub(crate) departures: Departures,
    pub(crate) events: Events,
    pub(crate) quiescence: Quiescence,
    pub(crate) unfinished: Unfinished,
    /// For each queue pair, how far its requests' completions have been polled.
    released: Box<[AtomicU64]>,
    /// For each number of a queue pair, the connections that were begun under it.
    epochs: Box<[AtomicU16]>,
    /// Messages that were dropped for want of room, and of RECVs.
    unsent: AtomicU64,
    unreceived: AtomicU64,
    /// The agent's epoll descriptor, to which outgoing connections are added.
    pub(crate) agent_epoll: OwnedFd,
    // Dropped last: whoever takes the number next uses the same names in the run directory.
    pub(crate) instance: Instance,
}

impl Adapter {
    pub(crate) fn new(options: &SoftOptions, agent_epoll: OwnedFd) -> Result<Self, VerbsError> {
        let SoftOptions {
            name,
            gid,
            run_dir,
            contact_timeout,
            memfd,
            remap,
            clock: _,
        } = options.clone();
        let instance = Instance::acquire(&run_dir, gid)?;
        let source = Source::choose(memfd, &run_dir);
        let (published_file, published) =
            source.create("vervain-published", size_of::<Published>(), Writers::Owner)?;
        let incarnation = loop {
            let drawn = random_u64()?;
            if drawn != 0 {
                break drawn;
            }
        };
        let quiescence = Quiescence::new();
        let adapter = Adapter {
            name,
            gid,
            run_dir,
            contact_timeout,
            source,
            remap,
            incarnation,
            published_file,
            published,
            tables: Mutex::new(Tables {
                pds: Table::new("protection domains", 1, PDS),
                mrs: Table::new("memory regions", 1, MRS),
                cqs: Table::new("completion queues", 0, CQS),
                srqs: Table::new("shared receive queues", 0, SRQS),
                channels: Table::new("completion channels", 0, CHANNELS),
                qps: Table::new("queue pairs", 2, QPS),
                ahs: Table::new("address handles", 0, AHS),
                variant: incarnation as u16,
                generation: (incarnation >> 32) as u32 | 1,
            }),
            peers: Mutex::new(HashMap::new()),
            contacts: Mutex::new(Contacts::default()),
            departed: Mutex::new(Vec::new()),
            tokens: AtomicU64::new(0),
            incoming: Mutex::new(Incoming::new()),
            inboxes: Mutex::new(Vec::new()),
            departures: Departures::new(),
            events: Events::new()?,
            unfinished: Unfinished::new(&quiescence)?,
            released: (0..QPS).map(|_| AtomicU64::new(0)).collect(),
            epochs: (0..QPS).map(|_| AtomicU16::new(0)).collect(),
            unsent: AtomicU64::new(0),
            unreceived: AtomicU64::new(0),
            quiescence,
            agent_epoll,
            instance,
        };
        adapter.sign(&adapter.published().header);
        Ok(adapter)
    }

    /// Writes a segment's header.
    pub(crate) fn sign(&self, header: &Header) {
        let owner = Owner {
            instance: self.instance.number(),
            incarnation: self.incarnation,
        };
        header::sign(header, owner);
    }

    /// A number that no peer of this adapter had before.
    pub(crate) fn next_token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn contacts(&self) -> MutexGuard<'_, Contacts> {
        // Every change is a single step.
        self.contacts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn departed(&self) -> MutexGuard<'_, Vec<Arc<Peer>>> {
        // Every change is a single step.
        self.departed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn incoming(&self) -> MutexGuard<'_, Incoming> {
        // A panic while the lock was held left a connection half served, which is dropped later.
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A port: there is one, with one address.
    pub(crate) fn port(&self, port: u8) -> Result<PortAttr, VerbsError> {
        if port != 1 {
            let (what, number) = ("port", u64::from(port));
            return Err(VerbsError::NoSuch { what, number });
        }
        Ok(PortAttr::active(self.gid, Mtu::B4096))
    }

    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        // A panic while the lock was held left a table with a number too many, which is harmless.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// How far a queue pair's requests have been seen to complete.
    pub(crate) fn released(&self, qp_index: usize) -> u64 {
        self.released[qp_index].load(Ordering::Relaxed)
    }

    /// A completion has been polled, by the one who polls the queue.
    #[inline]
    pub(crate) fn release(&self, qp_index: usize, position: u64) {
        let released = &self.released[qp_index];
        // One of an earlier queue pair, or of before RESET, says nothing.
        if position > released.load(Ordering::Relaxed) {
            released.store(position, Ordering::Relaxed);
        }
    }

    /// Where a new queue pair counts its requests from: beyond what an earlier one of its number
    /// can have posted and left in a completion queue.
    pub(crate) fn first_position(&self, qp_index: usize) -> u64 {
        let first = ((self.released(qp_index) >> 40) + 1) << 40;
        self.release(qp_index, first);
        first
    }

    /// A number for a connection of a queue pair, which none had lately under the queue pair's
    /// number: whoever was connected before notices.
    pub(crate) fn next_epoch(&self, qp_index: usize) -> u16 {
        self.epochs[qp_index]
            .fetch_add(1, Ordering::AcqRel)
            .wrapping_add(1)
    }

    /// The address that a handle of a protection domain stands for.
    pub(crate) fn address(&self, ah: AhNum, pd: usize) -> Result<Gid, VerbsError> {
        let tables = self.tables();
        let found = tables.ahs.get(ah.0 as usize)?;
        if found.pd != pd {
            let (what, number) = ("address handles", u64::from(ah.0));
            return Err(VerbsError::NoSuch { what, number });
        }
        Ok(found.gid)
    }

    pub(crate) fn qpn(&self, index: usize) -> u32 {
        self.instance.number() << QP_INDEX_BITS | index as u32
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

    /// Counts what is in use.
    pub(crate) fn usage(&self) -> Usage {
        let lanes = self.inboxes().iter().map(|one| one.lanes_used()).sum();
        let (connections, refused) = {
            let incoming = self.incoming();
            (incoming.count(), incoming.refused)
        };
        let tables = self.tables();
        Usage {
            instance: self.instance.number(),
            queue_pairs: tables.qps.count(),
            regions: tables.mrs.count(),
            lanes,
            peers: self
                .peers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .len(),
            connections,
            refused,
            unsent: self.unsent.load(Ordering::Relaxed),
            unreceived: self.unreceived.load(Ordering::Relaxed),
        }
    }

    /// Notes an inbox that was made for a peer.
    pub(crate) fn note_inbox(&self, inbox: &Arc<PeerInbox>) {
        let mut inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        inboxes.retain(|one| one.strong_count() > 0);
        inboxes.push(Arc::downgrade(inbox));
    }

    /// How many inboxes the adapters of a process have here, and lanes in them: also of those that
    /// have gone, while pollers still read their lanes.
    pub(crate) fn held_by(&self, pid: Pid) -> (usize, usize) {
        let inboxes = self.inboxes();
        let theirs = || inboxes.iter().filter(|one| one.pid == pid);
        (theirs().count(), theirs().map(|one| one.lanes_used()).sum())
    }

    fn inboxes(&self) -> Vec<Arc<PeerInbox>> {
        let inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        inboxes.iter().filter_map(Weak::upgrade).collect()
    }

    /// Wakes pollers that sleep, to look after lanes whose senders have gone.
    pub(crate) fn wake_pollers(&self) {
        let cqs: Vec<_> = self.tables().cqs.iter().cloned().collect();
        for cq in cqs {
            cq.notify(self, true);
        }
    }

    /// A number that no object of this adapter had lately.
    pub(crate) fn next_generation(&self) -> u32 {
        let mut tables = self.tables();
        tables.generation = tables.generation.wrapping_add(1).max(1);
        tables.generation
    }

    /// A channel, while its owner has it.
    pub(crate) fn channel(&self, num: ChannelNum) -> Result<Arc<ChannelShared>, VerbsError> {
        let known = self.tables().channels.get(num.0 as usize)?.upgrade();
        known
            .filter(|channel| channel.is_open())
            .ok_or(VerbsError::NoSuch {
                what: "completion channel",
                number: num.0.into(),
            })
    }

    /// The queue pair with an index, while it is there.
    pub(crate) fn qp_at(&self, index: usize) -> Option<Arc<QpShared>> {
        let tables = self.tables();
        tables
            .qps
            .get(index)
            .ok()
            .and_then(Option::as_ref)
            .and_then(Weak::upgrade)
    }

    pub(crate) fn qps(&self) -> Vec<Arc<QpShared>> {
        let tables = self.tables();
        let qps = tables.qps.iter().filter_map(Option::as_ref);
        qps.filter_map(Weak::upgrade).collect()
    }

    /// Whether a connected queue pair of a protection domain leads to a process: it is what makes
    /// the domain's regions usable there.
    pub(crate) fn leads_to(&self, pd: usize, gid: Gid, instance: u32) -> bool {
        self.qps()
            .iter()
            .any(|qp| qp.pd == pd && qp.is_connected_to(gid, instance))
    }

    /// Fails the reliable connections to a peer that has died.
    pub(crate) fn fail_connections(&self, peer: &Peer) {
        for qp in self.qps() {
            let leads_there = qp.is_connected_to(peer.gid, peer.instance)
                && qp.peer_incarnation() == peer.incarnation;
            if qp.transport == Transport::Rc && leads_there {
                qp.lose_peer();
            }
        }
    }

    /// Gives back lanes that nobody reads any more and whose senders have closed them.
    pub(crate) fn sweep_lanes(&self) {
        for inbox in self.inboxes() {
            inbox.sweep();
        }
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

/// Eight random bytes of the kernel.
pub(crate) fn random_u64() -> Result<u64, VerbsError> {
    let mut bytes = [0u8; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .map_err(|e| VerbsError::io("reading /dev/urandom", e))?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use verbs::QpState;
    use verbs::typed::{ConnectOptions, Context, QpOptions, QueuePair, Rc};

    use crate::peer::peer_of;
    use crate::{SoftNic, SoftOptions};

    #[test]
    fn the_end_of_a_process_spares_connections_to_its_successor() {
        let run_dir = tempfile::tempdir().expect("a directory");
        let open = || SoftNic::open(&SoftOptions::new(run_dir.path())).expect("an adapter");
        let (us, old) = (open(), open());
        let instance = old.adapter.instance.number();
        let before = peer_of(&us.adapter, old.adapter.gid, instance).expect("the peer");
        drop(old);
        // Whoever connects sooner may be led to the old one still.
        while !before.is_dead() {
            std::thread::yield_now();
        }
        let new = open();
        assert_eq!(new.adapter.instance.number(), instance);
        let (here, there) = (
            Context::new(Arc::<SoftNic>::clone(&us)),
            Context::new(Arc::<SoftNic>::clone(&new)),
        );
        let pair = |context: &Context| {
            let pd = context.alloc_pd().expect("a domain");
            let cq = context.create_cq(4).expect("a queue");
            let qp: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
            (pd, cq, qp)
        };
        let (mut ours, theirs) = (pair(&here), pair(&there));
        let endpoint = theirs.2.endpoint().expect("a GID");
        ours.2
            .connect(&endpoint, &ConnectOptions::default())
            .expect("connected");
        // The end of the old one may be noticed only now.
        us.adapter.fail_connections(&before);
        assert_eq!(ours.2.state(), QpState::Rts);
        let now = peer_of(&us.adapter, new.adapter.gid, instance).expect("the peer");
        us.adapter.fail_connections(&now);
        assert_eq!(ours.2.state(), QpState::Err);
    }
}
