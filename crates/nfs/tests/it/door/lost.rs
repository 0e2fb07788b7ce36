//! What clients lose without hearing of it, and the grace period after that (RFC 8881, section 8.4).

use std::rc::Rc;
use std::time::Duration;

use files::Request;
use nfs::wire::*;
use sim::Env;

use super::bench::*;

const READ: u32 = OPEN4_SHARE_ACCESS_READ;
const WRITE: u32 = OPEN4_SHARE_ACCESS_WRITE | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;

/// CLAIM_PREVIOUS of an open for reading.
async fn reclaims(client: &Client, name: &str) -> Nfsstat4 {
    let NfsArgop4::Open(mut of) = open(name, "o", READ) else {
        unreachable!()
    };
    of.claim = OpenClaim4::ClaimPrevious(OpenDelegationType4::OPEN_DELEGATE_NONE);
    let done = client
        .call(&[NfsArgop4::Putrootfh, lookup(name), NfsArgop4::Open(of)])
        .await;
    done.status
}

/// A client whose delegation is taken away, because it hears no callback, though its lease holds.
async fn bereft(env: &Env) -> (Client, Stateid4) {
    let holder = Client::new(env, "holder").await;
    let other = Client::new(env, "other").await;
    holder.make("f").await;
    holder.back.on_call(|_| Reaction::Lost);
    let (_, delegation) = holder.open("f", READ).await;
    let writes = [NfsArgop4::Putrootfh, open("f", "writer", WRITE)];
    for _ in 0..100 {
        if other.call(&writes).await.status == Nfsstat4::NFS4_OK {
            break;
        }
        env.core.sleep(Duration::from_secs(2)).await;
        holder.flags().await;
    }
    let flags = holder.flags().await;
    assert_ne!(flags & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
    (holder, delegation.expect("nobody was in the way"))
}

async fn back_after_restart(env: &Env, client: &mut Client) {
    client.reconnect(env).await;
    // Any number is the first after a restart.
    client.slots.borrow_mut()[0] += 1;
}

#[test]
fn who_has_lost_something_reclaims_nothing_until_it_has_begun_anew() {
    let mut rig = Rig::new();
    let (mut holder, _) = rig.run(|env| async move { bereft(&env).await });
    rig.restart();
    let mut holder = rig.run(move |env| async move {
        back_after_restart(&env, &mut holder).await;
        let refused = reclaims(&holder, "f").await;
        assert_eq!(refused, Nfsstat4::NFS4ERR_RECLAIM_BAD);
        holder
    });
    // The server dies again before the client knows: it is no different.
    rig.restart();
    let holder = rig.run(move |env| async move {
        back_after_restart(&env, &mut holder).await;
        let refused = reclaims(&holder, "f").await;
        assert_eq!(refused, Nfsstat4::NFS4ERR_RECLAIM_BAD);
        holder.reclaim_complete().await;
        holder
    });
    rig.pass(LEASE * 2);
    rig.run(move |_| async move {
        let flags = holder.flags().await;
        assert_eq!(flags & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
        holder.open("f", READ).await;
    });
}

#[test]
fn who_has_lost_something_and_says_nothing_in_a_grace_period_reclaims_nothing_in_the_next() {
    let mut rig = Rig::new();
    let (mut holder, _) = rig.run(|env| async move { bereft(&env).await });
    rig.restart();
    let mut holder = rig.run(move |env| async move {
        back_after_restart(&env, &mut holder).await;
        holder.flags().await;
        holder
    });
    rig.pass(LEASE * 2);
    rig.restart();
    rig.run(move |env| async move {
        back_after_restart(&env, &mut holder).await;
        let refused = reclaims(&holder, "f").await;
        assert_eq!(refused, Nfsstat4::NFS4ERR_RECLAIM_BAD);
    });
}

#[test]
fn who_has_acknowledged_its_loss_reclaims_the_rest() {
    let mut rig = Rig::new();
    let mut holder = rig.run(|env| async move {
        let (holder, delegation) = bereft(&env).await;
        let of = FreeStateid4Args {
            fsa_stateid: delegation,
        };
        holder.call(&[NfsArgop4::FreeStateid(of)]).await.ok();
        let flags = holder.flags().await;
        assert_eq!(flags & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
        holder
    });
    rig.restart();
    rig.run(move |env| async move {
        back_after_restart(&env, &mut holder).await;
        assert_eq!(reclaims(&holder, "f").await, Nfsstat4::NFS4_OK);
    });
}

#[test]
fn who_begins_anew_after_a_loss_reclaims_after_the_next_restart() {
    let mut rig = Rig::new();
    let (mut holder, _) = rig.run(|env| async move { bereft(&env).await });
    for turn in 0..2 {
        rig.restart();
        holder = rig.run(move |env| async move {
            back_after_restart(&env, &mut holder).await;
            let status = reclaims(&holder, "f").await;
            let expected = [Nfsstat4::NFS4ERR_RECLAIM_BAD, Nfsstat4::NFS4_OK][turn];
            assert_eq!(status, expected);
            holder.reclaim_complete().await;
            holder
        });
    }
}

#[test]
fn nobody_gets_what_a_client_held_before_that_client_is_struck_off() {
    let mut rig = Rig::new();
    let fs = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let silent = Client::new(&env, "silent").await;
        silent.make("f").await;
        let NfsArgop4::Open(mut of) = open("f", "o", WRITE) else {
            unreachable!()
        };
        of.share_deny = OPEN4_SHARE_DENY_BOTH;
        let denies = [NfsArgop4::Putrootfh, NfsArgop4::Open(of)];
        silent.call(&denies).await.ok();
        env.core.sleep(LEASE * 2).await;
        let other = Client::new(&env, "other").await;
        let is_row = |key: &[u8]| key.starts_with(b"client/");
        fs.fail(
            3,
            move |request| matches!(request, Request::RemoveRecord(key) if is_row(key)),
        );
        let writes = [NfsArgop4::Putrootfh, open("f", "writer", WRITE)];
        let opening = other.ask(0, &writes).await;
        until(&env, || fs.failed() == 1).await;
        // Nothing that it held is given up so far.
        let second = Client::new(&env, "second").await;
        let refused = second.call(&writes).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_SHARE_DENIED);
        other.wire.answer(opening).await.expect("an answer").ok();
        assert_eq!(fs.failed(), 3);
    });
}

#[test]
fn the_grace_period_is_ended_until_it_is_over() {
    let mut rig = Rig::new();
    let mut client = rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        client
    });
    rig.fs
        .fail(3, |request| matches!(request, Request::EndGrace));
    rig.restart();
    let client = rig.run(move |env| async move {
        back_after_restart(&env, &mut client).await;
        client.reclaim_complete().await;
        client
    });
    assert!(rig.door().is_in_grace());
    rig.pass(Duration::from_secs(10));
    assert_eq!((rig.fs.failed(), rig.door().is_in_grace()), (3, false));
    rig.run(move |_| async move { client.open("f", READ).await });
}
