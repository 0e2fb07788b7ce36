//! `cargo lab`: what the project measures and proves about itself, and no user needs.
//!
//! | module | what |
//! | --- | --- |
//! | [`memcached`] | memcached as a process |
//! | [`index`] | the store's index beside concurrent maps |
//! | [`mica`] | the cache's table beside the standard hash map |
//! | [`death`] | what a client notices when others die |
//! | [`report`] | a run of everything as JSON, plots and a page |
//! | [`shim`] | the same for unmodified programs |
//! | [`store`] | the same for the store |
//! | [`fs`] | the same for the file system, beside NFS-Ganesha |
//! | [`plot`] | SVG plots |
//! | [`goals`](mod@goals) | the figures that are compared with goals |
//! | [`gates`] | counts of what the hot paths do, compared with `gates.json` |
//! | [`pynfs`] | NFS's own suite of tests against ours and NFS-Ganesha |
//! | [`mutants`] | the product broken on purpose |
//!
//! The product depends on none of this. Where a server is needed, this program is one: started by the
//! name `vervain` it is the `vervain` command.

#![forbid(unsafe_code)]

pub mod death;
pub mod fs;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod gates;
pub mod goals;
pub mod index;
pub mod memcached;
pub mod mica;
pub mod mutants;
pub mod plot;
pub mod pynfs;
pub mod report;
pub mod shim;
pub mod store;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use bench::limit::LimitRun;
use bench::print::write_limits;
use clap::{Parser, Subcommand};
use vervain::measure::Progress;

/// What the project measures and proves about itself.
#[derive(Parser, Debug)]
#[command(name = "cargo lab", bin_name = "cargo lab")]
struct Flags {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// What a client notices while others connect, stand still and are killed.
    Death(death::DeathFlags),
    /// A client that `death` kills, told on standard input when to connect.
    #[command(hide = true)]
    DeathVictim(death::VictimFlags),
    /// What this machine can do at all: the limits that the others run against.
    Limit(LimitRun),
    /// Everything, as JSON, plots and a page: how fast is it here, compared with memcached, and
    /// how far from the limit?
    Report(report::command::ReportFlags),
    /// A process that loads a store and is killed then, for `report --store`.
    #[command(hide = true)]
    StoreLoad(store::command::LoadFlags),
    /// A server that answers over TCP, or its client, for `report --shim`.
    #[command(hide = true)]
    TcpEcho(shim::echo::EchoFlags),
    /// Counts what the hot paths do, and compares it with gates.json.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    Gates(gates::GatesFlags),
    /// Runs the cache in virtual time: servers, clients and a network from one seed each, and checks
    /// every answer.
    Simulate(simulation::command::SimulateFlags),
    /// The server tests of pynfs, NFS's own suite, against ours and NFS-Ganesha.
    Pynfs(pynfs::PynfsFlags),
    /// Breaks the product on purpose, and shows whether the suites notice.
    Mutants(mutants::MutantsFlags),
}

/// Runs the command line and says how it went.
pub fn run() -> ExitCode {
    let by_name = std::env::args_os().next().map(PathBuf::from);
    if by_name.is_some_and(|path| path.file_name() == Some("vervain".as_ref())) {
        return vervain::run();
    }
    let flags = Flags::parse();
    vervain::start_logging(0);
    let as_json = flags.json;
    vervain::conclude("lab", carry_out(flags.verb, as_json))
}

fn carry_out(verb: Verb, as_json: bool) -> anyhow::Result<bool> {
    match verb {
        Verb::Death(flags) => death::run(flags, as_json),
        Verb::DeathVictim(flags) => death::run_victim(&flags),
        Verb::Limit(mut run) => {
            run.cpus = run.cpus.or_else(bench::machine::first_and_last);
            let progress = Progress::new(as_json);
            let report = run.run(&mut |what| progress.tell(what));
            drop(progress);
            bench::print::show(&report, as_json, write_limits)?;
            Ok(true)
        }
        Verb::Report(flags) => report::command::run(&flags, as_json),
        Verb::TcpEcho(flags) => shim::echo::run(&flags),
        Verb::StoreLoad(flags) => store::command::load(&flags),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Verb::Gates(flags) => gates::run(&flags),
        Verb::Simulate(flags) => Ok(simulation::command::run(&flags)),
        Verb::Pynfs(flags) => pynfs::run(&flags, as_json),
        Verb::Mutants(flags) => mutants::run(&flags),
    }
}

/// A folder to write into; one that cannot be written is better known before than after.
fn folder(path: &std::path::Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("cannot write into {}", path.display()))
}

/// This program, which is also the server.
///
/// # Errors
/// The system does not tell.
pub fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("where this program is")
}
