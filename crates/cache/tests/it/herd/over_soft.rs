//! Over the software NIC.

#[path = "allocation.rs"]
mod allocation;
#[path = "at_hand.rs"]
mod at_hand;
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
#[path = "stopped.rs"]
mod stopped;

use std::net::Ipv4Addr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use nic_soft::{SoftNic, SoftOptions};
use verbs::Gid;

use super::Fabric;
use super::{Partition as Engine, partition as engine};

/// Answers come in the order of requests.
const IN_ORDER: bool = true;

/// Two adapters of one process.
fn fabric() -> Fabric {
    fabric_at(Gid::from_ipv4(Ipv4Addr::LOCALHOST))
}

/// The same at an address of their own.
fn fabric_at(gid: Gid) -> Fabric {
    fabric_with(|run_dir| super::options(run_dir).gid(gid))
}

/// The same with options.
fn fabric_with(options: impl FnOnce(&Path) -> SoftOptions) -> Fabric {
    let run_dir = tempfile::tempdir().unwrap();
    let options = options(run_dir.path());
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
