//! A client, or the server, that stands still past the lease with requests under way: no stale byte is
//! read, and nothing stale is written.

use std::time::Duration;

use nfs::wire::*;
use nfs::xdr::Opaque;
use sim::Env;

use super::client::{
    ANONYMOUS, CURRENT, Client, attributes, close, fattr, lock_all, open, opened, put_handle,
};
use super::site::{CLIENTS, LEASE, Nature, SERVER, Site};
use super::wire::Done;

const SLOW: usize = CLIENTS;
const QUICK: usize = CLIENTS + 1;

/// A file of the root directory, as both clients have it.
async fn made(client: &mut Client) -> Vec<u8> {
    let mode = attributes(&[Attribute::Mode(0o600)]);
    let how = Createhow4::Unchecked4(fattr(&mode));
    let make = [
        NfsArgop4::Putrootfh,
        open(
            "maker",
            Openflag4::Open4Create(how),
            OpenClaim4::ClaimNull("file".into()),
        ),
        NfsArgop4::Getfh,
        close(&CURRENT),
    ];
    super::client::handle_of(&client.call(&make).await.ok())
}

fn write<'a>(stateid: &Stateid4, bytes: &'a [u8]) -> NfsArgop4<'a> {
    NfsArgop4::Write(Write4Args {
        stateid: stateid.clone(),
        offset: 0,
        stable: StableHow4::FILE_SYNC4,
        data: Opaque(bytes),
    })
}

async fn read(client: &mut Client, file: &[u8]) -> Vec<u8> {
    let read = NfsArgop4::Read(Read4Args {
        stateid: ANONYMOUS,
        offset: 0,
        count: 100,
    });
    let done = client.call(&[put_handle(file), read]).await.ok();
    let NfsResop4::Read(Ok(of)) = done.last() else {
        panic!("{done:?}");
    };
    of.data.to_vec()
}

/// Opens and locks the file; none: somebody else has it.
async fn locked(client: &mut Client, file: &[u8]) -> Option<Stateid4> {
    let claim = OpenClaim4::ClaimFh;
    let how = Openflag4::Default(Opentype4::OPEN4_NOCREATE);
    let done = client
        .call(&[put_handle(file), open("o", how, claim)])
        .await;
    let stateid = opened(&done.ok());
    let ask = [put_handle(file), lock_all("o", &stateid, false)];
    let done = client.call(&ask).await;
    match done.last() {
        NfsResop4::Lock(Lock4Res::Nfs4Ok(of)) => Some(of.lock_stateid),
        NfsResop4::Lock(Lock4Res::Nfs4ErrDenied(_)) => None,
        other => panic!("{other:?}"),
    }
}

/// Locks the file as soon as it can be had, and writes.
async fn lock_and_write(client: &mut Client, file: &[u8], bytes: &[u8]) -> Done {
    loop {
        if let Some(stateid) = locked(client, file).await {
            return client
                .call(&[put_handle(file), write(&stateid, bytes)])
                .await;
        }
        client.core.sleep(Duration::from_millis(100)).await;
    }
}

/// A client that locks and writes, and the file.
async fn begun(env: Env) -> (Client, Vec<u8>, Stateid4) {
    let mut client = Client::new(&env, "slow").await;
    let file = made(&mut client).await;
    let lock = locked(&mut client, &file).await.expect("nobody has it");
    let done = client
        .call(&[put_handle(&file), write(&lock, b"first")])
        .await;
    done.ok();
    (client, file, lock)
}

/// What the slow client has under way arrives when somebody else has locked the file since.
#[test]
fn a_write_under_a_lock_that_has_lapsed_is_not_carried_out() {
    let mut site = Site::new(1, Nature::Sound);
    let (mut client, file, lock) = site.world.run(SLOW, begun).expect("no panic");
    site.world.cut(SERVER, SLOW);
    let to = file.clone();
    let mut late = site.world.spawn(SLOW, move |_| async move {
        let done = client
            .call(&[put_handle(&to), write(&lock, b"stale")])
            .await;
        done.status
    });
    site.world.run_for(2 * LEASE).expect("no panic");
    let to = file.clone();
    let others = site.world.run(QUICK, move |env| async move {
        let mut client = Client::new(&env, "quick").await;
        let done = lock_and_write(&mut client, &to, b"second").await;
        (client, done.status)
    });
    let (mut client, status) = others.expect("no panic");
    assert_eq!(status, Nfsstat4::NFS4_OK);
    site.world.mend(SERVER, SLOW);
    let ended = site.world.run_until(LEASE, |_| late.is_finished());
    assert!(ended.expect("no panic"), "the late write is answered");
    let told = late.try_take().expect("it has ended").expect("no panic");
    assert_ne!(told, Nfsstat4::NFS4_OK);
    let found = site.world.run(
        QUICK,
        move |_| async move { read(&mut client, &file).await },
    );
    assert_eq!(found.expect("no panic"), b"second");
}

/// The server stands still past the lease, with a write under a lock and another client's lock queued: both are
/// served, one after the other.
#[test]
fn a_server_that_stood_still_past_the_lease_serves_what_is_queued_in_some_order() {
    let mut served = 0;
    for seed in 0..20 {
        let mut site = Site::new(seed, Nature::Sound);
        let (mut client, file, lock) = site.world.run(SLOW, begun).expect("no panic");
        let other = site
            .world
            .run(QUICK, |env| async move { Client::new(&env, "quick").await });
        let mut other = other.expect("no panic");
        site.stall(2 * LEASE);
        let to = file.clone();
        let mut first = site.world.spawn(SLOW, move |_| async move {
            let done = client.call(&[put_handle(&to), write(&lock, b"own")]).await;
            if done.status == Nfsstat4::NFS4_OK {
                // Nobody else has it before this is closed.
                assert_eq!(read(&mut client, &to).await, b"ownst");
            }
            let of = Locku4Args {
                locktype: NfsLockType4::WRITE_LT,
                seqid: 0,
                lock_stateid: lock,
                offset: 0,
                length: u64::MAX,
            };
            client.call(&[put_handle(&to), NfsArgop4::Locku(of)]).await;
            done.status
        });
        let to = file.clone();
        let mut second = site.world.spawn(QUICK, move |_| async move {
            let done = lock_and_write(&mut other, &to, b"other").await;
            done.ok();
            read(&mut other, &to).await
        });
        let ended = site
            .world
            .run_until(10 * LEASE, |_| first.is_finished() && second.is_finished());
        assert!(ended.expect("no panic"), "seed {seed}: both are answered");
        let found = second.try_take().expect("it has ended").expect("no panic");
        assert_eq!(found, b"other", "seed {seed}");
        let told = first.try_take().expect("it has ended").expect("no panic");
        served += u64::from(told == Nfsstat4::NFS4_OK);
    }
    assert!(
        served > 0,
        "what was queued under the lock was refused each time"
    );
}
