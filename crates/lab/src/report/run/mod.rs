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

use std::time::{Duration, Instant};

use self::stage::Stage;
use super::record::{Commit, FORMAT, Head, Record, Settings, StepTime};
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

/// A step of a run: its name, its part of a standard run in seconds on two cores, and what it does.
pub(crate) type Step<F> = (&'static str, f64, F);

/// Carries steps out one after the other. One that fails is left out of the record, which says so.
pub(crate) fn run_steps<F, R: AsMut<Head>>(
    steps: &[Step<F>],
    record: &mut R,
    progress: &mut dyn FnMut(Progress<'_>),
    mut carry_out: impl FnMut(&F, &mut dyn FnMut(&str), &mut R) -> Result<(), StepError>,
) {
    let began = Instant::now();
    let all: f64 = steps.iter().map(|(_, weight, _)| weight).sum();
    let mut done = 0.0;
    for (number, (name, weight, run)) in steps.iter().enumerate() {
        let mut tell = |detail: &str| {
            let elapsed = began.elapsed();
            // Before anything is known, a step takes as long as in a standard run.
            let pace = if done > 0.0 {
                elapsed.as_secs_f64() / done
            } else {
                1.0
            };
            progress(Progress {
                step: number + 1,
                steps: steps.len(),
                name,
                detail,
                elapsed,
                left: Duration::from_secs_f64(pace * (all - done)),
            });
        };
        tell("");
        let step_began = Instant::now();
        let carried_out = carry_out(run, &mut tell, record);
        let head = record.as_mut();
        if let Err(error) = carried_out {
            head.leave_out(name, error, true);
        }
        head.steps.push(StepTime {
            name: (*name).to_string(),
            seconds: step_began.elapsed().as_secs_f64(),
        });
        done += weight;
    }
    record.as_mut().seconds = began.elapsed().as_secs_f64();
}

type Run = fn(&mut Stage<'_>, &mut Record) -> Result<(), StepError>;

const STEPS: [Step<Run>; 14] = [
    ("the machine", 3.0, beneath::machine),
    ("an idle server", 4.0, beneath::idle),
    ("cache over RDMA by window", 17.0, herd::windows),
    ("cache over RDMA by mix", 13.0, herd::mixes),
    ("beside memcached", 70.0, peer::ways),
    ("latency by load", 60.0, peer::loads),
    ("the socket door beside memcached", 51.0, peer::door),
    ("by value size", 100.0, growth::sizes),
    ("by items", 15.0, growth::items),
    ("by clients", 14.0, growth::clients),
    ("by cores", 5.0, growth::cores),
    ("verbs", 6.0, verbs::verbs),
    ("echoes", 9.0, verbs::echoes),
    ("the table alone", 25.0, beneath::table),
];

impl ReportRun {
    /// Measures everything. A step that fails is left out of the report, which says so.
    pub fn run(&self, progress: &mut dyn FnMut(Progress<'_>)) -> Record {
        let allowed = allowed_cpus();
        // Servers first, clients last, as `serve --pin` and `bench cache --pin` have it.
        let (server_cpus, client_cpus) = match (allowed.first(), allowed.last()) {
            (Some(one), Some(two)) if one != two => (vec![*one], vec![*two]),
            _ => (Vec::new(), Vec::new()),
        };
        let mut record = Record {
            head: Head::new(FORMAT, self.commit.clone()),
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
        run_steps(&STEPS, &mut record, progress, |step, tell, record| {
            let mut stage = Stage {
                run: self,
                server_cpus: &server_cpus,
                client_cpus: &client_cpus,
                tell,
            };
            step(&mut stage, record)
        });
        record
    }
}
