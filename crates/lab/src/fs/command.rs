//! `cargo lab report --fs`.

use std::io::Write;

use bench::print;

use super::{FsRun, FsScale, write_fs_files, write_fs_summary};
use crate::folder;
use crate::report::command::{ReportFlags, commit, tell};

/// Measures the file system; false when a measurement failed.
pub(crate) fn report(flags: &ReportFlags, as_json: bool) -> anyhow::Result<bool> {
    folder(&flags.out)?;
    vervain::measure::stop_servers_on_signals()?;
    let run = FsRun {
        scale: match (flags.quick, flags.tiny) {
            (true, _) => FsScale::quick(),
            (_, true) => FsScale::tiny(),
            _ => FsScale::standard(),
        },
        dir: flags.dir.clone(),
        seed: flags.seed,
        commit: commit(),
        flags: std::env::args().skip(1).collect(),
        only: flags.only.clone(),
    };
    let record = run.run(&mut tell);
    tell("", "");
    let record = record?;
    write_fs_files(&record, &flags.out)?;
    print::show(&record, as_json, |record, out| {
        write_fs_summary(record, out)?;
        writeln!(out)?;
        writeln!(out, "data   {}", flags.out.join("fs.json").display())
    })?;
    Ok(record.head.is_whole())
}
