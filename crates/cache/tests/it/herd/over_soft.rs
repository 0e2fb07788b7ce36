//! Over the software NIC.

#[path = "allocation.rs"]
mod allocation;
#[path = "faults.rs"]
mod faults;
#[path = "forgery.rs"]
mod forgery;
#[path = "lifetimes.rs"]
mod lifetimes;
#[path = "operations.rs"]
mod operations;
#[path = "raw.rs"]
mod raw;
#[path = "rig.rs"]
mod rig;

use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;

use nic_soft::{SoftNic, SoftOptions};
use verbs::Gid;

use super::Fabric;

/// Two adapters of one process.
fn fabric() -> Fabric {
    fabric_at(Gid::from_ipv4(Ipv4Addr::LOCALHOST))
}

/// The same at an address of their own.
fn fabric_at(gid: Gid) -> Fabric {
    let run_dir = tempfile::tempdir().unwrap();
    let options = SoftOptions::new(run_dir.path()).gid(gid);
    let nic = || SoftNic::open(&options).unwrap();
    let (server, client) = (nic(), nic());
    let both = [Arc::clone(&server), Arc::clone(&client)];
    Fabric {
        server,
        client,
        catch_up: Rc::new(move || both.iter().for_each(|nic| nic.catch_up())),
        run_dir: Some(run_dir),
    }
}
