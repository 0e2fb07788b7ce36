//! Verbs and echoes between two processes, each beside its limit.

use super::stage::{Stage, nic_in};
use crate::report::record::{Curve, Group, Record, Sample, Who};
use ::vervain::cli::open_nic;
use ::vervain::measure::verbs::Peer;
use bench::Measured;
use bench::verbs::{Experiment, Row, Rung, Target, VerbsReport, VerbsRun, Wishes};

/// Requests under way of an echo.
const ECHO_WINDOWS: [u32; 3] = [8, 32, 64];
/// Datagrams under way.
const SEND_WINDOW: u32 = 32;

/// Runs some experiments with a second process.
fn run(
    stage: &mut Stage<'_>,
    experiments: &[Experiment],
    wishes: Wishes,
) -> anyhow::Result<VerbsReport> {
    let dir = tempfile::tempdir()?;
    let run = VerbsRun {
        experiments: experiments.to_vec(),
        wishes,
        cpus: stage.both_cpus(),
        each: stage.scale().brief,
        rounds: stage.scale().rounds as u32,
        ..VerbsRun::new(open_nic(&nic_in(dir.path()))?.context)
    };
    let (peer, link) = Peer::start(&nic_in(dir.path()))?;
    let tell = &mut *stage.tell;
    let report = run.run(link, &mut |progress| tell(&progress.experiment.to_string()));
    drop(peer);
    Ok(report?)
}

/// A row's throughput with its ends.
fn measured(row: &Row) -> Option<Measured> {
    let mid = row.mops?;
    let [low, high] = row.mops_range.unwrap_or([mid; 2]);
    Some(Measured { mid, low, high })
}

/// Single verbs by size.
pub(super) fn verbs(stage: &mut Stage<'_>, record: &mut Record) -> anyhow::Result<()> {
    let mut sizes = stage.scale().verb_sizes.clone();
    if !sizes.contains(&64) {
        sizes.push(64);
        sizes.sort_unstable();
    }
    let wishes = Wishes {
        sizes: sizes.clone(),
        brief: true,
        ..Wishes::default()
    };
    let experiments = [Experiment::Write, Experiment::Read, Experiment::Cas];
    let report = run(stage, &experiments, wishes.clone())?;
    let ratios = &mut record.ratios;
    ratios.write64_vs_ring = report.write64_vs_ring();
    ratios.read64_mops = report.read64_mops();
    ratios.cas_mops = report.cas_mops();
    let mut rows = report.rows;
    // Datagrams that find no RECV are lost, and with losses there is no throughput: few under way,
    // and what goes wrong leaves the others standing.
    let wishes = Wishes {
        windows: vec![SEND_WINDOW],
        ..wishes
    };
    match run(stage, &[Experiment::Send], wishes) {
        Ok(report) => rows.extend(report.rows),
        Err(error) => record
            .head
            .leave_out("SEND by size", format!("{error:#}"), true),
    }
    // WRITEs that the target reads, as a ring's lines; READs, which it does not notice; datagrams.
    let kinds = [
        (Who::Write, "WRITE", "UC", Target::Polling),
        (Who::Read, "READ", "RC", Target::Idle),
        (Who::Send, "SEND", "UD", Target::Polling),
    ];
    record.verbs.clear();
    for (who, verb, transport, target) in kinds {
        let point = |size: &usize| {
            let row = rows.iter().find(|row| {
                (row.verb.as_str(), row.transport.as_str()) == (verb, transport)
                    && (row.case.size, row.case.target) == (*size, target)
            })?;
            Some(Sample {
                x: *size as f64,
                y: measured(row)?,
            })
        };
        record.verbs.push(Curve {
            who,
            points: sizes.iter().filter_map(point).collect(),
        });
    }
    Ok(())
}

/// Echoes up the ladder of HERD's Fig 5, each at its best window.
pub(super) fn echoes(stage: &mut Stage<'_>, record: &mut Record) -> anyhow::Result<()> {
    let wishes = Wishes {
        windows: ECHO_WINDOWS.to_vec(),
        brief: true,
        ..Wishes::default()
    };
    let report = run(stage, &[Experiment::Echo], wishes)?;
    record.ratios.echo_vs_pingpong = report.echo_vs_pingpong();
    record.ratios.hybrid_vs_write_echo = report.hybrid_vs_write_echo();
    record.echoes.clear();
    for verb in ["WRITE/WRITE", "WRITE/SEND", "SEND/SEND"] {
        for rung in Rung::ALL {
            let rows = report.rows.iter();
            let own = rows.filter(|row| row.verb == verb && row.case.rung == Some(rung));
            let best = own
                .filter_map(measured)
                .max_by(|one, other| one.mid.total_cmp(&other.mid));
            let name = match rung {
                Rung::Basic => "basic",
                Rung::Unreliable => "+ unreliable",
                Rung::Unsignaled => "+ unsignaled",
                Rung::Inlined => "+ inlined",
            };
            if let Some(best) = best {
                record.echoes.push(Group {
                    label: format!("{verb}, {name}"),
                    values: [(Who::Nic, best)].into(),
                });
            }
        }
    }
    Ok(())
}
