//! From the command line to what it asks for.

mod flags;
mod place;
mod units;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

pub(crate) use flags::{
    Arriving, BenchCache, BenchDoor, BenchLimit, BenchMica, BenchReport, BenchVerbs,
    BenchVerbsPeer, ClientFlags, DelFlags, GetFlags, IncrFlags, InlineFlag, Io, NicFlags, Peer,
    RoleFlag, ServeFlags, SetFlags, ShellFlags, StatsFlags, TargetFlag, TouchFlags, TransportFlag,
};
pub(crate) use place::{open_nic, parse_gid, run_dir_of};
pub(crate) use units::{duration, show_size};

use flags::{Command, Flags};

/// The command did what it was asked, and the answer is no.
const NO: u8 = 1;

/// Runs the command line and says how it went.
pub(crate) fn run() -> ExitCode {
    // clap prints help to stdout with 0, and what is wrong to stderr with 2.
    let flags = Flags::parse();
    start_logging(flags.verbose);
    let done = match flags.command {
        Command::Serve(serve) => crate::serve::run(&serve, flags.json).map(|()| true),
        Command::Set(set) => crate::client::set(&set, flags.json),
        Command::Get(get) => crate::client::get(&get, flags.json),
        Command::Del(del) => crate::client::del(&del, flags.json),
        Command::Incr(incr) => crate::client::incr(&incr, flags.json),
        Command::Touch(touch) => crate::client::touch(&touch, flags.json),
        Command::Stats(stats) => crate::client::stats(&stats, flags.json),
        Command::Shell(shell) => crate::client::shell(&shell, flags.json),
        Command::Bench(bench) => match bench.what {
            flags::BenchWhat::Cache(cache) => crate::client::bench_cache(&cache, flags.json),
            flags::BenchWhat::Door(door) => crate::client::bench_door(&door, flags.json),
            flags::BenchWhat::Limit(limit) => crate::client::bench_limit(&limit, flags.json),
            flags::BenchWhat::Mica(mica) => crate::client::bench_mica(&mica, flags.json),
            flags::BenchWhat::Report(report) => crate::client::bench_report(&report, flags.json),
            flags::BenchWhat::Verbs(verbs) => crate::client::bench_verbs(&verbs, flags.json),
            flags::BenchWhat::VerbsPeer(peer) => crate::client::bench_verbs_peer(&peer),
        },
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NO),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing to do about a stderr that is closed.
            let _ = writeln!(std::io::stderr(), "vervain: {}", explain(&error));
            ExitCode::from(NO)
        }
    }
}

/// Whoever reads our output has had enough; that is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

/// An error and its causes. Some errors end with their cause's text, which is not said twice.
pub(crate) fn explain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Warnings on stderr; more with -v, or as RUST_LOG says.
fn start_logging(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let io = || std::io::Error::other("no room");
        let error = anyhow::Error::new(verbs::VerbsError::io("making a file", io()));
        assert_eq!(
            explain(&error.context("cannot start")),
            "cannot start: making a file: no room"
        );
        let error = anyhow::Error::new(io()).context("making a file");
        assert_eq!(explain(&error), "making a file: no room");
    }
}
