//! `vervain soak`: a server and its clients under faults, every answer checked.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | a run, from its start to its summary |
//! | `model/` | what a correct cache may answer |
//! | `mix.rs` | what clients ask |
//! | `drive/` | one client: its process, its questions, and its answers beside the model |
//! | `client/` | the client process, which knows nothing of the model; so it may be killed |
//! | `wire.rs` | what the two say to each other |
//! | `faults.rs`, `inject.rs`, `hostile.rs` | faults: their order, the doing, and clients that nobody wants |
//! | `flush.rs`, `clock.rs` | faults that the model knows of: all is forgotten, the clock is set |
//! | `keeper.rs` | the server: killed, stopped, measured, looked after for leaks |
//! | `world.rs` | what all threads share |
//! | `watch.rs`, `tally.rs`, `summary.rs` | progress, counts, and what is told |

mod client;
mod clock;
mod drive;
mod faults;
mod flush;
mod hostile;
mod inject;
mod keeper;
mod mix;
mod model;
mod summary;
mod tally;
mod watch;
mod wire;
mod world;

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bench::process::ServerSettings;
use cache::herd::client::Address;

use self::drive::{Driver, Start};
use self::faults::Fault;
use self::inject::{Injector, Plan};
use self::keeper::Keeper;
use self::summary::Summary;
use self::watch::{Watch, total, wait_for};
use self::world::{ClientSlot, Failure, Phase, World, lock};
use crate::cli::SoakFlags;
use crate::client::SocketClient;

pub(crate) use self::client::run as run_client;
pub(crate) use self::faults::Faults;
pub(crate) use self::world::Door;

/// The most messages of a million that a NIC loses, doubles or delays.
const LOSS_PPM_MAX: u32 = 20_000;
/// How long a thread may take to end. One that takes longer waits for a process that hangs.
const END_MAX: Duration = Duration::from_secs(90);

/// Runs a soak; whether all was well.
pub(crate) fn run(flags: &SoakFlags, as_json: bool) -> anyhow::Result<bool> {
    let seed = flags.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    // The first signal ends the run with its summary, the second one at once.
    let interrupted = Arc::new(AtomicBool::new(false));
    crate::measure::end_on_signals(Arc::clone(&interrupted))?;
    let dir = tempfile::Builder::new()
        .prefix("vervain-soak-")
        .tempdir()
        .context("a directory for the run")?;
    let mut run = Run::start(flags, seed, dir.path())?;
    if !as_json {
        let mut out = std::io::stderr().lock();
        // Nothing to do about a stderr that is closed.
        let _ = writeln!(
            out,
            "seed {seed}; {} clients, faults {}; logs in {} until the end. Ctrl-C ends it.",
            flags.clients,
            run.faults,
            dir.path().display()
        );
    }
    let held_up = Watch {
        world: &run.world,
        keeper: run.keeper.as_ref(),
        interrupted: &interrupted,
        faults: &run.faults,
        until: flags.until,
        quiet: as_json,
    }
    .run(flags.length);
    run.end();
    let tally = total(&run.world);
    if let Err(failure) = tally.enough_judged() {
        run.world.fail(failure);
    }
    let failure = run.world.failure();
    // Logs of a run that went well are of no use.
    let kept = (failure.is_some() || flags.keep).then(|| dir.keep());
    let peak = run.keeper.as_ref().map(|keeper| lock(keeper).peak);
    let summary = Summary {
        seed,
        command: command(flags, seed),
        took: run.world.began.elapsed(),
        interrupted: interrupted.load(Ordering::Acquire),
        held_up,
        clients: run.world.slots.len(),
        tally,
        faults: run.world.faults(),
        servers: run.keeper.as_ref().map_or(0, |keeper| lock(keeper).starts),
        peak,
        failure,
        logs: kept.as_deref(),
    };
    let mut out = bench::print::output();
    if as_json {
        writeln!(out, "{}", summary.json())?;
    } else {
        write!(out, "{}", summary.text())?;
        out.flush()?;
        if let Some(complaint) = summary.complaint() {
            // Nothing to do about a stderr that is closed.
            let _ = write!(std::io::stderr(), "vervain: {complaint}");
        } else if let Some(logs) = &kept {
            writeln!(out, "{:<28}{}", "logs", logs.display())?;
        }
    }
    Ok(summary.failure.is_none())
}

/// The doors that clients come through, in turns.
fn doors(flags: &SoakFlags) -> anyhow::Result<Vec<Door>> {
    // Where a server of somebody else's has its Unix socket, nobody knows but who tells it.
    let has_unix = flags.server.is_none() || flags.unix.is_some();
    let wanted = flags.over.clone().unwrap_or_else(|| {
        let mut all = vec![Door::Herd, Door::Tcp];
        all.extend(has_unix.then_some(Door::Unix));
        all
    });
    ensure!(!wanted.is_empty(), "--over names no door");
    ensure!(
        has_unix || !wanted.contains(&Door::Unix),
        "--over unix needs the path of the server's Unix socket: --unix PATH"
    );
    Ok(wanted)
}

/// The command that runs this again.
fn command(flags: &SoakFlags, seed: u64) -> String {
    let arguments = std::env::args().skip(1).map(|argument| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/".contains(c);
        if !argument.is_empty() && argument.chars().all(plain) {
            argument
        } else {
            format!("'{}'", argument.replace('\'', r"'\''"))
        }
    });
    let mut command = format!("vervain {}", arguments.collect::<Vec<_>>().join(" "));
    if flags.seed.is_none() {
        command += &format!(" --seed {seed}");
    }
    command
}

/// A run's threads and processes.
struct Run {
    world: Arc<World>,
    /// Nothing when the server is somebody else's.
    keeper: Option<Arc<Mutex<Keeper>>>,
    faults: Faults,
    drivers: Vec<JoinHandle<()>>,
    injector: Option<JoinHandle<()>>,
}

impl Run {
    fn start(flags: &SoakFlags, seed: u64, dir: &Path) -> anyhow::Result<Self> {
        let mut random = fastrand::Rng::with_seed(seed);
        let doors = doors(flags)?;
        let slots = (0..flags.clients as usize)
            .map(|number| ClientSlot::new(number, doors[number % doors.len()]))
            .collect();
        let world = World::new(dir.to_path_buf(), slots).context("cannot write the log")?;
        let world = Arc::new(world);
        let exe = std::env::current_exe().context("where this program is")?;
        let foreign = flags.server.is_some();
        let faults = if foreign {
            flags.faults.clone().of_foreign_server()
        } else {
            flags.faults.clone()
        };
        let loss_ppm_max = if faults.has(Fault::Loss) {
            LOSS_PPM_MAX
        } else {
            0
        };
        let (keeper, listen, unix, run_dir) = match flags.server {
            Some(server) => {
                // Who never was there is no hang.
                SocketClient::connect(&keeper::client_flags(server))?;
                let run_dir = crate::cli::run_dir(flags.run_dir.as_deref());
                (None, server, flags.unix.clone(), run_dir)
            }
            None => {
                let settings = ServerSettings {
                    cores: flags.cores as usize,
                    memory: flags.memory,
                    ..ServerSettings::default()
                };
                let dir = dir.join("server");
                let fork = random.fork();
                let keeper = Keeper::start(&exe, settings, dir, loss_ppm_max, fork, &world)?;
                let (listen, home) = (keeper.listen(), keeper.home().clone());
                let keeper = Arc::new(Mutex::new(keeper));
                (Some(keeper), listen, Some(home.unix()), home.run_dir())
            }
        };
        let plan = Plan {
            faults: faults.clone(),
            every: flags.every,
            doors: [Some(Address::Tcp(listen)), unix.clone().map(Address::Unix)]
                .into_iter()
                .flatten()
                .collect(),
            memory: flags.memory,
        };
        let start = Arc::new(Start {
            exe,
            listen,
            unix,
            run_dir,
            loss_ppm_max,
        });
        let mut run = Run {
            world,
            keeper,
            faults,
            drivers: Vec::new(),
            injector: None,
        };
        // The server's start is nobody's stall.
        run.world.set_phase(Phase::Busy);
        for number in 0..run.world.slots.len() {
            let driver = Driver::new(&run.world, &start, number, random.u64(..));
            let thread = std::thread::Builder::new().name(format!("client-{number}"));
            let thread = thread.spawn(move || driver.run());
            run.drivers.push(thread.context("cannot start a thread")?);
        }
        let injector = Injector {
            world: Arc::clone(&run.world),
            keeper: run.keeper.clone(),
            plan,
            random,
            hostile: Vec::new(),
        };
        let thread = std::thread::Builder::new().name("faults".into());
        let thread = thread.spawn(move || injector.run());
        run.injector = Some(thread.context("cannot start a thread")?);
        Ok(run)
    }

    /// Ends all threads and processes, and looks for leaks when nothing went wrong before.
    fn end(&mut self) {
        let world = Arc::clone(&self.world);
        // A fault goes to its end before clients look at everything once more.
        world.stop();
        for thread in self
            .injector
            .take()
            .into_iter()
            .chain(self.drivers.drain(..))
        {
            if !wait_for(&thread, END_MAX) {
                let name = thread.thread().name().unwrap_or("a thread").to_string();
                world.fail(Failure::Hang(format!("{name} does not come to its end")));
                // Whoever waits for a process does not any more.
                for slot in &world.slots {
                    slot.kill();
                }
            }
            world.join(thread);
        }
        let Some(keeper) = &self.keeper else { return };
        let mut keeper = lock(keeper);
        if world.failure().is_none()
            && let Err(failure) = keeper.check_leaks()
        {
            world.fail(failure);
        }
        if let Err(error) = keeper.end() {
            world.fail(Failure::Ended(crate::cli::explain(&error)));
        }
    }
}
