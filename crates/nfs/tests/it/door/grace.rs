//! The grace period: who may reclaim in it and in the next one, how long it lasts, and what clients are
//! told of it (RFC 8881, sections 8.4.2, 8.4.3 and 18.46.3; RFC 7530, section 9.6.3).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use nfs::wire::*;
use sim::Env;

use super::bench::*;
use super::clients::{introduce, open_0, opened_0, renew, set_client_id};

const READ: u32 = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;
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

async fn back_after_restart(env: &Env, client: &mut Client) {
    client.reconnect(env).await;
    // Any number is the first after a restart.
    client.slots.borrow_mut()[0] += 1;
}

async fn needs_to_reclaim(client: &Client) -> bool {
    client.flags().await & SEQ4_STATUS_RESTART_RECLAIM_NEEDED != 0
}

/// A client that has two files open.
async fn holder(env: &Env) -> Client {
    let client = Client::new(env, "holder").await;
    for name in ["f", "g"] {
        client.make(name).await;
        client.open(name, READ).await;
    }
    client
}

/// Another one opens a file while it denies all others, and closes it.
async fn passes_through(env: &Env, name: &str) {
    let other = Client::new(env, "other").await;
    let NfsArgop4::Open(mut of) = open(name, "o", WRITE) else {
        unreachable!()
    };
    of.share_deny = OPEN4_SHARE_DENY_BOTH;
    let through = [NfsArgop4::Putrootfh, NfsArgop4::Open(of), close(&CURRENT)];
    other.call(&through).await.ok();
}

#[test]
fn who_does_not_claim_all_in_a_grace_period_claims_nothing_in_the_next() {
    for claims in [false, true] {
        let mut rig = Rig::new();
        let mut client = rig.run(|env| async move { holder(&env).await });
        rig.restart();
        client = rig.run(move |env| async move {
            back_after_restart(&env, &mut client).await;
            assert!(needs_to_reclaim(&client).await);
            if claims {
                assert_eq!(reclaims(&client, "g").await, Nfsstat4::NFS4_OK);
            }
            client
        });
        rig.pass(LEASE * 2);
        rig.run(|env| async move { passes_through(&env, "f").await });
        rig.restart();
        rig.run(move |env| async move {
            back_after_restart(&env, &mut client).await;
            let refused = reclaims(&client, "f").await;
            assert_eq!(refused, Nfsstat4::NFS4ERR_RECLAIM_BAD, "{claims}");
            // It begins anew, and then what it has is its own again.
            client.reclaim_complete().await;
        });
    }
}

#[test]
fn who_has_said_that_it_claims_no_more_claims_after_the_next_restart() {
    let mut rig = Rig::new();
    let mut client = rig.run(|env| async move { holder(&env).await });
    for _ in 0..2 {
        rig.restart();
        client = rig.run(move |env| async move {
            back_after_restart(&env, &mut client).await;
            assert_eq!(reclaims(&client, "f").await, Nfsstat4::NFS4_OK);
            client.reclaim_complete().await;
            client
        });
        rig.pass(LEASE * 2);
    }
}

#[test]
fn who_comes_back_too_late_and_is_cut_off_claims_nothing_in_the_next_grace_period() {
    let mut rig = Rig::new();
    let client = rig.run(|env| async move { holder(&env).await });
    rig.restart();
    rig.pass(LEASE * 2);
    let mut client = rig.run(move |env| async move {
        let done = {
            let mut client = client;
            client.connect(&env).await;
            client.call(&[]).await
        };
        assert_eq!(done.status, Nfsstat4::NFS4ERR_BADSESSION);
        // A new session, and no RECLAIM_COMPLETE yet.
        let client = Client::with(&env, "holder", |_| ()).await;
        passes_through(&env, "f").await;
        client
    });
    rig.restart();
    rig.run(move |env| async move {
        back_after_restart(&env, &mut client).await;
        let refused = reclaims(&client, "f").await;
        assert_eq!(refused, Nfsstat4::NFS4ERR_RECLAIM_BAD);
    });
}

#[test]
fn the_restart_is_told_until_the_client_has_reclaimed() {
    let mut rig = Rig::new();
    let (mut client, mut other) = rig.run(|env| async move {
        let client = holder(&env).await;
        assert!(!needs_to_reclaim(&client).await);
        (client, Client::new(&env, "other").await)
    });
    rig.restart();
    (client, other) = rig.run(move |env| async move {
        back_after_restart(&env, &mut client).await;
        back_after_restart(&env, &mut other).await;
        assert!(needs_to_reclaim(&client).await);
        other.reclaim_complete().await;
        assert!(!needs_to_reclaim(&other).await);
        (client, other)
    });
    rig.pass(LEASE * 2);
    assert!(!rig.door().is_in_grace());
    rig.run(move |_| async move {
        assert!(needs_to_reclaim(&client).await);
        let none = reclaims(&client, "f").await;
        assert_eq!(none, Nfsstat4::NFS4ERR_NO_GRACE);
        // Before it has looked at what it lost it takes nothing new (RFC 8881, section 18.51.3).
        let opens = [NfsArgop4::Putrootfh, open("f", "o", READ)];
        let refused = client.call(&opens).await;
        assert_eq!(refused.status, Nfsstat4::NFS4ERR_GRACE);
        assert!(needs_to_reclaim(&client).await);
        client.reclaim_complete().await;
        assert!(!needs_to_reclaim(&client).await);
        client.call(&opens).await.ok();
        assert!(!needs_to_reclaim(&other).await);
    });
}

fn putfh(handle: &[u8]) -> NfsArgop4<'_> {
    NfsArgop4::Putfh(Putfh4Args {
        object: handle.into(),
    })
}

/// A connection for requests of 4.0, of a 4.1 client that nobody else is.
async fn connection(env: &Env) -> Rc<Wire> {
    let name = format!("beside {}", env.core.now().as_ns());
    Client::new(env, &name).await.wire
}

/// A client of 4.0 with an open file, whose handle is returned.
async fn holder_0(env: &Env) -> Vec<u8> {
    let wire = connection(env).await;
    let id = set_client_id(&wire, "c", 1).await;
    opened_0(&wire, id, "f").await.1
}

/// It introduces itself, and claims what it had open.
async fn reclaims_0(env: &Env, handle: &[u8]) -> Nfsstat4 {
    let wire = connection(env).await;
    let id = set_client_id(&wire, "c", 1).await;
    let claims = [putfh(handle), open_0(id, "f", 1, true)];
    wire.call(0, &claims).await.status
}

#[test]
fn a_4_0_client_that_claims_nothing_in_a_grace_period_claims_nothing_in_the_next() {
    for is_late in [false, true] {
        let mut rig = Rig::new();
        let handle = rig.run(|env| async move { holder_0(&env).await });
        rig.restart();
        if is_late {
            rig.pass(LEASE * 2);
        }
        rig.run(|env| async move {
            let wire = connection(&env).await;
            set_client_id(&wire, "c", 1).await;
        });
        if !is_late {
            rig.pass(LEASE * 2);
        }
        rig.run(|env| async move { passes_through(&env, "f").await });
        rig.restart();
        let status = rig.run(move |env| async move { reclaims_0(&env, &handle).await });
        assert_eq!(status, Nfsstat4::NFS4ERR_RECLAIM_BAD, "{is_late}");
    }
}

#[test]
fn a_4_0_client_that_goes_on_claims_after_the_next_restart() {
    for claims in [false, true] {
        let mut rig = Rig::new();
        let handle = rig.run(|env| async move { holder_0(&env).await });
        rig.restart();
        let of = handle.clone();
        let (wire, id) = rig.run(move |env| async move {
            let wire = connection(&env).await;
            let id = set_client_id(&wire, "c", 1).await;
            if claims {
                let claims = [putfh(&of), open_0(id, "f", 1, true)];
                wire.call(0, &claims).await.ok();
            }
            (wire, id)
        });
        rig.pass(LEASE * 2 - Duration::from_secs(1));
        rig.run(move |_| async move {
            assert_eq!(renew(&wire, id).await, Nfsstat4::NFS4_OK);
            if !claims {
                // What it had is lost. It has seen that, and opens the file anew.
                opened_0(&wire, id, "f").await;
            }
        });
        for _ in 0..2 {
            rig.restart();
            let of = handle.clone();
            let status = rig.run(move |env| async move { reclaims_0(&env, &of).await });
            assert_eq!(status, Nfsstat4::NFS4_OK, "{claims}");
        }
    }
}

#[test]
fn the_grace_period_is_over_when_those_that_have_not_claimed_are_gone() {
    let mut rig = Rig::new();
    let (mut first, mut second) = rig.run(|env| async move {
        let first = holder(&env).await;
        set_client_id(&first.wire, "c", 1).await;
        (first, Client::new(&env, "second").await)
    });
    rig.restart();
    let door = rig.door();
    rig.run(move |env| async move {
        back_after_restart(&env, &mut first).await;
        first.reclaim_complete().await;
        // This one has no more use of what it had.
        back_after_restart(&env, &mut second).await;
        second.flags().await;
        let of = DestroySession4Args {
            dsa_sessionid: second.session,
        };
        let ends = [NfsArgop4::DestroySession(of)];
        second.wire.call(1, &ends).await.ok();
        let of = DestroyClientid4Args {
            dca_clientid: second.id,
        };
        let ends = [NfsArgop4::DestroyClientid(of)];
        second.wire.call(1, &ends).await.ok();
        env.core.sleep(Duration::from_secs(1)).await;
        assert!(door.is_in_grace(), "a client of 4.0 is not back");
        // It has restarted itself, and has nothing to claim.
        set_client_id(&first.wire, "c", 2).await;
        env.core.sleep(Duration::from_secs(1)).await;
        assert!(!door.is_in_grace());
        first.open("f", READ).await;
    });
}

#[test]
fn nobody_takes_the_name_of_a_client_that_may_still_reclaim() {
    let mut rig = Rig::new();
    let handle = rig.run(|env| async move {
        holder(&env).await;
        holder_0(&env).await
    });
    rig.restart();
    rig.run(move |env| async move {
        let wire = connection(&env).await;
        wire.user.set(1000);
        let refused = introduce(&wire, "c", 1).await;
        assert_eq!(refused, Err(Nfsstat4::NFS4ERR_CLID_INUSE));
        let introduces = NfsArgop4::ExchangeId(ExchangeId4Args {
            eia_clientowner: ClientOwner4 {
                co_verifier: [1; 8],
                co_ownerid: "holder".into(),
            },
            eia_flags: 0,
            eia_state_protect: StateProtect4A::Sp4None,
            eia_client_impl_id: None,
        });
        let done = wire.call(1, &[introduces]).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_CLID_INUSE);
        assert_eq!(reclaims_0(&env, &handle).await, Nfsstat4::NFS4_OK);
    });
}

#[test]
fn nobody_destroys_a_client_that_may_still_reclaim_nor_one_of_4_0() {
    let destroy = |dca_clientid| {
        [NfsArgop4::DestroyClientid(DestroyClientid4Args {
            dca_clientid,
        })]
    };
    let mut rig = Rig::new();
    let (client, id) = rig.run(move |env| async move {
        let client = holder(&env).await;
        let of = DestroySession4Args {
            dsa_sessionid: client.session,
        };
        let ends = [NfsArgop4::DestroySession(of)];
        client.wire.call(1, &ends).await.ok();
        let wire = connection(&env).await;
        let id = set_client_id(&wire, "c", 1).await;
        let done = wire.call(1, &destroy(id)).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_STALE_CLIENTID);
        assert_eq!(renew(&wire, id).await, Nfsstat4::NFS4_OK);
        opened_0(&wire, id, "h").await;
        (client.id, id)
    });
    rig.restart();
    rig.run(move |env| async move {
        let wire = connection(&env).await;
        let done = wire.call(1, &destroy(id)).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_STALE_CLIENTID);
        let done = wire.call(1, &destroy(client)).await;
        assert_eq!(done.status, Nfsstat4::NFS4ERR_CLIENTID_BUSY);
    });
}

#[test]
fn the_grace_period_is_as_long_as_the_lease_that_clients_were_told() {
    let lease = Rc::new(Cell::new(LEASE * 10));
    let of = Rc::clone(&lease);
    let mut rig = Rig::with(move |options| options.lease = of.get());
    let mut client = rig.run(|env| async move { holder(&env).await });
    lease.set(LEASE);
    // The server dies once more, before the long one is over.
    rig.restart();
    rig.pass(LEASE * 2);
    rig.restart();
    rig.pass(LEASE * 9);
    assert!(rig.door().is_in_grace());
    client = rig.run(move |env| async move {
        back_after_restart(&env, &mut client).await;
        assert_eq!(reclaims(&client, "f").await, Nfsstat4::NFS4_OK);
        client.reclaim_complete().await;
        client
    });
    rig.pass(Duration::from_secs(1));
    assert!(!rig.door().is_in_grace());
    // From then on the short one is the one that clients know of.
    rig.restart();
    rig.pass(LEASE * 2);
    assert!(!rig.door().is_in_grace());
    drop(client);
}
