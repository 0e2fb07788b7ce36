//! Queues that are full, requests that are too large, and what was asked beyond the device.

use super::Fixture;
use super::rig::{Node, Options, Pair, SEND, TRANSPORTS, connect, until};
use verbs::attr::{CqInit, DeviceAttr, QpAttr, QpCaps, QpInit, QpState, SrqInit, Transport};
use verbs::error::{CqError, PostError, PostReason, VerbsError};
use verbs::names::{CqNum, PdNum, SrqNum};
use verbs::wc::{Wc, WcStatus};
use verbs::wr::{Op, Payload, RecvWr, SendFlags, SendWr, Sge};

fn shallow() -> Options {
    let caps = QpCaps {
        send_wr_max: 16,
        recv_wr_max: 16,
        send_sge_max: 2,
        recv_sge_max: 2,
        inline_max: 32,
    };
    Options {
        caps,
        ..Options::default()
    }
}

fn refused(index: usize, reason: PostReason) -> Result<(), PostError> {
    Err(PostError { index, reason })
}

/// A send queue takes as many requests as it was made for, and no more while all of them are under
/// way. When they have completed and the completions have been polled, as many fit again.
///
/// A slot is free when the completion of its request, or of a later one, has been polled.
pub fn a_send_queue_holds_what_it_was_made_for(fixture: &Fixture) {
    let mut pair = Pair::with(fixture, Transport::Rc, &shallow());
    for round in 0..3 {
        let batch = |pair: &Pair, count| -> Vec<SendWr<'static>> {
            let wr = |id| pair.a.wr(id, SEND, Payload::Inline(b"x"));
            (0..count).map(wr).collect()
        };
        let first = batch(&pair, 10);
        pair.a.post_all(&first);
        let second = batch(&pair, 10);
        let full = refused(6, PostReason::QueueFull);
        assert_eq!(pair.a.qp.post_send(&second), full, "round {round}");
        let full = refused(0, PostReason::QueueFull);
        assert_eq!(pair.a.qp.post_send(&second), full, "round {round}");
        for id in 0..16 {
            pair.b.post_recv(id, 0, 64);
        }
        for id in 0..16 {
            pair.sent_ok(if id < 10 { id } else { id - 10 });
            pair.received_ok(id);
        }
    }
}

/// Slots of unsignaled requests are free when the completion of a later signaled one has been
/// polled.
pub fn unsignaled_slots_are_freed_by_a_later_completion(fixture: &Fixture) {
    let mut pair = Pair::with(fixture, Transport::Rc, &shallow());
    let remote = pair.b.remote(0);
    for _ in 0..5 {
        for id in 0..16 {
            let mut wr = pair
                .a
                .wr(id, Op::Write { remote, imm: None }, Payload::Inline(b"x"));
            wr.flags.set(SendFlags::SIGNALED, id == 15);
            pair.a.post_all(&[wr]);
        }
        pair.sent_ok(15);
    }
}

/// A receive queue takes as many RECVs as it was made for, and one more for each that is consumed.
pub fn a_receive_queue_holds_what_it_was_made_for(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let mut pair = Pair::with(fixture, transport, &shallow());
        let sges = [pair.b.sge(0, 64)];
        let recvs: Vec<_> = (0..20).map(|id| RecvWr { id, sges: &sges }).collect();
        let full = refused(16, PostReason::QueueFull);
        assert_eq!(pair.b.qp.post_recv(&recvs), full, "{transport:?}");
        pair.a.post(1, SEND, Payload::Inline(b"x"));
        pair.sent_ok(1);
        pair.received_ok(0);
        assert_eq!(
            pair.b.qp.post_recv(&recvs),
            refused(1, PostReason::QueueFull)
        );
    }
}

/// A shared receive queue takes as many RECVs as it was made for.
pub fn a_shared_receive_queue_holds_what_it_was_made_for(fixture: &Fixture) {
    let node = Node::new(&fixture.a);
    let mut srq = node.srq(16);
    let recvs: Vec<_> = (0..20).map(|id| RecvWr { id, sges: &[] }).collect();
    assert_eq!(srq.post_recv(&recvs), refused(16, PostReason::QueueFull));
    assert_eq!(srq.post_recv(&recvs), refused(0, PostReason::QueueFull));
    let sges = [Sge::default(); 5];
    let many = srq
        .post_recv(&[RecvWr { id: 0, sges: &sges }])
        .expect_err("5 elements of 4");
    let full = PostReason::QueueFull;
    assert!(
        many.reason == PostReason::TooManySges || many.reason == full,
        "{many:?}"
    );
}

/// What is wrong with a request stops its batch there, and what is before it is carried out.
pub fn a_batch_stops_at_its_first_bad_request(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let mut pair = Pair::with(fixture, transport, &shallow());
        let (three, long) = ([pair.a.sge(0, 1); 3], [0; 33]);
        let bad = [
            (Payload::Gather(&three), PostReason::TooManySges),
            (Payload::Inline(&long), PostReason::InlineTooLong),
            (
                Payload::InlineParts(&[&long[..20], &long[20..]]),
                PostReason::InlineTooLong,
            ),
        ];
        for (payload, reason) in bad {
            pair.b.post_recv(1, 0, 64);
            pair.b.post_recv(2, 0, 64);
            let batch = [
                pair.a.wr(1, SEND, Payload::Inline(b"one")),
                pair.a.wr(2, SEND, Payload::Inline(b"two")),
                pair.a.wr(3, SEND, payload),
                pair.a.wr(4, SEND, Payload::Inline(b"four")),
            ];
            assert_eq!(
                pair.a.qp.post_send(&batch),
                refused(2, reason),
                "{transport:?}"
            );
            for id in [1, 2] {
                pair.sent_ok(id);
                pair.received_ok(id);
            }
        }
        let many = [pair.b.sge(0, 64); 3];
        let recvs = [&many[..1], &many, &many[..1]].map(|sges| RecvWr { id: 5, sges });
        let stopped = refused(1, PostReason::TooManySges);
        assert_eq!(pair.b.qp.post_recv(&recvs), stopped, "{transport:?}");
        pair.a.post(6, SEND, Payload::Inline(b"six"));
        pair.sent_ok(6);
        pair.received_ok(5);
    }
}

/// A message longer than the device carries is refused when posted.
pub fn a_message_too_long_for_the_device_is_refused(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    let huge = [Sge {
        len: u32::MAX,
        ..pair.a.sge(0, 0)
    }; 2];
    let wr = pair.a.wr(1, SEND, Payload::Gather(&huge));
    assert_eq!(pair.a.qp.post_send(&[wr]), refused(0, PostReason::TooLong));
    pair.flush_through();
}

/// A completion queue that gets more completions than it holds says so from then on, and its queue
/// pairs go to ERR. A NIC may make it deeper than asked for, but not deeper than 128 for 4.
pub fn an_overrun_queue_says_so(fixture: &Fixture) {
    const POSTED: u64 = 256;
    let caps = QpCaps {
        send_wr_max: POSTED as u32,
        ..Options::default().caps
    };
    let options = Options {
        caps,
        cq_depth: 4,
        ..Options::default()
    };
    let mut pair = Pair::with(fixture, Transport::Rc, &options);
    // Another queue pair that only receives there.
    let (own, queue) = (pair.a.node.queue(4), pair.a.send.cq.num());
    let init = pair.a.node.init(Transport::Rc, own.num(), queue);
    let receiver = pair.a.node.qp(&init);
    connect(&receiver, (pair.a.node.gid, receiver.num()), &options);
    for id in 1..=POSTED {
        let remote = pair.b.remote(0);
        let bytes = id.to_le_bytes();
        let wr = pair
            .a
            .wr(id, Op::Write { remote, imm: None }, Payload::Inline(&bytes));
        pair.a.post_all(&[wr]);
    }
    // Nobody polls the queue until the last WRITE has landed, or cannot land any more.
    until(fixture.patience, "the queue to overrun", || {
        pair.b.poll();
        let over = pair.a.state() == QpState::Err || pair.b.word(0) == POSTED;
        over.then_some(())
    });
    let mut polled = 0;
    until(fixture.patience, "poll to say Overrun", || {
        let mut out = [Wc::default(); 16];
        match pair.a.send.cq.poll_slice(&mut out) {
            Ok(count) => polled += count,
            Err(error) => {
                assert_eq!(error, CqError::Overrun);
                return Some(());
            }
        }
        assert!(polled <= 128, "{polled} completions from a queue for 4");
        None
    });
    let again = pair.a.send.cq.poll_slice(&mut [Wc::default()]);
    assert_eq!(again, Err(CqError::Overrun), "for ever after");
    until(fixture.patience, "its queue pairs to be in ERR", || {
        let both = [pair.a.state(), receiver.query().state.expect("a state")];
        (both == [QpState::Err; 2]).then_some(())
    });
}

/// The event of an overrun goes with the queue that it is about.
pub fn the_event_of_an_overrun_goes_with_its_queue(fixture: &Fixture) {
    let options = Options {
        cq_depth: 1,
        ..Options::default()
    };
    let mut pair = Pair::with(fixture, Transport::Rc, &options);
    let nic = pair.a.node.nic.clone();
    let remote = pair.b.remote(0);
    // A NIC may make the queue deeper than it was asked for.
    for id in 0..options.caps.send_wr_max.into() {
        let write = Op::Write { remote, imm: None };
        pair.a.post(id, write, Payload::Inline(b"too many"));
    }
    until(fixture.patience, "the queue to overrun", || {
        pair.b.poll();
        (pair.a.state() == QpState::Err).then_some(())
    });
    drop(pair);
    assert_eq!(nic.async_event(), None, "an event of what has gone");
}

/// Completions stay in a queue until they are polled, in whatever portions.
pub fn completions_are_polled_in_portions(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    let remote = pair.b.remote(0);
    for id in 0..20 {
        pair.a
            .post(id, Op::Write { remote, imm: None }, Payload::Inline(b"x"));
    }
    assert_eq!(pair.a.send.cq.poll_slice(&mut []), Ok(0));
    let mut next = 0;
    until(fixture.patience, "twenty completions", || {
        let mut out = [Wc::default(); 3];
        let count = pair.a.send.cq.poll_slice(&mut out).expect("no overrun");
        for wc in &out[..count] {
            assert_eq!((wc.id, wc.status), (next, WcStatus::Success));
            next += 1;
        }
        pair.b.poll();
        (next == 20).then_some(())
    });
    assert_eq!(pair.a.send.cq.poll_slice(&mut [Wc::default(); 3]), Ok(0));
}

/// Whoever polls one completion at a time, and has requests complete all the time, receives as well.
pub fn small_polls_reach_what_is_received(fixture: &Fixture) {
    let options = Options::default();
    let mut pair = Pair::unconnected(fixture, Transport::Rc, &options);
    let both = pair.a.recv.num();
    pair.a.qp = pair.a.node.qp(&pair.a.node.init(Transport::Rc, both, both));
    pair.connect(&options);
    pair.a.post_recv(0, 0, 64);
    pair.b.post(1, SEND, Payload::Inline(b"a message"));
    let write = Op::Write {
        remote: pair.b.remote(0),
        imm: None,
    };
    for _ in 0..8 {
        pair.a.post(1, write, Payload::Inline(b"x"));
    }
    until(fixture.patience, "the message among the requests", || {
        pair.b.poll();
        let mut out = [Wc::default()];
        let polled = pair.a.recv.cq.poll_slice(&mut out);
        if polled.expect("no overrun") == 0 {
            return None;
        }
        assert!(out[0].is_ok(), "{:?}", out[0]);
        if out[0].id == 0 {
            return Some(());
        }
        pair.a.post(1, write, Payload::Inline(b"x"));
        None
    });
}

/// Sizes beyond the device's limits are refused.
pub fn sizes_beyond_the_device_are_refused(fixture: &Fixture) {
    let node = Node::new(&fixture.a);
    let device: DeviceAttr = node.nic.device();
    let limited = |made: Result<(), VerbsError>, what: &str| {
        assert!(
            matches!(made, Err(VerbsError::Limit { .. })),
            "{what}: {made:?}"
        );
    };
    let cq = CqInit::new(device.cqe_max + 1);
    limited(node.nic.create_cq(&cq).map(drop), "CQ depth");
    let queue = node.queue(16);
    let init = node.init(Transport::Rc, queue.num(), queue.num());
    let caps = init.caps;
    let too_large = [
        QpCaps {
            send_wr_max: device.qp_wr_max + 1,
            ..caps
        },
        QpCaps {
            recv_wr_max: device.qp_wr_max + 1,
            ..caps
        },
        QpCaps {
            send_sge_max: device.sge_max + 1,
            ..caps
        },
        QpCaps {
            recv_sge_max: device.sge_max + 1,
            ..caps
        },
        QpCaps {
            inline_max: device.inline_max + 1,
            ..caps
        },
    ];
    for caps in too_large {
        let mut init = init;
        init.caps = caps;
        limited(node.nic.create_qp(&init).map(drop), &format!("{caps:?}"));
    }
    let srq = |wr_max, sge_max| SrqInit::new(node.pd, wr_max, sge_max);
    let (wrs, sges) = (device.srq_wr_max + 1, device.srq_sge_max + 1);
    limited(node.nic.create_srq(&srq(wrs, 1)).map(drop), "SRQ RECVs");
    limited(node.nic.create_srq(&srq(1, sges)).map(drop), "SRQ elements");
    let qp = node.nic.create_qp(&init).expect("sizes within the limits");
    let granted = qp.ctl.caps();
    let sizes = |caps: &QpCaps| {
        [
            (caps.send_wr_max, device.qp_wr_max),
            (caps.recv_wr_max, device.qp_wr_max),
            (caps.send_sge_max, device.sge_max),
            (caps.recv_sge_max, device.sge_max),
            (caps.inline_max, device.inline_max),
        ]
    };
    for (asked, got) in sizes(&caps).iter().zip(sizes(&granted)) {
        let fits = (asked.0..=got.1).contains(&got.0);
        assert!(fits, "{caps:?} were asked for, {granted:?} granted");
    }
}

/// Objects that refer to what is not there cannot be made.
pub fn references_to_nothing_are_refused(fixture: &Fixture) {
    let node = Node::new(&fixture.a);
    let queue = node.queue(16);
    let nothing = |made: Result<(), VerbsError>, what: &str| {
        assert!(
            matches!(made, Err(VerbsError::NoSuch { .. })),
            "{what}: {made:?}"
        );
    };
    let init = node.init(Transport::Rc, queue.num(), queue.num());
    let qp = |change: &dyn Fn(&mut QpInit)| {
        let mut init = init;
        change(&mut init);
        node.nic.create_qp(&init).map(drop)
    };
    nothing(qp(&|init| init.pd = PdNum(u32::MAX)), "protection domain");
    nothing(qp(&|init| init.send_cq = CqNum(u32::MAX)), "send queue");
    nothing(qp(&|init| init.recv_cq = CqNum(u32::MAX)), "receive queue");
    nothing(
        qp(&|init| init.srq = Some(SrqNum(u32::MAX))),
        "shared receive queue",
    );
    nothing(node.nic.port(200).map(drop), "port");
    nothing(node.nic.dealloc_pd(PdNum(u32::MAX)), "protection domain");
    let ah = node.dest(node.gid, verbs::names::QpNum(1)).ah;
    node.nic.destroy_ah(ah).expect("an address handle");
    nothing(node.nic.destroy_ah(ah), "address handle");
    let qp = node.qp(&init);
    qp.modify(&QpAttr::to(QpState::Err))
        .expect("any state leads to ERR");
}
