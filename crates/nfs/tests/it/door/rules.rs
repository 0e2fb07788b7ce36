//! What the RFCs ask of a server, section by section: sessions and clients of RFC 8881.

use std::time::Duration;

use nfs::wire::*;
use sim::Env;

use super::bench::*;
use super::clients::{introduce, renew};

const READ: u32 = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;

/// SEQUENCE with all that it says.
fn sequence(client: &Client, slot: u32, highest: u32, sequence: u32) -> NfsArgop4<'static> {
    NfsArgop4::Sequence(Sequence4Args {
        sa_sessionid: client.session,
        sa_sequenceid: sequence,
        sa_slotid: slot,
        sa_highest_slotid: highest,
        sa_cachethis: false,
    })
}

async fn status(wire: &Wire, operations: &[NfsArgop4<'_>]) -> Nfsstat4 {
    let done = wire.call(1, operations).await;
    assert!(done.is_whole(), "{done:?}");
    done.status
}

/// RFC 8881, sections 18.46.3 and 15.1.11.
#[test]
fn slots_are_those_that_there_are() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let wire = &client.wire;
        for (of, expected) in [
            (sequence(&client, 8, 8, 1), Nfsstat4::NFS4ERR_BADSLOT),
            (sequence(&client, 8, 7, 1), Nfsstat4::NFS4ERR_BADSLOT),
            (sequence(&client, 7, 8, 1), Nfsstat4::NFS4ERR_BAD_HIGH_SLOT),
            (sequence(&client, 7, 7, 2), Nfsstat4::NFS4ERR_SEQ_MISORDERED),
            (sequence(&client, 7, 7, 0), Nfsstat4::NFS4ERR_SEQ_MISORDERED),
            (sequence(&client, 7, 7, 1), Nfsstat4::NFS4_OK),
            (sequence(&client, 7, 7, 3), Nfsstat4::NFS4ERR_SEQ_MISORDERED),
        ] {
            assert_eq!(status(wire, &[of]).await, expected);
        }
        let mut other = sequence(&client, 0, 0, 9);
        if let NfsArgop4::Sequence(of) = &mut other {
            of.sa_sessionid = [1; 16];
        }
        assert_eq!(status(wire, &[other]).await, Nfsstat4::NFS4ERR_BADSESSION);
    });
}

/// RFC 8881, section 2.10.6.1.3: what is told of a repeat whose answer was not to be kept.
#[test]
fn a_repeat_without_a_kept_answer_is_told_so_behind_its_sequence() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let wire = &client.wire;
        let alone = [sequence(&client, 1, 7, 1)];
        let first = wire.call(1, &alone).await.ok();
        let again = wire.call(1, &alone).await.ok();
        assert_eq!(format!("{first:?}"), format!("{again:?}"));
        let more = [
            sequence(&client, 1, 7, 2),
            NfsArgop4::Putrootfh,
            NfsArgop4::Getfh,
        ];
        wire.call(1, &more).await.ok();
        let again = wire.call(1, &more).await;
        let uncached = Nfsstat4::NFS4ERR_RETRY_UNCACHED_REP;
        assert!(again.is_whole());
        assert!(matches!(again.result(0), NfsResop4::Sequence(Ok(of)) if of.sr_sequenceid == 2));
        assert!(matches!(again.result(1), NfsResop4::Putrootfh(Err(status)) if status == uncached));
        assert_eq!(again.status, uncached);
        // And what follows goes on.
        let next = [sequence(&client, 1, 7, 3), NfsArgop4::Putrootfh];
        wire.call(1, &next).await.ok();
    });
}

/// RFC 8881, section 2.10.6.1.3.1.
#[test]
fn another_request_with_an_old_number_is_a_false_retry() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let wire = &client.wire;
        let asked = [client.sequence(1, 1, true), NfsArgop4::Putrootfh];
        wire.call(1, &asked).await.ok();
        let false_retry = Nfsstat4::NFS4ERR_SEQ_FALSE_RETRY;
        assert_eq!(status(wire, &asked[..1]).await, false_retry);
        wire.user.set(1000);
        assert_eq!(status(wire, &asked).await, false_retry);
        wire.user.set(0);
        wire.call(1, &asked).await.ok();
    });
}

/// RFC 8881, sections 2.10.2.1, 15.1.3 and 16.2.3.
#[test]
fn operations_stand_where_they_may() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let wire = &client.wire;
        let bind = || {
            NfsArgop4::BindConnToSession(BindConnToSession4Args {
                bctsa_sessid: client.session,
                bctsa_dir: ChannelDirFromClient4::CDFC4_FORE,
                bctsa_use_conn_in_rdma_mode: false,
            })
        };
        let destroy = NfsArgop4::DestroyClientid(DestroyClientid4Args { dca_clientid: 1 });
        let root = NfsArgop4::Putrootfh;
        let not_only = Nfsstat4::NFS4ERR_NOT_ONLY_OP;
        let on_slot = |at| sequence(&client, 2, 7, at);
        for (operations, expected) in [
            (vec![root.clone()], Nfsstat4::NFS4ERR_OP_NOT_IN_SESSION),
            (vec![destroy, root.clone()], not_only),
            (vec![bind(), root.clone()], not_only),
            (vec![on_slot(1), bind()], not_only),
            (vec![on_slot(2), on_slot(3)], Nfsstat4::NFS4ERR_SEQUENCE_POS),
            (vec![bind()], Nfsstat4::NFS4_OK),
            (vec![], Nfsstat4::NFS4_OK),
            (vec![on_slot(3), root], Nfsstat4::NFS4_OK),
        ] {
            assert_eq!(status(wire, &operations).await, expected, "{operations:?}");
        }
        let done = wire.call(9, &[NfsArgop4::Putrootfh]).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_MINOR_VERS_MISMATCH);
    });
}

fn introduces(name: &str, verifier: u8, flags: u32) -> NfsArgop4<'_> {
    NfsArgop4::ExchangeId(ExchangeId4Args {
        eia_clientowner: ClientOwner4 {
            co_verifier: [verifier; 8],
            co_ownerid: name.into(),
        },
        eia_flags: flags,
        eia_state_protect: StateProtect4A::Sp4None,
        eia_client_impl_id: None,
    })
}

/// RFC 8881, section 18.35.4: whom an introduction meets.
#[test]
fn introductions_are_what_the_table_says() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let wire = &client.wire;
        let update = EXCHGID4_FLAG_UPD_CONFIRMED_REC_A;
        let noent = Nfsstat4::NFS4ERR_NOENT;
        exchange_id(wire, "unconfirmed", 1).await;
        for (name, verifier, flags, user, expected) in [
            ("nobody", 1, update, 0, noent),
            ("unconfirmed", 1, update, 0, noent),
            ("c", 1, update, 0, Nfsstat4::NFS4_OK),
            ("c", 2, update, 0, Nfsstat4::NFS4ERR_NOT_SAME),
            ("c", 1, update, 7, Nfsstat4::NFS4ERR_PERM),
            (
                "c",
                1,
                EXCHGID4_FLAG_CONFIRMED_R,
                0,
                Nfsstat4::NFS4ERR_INVAL,
            ),
            ("c", 1, 1 << 12, 0, Nfsstat4::NFS4ERR_INVAL),
            ("c", 1, 0, 0, Nfsstat4::NFS4_OK),
        ] {
            wire.user.set(user);
            let done = status(wire, &[introduces(name, verifier, flags)]).await;
            assert_eq!(done, expected, "{name} {verifier} {flags:x} {user}");
        }
        wire.user.set(0);
        client.make("f").await;
        client.open("f", READ).await;
        wire.user.set(7);
        // It holds something, and its lease holds.
        let done = status(wire, &[introduces("c", 1, 0)]).await;
        assert_eq!(done, Nfsstat4::NFS4ERR_CLID_INUSE);
        wire.user.set(0);
        // Restarted: the one before stays until the new one confirms itself.
        exchange_id(wire, "c", 2).await;
        client.flags().await;
    });
}

/// RFC 8881, section 18.35.4, and RFC 7530, section 16.34.5.
#[test]
fn who_does_not_confirm_itself_within_a_lease_is_a_stranger() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let wire = &client.wire;
        let late = exchange_id(wire, "late", 1).await.eir_clientid;
        let (zero, confirm) = introduce(wire, "zero", 1).await.expect("no conflict");
        env.core.sleep(LEASE + Duration::from_secs(1)).await;
        let ask = [NfsArgop4::CreateSession(create_session(late, 1))];
        let stale = Nfsstat4::NFS4ERR_STALE_CLIENTID;
        assert_eq!(status(wire, &ask).await, stale);
        let of = SetclientidConfirm4Args {
            clientid: zero,
            setclientid_confirm: confirm,
        };
        let done = wire.call(0, &[NfsArgop4::SetclientidConfirm(of)]).await;
        assert_eq!(done.status, stale);
        assert_eq!(renew(wire, zero).await, stale);
    });
}

/// RFC 8881, section 18.51.3.
#[test]
fn a_new_client_locks_nothing_before_it_says_that_it_reclaims_nothing() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::with(&env, "c", |_| ()).await;
        let makes = [NfsArgop4::Putrootfh, create("f", "o")];
        let refused = client.call(&makes).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_GRACE);
        client.reclaim_complete().await;
        client.call(&makes).await.ok();
        let NfsArgop4::Open(mut of) = open("f", "o", READ) else {
            unreachable!()
        };
        of.claim = OpenClaim4::ClaimPrevious(OpenDelegationType4::OPEN_DELEGATE_NONE);
        let reclaims = [NfsArgop4::Putrootfh, lookup("f"), NfsArgop4::Open(of)];
        let refused = client.call(&reclaims).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_NO_GRACE);
        let of = ReclaimComplete4Args { rca_one_fs: false };
        let again = client.call(&[NfsArgop4::ReclaimComplete(of)]).await;
        assert_eq!(again.status, Nfsstat4::NFS4ERR_COMPLETE_ALREADY);
    });
}

/// RFC 8881, section 18.50.3.
#[test]
fn a_client_is_destroyed_when_it_has_no_session() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        let wire = &client.wire;
        let destroy = |dca_clientid| {
            [NfsArgop4::DestroyClientid(DestroyClientid4Args {
                dca_clientid,
            })]
        };
        let stale = Nfsstat4::NFS4ERR_STALE_CLIENTID;
        let busy = Nfsstat4::NFS4ERR_CLIENTID_BUSY;
        assert_eq!(status(wire, &destroy(client.id)).await, busy);
        assert_eq!(status(wire, &destroy(client.id + 9)).await, stale);
        let unconfirmed = exchange_id(wire, "u", 1).await.eir_clientid;
        assert_eq!(status(wire, &destroy(unconfirmed)).await, Nfsstat4::NFS4_OK);
        let of = DestroySession4Args {
            dsa_sessionid: client.session,
        };
        assert_eq!(
            status(wire, &[NfsArgop4::DestroySession(of.clone())]).await,
            Nfsstat4::NFS4_OK
        );
        let gone = status(wire, &[NfsArgop4::DestroySession(of)]).await;
        assert_eq!(gone, Nfsstat4::NFS4ERR_BADSESSION);
        assert_eq!(status(wire, &destroy(client.id)).await, Nfsstat4::NFS4_OK);
        assert_eq!(status(wire, &destroy(client.id)).await, stale);
    });
}

/// RFC 8881, section 16.2.3.1.2.
#[test]
fn the_current_stateid_is_that_of_the_current_file() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "c").await;
        client.make("f").await;
        client.make("g").await;
        let root = || NfsArgop4::Putrootfh;
        let read = || {
            NfsArgop4::Read(Read4Args {
                stateid: CURRENT,
                offset: 0,
                count: 1,
            })
        };
        let bad = Nfsstat4::NFS4ERR_BAD_STATEID;
        let opens = || open("f", "o", READ);
        for (operations, expected) in [
            (
                vec![root(), opens(), read(), close(&CURRENT)],
                Nfsstat4::NFS4_OK,
            ),
            (vec![root(), lookup("f"), read()], bad),
            (
                vec![root(), opens(), root(), lookup("f"), close(&CURRENT)],
                bad,
            ),
            (
                vec![
                    root(),
                    opens(),
                    NfsArgop4::Savefh,
                    root(),
                    lookup("g"),
                    NfsArgop4::Restorefh,
                    close(&CURRENT),
                ],
                Nfsstat4::NFS4_OK,
            ),
        ] {
            let done = client.call(&operations).await;
            assert_eq!(done.status, expected, "{operations:?}");
        }
    });
}

/// Two handles' worth of state for stateids that are right and wrong.
async fn opened(env: &Env) -> (Client, Stateid4) {
    let client = Client::new(env, "c").await;
    client.make("f").await;
    client.make("g").await;
    let (stateid, _) = client.open("f", READ).await;
    (client, stateid)
}

/// RFC 8881, sections 8.2.2, 8.2.4 and 18.48.
#[test]
fn stateids_are_of_a_file_and_of_a_time() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let (client, first) = opened(&env).await;
        assert_eq!(first.seqid, 1);
        let (second, _) = client.open("f", READ).await;
        assert_eq!((second.seqid, second.other), (2, first.other));
        let any = Stateid4 { seqid: 0, ..second };
        let ahead = Stateid4 { seqid: 3, ..second };
        let mut damaged = second.clone();
        damaged.other[11] ^= 1;
        let mut later = second.clone();
        later.other[3] += 1;
        let (bad, old) = (Nfsstat4::NFS4ERR_BAD_STATEID, Nfsstat4::NFS4ERR_OLD_STATEID);
        let cases = [
            (first, old),
            (second.clone(), Nfsstat4::NFS4_OK),
            (any, Nfsstat4::NFS4_OK),
            (ahead, bad),
            (damaged, bad),
            (later, bad),
            (ANONYMOUS, bad),
        ];
        let of = TestStateid4Args {
            ts_stateids: cases.iter().map(|(stateid, _)| stateid.clone()).collect(),
        };
        let done = client.call(&[NfsArgop4::TestStateid(of)]).await.ok();
        let NfsResop4::TestStateid(Ok(of)) = done.result(1) else {
            panic!("{done:?}");
        };
        let expected: Vec<_> = cases.iter().map(|(_, expected)| *expected).collect();
        assert_eq!(of.tsr_status_codes, expected);
        let wrong = [NfsArgop4::Putrootfh, lookup("g"), close(&second)];
        assert_eq!(client.call(&wrong).await.status, bad);
        let any = Stateid4 { seqid: 0, ..second };
        let right = [NfsArgop4::Putrootfh, lookup("f"), close(&any)];
        client.call(&right).await.ok();
        assert_eq!(client.call(&right).await.status, bad);
    });
}
