//! Compare-and-swap and fetch-and-add.

use std::sync::atomic::{AtomicU64, Ordering};

use super::rig::{Node, Options, Pair, connect, until};
use super::{Fixture, Outcome};
use verbs::attr::{Access, Transport};
use verbs::wc::WcStatus;
use verbs::wr::{Op, Payload, SendFlags, SendWr, Sge};

/// A swap happens only if the word is as expected, and the word before comes back either way.
pub fn compare_and_swap_swaps_what_is_expected(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    pair.b.set_word(64, 10);
    let remote = pair.b.remote(64);
    let result = [pair.a.sge(8, 8)];
    for (expect, swap, before, after) in [
        (10, 11, 10, 11),
        (10, 12, 11, 11),
        (11, u64::MAX, 11, u64::MAX),
        (u64::MAX, 0, u64::MAX, 0),
    ] {
        let op = Op::CompareSwap {
            remote,
            expect,
            swap,
        };
        pair.a.post(1, op, Payload::Gather(&result));
        assert_eq!(pair.sent_ok(1).byte_len, 8);
        assert_eq!((pair.a.word(8), pair.b.word(64)), (before, after));
    }
}

/// Addition wraps, and the word before comes back.
pub fn fetch_and_add_wraps(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    pair.b.set_word(0, u64::MAX - 1);
    let remote = pair.b.remote(0);
    let result = [pair.a.sge(0, 8)];
    for (add, before, after) in [(1, u64::MAX - 1, u64::MAX), (3, u64::MAX, 2), (0, 2, 2)] {
        pair.a
            .post(1, Op::FetchAdd { remote, add }, Payload::Gather(&result));
        assert_eq!(pair.sent_ok(1).byte_len, 8);
        assert_eq!((pair.a.word(0), pair.b.word(0)), (before, after));
    }
}

/// An atomic on an address that is not a multiple of 8 is an invalid request, and changes nothing.
pub fn a_misaligned_atomic_is_refused(fixture: &Fixture) {
    for skew in [1, 4, 7] {
        let mut pair = Pair::new(fixture, Transport::Rc);
        let there = pair.b.fill(0, 64, 1);
        let remote = pair.b.remote(8 + skew);
        let result = [pair.a.sge(0, 8)];
        pair.a
            .post(1, Op::FetchAdd { remote, add: 1 }, Payload::Gather(&result));
        pair.sent_as(1, WcStatus::RemInvReqErr);
        assert_eq!(pair.b.bytes(0, 64), there);
    }
}

/// Additions of several threads, each with a queue pair of its own and from both nodes, add up,
/// and no two of them see the same word.
pub fn additions_of_several_threads_add_up(fixture: &Fixture) {
    const ADDITIONS: usize = 100;
    let target = Node::new(&fixture.b);
    let counter = target.region(64, Access::EVERYTHING);
    let remote = verbs::nic::remote_addr(&*counter, 0);
    let options = Options::default();
    let mut seen: Vec<u64> = Vec::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = [&fixture.a, &fixture.a, &fixture.b, &fixture.b]
            .map(|nic| {
                let (node, queue) = (Node::new(nic), target.queue(4));
                let mut sends = node.queue(64);
                let mut qp = node.qp(&node.init(Transport::Rc, sends.num(), sends.num()));
                let peer = target.qp(&target.init(Transport::Rc, queue.num(), queue.num()));
                connect(&peer, (node.gid, qp.num()), &options);
                connect(&qp, (target.gid, peer.num()), &options);
                scope.spawn(move || {
                    // The peer and its queue live as long as the additions.
                    let _peer = (peer, queue);
                    let region = node.region(8 * ADDITIONS, Access::LOCAL_WRITE);
                    for index in 0..ADDITIONS {
                        let sges = [Sge {
                            addr: region.addr() + 8 * index as u64,
                            len: 8,
                            lkey: region.lkey(),
                        }];
                        let wr = SendWr {
                            id: index as u64,
                            op: Op::FetchAdd { remote, add: 1 },
                            payload: Payload::Gather(&sges),
                            flags: SendFlags::SIGNALED,
                            to: None,
                        };
                        qp.post_send(&[wr]).expect("a free slot");
                        let wc = until(fixture.patience, "an addition", || sends.take());
                        assert!(wc.is_ok() && wc.id == index as u64, "{wc:?}");
                    }
                    let mut words = vec![0; 8 * ADDITIONS];
                    region.read(0, &mut words);
                    words
                })
            })
            .into_iter()
            .collect();
        for worker in workers {
            let words = worker.join().expect("a worker that adds");
            let words = words
                .chunks_exact(8)
                .map(|word| word.try_into().expect("8 bytes"));
            seen.extend(words.map(u64::from_le_bytes));
        }
    });
    seen.sort_unstable();
    let expected: Vec<u64> = (0..4 * ADDITIONS as u64).collect();
    assert_eq!(seen, expected);
}

/// Many queue pairs, each with several additions under way, add up: whoever carries them out takes as many
/// as are posted.
pub fn additions_of_many_queue_pairs_add_up(fixture: &Fixture) {
    const QPS: usize = 24;
    const EACH: usize = 4;
    let target = Node::new(&fixture.b);
    let counter = target.region(64, Access::EVERYTHING);
    let remote = verbs::nic::remote_addr(&*counter, 8);
    let (queue, node) = (target.queue(4), Node::new(&fixture.a));
    let mut sends = node.queue(256);
    let results = node.region(8 * QPS * EACH, Access::LOCAL_WRITE);
    let options = Options::default();
    let mut pairs: Vec<_> = (0..QPS)
        .map(|_| {
            let qp = node.qp(&node.init(Transport::Rc, sends.num(), sends.num()));
            let peer = target.qp(&target.init(Transport::Rc, queue.num(), queue.num()));
            connect(&peer, (node.gid, qp.num()), &options);
            connect(&qp, (target.gid, peer.num()), &options);
            (qp, peer)
        })
        .collect();
    let sge = |index: usize| Sge {
        addr: results.addr() + 8 * index as u64,
        len: 8,
        lkey: results.lkey(),
    };
    for (number, (qp, _)) in pairs.iter_mut().enumerate() {
        for index in number * EACH..(number + 1) * EACH {
            let wr = SendWr {
                id: index as u64,
                op: Op::FetchAdd { remote, add: 1 },
                payload: Payload::Gather(&[sge(index)]),
                flags: SendFlags::SIGNALED,
                to: None,
            };
            qp.post_send(&[wr]).expect("a free slot");
        }
    }
    for _ in 0..QPS * EACH {
        let wc = until(fixture.patience, "an addition", || sends.take());
        assert!(wc.is_ok(), "{wc:?}");
    }
    let mut words = vec![0; 8 * QPS * EACH];
    results.read(0, &mut words);
    let words = words.chunks_exact(8);
    let mut seen: Vec<u64> = words
        .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
        .collect();
    seen.sort_unstable();
    let expected: Vec<u64> = (0..(QPS * EACH) as u64).collect();
    assert_eq!(seen, expected);
}

/// Additions of a peer, and of the program whose word it is, add up: a program may use atomic instructions
/// of its own on what others count.
pub fn additions_of_a_peer_and_of_the_owner_add_up(fixture: &Fixture) -> Outcome {
    const ADDITIONS: u64 = 200;
    let mut pair = Pair::new(fixture, Transport::Rc);
    let Some(base) = pair.a.region.base() else {
        return Outcome::NotApplicable("node A is in another process");
    };
    // SAFETY: eight aligned bytes of a region that outlives this, which everybody accesses by atomics.
    let word = unsafe { AtomicU64::from_ptr(base.cast().as_ptr()) };
    let (remote, result) = (pair.a.remote(0), [pair.b.sge(0, 8)]);
    let mut own = 0;
    for id in 0..ADDITIONS {
        let add = Op::FetchAdd { remote, add: 1 };
        pair.b.post(id, add, Payload::Gather(&result));
        let wc = until(fixture.patience, "an addition", || {
            word.fetch_add(1 << 32, Ordering::AcqRel);
            own += 1;
            pair.b.send.take()
        });
        assert!(wc.is_ok(), "{wc:?}");
    }
    assert_eq!(word.load(Ordering::Acquire), ADDITIONS | own << 32);
    Outcome::Holds
}

/// Atomics among WRITEs and READs of one queue pair are carried out in their order, and complete in it.
pub fn atomics_keep_their_order_among_others(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    for round in 0..20u64 {
        let remote = pair.b.remote(128);
        let value = round << 8;
        pair.a.set_word(0, value);
        let swap = Op::CompareSwap {
            remote,
            expect: value + 3,
            swap: value + 7,
        };
        let requests = [
            (Op::Write { remote, imm: None }, 0),
            (Op::FetchAdd { remote, add: 3 }, 8),
            (swap, 16),
            (Op::Read { remote }, 24),
            (Op::FetchAdd { remote, add: 1 }, 32),
        ];
        for (id, (op, at)) in requests.into_iter().enumerate() {
            let sges = [pair.a.sge(at, 8)];
            pair.a.post(id as u64, op, Payload::Gather(&sges));
        }
        for id in 0..requests.len() {
            pair.sent_ok(id as u64);
        }
        let found = [8, 16, 24, 32].map(|at| pair.a.word(at));
        assert_eq!(found, [value, value + 3, value + 7, value + 7]);
        assert_eq!(pair.b.word(128), value + 8);
    }
}
