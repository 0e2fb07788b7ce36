//! Delegations that come back late, twice, or never, and what is done under them meanwhile.

use std::rc::Rc;
use std::time::Duration;

use files::Request;
use nfs::wire::*;
use sim::Env;

use super::bench::*;

const READ: u32 = OPEN4_SHARE_ACCESS_READ;
const WRITE: u32 = OPEN4_SHARE_ACCESS_WRITE | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;

/// Two clients, a file of the first, and its delegation: for writing, if it was opened for that.
async fn delegated(env: &Env, access: u32) -> (Client, Client, Stateid4) {
    let first = Client::new(env, "first").await;
    let second = Client::new(env, "second").await;
    first.make("f").await;
    let (_, delegation) = first.open("f", access).await;
    (first, second, delegation.expect("nobody is in the way"))
}

async fn on_file(client: &Client, operation: NfsArgop4<'_>) -> Nfsstat4 {
    let operations = [NfsArgop4::Putrootfh, lookup("f"), operation];
    client.call(&operations).await.status
}

async fn write_open(client: &Client) -> Nfsstat4 {
    let opens = [NfsArgop4::Putrootfh, open("f", "writer", WRITE)];
    client.call(&opens).await.status
}

fn free(stateid: &Stateid4) -> NfsArgop4<'static> {
    NfsArgop4::FreeStateid(FreeStateid4Args {
        fsa_stateid: stateid.clone(),
    })
}

async fn flags_settle(env: &Env, clients: &[&Client]) {
    for _ in 0..4 {
        env.core.sleep(LEASE / 3).await;
        for client in clients {
            client.flags().await;
        }
    }
}

/// RFC 8881, sections 10.2 and 10.4: what was opened under a delegation is open, whatever the mode is
/// by now.
#[test]
fn what_was_opened_under_a_delegation_is_claimed_whatever_the_mode_is_now() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let (first, second, delegation) = delegated(&env, OPEN4_SHARE_ACCESS_BOTH).await;
        // A user opens it on the client, before the superuser there takes all permission.
        let none = NfsArgop4::Setattr(Setattr4Args {
            stateid: ANONYMOUS,
            obj_attributes: Fattr4 {
                attrmask: Bitmap4::of(&[FATTR4_MODE]),
                attr_vals: nfs::xdr::Opaque(&[0; 4]),
            },
        });
        assert_eq!(on_file(&first, none).await, Nfsstat4::NFS4_OK);
        assert_eq!(write_open(&second).await, Nfsstat4::NFS4ERR_DELAY);
        first.wire.user.set(7);
        let claims = |claim, access| {
            let NfsArgop4::Open(mut of) = open("f", "local", access) else {
                unreachable!()
            };
            of.claim = claim;
            NfsArgop4::Open(of)
        };
        let by_handle = OpenClaim4::ClaimDelegCurFh(delegation.clone());
        let by_name = OpenClaim4::ClaimDelegateCur(OpenClaimDelegateCur4 {
            delegate_stateid: delegation.clone(),
            file: "f".into(),
        });
        let both = OPEN4_SHARE_ACCESS_BOTH;
        let claimed = on_file(&first, claims(by_handle, both)).await;
        assert_eq!(claimed, Nfsstat4::NFS4_OK);
        let operations = [NfsArgop4::Putrootfh, claims(by_name, both)];
        let claimed = first.call(&operations).await;
        assert_eq!(claimed.status, Nfsstat4::NFS4_OK);
        // Without a delegation it is a matter of the mode.
        let fresh = on_file(&first, claims(OpenClaim4::ClaimFh, both)).await;
        assert_eq!(fresh, Nfsstat4::NFS4ERR_ACCESS);
    });
}

#[test]
fn a_delegation_for_reading_claims_no_open_for_writing() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let (first, _, delegation) = delegated(&env, READ).await;
        for (access, expected) in [
            (OPEN4_SHARE_ACCESS_READ, Nfsstat4::NFS4_OK),
            (OPEN4_SHARE_ACCESS_WRITE, Nfsstat4::NFS4ERR_BAD_STATEID),
        ] {
            let NfsArgop4::Open(mut of) = open("f", "local", access) else {
                unreachable!()
            };
            of.claim = OpenClaim4::ClaimDelegCurFh(delegation.clone());
            let claimed = on_file(&first, NfsArgop4::Open(of)).await;
            assert_eq!(claimed, expected, "{access}");
        }
    });
}

/// The deadline passes while the file system takes the delegation back.
#[test]
fn a_delegation_that_is_returned_at_the_deadline_is_not_missed() {
    let mut rig = Rig::new();
    let gate = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let (first, second, delegation) = delegated(&env, READ).await;
        assert_eq!(write_open(&second).await, Nfsstat4::NFS4ERR_DELAY);
        let back = first.back.clone();
        until(&env, || back.recalls() == 1).await;
        gate.hold(|request| matches!(request, Request::ReturnDelegation { .. }));
        let operations = [NfsArgop4::Putrootfh, lookup("f"), delegreturn(&delegation)];
        let returning = first.ask(1, &operations).await;
        until(&env, || gate.held() == 1).await;
        flags_settle(&env, &[&first, &second]).await;
        let revoked = SEQ4_STATUS_RECALLABLE_STATE_REVOKED;
        assert_ne!(first.flags().await & revoked, 0, "the lease has passed");
        gate.release();
        first.wire.answer(returning).await.expect("an answer").ok();
        assert_eq!(first.flags().await & revoked, 0);
    });
}

/// The client frees what was taken away, and asks for another delegation, before the first is wholly
/// taken away: it waits to be written down.
#[test]
fn a_newer_delegation_outlives_the_revocation_of_an_older_one() {
    let mut rig = Rig::new();
    let gate = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let (first, second, older) = delegated(&env, READ).await;
        assert_eq!(write_open(&second).await, Nfsstat4::NFS4ERR_DELAY);
        gate.fail(1, |request| {
            matches!(request, Request::PutRecord { key, .. } if key.starts_with(b"client/"))
        });
        for _ in 0..2 {
            env.core.sleep(LEASE / 3).await;
            first.flags().await;
        }
        until(&env, || gate.failed() == 1).await;
        let revoked = SEQ4_STATUS_RECALLABLE_STATE_REVOKED;
        assert_ne!(first.flags().await & revoked, 0);
        first.call(&[free(&older)]).await.ok();
        let (_, newer) = first.open("f", READ).await;
        env.core.sleep(Duration::from_secs(2)).await;
        let newer = match newer {
            Some(newer) => newer,
            None => first.open("f", READ).await.1.expect("it is over"),
        };
        // Whatever it was given, nobody gets the file before it is back.
        assert_eq!(write_open(&second).await, Nfsstat4::NFS4ERR_DELAY);
        let returned = on_file(&first, delegreturn(&newer)).await;
        assert_eq!(returned, Nfsstat4::NFS4_OK);
        assert_eq!(write_open(&second).await, Nfsstat4::NFS4_OK);
    });
}

/// A grant that is taken back because it was wanted meanwhile takes no later one along.
#[test]
fn a_grant_that_comes_to_nothing_takes_no_later_one_along() {
    let mut rig = Rig::new();
    let gate = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let first = Client::new(&env, "first").await;
        let second = Client::new(&env, "second").await;
        first.make("f").await;
        gate.hold(|request| matches!(request, Request::Delegate { .. }));
        let operations = [NfsArgop4::Putrootfh, open("f", "o", READ)];
        let opening = first.ask(1, &operations).await;
        until(&env, || gate.held() == 1).await;
        assert_eq!(write_open(&second).await, Nfsstat4::NFS4ERR_DELAY);
        env.core.sleep(LEASE / 90).await;
        // It is given back at the second attempt.
        gate.fail(1, |request| {
            matches!(request, Request::ReturnDelegation { .. })
        });
        gate.release();
        until(&env, || gate.failed() == 1).await;
        let operations = [NfsArgop4::Putrootfh, open("f", "another", READ)];
        let (_, newer) = first.call(&operations).await.ok().opened(2);
        first.wire.answer(opening).await.expect("an answer").ok();
        if newer.is_some() {
            assert_eq!(write_open(&second).await, Nfsstat4::NFS4ERR_DELAY);
        } else {
            assert_eq!(write_open(&second).await, Nfsstat4::NFS4_OK);
        }
    });
}

/// A file ends with its last name, though its client has it delegated: that is no matter to others.
#[test]
fn a_delegation_of_a_file_that_is_gone_is_returned() {
    for is_open in [false, true] {
        let mut rig = Rig::new();
        rig.run(move |env| async move {
            let first = Client::new(&env, "first").await;
            first.make("f").await;
            let operations = [NfsArgop4::Putrootfh, open("f", "o", READ), NfsArgop4::Getfh];
            let done = first.call(&operations).await.ok();
            let (opened, delegation) = done.opened(2);
            let delegation = delegation.expect("nobody is in the way");
            let NfsResop4::Getfh(Ok(of)) = done.result(3) else {
                panic!("{done:?}");
            };
            let handle = of.object.to_vec();
            let putfh = NfsArgop4::Putfh(Putfh4Args {
                object: handle.as_slice().into(),
            });
            let closes = [putfh.clone(), close(&opened)];
            if !is_open {
                first.call(&closes).await.ok();
            }
            let remove = NfsArgop4::Remove(Remove4Args { target: "f".into() });
            first.call(&[NfsArgop4::Putrootfh, remove]).await.ok();
            if is_open {
                first.call(&closes).await.ok();
            }
            let returns = [putfh, delegreturn(&delegation)];
            first.call(&returns).await.ok();
            let destroys = NfsArgop4::DestroySession(DestroySession4Args {
                dsa_sessionid: first.session,
            });
            first.wire.call(1, &[destroys]).await.ok();
            let ends = NfsArgop4::DestroyClientid(DestroyClientid4Args {
                dca_clientid: first.id,
            });
            first.wire.call(1, &[ends]).await.ok();
        });
    }
}
