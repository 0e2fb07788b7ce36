//! What a run has found out.

use serde::Serialize;

use super::case::{Case, Role, Rung, Target, Work};
use super::experiment::Experiment;
use super::outcome::{Arrived, Latency, OrderCheck, Outcome};
use super::plan::Wishes;
use crate::Measured;
use crate::limit::BetweenCores;
use crate::machine::Machine;

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
#[non_exhaustive]
pub struct Row {
    /// The experiment.
    pub experiment: Experiment,
    /// The operation, or those of request and answer: `WRITE/SEND`.
    pub verb: String,
    /// The transport, or those of request and answer: `UC/UD`.
    pub transport: String,
    /// The rung of the ladder, for echoes.
    pub rung: Option<Rung>,
    /// Who posts.
    pub role: Role,
    /// What the target's CPU does.
    pub target: Target,
    /// Whether atomics all meet on one word.
    pub one_word: bool,
    /// Whether answers are numbers of a sequence.
    pub sequence: bool,
    /// Bytes of a message.
    pub size: usize,
    /// Requests under way.
    pub window: u32,
    /// Work requests in a post call at most.
    pub postlist: u32,
    /// One completion in so many work requests.
    pub signal_every: u32,
    /// Whether messages are carried within the work request.
    pub inline: bool,
    /// Queue pairs.
    pub qps: u32,
    /// Requests measured, all rounds together.
    pub operations: u64,
    /// Millions of requests a second: the median of the rounds; none where latency was measured.
    pub mops: Option<f64>,
    /// The slowest and the fastest round.
    pub mops_range: Option<[f64; 2]>,
    /// How long a request took, or a postlist; medians of the rounds.
    pub latency: Option<Latency>,
    /// What was visible when.
    pub orders: Vec<OrderCheck>,
    /// The figure beside its limit, where there is one.
    pub against: Option<AgainstLimit>,
}

/// The report of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
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
        experiments.contains(&self.experiment) && self.verb == verb && self.role == Role::Outbound
    }
}

/// The usual place of echoes.
const ECHOES: [Experiment; 2] = [Experiment::Echo, Experiment::Hybrid];

impl VerbsReport {
    fn best(&self, fits: impl Fn(&Row) -> bool) -> Option<f64> {
        let fitting = self.rows.iter().filter(|row| fits(row));
        fitting.filter_map(|row| row.mops).max_by(f64::total_cmp)
    }

    /// WRITE of 64 bytes, not signaled but one in many, polled for and read by the target: what the
    /// raw ring does, over verbs.
    pub fn write64_mops(&self) -> Option<f64> {
        self.best(|row| {
            row.is(&[Experiment::Write], "WRITE")
                && (row.size, row.target) == (64, Target::Polling)
                && row.signal_every > 1
        })
    }

    /// [`VerbsReport::write64_mops`] divided by the raw ring's.
    pub fn write64_vs_ring(&self) -> Option<f64> {
        Some(self.write64_mops()? / self.limit.ring_mops)
    }

    /// READ of 64 bytes.
    pub fn read64_mops(&self) -> Option<f64> {
        self.best(|row| row.is(&[Experiment::Read], "READ") && row.size == 64)
    }

    /// Compare-and-swap over many words.
    pub fn cas_mops(&self) -> Option<f64> {
        self.best(|row| row.is(&[Experiment::Cas], "CAS") && !row.one_word)
    }

    fn echo_latency(&self, verb: &str) -> Option<&Latency> {
        let experiments = [Experiment::Echo, Experiment::Hybrid, Experiment::Latency];
        let fits = |row: &&Row| row.is(&experiments, verb) && row.rung == Some(Rung::Inlined);
        let latencies = self.rows.iter().filter(fits);
        latencies.filter_map(|row| row.latency.as_ref()).next()
    }

    /// The median time of a WRITE/WRITE echo at depth 1, on the ladder's highest rung. It includes
    /// a look at the clock.
    pub fn echo_p50_ns(&self) -> Option<f64> {
        Some(self.echo_latency("WRITE/WRITE")?.p50_ns as f64)
    }

    /// The mean time of the same echo, without looking at the clock: as the ping-pong is measured.
    pub fn echo_mean_ns(&self) -> Option<f64> {
        Some(self.echo_latency("WRITE/WRITE")?.mean_ns)
    }

    /// The mean time of a WRITE/WRITE echo divided by the ping-pong's.
    pub fn echo_vs_pingpong(&self) -> Option<f64> {
        Some(self.echo_mean_ns()? / self.limit.pingpong_ns)
    }

    fn best_echo(&self, verb: &str) -> Option<f64> {
        self.best(|row| row.is(&ECHOES, verb) && row.rung == Some(Rung::Inlined))
    }

    /// WRITE/WRITE echoes at the best window, on the ladder's highest rung.
    pub fn write_echo_mops(&self) -> Option<f64> {
        self.best_echo("WRITE/WRITE")
    }

    /// HERD's echoes, WRITE and SEND over UD, at the best window, on the ladder's highest rung.
    pub fn hybrid_echo_mops(&self) -> Option<f64> {
        self.best_echo("WRITE/SEND")
    }

    /// [`VerbsReport::hybrid_echo_mops`] divided by [`VerbsReport::write_echo_mops`].
    pub fn hybrid_vs_write_echo(&self) -> Option<f64> {
        Some(self.hybrid_echo_mops()? / self.write_echo_mops()?)
    }

    /// How often something was visible earlier than the NIC promises.
    pub fn order_violations(&self) -> u64 {
        let orders = self.rows.iter().flat_map(|row| &row.orders);
        let promised = orders.filter(|order| order.promised);
        promised.map(|order| order.violations).sum()
    }
}

/// The median; 0 of none.
pub(super) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let figures: Vec<f64> = figures.into_iter().collect();
    Measured::of(&figures).unwrap_or_default().mid
}

/// The rounds of one case.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    outcomes: Vec<(Outcome, Arrived)>,
}

impl Rounds {
    pub(super) fn push(&mut self, outcome: Outcome, arrived: Arrived) {
        self.outcomes.push((outcome, arrived));
    }

    /// The row, beside the limits of its rounds.
    pub(super) fn row(&self, case: &Case, limit: &BetweenCores) -> Row {
        let measured = !case.latency && !matches!(case.work, Work::Order { .. });
        let mops = self.outcomes.iter().map(|(outcome, arrived)| {
            // Inbound is what arrives, where the target sees it arrive.
            let (operations, seconds) = match (case.role, arrived.seconds > 0.0) {
                (Role::Inbound, true) => (arrived.operations, arrived.seconds),
                _ => (outcome.operations, outcome.seconds),
            };
            operations as f64 / seconds / 1e6
        });
        let mops = Measured::of(&mops.collect::<Vec<_>>()).unwrap_or_default();
        let latencies: Vec<Latency> = self
            .outcomes
            .iter()
            .filter_map(|(outcome, _)| outcome.latency)
            .collect();
        let (one_word, sequence) = match case.work {
            Work::OneWay { one_word, .. } => (one_word, false),
            Work::Echo { numbered, .. } => (false, numbered),
            Work::Order { .. } => (false, false),
        };
        let mut row = Row {
            experiment: case.experiment,
            verb: case.verb(),
            transport: case.transport(),
            rung: case.rung,
            role: case.role,
            target: case.target,
            one_word,
            sequence,
            size: case.size,
            window: case.window,
            postlist: case.postlist,
            signal_every: case.signal_every,
            inline: case.inline,
            qps: case.qps,
            operations: self
                .outcomes
                .iter()
                .map(|(outcome, _)| outcome.operations)
                .sum(),
            mops: measured.then_some(mops.mid),
            mops_range: measured.then_some([mops.low, mops.high]),
            latency: (!latencies.is_empty()).then(|| median_latency(&latencies)),
            orders: self.orders(),
            against: None,
        };
        row.against = against(&row, case, limit);
        row
    }

    /// What was looked at, all rounds together.
    fn orders(&self) -> Vec<OrderCheck> {
        let mut all: Vec<OrderCheck> = Vec::new();
        for (outcome, arrived) in &self.outcomes {
            for one in arrived.orders.iter().chain(&outcome.orders) {
                match all.iter_mut().find(|seen| seen.what == one.what) {
                    Some(seen) => {
                        seen.checked += one.checked;
                        seen.violations += one.violations;
                    }
                    None => all.push(one.clone()),
                }
            }
        }
        all
    }
}

fn median_latency(latencies: &[Latency]) -> Latency {
    let of = |figure: fn(&Latency) -> f64| median(latencies.iter().map(figure));
    Latency {
        mean_ns: of(|one| one.mean_ns),
        p50_ns: of(|one| one.p50_ns as f64) as u64,
        p99_ns: of(|one| one.p99_ns as f64) as u64,
        p999_ns: of(|one| one.p999_ns as f64) as u64,
        max_ns: latencies.iter().map(|one| one.max_ns).max().unwrap_or(0),
    }
}

/// A figure beside the limit that bounds it: messages that a target takes, and echoes. What
/// touches the requester's own caches only has none here.
fn against(row: &Row, case: &Case, limit: &BetweenCores) -> Option<AgainstLimit> {
    let ratio = |limit, ratio: f64| ratio.is_finite().then_some(AgainstLimit { limit, ratio });
    match (case.work, &row.latency, row.mops) {
        (Work::Echo { .. }, Some(latency), _) => {
            ratio("pingpong", latency.mean_ns / limit.pingpong_ns)
        }
        (Work::Echo { .. }, None, Some(mops)) => {
            let same = limit
                .exchange
                .iter()
                .find(|one| one.window == case.window as usize)?;
            ratio("exchange", mops / same.mops)
        }
        (Work::OneWay { .. }, None, Some(mops)) if case.target == Target::Polling => {
            let lines = case.size.div_ceil(64) as f64;
            ratio("ring", mops * lines / limit.ring_mops)
        }
        _ => None,
    }
}
