//! `cargo lab`: what the project measures and proves about itself, and no user needs.
//!
//! | module | what |
//! | --- | --- |
//! | [`compare`] | our server beside memcached |
//! | [`memcached`] | memcached as a process |
//! | [`index`] | the store's index beside concurrent maps |
//! | [`mica`] | the cache's table beside the standard hash map |
//! | [`death`] | what a client notices when others die |
//! | [`report`] | a run of everything as JSON, plots and a page |
//! | [`store`] | the same for the store |
//! | [`plot`] | SVG plots |
//! | [`publish`] | a report in the README |
//! | [`goals`](mod@goals) | the figures that are compared with goals |
//! | [`gates`] | counts of what the hot paths do, compared with `gates.json` |
//! | [`mutants`] | the product broken on purpose |
//!
//! The product depends on none of this. Where a server is needed, this program is one: started by the
//! name `vervain` it is the `vervain` command.

#![forbid(unsafe_code)]

pub mod compare;
pub mod death;
pub mod gates;
pub mod goals;
pub mod index;
pub mod memcached;
pub mod mica;
pub mod mutants;
pub mod plot;
pub mod publish;
pub mod report;
pub mod store;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use bench::limit::LimitRun;
use bench::print::write_limits;
use clap::{Parser, Subcommand};
use serde::Serialize;
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
    /// The cache beside memcached, each at its best.
    Cache(Box<compare::AgainstFlags>),
    /// Our socket door beside memcached's, cell by cell.
    Door(compare::door::DoorMatrix),
    /// What a client notices while others connect, stand still and are killed.
    Death(death::command::DeathFlags),
    /// A client that `death` kills, told on standard input when to connect.
    #[command(hide = true)]
    DeathVictim(death::command::VictimFlags),
    /// The store's index alone, beside concurrent hash maps.
    Index(index::IndexRun),
    /// What this machine can do at all: the limits that the others run against.
    Limit(LimitRun),
    /// The cache's table alone, beside the standard hash map.
    Mica(mica::MicaRun),
    /// Everything, as JSON, plots and a page: how fast is it here, compared with memcached, and
    /// how far from the limit?
    Report(report::command::ReportFlags),
    /// A process that loads a store and is killed then, for `report --store`.
    #[command(hide = true)]
    StoreLoad(store::command::LoadFlags),
    /// The README's figures, from a folder that `report` has written.
    Publish {
        /// The folder.
        folder: PathBuf,
    },
    /// Counts what the hot paths do, and compares it with gates.json.
    Gates(gates::GatesFlags),
    /// Runs the cache in virtual time: servers, clients and a network from one seed each, and checks
    /// every answer.
    Simulate(simulation::command::SimulateFlags),
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
        Verb::Cache(flags) => compare::against(&flags, as_json),
        Verb::Door(matrix) => compare::door(matrix, as_json),
        Verb::Death(flags) => death::command::run(flags, as_json),
        Verb::DeathVictim(flags) => death::command::run_victim(&flags),
        Verb::Index(run) => show(as_json, |tell| run.run(tell), index::write_index),
        Verb::Limit(mut run) => {
            run.cpus = run.cpus.or_else(bench::machine::first_and_last);
            show(as_json, |tell| Ok::<_, Never>(run.run(tell)), write_limits)
        }
        Verb::Mica(run) => show(as_json, |tell| run.run(tell), mica::write_mica),
        Verb::Report(flags) => report::command::run(&flags, as_json),
        Verb::StoreLoad(flags) => store::command::load(&flags),
        Verb::Publish { folder } => publish::publish(&folder).map(|()| true),
        Verb::Gates(flags) => gates::run(&flags),
        Verb::Simulate(flags) => Ok(simulation::command::run(&flags)),
        Verb::Mutants(flags) => mutants::run(&flags),
    }
}

/// What cannot go wrong.
type Never = std::convert::Infallible;

/// Measures, telling how far that is, and prints the report as a table or as JSON.
fn show<R: Serialize, E: std::error::Error + Send + Sync + 'static>(
    as_json: bool,
    run: impl FnOnce(&mut dyn FnMut(&str)) -> Result<R, E>,
    table: impl FnOnce(&R, &mut std::io::StdoutLock<'static>) -> std::io::Result<()>,
) -> anyhow::Result<bool> {
    let progress = Progress::new(as_json);
    let report = run(&mut |what| progress.tell(what));
    drop(progress);
    let report = report.context("the benchmark did not finish")?;
    bench::print::show(&report, as_json, table)?;
    Ok(true)
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
