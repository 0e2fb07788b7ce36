//! `vervain bench report` and `vervain bench mica`.

use std::any::Any;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use bench::mica::{MicaReport, MicaRun};
use bench::report::run::{Edge, Progress, ReportRun, Scale, StepError};
use bench::report::{Commit, Record, write_files, write_summary};
use bench::verbs::Link;
use verbs::typed::Context;

use super::measure_verbs::Peer;
use crate::cli::{BenchMica, BenchReport, NicFlags, open_nic};

/// This program, and its software NIC.
struct Program {
    exe: PathBuf,
}

impl Edge for Program {
    fn exe(&self) -> &Path {
        &self.exe
    }

    fn open_nic(&self, run_dir: &Path) -> Result<Context, StepError> {
        Ok(open_nic(&nic_in(run_dir))?.context)
    }

    fn verbs_peer(&self, run_dir: &Path) -> Result<(Box<dyn Any>, Link), StepError> {
        let (peer, link) = Peer::start(&nic_in(run_dir))?;
        Ok((Box::new(peer), link))
    }
}

fn nic_in(run_dir: &Path) -> NicFlags {
    NicFlags {
        gid: None,
        run_dir: Some(run_dir.to_path_buf()),
        nic_trace: false,
        nic_loss: None,
    }
}

/// Measures everything, or reads what was measured; false when a measurement failed.
pub(crate) fn bench_report(flags: &BenchReport, as_json: bool) -> anyhow::Result<bool> {
    if flags.store {
        return super::measure_store::report_store(flags, as_json);
    }
    let record = match &flags.from {
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            Record::read(&text).with_context(|| file.display().to_string())?
        }
        None => {
            // A folder that cannot be written is better known before than after.
            std::fs::create_dir_all(&flags.out)
                .with_context(|| format!("cannot write into {}", flags.out.display()))?;
            measure(flags)?
        }
    };
    write_files(&record, &flags.out)?;
    let mut out = std::io::stdout().lock();
    if as_json {
        bench::print::write_json(&record, &mut out)?;
    } else {
        write_summary(&record, &mut out)?;
        writeln!(out)?;
        writeln!(out, "page   {}", flags.out.join("index.html").display())?;
        writeln!(out, "data   {}", flags.out.join("report.json").display())?;
    }
    Ok(record.is_whole())
}

fn measure(flags: &BenchReport) -> anyhow::Result<Record> {
    super::compare::stop_servers_on_signals()?;
    let scale = match (flags.quick, flags.full, flags.tiny) {
        (true, ..) => Scale::quick(),
        (_, true, _) => Scale::full(),
        (.., true) => Scale::tiny(),
        _ => Scale::standard(),
    };
    let program = Program {
        exe: std::env::current_exe().context("finding this program")?,
    };
    let run = ReportRun {
        scale,
        seed: flags.seed,
        commit: commit(),
        flags: std::env::args().skip(1).collect(),
    };
    let mut shown = Shown::new();
    let record = run.run(&program, &mut |progress| shown.show(progress));
    shown.end();
    Ok(record)
}

/// What this program was built from.
pub(super) fn commit() -> Commit {
    Commit {
        hash: env!("VERVAIN_BUILD_COMMIT").to_string(),
        is_dirty: env!("VERVAIN_BUILD_DIRTY") == "true",
    }
}

/// Tells on stderr how far a run is.
pub(super) struct Shown {
    in_place: bool,
    step: usize,
}

impl Shown {
    pub(super) fn new() -> Self {
        Shown {
            // On a terminal one line is written over again; in a file each step has its line.
            in_place: std::io::stderr().is_terminal(),
            step: 0,
        }
    }

    pub(super) fn show(&mut self, progress: Progress<'_>) {
        let Progress {
            step,
            steps,
            name,
            detail,
            elapsed,
            left,
        } = progress;
        if !self.in_place && step == self.step {
            return;
        }
        self.step = step;
        let (elapsed, left) = (minutes(elapsed), minutes(left));
        let about = format!("[{step:>2}/{steps}] {elapsed} gone, about {left} left  {name}");
        let mut stderr = std::io::stderr().lock();
        // Nothing to do about a stderr that is closed.
        let _ = match (self.in_place, detail) {
            (true, "") => write!(stderr, "\r\x1b[K{about}"),
            (true, detail) => write!(stderr, "\r\x1b[K{about}: {detail}"),
            (false, _) => writeln!(stderr, "{about}"),
        };
    }

    pub(super) fn end(&self) {
        if self.in_place {
            // As above.
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// `3:05`.
fn minutes(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// Measures the table alone.
pub(crate) fn bench_mica(flags: &BenchMica, as_json: bool) -> anyhow::Result<bool> {
    let run = MicaRun {
        items: flags.items,
        batches: flags.batch.clone(),
        each: flags.each,
        rounds: flags.rounds,
        seed: flags.seed,
    };
    let in_place = std::io::stderr().is_terminal() && !as_json;
    let report = run.run(&mut |name| {
        if in_place {
            // Nothing to do about a stderr that is closed.
            let _ = write!(std::io::stderr(), "\r\x1b[Kmeasuring: {name}");
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
        write_mica(&report, &mut out)?;
    }
    Ok(true)
}

fn write_mica(report: &MicaReport, out: &mut impl Write) -> std::io::Result<()> {
    let machine = &report.machine;
    let (cpu, cpus, kernel) = (&machine.cpu, machine.cpus, &machine.kernel);
    writeln!(out, "machine       {cpu}, {cpus} CPUs, Linux {kernel}")?;
    let (items, pages) = (report.items, &report.pages);
    writeln!(out, "items         {items} of 16 + 32 B, in {pages}")?;
    writeln!(out)?;
    writeln!(
        out,
        "{:<32}{:>10}{:>10}",
        "random GETs, one thread", "Mop/s", "ns each"
    )?;
    let mut row =
        |name: String, mops: f64| writeln!(out, "{name:<32}{mops:>10.2}{:>10.0}", 1e3 / mops);
    for one in &report.mica {
        row(format!("MICA, batches of {}", one.batch), one.mops.mid)?;
    }
    row("HashMap".to_string(), report.hashmap_mops.mid)?;
    row(
        "HashMap with XXH3".to_string(),
        report.hashmap_xxh3_mops.mid,
    )?;
    writeln!(out)?;
    let ratio = report.mica_vs_hashmap;
    writeln!(
        out,
        "MICA at its best is {ratio:.2} times as fast as the HashMap."
    )
}
