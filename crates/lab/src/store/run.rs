//! The run: steps one after the other, each of which may fail without ending it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ::store::format::record::{Meta, Record};
use block::Engine;

use super::{STORE_FORMAT, StoreRecord};
use crate::goals::StoreRatios;
use crate::index::IndexRun;
use crate::report::run::{Progress, Step, run_steps};
use crate::report::{Commit, Head};
use bench::store::{Idle, KEY_LEN, Location, Mix, Recovered, StoreReport, StoreRun, cells};

/// Bytes of a large value and of a small one.
const LARGE: usize = 4096;
const SMALL: usize = 1024;
/// Requests under way in the measurements that have goals.
const DEEP: usize = 128;
/// How full the store is that has to empty segments.
const COLLECTING_SHARE: f64 = 0.75;
/// Those that are compared.
const ENGINES: [Engine; 3] = [Engine::Uring, Engine::Aio, Engine::Threads];
/// Records whose recovery has a goal.
const RECOVERY_KEYS: u64 = 10_000_000;

/// How much is measured.
#[derive(Clone, PartialEq, Debug)]
pub struct WholeScale {
    /// Its name.
    pub name: &'static str,
    /// Items of 4 KiB, and bytes of their file.
    pub large: (u64, u64),
    /// Items of 1 KiB, and bytes of their file.
    pub small: (u64, u64),
    /// Requests under way, for the plot.
    pub depths: Vec<usize>,
    /// How long each measurement takes.
    pub slice: Duration,
    /// How often each is repeated.
    pub rounds: usize,
    /// Keys in the index.
    pub index_keys: u64,
    /// How long each measurement of the index takes.
    pub index_slice: Duration,
    /// How often the index is filled.
    pub index_rounds: u32,
    /// Bytes of the store that has to empty segments.
    pub collecting_bytes: u64,
    /// Records that are recovered.
    pub recovery_keys: u64,
}

impl WholeScale {
    /// What the goals are about.
    pub fn standard() -> Self {
        WholeScale {
            name: "standard",
            large: (200_000, 8 << 30),
            small: (500_000, 2 << 30),
            depths: vec![1, 4, 16, 64, DEEP],
            slice: Duration::from_millis(200),
            // Short turns: a drive is another one from second to second.
            rounds: 15,
            index_keys: 50_000_000,
            index_slice: Duration::from_millis(500),
            index_rounds: 3,
            collecting_bytes: 1 << 30,
            recovery_keys: RECOVERY_KEYS,
        }
    }

    /// For a look: a million keys in the index, a hundred thousand records to recover.
    pub fn quick() -> Self {
        WholeScale {
            name: "quick",
            large: (50_000, 2 << 30),
            small: (100_000, 1 << 30),
            depths: vec![1, 16, DEEP],
            slice: Duration::from_millis(150),
            rounds: 3,
            index_keys: 1_000_000,
            index_slice: Duration::from_millis(100),
            index_rounds: 1,
            collecting_bytes: 256 << 20,
            recovery_keys: 100_000,
        }
    }

    /// Seconds: whether everything works.
    pub fn tiny() -> Self {
        WholeScale {
            name: "tiny",
            large: (200, 128 << 20),
            small: (500, 64 << 20),
            depths: vec![1, DEEP],
            slice: Duration::from_millis(10),
            rounds: 1,
            index_keys: 20_000,
            index_slice: Duration::from_millis(5),
            index_rounds: 1,
            collecting_bytes: 64 << 20,
            recovery_keys: 2000,
        }
    }
}

/// The settings of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct WholeRun {
    /// How much.
    pub scale: WholeScale,
    /// Where the files go.
    pub location: Location,
    /// Take files in memory too.
    pub in_memory: bool,
    /// Repeats the requests exactly.
    pub seed: u64,
    /// What the program was built from.
    pub commit: Commit,
    /// The command line, for the report.
    pub flags: Vec<String>,
    /// Parts of names: only steps with one of them run; all when there are none.
    pub only: Vec<String>,
}

/// What a step is given.
struct Stage<'s> {
    run: &'s WholeRun,
    tell: &'s mut dyn FnMut(&str),
}

type Run = fn(&mut Stage<'_>, &mut StoreRecord) -> anyhow::Result<()>;

const STEPS: [Step<Run>; 5] = [
    ("values of 4 KiB beside the bare device", large),
    ("values of 1 KiB", small),
    ("overwriting a store that is nearly full", collecting),
    ("the index beside other maps", index),
    ("recovery", recovery),
];

impl WholeRun {
    /// Measures. A step that fails is left out of the record, which says so.
    ///
    /// # Errors
    /// No step is called as `only` says.
    pub fn run(&self, progress: &mut Progress<'_>) -> anyhow::Result<StoreRecord> {
        let mut record = StoreRecord {
            head: Head::new(STORE_FORMAT, self.commit.clone()),
            scale: self.scale.name.to_string(),
            flags: self.flags.clone(),
            seed: self.seed,
            ..StoreRecord::default()
        };
        let only = &self.only;
        run_steps(&STEPS, only, &mut record, progress, |step, tell, record| {
            step(&mut Stage { run: self, tell }, record)
        })?;
        Ok(record)
    }

    fn store_run(&self) -> StoreRun {
        let scale = &self.scale;
        StoreRun {
            location: self.location.clone(),
            in_memory: self.in_memory,
            length: scale.slice,
            warm_up: scale.slice / 5,
            rounds: scale.rounds,
            seed: self.seed,
            ..StoreRun::default()
        }
    }
}

fn large(stage: &mut Stage<'_>, record: &mut StoreRecord) -> anyhow::Result<()> {
    let scale = &stage.run.scale;
    let mut all = cells(&[Mix::Get], &scale.depths, &[Engine::Uring], Idle::Spin);
    // All in turn, where they are compared with each other.
    for cell in all.iter_mut().filter(|cell| cell.depth == DEEP) {
        cell.engines = ENGINES.to_vec();
    }
    all.extend(cells(&[Mix::Get], &[DEEP], &ENGINES, Idle::Sleep));
    let puts = [Mix::Put];
    all.extend(cells(&puts, &scale.depths, &[Engine::Uring], Idle::Spin));
    let others = [Mix::Update, Mix::YcsbA, Mix::YcsbB];
    all.extend(cells(&others, &[DEEP], &[Engine::Uring], Idle::Spin));
    let run = StoreRun {
        keys: scale.large.0,
        bytes: scale.large.1,
        value_len: LARGE,
        cells: all,
        ..stage.run.store_run()
    };
    let report = run.run(stage.tell)?;
    large_ratios(&report, &mut record.ratios);
    record.large = Some(report);
    Ok(())
}

fn large_ratios(report: &StoreReport, ratios: &mut StoreRatios) {
    let uring = |mix, depth| report.row(mix, depth, Engine::Uring, Idle::Spin);
    if let Some(row) = uring(Mix::Get, DEEP) {
        ratios.get_qd128_vs_raw = Some(row.throughput_vs_raw.mid);
        ratios.reads_per_get = row.reads_per_get;
        if let Some(threads) = report.row(Mix::Get, DEEP, Engine::Threads, Idle::Spin) {
            let (ours, theirs) = (row.store.per_second.mid, threads.store.per_second.mid);
            ratios.uring_vs_sync = (theirs > 0.0).then(|| ours / theirs);
        }
    }
    let cpu = |engine| {
        let row = report.row(Mix::Get, DEEP, engine, Idle::Sleep)?;
        Some(row.store.cpu_us.mid).filter(|&us| us > 0.0)
    };
    if let (Some(ours), Some(theirs)) = (cpu(Engine::Uring), cpu(Engine::Threads)) {
        ratios.uring_vs_sync_cpu = Some(theirs / ours);
    }
    if let Some(row) = uring(Mix::Put, DEEP) {
        ratios.put_qd128_vs_raw = Some(row.throughput_vs_raw.mid);
        ratios.write_amplification = row.write_amplification;
    }
    ratios.ycsb_a_p99_vs_raw = uring(Mix::YcsbA, DEEP).map(|row| row.p99_vs_raw.mid);
    ratios.get_qd1_latency_vs_raw = uring(Mix::Get, 1).map(|row| row.p50_vs_raw.mid);
}

fn small(stage: &mut Stage<'_>, record: &mut StoreRecord) -> anyhow::Result<()> {
    let scale = &stage.run.scale;
    let run = StoreRun {
        keys: scale.small.0,
        bytes: scale.small.1,
        value_len: SMALL,
        cells: cells(&[Mix::Get], &[DEEP], &[Engine::Uring], Idle::Spin),
        ..stage.run.store_run()
    };
    let report = run.run(stage.tell)?;
    small_ratios(&report, &mut record.ratios);
    record.small = Some(report);
    Ok(())
}

fn small_ratios(report: &StoreReport, ratios: &mut StoreRatios) {
    let record = Record {
        meta: Meta::default(),
        key: &[0; KEY_LEN],
        value: &[0; SMALL],
    };
    let block = report.block.max(512) as usize;
    let needed = record.encoded_len().next_multiple_of(block);
    let row = report.row(Mix::Get, DEEP, Engine::Uring, Idle::Spin);
    let read = row.and_then(|row| row.read_bytes_per_get());
    ratios.read_amplification_1k = read.map(|read| read / needed as f64);
    ratios.space_overhead_1k = report.load.overhead();
}

fn collecting(stage: &mut Stage<'_>, record: &mut StoreRecord) -> anyhow::Result<()> {
    let run = StoreRun {
        bytes: stage.run.scale.collecting_bytes,
        value_len: LARGE,
        ..stage.run.store_run()
    };
    let collected = run.collect(COLLECTING_SHARE, stage.tell)?;
    record.ratios.write_amplification_collecting = Some(collected.write_amplification());
    record.collected = Some(collected);
    Ok(())
}

fn index(stage: &mut Stage<'_>, record: &mut StoreRecord) -> anyhow::Result<()> {
    let scale = &stage.run.scale;
    let run = IndexRun {
        keys: scale.index_keys,
        each: scale.index_slice,
        rounds: scale.index_rounds,
        seed: stage.run.seed,
    };
    let mut ratios = record.ratios;
    record.index = Some(run.run(&mut ratios, stage.tell)?);
    record.ratios = ratios;
    Ok(())
}

fn recovery(stage: &mut Stage<'_>, record: &mut StoreRecord) -> anyhow::Result<()> {
    let run = StoreRun {
        keys: stage.run.scale.recovery_keys,
        value_len: SMALL,
        ..stage.run.store_run()
    };
    let program = crate::program()?;
    let recovered = run.recover(&|path, run| loader(&program, path, run), stage.tell)?;
    recovery_ratios(&recovered, record);
    record.recovery = Some(recovered);
    Ok(())
}

/// The process that loads a store and is killed then.
fn loader(program: &Path, file: &Path, run: &StoreRun) -> Command {
    let mut command = Command::new(program);
    command.args(["store-load", "--file"]).arg(file);
    command.args(["--keys", &run.keys.to_string()]);
    command.args(["--value", &run.value_len.to_string()]);
    command.args(["--seed", &run.seed.to_string()]);
    command
}

/// Figures with a name of their own are of the number of records that it says, never scaled.
fn recovery_ratios(recovered: &Recovered, record: &mut StoreRecord) {
    if recovered.keys == RECOVERY_KEYS {
        record.ratios.recovery_crash_10m_s = Some(recovered.crash_s);
        record.ratios.recovery_clean_10m_s = Some(recovered.clean_s);
    } else {
        let why = format!(
            "only {} records were recovered: see `recovery`",
            recovered.keys
        );
        record
            .head
            .leave_out("recovery of 10 million records", why, false);
    }
}
