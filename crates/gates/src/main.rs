//! `gates`: counts what the hot paths do and compares it with the file of counts.
//!
//! `cargo x gates` builds and runs it.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(
    name = "cargo x gates",
    about = "Counts what the hot paths do, and compares it with gates.json"
)]
struct Flags {
    /// Cases to count, by the beginning of their names [default: all].
    cases: Vec<String>,
    /// Write what was counted to the file.
    #[arg(long)]
    update: bool,
    /// Show all counts beside those of the file, not only those that differ.
    #[arg(long)]
    all: bool,
    /// Show which source lines the counts come from.
    #[arg(long)]
    explain: bool,
    /// List the cases and what is counted.
    #[arg(long)]
    list: bool,
    /// The file of counts.
    #[arg(long, value_name = "PATH", default_value = "gates.json")]
    file: PathBuf,
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> anyhow::Result<ExitCode> {
    run::run(&Flags::parse())
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() -> anyhow::Result<ExitCode> {
    let _ = Flags::parse();
    anyhow::bail!("counts can be taken on Linux on x86-64 only")
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod run {
    use std::process::{Command, ExitCode};

    use anyhow::{Context, ensure};
    use gates::book::{Book, Count, Verdict};
    use gates::cases::{CASES, Case, How, Metric};
    use gates::{explain, print, serve, trace};

    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

    use super::Flags;

    pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
        if flags.list {
            for case in CASES {
                println!("{:18} {}", case.name, case.meaning);
            }
            println!();
            for metric in Metric::ALL {
                println!("{:18} {}", metric.name(), metric.meaning());
            }
            return Ok(ExitCode::SUCCESS);
        }
        let mut cases: Vec<&Case> = CASES.iter().filter(|case| chosen(flags, case)).collect();
        ensure!(
            !cases.is_empty(),
            "there is no such case (--list shows them)"
        );
        cases.retain(|case| {
            let left_out = lacks(case);
            if let Some(why) = &left_out {
                eprintln!("{} is left out: {why}", case.name);
            }
            left_out.is_none()
        });
        // The two processes take turns: on one CPU that is a switch, on two it is two wake-ups.
        let everywhere = sched_getaffinity(None).context("asking for the CPUs")?;
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        let here = std::env::current_exe()?;
        let (driver, vervain) = (
            here.with_file_name("gates-driver"),
            here.with_file_name("vervain"),
        );
        let mut counts = Vec::new();
        for case in &cases {
            eprintln!("counting {}: {}", case.name, case.meaning);
            let (rounds_before, rounds) = match case.how {
                How::Served(way) => {
                    counts.push(Count {
                        case: case.name,
                        side: case.sides[0],
                        metric: Metric::Syscalls,
                        value: serve::syscalls(&vervain, way)?,
                    });
                    continue;
                }
                How::Stepped {
                    rounds_before,
                    rounds,
                    ..
                } => (rounds_before, rounds),
            };
            sched_setaffinity(None, &one).context("staying on a CPU")?;
            let watched = trace::watch(&driver, case, rounds_before, rounds);
            sched_setaffinity(None, &everywhere).context("going back to all CPUs")?;
            let (sides, code) = watched?;
            for counted in sides {
                if flags.explain {
                    print!("{}", explain::explain(&counted, &code, &driver)?);
                }
                counts.extend(counted.counts.iter().map(|(metric, value)| Count {
                    case: case.name,
                    side: counted.side,
                    metric: *metric,
                    value: *value,
                }));
            }
        }
        println!("\n{}", print::grid(&counts));
        let compiler = compiler()?;
        if flags.update {
            let before = flags
                .file
                .exists()
                .then(|| Book::read(&flags.file))
                .transpose()?;
            let book = Book::of(&counts, before.as_ref(), &compiler);
            std::fs::write(&flags.file, book.text()?)
                .with_context(|| format!("writing {}", flags.file.display()))?;
            if let Some(before) = before {
                let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
                print!(
                    "{}",
                    print::comparison(&before.compare(&counts, &names), flags.all)
                );
            }
            println!("{} updated", flags.file.display());
            return Ok(ExitCode::SUCCESS);
        }
        let book = Book::read(&flags.file)?;
        let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
        let compared = book.compare(&counts, &names);
        print!("{}", print::comparison(&compared, flags.all));
        let off = compared
            .iter()
            .filter(|one| one.verdict != Verdict::Holds)
            .count();
        if off == 0 {
            println!("all {} counts hold", compared.len());
            return Ok(ExitCode::SUCCESS);
        }
        println!(
            "\n{off} of {} counts differ from {}. If that is meant, `cargo x gates --update` keeps \
             the new ones; fewer is no reason to leave the file as it is.",
            compared.len(),
            flags.file.display()
        );
        if book.compiler != compiler {
            println!(
                "They were made with {}, and this is {compiler}: another compiler makes other code.",
                book.compiler
            );
        }
        Ok(ExitCode::FAILURE)
    }

    fn chosen(flags: &Flags, case: &Case) -> bool {
        flags.cases.is_empty()
            || flags
                .cases
                .iter()
                .any(|begin| case.name.starts_with(begin.as_str()))
    }

    /// What this machine lacks for a case.
    fn lacks(case: &Case) -> Option<String> {
        let How::Stepped {
            needs: Some(io), ..
        } = case.how
        else {
            return None;
        };
        let mut config = rt::Config::default();
        config.io = Some(io);
        let error = rt::Core::new(config).err()?;
        Some(format!("{:#}", anyhow::Error::new(error)))
    }

    /// The compiler's name and version.
    fn compiler() -> anyhow::Result<String> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(rustc)
            .arg("--version")
            .output()
            .context("asking rustc for its version")?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
    }
}
