//! The device and its control path.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use verbs::nic::{
    AsyncEvent, Nic, NicChannel, NicCq, NicMr, NicSrq, NicWindow, QpParts, WindowKind,
};
use verbs::{
    Access, AhAttr, AhNum, AtomicScope, CqInit, CqNum, DeviceAttr, Gid, GidEntry, Iova, Lkey,
    PdNum, PortAttr, QpInit, QpNum, SrqInit, SrqNum, VerbsError, rules,
};

use crate::contact::adapter::{self, Adapter};
use crate::device::agent::{self, Agent};
use crate::device::channel::SoftChannel;
use crate::device::cq::SoftCq;
use crate::device::limits::{CQE_MAX, check_depth, limit};
use crate::device::objects::Registry;
use crate::device::qp;
use crate::device::srq::SoftSrq;
use crate::memory::mr::SoftMr;
use crate::memory::pd::PDS;
use crate::memory::window::SoftWindow;
use crate::queue::channel::ChannelShared;
use crate::queue::events::is_of;
use crate::queue::qp::{Cq, Parts};
use crate::queue::srq::SrqShared;
use crate::send::address::{AHS, Address};
use crate::send::queue::RD_ATOMIC_MAX;
use crate::shared::layout::{CQS, MESSAGE_LEN_MAX, MRS, QPS, RECVS, SRQS};
use crate::shared::recv_queue::SGE_MAX;
use crate::shared::route::Route;

/// Bytes a work request may carry inline.
const INLINE_MAX: u32 = 1024;

/// How to open a software NIC.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SoftOptions {
    /// Where the processes of this host meet: a directory of the user's own, made if need be.
    pub run_dir: PathBuf,
    /// The adapter's address: the first of its port's table, and the one by which processes find each other.
    pub gid: Gid,
    /// Other addresses of its port, 255 at most. A datagram or a connection to one of these goes to the device with `gid`; so
    /// all processes of a device should say the same. `gid` may be among them, to say of which interface it is.
    pub aliases: Vec<GidEntry>,
    /// What the device is called.
    pub name: String,
    /// How long to wait for another process's answers: the first one, the file of a region that a request
    /// names first, and an operation that only that process can carry out. Connecting a queue pair waits so long at most, or twice when somebody else's attempt
    /// has failed meanwhile.
    pub contact_timeout: Duration,
    /// Whether shared memory comes from memfd, where the kernel has it. Otherwise it lies in
    /// unnamed files, which a hostile peer could cut short.
    pub memfd: bool,
    /// Whether registering page-aligned private memory moves it into shared memory, in place, so
    /// that peers reach it without the kernel. Registering other memory leaves it where it is; peers
    /// reach it by process_vm_readv and process_vm_writev, and by asking this NIC's thread for atomics, and for copies
    /// where the kernel makes none.
    pub remap: bool,
    /// Whether a reliable connection fails at once when its peer's process has ended, so that who waits for nothing but its
    /// messages hears of it. Hardware does not notice: there, and without this, RECVs stay posted, and what is sent
    /// afterwards fails with "retries exceeded".
    pub fails_with_peers: bool,
    /// Whether a datagram to a process with which contact is still being made completes only when it has been sent, or
    /// when nobody has answered, and holds up what is behind it: as with hardware, who has polled its completion may exit.
    /// Otherwise it completes at once, for who serves many by one queue pair, and goes with that queue pair.
    pub datagrams_wait: bool,
    /// The clock of the NIC's own thread, in nanoseconds of any beginning.
    pub clock: fn() -> u64,
}

impl SoftOptions {
    /// GID `::ffff:127.0.0.1`, name `soft0`, one second for first contacts.
    pub fn new(run_dir: impl AsRef<Path>) -> Self {
        SoftOptions {
            run_dir: run_dir.as_ref().to_path_buf(),
            gid: Gid::from_ipv4(Ipv4Addr::LOCALHOST),
            aliases: Vec::new(),
            name: "soft0".into(),
            contact_timeout: Duration::from_secs(1),
            memfd: true,
            remap: true,
            fails_with_peers: true,
            datagrams_wait: false,
            clock: agent::monotonic_ns,
        }
    }

    /// Another time for first contacts.
    #[must_use]
    pub fn contact_timeout(mut self, timeout: Duration) -> Self {
        self.contact_timeout = timeout;
        self
    }

    /// Another GID, and no other than that.
    #[must_use]
    pub fn gid(mut self, gid: Gid) -> Self {
        self.gid = gid;
        self.aliases.clear();
        self
    }

    /// What a NIC that is opened so says of itself and of its port, without opening one: that would start a thread,
    /// which cannot end while the dynamic linker loads a library.
    pub fn attributes(&self) -> (DeviceAttr, PortAttr) {
        let device = device_attr(&self.name, self.gid);
        (device, adapter::port_attr(self.gid, &self.aliases))
    }
}

/// An opened software NIC. Objects made from it must not outlive it by long: once it is dropped,
/// new peers find nobody.
#[derive(Debug)]
pub struct SoftNic {
    // Dropped first: stops answering before anything else goes.
    _agent: Agent,
    pub(crate) objects: Arc<Registry>,
    name: String,
    /// Whether memory of the caller may be moved into shared memory in place.
    remap: bool,
}

impl SoftNic {
    /// Opens an adapter: takes an instance number on the GID and starts answering peers.
    ///
    /// # Errors
    /// `Exhausted` when the GID has no free instance number, `Invalid` when the run directory
    /// belongs to somebody else, `Io`.
    pub fn open(options: &SoftOptions) -> Result<Arc<Self>, VerbsError> {
        let adapter = Adapter::new(adapter::Options {
            gid: options.gid,
            aliases: &options.aliases,
            run_dir: &options.run_dir,
            contact_timeout: options.contact_timeout,
            memfd: options.memfd,
            fails_with_peers: options.fails_with_peers,
            datagrams_wait: options.datagrams_wait,
        })?;
        let objects = Arc::new(Registry::new(Arc::new(adapter))?);
        let agent = Agent::start(&objects, options.clock)?;
        Ok(Arc::new(SoftNic {
            _agent: agent,
            objects,
            name: options.name.clone(),
            remap: options.remap,
        }))
    }

    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.objects.adapter
    }
}

impl SoftNic {
    /// Registers memory of the caller that lies in a file of the caller's, as
    /// [`Nic::register`] does other memory: what is at `start` is at `offset` in
    /// `file`. Peers with a right to the region map the file, all of which they can reach from then on: so
    /// what has nothing to do with them lies in other files. The memory is not moved, and it stays in the
    /// file when the region is deregistered.
    ///
    /// Costs a descriptor, as long as the region is registered.
    ///
    /// # Errors
    /// As `register`'s; `Invalid` for a file that ends before the region or is not sealed against
    /// shrinking, `Io`.
    ///
    /// # Safety
    /// As for `register`, and the file is mapped there, shared, as long as the region is registered.
    // The parts of a registration, and two of a place in a file.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn register_file(
        &self,
        pd: PdNum,
        start: NonNull<u8>,
        len: usize,
        iova: Iova,
        access: Access,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        let (pd, regions) = (self.objects.pds.begin_use(pd)?, &self.objects.regions);
        let (memory, place) = ((start, len), (file, offset));
        let region = SoftMr::register_file(regions, pd, memory, iova, access, place)?;
        Ok(Arc::new(region))
    }
}

/// How much of an adapter is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Usage {
    /// Its number on the GID.
    pub instance: u32,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Memory regions.
    pub regions: usize,
    /// Lanes that peers have opened into it.
    pub lanes: usize,
    /// Peers it is in contact with.
    pub peers: usize,
    /// Connections that peers have opened to it.
    pub connections: usize,
}

/// What an adapter has refused and dropped since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Connections that it has refused or ended, because there were too many or they broke the
    /// rules.
    pub refused: u64,
    /// Messages of unreliable queue pairs that it has dropped because their receivers had no more room
    /// for what waits to be polled, or because their receivers' process was not there: no contact could be
    /// made with it, it has gone since, or too many waited for that. Not those that went with their own
    /// queue pair when it was reset, nor those to a queue pair that takes none.
    pub unsent: u64,
    /// Messages of unreliable queue pairs that it has dropped because they found no RECV: over UC most of them
    /// before they were sent, so that their sender's adapter counts them. Not those that were longer than
    /// theirs.
    pub unreceived: u64,
}

impl SoftNic {
    /// Counts what is in use. Slow: for statistics and tests.
    pub fn usage(&self) -> Usage {
        let (objects, adapter) = (&self.objects, self.adapter());
        let inboxes = &objects.incoming.inboxes;
        inboxes.sweep();
        let connections = objects.incoming.count();
        Usage {
            instance: adapter.membership.number(),
            queue_pairs: objects.qps.count(),
            regions: objects.regions.count(),
            lanes: inboxes.lanes_used(),
            peers: objects.contacts.count(),
            connections,
        }
    }

    /// What has been refused and dropped.
    pub fn counters(&self) -> Counters {
        let (unsent, unreceived) = self.adapter().dropped();
        Counters {
            refused: self.objects.incoming.refused(),
            unsent,
            unreceived,
        }
    }

    /// Takes up now what peers have begun to send, asked or answered, which the adapter's own thread
    /// does a little later otherwise: the first message from one queue pair to another waits for
    /// that, and so does the first use of a region. For programs that have a clock of their own, and
    /// tests.
    pub fn catch_up(&self) {
        let objects = &*self.objects;
        objects.incoming.serve_few_known(objects);
        objects.incoming.answer_all(objects);
        objects.contacts.take_all_outgoing(objects);
        objects.unfinished.try_again();
    }
}

fn device_attr(name: &str, gid: Gid) -> DeviceAttr {
    let mut device = DeviceAttr::named(name);
    device.firmware = env!("CARGO_PKG_VERSION").into();
    // Adapters with one address are one device, in several processes.
    device.guid = gid.low();
    device.pd_max = PDS as u32;
    device.ah_max = AHS as u32;
    device.qp_max = QPS as u32 - 2;
    device.mcast_max = qp::GROUPS_MAX as u32;
    device.mcast_attach_max = device.qp_max;
    device.qp_wr_max = RECVS as u32;
    device.sge_max = SGE_MAX as u32;
    device.cq_max = CQS as u32;
    device.cqe_max = CQE_MAX;
    device.mr_max = MRS as u32 - 1;
    device.mr_len_max = isize::MAX as u64;
    device.srq_max = SRQS as u32;
    device.srq_wr_max = RECVS as u32;
    device.srq_sge_max = SGE_MAX as u32;
    // By the processors' own instructions on the memory itself.
    device.atomics = AtomicScope::Global;
    device.rd_atomic_max = RD_ATOMIC_MAX;
    device.inline_max = INLINE_MAX;
    device.message_len_max = MESSAGE_LEN_MAX;
    device
}

impl Nic for SoftNic {
    fn device(&self) -> DeviceAttr {
        device_attr(&self.name, self.adapter().gid)
    }

    fn port(&self, port: u8) -> Result<PortAttr, VerbsError> {
        self.adapter().port(port)
    }

    fn alloc_pd(&self) -> Result<PdNum, VerbsError> {
        self.objects.pds.alloc()
    }

    fn dealloc_pd(&self, pd: PdNum) -> Result<(), VerbsError> {
        self.objects.pds.dealloc(pd)
    }

    fn allocate(
        &self,
        pd: PdNum,
        len: usize,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        let (pd, regions) = (self.objects.pds.begin_use(pd)?, &self.objects.regions);
        Ok(Arc::new(SoftMr::allocate(regions, pd, len, access)?))
    }

    unsafe fn register(
        &self,
        pd: PdNum,
        start: NonNull<u8>,
        len: usize,
        iova: Iova,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        let (pd, regions) = (self.objects.pds.begin_use(pd)?, &self.objects.regions);
        let region = SoftMr::register(regions, pd, start, len, iova, access, self.remap)?;
        Ok(Arc::new(region))
    }

    unsafe fn register_on_demand(
        &self,
        pd: PdNum,
        start: usize,
        len: usize,
        iova: Iova,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        let (pd, regions) = (self.objects.pds.begin_use(pd)?, &self.objects.regions);
        let region = SoftMr::register_on_demand(regions, pd, (start, len), iova, access)?;
        Ok(Arc::new(region))
    }

    fn exchange_keys(&self, one: Lkey, other: Lkey) -> Result<(), VerbsError> {
        self.objects.regions.exchange([one.0, other.0])?;
        // Whoever is connected here looks at the regions anew.
        let sides = self.objects.sides();
        sides.iter().for_each(|side| side.qp.publish_anew());
        self.adapter().quiescence.wait();
        Ok(())
    }

    fn keep_peers_waiting(&self, waiting: bool) {
        let keeps_waiting = &self.adapter().keeps_peers_waiting;
        keeps_waiting.store(waiting, Ordering::Release);
        let sides = self.objects.sides();
        sides.iter().for_each(|side| side.qp.publish_anew());
    }

    fn alloc_window(&self, pd: PdNum, kind: WindowKind) -> Result<Box<dyn NicWindow>, VerbsError> {
        let (pd, regions) = (self.objects.pds.begin_use(pd)?, &self.objects.regions);
        Ok(Box::new(SoftWindow::new(regions, pd, kind)?))
    }

    fn create_channel(&self) -> Result<Box<dyn NicChannel>, VerbsError> {
        let slot = self.objects.channels.take(|_| true)?;
        let shared = ChannelShared::new(self.adapter(), slot)?;
        let adapter = Arc::clone(self.adapter());
        Ok(Box::new(SoftChannel::new(adapter, shared)))
    }

    fn create_cq(&self, init: &CqInit) -> Result<Box<dyn NicCq>, VerbsError> {
        check_depth(init.depth)?;
        let channel = match init.channel {
            Some(number) => Some(self.objects.channel(number)?),
            None => None,
        };
        let events = &self.objects.events;
        let slot = self.objects.cqs.take(|num| {
            let overrun = AsyncEvent::CqError(CqNum(num as u32));
            !events.is_taken(|event| event == overrun)
        })?;
        let shared = Cq::new(
            slot,
            (init.depth as usize, init.ignores_overrun),
            channel,
            events,
        );
        Ok(Box::new(SoftCq::new(&self.objects, shared)))
    }

    fn create_srq(&self, init: &SrqInit) -> Result<Box<dyn NicSrq>, VerbsError> {
        limit("shared receive queue entries", init.wr_max, RECVS as u32)?;
        limit("scatter elements", init.sge_max, SGE_MAX as u32)?;
        let pd = self.objects.pds.begin_use(init.pd)?;
        let events = &self.objects.events;
        let slot = self.objects.srqs.take(|num| {
            let limit = AsyncEvent::SrqLimit(SrqNum(num as u32));
            !events.is_taken(|event| event == limit)
        })?;
        let (depth, sge_max) = (init.wr_max as usize, init.sge_max as usize);
        let shared = SrqShared::new(self.adapter(), slot, depth, sge_max, events);
        Ok(Box::new(SoftSrq {
            adapter: Arc::clone(self.adapter()),
            shared,
            pd,
            activity: self.adapter().quiescence.activity(),
        }))
    }

    fn create_qp(&self, init: &QpInit) -> Result<QpParts, VerbsError> {
        let caps = init.caps;
        limit("send queue entries", caps.send_wr_max, RECVS as u32)?;
        limit("receive queue entries", caps.recv_wr_max, RECVS as u32)?;
        limit("gather elements", caps.send_sge_max, SGE_MAX as u32)?;
        limit("scatter elements", caps.recv_sge_max, SGE_MAX as u32)?;
        limit("inline bytes", caps.inline_max, INLINE_MAX)?;
        if let Some(lent) = init.lent_recvs {
            limit("lent RECVs", lent.count, RECVS as u32)?;
            if init.srq.is_some() {
                let why = "they are the NIC's, or a shared queue's";
                return Err(VerbsError::invalid("RECVs", why));
            }
        }
        let (objects, adapter) = (&self.objects, self.adapter());
        objects.incoming.inboxes.sweep();
        let pd = objects.pds.begin_use(init.pd)?;
        let srq = match init.srq {
            Some(number) => Some(objects.srq(number)?),
            None => None,
        };
        let (send_cq, recv_cq) = (objects.cq(init.send_cq)?, objects.cq(init.recv_cq)?);
        let slot = objects.qps.take(|index| {
            let own = QpNum(adapter.qpn(index));
            !objects.events.is_taken(|event| is_of(event, own))
        })?;
        let parts = Parts {
            num: adapter.qpn(slot.number()),
            pd: pd.number(),
            transport: init.transport,
            caps,
            signal_all: init.signal_all,
            blocks_own_multicast: init.blocks_own_multicast,
            send_cq,
            recv_cq,
            srq,
            lent: init.lent_recvs,
        };
        Ok(qp::create(objects, slot, pd, parts))
    }

    fn create_ah(&self, pd: PdNum, attr: &AhAttr) -> Result<AhNum, VerbsError> {
        rules::check_path(attr, |port| self.port(port))?;
        let pd = self.objects.pds.begin_use(pd)?;
        let own = self.port(attr.port)?.gids[usize::from(attr.gid_index)].gid;
        let address = Address {
            gid: self.adapter().device_of(attr.gid),
            route: Route {
                from: own,
                to: attr.gid,
            },
        };
        self.objects.handles.create(address, pd)
    }

    fn destroy_ah(&self, ah: AhNum) -> Result<(), VerbsError> {
        self.objects.handles.destroy(ah)?;
        // Senders drop what they remember of it.
        self.adapter().peer_epoch.advance();
        Ok(())
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.objects.events.as_fd())
    }

    fn acknowledge(&self, event: AsyncEvent) {
        self.objects.events.acknowledge(event);
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.objects.events.take()
    }

    fn progress(&self, now_ns: u64) -> Option<u64> {
        self.objects.unfinished.carry_on(now_ns)
    }
}
