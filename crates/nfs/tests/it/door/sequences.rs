//! Sequences of owners in NFSv4.0 (RFC 7530, sections 9.1.7 to 9.1.11).

use std::rc::Rc;

use files::Request;
use nfs::wire::*;
use sim::Env;

use super::bench::*;
use super::clients::{open_0, set_client_id};

/// A client of 4.0 with a file that it knows the handle of, and a wire to 4.1 beside it.
struct Zero {
    client: Client,
    id: u64,
    handle: Vec<u8>,
}

impl Zero {
    async fn new(env: &Env) -> Self {
        let client = Client::new(env, "4.1").await;
        client.make("f").await;
        let look = [NfsArgop4::Putrootfh, lookup("f"), NfsArgop4::Getfh];
        let done = client.call(&look).await.ok();
        let NfsResop4::Getfh(Ok(of)) = done.result(3) else {
            panic!("{done:?}");
        };
        let handle = of.object.to_vec();
        let id = set_client_id(&client.wire, "c", 1).await;
        Self { client, id, handle }
    }

    /// An operation on the file, over the connection that there is.
    async fn on_file(&self, operation: &NfsArgop4<'_>) -> Done {
        let putfh = NfsArgop4::Putfh(Putfh4Args {
            object: self.handle.as_slice().into(),
        });
        self.client.wire.call(0, &[putfh, operation.clone()]).await
    }

    async fn open(&self, seqid: u32) -> Done {
        let open = open_0(self.id, "f", seqid, false);
        let of = [NfsArgop4::Putrootfh, open, NfsArgop4::Getfh];
        self.client.wire.call(0, &of).await
    }

    /// Opens the file and confirms that, with numbers 1 and 2.
    async fn opened(&self) -> Stateid4 {
        let (stateid, _) = self.open(1).await.ok().opened(1);
        let done = self.on_file(&confirm(&stateid, 2)).await.ok();
        match done.result(1) {
            NfsResop4::OpenConfirm(Ok(of)) => of.open_stateid,
            other => panic!("{other:?}"),
        }
    }
}

fn confirm(stateid: &Stateid4, seqid: u32) -> NfsArgop4<'static> {
    NfsArgop4::OpenConfirm(OpenConfirm4Args {
        open_stateid: stateid.clone(),
        seqid,
    })
}

fn close_0(stateid: &Stateid4, seqid: u32) -> NfsArgop4<'static> {
    NfsArgop4::Close(Close4Args {
        seqid,
        open_stateid: stateid.clone(),
    })
}

fn downgrade(stateid: &Stateid4, seqid: u32) -> NfsArgop4<'static> {
    NfsArgop4::OpenDowngrade(OpenDowngrade4Args {
        open_stateid: stateid.clone(),
        seqid,
        share_access: OPEN4_SHARE_ACCESS_BOTH,
        share_deny: 0,
    })
}

fn lock(locker: Locker4<'_>, offset: u64) -> NfsArgop4<'_> {
    NfsArgop4::Lock(Lock4Args {
        locktype: NfsLockType4::WRITE_LT,
        reclaim: false,
        offset,
        length: 10,
        locker,
    })
}

fn new_owner(client: u64, open: &Stateid4, seqids: (u32, u32)) -> Locker4<'static> {
    Locker4::OpenOwner(OpenToLockOwner4 {
        open_seqid: seqids.0,
        open_stateid: open.clone(),
        lock_seqid: seqids.1,
        lock_owner: StateOwner4 {
            clientid: client,
            owner: "l".into(),
        },
    })
}

fn known_owner(lock: &Stateid4, seqid: u32) -> Locker4<'static> {
    Locker4::LockOwner(ExistLockOwner4 {
        lock_stateid: lock.clone(),
        lock_seqid: seqid,
    })
}

fn unlock(stateid: &Stateid4, seqid: u32) -> NfsArgop4<'static> {
    NfsArgop4::Locku(Locku4Args {
        locktype: NfsLockType4::WRITE_LT,
        seqid,
        lock_stateid: stateid.clone(),
        offset: 0,
        length: u64::MAX,
    })
}

fn locked(done: &Done) -> Stateid4 {
    match done.result(1) {
        NfsResop4::Lock(Lock4Res::Nfs4Ok(of)) => of.lock_stateid,
        other => panic!("{other:?}"),
    }
}

fn must_confirm(done: &Done) -> bool {
    match done.result(1) {
        NfsResop4::Open(Ok(of)) => of.rflags & OPEN4_RESULT_CONFIRM != 0,
        other => panic!("{other:?}"),
    }
}

/// The same answer, to the last byte.
fn assert_same(first: &Done, second: &Done) {
    assert_eq!(format!("{first:?}"), format!("{second:?}"));
}

#[test]
fn each_operation_is_carried_out_once_over_any_connection() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let mut zero = Zero::new(&env).await;
        let first = zero.open(1).await.ok();
        assert!(must_confirm(&first));
        zero.client.reconnect(&env).await;
        let again = zero.open(1).await;
        assert_same(&first, &again);
        let (opened, _) = first.opened(1);
        let mut last = confirm(&opened, 2);
        let mut operations = Vec::new();
        let done = zero.on_file(&last).await.ok();
        let NfsResop4::OpenConfirm(Ok(of)) = done.result(1) else {
            panic!("{done:?}");
        };
        operations.push((last, done.clone()));
        let opened = of.open_stateid;
        last = lock(new_owner(zero.id, &opened, (3, 70)), 0);
        let done = zero.on_file(&last).await.ok();
        let held = locked(&done);
        zero.client.reconnect(&env).await;
        assert_same(&done, &zero.on_file(&last).await);
        last = lock(known_owner(&held, 71), 10);
        let done = zero.on_file(&last).await.ok();
        let held = locked(&done);
        assert_same(&done, &zero.on_file(&last).await);
        last = unlock(&held, 72);
        let done = zero.on_file(&last).await.ok();
        assert_same(&done, &zero.on_file(&last).await);
        last = downgrade(&opened, 4);
        let done = zero.on_file(&last).await.ok();
        assert_same(&done, &zero.on_file(&last).await);
        let NfsResop4::OpenDowngrade(Ok(of)) = done.result(1) else {
            panic!("{done:?}");
        };
        last = close_0(&of.open_stateid, 5);
        let done = zero.on_file(&last).await.ok();
        zero.client.reconnect(&env).await;
        assert_same(&done, &zero.on_file(&last).await.ok());
        // The next one ends that: its stateid is nobody's.
        zero.open(6).await.ok();
        let late = zero.on_file(&last).await;
        assert_eq!(late.status, Nfsstat4::NFS4ERR_BAD_STATEID);
    });
    assert_eq!(rig.door().counts().repeats, 6);
}

#[test]
fn a_repeat_that_overtakes_its_answer_waits_for_it() {
    let mut rig = Rig::new();
    let fs = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let zero = Zero::new(&env).await;
        fs.hold(|request| matches!(request, Request::Open { .. }));
        let of = [NfsArgop4::Putrootfh, open_0(zero.id, "f", 1, false)];
        let first = zero.client.wire.ask(0, &of).await;
        until(&env, || fs.held() == 1).await;
        let other = Client::new(&env, "other").await;
        let second = other.wire.ask(0, &of).await;
        env.core.sleep(LEASE / 100).await;
        assert_eq!(fs.held(), 1, "it is carried out once");
        fs.release();
        let first = zero.client.wire.answer(first).await.expect("an answer");
        let second = other.wire.answer(second).await.expect("an answer");
        assert_same(&first.ok(), &second.ok());
    });
}

#[test]
fn numbers_out_of_turn_are_refused_and_change_nothing() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let zero = Zero::new(&env).await;
        let opened = zero.opened().await;
        let bad = Nfsstat4::NFS4ERR_BAD_SEQID;
        for seqid in [1, 2, 4, u32::MAX] {
            assert_eq!(zero.open(seqid).await.status, bad);
            assert_eq!(zero.on_file(&close_0(&opened, seqid)).await.status, bad);
            let locks = lock(new_owner(zero.id, &opened, (seqid, 1)), 0);
            assert_eq!(zero.on_file(&locks).await.status, bad);
        }
        // What was refused for its stateid took no number.
        let mut other = opened.clone();
        other.seqid += 7;
        let refused = zero.on_file(&downgrade(&other, 3)).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_BAD_STATEID);
        // What was refused for its contents took one, and is repeated.
        let NfsArgop4::Lock(mut of) = lock(new_owner(zero.id, &opened, (3, 1)), 0) else {
            unreachable!()
        };
        of.length = 0;
        let locks = NfsArgop4::Lock(of);
        for _ in 0..2 {
            let refused = zero.on_file(&locks).await;
            assert_eq!(refused.status, Nfsstat4::NFS4ERR_INVAL);
        }
        let held = zero
            .on_file(&lock(new_owner(zero.id, &opened, (4, 2)), 0))
            .await
            .ok();
        for seqid in [1, 4] {
            let locks = lock(known_owner(&locked(&held), seqid), 0);
            assert_eq!(zero.on_file(&locks).await.status, bad);
        }
        zero.on_file(&lock(known_owner(&locked(&held), 3), 0))
            .await
            .ok();
    });
}

#[test]
fn owners_confirm_themselves_once() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let zero = Zero::new(&env).await;
        let first = zero.open(10).await.ok();
        assert!(must_confirm(&first));
        let (stale, _) = first.opened(1);
        // Not confirmed: it may begin anew with any number, and what it had is gone.
        let second = zero.open(50).await.ok();
        assert!(must_confirm(&second));
        let (opened, _) = second.opened(1);
        let refused = zero.on_file(&confirm(&stale, 51)).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_BAD_STATEID);
        let unusable = zero
            .on_file(&lock(new_owner(zero.id, &opened, (51, 1)), 0))
            .await;
        assert_eq!(unusable.status, Nfsstat4::NFS4ERR_BAD_STATEID);
        zero.on_file(&confirm(&opened, 51)).await.ok();
        let third = zero.open(52).await.ok();
        assert!(!must_confirm(&third));
        let (opened, _) = third.opened(1);
        zero.on_file(&close_0(&opened, 53)).await.ok();
        assert!(!must_confirm(&zero.open(54).await.ok()));
    });
}
