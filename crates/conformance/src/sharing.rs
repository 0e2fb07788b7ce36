//! Many users of one thing: shared receive queues, shared completion queues, many queue pairs,
//! loopback, threads.

use std::collections::BTreeSet;

use super::Fixture;
use super::rig::{
    CONNECTED, End, Node, Options, Pair, QKEY, Queue, SEND, TRANSPORTS, connect, pattern, until,
};
use verbs::attr::{Access, Transport};
use verbs::error::{PostError, PostReason};
use verbs::nic::remote_addr;
use verbs::wc::{WcOpcode, WcStatus};
use verbs::wr::{GRH_LEN, Op, Payload, RecvWr, SendFlags, SendWr, Sge, UdDest};

/// Queue pairs of one shared receive queue consume each of its RECVs once; each completion says
/// which queue pair it was.
pub fn a_shared_recv_is_consumed_once(fixture: &Fixture) {
    const QPS: usize = 4;
    const MESSAGES: usize = 8;
    for transport in TRANSPORTS {
        let (a, b) = (Node::new(&fixture.a), Node::new(&fixture.b));
        let (mut sends, mut recvs) = (a.queue(64), b.queue(64));
        let region = b.region(64 * QPS * MESSAGES, Access::EVERYTHING);
        let mut srq = b.srq((QPS * MESSAGES) as u32);
        let options = Options::default();
        let mut init = b.init(transport, recvs.num(), recvs.num());
        init.srq = Some(srq.num());
        let mut pairs: Vec<_> = (0..QPS)
            .map(|_| {
                let from = a.qp(&a.init(transport, sends.num(), sends.num()));
                let to = b.qp(&init);
                connect(&to, (a.gid, from.num()), &options);
                connect(&from, (b.gid, to.num()), &options);
                (from, to)
            })
            .collect();
        let refused = PostError {
            index: 0,
            reason: PostReason::SharedReceiveQueue,
        };
        let own = pairs[0].1.post_recv(&[RecvWr { id: 0, sges: &[] }]);
        assert_eq!(own, Err(refused), "a RECV of its own");
        for id in 0..(QPS * MESSAGES) as u64 {
            let sges = [Sge {
                addr: region.addr() + 64 * id,
                len: 64,
                lkey: region.lkey(),
            }];
            srq.post_recv(&[RecvWr { id, sges: &sges }])
                .expect("room for it");
        }
        for message in 0..MESSAGES as u64 {
            for (from, to) in &mut pairs {
                let ud = transport == Transport::Ud;
                let bytes = [message, to.num().0.into()].map(u64::to_le_bytes).concat();
                let wr = SendWr {
                    id: message,
                    op: SEND,
                    payload: Payload::Inline(&bytes),
                    flags: SendFlags::SIGNALED,
                    to: ud.then(|| a.dest(b.gid, to.num())),
                };
                from.post_send(&[wr]).expect("a free slot");
                let wc = until(fixture.patience, "a message sent", || sends.take());
                assert!(wc.is_ok(), "{wc:?}");
            }
        }
        let header = if transport == Transport::Ud {
            GRH_LEN
        } else {
            0
        };
        let mut used = BTreeSet::new();
        let mut next = [0; QPS];
        for _ in 0..QPS * MESSAGES {
            let wc = until(fixture.patience, "a message received", || recvs.take());
            assert!(wc.is_ok() && used.insert(wc.id), "{wc:?} of {used:?}");
            let index = pairs.iter().position(|(_, to)| to.num() == wc.qpn);
            let index = index.expect("one of the queue pairs");
            let mut bytes = [0; 16];
            region.read(64 * wc.id as usize + header, &mut bytes);
            let expected = [next[index], wc.qpn.0.into()]
                .map(u64::to_le_bytes)
                .concat();
            assert_eq!(bytes, expected[..], "{transport:?}");
            next[index] += 1;
        }
        assert_eq!(next, [MESSAGES as u64; QPS]);
    }
}

/// Sends and receives may complete into one queue.
pub fn one_queue_serves_both_directions(fixture: &Fixture) {
    let node = Node::new(&fixture.a);
    let queue = node.queue(64);
    let options = Options::default();
    let mut pair = Pair::unconnected(fixture, Transport::Rc, &options);
    pair.a.qp =
        pair.a.node.qp(&pair
            .a
            .node
            .init(Transport::Rc, pair.a.recv.num(), pair.a.recv.num()));
    drop(queue);
    pair.connect(&options);
    pair.a.post_recv(1, 0, 64);
    pair.a.post(2, SEND, Payload::Inline(b"there"));
    pair.b.post_recv(3, 0, 64);
    pair.received_ok(3);
    pair.b.post(4, SEND, Payload::Inline(b"back"));
    let mut seen = BTreeSet::new();
    while seen.len() < 2 {
        let wc = pair.until("both completions", |pair| pair.a.recv.seen.pop_front());
        assert!(wc.is_ok(), "{wc:?}");
        seen.insert((wc.id, wc.opcode == WcOpcode::Recv));
    }
    assert_eq!(seen, BTreeSet::from([(1, true), (2, false)]));
}

/// 256 connections between two nodes do not mix up, nor do their completions in one queue.
pub fn many_connections_are_kept_apart(fixture: &Fixture) {
    let count = fixture
        .a
        .device()
        .qp_max
        .min(fixture.b.device().qp_max)
        .min(256) as usize;
    for transport in CONNECTED {
        let (a, b) = (Node::new(&fixture.a), Node::new(&fixture.b));
        let mut sends = a.queue(count as u32);
        let queue = b.queue(16);
        let region = b.region(8 * count, Access::EVERYTHING);
        let options = Options::default();
        let mut pairs: Vec<_> = (0..count)
            .map(|_| {
                let from = a.qp(&a.init(transport, sends.num(), sends.num()));
                let to = b.qp(&b.init(transport, queue.num(), queue.num()));
                connect(&to, (a.gid, from.num()), &options);
                connect(&from, (b.gid, to.num()), &options);
                (from, to)
            })
            .collect();
        let numbers: BTreeSet<_> = pairs.iter().map(|(from, _)| from.num()).collect();
        assert_eq!(numbers.len(), count, "numbers are unique");
        for (index, (from, _)) in pairs.iter_mut().enumerate() {
            let bytes = (0xabcd_0000 + index as u64).to_le_bytes();
            let remote = remote_addr(&*region, 8 * index);
            let wr = SendWr {
                id: index as u64,
                op: Op::Write { remote, imm: None },
                payload: Payload::Inline(&bytes),
                flags: SendFlags::SIGNALED,
                to: None,
            };
            from.post_send(&[wr]).expect("a free slot");
        }
        let mut done = BTreeSet::new();
        for _ in 0..count {
            let wc = until(fixture.patience, "a WRITE", || sends.take());
            assert_eq!(wc.status, WcStatus::Success);
            assert_eq!(wc.qpn, pairs[wc.id as usize].0.num());
            done.insert(wc.id);
        }
        assert_eq!(done.len(), count);
        for index in 0..count {
            until(fixture.patience, "a word", || {
                let mut word = [0; 8];
                region.read(8 * index, &mut word);
                (u64::from_le_bytes(word) == 0xabcd_0000 + index as u64).then_some(())
            });
        }
    }
}

/// 16 datagram queue pairs on each node, each of which writes to each of the others.
pub fn datagrams_go_from_all_to_all(fixture: &Fixture) {
    const QPS: usize = 16;
    struct Party {
        end: End,
        from: BTreeSet<u64>,
    }
    let options = Options::default();
    let mut parties: Vec<Party> = [&fixture.a, &fixture.b]
        .into_iter()
        .flat_map(|nic| (0..QPS).map(move |_| nic))
        .map(|nic| {
            let mut end = End::new(nic, Transport::Ud, &options);
            let itself = (end.node.gid, end.qp.num());
            connect(&end.qp, itself, &options);
            for id in 0..2 * QPS {
                end.post_recv(id as u64, id * 64, 64);
            }
            let from = BTreeSet::new();
            Party { end, from }
        })
        .collect();
    let addresses: Vec<_> = parties
        .iter()
        .map(|p| (p.end.node.gid, p.end.qp.num()))
        .collect();
    for (sender, party) in parties.iter_mut().enumerate() {
        let number = party.end.qp.num().0;
        for (index, (gid, qpn)) in addresses.iter().enumerate() {
            // Numbers are unique on a GID only, so the sender's place goes along.
            let bytes = [u64::from(number), index as u64, sender as u64]
                .map(u64::to_le_bytes)
                .concat();
            let mut wr = party.end.wr(index as u64, SEND, Payload::Inline(&bytes));
            wr.to = Some(UdDest {
                qkey: QKEY,
                ..party.end.node.dest(*gid, *qpn)
            });
            party.end.post_all(&[wr]);
        }
    }
    for index in 0..parties.len() {
        for _ in 0..2 * QPS {
            let wc = until(fixture.patience, "a datagram from everybody", || {
                parties.iter_mut().for_each(|party| party.end.poll());
                parties[index].end.recv.seen.pop_front()
            });
            let Party { end, from } = &mut parties[index];
            let offset = wc.id as usize * 64 + GRH_LEN;
            assert_eq!(end.word(offset), wc.src_qpn.0.into(), "{wc:?}");
            assert_eq!(end.word(offset + 8), index as u64);
            assert!(from.insert(end.word(offset + 16)), "twice: {wc:?}");
        }
    }
}

/// Two queue pairs of one NIC can be connected with each other.
pub fn two_queue_pairs_of_one_nic_connect(fixture: &Fixture) {
    for nic in [&fixture.a, &fixture.b] {
        for transport in TRANSPORTS {
            let home = Fixture {
                patience: fixture.patience,
                ..Fixture::new(nic.clone(), nic.clone())
            };
            let mut pair = Pair::new(&home, transport);
            pair.flush_through();
            if transport != Transport::Ud {
                let bytes = pair.a.fill(0, 3000, 1);
                let (sges, remote) = ([pair.a.sge(0, 3000)], pair.b.remote(100));
                pair.a
                    .post(1, Op::Write { remote, imm: None }, Payload::Gather(&sges));
                pair.sent_ok(1);
                pair.arrives(100, &bytes, "a WRITE at home");
            }
        }
    }
}

/// A queue pair can be its own peer.
pub fn a_queue_pair_connects_to_itself(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let mut end = End::new(&fixture.a, transport, &Options::default());
        let itself = (end.node.gid, end.qp.num());
        connect(&end.qp, itself, &Options::default());
        if transport == Transport::Ud {
            end.to = Some(end.node.dest(itself.0, itself.1));
        }
        for id in 0..5 {
            end.post_recv(100 + id, 0, 64);
            end.post(id, SEND, Payload::Inline(b"to myself"));
            let wc = until(fixture.patience, "a message to itself", || end.send.take());
            assert!(wc.is_ok() && wc.id == id, "{wc:?}");
            let wc = until(fixture.patience, "a message from itself", || {
                end.recv.take()
            });
            assert!(wc.is_ok() && wc.id == 100 + id, "{wc:?}");
        }
        if transport == Transport::Rc {
            let there = end.fill(0, 100, 1);
            let (sges, remote) = ([end.sge(1000, 100)], end.remote(0));
            end.post(9, Op::Read { remote }, Payload::Gather(&sges));
            let wc = until(fixture.patience, "a READ of itself", || end.send.take());
            assert!(wc.is_ok(), "{wc:?}");
            assert_eq!(end.bytes(1000, 100), there);
        }
    }
}

/// Threads use queue pairs of their own at the same time, both ways, without disturbing each
/// other.
pub fn threads_do_not_disturb_each_other(fixture: &Fixture) {
    let mut pairs: Vec<Pair> = (0..4)
        .map(|index| {
            let mut pair = Pair::new(fixture, CONNECTED[index % 2]);
            if index >= 2 {
                std::mem::swap(&mut pair.a, &mut pair.b);
            }
            pair
        })
        .collect();
    std::thread::scope(|scope| {
        for (index, pair) in pairs.iter_mut().enumerate() {
            scope.spawn(move || {
                for round in 0..60u64 {
                    let seed = round + 1000 * index as u64;
                    let bytes = pair.a.fill(0, 1500, seed);
                    let sges = [pair.a.sge(0, 1500)];
                    let remote = pair.b.remote(4096);
                    let write = Op::Write { remote, imm: None };
                    pair.b.post_recv(round, 0, 64);
                    let short = pattern(seed, 40);
                    let batch = [
                        pair.a.wr(round, write, Payload::Gather(&sges)),
                        pair.a.wr(round, SEND, Payload::Inline(&short)),
                    ];
                    pair.a.post_all(&batch);
                    pair.sent_ok(round);
                    pair.sent_ok(round);
                    pair.received_ok(round);
                    assert!(pair.b.bytes(4096, 1500) == bytes, "round {round}");
                    assert_eq!(pair.b.bytes(0, 40), short, "round {round}");
                }
            });
        }
    });
}

/// Objects may be destroyed in any order, with work posted, and the NIC goes on for others.
pub fn objects_may_be_dropped_in_any_order(fixture: &Fixture) {
    let mut rng = fastrand::Rng::with_seed(7);
    for transport in TRANSPORTS {
        for _ in 0..12 {
            let mut pair = Pair::new(fixture, transport);
            for id in 0..8 {
                pair.a.post_recv(id, 0, 64);
                pair.b.post_recv(id, 64 * id as usize, 64);
                pair.a.post(id, SEND, Payload::Inline(b"under way"));
                pair.b.post(id, SEND, Payload::Inline(b"under way"));
            }
            let mut parts: Vec<Box<dyn FnOnce()>> = Vec::new();
            for end in [pair.a, pair.b] {
                let End {
                    qp,
                    region,
                    send,
                    recv,
                    ..
                } = end;
                let drop_queue = |queue: Queue| Box::new(move || drop(queue));
                parts.push(Box::new(move || drop(qp)));
                parts.push(Box::new(move || drop(region)));
                parts.push(drop_queue(send));
                parts.push(drop_queue(recv));
            }
            rng.shuffle(&mut parts);
            for part in parts {
                part();
            }
        }
        Pair::new(fixture, transport).flush_through();
    }
}
