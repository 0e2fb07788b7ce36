//! What cases are built from: nodes, connected pairs of queue pairs, and waiting.
//!
//! Waiting polls the completion queues of both sides, because a software NIC may need that to
//! retry, and gives up with a message that says what did not happen.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use super::Fixture;
use verbs::attr::{
    Access, AhAttr, CqInit, LentRecvs, Mtu, QpAttr, QpCaps, QpInit, QpState, SrqInit, Transport,
};
use verbs::connect::{ConnectOptions, Endpoint, first_psn, to_init, to_rtr, to_rts};
use verbs::error::VerbsError;
use verbs::names::{CqNum, Gid, Iova, Lkey, PdNum, Qkey, QpNum, RemoteAddr, Rkey};
use verbs::nic::{Nic, NicCq, NicMr, NicSrq, QpParts, remote_addr};
use verbs::polled::Polled;
use verbs::wc::{Wc, WcOpcode, WcStatus};
use verbs::wr::{Op, Payload, RecvWr, SendFlags, SendWr, Sge, UdDest};

/// Every transport.
pub(super) const TRANSPORTS: [Transport; 3] = [Transport::Rc, Transport::Uc, Transport::Ud];

/// The transports with one peer.
pub(super) const CONNECTED: [Transport; 2] = [Transport::Rc, Transport::Uc];

/// The queue key of the suite's datagram queue pairs.
pub(super) const QKEY: Qkey = Qkey(0x1234_5678);

/// A SEND without immediate data.
pub(super) const SEND: Op = Op::Send { imm: None };

/// Bytes that differ from place to place and from seed to seed.
pub(super) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// Calls `check` until it answers.
pub(super) fn until<T>(patience: Duration, what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {patience:?} for {what}");
        std::thread::yield_now();
    }
}

/// Choices when making and connecting queue pairs; those of a connection hold for both sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) caps: QpCaps,
    pub(super) access: Access,
    pub(super) region_access: Access,
    pub(super) region_len: usize,
    pub(super) mtu: Mtu,
    pub(super) timeout: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry: u8,
    pub(super) rd_atomic_max: u8,
    pub(super) signal_all: bool,
    pub(super) cq_depth: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            caps: QpCaps {
                send_wr_max: 64,
                recv_wr_max: 64,
                send_sge_max: 4,
                recv_sge_max: 4,
                inline_max: 64,
            },
            access: Access::EVERYTHING,
            region_access: Access::EVERYTHING,
            region_len: 64 << 10,
            mtu: Mtu::B1024,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            rd_atomic_max: 4,
            signal_all: false,
            cq_depth: 256,
        }
    }
}

/// One of the two NICs, with a protection domain.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) nic: Arc<dyn Nic>,
    pub(super) pd: PdNum,
    pub(super) gid: Gid,
}

impl Node {
    pub(super) fn new(nic: &Arc<dyn Nic>) -> Node {
        let port = nic.port(1).expect("a device has port 1");
        Node {
            nic: Arc::clone(nic),
            pd: nic.alloc_pd().expect("a protection domain"),
            gid: port.gids.first().expect("port 1 has a GID").gid,
        }
    }

    pub(super) fn queue(&self, depth: u32) -> Queue {
        Queue::new(
            self.nic
                .create_cq(&CqInit::new(depth))
                .expect("a completion queue"),
        )
    }

    pub(super) fn region(&self, len: usize, access: Access) -> Arc<dyn NicMr> {
        let region = self.nic.allocate(self.pd, len, access);
        region.expect("a memory region")
    }

    /// A region of the process's own memory, on pages of its own, under its own addresses or others.
    pub(super) fn private_region(
        &self,
        len: usize,
        iova: Option<Iova>,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        // Not every NIC reaches such memory by atomics.
        let access = Access::EVERYTHING - Access::REMOTE_ATOMIC;
        private_region(&*self.nic, self.pd, len, iova, access)
    }

    pub(super) fn srq(&self, wr_max: u32) -> Box<dyn NicSrq> {
        let init = SrqInit::new(self.pd, wr_max, 4);
        self.nic.create_srq(&init).expect("a shared receive queue")
    }

    pub(super) fn init(&self, transport: Transport, send_cq: CqNum, recv_cq: CqNum) -> QpInit {
        let mut init = QpInit::new(self.pd, transport, send_cq, recv_cq);
        init.caps = Options::default().caps;
        init
    }

    pub(super) fn qp(&self, init: &QpInit) -> QpParts {
        self.nic.create_qp(init).expect("a queue pair")
    }

    /// Where datagrams for a queue pair go.
    pub(super) fn dest(&self, gid: Gid, qpn: QpNum) -> UdDest {
        let ah = self.nic.create_ah(self.pd, &AhAttr::to(gid));
        UdDest {
            ah: ah.expect("an address handle"),
            qpn,
            qkey: QKEY,
        }
    }
}

/// Registers memory of this process that lives as long as the region, under its own addresses or
/// others.
pub(crate) fn private_region(
    nic: &dyn Nic,
    pd: PdNum,
    len: usize,
    iova: Option<Iova>,
    access: Access,
) -> Result<Arc<dyn NicMr>, VerbsError> {
    // On pages of its own, so that a NIC may move it.
    let words: Box<[Page]> = (0..len.div_ceil(size_of::<Page>()))
        .map(|_| Page::default())
        .collect();
    let start = NonNull::from(&*words).cast();
    let iova = iova.unwrap_or_else(|| Iova::of(start));
    // SAFETY: the words are dropped after the region, and accessed through it only.
    let region = unsafe { nic.register(pd, start, len, iova, access) }?;
    Ok(Arc::new(PrivateRegion {
        region,
        _words: words,
    }))
}

/// A page of words that others may access.
#[derive(Debug)]
#[repr(align(4096))]
pub(crate) struct Page(pub(crate) [AtomicU64; 512]);

impl Default for Page {
    fn default() -> Self {
        Page(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// A region and its memory, dropped in this order.
#[derive(Debug)]
struct PrivateRegion {
    region: Arc<dyn NicMr>,
    _words: Box<[Page]>,
}

// SAFETY: all is what the region inside says.
unsafe impl NicMr for PrivateRegion {
    fn addr(&self) -> u64 {
        self.region.addr()
    }

    fn len(&self) -> usize {
        self.region.len()
    }

    fn lkey(&self) -> Lkey {
        self.region.lkey()
    }

    fn rkey(&self) -> Rkey {
        self.region.rkey()
    }

    fn base(&self) -> Option<NonNull<u8>> {
        self.region.base()
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.region.read(offset, bytes);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.region.write(offset, bytes);
    }
}

/// A completion queue, and what was polled from it but not looked at yet.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) cq: Box<dyn NicCq>,
    pub(super) seen: VecDeque<Wc>,
    polled: Polled,
}

impl Queue {
    pub(super) fn new(cq: Box<dyn NicCq>) -> Queue {
        Queue {
            cq,
            seen: VecDeque::new(),
            polled: Polled::new(16),
        }
    }

    pub(super) fn num(&self) -> CqNum {
        self.cq.num()
    }

    /// Moves completions from the NIC to `seen`.
    pub(super) fn poll(&mut self) {
        let polled = self.cq.poll(&mut self.polled);
        polled.expect("the queue has not overrun");
        self.seen.extend(self.polled.completions());
    }

    /// Polls, and takes the oldest completion.
    pub(super) fn take(&mut self) -> Option<Wc> {
        self.poll();
        self.seen.pop_front()
    }
}

/// The changes that lead from RESET to RTS.
pub(super) fn steps(
    transport: Transport,
    own: QpNum,
    peer: (Gid, QpNum),
    options: &Options,
) -> [QpAttr; 3] {
    let peer = Endpoint {
        gid: peer.0,
        qpn: peer.1,
        psn: first_psn(peer.1),
    };
    let choices = ConnectOptions {
        access: options.access,
        mtu: options.mtu,
        timeout: options.timeout,
        retry_count: options.retry_count,
        rnr_retry: options.rnr_retry,
        min_rnr_timer: 1,
        rd_atomic_max: options.rd_atomic_max,
    };
    [
        to_init(transport, options.access, QKEY),
        to_rtr(transport, &peer, &choices),
        to_rts(transport, first_psn(own), &choices),
    ]
}

/// Takes a queue pair from RESET to RTS.
pub(super) fn connect(qp: &QpParts, peer: (Gid, QpNum), options: &Options) {
    for attr in steps(qp.transport(), qp.num(), peer, options) {
        let state = attr.state;
        let changed = qp.modify(&attr);
        changed.unwrap_or_else(|e| panic!("{:?} to {state:?}: {e}", qp.transport()));
    }
}

/// One side of a pair: a queue pair with its own queues and a region.
#[derive(Debug)]
pub(super) struct End {
    pub(super) qp: QpParts,
    pub(super) region: Arc<dyn NicMr>,
    pub(super) send: Queue,
    pub(super) recv: Queue,
    pub(super) node: Node,
    /// Where its datagrams go (UD).
    pub(super) to: Option<UdDest>,
}

impl End {
    pub(super) fn new(nic: &Arc<dyn Nic>, transport: Transport, options: &Options) -> End {
        let node = Node::new(nic);
        let (send, recv) = (node.queue(options.cq_depth), node.queue(options.cq_depth));
        let mut init = node.init(transport, send.num(), recv.num());
        init.caps = options.caps;
        init.signal_all = options.signal_all;
        End {
            qp: node.qp(&init),
            region: node.region(options.region_len, options.region_access),
            send,
            recv,
            node,
            to: None,
        }
    }

    pub(super) fn state(&self) -> QpState {
        self.qp.query().state.expect("a queue pair has a state")
    }

    pub(super) fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge {
            addr: self.region.addr() + offset as u64,
            len: len as u32,
            lkey: self.region.lkey(),
        }
    }

    pub(super) fn remote(&self, offset: usize) -> RemoteAddr {
        remote_addr(&*self.region, offset)
    }

    pub(super) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.region.read(offset, &mut bytes);
        bytes
    }

    pub(super) fn word(&self, offset: usize) -> u64 {
        let mut word = [0; 8];
        self.region.read(offset, &mut word);
        u64::from_le_bytes(word)
    }

    pub(super) fn set_word(&self, offset: usize, word: u64) {
        self.region.write(offset, &word.to_le_bytes());
    }

    /// Puts bytes of a seed into the region, and returns them.
    pub(super) fn fill(&self, offset: usize, len: usize, seed: u64) -> Vec<u8> {
        let bytes = pattern(seed, len);
        self.region.write(offset, &bytes);
        bytes
    }

    /// A signaled request; a datagram goes to the other side of the pair.
    pub(super) fn wr<'p>(&self, id: u64, op: Op, payload: Payload<'p>) -> SendWr<'p> {
        SendWr {
            id,
            op,
            payload,
            flags: SendFlags::SIGNALED,
            to: self.to,
        }
    }

    /// Posts a signaled request.
    pub(super) fn post(&mut self, id: u64, op: Op, payload: Payload<'_>) {
        let wr = self.wr(id, op, payload);
        self.post_all(&[wr]);
    }

    pub(super) fn post_all(&mut self, wrs: &[SendWr<'_>]) {
        let posted = self.qp.post_send(wrs);
        posted.unwrap_or_else(|e| panic!("posting {wrs:?}: {e}"));
    }

    /// Posts a RECV of one element.
    pub(super) fn post_recv(&mut self, id: u64, offset: usize, len: usize) {
        let sges = [self.sge(offset, len)];
        self.post_recv_of(id, &sges);
    }

    pub(super) fn post_recv_of(&mut self, id: u64, sges: &[Sge]) {
        let posted = self.qp.post_recv(&[RecvWr { id, sges }]);
        posted.unwrap_or_else(|e| panic!("posting RECV {id}: {e}"));
    }

    pub(super) fn poll(&mut self) {
        self.send.poll();
        self.recv.poll();
    }
}

/// Two connected queue pairs in RTS, one on each node.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) a: End,
    pub(super) b: End,
    patience: Duration,
}

impl Pair {
    pub(super) fn new(fixture: &Fixture, transport: Transport) -> Pair {
        Pair::with(fixture, transport, &Options::default())
    }

    pub(super) fn with(fixture: &Fixture, transport: Transport, options: &Options) -> Pair {
        let mut pair = Pair::unconnected(fixture, transport, options);
        pair.connect(options);
        pair
    }

    /// Two queue pairs in RESET.
    pub(super) fn unconnected(fixture: &Fixture, transport: Transport, options: &Options) -> Pair {
        Pair {
            a: End::new(&fixture.a, transport, options),
            b: End::new(&fixture.b, transport, options),
            patience: fixture.patience,
        }
    }

    /// From RESET to RTS on both sides.
    pub(super) fn connect(&mut self, options: &Options) {
        let (a, b) = (&mut self.a, &mut self.b);
        let peer_of_a = (b.node.gid, b.qp.num());
        let peer_of_b = (a.node.gid, a.qp.num());
        connect(&b.qp, peer_of_b, options);
        connect(&a.qp, peer_of_a, options);
        if a.qp.transport() == Transport::Ud {
            a.to = Some(a.node.dest(peer_of_a.0, peer_of_a.1));
            b.to = Some(b.node.dest(peer_of_b.0, peer_of_b.1));
        }
    }

    /// Calls `check` until it answers, polling both sides in between.
    pub(super) fn until<T>(
        &mut self,
        what: &str,
        mut check: impl FnMut(&mut Pair) -> Option<T>,
    ) -> T {
        let patience = self.patience;
        until(patience, what, || {
            self.a.poll();
            self.b.poll();
            check(self)
        })
    }

    /// The next completion of a request sent by A.
    pub(super) fn sent(&mut self, what: &str) -> Wc {
        self.until(what, |pair| pair.a.send.seen.pop_front())
    }

    /// The next completion of a RECV of B.
    pub(super) fn received(&mut self, what: &str) -> Wc {
        self.until(what, |pair| pair.b.recv.seen.pop_front())
    }

    /// The next completion of a request sent by A, which must have this id and status.
    #[track_caller]
    pub(super) fn sent_as(&mut self, id: u64, status: WcStatus) -> Wc {
        let wc = self.sent(&format!("request {id} to complete with {status:?}"));
        assert_eq!((wc.id, wc.status), (id, status), "{wc:?}");
        assert_eq!(wc.qpn, self.a.qp.num(), "{wc:?}");
        wc
    }

    #[track_caller]
    pub(super) fn sent_ok(&mut self, id: u64) -> Wc {
        self.sent_as(id, WcStatus::Success)
    }

    /// The next completion of a RECV of B, which must have this id and status.
    #[track_caller]
    pub(super) fn received_as(&mut self, id: u64, status: WcStatus) -> Wc {
        let wc = self.received(&format!("RECV {id} to complete with {status:?}"));
        assert_eq!((wc.id, wc.status), (id, status), "{wc:?}");
        assert_eq!(wc.qpn, self.b.qp.num(), "{wc:?}");
        wc
    }

    #[track_caller]
    pub(super) fn received_ok(&mut self, id: u64) -> Wc {
        self.received_as(id, WcStatus::Success)
    }

    /// Waits until bytes stand in B's region: how an unreliable WRITE is known to have arrived.
    pub(super) fn arrives(&mut self, offset: usize, bytes: &[u8], what: &str) {
        self.until(what, |pair| {
            (pair.b.bytes(offset, bytes.len()) == bytes).then_some(())
        });
    }

    /// Sends an inline message and takes both completions: what was posted before is through.
    pub(super) fn flush_through(&mut self) {
        const LAST: u64 = 0x1a57;
        let room = self.b.region.len();
        self.b.post_recv(LAST, room - 64, 64);
        self.a.post(LAST, SEND, Payload::Inline(b"the last one"));
        self.sent_ok(LAST);
        self.received_ok(LAST);
    }

    /// Polls both sides for a while and insists that nothing completes.
    pub(super) fn stays_quiet(&mut self, why: &str) {
        for _ in 0..200 {
            self.a.poll();
            self.b.poll();
            std::thread::yield_now();
        }
        for queue in [&self.a.send, &self.a.recv, &self.b.send, &self.b.recv] {
            assert!(queue.seen.is_empty(), "{why}, but got {:?}", queue.seen);
        }
    }

    /// Waits until a queue pair of either side is in a state.
    pub(super) fn in_state(&mut self, state: QpState, of: fn(&Pair) -> &End) {
        self.until(&format!("state {state:?}"), |pair| {
            (of(pair).state() == state).then_some(())
        });
    }
}

/// A pair whose B has RECVs of the NIC's own.
pub(super) fn lending(fixture: &Fixture, transport: Transport, lent: LentRecvs) -> Pair {
    let options = Options::default();
    let mut pair = Pair::unconnected(fixture, transport, &options);
    let mut init = pair
        .b
        .node
        .init(transport, pair.b.send.num(), pair.b.recv.num());
    init.lent_recvs = Some(lent);
    pair.b.qp = pair.b.node.qp(&init);
    pair.connect(&options);
    pair
}

/// What kind of completion an operation makes at its sender.
pub(super) fn opcode(op: &Op) -> WcOpcode {
    match op {
        Op::Send { .. } => WcOpcode::Send,
        Op::Write { .. } => WcOpcode::Write,
        Op::Read { .. } => WcOpcode::Read,
        Op::CompareSwap { .. } => WcOpcode::CompareSwap,
        Op::FetchAdd { .. } => WcOpcode::FetchAdd,
        Op::SendInvalidate { .. } => WcOpcode::Send,
        Op::BindWindow(_) => WcOpcode::BindWindow,
        Op::LocalInvalidate { .. } => WcOpcode::LocalInvalidate,
    }
}
