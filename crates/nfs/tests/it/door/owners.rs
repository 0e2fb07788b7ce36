//! Owners of opens and locks are remembered for as long as they are needed.

use std::rc::Rc;
use std::time::Duration;

use files::Request;
use nfs::wire::*;

use super::bench::*;
use super::clients::{opened_0, set_client_id};

const BOTH: u32 = OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;

/// LOCK of some bytes for writing by an owner that is new to the open.
fn lock<'a>(open: &Stateid4, owner: (u64, &'a str), seqids: (u32, u32)) -> NfsArgop4<'a> {
    NfsArgop4::Lock(Lock4Args {
        locktype: NfsLockType4::WRITE_LT,
        reclaim: false,
        offset: 0,
        length: 10,
        locker: Locker4::OpenOwner(OpenToLockOwner4 {
            open_seqid: seqids.0,
            open_stateid: open.clone(),
            lock_seqid: seqids.1,
            lock_owner: StateOwner4 {
                clientid: owner.0,
                owner: owner.1.into(),
            },
        }),
    })
}

fn unlock(stateid: &Stateid4, seqid: u32, length: u64) -> NfsArgop4<'static> {
    NfsArgop4::Locku(Locku4Args {
        locktype: NfsLockType4::WRITE_LT,
        seqid,
        lock_stateid: stateid.clone(),
        offset: 0,
        length,
    })
}

fn lock_of(done: &Done, at: usize) -> Stateid4 {
    match done.result(at) {
        NfsResop4::Lock(Lock4Res::Nfs4Ok(of)) => of.lock_stateid,
        NfsResop4::Locku(Ok(stateid)) => stateid,
        other => panic!("{other:?}"),
    }
}

#[test]
fn owners_go_with_their_last_state() {
    let mut rig = Rig::new();
    let door = rig.door();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        for turn in 0..50 {
            let owner = format!("o{turn}");
            let opens = [NfsArgop4::Putrootfh, open("f", &owner, BOTH)];
            let (opened, _) = client.call(&opens).await.ok().opened(2);
            let locks = [
                NfsArgop4::Putrootfh,
                lookup("f"),
                lock(&opened, (0, &owner), (0, 0)),
            ];
            client.call(&locks).await.ok();
            assert_eq!(door.counts().owners, 2);
            let closes = [NfsArgop4::Putrootfh, lookup("f"), close(&opened)];
            client.call(&closes).await.ok();
            // What is refused leaves nobody behind.
            let opens = [NfsArgop4::Putrootfh, open("no", &owner, BOTH)];
            let refused = client.call(&opens).await;
            assert_eq!(refused.status, Nfsstat4::NFS4ERR_NOENT);
            assert_eq!((door.counts().owners, door.counts().states), (0, 0));
        }
    });
}

#[test]
fn a_lock_of_no_bytes_can_be_freed() {
    let mut rig = Rig::new();
    let door = rig.door();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        let (opened, _) = client.open("f", BOTH).await;
        let on_file = async |operation| {
            let of = [NfsArgop4::Putrootfh, lookup("f"), operation];
            client.call(&of).await
        };
        let locked = on_file(lock(&opened, (0, "l"), (0, 0))).await.ok();
        let free = |stateid: &Stateid4| {
            NfsArgop4::FreeStateid(FreeStateid4Args {
                fsa_stateid: stateid.clone(),
            })
        };
        let stateid = lock_of(&locked, 3);
        let part = on_file(unlock(&stateid, 0, 9)).await.ok();
        let stateid = lock_of(&part, 3);
        let refused = client.call(&[free(&stateid)]).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_LOCKS_HELD);
        let whole = on_file(unlock(&stateid, 0, 10)).await.ok();
        let stateid = lock_of(&whole, 3);
        client.call(&[free(&stateid)]).await.ok();
        assert_eq!((door.counts().owners, door.counts().states), (1, 1));
        let again = client.call(&[free(&stateid)]).await;
        assert_eq!(again.status, Nfsstat4::NFS4ERR_BAD_STATEID);
        on_file(lock(&opened, (0, "l"), (0, 0))).await.ok();
    });
}

#[test]
fn a_lock_owner_of_4_0_is_released_when_it_locks_nothing() {
    let mut rig = Rig::new();
    let door = rig.door();
    rig.run(|env| async move {
        let client = Client::new(&env, "4.1").await;
        let wire = &client.wire;
        let id = set_client_id(wire, "c", 1).await;
        let (opened, handle) = opened_0(wire, id, "f").await;
        let on_file = async |operation| {
            let putfh = NfsArgop4::Putfh(Putfh4Args {
                object: handle.as_slice().into(),
            });
            wire.call(0, &[putfh, operation]).await
        };
        let locked = on_file(lock(&opened, (id, "l"), (3, 1))).await.ok();
        let release = || {
            NfsArgop4::ReleaseLockowner(ReleaseLockowner4Args {
                lock_owner: StateOwner4 {
                    clientid: id,
                    owner: "l".into(),
                },
            })
        };
        let refused = wire.call(0, &[release()]).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_LOCKS_HELD);
        let stateid = lock_of(&locked, 1);
        on_file(unlock(&stateid, 2, 10)).await.ok();
        wire.call(0, &[release()]).await.ok();
        assert_eq!((door.counts().owners, door.counts().states), (1, 1));
        wire.call(0, &[release()]).await.ok();
        // It may come again, with any number.
        on_file(lock(&opened, (id, "l"), (4, 77))).await.ok();
    });
}

#[test]
fn owners_of_4_0_that_hold_nothing_are_forgotten_after_a_lease() {
    let mut rig = Rig::new();
    let door = rig.door();
    rig.run(|env| async move {
        let client = Client::new(&env, "4.1").await;
        let wire = &client.wire;
        let id = set_client_id(wire, "c", 1).await;
        let opens = |name: &'static str| {
            let NfsArgop4::Open(mut of) = open("no", name, OPEN4_SHARE_ACCESS_READ) else {
                unreachable!()
            };
            of.owner.clientid = id;
            [NfsArgop4::Putrootfh, NfsArgop4::Open(of)]
        };
        for name in ["a", "b", "c"] {
            let refused = wire.call(0, &opens(name)).await;
            assert_eq!(refused.status, Nfsstat4::NFS4ERR_NOENT);
        }
        assert_eq!(door.counts().owners, 3);
        let (_, _) = opened_0(wire, id, "f").await;
        env.core.sleep(LEASE + Duration::from_secs(1)).await;
        wire.call(0, &opens("d")).await;
        assert_eq!(
            door.counts().owners,
            2,
            "the one that has a file open stays"
        );
    });
}

#[test]
fn a_lock_owner_that_is_locking_is_not_released() {
    let mut rig = Rig::new();
    let gate = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let client = Client::new(&env, "4.1").await;
        let wire = &client.wire;
        let id = set_client_id(wire, "c", 1).await;
        let (opened, handle) = opened_0(wire, id, "f").await;
        let putfh = || {
            NfsArgop4::Putfh(Putfh4Args {
                object: handle.as_slice().into(),
            })
        };
        gate.hold(|request| matches!(request, Request::Lock { .. }));
        let locks = [putfh(), lock(&opened, (id, "l"), (3, 1))];
        let locking = wire.ask(0, &locks).await;
        until(&env, || gate.held() == 1).await;
        let of = ReleaseLockowner4Args {
            lock_owner: StateOwner4 {
                clientid: id,
                owner: "l".into(),
            },
        };
        let release = wire.ask(0, &[NfsArgop4::ReleaseLockowner(of)]).await;
        env.core.sleep(Duration::from_secs(1)).await;
        gate.release();
        wire.answer(locking).await.expect("an answer").ok();
        wire.answer(release).await.expect("an answer");
        // Its own lock is not in its way.
        let again = [putfh(), lock(&opened, (id, "l"), (4, 2))];
        wire.call(0, &again).await.ok();
    });
}

/// What the owners of 4.0 keep for their sequences' sake does not grow with what they have asked.
#[test]
fn owners_keep_little_of_large_requests() {
    const REQUESTS: usize = 20;
    const LEN: usize = 1 << 20;
    let mut rig = Rig::new();
    let grown = rig.run(|env| async move {
        let client = Client::new(&env, "4.1").await;
        let wire = &client.wire;
        let id = set_client_id(wire, "c", 1).await;
        let name = "x".repeat(LEN);
        let mut before = 0;
        for owner in 0..=REQUESTS {
            if owner == 1 {
                // The first one has grown the buffers.
                before = crate::allocation::bytes_held();
            }
            let owner = format!("o{owner}");
            let NfsArgop4::Open(mut of) = open(&name, &owner, BOTH) else {
                unreachable!()
            };
            of.owner.clientid = id;
            let opens = [NfsArgop4::Putrootfh, NfsArgop4::Open(of)];
            let refused = wire.call(0, &opens).await;
            assert_eq!(refused.status, Nfsstat4::NFS4ERR_NAMETOOLONG);
        }
        crate::allocation::bytes_held() - before
    });
    assert_eq!(rig.door().counts().owners, REQUESTS as u64 + 1);
    assert!(grown < 4 * LEN as i64, "{grown} bytes");
}
