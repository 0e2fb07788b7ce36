//! `vervain bench store`, `vervain bench report --store`, and the process that loads a store to be killed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use bench::store::whole::{
    WholeEdge, WholeRun, WholeScale, write_store_files, write_store_summary,
};
use bench::store::{Idle, Location, RecoveryRun, StoreRun, cells, load, write_store};
use store::Durability;

use super::compare::Progress;
use super::measure_report::{Shown, commit};
use crate::cli::{BenchReport, BenchStore, BenchStoreLoad};

/// Measures.
pub(crate) fn bench_store(flags: &BenchStore, as_json: bool) -> anyhow::Result<bool> {
    let depths: Vec<usize> = flags.depth.iter().map(|&depth| depth.into()).collect();
    let idle = if flags.sleep { Idle::Sleep } else { Idle::Spin };
    let run = StoreRun {
        location: location(flags)?,
        bytes: flags.size as u64,
        in_memory: flags.in_memory,
        cells: cells(&flags.mix, &depths, &flags.engine, idle),
        cores: usize::from(flags.cores),
        keys: flags.keys,
        value_len: flags.value,
        durability: if flags.volatile {
            Durability::Process
        } else {
            Durability::PowerCut
        },
        length: flags.each,
        warm_up: flags.warm_up,
        rounds: flags.rounds as usize,
        seed: flags.seed,
    };
    if !as_json {
        // Nothing to do about a stderr that is closed.
        let _ = writeln!(std::io::stderr(), "measuring on {}", run.location.show());
    }
    let progress = Progress::new(as_json);
    let report = run.run(&mut |text| progress.tell(text));
    drop(progress);
    let report = report.context("the benchmark did not finish")?;
    let mut out = std::io::stdout().lock();
    if as_json {
        bench::print::write_json(&report, &mut out)?;
    } else {
        write_store(&report, &mut out)?;
    }
    Ok(true)
}

fn location(flags: &BenchStore) -> anyhow::Result<Location> {
    let Some(path) = &flags.file else {
        return Ok(Location::Temporary(PathBuf::from(&flags.dir)));
    };
    if path.exists() && !flags.overwrite {
        bail!(
            "{} is there already; with --overwrite its contents are lost",
            path.display()
        );
    }
    Ok(Location::Existing(path.clone()))
}

/// Loads a store and waits for its end.
pub(crate) fn bench_store_load(flags: &BenchStoreLoad) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    load(&flags.file, flags.keys, flags.value, flags.seed, &mut out)?;
    Ok(true)
}

/// This program.
struct Program {
    exe: PathBuf,
}

impl WholeEdge for Program {
    fn loader(&self, path: &Path, run: &RecoveryRun) -> Command {
        let mut command = Command::new(&self.exe);
        command.args(["bench", "store-load", "--file"]).arg(path);
        command.args(["--keys", &run.keys.to_string()]);
        command.args(["--value", &run.value_len.to_string()]);
        command.args(["--seed", &run.seed.to_string()]);
        command
    }
}

/// Measures everything about the store; false when a measurement failed.
pub(super) fn report_store(flags: &BenchReport, as_json: bool) -> anyhow::Result<bool> {
    // A folder that cannot be written is better known before than after.
    std::fs::create_dir_all(&flags.out)
        .with_context(|| format!("cannot write into {}", flags.out.display()))?;
    let run = WholeRun {
        scale: match (flags.quick, flags.tiny) {
            (true, _) => WholeScale::quick(),
            (_, true) => WholeScale::tiny(),
            _ => WholeScale::standard(),
        },
        location: Location::Temporary(flags.dir.clone()),
        in_memory: flags.tiny,
        seed: flags.seed,
        commit: commit(),
        flags: std::env::args().skip(1).collect(),
    };
    let program = Program {
        exe: std::env::current_exe().context("finding this program")?,
    };
    let mut shown = Shown::new();
    let record = run.run(&program, &mut |progress| shown.show(progress));
    shown.end();
    write_store_files(&record, &flags.out)?;
    let mut out = std::io::stdout().lock();
    if as_json {
        bench::print::write_json(&record, &mut out)?;
    } else {
        write_store_summary(&record, &mut out)?;
        writeln!(out)?;
        writeln!(out, "data and plots   {}", flags.out.display())?;
    }
    Ok(record.is_whole())
}
