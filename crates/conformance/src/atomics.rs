//! Compare-and-swap and fetch-and-add.

use super::Fixture;
use super::rig::{Node, Options, Pair, connect, until};
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
