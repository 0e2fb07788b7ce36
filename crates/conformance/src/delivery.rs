//! What has completed at its sender is received, whatever fails at the same time, and every RECV
//! completes once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::rig::{End, Node, Options, Pair, Queue, SEND, TRANSPORTS, connect, lending, until};
use super::{Fixture, Outcome};
use verbs::attr::{Access, LentRecvs, QpAttr, QpCaps, QpState, Transport};
use verbs::nic::{NicMr, NicSrq, QpParts, remote_addr};
use verbs::polled::Polled;
use verbs::wc::{Wc, WcStatus};
use verbs::wr::{Op, Payload, RecvWr, SendFlags, SendWr, Sge};

/// A queue pair that fails by a request of its own has received, by the time its RECVs are flushed,
/// whatever completed with success at the peer: also over a connection that carried nothing before,
/// and when the same poll finds the failure and the message.
pub fn what_completed_before_a_failure_is_received(fixture: &Fixture) {
    const ROUNDS: usize = 24;
    let options = Options {
        rnr_retry: 0,
        timeout: 8,
        retry_count: 1,
        ..Options::default()
    };
    for round in 0..ROUNDS {
        let mut pair = Pair::unconnected(fixture, Transport::Rc, &options);
        let both = pair.a.recv.num();
        let init = pair.a.node.init(Transport::Rc, both, both);
        pair.a = End {
            qp: pair.a.node.qp(&init),
            ..pair.a
        };
        pair.connect(&options);
        for id in 0..3 {
            pair.a.post_recv(id, 0, 64);
        }
        // B has no RECV for A's message, now or later. Every other time B's has completed before, and
        // A has not polled since.
        let b_is_first = round % 2 == 0;
        if !b_is_first {
            pair.a.post(9, SEND, Payload::Inline(b"unheard"));
        }
        let b = &mut pair.b;
        b.post(1, SEND, Payload::Inline(b"heard"));
        let sent = until(fixture.patience, "B's message", || b.send.take());
        if b_is_first {
            pair.a.post(9, SEND, Payload::Inline(b"unheard"));
        }
        let recv = &mut pair.a.recv;
        let mut completed = Vec::new();
        until(fixture.patience, "everything of A's to end", || {
            completed.extend(recv.take());
            (completed.len() == 4).then_some(())
        });
        let status = |id| {
            let of_id = completed.iter().find(|wc| wc.id == id);
            of_id.expect("each id completes once").status
        };
        assert_eq!(status(9), WcStatus::RnrRetryExcErr, "round {round}");
        // Otherwise A's retries may have ended before.
        assert!(sent.is_ok() || !b_is_first, "round {round}: {sent:?}");
        if sent.is_ok() {
            assert_eq!(status(0), WcStatus::Success, "round {round}: {completed:?}");
        }
        assert_eq!(status(2), WcStatus::WrFlushErr, "round {round}");
    }
}

/// Messages that are lent are received after a failure, too, however little memory a poll brings.
pub fn lent_messages_survive_a_failure(fixture: &Fixture) {
    const COUNT: usize = 12;
    let lent = LentRecvs { count: 16, len: 64 };
    let mut pair = lending(fixture, Transport::Rc, lent);
    for id in 0..COUNT {
        pair.a
            .post(id as u64, SEND, Payload::Inline(&[id as u8; 40]));
        let a = &mut pair.a;
        let wc = until(fixture.patience, "a message sent", || a.send.take());
        assert_eq!((wc.id, wc.status), (id as u64, WcStatus::Success));
    }
    pair.b.qp.modify(&QpAttr::to(QpState::Err)).expect("to ERR");
    // One message a poll.
    let mut polled = Polled::with_bytes(4, 50);
    let mut taken = Vec::new();
    until(fixture.patience, "what was sent before the failure", || {
        pair.b.recv.cq.poll(&mut polled).expect("no overrun");
        let messages = polled.iter().filter_map(|(_, message)| message);
        taken.extend(messages.map(|message| message[0] as usize));
        (taken.len() == COUNT).then_some(())
    });
    assert!(taken.iter().copied().eq(0..COUNT), "{taken:?}");
}

/// Bytes of a message that does not fit between a sender and a receiver that does not look.
const LONG: usize = 1 << 20;

/// Two connections into one shared receive queue of node A.
pub(super) struct Shared {
    pub(super) srq: Box<dyn NicSrq>,
    region: Arc<dyn NicMr>,
    /// For long messages: of node A, which receives, and of node B.
    long: Arc<dyn NicMr>,
    long_out: Arc<dyn NicMr>,
    /// Node B's queue pairs, and node A's that they send to.
    pub(super) pairs: Vec<(QpParts, QpParts)>,
    pub(super) sends: Queue,
    patience: Duration,
}

impl Shared {
    /// Both receive on one queue.
    pub(super) fn new(fixture: &Fixture, recvs: &Queue) -> Shared {
        Shared::on(fixture, [recvs, recvs])
    }

    /// Each receives on a queue of its own.
    pub(super) fn on(fixture: &Fixture, recvs: [&Queue; 2]) -> Shared {
        let (a, b) = (Node::new(&fixture.a), Node::new(&fixture.b));
        let (sends, srq) = (b.queue(64), a.srq(16));
        // The protection domain of the queue and of the queue pairs is one.
        let options = Options::default();
        let pairs = recvs.map(|recvs| {
            let mut init = a.init(Transport::Rc, recvs.num(), recvs.num());
            init.srq = Some(srq.num());
            let from = b.qp(&b.init(Transport::Rc, sends.num(), sends.num()));
            let to = a.qp(&init);
            connect(&to, (b.gid, from.num()), &options);
            connect(&from, (a.gid, to.num()), &options);
            (from, to)
        });
        Shared {
            pairs: pairs.into(),
            long: a.region(LONG, Access::EVERYTHING),
            long_out: b.region(LONG, Access::EVERYTHING),
            region: a.region(16 * 64, Access::all()),
            srq,
            sends,
            patience: fixture.patience,
        }
    }

    pub(super) fn post_recv(&mut self, id: u64) {
        let sges = [Sge {
            addr: self.region.addr() + 64 * id,
            len: 64,
            lkey: self.region.lkey(),
        }];
        let posted = self.srq.post_recv(&[RecvWr { id, sges: &sges }]);
        posted.expect("room for it");
    }

    /// Posts a RECV for a message of any length.
    pub(super) fn post_long_recv(&mut self, id: u64) {
        let sges = [whole(&*self.long)];
        let posted = self.srq.post_recv(&[RecvWr { id, sges: &sges }]);
        posted.expect("room for it");
    }

    /// Sends a long message over the first connection.
    pub(super) fn send_long(&mut self) {
        let sges = [whole(&*self.long_out)];
        let wr = SendWr {
            id: 0,
            op: SEND,
            payload: Payload::Gather(&sges),
            flags: SendFlags::SIGNALED,
            to: None,
        };
        self.pairs[0].0.post_send(&[wr]).expect("a free slot");
    }

    /// Sends a message over one of the connections.
    pub(super) fn send(&mut self, pair: usize, id: u64, flags: SendFlags) {
        let wr = SendWr {
            id,
            op: SEND,
            payload: Payload::Inline(b"shared"),
            flags: SendFlags::SIGNALED | flags,
            to: None,
        };
        self.pairs[pair].0.post_send(&[wr]).expect("a free slot");
    }

    /// What completes within some looks: messages that have found a RECV, or believe so.
    pub(super) fn sent(&mut self) -> Vec<Wc> {
        let looks = (0..200).filter_map(|_| {
            std::thread::yield_now();
            self.sends.take()
        });
        looks.collect()
    }
}

fn whole(region: &dyn NicMr) -> Sge {
    Sge {
        addr: region.addr(),
        len: region.len() as u32,
        lkey: region.lkey(),
    }
}

/// Two senders may see the last RECV of a shared queue. What has completed is received once there is
/// another one, although its queue pair has failed meanwhile.
pub fn a_shared_recv_that_comes_late_is_used_after_a_failure(fixture: &Fixture) {
    let mut recvs = Node::new(&fixture.a).queue(64);
    let mut shared = Shared::new(fixture, &recvs);
    shared.post_recv(0);
    for pair in 0..2 {
        shared.send(pair, pair as u64, SendFlags::empty());
    }
    let sent = shared.sent();
    let first = until(fixture.patience, "the first message", || {
        // One that waits needs its sender to be polled.
        shared.sends.poll();
        recvs.take()
    });
    assert!(first.is_ok(), "{first:?}");
    let other = shared.pairs.iter().find(|(_, to)| to.num() != first.qpn);
    let (from, to) = other.expect("two queue pairs");
    to.modify(&QpAttr::to(QpState::Err)).expect("to ERR");
    for _ in 0..10 {
        recvs.poll();
    }
    let delivered = sent.iter().any(|wc| wc.is_ok() && wc.qpn == from.num());
    let qpn = to.num();
    shared.post_recv(1);
    if delivered {
        let wc = until(fixture.patience, "the other message", || recvs.take());
        assert_eq!((wc.qpn, wc.status), (qpn, WcStatus::Success), "{wc:?}");
    }
}

/// Immediate data of WRITEs over a shared receive queue is not lost, however the senders meet at its
/// few RECVs: two threads post, and a third polls and posts RECVs one at a time.
pub fn immediates_meet_at_a_shared_queue(fixture: &Fixture) {
    const COUNT: u32 = 500;
    let mut recvs = Node::new(&fixture.a).queue(64);
    let shared = Shared::new(fixture, &recvs);
    let target = remote_addr(&*shared.region, 1000);
    let Shared {
        pairs,
        region,
        mut srq,
        mut sends,
        patience,
        ..
    } = shared;
    let (senders, receivers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let qpns = [senders[0].num(), senders[1].num()];
    let done = [AtomicU32::new(0), AtomicU32::new(0)];
    let is_over = AtomicBool::new(false);
    let mut next = [0; 2];
    std::thread::scope(|scope| {
        // They keep their queue pairs until all of this has ended.
        let mut started = Vec::new();
        for (mut sender, done) in senders.into_iter().zip(&done) {
            let is_over = &is_over;
            started.push(scope.spawn(move || {
                let mut posted = 0;
                while posted < COUNT && !is_over.load(Ordering::Relaxed) {
                    if posted >= done.load(Ordering::Relaxed) + 8 {
                        std::thread::yield_now();
                        continue;
                    }
                    let wr = SendWr {
                        id: posted.into(),
                        op: Op::Write {
                            remote: target,
                            imm: Some(posted),
                        },
                        payload: Payload::Inline(b"word"),
                        flags: SendFlags::SIGNALED,
                        to: None,
                    };
                    sender.post_send(&[wr]).expect("a free slot");
                    posted += 1;
                }
                sender
            }));
        }
        let _ends = EndsOnDrop(&is_over);
        let mut recv = 0;
        until(patience, "all immediate data", || {
            while let Some(wc) = sends.take() {
                let of = qpns.iter().position(|qpn| *qpn == wc.qpn);
                let pair = of.expect("one of the two");
                let count = done[pair].fetch_add(1, Ordering::Relaxed);
                assert_eq!((wc.status, wc.id), (WcStatus::Success, count.into()));
            }
            // One RECV at a time, for both.
            if recv == next.iter().sum::<u32>() && recv < 2 * COUNT {
                let sges = [Sge {
                    addr: region.addr() + 64 * u64::from(recv % 16),
                    len: 64,
                    lkey: region.lkey(),
                }];
                let posted = srq.post_recv(&[RecvWr {
                    id: recv.into(),
                    sges: &sges,
                }]);
                posted.expect("room for it");
                recv += 1;
            }
            while let Some(wc) = recvs.take() {
                let of = receivers.iter().position(|to| to.num() == wc.qpn);
                let pair = of.expect("one of the two");
                assert_eq!(
                    (wc.status, wc.immediate()),
                    (WcStatus::Success, Some(next[pair]))
                );
                next[pair] += 1;
            }
            let all_done = done
                .iter()
                .all(|done| done.load(Ordering::Relaxed) == COUNT);
            (next == [COUNT; 2] && all_done).then_some(())
        });
    });
}

/// Has threads end that look at it, also when the one that owns it panics.
struct EndsOnDrop<'a>(&'a AtomicBool);

impl Drop for EndsOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A RECV of a shared queue that was taken for a message whose end does not come is there for others
/// when the queue pair starts anew or goes. When it fails, it may complete there as well.
pub fn a_shared_recv_of_a_message_that_is_cut_off_is_not_lost(fixture: &Fixture) {
    for to in [Some(QpState::Err), Some(QpState::Reset), None] {
        let mut recvs = Node::new(&fixture.a).queue(64);
        let mut shared = Shared::new(fixture, &recvs);
        shared.post_long_recv(1);
        shared.send_long();
        recvs.poll();
        let error = QpAttr::to(QpState::Err);
        shared.pairs[0].0.modify(&error).expect("to ERR");
        let (_sender, receiver) = shared.pairs.remove(0);
        match to {
            Some(state) => receiver
                .modify(&QpAttr::to(state))
                .expect("to ERR or RESET"),
            None => drop(receiver),
        }
        shared.send(0, 2, SendFlags::empty());
        let qpn = shared.pairs[0].1.num();
        let wc = until(fixture.patience, "the other message", || {
            shared.sends.poll();
            let wc = recvs.take()?;
            if wc.qpn != qpn {
                // The whole message had come, or what there was of it was flushed.
                shared.post_long_recv(2);
                return None;
            }
            Some(wc)
        });
        assert!(wc.is_ok(), "{wc:?}");
    }
}

/// A WRITE with immediate data whose message has to wait for room is not carried out again and again:
/// the peer may have used its bytes by then.
pub fn a_write_whose_immediate_waits_is_done_once(fixture: &Fixture) {
    const LEN: usize = 4096;
    const SENDS: u64 = 63;
    let options = Options {
        caps: QpCaps {
            recv_wr_max: 128,
            ..Options::default().caps
        },
        region_len: 1 << 20,
        ..Options::default()
    };
    let mut pair = Pair::with(fixture, Transport::Rc, &options);
    for id in 0..=SENDS {
        pair.b.post_recv(id, id as usize * LEN, LEN);
    }
    for id in 0..SENDS {
        let sges = [pair.a.sge(0, LEN)];
        pair.a.post(id, SEND, Payload::Gather(&sges));
    }
    let at = (1 << 20) - 64;
    let write = Op::Write {
        remote: pair.b.remote(at),
        imm: Some(5),
    };
    pair.a.post(SENDS, write, Payload::Inline(b"written!"));
    // B is not polled: there may be room for all messages, or not.
    let (a, b) = (&mut pair.a, &pair.b);
    let deadline = Instant::now() + Duration::from_millis(200);
    while b.bytes(at, 8) != b"written!" && Instant::now() < deadline {
        a.poll();
    }
    if b.bytes(at, 8) == b"written!" {
        b.region.write(at, b"used now");
    }
    let used = b.bytes(at, 8) == b"used now";
    for _ in 0..50 {
        pair.a.poll();
        std::thread::yield_now();
    }
    assert!(!used || pair.b.bytes(at, 8) == b"used now", "written again");
    for id in 0..=SENDS {
        pair.sent_ok(id);
        assert_eq!(pair.received_ok(id).immediate(), (id == SENDS).then_some(5));
    }
    assert!(!used || pair.b.bytes(at, 8) == b"used now", "written again");
}

/// Options for messages that do not fit between a sender and a receiver that does not look.
fn long_messages() -> Options {
    Options {
        region_len: 4 << 20,
        timeout: 8,
        retry_count: 1,
        ..Options::default()
    }
}

/// Three RECVs of B, of which the first is taken for a message of which only a part has come.
fn cut_off(a: &mut End, b: &mut End) {
    const LEN: usize = 1 << 20;
    for id in 0..3 {
        b.post_recv(id, id as usize * LEN, LEN);
    }
    let sges = [a.sge(0, LEN)];
    a.post(1, SEND, Payload::Gather(&sges));
    b.recv.poll();
}

/// Takes B's completions until each RECV of a message that was cut off has completed once, in order.
fn flushed_in_order(b: &mut End, patience: Duration) {
    let recvs = &mut b.recv;
    for id in 0..3 {
        let wc = until(patience, "a RECV to complete", || {
            recvs.seen.pop_front().or_else(|| recvs.take())
        });
        assert_eq!(wc.id, id, "{wc:?}");
        let whole = id == 0 && wc.status == WcStatus::Success;
        assert!(whole || wc.status == WcStatus::WrFlushErr, "{wc:?}");
    }
    recvs.poll();
    assert!(recvs.seen.is_empty(), "three RECVs: {:?}", recvs.seen);
}

/// A RECV that was taken for a message whose end does not come is flushed before those behind it,
/// when the receiver fails; and none is missing when it starts anew.
pub fn a_message_that_is_cut_off_loses_no_recv(fixture: &Fixture) {
    let options = long_messages();
    for to in [QpState::Err, QpState::Reset] {
        let mut pair = Pair::with(fixture, Transport::Rc, &options);
        cut_off(&mut pair.a, &mut pair.b);
        pair.a.qp.modify(&QpAttr::to(QpState::Err)).expect("to ERR");
        pair.b.qp.modify(&QpAttr::to(to)).expect("to ERR or RESET");
        if to == QpState::Err {
            flushed_in_order(&mut pair.b, fixture.patience);
        }
        for end in [&pair.a, &pair.b] {
            end.qp
                .modify(&QpAttr::to(QpState::Reset))
                .expect("to RESET");
        }
        pair.a.poll();
        pair.b.poll();
        for queue in [&mut pair.a.send, &mut pair.b.recv] {
            queue.seen.clear();
        }
        pair.connect(&options);
        for id in 0..options.caps.recv_wr_max.into() {
            pair.b.post_recv(10 + id, 0, 64);
        }
        pair.a.post(2, SEND, Payload::Inline(b"anew"));
        pair.sent_ok(2);
        pair.received_ok(10);
    }
}

/// The same when the sender dies in the middle of the message.
pub fn a_sender_that_dies_in_a_message_loses_no_recv(fixture: &Fixture) -> Outcome {
    let Some(spawn) = &fixture.mortal else {
        return Outcome::NotApplicable("the fixture has no node that can die");
    };
    let options = long_messages();
    let mortal = spawn.spawn();
    let mut a = End::new(&mortal.nic, Transport::Rc, &options);
    let mut b = End::new(&fixture.a, Transport::Rc, &options);
    connect(&b.qp, (a.node.gid, a.qp.num()), &options);
    connect(&a.qp, (b.node.gid, b.qp.num()), &options);
    cut_off(&mut a, &mut b);
    let kill = mortal.kill;
    drop(mortal.nic);
    kill();
    // What is left of it here leads nowhere.
    drop(a);
    flushed_in_order(&mut b, fixture.patience);
    Outcome::Holds
}

/// RECVs that are posted while the queue pair fails in another thread complete as well.
pub fn recvs_posted_during_a_failure_are_flushed(fixture: &Fixture) {
    const RECVS: u64 = 64;
    for transport in TRANSPORTS {
        let mut pair = Pair::new(fixture, transport);
        let options = Options::default();
        for round in 0..20 {
            let sges = [pair.a.sge(0, 64)];
            let (ctl, recv) = (&pair.a.qp.ctl, &mut pair.a.qp.recv);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..round * 3 {
                        std::hint::spin_loop();
                    }
                    ctl.modify(&QpAttr::to(QpState::Err)).expect("to ERR");
                });
                for id in 0..RECVS {
                    let mut batch = verbs::RecvBatch::default();
                    batch.push(id, &sges);
                    recv.post(&batch).expect("room in any state but RESET");
                }
            });
            let mut flushed = BTreeSet::new();
            let recvs = &mut pair.a.recv;
            until(fixture.patience, "all RECVs to be flushed", || {
                while let Some(wc) = recvs.take() {
                    assert_eq!(wc.status, WcStatus::WrFlushErr, "{wc:?}");
                    assert!(flushed.insert(wc.id), "twice: {wc:?}");
                }
                (flushed.len() as u64 == RECVS).then_some(())
            });
            let reset = QpAttr::to(QpState::Reset);
            pair.a.qp.modify(&reset).expect("to RESET");
            pair.b.qp.modify(&reset).expect("to RESET");
            pair.connect(&options);
        }
    }
}
