//! Carrying out send work requests: one after the other. What goes over a reliable transport happens
//! as a whole; an unreliable sender is done with a message that is on its way.

use super::arrive::{Arrival, Body, Message};
use super::cause::{Cause, End};
use super::world::{Data, Place, Request, Tries, World};
use verbs::attr::{Access, QpState, Transport};
use verbs::names::{Gid, QpNum, RemoteAddr};
use verbs::rules;
use verbs::wc::{Wc, WcFlags, WcOpcode};
use verbs::wr::{Op, SendFlags, Sge};

/// A peer without a RECV is asked again after so long.
const NOT_READY_NS: u64 = 1_000;
/// The unit of an acknowledgement's time-out (IBA 9.7.6.1.3): 4.096 us, doubled as often as the
/// queue pair's attribute says.
const ACK_NS: u64 = 4_096;

/// How an attempt to carry out a request ended.
enum Verdict {
    /// Done, with this many bytes read or swapped.
    Done(u32),
    /// Failed for good.
    Failed(Cause),
    /// The peer has no RECV.
    NotReady,
    /// The peer does not answer.
    NoAnswer,
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

    /// Carries out what one queue pair can, now that its turn has come.
    pub(super) fn pump_one(&mut self, place: Place) {
        while self.step(place, true) {}
        // It may have failed others, or woken them.
        self.pump(false);
    }

    /// Whether the NIC has come to the first request of a queue pair, after the time that it
    /// takes.
    fn has_turn(&mut self, place: Place) -> bool {
        let Some(air) = &mut self.air else {
            return true;
        };
        let Some(qp) = self.nodes[place.0].qps.get_mut(&place.1) else {
            return true;
        };
        if qp.sends.is_empty() {
            return true;
        }
        let turn_ns = match qp.turn_ns {
            Some(turn_ns) => Some(turn_ns),
            None => air.turn_at(place, qp.init.transport),
        };
        let has_come = turn_ns.is_none_or(|turn_ns| turn_ns <= air.now_ns());
        qp.turn_ns = turn_ns.filter(|_| !has_come);
        has_come
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
        if !self.has_turn(place) {
            return false;
        }
        // It leaves the queue first, because a queue pair may be its own peer and be flushed.
        let first = self.qp_mut(place).and_then(|qp| qp.sends.pop_front());
        let Some(request) = first else {
            self.busy.remove(&place);
            return false;
        };
        // In a network each attempt takes its time; without one polls are the clock.
        let counts = tick || self.air.is_some();
        // Whoever had no answer has waited for the last one too.
        let verdict = if counts && self.has_timed_out(place) {
            Verdict::Failed(Cause::NoAnswer)
        } else {
            self.carry_out(place, &request)
        };
        let Some(qp) = self.qp_mut(place) else {
            return true;
        };
        let attr = qp.machine.attr();
        let wait_ns = match verdict {
            Verdict::Done(len) => {
                qp.tries = Tries::default();
                self.complete_send(place, &request, End::Done(len));
                return true;
            }
            Verdict::Failed(cause) => return self.fail_first(place, &request, cause),
            Verdict::NotReady => {
                let limit = attr.rnr_retry.unwrap_or(0);
                qp.tries.not_ready += u32::from(counts);
                if limit != 7 && qp.tries.not_ready > u32::from(limit) {
                    return self.fail_first(place, &request, Cause::NoRecv);
                }
                NOT_READY_NS
            }
            Verdict::NoAnswer => {
                qp.tries.no_answer += u32::from(counts);
                ACK_NS << attr.timeout.unwrap_or(0).min(31)
            }
        };
        qp.sends.push_front(request);
        if let Some(air) = &mut self.air {
            let turn_ns = air.turn_again_at(place, wait_ns);
            if let Some(qp) = self.qp_mut(place) {
                qp.turn_ns = Some(turn_ns);
            }
        }
        false
    }

    /// Whether the first request of a queue pair has had no answer as often as it may.
    fn has_timed_out(&self, place: Place) -> bool {
        self.qp(place).is_some_and(|qp| {
            let attr = qp.machine.attr();
            let limit = u32::from(attr.retry_count.unwrap_or(0));
            attr.timeout.unwrap_or(0) > 0 && qp.tries.no_answer > limit
        })
    }

    /// Fails a queue pair with its first request.
    fn fail_first(&mut self, place: Place, request: &Request, cause: Cause) -> bool {
        self.complete_send(place, request, End::Failed(cause));
        self.fail(place, true);
        true
    }

    fn carry_out(&mut self, place: Place, request: &Request) -> Verdict {
        let Some(qp) = self.qp(place) else {
            return Verdict::Failed(Cause::NoHandle);
        };
        let (pd, transport) = (qp.init.pd.0, qp.init.transport);
        match request.op {
            Op::Send { imm } | Op::Write { imm, .. } => {
                let Some(bytes) = self.gather(place.0, pd, &request.data) else {
                    return Verdict::Failed(Cause::LocalElement);
                };
                let remote = match request.op {
                    Op::Write { remote, .. } => Some(remote),
                    _ => None,
                };
                match transport {
                    Transport::Rc => self.write_and_send(place, request, remote, imm, &bytes),
                    _ => self.dispatch(place, request, remote, imm, bytes),
                }
            }
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
            Op::BindWindow(_) | Op::LocalInvalidate { .. } => Verdict::Failed(Cause::Window),
            // Nobody has a key that could be taken away.
            Op::SendInvalidate { .. } => Verdict::Failed(Cause::RemoteRange),
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
    pub(super) fn scatter(&self, node: usize, pd: u32, sges: &[Sge], mut bytes: &[u8]) -> bool {
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

    /// The connected peer, if it is there, in reach, connected to us and able to receive.
    fn peer(&self, place: Place) -> Option<Place> {
        let from = self.qp(place)?;
        let attr = from.machine.attr();
        let peer = (self.node_of(attr.dest_gid()?)?, attr.dest_qpn?.0);
        if !self.reaches(place.0, peer.0) {
            return None;
        }
        let gid = self.nodes[place.0].gid;
        self.hears(peer, gid, place, from.init.transport)
            .then_some(peer)
    }

    pub(super) fn node_of(&self, gid: Gid) -> Option<usize> {
        self.nodes.iter().position(|node| node.gid == gid)
    }

    /// Sends a message over an unreliable transport. What its sender sees of troubles is nothing.
    fn dispatch(
        &mut self,
        place: Place,
        request: &Request,
        remote: Option<RemoteAddr>,
        imm: Option<u32>,
        bytes: Vec<u8>,
    ) -> Verdict {
        let Some(qp) = self.qp(place) else {
            return Verdict::Failed(Cause::NoHandle);
        };
        let attr = qp.machine.attr();
        let here = &self.nodes[place.0];
        let (gid, qpn, body) = match qp.init.transport {
            Transport::Ud => {
                let ah = request.to.and_then(|to| here.ahs.get(&to.ah.0));
                let (Some(mut to), Some(ah)) = (request.to, ah.filter(|ah| ah.pd == qp.init.pd.0))
                else {
                    return Verdict::Failed(Cause::NoHandle);
                };
                to.qkey = to.qkey.sent_by(attr.qkey.unwrap_or_default());
                (ah.gid, to.qpn, Body::Datagram { to, gid: ah.gid })
            }
            _ => {
                let (Some(gid), Some(qpn)) = (attr.dest_gid(), attr.dest_qpn) else {
                    return Verdict::Done(0);
                };
                let write = remote.map(|remote| Body::Write { remote });
                (gid, qpn, write.unwrap_or(Body::Send))
            }
        };
        let receivers = match gid.is_multicast() {
            true if qpn == QpNum::MULTICAST => {
                let mut members = self.members(gid);
                members.retain(|&to| to != place || !qp.init.blocks_own_multicast);
                members
            }
            true => Vec::new(),
            false => self
                .node_of(gid)
                .map(|node| (node, qpn.0))
                .into_iter()
                .collect(),
        };
        let from = here.gid;
        for to in receivers {
            let message = Message {
                place,
                gid: from,
                to,
                body,
                imm,
                solicited: request.flags.contains(SendFlags::SOLICITED),
                bytes: bytes.clone(),
                landed: 0,
                is_cut: false,
            };
            match &mut self.air {
                Some(air) => air.send(message),
                None => self.land_whole(message),
            }
        }
        Verdict::Done(0)
    }

    /// The queue pairs that are in a multicast group.
    fn members(&self, group: Gid) -> Vec<Place> {
        let nodes = self.nodes.iter().enumerate();
        let places = nodes.flat_map(|(at, node)| {
            let members = node.qps.iter().filter(|(_, qp)| qp.groups.contains(&group));
            members.map(move |(&num, _)| (at, num))
        });
        places.collect()
    }

    /// SEND, WRITE and WRITE with immediate data over RC.
    fn write_and_send(
        &mut self,
        place: Place,
        request: &Request,
        remote: Option<RemoteAddr>,
        imm: Option<u32>,
        bytes: &[u8],
    ) -> Verdict {
        let Some(peer) = self.peer(place) else {
            return Verdict::NoAnswer;
        };
        let consumes = remote.is_none() || imm.is_some();
        if consumes && self.first_recv(peer).is_none() {
            return Verdict::NotReady;
        }
        if let Some(remote) = remote
            && !bytes.is_empty()
        {
            let need = rules::remote_access(&request.op);
            let len = bytes.len() as u64;
            let Some((memory, offset)) =
                self.remote_region(peer, remote.rkey, need, remote.addr, len)
            else {
                self.fail(peer, false);
                return Verdict::Failed(Cause::RemoteRange);
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
            Arrival::NoRecv => Verdict::NotReady,
            Arrival::TooLong => Verdict::Failed(Cause::PeerRecvRoom),
            Arrival::BadBuffer => Verdict::Failed(Cause::PeerRecvMemory),
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
            return Verdict::Failed(Cause::NoHandle);
        };
        let pd = qp.init.pd.0;
        let local = self.local_pieces(place.0, pd, Access::LOCAL_WRITE, sges);
        if local.is_none() {
            return Verdict::Failed(Cause::LocalElement);
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
            return Verdict::Failed(Cause::Misaligned);
        }
        let need = rules::remote_access(&request.op);
        let Some((memory, offset)) = self.remote_region(peer, remote.rkey, need, remote.addr, len)
        else {
            self.fail(peer, false);
            return Verdict::Failed(Cause::RemoteRange);
        };
        let mut bytes = vec![0; len as usize];
        match change {
            Some(change) => bytes.copy_from_slice(&memory.update(offset, change).to_le_bytes()),
            None => memory.read(offset, &mut bytes),
        }
        self.scatter(place.0, pd, sges, &bytes);
        Verdict::Done(len as u32)
    }
}
