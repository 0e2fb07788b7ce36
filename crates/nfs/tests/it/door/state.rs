//! Opens and locks whose requests overtake each other.

use std::rc::Rc;
use std::time::Duration;

use files::Request;
use nfs::wire::*;
use sim::Env;

use super::bench::*;

fn is_open(request: &Request) -> bool {
    matches!(request, Request::Open { .. })
}

fn is_lock(request: &Request) -> bool {
    matches!(request, Request::Lock { .. })
}

/// LOCK of the whole file for writing by an owner that is new to the open.
fn lock<'a>(open: &Stateid4, owner: &'a str) -> NfsArgop4<'a> {
    NfsArgop4::Lock(Lock4Args {
        locktype: NfsLockType4::WRITE_LT,
        reclaim: false,
        offset: 0,
        length: u64::MAX,
        locker: Locker4::OpenOwner(OpenToLockOwner4 {
            open_seqid: 0,
            open_stateid: open.clone(),
            lock_seqid: 0,
            lock_owner: StateOwner4 {
                clientid: 0,
                owner: owner.into(),
            },
        }),
    })
}

fn read(stateid: &Stateid4) -> NfsArgop4<'static> {
    NfsArgop4::Read(Read4Args {
        stateid: stateid.clone(),
        offset: 0,
        count: 1,
    })
}

const WITHOUT_DELEGATION: u32 = OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;

async fn on_file(client: &Client, name: &str, operation: NfsArgop4<'_>) -> Done {
    client
        .call(&[NfsArgop4::Putrootfh, lookup(name), operation])
        .await
}

/// Begins something of a file on another slot.
async fn begun(client: &Client, name: &str, operation: NfsArgop4<'_>) -> u32 {
    let operations = [NfsArgop4::Putrootfh, lookup(name), operation];
    client.ask(1, &operations).await
}

async fn a_while(env: &Env) {
    env.core.sleep(Duration::from_millis(10)).await;
}

#[test]
fn a_file_that_is_closed_while_it_is_opened_again_is_open_afterwards_or_not() {
    let mut rig = Rig::new();
    let gate = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        let (first, _) = client.open("f", WITHOUT_DELEGATION).await;
        gate.hold(is_open);
        let operations = [NfsArgop4::Putrootfh, open("f", "o", WITHOUT_DELEGATION)];
        let opening = client.ask(1, &operations).await;
        until(&env, || gate.held() == 1).await;
        let operations = [NfsArgop4::Putrootfh, lookup("f"), close(&first)];
        let closing = client.ask(2, &operations).await;
        a_while(&env).await;
        gate.release();
        let opened = client.wire.answer(opening).await.expect("an answer").ok();
        client.wire.answer(closing).await.expect("an answer");
        let (second, _) = opened.opened(2);
        // What the door says of it is what the file system does.
        let newest = Stateid4 { seqid: 0, ..second };
        let of_door = on_file(&client, "f", read(&newest)).await.status;
        let other = Client::new(&env, "d").await;
        let NfsArgop4::Open(mut of) = open("f", "p", WITHOUT_DELEGATION) else {
            unreachable!()
        };
        of.share_deny = OPEN4_SHARE_DENY_BOTH;
        let of_fs = other
            .call(&[NfsArgop4::Putrootfh, NfsArgop4::Open(of)])
            .await;
        let is_open = of_fs.status == Nfsstat4::NFS4ERR_SHARE_DENIED;
        assert_eq!(of_door == Nfsstat4::NFS4_OK, is_open, "{of_door:?}");
    });
}

#[test]
fn a_lock_that_a_close_overtakes_is_not_held_afterwards() {
    let mut rig = Rig::new();
    let gate = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        let (opened, _) = client.open("f", WITHOUT_DELEGATION).await;
        gate.hold(is_lock);
        let locking = begun(&client, "f", lock(&opened, "l")).await;
        until(&env, || gate.held() == 1).await;
        let operations = [NfsArgop4::Putrootfh, lookup("f"), close(&opened)];
        let closing = client.ask(2, &operations).await;
        a_while(&env).await;
        gate.release();
        client.wire.answer(locking).await.expect("an answer");
        client.wire.answer(closing).await.expect("an answer").ok();
        let (again, _) = client.open("f", WITHOUT_DELEGATION).await;
        on_file(&client, "f", lock(&again, "other")).await.ok();
    });
}

#[test]
fn a_lock_owner_keeps_its_locks_until_its_last_open_is_closed() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        let mut opens = Vec::new();
        for owner in ["o1", "o2"] {
            let operations = [NfsArgop4::Putrootfh, open("f", owner, WITHOUT_DELEGATION)];
            let (opened, _) = client.call(&operations).await.ok().opened(2);
            on_file(&client, "f", lock(&opened, "l")).await.ok();
            opens.push(opened);
        }
        let (third, _) = client.open("f", WITHOUT_DELEGATION).await;
        on_file(&client, "f", close(&opens[0])).await.ok();
        let denied = on_file(&client, "f", lock(&third, "other")).await;
        assert_eq!(denied.status, Nfsstat4::NFS4ERR_DENIED);
        on_file(&client, "f", close(&opens[1])).await.ok();
        on_file(&client, "f", lock(&third, "other")).await.ok();
    });
}

#[test]
fn what_a_client_gets_while_it_is_forgotten_is_forgotten_too() {
    let mut rig = Rig::new();
    let gate = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        gate.hold(is_open);
        let operations = [NfsArgop4::Putrootfh, open("f", "o", WITHOUT_DELEGATION)];
        let opening = client.ask(1, &operations).await;
        until(&env, || gate.held() == 1).await;
        // The same client, restarted: what it held before is gone.
        let restarted = exchange_id(&client.wire, "c", 2).await.eir_clientid;
        let ask = [NfsArgop4::CreateSession(create_session(restarted, 1))];
        client.wire.call(1, &ask).await.ok();
        gate.release();
        let done = client.wire.answer(opening).await.expect("an answer");
        assert_eq!(done.status, Nfsstat4::NFS4ERR_EXPIRED);
        let other = Client::new(&env, "d").await;
        let NfsArgop4::Open(mut of) = open("f", "p", WITHOUT_DELEGATION) else {
            unreachable!()
        };
        of.share_deny = OPEN4_SHARE_DENY_BOTH;
        let operations = [NfsArgop4::Putrootfh, NfsArgop4::Open(of)];
        other.call(&operations).await.ok();
    });
}

/// RFC 8881, section 9.1.2: a lock-owner's lock needs an open that allows it, whichever of its opens.
#[test]
fn a_lock_is_judged_by_the_open_that_allows_it() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        let none = OPEN4_SHARE_ACCESS_WANT_NO_DELEG;
        let mut locked = None;
        for (owner, access, kind) in [
            ("o1", OPEN4_SHARE_ACCESS_READ, NfsLockType4::READ_LT),
            ("o2", OPEN4_SHARE_ACCESS_WRITE, NfsLockType4::WRITE_LT),
        ] {
            let operations = [NfsArgop4::Putrootfh, open("f", owner, access | none)];
            let (opened, _) = client.call(&operations).await.ok().opened(2);
            let NfsArgop4::Lock(mut of) = lock(&opened, "l") else {
                unreachable!()
            };
            (of.locktype, of.length) = (kind, 1);
            let done = on_file(&client, "f", NfsArgop4::Lock(of)).await.ok();
            let NfsResop4::Lock(Lock4Res::Nfs4Ok(of)) = done.result(3) else {
                panic!("{done:?}");
            };
            locked = Some(of.lock_stateid);
        }
        let mut lock_stateid = locked.expect("two");
        for kind in [NfsLockType4::WRITE_LT, NfsLockType4::READ_LT] {
            let more = NfsArgop4::Lock(Lock4Args {
                locktype: kind,
                reclaim: false,
                offset: 7,
                length: 1,
                locker: Locker4::LockOwner(ExistLockOwner4 {
                    lock_stateid: lock_stateid.clone(),
                    lock_seqid: 0,
                }),
            });
            let done = on_file(&client, "f", more).await.ok();
            let NfsResop4::Lock(Lock4Res::Nfs4Ok(of)) = done.result(3) else {
                panic!("{done:?}");
            };
            lock_stateid = of.lock_stateid;
        }
    });
}

#[test]
fn a_close_that_fails_is_repeated_whole() {
    let mut rig = Rig::new();
    let gate = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        let (opened, _) = client.open("f", WITHOUT_DELEGATION).await;
        on_file(&client, "f", lock(&opened, "l")).await.ok();
        gate.fail(1, |request| matches!(request, Request::Unlock { .. }));
        let failed = on_file(&client, "f", close(&opened)).await;
        assert_eq!(failed.status, Nfsstat4::NFS4ERR_IO);
        on_file(&client, "f", close(&opened)).await.ok();
        // Nothing is locked any more.
        let other = Client::new(&env, "d").await;
        let (again, _) = other.open("f", WITHOUT_DELEGATION).await;
        on_file(&other, "f", lock(&again, "other")).await.ok();
    });
}
