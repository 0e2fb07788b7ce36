//! Carrying out send work requests: one after the other, each as a whole.

use super::world::{Data, Place, Receive, Request, World};
use crate::attr::{Access, QpState, Transport};
use crate::names::{Gid, RemoteAddr};
use crate::rules;
use crate::wc::{Wc, WcFlags, WcOpcode, WcStatus};
use crate::wr::{GRH_LEN, Op, SendFlags, Sge};

/// How an attempt to carry out a request ended.
enum Verdict {
    /// Done, with this many bytes read or swapped.
    Done(u32),
    /// Failed for good.
    Failed(WcStatus),
    /// The peer has no RECV.
    NotReady,
    /// The peer does not answer.
    NoAnswer,
}

/// What became of a message at its receiver.
enum Arrival {
    Taken,
    NoRecv,
    TooLong,
    BadBuffer,
}

impl World {
    /// Carries out whatever can be carried out. Logical time passes with a `tick`: the retries of
    /// requests that wait for their peer are counted in ticks.
    pub(super) fn pump(&mut self, tick: bool) {
        let mut tick = tick;
        loop {
            let mut moved = false;
            for place in self.busy.clone() {
                while self.step(place, tick) {
                    moved = true;
                }
            }
            if !moved {
                return;
            }
            tick = false;
        }
    }

    /// Carries out the first request of a queue pair, if its state and its peer allow.
    fn step(&mut self, place: Place, tick: bool) -> bool {
        let Some(qp) = self.qp_mut(place) else {
            self.busy.remove(&place);
            return false;
        };
        match qp.machine.state() {
            QpState::Rts => {}
            QpState::Sqd => return false,
            _ => {
                self.flush(place);
                self.busy.remove(&place);
                return false;
            }
        }
        // It leaves the queue first, because a queue pair may be its own peer and be flushed.
        let Some(request) = qp.sends.pop_front() else {
            self.busy.remove(&place);
            return false;
        };
        let verdict = self.carry_out(place, &request);
        let Some(qp) = self.qp_mut(place) else {
            return true;
        };
        let attr = qp.machine.attr();
        let (limit, forever, status) = match verdict {
            Verdict::Done(len) => {
                qp.tries = 0;
                self.complete_send(place, &request, WcStatus::Success, len);
                return true;
            }
            Verdict::Failed(status) => {
                self.complete_send(place, &request, status, 0);
                self.fail(place, true);
                return true;
            }
            Verdict::NotReady => {
                let limit = attr.rnr_retry.unwrap_or(0);
                (limit, limit == 7, WcStatus::RnrRetryExcErr)
            }
            Verdict::NoAnswer => {
                let limit = attr.retry_count.unwrap_or(0);
                (limit, attr.timeout == Some(0), WcStatus::RetryExcErr)
            }
        };
        qp.tries += u32::from(tick);
        if !forever && qp.tries > u32::from(limit) {
            qp.tries = 0;
            self.complete_send(place, &request, status, 0);
            self.fail(place, true);
            return true;
        }
        qp.sends.push_front(request);
        false
    }

    fn carry_out(&mut self, place: Place, request: &Request) -> Verdict {
        let Some(qp) = self.qp(place) else {
            return Verdict::Failed(WcStatus::LocQpOpErr);
        };
        let pd = qp.init.pd.0;
        match request.op {
            Op::Send { imm } => match self.gather(place.0, pd, &request.data) {
                Some(bytes) if qp.init.transport == Transport::Ud => {
                    self.datagram(place, request, imm, &bytes)
                }
                Some(bytes) => self.write_and_send(place, request, None, imm, &bytes),
                None => Verdict::Failed(WcStatus::LocProtErr),
            },
            Op::Write { remote, imm } => match self.gather(place.0, pd, &request.data) {
                Some(bytes) => self.write_and_send(place, request, Some(remote), imm, &bytes),
                None => Verdict::Failed(WcStatus::LocProtErr),
            },
            Op::Read { remote } => self.fetch(place, request, remote, None),
            Op::CompareSwap {
                remote,
                expect,
                swap,
            } => {
                let change = |old| if old == expect { swap } else { old };
                self.fetch(place, request, remote, Some(&change))
            }
            Op::FetchAdd { remote, add } => {
                let change = |old: u64| old.wrapping_add(add);
                self.fetch(place, request, remote, Some(&change))
            }
        }
    }

    /// The bytes of a request's payload, if its elements are valid.
    fn gather(&self, node: usize, pd: u32, data: &Data) -> Option<Vec<u8>> {
        let sges = match data {
            Data::Inline(bytes) => return Some(bytes.clone()),
            Data::Gather(sges) => sges,
        };
        let mut bytes = Vec::new();
        for (memory, offset, len) in self.local_pieces(node, pd, Access::empty(), sges)? {
            let start = bytes.len();
            bytes.resize(start + len, 0);
            memory.read(offset, &mut bytes[start..]);
        }
        Some(bytes)
    }

    /// Spreads bytes over elements that have been checked; elements left over stay as they are.
    fn scatter(&self, node: usize, pd: u32, sges: &[Sge], mut bytes: &[u8]) -> bool {
        let Some(pieces) = self.local_pieces(node, pd, Access::LOCAL_WRITE, sges) else {
            return false;
        };
        for (memory, offset, len) in pieces {
            let (now, later) = bytes.split_at(len.min(bytes.len()));
            memory.write(offset, now);
            bytes = later;
        }
        true
    }

    /// The connected peer, if it is there, connected to us and able to receive.
    fn peer(&self, place: Place) -> Option<Place> {
        let from = self.qp(place)?;
        let attr = from.machine.attr();
        let node = self.node_of(attr.dest_gid?)?;
        let peer = (node, attr.dest_qpn?.0);
        let to = self.qp(peer)?;
        let back = to.machine.attr();
        let ours = back.dest_gid == Some(self.nodes[place.0].gid)
            && back.dest_qpn.map(|n| n.0) == Some(place.1)
            && to.init.transport == from.init.transport;
        (ours && to.machine.receives()).then_some(peer)
    }

    pub(super) fn node_of(&self, gid: Gid) -> Option<usize> {
        self.nodes.iter().position(|node| node.gid == gid)
    }

    /// SEND, WRITE and WRITE with immediate data on connected transports.
    fn write_and_send(
        &mut self,
        place: Place,
        request: &Request,
        remote: Option<RemoteAddr>,
        imm: Option<u32>,
        bytes: &[u8],
    ) -> Verdict {
        let reliable = self.qp(place).map(|qp| qp.init.transport) == Some(Transport::Rc);
        // What an unreliable sender sees of its peer's troubles is nothing.
        let or_lost = |verdict| if reliable { verdict } else { Verdict::Done(0) };
        let Some(peer) = self.peer(place) else {
            return or_lost(Verdict::NoAnswer);
        };
        let consumes = remote.is_none() || imm.is_some();
        if consumes && self.first_recv(peer).is_none() {
            return or_lost(Verdict::NotReady);
        }
        if let Some(remote) = remote
            && !bytes.is_empty()
        {
            let need = rules::remote_access(&request.op);
            let len = bytes.len() as u64;
            let Some((memory, offset)) =
                self.remote_region(peer, remote.rkey, need, remote.addr, len)
            else {
                if reliable {
                    self.fail(peer, false);
                }
                return or_lost(Verdict::Failed(WcStatus::RemAccessErr));
            };
            memory.write(offset, bytes);
        }
        if !consumes {
            return Verdict::Done(0);
        }
        let wc = Wc {
            opcode: match remote {
                Some(_) => WcOpcode::RecvWriteImm,
                None => WcOpcode::Recv,
            },
            flags: imm.map_or(WcFlags::empty(), |_| WcFlags::WITH_IMM),
            byte_len: bytes.len() as u32,
            imm: imm.unwrap_or(0),
            ..Wc::default()
        };
        let message = if remote.is_some() { &[] } else { bytes };
        let solicited = request.flags.contains(SendFlags::SOLICITED);
        match self.arrive(peer, message, wc, solicited) {
            Arrival::Taken => Verdict::Done(0),
            Arrival::NoRecv => or_lost(Verdict::NotReady),
            Arrival::TooLong => or_lost(Verdict::Failed(WcStatus::RemInvReqErr)),
            Arrival::BadBuffer => or_lost(Verdict::Failed(WcStatus::RemOpErr)),
        }
    }

    /// READ, and with `change` an atomic.
    fn fetch(
        &mut self,
        place: Place,
        request: &Request,
        remote: RemoteAddr,
        change: Option<&dyn Fn(u64) -> u64>,
    ) -> Verdict {
        let (Some(qp), Data::Gather(sges)) = (self.qp(place), &request.data) else {
            return Verdict::Failed(WcStatus::LocQpOpErr);
        };
        let pd = qp.init.pd.0;
        let local = self.local_pieces(place.0, pd, Access::LOCAL_WRITE, sges);
        if local.is_none() {
            return Verdict::Failed(WcStatus::LocProtErr);
        }
        let Some(peer) = self.peer(place) else {
            return Verdict::NoAnswer;
        };
        let len: u64 = sges.iter().map(|sge| u64::from(sge.len)).sum();
        if len == 0 {
            return Verdict::Done(0);
        }
        if change.is_some() && !remote.addr.is_multiple_of(8) {
            self.fail(peer, false);
            return Verdict::Failed(WcStatus::RemInvReqErr);
        }
        let need = rules::remote_access(&request.op);
        let Some((memory, offset)) = self.remote_region(peer, remote.rkey, need, remote.addr, len)
        else {
            self.fail(peer, false);
            return Verdict::Failed(WcStatus::RemAccessErr);
        };
        let mut bytes = vec![0; len as usize];
        match change {
            Some(change) => bytes.copy_from_slice(&memory.update(offset, change).to_le_bytes()),
            None => memory.read(offset, &mut bytes),
        }
        self.scatter(place.0, pd, sges, &bytes);
        Verdict::Done(len as u32)
    }

    fn datagram(
        &mut self,
        place: Place,
        request: &Request,
        imm: Option<u32>,
        bytes: &[u8],
    ) -> Verdict {
        // A datagram that finds nobody, or is not wanted, is lost; its sender is done anyway.
        let lost = Verdict::Done(0);
        let (Some(to), Some(from)) = (request.to, self.qp(place)) else {
            return Verdict::Failed(WcStatus::LocQpOpErr);
        };
        let here = &self.nodes[place.0];
        let gid = match here.ahs.get(&to.ah.0) {
            Some(ah) if ah.pd == from.init.pd.0 => ah.gid,
            _ => return Verdict::Failed(WcStatus::LocQpOpErr),
        };
        let Some(node) = self.node_of(gid) else {
            return lost;
        };
        let peer = (node, to.qpn.0);
        let wanted = self.qp(peer).is_some_and(|qp| {
            qp.init.transport == Transport::Ud
                && qp.machine.receives()
                && qp.machine.attr().qkey == Some(to.qkey)
        });
        let Some(recv) = self.first_recv(peer).filter(|_| wanted) else {
            return lost;
        };
        let room: u64 = recv.sges.iter().map(|sge| u64::from(sge.len)).sum();
        if room < (GRH_LEN + bytes.len()) as u64 {
            return lost;
        }
        let mut message = grh(self.nodes[place.0].gid, gid, bytes.len()).to_vec();
        message.extend_from_slice(bytes);
        let wc = Wc {
            opcode: WcOpcode::Recv,
            flags: WcFlags::GRH | imm.map_or(WcFlags::empty(), |_| WcFlags::WITH_IMM),
            byte_len: message.len() as u32,
            imm: imm.unwrap_or(0),
            src_qpn: crate::names::QpNum(place.1),
            ..Wc::default()
        };
        let solicited = request.flags.contains(SendFlags::SOLICITED);
        self.arrive(peer, &message, wc, solicited);
        lost
    }

    /// The RECV that the next message would consume.
    fn first_recv(&self, peer: Place) -> Option<&Receive> {
        let qp = self.qp(peer)?;
        match qp.init.srq {
            Some(srq) => self.nodes[peer.0].srqs.get(&srq.0)?.recvs.front(),
            None => qp.recvs.front(),
        }
    }

    fn take_recv(&mut self, peer: Place) -> Option<Receive> {
        match self.qp(peer)?.init.srq {
            Some(srq) => {
                let srq = self.nodes[peer.0].srqs.get_mut(&srq.0)?;
                srq.recvs.pop_front()
            }
            None => self.qp_mut(peer)?.recvs.pop_front(),
        }
    }

    /// Consumes a RECV of `peer` with a message.
    fn arrive(&mut self, peer: Place, message: &[u8], mut wc: Wc, solicited: bool) -> Arrival {
        let (Some(recv), Some(qp)) = (self.take_recv(peer), self.qp(peer)) else {
            return Arrival::NoRecv;
        };
        let pd = qp.init.pd.0;
        let room: u64 = recv.sges.iter().map(|sge| u64::from(sge.len)).sum();
        wc.id = recv.id;
        let arrival = if room < message.len() as u64 {
            wc.status = WcStatus::LocLenErr;
            Arrival::TooLong
        } else if !message.is_empty() && !self.scatter(peer.0, pd, &recv.sges, message) {
            wc.status = WcStatus::LocProtErr;
            Arrival::BadBuffer
        } else {
            Arrival::Taken
        };
        let failed = !wc.is_ok();
        self.complete_recv(peer, wc, solicited);
        if failed {
            self.fail(peer, false);
        }
        arrival
    }
}

/// The global route header of a datagram: for IPv4 addresses 20 bytes of nothing and an IPv4
/// header (InfiniBand annex A17.4.5.1).
fn grh(from: Gid, to: Gid, len: usize) -> [u8; GRH_LEN] {
    let mut header = [0; GRH_LEN];
    if let (Some(from), Some(to)) = (from.ipv4(), to.ipv4()) {
        // BTH, DETH and ICRC are part of what the IPv4 header counts, as are it and UDP's.
        let total = (20 + 8 + 12 + 8 + len + 4) as u16;
        header[20] = 0x45;
        header[22..24].copy_from_slice(&total.to_be_bytes());
        header[28] = 64;
        header[29] = 17;
        header[32..36].copy_from_slice(&from.octets());
        header[36..40].copy_from_slice(&to.octets());
    } else {
        header[0] = 0x60;
        header[8..24].copy_from_slice(&from.0);
        header[24..40].copy_from_slice(&to.0);
    }
    header
}
