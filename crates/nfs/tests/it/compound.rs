//! COMPOUND, one operation after the other.

use nfs::compound::{BadOperation, CompoundArgs, CompoundCall, CompoundReply, CompoundResults};
use nfs::wire::*;
use nfs::xdr::{Decoder, Encoder, Opaque, XdrError};

/// What a client of 4.1 asks for when it writes a file.
fn operations() -> Vec<NfsArgop4<'static>> {
    let stateid = Stateid4 {
        seqid: 1,
        other: *b"twelve bytes",
    };
    vec![
        NfsArgop4::Sequence(Sequence4Args {
            sa_sessionid: [7; 16],
            sa_sequenceid: 1,
            sa_slotid: 0,
            sa_highest_slotid: 0,
            sa_cachethis: false,
        }),
        NfsArgop4::Putfh(Putfh4Args {
            object: Opaque(&[9; 27]),
        }),
        NfsArgop4::Write(Write4Args {
            stateid,
            offset: 4096,
            stable: StableHow4::UNSTABLE4,
            data: Opaque(b"some data"),
        }),
        NfsArgop4::Getattr(Getattr4Args {
            attr_request: Bitmap4::of(&[FATTR4_CHANGE, FATTR4_SIZE]),
        }),
    ]
}

fn call(minor: u32, operations: &[NfsArgop4<'_>]) -> Vec<u8> {
    let mut to = Encoder::default();
    let mut call = CompoundCall::begin(&mut to, "tag".into(), minor);
    for operation in operations {
        call.operation(&mut to, operation);
    }
    call.finish(&mut to);
    to.into_bytes()
}

type Taken<'a> = Vec<Result<NfsArgop4<'a>, BadOperation>>;

fn taken(bytes: &[u8]) -> Result<Taken<'_>, XdrError> {
    let mut args = CompoundArgs::take(Decoder::new(bytes))?;
    Ok(std::iter::from_fn(|| args.next_operation()).collect())
}

#[test]
fn operations_come_one_by_one_and_the_types_agree() {
    let bytes = call(1, &operations());
    let all: Taken<'_> = operations().into_iter().map(Ok).collect();
    assert_eq!(taken(&bytes), Ok(all));
    let whole: Compound4Args<'_> = nfs::xdr::from_bytes(&bytes).expect("a COMPOUND");
    assert_eq!(whole.argarray, operations());
    assert_eq!((whole.tag.0, whole.minorversion), (&b"tag"[..], 1));
}

#[test]
fn what_is_written_is_a_slice_of_the_call() {
    let bytes = call(1, &operations());
    let all = taken(&bytes).expect("operations");
    let Ok(NfsArgop4::Write(write)) = &all[2] else {
        panic!("a WRITE");
    };
    let data = write.data.0.as_ptr_range();
    assert!(bytes.as_ptr_range().start <= data.start && data.end <= bytes.as_ptr_range().end);
}

#[test]
fn a_cut_hides_no_operation_before_it() {
    let bytes = call(1, &operations());
    let ends: Vec<usize> = (1..=4)
        .map(|count| call(1, &operations()[..count]).len())
        .collect();
    for cut in 0..bytes.len() {
        let taken = taken(&bytes[..cut]);
        if cut < 16 {
            assert_eq!(taken, Err(XdrError::Short), "cut to {cut}");
            continue;
        }
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let taken = taken.expect("operations");
        assert_eq!(taken.len(), whole + 1, "cut to {cut}");
        let bad = taken[whole].as_ref().expect_err("a cut operation");
        assert_eq!(bad.status, Nfsstat4::NFS4ERR_BADXDR, "cut to {cut}");
        assert!(taken[..whole].iter().all(Result::is_ok), "cut to {cut}");
    }
}

#[test]
fn a_flipped_bit_hides_no_operation_before_it() {
    let bytes = call(1, &operations());
    let ends: Vec<usize> = (0..=4)
        .map(|count| call(1, &operations()[..count]).len())
        .collect();
    for bit in 16 * 8..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let taken = taken(&damaged).expect("operations");
        let before = ends.iter().filter(|end| **end * 8 <= bit).count() - 1;
        let expected = operations();
        for (taken, expected) in taken.iter().zip(&expected[..before]) {
            assert_eq!(taken.as_ref(), Ok(expected), "bit {bit}");
        }
        assert!(taken.len() > before, "bit {bit}");
    }
}

#[test]
fn an_operation_that_is_not_there_is_answered_and_ends_it() {
    let lookup = NfsArgop4::Lookup(Lookup4Args {
        objname: "a".into(),
    });
    let renew = NfsArgop4::Renew(Renew4Args { clientid: 1 });
    let seek = NfsArgop4::Seek(Seek4Args {
        sa_stateid: Stateid4 {
            seqid: 0,
            other: [0; 12],
        },
        sa_offset: 0,
        sa_what: DataContent4::NFS4_CONTENT_HOLE,
    });
    let illegal = (NfsOpnum4::OP_ILLEGAL, Nfsstat4::NFS4ERR_OP_ILLEGAL);
    let gone = (NfsOpnum4::OP_RENEW, Nfsstat4::NFS4ERR_NOTSUPP);
    for (minor, operation, refused) in [
        (0, &seek, Some(illegal)),
        (1, &seek, Some(illegal)),
        (2, &seek, None),
        (0, &renew, None),
        (1, &renew, Some(gone)),
        (1, &NfsArgop4::Illegal, Some(illegal)),
    ] {
        let bytes = call(minor, &[lookup.clone(), operation.clone(), lookup.clone()]);
        let taken = taken(&bytes).expect("operations");
        assert_eq!(taken[0].as_ref(), Ok(&lookup));
        let bad = taken[1]
            .as_ref()
            .err()
            .map(|bad| (bad.operation, bad.status));
        assert_eq!(bad, refused, "{minor} {operation:?}");
        assert_eq!(taken.len(), if refused.is_some() { 2 } else { 3 });
    }
}

#[test]
fn a_count_that_nobody_believes_takes_no_memory() {
    let mut bytes = call(0, &[]);
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&u32::MAX.to_be_bytes());
    let bad = BadOperation {
        operation: NfsOpnum4::OP_ILLEGAL,
        status: Nfsstat4::NFS4ERR_BADXDR,
    };
    assert_eq!(taken(&bytes), Ok(vec![Err(bad)]));
}

#[test]
fn a_reply_holds_what_was_put_and_nothing_that_was_taken_back() {
    let mut to = Encoder::default();
    let mut reply = CompoundReply::begin(&mut to, "tag".into());
    reply.result(&mut to, &NfsResop4::Putfh(Ok(())));
    let refused = reply.result_in_place(&mut to, NfsOpnum4::OP_READ, |to| {
        to.put(&Nfsstat4::NFS4_OK);
        to.put(&true);
        to.opaque_room(100, |_| Err("a device fails"))
    });
    assert_eq!(refused, Err("a device fails"));
    let kept = reply.result_in_place(&mut to, NfsOpnum4::OP_READ, |to| {
        to.put(&Nfsstat4::NFS4_OK);
        to.put(&true);
        to.opaque_room(100, |room| {
            room[..5].copy_from_slice(b"bytes");
            Ok::<_, ()>(5)
        })
    });
    assert_eq!(kept, Ok(5));
    reply.failed(&mut to, NfsOpnum4::OP_SETATTR, Nfsstat4::NFS4ERR_PERM);
    reply.finish(&mut to, Nfsstat4::NFS4ERR_PERM);
    let bytes = to.into_bytes();

    let results = CompoundResults::take(Decoder::new(&bytes)).expect("results");
    assert_eq!(
        (results.status, results.tag.0),
        (Nfsstat4::NFS4ERR_PERM, &b"tag"[..])
    );
    let found: Result<Vec<NfsResop4<'_>>, XdrError> = results.collect();
    let read = Read4Resok {
        eof: true,
        data: Opaque(b"bytes"),
    };
    let setattr = Setattr4Res {
        status: Nfsstat4::NFS4ERR_PERM,
        attrsset: Bitmap4::EMPTY,
    };
    let expected = vec![
        NfsResop4::Putfh(Ok(())),
        NfsResop4::Read(Ok(read)),
        NfsResop4::Setattr(setattr),
    ];
    assert_eq!(found, Ok(expected));
}

#[test]
fn every_operation_that_fails_is_read_by_its_own_type() {
    let numbers = (3..76).chain([NfsOpnum4::OP_ILLEGAL.0]).map(NfsOpnum4);
    for operation in numbers {
        for status in [
            Nfsstat4::NFS4ERR_PERM,
            Nfsstat4::NFS4ERR_BADXDR,
            Nfsstat4::NFS4ERR_NOTSUPP,
        ] {
            let mut to = Encoder::default();
            let mut reply = CompoundReply::begin(&mut to, Opaque(&[]));
            reply.failed(&mut to, operation, status);
            reply.finish(&mut to, status);
            let whole: Compound4Res<'_> = nfs::xdr::from_bytes(to.as_bytes())
                .unwrap_or_else(|error| panic!("{operation:?} {status:?}: {error}"));
            assert_eq!(whole.resarray.len(), 1);
        }
    }
}
