//! Measurements with servers of their own: `bench cache --serve`, `--against`, and `bench door`.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bench::cache::{CacheRun, Comparison, DoorMatrix, Limit, Pinning, Side, Target, Way};
use bench::machine::Placement;
use bench::process::{Listen, NicPlace, Server, ServerSettings, memcached, vervain};

use crate::cli::{BenchCache, BenchDoor, NicFlags, open_nic};

/// Least memory of a server of our own.
const MEMORY_MIN: usize = 256 << 20;
/// What an item may need beside its key and value, in a server of any kind.
const ITEM_OVERHEAD: usize = 96;
/// How long each part of a limit is measured.
pub(super) const LIMIT_EACH: Duration = Duration::from_millis(100);

/// What a benchmark's own servers are told.
pub(super) fn server_settings(flags: &BenchCache, placement: &Placement) -> ServerSettings {
    let item = flags.key_size + flags.value_size + ITEM_OVERHEAD;
    // Twice what the items need: indices fill unevenly, and slabs come in classes.
    let items = usize::try_from(flags.items).unwrap_or(usize::MAX);
    let needed = items.saturating_mul(item).saturating_mul(2);
    let connections = flags.connections as usize * flags.threads as usize;
    let defaults = ServerSettings::default();
    ServerSettings {
        cpus: placement.server.clone(),
        cores: flags.cores as usize,
        memory: flags.memory.unwrap_or(needed.max(MEMORY_MIN)),
        connections_max: defaults.connections_max.max(connections + 16),
        window_max: flags
            .window
            .map_or(64, |window| window.next_power_of_two().clamp(64, 1024)),
        value_len_max: defaults.value_len_max.max(flags.value_size),
    }
}

/// Ends the servers that a benchmark has started, when it is told to end itself.
pub(super) fn stop_servers_on_signals() -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM]);
    let mut signals = signals.context("cannot take signals")?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                bench::process::stop_all();
                // As shells tell of a process that a signal has ended.
                std::process::exit(128 + signal);
            }
        })
        .context("cannot start the signal thread")?;
    Ok(())
}

/// Starts `vervain serve`.
pub(super) fn start_ours(settings: &ServerSettings) -> anyhow::Result<Server> {
    let exe = std::env::current_exe().context("where this program is")?;
    Ok(vervain::start(&exe, settings)?)
}

/// The way to a server of our own, through the NIC.
pub(super) fn nic_target(server: &Server, nic: &NicFlags) -> anyhow::Result<Target> {
    let Some(NicPlace { run_dir, .. }) = server.nic() else {
        bail!("{} does not offer RDMA", server.name());
    };
    let nic = NicFlags {
        run_dir: Some(run_dir.clone()),
        ..nic.clone()
    };
    let context = open_nic(&nic)?.context;
    Ok(Target::Nic {
        context,
        door: server.address().clone(),
    })
}

/// Where the load's threads run.
pub(super) fn load_pinning(placement: &Placement) -> Pinning {
    if placement.load.is_empty() {
        Pinning::None
    } else {
        Pinning::Cpus(placement.load.clone())
    }
}

/// The limit of a run, which goes before it.
pub(super) fn limit_of(run: &CacheRun, cpus: Option<[usize; 2]>) -> anyhow::Result<Option<Limit>> {
    let tcp = match &run.target {
        // Without CPUs of their own the two sides may share one, and a limit would tell nothing.
        Target::Nic { .. } => {
            return Ok(cpus.map(|cpus| Limit::exchange(Some(cpus), LIMIT_EACH)));
        }
        Target::Socket(bench::cache::Address::Tcp(_)) => true,
        Target::Socket(bench::cache::Address::Unix(_)) => false,
    };
    let limit = Limit::socket(tcp, run.key_len, run.value_len, cpus, LIMIT_EACH);
    Ok(Some(limit.context("measuring a bare socket")?))
}

/// A line on a terminal that is written over and over.
pub(super) struct Progress {
    shown: bool,
}

impl Progress {
    pub(super) fn new(as_json: bool) -> Self {
        Progress {
            shown: std::io::stderr().is_terminal() && !as_json,
        }
    }

    pub(super) fn tell(&self, text: &str) {
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

fn has_memcached() -> anyhow::Result<()> {
    if memcached::find().is_none() {
        bail!("memcached is not installed; on Debian: apt-get install memcached");
    }
    Ok(())
}

/// `bench cache --against memcached`. `run` has everything but the target.
pub(super) fn against(
    flags: &BenchCache,
    run: impl FnOnce(Target) -> CacheRun,
    as_json: bool,
) -> anyhow::Result<bool> {
    has_memcached()?;
    let placement = Placement::split(flags.cores as usize);
    let settings = server_settings(flags, &placement);
    stop_servers_on_signals()?;
    let progress = Progress::new(as_json);
    progress.tell("starting servers");
    let ours = start_ours(&settings)?;
    let both = [Listen::Tcp, Listen::Unix].map(|listen| memcached::start(&settings, listen));
    let theirs = both.into_iter().collect::<Result<Vec<_>, _>>()?;
    let socket = |address: &bench::cache::Address| Target::Socket(address.clone());
    let our_doors = if flags.client.socket {
        let unix = ours.unix().map(socket);
        std::iter::once(socket(ours.address()))
            .chain(unix)
            .collect()
    } else {
        vec![nic_target(&ours, &flags.client.nic)?]
    };
    let comparison = Comparison {
        run: CacheRun {
            pinning: load_pinning(&placement),
            ..run(our_doors[0].clone())
        },
        rounds: flags.rounds as usize,
        ours: Side {
            name: ours.name().to_string(),
            doors: our_doors,
            ways: if flags.client.socket {
                Way::OVER_SOCKETS.to_vec()
            } else {
                Way::over_nic()
            },
        },
        theirs: Side {
            name: theirs[0].name().to_string(),
            doors: theirs
                .iter()
                .map(|server| socket(server.address()))
                .collect(),
            ways: Way::OVER_SOCKETS.to_vec(),
        },
    };
    progress.tell("the machine's limit");
    let limit = limit_of(&comparison.run, placement.ends())?;
    let report = comparison.run(&mut |what, step, steps| {
        progress.tell(&format!("{step}/{steps}  {what}"));
    });
    drop(progress);
    let mut report = report.context("the benchmark did not finish")?;
    report.limit = limit;
    let mut out = std::io::stdout().lock();
    if as_json {
        bench::print::write_json(&report, &mut out)?;
    } else {
        bench::print::write_comparison(&report, &mut out)?;
    }
    let cells = report.ours.cells.iter().chain(&report.theirs.cells);
    Ok(cells.map(|cell| cell.counts.wrong).sum::<u64>() == 0)
}

/// `bench door`.
pub(crate) fn bench_door(flags: &BenchDoor, as_json: bool) -> anyhow::Result<bool> {
    has_memcached()?;
    let placement = Placement::split(1);
    let exe = std::env::current_exe().context("where this program is")?;
    let matrix = DoorMatrix {
        items: flags.items,
        key_len: flags.key_size,
        value_len: flags.value_size,
        connections: flags.connections.clone(),
        slice: flags.each,
        rounds: flags.rounds as usize,
        seed: flags.seed,
        server_cpus: placement.server.clone(),
        load_cpu: placement.load.first().copied(),
        ..DoorMatrix::new(exe)
    };
    stop_servers_on_signals()?;
    let progress = Progress::new(as_json);
    progress.tell("starting servers");
    let report = matrix.run(&mut |step, steps| progress.tell(&format!("{step}/{steps}")));
    drop(progress);
    let report = report.context("the benchmark did not finish")?;
    let mut out = std::io::stdout().lock();
    if as_json {
        bench::print::write_json(&report, &mut out)?;
    } else {
        bench::print::write_door(&report, &mut out)?;
    }
    Ok(true)
}
