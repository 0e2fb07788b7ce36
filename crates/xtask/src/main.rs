//! `cargo x`: the project's chores.
//!
//! ```text
//! cargo x check      everything that CI checks, in CI's order
//! cargo x lint       formatting and clippy
//! cargo x docs       the documentation, without warnings
//! cargo x deps       licences, sources and duplicates of dependencies (needs cargo-deny)
//! cargo x loom       what threads share, in every order
//! cargo x performance DIR   the README's figures, from a folder of `vervain bench report`
//! cargo x gates      what the hot paths do, counted and compared with gates.json
//! ```

#![forbid(unsafe_code)]

mod performance;

use std::path::PathBuf;
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
    /// Everything that CI checks, in CI's order.
    Check,
    /// Formatting and clippy.
    Lint,
    /// The documentation, without warnings.
    Docs,
    /// Licences, sources and duplicates of dependencies (needs cargo-deny).
    Deps,
    /// What threads share, in every order (loom).
    Loom,
    /// The README's figures, from a folder that `vervain bench report` has written.
    Performance {
        /// The folder.
        folder: PathBuf,
    },
    /// What the hot paths do, counted and compared with gates.json.
    ///
    /// `cargo x gates --help` tells the rest.
    #[command(disable_help_flag = true)]
    Gates {
        /// What the counting program is told.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().chore {
        Chore::Check => {
            lint()?;
            cargo(&["test", "--workspace"], &[])?;
            docs()?;
            loom()?;
            deps()?;
            gates(&[])
        }
        Chore::Lint => lint(),
        Chore::Docs => docs(),
        Chore::Deps => deps(),
        Chore::Loom => loom(),
        Chore::Performance { folder } => performance::publish(&folder),
        Chore::Gates { arguments } => gates(&arguments),
    }
}

fn lint() -> anyhow::Result<()> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--all-features"];
    cargo(&[&clippy[..], &["--", "-D", "warnings"]].concat(), &[])
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

fn loom() -> anyhow::Result<()> {
    for package in ["rt", "nic-soft"] {
        let test = ["test", "--release", "-p", package, "--test", "loom"];
        let environment = [
            ("RUSTFLAGS", "--cfg loom"),
            ("CARGO_TARGET_DIR", "target/loom"),
        ];
        cargo(&test, &environment)?;
    }
    Ok(())
}

fn gates(arguments: &[String]) -> anyhow::Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        eprintln!("no counts: they can be taken on Linux on x86-64 only");
        return Ok(());
    }
    // The file of counts is at the root.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    std::env::set_current_dir(root).with_context(|| format!("going to {root}"))?;
    let build = ["build", "--release", "--bins"];
    let packages = ["--package", "gates", "--package", "vervain"];
    cargo(&[&build[..], &packages].concat(), &[])?;
    let run = ["run", "--release", "--quiet", "--package", "gates"];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    cargo(
        &[&run[..], &["--bin", "gates", "--"], &arguments].concat(),
        &[],
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
