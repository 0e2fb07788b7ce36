//! A file system that is closed in order while compaction and checkpoints are under way: what they had begun is ended,
//! so that a check finds nothing wrong.

use std::time::Duration;

use nfs::wire::*;
use nfs::xdr::Opaque;
use sim::Env;

use super::client::{
    ANONYMOUS, CURRENT, Client, attributes, close, fattr, handle_of, open, put_handle,
};
use super::site::{CLIENTS, Nature, Site};

/// Bytes of a write, and how many of them a file has.
const LEN: usize = 40 << 10;
const PLACES: u64 = 4;

/// Writes the same places again and again, whether there is room or not.
async fn write(env: Env, seed: u64) {
    let mut client = Client::new(&env, "writer").await;
    let mode = attributes(&[Attribute::Mode(0o600)]);
    let how = Openflag4::Open4Create(Createhow4::Unchecked4(fattr(&mode)));
    let make = [
        NfsArgop4::Putrootfh,
        open("maker", how, OpenClaim4::ClaimNull("file".into())),
        NfsArgop4::Getfh,
        close(&CURRENT),
    ];
    let file = handle_of(&client.call(&make).await.ok());
    let mut rng = fastrand::Rng::with_seed(seed);
    let bytes = vec![7; LEN];
    loop {
        let write = NfsArgop4::Write(Write4Args {
            stateid: ANONYMOUS,
            offset: rng.u64(..PLACES) * LEN as u64,
            stable: StableHow4::FILE_SYNC4,
            data: Opaque(&bytes),
        });
        let done = client.call(&[put_handle(&file), write]).await;
        if done.status == Nfsstat4::NFS4ERR_NOSPC {
            env.core.sleep(Duration::from_millis(10)).await;
        }
    }
}

#[test]
fn what_goes_on_beside_requests_is_ended_before_it_is_closed() {
    for seed in 0..2 {
        let mut site = Site::new(seed, Nature::Full);
        drop(site.world.spawn(CLIENTS, move |env| write(env, seed)));
        for round in 0..6 {
            site.await_up();
            let time = site.world.chance().u64(..5_000_000);
            let going = site.world.run_for(Duration::from_nanos(time));
            going.expect("no panic");
            let has_gone = site.await_release(Duration::from_secs(1));
            assert!(
                has_gone,
                "seed {seed}, round {round}: nothing is given back"
            );
            assert!(site.restart(), "seed {seed}, round {round}: it is closed");
        }
    }
}
