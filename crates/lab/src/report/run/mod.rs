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

use std::time::Instant;

use anyhow::ensure;

use self::stage::Stage;
use super::record::{Commit, FORMAT, Head, Record, Settings, StepTime};
use crate::memcached;
use bench::machine::allowed_cpus;

pub use self::scale::Scale;

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
    /// Parts of names: only steps with one of them run; all when there are none.
    pub only: Vec<String>,
}

/// Is told the step that begins, and what it measures now; nothing at its start.
pub(crate) type Progress<'a> = dyn FnMut(&str, &str) + 'a;

/// A step of a run: its name, and what it does.
pub(crate) type Step<F> = (&'static str, F);

/// Carries out the steps whose names have one of `only` in them, or all when there is none, one after the
/// other. One that fails is left out of the record, which says so.
///
/// # Errors
/// No step is called so.
pub(crate) fn run_steps<F, R: AsMut<Head>>(
    steps: &[Step<F>],
    only: &[String],
    record: &mut R,
    progress: &mut Progress<'_>,
    mut carry_out: impl FnMut(&F, &mut dyn FnMut(&str), &mut R) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let is_named = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part));
    let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
    let names = names.join(", ");
    let steps: Vec<_> = steps.iter().filter(|(name, _)| is_named(name)).collect();
    ensure!(
        !steps.is_empty(),
        "no step is called so; there are: {names}"
    );
    let began = Instant::now();
    for (number, &(name, run)) in steps.iter().enumerate() {
        let step = format!("[{:>2}/{}] {name}", number + 1, steps.len());
        let mut tell = |detail: &str| progress(&step, detail);
        tell("");
        let step_began = Instant::now();
        let carried_out = carry_out(run, &mut tell, record);
        let head = record.as_mut();
        if let Err(error) = carried_out {
            head.leave_out(name, format!("{error:#}"), true);
        }
        head.steps.push(StepTime {
            name: (*name).to_string(),
            seconds: step_began.elapsed().as_secs_f64(),
        });
    }
    record.as_mut().seconds = began.elapsed().as_secs_f64();
    Ok(())
}

type Run = fn(&mut Stage<'_>, &mut Record) -> anyhow::Result<()>;

const STEPS: [Step<Run>; 14] = [
    ("the machine", beneath::machine),
    ("an idle server", beneath::idle),
    ("cache over RDMA by window", herd::windows),
    ("cache over RDMA by mix", herd::mixes),
    ("beside memcached", peer::ways),
    ("latency by load", peer::loads),
    ("the socket door beside memcached", peer::doors),
    ("by value size", growth::sizes),
    ("by items", growth::items),
    ("by clients", growth::clients),
    ("by cores", growth::cores),
    ("verbs", verbs::verbs),
    ("echoes", verbs::echoes),
    ("the table alone", beneath::table),
];

impl ReportRun {
    /// Measures. A step that fails is left out of the report, which says so.
    ///
    /// # Errors
    /// No step is called as `only` says.
    pub fn run(&self, progress: &mut Progress<'_>) -> anyhow::Result<Record> {
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
        let only = &self.only;
        run_steps(&STEPS, only, &mut record, progress, |step, tell, record| {
            let mut stage = Stage {
                run: self,
                server_cpus: &server_cpus,
                client_cpus: &client_cpus,
                tell,
            };
            step(&mut stage, record)
        })?;
        Ok(record)
    }
}
