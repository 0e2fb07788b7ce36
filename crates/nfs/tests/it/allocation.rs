//! What the usual operations take of the heap: nothing, once the buffers have grown.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use nfs::compound::{CompoundArgs, CompoundCall, CompoundReply};
use nfs::rpc::{self, AuthSys, Call, Credential, Message, Outcome, Records, Reply, put_record};
use nfs::wire::*;
use nfs::xdr::{Decoder, Encoder, Opaque};

/// The system's allocator, counting what each thread asks of it.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// Bytes that this thread has taken of the heap and not given back.
pub(crate) fn bytes_held() -> i64 {
    BYTES.with(Cell::get)
}

fn holds(more: i64) {
    BYTES.with(|bytes| bytes.set(bytes.get() + more));
}

// SAFETY: every call goes to the system's allocator as it came; counting in a thread-local without
// a destructor neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        holds(layout.size() as i64);
        // SAFETY: the caller's promises on the layout are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        holds(-(layout.size() as i64));
        // SAFETY: the pointer came from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        holds(size as i64 - layout.size() as i64);
        // SAFETY: the pointer came from the system's allocator, with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const STATEID: Stateid4 = Stateid4 {
    seqid: 1,
    other: [7; 12],
};

/// What clients ask for most.
fn operations() -> [NfsArgop4<'static>; 11] {
    let sequence = Sequence4Args {
        sa_sessionid: [7; 16],
        sa_sequenceid: 1,
        sa_slotid: 0,
        sa_highest_slotid: 0,
        sa_cachethis: false,
    };
    let attr_request = Bitmap4::of(&[FATTR4_CHANGE, FATTR4_SIZE, FATTR4_MODE]);
    let readdir = Readdir4Args {
        cookie: 0,
        cookieverf: [0; 8],
        dircount: 1024,
        maxcount: 4096,
        attr_request,
    };
    let open = Open4Args {
        seqid: 0,
        share_access: OPEN4_SHARE_ACCESS_READ,
        share_deny: OPEN4_SHARE_DENY_NONE,
        owner: StateOwner4 {
            clientid: 1,
            owner: "owner".into(),
        },
        openhow: Openflag4::Default(Opentype4::OPEN4_NOCREATE),
        claim: OpenClaim4::ClaimNull("file".into()),
    };
    [
        NfsArgop4::Sequence(sequence),
        NfsArgop4::Putfh(Putfh4Args {
            object: Opaque(&[9; 27]),
        }),
        NfsArgop4::Lookup(Lookup4Args {
            objname: "file".into(),
        }),
        NfsArgop4::Open(open),
        NfsArgop4::Getfh,
        NfsArgop4::Access(Access4Args { access: 63 }),
        NfsArgop4::Getattr(Getattr4Args { attr_request }),
        NfsArgop4::Read(Read4Args {
            stateid: STATEID,
            offset: 0,
            count: 4096,
        }),
        NfsArgop4::Write(Write4Args {
            stateid: STATEID,
            offset: 0,
            stable: StableHow4::UNSTABLE4,
            data: Opaque(&[1; 4096]),
        }),
        NfsArgop4::Readdir(readdir),
        NfsArgop4::Close(Close4Args {
            seqid: 0,
            open_stateid: STATEID,
        }),
    ]
}

/// A server that answers each operation with something of its kind.
fn answer(to: &mut Encoder, reply: &mut CompoundReply, operation: &NfsArgop4<'_>) {
    let (number, failed) = (NfsOpnum4::OP_READ, |_| "room");
    match operation {
        NfsArgop4::Read(read) => {
            let done = reply.result_in_place(to, number, |to| {
                to.put(&Nfsstat4::NFS4_OK);
                to.put(&false);
                to.opaque_room(read.count as usize, |room| Ok::<_, ()>(room.len()))
            });
            assert_eq!(done.map_err(failed), Ok(4096));
        }
        NfsArgop4::Getattr(asked) => {
            let number = NfsOpnum4::OP_GETATTR;
            let done = reply.result_in_place(to, number, |to| {
                to.put(&Nfsstat4::NFS4_OK);
                put_attributes(to, &asked.attr_request, |number| match number {
                    FATTR4_CHANGE => Some(Attribute::Change(7)),
                    FATTR4_SIZE => Some(Attribute::Size(4096)),
                    _ => None,
                });
                Ok::<_, ()>(())
            });
            assert_eq!(done, Ok(()));
        }
        NfsArgop4::Write(write) => {
            let written = Write4Resok {
                count: write.data.len() as u32,
                committed: StableHow4::UNSTABLE4,
                writeverf: [3; 8],
            };
            reply.result(to, &NfsResop4::Write(Ok(written)));
        }
        _ => reply.result(to, &NfsResop4::Putfh(Ok(()))),
    }
}

#[test]
fn usual_operations_allocate_nothing() {
    let mut call = Encoder::default();
    put_record(&mut call, |to| {
        let user = AuthSys {
            machine_name: "client".into(),
            gids: [1, 2, 3].into_iter().collect(),
            ..AuthSys::default()
        };
        let procedure = (rpc::NFS_PROGRAM, rpc::NFS_VERSION, rpc::PROC_COMPOUND);
        Call::put(to, 1, procedure, &Credential::Sys(user));
        let mut compound = CompoundCall::begin(to, "".into(), 1);
        operations()
            .iter()
            .for_each(|operation| compound.operation(to, operation));
        compound.finish(to);
    });
    let mut records = Records::new(1 << 20);
    let mut out = Vec::new();
    let mut round = || {
        records.buffer().extend_from_slice(call.as_bytes());
        let record = records
            .next_record()
            .expect("a record")
            .expect("a whole one");
        let mut from = Decoder::new(record);
        let Ok(Message::Call(head)) = Message::take(&mut from) else {
            panic!("a call");
        };
        assert!(matches!(
            Credential::of(&head.credential),
            Ok(Credential::Sys(_))
        ));
        let mut args = CompoundArgs::take(from).expect("a COMPOUND");
        out.clear();
        let mut to = Encoder::new(std::mem::take(&mut out));
        put_record(&mut to, |to| {
            let (xid, outcome) = (head.xid, Outcome::Success);
            to.put(&Reply { xid, outcome });
            let mut reply = CompoundReply::begin(to, args.tag);
            while let Some(operation) = args.next_operation() {
                answer(to, &mut reply, &operation.expect("an operation"));
            }
            reply.finish(to, Nfsstat4::NFS4_OK);
        });
        out = to.into_bytes();
    };
    (0..3).for_each(|_| round());
    let before = ALLOCATIONS.get();
    (0..100).for_each(|_| round());
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

#[test]
fn a_length_without_members_allocates_nothing() {
    let mut bytes = u32::MAX.to_be_bytes().to_vec();
    bytes.resize(4096, 0xff);
    let before = ALLOCATIONS.get();
    let refused = Decoder::new(&bytes).take::<Vec<Stateid4>>();
    assert!(refused.is_err());
    assert!(Decoder::new(&bytes).take::<Opaque<'_>>().is_err());
    assert!(Decoder::new(&bytes).take::<Bitmap4>().is_err());
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
