//! `vervain bench cache`.

use std::time::Duration;

use ::cache::herd::client::ConnectError;
use anyhow::{Context as _, anyhow, bail};
use bench::cache::{Arrival, CacheRun, Length, Limit, LoadSweep, Pinning, Rates, RunError, Target};
use bench::machine::Placement;
use bench::print::{show, write_loads, write_table};
use bench::process::{NicAddress, Server, ServerSettings, vervain};
use bench::units;
use clap::Args;
use clap::error::ErrorKind;

use super::{Progress, stop_servers_on_signals};
use crate::cli::{ClientFlags, NicFlags, door, open_nic};

/// Least memory of a server of our own.
const MEMORY_MIN: usize = 256 << 20;
/// What an item may need beside its key and value, in a server of any kind.
const ITEM_OVERHEAD: usize = 96;
/// How long each part of a limit is measured.
const LIMIT_EACH: Duration = Duration::from_millis(100);

/// `vervain bench cache`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  vervain bench cache --serve                  95 % reads of a million small items, over RDMA
  vervain bench cache --serve --socket --window 32 --connections 50
  vervain bench cache --serve --rate auto      latency at nine loads
  vervain bench cache --mix a --distribution zipf --value-size 1K --threads 2
                                               a server that runs already
  vervain bench cache --socket --server 127.0.0.1:11311    any memcached")]
pub struct CacheFlags {
    /// Start a server for the run, on the first CPUs; the load has the others.
    #[arg(long, conflicts_with_all = ["server", "unix", "no_preload", "pin"],
          help_heading = "Own servers")]
    serve: bool,
    /// Cores of an own server.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Own servers",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    cores: u32,
    /// Memory of an own server [default: twice what the items need].
    #[arg(long, value_name = "SIZE", value_parser = units::size, help_heading = "Own servers")]
    memory: Option<usize>,
    /// What is asked for.
    #[command(flatten)]
    run: CacheRun,
    /// Requests under way: to each server core over RDMA (a power of two), on each connection over
    /// a socket [default: 16, or as many as a multiget has keys].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    window: Option<u32>,
    /// Requests a second that are due whatever the server does, `auto` for 10 to 90 % of what a
    /// closed loop reaches, or several: 100k,1M. Latency counts from when a request is due.
    #[arg(long, alias = "rates", value_name = "R,R", value_parser = units::rates)]
    rate: Option<Rates>,
    /// How requests at a rate are spread over time.
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Arrival::Poisson)]
    arrival: Arrival,
    /// Pin client threads to the last CPUs; `serve --pin` takes the first.
    #[arg(long)]
    pin: bool,
    /// How long to measure [default: 5s; 2s each at a rate].
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    length: Option<Duration>,
    /// Measure so many requests instead.
    #[arg(long, value_name = "N", conflicts_with = "length")]
    operations: Option<u64>,
    /// How long to run before measuring [default: 1s; .2s each at a rate].
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    warm_up: Option<Duration>,
    /// Take the items that are there, instead of storing all of them first.
    #[arg(long)]
    no_preload: bool,
    /// Which server, and by which way.
    #[command(flatten)]
    client: ClientFlags,
}

fn target(flags: &ClientFlags) -> anyhow::Result<Target> {
    let door = door(flags);
    if flags.socket {
        return Ok(Target::Socket(door));
    }
    let context = open_nic(&flags.nic)?.context;
    Ok(Target::Nic { context, door })
}

impl CacheFlags {
    /// The run, when nothing else is said of `length` and `warm_up`.
    fn run(&self, target: Target, length: Duration, warm_up: Duration) -> CacheRun {
        CacheRun {
            target,
            window: self.window.unwrap_or(self.run.multiget.max(16) as u32),
            pinning: if self.pin {
                Pinning::Last
            } else {
                Pinning::None
            },
            length: match self.operations {
                Some(count) => Length::Operations(count),
                None => Length::Time(self.length.unwrap_or(length)),
            },
            warm_up: Length::Time(self.warm_up.unwrap_or(warm_up)),
            preload: !self.no_preload,
            timeout: self.client.timeout,
            ..self.run.clone()
        }
    }
}

/// Runs the benchmark; false when a value was wrong.
pub(super) fn run(flags: &CacheFlags, as_json: bool) -> anyhow::Result<bool> {
    let (length, warm_up) = match flags.rate {
        Some(_) => (Duration::from_secs(2), Duration::from_millis(200)),
        None => (Duration::from_secs(5), Duration::from_secs(1)),
    };
    let settings = |target| flags.run(target, length, warm_up);
    // What makes no sense is said before anything is started.
    if let Err(error) = settings(flags.run.target.clone()).check(!flags.client.socket) {
        let command = CacheFlags::augment_args(clap::Command::new("vervain bench cache"));
        let mut command = command.bin_name("vervain bench cache");
        command.error(ErrorKind::ValueValidation, error).exit();
    }
    if flags.serve {
        let placement = Placement::split(flags.cores as usize);
        stop_servers_on_signals()?;
        let server = start_ours(&server_settings(flags, &placement))?;
        let target = if flags.client.socket {
            Target::Socket(server.address().clone())
        } else {
            nic_target(&server, &flags.client.nic)?
        };
        let run = CacheRun {
            pinning: load_pinning(&placement),
            ..settings(target)
        };
        return measure(flags, run, placement.ends(), as_json);
    }
    let run = settings(target(&flags.client)?);
    let ends = Placement::split(1);
    let ends = match (ends.load.last(), ends.server.first()) {
        (Some(&load), Some(&server)) if flags.pin => Some([load, server]),
        _ => None,
    };
    measure(flags, run, ends, as_json)
}

/// Runs and reports, beside the limit of the load's CPU and the server's.
fn measure(
    flags: &CacheFlags,
    run: CacheRun,
    cpus: Option<[usize; 2]>,
    as_json: bool,
) -> anyhow::Result<bool> {
    let progress = Progress::new(as_json);
    let door = run.target.door().to_string();
    let explain = |error| match error {
        RunError::Io(error) | RunError::Connect(ConnectError::Io(error))
            if error.kind() == std::io::ErrorKind::ConnectionRefused =>
        {
            anyhow!("nobody answers on {door}; is `vervain serve` running? (--serve starts one)")
        }
        error => anyhow::Error::new(error).context("the benchmark did not finish"),
    };
    if let Some(rates) = &flags.rate {
        let sweep = LoadSweep {
            rates: rates.clone(),
            arrival: flags.arrival,
            run,
        };
        let tell = &mut |what: &str, step: usize, steps: usize| {
            progress.tell(&format!("{step}/{steps}  {what}"));
        };
        let mut report = sweep.run(tell).map_err(explain)?;
        progress.tell("the machine's limit");
        report.limit = limit_of(&sweep.run, cpus)?;
        drop(progress);
        show(&report, as_json, write_loads)?;
        return Ok(report.loads.iter().all(|load| load.counts.wrong == 0));
    }
    let report = run.run(&mut |stored, items| {
        let percent = stored * 100 / items.max(1);
        if stored == items {
            progress.tell("measuring");
        } else {
            progress.tell(&format!("storing items: {percent} %"));
        }
    });
    let mut report = report.map_err(explain)?;
    progress.tell("the machine's limit");
    report.limit = limit_of(&run, cpus)?;
    drop(progress);
    show(&report, as_json, write_table)?;
    Ok(report.counts.wrong == 0)
}

/// What a benchmark's own servers are told.
fn server_settings(flags: &CacheFlags, placement: &Placement) -> ServerSettings {
    let item = flags.run.key_len + flags.run.value_len + ITEM_OVERHEAD;
    // Twice what the items need: indices fill unevenly, and slabs come in classes.
    let items = usize::try_from(flags.run.items).unwrap_or(usize::MAX);
    let needed = items.saturating_mul(item).saturating_mul(2);
    let connections = flags.run.connections * flags.run.threads;
    let defaults = ServerSettings::default();
    ServerSettings {
        cpus: placement.server.clone(),
        cores: flags.cores as usize,
        memory: flags.memory.unwrap_or(needed.max(MEMORY_MIN)),
        connections_max: defaults.connections_max.max(connections + 16),
        window_max: flags
            .window
            .map_or(64, |window| window.next_power_of_two().clamp(64, 1024)),
        value_len_max: defaults.value_len_max.max(flags.run.value_len),
    }
}

/// Starts `vervain serve`.
///
/// # Errors
/// It does not start.
pub fn start_ours(settings: &ServerSettings) -> anyhow::Result<Server> {
    let exe = std::env::current_exe().context("where this program is")?;
    Ok(vervain::start(&exe, settings)?)
}

/// The way to a server of our own, through the NIC.
///
/// # Errors
/// The NIC cannot be opened.
pub fn nic_target(server: &Server, nic: &NicFlags) -> anyhow::Result<Target> {
    let Some(NicAddress { run_dir, .. }) = server.nic() else {
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
fn load_pinning(placement: &Placement) -> Pinning {
    if placement.load.is_empty() {
        Pinning::None
    } else {
        Pinning::Cpus(placement.load.clone())
    }
}

/// The limit of a run.
fn limit_of(run: &CacheRun, cpus: Option<[usize; 2]>) -> anyhow::Result<Option<Limit>> {
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
