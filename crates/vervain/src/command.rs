//! The command line: every verb, and who carries it out.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use bench::print::is_output_closed;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::cli::Unseen;
use crate::cli::{
    DelFlags, FsFlags, GetFlags, IncrFlags, ServeFlags, SetFlags, ShellFlags, SoakClient,
    SoakFlags, StatsFlags, StoreFlags, TouchFlags, explain,
};
use crate::measure::BenchFlags;
use crate::programs::{DevicesFlags, EnvFlags, RunFlags};

/// The command did what it was asked, and the answer is no.
const NO: u8 = 1;

/// The command makes no sense, or there is nothing to find out whether the answer is yes or no.
const UNSEEN: u8 = 2;

/// Data-centre storage services at RDMA speed, on any machine.
#[derive(Parser, Debug)]
#[command(
    name = "vervain",
    version,
    about,
    after_help = "Start with `vervain serve`; then, in another terminal, `vervain set greeting \
                  hello` and `vervain get greeting`. Any memcached client works on \
                  127.0.0.1:11211 as well."
)]
struct Flags {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// Say more about what happens (-v, -vv).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the cache.
    Serve(ServeFlags),
    /// Store a value.
    Set(SetFlags),
    /// Print values. Exits with 1 if any is missing.
    Get(GetFlags),
    /// Delete items. Exits with 1 if any was missing.
    Del(DelFlags),
    /// Add to a number (or subtract: a negative delta). Exits with 1 if it is missing.
    Incr(IncrFlags),
    /// Give an item a new expiry. Exits with 1 if it is missing.
    Touch(TouchFlags),
    /// Print the server's counters.
    Stats(StatsFlags),
    /// Keep a connection and take commands from standard input, a line each.
    Shell(ShellFlags),
    /// Keys and values in a file or on a drive: make one, use it, look into it, mend it.
    Store(StoreFlags),
    /// A file system in a directory, served over NFSv4.
    Fs(FsFlags),
    /// Run a verbs program on the software NIC, as it is.
    Run(RunFlags),
    /// Print what a shell sets to have all of its programs run so.
    Env(EnvFlags),
    /// Print the device that such programs see.
    Devices(DevicesFlags),
    /// Measure.
    Bench(BenchFlags),
    /// Run a server and its clients under faults, and check every answer.
    Soak(SoakFlags),
    /// A client of `soak`, told on standard input what to do.
    #[command(hide = true)]
    SoakClient(SoakClient),
}

/// Runs the command line and says how it went.
pub fn run() -> ExitCode {
    // clap prints help to stdout with 0, and what is wrong to stderr with 2.
    let matches = Flags::command().get_matches();
    let flags = Flags::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Command::Serve(serve) = &flags.command
        && let Some((_, given)) = matches.subcommand()
        && let Some(why) = serve.of_the_other_engine(given)
    {
        Flags::command()
            .error(ErrorKind::ArgumentConflict, why)
            .exit();
    }
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
        Command::Run(run) => crate::programs::run(&run),
        Command::Env(env) => crate::programs::env(&env, flags.json),
        Command::Devices(devices) => crate::programs::devices(&devices, flags.json),
        Command::Bench(bench) => crate::measure::run(&bench, flags.json),
        Command::Soak(soak) => crate::soak::run(&soak, flags.json),
        Command::Fs(fs) => crate::filesystem::run(&fs, flags.json),
        Command::Store(store) => crate::stores::run(&store, flags.json),
        Command::SoakClient(client) => crate::soak::run_client(&client),
    };
    conclude("vervain", done)
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

/// The exit code of a command that did what it was asked (true), was told no (false) or failed,
/// which is said on standard error.
pub fn conclude(program: &str, done: anyhow::Result<bool>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NO),
        // Whoever reads our output has had enough; that is no failure.
        Err(error) if error.chain().any(is_output_closed) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing to do about a stderr that is closed.
            let _ = writeln!(std::io::stderr(), "{program}: {}", explain(&error));
            let is_unseen = error.downcast_ref::<Unseen>().is_some();
            ExitCode::from(if is_unseen { UNSEEN } else { NO })
        }
    }
}

/// Warnings on stderr; more with -v, or as RUST_LOG says.
pub fn start_logging(verbose: u8) {
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
