//! Over the reference NIC.

#[path = "at_hand.rs"]
mod at_hand;
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

use std::rc::Rc;
use std::sync::Arc;

use conformance::model::ModelNic;

use super::Fabric;
use super::{Partition as Engine, partition as engine};

/// Answers come in the order of requests.
const IN_ORDER: bool = true;

/// Two nodes that reach each other.
pub(super) fn fabric() -> Fabric {
    let mut nics = ModelNic::fabric(2).into_iter();
    let mut nic = || Arc::new(nics.next().unwrap());
    Fabric {
        server: nic(),
        client: nic(),
        catch_up: Rc::new(|| {}),
        run_dir: None,
    }
}
