//! What comes before what: messages, completions, bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::Fixture;
use super::rig::{CONNECTED, Options, Pair, SEND, TRANSPORTS, until};
use verbs::attr::Transport;
use verbs::nic::{NicMr, remote_addr};
use verbs::wc::WcStatus;
use verbs::wr::{GRH_LEN, Op, Payload, SendFlags};

/// Messages of a queue pair arrive in the order they were posted in, and consume RECVs in the
/// order those were posted in; completions come in the same orders.
pub fn messages_and_completions_keep_their_order(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let header = if transport == Transport::Ud {
            GRH_LEN
        } else {
            0
        };
        let mut pair = Pair::new(fixture, transport);
        for round in 0..20 {
            for id in 0..10 {
                pair.b.post_recv(id, id as usize * 64, header + 8);
            }
            let bytes: Vec<[u8; 8]> = (0..10u64)
                .map(|id| (round * 10 + id).to_le_bytes())
                .collect();
            let batch: Vec<_> = (0..10)
                .map(|id| pair.a.wr(id, SEND, Payload::Inline(&bytes[id as usize])))
                .collect();
            pair.a.post_all(&batch);
            for id in 0..10 {
                pair.sent_ok(id);
                pair.received_ok(id);
                let got = pair.b.word(id as usize * 64 + header);
                assert_eq!(got, round * 10 + id, "{transport:?}");
            }
        }
    }
}

/// Requests of different kinds complete in the order they were posted in.
pub fn mixed_operations_complete_in_order(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    let remote = pair.b.remote(1024);
    let (long, word) = ([pair.a.sge(0, 8000)], [pair.a.sge(16_384, 8)]);
    for _ in 0..5 {
        let ops = [
            (Op::Read { remote }, &long[..]),
            (Op::Write { remote, imm: None }, &word[..]),
            (Op::FetchAdd { remote, add: 1 }, &word[..]),
            (Op::Write { remote, imm: None }, &long[..]),
            (Op::Read { remote }, &word[..]),
        ];
        let batch: Vec<_> = (0..)
            .zip(ops)
            .map(|(id, (op, sges))| pair.a.wr(id, op, Payload::Gather(sges)))
            .collect();
        pair.a.post_all(&batch);
        for id in 0..5 {
            pair.sent_ok(id);
        }
    }
}

/// An unsignaled request makes no completion; that of a later one says that it is done too.
pub fn unsignaled_requests_make_no_completion(fixture: &Fixture) {
    for transport in CONNECTED {
        let mut pair = Pair::new(fixture, transport);
        for round in 0..3 {
            let bytes = pair.a.fill(0, 800, round);
            for id in 0..8 {
                let sges = [pair.a.sge(id * 100, 100)];
                let remote = pair.b.remote(id * 100);
                let op = Op::Write { remote, imm: None };
                let mut wr = pair.a.wr(id as u64, op, Payload::Gather(&sges));
                wr.flags.set(SendFlags::SIGNALED, id == 7);
                pair.a.post_all(&[wr]);
            }
            pair.sent_ok(7);
            if transport == Transport::Rc {
                assert!(pair.b.bytes(0, 800) == bytes, "a completion came too early");
            }
            pair.arrives(0, &bytes, "all WRITEs");
        }
        pair.stays_quiet("only one request of a round was signaled");
    }
}

/// A queue pair that signals all makes a completion for every request.
pub fn signal_all_completes_everything(fixture: &Fixture) {
    for transport in CONNECTED {
        let options = Options {
            signal_all: true,
            ..Options::default()
        };
        let mut pair = Pair::with(fixture, transport, &options);
        let remote = pair.b.remote(0);
        for id in 0..4 {
            let op = Op::Write { remote, imm: None };
            let mut wr = pair.a.wr(id, op, Payload::Inline(b"x"));
            wr.flags = SendFlags::empty();
            pair.a.post_all(&[wr]);
        }
        for id in 0..4 {
            pair.sent_ok(id);
        }
    }
}

/// An unsignaled request that fails makes a completion all the same.
pub fn an_unsignaled_failure_completes(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    let remote = pair.b.remote(pair.b.region.len());
    let mut wr = pair
        .a
        .wr(1, Op::Write { remote, imm: None }, Payload::Inline(b"x"));
    wr.flags = SendFlags::empty();
    pair.a.post_all(&[wr]);
    pair.sent_as(1, WcStatus::RemAccessErr);
}

/// A fenced request starts only when the READs before it have completed: a fenced WRITE of what a
/// READ fetched writes the fetched bytes.
pub fn a_fenced_write_follows_the_read_before_it(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    for round in 0..20 {
        let there = pair.b.fill(0, 4000, round);
        pair.a.region.write(0, &[0; 4000]);
        let sges = [pair.a.sge(0, 4000)];
        let (source, target) = (pair.b.remote(0), pair.b.remote(8192));
        let read = pair
            .a
            .wr(1, Op::Read { remote: source }, Payload::Gather(&sges));
        let op = Op::Write {
            remote: target,
            imm: None,
        };
        let mut write = pair.a.wr(2, op, Payload::Gather(&sges));
        write.flags |= SendFlags::FENCE;
        pair.a.post_all(&[read, write]);
        pair.sent_ok(1);
        pair.sent_ok(2);
        assert!(pair.b.bytes(8192, 4000) == there, "round {round}");
    }
}

/// Whoever polls the last word of a WRITE and finds it new finds every byte before it new: bytes
/// become visible in address order, the last ones last. Shown on node A's memory, the NIC's and
/// the process's own, by a second thread, which is polling already when node B's WRITE is posted;
/// still a NIC that is wrong may pass when the machine has no two cores to spare.
pub fn the_last_bytes_of_a_write_appear_last(fixture: &Fixture) {
    for transport in CONNECTED {
        let mut pair = Pair::new(fixture, transport);
        let owned = pair.a.region.clone();
        last_bytes_last(fixture, &mut pair, &owned, fixture.words_appear_whole);
        if fixture.private_memory {
            let private = pair.a.node.private_region(owned.len(), None);
            // What the kernel copies comes byte by byte.
            last_bytes_last(fixture, &mut pair, &private.expect("a region"), false);
        }
    }
}

fn last_bytes_last(
    fixture: &Fixture,
    pair: &mut Pair,
    target: &Arc<dyn NicMr>,
    is_word_whole: bool,
) {
    let transport = pair.a.qp.transport();
    let lens = [8, 16, 24, 56, 64, 72, 128, 200, 1000, 2048, 4088, 4096];
    let with_skews = |len: usize| [0, 1, 3, 8, 40, 61].map(|skew| len + skew);
    let lens: Vec<usize> = lens.into_iter().flat_map(with_skews).collect();
    // Which round the writer has prepared, and which one the reader polls for and has checked.
    let (prepared, polling) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let checked = AtomicUsize::new(0);
    let patience = fixture.patience;
    let rounds = || (1..).zip(lens.iter().cycle().take(8 * lens.len()));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for (round, len) in rounds() {
                until(patience, "the writer to prepare a round", || {
                    (prepared.load(Ordering::Acquire) == round).then_some(())
                });
                let seen = poll_last_word(&**target, *len, (patience, is_word_whole), || {
                    polling.store(round, Ordering::Release);
                });
                let new = vec![fill(round); *len];
                assert!(seen == new, "{transport:?}: {len} bytes: {seen:?}");
                checked.store(round, Ordering::Release);
            }
        });
        for (round, len) in rounds() {
            target.write(END - len, &vec![OLD; *len]);
            prepared.store(round, Ordering::Release);
            pair.b.region.write(0, &vec![fill(round); *len]);
            // A reader that has failed says why when it is joined. An unreliable WRITE may land
            // after its completion, and for some NICs time passes only when they are asked.
            let follows = |pair: &mut Pair, step: &AtomicUsize| {
                pair.until("the reader to follow", |_| {
                    let there = step.load(Ordering::Acquire) == round;
                    (there || reader.is_finished()).then_some(())
                });
            };
            follows(pair, &polling);
            let sges = [pair.b.sge(0, *len)];
            let remote = remote_addr(&**target, END - len);
            let op = Op::Write { remote, imm: None };
            pair.b.post(1, op, Payload::Gather(&sges));
            let wc = pair.until("the WRITE", |pair| pair.b.send.seen.pop_front());
            assert!(wc.is_ok(), "{wc:?}");
            follows(pair, &checked);
        }
        reader.join().expect("a reader that found all bytes new");
    });
}

/// WRITEs of a queue pair become visible in the order they were posted in, whoever looks at a later one
/// first: a second thread, on node A's memory, while node B's WRITEs land.
pub fn writes_of_a_queue_pair_appear_in_order(fixture: &Fixture) {
    const ROUNDS: u64 = 1000;
    // The first one ends on a word, a page before the second one.
    const LEN: usize = 1024;
    const SECOND: usize = 8192;
    for transport in CONNECTED {
        let mut pair = Pair::new(fixture, transport);
        let target = pair.a.region.clone();
        target.write(0, &[0; LEN]);
        target.write(SECOND, &[0; 8]);
        let (first, second) = (word(&*target, LEN - 8), word(&*target, SECOND));
        let patience = fixture.patience;
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                until(patience, "the last WRITE", || {
                    let in_order = || {
                        let later = second.load(Ordering::Acquire);
                        let earlier = first.load(Ordering::Acquire);
                        assert!(earlier >= later, "{transport:?}: {earlier} before {later}");
                        later == ROUNDS
                    };
                    (0..10_000).any(|_| in_order()).then_some(())
                });
            });
            for round in 1..=ROUNDS {
                let bytes = round.to_ne_bytes().repeat(LEN / 8);
                pair.b.region.write(0, &bytes);
                let (sges, short) = ([pair.b.sge(0, LEN)], [pair.b.sge(0, 8)]);
                let write = |id, at, sges| {
                    let remote = remote_addr(&*target, at);
                    let op = Op::Write { remote, imm: None };
                    pair.b.wr(id, op, Payload::Gather(sges))
                };
                let both = [write(1, 0, &sges[..]), write(2, SECOND, &short[..])];
                pair.b.post_all(&both);
                for _ in both {
                    let wc = pair.until("a WRITE", |pair| pair.b.send.seen.pop_front());
                    assert!(wc.is_ok(), "{wc:?}");
                }
                // An unreliable WRITE may land after its completion, and for some NICs time passes only
                // when they are asked.
                pair.until("the WRITEs to land", |_| {
                    let landed = second.load(Ordering::Acquire) == round;
                    (landed || reader.is_finished()).then_some(())
                });
            }
            reader.join().expect("a reader that found all in order");
        });
    }
}

/// Where the WRITEs of a round end: on a word, as a poller needs it. They start where they may.
const END: usize = 8192 + 64;

/// What is there before a WRITE.
const OLD: u8 = 0xaa;

/// What a round's WRITE puts there.
fn fill(round: usize) -> u8 {
    (round % 100) as u8 + 1
}

/// Polls the word before `END` until it changes, or its last byte does where words do not appear whole, and returns the `len`
/// bytes there as they are then.
fn poll_last_word(
    region: &dyn NicMr,
    len: usize,
    (patience, is_word_whole): (Duration, bool),
    begun: impl FnOnce(),
) -> Vec<u8> {
    let last = word(region, END - 8);
    let mut seen = vec![0; len];
    begun();
    until(patience, "the last word to change", || {
        let changed = || {
            let now = last.load(Ordering::Acquire).to_ne_bytes();
            now[7] != OLD || (is_word_whole && now != [OLD; 8])
        };
        (0..10_000).any(|_| changed()).then_some(())
    });
    region.read(END - len, &mut seen);
    seen
}

/// A word of a region, as another process polls it.
fn word(region: &dyn NicMr, at: usize) -> &AtomicU64 {
    let base = region.base().expect("a region of this process").as_ptr();
    assert!(
        (base as usize + at).is_multiple_of(8) && at + 8 <= region.len(),
        "a word of the region"
    );
    // SAFETY: the word lies inside the region and is aligned, and the region outlives the reference;
    // others access it through atomics or `mem`.
    unsafe { AtomicU64::from_ptr(base.wrapping_add(at).cast()) }
}
