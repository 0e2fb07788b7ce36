//! What the reference NIC's world consists of: nodes with their objects, and completions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{PipeWriter, Write};

use super::cause::End;
use super::memory::Memory;
use super::network::Air;
use verbs::attr::{Access, QpInit, QpState, Transport};
use verbs::names::{CqNum, Gid, QpNum, Rkey};
use verbs::nic::AsyncEvent;
use verbs::state::QpMachine;
use verbs::wc::{Wc, WcOpcode};
use verbs::wr::{GRH_LEN, Op, SendFlags, Sge, UdDest};

/// A queue pair's place in the world: its node, and its number there.
pub(super) type Place = (usize, u32);

/// Everything, behind one lock.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) nodes: Vec<Node>,
    /// Queue pairs with send work requests that are not carried out yet.
    pub(super) busy: BTreeSet<Place>,
    /// The network in between, if there is one.
    pub(super) air: Option<Air>,
}

/// One adapter.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) gid: Gid,
    /// The last number given; objects of one node never share a number.
    pub(super) last: u32,
    pub(super) pds: BTreeSet<u32>,
    pub(super) regions: BTreeMap<u32, Region>,
    pub(super) channels: BTreeMap<u32, Channel>,
    pub(super) cqs: BTreeMap<u32, Cq>,
    pub(super) srqs: BTreeMap<u32, Srq>,
    pub(super) qps: BTreeMap<u32, Qp>,
    pub(super) ahs: BTreeMap<u32, Ah>,
    pub(super) events: VecDeque<AsyncEvent>,
}

impl Node {
    /// A number that no object of this node has had.
    pub(super) fn number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    /// How many objects there are.
    pub(super) fn objects(&self) -> usize {
        let memory = self.pds.len() + self.regions.len() + self.ahs.len();
        let queues = self.channels.len() + self.cqs.len() + self.srqs.len();
        memory + queues + self.qps.len()
    }
}

#[derive(Debug)]
pub(super) struct Region {
    pub(super) pd: u32,
    pub(super) access: Access,
    pub(super) memory: Memory,
}

/// Keys for peers differ from local ones, so that no test passes with the wrong one.
pub(super) const REMOTE_KEY: u32 = 0x8000_0000;

impl Region {
    /// Where the range starts in the region, if it lies inside it and `need` is granted.
    pub(super) fn locate(&self, pd: u32, need: Access, addr: u64, len: u64) -> Option<usize> {
        let offset = addr.checked_sub(self.memory.addr())?;
        let end = offset.checked_add(len)?;
        (self.pd == pd && self.access.contains(need) && end <= self.memory.len() as u64)
            .then_some(offset as usize)
    }
}

#[derive(Debug)]
pub(super) struct Ah {
    pub(super) pd: u32,
    pub(super) gid: Gid,
}

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) events: VecDeque<CqNum>,
    /// Holds one byte while there are events.
    pub(super) bell: PipeWriter,
}

#[derive(Debug)]
pub(super) struct Cq {
    pub(super) depth: usize,
    pub(super) entries: VecDeque<Entry>,
    pub(super) overrun: bool,
    pub(super) channel: Option<u32>,
    /// Armed for solicited completions only (`true`) or for any.
    pub(super) armed: Option<bool>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) wc: Wc,
    /// The send work request's sequence number: polling the entry frees its slot and all before.
    pub(super) frees: Option<u64>,
    /// The message that is lent with it.
    pub(super) lent: Option<Vec<u8>>,
    /// A RECV of the NIC's was used, which is posted again when the entry is polled.
    pub(super) reposts: bool,
}

#[derive(Debug)]
pub(super) struct Srq {
    pub(super) pd: u32,
    pub(super) wr_max: usize,
    pub(super) sge_max: usize,
    pub(super) recvs: VecDeque<Receive>,
}

#[derive(Debug)]
pub(super) struct Qp {
    pub(super) init: QpInit,
    pub(super) machine: QpMachine,
    pub(super) sends: VecDeque<Request>,
    pub(super) recvs: VecDeque<Receive>,
    /// Send work requests posted in all.
    pub(super) posted: u64,
    /// Those whose slot is free again.
    pub(super) freed: u64,
    /// Attempts that the first request has behind it.
    pub(super) tries: Tries,
    /// When the NIC comes to the first request, if that has been decided.
    pub(super) turn_ns: Option<u64>,
    /// The multicast groups that it is in.
    pub(super) groups: BTreeSet<Gid>,
}

/// Attempts to carry out a request, by what came of them: each kind has a limit of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tries {
    /// The peer had no RECV: as often as `rnr_retry` says.
    pub(super) not_ready: u32,
    /// There was no answer: as often as `retry_count` says.
    pub(super) no_answer: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) sequence: u64,
    pub(super) id: u64,
    pub(super) op: Op,
    pub(super) flags: SendFlags,
    pub(super) to: Option<UdDest>,
    pub(super) data: Data,
}

#[derive(Clone, Debug)]
pub(super) enum Data {
    Inline(Vec<u8>),
    Gather(Vec<Sge>),
}

#[derive(Clone, Debug)]
pub(super) struct Receive {
    pub(super) id: u64,
    pub(super) sges: Vec<Sge>,
    /// It is the NIC's own, with so many bytes of room.
    pub(super) lent: Option<u64>,
}

impl Receive {
    /// Bytes of room.
    pub(super) fn room(&self) -> u64 {
        let named = || self.sges.iter().map(|sge| u64::from(sge.len)).sum();
        self.lent.unwrap_or_else(named)
    }
}

impl Qp {
    /// Posts RECVs of the NIC's own.
    pub(super) fn post_lent(&mut self, count: u32) {
        let Some(lent) = self.init.lent_recvs else {
            return;
        };
        let header = match self.init.transport {
            Transport::Ud => GRH_LEN as u64,
            _ => 0,
        };
        let recv = Receive {
            id: 0,
            sges: Vec::new(),
            lent: Some(u64::from(lent.len) + header),
        };
        self.recvs.extend((0..count).map(|_| recv.clone()));
    }
}

impl World {
    pub(super) fn qp(&self, place: Place) -> Option<&Qp> {
        self.nodes[place.0].qps.get(&place.1)
    }

    pub(super) fn qp_mut(&mut self, place: Place) -> Option<&mut Qp> {
        self.nodes[place.0].qps.get_mut(&place.1)
    }

    /// The region around a remote range, by the key and rights its owner gave.
    pub(super) fn remote_region(
        &self,
        peer: Place,
        rkey: Rkey,
        need: Access,
        addr: u64,
        len: u64,
    ) -> Option<(&Memory, usize)> {
        let qp = self.qp(peer)?;
        let region = self.nodes[peer.0].regions.get(&(rkey.0 ^ REMOTE_KEY))?;
        let offset = region.locate(qp.init.pd.0, need, addr, len)?;
        qp.machine
            .access()
            .contains(need)
            .then_some((&region.memory, offset))
    }

    /// The pieces of local memory that scatter/gather elements name, if all may be used so.
    pub(super) fn local_pieces(
        &self,
        node: usize,
        pd: u32,
        need: Access,
        sges: &[Sge],
    ) -> Option<Vec<(&Memory, usize, usize)>> {
        let used = sges.iter().filter(|sge| sge.len > 0);
        used.map(|sge| {
            let region = self.nodes[node].regions.get(&sge.lkey.0)?;
            let offset = region.locate(pd, need, sge.addr, u64::from(sge.len))?;
            Some((&region.memory, offset, sge.len as usize))
        })
        .collect()
    }

    /// Puts a send work request's completion into its queue, if it makes one.
    pub(super) fn complete_send(&mut self, place: Place, request: &Request, end: End) {
        let Some(qp) = self.qp(place) else { return };
        let signaled = qp.init.signal_all || request.flags.contains(SendFlags::SIGNALED);
        if matches!(end, End::Done(_)) && !signaled {
            return;
        }
        let opcode = match request.op {
            Op::Send { .. } => WcOpcode::Send,
            Op::Write { .. } => WcOpcode::Write,
            Op::Read { .. } => WcOpcode::Read,
            Op::CompareSwap { .. } => WcOpcode::CompareSwap,
            Op::FetchAdd { .. } => WcOpcode::FetchAdd,
            Op::SendInvalidate { .. } => WcOpcode::Send,
            Op::BindWindow(_) => WcOpcode::BindWindow,
            Op::LocalInvalidate { .. } => WcOpcode::LocalInvalidate,
        };
        let mut wc = Wc {
            id: request.id,
            opcode,
            qpn: QpNum(place.1),
            ..Wc::default()
        };
        end.note(&mut wc);
        let cq = qp.init.send_cq;
        let entry = Entry {
            wc,
            frees: Some(request.sequence),
            lent: None,
            reposts: false,
        };
        self.complete(place.0, cq, entry, false);
    }

    /// Puts a RECV's completion into its queue.
    pub(super) fn complete_recv(
        &mut self,
        place: Place,
        wc: Wc,
        solicited: bool,
        recv: &Receive,
        lent: Option<Vec<u8>>,
    ) {
        let Some(qp) = self.qp(place) else { return };
        let cq = qp.init.recv_cq;
        let wc = Wc {
            qpn: QpNum(place.1),
            ..wc
        };
        let entry = Entry {
            wc,
            frees: None,
            lent,
            reposts: recv.lent.is_some(),
        };
        self.complete(place.0, cq, entry, solicited);
    }

    fn complete(&mut self, node: usize, num: CqNum, entry: Entry, solicited: bool) {
        let here = &mut self.nodes[node];
        let Some(cq) = here.cqs.get_mut(&num.0) else {
            return; // The queue is gone, and with it everybody who could look.
        };
        if cq.overrun {
            return;
        }
        if cq.entries.len() == cq.depth {
            cq.overrun = true;
            here.events.push_back(AsyncEvent::CqError(num));
            let uses = |qp: &Qp| qp.init.send_cq == num || qp.init.recv_cq == num;
            let users = here.qps.iter().filter(|(_, qp)| uses(qp));
            for qpn in users.map(|(n, _)| *n).collect::<Vec<_>>() {
                self.fail((node, qpn), false);
            }
            return;
        }
        let worth = match cq.armed {
            Some(solicited_only) => !solicited_only || solicited || !entry.wc.is_ok(),
            None => false,
        };
        cq.entries.push_back(entry);
        if !worth {
            return;
        }
        cq.armed = None;
        let channel = cq
            .channel
            .and_then(|channel| here.channels.get_mut(&channel));
        if let Some(channel) = channel {
            if channel.events.is_empty() {
                let rung = channel.bell.write_all(&[1]);
                rung.expect("the channel holds both ends of its pipe");
            }
            channel.events.push_back(num);
        }
    }

    /// What a queue pair does by itself when one of its requests failed.
    pub(super) fn fail(&mut self, place: Place, sending: bool) {
        let Some(qp) = self.qp_mut(place) else { return };
        if qp.machine.state() == QpState::Err {
            return;
        }
        qp.machine.fail(sending);
        let fatal = AsyncEvent::QpFatal(QpNum(place.1));
        if qp.machine.state() == QpState::Err {
            self.nodes[place.0].events.push_back(fatal);
        }
        self.flush(place);
    }

    /// Completes what the queue pair's state does not let happen any more.
    pub(super) fn flush(&mut self, place: Place) {
        let Some(qp) = self.qp_mut(place) else { return };
        let state = qp.machine.state();
        let (mut sends, mut recvs) = (VecDeque::new(), VecDeque::new());
        if matches!(state, QpState::Err | QpState::Sqe) {
            sends = std::mem::take(&mut qp.sends);
        }
        if state == QpState::Err {
            recvs = std::mem::take(&mut qp.recvs);
        }
        for request in sends {
            self.complete_send(place, &request, End::Flushed);
        }
        // Nobody has posted the NIC's own.
        for recv in recvs.into_iter().filter(|recv| recv.lent.is_none()) {
            let mut wc = Wc {
                id: recv.id,
                opcode: WcOpcode::Recv,
                ..Wc::default()
            };
            End::Flushed.note(&mut wc);
            self.complete_recv(place, wc, false, &recv, None);
        }
    }
}
