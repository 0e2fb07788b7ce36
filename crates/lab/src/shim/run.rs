//! The run: steps one after the other, each of which may fail without ending it. In each step a program and its counterpart take
//! turns, so that what else runs on the machine weighs on both alike.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bench::limit::LimitRun;
use bench::verbs::{Experiment, Row, VerbsReport, VerbsRun, Wishes};
use bench::{Measured, Rounds};
use verbs::Transport;
use vervain::cli::{NicFlags, open_nic};
use vervain::measure::verbs::Peer;

use super::perftest::{bandwidth, latency_us};
use super::{Beside, CARD_US, SHIM_FORMAT, ShimRecord, echo};
use crate::report::run::{Progress, Step, run_steps};
use crate::report::{Commit, Head};

/// Bytes of a short message.
const SHORT: usize = 64;
/// Bytes of a long WRITE.
const LONG: usize = 1 << 20;

/// How much is measured.
#[derive(Clone, PartialEq, Debug)]
pub struct ShimScale {
    /// Its name.
    pub name: &'static str,
    /// How often each side has its turn.
    pub rounds: usize,
    /// Messages of a turn one at a time.
    pub pings: usize,
    /// Messages of a turn as fast as they go.
    pub sends: usize,
    /// Long WRITEs of a turn.
    pub writes: usize,
    /// How long a turn without a program takes.
    pub slice: Duration,
}

impl ShimScale {
    /// What the goals are about.
    pub fn standard() -> Self {
        ShimScale {
            name: "standard",
            rounds: 7,
            pings: 200_000,
            sends: 4_000_000,
            writes: 4000,
            slice: Duration::from_millis(300),
        }
    }

    /// For a look.
    pub fn quick() -> Self {
        ShimScale {
            name: "quick",
            rounds: 3,
            pings: 20_000,
            sends: 500_000,
            writes: 500,
            slice: Duration::from_millis(100),
        }
    }

    /// Seconds: whether everything works.
    pub fn tiny() -> Self {
        ShimScale {
            name: "tiny",
            rounds: 1,
            pings: 200,
            sends: 2048,
            writes: 16,
            slice: Duration::from_millis(5),
        }
    }
}

/// The settings of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct ShimRun {
    /// How much.
    pub scale: ShimScale,
    /// What the program was built from.
    pub commit: Commit,
    /// The command line, for the report.
    pub flags: Vec<String>,
    /// Parts of names: only steps with one of them run; all when there are none.
    pub only: Vec<String>,
}

/// What a step is given.
struct Stage<'s> {
    scale: &'s ShimScale,
    cpus: [usize; 2],
    tell: &'s mut dyn FnMut(&str),
}

type Run = fn(&mut Stage<'_>, &mut ShimRecord) -> anyhow::Result<()>;

const STEPS: [Step<Run>; 5] = [
    ("WRITE latency", write_latency),
    ("SEND rate", send_rate),
    ("WRITE bandwidth", write_bandwidth),
    ("rsockets beside TCP", echoes),
    ("one way, beside a card", one_way),
];

impl ShimRun {
    /// Measures. A step that fails is left out of the record, which says so.
    ///
    /// # Errors
    /// No step is called as `only` says, or there are no two CPUs.
    pub fn run(&self, progress: &mut Progress<'_>) -> anyhow::Result<ShimRecord> {
        let cpus = bench::machine::first_and_last();
        let cpus = cpus.context("both sides spin, each on a CPU of its own: two are needed")?;
        let mut record = ShimRecord {
            head: Head::new(SHIM_FORMAT, self.commit.clone()),
            scale: self.scale.name.to_string(),
            flags: self.flags.clone(),
            cpus: Some(cpus),
            card_us: CARD_US,
            ..ShimRecord::default()
        };
        let scale = &self.scale;
        let only = &self.only;
        run_steps(&STEPS, only, &mut record, progress, |step, tell, record| {
            step(&mut Stage { scale, cpus, tell }, record)
        })?;
        Ok(record)
    }
}

impl Stage<'_> {
    /// A program and its counterpart in turn.
    fn beside(
        &mut self,
        names: [&str; 2],
        mut program: impl FnMut(&Self) -> anyhow::Result<f64>,
        mut counterpart: impl FnMut(&Self) -> anyhow::Result<f64>,
    ) -> anyhow::Result<Beside> {
        let rounds = Rounds::alternate(self.scale.rounds, 2, |side| {
            (self.tell)(names[side]);
            match side {
                0 => program(self),
                _ => counterpart(self),
            }
        })?;
        let of = |side| rounds.measured(side).context("nothing was measured");
        Ok(Beside {
            program: of(0)?,
            counterpart: of(1)?,
        })
    }

    /// Our own benchmark of verbs, of short messages.
    fn direct(&self, experiment: Experiment, transport: Transport) -> anyhow::Result<VerbsReport> {
        let dir = tempfile::tempdir()?;
        let nic = nic_in(dir.path());
        let run = VerbsRun {
            experiments: vec![experiment],
            wishes: Wishes {
                sizes: vec![SHORT],
                transports: vec![transport],
                ..Wishes::default()
            },
            cpus: Some(self.cpus),
            each: self.scale.slice,
            rounds: 1,
            ..VerbsRun::new(open_nic(&nic)?.context)
        };
        let (peer, link) = Peer::start(&nic)?;
        let report = run.run(link, &mut |_| {});
        drop(peer);
        Ok(report?)
    }
}

fn nic_in(run_dir: &Path) -> NicFlags {
    NicFlags {
        run_dir: Some(run_dir.to_path_buf()),
        ..NicFlags::default()
    }
}

fn write_latency(stage: &mut Stage<'_>, record: &mut ShimRecord) -> anyhow::Result<()> {
    let count = stage.scale.pings.to_string();
    let beside = stage.beside(
        ["ib_write_lat", "our own echoes"],
        |stage| {
            let options = ["-s", "64", "-n", &count, "-c", "UC"];
            latency_us(stage.cpus, "ib_write_lat", &options)
        },
        |stage| {
            let report = stage.direct(Experiment::Latency, Transport::Uc)?;
            let is_echo = |row: &&Row| row.verb == "WRITE/WRITE" && row.case.size == SHORT;
            let row = report.rows.iter().find(is_echo).context("no echo")?;
            let latency = row.latency.context("no latency")?;
            // There and back; the median, as perftest's typical one is.
            Ok(latency.p50_ns as f64 / 2e3)
        },
    )?;
    record.ratios.shim_write_lat_vs_direct = beside.ratio();
    record.write_lat_us = Some(beside);
    Ok(())
}

fn send_rate(stage: &mut Stage<'_>, record: &mut ShimRecord) -> anyhow::Result<()> {
    // As many lists as go into it.
    let count = (stage.scale.sends / 32 * 32).to_string();
    let beside = stage.beside(
        ["ib_send_bw", "our own SENDs"],
        |stage| {
            let options = "-s 64 -l 32 -t 512 -r 512 -N -I 64 --recv_post_list=32 -n";
            let options: Vec<&str> = options.split(' ').chain([count.as_str()]).collect();
            Ok(bandwidth(stage.cpus, "ib_send_bw", &options)?.1)
        },
        |stage| {
            let report = stage.direct(Experiment::Send, Transport::Rc)?;
            let rates = report.rows.iter().filter(|row| row.case.size == SHORT);
            let best = rates.filter_map(|row| row.mops).max_by(f64::total_cmp);
            best.context("no rate")
        },
    )?;
    record.ratios.shim_send_rate_vs_direct = beside.ratio();
    record.send_mops = Some(beside);
    Ok(())
}

fn write_bandwidth(stage: &mut Stage<'_>, record: &mut ShimRecord) -> anyhow::Result<()> {
    let (count, size) = (stage.scale.writes.to_string(), LONG.to_string());
    let beside = stage.beside(
        ["ib_write_bw", "copies"],
        |stage| {
            let options = ["-s", &size, "-n", &count, "-N"];
            let (mib, _) = bandwidth(stage.cpus, "ib_write_bw", &options)?;
            Ok(mib * f64::from(1 << 20) / 1e9)
        },
        |stage| {
            let run = LimitRun {
                cpus: Some(stage.cpus),
                each: stage.scale.slice,
                memory: 1 << 20,
                windows: Vec::new(),
                copies: vec![LONG],
            };
            let report = run.run(&mut |_| {});
            let copies = report.copies.first().context("no copies")?;
            Ok(copies.gb_per_s)
        },
    )?;
    record.ratios.shim_write_bw_vs_memcpy = beside.ratio();
    record.write_gb_per_s = Some(beside);
    Ok(())
}

fn echoes(stage: &mut Stage<'_>, record: &mut ShimRecord) -> anyhow::Result<()> {
    let count = stage.scale.pings / 4;
    let beside = stage.beside(
        ["rsockets", "TCP"],
        |stage| echo::measure(stage.cpus, true, count),
        |stage| echo::measure(stage.cpus, false, count),
    )?;
    record.ratios.rsocket_vs_tcp_loopback_latency = beside.ratio();
    record.echo_us = Some(beside);
    Ok(())
}

fn one_way(stage: &mut Stage<'_>, record: &mut ShimRecord) -> anyhow::Result<()> {
    let count = stage.scale.pings.to_string();
    for program in ["ib_write_lat", "ib_send_lat"] {
        let mut all = Vec::new();
        for _ in 0..stage.scale.rounds {
            (stage.tell)(program);
            all.push(latency_us(
                stage.cpus,
                program,
                &["-s", "64", "-n", &count],
            )?);
        }
        ensure!(
            all.iter().all(|us| *us > 0.0),
            "{program} has measured nothing"
        );
        let measured = Measured::of(&all).context("nothing was measured")?;
        record.one_way_us.push((program.to_string(), measured));
    }
    Ok(())
}
