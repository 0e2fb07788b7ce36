//! The device and its control path.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use verbs::nic::{AsyncEvent, Nic, NicChannel, NicCq, NicMr, NicSrq, QpParts};
use verbs::{
    Access, AhAttr, AhNum, AtomicScope, CqInit, CqNum, DeviceAttr, Gid, PdNum, PortAttr, QpInit,
    QpNum, SrqInit, VerbsError, rules,
};

use crate::adapter::{AHS, Adapter, Ah, PDS};
use crate::agent::{self, Agent};
use crate::channel::{ChannelShared, SoftChannel};
use crate::cq::{CqShared, SoftCq};
use crate::events::is_of;
use crate::layout::{CQS, MRS, QPS, RECVS, SRQS};
use crate::memory::SoftMr;
use crate::qp::{self, Parts};
use crate::recv_queue::SGE_MAX;
use crate::send::{MESSAGE_LEN_MAX, RD_ATOMIC_MAX};
use crate::srq::{SoftSrq, SrqShared};
use crate::srq_entry;

/// Bytes a work request may carry inline.
const INLINE_MAX: u32 = 1024;
/// Entries of a completion queue at most.
const CQE_MAX: u32 = 1 << 20;

/// How to open a software NIC.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SoftOptions {
    /// Where the processes of this host meet: a directory of the user's own, made if need be.
    pub run_dir: PathBuf,
    /// The adapter's address.
    pub gid: Gid,
    /// What the device is called.
    pub name: String,
    /// How long to wait for another process's first answer.
    pub contact_timeout: Duration,
    /// Whether shared memory comes from memfd, where the kernel has it. Otherwise it lies in
    /// unnamed files, which a hostile peer could cut short.
    pub memfd: bool,
    /// Whether registering page-aligned private memory moves it into shared memory, in place, so
    /// that peers reach it without the kernel and with atomics. Registering other memory leaves it
    /// where it is; peers reach it by process_vm_readv and process_vm_writev, without atomics.
    pub remap: bool,
    /// The clock of the NIC's own thread, in nanoseconds of any beginning.
    pub clock: fn() -> u64,
}

impl SoftOptions {
    /// GID `::ffff:127.0.0.1`, name `soft0`, one second for first contacts.
    pub fn new(run_dir: impl AsRef<Path>) -> Self {
        SoftOptions {
            run_dir: run_dir.as_ref().to_path_buf(),
            gid: Gid::from_ipv4(Ipv4Addr::LOCALHOST),
            name: "soft0".into(),
            contact_timeout: Duration::from_secs(1),
            memfd: true,
            remap: true,
            clock: agent::monotonic_ns,
        }
    }

    /// Another GID.
    #[must_use]
    pub fn gid(mut self, gid: Gid) -> Self {
        self.gid = gid;
        self
    }
}

/// An opened software NIC. Objects made from it must not outlive it by long: once it is dropped,
/// new peers find nobody.
#[derive(Debug)]
pub struct SoftNic {
    // Dropped first: stops answering before anything else goes.
    _agent: Agent,
    pub(crate) adapter: Arc<Adapter>,
}

impl SoftNic {
    /// Opens an adapter: takes an instance number on the GID and starts answering peers.
    ///
    /// # Errors
    /// `Exhausted` when the GID has no free instance number, `Invalid` when the run directory
    /// belongs to somebody else, `Io`.
    pub fn open(options: &SoftOptions) -> Result<Arc<Self>, VerbsError> {
        let epoll = agent::create_epoll()?;
        let adapter = Arc::new(Adapter::new(options, epoll)?);
        let agent = Agent::start(&adapter, options.clock)?;
        Ok(Arc::new(SoftNic {
            _agent: agent,
            adapter,
        }))
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
    /// Connections that it has refused or ended, because there were too many or they broke the
    /// rules.
    pub refused: u64,
    /// Messages of unreliable queue pairs that it has dropped because their receivers had no more room
    /// for what waits to be polled.
    pub unsent: u64,
    /// Messages of unreliable queue pairs that it has dropped because they found no RECV.
    pub unreceived: u64,
}

impl SoftNic {
    /// Counts what is in use. Slow: for statistics and tests.
    pub fn usage(&self) -> Usage {
        self.adapter.sweep_lanes();
        self.adapter.usage()
    }

    /// Takes up now what peers have begun to send, which the adapter's own thread does a little
    /// later otherwise: the first message from one queue pair to another waits for that. For
    /// programs that have a clock of their own, and tests.
    pub fn catch_up(&self) {
        agent::catch_up(&self.adapter);
    }
}

fn limit(what: &'static str, value: u32, max: u32) -> Result<(), VerbsError> {
    if value > max {
        return Err(VerbsError::Limit {
            what,
            value: value.into(),
            max: max.into(),
        });
    }
    Ok(())
}

impl Nic for SoftNic {
    fn device(&self) -> DeviceAttr {
        let mut device = DeviceAttr::named(self.adapter.name.clone());
        device.firmware = env!("CARGO_PKG_VERSION").into();
        // Adapters with one address are one device, in several processes.
        device.guid = self.adapter.gid.low();
        device.pd_max = PDS as u32;
        device.ah_max = AHS as u32;
        device.qp_max = QPS as u32 - 2;
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

    fn port(&self, port: u8) -> Result<PortAttr, VerbsError> {
        self.adapter.port(port)
    }

    fn alloc_pd(&self) -> Result<PdNum, VerbsError> {
        Ok(PdNum(self.adapter.tables().pds.insert(0)? as u32))
    }

    fn dealloc_pd(&self, pd: PdNum) -> Result<(), VerbsError> {
        let mut tables = self.adapter.tables();
        if *tables.pds.get(pd.0 as usize)? > 0 {
            return Err(VerbsError::Busy {
                what: "the protection domain",
            });
        }
        tables.pds.remove(pd.0 as usize).map(|_| ())
    }

    fn allocate(
        &self,
        pd: PdNum,
        len: usize,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        Ok(Arc::new(SoftMr::allocate(&self.adapter, pd, len, access)?))
    }

    unsafe fn register(
        &self,
        pd: PdNum,
        start: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        Ok(Arc::new(SoftMr::register(
            &self.adapter,
            pd,
            start,
            len,
            access,
        )?))
    }

    fn create_channel(&self) -> Result<Box<dyn NicChannel>, VerbsError> {
        let mut made = None;
        self.adapter.tables().channels.insert_with(|num| {
            let channel = Arc::new(ChannelShared::new(&self.adapter, num)?);
            let known = Arc::downgrade(&channel);
            made = Some(channel);
            Ok(known)
        })?;
        let shared = made.ok_or(VerbsError::NoSuch {
            what: "completion channel",
            number: 0,
        })?;
        let adapter = Arc::clone(&self.adapter);
        Ok(Box::new(SoftChannel::new(adapter, shared)))
    }

    fn create_cq(&self, init: &CqInit) -> Result<Box<dyn NicCq>, VerbsError> {
        limit("completion queue entries", init.depth, CQE_MAX)?;
        if init.depth == 0 {
            return Err(VerbsError::invalid("completion queue", "it has no entries"));
        }
        let channel = match init.channel {
            Some(number) => Some((number.0 as usize, self.adapter.channel(number)?)),
            None => None,
        };
        let mut tables = self.adapter.tables();
        // The number is known only once the place is taken, so a stand-in takes it.
        let stand_in = Arc::new(CqShared::new(0, 1, None));
        let events = &self.adapter.events;
        let is_free =
            |num: usize| !events.is_taken(|event| event == AsyncEvent::CqError(CqNum(num as u32)));
        let num = tables.cqs.insert_where(is_free, |_| Ok(stand_in))?;
        let shared = Arc::new(CqShared::new(num, init.depth as usize, channel));
        if let Some(slot) = tables.cqs.get_mut(num) {
            *slot = Arc::clone(&shared);
        }
        drop(tables);
        if let Some((_, channel)) = &shared.channel {
            channel.add(&shared);
        }
        Ok(Box::new(SoftCq::new(Arc::clone(&self.adapter), shared)))
    }

    fn create_srq(&self, init: &SrqInit) -> Result<Box<dyn NicSrq>, VerbsError> {
        limit("shared receive queue entries", init.wr_max, RECVS as u32)?;
        limit("scatter elements", init.sge_max, SGE_MAX as u32)?;
        let pd = init.pd.0 as usize;
        let mut tables = self.adapter.tables();
        tables.pds.get(pd)?;
        let shape = (init.wr_max as usize, init.sge_max as usize);
        let num = tables.srqs.insert(Arc::new(SrqShared::new(0, pd, 1, 1)))?;
        let shared = Arc::new(SrqShared::new(num, pd, shape.0, shape.1));
        if let Some(slot) = tables.srqs.get_mut(num) {
            *slot = Arc::clone(&shared);
        }
        if let Some(users) = tables.pds.get_mut(pd) {
            *users += 1;
        }
        drop(tables);
        srq_entry::reset(self.adapter.srq_entry(num));
        Ok(Box::new(SoftSrq {
            adapter: Arc::clone(&self.adapter),
            shared,
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
        self.adapter.sweep_lanes();
        let pd = init.pd.0 as usize;
        let (parts, index) = {
            let mut tables = self.adapter.tables();
            tables.pds.get(pd)?;
            let send_cq = Arc::clone(tables.cqs.get(init.send_cq.0 as usize)?);
            let recv_cq = Arc::clone(tables.cqs.get(init.recv_cq.0 as usize)?);
            let srq = match init.srq {
                Some(number) => Some(Arc::clone(tables.srqs.get(number.0 as usize)?)),
                None => None,
            };
            let is_free = |index| {
                let own = QpNum(self.adapter.qpn(index));
                !self.adapter.events.is_taken(|event| is_of(event, own))
            };
            let index = tables.qps.insert_where(is_free, |_| Ok(None))?;
            if let Some(users) = tables.pds.get_mut(pd) {
                *users += 1;
            }
            let parts = Parts {
                num: self.adapter.qpn(index),
                pd,
                transport: init.transport,
                caps,
                signal_all: init.signal_all,
                send_cq,
                recv_cq,
                srq,
                lent: init.lent_recvs,
            };
            (parts, index)
        };
        let (shared, parts) = qp::create(&self.adapter, parts);
        if let Some(slot) = self.adapter.tables().qps.get_mut(index) {
            *slot = Some(Arc::downgrade(&shared));
        }
        Ok(parts)
    }

    fn create_ah(&self, pd: PdNum, attr: &AhAttr) -> Result<AhNum, VerbsError> {
        rules::check_path(attr, |port| self.port(port))?;
        let mut tables = self.adapter.tables();
        let pd = pd.0 as usize;
        tables.pds.get(pd)?;
        let number = tables.ahs.insert(Ah { gid: attr.gid, pd })?;
        if let Some(users) = tables.pds.get_mut(pd) {
            *users += 1;
        }
        Ok(AhNum(number as u32))
    }

    fn destroy_ah(&self, ah: AhNum) -> Result<(), VerbsError> {
        let mut tables = self.adapter.tables();
        let removed = tables.ahs.remove(ah.0 as usize)?;
        if let Some(users) = tables.pds.get_mut(removed.pd) {
            *users -= 1;
        }
        drop(tables);
        // Senders drop what they remember of it.
        self.adapter.departures.announce();
        Ok(())
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.adapter.events.as_fd())
    }

    fn acknowledge(&self, event: AsyncEvent) {
        self.adapter.events.acknowledge(event);
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.adapter.events.take()
    }

    fn progress(&self, now_ns: u64) -> Option<u64> {
        self.adapter.unfinished.carry_on(now_ns)
    }
}
