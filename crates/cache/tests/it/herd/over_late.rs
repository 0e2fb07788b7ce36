//! Over an engine that answers some commands late: as over the reference NIC, and what only such an
//! engine has clients see.

#[path = "faults.rs"]
mod faults;
#[path = "large.rs"]
mod large;
#[path = "lifetimes.rs"]
mod lifetimes;
#[path = "operations.rs"]
mod operations;
#[path = "promises.rs"]
mod promises;
#[path = "raw.rs"]
mod raw;
#[path = "rig.rs"]
mod rig;

use engine::{LateEngine, Limits, MapEngine};

use super::over_model::fabric;

type Engine = LateEngine<MapEngine>;

/// Answers come in the order in which the engine has them.
const IN_ORDER: bool = false;

/// Values as long as those of a partition; half of the answers come late.
fn engine() -> Engine {
    let map = MapEngine::with_limits(Limits {
        item_size_max: 2 << 20,
        value_size_max: cache::mica::VALUE_BYTES_MAX,
    });
    LateEngine::new(map, 7, 50)
}
