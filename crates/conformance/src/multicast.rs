//! Multicast groups of UD queue pairs.

use super::Fixture;
use super::rig::{End, Node, Options, Pair, QKEY, Queue, SEND, connect, until};
use verbs::attr::{Access, Transport};
use verbs::error::VerbsError;
use verbs::names::{Gid, QpNum};
use verbs::nic::{NicMr, QpParts};
use verbs::wc::{WcFlags, WcStatus};
use verbs::wr::{GRH_LEN, Payload, RecvWr, SendFlags, SendWr, Sge, UdDest};

use std::net::Ipv4Addr;
use std::sync::Arc;

/// A group of this test's own.
fn group(last: u8) -> Gid {
    Gid::from_ipv4(Ipv4Addr::new(239, 1, 2, last))
}

/// Where the datagrams of a node to a group go.
fn way_to(node: &Node, group: Gid) -> UdDest {
    UdDest {
        qkey: QKEY,
        ..node.dest(group, QpNum::MULTICAST)
    }
}

fn send(end: &mut End, id: u64, to: UdDest, bytes: &[u8]) {
    let mut wr = end.wr(id, SEND, Payload::Inline(bytes));
    wr.to = Some(to);
    end.post_all(&[wr]);
}

/// One more queue pair, on a queue of its own, with a RECV.
struct Member {
    qp: QpParts,
    queue: Queue,
    region: Arc<dyn NicMr>,
    node: Node,
}

impl Member {
    fn new(nic: &Arc<dyn verbs::nic::Nic>, group: Gid) -> Member {
        Member::with(nic, group, false)
    }

    fn with(nic: &Arc<dyn verbs::nic::Nic>, group: Gid, blocks_own_multicast: bool) -> Member {
        let node = Node::new(nic);
        let queue = node.queue(16);
        let mut init = node.init(Transport::Ud, queue.num(), queue.num());
        init.blocks_own_multicast = blocks_own_multicast;
        let qp = node.qp(&init);
        connect(&qp, (node.gid, qp.num()), &Options::default());
        qp.ctl.attach_mcast(group).expect("joined");
        let region = node.region(256, Access::EVERYTHING);
        let mut member = Member {
            qp,
            queue,
            region,
            node,
        };
        member.post_recv(1);
        member
    }

    fn post_recv(&mut self, id: u64) {
        let sges = [Sge {
            addr: self.region.addr(),
            len: 256,
            lkey: self.region.lkey(),
        }];
        let posted = self.qp.post_recv(&[RecvWr { id, sges: &sges }]);
        posted.expect("room for it");
    }

    /// Sends a datagram, which completes on the queue that its RECVs complete on.
    fn send(&mut self, id: u64, to: UdDest, bytes: &[u8]) {
        let wr = SendWr {
            id,
            op: SEND,
            payload: Payload::Inline(bytes),
            flags: SendFlags::SIGNALED,
            to: Some(to),
        };
        self.qp.post_send(&[wr]).expect("room for it");
    }

    fn hears(&mut self, fixture: &Fixture, text: &[u8]) {
        let queue = &mut self.queue;
        let wc = until(fixture.patience, "a member's datagram", || queue.take());
        assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
        assert_eq!(wc.byte_len as usize, GRH_LEN + text.len());
        let mut bytes = vec![0; text.len()];
        self.region.read(GRH_LEN, &mut bytes);
        assert_eq!(bytes, text);
    }

    #[track_caller]
    fn hears_nothing(&mut self) {
        for _ in 0..200 {
            assert_eq!(self.queue.take(), None);
            std::thread::yield_now();
        }
    }
}

/// A datagram to a group comes to every queue pair that is in it, once, on both nodes, and says which group it was sent to.
pub fn a_datagram_to_a_group_comes_to_all_of_its_members(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Ud);
    let group = group(1);
    let (mut near, mut far) = (
        Member::new(&fixture.a, group),
        Member::new(&fixture.b, group),
    );
    pair.b.qp.ctl.attach_mcast(group).expect("joined");
    // Twice is once.
    pair.b.qp.ctl.attach_mcast(group).expect("joined already");
    pair.b.post_recv(1, 0, 128);
    pair.b.post_recv(2, 0, 128);
    let to = way_to(&pair.a.node, group);
    send(&mut pair.a, 1, to, b"to all");
    pair.sent_ok(1);
    let wc = pair.received_ok(1);
    assert_eq!(wc.src_qpn, pair.a.qp.num());
    assert!(wc.flags.contains(WcFlags::GRH));
    assert_eq!(pair.b.bytes(GRH_LEN, 6), b"to all");
    let (from, named) = (pair.a.node.gid, pair.b.bytes(36, 4));
    if from.ipv4().is_some() {
        assert_eq!(Some(named), group.ipv4().map(|ip| ip.octets().to_vec()));
    }
    near.hears(fixture, b"to all");
    far.hears(fixture, b"to all");
    pair.stays_quiet("each member hears it once");
}

/// Who sends to a group hears himself if he is in it, and not otherwise.
pub fn a_sender_hears_itself_if_it_is_in_the_group(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Ud);
    let group = group(2);
    let to = way_to(&pair.a.node, group);
    pair.b.qp.ctl.attach_mcast(group).expect("joined");
    for (id, is_in) in [(1, false), (2, true)] {
        if is_in {
            pair.a.qp.ctl.attach_mcast(group).expect("joined");
            pair.a.post_recv(7, 0, 128);
        }
        pair.b.post_recv(id, 0, 128);
        send(&mut pair.a, id, to, b"myself");
        pair.sent_ok(id);
        pair.received_ok(id);
        if is_in {
            let own = pair.until("its own", |pair| pair.a.recv.seen.pop_front());
            assert_eq!((own.id, own.status), (7, WcStatus::Success));
            assert_eq!(own.src_qpn, pair.a.qp.num());
            assert_eq!(pair.a.bytes(GRH_LEN, 6), b"myself");
        } else {
            pair.stays_quiet("it is not in the group");
        }
    }
}

/// Who asks for that does not hear itself in a group; others on its node do, and it hears them.
pub fn a_sender_that_blocks_its_own_hears_others_alone(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Ud);
    let group = group(6);
    let mut blocks = Member::with(&fixture.a, group, true);
    let mut beside = Member::new(&fixture.a, group);
    pair.b.qp.ctl.attach_mcast(group).expect("joined");
    pair.b.post_recv(1, 0, 128);
    let to = way_to(&blocks.node, group);
    blocks.send(3, to, b"not to me");
    pair.received_ok(1);
    beside.hears(fixture, b"not to me");
    let queue = &mut blocks.queue;
    let wc = until(fixture.patience, "its completion", || queue.take());
    assert_eq!((wc.id, wc.status), (3, WcStatus::Success));
    blocks.hears_nothing();
    let to = way_to(&beside.node, group);
    beside.send(4, to, b"from beside");
    let queue = &mut beside.queue;
    let wc = until(fixture.patience, "its completion", || queue.take());
    assert_eq!((wc.id, wc.status), (4, WcStatus::Success));
    blocks.hears(fixture, b"from beside");
}

/// Who has left a group, or gone, hears nothing more of it; what is sent to it alone goes on.
pub fn who_has_left_a_group_hears_nothing_of_it(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Ud);
    let (left, stays) = (group(3), group(4));
    let mut there = Member::new(&fixture.b, left);
    let gone = Member::new(&fixture.b, left);
    there.qp.ctl.attach_mcast(stays).expect("joined");
    let (to_left, to_stays) = (way_to(&pair.a.node, left), way_to(&pair.a.node, stays));
    send(&mut pair.a, 1, to_left, b"before");
    pair.sent_ok(1);
    there.hears(fixture, b"before");
    there.post_recv(2);
    there.qp.ctl.detach_mcast(left).expect("it was in it");
    drop(gone);
    send(&mut pair.a, 2, to_left, b"after");
    pair.sent_ok(2);
    there.hears_nothing();
    send(&mut pair.a, 3, to_stays, b"elsewhere");
    pair.sent_ok(3);
    there.hears(fixture, b"elsewhere");
    let refused = there.qp.ctl.detach_mcast(left);
    assert!(
        matches!(refused, Err(VerbsError::Invalid { .. })),
        "{refused:?}"
    );
}

/// Only datagrams go to groups, and only groups can be joined. A datagram to a group names no single queue pair, and its key
/// must be each receiver's.
pub fn groups_are_for_datagrams(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Ud);
    let group = group(5);
    let node = Node::new(&fixture.b);
    let queue = node.queue(4);
    let rc = node.qp(&node.init(Transport::Rc, queue.num(), queue.num()));
    for (qp, gid) in [(&rc, group), (&pair.b.qp, node.gid)] {
        let refused = qp.ctl.attach_mcast(gid);
        assert!(
            matches!(refused, Err(VerbsError::Invalid { .. })),
            "{refused:?}"
        );
    }
    pair.b.qp.ctl.attach_mcast(group).expect("joined");
    pair.b.post_recv(9, 0, 128);
    let to = way_to(&pair.a.node, group);
    let named = UdDest {
        qpn: pair.b.qp.num(),
        ..to
    };
    let wrong_key = UdDest {
        qkey: verbs::names::Qkey(QKEY.0 ^ 1),
        ..to
    };
    for (id, to) in [(1, named), (2, wrong_key)] {
        send(&mut pair.a, id, to, b"unwanted");
        pair.sent_ok(id);
    }
    // Gathered, in the middle of others.
    let bytes = pair.a.fill(0, 64, 3);
    let sges = [pair.a.sge(0, 64)];
    let wr = |id, payload| SendWr {
        id,
        op: SEND,
        payload,
        flags: SendFlags::SIGNALED,
        to: Some(to),
    };
    let wrs = [
        wr(3, Payload::Gather(&sges)),
        wr(4, Payload::Inline(b"next")),
    ];
    pair.b.post_recv(10, 128, 128);
    pair.a.post_all(&wrs);
    pair.sent_ok(3);
    pair.sent_ok(4);
    pair.received_ok(9);
    pair.received_ok(10);
    assert_eq!(pair.b.bytes(GRH_LEN, 64), bytes);
    assert_eq!(pair.b.bytes(128 + GRH_LEN, 4), b"next");
}
