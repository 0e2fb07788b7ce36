//! What the RFCs ask of a server, section by section: opens, locks, names and attributes, in 4.0 and 4.1.

use nfs::wire::*;
use nfs::xdr::Opaque;
use sim::Env;

use super::bench::*;

const READ: u32 = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;
const WRITE: u32 = OPEN4_SHARE_ACCESS_WRITE | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;

/// A client, and objects of the root directory: a file, a directory, a symbolic link, a pipe.
async fn objects(env: &Env) -> Client {
    let client = Client::new(env, "c").await;
    client.make("file").await;
    for (name, kind) in [
        ("dir", Createtype4::Default(NfsFtype4::NF4DIR)),
        ("link", Createtype4::Nf4Lnk("file".into())),
        ("pipe", Createtype4::Default(NfsFtype4::NF4FIFO)),
    ] {
        client
            .call(&[NfsArgop4::Putrootfh, make(name, kind)])
            .await
            .ok();
    }
    client
}

fn make<'a>(name: &'a str, objtype: Createtype4<'a>) -> NfsArgop4<'a> {
    NfsArgop4::Create(Create4Args {
        objtype,
        objname: name.into(),
        createattrs: no_attributes(),
    })
}

fn read(stateid: &Stateid4) -> NfsArgop4<'static> {
    NfsArgop4::Read(Read4Args {
        stateid: stateid.clone(),
        offset: 0,
        count: 1,
    })
}

/// The same in 4.1 and in 4.0, with what each has to say.
async fn both(client: &Client, operations: &[NfsArgop4<'_>], expected: [Nfsstat4; 2]) {
    let done = client.call(operations).await;
    assert_eq!(done.status, expected[0], "4.1: {operations:?}");
    let done = client.wire.call(0, operations).await;
    assert_eq!(done.status, expected[1], "4.0: {operations:?}");
    assert!(done.is_whole());
}

/// RFC 8881, section 18.16.
#[test]
fn what_is_opened_is_a_file() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = objects(&env).await;
        for (name, expected) in [
            ("dir", Nfsstat4::NFS4ERR_ISDIR),
            ("link", Nfsstat4::NFS4ERR_SYMLINK),
            ("pipe", Nfsstat4::NFS4ERR_WRONG_TYPE),
            ("none", Nfsstat4::NFS4ERR_NOENT),
            ("", Nfsstat4::NFS4ERR_INVAL),
            ("file", Nfsstat4::NFS4_OK),
        ] {
            let opens = [NfsArgop4::Putrootfh, open(name, "o", READ)];
            assert_eq!(client.call(&opens).await.status, expected, "{name}");
        }
        let long = "n".repeat(300);
        let opens = [NfsArgop4::Putrootfh, open(&long, "o", READ)];
        let done = client.call(&opens).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_NAMETOOLONG);
        let under = [NfsArgop4::Putrootfh, lookup("file"), open("f", "o", READ)];
        let done = client.call(&under).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_NOTDIR);
        let nothing = [NfsArgop4::Putrootfh, open("file", "o", 0)];
        assert_eq!(client.call(&nothing).await.status, Nfsstat4::NFS4ERR_INVAL);
        let nowhere = [open("file", "o", READ)];
        let done = client.call(&nowhere).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_NOFILEHANDLE);
        // By its handle.
        let NfsArgop4::Open(mut of) = open("", "o", READ) else {
            unreachable!()
        };
        of.claim = OpenClaim4::ClaimFh;
        let by_handle = [NfsArgop4::Putrootfh, lookup("file"), NfsArgop4::Open(of)];
        client.call(&by_handle).await.ok();
    });
}

/// RFC 8881, section 18.16.3: how a file is made.
#[test]
fn files_are_made_as_they_are_asked_for() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let creates = |how| {
            let NfsArgop4::Open(mut of) = create("f", "o") else {
                unreachable!()
            };
            of.openhow = Openflag4::Open4Create(how);
            [NfsArgop4::Putrootfh, NfsArgop4::Open(of)]
        };
        let exclusive = |verifier: u8| {
            Createhow4::Exclusive41(Creatverfattr {
                cva_verf: [verifier; 8],
                cva_attrs: no_attributes(),
            })
        };
        let exists = Nfsstat4::NFS4ERR_EXIST;
        for (how, expected) in [
            (exclusive(1), Nfsstat4::NFS4_OK),
            (exclusive(1), Nfsstat4::NFS4_OK),
            (exclusive(2), exists),
            (Createhow4::Guarded4(no_attributes()), exists),
            (Createhow4::Unchecked4(no_attributes()), Nfsstat4::NFS4_OK),
            (Createhow4::Exclusive4([1; 8]), Nfsstat4::NFS4_OK),
        ] {
            let done = client.call(&creates(how.clone())).await;
            assert_eq!(done.status, expected, "{how:?}");
        }
        // An attribute that nobody has.
        let odd = Fattr4 {
            attrmask: Bitmap4::of(&[FATTR4_HIDDEN]),
            attr_vals: Opaque(&[0, 0, 0, 1]),
        };
        let done = client.call(&creates(Createhow4::Unchecked4(odd))).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_ATTRNOTSUPP);
    });
}

/// RFC 8881, sections 9.7 and 18.16.3: what opens deny.
#[test]
fn opens_deny_what_they_say_to_everybody_else() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        let opens = |owner, access, deny| {
            let NfsArgop4::Open(mut of) = open("f", owner, access) else {
                unreachable!()
            };
            of.share_deny = deny;
            [NfsArgop4::Putrootfh, NfsArgop4::Open(of)]
        };
        let denied = Nfsstat4::NFS4ERR_SHARE_DENIED;
        client
            .call(&opens("a", READ, OPEN4_SHARE_DENY_WRITE))
            .await
            .ok();
        for (owner, access, deny, expected) in [
            ("b", WRITE, 0, denied),
            ("b", READ, OPEN4_SHARE_DENY_READ, denied),
            ("b", READ, 7, Nfsstat4::NFS4ERR_INVAL),
            ("b", READ, OPEN4_SHARE_DENY_WRITE, Nfsstat4::NFS4_OK),
            ("a", WRITE, 0, denied),
        ] {
            let done = client.call(&opens(owner, access, deny)).await;
            assert_eq!(done.status, expected, "{owner} {access} {deny}");
        }
        // Who writes without an open is told that it is locked.
        let write = NfsArgop4::Write(Write4Args {
            stateid: ANONYMOUS,
            offset: 0,
            stable: StableHow4::UNSTABLE4,
            data: b"x".as_slice().into(),
        });
        let locked = Nfsstat4::NFS4ERR_LOCKED;
        let writes = [NfsArgop4::Putrootfh, lookup("f"), write];
        both(&client, &writes, [locked; 2]).await;
        let reads = [NfsArgop4::Putrootfh, lookup("f"), read(&ANONYMOUS)];
        both(&client, &reads, [Nfsstat4::NFS4_OK; 2]).await;
    });
}

/// RFC 8881, sections 18.10 to 18.12.
#[test]
fn locks_are_of_bytes_that_can_be_and_of_files_that_are_open_for_it() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        client.make("g").await;
        let (opened, _) = client.open("f", READ).await;
        let lock = |name, kind, (offset, length)| {
            let lock = NfsArgop4::Lock(Lock4Args {
                locktype: kind,
                reclaim: false,
                offset,
                length,
                locker: Locker4::OpenOwner(OpenToLockOwner4 {
                    open_seqid: 0,
                    open_stateid: opened.clone(),
                    lock_seqid: 0,
                    lock_owner: StateOwner4 {
                        clientid: 0,
                        owner: "l".into(),
                    },
                }),
            });
            [NfsArgop4::Putrootfh, lookup(name), lock]
        };
        let (reads, writes) = (NfsLockType4::READ_LT, NfsLockType4::WRITE_LT);
        let inval = Nfsstat4::NFS4ERR_INVAL;
        for (of, expected) in [
            (lock("f", reads, (0, 0)), inval),
            (lock("f", reads, (u64::MAX, 2)), inval),
            (lock("f", NfsLockType4(9), (0, 1)), inval),
            (lock("f", writes, (0, 1)), Nfsstat4::NFS4ERR_OPENMODE),
            (lock("g", reads, (0, 1)), Nfsstat4::NFS4ERR_BAD_STATEID),
            (lock("f", reads, (u64::MAX, 1)), Nfsstat4::NFS4_OK),
            (lock("f", reads, (7, u64::MAX)), Nfsstat4::NFS4_OK),
        ] {
            let done = client.call(&of).await;
            assert_eq!(done.status, expected, "{of:?}");
        }
        let test = |owner, (offset, length)| {
            let test = NfsArgop4::Lockt(Lockt4Args {
                locktype: writes,
                offset,
                length,
                owner: StateOwner4 {
                    clientid: 0,
                    owner: Opaque(owner),
                },
            });
            [NfsArgop4::Putrootfh, lookup("f"), test]
        };
        client.call(&test(b"l", (0, u64::MAX))).await.ok();
        client.call(&test(b"m", (0, 7))).await.ok();
        let done = client.call(&test(b"m", (0, 8))).await;
        let NfsResop4::Lockt(Lockt4Res::Nfs4ErrDenied(by)) = done.result(3) else {
            panic!("{done:?}");
        };
        assert_eq!((by.offset, by.length, by.locktype), (7, u64::MAX, reads));
        assert_eq!(
            (by.owner.clientid, by.owner.owner.0),
            (client.id, &b"l"[..])
        );
        let dir = [NfsArgop4::Putrootfh, test(b"m", (0, 1))[2].clone()];
        assert_eq!(client.call(&dir).await.status, Nfsstat4::NFS4ERR_ISDIR);
    });
}

/// RFC 8881, sections 18.22 and 18.24, and RFC 7530, sections 16.23 and 16.25: kinds have other errors in
/// 4.0.
#[test]
fn what_is_no_file_is_not_read() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = objects(&env).await;
        let (inval, wrong) = (Nfsstat4::NFS4ERR_INVAL, Nfsstat4::NFS4ERR_WRONG_TYPE);
        let isdir = Nfsstat4::NFS4ERR_ISDIR;
        for (name, expected) in [
            ("dir", [isdir; 2]),
            ("link", [wrong, inval]),
            ("pipe", [wrong, inval]),
            ("file", [Nfsstat4::NFS4_OK; 2]),
        ] {
            let reads = [NfsArgop4::Putrootfh, lookup(name), read(&ANONYMOUS)];
            both(&client, &reads, expected).await;
        }
        for (name, expected) in [("file", [wrong, inval]), ("link", [Nfsstat4::NFS4_OK; 2])] {
            let links = [NfsArgop4::Putrootfh, lookup(name), NfsArgop4::Readlink];
            both(&client, &links, expected).await;
        }
        for (name, expected) in [
            ("file", Nfsstat4::NFS4ERR_NOTDIR),
            ("link", Nfsstat4::NFS4ERR_SYMLINK),
            ("dir", Nfsstat4::NFS4ERR_NOENT),
        ] {
            let below = [NfsArgop4::Putrootfh, lookup(name), lookup("x")];
            both(&client, &below, [expected; 2]).await;
        }
    });
}

/// RFC 8881, sections 18.4, 18.19, 18.23, 18.27: names, handles and listings that cannot be.
#[test]
fn what_cannot_be_asked_is_refused() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = objects(&env).await;
        let list = |cookie, verifier, maxcount| {
            NfsArgop4::Readdir(Readdir4Args {
                cookie,
                cookieverf: verifier,
                dircount: 0,
                maxcount,
                attr_request: Bitmap4::EMPTY,
            })
        };
        let root = || NfsArgop4::Putrootfh;
        let dir = || Createtype4::Default(NfsFtype4::NF4DIR);
        let file = Createtype4::Default(NfsFtype4::NF4REG);
        let putfh = |object| {
            NfsArgop4::Putfh(Putfh4Args {
                object: Opaque(object),
            })
        };
        let getattr = NfsArgop4::Getattr(Getattr4Args {
            attr_request: Bitmap4::of(&[FATTR4_TIME_MODIFY_SET]),
        });
        let inval = Nfsstat4::NFS4ERR_INVAL;
        for (operations, expected) in [
            (
                vec![root(), list(1, [0; 8], 1000)],
                [Nfsstat4::NFS4ERR_BAD_COOKIE; 2],
            ),
            (
                vec![root(), list(0, [0; 8], 8)],
                [Nfsstat4::NFS4ERR_TOOSMALL; 2],
            ),
            (
                vec![root(), list(9, [7; 8], 1000)],
                [Nfsstat4::NFS4ERR_NOT_SAME; 2],
            ),
            (
                vec![root(), lookup("file"), list(0, [0; 8], 1000)],
                [Nfsstat4::NFS4ERR_NOTDIR; 2],
            ),
            (vec![root(), getattr], [inval; 2]),
            (vec![root(), make("", dir())], [inval; 2]),
            (
                vec![root(), make("f", file)],
                [Nfsstat4::NFS4ERR_BADTYPE; 2],
            ),
            (
                vec![root(), make("dir", dir())],
                [Nfsstat4::NFS4ERR_EXIST; 2],
            ),
            (
                vec![root(), make("..", dir())],
                [Nfsstat4::NFS4ERR_BADNAME; 2],
            ),
            (vec![putfh(&[1; 7])], [Nfsstat4::NFS4ERR_BADHANDLE; 2]),
            (
                vec![NfsArgop4::Restorefh],
                [Nfsstat4::NFS4ERR_NOFILEHANDLE, Nfsstat4::NFS4ERR_RESTOREFH],
            ),
            (vec![NfsArgop4::Savefh], [Nfsstat4::NFS4ERR_NOFILEHANDLE; 2]),
            (
                vec![root(), NfsArgop4::Lookupp],
                [Nfsstat4::NFS4ERR_NOENT; 2],
            ),
        ] {
            both(&client, &operations, expected).await;
        }
    });
}
