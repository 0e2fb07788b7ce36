//! The objects of one side of a case: memory, queues and connections.
//!
//! ```text
//! region: stop | credit | inbox: qps * slots | outbox: qps * slots
//!         one line each   what comes in        sources, and where READ results go
//! ```
//! The requester tells the target by `stop` that it is done and how many messages it has sent; the
//! target tells the requester by `credit` how many it has taken.

use std::sync::atomic::{AtomicU32, AtomicU64};

use verbs::connect::{ConnectOptions, Endpoint, first_psn, to_init, to_rtr, to_rts};
use verbs::nic::QpParts;
use verbs::typed::{AddressHandle, CompletionQueue, Context, MemoryRegion, ProtectionDomain};
use verbs::wr::GRH_LEN;
use verbs::{Access, Gid, Qkey, QpCaps, QpInit, QpNum, RemoteAddr, Rkey, Sge, Transport, UdDest};

use super::case::{Case, Verb, Way};
use super::error::VerbsRunError;
use super::link::{Here, Link, Message, hear};
use super::queue::{Control, SendQueue};

const STOP_AT: usize = 0;
const CREDIT_AT: usize = 64;
const INBOX_AT: usize = 128;
/// The queue key of all datagrams here.
const QKEY: Qkey = Qkey(0x1111_1111);

/// Where the messages of one direction lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slots {
    start: usize,
    stride: usize,
    /// From a slot's start to its message: a datagram's header lies in front of it, so that the
    /// message itself starts on a line.
    offset: usize,
    size: usize,
    /// Slots of a queue pair, a power of two.
    pub(super) count: usize,
}

impl Slots {
    /// Where the message of a slot starts.
    #[inline]
    pub(super) fn at(&self, qp: usize, slot: usize) -> usize {
        self.start + (qp * self.count + slot) * self.stride + self.offset
    }

    /// Where the message's last word is, which says which one it is.
    #[inline]
    pub(super) fn tag_at(&self, qp: usize, slot: usize) -> usize {
        self.at(qp, slot) + self.size - 4
    }

    /// All slots of all queue pairs.
    pub(super) fn all(&self, qps: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let count = self.count;
        (0..qps).flat_map(move |qp| (0..count).map(move |slot| (qp, slot)))
    }

    fn end(&self, qps: usize) -> usize {
        self.start + qps * self.count * self.stride
    }
}

/// Where everything lies in the region of one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) inbox: Slots,
    pub(super) outbox: Slots,
}

impl Layout {
    /// The layout of the requester's region, or of the target's.
    pub(super) fn of(case: &Case, requester: bool) -> Self {
        let incoming = if requester {
            case.answer
        } else {
            Some(case.request)
        };
        let is_datagram =
            incoming.is_some_and(|way| way.verb == Verb::Send && way.transport == Transport::Ud);
        let offset = if is_datagram { 64 } else { 0 };
        let inbox = Slots {
            start: INBOX_AT,
            stride: case.size.next_multiple_of(64) + offset,
            offset,
            size: case.size,
            count: case.slots(),
        };
        let outbox = Slots {
            start: inbox.end(case.qps as usize),
            stride: case.size.next_multiple_of(64),
            offset: 0,
            ..inbox
        };
        Layout { inbox, outbox }
    }

    fn len(&self, case: &Case) -> usize {
        self.outbox.end(case.qps as usize)
    }
}

/// The objects of one side. Queue pairs go first when it is dropped.
#[derive(Debug)]
pub(super) struct Side {
    /// What requests go over: the requester posts to them, the target receives on them.
    pub(super) requests: Vec<SendQueue>,
    /// What answers go over.
    pub(super) answers: Vec<SendQueue>,
    pub(super) control: Control,
    pub(super) send_cq: CompletionQueue,
    pub(super) recv_cq: CompletionQueue,
    pub(super) layout: Layout,
    /// The other side's layout.
    pub(super) theirs: Layout,
    /// The other side's region.
    pub(super) remote: RemoteAddr,
    /// Where datagrams go, by queue pair.
    pub(super) request_dests: Vec<Option<UdDest>>,
    pub(super) answer_dests: Vec<Option<UdDest>>,
    pub(super) region: MemoryRegion,
    _ah: Option<AddressHandle>,
    _pd: ProtectionDomain,
}

/// A queue pair in INIT, ready for RECVs.
fn make_qp(
    pd: &ProtectionDomain,
    transport: Transport,
    cqs: [&CompletionQueue; 2],
    caps: QpCaps,
) -> Result<QpParts, VerbsRunError> {
    let mut init = QpInit::new(pd.num(), transport, cqs[0].num(), cqs[1].num());
    init.caps = caps;
    let qp = pd.context().nic().create_qp(&init)?;
    qp.modify(&to_init(transport, Access::EVERYTHING, QKEY))?;
    Ok(qp)
}

/// Goes from INIT to RTS, connected to a peer unless it is for datagrams.
fn connect(qp: &QpParts, gid: Gid, qpn: QpNum, rd_atomic: u8) -> Result<(), VerbsRunError> {
    let transport = qp.transport();
    let psn = first_psn(qpn);
    let options = ConnectOptions {
        min_rnr_timer: 1,
        rd_atomic_max: rd_atomic,
        ..ConnectOptions::default()
    };
    qp.modify(&to_rtr(transport, &Endpoint { gid, qpn, psn }, &options))?;
    qp.modify(&to_rts(transport, first_psn(qp.num()), &options))?;
    Ok(())
}

impl Side {
    /// Makes everything, exchanges addresses with the other side, connects, and posts the first
    /// RECVs. When both sides have returned, messages flow.
    pub(super) fn open(
        context: &Context,
        case: &Case,
        requester: bool,
        link: &mut Link,
    ) -> Result<Self, VerbsRunError> {
        let (request, answer) = (case.request, case.answer);
        let pd = context.alloc_pd()?;
        let qps = case.qps as usize;
        let (depth, recvs) = (case.depth(), case.slots() as u32);
        let send_cq = context.create_cq((depth * case.qps * 2).max(1))?;
        let recv_cq = context.create_cq((recvs * case.qps).max(1))?;
        let control_cq = context.create_cq(Control::DEPTH)?;
        let layout = Layout::of(case, requester);
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let region = pd.allocate(layout.len(case), access)?;
        let caps = |receives: bool| QpCaps {
            send_wr_max: depth,
            recv_wr_max: if receives { recvs } else { 1 },
            send_sge_max: 1,
            recv_sge_max: 1,
            inline_max: if case.inline { case.size as u32 } else { 0 },
        };
        let cqs = [&send_cq, &recv_cq];
        let make = |way: Way, incoming: bool| {
            let receives = incoming && way.verb == Verb::Send;
            let one = |_| make_qp(&pd, way.transport, cqs, caps(receives));
            (0..qps).map(one).collect::<Result<Vec<_>, _>>()
        };
        let mut requests = make(request, !requester)?;
        let mut answers = match answer {
            Some(way) => make(way, requester)?,
            None => Vec::new(),
        };
        let control_caps = QpCaps {
            send_wr_max: Control::DEPTH,
            recv_wr_max: 1,
            send_sge_max: 1,
            recv_sge_max: 1,
            inline_max: 8,
        };
        let control_cqs = [&control_cq, &control_cq];
        let control = make_qp(&pd, Transport::Rc, control_cqs, control_caps)?;
        let numbers = |qps: &[QpParts]| qps.iter().map(|qp| qp.num().0).collect();
        let remote = region.remote(0);
        link.send(&Message::Here(Here {
            gid: context.gid()?.0,
            requests: numbers(&requests),
            answers: numbers(&answers),
            control: control.num().0,
            addr: remote.addr,
            rkey: remote.rkey.0,
        }))?;
        let there = hear!(link, Message::Here(there) => there)?;
        if there.requests.len() != requests.len() || there.answers.len() != answers.len() {
            return Err(VerbsRunError::Peer("it has other queue pairs".into()));
        }
        let gid = Gid(there.gid);
        let rd_atomic = context.device().rd_atomic_max.min(16);
        for (qp, qpn) in requests.iter_mut().zip(&there.requests) {
            connect(qp, gid, QpNum(*qpn), rd_atomic)?;
        }
        for (qp, qpn) in answers.iter_mut().zip(&there.answers) {
            connect(qp, gid, QpNum(*qpn), rd_atomic)?;
        }
        connect(&control, gid, QpNum(there.control), rd_atomic)?;
        let ah = match case.ways().any(|way| way.transport == Transport::Ud) {
            true => Some(pd.create_ah(gid)?),
            false => None,
        };
        let dests = |way: Option<Way>, numbers: &[u32]| -> Vec<Option<UdDest>> {
            let is_datagram = way.is_some_and(|way| way.transport == Transport::Ud);
            let dest = |qpn: &u32| match &ah {
                Some(ah) if is_datagram => Some(UdDest {
                    ah: ah.num(),
                    qpn: QpNum(*qpn),
                    qkey: QKEY,
                }),
                _ => None,
            };
            numbers.iter().map(dest).collect()
        };
        let queue = |(index, qp)| SendQueue::new(qp, index, depth, case.signal_every);
        let remote = RemoteAddr {
            addr: there.addr,
            rkey: Rkey(there.rkey),
        };
        // The requester tells when to stop, the target what it has taken.
        let counter_at = if requester { STOP_AT } else { CREDIT_AT };
        Ok(Side {
            request_dests: dests(Some(request), &there.requests),
            answer_dests: dests(answer, &there.answers),
            requests: requests.into_iter().enumerate().map(queue).collect(),
            answers: answers.into_iter().enumerate().map(queue).collect(),
            control: Control::new(control, control_cq, remote.offset(counter_at as u64)),
            send_cq,
            recv_cq,
            layout,
            theirs: Layout::of(case, !requester),
            remote,
            region,
            _ah: ah,
            _pd: pd,
        })
    }

    /// Says that this side is ready, and waits for the other.
    pub(super) fn meet(link: &mut Link) -> Result<(), VerbsRunError> {
        link.send(&Message::Ready)?;
        hear!(link, Message::Ready => ())
    }

    /// The word that says how many messages were sent, plus 1, when that is known.
    pub(super) fn stop(region: &MemoryRegion) -> &AtomicU64 {
        region.atomic_u64(STOP_AT)
    }

    /// The word that says how many messages were taken.
    pub(super) fn credit(region: &MemoryRegion) -> &AtomicU64 {
        region.atomic_u64(CREDIT_AT)
    }

    /// The last words of all messages of a direction, by queue pair and slot.
    pub(super) fn tags<'a>(
        region: &'a MemoryRegion,
        slots: &Slots,
        qps: usize,
    ) -> Vec<&'a AtomicU32> {
        let all = slots.all(qps);
        all.map(|(qp, slot)| region.atomic_u32(slots.tag_at(qp, slot)))
            .collect()
    }

    /// The elements of all slots as sources or results.
    pub(super) fn sges(region: &MemoryRegion, slots: &Slots, qps: usize) -> Vec<Sge> {
        let all = slots.all(qps);
        all.map(|(qp, slot)| {
            let at = slots.at(qp, slot);
            region.sge(at..at + slots.size)
        })
        .collect()
    }

    /// The elements of all slots as RECVs.
    pub(super) fn recv_sges(region: &MemoryRegion, slots: &Slots, qps: usize) -> Vec<Sge> {
        let header = if slots.offset == 0 { 0 } else { GRH_LEN };
        let all = slots.all(qps);
        all.map(|(qp, slot)| {
            let at = slots.at(qp, slot);
            region.sge(at - header..at + slots.size)
        })
        .collect()
    }

    /// The address of a slot of the other side's inbox.
    #[inline]
    pub(super) fn remote_slot(
        remote: RemoteAddr,
        theirs: &Slots,
        qp: usize,
        slot: usize,
    ) -> RemoteAddr {
        remote.offset(theirs.at(qp, slot) as u64)
    }
}

/// A whole message: what every message has, and its last word.
pub(super) fn message(size: usize, tag: u32) -> Vec<u8> {
    let pattern = (0..size).map(|index| (index as u8).wrapping_mul(31).wrapping_add(7));
    let mut bytes: Vec<u8> = pattern.collect();
    bytes[size - 4..].copy_from_slice(&tag.to_ne_bytes());
    bytes
}
