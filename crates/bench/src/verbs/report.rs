//! What a run has found out.

use serde::Serialize;

use super::case::{Case, Role, Rung, Target};
use super::experiment::Experiment;
use super::outcome::{Arrived, Outcome};
use super::plan::Wishes;
use crate::Measured;
use crate::cache::Percentiles;
use crate::limit::BetweenCores;
use crate::machine::Machine;
use crate::measured::median;

/// A figure beside its limit.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct AgainstLimit {
    /// Which limit: `ring`, `exchange` or `pingpong`.
    pub limit: &'static str,
    /// The figure divided by the limit's, both medians of the same rounds.
    pub ratio: f64,
}

/// One measurement.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    #[serde(flatten)]
    pub case: Case,
    /// The operation, or those of request and answer: `WRITE/SEND`.
    pub verb: String,
    /// The transport, or those of request and answer: `UC/UD`.
    pub transport: String,
    /// Requests measured, all rounds together.
    pub operations: u64,
    /// Millions of requests a second: the median of the rounds; none where latency was measured.
    pub mops: Option<f64>,
    /// The slowest and the fastest round.
    pub mops_range: Option<[f64; 2]>,
    /// How long a request took, or a postlist; medians of the rounds. The mean is from a loop that does not look
    /// at the clock, the others include a look.
    pub latency: Option<Percentiles>,
    /// The figure beside its limit, where there is one.
    pub against: Option<AgainstLimit>,
}

/// The report of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct VerbsReport {
    /// The machine.
    pub machine: Machine,
    /// The version that measured.
    pub version: &'static str,
    /// The device's name.
    pub device: String,
    /// The CPUs that the two processes were pinned to.
    pub cpus: Option<[usize; 2]>,
    /// Seconds of one measurement.
    pub each_s: f64,
    /// How often each was repeated.
    pub rounds: u32,
    /// What was asked for.
    pub wishes: Wishes,
    /// What a look at the clock costs, in nanoseconds: part of each timed request.
    pub clock_ns: f64,
    /// What the machine can do at all, measured between the experiments.
    pub limit: BetweenCores,
    /// The measurements.
    pub rows: Vec<Row>,
}

impl Row {
    fn is(&self, experiments: &[Experiment], verb: &str) -> bool {
        let Case {
            experiment, role, ..
        } = self.case;
        experiments.contains(&experiment) && self.verb == verb && role == Role::Outbound
    }
}

impl VerbsReport {
    fn best(&self, fits: impl Fn(&Row) -> bool) -> Option<f64> {
        let fitting = self.rows.iter().filter(|row| fits(row));
        fitting.filter_map(|row| row.mops).max_by(f64::total_cmp)
    }

    /// WRITE of 64 bytes, not signaled but one in many, polled for and read by the target, by the raw ring,
    /// which does the same without verbs.
    pub fn write64_vs_ring(&self) -> Option<f64> {
        let write = self.best(|row| {
            row.is(&[Experiment::Write], "WRITE")
                && (row.case.size, row.case.target) == (64, Target::Polling)
                && row.case.signal_every > 1
        });
        Some(write? / self.limit.ring_mops)
    }

    /// READ of 64 bytes.
    pub fn read64_mops(&self) -> Option<f64> {
        self.best(|row| row.is(&[Experiment::Read], "READ") && row.case.size == 64)
    }

    /// Compare-and-swap over many words.
    pub fn cas_mops(&self) -> Option<f64> {
        self.best(|row| row.is(&[Experiment::Cas], "CAS") && !row.case.one_word)
    }

    /// The mean time of a WRITE/WRITE echo at depth 1, on the ladder's highest rung, by the ping-pong's,
    /// both without looking at the clock.
    pub fn echo_vs_pingpong(&self) -> Option<f64> {
        let experiments = [Experiment::Echo, Experiment::Latency];
        let mut rows = self.rows.iter().filter(|row| {
            row.is(&experiments, "WRITE/WRITE") && row.case.rung == Some(Rung::Inlined)
        });
        let latency = rows.find_map(|row| row.latency)?;
        Some(latency.mean_ns / self.limit.pingpong_ns)
    }

    /// HERD's echoes, WRITE and SEND over UD, by WRITE/WRITE echoes, each at its best window on the
    /// ladder's highest rung.
    pub fn hybrid_vs_write_echo(&self) -> Option<f64> {
        let best = |verb| {
            self.best(|row| {
                row.is(&[Experiment::Echo], verb) && row.case.rung == Some(Rung::Inlined)
            })
        };
        Some(best("WRITE/SEND")? / best("WRITE/WRITE")?)
    }
}

impl Row {
    /// From the rounds of a case, beside their limits.
    pub(super) fn new(case: &Case, rounds: &[(Outcome, Arrived)], limit: &BetweenCores) -> Self {
        let mops = rounds.iter().map(|(outcome, arrived)| {
            // Inbound is what arrives, where the target sees it arrive.
            let (operations, seconds) = match (case.role, arrived.seconds > 0.0) {
                (Role::Inbound, true) => (arrived.operations, arrived.seconds),
                _ => (outcome.operations, outcome.seconds),
            };
            operations as f64 / seconds / 1e6
        });
        let mops = Measured::of(&mops.collect::<Vec<_>>());
        let mops = mops.filter(|_| !case.timed);
        let latencies = rounds.iter().filter_map(|(outcome, _)| outcome.latency);
        let latencies: Vec<Percentiles> = latencies.collect();
        let latency = (!latencies.is_empty()).then(|| median_latency(&latencies));
        Row {
            case: case.clone(),
            verb: case.verb(),
            transport: case.transport(),
            operations: rounds.iter().map(|(outcome, _)| outcome.operations).sum(),
            mops: mops.map(|mops| mops.mid),
            mops_range: mops.map(|mops| [mops.low, mops.high]),
            latency,
            against: against(case, latency, mops, limit),
        }
    }
}

fn median_latency(latencies: &[Percentiles]) -> Percentiles {
    let of = |figure: fn(&Percentiles) -> f64| median(latencies.iter().map(figure));
    Percentiles {
        count: latencies.iter().map(|one| one.count).sum(),
        mean_ns: of(|one| one.mean_ns),
        p50_ns: of(|one| one.p50_ns as f64) as u64,
        p95_ns: of(|one| one.p95_ns as f64) as u64,
        p99_ns: of(|one| one.p99_ns as f64) as u64,
        p999_ns: of(|one| one.p999_ns as f64) as u64,
        p9999_ns: of(|one| one.p9999_ns as f64) as u64,
        max_ns: latencies.iter().map(|one| one.max_ns).max().unwrap_or(0),
    }
}

/// A figure beside the limit that bounds it: messages that a target takes, and echoes. What
/// touches the requester's own caches only has none here.
fn against(
    case: &Case,
    latency: Option<Percentiles>,
    mops: Option<Measured>,
    limit: &BetweenCores,
) -> Option<AgainstLimit> {
    let (limit, ratio) = match (case.answer, latency, mops) {
        (Some(_), Some(latency), _) => ("pingpong", latency.mean_ns / limit.pingpong_ns),
        (Some(_), None, Some(mops)) => {
            let window = case.window as usize;
            let same = limit.exchange.iter().find(|one| one.window == window)?;
            ("exchange", mops.mid / same.mops)
        }
        (None, None, Some(mops)) if case.target == Target::Polling => {
            let lines = case.size.div_ceil(64) as f64;
            ("ring", mops.mid * lines / limit.ring_mops)
        }
        _ => return None,
    };
    ratio.is_finite().then_some(AgainstLimit { limit, ratio })
}
