//! The objects that the reference NIC hands out: numbers, and calls into the world.

use std::io::{PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

use super::Handle;
use super::memory::Memory;
use super::nic::MESSAGE_LEN_MAX;
use super::world::{Data, Qp, Receive, Request, World};
use verbs::attr::{QpAttr, QpState, Transport};
use verbs::error::{CqError, PostError, PostReason, VerbsError};
use verbs::names::{ChannelNum, CqNum, Lkey, QpNum, Rkey, SrqNum};
use verbs::nic::{NicChannel, NicCq, NicMr, NicQp, NicSrq};
use verbs::rules;
use verbs::wc::Wc;
use verbs::wr::{Payload, RecvWr, SendWr};

#[derive(Debug)]
pub(super) struct ModelMr {
    pub(super) handle: Handle,
    pub(super) lkey: Lkey,
    pub(super) rkey: Rkey,
    pub(super) memory: Memory,
}

impl NicMr for ModelMr {
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

    fn poll(&mut self, out: &mut [Wc]) -> Result<usize, CqError> {
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
        let count = out.len().min(cq.entries.len());
        for (slot, entry) in out.iter_mut().zip(cq.entries.drain(..count)) {
            *slot = entry.wc;
            let qp = node.qps.get_mut(&entry.wc.qpn.0);
            if let (Some(sequence), Some(qp)) = (entry.frees, qp) {
                qp.freed = qp.freed.max(sequence + 1);
            }
        }
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
        world.nodes[self.handle.node].cqs.remove(&self.num.0);
    }
}

/// Appends RECVs one by one, as far as they are acceptable.
fn post_recvs(
    wrs: &[RecvWr<'_>],
    sge_max: usize,
    mut append: impl FnMut(Receive) -> Result<(), PostReason>,
) -> Result<(), PostError> {
    for (index, wr) in wrs.iter().enumerate() {
        let recv = Receive {
            id: wr.id,
            sges: wr.sges.to_vec(),
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

    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        let mut world = self.handle.lock();
        let node = &mut world.nodes[self.handle.node];
        let srq = node
            .srqs
            .get_mut(&self.num.0)
            .expect("it lives as long as this handle");
        let posted = post_recvs(wrs, srq.sge_max, |recv| {
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

#[derive(Debug)]
pub(super) struct ModelQp {
    pub(super) handle: Handle,
    pub(super) num: QpNum,
    pub(super) transport: Transport,
}

impl ModelQp {
    fn this<'w>(&self, world: &'w mut World) -> &'w mut Qp {
        let qp = world.qp_mut((self.handle.node, self.num.0));
        qp.expect("it lives as long as this handle")
    }
}

fn accept_send(qp: &mut Qp, wr: &SendWr<'_>, mtu: u32) -> Result<(), PostReason> {
    qp.machine.takes_sends()?;
    let len_max = match qp.init.transport {
        Transport::Ud => mtu,
        _ => MESSAGE_LEN_MAX,
    };
    rules::check(qp.init.transport, &qp.init.caps, len_max, wr)?;
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

impl NicQp for ModelQp {
    fn num(&self) -> QpNum {
        self.num
    }

    fn transport(&self) -> Transport {
        self.transport
    }

    fn modify(&mut self, attr: &QpAttr) -> Result<(), VerbsError> {
        let mut world = self.handle.lock();
        self.this(&mut world).machine.check(attr)?;
        if let Some(gid) = attr.dest_gid.filter(|gid| world.node_of(*gid).is_none()) {
            return Err(VerbsError::Unreachable {
                peer: gid.to_string(),
                why: "no node has this GID".into(),
            });
        }
        if let Some(port) = attr.port.filter(|port| *port != 1) {
            let (what, number) = ("port", u64::from(port));
            return Err(VerbsError::NoSuch { what, number });
        }
        let qp = self.this(&mut world);
        if qp.machine.modify(attr)? == QpState::Reset {
            qp.sends.clear();
            qp.recvs.clear();
            (qp.freed, qp.tries, qp.turn_ns) = (qp.posted, 0, None);
        }
        world.flush((self.handle.node, self.num.0));
        world.pump(false);
        Ok(())
    }

    fn query(&self) -> QpAttr {
        self.this(&mut self.handle.lock()).machine.attr()
    }

    fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let mut world = self.handle.lock();
        let mtu = world.mtu().bytes() as u32;
        let qp = self.this(&mut world);
        let mut posted = Ok(());
        for (index, wr) in wrs.iter().enumerate() {
            if let Err(reason) = accept_send(qp, wr, mtu) {
                posted = Err(PostError { index, reason });
                break;
            }
        }
        world.busy.insert((self.handle.node, self.num.0));
        world.pump(false);
        posted
    }

    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        let mut world = self.handle.lock();
        let qp = self.this(&mut world);
        let posted = post_recvs(wrs, qp.init.caps.recv_sge_max as usize, |recv| {
            qp.machine.takes_recvs()?;
            if qp.init.srq.is_some() {
                return Err(PostReason::SharedReceiveQueue);
            }
            if qp.recvs.len() >= qp.init.caps.recv_wr_max as usize {
                return Err(PostReason::QueueFull);
            }
            qp.recvs.push_back(recv);
            Ok(())
        });
        // In ERR what was just posted is flushed; otherwise somebody may have waited for it.
        world.flush((self.handle.node, self.num.0));
        world.pump(false);
        posted
    }
}

impl Drop for ModelQp {
    fn drop(&mut self) {
        let place = (self.handle.node, self.num.0);
        let mut world = self.handle.lock();
        world.nodes[place.0].qps.remove(&place.1);
        world.busy.remove(&place);
    }
}
