//! Two servers side by side: the same requests, alternating, each one at its best.

use std::time::Duration;

use serde::Serialize;

use bench::Measured;
use bench::cache::{CacheRun, Counts, Length, Limit, Pinning, RunError, Target, as_seconds};
use bench::machine::Machine;
use bench::workload::Distribution;

/// How many requests travel together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Way {
    /// Requests under way on a connection, or to one core over a NIC.
    pub window: u32,
    /// Keys of one `get`.
    pub multiget: usize,
}

impl Way {
    /// One request, one answer.
    pub const PLAIN: Way = Way::pipelined(1);
    /// What is tried over a socket: one request at a time, 32 pipelined, gets of 32 keys, and four
    /// such gets under way.
    pub const OVER_SOCKETS: [Way; 4] = [
        Way::PLAIN,
        Way::pipelined(32),
        Way::multiget(32, 1),
        Way::multiget(32, 4),
    ];

    /// So many requests under way.
    pub const fn pipelined(window: u32) -> Way {
        Way {
            window,
            multiget: 1,
        }
    }

    /// Gets of so many keys, and so many of them under way.
    pub const fn multiget(keys: u32, lines: u32) -> Way {
        Way {
            window: keys * lines,
            multiget: keys as usize,
        }
    }

    /// What is tried through a NIC: windows of 1 to 64.
    pub fn over_nic() -> Vec<Way> {
        (0..7).map(|shift| Way::pipelined(1 << shift)).collect()
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Way { window, multiget } = *self;
        let text = match (window, multiget) {
            (1, _) => "one at a time".to_string(),
            (_, 1) => format!("{window} pipelined"),
            _ => match window as usize / multiget {
                1 => format!("multiget of {multiget}"),
                lines => format!("multiget of {multiget}, {lines} at once"),
            },
        };
        f.pad(&text)
    }
}

/// One of the two servers.
#[derive(Clone, Debug)]
pub struct Side {
    /// Its name in the report.
    pub name: String,
    /// Every door that is tried.
    pub doors: Vec<Target>,
    /// Every way that is tried at each door.
    pub ways: Vec<Way>,
}

/// The settings of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The requests, the load's threads and connections, and how long each measurement takes; its
    /// target, window and multiget are the sides' business.
    pub run: CacheRun,
    /// How often each side has its turn.
    pub rounds: usize,
    /// Our side.
    pub ours: Side,
    /// The other side.
    pub theirs: Side,
}

/// What was asked of both sides.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are CacheRun's")]
pub struct Subject {
    pub get_permille: u16,
    pub distribution: Distribution,
    pub items: u64,
    pub key_len: usize,
    pub value_len: usize,
    pub connections: usize,
    pub threads: usize,
    pub pinning: Pinning,
    pub length: Length,
    pub warm_up: Length,
    pub seed: u64,
    /// How often each side had its turn.
    pub rounds: usize,
}

/// One way at one door.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Cell {
    /// `nic`, `tcp` or `unix`.
    pub transport: &'static str,
    /// The way.
    #[serde(flatten)]
    pub way: Way,
    /// Millions of requests answered a second, the rounds' median.
    pub throughput_mops: f64,
    /// Each round's.
    pub rounds_mops: Vec<f64>,
    /// Half of the requests took no longer, the rounds' median.
    pub p50_ns: u64,
    /// 99 % took no longer, the rounds' median.
    pub p99_ns: u64,
    /// How the requests ended, all rounds together.
    pub counts: Counts,
}

/// What one side has reached.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct SideReport {
    /// The server.
    pub name: String,
    /// Everything that was tried.
    pub cells: Vec<Cell>,
    /// The number of the fastest cell.
    pub best: usize,
}

impl SideReport {
    /// The fastest cell.
    pub fn best(&self) -> &Cell {
        &self.cells[self.best]
    }
}

/// What a comparison has found out.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct ComparisonReport {
    /// The version that measured.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// What was asked.
    pub subject: Subject,
    /// Our side.
    pub ours: SideReport,
    /// The other side.
    pub theirs: SideReport,
    /// Our best throughput over theirs.
    pub ratio: f64,
    /// How long it all took.
    #[serde(rename = "seconds", serialize_with = "as_seconds")]
    pub took: Duration,
    /// What the machine could do at all, in the same run.
    pub limit: Option<Limit>,
}

/// A cell while it is measured.
struct Trial {
    run: CacheRun,
    way: Way,
    mops: Vec<f64>,
    p50_ns: Vec<f64>,
    p99_ns: Vec<f64>,
    counts: Counts,
}

impl Trial {
    fn measure(&mut self) -> Result<(), RunError> {
        let report = self.run.run(&mut |_, _| {})?;
        self.mops.push(report.throughput_mops);
        self.p50_ns.push(report.latency.all.p50_ns as f64);
        self.p99_ns.push(report.latency.all.p99_ns as f64);
        self.counts.add(&report.counts);
        Ok(())
    }

    fn cell(self) -> Cell {
        let median = |figures: &[f64]| Measured::of(figures).unwrap_or_default().mid;
        Cell {
            transport: self.run.target.transport(),
            way: self.way,
            throughput_mops: median(&self.mops),
            p50_ns: median(&self.p50_ns) as u64,
            p99_ns: median(&self.p99_ns) as u64,
            rounds_mops: self.mops,
            counts: self.counts,
        }
    }
}

impl Comparison {
    /// Stores the items on both sides, then measures every way of both, in turn, `rounds` times.
    /// `progress` is told what comes next, and which step of how many it is.
    ///
    /// # Errors
    /// Settings that make no sense, a server that cannot be reached, a connection that broke.
    pub fn run(
        &self,
        progress: &mut dyn FnMut(&str, usize, usize),
    ) -> Result<ComparisonReport, RunError> {
        let began = std::time::Instant::now();
        if self.rounds == 0 {
            return Err(RunError::Setting("each side has at least one turn"));
        }
        let mut sides = [&self.ours, &self.theirs].map(|side| self.trials(side));
        if sides.iter().any(Vec::is_empty) {
            return Err(RunError::Setting("each side has a door and a way"));
        }
        let trials = sides[0].len().max(sides[1].len());
        let steps = self.rounds * (sides[0].len() + sides[1].len());
        let mut step = 0;
        for (side, trials) in [&self.ours, &self.theirs].into_iter().zip(&sides) {
            for door in &side.doors {
                progress(&format!("storing items: {}", side.name), 0, steps);
                store(door, &trials[0].run)?;
            }
        }
        for _ in 0..self.rounds {
            for at in 0..trials {
                for (side, trials) in [&self.ours, &self.theirs].into_iter().zip(&mut sides) {
                    if let Some(trial) = trials.get_mut(at) {
                        step += 1;
                        progress(&format!("{}, {}", side.name, trial.way), step, steps);
                        trial.measure()?;
                    }
                }
            }
        }
        let [ours, theirs] = sides;
        let (ours, theirs) = (side(&self.ours, ours), side(&self.theirs, theirs));
        let run = &self.run;
        Ok(ComparisonReport {
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::this(),
            subject: Subject {
                get_permille: run.mix.get_permille(),
                distribution: run.distribution,
                items: run.items,
                key_len: run.key_len,
                value_len: run.value_len,
                connections: run.connections,
                threads: run.threads,
                pinning: run.pinning.clone(),
                length: run.length,
                warm_up: run.warm_up,
                seed: run.seed,
                rounds: self.rounds,
            },
            ratio: ratio(ours.best().throughput_mops, theirs.best().throughput_mops),
            ours,
            theirs,
            took: began.elapsed(),
            limit: None,
        })
    }

    fn trials(&self, side: &Side) -> Vec<Trial> {
        let doors = side.doors.iter();
        let trials = doors.flat_map(|door| {
            side.ways.iter().map(|&way| Trial {
                run: CacheRun {
                    target: door.clone(),
                    window: way.window,
                    multiget: way.multiget,
                    preload: false,
                    ..self.run.clone()
                },
                way,
                mops: Vec::new(),
                p50_ns: Vec::new(),
                p99_ns: Vec::new(),
                counts: Counts::default(),
            })
        });
        trials.collect()
    }
}

/// Stores all items at a door, as fast as it may be.
pub(super) fn store(door: &Target, run: &CacheRun) -> Result<(), RunError> {
    let stored = CacheRun {
        target: door.clone(),
        window: 32,
        multiget: 1,
        connections: 1,
        preload: true,
        rate: None,
        length: Length::Operations(1),
        warm_up: Length::Operations(0),
        ..run.clone()
    };
    let report = stored.run(&mut |_, _| {})?;
    match report.preload {
        Some(preload) if preload.counts.errors() > 0 => Err(RunError::Setting(
            "the server has refused items; it needs more memory, or smaller items",
        )),
        _ => Ok(()),
    }
}

fn side(side: &Side, trials: Vec<Trial>) -> SideReport {
    let cells: Vec<_> = trials.into_iter().map(Trial::cell).collect();
    let fastest = (0..cells.len()).max_by(|&a, &b| {
        cells[a]
            .throughput_mops
            .total_cmp(&cells[b].throughput_mops)
    });
    SideReport {
        name: side.name.clone(),
        best: fastest.unwrap_or(0),
        cells,
    }
}

/// One throughput over another; 0 when there is nothing to divide by.
pub(super) fn ratio(one: f64, other: f64) -> f64 {
    if other > 0.0 { one / other } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_names() {
        let names = Way::OVER_SOCKETS.map(|way| way.to_string());
        let expected = [
            "one at a time",
            "32 pipelined",
            "multiget of 32",
            "multiget of 32, 4 at once",
        ];
        assert_eq!(names, expected);
        let windows: Vec<_> = Way::over_nic().iter().map(|way| way.window).collect();
        assert_eq!(windows, [1, 2, 4, 8, 16, 32, 64]);
    }
}
