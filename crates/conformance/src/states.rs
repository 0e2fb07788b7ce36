//! The states of a queue pair: what they take, keep, flush and drop.

use std::sync::Arc;
use std::time::Duration;

use super::Fixture;
use super::rig::{CONNECTED, Options, Pair, SEND, TRANSPORTS, connect, steps};
use verbs::attr::{AhAttr, QpAttr, QpState, Transport};
use verbs::error::{PostError, PostReason, VerbsError};
use verbs::names::{Lkey, Qkey};
use verbs::nic::{AsyncEvent, Nic};
use verbs::wc::{Wc, WcStatus};
use verbs::wr::{Op, Payload, RecvWr, Sge};

fn refused(state: QpState) -> Result<(), PostError> {
    let reason = PostReason::State(state);
    Err(PostError { index: 0, reason })
}

/// RECVs are taken from INIT on, SENDs from RTS on; what is too early is refused.
pub fn posting_needs_the_right_state(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let options = Options::default();
        let mut pair = Pair::unconnected(fixture, transport, &options);
        // Addresses for datagrams come with a connected pair.
        let to = Pair::with(fixture, transport, &options).a.to;
        let mut wr = pair.a.wr(1, SEND, Payload::Inline(b"early"));
        wr.to = to;
        let sges = [pair.a.sge(0, 64)];
        let recv = RecvWr { id: 1, sges: &sges };
        assert_eq!(pair.a.qp.post_recv(&[recv]), refused(QpState::Reset));
        let peer = (pair.b.node.gid, pair.b.qp.num());
        let states = [QpState::Reset, QpState::Init, QpState::Rtr];
        for (state, step) in
            states
                .into_iter()
                .zip(steps(transport, pair.a.qp.num(), peer, &options))
        {
            assert_eq!(pair.a.state(), state, "{transport:?}");
            assert_eq!(pair.a.qp.post_send(&[wr]), refused(state), "{transport:?}");
            pair.a.qp.modify(&step).expect("the next state");
            pair.a
                .qp
                .post_recv(&[recv])
                .expect("RECVs are taken from INIT on");
        }
        assert_eq!(pair.a.state(), QpState::Rts);
        pair.a.qp.post_send(&[wr]).expect("SENDs are taken in RTS");
    }
}

/// RECVs posted in INIT are there when the first message arrives.
pub fn recvs_posted_before_connecting_are_used(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let options = Options::default();
        let mut pair = Pair::unconnected(fixture, transport, &options);
        let peer = (pair.a.node.gid, pair.a.qp.num());
        let [init, rtr, rts] = steps(transport, pair.b.qp.num(), peer, &options);
        pair.b.qp.modify(&init).expect("to INIT");
        pair.b.post_recv(1, 0, 64);
        pair.b.qp.modify(&rtr).expect("to RTR");
        let peer = (pair.b.node.gid, pair.b.qp.num());
        super::rig::connect(&pair.a.qp, peer, &options);
        if transport == Transport::Ud {
            pair.a.to = Some(pair.a.node.dest(peer.0, peer.1));
        }
        pair.a.post(1, SEND, Payload::Inline(b"first"));
        pair.sent_ok(1);
        pair.received_ok(1);
        pair.b.qp.modify(&rts).expect("to RTS");
    }
}

/// Transitions that do not exist, lack an attribute or have one too many are refused, and change
/// nothing.
pub fn wrong_transitions_are_refused(fixture: &Fixture) {
    let options = Options::default();
    let pair = Pair::unconnected(fixture, Transport::Rc, &options);
    let peer = (pair.b.node.gid, pair.b.qp.num());
    let [init, rtr, _] = steps(Transport::Rc, pair.a.qp.num(), peer, &options);
    let early = pair.a.qp.modify(&rtr);
    assert!(
        matches!(early, Err(VerbsError::Transition { .. })),
        "{early:?}"
    );
    let mut lacking = init;
    lacking.port = None;
    let lacking = pair.a.qp.modify(&lacking);
    assert!(
        matches!(
            lacking,
            Err(VerbsError::MissingAttribute {
                attribute: "port",
                ..
            })
        ),
        "{lacking:?}"
    );
    let mut superfluous = init;
    superfluous.qkey = Some(Qkey(1));
    let superfluous = pair.a.qp.modify(&superfluous);
    assert!(
        matches!(
            superfluous,
            Err(VerbsError::UnexpectedAttribute {
                attribute: "qkey",
                ..
            })
        ),
        "{superfluous:?}"
    );
    assert_eq!(pair.a.qp.query(), QpAttr::to(QpState::Reset));
    pair.a.qp.modify(&init).expect("to INIT");
    assert_eq!(pair.a.qp.query(), init);
}

/// Ports, partitions and addresses that a queue pair or an address handle names have to be in the
/// port's tables, and numbers of a path within their bits; a refusal changes nothing.
pub fn names_outside_the_ports_tables_are_refused(fixture: &Fixture) {
    let pair = Pair::unconnected(fixture, Transport::Rc, &Options::default());
    let (a, node) = (&pair.a.qp, &pair.a.node);
    let peer = (pair.b.node.gid, pair.b.qp.num());
    let [init, rtr, _] = steps(Transport::Rc, a.num(), peer, &Options::default());
    let port = node.nic.port(1).expect("port 1");
    let refused = |made: Result<(), VerbsError>, what: &str| {
        let refusal = match &made {
            Err(VerbsError::NoSuch { what, .. } | VerbsError::Invalid { what, .. }) => *what,
            _ => "",
        };
        assert_eq!(refusal, what, "{made:?}");
    };
    let mut wrong = init;
    wrong.port = Some(200);
    refused(a.modify(&wrong), "port");
    let mut wrong = init;
    wrong.pkey_index = Some(port.pkeys.len() as u16);
    refused(a.modify(&wrong), "P_Key index");
    assert_eq!(a.query(), QpAttr::to(QpState::Reset));
    a.modify(&init).expect("to INIT");
    let good = AhAttr::to(peer.0);
    let mut paths = [good; 4];
    paths[0].port = 200;
    paths[1].gid_index = port.gids.len() as u8;
    paths[2].flow_label = 1 << 20;
    paths[3].service_level = 16;
    let whats = ["port", "GID index", "flow label", "service level"];
    for (path, what) in paths.into_iter().zip(whats) {
        let mut wrong = rtr;
        wrong.path = Some(path);
        refused(a.modify(&wrong), what);
        refused(node.nic.create_ah(node.pd, &path).map(drop), what);
    }
    assert_eq!(a.query(), init);
    a.modify(&rtr).expect("to RTR");
    let ah = node.nic.create_ah(node.pd, &good).expect("a handle");
    node.nic.destroy_ah(ah).expect("it is there");
}

/// More READs and atomics under way than the device has are refused, each way; that changes nothing.
pub fn depths_beyond_the_device_are_refused(fixture: &Fixture) {
    let pair = Pair::unconnected(fixture, Transport::Rc, &Options::default());
    let (a, node) = (&pair.a.qp, &pair.a.node);
    let max = node.nic.device().rd_atomic_max;
    let Some(beyond) = max.checked_add(1) else {
        return; // There is no such number.
    };
    let peer = (pair.b.node.gid, pair.b.qp.num());
    let [init, rtr, rts] = steps(Transport::Rc, a.num(), peer, &Options::default());
    a.modify(&init).expect("to INIT");
    let refused = |attr: &QpAttr| {
        let before = a.query();
        let made = a.modify(attr);
        assert!(matches!(made, Err(VerbsError::Limit { .. })), "{made:?}");
        assert_eq!(a.query(), before);
    };
    let set = |attr: &mut QpAttr, depth| match attr.rd_atomic_max {
        Some(_) => attr.rd_atomic_max = Some(depth),
        None => attr.dest_rd_atomic_max = Some(depth),
    };
    for mut step in [rtr, rts] {
        set(&mut step, beyond);
        refused(&step);
        set(&mut step, max);
        a.modify(&step).expect("as many as there are");
    }
}

/// The path of a drained connection can be set again. To another address it may be refused, which
/// changes nothing; otherwise requests go there, where nobody knows the connection.
pub fn a_drained_connection_keeps_to_its_path(fixture: &Fixture) {
    let options = Options {
        timeout: 8,
        retry_count: 1,
        ..Options::default()
    };
    let mut pair = Pair::with(fixture, Transport::Rc, &options);
    pair.flush_through();
    pair.a.qp.modify(&QpAttr::to(QpState::Sqd)).expect("to SQD");
    let mut again = QpAttr::to(QpState::Sqd);
    let mut path = AhAttr::to(pair.b.node.gid);
    path.hop_limit = 7;
    again.path = Some(path);
    pair.a.qp.modify(&again).expect("the same address");
    let before = pair.a.qp.query();
    assert_eq!(before.path, Some(path));
    let mut elsewhere = QpAttr::to(QpState::Sqd);
    elsewhere.path = Some(AhAttr::to(pair.a.node.gid));
    let moved = pair.a.qp.modify(&elsewhere);
    pair.a.post(1, SEND, Payload::Inline(b"kept"));
    match moved {
        Err(_) => assert_eq!(pair.a.qp.query(), before),
        Ok(()) => assert_eq!(pair.a.qp.query().path, elsewhere.path),
    }
    pair.b.post_recv(1, 0, 64);
    pair.a.qp.modify(&QpAttr::to(QpState::Rts)).expect("to RTS");
    if moved.is_ok() && pair.a.node.gid != pair.b.node.gid {
        pair.sent_as(1, WcStatus::RetryExcErr);
        pair.stays_quiet("the message went elsewhere");
    } else {
        pair.sent_ok(1);
        pair.received_ok(1);
    }
}

/// A query tells what was set on the way.
pub fn a_query_tells_what_was_set(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let options = Options::default();
        let pair = Pair::with(fixture, transport, &options);
        let peer = (pair.b.node.gid, pair.b.qp.num());
        let [init, rtr, rts] = steps(transport, pair.a.qp.num(), peer, &options);
        let mut expected = rts;
        expected.access = init.access;
        expected.pkey_index = init.pkey_index;
        expected.port = init.port;
        expected.qkey = init.qkey;
        expected.path = rtr.path;
        expected.dest_qpn = rtr.dest_qpn;
        expected.path_mtu = rtr.path_mtu;
        expected.rq_psn = rtr.rq_psn;
        expected.dest_rd_atomic_max = rtr.dest_rd_atomic_max;
        expected.min_rnr_timer = rtr.min_rnr_timer;
        assert_eq!(pair.a.qp.query(), expected, "{transport:?}");
        assert_eq!(pair.a.qp.transport(), transport);
    }
}

/// Going to ERR flushes what is posted, in order, and what is posted afterwards.
pub fn error_flushes_everything_in_order(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(fixture, transport);
        for id in 0..3 {
            pair.a.post_recv(10 + id, 0, 64);
        }
        let mut sends = 0..2;
        if transport == Transport::Rc {
            // Only these can be under way for good: their peer has no RECV.
            for id in 0..2 {
                pair.a.post(id, SEND, Payload::Inline(b"x"));
            }
        } else {
            sends.end = 0;
        }
        pair.a.qp.modify(&QpAttr::to(QpState::Err)).expect("to ERR");
        for id in 2..4 {
            pair.a.post(id, SEND, Payload::Inline(b"y"));
            pair.a.post_recv(11 + id, 0, 64);
        }
        for id in sends.chain(2..4) {
            pair.sent_as(id, WcStatus::WrFlushErr);
        }
        for id in 10..15 {
            let wc = pair.until("a flushed RECV", |pair| pair.a.recv.seen.pop_front());
            assert_eq!(
                (wc.id, wc.status),
                (id, WcStatus::WrFlushErr),
                "{transport:?}"
            );
            assert_eq!(wc.qpn, pair.a.qp.num());
        }
        pair.stays_quiet("everything has been flushed");
    }
}

/// A queue pair that fails by itself says so: once, on the descriptor too where there is one, and not
/// after it has gone.
pub fn an_asynchronous_event_tells_of_a_failure(fixture: &Fixture) {
    let is_readable = |nic: &dyn Nic, time| {
        let both = nic.async_fd().zip(fixture.wait_readable);
        both.map(|(fd, wait)| wait(fd, time))
    };
    let fail = || {
        let mut pair = Pair::new(fixture, Transport::Rc);
        let mut remote = pair.b.remote(0);
        remote.rkey.0 ^= 0x007f_ff00;
        pair.a
            .post(1, Op::Write { remote, imm: None }, Payload::Inline(b"lost"));
        pair.sent_as(1, WcStatus::RemAccessErr);
        pair
    };
    let mut pair = fail();
    let nic = Arc::clone(&pair.a.node.nic);
    let event = pair.until("an event", |pair| pair.a.node.nic.async_event());
    assert_eq!(event, AsyncEvent::QpFatal(pair.a.qp.num()));
    assert_eq!(nic.async_event(), None);
    assert_ne!(is_readable(&*nic, Duration::ZERO), Some(true));
    drop(pair);
    nic.acknowledge(event);
    let other = fail();
    assert_ne!(is_readable(&*nic, fixture.patience), Some(false));
    drop(other);
    assert_eq!(nic.async_event(), None, "an event of what has gone");
}

/// In SQD requests are taken and kept until RTS; RECVs go on.
pub fn a_drained_send_queue_keeps_its_requests(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(fixture, transport);
        pair.flush_through();
        pair.a.qp.modify(&QpAttr::to(QpState::Sqd)).expect("to SQD");
        assert_eq!(pair.a.state(), QpState::Sqd);
        for id in 0..3 {
            pair.b.post_recv(id, 0, 64);
            pair.a.post(id, SEND, Payload::Inline(b"kept"));
        }
        pair.stays_quiet("the send queue is drained");
        pair.a.post_recv(9, 512, 64);
        pair.b.post(9, SEND, Payload::Inline(b"other way"));
        let wc = pair.until("a message in SQD", |pair| pair.a.recv.seen.pop_front());
        assert_eq!((wc.id, wc.status), (9, WcStatus::Success));
        let wc = pair.until("its completion", |pair| pair.b.send.seen.pop_front());
        assert_eq!((wc.id, wc.status), (9, WcStatus::Success));
        pair.a.qp.modify(&QpAttr::to(QpState::Rts)).expect("to RTS");
        for id in 0..3 {
            pair.sent_ok(id);
            pair.received_ok(id);
        }
    }
}

/// On UC and UD a local error of a request leads to SQE: later requests are flushed, RECVs go on,
/// and RTS makes it well again.
pub fn a_send_error_spares_the_receive_queue(fixture: &Fixture) {
    for transport in [Transport::Uc, Transport::Ud] {
        let mut pair = Pair::new(fixture, transport);
        let good = pair.a.sge(0, 8);
        let bad = [Sge {
            lkey: Lkey(good.lkey.0 ^ 0x007f_ff00),
            ..good
        }];
        pair.a.post_recv(7, 512, 64);
        let batch = [
            pair.a.wr(1, SEND, Payload::Inline(b"before")),
            pair.a.wr(2, SEND, Payload::Gather(&bad)),
            pair.a.wr(3, SEND, Payload::Inline(b"behind")),
        ];
        pair.b.post_recv(1, 0, 64);
        pair.a.post_all(&batch);
        pair.sent_ok(1);
        pair.received_ok(1);
        pair.sent_as(2, WcStatus::LocProtErr);
        pair.sent_as(3, WcStatus::WrFlushErr);
        pair.in_state(QpState::Sqe, |pair| &pair.a);
        pair.a.post(4, SEND, Payload::Inline(b"later"));
        pair.sent_as(4, WcStatus::WrFlushErr);

        pair.b.post(5, SEND, Payload::Inline(b"other way"));
        let wc = pair.until("a message in SQE", |pair| pair.a.recv.seen.pop_front());
        assert_eq!((wc.id, wc.status), (7, WcStatus::Success), "{transport:?}");
        let wc = pair.until("its completion", |pair| pair.b.send.seen.pop_front());
        assert!(wc.is_ok(), "{wc:?}");
        pair.a.qp.modify(&QpAttr::to(QpState::Rts)).expect("to RTS");
        pair.flush_through();
    }
}

/// On RC a failed request flushes those behind it and the RECVs.
pub fn a_failed_request_flushes_what_is_behind_it(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    let good = pair.b.remote(0);
    let mut bad = good;
    bad.addr = bad.addr.wrapping_add(pair.b.region.len() as u64);
    for id in 10..12 {
        pair.a.post_recv(id, 0, 64);
    }
    let write = |remote| Op::Write { remote, imm: None };
    let batch = [
        pair.a.wr(1, write(good), Payload::Inline(b"good")),
        pair.a.wr(2, write(bad), Payload::Inline(b"bad")),
        pair.a.wr(3, write(good), Payload::Inline(b"late")),
        pair.a.wr(4, SEND, Payload::Inline(b"later")),
    ];
    pair.a.post_all(&batch);
    pair.sent_ok(1);
    pair.sent_as(2, WcStatus::RemAccessErr);
    pair.sent_as(3, WcStatus::WrFlushErr);
    pair.sent_as(4, WcStatus::WrFlushErr);
    for id in 10..12 {
        let wc = pair.until("a flushed RECV", |pair| pair.a.recv.seen.pop_front());
        assert_eq!((wc.id, wc.status), (id, WcStatus::WrFlushErr));
    }
    assert_eq!(pair.b.bytes(0, 4), b"good");
}

/// RESET drops what is posted without a completion, and forgets attributes; the queue pair can be
/// connected again and has all its slots.
pub fn reset_drops_everything(fixture: &Fixture) {
    for transport in CONNECTED {
        let options = Options::default();
        let mut pair = Pair::with(fixture, transport, &options);
        for id in 0..40 {
            pair.a.post_recv(id, 0, 64);
        }
        if transport == Transport::Rc {
            for id in 0..40 {
                pair.a.post(id, SEND, Payload::Inline(b"dropped"));
            }
        }
        for end in [&mut pair.a, &mut pair.b] {
            end.qp
                .modify(&QpAttr::to(QpState::Reset))
                .expect("to RESET");
            assert_eq!(end.qp.query(), QpAttr::to(QpState::Reset));
        }
        pair.connect(&options);
        pair.b.post_recv(1, 0, 64);
        pair.stays_quiet("what was posted before RESET is gone");
        for id in 0..options.caps.recv_wr_max.into() {
            pair.a.post_recv(id, 0, 64);
        }
        pair.b.post(2, SEND, Payload::Inline(b"fresh"));
        let wc: Wc = pair.until("a message after RESET", |pair| pair.a.recv.seen.pop_front());
        assert_eq!((wc.id, wc.status), (0, WcStatus::Success));
        pair.a.post(3, SEND, Payload::Inline(b"fresh"));
        pair.sent_ok(3);
        pair.received_ok(1);
    }
}

/// Over UC, a sender that starts anew is heard by a receiver that has not, whichever of the receiver's
/// RECVs the messages before have used.
pub fn a_sender_that_starts_anew_is_heard(fixture: &Fixture) {
    let options = Options::default();
    let mut pair = Pair::with(fixture, Transport::Uc, &options);
    let mut next = 0;
    for unread in [0, 2, 0, 1] {
        // More than there is room for at once.
        for _ in 0..=options.caps.recv_wr_max {
            pair.b.post_recv(next, 0, 64);
            pair.a.post(next, SEND, Payload::Inline(b"before"));
            pair.sent_ok(next);
            pair.received_ok(next);
            next += 1;
        }
        for id in next..next + unread {
            pair.b.post_recv(id, 0, 64);
            pair.a.post(id, SEND, Payload::Inline(b"unread"));
            let send = &mut pair.a.send;
            let sent = super::rig::until(fixture.patience, "a message sent", || send.take());
            assert_eq!((sent.id, sent.status), (id, WcStatus::Success));
        }
        let reset = QpAttr::to(QpState::Reset);
        pair.a.qp.modify(&reset).expect("to RESET");
        connect(&pair.a.qp, (pair.b.node.gid, pair.b.qp.num()), &options);
        pair.b.post_recv(next + unread, 64, 64);
        pair.a.post(1, SEND, Payload::Inline(b"anew"));
        pair.sent_ok(1);
        for id in next..=next + unread {
            pair.received_ok(id);
        }
        assert_eq!(pair.b.bytes(64, 4), b"anew");
        next += unread + 1;
    }
}
