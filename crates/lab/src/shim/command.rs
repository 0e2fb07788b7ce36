//! `cargo lab report --shim`.

use std::io::Write;

use bench::print;

use super::{ShimRun, ShimScale, write_shim_files, write_shim_summary};
use crate::folder;
use crate::report::command::{ReportFlags, commit, tell};

/// Measures unmodified programs; false when a measurement failed.
pub(crate) fn report(flags: &ReportFlags, as_json: bool) -> anyhow::Result<bool> {
    folder(&flags.out)?;
    let run = ShimRun {
        scale: match (flags.quick, flags.tiny) {
            (true, _) => ShimScale::quick(),
            (_, true) => ShimScale::tiny(),
            _ => ShimScale::standard(),
        },
        commit: commit(),
        flags: std::env::args().skip(1).collect(),
        only: flags.only.clone(),
    };
    let record = run.run(&mut tell);
    tell("", "");
    let record = record?;
    write_shim_files(&record, &flags.out)?;
    print::show(&record, as_json, |record, out| {
        write_shim_summary(record, out)?;
        writeln!(out)?;
        writeln!(out, "data   {}", flags.out.join("shim.json").display())
    })?;
    Ok(record.head.is_whole())
}
