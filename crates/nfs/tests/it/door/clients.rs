//! Clients that introduce themselves, fall silent and come back.

use std::rc::Rc;
use std::time::Duration;

use nfs::wire::*;

use super::bench::*;

/// A 4.0 client, confirmed.
pub(super) async fn set_client_id(wire: &Wire, name: &str, verifier: u8) -> u64 {
    let introduced = introduce(wire, name, verifier).await.expect("no conflict");
    wire.call(0, &[confirms(introduced)]).await.ok();
    introduced.0
}

/// SETCLIENTID_CONFIRM of what SETCLIENTID was answered.
pub(super) fn confirms((clientid, setclientid_confirm): (u64, Verifier4)) -> NfsArgop4<'static> {
    NfsArgop4::SetclientidConfirm(SetclientidConfirm4Args {
        clientid,
        setclientid_confirm,
    })
}

pub(super) async fn introduce(
    wire: &Wire,
    name: &str,
    verifier: u8,
) -> Result<(u64, Verifier4), Nfsstat4> {
    let location = || Netaddr4 {
        na_r_netid: "tcp".into(),
        na_r_addr: "".into(),
    };
    let of = Setclientid4Args {
        client: NfsClientId4 {
            verifier: [verifier; 8],
            id: name.into(),
        },
        callback: CbClient4 {
            cb_program: 0,
            cb_location: location(),
        },
        callback_ident: 0,
    };
    let done = wire.call(0, &[NfsArgop4::Setclientid(of)]).await;
    match done.result(0) {
        NfsResop4::Setclientid(Setclientid4Res::Nfs4Ok(of)) => {
            Ok((of.clientid, of.setclientid_confirm))
        }
        _ => Err(done.status),
    }
}

pub(super) async fn renew(wire: &Wire, clientid: u64) -> Nfsstat4 {
    let of = Renew4Args { clientid };
    wire.call(0, &[NfsArgop4::Renew(of)]).await.status
}

/// An OPEN of 4.0 for reading and writing that makes the file, or of what was open before.
pub(super) fn open_0<'a>(
    client: u64,
    name: &'a str,
    seqid: u32,
    is_reclaim: bool,
) -> NfsArgop4<'a> {
    let NfsArgop4::Open(mut of) = create(name, "o") else {
        unreachable!()
    };
    of.seqid = seqid;
    of.share_access = OPEN4_SHARE_ACCESS_BOTH;
    of.owner.clientid = client;
    if is_reclaim {
        of.openhow = Openflag4::Default(Opentype4::OPEN4_NOCREATE);
        of.claim = OpenClaim4::ClaimPrevious(OpenDelegationType4::OPEN_DELEGATE_NONE);
    }
    NfsArgop4::Open(of)
}

/// Makes and opens a file, and confirms that. Its stateid, and its handle.
pub(super) async fn opened_0(wire: &Wire, client: u64, name: &str) -> (Stateid4, Vec<u8>) {
    let open = open_0(client, name, 1, false);
    let done = wire
        .call(0, &[NfsArgop4::Putrootfh, open, NfsArgop4::Getfh])
        .await
        .ok();
    let (stateid, _) = done.opened(1);
    let NfsResop4::Getfh(Ok(of)) = done.result(2) else {
        panic!("{done:?}");
    };
    let handle = of.object.to_vec();
    let confirm = OpenConfirm4Args {
        open_stateid: stateid,
        seqid: 2,
    };
    let putfh = NfsArgop4::Putfh(Putfh4Args {
        object: handle.as_slice().into(),
    });
    let done = wire
        .call(0, &[putfh, NfsArgop4::OpenConfirm(confirm)])
        .await;
    match done.ok().result(1) {
        NfsResop4::OpenConfirm(Ok(of)) => (of.open_stateid, handle.clone()),
        other => panic!("{other:?}"),
    }
}

fn read(stateid: &Stateid4) -> NfsArgop4<'static> {
    NfsArgop4::Read(Read4Args {
        stateid: stateid.clone(),
        offset: 0,
        count: 1,
    })
}

#[test]
fn a_name_is_in_use_by_one_user_at_a_time() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "4.1").await;
        let wire = &client.wire;
        let first = set_client_id(wire, "c", 1).await;
        wire.user.set(1000);
        let (second, _) = introduce(wire, "c", 1)
            .await
            .expect("the first has nothing");
        assert_ne!(first, second);
        wire.user.set(0);
        opened_0(wire, first, "f").await;
        wire.user.set(1000);
        let refused = introduce(wire, "c", 1).await;
        assert_eq!(refused, Err(Nfsstat4::NFS4ERR_CLID_INUSE));
    });
}

#[test]
fn requests_with_a_stateid_renew_the_lease_of_4_0() {
    let mut rig = Rig::new();
    let (other, wire, id, stateid, handle) = rig.run(|env| async move {
        let other = Client::new(&env, "4.1").await;
        let id = set_client_id(&other.wire, "c", 1).await;
        let (stateid, handle) = opened_0(&other.wire, id, "f").await;
        (
            Rc::clone(&other.wire),
            Rc::clone(&other.wire),
            id,
            stateid,
            handle,
        )
    });
    drop(other);
    for _ in 0..3 {
        rig.pass(LEASE * 2 / 3);
        let (wire, stateid, handle) = (Rc::clone(&wire), stateid.clone(), handle.clone());
        rig.run(move |_| async move {
            let putfh = NfsArgop4::Putfh(Putfh4Args {
                object: handle.as_slice().into(),
            });
            wire.call(0, &[putfh, read(&stateid)]).await.ok();
        });
    }
    // Another one by its name would be let in if its lease had run out.
    rig.run(move |_| async move {
        wire.user.set(1000);
        let refused = introduce(&wire, "c", 1).await;
        assert_eq!(refused, Err(Nfsstat4::NFS4ERR_CLID_INUSE));
        wire.user.set(0);
        assert_eq!(renew(&wire, id).await, Nfsstat4::NFS4_OK);
    });
}

#[test]
fn a_4_0_client_reclaims_after_a_restart() {
    let mut rig = Rig::new();
    let (id, handle) = rig.run(|env| async move {
        let client = Client::new(&env, "4.1").await;
        let id = set_client_id(&client.wire, "c", 1).await;
        let (_, handle) = opened_0(&client.wire, id, "f").await;
        (id, handle)
    });
    rig.restart();
    rig.run(move |env| async move {
        let client = Client::with(&env, "another", |_| ()).await;
        let wire = &client.wire;
        let stale = Nfsstat4::NFS4ERR_STALE_CLIENTID;
        assert_eq!(renew(wire, id).await, stale);
        let putfh = || {
            NfsArgop4::Putfh(Putfh4Args {
                object: handle.as_slice().into(),
            })
        };
        let done = wire.call(0, &[putfh(), open_0(id, "f", 3, true)]).await;
        assert_eq!(done.status, stale);
        let again = set_client_id(wire, "c", 1).await;
        assert_ne!(again, id);
        let done = wire.call(0, &[putfh(), open_0(again, "f", 1, true)]).await;
        done.ok();
        let new = wire
            .call(0, &[NfsArgop4::Putrootfh, open_0(again, "g", 2, false)])
            .await;
        assert_eq!(new.status, Nfsstat4::NFS4ERR_GRACE);
        // Whoever has restarted itself has nothing to reclaim.
        let restarted = set_client_id(wire, "c", 2).await;
        let done = wire
            .call(0, &[putfh(), open_0(restarted, "f", 1, true)])
            .await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_NO_GRACE);
    });
}

#[test]
fn a_4_0_request_has_no_use_of_a_4_1_client() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let client = Client::new(&env, "4.1").await;
        let stale = Nfsstat4::NFS4ERR_STALE_CLIENTID;
        assert_eq!(renew(&client.wire, client.id).await, stale);
        let open = open_0(client.id, "f", 1, false);
        let done = client.wire.call(0, &[NfsArgop4::Putrootfh, open]).await;
        assert_eq!(done.status, stale);
        client.make("f").await;
        let (stateid, _) = client.open("f", OPEN4_SHARE_ACCESS_READ).await;
        let done = client
            .wire
            .call(0, &[NfsArgop4::Putrootfh, lookup("f"), read(&stateid)])
            .await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_BAD_STATEID);
    });
}

#[test]
fn a_full_door_makes_room_for_new_clients() {
    let mut rig = Rig::with(|options| options.clients_max = 4);
    rig.run(|env| async move {
        let client = Client::new(&env, "stays").await;
        client.make("f").await;
        client.open("f", OPEN4_SHARE_ACCESS_READ).await;
        for name in ["a", "b", "c"] {
            exchange_id(&client.wire, name, 1).await;
        }
        let of = ExchangeId4Args {
            eia_clientowner: ClientOwner4 {
                co_verifier: [1; 8],
                co_ownerid: "d".into(),
            },
            eia_flags: 0,
            eia_state_protect: StateProtect4A::Sp4None,
            eia_client_impl_id: None,
        };
        let ask = [NfsArgop4::ExchangeId(of)];
        assert_eq!(
            client.wire.call(1, &ask).await.status,
            Nfsstat4::NFS4ERR_DELAY
        );
        for _ in 0..3 {
            env.core.sleep(LEASE / 2).await;
            client.flags().await;
        }
        client.wire.call(1, &ask).await.ok();
        // Those that never confirmed themselves went first.
        for name in ["e", "f"] {
            drop(Client::new(&env, name).await);
        }
        env.core.sleep(LEASE + Duration::from_secs(1)).await;
        // All leases have run out: who holds something stays the longest.
        drop(Client::new(&env, "g").await);
        client.flags().await;
    });
}
