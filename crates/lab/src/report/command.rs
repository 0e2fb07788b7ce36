//! `cargo lab report`.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use clap::Args;
use vervain::measure::stop_servers_on_signals;

use super::run::{ReportRun, Scale};
use super::{Commit, Record, write_files, write_summary};
use crate::folder;
use bench::print;

/// `cargo lab report`.
#[derive(Args, Debug)]
#[command(
    after_help = "Starts the servers it needs, memcached among them where it is installed, \
and takes under 8 minutes on two cores. Leave the machine alone meanwhile. Examples:
  cargo lab report                       into vervain-report/, with a page to look at
  cargo lab report --quick               a first look, in a minute and a half
  cargo lab report --json                the figures for a program, under `ratios`
  cargo lab report --only memcached      the comparisons with memcached alone
  cargo lab report --from report.json    draws a report again
  cargo lab report --store               the store on flash instead: store.json and plots
  cargo lab report --shim                unmodified verbs programs instead: shim.json
  cargo lab report --fs                  the file system beside NFS-Ganesha instead: fs.json"
)]
pub struct ReportFlags {
    /// Where the page, the plots and the JSON go.
    #[arg(long, value_name = "DIR", default_value = "vervain-report")]
    pub(crate) out: PathBuf,
    /// Measure the store on flash instead: beside its bare device, its index, its recovery. Takes
    /// about 8 minutes, and up to 14 GiB of the directory's disk meanwhile.
    #[arg(long, conflicts_with_all = ["from", "full"])]
    pub(crate) store: bool,
    /// Measure unmodified verbs programs instead (perftest, rsockets), beside what uses the software NIC
    /// directly. Takes a minute or two.
    #[arg(long, conflicts_with_all = ["from", "full", "store"])]
    pub(crate) shim: bool,
    /// Measure the file system instead, beside NFS-Ganesha over the file system of the same disk. Takes
    /// about 5 minutes, and up to 10 GiB of the directory's disk meanwhile.
    #[arg(long, conflicts_with_all = ["from", "full", "store", "shim"])]
    pub(crate) fs: bool,
    /// Where --store and --fs have their temporary files, which are removed.
    #[arg(long, value_name = "DIR", default_value = ".", conflicts_with_all = ["from", "shim"])]
    pub(crate) dir: PathBuf,
    /// Draw a report again instead of measuring.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "full", "tiny"])]
    pub(crate) from: Option<PathBuf>,
    /// A minute and a half: one round, fewer sizes. For a look, not for comparisons.
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// Longer measurements, five rounds, a hundred million items where memory allows it.
    #[arg(long)]
    pub(crate) full: bool,
    /// Seconds: whether everything works, not how fast.
    #[arg(long, hide = true, conflicts_with_all = ["quick", "full"])]
    pub(crate) tiny: bool,
    /// Only the steps with one of these in their names.
    #[arg(
        long,
        value_name = "PART,...",
        value_delimiter = ',',
        conflicts_with = "from"
    )]
    pub(crate) only: Vec<String>,
    /// Repeats the requests exactly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Measures everything, or reads what was measured; false when a measurement failed.
pub(crate) fn run(flags: &ReportFlags, as_json: bool) -> anyhow::Result<bool> {
    if flags.store {
        return crate::store::command::report(flags, as_json);
    }
    if flags.fs {
        return crate::fs::command::report(flags, as_json);
    }
    if flags.shim {
        return crate::shim::command::report(flags, as_json);
    }
    let record = match &flags.from {
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            Record::read(&text).with_context(|| file.display().to_string())?
        }
        None => {
            folder(&flags.out)?;
            measure(flags)?
        }
    };
    write_files(&record, &flags.out)?;
    print::show(&record, as_json, |record, out| {
        write_summary(record, out)?;
        writeln!(out)?;
        writeln!(out, "page   {}", flags.out.join("index.html").display())?;
        writeln!(out, "data   {}", flags.out.join("report.json").display())
    })?;
    Ok(record.head.is_whole())
}

fn measure(flags: &ReportFlags) -> anyhow::Result<Record> {
    stop_servers_on_signals()?;
    let scale = match (flags.quick, flags.full, flags.tiny) {
        (true, ..) => Scale::quick(),
        (_, true, _) => Scale::full(),
        (.., true) => Scale::tiny(),
        _ => Scale::standard(),
    };
    let run = ReportRun {
        scale,
        seed: flags.seed,
        commit: commit(),
        flags: std::env::args().skip(1).collect(),
        only: flags.only.clone(),
    };
    let record = run.run(&mut tell);
    tell("", "");
    record
}

/// What this program was built from: `cargo lab` builds it from the tree as it is.
pub(crate) fn commit() -> Commit {
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        let output = git
            .args(words)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no", ".."]);
    Commit {
        hash: git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or("unknown".into()),
        is_dirty: changed.is_some_and(|files| !files.is_empty()),
    }
}

/// Tells on stderr how far a run is: on a terminal one line is written over again; in a file each step has
/// its line. Without a step the line is empty.
pub(crate) fn tell(step: &str, detail: &str) {
    let mut stderr = std::io::stderr().lock();
    // Nothing to do about a stderr that is closed.
    let _ = match (stderr.is_terminal(), step, detail) {
        (true, ..) => write!(stderr, "\r\x1b[K{step}  {detail}"),
        (false, step, "") if !step.is_empty() => writeln!(stderr, "{step}"),
        (false, ..) => Ok(()),
    };
}
