//! HERD's servers and clients, the same tests over each NIC.
#![allow(clippy::duplicate_mod, reason = "one test body for all NICs")]

mod meddler;
mod over_late;
mod over_model;
mod over_soft;
mod threads;
mod wire;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cache::mica::Options;
use cache::mica::Partition;
use nic_soft::SoftOptions;
use verbs::nic::Nic;

/// A NIC for the server and one for the clients.
struct Fabric {
    server: Arc<dyn Nic>,
    client: Arc<dyn Nic>,
    /// Does what threads of the NICs would do soon: tests have a clock of their own.
    catch_up: Rc<dyn Fn()>,
    /// Where they meet, for as long as they live.
    run_dir: Option<tempfile::TempDir>,
}

/// What each core has, where answers are always at hand.
fn partition() -> Partition {
    Partition::new(&Options::new(8 << 20)).unwrap()
}

/// Patient, because many tests share the processors.
fn options(run_dir: &Path) -> SoftOptions {
    let mut options = SoftOptions::new(run_dir);
    options.contact_timeout = Duration::from_secs(60);
    options
}
