//! `vervain bench`: measurements of this machine's NIC and devices, and of servers.

pub mod cache;
pub mod store;
pub mod verbs;

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::Subcommand;

/// `vervain bench`.
#[derive(clap::Args, Debug)]
pub(crate) struct BenchFlags {
    #[command(subcommand)]
    what: BenchWhat,
}

#[derive(Subcommand, Debug)]
enum BenchWhat {
    /// The cache under YCSB's mixes.
    Cache(Box<cache::CacheFlags>),
    /// The store on flash beside its bare device.
    Store(Box<store::StoreFlags>),
    /// Microbenchmarks of RDMA verbs, between two processes.
    Verbs(Box<verbs::VerbsFlags>),
    /// The second process of `bench verbs`, told on standard input what to do.
    #[command(hide = true)]
    VerbsPeer(verbs::PeerFlags),
}

/// Measures; false when an answer was wrong.
pub(crate) fn run(flags: &BenchFlags, as_json: bool) -> anyhow::Result<bool> {
    match &flags.what {
        BenchWhat::Cache(cache) => cache::run(cache, as_json),
        BenchWhat::Store(store) => store::run(store, as_json),
        BenchWhat::Verbs(verbs) => verbs::run(verbs, as_json),
        BenchWhat::VerbsPeer(peer) => verbs::run_peer(peer),
    }
}

/// Ends the servers that a benchmark has started, when it is told to end itself.
///
/// # Errors
/// The kernel refuses.
pub fn stop_servers_on_signals() -> anyhow::Result<()> {
    end_on_signals(Arc::new(AtomicBool::new(true)))
}

/// The first signal sets the flag; one that finds it set ends this process and all servers that it has
/// started.
pub(crate) fn end_on_signals(told: Arc<AtomicBool>) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM]);
    let mut signals = signals.context("cannot take signals")?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                if told.swap(true, Ordering::AcqRel) {
                    bench::process::stop_all();
                    // As shells tell of a process that a signal has ended.
                    std::process::exit(128 + signal);
                }
            }
        })
        .context("cannot start the signal thread")?;
    Ok(())
}

/// A line on a terminal that is written over and over.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// Shown on a terminal, unless JSON is asked for.
    pub fn new(as_json: bool) -> Self {
        Progress {
            shown: std::io::stderr().is_terminal() && !as_json,
        }
    }

    /// Writes the line again.
    pub fn tell(&self, text: &str) {
        if self.shown {
            // Nothing to do about a stderr that is closed.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.tell("");
    }
}
