//! Room for what waits to be polled: how much there is, what is dropped, and that it is given back.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nic_soft::SoftNic;
use verbs::typed::{
    CompletionQueue, ConnectOptions, Context, MemoryRegion, ProtectionDomain, QpOptions, QueuePair,
    Rc, Uc, Ud, Wr,
};
use verbs::wr::GRH_LEN;
use verbs::{Access, Qkey, QpCaps, RecvWr, Wc, WcOpcode, WcStatus};

const QKEY: Qkey = Qkey(3);
const LEN: usize = 4096;
const RECVS: u64 = 64;

/// A queue pair for datagrams, and memory for one of them.
struct Node {
    ud: QueuePair<Ud>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    nic: Arc<SoftNic>,
    memory: MemoryRegion,
}

impl Node {
    fn new(run_dir: &Path) -> Self {
        let nic = crate::pair::open(run_dir);
        let context = Context::new(nic.clone());
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(256).expect("a queue");
        let caps = QpCaps {
            recv_wr_max: RECVS as u32,
            ..QpCaps::default()
        };
        let mut ud: QueuePair<Ud> = pd
            .create_qp(&QpOptions::on(&cq).caps(caps))
            .expect("a queue pair");
        ud.activate(QKEY).expect("ready");
        let memory = pd.allocate(2 * LEN, Access::LOCAL_WRITE).expect("memory");
        Node {
            ud,
            cq,
            pd,
            nic,
            memory,
        }
    }

    fn post_recvs(&mut self, count: u64) {
        let sges = [self.memory.sge(0..GRH_LEN + LEN)];
        for id in 0..count {
            self.ud
                .post_recv(&[RecvWr { id, sges: &sges }])
                .expect("posted");
        }
    }

    fn poll(&mut self) -> Option<Wc> {
        let mut out = [Wc::default()];
        (self.cq.poll(&mut out).expect("no overrun") == 1).then_some(out[0])
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(120), "waited for {what}");
        std::thread::yield_now();
    }
}

#[test]
fn datagrams_for_one_who_does_not_poll_take_bounded_room_and_are_counted() {
    const SENT: u64 = 1000;
    let run_dir = tempfile::tempdir().expect("a directory");
    let (mut here, mut there) = (Node::new(run_dir.path()), Node::new(run_dir.path()));
    let gid = there.pd.context().gid().expect("a GID");
    let ah = here.pd.create_ah(gid).expect("an address");
    there.post_recvs(RECVS);
    let (to, its_nic) = (there.ud.num(), there.nic.clone());
    let send = |here: &mut Node| {
        let sges = [here.memory.sge(0..LEN)];
        let wr = Wr::send_to(&ah, to, QKEY, &sges);
        here.ud.post_send(&[wr]).expect("posted");
        let wc = until("a datagram sent", || here.poll());
        assert!(wc.is_ok() && wc.opcode == WcOpcode::Send, "{wc:?}");
    };
    send(&mut here);
    until("first contact", || {
        (here.nic.usage().peers == 1).then_some(())
    });
    for _ in 1..SENT {
        send(&mut here);
    }
    let unsent = here.nic.counters().unsent;
    assert!(unsent > 0, "there is room without end");
    its_nic.catch_up();
    let lanes = || its_nic.usage().lanes;
    until("the lanes", || (lanes() > 1).then_some(()));
    assert!(lanes() <= 3, "{} lanes for {RECVS} RECVs", lanes());
    for id in 0..RECVS {
        let wc = until("a datagram", || there.poll());
        assert_eq!((wc.id, wc.byte_len as usize), (id, GRH_LEN + LEN));
    }
    // Those behind find no RECV.
    until("the end of the others", || {
        assert_eq!(there.poll(), None);
        (its_nic.counters().unreceived == SENT - unsent - RECVS).then_some(())
    });
    assert_eq!(lanes(), 1, "room is given back");
    there.post_recvs(1);
    send(&mut here);
    until("one more", || there.poll());
    assert_eq!(here.nic.counters().unsent, unsent);
}

#[test]
fn datagrams_to_nobody_are_counted() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut here = Node::new(run_dir.path());
    let gid = here.pd.context().gid().expect("a GID");
    let ah = here.pd.create_ah(gid).expect("an address");
    // Of an instance that is not there.
    let to = verbs::QpNum(500 << 14 | 7);
    let sges = [here.memory.sge(0..8)];
    let short = Wr::send_inline_to(&ah, to, QKEY, b"hello?");
    let gathered = Wr::send_to(&ah, to, QKEY, &sges);
    here.ud
        .post_send(&[short, short, gathered, short])
        .expect("posted");
    assert_eq!(here.nic.counters().unsent, 4);
}

#[test]
fn a_datagram_without_room_wakes_whoever_waits_for_solicited_ones() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let (mut here, there) = (Node::new(run_dir.path()), Node::new(run_dir.path()));
    let context = there.pd.context();
    let mut channel = context.create_channel().expect("a channel");
    let mut cq = context.create_cq_on(256, &channel).expect("a queue");
    let mut ud: QueuePair<Ud> = there
        .pd
        .create_qp(&QpOptions::on(&cq))
        .expect("a queue pair");
    ud.activate(QKEY).expect("ready");
    let gid = context.gid().expect("a GID");
    let ah = here.pd.create_ah(gid).expect("an address");
    let to = ud.num();
    let send = |here: &mut Node| {
        let sges = [here.memory.sge(0..LEN)];
        let wr = Wr::send_to(&ah, to, QKEY, &sges);
        here.ud.post_send(&[wr]).expect("posted");
        until("a datagram sent", || here.poll());
    };
    send(&mut here);
    until("first contact", || {
        (here.nic.usage().peers == 1).then_some(())
    });
    while here.nic.counters().unsent == 0 {
        send(&mut here);
    }
    cq.arm(true).expect("it has a channel");
    while channel.event().expect("an event or none").is_some() {}
    cq.arm(true).expect("it has a channel");
    assert_eq!(channel.event().expect("an event or none"), None);
    let unsent = here.nic.counters().unsent;
    send(&mut here);
    assert_eq!(here.nic.counters().unsent, unsent + 1);
    assert_eq!(channel.event().expect("an event or none"), Some(cq.num()));
}

#[test]
fn a_reliable_message_waits_for_room_however_long_and_arrives() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let (mut here, mut there) = (Node::new(run_dir.path()), Node::new(run_dir.path()));
    let caps = QpCaps {
        send_wr_max: 2 * RECVS as u32,
        recv_wr_max: 2 * RECVS as u32,
        ..QpCaps::default()
    };
    let create = |node: &Node| -> QueuePair<Rc> {
        let options = QpOptions::on(&node.cq).caps(caps);
        node.pd.create_qp(&options).expect("a queue pair")
    };
    let (mut a, mut b) = (create(&here), create(&there));
    // So impatient that whatever counts tries gives up at once.
    let options = ConnectOptions {
        timeout: 1,
        retry_count: 0,
        rnr_retry: 0,
        ..ConnectOptions::default()
    };
    let (to_a, to_b) = (a.endpoint().expect("a GID"), b.endpoint().expect("a GID"));
    a.connect(&to_b, &options).expect("connected");
    b.connect(&to_a, &options).expect("connected");
    let sges = [there.memory.sge(0..LEN)];
    let recvs: Vec<_> = (0..2 * RECVS)
        .map(|id| RecvWr { id, sges: &sges })
        .collect();
    b.post_recv(&recvs).expect("posted");
    // There is a RECV for each, and not room for all of them while nobody polls.
    let sges = [here.memory.sge(0..LEN)];
    for id in 0..2 * RECVS {
        a.post_send(&[Wr::send(&sges).id(id)]).expect("posted");
    }
    let mut sent = 0;
    for _ in 0..10_000 {
        while let Some(wc) = here.poll() {
            assert_eq!((wc.id, wc.status), (sent, WcStatus::Success));
            sent += 1;
        }
    }
    assert!(sent < 2 * RECVS, "there is room without end");
    for id in 0..2 * RECVS {
        let wc = until("a message", || there.poll());
        assert_eq!((wc.id, wc.status), (id, WcStatus::Success));
    }
    while sent < 2 * RECVS {
        let wc = until("the others to be sent", || here.poll());
        assert_eq!((wc.id, wc.status), (sent, WcStatus::Success));
        sent += 1;
    }
}

/// A queue pair of each of two nodes, connected over UC, and the queue that the second one receives on.
struct OneWay {
    a: QueuePair<Uc>,
    cq: CompletionQueue,
    b: QueuePair<Uc>,
    memory: MemoryRegion,
}

impl OneWay {
    fn received(&mut self) -> Option<Wc> {
        let mut out = [Wc::default()];
        (self.cq.poll(&mut out).expect("no overrun") == 1).then_some(out[0])
    }
}

/// Such a pair, whose second one has as many RECVs of `len` bytes as it can have.
fn unreliable(here: &Node, there: &Node, len: usize) -> OneWay {
    const COUNT: u32 = 256;
    let caps = QpCaps {
        send_wr_max: COUNT,
        recv_wr_max: COUNT,
        ..QpCaps::default()
    };
    let cq = there.pd.context().create_cq(16).expect("a queue");
    let mut a: QueuePair<Uc> = here
        .pd
        .create_qp(&QpOptions::on(&here.cq).caps(caps))
        .expect("a queue pair");
    let mut b: QueuePair<Uc> = there
        .pd
        .create_qp(&QpOptions::on(&cq).caps(caps))
        .expect("a queue pair");
    let options = ConnectOptions::default();
    let (to_a, to_b) = (a.endpoint().expect("a GID"), b.endpoint().expect("a GID"));
    b.connect(&to_a, &options).expect("connected");
    a.connect(&to_b, &options).expect("connected");
    let memory = there.pd.allocate(len, Access::EVERYTHING).expect("memory");
    let sges = [memory.sge(0..len)];
    for id in 0..u64::from(COUNT) {
        let posted = b.post_recv(&[RecvWr { id, sges: &sges }]);
        posted.expect("posted");
    }
    OneWay { a, cq, b, memory }
}

#[test]
fn what_was_refused_room_has_some_when_others_have_been_read() {
    const LONG: usize = 1 << 20;
    let run_dir = tempfile::tempdir().expect("a directory");
    let (mut here, there) = (Node::new(run_dir.path()), Node::new(run_dir.path()));
    let mut x = unreliable(&here, &there, LONG);
    let mut y = unreliable(&here, &there, LEN);
    let memory = here.pd.allocate(LONG, Access::LOCAL_WRITE).expect("memory");
    let unsent = |here: &Node| here.nic.counters().unsent;
    // As many as may be unread fill what one adapter has at another, and the last may have to wait.
    let (mut sent, mut waits) = (0, false);
    while !waits && unsent(&here) == 0 {
        let sges = [memory.sge(0..LONG)];
        x.a.post_send(&[Wr::send(&sges).id(sent)]).expect("posted");
        waits = here.poll().is_none();
        sent += 1;
    }
    let dropped = unsent(&here);
    let sges = [memory.sge(0..LEN)];
    let send = |here: &mut Node, y: &mut OneWay| {
        y.a.post_send(&[Wr::send(&sges)]).expect("posted");
        until("a message sent", || here.poll());
    };
    let mut sent_over_y = 0;
    while unsent(&here) == dropped {
        send(&mut here, &mut y);
        sent_over_y += 1;
    }
    sent_over_y -= 1;
    for id in 0..sent - dropped {
        let received = until("a long message", || {
            waits &= here.poll().is_none();
            x.received()
        });
        assert_eq!((received.id, received.status), (id, WcStatus::Success));
    }
    until("the last long message to be sent", || {
        waits &= here.poll().is_none();
        (!waits).then_some(())
    });
    // There is a RECV for each.
    for _ in 0..100 {
        send(&mut here, &mut y);
        sent_over_y += 1;
    }
    assert_eq!(unsent(&here), dropped + 1, "there is room");
    for id in 0..sent_over_y {
        let received = until("a message", || y.received());
        assert_eq!((received.id, received.status), (id, WcStatus::Success));
    }
}

#[test]
fn what_finds_no_recv_or_no_process_over_uc_is_counted() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let (mut here, there) = (Node::new(run_dir.path()), Node::new(run_dir.path()));
    let mut pair = unreliable(&here, &there, LEN);
    let remote = pair.memory.remote(0);
    let send = |here: &mut Node, pair: &mut OneWay, wr| {
        pair.a.post_send(&[wr]).expect("posted");
        until("a request sent", || here.poll());
    };
    for _ in 0..pair.b.caps().recv_wr_max {
        send(&mut here, &mut pair, Wr::send_inline(b"received"));
        let received = until("a message", || pair.received());
        assert!(received.is_ok(), "{received:?}");
    }
    let counted = |here: &Node| (here.nic.counters().unsent, here.nic.counters().unreceived);
    assert_eq!(counted(&here), (0, 0));
    let write = Wr::write_inline(b"in place", remote);
    for wr in [Wr::send_inline(b"lost"), write.imm(7), write] {
        send(&mut here, &mut pair, wr);
    }
    until("the WRITEs to arrive", || {
        let mut bytes = [0; 8];
        pair.memory.read(0, &mut bytes);
        (&bytes == b"in place").then_some(())
    });
    assert_eq!(counted(&here), (0, 2));
    let OneWay {
        mut a,
        cq,
        b,
        memory,
    } = pair;
    drop((cq, b, memory, there));
    until("the end of its process to be counted", || {
        a.post_send(&[write]).expect("posted");
        until("a request sent", || here.poll());
        (counted(&here) != (0, 2)).then_some(())
    });
    assert_eq!(counted(&here), (1, 2));
}
