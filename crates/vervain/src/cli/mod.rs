//! From the command line to what it asks for.

mod bench_flags;
mod flags;
mod place;
mod store_flags;
mod units;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

pub(crate) use bench_flags::{
    Arriving, BenchCache, BenchDeath, BenchDeathVictim, BenchDoor, BenchIndex, BenchLimit,
    BenchMica, BenchReport, BenchStore, BenchStoreLoad, BenchVerbs, BenchVerbsPeer, InlineFlag,
    Peer, RoleFlag, TargetFlag, TransportFlag,
};
pub(crate) use flags::{
    ClientFlags, DelFlags, Durable, EngineKind, GetFlags, IncrFlags, Io, NicFlags, ServeFlags,
    SetFlags, ShellFlags, SoakClient, SoakDoor, SoakFlags, StatsFlags, TouchFlags,
};
pub(crate) use place::{OpenedNic, open_nic, parse_gid, run_dir, run_dir_of};
pub(crate) use store_flags::{
    StoreCreate, StoreFlags, StoreInspect, StoreKeys, StoreRepair, StoreSet, StoreWhat,
};
pub(crate) use units::{duration, show_size};

use bench_flags::BenchWhat;
use flags::{Command, Flags};

/// The command did what it was asked, and the answer is no.
const NO: u8 = 1;

/// Runs the command line and says how it went.
pub fn run() -> ExitCode {
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
            BenchWhat::Cache(cache) => crate::client::bench_cache(&cache, flags.json),
            BenchWhat::Death(death) => crate::client::bench_death(&death, flags.json),
            BenchWhat::DeathVictim(victim) => crate::client::bench_death_victim(&victim),
            BenchWhat::Door(door) => crate::client::bench_door(&door, flags.json),
            BenchWhat::Index(index) => crate::client::bench_index(&index, flags.json),
            BenchWhat::Limit(limit) => crate::client::bench_limit(&limit, flags.json),
            BenchWhat::Mica(mica) => crate::client::bench_mica(&mica, flags.json),
            BenchWhat::Report(report) => crate::client::bench_report(&report, flags.json),
            BenchWhat::Store(store) => crate::client::bench_store(&store, flags.json),
            BenchWhat::StoreLoad(load) => crate::client::bench_store_load(&load),
            BenchWhat::Verbs(verbs) => crate::client::bench_verbs(&verbs, flags.json),
            BenchWhat::VerbsPeer(peer) => crate::client::bench_verbs_peer(&peer),
        },
        Command::Soak(soak) => crate::soak::run(&soak, flags.json),
        Command::Store(store) => crate::stores::run(&store, flags.json),
        Command::SoakClient(client) => crate::soak::run_client(&client),
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

/// What a command line asks for, without the program's name and without doing it.
#[cfg(feature = "fuzz")]
pub(crate) fn understand(arguments: &[std::ffi::OsString]) -> Result<String, String> {
    let program = std::ffi::OsString::from("vervain");
    match Flags::try_parse_from([&program].into_iter().chain(arguments)) {
        Ok(flags) => Ok(format!("{flags:?}")),
        Err(error) => Err(error.render().to_string()),
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
