//! Every operation on every transport, messages of every size, and the forms of a payload.

use super::Fixture;
use super::rig::{CONNECTED, Options, Pair, SEND, TRANSPORTS, opcode, pattern};
use verbs::attr::{Mtu, Transport};
use verbs::error::{PostError, PostReason};
use verbs::names::RemoteAddr;
use verbs::rules;
use verbs::wc::{WcFlags, WcOpcode};
use verbs::wr::{GRH_LEN, Op, Payload, SendFlags};

fn operations(remote: RemoteAddr) -> [Op; 7] {
    [
        SEND,
        Op::Send { imm: Some(1) },
        Op::Write { remote, imm: None },
        Op::Write {
            remote,
            imm: Some(2),
        },
        Op::Read { remote },
        Op::CompareSwap {
            remote,
            expect: 0,
            swap: 1,
        },
        Op::FetchAdd { remote, add: 1 },
    ]
}

/// Each operation that a transport carries completes, with the opcode of its kind, and the ones
/// that consume a RECV complete that too.
pub fn every_carried_operation_completes(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(fixture, transport);
        let remote = pair.b.remote(4096);
        for (id, op) in operations(remote).into_iter().enumerate() {
            if !rules::carries(transport, &op) {
                continue;
            }
            let id = id as u64;
            let imm = match op {
                Op::Send { imm } => Some((WcOpcode::Recv, imm)),
                Op::Write {
                    imm: imm @ Some(_), ..
                } => Some((WcOpcode::RecvWriteImm, imm)),
                _ => None,
            };
            if imm.is_some() {
                pair.b.post_recv(100 + id, 0, 256);
            }
            let sges = [pair.a.sge(0, 8)];
            pair.a.post(id, op, Payload::Gather(&sges));
            let wc = pair.sent_ok(id);
            assert_eq!(wc.opcode, opcode(&op), "{transport:?}");
            if let Some((opcode, imm)) = imm {
                let wc = pair.received_ok(100 + id);
                assert_eq!((wc.opcode, wc.immediate()), (opcode, imm), "{transport:?}");
            }
        }
    }
}

/// An operation that a transport does not carry is refused when posted, and nothing of it happens.
pub fn operations_not_carried_are_refused(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(fixture, transport);
        let remote = pair.b.remote(0);
        for op in operations(remote) {
            if rules::carries(transport, &op) {
                continue;
            }
            let sges = [pair.a.sge(0, 8)];
            let wr = pair.a.wr(0, op, Payload::Gather(&sges));
            let refused = PostError {
                index: 0,
                reason: PostReason::Operation(transport),
            };
            assert_eq!(pair.a.qp.post_send(&[wr]), Err(refused), "{op:?}");
        }
        pair.flush_through();
    }
}

/// A datagram without an address, a connected request with one, and payloads that an operation
/// cannot have are refused.
pub fn malformed_requests_are_refused(fixture: &Fixture) {
    let mut ud = Pair::new(fixture, Transport::Ud);
    let mut rc = Pair::new(fixture, Transport::Rc);
    let mut wr = ud.a.wr(0, SEND, Payload::Inline(b"x"));
    wr.to = None;
    let refused = |reason| Err(PostError { index: 0, reason });
    assert_eq!(ud.a.qp.post_send(&[wr]), refused(PostReason::Address));
    wr.to = ud.a.to;
    assert_eq!(rc.a.qp.post_send(&[wr]), refused(PostReason::Address));

    let remote = rc.b.remote(0);
    let read =
        rc.a.wr(0, Op::Read { remote }, Payload::Inline(b"12345678"));
    assert_eq!(rc.a.qp.post_send(&[read]), refused(PostReason::Payload));
    let add = Op::FetchAdd { remote, add: 1 };
    for sges in [
        vec![rc.a.sge(0, 4)],
        vec![rc.a.sge(0, 16)],
        vec![rc.a.sge(0, 4), rc.a.sge(4, 4)],
    ] {
        let wr = rc.a.wr(0, add, Payload::Gather(&sges));
        assert_eq!(rc.a.qp.post_send(&[wr]), refused(PostReason::Payload));
    }
    rc.flush_through();
    ud.flush_through();
}

/// SEND, WRITE and READ carry messages of no byte, of one, around the path's packet size, of many
/// packets, and of 1 MiB, from and to odd addresses, and touch no byte beside them.
pub fn messages_of_every_size_arrive_whole(fixture: &Fixture) {
    const MTU: usize = 1024;
    let sizes = [0, 1, 7, 64, MTU - 1, MTU, MTU + 1, 3 * MTU + 5, 1 << 20];
    for transport in CONNECTED {
        let options = Options {
            region_len: (2 << 20) + 8192,
            mtu: Mtu::B1024,
            ..Options::default()
        };
        let mut pair = Pair::with(fixture, transport, &options);
        for (round, len) in sizes.into_iter().enumerate() {
            let seed = round as u64;
            let (from, to) = (3 + round, 4096 + 5 + 2 * round);
            let sges = [pair.a.sge(from, len)];
            let payload = Payload::Gather(&sges);

            let sent = pair.a.fill(from, len, seed);
            pair.b.region.write(to - 1, &vec![0xee; len + 2]);
            pair.b.post_recv(1, to, len);
            pair.a.post(1, SEND, payload);
            pair.sent_ok(1);
            let wc = pair.received_ok(1);
            assert_eq!(wc.byte_len as usize, len, "{transport:?}");
            let around = [&[0xee][..], &sent, &[0xee]].concat();
            assert!(
                pair.b.bytes(to - 1, len + 2) == around,
                "SEND of {len} bytes"
            );

            let sent = pair.a.fill(from, len, seed + 100);
            let remote = pair.b.remote(to);
            pair.a.post(2, Op::Write { remote, imm: None }, payload);
            pair.sent_ok(2);
            let around = [&[0xee][..], &sent, &[0xee]].concat();
            pair.arrives(to - 1, &around, &format!("a WRITE of {len} bytes"));

            if transport == Transport::Rc {
                let there = pair.b.fill(to, len, seed + 200);
                pair.a.region.write(from - 1, &vec![0xdd; len + 2]);
                pair.a.post(3, Op::Read { remote }, payload);
                let wc = pair.sent_ok(3);
                assert_eq!(wc.byte_len as usize, len);
                let around = [&[0xdd][..], &there, &[0xdd]].concat();
                assert!(
                    pair.a.bytes(from - 1, len + 2) == around,
                    "READ of {len} bytes"
                );
            }
        }
    }
}

/// Payloads are gathered from several elements and scattered over several, some of them empty,
/// wherever their boundaries are; what a message does not fill stays as it is.
pub fn several_elements_gather_and_scatter(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let header = if transport == Transport::Ud {
            GRH_LEN
        } else {
            0
        };
        let mut pair = Pair::new(fixture, transport);
        let sent = pair.a.fill(0, 300, 1);
        let from = [
            pair.a.sge(0, 100),
            pair.a.sge(100, 1),
            pair.a.sge(101, 0),
            pair.a.sge(101, 199),
        ];
        pair.b.region.write(0, &[0xee; 1024]);
        let to = [
            pair.b.sge(600, 0),
            pair.b.sge(0, header + 33),
            pair.b.sge(200, 150),
            pair.b.sge(500, 500),
        ];
        pair.b.post_recv_of(1, &to);
        pair.a.post(1, SEND, Payload::Gather(&from));
        pair.sent_ok(1);
        assert_eq!(pair.received_ok(1).byte_len as usize, header + 300);
        let got = [
            pair.b.bytes(header, 33),
            pair.b.bytes(200, 150),
            pair.b.bytes(500, 117),
        ];
        assert!(got.concat() == sent, "{transport:?}");
        assert_eq!(pair.b.bytes(617, 383), [0xee; 383], "{transport:?}");

        if transport == Transport::Rc {
            let there = pair.b.fill(4096, 300, 2);
            let into = [pair.a.sge(1000, 250), pair.a.sge(2000, 50)];
            let remote = pair.b.remote(4096);
            pair.a.post(2, Op::Read { remote }, Payload::Gather(&into));
            assert_eq!(pair.sent_ok(2).byte_len, 300);
            let got = [pair.a.bytes(1000, 250), pair.a.bytes(2000, 50)];
            assert!(got.concat() == there);
        }
    }
}

/// A request without any element is an empty message.
pub fn a_message_may_have_no_elements(fixture: &Fixture) {
    for transport in CONNECTED {
        let mut pair = Pair::new(fixture, transport);
        pair.b.post_recv_of(1, &[]);
        pair.a
            .post(1, Op::Send { imm: Some(9) }, Payload::Gather(&[]));
        pair.sent_ok(1);
        let wc = pair.received_ok(1);
        assert_eq!((wc.byte_len, wc.immediate()), (0, Some(9)));
    }
}

/// Inline bytes arrive as others do, in one piece or in parts, and their buffer may be reused as
/// soon as the post has returned.
pub fn inline_bytes_are_taken_when_posted(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let header = if transport == Transport::Ud {
            GRH_LEN
        } else {
            0
        };
        let mut pair = Pair::new(fixture, transport);
        let len = Options::default().caps.inline_max as usize;
        for (id, len) in [(1, 1), (2, 17), (3, len)] {
            let bytes = pattern(id, len);
            let (left, right) = bytes.split_at(len / 3);
            for payload in [
                Payload::Inline(&bytes),
                Payload::InlineParts(&[left, &[], right]),
            ] {
                pair.b.post_recv(id, 0, header + len);
                pair.a.post(id, SEND, payload);
                pair.sent_ok(id);
                assert_eq!(pair.received_ok(id).byte_len as usize, header + len);
                assert_eq!(pair.b.bytes(header, len), bytes, "{transport:?}");
            }
        }
        // No RECV yet on RC, so that the bytes are still needed when their buffer changes.
        let mut bytes = pattern(9, len);
        if transport != Transport::Rc {
            pair.b.post_recv(4, 0, header + len);
        }
        pair.a.post(4, SEND, Payload::Inline(&bytes));
        bytes.fill(0);
        if transport == Transport::Rc {
            pair.b.post_recv(4, 0, header + len);
        }
        pair.sent_ok(4);
        pair.received_ok(4);
        assert_eq!(pair.b.bytes(header, len), pattern(9, len), "{transport:?}");
    }
}

/// Inline WRITEs put the same bytes in place as others.
pub fn inline_writes_arrive(fixture: &Fixture) {
    for transport in CONNECTED {
        let mut pair = Pair::new(fixture, transport);
        for len in [0, 1, 8, 63, 64] {
            let bytes = pattern(len as u64, len);
            let remote = pair.b.remote(77);
            let op = Op::Write { remote, imm: None };
            pair.a.post(1, op, Payload::Inline(&bytes));
            pair.sent_ok(1);
            pair.arrives(77, &bytes, "an inline WRITE");
        }
    }
}

/// Immediate data comes out as it went in, and only where there was some.
pub fn immediate_data_arrives(fixture: &Fixture) {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(fixture, transport);
        for (id, imm) in [
            (1, Some(0)),
            (2, Some(u32::MAX)),
            (3, Some(0x0102_0304)),
            (4, None),
        ] {
            pair.b.post_recv(id, 0, 64);
            pair.a.post(id, Op::Send { imm }, Payload::Inline(b"abc"));
            pair.sent_ok(id);
            let wc = pair.received_ok(id);
            assert_eq!(wc.immediate(), imm, "{transport:?}");
            assert_eq!(wc.flags.contains(WcFlags::GRH), transport == Transport::Ud);
        }
    }
}

/// WRITE with immediate data consumes a RECV without touching its buffer, and its bytes are in
/// place when the receiver sees the completion.
pub fn write_with_immediate_completes_after_its_data(fixture: &Fixture) {
    for transport in CONNECTED {
        let mut pair = Pair::new(fixture, transport);
        for (id, len) in [(1, 0), (2, 1), (3, 5000)] {
            let bytes = pair.a.fill(0, len, id);
            pair.b.region.write(0, &[0xee; 64]);
            pair.b.post_recv(id, 0, 64);
            let remote = pair.b.remote(1001);
            let imm = Some(id as u32);
            let sges = [pair.a.sge(0, len)];
            pair.a
                .post(id, Op::Write { remote, imm }, Payload::Gather(&sges));
            let wc = pair.received_ok(id);
            assert!(pair.b.bytes(1001, len) == bytes, "{transport:?}");
            assert_eq!(wc.opcode, WcOpcode::RecvWriteImm);
            assert_eq!((wc.immediate(), wc.byte_len as usize), (imm, len));
            assert_eq!(pair.b.bytes(0, 64), [0xee; 64]);
            pair.sent_ok(id);
        }
    }
}

/// WRITE, READ and atomics complete without any call on the node whose memory they concern.
pub fn one_sided_operations_need_no_call_at_the_target(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    let there = pair.b.fill(2048, 3000, 1);
    let bytes = pair.a.fill(0, 3000, 2);
    let (from, into) = ([pair.a.sge(0, 3000)], [pair.a.sge(4096, 3000)]);
    let (word, counter) = ([pair.a.sge(8192, 8)], pair.b.remote(0));
    let (old, new) = (pair.b.remote(2048), pair.b.remote(8192));
    let add = Op::FetchAdd {
        remote: counter,
        add: 5,
    };
    let swap = Op::CompareSwap {
        remote: counter,
        expect: 5,
        swap: 6,
    };
    let requests = [
        (Op::Read { remote: old }, &from[..0]),
        (Op::Read { remote: old }, &into[..]),
        (
            Op::Write {
                remote: new,
                imm: None,
            },
            &from[..],
        ),
        (add, &word[..]),
        (swap, &word[..]),
    ];
    for (id, (op, sges)) in requests.into_iter().enumerate() {
        pair.a.post(id as u64, op, Payload::Gather(sges));
        let what = format!("{op:?} with only the initiator polling");
        let wc = super::rig::until(fixture.patience, &what, || pair.a.send.take());
        assert!(wc.is_ok() && wc.id == id as u64, "{wc:?}");
    }
    assert!(pair.a.bytes(4096, 3000) == there);
    assert!(pair.b.bytes(8192, 3000) == bytes);
    assert_eq!((pair.b.word(0), pair.a.word(8192)), (6, 5));
}

/// A READ sees what a WRITE before it on the same queue pair put there.
pub fn a_read_sees_the_write_before_it(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    for (id, len) in [(0, 1), (2, 64), (4, 4097), (6, 20_000)] {
        let bytes = pair.a.fill(0, len, id);
        let (from, into) = ([pair.a.sge(0, len)], [pair.a.sge(32_768, len)]);
        let remote = pair.b.remote(100);
        let write = pair
            .a
            .wr(id, Op::Write { remote, imm: None }, Payload::Gather(&from));
        let mut read = pair
            .a
            .wr(id + 1, Op::Read { remote }, Payload::Gather(&into));
        read.flags |= SendFlags::SIGNALED;
        pair.a.post_all(&[write, read]);
        pair.sent_ok(id);
        pair.sent_ok(id + 1);
        assert!(pair.a.bytes(32_768, len) == bytes, "{len} bytes");
    }
}
