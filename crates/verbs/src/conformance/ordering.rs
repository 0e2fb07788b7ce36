//! What comes before what: messages, completions, bytes.

use std::sync::atomic::{AtomicU64, Ordering};

use super::rig::{CONNECTED, Options, Pair, SEND, TRANSPORTS, until};
use super::{Fixture, Outcome};
use crate::attr::Transport;
use crate::mem;
use crate::wc::WcStatus;
use crate::wr::{GRH_LEN, Op, Payload, SendFlags};

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
/// become visible in address order, the last ones last. Shown on local memory by a second thread.
pub fn the_last_bytes_of_a_write_appear_last(fixture: &Fixture) -> Outcome {
    for transport in CONNECTED {
        let mut pair = Pair::new(fixture, transport);
        if pair.b.region.base().is_none() {
            return Outcome::NotApplicable("the target's memory is in another process");
        }
        let lens = [8, 16, 24, 56, 64, 72, 128, 200, 1000, 2048, 4088, 4096];
        let cases: Vec<(usize, usize)> = lens
            .into_iter()
            .flat_map(|len| [0, 1, 3, 8, 40, 61].map(|skew| (len, skew)))
            .collect();
        for (round, (len, skew)) in (1..).zip(cases) {
            // The word at the end is aligned, as a poller's must be; the start is where it falls.
            let end = 8192 + 64;
            let start = end - len - skew;
            let region = pair.b.region.clone();
            let before = vec![0xaa; end - start];
            pair.b.region.write(start, &before);
            let patience = fixture.patience;
            let seen = std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    let base = region.base().expect("checked above").as_ptr() as usize;
                    let last = (base + end - 8) as *mut u64;
                    // SAFETY: an aligned word inside the region, which outlives this scope.
                    let last = unsafe { AtomicU64::from_ptr(last) };
                    let old = u64::from_ne_bytes([0xaa; 8]);
                    until(patience, "the last word to change", || {
                        let changed = || last.load(Ordering::Acquire) != old;
                        (0..1000).any(|_| changed()).then_some(())
                    });
                    let mut seen = vec![0; end - start];
                    let from = (base + start) as *const u8;
                    // SAFETY: the range lies inside the region, which outlives this scope.
                    unsafe { mem::fetch(seen.as_mut_ptr(), from, seen.len()) };
                    seen
                });
                let new = vec![round as u8; end - start];
                pair.a.region.write(0, &new);
                let sges = [pair.a.sge(0, new.len())];
                let remote = pair.b.remote(start);
                let op = Op::Write { remote, imm: None };
                pair.a.post(1, op, Payload::Gather(&sges));
                pair.sent_ok(1);
                reader.join().expect("a reader that sees the word change")
            });
            let new = vec![round as u8; end - start];
            assert!(
                seen == new,
                "{transport:?}: {len} bytes, {skew} more before them"
            );
        }
    }
    Outcome::Holds
}
