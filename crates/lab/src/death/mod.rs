//! What others notice of a client's death: an undisturbed client asks at a steady rate while
//! others connect, stand still, go on and are killed; its latencies before and after each of these.
//! Beside them a process that is no client is killed: what that costs is the machine's doing.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`DeathRun`]: the settings, and the course of events |
//! | `load.rs` | the undisturbed client |
//! | `victim.rs` | clients that come and go, each a process |
//! | `report.rs` | [`DeathReport`]: latencies around events |
//! | `show.rs` | the same as a table and as pictures |

pub mod command;
mod load;
mod report;
mod show;
mod victim;

use std::collections::VecDeque;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use verbs::typed::Context;

use self::load::LoadSettings;
use self::victim::{Victim, be_modest};
use bench::cache::{Address, as_seconds};
use bench::units;

pub use self::report::{Around, DeathReport, Event, Kind, Quantiles};
pub use self::show::{death_plots, write_death};
pub use self::victim::{play_stranger, play_victim};

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

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeathError {
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(&'static str),
    /// A victim's process.
    #[error("a client that is to be killed: {0}")]
    Victim(std::io::Error),
    /// The server cannot be reached.
    #[error(transparent)]
    Connect(#[from] ::cache::herd::client::ConnectError),
    /// The NIC refused.
    #[error(transparent)]
    Nic(#[from] verbs::VerbsError),
    /// The server takes no such request.
    #[error("the server takes no such request: {0}")]
    Submit(#[from] ::cache::herd::SubmitError),
    /// The undisturbed client panicked.
    #[error("the undisturbed client panicked")]
    Panicked,
}

/// The settings of a run.
#[derive(clap::Args, Clone, PartialEq, Debug, serde::Serialize)]
#[command(
    after_help = "Starts a server of its own, and other clients as processes. Examples:
  cargo lab death                        40 deaths, one a second
  cargo lab death --out pictures         the figures as JSON, and two plots
  cargo lab death --rate 200k --deaths 60 --json"
)]
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

/// The server of a run.
pub struct Scene<'a> {
    /// The undisturbed client's NIC.
    pub context: &'a Context,
    /// The server's door.
    pub door: Address,
    /// Its process, to see how long it waits for a CPU.
    pub server: u32,
    /// What starts a victim: a process that calls [`play_victim`].
    pub victim: &'a dyn Fn() -> Command,
    /// What starts a process that is no client, and has so many bytes: one that calls
    /// [`play_stranger`].
    pub stranger: &'a dyn Fn(u64) -> Command,
}

impl DeathRun {
    /// Runs. `progress` is told which death of how many comes next.
    ///
    /// # Errors
    /// Settings that make no sense, a server that cannot be reached, victims that do not start.
    pub fn run(
        &self,
        scene: &Scene<'_>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<DeathReport, DeathError> {
        self.check()?;
        let length = SETTLE + self.every.mul_f64(self.deaths as f64) + SETTLE;
        let settings = LoadSettings {
            door: scene.door.clone(),
            rate: self.rate,
            items: self.items,
            window: self.window,
            length,
            seed: self.seed,
            cpu: self.cpu,
        };
        let (ready, begin) = (AtomicBool::new(false), AtomicBool::new(false));
        let epoch = Instant::now();
        let (seen, happened) = std::thread::scope(|scope| {
            let load = scope.spawn(|| load::run(scene.context, &settings, epoch, &ready, &begin));
            while !ready.load(Ordering::Acquire) && !load.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut stage = Stage {
                run: self,
                scene,
                epoch,
                victims: VecDeque::new(),
                bytes: 0,
                events: Vec::new(),
                waits: Vec::new(),
            };
            let happened = stage.gather().and_then(|()| {
                begin.store(true, Ordering::Release);
                stage.play(progress)
            });
            // Also when there was an error, or the load would wait for ever.
            begin.store(true, Ordering::Release);
            let seen = load.join().unwrap_or(Err(DeathError::Panicked));
            (seen, happened.map(|()| (stage.events, stage.waits)))
        });
        let (events, waits) = happened?;
        Ok(DeathReport::new(
            self,
            &seen?,
            events,
            &waits,
            epoch.elapsed(),
        ))
    }

    /// Whether the settings make sense: [`DeathRun::run`] asks too.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), DeathError> {
        if self.deaths == 0 {
            return Err(DeathError::Setting("there is at least one death"));
        }
        if !(self.rate >= 1.0 && self.rate <= 1e7) {
            return Err(DeathError::Setting(
                "a rate lies between 1 and 10^7 a second",
            ));
        }
        if self.items == 0 {
            return Err(DeathError::Setting("there is at least one item"));
        }
        if self.around.is_zero() || self.every.mul_f64(APART_MIN) < 3 * self.around {
            return Err(DeathError::Setting(
                "deaths are further apart: 20 times as long as what is looked at around them",
            ));
        }
        Ok(())
    }
}

/// Where victims come and go.
struct Stage<'a> {
    run: &'a DeathRun,
    scene: &'a Scene<'a>,
    epoch: Instant,
    victims: VecDeque<Victim>,
    /// What a connected victim has of memory.
    bytes: u64,
    events: Vec<Event>,
    /// How long the server had waited for a CPU, and when that was asked.
    waits: Vec<(u64, u64)>,
}

impl Stage<'_> {
    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn start(&self) -> Result<Victim, DeathError> {
        Victim::start(&mut (self.scene.victim)())
    }

    /// Has the first victims connect.
    fn gather(&mut self) -> Result<(), DeathError> {
        for _ in 0..VICTIMS {
            let mut victim = self.start()?;
            victim.connect()?;
            self.bytes = victim.resident_bytes();
            self.victims.push_back(victim);
        }
        Ok(())
    }

    fn play(&mut self, progress: &mut dyn FnMut(usize, usize)) -> Result<(), DeathError> {
        let began = Instant::now() + SETTLE;
        let mut dead = None;
        // What prepares events has no claim to a CPU that others want.
        be_modest();
        for cycle in 0..self.run.deaths {
            progress(cycle + 1, self.run.deaths);
            let at = |part: f64| began + self.run.every.mul_f64(cycle as f64 + part);
            sleep_until(at(STARTS));
            // Waiting for the last one's process is part of cleaning up, not of its death.
            drop(dead.take());
            let mut next = self.start()?;
            let mut stranger = Victim::start(&mut (self.scene.stranger)(self.bytes))?;
            self.event(Kind::Connects, at(CONNECTS), |_| next.connect())?;
            self.victims.push_back(next);
            self.event(Kind::Stops, at(STOPS), |stage| stage.signal(Signal::STOP))?;
            self.event(Kind::GoesOn, at(GOES_ON), |stage| {
                stage.signal(Signal::CONT)
            })?;
            self.event(Kind::StrangerDies, at(STRANGER_DIES), |_| stranger.kill())?;
            let mut oldest = self.victims.pop_front();
            self.event(Kind::Dies, at(DIES), |_| {
                oldest.as_mut().map_or(Ok(()), Victim::kill)
            })?;
            dead = Some((oldest, stranger));
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<(), DeathError> {
        self.victims
            .front()
            .map_or(Ok(()), |victim| victim.signal(signal))
    }

    /// Has something happen at a time, and notes when it did and how long the server waits for its
    /// CPU before and after that.
    fn event(
        &mut self,
        kind: Kind,
        at: Instant,
        act: impl FnOnce(&Self) -> Result<(), DeathError>,
    ) -> Result<(), DeathError> {
        let around = self.run.around;
        sleep_until(at - around);
        self.note_wait();
        sleep_until(at);
        self.note_wait();
        let at_ns = self.now_ns();
        act(self)?;
        let took_ns = self.now_ns() - at_ns;
        self.events.push(Event {
            kind,
            at_ns,
            took_ns,
        });
        sleep_until(at + around);
        self.note_wait();
        Ok(())
    }

    fn note_wait(&mut self) {
        if let Some(waited_ns) = waited_for_cpu_of_ns(self.scene.server) {
            self.waits.push((self.now_ns(), waited_ns));
        }
    }
}

fn sleep_until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}

/// How long the threads of a process have been ready while others had the CPUs.
fn waited_for_cpu_of_ns(pid: u32) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let waited = |path: std::path::PathBuf| -> Option<u64> {
        let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    };
    Some(tasks.flatten().filter_map(|task| waited(task.path())).sum())
}
