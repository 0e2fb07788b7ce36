//! Over the software NIC.

#[path = "allocation.rs"]
mod allocation;
#[path = "faults.rs"]
mod faults;
#[path = "lifetimes.rs"]
mod lifetimes;
#[path = "operations.rs"]
mod operations;
#[path = "raw.rs"]
mod raw;
#[path = "rig.rs"]
mod rig;

use nic_soft::{SoftNic, SoftOptions};

use super::Fabric;

/// Two adapters of one process.
fn fabric() -> Fabric {
    let run_dir = tempfile::tempdir().unwrap();
    let options = SoftOptions::new(run_dir.path());
    Fabric {
        server: SoftNic::open(&options).unwrap(),
        client: SoftNic::open(&options).unwrap(),
        run_dir: Some(run_dir),
    }
}
