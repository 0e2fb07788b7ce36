//! Batches, lent messages, and queue pairs in halves.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Fixture;
use super::rig::{
    CONNECTED, Options, Pair, QKEY, SEND, TRANSPORTS, lending, pattern, steps, until,
};
use verbs::attr::{Access, LentRecvs, QpAttr, QpState, Transport};
use verbs::batch::{Dest, SendBatch};
use verbs::error::PostReason;
use verbs::names::{RemoteAddr, Rkey};
use verbs::nic::remote_addr;
use verbs::polled::Polled;
use verbs::wc::{Wc, WcStatus};
use verbs::wr::{GRH_LEN, Op, Payload, RecvWr, SendFlags, SendWr};

/// A list may be longer than the batches that carry it.
pub fn a_list_longer_than_a_batch_is_posted_in_order(fixture: &Fixture) {
    const COUNT: usize = 40;
    let mut pair = Pair::new(fixture, Transport::Rc);
    for id in 0..COUNT {
        pair.b.post_recv(id as u64, id * 8, 8);
    }
    let words: Vec<_> = (0..COUNT as u64).map(u64::to_le_bytes).collect();
    let wrs: Vec<_> = words
        .iter()
        .enumerate()
        .map(|(id, word)| pair.a.wr(id as u64, SEND, Payload::Inline(word)))
        .collect();
    pair.a.post_all(&wrs);
    for id in 0..COUNT as u64 {
        pair.sent_ok(id);
        pair.received_ok(id);
        assert_eq!(pair.b.word(id as usize * 8), id);
    }
}

/// A draft that is dropped leaves nothing behind, neither bytes nor elements.
pub fn an_abandoned_draft_is_not_posted(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    pair.a.fill(0, 64, 1);
    let gathered = pair.a.bytes(8, 8);
    for id in 0..2 {
        pair.b.post_recv(id, 64 * id as usize, 64);
    }
    let mut batch = SendBatch::new(pair.a.qp.send.limits(), 2);
    for round in 0..2 {
        batch.clear();
        if let Ok(mut draft) = batch.inline(SEND, None, 64) {
            draft.bytes().fill(0xee);
        }
        let abandoned = batch.gather(SEND, None, &[pair.a.sge(0, 4); 3]);
        drop(abandoned.expect("three elements"));
        if round == 0 {
            let posted = pair.a.qp.send.post(&batch);
            assert_eq!(posted, Ok(()), "an empty batch");
        }
    }
    let mut draft = batch.inline(SEND, None, 64).expect("room");
    draft.bytes()[..5].copy_from_slice(b"hello");
    draft.id(0).flags(SendFlags::SIGNALED).commit(5);
    let sges = [pair.a.sge(8, 8)];
    let draft = batch.gather(SEND, None, &sges).expect("room");
    draft.id(1).flags(SendFlags::SIGNALED).commit_gathered();
    let full = batch.inline(SEND, None, 1).map(|_| ());
    assert_eq!(full, Err(PostReason::BatchFull));
    pair.a.qp.send.post(&batch).expect("posted");
    for (id, expected) in [b"hello".to_vec(), gathered].into_iter().enumerate() {
        pair.sent_ok(id as u64);
        let wc = pair.received_ok(id as u64);
        assert_eq!(wc.byte_len as usize, expected.len());
        assert_eq!(pair.b.bytes(64 * id, expected.len()), expected);
    }
    pair.stays_quiet("two requests were posted");
}

/// Bytes that the sender keeps go as they are when the batch is posted, beside others, and again when
/// the batch was emptied.
pub fn kept_bytes_are_sent_as_they_are_when_posted(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    let mut batch = SendBatch::with_kept(pair.a.qp.send.limits(), 3, 40);
    assert_eq!(
        (batch.kept().len(), batch.kept().as_ptr().addr() % 64),
        (40, 0)
    );
    batch.kept_mut()[13..40].copy_from_slice(&[3; 27]);
    for round in 0..2u64 {
        let signaled = |id| (id, SendFlags::SIGNALED);
        let composed = batch.push_kept_mut(SEND, None, 13..21, signaled(0));
        composed.expect("room").fill(4 + round as u8);
        let inline = batch.push_inline(SEND, None, 61, signaled(1));
        inline.expect("room").fill(0xee);
        batch
            .push_kept(SEND, None, 0..40, signaled(2))
            .expect("room");
        let full = batch.push_kept(SEND, None, 0..1, signaled(3));
        assert_eq!(full, Err(PostReason::BatchFull));
        batch.set_imm(2, 7 + round as u32);
        batch.kept_mut()[0] = round as u8;
        let kept = batch.kept().to_vec();
        let expected = [(kept[13..21].to_vec(), None), (vec![0xee; 61], None)];
        let last = (kept, Some(7 + round as u32));
        for id in 0..3 {
            pair.b.post_recv(id, 64 * id as usize, 64);
        }
        pair.a.qp.send.post(&batch).expect("posted");
        batch.clear();
        for (id, (bytes, imm)) in expected.into_iter().chain([last]).enumerate() {
            pair.sent_ok(id as u64);
            let wc = pair.received_ok(id as u64);
            assert_eq!((wc.byte_len as usize, wc.immediate()), (bytes.len(), imm));
            assert_eq!(pair.b.bytes(64 * id, bytes.len()), bytes);
        }
    }
    let long = batch.limits().inline_max as usize + 1;
    let mut batch = SendBatch::with_kept(*batch.limits(), 1, long);
    let refused = batch.push_kept(SEND, None, 0..long, (0, SendFlags::empty()));
    assert_eq!(refused, Err(PostReason::InlineTooLong));
    assert!(batch.is_empty());
}

/// WRITEs of a batch are carried out up to the first that the peer refuses, whichever region the others
/// go to, and those behind it are flushed.
pub fn a_batch_of_writes_stops_at_the_first_that_is_refused(fixture: &Fixture) {
    for odd in 0..4 {
        let mut pair = Pair::new(fixture, Transport::Rc);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let other = pair.b.node.region(64, access);
        let read_only = pair.b.node.region(64, Access::LOCAL_WRITE);
        let mut batch = SendBatch::new(pair.a.qp.send.limits(), 8);
        for id in 0..8u64 {
            let at = 8 * id as usize;
            let remote = match (id, odd) {
                (5, 0) => pair.b.remote(pair.b.region.len() - 7),
                (5, 1) => remote_addr(&*other, 57),
                (5, 2) => remote_addr(&*read_only, at),
                (5, 3) => RemoteAddr {
                    rkey: Rkey(pair.b.remote(0).rkey.0 ^ 1),
                    ..pair.b.remote(at)
                },
                _ if id % 3 == 1 => remote_addr(&*other, at),
                _ => pair.b.remote(at),
            };
            let op = Op::Write { remote, imm: None };
            let mut draft = batch.inline(op, None, 8).expect("room");
            draft.bytes().copy_from_slice(&(id + 1).to_le_bytes());
            draft.id(id).flags(SendFlags::SIGNALED).commit(8);
        }
        pair.a.qp.send.post(&batch).expect("posted");
        for id in 0..8u64 {
            let status = match id {
                0..5 => WcStatus::Success,
                5 => WcStatus::RemAccessErr,
                _ => WcStatus::WrFlushErr,
            };
            pair.sent_as(id, status);
            let mut word = [0; 8];
            match id % 3 == 1 {
                true => other.read(8 * id as usize, &mut word),
                false => pair.b.region.read(8 * id as usize, &mut word),
            }
            let expected = if id < 5 { id + 1 } else { 0 };
            assert_eq!(u64::from_le_bytes(word), expected, "{id}, {odd}");
        }
    }
}

/// Datagrams to a prepared destination arrive like those to its parts, also when the hint is wrong.
pub fn a_prepared_destination_is_used(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Ud);
    let to = pair.a.to.expect("a destination");
    let prepared = pair.a.qp.send.prepare(&to).expect("it is there");
    assert_eq!(prepared.to, to);
    let wrong = Dest {
        hint: prepared.hint ^ 5,
        ..prepared
    };
    let mut batch = SendBatch::new(pair.a.qp.send.limits(), 8);
    let unknown = verbs::wr::UdDest {
        ah: verbs::AhNum(u32::MAX),
        ..to
    };
    pair.a
        .qp
        .send
        .prepare(&unknown)
        .expect_err("no such handle");
    for (id, dest) in [prepared, Dest::from(to), wrong].into_iter().enumerate() {
        pair.b.post_recv(id as u64, 128 * id, 128);
        let mut draft = batch.inline(SEND, Some(dest), 8).expect("room");
        draft.bytes().fill(id as u8 + 1);
        draft.id(id as u64).flags(SendFlags::SIGNALED).commit(8);
    }
    pair.a.qp.send.post(&batch).expect("posted");
    for id in 0..3 {
        pair.sent_ok(id);
        let wc = pair.received_ok(id);
        assert_eq!(wc.byte_len as usize, GRH_LEN + 8);
        let bytes = pair.b.bytes(128 * id as usize + GRH_LEN, 8);
        assert_eq!(bytes, [id as u8 + 1; 8]);
    }
}

/// Polls B's queue for lent messages until there are so many.
fn take_lent(pair: &mut Pair, fixture: &Fixture, count: usize, bytes: usize) -> Vec<(Wc, Vec<u8>)> {
    let mut polled = Polled::with_bytes(4, bytes);
    let mut taken = Vec::new();
    until(fixture.patience, "lent messages", || {
        pair.a.poll();
        let found = pair.b.recv.cq.poll(&mut polled).expect("no overrun");
        assert_eq!(found, polled.completions().len());
        taken.extend(polled.iter().map(|(wc, message)| {
            let message = message.unwrap_or_else(|| panic!("no message with {wc:?}"));
            (*wc, message.to_vec())
        }));
        (taken.len() >= count).then_some(())
    });
    taken
}

/// Waits for a request of A without polling B, whose messages are lent but once.
fn sent_alone(pair: &mut Pair, fixture: &Fixture, id: u64) {
    let wc = until(fixture.patience, "a request to complete", || {
        pair.a.send.take()
    });
    assert_eq!((wc.id, wc.status), (id, WcStatus::Success), "{wc:?}");
}

/// Messages of all lengths are lent whole, in order, with their header (UD) and immediate data.
/// A poller may bring less memory than they need in all.
pub fn lent_messages_arrive_whole(fixture: &Fixture) {
    let lens = [0, 1, 8, 48, 49, 600, 1024, 4096, 5000, 20_000];
    for transport in TRANSPORTS {
        let lent = LentRecvs {
            count: 16,
            len: 20_000,
        };
        let mut pair = lending(fixture, transport, lent);
        let (longest, header) = match transport {
            Transport::Ud => (1024, GRH_LEN),
            _ => (20_000, 0),
        };
        let lens = lens.iter().copied().filter(|len| *len <= longest);
        let lens: Vec<usize> = lens.collect();
        for (id, len) in lens.iter().enumerate() {
            pair.a.fill(0, *len, id as u64);
            let (op, sges) = (
                Op::Send {
                    imm: Some(id as u32),
                },
                [pair.a.sge(0, *len)],
            );
            pair.a.post(id as u64, op, Payload::Gather(&sges));
            sent_alone(&mut pair, fixture, id as u64);
        }
        let taken = take_lent(&mut pair, fixture, lens.len(), 2000);
        assert_eq!(taken.len(), lens.len(), "{transport:?}");
        for (id, (wc, message)) in taken.iter().enumerate() {
            assert_eq!(wc.status, WcStatus::Success, "{transport:?}: {wc:?}");
            assert_eq!(wc.immediate(), Some(id as u32), "{transport:?}: {wc:?}");
            assert_eq!(wc.byte_len as usize, message.len());
            assert_eq!(wc.qpn, pair.b.qp.num());
            let expected = pattern(id as u64, lens[id]);
            assert_eq!(
                message[header..],
                expected,
                "{transport:?}, {} bytes",
                lens[id]
            );
        }
    }
}

/// There are as many RECVs as were asked for, and each is there again once its message has been
/// polled; a reliable sender waits for that.
pub fn lent_recvs_are_posted_again(fixture: &Fixture) {
    const COUNT: usize = 30;
    for transport in CONNECTED {
        let mut pair = lending(fixture, transport, LentRecvs { count: 4, len: 64 });
        let mut taken = Vec::new();
        for id in 0..COUNT {
            let bytes = (id as u64).to_le_bytes();
            pair.a.post(id as u64, SEND, Payload::Inline(&bytes));
            if transport == Transport::Uc || id % 5 == 4 {
                let count = if transport == Transport::Uc { 1 } else { 5 };
                taken.extend(take_lent(&mut pair, fixture, count, 64));
            }
        }
        let ids: Vec<_> = taken.iter().map(|(_, message)| message[0]).collect();
        let expected: Vec<_> = (0..COUNT as u8).collect();
        assert_eq!(ids, expected, "{transport:?}");
        for id in 0..COUNT as u64 {
            pair.sent_ok(id);
        }
        // What is longer than was agreed fails as with a RECV that is too short.
        if transport == Transport::Rc {
            let sges = [pair.a.sge(0, 65)];
            pair.a.post(99, SEND, Payload::Gather(&sges));
            pair.sent_as(99, WcStatus::RemInvReqErr);
        }
    }
}

/// Nobody else posts RECVs there, and an error flushes none.
pub fn lent_recvs_are_not_the_users(fixture: &Fixture) {
    let mut pair = lending(fixture, Transport::Rc, LentRecvs { count: 4, len: 64 });
    let sges = [pair.b.sge(0, 64)];
    let refused = pair.b.qp.post_recv(&[RecvWr { id: 1, sges: &sges }]);
    assert_eq!(refused.map_err(|e| e.reason), Err(PostReason::LentRecvs));
    pair.b.qp.modify(&QpAttr::to(QpState::Err)).expect("ERR");
    pair.stays_quiet("nobody posted a RECV");
    // From RESET on they are there again.
    let options = Options::default();
    for qp in [&pair.a.qp, &pair.b.qp] {
        qp.modify(&QpAttr::to(QpState::Reset)).expect("RESET");
    }
    pair.connect(&options);
    for id in 0..4 {
        pair.a.post(id, SEND, Payload::Inline(b"again"));
        sent_alone(&mut pair, fixture, id);
    }
    let taken = take_lent(&mut pair, fixture, 4, 64);
    assert!(taken.iter().all(|(_, message)| message == b"again"));
}

/// The control half belongs to any thread: states change while others post sends and RECVs.
pub fn states_change_while_the_halves_are_in_use(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let options = Options::default();
        let mut pair = Pair::with(fixture, transport, &options);
        let peer = (pair.b.node.gid, pair.b.qp.num());
        let sges = [pair.a.sge(0, 64)];
        let dest = pair.a.to.map(|to| verbs::wr::UdDest { qkey: QKEY, ..to });
        let over = AtomicBool::new(false);
        let qp = &mut pair.a.qp;
        let (ctl, send, recv) = (&qp.ctl, &mut qp.send, &mut qp.recv);
        let (sends, recvs) = (&mut pair.a.send, &mut pair.a.recv);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut batch = SendBatch::new(send.limits(), 4);
                for id in 0..4 {
                    let wr = SendWr {
                        id,
                        op: SEND,
                        payload: Payload::Gather(&sges),
                        flags: SendFlags::SIGNALED,
                        to: dest,
                    };
                    batch.push(&wr).expect("room");
                }
                while !over.load(Ordering::Relaxed) {
                    // Taken or refused, as the state says.
                    let _ = send.post(&batch);
                    sends.poll();
                    sends.seen.clear();
                }
            });
            let receiver = scope.spawn(|| {
                let mut batch = verbs::RecvBatch::default();
                batch.push(1, &sges);
                while !over.load(Ordering::Relaxed) {
                    let _ = recv.post(&batch);
                    recvs.poll();
                    recvs.seen.clear();
                }
            });
            for round in 0..20 {
                let via = if round % 2 == 0 {
                    QpState::Err
                } else {
                    QpState::Reset
                };
                ctl.modify(&QpAttr::to(via)).expect("from RTS");
                ctl.modify(&QpAttr::to(QpState::Reset)).expect("RESET");
                for attr in steps(transport, ctl.num(), peer, &options) {
                    ctl.modify(&attr).expect("to RTS");
                }
            }
            over.store(true, Ordering::Relaxed);
            sender.join().expect("the sender ends");
            receiver.join().expect("the receiver ends");
        });
    }
}
