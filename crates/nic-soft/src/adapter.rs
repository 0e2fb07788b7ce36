//! An adapter: its segments, its tables of objects, its peers.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use verbs::nic::AsyncEvent;
use verbs::{Gid, QpNum, QpState, Transport, VerbsError};

use crate::channel::ChannelShared;
use crate::cq::CqShared;
use crate::instance::Instance;
use crate::layout::{
    CQS, CqEntry, CqInbox, Credit, Header, Inbox, LANE_LINES, LANES, LaneHeader, Line, MAGIC, MRS,
    MrEntry, Published, QP_INDEX_BITS, QPS, QpEntry, RECVS, SRQS, SrqEntry, VERSION, qp_index,
    qp_instance,
};
use crate::memory::MrSlot;
use crate::nic::{SoftOptions, Usage};
use crate::peer::Peer;
use crate::qp::QpShared;
use crate::quiescence::Quiescence;
use crate::segment::{self, Mapping, Source, Writers};
use crate::srq::SrqShared;

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
        let span = self.max - self.first;
        for step in 0..span {
            let index = self.first + (self.next - self.first + step) % span;
            if index >= self.slots.len() {
                self.slots.resize_with(index + 1, || None);
            }
            if self.slots[index].is_none() {
                self.slots[index] = Some(value);
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
    pub(crate) channels: Table<Arc<ChannelShared>>,
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
    pub(crate) instance: Instance,
    /// Drawn anew for every adapter ever opened; names it among all of them.
    pub(crate) incarnation: u64,
    pub(crate) published_file: OwnedFd,
    pub(crate) inbox_file: OwnedFd,
    published: Mapping,
    inbox: Mapping,
    tables: Mutex<Tables>,
    pub(crate) peers: Mutex<HashMap<(Gid, u32), Arc<Peer>>>,
    /// Incarnations whose connection to us has ended.
    gone: Mutex<HashSet<u64>>,
    /// Counts peers gone, ours or theirs; pollers compare it with what they saw last.
    pub(crate) departures: AtomicU64,
    pub(crate) events: ArrayQueue<AsyncEvent>,
    pub(crate) quiescence: Quiescence,
    /// The agent's epoll descriptor, to which outgoing connections are added.
    pub(crate) agent_epoll: OwnedFd,
    /// Lanes that a completion queue has taken up.
    pub(crate) adopted: Box<[AtomicBool]>,
    /// Lanes that nobody reads any more, but whose sender may still write.
    retired: Mutex<Vec<usize>>,
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
        } = options.clone();
        let instance = Instance::acquire(&run_dir, gid)?;
        let source = Source::choose(memfd, &run_dir);
        let (published_file, published) =
            source.create("vervain-published", size_of::<Published>(), Writers::Owner)?;
        let (inbox_file, inbox) =
            source.create("vervain-inbox", size_of::<Inbox>(), Writers::Everybody)?;
        let incarnation = loop {
            let drawn = random_u64()?;
            if drawn != 0 {
                break drawn;
            }
        };
        let adapter = Adapter {
            name,
            gid,
            run_dir,
            contact_timeout,
            source,
            remap,
            instance,
            incarnation,
            published_file,
            inbox_file,
            published,
            inbox,
            tables: Mutex::new(Tables {
                pds: Table::new("protection domains", 1, 1 << 16),
                mrs: Table::new("memory regions", 1, MRS),
                cqs: Table::new("completion queues", 0, CQS),
                srqs: Table::new("shared receive queues", 0, SRQS),
                channels: Table::new("completion channels", 0, 1 << 12),
                qps: Table::new("queue pairs", 2, QPS),
                ahs: Table::new("address handles", 0, 1 << 20),
                variant: incarnation as u16,
                generation: (incarnation >> 32) as u32 | 1,
            }),
            peers: Mutex::new(HashMap::new()),
            gone: Mutex::new(HashSet::new()),
            departures: AtomicU64::new(0),
            events: ArrayQueue::new(1024),
            quiescence: Quiescence::new(),
            agent_epoll,
            adopted: (0..LANES).map(|_| AtomicBool::new(false)).collect(),
            retired: Mutex::new(Vec::new()),
        };
        for header in [&adapter.published().header, &adapter.inbox().header] {
            header.version.store(VERSION, Ordering::Relaxed);
            header
                .instance
                .store(adapter.instance.number(), Ordering::Relaxed);
            header.incarnation.store(incarnation, Ordering::Relaxed);
            header.magic.store(MAGIC, Ordering::Release);
        }
        Ok(adapter)
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

    pub(crate) fn inbox(&self) -> &Inbox {
        // SAFETY: as for `published`.
        unsafe { self.inbox.start().cast::<Inbox>().as_ref() }
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

    pub(crate) fn cq_inbox(&self, index: usize) -> &CqInbox {
        &self.inbox().cqs[index]
    }

    pub(crate) fn lane_header(&self, lane: usize) -> &LaneHeader {
        &self.inbox().lanes[lane]
    }

    pub(crate) fn lane_lines(&self, lane: usize) -> &[Line] {
        &self.inbox().lines[lane]
    }

    pub(crate) fn qpn(&self, index: usize) -> u32 {
        self.instance.number() << QP_INDEX_BITS | index as u32
    }

    /// Counts what is in use.
    pub(crate) fn usage(&self) -> Usage {
        let owned = |lane: &usize| self.lane_header(*lane).owner.load(Ordering::Relaxed) != 0;
        let tables = self.tables();
        Usage {
            instance: self.instance.number(),
            queue_pairs: tables.qps.count(),
            regions: tables.mrs.count(),
            lanes: (0..LANES).filter(owned).count(),
            peers: self
                .peers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .len(),
        }
    }

    /// A number that no object of this adapter had lately.
    pub(crate) fn next_generation(&self) -> u32 {
        let mut tables = self.tables();
        tables.generation = tables.generation.wrapping_add(1).max(1);
        tables.generation
    }

    /// Notes that an incarnation's connection to us has ended: it sends nothing any more.
    pub(crate) fn note_gone(&self, incarnation: u64) {
        self.gone
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(incarnation);
        self.departures.fetch_add(1, Ordering::Release);
    }

    /// Forgets that an incarnation was gone: it has connected again.
    pub(crate) fn note_back(&self, incarnation: u64) {
        self.gone
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&incarnation);
    }

    pub(crate) fn is_gone(&self, incarnation: u64) -> bool {
        self.gone
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&incarnation)
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

    /// Fails the reliable connections to a peer that has died: their owners may be waiting for
    /// nothing but its messages.
    pub(crate) fn fail_connections(&self, peer: &Peer) {
        let all: Vec<_> = {
            let tables = self.tables();
            tables
                .qps
                .iter()
                .filter_map(Option::as_ref)
                .filter_map(Weak::upgrade)
                .collect()
        };
        for qp in all.iter().filter(|qp| qp.transport == Transport::Rc) {
            let attr = qp.machine().attr();
            let theirs = attr.dest_gid == Some(peer.gid)
                && attr
                    .dest_qpn
                    .is_some_and(|qpn| qp_instance(qpn.0) == peer.instance);
            let connected = !matches!(attr.state, Some(QpState::Reset | QpState::Init));
            if theirs && connected {
                self.events.force_push(AsyncEvent::PeerGone(QpNum(qp.num)));
                qp.enter_error(false);
            }
        }
    }

    /// Puts a lane aside that nobody reads any more, and frees what can be freed.
    pub(crate) fn retire_lane(&self, lane: usize) {
        self.retired
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(lane);
        self.sweep_lanes();
    }

    /// Frees retired lanes whose senders write no more: they said so, or have gone.
    pub(crate) fn sweep_lanes(&self) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.retain(|lane| {
            let header = self.lane_header(*lane);
            let done = header.closed.load(Ordering::Acquire) != 0
                || self.is_gone(header.owner.load(Ordering::Acquire));
            if done {
                self.free_lane(*lane);
            }
            !done
        });
    }

    /// Makes a lane whose sender writes no more usable for another.
    fn free_lane(&self, lane: usize) {
        let len = size_of::<[Line; LANE_LINES]>();
        let offset = std::mem::offset_of!(Inbox, lines) + lane * len;
        if let Err(e) = segment::punch(self.inbox_file.as_fd(), offset as u64, len as u64) {
            // Without a hole the old bytes must go by hand.
            tracing::debug!(lane, error = %e, "no hole in the inbox; clearing the lane");
            for line in self.lane_lines(lane) {
                line.word.store(0, Ordering::Relaxed);
            }
        }
        self.published().lane_heads[lane]
            .consumed
            .store(0, Ordering::Relaxed);
        let header = self.lane_header(lane);
        header.closed.store(0, Ordering::Relaxed);
        self.adopted[lane].store(false, Ordering::Relaxed);
        header.owner.store(0, Ordering::Release);
    }

    /// Frees the lanes of a gone sender that it took but never announced: it died in between.
    /// A lane that is announced but not taken up yet stays, its completion queue will see to it.
    pub(crate) fn free_unannounced_lanes(&self, incarnation: u64) {
        for lane in 0..LANES {
            let header = self.lane_header(lane);
            if header.owner.load(Ordering::Acquire) != incarnation {
                continue;
            }
            let cq = self.qp_at(qp_index(header.dst_qpn.load(Ordering::Relaxed)));
            let Some(cq) = cq.map(|qp| Arc::clone(&qp.recv_cq)) else {
                continue;
            };
            let _no_adoption = cq.adopting.lock().unwrap_or_else(PoisonError::into_inner);
            let pending = self.cq_inbox(cq.num).new_lanes.load(Ordering::Acquire) != 0;
            if !pending && !self.adopted[lane].load(Ordering::Acquire) {
                self.free_lane(lane);
            }
        }
    }

    /// Checks a segment of a peer.
    pub(crate) fn check_header(
        header: &Header,
        instance: u32,
        incarnation: u64,
    ) -> Result<(), VerbsError> {
        let magic = header.magic.load(Ordering::Acquire);
        let version = header.version.load(Ordering::Relaxed);
        if magic != MAGIC || version != VERSION {
            let why = format!("its layout is version {version}, ours is {VERSION}");
            return Err(VerbsError::invalid("peer's segment", why));
        }
        if header.instance.load(Ordering::Relaxed) != instance
            || header.incarnation.load(Ordering::Relaxed) != incarnation
        {
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
