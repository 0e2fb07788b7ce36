//! A file system in memory behind NFS, to try clients on:
//!
//! ```text
//! cargo run --release -p nfs --example model -- 127.0.0.1:12049
//! sudo mount -t nfs4 -o port=12049 127.0.0.1:/ /mnt
//! ```
//!
//! It forgets everything when it ends. With `--no-delegations` behind the address, clients ask for every open.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use files::model::ModelFs;
use files::{Timestamp, VolumeId};
use nfs::server::{Door, Export, Options, Squash};
use rt::net::{Addr, ListenOptions, Listener};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr: SocketAddr = match std::env::args().nth(1) {
        Some(addr) => addr.parse()?,
        None => "127.0.0.1:2049".parse()?,
    };
    let fs = ModelFs::with_clock(now);
    let mut export = Export::new("/", VolumeId(1));
    export.squash = Squash::None;
    let mut core = rt::Core::new(rt::Config::default())?;
    let handle = core.handle();
    core.block_on(async {
        let mut options = Options::new(vec![export]);
        options.delegations = std::env::args().all(|word| word != "--no-delegations");
        let door = Door::open(&handle, Rc::new(fs), options).await?;
        let listener = Listener::bind(&handle, &Addr::Tcp(addr), ListenOptions::default())?;
        println!("mount -t nfs4 -o port={} {}:/ DIR", addr.port(), addr.ip());
        let keep = handle.spawn(Rc::clone(&door).keep());
        door.serve(listener).await;
        drop(keep);
        Ok(())
    })
}

fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp {
        seconds: since.as_secs() as i64,
        nanoseconds: since.subsec_nanos(),
    }
}
