//! `cargo lab death`: what others notice of a client's death. An undisturbed client asks at a steady rate
//! while others connect, stand still, go on and are killed; its latencies before and after each of these.
//! Beside them a process that is no client is killed: what that costs is the machine's doing.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`DeathRun`]: the settings, and the course of events |
//! | `load.rs` | the undisturbed client |
//! | `victim.rs` | clients that come and go, each a process |
//! | `report.rs` | [`DeathReport`]: latencies around events, as a table |

mod load;
mod report;
mod victim;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bench::cache::{Target, as_seconds};
use bench::machine::{Machine, Placement, pin_to};
use bench::process::ServerSettings;
use bench::units;
use rustix::process::Signal;
use vervain::cli::{ClientFlags, NicFlags, door, open_nic};
use vervain::measure::cache::{nic_target, start_ours};
use vervain::measure::{Progress, stop_servers_on_signals};

use self::victim::{Victim, be_modest, play_stranger, play_victim};

pub use self::report::{Around, DeathReport, Event, Kind};

/// Victims that are connected at any time, beside the one that comes or goes.
const VICTIMS: usize = 2;
/// The parts of a cycle after which things happen: far enough apart for what is looked at around
/// them.
const STARTS: f64 = 0.0;
const CONNECTS: f64 = 0.2;
const STOPS: f64 = 0.35;
const GOES_ON: f64 = 0.5;
const STRANGER_DIES: f64 = 0.65;
const DIES: f64 = 0.8;
/// The shortest part of a cycle between two events.
const APART_MIN: f64 = 0.15;
/// Before the first event.
const SETTLE: Duration = Duration::from_millis(500);

/// `cargo lab death`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Starts a server of its own, and other clients as processes. Examples:
  cargo lab death                        40 deaths, one a second
  cargo lab death --rate 200k --deaths 60 --json"
)]
pub struct DeathFlags {
    #[command(flatten)]
    run: DeathRun,
    /// The server's cores.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    cores: u16,
    #[command(flatten)]
    nic: NicFlags,
}

/// Which victim.
#[derive(clap::Args, Debug)]
pub struct VictimFlags {
    /// Is no client, and has so many bytes.
    #[arg(long, value_name = "BYTES")]
    stranger: Option<u64>,
    #[command(flatten)]
    client: ClientFlags,
}

/// The settings of a run.
#[derive(clap::Args, Clone, PartialEq, Debug, serde::Serialize)]
pub struct DeathRun {
    /// Requests a second of the undisturbed client.
    #[arg(long, value_name = "RATE", default_value = "50k", value_parser = units::rate)]
    pub rate: f64,
    /// How many items there are.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub items: u64,
    /// Requests that it may have under way to a core.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = units::window)]
    pub window: u32,
    /// How many clients die, one after the other.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub deaths: usize,
    /// From one death to the next.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    #[serde(rename = "every_seconds", serialize_with = "as_seconds")]
    pub every: Duration,
    /// How long before and after an event requests count as before and during it.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = units::duration)]
    #[serde(rename = "around_seconds", serialize_with = "as_seconds")]
    pub around: Duration,
    /// Where the undisturbed client runs.
    #[arg(skip)]
    pub cpu: Option<usize>,
    /// Repeats its requests exactly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Measures; false when somebody who lives on was answered wrongly, or not at all.
pub(crate) fn run(flags: DeathFlags, as_json: bool) -> anyhow::Result<bool> {
    let placement = Placement::split(flags.cores as usize);
    let mut run = flags.run;
    run.cpu = placement.load.last().copied();
    // What cannot be done is said before anything is started.
    run.check()?;
    stop_servers_on_signals()?;
    let server = start_ours(&ServerSettings {
        cpus: placement.server.clone(),
        cores: flags.cores as usize,
        ..ServerSettings::default()
    })?;
    // With all its CPUs, before this thread has some of them only.
    let machine = Machine::this();
    // The others have the load's CPUs and leave the server its own. CPUs that the kernel refuses make
    // the run no worse than without.
    let _pinned = placement.load.is_empty() || pin_to(&placement.load);
    let mut reach = vec!["--server".into(), server.address().to_string().into()];
    if let Some(place) = server.nic() {
        reach.extend(["--run-dir".into(), place.run_dir.clone().into()]);
    }
    if let Some(gid) = flags.nic.gid {
        reach.extend(["--gid".into(), gid.to_string().into()]);
    }
    let scene = Scene {
        target: nic_target(&server, &flags.nic)?,
        program: crate::program()?,
        reach,
    };
    let progress = Progress::new(as_json);
    let deaths = run.deaths;
    let report = run.run(machine, &scene, &mut |death| {
        progress.tell(&format!("death {death} of {deaths}"));
    });
    drop(progress);
    let report = report.context("the benchmark did not finish")?;
    bench::print::show(&report, as_json, DeathReport::write)?;
    Ok(report.is_right())
}

/// A client that is killed.
pub(crate) fn run_victim(flags: &VictimFlags) -> anyhow::Result<bool> {
    match flags.stranger {
        Some(bytes) => play_stranger(bytes)?,
        None => {
            let context = open_nic(&flags.client.nic)?.context;
            play_victim(&context, door(&flags.client))?;
        }
    }
    Ok(true)
}

/// The server of a run, and who comes and goes.
struct Scene {
    /// The undisturbed client's way to the server.
    target: Target,
    /// This program.
    program: PathBuf,
    /// The flags by which a victim reaches the server.
    reach: Vec<OsString>,
}

impl Scene {
    fn start(&self, flags: &[OsString]) -> anyhow::Result<Victim> {
        let mut command = Command::new(&self.program);
        Victim::start(command.arg("death-victim").args(flags))
    }

    fn victim(&self) -> anyhow::Result<Victim> {
        self.start(&self.reach)
    }

    /// A process that is no client, and has so many bytes.
    fn stranger(&self, bytes: u64) -> anyhow::Result<Victim> {
        self.start(&["--stranger".into(), bytes.to_string().into()])
    }
}

impl DeathRun {
    /// Runs. `progress` is told which death comes next.
    fn run(
        &self,
        machine: Machine,
        scene: &Scene,
        progress: &mut dyn FnMut(usize),
    ) -> anyhow::Result<DeathReport> {
        let length = SETTLE + self.every.mul_f64(self.deaths as f64) + SETTLE;
        let (ready, begin) = (AtomicBool::new(false), AtomicBool::new(false));
        let epoch = Instant::now();
        let (seen, events) = std::thread::scope(|scope| {
            let target = scene.target.clone();
            let load = scope.spawn(|| load::run(self, target, length, epoch, &ready, &begin));
            while !ready.load(Ordering::Acquire) && !load.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut events = Vec::new();
            let played = gather(scene).and_then(|victims| {
                begin.store(true, Ordering::Release);
                self.play(scene, victims, epoch, &mut events, progress)
            });
            // Also when there was an error, or the load would wait for ever.
            begin.store(true, Ordering::Release);
            let seen = load.join().unwrap_or_else(|panic| resume_unwind(panic));
            (seen, played.map(|()| events))
        });
        Ok(DeathReport::new(
            self,
            machine,
            &seen?,
            events?,
            epoch.elapsed(),
        ))
    }

    /// Whether the settings make sense.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.deaths > 0, "there is at least one death");
        ensure!(self.rate <= 1e7, "a rate is at most 10^7 a second");
        ensure!(self.items > 0, "there is at least one item");
        ensure!(
            !self.around.is_zero() && self.every.mul_f64(APART_MIN) >= 3 * self.around,
            "deaths are further apart: 20 times as long as what is looked at around them"
        );
        Ok(())
    }

    fn play(
        &self,
        scene: &Scene,
        mut victims: VecDeque<Victim>,
        epoch: Instant,
        events: &mut Vec<Event>,
        progress: &mut dyn FnMut(usize),
    ) -> anyhow::Result<()> {
        let began = Instant::now() + SETTLE;
        let bytes = victims.back().map_or(0, Victim::resident_bytes);
        let mut dead = None;
        // What prepares events has no claim to a CPU that others want.
        be_modest();
        for cycle in 0..self.deaths {
            progress(cycle + 1);
            let at = |part: f64| began + self.every.mul_f64(cycle as f64 + part);
            let mut event = |kind, part, act: &mut dyn FnMut() -> anyhow::Result<()>| {
                sleep_until(at(part));
                let (at_ns, began) = (epoch.elapsed().as_nanos() as u64, Instant::now());
                act()?;
                let took_ns = began.elapsed().as_nanos() as u64;
                events.push(Event {
                    kind,
                    at_ns,
                    took_ns,
                });
                // The same thread that prepares the next event.
                sleep_until(at(part) + self.around);
                anyhow::Ok(())
            };
            sleep_until(at(STARTS));
            // Waiting for the last one's process is part of cleaning up, not of its death.
            drop(dead.take());
            let mut next = scene.victim()?;
            let mut stranger = scene.stranger(bytes)?;
            let mut oldest = victims.pop_front().context("there are victims")?;
            event(Kind::Connects, CONNECTS, &mut || next.connect())?;
            event(Kind::Stops, STOPS, &mut || oldest.signal(Signal::STOP))?;
            event(Kind::GoesOn, GOES_ON, &mut || oldest.signal(Signal::CONT))?;
            event(Kind::StrangerDies, STRANGER_DIES, &mut || stranger.kill())?;
            event(Kind::Dies, DIES, &mut || oldest.kill())?;
            victims.push_back(next);
            dead = Some((oldest, stranger));
        }
        Ok(())
    }
}

/// Has the first victims connect.
fn gather(scene: &Scene) -> anyhow::Result<VecDeque<Victim>> {
    let victim = |_| {
        let mut victim = scene.victim()?;
        victim.connect()?;
        Ok(victim)
    };
    (0..VICTIMS).map(victim).collect()
}

fn sleep_until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}
