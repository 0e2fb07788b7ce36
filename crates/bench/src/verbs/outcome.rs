//! What the two sides find out in one case.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Latencies up to here are told apart, longer ones counted as this.
const LATENCY_NS_MAX: u64 = 10_000_000_000;
/// Each latency is known within a thousandth.
const DIGITS: u8 = 3;

/// How long requests took.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// The mean, from a loop that does not look at the clock.
    pub mean_ns: f64,
    /// Half took no longer. This and the others include a look at the clock.
    pub p50_ns: u64,
    /// 99 % took no longer.
    pub p99_ns: u64,
    /// 99.9 % took no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).expect("bounds that a histogram takes")
}

impl Latency {
    pub(super) fn of(mean_ns: f64, times: &Histogram<u64>) -> Self {
        Latency {
            mean_ns,
            p50_ns: times.value_at_quantile(0.5),
            p99_ns: times.value_at_quantile(0.99),
            p999_ns: times.value_at_quantile(0.999),
            max_ns: times.max(),
        }
    }
}

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
    pub(super) latency: Option<Latency>,
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
