//! The objects that the reference NIC hands out: numbers, and calls into the world.

use std::io::{PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use super::Handle;
use super::memory::Memory;
use super::nic::{MESSAGE_LEN_MAX, RD_ATOMIC_MAX};
use super::world::{Data, Qp, Receive, Request, Tries, World};
use verbs::attr::{QpAttr, QpCaps, QpInit, QpState, Transport};
use verbs::batch::{Dest, RecvBatch, SendBatch, SendLimits};
use verbs::error::{CqError, PostError, PostReason, VerbsError};
use verbs::names::{ChannelNum, CqNum, Gid, Lkey, QpNum, Rkey, SrqNum};
use verbs::nic::{
    AsyncEvent, NicChannel, NicCq, NicMr, NicSrq, QpCtl, QpParts, RecvHalf, SendHalf,
};
use verbs::polled::Polled;
use verbs::rules;
use verbs::wr::{Payload, SendWr, UdDest};

#[derive(Debug)]
pub(super) struct ModelMr {
    pub(super) handle: Handle,
    pub(super) lkey: Lkey,
    pub(super) rkey: Rkey,
    pub(super) memory: Memory,
}

// SAFETY: the region's memory is valid while it is registered, and accessed through `mem` and
// atomics only: `Memory` sees to both.
unsafe impl NicMr for ModelMr {
    fn addr(&self) -> u64 {
        self.memory.addr()
    }

    fn len(&self) -> usize {
        self.memory.len()
    }

    fn lkey(&self) -> Lkey {
        self.lkey
    }

    fn rkey(&self) -> Rkey {
        self.rkey
    }

    fn base(&self) -> Option<NonNull<u8>> {
        Some(self.memory.start())
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.handle.lock().look();
        self.memory.read(offset, bytes);
    }
}

impl Drop for ModelMr {
    fn drop(&mut self) {
        let mut world = self.handle.lock();
        world.nodes[self.handle.node].regions.remove(&self.lkey.0);
    }
}

#[derive(Debug)]
pub(super) struct ModelChannel {
    pub(super) handle: Handle,
    pub(super) num: ChannelNum,
    pub(super) reader: PipeReader,
}

impl NicChannel for ModelChannel {
    fn num(&self) -> ChannelNum {
        self.num
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    fn event(&mut self) -> Result<Option<CqNum>, VerbsError> {
        let mut world = self.handle.lock();
        let node = &mut world.nodes[self.handle.node];
        let Some(channel) = node.channels.get_mut(&self.num.0) else {
            return Ok(None);
        };
        let event = channel.events.pop_front();
        if event.is_some() && channel.events.is_empty() {
            let taken = self.reader.read_exact(&mut [0]);
            taken.map_err(|e| VerbsError::io("reading the channel's pipe", e))?;
        }
        Ok(event)
    }
}

impl Drop for ModelChannel {
    fn drop(&mut self) {
        let mut world = self.handle.lock();
        world.nodes[self.handle.node].channels.remove(&self.num.0);
    }
}

#[derive(Debug)]
pub(super) struct ModelCq {
    pub(super) handle: Handle,
    pub(super) num: CqNum,
}

impl NicCq for ModelCq {
    fn num(&self) -> CqNum {
        self.num
    }

    fn poll(&mut self, out: &mut Polled) -> Result<usize, CqError> {
        out.clear();
        let mut world = self.handle.lock();
        world.look();
        world.pump(true);
        let node = &mut world.nodes[self.handle.node];
        let Some(cq) = node.cqs.get_mut(&self.num.0) else {
            return Ok(0);
        };
        if cq.overrun {
            return Err(CqError::Overrun);
        }
        while !out.is_full()
            && let Some(entry) = cq.entries.pop_front()
        {
            let qp = node.qps.get_mut(&entry.wc.qpn.0);
            match &entry.lent {
                Some(message) => {
                    let Some(room) = out.lend(message.len()) else {
                        cq.entries.push_front(entry);
                        break;
                    };
                    room.copy_from_slice(message);
                    out.push_lent(entry.wc);
                }
                None => out.push(entry.wc),
            }
            let Some(qp) = qp else { continue };
            if let Some(sequence) = entry.frees {
                qp.freed = qp.freed.max(sequence + 1);
            }
            if entry.reposts {
                qp.post_lent(1);
            }
        }
        let count = out.completions().len();
        // A RECV that was posted again may be what somebody waits for.
        world.pump(false);
        Ok(count)
    }

    fn arm(&mut self, solicited_only: bool) -> Result<(), VerbsError> {
        let mut world = self.handle.lock();
        let node = &mut world.nodes[self.handle.node];
        match node.cqs.get_mut(&self.num.0) {
            Some(cq) if cq.channel.is_some() => {
                // Arming for any completion is not undone by arming for solicited ones.
                cq.armed = Some(solicited_only && cq.armed != Some(false));
                Ok(())
            }
            _ => Err(VerbsError::invalid("queue", "it has no channel")),
        }
    }
}

impl Drop for ModelCq {
    fn drop(&mut self) {
        let mut world = self.handle.lock();
        let node = &mut world.nodes[self.handle.node];
        node.cqs.remove(&self.num.0);
        let overrun = AsyncEvent::CqError(self.num);
        node.events.retain(|&event| event != overrun);
    }
}

/// Appends RECVs one by one, as far as they are acceptable.
fn post_recvs(
    batch: &RecvBatch,
    sge_max: usize,
    mut append: impl FnMut(Receive) -> Result<(), PostReason>,
) -> Result<(), PostError> {
    for (index, wr) in batch.iter().enumerate() {
        let recv = Receive {
            id: wr.id,
            sges: wr.sges.to_vec(),
            lent: None,
        };
        let accepted = match wr.sges.len() > sge_max {
            true => Err(PostReason::TooManySges),
            false => append(recv),
        };
        accepted.map_err(|reason| PostError { index, reason })?;
    }
    Ok(())
}

#[derive(Debug)]
pub(super) struct ModelSrq {
    pub(super) handle: Handle,
    pub(super) num: SrqNum,
}

impl NicSrq for ModelSrq {
    fn num(&self) -> SrqNum {
        self.num
    }
}

impl RecvHalf for ModelSrq {
    fn post(&mut self, batch: &RecvBatch) -> Result<(), PostError> {
        let mut world = self.handle.lock();
        let node = &mut world.nodes[self.handle.node];
        let srq = node
            .srqs
            .get_mut(&self.num.0)
            .expect("it lives as long as this handle");
        let posted = post_recvs(batch, srq.sge_max, |recv| {
            if srq.recvs.len() >= srq.wr_max {
                return Err(PostReason::QueueFull);
            }
            srq.recvs.push_back(recv);
            Ok(())
        });
        world.pump(false);
        posted
    }
}

impl Drop for ModelSrq {
    fn drop(&mut self) {
        let mut world = self.handle.lock();
        world.nodes[self.handle.node].srqs.remove(&self.num.0);
    }
}

/// A queue pair, as all of its parts hold it; dropping the last destroys it.
#[derive(Debug)]
struct ModelQp {
    handle: Handle,
    num: QpNum,
    transport: Transport,
    limits: SendLimits,
}

impl ModelQp {
    fn this<'w>(&self, world: &'w mut World) -> &'w mut Qp {
        let qp = world.qp_mut((self.handle.node, self.num.0));
        qp.expect("it lives as long as this handle")
    }
}

impl Drop for ModelQp {
    fn drop(&mut self) {
        let place = (self.handle.node, self.num.0);
        let mut world = self.handle.lock();
        world.nodes[place.0].qps.remove(&place.1);
        let fatal = AsyncEvent::QpFatal(self.num);
        world.nodes[place.0].events.retain(|&event| event != fatal);
        world.busy.remove(&place);
    }
}

/// The parts of a queue pair that has just been put into the world.
pub(super) fn parts(handle: Handle, num: QpNum, init: &QpInit, mtu: u32) -> QpParts {
    let transport = init.transport;
    let qp = Arc::new(ModelQp {
        handle,
        num,
        transport,
        limits: SendLimits {
            transport,
            inline_max: init.caps.inline_max,
            sge_max: init.caps.send_sge_max,
            message_len_max: match transport {
                Transport::Ud => mtu,
                _ => MESSAGE_LEN_MAX,
            },
        },
    });
    QpParts::new(
        Arc::new(ModelCtl(Arc::clone(&qp))),
        Box::new(ModelSend(Arc::clone(&qp))),
        Box::new(ModelRecv(qp)),
    )
}

fn accept_send(qp: &mut Qp, limits: &SendLimits, wr: &SendWr<'_>) -> Result<(), PostReason> {
    qp.machine.takes_sends()?;
    rules::check(limits, wr)?;
    if qp.posted - qp.freed >= u64::from(qp.init.caps.send_wr_max) {
        return Err(PostReason::QueueFull);
    }
    let data = match wr.payload {
        Payload::Inline(bytes) => Data::Inline(bytes.to_vec()),
        Payload::InlineParts(parts) => Data::Inline(parts.concat()),
        Payload::Gather(sges) => Data::Gather(sges.to_vec()),
    };
    qp.sends.push_back(Request {
        sequence: qp.posted,
        id: wr.id,
        op: wr.op,
        flags: wr.flags,
        to: wr.to,
        data,
    });
    qp.posted += 1;
    Ok(())
}

#[derive(Debug)]
struct ModelCtl(Arc<ModelQp>);

impl QpCtl for ModelCtl {
    fn num(&self) -> QpNum {
        self.0.num
    }

    fn transport(&self) -> Transport {
        self.0.transport
    }

    fn modify(&self, attr: &QpAttr) -> Result<(), VerbsError> {
        let this = &self.0;
        let mut world = this.handle.lock();
        let qp = this.this(&mut world);
        qp.machine.check(attr)?;
        let own_port = qp.machine.attr().port;
        rules::check_names(attr, own_port, |port| world.port(this.handle.node, port))?;
        rules::check_depths(attr, RD_ATOMIC_MAX)?;
        if let Some(gid) = attr.dest_gid().filter(|gid| world.node_of(*gid).is_none()) {
            return Err(VerbsError::Unreachable {
                peer: gid.to_string(),
                why: "no node has this GID".into(),
            });
        }
        let qp = this.this(&mut world);
        if qp.machine.modify(attr)? == QpState::Reset {
            qp.sends.clear();
            qp.recvs.clear();
            (qp.freed, qp.tries, qp.turn_ns) = (qp.posted, Tries::default(), None);
            qp.post_lent(qp.init.lent_recvs.map_or(0, |lent| lent.count));
        }
        world.flush((this.handle.node, this.num.0));
        world.pump(false);
        Ok(())
    }

    fn attach_mcast(&self, group: Gid) -> Result<(), VerbsError> {
        rules::check_mcast(self.0.transport, group)?;
        let mut world = self.0.handle.lock();
        self.0.this(&mut world).groups.insert(group);
        Ok(())
    }

    fn detach_mcast(&self, group: Gid) -> Result<(), VerbsError> {
        let mut world = self.0.handle.lock();
        match self.0.this(&mut world).groups.remove(&group) {
            true => Ok(()),
            false => Err(VerbsError::invalid("multicast group", "not in it")),
        }
    }

    fn query(&self) -> QpAttr {
        self.0.this(&mut self.0.handle.lock()).machine.attr()
    }

    fn caps(&self) -> QpCaps {
        self.0.this(&mut self.0.handle.lock()).init.caps
    }
}

#[derive(Debug)]
struct ModelSend(Arc<ModelQp>);

impl SendHalf for ModelSend {
    fn limits(&self) -> SendLimits {
        self.0.limits
    }

    fn prepare(&mut self, to: &UdDest) -> Result<Dest, VerbsError> {
        let this = &self.0;
        if this.transport != Transport::Ud {
            let why = "only datagrams have destinations";
            return Err(VerbsError::invalid("destination", why));
        }
        let world = this.handle.lock();
        let node = &world.nodes[this.handle.node];
        let qp = node.qps.get(&this.num.0);
        let pd = qp.expect("it lives as long as this handle").init.pd.0;
        match node.ahs.get(&to.ah.0) {
            Some(ah) if ah.pd == pd => Ok(Dest::from(*to)),
            _ => Err(VerbsError::NoSuch {
                what: "address handle",
                number: u64::from(to.ah.0),
            }),
        }
    }

    fn post(&mut self, batch: &SendBatch) -> Result<(), PostError> {
        let this = &self.0;
        let mut world = this.handle.lock();
        let qp = this.this(&mut world);
        let mut posted = Ok(());
        for (index, wr) in batch.iter().enumerate() {
            if let Err(reason) = accept_send(qp, &this.limits, &wr) {
                posted = Err(PostError { index, reason });
                break;
            }
        }
        world.busy.insert((this.handle.node, this.num.0));
        world.pump(false);
        posted
    }
}

#[derive(Debug)]
struct ModelRecv(Arc<ModelQp>);

impl RecvHalf for ModelRecv {
    fn post(&mut self, batch: &RecvBatch) -> Result<(), PostError> {
        let this = &self.0;
        let mut world = this.handle.lock();
        let qp = this.this(&mut world);
        let posted = post_recvs(batch, qp.init.caps.recv_sge_max as usize, |recv| {
            qp.machine.takes_recvs()?;
            if qp.init.srq.is_some() {
                return Err(PostReason::SharedReceiveQueue);
            }
            if qp.init.lent_recvs.is_some() {
                return Err(PostReason::LentRecvs);
            }
            if qp.recvs.len() >= qp.init.caps.recv_wr_max as usize {
                return Err(PostReason::QueueFull);
            }
            qp.recvs.push_back(recv);
            Ok(())
        });
        // In ERR what was just posted is flushed; otherwise somebody may have waited for it.
        world.flush((this.handle.node, this.num.0));
        world.pump(false);
        posted
    }
}
