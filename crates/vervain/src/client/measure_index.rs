//! `vervain bench index`.

use std::io::{IsTerminal, Write};

use anyhow::Context as _;
use bench::index::{IndexRun, write_index};

use crate::cli::BenchIndex;

pub(crate) fn bench_index(flags: &BenchIndex, as_json: bool) -> anyhow::Result<bool> {
    let run = IndexRun {
        keys: flags.keys,
        threads: flags.threads as usize,
        each: flags.each,
        rounds: flags.rounds,
        seed: flags.seed,
    };
    let in_place = std::io::stderr().is_terminal();
    let report = run.run(&mut |what| {
        if in_place {
            // Nothing to do about a stderr that is closed.
            let _ = write!(std::io::stderr(), "\r\x1b[K{what}");
        }
    });
    if in_place {
        // As above.
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    let report = report.context("the benchmark did not finish")?;
    let mut out = std::io::stdout().lock();
    if as_json {
        bench::print::write_json(&report, &mut out)?;
    } else {
        write_index(&report, &mut out)?;
    }
    Ok(true)
}
