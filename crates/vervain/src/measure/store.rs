//! `vervain bench store`.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bench::store::{Idle, Location, Mix, StoreRun, cells, write_store};
use bench::units;
use clap::Args;
use store::Durability;

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
    /// Bytes of a new file.
    #[arg(long, value_name = "SIZE", default_value = "6G", value_parser = units::size)]
    pub size: usize,
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
    /// Cores, each with its own queue of the device.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub cores: u16,
    /// Items at first.
    #[arg(long, value_name = "N", default_value_t = 200_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: u64,
    /// Bytes of a value.
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = units::size)]
    pub value: usize,
    /// PUTs survive the death of the process, but no power cut; raw writes likewise.
    #[arg(long)]
    pub volatile: bool,
    /// Cores sleep when they have nothing to do, instead of spinning: then CPU time tells what a request
    /// costs.
    #[arg(long)]
    pub sleep: bool,
    /// How long each measurement takes.
    #[arg(long = "for", value_name = "TIME", default_value = "500ms", value_parser = units::duration)]
    pub each: Duration,
    /// How long each runs before it is measured.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = units::duration)]
    pub warm_up: Duration,
    /// How often each side has its turn; figures are medians.
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Repeats the requests exactly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Take a file in memory too: whether everything works, not how fast.
    #[arg(long, hide = true)]
    pub in_memory: bool,
}

/// Measures.
pub(super) fn run(flags: &StoreFlags, as_json: bool) -> anyhow::Result<bool> {
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
