//! Keys, bounds and rights: what memory may be reached, and what happens otherwise.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::Fixture;
use super::rig::{CONNECTED, Node, Options, Page, Pair, SEND, connect};
use verbs::attr::{Access, QpState, Transport};
use verbs::error::VerbsError;
use verbs::names::{Iova, Lkey, RemoteAddr, Rkey, VendorErr};
use verbs::nic::{NicMr, remote_addr};
use verbs::wc::WcStatus;
use verbs::wr::{Op, Payload, Sge};

/// The operations that reach remote memory, each with the right it needs.
fn reaching(remote: RemoteAddr) -> [(Op, Access); 4] {
    let swap = Op::CompareSwap {
        remote,
        expect: 0,
        swap: 1,
    };
    [
        (Op::Write { remote, imm: None }, Access::REMOTE_WRITE),
        (Op::Read { remote }, Access::REMOTE_READ),
        (swap, Access::REMOTE_ATOMIC),
        (Op::FetchAdd { remote, add: 1 }, Access::REMOTE_ATOMIC),
    ]
}

/// A pair on which an operation of 8 bytes at `remote` is refused by the peer: the requester gets
/// `RemAccessErr` and is in ERR, the memory is untouched.
fn is_refused(mut pair: Pair, op: Op, why: &str) {
    let before = pair.b.bytes(0, pair.b.region.len());
    let sges = [pair.a.sge(0, 8)];
    pair.a.set_word(0, 0x5151_5151_5151_5151);
    pair.a.post(1, op, Payload::Gather(&sges));
    let wc = pair.sent(why);
    assert_eq!(
        (wc.id, wc.status),
        (1, WcStatus::RemAccessErr),
        "{why}: {op:?}"
    );
    pair.in_state(QpState::Err, |pair| &pair.a);
    assert!(
        pair.b.bytes(0, before.len()) == before,
        "{why}: {op:?} changed memory"
    );
}

fn small() -> Options {
    Options {
        region_len: 4096,
        ..Options::default()
    }
}

/// The first byte, the last byte and the whole of a region can be reached, and so can no byte at
/// its end.
pub fn a_region_is_reached_from_its_first_to_its_last_byte(fixture: &Fixture) {
    let mut pair = Pair::with(fixture, Transport::Rc, &small());
    let ranges = [(0, 1), (4095, 1), (0, 4096), (4096, 0), (4088, 8)];
    for (id, (offset, len)) in (1..).zip(ranges) {
        let bytes = pair.a.fill(0, len, id);
        let (sges, remote) = ([pair.a.sge(0, len)], pair.b.remote(offset));
        pair.a
            .post(id, Op::Write { remote, imm: None }, Payload::Gather(&sges));
        pair.sent_ok(id);
        assert!(
            pair.b.bytes(offset, len) == bytes,
            "{len} bytes at {offset}"
        );
        pair.a.region.write(0, &vec![0; len]);
        pair.a.post(id, Op::Read { remote }, Payload::Gather(&sges));
        pair.sent_ok(id);
        assert!(pair.a.bytes(0, len) == bytes, "{len} bytes at {offset}");
    }
}

/// No byte before or after a region can be reached, nor any by wrapping around.
pub fn nothing_outside_a_region_is_reached(fixture: &Fixture) {
    let address = |pair: &Pair, case: u8| {
        let region = &pair.b.region;
        let addr = match case {
            0 => region.addr() + 4096 - 7,
            1 => region.addr() + 4096,
            2 => region.addr() - 1,
            3 => u64::MAX - 3,
            _ => u64::MAX - 7,
        };
        RemoteAddr {
            addr,
            rkey: region.rkey(),
        }
    };
    for case in 0..5 {
        for index in 0..2 {
            let pair = Pair::with(fixture, Transport::Rc, &small());
            let remote = address(&pair, case);
            is_refused(pair, reaching(remote)[index].0, "outside the region");
        }
    }
    for case in [1, 4] {
        for index in 2..4 {
            let pair = Pair::with(fixture, Transport::Rc, &small());
            let mut remote = address(&pair, case);
            remote.addr -= remote.addr % 8;
            is_refused(pair, reaching(remote)[index].0, "outside the region");
        }
    }
}

/// A right that the region lacks is refused, whatever the queue pair grants, and the other way
/// round.
pub fn every_missing_right_is_refused(fixture: &Fixture) {
    for index in 0..4 {
        let right = reaching(RemoteAddr::default())[index].1;
        let without = Access::EVERYTHING - right;
        let region_lacks = Options {
            region_access: without,
            ..small()
        };
        let qp_lacks = Options {
            access: without,
            ..small()
        };
        for (options, why) in [
            (region_lacks, "the region lacks the right"),
            (qp_lacks, "the queue pair lacks the right"),
        ] {
            let pair = Pair::with(fixture, Transport::Rc, &options);
            let op = reaching(pair.b.remote(64))[index].0;
            is_refused(pair, op, why);
        }
    }
}

/// A connection that is to answer no READs and atomics gives no right to them, and takes WRITEs.
pub fn a_connection_that_answers_no_reads_refuses_them(fixture: &Fixture) {
    let options = Options {
        rd_atomic_max: 0,
        ..small()
    };
    for index in 1..4 {
        let mut pair = Pair::unconnected(fixture, Transport::Rc, &options);
        let (of_a, of_b) = (pair.a.qp.num(), pair.b.qp.num());
        connect(&pair.b.qp, (pair.a.node.gid, of_a), &options);
        // A NIC need not take such requests from a queue pair that may have none under way.
        connect(&pair.a.qp, (pair.b.node.gid, of_b), &small());
        let remote = pair.b.remote(64);
        let write = Op::Write { remote, imm: None };
        pair.a.post(7, write, Payload::Inline(b"taken"));
        pair.sent_ok(7);
        let sges = [pair.a.sge(0, 8)];
        let op = reaching(remote)[index].0;
        pair.a.post(1, op, Payload::Gather(&sges));
        let wc = pair.sent("a request that nobody answers");
        let refused = matches!(wc.status, WcStatus::RemAccessErr | WcStatus::RemInvReqErr);
        assert!(refused && wc.id == 1, "{op:?}: {wc:?}");
        assert_eq!(pair.b.bytes(64, 5), b"taken");
    }
}

/// Bits of the optional range are taken, whether the NIC knows them or not, and give no right.
pub fn optional_rights_are_taken(fixture: &Fixture) {
    for index in 0..4 {
        let right = reaching(RemoteAddr::default())[index].1;
        let options = |rights: Access| Options {
            region_access: rights | Access::OPTIONAL,
            access: Access::EVERYTHING,
            ..small()
        };
        let mut pair = Pair::with(fixture, Transport::Rc, &options(Access::EVERYTHING));
        let op = reaching(pair.b.remote(64))[index].0;
        let sges = [pair.a.sge(0, 8)];
        pair.a.post(1, op, Payload::Gather(&sges));
        pair.sent_ok(1);
        let pair = Pair::with(fixture, Transport::Rc, &options(Access::EVERYTHING - right));
        let op = reaching(pair.b.remote(64))[index].0;
        is_refused(pair, op, "only an optional right is there");
    }
}

/// A key that no region has is refused.
pub fn an_unknown_remote_key_is_refused(fixture: &Fixture) {
    for index in 0..4 {
        let pair = Pair::with(fixture, Transport::Rc, &small());
        let mut remote = pair.b.remote(0);
        remote.rkey = Rkey(remote.rkey.0 ^ 0x007f_ff00);
        is_refused(pair, reaching(remote)[index].0, "an unknown key");
    }
}

/// A region of another protection domain is out of a queue pair's reach, on both sides.
pub fn protection_domains_are_apart(fixture: &Fixture) {
    for index in 0..4 {
        let pair = Pair::with(fixture, Transport::Rc, &small());
        let other = Node::new(&fixture.b).region(4096, Access::EVERYTHING);
        let op = reaching(remote_addr(&*other, 0))[index].0;
        is_refused(pair, op, "another protection domain");
        let mut bytes = [0; 16];
        other.read(0, &mut bytes);
        assert_eq!(bytes, [0; 16]);
    }
    let mut pair = Pair::with(fixture, Transport::Rc, &small());
    let other = Node::new(&fixture.a).region(4096, Access::EVERYTHING);
    let sges = [Sge {
        addr: other.addr(),
        len: 8,
        lkey: other.lkey(),
    }];
    pair.a.post(1, SEND, Payload::Gather(&sges));
    pair.sent_as(1, WcStatus::LocProtErr);
}

/// An element with an unknown key, or outside its region, fails the request locally, and the peer
/// hears nothing of it.
pub fn a_bad_local_element_is_a_protection_error(fixture: &Fixture) {
    for case in 0..3 {
        let mut pair = Pair::with(fixture, Transport::Rc, &small());
        let good = pair.a.sge(0, 8);
        let bad = match case {
            0 => Sge {
                lkey: Lkey(good.lkey.0 ^ 0x007f_ff00),
                ..good
            },
            1 => pair.a.sge(4096 - 7, 8),
            _ => Sge {
                addr: u64::MAX - 3,
                ..good
            },
        };
        let remote = pair.b.remote(0);
        let op = if case == 0 {
            SEND
        } else {
            Op::Write { remote, imm: None }
        };
        pair.b.post_recv(9, 0, 64);
        pair.a.post(1, op, Payload::Gather(&[good, bad]));
        pair.sent_as(1, WcStatus::LocProtErr);
        pair.in_state(QpState::Err, |pair| &pair.a);
        assert_eq!(pair.b.bytes(0, 16), [0; 16]);
        assert!(pair.b.recv.seen.is_empty());
    }
}

/// The NIC does not write for its owner where the owner has not allowed it: results of READs and
/// atomics, and RECVs. The sender of a message hears that its peer could not take it.
pub fn writing_locally_needs_the_right(fixture: &Fixture) {
    let options = Options {
        region_access: Access::REMOTE_READ,
        ..small()
    };
    let mut pair = Pair::with(fixture, Transport::Rc, &options);
    let (remote, sges) = (pair.b.remote(0), [pair.a.sge(0, 8)]);
    pair.a.post(1, Op::Read { remote }, Payload::Gather(&sges));
    pair.sent_as(1, WcStatus::LocProtErr);

    let mut pair = Pair::with(fixture, Transport::Rc, &options);
    pair.b.post_recv(2, 0, 64);
    pair.a.post(1, SEND, Payload::Inline(b"message"));
    pair.received_as(2, WcStatus::LocProtErr);
    pair.sent_as(1, WcStatus::RemOpErr);
    assert_eq!(pair.b.bytes(0, 8), [0; 8]);
    pair.in_state(QpState::Err, |pair| &pair.b);

    let mut pair = Pair::with(fixture, Transport::Ud, &options);
    pair.b.post_recv(3, 0, 64);
    pair.a.post(1, SEND, Payload::Inline(b"datagram"));
    pair.sent_ok(1);
    pair.received_as(3, WcStatus::LocProtErr);
    pair.in_state(QpState::Err, |pair| &pair.b);
}

/// What an unreliable peer refuses is lost without a trace, and the connection goes on.
pub fn what_an_unreliable_peer_refuses_is_lost(fixture: &Fixture) {
    let no_right = Options {
        region_access: Access::LOCAL_WRITE,
        ..small()
    };
    for options in [small(), no_right] {
        let mut pair = Pair::with(fixture, Transport::Uc, &options);
        let granted = options.region_access.contains(Access::REMOTE_WRITE);
        let mut remotes = vec![
            pair.b.remote(4089),
            RemoteAddr {
                rkey: Rkey(pair.b.region.rkey().0 ^ 0x007f_ff00),
                ..pair.b.remote(0)
            },
        ];
        if !granted {
            remotes.push(pair.b.remote(0));
        }
        for (id, remote) in (1..).zip(remotes) {
            let op = Op::Write { remote, imm: None };
            pair.a.post(id, op, Payload::Inline(b"refused!"));
            pair.sent_ok(id);
        }
        pair.flush_through();
        assert_eq!(pair.b.bytes(0, 64), [0; 64]);
        assert_eq!(pair.b.state(), QpState::Rts);
    }
}

/// The keys of a region that is gone are refused, on both sides.
pub fn a_deregistered_region_is_out_of_reach(fixture: &Fixture) {
    for index in 0..4 {
        let pair = Pair::with(fixture, Transport::Rc, &small());
        let region = pair.b.node.region(4096, Access::EVERYTHING);
        let op = reaching(remote_addr(&*region, 0))[index].0;
        drop(region);
        is_refused(pair, op, "a region that is gone");
    }
    let mut pair = Pair::with(fixture, Transport::Rc, &small());
    let region = pair.a.node.region(4096, Access::EVERYTHING);
    let sges = [Sge {
        addr: region.addr(),
        len: 8,
        lkey: region.lkey(),
    }];
    drop(region);
    pair.a.post(1, SEND, Payload::Gather(&sges));
    pair.sent_as(1, WcStatus::LocProtErr);
}

/// A region that goes away with requests under way lets those that still need it fail, and leaves
/// the NIC well.
pub fn deregistering_in_use_is_survived(fixture: &Fixture) {
    for transport in CONNECTED {
        let mut pair = Pair::with(fixture, transport, &small());
        let region = pair.b.node.region(1 << 16, Access::EVERYTHING);
        let remote = remote_addr(&*region, 0);
        let sges = [pair.a.sge(0, 4096)];
        for id in 0..32 {
            pair.a
                .post(id, Op::Write { remote, imm: None }, Payload::Gather(&sges));
            if id == 16 {
                pair.sent_ok(0);
            }
        }
        drop(region);
        for id in 1..32 {
            let wc = pair.sent("a WRITE to end somehow");
            let fitting = matches!(
                wc.status,
                WcStatus::Success | WcStatus::RemAccessErr | WcStatus::WrFlushErr
            );
            assert!(fitting && wc.id == id, "{wc:?}");
        }
        Pair::new(fixture, transport).flush_through();
    }
}

/// Remote writing and atomics without local writing make no sense, and neither does a region
/// without bytes.
pub fn senseless_regions_are_refused(fixture: &Fixture) {
    let node = Node::new(&fixture.a);
    let refused = |len, access| {
        let made = node.nic.allocate(node.pd, len, access);
        assert!(
            matches!(made, Err(VerbsError::Invalid { .. })),
            "{len} bytes with {access:?}: {made:?}"
        );
    };
    refused(0, Access::EVERYTHING);
    refused(64, Access::REMOTE_WRITE);
    refused(64, Access::REMOTE_ATOMIC | Access::REMOTE_READ);
}

/// Allocated memory is zeroed, and starts on a cache line.
pub fn allocated_memory_is_zeroed_and_aligned(fixture: &Fixture) {
    for nic in [&fixture.a, &fixture.b] {
        let node = Node::new(nic);
        for len in [1, 64, 5000] {
            for _ in 0..3 {
                let region = node.region(len, Access::EVERYTHING);
                assert_eq!((region.len(), region.addr() % 64), (len, 0));
                let mut bytes = vec![1; len];
                region.read(0, &mut bytes);
                assert!(bytes.iter().all(|byte| *byte == 0));
                region.write(0, &vec![0xff; len]);
            }
        }
    }
}

/// The caller's own memory serves as well as the NIC's.
pub fn memory_of_the_caller_can_be_registered(fixture: &Fixture) {
    let mut pair = Pair::new(fixture, Transport::Rc);
    let page = Box::<Page>::default();
    let words = &page.0;
    (0..)
        .zip(words)
        .for_each(|(value, word)| word.store(value, Ordering::Relaxed));
    let start = NonNull::from(words.as_slice()).cast();
    let node = &pair.a.node;
    // Not every NIC reaches such memory by atomics.
    let access = Access::EVERYTHING - Access::REMOTE_ATOMIC;
    // SAFETY: `page` outlives the region, which is dropped below, and is accessed through atomics.
    let made = unsafe {
        node.nic
            .register(node.pd, start, 4096, Iova::of(start), access)
    };
    let region = made.expect("a region");
    assert_eq!((region.len(), region.base()), (4096, Some(start)));
    let sges = [Sge {
        addr: region.addr() + 8,
        len: 800,
        lkey: region.lkey(),
    }];
    let remote = pair.b.remote(0);
    pair.a
        .post(1, Op::Write { remote, imm: None }, Payload::Gather(&sges));
    pair.sent_ok(1);
    for index in 0..100 {
        assert_eq!(pair.b.word(8 * index), 1 + index as u64);
        pair.b.set_word(8 * index, 1000 + index as u64);
    }
    pair.a.post(2, Op::Read { remote }, Payload::Gather(&sges));
    pair.sent_ok(2);
    let got = |index: usize| words[index].load(Ordering::Acquire);
    assert_eq!((got(0), got(1), got(100), got(101)), (0, 1000, 1099, 101));
    // And as a target of the peer.
    let back = [pair.b.sge(0, 8)];
    let remote = remote_addr(&*region, 4088);
    pair.b
        .post(3, Op::Write { remote, imm: None }, Payload::Gather(&back));
    let wc = pair.until("the WRITE back", |pair| pair.b.send.seen.pop_front());
    assert!(wc.is_ok(), "{wc:?}");
    assert_eq!(got(511), 1000);
    drop(region);
}

/// Work requests name a region by the addresses that it was registered with, on both sides, and by no
/// others.
pub fn a_region_has_the_addresses_that_it_was_given(fixture: &Fixture) {
    const LEN: usize = 2 * 4096;
    let addresses = [0, 3 << 40, 1 << 63, u64::MAX - 4 * 4096 + 1];
    for (index, iova) in addresses.into_iter().enumerate() {
        let (here, there) = (Iova(iova), Iova(addresses[(index + 1) % addresses.len()]));
        let mut pair = Pair::with(fixture, Transport::Rc, &small());
        let made = |node: &Node, iova| node.private_region(LEN, Some(iova)).expect("a region");
        let (local, remote) = (made(&pair.a.node, here), made(&pair.b.node, there));
        assert_eq!((local.addr(), remote.addr()), (here.0, there.0));
        let element = |region: &dyn NicMr, offset: usize, len: u32| Sge {
            addr: region.addr() + offset as u64,
            len,
            lkey: region.lkey(),
        };
        let at = |region: &dyn NicMr, offset| remote_addr(region, offset);
        let bytes: Vec<u8> = (0..5000u32).map(|at| (at * 7 + 1) as u8).collect();
        local.write(8, &bytes);
        let sges = [element(&*local, 8, 3000), element(&*local, 3008, 2000)];
        let write = Op::Write {
            remote: at(&*remote, 100),
            imm: None,
        };
        pair.a.post(1, write, Payload::Gather(&sges));
        pair.sent_ok(1);
        let mut found = vec![0; bytes.len()];
        remote.read(100, &mut found);
        assert!(found == bytes, "written to {there}");
        // The first bytes and the last ones, which a READ brings into two elements.
        remote.write(LEN - 16, b"sixteen bytes..!");
        let read = Op::Read {
            remote: at(&*remote, LEN - 16),
        };
        let sges = [element(&*local, 0, 4), element(&*local, LEN - 12, 12)];
        pair.a.post(2, read, Payload::Gather(&sges));
        pair.sent_ok(2);
        let (mut first, mut last) = ([0; 4], [0; 12]);
        local.read(0, &mut first);
        local.read(LEN - 12, &mut last);
        assert_eq!(
            (&first, &last),
            (b"sixt", b"een bytes..!"),
            "read to {here}"
        );
        // A RECV of two elements.
        let recv = [element(&*remote, 40, 3), element(&*remote, 0, 29)];
        pair.b.post_recv_of(3, &recv);
        pair.a.post(3, SEND, Payload::Inline(b"scattered"));
        pair.sent_ok(3);
        pair.received_as(3, WcStatus::Success);
        let mut found = [0; 43];
        remote.read(0, &mut found);
        assert_eq!((&found[40..], &found[..6]), (&b"sca"[..], &b"ttered"[..]));
        // And nothing around it, nor by the memory's own address.
        for case in 0..3 {
            let mut pair = Pair::with(fixture, Transport::Rc, &small());
            let region = made(&pair.b.node, there);
            let own = region.base().map(|base| Iova::of(base).0);
            let addr = match case {
                0 => Some(there.0.wrapping_sub(1)),
                1 => Some(there.0.wrapping_add(LEN as u64)),
                _ => own,
            };
            let Some(addr) = addr else { continue };
            let rkey = region.rkey();
            let read = Op::Read {
                remote: RemoteAddr { addr, rkey },
            };
            let sges = [pair.a.sge(0, 1)];
            pair.a.post(1, read, Payload::Gather(&sges));
            pair.sent_as(1, WcStatus::RemAccessErr);
        }
    }
}

/// Addresses that lie otherwise in their pages than the memory does, or wrap around, are refused.
pub fn addresses_that_no_region_can_have_are_refused(fixture: &Fixture) {
    let node = Node::new(&fixture.a);
    for iova in [1, 2048, 4095, (3 << 40) + 8, u64::MAX - 4095] {
        let made = node.private_region(4096, Some(Iova(iova)));
        assert!(
            matches!(made, Err(VerbsError::Invalid { .. })),
            "{iova:#x}: {made:?}"
        );
    }
}

/// A completion says why its request failed in the NIC's own numbers: the same for the same failure,
/// and nothing for what was carried out.
pub fn a_vendor_error_goes_with_a_failure(fixture: &Fixture) {
    type Post = fn(&mut Pair);
    let failures: [(&str, WcStatus, Post); 4] = [
        ("a local key", WcStatus::LocProtErr, |pair| {
            let mut sge = pair.a.sge(0, 8);
            sge.lkey.0 ^= 0x007f_ff00;
            pair.a.post(2, SEND, Payload::Gather(&[sge]));
        }),
        ("a remote key", WcStatus::RemAccessErr, |pair| {
            let mut remote = pair.b.remote(0);
            remote.rkey.0 ^= 0x007f_ff00;
            let sges = [pair.a.sge(0, 8)];
            pair.a.post(2, Op::Read { remote }, Payload::Gather(&sges));
        }),
        ("a remote range", WcStatus::RemAccessErr, |pair| {
            let remote = pair.b.remote(4089);
            let sges = [pair.a.sge(0, 8)];
            pair.a.post(2, Op::Read { remote }, Payload::Gather(&sges));
        }),
        ("a RECV's room", WcStatus::RemInvReqErr, |pair| {
            pair.b.post_recv(9, 0, 4);
            pair.a.post(2, SEND, Payload::Inline(b"longer than that"));
        }),
    ];
    for (what, status, post) in failures {
        let said = [(); 2].map(|()| {
            let mut pair = Pair::with(fixture, Transport::Rc, &small());
            let remote = pair.b.remote(0);
            let write = Op::Write { remote, imm: None };
            pair.a.post(1, write, Payload::Inline(b"fine"));
            assert_eq!(pair.sent_ok(1).vendor_err, VendorErr::default());
            post(&mut pair);
            pair.sent_as(2, status).vendor_err
        });
        assert_eq!(said[0], said[1], "{what}");
    }
}

/// A protection domain in use cannot be given back; afterwards it can, once.
pub fn a_protection_domain_in_use_is_busy(fixture: &Fixture) {
    let Node { nic, pd, .. } = Node::new(&fixture.a);
    let region = nic.allocate(pd, 64, Access::EVERYTHING).expect("a region");
    let busy = nic.dealloc_pd(pd);
    assert!(matches!(busy, Err(VerbsError::Busy { .. })), "{busy:?}");
    drop(region);
    nic.dealloc_pd(pd).expect("not in use any more");
    let gone = nic.dealloc_pd(pd);
    assert!(matches!(gone, Err(VerbsError::NoSuch { .. })), "{gone:?}");
    let gone = nic.allocate(pd, 64, Access::EVERYTHING);
    assert!(matches!(gone, Err(VerbsError::NoSuch { .. })), "{gone:?}");
}
