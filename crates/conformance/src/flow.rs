//! Receivers that are not ready, too small, or gone.

use super::Fixture;
use super::rig::{CONNECTED, End, Options, Pair, SEND, TRANSPORTS, connect, until};
use verbs::attr::{QpState, Transport};
use verbs::error::VerbsError;
use verbs::names::QpNum;
use verbs::nic::NicSrq;
use verbs::wc::WcStatus;
use verbs::wr::{GRH_LEN, Op, Payload, RecvWr};

/// On RC, a message without a RECV waits for one, and those behind it wait too.
pub fn a_message_waits_for_its_recv(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    let remote = pair.b.remote(512);
    pair.a.post(1, SEND, Payload::Inline(b"first"));
    pair.a.post(
        2,
        Op::Write {
            remote,
            imm: Some(5),
        },
        Payload::Inline(b"second"),
    );
    pair.a.post(3, SEND, Payload::Inline(b"third"));
    pair.stays_quiet("there is no RECV yet");
    pair.b.post_recv(11, 0, 64);
    pair.received_ok(11);
    pair.sent_ok(1);
    assert_eq!(pair.b.bytes(0, 5), b"first");
    pair.stays_quiet("there is no second RECV yet");
    pair.b.post_recv(12, 64, 64);
    pair.b.post_recv(13, 128, 64);
    assert_eq!(pair.received_ok(12).immediate(), Some(5));
    pair.received_ok(13);
    pair.sent_ok(2);
    pair.sent_ok(3);
    assert_eq!(pair.b.bytes(512, 6), b"second");
    assert_eq!(pair.b.bytes(128, 5), b"third");
}

/// With a finite number of retries a message without a RECV fails; its queue pair goes to ERR and
/// what is behind it is flushed. The receiver is not harmed.
pub fn receiver_not_ready_retries_run_out(fixture: &Fixture) {
    let options = Options {
        rnr_retry: 1,
        ..Options::default()
    };
    let mut pair = Pair::with(fixture, Transport::Rc, &options);
    pair.a.post(1, SEND, Payload::Inline(b"unheard"));
    pair.a.post(2, SEND, Payload::Inline(b"behind"));
    pair.sent_as(1, WcStatus::RnrRetryExcErr);
    pair.sent_as(2, WcStatus::WrFlushErr);
    pair.in_state(QpState::Err, |pair| &pair.a);
    assert_eq!(pair.b.state(), QpState::Rts);
}

/// On RC, a message longer than its RECV fails on both sides, and writes nothing beyond the RECV.
pub fn a_message_longer_than_its_recv_fails(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    pair.b.region.write(0, &[0xee; 128]);
    pair.b.post_recv(7, 0, 10);
    pair.a.post(1, SEND, Payload::Inline(b"eleven char"));
    pair.received_as(7, WcStatus::LocLenErr);
    pair.sent_as(1, WcStatus::RemInvReqErr);
    assert_eq!(pair.b.bytes(10, 100), [0xee; 100]);
    pair.in_state(QpState::Err, |pair| &pair.a);
    pair.in_state(QpState::Err, |pair| &pair.b);
}

/// A pair whose B receives into a shared queue of its own, which holds so many RECVs.
fn with_shared_recvs(
    fixture: &Fixture,
    transport: Transport,
    options: &Options,
    count: u32,
) -> (Pair, Box<dyn NicSrq>) {
    let mut pair = Pair::unconnected(fixture, transport, options);
    let b = &mut pair.b;
    let srq = b.node.srq(count);
    let mut init = b.node.init(transport, b.send.num(), b.recv.num());
    init.caps = options.caps;
    init.srq = Some(srq.num());
    b.qp = b.node.qp(&init);
    pair.connect(options);
    (pair, srq)
}

/// So does one that is longer than all RECVs of a shared queue.
pub fn a_message_longer_than_all_shared_recvs_fails(fixture: &Fixture) {
    let options = Options::default();
    let (mut pair, mut srq) = with_shared_recvs(fixture, Transport::Rc, &options, 4);
    pair.b.region.write(0, &[0xee; 256]);
    for (id, len) in [(7, 64), (8, 32)] {
        let sges = [pair.b.sge(0, len)];
        let posted = srq.post_recv(&[RecvWr { id, sges: &sges }]);
        posted.expect("room for it");
    }
    let sges = [pair.a.sge(0, 100)];
    pair.a.post(1, SEND, Payload::Gather(&sges));
    pair.sent_as(1, WcStatus::RemInvReqErr);
    pair.received_as(7, WcStatus::LocLenErr);
    assert_eq!(pair.b.bytes(64, 100), [0xee; 100]);
    pair.in_state(QpState::Err, |pair| &pair.a);
    pair.in_state(QpState::Err, |pair| &pair.b);
}

/// A RECV of a shared queue is for one message of a sender, though the first has not been looked at when
/// the second is sent.
pub fn a_shared_recv_is_for_one_message(fixture: &Fixture) {
    let options = Options {
        rnr_retry: 0,
        ..Options::default()
    };
    let (mut pair, mut srq) = with_shared_recvs(fixture, Transport::Rc, &options, 4);
    let sges = [pair.b.sge(0, 64)];
    let mut post_recv = |id| {
        let posted = srq.post_recv(&[RecvWr { id, sges: &sges }]);
        posted.expect("room for it");
    };
    post_recv(0);
    for id in 0..10 {
        pair.a.post(id, SEND, Payload::Inline(b"one at a time"));
        pair.sent_ok(id);
        pair.received_ok(id);
        post_recv(id + 1);
    }
    for id in [10, 11] {
        pair.a.post(id, SEND, Payload::Inline(b"one too many"));
    }
    let a = &mut pair.a;
    let mut sent = || until(fixture.patience, "a message's end", || a.send.take());
    let ends = [sent(), sent()].map(|wc| (wc.id, wc.status));
    let expected = [WcStatus::Success, WcStatus::RnrRetryExcErr];
    assert_eq!(ends, [(10, expected[0]), (11, expected[1])]);
    pair.received_ok(10);
    assert_eq!(pair.b.state(), QpState::Rts);
}

/// A responder that refuses a request fails, however many messages before it nobody has received yet:
/// those are, and what is left of its RECVs is flushed.
pub fn a_refusal_fails_the_responder_behind_unread_messages(fixture: &Fixture) {
    const LEN: usize = 4096;
    let patience = fixture.patience;
    // Some NICs have no room for another message behind so many.
    for count in [63, 40] {
        let mut pair = Pair::new(fixture, Transport::Rc);
        for id in 0..=count {
            pair.b.post_recv(id, 0, LEN);
        }
        for id in 0..count {
            let sges = [pair.a.sge(0, LEN)];
            pair.a.post(id, SEND, Payload::Gather(&sges));
            let wc = until(patience, "a message sent", || pair.a.send.take());
            assert_eq!((wc.id, wc.status), (id, WcStatus::Success));
        }
        let mut remote = pair.b.remote(0);
        remote.rkey.0 ^= 0x007f_ff00;
        let write = Op::Write { remote, imm: None };
        pair.a.post(count, write, Payload::Inline(b"refused"));
        let wc = until(patience, "the refusal", || pair.a.send.take());
        assert_eq!((wc.id, wc.status), (count, WcStatus::RemAccessErr));
        for id in 0..count {
            pair.received_ok(id);
        }
        pair.received_as(count, WcStatus::WrFlushErr);
        assert_eq!(pair.b.state(), QpState::Err);
    }
}

/// On UC, a message without a RECV is lost, and its sender completes.
pub fn an_unreliable_message_without_recv_is_lost(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Uc);
    // The first message between two queue pairs may be long under way: it is not the lost one.
    pair.flush_through();
    pair.a.post(1, SEND, Payload::Inline(b"lost"));
    pair.sent_ok(1);
    pair.stays_quiet("nobody receives what found no RECV");
    pair.flush_through();
}

/// What there are RECVs for is received, unreliable as it is, though its receiver polls only when all
/// has been sent: as many long messages as the receive queue holds.
pub fn what_has_recvs_arrives_though_nobody_polls(fixture: &Fixture) {
    let cases = [
        (Transport::Ud, 300, 1),
        (Transport::Uc, 300, 1),
        (Transport::Uc, 60, 5),
    ];
    for (transport, count, packets) in cases {
        let mut options = Options {
            cq_depth: 2 * count,
            ..Options::default()
        };
        options.caps.recv_wr_max = count;
        let mut pair = Pair::with(fixture, transport, &options);
        // The first message between two queue pairs may be long under way.
        pair.flush_through();
        let len_max = |end: &End| end.node.nic.port(1).expect("port 1").mtu_max.bytes();
        let len = packets * len_max(&pair.a).min(len_max(&pair.b));
        for round in 0..2 {
            for id in 0..count {
                pair.b.post_recv(id.into(), 0, GRH_LEN + len);
            }
            for id in 0..count {
                let sges = [pair.a.sge(0, len)];
                let op = Op::Send { imm: Some(id) };
                pair.a.post(id.into(), op, Payload::Gather(&sges));
                let wc = until(fixture.patience, "a message sent", || pair.a.send.take());
                assert_eq!((wc.id, wc.status), (id.into(), WcStatus::Success));
            }
            let mut came: Vec<u32> = (0..count)
                .map(|id| pair.received_ok(id.into()).imm)
                .collect();
            if transport == Transport::Ud {
                came.sort_unstable();
            }
            let sent: Vec<u32> = (0..count).collect();
            assert_eq!(came, sent, "{transport:?}, {len} bytes, round {round}");
        }
    }
}

/// The same with the RECVs of a shared queue, which may be more than the queue pair could have of its own.
pub fn what_has_shared_recvs_arrives_though_nobody_polls(fixture: &Fixture) {
    const COUNT: u32 = 300;
    for transport in [Transport::Ud, Transport::Uc] {
        let mut options = Options {
            cq_depth: 2 * COUNT,
            ..Options::default()
        };
        options.caps.recv_wr_max = 1;
        let (mut pair, mut srq) = with_shared_recvs(fixture, transport, &options, COUNT);
        let len_max = |end: &End| end.node.nic.port(1).expect("port 1").mtu_max.bytes();
        let len = len_max(&pair.a).min(len_max(&pair.b));
        let room = [pair.b.sge(0, GRH_LEN + len)];
        let mut post_recv = |id| {
            let posted = srq.post_recv(&[RecvWr { id, sges: &room }]);
            posted.expect("room for it");
        };
        // The first message between two queue pairs may be long under way.
        post_recv(0);
        pair.a.post(0, SEND, Payload::Inline(b"the first"));
        pair.sent_ok(0);
        pair.received_ok(0);
        for id in 0..COUNT {
            post_recv(id.into());
        }
        for id in 0..COUNT {
            let sges = [pair.a.sge(0, len)];
            let op = Op::Send { imm: Some(id) };
            pair.a.post(id.into(), op, Payload::Gather(&sges));
            let wc = until(fixture.patience, "a message sent", || pair.a.send.take());
            assert_eq!((wc.id, wc.status), (id.into(), WcStatus::Success));
        }
        let received = |id: u32| pair.received_ok(id.into()).imm;
        let mut came: Vec<u32> = (0..COUNT).map(received).collect();
        if transport == Transport::Ud {
            came.sort_unstable();
        }
        assert!(came.iter().copied().eq(0..COUNT), "{transport:?}: {came:?}");
    }
}

/// When the peer's queue pair is gone, RC gives up after its retries; UC and UD notice nothing.
pub fn a_peer_that_is_gone_does_not_answer(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let options = Options {
            timeout: 8,
            retry_count: 1,
            ..Options::default()
        };
        let mut pair = Pair::with(fixture, transport, &options);
        pair.flush_through();
        let spare = Pair::unconnected(fixture, transport, &options);
        drop(std::mem::replace(&mut pair.b.qp, spare.b.qp));
        pair.a.post(1, SEND, Payload::Inline(b"anybody?"));
        match transport {
            Transport::Rc => {
                pair.sent_as(1, WcStatus::RetryExcErr);
                pair.in_state(QpState::Err, |pair| &pair.a);
            }
            Transport::Uc | Transport::Ud => {
                pair.sent_ok(1);
                assert_eq!(pair.a.state(), QpState::Rts);
            }
        }
    }
}

/// A peer in ERR does not answer either.
pub fn a_peer_in_error_does_not_answer(fixture: &Fixture) {
    let options = Options {
        timeout: 8,
        retry_count: 1,
        ..Options::default()
    };
    let mut pair = Pair::with(fixture, Transport::Rc, &options);
    let error = verbs::attr::QpAttr::to(QpState::Err);
    pair.b.qp.modify(&error).expect("to ERR");
    let remote = pair.b.remote(0);
    pair.a.post(
        1,
        Op::Write { remote, imm: None },
        Payload::Inline(b"anybody?"),
    );
    pair.sent_as(1, WcStatus::RetryExcErr);
    assert_eq!(pair.b.bytes(0, 8), [0; 8]);
}

/// Connecting to a queue pair that nobody has is either refused as unreachable, or the first
/// request gets no answer (UC: is lost).
pub fn connecting_to_nobody_leads_nowhere(fixture: &Fixture) {
    for transport in CONNECTED {
        let options = Options {
            timeout: 8,
            retry_count: 1,
            ..Options::default()
        };
        let mut pair = Pair::unconnected(fixture, transport, &options);
        let nobody = QpNum(pair.b.qp.num().0 ^ 0x7fff);
        let peer = (pair.b.node.gid, nobody);
        let steps = super::rig::steps(transport, pair.a.qp.num(), peer, &options);
        pair.a.qp.modify(&steps[0]).expect("to INIT");
        match pair.a.qp.modify(&steps[1]) {
            Err(VerbsError::Unreachable { .. }) => {
                assert_eq!(pair.a.state(), QpState::Init);
                continue;
            }
            other => other.expect("to RTR"),
        }
        pair.a.qp.modify(&steps[2]).expect("to RTS");
        pair.a.post(1, SEND, Payload::Inline(b"anybody?"));
        match transport {
            Transport::Rc => pair.sent_as(1, WcStatus::RetryExcErr),
            _ => pair.sent_ok(1),
        };
    }
}

/// A queue pair takes nothing from a sender that it is not connected to.
pub fn a_stranger_is_not_heard(fixture: &Fixture) {
    for transport in CONNECTED {
        let options = Options {
            timeout: 8,
            retry_count: 1,
            ..Options::default()
        };
        let mut friends = Pair::with(fixture, transport, &options);
        let mut stranger = Pair::unconnected(fixture, transport, &options);
        let peer = (friends.b.node.gid, friends.b.qp.num());
        connect(&stranger.a.qp, peer, &options);
        friends.b.post_recv(1, 0, 64);
        stranger.a.post(1, SEND, Payload::Inline(b"stranger"));
        match transport {
            Transport::Rc => stranger.sent_as(1, WcStatus::RetryExcErr),
            _ => stranger.sent_ok(1),
        };
        friends.a.post(2, SEND, Payload::Inline(b"friend"));
        friends.sent_ok(2);
        friends.received_ok(1);
        assert_eq!(friends.b.bytes(0, 6), b"friend");
    }
}
