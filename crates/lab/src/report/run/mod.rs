//! The run that fills a report: steps one after the other, servers as processes of their own.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`ReportRun`]: the settings, the steps, and how far they are |
//! | `scale.rs` | [`Scale`]: how much is measured |
//! | `stage.rs` | what all steps need: servers, filling them, one measurement |
//! | `herd.rs` | the cache over RDMA by window, mix and distribution |
//! | `peer.rs` | ours beside memcached |
//! | `growth.rs` | by value size, items, clients, cores |
//! | `verbs.rs` | verbs and echoes between two processes |
//! | `beneath.rs` | the machine, the table alone, an idle server |

mod beneath;
mod growth;
mod herd;
mod peer;
mod scale;
mod stage;
mod verbs;

use std::time::{Duration, Instant, SystemTime};

use self::stage::Stage;
use super::hardware::Hardware;
use super::record::{Commit, FORMAT, Record, Settings, StepTime};
use crate::memcached;
use bench::machine::allowed_cpus;

pub use self::scale::Scale;

/// Any error of a step: a report says what it was and goes on.
pub type StepError = Box<dyn std::error::Error + Send + Sync>;

/// The settings of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct ReportRun {
    /// How much.
    pub scale: Scale,
    /// What repeats the requests exactly.
    pub seed: u64,
    /// What the program was built from.
    pub commit: Commit,
    /// The command line, for the report.
    pub flags: Vec<String>,
}

/// How long a run may still take, by the share of its work that is done.
pub(crate) fn time_left(elapsed: Duration, done: f64, all: f64) -> Duration {
    // Before anything is known, a step takes as long as in a standard run.
    let pace = if done > 0.0 {
        elapsed.as_secs_f64() / done
    } else {
        1.0
    };
    Duration::from_secs_f64(pace * (all - done))
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The step that begins, counted from 1.
    pub step: usize,
    /// Steps in all.
    pub steps: usize,
    /// The step's name.
    pub name: &'a str,
    /// What it measures now; nothing at its start.
    pub detail: &'a str,
    /// How long the run has taken.
    pub elapsed: Duration,
    /// How long it will still take, as far as the steps so far tell.
    pub left: Duration,
}

/// A step of the run.
struct Step {
    name: &'static str,
    /// Its part of a standard run, in seconds on two cores.
    weight: f64,
    run: fn(&mut Stage<'_>, &mut Record) -> Result<(), StepError>,
}

const STEPS: [Step; 14] = {
    const fn step(
        name: &'static str,
        weight: f64,
        run: fn(&mut Stage<'_>, &mut Record) -> Result<(), StepError>,
    ) -> Step {
        Step { name, weight, run }
    }
    [
        step("the machine", 3.0, beneath::machine),
        step("an idle server", 4.0, beneath::idle),
        step("cache over RDMA by window", 17.0, herd::windows),
        step("cache over RDMA by mix", 13.0, herd::mixes),
        step("beside memcached", 70.0, peer::ways),
        step("latency by load", 60.0, peer::loads),
        step("the socket door beside memcached", 51.0, peer::door),
        step("by value size", 100.0, growth::sizes),
        step("by items", 15.0, growth::items),
        step("by clients", 14.0, growth::clients),
        step("by cores", 5.0, growth::cores),
        step("verbs", 6.0, verbs::verbs),
        step("echoes", 9.0, verbs::echoes),
        step("the table alone", 25.0, beneath::table),
    ]
};

impl ReportRun {
    /// Measures everything. A step that fails is left out of the report, which says so.
    pub fn run(&self, progress: &mut dyn FnMut(Progress<'_>)) -> Record {
        let began = Instant::now();
        let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let allowed = allowed_cpus();
        // Servers first, clients last, as `serve --pin` and `bench cache --pin` have it.
        let (server_cpus, client_cpus) = match (allowed.first(), allowed.last()) {
            (Some(one), Some(two)) if one != two => (vec![*one], vec![*two]),
            _ => (Vec::new(), Vec::new()),
        };
        let mut record = Record {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_string(),
            commit: self.commit.clone(),
            date,
            machine: Hardware::this(),
            settings: Settings {
                scale: self.scale.name.to_string(),
                flags: self.flags.clone(),
                seed: self.seed,
                slice_s: self.scale.slice.as_secs_f64(),
                rounds: self.scale.rounds,
                server_cpus: server_cpus.clone(),
                client_cpus: client_cpus.clone(),
                key_len: stage::KEY_LEN,
                value_len: stage::VALUE_LEN,
                items: self.scale.items,
                peer: memcached::version().map(|version| format!("memcached {version}")),
            },
            ..Record::default()
        };
        let all: f64 = STEPS.iter().map(|step| step.weight).sum();
        let mut done = 0.0;
        for (number, step) in STEPS.iter().enumerate() {
            let mut tell = |detail: &str| {
                progress(Progress {
                    step: number + 1,
                    steps: STEPS.len(),
                    name: step.name,
                    detail,
                    elapsed: began.elapsed(),
                    left: time_left(began.elapsed(), done, all),
                });
            };
            tell("");
            let mut stage = Stage {
                run: self,
                server_cpus: &server_cpus,
                client_cpus: &client_cpus,
                tell: &mut tell,
            };
            let step_began = Instant::now();
            if let Err(error) = (step.run)(&mut stage, &mut record) {
                record.fail(step.name, error);
            }
            record.steps.push(StepTime {
                name: step.name.to_string(),
                seconds: step_began.elapsed().as_secs_f64(),
            });
            done += step.weight;
        }
        record.seconds = began.elapsed().as_secs_f64();
        record
    }
}
