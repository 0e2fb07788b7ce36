//! `cargo lab report --store`, and the process that loads a store to be killed.

use std::io::Write;
use std::path::PathBuf;

use bench::store::{Location, StoreRun};

use super::{WholeRun, WholeScale, write_store_files, write_store_summary};
use crate::folder;
use crate::report::command::{ReportFlags, commit, tell};
use bench::print;

/// What is loaded.
#[derive(clap::Args, Debug)]
pub struct LoadFlags {
    /// The file, which is there.
    #[arg(long)]
    file: PathBuf,
    #[command(flatten)]
    run: StoreRun,
}

/// Loads a store and waits for its end.
pub(crate) fn load(flags: &LoadFlags) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    bench::store::load(&flags.file, &flags.run, &mut out)?;
    Ok(true)
}

/// Measures everything about the store; false when a measurement failed.
pub(crate) fn report(flags: &ReportFlags, as_json: bool) -> anyhow::Result<bool> {
    folder(&flags.out)?;
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
        only: flags.only.clone(),
    };
    let record = run.run(&mut tell);
    tell("", "");
    let record = record?;
    write_store_files(&record, &flags.out)?;
    print::show(&record, as_json, |record, out| {
        write_store_summary(record, out)?;
        writeln!(out)?;
        writeln!(out, "data and plots   {}", flags.out.display())
    })?;
    Ok(record.head.is_whole())
}
