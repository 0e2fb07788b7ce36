//! The control path of the reference NIC.

use std::collections::{BTreeSet, VecDeque};
use std::io::pipe;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use super::ModelNic;
use super::memory::Memory;
use super::objects::{self, ModelChannel, ModelCq, ModelMr, ModelSrq};
use super::world::{Ah, Channel, Cq, Node, Qp, REMOTE_KEY, Region, Srq, Tries};
use verbs::attr::{Access, AhAttr, AtomicScope, CqInit, DeviceAttr, PortAttr, QpInit, SrqInit};
use verbs::error::VerbsError;
use verbs::names::{AhNum, ChannelNum, CqNum, Guid, Iova, Lkey, PdNum, QpNum, Rkey, SrqNum};
use verbs::nic::{AsyncEvent, Nic, NicChannel, NicCq, NicMr, NicSrq, QpParts};
use verbs::rules;
use verbs::state::QpMachine;

const QP_WR_MAX: u32 = 4096;
const SGE_MAX: u32 = 16;
const CQE_MAX: u32 = 1 << 16;
pub(super) const INLINE_MAX: u32 = 512;

/// READs and atomics under way on a queue pair at most.
pub(super) const RD_ATOMIC_MAX: u8 = 16;

/// Objects of a kind at most.
const OBJECTS_MAX: u32 = 4096;

pub(super) const MESSAGE_LEN_MAX: u32 = 1 << 30;

fn limit(what: &'static str, value: u32, max: u32) -> Result<(), VerbsError> {
    if value <= max {
        return Ok(());
    }
    let (value, max) = (u64::from(value), u64::from(max));
    Err(VerbsError::Limit { what, value, max })
}

fn room(what: &'static str, count: usize) -> Result<(), VerbsError> {
    if count < OBJECTS_MAX as usize {
        return Ok(());
    }
    let max = u64::from(OBJECTS_MAX);
    Err(VerbsError::Exhausted { what, max })
}

fn exists(what: &'static str, found: bool, number: u32) -> Result<(), VerbsError> {
    if found {
        return Ok(());
    }
    let number = u64::from(number);
    Err(VerbsError::NoSuch { what, number })
}

impl ModelNic {
    fn add_region(
        &self,
        pd: PdNum,
        access: Access,
        len: usize,
        memory: impl FnOnce() -> Memory,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        if len == 0 {
            return Err(VerbsError::invalid("length", "a region has bytes"));
        }
        if !rules::access_is_consistent(access) {
            let why = "remote writing and atomics need local writing";
            return Err(VerbsError::invalid("access", why));
        }
        let mut world = self.handle.lock();
        let node = &mut world.nodes[self.handle.node];
        exists("protection domain", node.pds.contains(&pd.0), pd.0)?;
        room("memory regions", node.regions.len())?;
        let (key, memory) = (node.number(), memory());
        let region = Region {
            pd: pd.0,
            access,
            memory: memory.clone(),
        };
        node.regions.insert(key, region);
        Ok(Arc::new(ModelMr {
            handle: self.handle.clone(),
            lkey: Lkey(key),
            rkey: Rkey(key ^ REMOTE_KEY),
            memory,
        }))
    }

    fn inline_max(&self) -> u32 {
        let world = self.handle.lock();
        let options = world.air.as_ref().map(|air| &air.options);
        options.map_or(INLINE_MAX, |options| options.inline_max)
    }

    fn on_node<T>(
        &self,
        call: impl FnOnce(&mut Node) -> Result<T, VerbsError>,
    ) -> Result<T, VerbsError> {
        call(&mut self.handle.lock().nodes[self.handle.node])
    }
}

impl Nic for ModelNic {
    fn device(&self) -> DeviceAttr {
        let mut device = DeviceAttr::named(format!("model{}", self.handle.node));
        device.guid = Guid(self.handle.node as u64 + 1);
        device.pd_max = OBJECTS_MAX;
        device.ah_max = OBJECTS_MAX;
        device.qp_max = OBJECTS_MAX;
        device.qp_wr_max = QP_WR_MAX;
        device.sge_max = SGE_MAX;
        device.cq_max = OBJECTS_MAX;
        device.cqe_max = CQE_MAX;
        device.mr_max = OBJECTS_MAX;
        device.mr_len_max = isize::MAX as u64;
        device.srq_max = OBJECTS_MAX;
        device.srq_wr_max = QP_WR_MAX;
        device.srq_sge_max = SGE_MAX;
        device.atomics = AtomicScope::Global;
        device.rd_atomic_max = RD_ATOMIC_MAX;
        device.inline_max = self.inline_max();
        device.message_len_max = MESSAGE_LEN_MAX;
        device
    }

    fn port(&self, port: u8) -> Result<PortAttr, VerbsError> {
        self.handle.lock().port(self.handle.node, port)
    }

    fn alloc_pd(&self) -> Result<PdNum, VerbsError> {
        self.on_node(|node| {
            room("protection domains", node.pds.len())?;
            let num = node.number();
            node.pds.insert(num);
            Ok(PdNum(num))
        })
    }

    fn dealloc_pd(&self, pd: PdNum) -> Result<(), VerbsError> {
        self.on_node(|node| {
            exists("protection domain", node.pds.contains(&pd.0), pd.0)?;
            let used = node.regions.values().any(|region| region.pd == pd.0)
                || node.qps.values().any(|qp| qp.init.pd == pd)
                || node.srqs.values().any(|srq| srq.pd == pd.0)
                || node.ahs.values().any(|ah| ah.pd == pd.0);
            if used {
                let what = "protection domain";
                return Err(VerbsError::Busy { what });
            }
            node.pds.remove(&pd.0);
            Ok(())
        })
    }

    fn allocate(
        &self,
        pd: PdNum,
        len: usize,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        self.add_region(pd, access, len, || Memory::allocate(len))
    }

    unsafe fn register(
        &self,
        pd: PdNum,
        start: NonNull<u8>,
        len: usize,
        iova: Iova,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        rules::check_iova(start, len, iova)?;
        // SAFETY: the caller's promise is the one asked for.
        let memory = || unsafe { Memory::borrow(start, len, iova) };
        self.add_region(pd, access, len, memory)
    }

    fn create_channel(&self) -> Result<Box<dyn NicChannel>, VerbsError> {
        let (reader, bell) = pipe().map_err(|e| VerbsError::io("making a pipe", e))?;
        self.on_node(|node| {
            room("completion channels", node.channels.len())?;
            let num = node.number();
            let events = VecDeque::new();
            node.channels.insert(num, Channel { events, bell });
            Ok(Box::new(ModelChannel {
                handle: self.handle.clone(),
                num: ChannelNum(num),
                reader,
            }) as Box<dyn NicChannel>)
        })
    }

    fn create_cq(&self, init: &CqInit) -> Result<Box<dyn NicCq>, VerbsError> {
        limit("depth", init.depth, CQE_MAX)?;
        self.on_node(|node| {
            if let Some(ChannelNum(num)) = init.channel {
                exists("completion channel", node.channels.contains_key(&num), num)?;
            }
            room("completion queues", node.cqs.len())?;
            let num = node.number();
            let cq = Cq {
                depth: init.depth as usize,
                entries: VecDeque::new(),
                overrun: false,
                channel: init.channel.map(|channel| channel.0),
                armed: None,
            };
            node.cqs.insert(num, cq);
            Ok(Box::new(ModelCq {
                handle: self.handle.clone(),
                num: CqNum(num),
            }) as Box<dyn NicCq>)
        })
    }

    fn create_srq(&self, init: &SrqInit) -> Result<Box<dyn NicSrq>, VerbsError> {
        limit("wr_max", init.wr_max, QP_WR_MAX)?;
        limit("sge_max", init.sge_max, SGE_MAX)?;
        self.on_node(|node| {
            let pd = init.pd.0;
            exists("protection domain", node.pds.contains(&pd), pd)?;
            room("shared receive queues", node.srqs.len())?;
            let num = node.number();
            let srq = Srq {
                pd,
                wr_max: init.wr_max as usize,
                sge_max: init.sge_max as usize,
                recvs: VecDeque::new(),
            };
            node.srqs.insert(num, srq);
            Ok(Box::new(ModelSrq {
                handle: self.handle.clone(),
                num: SrqNum(num),
            }) as Box<dyn NicSrq>)
        })
    }

    fn create_qp(&self, init: &QpInit) -> Result<QpParts, VerbsError> {
        limit("send_wr_max", init.caps.send_wr_max, QP_WR_MAX)?;
        limit("recv_wr_max", init.caps.recv_wr_max, QP_WR_MAX)?;
        limit("send_sge_max", init.caps.send_sge_max, SGE_MAX)?;
        limit("recv_sge_max", init.caps.recv_sge_max, SGE_MAX)?;
        limit("inline_max", init.caps.inline_max, self.inline_max())?;
        if let Some(lent) = init.lent_recvs {
            limit("lent RECVs", lent.count, QP_WR_MAX)?;
            if init.srq.is_some() {
                let why = "they are the NIC's, or a shared queue's";
                return Err(VerbsError::invalid("RECVs", why));
            }
        }
        let mtu = self.handle.lock().mtu().bytes() as u32;
        let num = self.on_node(|node| {
            let pd = init.pd.0;
            exists("protection domain", node.pds.contains(&pd), pd)?;
            for CqNum(num) in [init.send_cq, init.recv_cq] {
                exists("completion queue", node.cqs.contains_key(&num), num)?;
            }
            if let Some(SrqNum(num)) = init.srq {
                exists("shared receive queue", node.srqs.contains_key(&num), num)?;
            }
            room("queue pairs", node.qps.len())?;
            let num = node.number();
            let mut qp = Qp {
                init: *init,
                machine: QpMachine::new(init.transport),
                sends: VecDeque::new(),
                recvs: VecDeque::new(),
                posted: 0,
                freed: 0,
                tries: Tries::default(),
                turn_ns: None,
                groups: BTreeSet::new(),
            };
            qp.post_lent(init.lent_recvs.map_or(0, |lent| lent.count));
            node.qps.insert(num, qp);
            Ok(QpNum(num))
        })?;
        Ok(objects::parts(self.handle.clone(), num, init, mtu))
    }

    fn create_ah(&self, pd: PdNum, attr: &AhAttr) -> Result<AhNum, VerbsError> {
        rules::check_path(attr, |port| self.port(port))?;
        let mut world = self.handle.lock();
        if world.node_of(attr.gid).is_none() && !attr.gid.is_multicast() {
            return Err(VerbsError::Unreachable {
                peer: attr.gid.to_string(),
                why: "no node has this GID".into(),
            });
        }
        let node = &mut world.nodes[self.handle.node];
        exists("protection domain", node.pds.contains(&pd.0), pd.0)?;
        room("address handles", node.ahs.len())?;
        let (num, gid) = (node.number(), attr.gid);
        node.ahs.insert(num, Ah { pd: pd.0, gid });
        Ok(AhNum(num))
    }

    fn destroy_ah(&self, ah: AhNum) -> Result<(), VerbsError> {
        self.on_node(|node| exists("address handle", node.ahs.remove(&ah.0).is_some(), ah.0))
    }

    /// Nothing of it can be waited for.
    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Its numbers are never used again.
    fn acknowledge(&self, _event: AsyncEvent) {}

    fn async_event(&self) -> Option<AsyncEvent> {
        self.handle.lock().nodes[self.handle.node]
            .events
            .pop_front()
    }

    /// Nothing of it waits for a time: its clock is its polls, or its [`super::Network`].
    fn progress(&self, _now_ns: u64) -> Option<u64> {
        None
    }
}
