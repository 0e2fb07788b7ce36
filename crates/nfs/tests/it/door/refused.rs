//! Requests that are refused change nothing, and say why in their version's words.

use std::rc::Rc;

use nfs::wire::*;
use sim::Env;

use super::bench::*;
use super::clients::{open_0, opened_0, set_client_id};

const NO_DELEGATION: u32 = OPEN4_SHARE_ACCESS_WANT_NO_DELEG;
const READ: u32 = OPEN4_SHARE_ACCESS_READ | NO_DELEGATION;
const WRITE: u32 = OPEN4_SHARE_ACCESS_WRITE | NO_DELEGATION;
const BOTH: u32 = OPEN4_SHARE_ACCESS_BOTH | NO_DELEGATION;

/// OPEN that makes a file or empties it.
fn empties<'a>(name: &'a str, owner: &'a str, access: u32, deny: u32) -> [NfsArgop4<'a>; 2] {
    let NfsArgop4::Open(mut of) = create(name, owner) else {
        unreachable!()
    };
    of.openhow = Openflag4::Open4Create(Createhow4::Unchecked4(no_size()));
    (of.share_access, of.share_deny) = (access, deny);
    [NfsArgop4::Putrootfh, NfsArgop4::Open(of)]
}

fn opens<'a>(owner: &'a str, access: u32, deny: u32) -> [NfsArgop4<'a>; 2] {
    let NfsArgop4::Open(mut of) = open("f", owner, access) else {
        unreachable!()
    };
    of.share_deny = deny;
    [NfsArgop4::Putrootfh, NfsArgop4::Open(of)]
}

/// A client, and a file of four bytes.
async fn filled(env: &Env) -> Client {
    let client = Client::new(env, "c").await;
    client.make("f").await;
    let fills = [
        NfsArgop4::Putrootfh,
        lookup("f"),
        write(&ANONYMOUS, b"data"),
    ];
    client.call(&fills).await.ok();
    client
}

/// RFC 8881, section 18.16.3: the file is emptied by an OPEN that succeeds.
#[test]
fn an_open_that_is_denied_does_not_empty_the_file() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = filled(&env).await;
        client.call(&opens("a", READ, 0)).await.ok();
        let denied = empties("f", "b", WRITE, OPEN4_SHARE_DENY_READ);
        let done = client.call(&denied).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_SHARE_DENIED);
        assert_eq!(client.size("f").await, 4);
        // Nothing is left of it.
        let alone = opens("a", BOTH, OPEN4_SHARE_DENY_BOTH);
        client.call(&alone).await.ok();
    });
}

#[test]
fn an_open_without_permission_does_not_empty_the_file() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = filled(&env).await;
        let mode = NfsArgop4::Setattr(Setattr4Args {
            stateid: ANONYMOUS,
            obj_attributes: Fattr4 {
                attrmask: Bitmap4::of(&[FATTR4_MODE]),
                attr_vals: nfs::xdr::Opaque(&0o622u32.to_be_bytes()),
            },
        });
        let sets = [NfsArgop4::Putrootfh, lookup("f"), mode];
        client.call(&sets).await.ok();
        client.wire.user.set(7);
        let done = client.call(&empties("f", "b", BOTH, 0)).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_ACCESS);
        assert_eq!(client.size("f").await, 4);
        // What it may do it does.
        client.call(&empties("f", "b", WRITE, 0)).await.ok();
        assert_eq!(client.size("f").await, 0);
    });
}

#[test]
fn who_denies_writing_empties_the_file_itself() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = filled(&env).await;
        let deny = OPEN4_SHARE_DENY_WRITE;
        client.call(&opens("a", BOTH, deny)).await.ok();
        let done = client.call(&empties("f", "b", READ, 0)).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_SHARE_DENIED);
        assert_eq!(client.size("f").await, 4);
        // That it was refused has left no open: it would be in the way of this one.
        let alone = opens("a", BOTH, OPEN4_SHARE_DENY_BOTH);
        client.call(&alone).await.ok();
        let done = client.call(&empties("f", "a", BOTH, 0)).await.ok();
        let NfsResop4::Open(Ok(of)) = done.result(2) else {
            panic!("{done:?}");
        };
        assert_eq!(of.attrset, Bitmap4::of(&[FATTR4_SIZE]));
        assert_eq!(client.size("f").await, 0);
    });
}

/// An open that there was before is as it was, when one more of the same owner is refused.
#[test]
fn an_open_that_is_refused_leaves_the_older_one() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = filled(&env).await;
        let done = client.call(&opens("a", READ, 0)).await.ok();
        let (first, _) = done.opened(2);
        let deny = OPEN4_SHARE_DENY_WRITE;
        client.call(&opens("b", READ, deny)).await.ok();
        let more = empties("f", "a", READ, OPEN4_SHARE_DENY_WRITE);
        let done = client.call(&more).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_SHARE_DENIED);
        assert_eq!(client.size("f").await, 4);
        let read = NfsArgop4::Read(Read4Args {
            stateid: first,
            offset: 0,
            count: 1,
        });
        let reads = [NfsArgop4::Putrootfh, lookup("f"), read];
        client.call(&reads).await.ok();
    });
}

/// RFC 8881, section 15.2, and RFC 7862, section 11.2: other opens deny as locks do.
#[test]
fn what_opens_deny_is_locked() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = filled(&env).await;
        client.make("g").await;
        let all = OPEN4_SHARE_DENY_BOTH;
        client.call(&opens("a", BOTH, all)).await.ok();
        let copy = NfsArgop4::Copy(Copy4Args {
            ca_src_stateid: ANONYMOUS,
            ca_dst_stateid: ANONYMOUS,
            ca_src_offset: 0,
            ca_dst_offset: 0,
            ca_count: 0,
            ca_consecutive: true,
            ca_synchronous: true,
            ca_source_server: Vec::new(),
        });
        let clone = NfsArgop4::Clone(Clone4Args {
            cl_src_stateid: ANONYMOUS,
            cl_dst_stateid: ANONYMOUS,
            cl_src_offset: 0,
            cl_dst_offset: 0,
            cl_count: 0,
        });
        let allocate = NfsArgop4::Allocate(Allocate4Args {
            aa_stateid: ANONYMOUS,
            aa_offset: 0,
            aa_length: 1,
        });
        let deallocate = NfsArgop4::Deallocate(Deallocate4Args {
            da_stateid: ANONYMOUS,
            da_offset: 0,
            da_length: 1,
        });
        let seek = NfsArgop4::Seek(Seek4Args {
            sa_stateid: ANONYMOUS,
            sa_offset: 0,
            sa_what: DataContent4::NFS4_CONTENT_DATA,
        });
        let root = NfsArgop4::Putrootfh;
        let locked = Nfsstat4::NFS4ERR_LOCKED;
        for one in [cut(&ANONYMOUS), allocate, deallocate, seek] {
            let operations = [root.clone(), lookup("f"), one];
            let done = client.call_2(&operations).await;
            assert_eq!(done.status, locked, "{operations:?}");
        }
        for (from, to) in [("f", "g"), ("g", "f")] {
            for two in [&copy, &clone] {
                let operations = [
                    root.clone(),
                    lookup(from),
                    NfsArgop4::Savefh,
                    root.clone(),
                    lookup(to),
                    two.clone(),
                ];
                let done = client.call_2(&operations).await;
                assert_eq!(done.status, locked, "{operations:?}");
            }
        }
    });
}

/// RFC 7530, section 13.1: 4.0 has no WRONG_TYPE.
#[test]
fn kinds_have_the_codes_of_their_version() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let pipe = NfsArgop4::Create(Create4Args {
            objtype: Createtype4::Default(NfsFtype4::NF4FIFO),
            objname: "pipe".into(),
            createattrs: no_attributes(),
        });
        client.call(&[NfsArgop4::Putrootfh, pipe]).await.ok();
        let id = set_client_id(&client.wire, "zero", 1).await;
        opened_0(&client.wire, id, "file").await;
        let commit = NfsArgop4::Commit(Commit4Args {
            offset: 0,
            count: 0,
        });
        let (wrong, inval) = (Nfsstat4::NFS4ERR_WRONG_TYPE, Nfsstat4::NFS4ERR_INVAL);
        for operation in [cut(&ANONYMOUS), commit] {
            let of = [NfsArgop4::Putrootfh, lookup("pipe"), operation];
            assert_eq!(client.call(&of).await.status, wrong, "4.1: {of:?}");
            let done = client.wire.call(0, &of).await;
            assert_eq!(done.status, inval, "4.0: {of:?}");
        }
        let makes = [NfsArgop4::Putrootfh, create("pipe", "o")];
        assert_eq!(client.call(&makes).await.status, wrong);
        let makes = [NfsArgop4::Putrootfh, open_0(id, "pipe", 3, false)];
        let done = client.wire.call(0, &makes).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_SYMLINK);
    });
}

fn copies(source: &Stateid4, target: &Stateid4, count: u64) -> [NfsArgop4<'static>; 6] {
    let copy = NfsArgop4::Copy(Copy4Args {
        ca_src_stateid: source.clone(),
        ca_dst_stateid: target.clone(),
        ca_src_offset: 0,
        ca_dst_offset: 0,
        ca_count: count,
        ca_consecutive: true,
        ca_synchronous: true,
        ca_source_server: Vec::new(),
    });
    [
        NfsArgop4::Putrootfh,
        lookup("f"),
        NfsArgop4::Savefh,
        NfsArgop4::Putrootfh,
        lookup("g"),
        copy,
    ]
}

/// RFC 7862, section 15.2.3: each file is judged by its own stateid.
#[test]
fn a_copy_reads_under_the_open_of_its_source() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = filled(&env).await;
        client.make("g").await;
        let alone = opens("reader", READ, OPEN4_SHARE_DENY_BOTH);
        let (source, _) = client.call(&alone).await.ok().opened(2);
        let writes = [NfsArgop4::Putrootfh, open("g", "writer", WRITE)];
        let (target, _) = client.call(&writes).await.ok().opened(2);
        let done = client.call_2(&copies(&source, &target, 0)).await.ok();
        let NfsResop4::Copy(Copy4Res::Nfs4Ok(of)) = done.result(6) else {
            panic!("{done:?}");
        };
        assert_eq!(of.cr_response.wr_count, 4);
        let done = client.call_2(&copies(&ANONYMOUS, &target, 0)).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_LOCKED);
    });
}

/// RFC 7862, section 15.2.3: fewer bytes may be copied than were asked for.
#[test]
fn a_copy_does_so_much_at_a_time() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = filled(&env).await;
        client.make("g").await;
        let size = NfsArgop4::Setattr(Setattr4Args {
            stateid: ANONYMOUS,
            obj_attributes: Fattr4 {
                attrmask: Bitmap4::of(&[FATTR4_SIZE]),
                attr_vals: nfs::xdr::Opaque(&(1u64 << 40).to_be_bytes()),
            },
        });
        let grows = [NfsArgop4::Putrootfh, lookup("f"), size];
        client.call(&grows).await.ok();
        for count in [0, 1 << 30, 1000] {
            let done = client.call_2(&copies(&ANONYMOUS, &ANONYMOUS, count)).await;
            let done = done.ok();
            let NfsResop4::Copy(Copy4Res::Nfs4Ok(of)) = done.result(6) else {
                panic!("{done:?}");
            };
            let expected = if count == 1000 { 1000 } else { 64 << 20 };
            assert_eq!(of.cr_response.wr_count, expected);
        }
    });
}

/// OPEN that makes a file which must not be there.
fn guarded<'a>(name: &'a str, owner: &'a str) -> [NfsArgop4<'a>; 2] {
    let NfsArgop4::Open(mut of) = create(name, owner) else {
        unreachable!()
    };
    of.openhow = Openflag4::Open4Create(Createhow4::Guarded4(no_attributes()));
    [NfsArgop4::Putrootfh, NfsArgop4::Open(of)]
}

async fn is_there(client: &Client, name: &str) -> bool {
    let looks = [NfsArgop4::Putrootfh, lookup(name)];
    match client.call(&looks).await.status {
        Nfsstat4::NFS4_OK => true,
        Nfsstat4::NFS4ERR_NOENT => false,
        other => panic!("{other:?}"),
    }
}

/// Its client would be told EXIST, of a file that it has made itself, when it asks again.
#[test]
fn who_holds_all_that_it_may_makes_no_file() {
    let mut rig = Rig::with(|options| options.states_max = 4);
    let gate = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let client = filled(&env).await;
        for owner in ["a", "b", "c"] {
            client.call(&opens(owner, BOTH, 0)).await.ok();
        }
        // Two at once are both within the bound when they come.
        gate.hold(|request| matches!(request, files::Request::CreateFile { .. }));
        let first = client.ask(1, &guarded("first", "d")).await;
        let second = client.ask(2, &guarded("second", "d")).await;
        until(&env, || gate.held() == 2).await;
        gate.release();
        for made in [first, second] {
            client.wire.answer(made).await.expect("an answer").ok();
        }
        let refused = client.call(&guarded("n", "d")).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_DELAY);
        assert!(!is_there(&client, "n").await);
        let id = set_client_id(&client.wire, "zero", 1).await;
        opened_0(&client.wire, id, "one").await;
        for (seqid, name) in (3..).zip(["two", "three", "four"]) {
            let makes = [NfsArgop4::Putrootfh, open_0(id, name, seqid, false)];
            client.wire.call(0, &makes).await.ok();
        }
        let makes = [NfsArgop4::Putrootfh, open_0(id, "five", 6, false)];
        let done = client.wire.call(0, &makes).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_RESOURCE);
        assert!(!is_there(&client, "five").await);
    });
}

/// An owner that opens once more what it has open gets nothing that counts, also by an OPEN that would make the file.
#[test]
fn who_holds_all_that_it_may_opens_what_it_has_open() {
    let mut rig = Rig::with(|options| options.states_max = 2);
    rig.run(|env| async move {
        let client = filled(&env).await;
        client.make("g").await;
        for owner in ["a", "b"] {
            client.call(&opens(owner, READ, 0)).await.ok();
        }
        let done = client.call(&empties("f", "a", BOTH, 0)).await.ok();
        let (stateid, _) = done.opened(2);
        assert_eq!(client.size("f").await, 0);
        let writes = [NfsArgop4::Putrootfh, lookup("f"), write(&stateid, b"more")];
        client.call(&writes).await.ok();
        // Another owner, another file, or none yet: each is one more.
        for (name, owner) in [("f", "c"), ("g", "a"), ("n", "a")] {
            let refused = client.call(&empties(name, owner, BOTH, 0)).await;
            assert_eq!(refused.status, Nfsstat4::NFS4ERR_DELAY, "{name} {owner}");
        }
        assert_eq!(client.size("f").await, 4);
        assert!(!is_there(&client, "n").await);
        // What cannot succeed is not told to come again.
        let exists = client.call(&guarded("f", "a")).await;
        assert_eq!(exists.status, Nfsstat4::NFS4ERR_EXIST);

        let id = set_client_id(&client.wire, "zero", 1).await;
        opened_0(&client.wire, id, "one").await;
        let makes = [NfsArgop4::Putrootfh, open_0(id, "two", 3, false)];
        client.wire.call(0, &makes).await.ok();
        let again = [NfsArgop4::Putrootfh, open_0(id, "two", 4, false)];
        client.wire.call(0, &again).await.ok();
        let makes = [NfsArgop4::Putrootfh, open_0(id, "three", 5, false)];
        let done = client.wire.call(0, &makes).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_RESOURCE);
    });
}

/// Delegations that nobody wants back leave room for opens and locks.
#[test]
fn delegations_leave_half_of_what_a_client_may_hold() {
    let mut rig = Rig::with(|options| options.states_max = 4);
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let mut delegations = 0;
        for name in ["f", "g", "h"] {
            client.make(name).await;
            let reads = open(name, "o", OPEN4_SHARE_ACCESS_READ);
            let reads = [NfsArgop4::Putrootfh, reads, close(&CURRENT)];
            let done = client.call(&reads).await.ok();
            delegations += usize::from(done.opened(2).1.is_some());
        }
        assert_eq!(delegations, 1);
        // Why there is none, for who wants to know.
        let wants = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;
        let reads = [NfsArgop4::Putrootfh, open("i", "o", wants)];
        client.make("i").await;
        let done = client.call(&reads).await.ok();
        let NfsResop4::Open(Ok(of)) = done.result(2) else {
            panic!("{done:?}");
        };
        let why = OpenNoneDelegation4::Wnd4Resource(false);
        assert_eq!(of.delegation, OpenDelegation4::OpenDelegateNoneExt(why));
        client.call(&opens("a", BOTH, 0)).await.ok();
        client.call(&opens("b", BOTH, 0)).await.ok();
    });
}

/// A client holds so much and no more; what it has it can use and give up.
#[test]
fn a_client_holds_so_much_and_no_more() {
    let mut rig = Rig::with(|options| options.states_max = 4);
    rig.run(|env| async move {
        let client = filled(&env).await;
        let mut all = Vec::new();
        for owner in ["a", "b", "c", "d"] {
            let done = client.call(&opens(owner, BOTH, 0)).await.ok();
            all.push(done.opened(2).0);
        }
        let refused = client.call(&opens("e", BOTH, 0)).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_DELAY);
        let lock = |stateid: &Stateid4| {
            let lock = NfsArgop4::Lock(Lock4Args {
                locktype: NfsLockType4::WRITE_LT,
                reclaim: false,
                offset: 0,
                length: 1,
                locker: Locker4::OpenOwner(OpenToLockOwner4 {
                    open_seqid: 0,
                    open_stateid: stateid.clone(),
                    lock_seqid: 0,
                    lock_owner: StateOwner4 {
                        clientid: 0,
                        owner: "l".into(),
                    },
                }),
            });
            [NfsArgop4::Putrootfh, lookup("f"), lock]
        };
        let refused = client.call(&lock(&all[0])).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_DELAY);
        // One that it has may become more, and another client has its own.
        client.call(&opens("a", BOTH, 0)).await.ok();
        let other = Client::new(&env, "other").await;
        other.call(&opens("e", BOTH, 0)).await.ok();
        let closes = [NfsArgop4::Putrootfh, lookup("f"), close(&all[3])];
        client.call(&closes).await.ok();
        client.call(&lock(&all[1])).await.ok();
        let delegated = [
            NfsArgop4::Putrootfh,
            open("f", "a", OPEN4_SHARE_ACCESS_READ),
        ];
        let done = client.call(&delegated).await.ok();
        assert_eq!(done.opened(2).1, None);
        // In 4.0 it is told so in other words.
        let id = set_client_id(&client.wire, "zero", 1).await;
        let (zero, handle) = opened_0(&client.wire, id, "one").await;
        let _ = (zero, handle);
        for seqid in 3..6 {
            let name = ["two", "three", "four"][seqid as usize - 3];
            let makes = [NfsArgop4::Putrootfh, open_0(id, name, seqid, false)];
            client.wire.call(0, &makes).await.ok();
        }
        let makes = [NfsArgop4::Putrootfh, open_0(id, "five", 6, false)];
        let done = client.wire.call(0, &makes).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_RESOURCE);
    });
}
