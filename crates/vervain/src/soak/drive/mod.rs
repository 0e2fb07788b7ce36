//! One client: its process, what it is asked, and whether what it tells is right.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | asking, batch by batch, and counting |
//! | `process.rs` | the process: started, asked, and waited for |
//! | `check.rs` | what came beside what may be |

mod check;
mod process;

use std::io::BufReader;
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;

use super::faults::Fault;
use super::mix::{Mix, Question};
use super::model::{Answer, Moment, Span};
use super::wire::{Kind, Outcome};
use super::world::{ClientSlot, Failure, Phase, World, lock, unix_s};

/// How far into a large PUT a client leaves at most.
const LEAVE_US_MAX: u64 = 4000;

/// So long without an answer is worth a line in the log.
const LONG_NS: u64 = 1_500_000_000;

/// How clients are started.
pub(super) struct Start {
    pub(super) exe: std::path::PathBuf,
    pub(super) listen: std::net::SocketAddr,
    pub(super) unix: Option<std::path::PathBuf>,
    pub(super) run_dir: std::path::PathBuf,
    /// The most messages of a million that a client's NIC may lose; 0 for none.
    pub(super) loss_ppm_max: u32,
}

struct Pipes {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// A client.
pub(super) struct Driver {
    world: Arc<World>,
    start: Arc<Start>,
    number: usize,
    random: fastrand::Rng,
    mix: Mix,
    pipes: Option<Pipes>,
    /// Connections of processes that have ended, and of this one.
    connects: (u64, u64),
    /// What happened to the server that the models of own keys know of.
    upsets: usize,
}

impl Driver {
    pub(super) fn new(world: &Arc<World>, start: &Arc<Start>, number: usize, seed: u64) -> Self {
        let shared = Arc::clone(world);
        let shared_key = move |number: usize| lock(&shared.shared).slots[number].key.clone();
        let shared = Arc::clone(world);
        let date = move || shared.wall.unix_s();
        let mut random = fastrand::Rng::with_seed(seed);
        let door = world.slots[number].door;
        Driver {
            mix: Mix::new(
                number,
                door,
                random.u64(..),
                Box::new(shared_key),
                Box::new(date),
            ),
            world: Arc::clone(world),
            start: Arc::clone(start),
            number,
            random,
            pipes: None,
            connects: (0, 0),
            upsets: 0,
        }
    }

    fn slot(&self) -> &ClientSlot {
        &self.world.slots[self.number]
    }

    /// Asks until the run ends, and looks at everything once more then.
    pub(super) fn run(mut self) {
        if let Err(error) = self.ask_on() {
            let who = self.slot().name();
            let error = crate::cli::explain(&error);
            self.world.fail(Failure::Ended(format!("{who}: {error}")));
        }
        self.end();
    }

    fn ask_on(&mut self) -> anyhow::Result<()> {
        while !self.world.is_stopping() {
            match self.world.phase() {
                Phase::Busy => {}
                Phase::Idle => {
                    self.world.wait();
                    continue;
                }
                Phase::Away => {
                    self.end();
                    self.world.wait();
                    continue;
                }
            }
            let made_up = self.world.now();
            let batch = if self.slot().leave.swap(false, Ordering::AcqRel) {
                self.kill_soon()?;
                self.mix.large_put()
            } else {
                self.mix.batch()
            };
            self.put(batch, made_up)?;
        }
        let made_up = self.world.now();
        let all = self.mix.look_at_all();
        self.put(all, made_up)
    }

    /// Kills the process a moment later, when it is in the middle of something.
    fn kill_soon(&mut self) -> anyhow::Result<()> {
        self.pipes()?;
        self.world.count(Fault::Leave);
        let (world, number) = (Arc::clone(&self.world), self.number);
        let after = Duration::from_micros(self.random.u64(..LEAVE_US_MAX));
        std::thread::Builder::new()
            .name("leave".into())
            .spawn(move || {
                std::thread::sleep(after);
                world.slots[number].kill();
            })
            .context("starting a thread")?;
        Ok(())
    }

    /// Asks a batch that was made up at some moment, and checks its answers.
    fn put(&mut self, batch: Vec<Question>, made_up: Moment) -> anyhow::Result<()> {
        self.pipes()?;
        let requests: Vec<_> = batch.iter().map(|one| one.request.clone()).collect();
        let (from, from_s) = (self.world.asks(self.number), unix_s());
        let came = self.exchange(&requests);
        let span = Span {
            from,
            to: self.world.now(),
            from_s,
            to_s: unix_s(),
            ahead_s_min: self.world.wall.ahead_s_min(made_up),
        };
        let outcomes = match came {
            Ok(Some(told)) if told.outcomes.len() == batch.len() => {
                self.connects.1 = told.connects;
                told.outcomes
            }
            Ok(Some(_)) => anyhow::bail!("the client process tells of another batch"),
            Ok(None) | Err(_) => {
                self.reap(came.err())?;
                vec![Outcome::Unknown; batch.len()]
            }
        };
        self.count(&batch, &outcomes, span);
        if let Err(wrong) = self.check(&batch, &outcomes, span) {
            self.world.fail(Failure::Wrong(wrong));
            self.world.stop();
        }
        let tally = &self.world.slots[self.number].tally;
        self.mix.renew(&mut lock(tally));
        Ok(())
    }

    fn count(&self, batch: &[Question], outcomes: &[Outcome], span: Span) {
        let slot = self.slot();
        let mut tally = lock(&slot.tally);
        let mut answered = false;
        for (one, outcome) in batch.iter().zip(outcomes) {
            tally.asked[one.request.kind as usize] += 1;
            match outcome {
                Outcome::Unknown => tally.unknown += 1,
                Outcome::NotSent => tally.not_sent += 1,
                Outcome::Answered(answer) => {
                    answered = true;
                    let is_read = matches!(one.request.kind, Kind::Get | Kind::GetAndTouch);
                    match answer {
                        Answer::Value { .. } => tally.hits += 1,
                        Answer::NotFound if is_read => tally.misses += 1,
                        Answer::Busy | Answer::NoRoom => tally.busy += 1,
                        _ => {}
                    }
                }
            }
        }
        tally.connects = self.connects.0 + self.connects.1;
        if answered {
            let before = slot.progress.swap(span.to, Ordering::AcqRel);
            // Whoever was told to be silent made no progress by order.
            let before = before.max(self.world.spoke_at());
            let silent_ns = span.to.saturating_sub(before);
            tally.longest_ns = tally.longest_ns.max(silent_ns);
            if silent_ns > LONG_NS {
                let silent = Duration::from_nanos(silent_ns);
                let name = slot.name();
                self.world
                    .note(&format!("{name} had no answer for {silent:.2?} until now"));
            }
        }
    }
}
