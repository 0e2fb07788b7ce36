//! Latency at offered loads.

use serde::Serialize;

use super::{Arrival, CacheReport, CacheRun, Counts, Latencies, Limit, Rate, RunError};
use crate::machine::Machine;

/// Which loads.
#[derive(Clone, PartialEq, Debug)]
pub enum Rates {
    /// These, in requests a second.
    These(Vec<f64>),
    /// From 10 to 90 % of what a closed loop reaches with the run's window.
    Auto,
}

/// The settings of a sweep over loads.
#[derive(Clone, Debug)]
pub struct LoadSweep {
    /// The requests; its rate is the sweep's business.
    pub run: CacheRun,
    /// The loads.
    pub rates: Rates,
    /// How requests are spread over time.
    pub arrival: Arrival,
}

/// What a load has found out.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Load {
    /// Millions of requests that were due a second.
    pub offered_mops: f64,
    /// Millions of requests answered a second.
    pub achieved_mops: f64,
    /// Requests that were due but could not be sent within the run's length, or a second, after
    /// its end. They count in the latencies with the time that they had waited for.
    pub unsent: u64,
    /// How the requests ended.
    pub counts: Counts,
    /// From when a request was due to its answer.
    pub latency: Latencies,
    /// The longest time that others had a client thread's CPU while it was ready to run: latencies
    /// of that time are not the server's. Nothing when the kernel does not tell.
    pub waited_for_cpu_ns: Option<u64>,
}

/// What a sweep has found out.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// The version that measured.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The requests.
    pub settings: CacheRun,
    /// How requests were spread over time.
    pub arrival: Arrival,
    /// What the closed loop reached that the loads are shares of, if they are.
    pub closed_mops: Option<f64>,
    /// The loads, in the order given.
    pub loads: Vec<Load>,
    /// What the machine could do at all, if that was measured in the same run.
    pub limit: Option<Limit>,
}

impl LoadSweep {
    /// Stores the items if the run wants that, then measures each load. `progress` is told what
    /// comes next, and which step of how many it is.
    ///
    /// # Errors
    /// As [`CacheRun::run`].
    pub fn run(
        &self,
        progress: &mut dyn FnMut(&str, usize, usize),
    ) -> Result<LoadReport, RunError> {
        let mut next = CacheRun {
            rate: None,
            ..self.run.clone()
        };
        let mut measure = |rate: Option<Rate>| -> Result<CacheReport, RunError> {
            next.rate = rate;
            let report = next.run(&mut |_, _| {})?;
            next.preload = false;
            Ok(report)
        };
        let (rates, closed_mops, mut first) = match &self.rates {
            Rates::These(rates) => (rates.clone(), None, None),
            Rates::Auto => {
                progress("closed loop", 0, 9);
                let report = measure(None)?;
                let all = report.throughput_mops * 1e6;
                let rates = (1..=9).map(|tenth| (all * f64::from(tenth) / 10.0).max(1.0));
                let rates = rates.collect();
                (rates, Some(report.throughput_mops), Some(report))
            }
        };
        let steps = rates.len();
        let mut loads = Vec::with_capacity(steps);
        for (number, per_second) in rates.into_iter().enumerate() {
            progress(&format!("{per_second:.0} a second"), number + 1, steps);
            let arrival = self.arrival;
            let report = measure(Some(Rate {
                per_second,
                arrival,
            }))?;
            loads.push(Load {
                offered_mops: per_second / 1e6,
                achieved_mops: report.throughput_mops,
                unsent: report.unsent,
                counts: report.counts,
                latency: report.latency,
                waited_for_cpu_ns: report
                    .threads
                    .iter()
                    .filter_map(|thread| thread.waited_for_cpu_ns)
                    .max(),
            });
            first.get_or_insert(report);
        }
        let Some(first) = first else {
            return Err(RunError::Setting("there is at least one load"));
        };
        Ok(LoadReport {
            version: first.version,
            machine: first.machine,
            settings: CacheRun {
                rate: None,
                ..first.settings
            },
            arrival: self.arrival,
            closed_mops,
            loads,
            limit: None,
        })
    }
}
