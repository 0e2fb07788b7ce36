//! `cargo x`: the project's chores.
//!
//! ```text
//! cargo x check      everything that CI checks, and what each step takes
//! cargo x lint       formatting and clippy
//! cargo x docs       the documentation, without warnings
//! cargo x deps       licences, sources and duplicates of dependencies (needs cargo-deny)
//! cargo x loom       what threads share, in every order
//! cargo x asan       the unsafe modules' tests under AddressSanitizer
//! cargo x valgrind   tables, rings and copies under valgrind
//! cargo x miri       the same in Miri (needs nightly)
//! cargo x fuzz       what reads bytes from outside, given bytes that libFuzzer makes up
//! cargo x death      processes that die at their steps; --all for all steps
//! cargo x matrix     verbs programs that nobody here wrote, as a table
//! cargo x programs   random programs over every NIC, from seeds: every completion checked
//! cargo x xdr        the types of NFS, from the RFCs' descriptions
//! cargo x wheel      the Python package with the program and its library (needs python3)
//! ```
//!
//! What is measured and counted is `cargo lab`.

#![forbid(unsafe_code)]

mod check;
mod checkers;
mod fuzz;
mod matrix;
mod wheel;
mod xdr;

use std::process::Command;

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo x", about = "The project's chores")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Everything that CI checks, and what each step takes.
    Check,
    /// Formatting and clippy.
    Lint,
    /// The documentation, without warnings.
    Docs,
    /// Licences, sources and duplicates of dependencies (needs cargo-deny).
    Deps,
    /// What threads share, in every order (loom).
    Loom,
    /// The unsafe modules' tests under AddressSanitizer: bounds, use after free, leaks.
    Asan(Packages),
    /// Tables, rings and copies under valgrind: bounds, use of what nobody has written, leaks.
    Valgrind(Packages),
    /// Tables and copies in Miri: the language's own rules (needs nightly).
    Miri(Packages),
    /// Gives what reads bytes from outside bytes that libFuzzer makes up.
    Fuzz(fuzz::Arguments),
    /// Clients, servers and users of the NIC that are killed or stopped at their steps: at each
    /// system call, and between instructions. Prints how many steps were cut.
    Death {
        /// One step again, as a failure names it: TEST:STEP.
        step: Option<String>,
        /// All steps, and not a spread of them. Takes some minutes.
        #[arg(long, conflicts_with = "step")]
        all: bool,
        /// What draws the spread.
        #[arg(long, value_name = "N")]
        seed: Option<u64>,
    },
    /// Verbs programs that nobody here wrote, on the software NIC, each with its options and what is
    /// looked at, as a table. Takes some minutes.
    Matrix(matrix::Arguments),
    /// Random programs over every NIC: what completes is compared with a model, and sleepers must be
    /// woken.
    Programs {
        /// Which seeds.
        #[arg(default_value = "16..200")]
        seeds: String,
    },
    /// The Python package, which carries the program and its library: a wheel for pip (needs python3).
    Wheel(wheel::Arguments),
    /// Writes the types of NFS from the RFCs' descriptions of them.
    Xdr,
}

#[derive(clap::Args)]
struct Packages {
    /// Packages to run tests of, instead of all that the tool is for.
    packages: Vec<String>,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().chore {
        Chore::Check => check::run(),
        Chore::Lint => lint(),
        Chore::Docs => docs(),
        Chore::Deps => deps(),
        Chore::Loom => loom(Reach::Run),
        Chore::Asan(Packages { packages }) => checkers::asan(&packages),
        Chore::Valgrind(Packages { packages }) => checkers::valgrind(&packages),
        Chore::Miri(Packages { packages }) => checkers::miri(&packages),
        Chore::Fuzz(arguments) => fuzz::run(&arguments),
        Chore::Death { step, all, seed } => death(step.as_deref(), all, seed),
        Chore::Matrix(arguments) => matrix::run(&arguments),
        Chore::Programs { seeds } => programs(&seeds),
        Chore::Wheel(arguments) => wheel::run(&arguments),
        Chore::Xdr => xdr::run(),
    }
}

fn lint() -> anyhow::Result<()> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--all-features"];
    // Nothing is linked, so that libFuzzer's C++ need not be compiled.
    let no_libfuzzer = [("CUSTOM_LIBFUZZER_PATH", "/nowhere/libfuzzer.a")];
    cargo(
        &[&clippy[..], &["--", "-D", "warnings"]].concat(),
        &no_libfuzzer,
    )
}

fn docs() -> anyhow::Result<()> {
    cargo(
        &[
            "doc",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ],
        &[("RUSTDOCFLAGS", "-D warnings")],
    )
}

fn deps() -> anyhow::Result<()> {
    cargo(&["deny", "check", "licenses", "bans", "sources"], &[])
        .context("`cargo install --locked cargo-deny` gives the tool")
}

/// How far a step of tests goes.
#[derive(Clone, Copy)]
enum Reach {
    /// The tests are built.
    Build,
    /// They are built and run.
    Run,
}

impl Reach {
    /// What `cargo test` is told.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Reach::Build => &["--no-run"],
            Reach::Run => &[],
        }
    }
}

fn loom(reach: Reach) -> anyhow::Result<()> {
    // One build for all: loom's own crates take most of it.
    let packages = ["-p", "rt", "-p", "nic-soft", "-p", "store", "-p", "cache"];
    let test = ["test", "--profile", "loom", "--test", "loom"];
    let environment = [
        ("RUSTFLAGS", "--cfg loom --deny warnings"),
        ("CARGO_TARGET_DIR", "target/loom"),
    ];
    cargo(
        &[&test[..], &packages, reach.flags()].concat(),
        &environment,
    )
}

fn death(step: Option<&str>, all: bool, seed: Option<u64>) -> anyhow::Result<()> {
    let mut test = vec!["test", "--package", "vervain", "--test", "death", "--"];
    // The totals are part of the answer.
    test.push("--nocapture");
    let seed = seed.map(|seed| seed.to_string());
    let mut environment = Vec::new();
    if let Some(step) = step {
        let (name, _) = step
            .split_once(':')
            .with_context(|| format!("`{step}` is no step; write TEST:STEP"))?;
        test.push(name);
        environment.push(("VERVAIN_DEATH", step));
    } else if all {
        environment.push(("VERVAIN_DEATH", "all"));
    }
    if let Some(seed) = &seed {
        environment.push(("VERVAIN_DEATH_SEED", seed));
    }
    cargo(&test, &environment)
}

fn programs(seeds: &str) -> anyhow::Result<()> {
    let suites = ["--package", "conformance", "--package", "nic-soft"];
    let only = ["--test", "it", "--", "random_programs"];
    cargo(
        &[&["test"], &suites[..], &only].concat(),
        &[("VERVAIN_PROGRAM_SEEDS", seeds)],
    )
}

/// Runs cargo, showing what it runs.
fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<()> {
    eprintln!("$ cargo {}", arguments.join(" "));
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .envs(environment.iter().copied())
        .status()
        .context("starting cargo")?;
    ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(())
}
