//! Our server beside memcached.
//!
//! | file | what |
//! | --- | --- |
//! | `ways.rs` | [`Comparison`]: two servers in turn, each at its best |
//! | `door.rs` | [`DoorMatrix`]: our socket door beside memcached's |
//! | `show.rs` | these as tables |

pub mod door;
pub mod show;
pub mod ways;

use std::time::Duration;

use anyhow::{Context as _, bail};
use bench::cache::{CacheRun, Target};
use bench::machine::Placement;
use bench::process::Listen;
use vervain::measure::cache::{
    CacheFlags, limit_of, load_pinning, nic_target, server_settings, start_ours,
};
use vervain::measure::{Progress, stop_servers_on_signals};

use self::door::DoorMatrix;
use self::show::{write_comparison, write_door};
use self::ways::{Comparison, Side, Way};
use crate::memcached;
use bench::print;

/// How long each of the many measurements takes, and how long it runs before.
const EACH: Duration = Duration::from_millis(500);
const WARM_UP: Duration = Duration::from_millis(100);

/// `cargo lab cache`: both servers in turn, each with several ways of sending requests: over RDMA
/// windows of 1 to 64, over sockets one at a time, pipelined and multiget.
#[derive(clap::Args, Debug)]
#[command(mut_args(|arg| if ["server", "unix", "no_preload", "pin", "window", "multiget", "serve", "rate"]
    .contains(&arg.get_id().as_str()) { arg.hide(true) } else { arg }))]
pub struct AgainstFlags {
    /// How often each side has its turn; figures are medians.
    #[arg(long, value_name = "N", default_value = "3",
          value_parser = bench::units::count::<1, 1000>)]
    rounds: usize,
    #[command(flatten)]
    cache: CacheFlags,
}

fn has_memcached() -> anyhow::Result<()> {
    if memcached::find().is_none() {
        bail!("memcached is not installed; on Debian: apt-get install memcached");
    }
    Ok(())
}

/// Measures both in turn.
pub(crate) fn against(against: &AgainstFlags, as_json: bool) -> anyhow::Result<bool> {
    let AgainstFlags {
        rounds,
        cache: flags,
    } = against;
    has_memcached()?;
    let rounds = *rounds;
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
            ..flags.run(our_doors[0].clone(), EACH, WARM_UP)
        },
        rounds,
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
    print::show(&report, as_json, write_comparison)?;
    let cells = report.ours.cells.iter().chain(&report.theirs.cells);
    Ok(cells.map(|cell| cell.counts.wrong).sum::<u64>() == 0)
}

/// Measures every cell on both.
pub(crate) fn door(mut matrix: DoorMatrix, as_json: bool) -> anyhow::Result<bool> {
    has_memcached()?;
    let placement = Placement::split(1);
    matrix.server_cpus.clone_from(&placement.server);
    matrix.load_cpu = placement.load.first().copied();
    stop_servers_on_signals()?;
    let progress = Progress::new(as_json);
    progress.tell("starting servers");
    let report = matrix.run(&mut |step, steps| progress.tell(&format!("{step}/{steps}")));
    drop(progress);
    let report = report.context("the benchmark did not finish")?;
    print::show(&report, as_json, write_door)?;
    Ok(true)
}
