//! `vervain bench store`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use bench::store::{Idle, Location, Mix, StoreRun, cells, write_store};
use clap::Args;

use super::Progress;

/// `vervain bench store`.
#[derive(Args, Debug)]
#[command(
    after_help = "Needs no server. Each figure stands beside that of the bare device: the same \
transfers on the same file, by the same calls at the same depth, without an index. Examples:
  vervain bench store                              GET and PUT at depth 1 and 128
  vervain bench store --engine uring,aio,threads --depth 128 --mix get
  vervain bench store --mix ycsb-a,ycsb-b --depth 32 --cores 2
  vervain bench store --file /dev/nvme1n1 --overwrite    a whole drive, whose contents are lost"
)]
pub struct StoreFlags {
    /// Where the temporary file goes. It has no name, and nothing is left of it afterwards.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Use this file or drive instead. It stays.
    #[arg(long, value_name = "PATH", conflicts_with = "dir")]
    pub file: Option<PathBuf>,
    /// Use a file that is there already, or a drive: its contents are lost.
    #[arg(long, requires = "file")]
    pub overwrite: bool,
    /// By which calls: uring, aio, threads, blocking; several are measured in turn.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "uring"
    )]
    pub engine: Vec<block::Engine>,
    /// Requests under way on each core, one measurement each.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,128",
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub depth: Vec<u16>,
    /// What is asked for: get, put (new keys), update, ycsb-a, ycsb-b, ycsb-c.
    #[arg(
        long,
        value_enum,
        value_name = "MIX,...",
        value_delimiter = ',',
        default_value = "get,put",
        hide_possible_values = true
    )]
    pub mix: Vec<Mix>,
    /// Cores sleep when they have nothing to do, instead of spinning: then CPU time tells what a request
    /// costs.
    #[arg(long)]
    pub sleep: bool,
    /// How each is measured.
    #[command(flatten)]
    pub run: StoreRun,
}

/// Measures.
pub(super) fn run(flags: &StoreFlags, as_json: bool) -> anyhow::Result<bool> {
    let depths: Vec<usize> = flags.depth.iter().map(|&depth| depth.into()).collect();
    let idle = if flags.sleep { Idle::Sleep } else { Idle::Spin };
    let run = StoreRun {
        location: location(flags)?,
        cells: cells(&flags.mix, &depths, &flags.engine, idle),
        ..flags.run.clone()
    };
    if !as_json {
        // Nothing to do about a stderr that is closed.
        let _ = writeln!(std::io::stderr(), "measuring on {}", run.location.show());
    }
    let progress = Progress::new(as_json);
    let report = run.run(&mut |text| progress.tell(text));
    drop(progress);
    let report = report.context("the benchmark did not finish")?;
    bench::print::show(&report, as_json, write_store)?;
    Ok(true)
}

fn location(flags: &StoreFlags) -> anyhow::Result<Location> {
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
