//! Counts of what the hot paths do: instructions, locked instructions, allocations, system calls
//! and cache lines, an operation.
//!
//! Time flickers, counts do not. A driver (`gates-driver`) runs one hot path at full speed until it
//! is in its steady state; then it is stepped through instruction by instruction (ptrace), and
//! each instruction is decoded. So one pass gives, exactly and for each side on its own:
//!
//! - instructions, with those that lock the bus among them (a `lock` prefix, or `xchg` with memory);
//! - system calls and allocations;
//! - distinct cache lines that a round touches, by what they belong to;
//! - *transfers*: lines of shared memory that would have to travel from one core's cache to
//!   another's, were each side on a core of its own.
//!
//! Libraries choose some of their ways by what the processor can do. The driver is told that it can do
//! AVX2 and nothing newer, whatever it can, so that the counts of one machine hold on another.
//!
//! Nothing of this needs privileges, performance counters or an emulator, and large tables are
//! filled at full speed.
//!
//! | module | what |
//! | --- | --- |
//! | `cases` | the hot paths, and what may be counted of them |
//! | `decode` | what an instruction does, from its bytes |
//! | `places` | what an address belongs to |
//! | `caches` | which lines travel between two caches |
//! | `tracee` | a process, stepped through |
//! | `trace` | from steps to counts |
//! | `serve` | system calls of a whole server |
//! | `book` | the file of counts, and comparing with it |
//! | `print` | tables |
//! | `explain` | which source lines the counts come from |

pub mod book;
mod caches;
pub mod cases;
mod decode;
pub mod explain;
mod places;
pub mod print;
pub mod serve;
pub mod trace;
mod tracee;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use self::book::{Book, Count, Verdict};
use self::cases::{CASES, Case, How, Metric};

/// `cargo lab gates`.
#[derive(clap::Args, Debug)]
pub struct GatesFlags {
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

/// Counts; false when a count is off.
///
/// # Errors
/// A case cannot be counted.
pub fn run(flags: &GatesFlags) -> anyhow::Result<bool> {
    if flags.list {
        for case in CASES {
            println!("{:18} {}", case.name, case.meaning);
        }
        println!();
        for metric in Metric::all() {
            println!("{:18} {}", metric.name(), metric.meaning());
        }
        return Ok(true);
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
    let [driver, vervain] = build()?;
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
        return Ok(true);
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
        return Ok(true);
    }
    println!(
        "\n{off} of {} counts differ from {}. If that is meant, `cargo lab gates --update` keeps \
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
    Ok(false)
}

/// Builds what is counted, as it is shipped: the driver of single paths, and the server.
fn build() -> anyhow::Result<[PathBuf; 2]> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args([
            "build",
            "--release",
            "--package",
            "gates",
            "--package",
            "vervain",
            "--bins",
        ])
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo")?;
    ensure!(built.status.success(), "what is counted does not build");
    let programs: Vec<PathBuf> = String::from_utf8_lossy(&built.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| Some(message["executable"].as_str()?.into()))
        .collect();
    let program = |name: &str| {
        let named = programs.iter().find(|path| path.ends_with(name));
        named
            .cloned()
            .with_context(|| format!("cargo built no {name}"))
    };
    Ok([program("gates-driver")?, program("vervain")?])
}

fn chosen(flags: &GatesFlags, case: &Case) -> bool {
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
