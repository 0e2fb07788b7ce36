//! What is peculiar to UD: headers, addresses, keys, and losing what cannot be taken.

use super::Fixture;
use super::rig::{End, Node, Options, Pair, QKEY, SEND, connect, pattern, until};
use verbs::attr::{Access, QpAttr, QpState, Transport};
use verbs::batch::SendBatch;
use verbs::error::{PostError, PostReason, VerbsError};
use verbs::names::{Qkey, QpNum};
use verbs::nic::QpParts;
use verbs::wc::{WcFlags, WcStatus};
use verbs::wr::{GRH_LEN, Op, Payload, RecvWr, SendFlags, SendWr, Sge, UdDest};

/// A datagram arrives behind 40 bytes of header, which its length includes; over IPv4 the second
/// half of them is an IPv4 header with both addresses. The sender's queue pair is named.
pub fn a_datagram_arrives_behind_its_header(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Ud);
    let bytes = pair.a.fill(0, 100, 1);
    let sges = [pair.a.sge(0, 100)];
    pair.b.post_recv(1, 512, 200);
    pair.a.post(1, SEND, Payload::Gather(&sges));
    pair.sent_ok(1);
    let wc = pair.received_ok(1);
    assert_eq!(wc.byte_len as usize, GRH_LEN + 100);
    assert!(wc.flags.contains(WcFlags::GRH));
    assert_eq!(wc.src_qpn, pair.a.qp.num());
    assert_eq!(pair.b.bytes(512 + GRH_LEN, 100), bytes);
    let is_ipv6 = pair.b.bytes(512, 1)[0] >> 4 == 6;
    assert_eq!(wc.flags.contains(WcFlags::GRH_IPV6), is_ipv6);
    if let (Some(from), Some(to)) = (pair.a.node.gid.ipv4(), pair.b.node.gid.ipv4()) {
        let header = pair.b.bytes(512 + 20, 20);
        assert_eq!(header[0] >> 4, 4, "an IPv4 header: {header:?}");
        assert_eq!(header[12..16], from.octets(), "{header:?}");
        assert_eq!(header[16..20], to.octets(), "{header:?}");
    }
}

/// A receiver can answer the sender that a completion names.
pub fn a_datagram_can_be_answered(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Ud);
    pair.b.post_recv(1, 0, 64);
    pair.a.post_recv(2, 0, 64);
    pair.a.post(1, SEND, Payload::Inline(b"question"));
    let question = pair.received_ok(1);
    let to = UdDest {
        qpn: question.src_qpn,
        ..pair.b.to.expect("a datagram pair has addresses")
    };
    let mut answer = pair.b.wr(2, SEND, Payload::Inline(b"answer"));
    answer.to = Some(to);
    pair.b.post_all(&[answer]);
    let wc = pair.until("the answer", |pair| pair.a.recv.seen.pop_front());
    assert_eq!((wc.id, wc.status), (2, WcStatus::Success));
    assert_eq!(pair.a.bytes(GRH_LEN, 6), b"answer");
}

/// The datagrams of a batch go each where it says and in their order, though others of the batch go
/// elsewhere, say another key, complete, or carry immediate data.
pub fn a_batch_of_datagrams_goes_where_each_says(fixture: &Fixture) {
    const COUNT: u64 = 40;
    let mut pair = Pair::new(fixture, Transport::Ud);
    let there = pair.a.to.expect("a datagram pair has addresses");
    let own = pair.a.node.dest(pair.a.node.gid, pair.a.qp.num());
    let here = UdDest { qkey: QKEY, ..own };
    let nowhere = UdDest {
        qkey: Qkey(there.qkey.0 ^ 1),
        ..there
    };
    let [there, here] = [there, here].map(|to| pair.a.qp.send.prepare(&to).expect("there"));
    for id in 0..COUNT {
        pair.b.post_recv(id, 64 * id as usize, 64);
        pair.a.post_recv(id, 64 * id as usize, 64);
    }
    let mut batch = SendBatch::new(pair.a.qp.send.limits(), COUNT as usize);
    let (mut sent, mut to_there, mut to_here) = (Vec::new(), Vec::new(), Vec::new());
    for id in 0..COUNT {
        // Runs of one, two and more; what is odd stands first, in the middle and last.
        let (dest, imm) = match id % 11 {
            0 | 1 | 5 | 6 | 7 => (there, None),
            2 | 8 | 9 => (here, None),
            3 => (nowhere.into(), None),
            4 => (there, Some(id as u32)),
            _ => (here, Some(id as u32)),
        };
        let mut draft = batch.inline(Op::Send { imm }, Some(dest), 8).expect("room");
        draft.bytes().copy_from_slice(&id.to_le_bytes());
        let mut flags = SendFlags::empty();
        if matches!(id % 11, 3 | 6 | 8) || id + 1 == COUNT {
            flags = SendFlags::SIGNALED;
            sent.push(id);
        }
        draft.id(id).flags(flags).commit(8);
        if dest == there {
            to_there.push((id, imm));
        } else if dest == here {
            to_here.push((id, imm));
        }
    }
    pair.a.qp.send.post(&batch).expect("posted");
    for id in sent {
        pair.sent_ok(id);
    }
    for (number, (id, imm)) in to_there.into_iter().enumerate() {
        let wc = pair.received_ok(number as u64);
        assert_eq!(pair.b.word(64 * number + GRH_LEN), id);
        assert_eq!(wc.immediate(), imm, "{wc:?}");
    }
    for (number, (id, imm)) in to_here.into_iter().enumerate() {
        let wc = pair.until("one to itself", |pair| pair.a.recv.seen.pop_front());
        assert_eq!((wc.id, wc.status), (number as u64, WcStatus::Success));
        assert_eq!(pair.a.word(64 * number + GRH_LEN), id);
        assert_eq!(wc.immediate(), imm, "{wc:?}");
    }
    pair.stays_quiet("all were received but those with another key");
}

/// A datagram is as long as the port's largest packet at most.
pub fn a_datagram_fits_one_packet(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Ud);
    let port = |end: &End| end.node.nic.port(1).expect("port 1").mtu_max.bytes();
    let len_max = port(&pair.a).min(port(&pair.b));
    let from = port(&pair.a);
    for len in [0, 1, len_max - 1, len_max] {
        let bytes = pair.a.fill(0, len, 1);
        let sges = [pair.a.sge(0, len)];
        pair.b.post_recv(1, 0, GRH_LEN + len);
        pair.a.post(1, SEND, Payload::Gather(&sges));
        pair.sent_ok(1);
        assert_eq!(pair.received_ok(1).byte_len as usize, GRH_LEN + len);
        assert!(pair.b.bytes(GRH_LEN, len) == bytes, "{len} bytes");
    }
    let sges = [pair.a.sge(0, from + 1)];
    let wr = pair.a.wr(1, SEND, Payload::Gather(&sges));
    let refused = pair.a.qp.post_send(&[wr]).expect_err("too long");
    assert_eq!((refused.index, refused.reason), (0, PostReason::TooLong));
}

/// A datagram with another key, or to a queue pair that is not there, is not an error: its sender
/// completes, and nobody receives.
pub fn an_unwanted_datagram_is_lost(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Ud);
    let to = pair.a.to.expect("a datagram pair has addresses");
    pair.b.post_recv(1, 0, 128);
    let unwanted = [
        UdDest {
            qkey: Qkey(QKEY.0 ^ 1),
            ..to
        },
        UdDest {
            qpn: QpNum(to.qpn.0 ^ 0x7fff),
            ..to
        },
    ];
    for (id, to) in unwanted.into_iter().enumerate() {
        let mut wr = pair.a.wr(id as u64, SEND, Payload::Inline(b"unwanted"));
        wr.to = Some(to);
        pair.a.post_all(&[wr]);
        pair.sent_ok(id as u64);
    }
    pair.a.post(7, SEND, Payload::Inline(b"wanted"));
    pair.sent_ok(7);
    assert_eq!(pair.received_ok(1).byte_len as usize, GRH_LEN + 6);
    assert_eq!(pair.b.bytes(GRH_LEN, 6), b"wanted");
}

/// A datagram whose address handle is of another protection domain, or is none, is not sent: it fails
/// at its sender, who can go on when he has left SQE. No destination is made of such a handle.
pub fn a_datagram_needs_a_handle_of_its_domain(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Ud);
    let to = pair.a.to.expect("a datagram pair has addresses");
    // The queue pair knows its way there by now.
    pair.flush_through();
    let foreign = Node::new(&fixture.a).dest(pair.b.node.gid, to.qpn);
    let gone = pair.a.node.dest(pair.b.node.gid, to.qpn);
    pair.a.node.nic.destroy_ah(gone.ah).expect("it is there");
    for (id, wrong) in [(1, foreign), (3, gone)] {
        let prepared = pair.a.qp.send.prepare(&wrong);
        let refused = matches!(prepared, Err(VerbsError::NoSuch { .. }));
        assert!(refused, "{prepared:?}");
        pair.b.post_recv(id, 0, 128);
        let mut batch = [
            pair.a.wr(id, SEND, Payload::Inline(b"unwanted")),
            pair.a.wr(id + 1, SEND, Payload::Inline(b"behind")),
        ];
        batch[0].to = Some(wrong);
        pair.a.post_all(&batch);
        pair.sent_as(id, WcStatus::LocQpOpErr);
        pair.sent_as(id + 1, WcStatus::WrFlushErr);
        pair.in_state(QpState::Sqe, |pair| &pair.a);
        pair.a.qp.modify(&QpAttr::to(QpState::Rts)).expect("to RTS");
        pair.a.post(7, SEND, Payload::Inline(b"wanted"));
        pair.sent_ok(7);
        pair.received_ok(id);
        assert_eq!(pair.b.bytes(GRH_LEN, 6), b"wanted");
    }
}

/// A key with its top bit set is not the request's to say: the datagram carries the sender's own.
pub fn a_controlled_key_is_the_senders_own(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Ud);
    let to = pair.a.to.expect("a datagram pair has addresses");
    let (controlled, other) = (Qkey(1 << 31 | QKEY.0), Qkey(1 << 31));
    let change = |end: &End, qkey| {
        let mut attr = QpAttr::to(QpState::Rts);
        attr.qkey = Some(qkey);
        end.qp.modify(&attr).expect("another key");
    };
    let said = |pair: &mut Pair, id, qkey, text| {
        let mut wr = pair.a.wr(id, SEND, Payload::Inline(text));
        wr.to = Some(UdDest { qkey, ..to });
        pair.a.post_all(&[wr]);
        pair.sent_ok(id);
    };
    let heard = |pair: &mut Pair, text: &[u8]| {
        pair.received_ok(1);
        assert_eq!(pair.b.bytes(GRH_LEN, text.len()), text);
        pair.b.post_recv(1, 0, 128);
    };
    pair.b.post_recv(1, 0, 128);
    // Whatever the request says, the key is the one that both have.
    said(&mut pair, 1, other, b"under the own key");
    heard(&mut pair, b"under the own key");
    change(&pair.b, controlled);
    // It is the receiver's, but not the sender's.
    said(&mut pair, 2, controlled, b"under a key of others");
    pair.stays_quiet("a controlled key is not taken from a request");
    change(&pair.a, controlled);
    said(&mut pair, 3, other, b"under the controlled key");
    heard(&mut pair, b"under the controlled key");
}

/// A datagram that finds no RECV is lost, and its sender completes; a later RECV is for a later
/// datagram.
pub fn a_datagram_without_recv_is_lost(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Ud);
    // The first datagram between two queue pairs may be long under way: it is none of the next two.
    pair.flush_through();
    pair.a.post(1, SEND, Payload::Inline(b"lost"));
    pair.sent_ok(1);
    pair.stays_quiet("nobody receives what found no RECV");
    pair.b.post_recv(2, 0, 64);
    pair.a.post(2, SEND, Payload::Inline(b"found"));
    pair.sent_ok(2);
    pair.received_ok(2);
    assert_eq!(pair.b.bytes(GRH_LEN, 5), b"found");
}

/// A RECV too small for a datagram is never written beyond its end. The datagram is lost, and the RECV
/// is there for the next.
pub fn a_recv_too_small_is_not_overrun(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Ud);
    pair.b.region.write(0, &[0xee; 256]);
    pair.b.post_recv(1, 0, GRH_LEN + 10);
    let bytes = pattern(1, 60);
    pair.a.post(1, SEND, Payload::Inline(&bytes));
    pair.sent_ok(1);
    pair.a.post(2, SEND, Payload::Inline(b"fits"));
    pair.sent_ok(2);
    pair.received_ok(1);
    let beyond = pair.b.bytes(GRH_LEN + 10, 100);
    assert_eq!(beyond, [0xee; 100], "bytes beyond the RECV");
    assert_eq!(pair.b.bytes(GRH_LEN, 4), b"fits");
}

/// A RECV of a shared queue that is too small for a datagram is there for the next one, whichever queue
/// pair that comes to.
pub fn a_shared_recv_too_small_is_there_for_others(fixture: &Fixture) {
    let (a, b) = (Node::new(&fixture.a), Node::new(&fixture.b));
    let (mut sends, mut recvs) = (a.queue(64), b.queue(64));
    let region = b.region(2048, Access::EVERYTHING);
    let mut srq = b.srq(4);
    let options = Options::default();
    let mut init = b.init(Transport::Ud, recvs.num(), recvs.num());
    init.srq = Some(srq.num());
    let mut from = a.qp(&a.init(Transport::Ud, sends.num(), sends.num()));
    let to = [b.qp(&init), b.qp(&init)];
    connect(&from, (b.gid, to[0].num()), &options);
    for to in &to {
        connect(to, (a.gid, from.num()), &options);
    }
    let mut post_recv = |id, len| {
        let sges = [Sge {
            addr: region.addr() + 256 * id,
            len,
            lkey: region.lkey(),
        }];
        srq.post_recv(&[RecvWr { id, sges: &sges }])
    };
    let mut send = |to: &QpParts, bytes: &[u8]| {
        let wr = SendWr {
            id: 1,
            op: SEND,
            payload: Payload::Inline(bytes),
            flags: SendFlags::SIGNALED,
            to: Some(a.dest(b.gid, to.num())),
        };
        from.post_send(&[wr]).expect("a free slot");
        let wc = until(fixture.patience, "a datagram sent", || sends.take());
        assert!(wc.is_ok(), "{wc:?}");
    };
    // The first datagram between two queue pairs may be long under way.
    for (id, to) in to.iter().enumerate() {
        post_recv(id as u64, 256).expect("room for it");
        send(to, b"the first");
        let wc = until(fixture.patience, "the first", || recvs.take());
        assert_eq!((wc.status, wc.qpn), (WcStatus::Success, to.num()), "{wc:?}");
    }
    post_recv(2, (GRH_LEN + 10) as u32).expect("room for it");
    send(&to[0], &pattern(1, 60));
    for _ in 0..200 {
        let refused = recvs.take();
        assert_eq!(refused, None, "a datagram too long for its RECV is lost");
        std::thread::yield_now();
    }
    // It takes its room in the queue, as before.
    for id in 3..6 {
        post_recv(id, 256).expect("room for it");
    }
    let full = PostError {
        index: 0,
        reason: PostReason::QueueFull,
    };
    assert_eq!(post_recv(6, 256), Err(full));
    send(&to[1], b"fits");
    let wc = until(fixture.patience, "the RECV to be used", || recvs.take());
    assert_eq!((wc.status, wc.id), (WcStatus::Success, 2), "{wc:?}");
    assert_eq!(wc.qpn, to[1].num());
}

/// A queue pair that is not ready yet loses what it is sent.
pub fn a_datagram_before_rtr_is_lost(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Ud);
    pair.b
        .qp
        .modify(&QpAttr::to(QpState::Reset))
        .expect("to RESET");
    pair.a.post(1, SEND, Payload::Inline(b"early"));
    pair.sent_ok(1);
    let peer = (pair.a.node.gid, pair.a.qp.num());
    super::rig::connect(&pair.b.qp, peer, &Options::default());
    pair.flush_through();
}
