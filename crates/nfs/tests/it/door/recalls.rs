//! Delegations, and how the door has them back.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use files::Request;
use nfs::rpc::AuthStat;
use nfs::wire::*;
use sim::Env;

use super::bench::*;

const READ: u32 = OPEN4_SHARE_ACCESS_READ;
const WRITE: u32 = OPEN4_SHARE_ACCESS_WRITE | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;

/// Opens a file for reading; the delegation that comes with it.
async fn delegated(client: &Client, name: &str) -> Stateid4 {
    let (_, delegation) = client.open(name, READ).await;
    delegation.expect("nobody is in the way")
}

async fn give_back(client: &Client, name: &str, stateid: &Stateid4) -> Nfsstat4 {
    let done = client
        .call(&[NfsArgop4::Putrootfh, lookup(name), delegreturn(stateid)])
        .await;
    done.status
}

/// Whether a file can be opened for writing now.
async fn write_open(client: &Client, name: &str) -> Nfsstat4 {
    let open = open(name, "writer", WRITE);
    client.call(&[NfsArgop4::Putrootfh, open]).await.status
}

/// Two clients, and files of the first.
async fn two(env: &Env, names: &[&str]) -> (Client, Client) {
    let first = Client::new(env, "first").await;
    let second = Client::new(env, "second").await;
    for name in names {
        first.make(name).await;
    }
    (first, second)
}

async fn is_revoked(client: &Client) -> bool {
    client.flags().await & SEQ4_STATUS_RECALLABLE_STATE_REVOKED != 0
}

#[test]
fn callbacks_have_the_credential_that_the_client_asked_for() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let (first, second) = two(&env, &["f"]).await;
        // As Linux: nothing but what it has offered.
        first.back.on_call(|call| match call.user {
            Some(77) => Reaction::Answer(Nfsstat4::NFS4_OK),
            _ => Reaction::Deny(AuthStat::AUTH_BADCRED),
        });
        let delegation = delegated(&first, "f").await;
        let delay = Nfsstat4::NFS4ERR_DELAY;
        assert_eq!(write_open(&second, "f").await, delay);
        let back = first.back.clone();
        until(&env, || back.recalls() == 1).await;
        let call = first.back.called.borrow()[0].clone();
        assert_eq!(call.recall.expect("a recall").other, delegation.other);
        assert_eq!(give_back(&first, "f", &delegation).await, Nfsstat4::NFS4_OK);
        assert_eq!(write_open(&second, "f").await, Nfsstat4::NFS4_OK);
        assert!(!is_revoked(&first).await);
    });
}

#[test]
fn a_client_is_called_back_in_its_own_minor_version() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let (first, second) = two(&env, &["f"]).await;
        // As Linux, which has a client for each minor version and no session of another.
        first.back.on_call(|call| match call.minor {
            2 => Reaction::Answer(Nfsstat4::NFS4_OK),
            _ => Reaction::Answer(Nfsstat4::NFS4ERR_BADSESSION),
        });
        let opened = first
            .call_2(&[NfsArgop4::Putrootfh, open("f", "first", READ)])
            .await;
        opened.ok();
        assert_eq!(write_open(&second, "f").await, Nfsstat4::NFS4ERR_DELAY);
        let back = first.back.clone();
        until(&env, || !back.called.borrow().is_empty()).await;
        assert!(back.called.borrow().iter().all(|call| call.minor == 2));
    });
}

#[test]
fn a_client_may_ask_for_another_credential_later() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let (first, second) = two(&env, &["f"]).await;
        let of = BackchannelCtl4Args {
            bca_cb_program: 0x4000_0001,
            bca_sec_parms: vec![CallbackSecParms4::AuthNone],
        };
        first.call(&[NfsArgop4::BackchannelCtl(of)]).await.ok();
        delegated(&first, "f").await;
        write_open(&second, "f").await;
        let back = first.back.clone();
        until(&env, || back.recalls() == 1).await;
        assert_eq!(first.back.called.borrow()[0].user, None);
    });
}

#[test]
fn nothing_is_delegated_to_who_cannot_be_called() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::with(&env, "c", |of| {
            of.csa_sec_parms = vec![CallbackSecParms4::RpcsecGss(GssCbHandles4 {
                gcbp_service: RpcGssSvcT::RPC_GSS_SVC_NONE,
                gcbp_handle_from_server: b"".as_slice().into(),
                gcbp_handle_from_client: b"".as_slice().into(),
            })];
        })
        .await;
        client.reclaim_complete().await;
        client.make("f").await;
        assert_eq!(client.open("f", READ).await.1, None);
        // A connection is of no use then.
        client.bind().await;
        assert_eq!(client.open("f", READ).await.1, None);
        let down = client.flags().await & SEQ4_STATUS_CB_PATH_DOWN_SESSION;
        assert_ne!(down, 0);
    });
}

#[test]
fn a_clients_own_changes_leave_its_delegation() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        let delegation = delegated(&client, "f").await;
        let done = client
            .call(&[NfsArgop4::Putrootfh, lookup("f"), set_mode()])
            .await;
        done.ok();
        let of = Rename4Args {
            oldname: "f".into(),
            newname: "g".into(),
        };
        let done = client
            .call(&[
                NfsArgop4::Putrootfh,
                NfsArgop4::Savefh,
                NfsArgop4::Rename(of),
            ])
            .await;
        done.ok();
        let write = NfsArgop4::Write(Write4Args {
            stateid: ANONYMOUS,
            offset: 0,
            stable: StableHow4::FILE_SYNC4,
            data: b"x".as_slice().into(),
        });
        let done = client
            .call(&[NfsArgop4::Putrootfh, lookup("g"), write])
            .await;
        done.ok();
        env.core.sleep(Duration::from_secs(1)).await;
        assert_eq!(client.back.called.borrow().len(), 0);
        let given = give_back(&client, "g", &delegation).await;
        assert_eq!(given, Nfsstat4::NFS4_OK);
    });
}

#[test]
fn recalls_of_one_client_take_turns() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let names = ["a", "b", "c"];
        let (first, second) = two(&env, &names).await;
        let mut delegations = Vec::new();
        for name in names {
            delegations.push(delegated(&first, name).await);
        }
        // All at a time, on slots of their own.
        let mut asked = Vec::new();
        for (slot, name) in names.iter().enumerate() {
            let operations = [NfsArgop4::Putrootfh, open(name, "writer", WRITE)];
            asked.push(second.ask(slot as u32, &operations).await);
        }
        for xid in asked {
            second.wire.answer(xid).await.expect("an answer");
        }
        let back = first.back.clone();
        until(&env, || back.recalls() == 3).await;
        let sequences: Vec<u32> = first
            .back
            .called
            .borrow()
            .iter()
            .map(|of| of.sequence)
            .collect();
        assert_eq!(sequences, [1, 2, 3]);
        for (name, delegation) in names.iter().zip(&delegations) {
            assert_eq!(give_back(&first, name, delegation).await, Nfsstat4::NFS4_OK);
        }
        assert!(!is_revoked(&first).await);
    });
}

/// What a client does with a callback that does not go well, `times` times.
fn odd_times(times: usize, odd: Reaction) -> impl Fn(&Callback) -> Reaction {
    let left = Cell::new(times);
    move |_| {
        if left.get() > 0 {
            left.set(left.get() - 1);
            return odd;
        }
        Reaction::Answer(Nfsstat4::NFS4_OK)
    }
}

#[test]
fn a_recall_is_repeated_until_the_client_takes_it() {
    for odd in [
        Reaction::Lost,
        Reaction::Unanswered,
        Reaction::Garbled,
        Reaction::Deny(AuthStat::AUTH_BADCRED),
        Reaction::Answer(Nfsstat4::NFS4ERR_DELAY),
        Reaction::Answer(Nfsstat4::NFS4ERR_BADHANDLE),
        Reaction::Answer(Nfsstat4::NFS4ERR_BAD_STATEID),
    ] {
        for times in [1, 2] {
            let mut rig = Rig::new();
            rig.run(move |env| async move {
                let (first, second) = two(&env, &["f"]).await;
                let delegation = delegated(&first, "f").await;
                first.back.on_call(odd_times(times, odd));
                write_open(&second, "f").await;
                let back = first.back.clone();
                let is_taken = |call: &Callback| {
                    call.recall.is_some() && call.reaction == Reaction::Answer(Nfsstat4::NFS4_OK)
                };
                until(&env, || back.called.borrow().iter().any(is_taken)).await;
                let given = give_back(&first, "f", &delegation).await;
                assert_eq!(given, Nfsstat4::NFS4_OK, "{odd:?}");
                assert_eq!(write_open(&second, "f").await, Nfsstat4::NFS4_OK);
                assert!(!is_revoked(&first).await, "{odd:?}");
                assert_eq!(first.flags().await, 0, "{odd:?}: the channel still works");
            });
        }
    }
}

#[test]
fn a_recall_waits_for_a_client_that_connects_again() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let (mut first, second) = two(&env, &["f"]).await;
        let delegation = delegated(&first, "f").await;
        first.wire.close();
        write_open(&second, "f").await;
        env.core.sleep(LEASE / 3).await;
        first.reconnect(&env).await;
        let back = first.back.clone();
        until(&env, || back.recalls() == 1).await;
        assert_eq!(give_back(&first, "f", &delegation).await, Nfsstat4::NFS4_OK);
        assert!(!is_revoked(&first).await);
    });
}

#[test]
fn who_does_not_give_a_delegation_back_within_a_lease_loses_it() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let (first, second) = two(&env, &["f"]).await;
        let delegation = delegated(&first, "f").await;
        write_open(&second, "f").await;
        for _ in 0..4 {
            env.core.sleep(LEASE / 3).await;
            first.flags().await;
            second.flags().await;
        }
        assert!(is_revoked(&first).await);
        assert_eq!(write_open(&second, "f").await, Nfsstat4::NFS4_OK);
        let free = FreeStateid4Args {
            fsa_stateid: delegation.clone(),
        };
        let revoked = give_back(&first, "f", &delegation).await;
        assert_eq!(revoked, Nfsstat4::NFS4ERR_DELEG_REVOKED);
        first.call(&[NfsArgop4::FreeStateid(free)]).await.ok();
        assert!(!is_revoked(&first).await);
    });
}

#[test]
fn a_newer_delegation_outlives_the_recall_of_an_older_one() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let (first, second) = two(&env, &["f"]).await;
        let older = delegated(&first, "f").await;
        write_open(&second, "f").await;
        let back = first.back.clone();
        until(&env, || back.recalls() == 1).await;
        assert_eq!(give_back(&first, "f", &older).await, Nfsstat4::NFS4_OK);
        // Before the recall looks again the client has another one.
        let newer = delegated(&first, "f").await;
        for _ in 0..4 {
            env.core.sleep(LEASE / 3).await;
            first.flags().await;
            second.flags().await;
        }
        assert!(!is_revoked(&first).await);
        assert_eq!(give_back(&first, "f", &newer).await, Nfsstat4::NFS4_OK);
    });
}

#[test]
fn a_recall_names_the_request_that_gave_the_delegation() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let (first, second) = two(&env, &["f"]).await;
        delegated(&first, "f").await;
        let sequence = first.slots.borrow()[0];
        write_open(&second, "f").await;
        let back = first.back.clone();
        until(&env, || back.recalls() == 1).await;
        let call = first.back.called.borrow()[0].clone();
        let [list] = call.referring.as_slice() else {
            panic!("{call:?}");
        };
        assert_eq!(list.rcl_sessionid, first.session);
        let calls: Vec<_> = list.rcl_referring_calls.iter().collect();
        assert_eq!(calls.len(), 1);
        assert_eq!((calls[0].rc_slotid, calls[0].rc_sequenceid), (0, sequence));
    });
}

#[test]
fn what_is_wanted_back_before_it_is_given_is_not_given() {
    let mut rig = Rig::new();
    let gate = Rc::clone(&rig.fs);
    rig.run(|env| async move {
        let (first, second) = two(&env, &["f"]).await;
        gate.hold(|request| matches!(request, Request::Delegate { .. }));
        let operations = [NfsArgop4::Putrootfh, open("f", "o", READ)];
        let xid = first.ask(0, &operations).await;
        until(&env, || gate.held() == 1).await;
        let delay = Nfsstat4::NFS4ERR_DELAY;
        assert_eq!(write_open(&second, "f").await, delay);
        env.core.sleep(Duration::from_secs(1)).await;
        gate.release();
        let done = first.wire.answer(xid).await.expect("an answer").ok();
        assert_eq!(done.opened(2).1, None);
        assert_eq!(write_open(&second, "f").await, Nfsstat4::NFS4_OK);
    });
}

#[test]
fn a_session_of_before_a_restart_is_not_called_back() {
    let mut rig = Rig::new();
    let mut client = rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        client
    });
    rig.restart();
    rig.run(|env| async move {
        client.reconnect(&env).await;
        let flags = client.flags().await;
        assert_ne!(flags & SEQ4_STATUS_BACKCHANNEL_FAULT, 0);
        client.reclaim_complete().await;
        env.core.sleep(Duration::from_secs(1)).await;
        assert_eq!(client.open("f", READ).await.1, None);
    });
}

#[test]
fn delegations_are_opened_by_their_own_stateids_alone() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        client.make("g").await;
        let (opened, delegation) = client.open("f", READ).await;
        let delegation = delegation.expect("nobody is in the way");
        let bad = Nfsstat4::NFS4ERR_BAD_STATEID;
        for (name, stateid, expected) in [
            ("f", &delegation, Nfsstat4::NFS4_OK),
            ("g", &delegation, bad),
            ("f", &opened, bad),
        ] {
            let NfsArgop4::Open(mut of) = open(name, "p", READ) else {
                unreachable!()
            };
            of.claim = OpenClaim4::ClaimDelegateCur(OpenClaimDelegateCur4 {
                delegate_stateid: stateid.clone(),
                file: name.into(),
            });
            let done = client
                .call(&[NfsArgop4::Putrootfh, NfsArgop4::Open(of)])
                .await;
            assert_eq!(done.status, expected, "{name}");
        }
    });
}

/// It hears nothing, refuses what it hears, or says what nobody understands.
#[test]
fn a_client_that_does_not_answer_is_told_so_and_called_again_when_it_has_bound_a_connection() {
    for odd in [
        Reaction::Lost,
        Reaction::Deny(AuthStat::AUTH_BADCRED),
        Reaction::Garbled,
    ] {
        let mut rig = Rig::new();
        rig.run(move |env| async move {
            let (mut first, second) = two(&env, &["f", "g"]).await;
            let delegation = delegated(&first, "f").await;
            first.back.on_call(move |_| odd);
            write_open(&second, "f").await;
            env.core.sleep(Duration::from_secs(11)).await;
            let down = SEQ4_STATUS_CB_PATH_DOWN_SESSION;
            assert_eq!(first.flags().await, down, "{odd:?}");
            // What could not be called back is not given.
            assert_eq!(first.open("g", READ).await.1, None);
            let back = first.back.clone();
            back.on_call(|_| Reaction::Answer(Nfsstat4::NFS4_OK));
            first.reconnect(&env).await;
            assert_eq!(first.flags().await, 0);
            until(&env, || back.recalls() == 1).await;
            assert_eq!(give_back(&first, "f", &delegation).await, Nfsstat4::NFS4_OK);
            assert!(!is_revoked(&first).await);
        });
    }
}

#[test]
fn a_client_is_called_over_the_session_that_answers() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let (first, second) = two(&env, &["f"]).await;
        let delegation = delegated(&first, "f").await;
        // Another session, over another connection; the one before hears nothing.
        let called = Rc::new(Cell::new(false));
        let other = Back::new();
        let second_wire = Wire::connect(&env, &other).await;
        let of = create_session(first.id, 2);
        let ask = [NfsArgop4::CreateSession(of)];
        second_wire.call(1, &ask).await.ok();
        first.back.on_call(|_| Reaction::Lost);
        let has_called = Rc::clone(&called);
        other.on_call(move |call| {
            has_called.set(has_called.get() || call.recall.is_some());
            Reaction::Answer(Nfsstat4::NFS4_OK)
        });
        write_open(&second, "f").await;
        let is_called = until(&env, || called.get());
        assert!(env.core.timeout(LEASE, is_called).await.is_ok());
        assert_eq!(give_back(&first, "f", &delegation).await, Nfsstat4::NFS4_OK);
        assert!(!is_revoked(&first).await);
    });
}
