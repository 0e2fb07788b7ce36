//! What the two sides find out in one case.

use serde::{Deserialize, Serialize};

use crate::cache::Percentiles;

/// One promise of the order in which things become visible.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OrderCheck {
    /// What was looked at.
    pub what: String,
    /// Whether the NIC promises it.
    pub promised: bool,
    /// How often it was looked at.
    pub checked: u64,
    /// How often it was otherwise.
    pub violations: u64,
}

/// What the requester has measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// Messages sent in all, in warm-ups and timed ones too.
    pub(super) sent: u64,
    pub(super) operations: u64,
    pub(super) seconds: f64,
    /// The mean is from a loop that does not look at the clock.
    pub(super) latency: Option<Percentiles>,
    pub(super) orders: Vec<OrderCheck>,
}

/// What the target has seen.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Arrived {
    pub(super) operations: u64,
    /// From the first message to the last; 0 when the target did not look.
    pub(super) seconds: f64,
    pub(super) wrong: u64,
    pub(super) orders: Vec<OrderCheck>,
}
