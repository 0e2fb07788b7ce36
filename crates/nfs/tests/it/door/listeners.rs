//! Several addresses of one door: whoever comes through any of them sees the same clients, sessions, locks and
//! delegations.

use nfs::wire::*;

use super::bench::*;

const BOTH: u32 = OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;

/// Locks the first byte for writing, by an open of the file.
fn lock(opened: &Stateid4) -> [NfsArgop4<'static>; 3] {
    let lock = NfsArgop4::Lock(Lock4Args {
        locktype: NfsLockType4::WRITE_LT,
        reclaim: false,
        offset: 0,
        length: 1,
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
    [NfsArgop4::Putrootfh, lookup("f"), lock]
}

/// What a client that has a session is told if it says once more who it is.
async fn introduced(wire: &Wire) -> Done {
    let introduces = NfsArgop4::ExchangeId(ExchangeId4Args {
        eia_clientowner: ClientOwner4 {
            co_verifier: [1; 8],
            co_ownerid: "c".into(),
        },
        eia_flags: 0,
        eia_state_protect: StateProtect4A::Sp4None,
        eia_client_impl_id: None,
    });
    wire.call(1, &[introduces]).await.ok()
}

#[test]
fn clients_of_two_addresses_are_in_each_others_way() {
    let mut rig = Rig::new();
    rig.run(|env| async move {
        let first = Client::at(&env, "first", PORT).await;
        let second = Client::at(&env, "second", PORT_ALSO).await;
        first.make("f").await;
        let (own, _) = first.open("f", BOTH).await;
        let (other, _) = second.open("f", BOTH).await;
        first.call(&lock(&own)).await.ok();
        let denied = second.call(&lock(&other)).await;
        assert_eq!(denied.status, Nfsstat4::NFS4ERR_DENIED);
        let NfsResop4::Lock(Lock4Res::Nfs4ErrDenied(by)) = denied.result(3) else {
            panic!("{denied:?}");
        };
        assert_eq!(by.owner.clientid, first.id);
        let closes = [NfsArgop4::Putrootfh, lookup("f"), close(&own)];
        first.call(&closes).await.ok();
        second.call(&lock(&other)).await.ok();
    });
}

/// And what the other one has written is there.
#[test]
fn a_delegation_is_called_back_for_a_client_of_another_address() {
    for ports in [[PORT, PORT_ALSO], [PORT_ALSO, PORT]] {
        let mut rig = Rig::new();
        rig.run(move |env| async move {
            let holder = Client::at(&env, "holder", ports[0]).await;
            let other = Client::at(&env, "other", ports[1]).await;
            holder.make("f").await;
            let (_, delegation) = holder.open("f", OPEN4_SHARE_ACCESS_READ).await;
            let delegation = delegation.expect("nobody is in the way");
            let writes = [NfsArgop4::Putrootfh, open("f", "w", BOTH)];
            let delayed = other.call(&writes).await;
            assert_eq!(delayed.status, Nfsstat4::NFS4ERR_DELAY);
            let back = holder.back.clone();
            until(&env, || back.recalls() == 1).await;
            let gives = [NfsArgop4::Putrootfh, lookup("f"), delegreturn(&delegation)];
            holder.call(&gives).await.ok();
            let (stateid, _) = other.call(&writes).await.ok().opened(2);
            let fills = [
                NfsArgop4::Putrootfh,
                lookup("f"),
                write(&stateid, b"written"),
            ];
            other.call(&fills).await.ok();
            assert_eq!(holder.size("f").await, 7);
        });
    }
}

/// RFC 8881, section 2.10.5: connections to several addresses of one server may be of one session.
#[test]
fn a_session_has_connections_to_both_addresses() {
    let mut rig = Rig::new();
    let door = rig.door();
    rig.run(|env| async move {
        let mut client = Client::at(&env, "c", PORT).await;
        let other = Client::at(&env, "other", PORT_ALSO).await;
        client.make("f").await;
        let first = client.wire.clone();
        client.wire = Wire::connect_to(&env, &client.back, PORT_ALSO).await;
        // The same server to whoever asks, by which clients know that they may.
        let [before, after] = [introduced(&first).await, introduced(&client.wire).await];
        assert_eq!(before.result(0), after.result(0));
        client.bind().await;
        assert_eq!((door.counts().sessions, door.counts().connections), (2, 3));
        // What was opened over one is closed over the other.
        let (stateid, _) = client.open("f", BOTH).await;
        let second = std::mem::replace(&mut client.wire, first);
        let closes = [NfsArgop4::Putrootfh, lookup("f"), close(&stateid)];
        client.call(&closes).await.ok();
        let (_, delegation) = client.open("f", OPEN4_SHARE_ACCESS_READ).await;
        let delegation = delegation.expect("nobody is in the way");
        // It is called back over the connection that is left.
        client.wire.close();
        client.wire = second;
        let writes = [NfsArgop4::Putrootfh, open("f", "w", BOTH)];
        let delayed = other.call(&writes).await;
        assert_eq!(delayed.status, Nfsstat4::NFS4ERR_DELAY);
        let back = client.back.clone();
        until(&env, || back.recalls() == 1).await;
        let gives = [NfsArgop4::Putrootfh, lookup("f"), delegreturn(&delegation)];
        client.call(&gives).await.ok();
        other.call(&writes).await.ok();
    });
}
