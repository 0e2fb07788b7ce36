//! What the two sides find out in one case.

use serde::{Deserialize, Serialize};

use crate::cache::Percentiles;

/// What the requester has measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// Messages sent in all, in warm-ups and timed ones too.
    pub(super) sent: u64,
    pub(super) operations: u64,
    pub(super) seconds: f64,
    /// The mean is from a loop that does not look at the clock.
    pub(super) latency: Option<Percentiles>,
}

/// What the target has seen.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Arrived {
    pub(super) operations: u64,
    /// From the first message to the last; 0 when the target did not look.
    pub(super) seconds: f64,
    pub(super) wrong: u64,
}
