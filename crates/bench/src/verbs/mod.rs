//! Microbenchmarks of verbs, over any NIC, between two processes: those that users of rdma_bench
//! know, and the figures 2 to 6 of HERD (SIGCOMM'14).
//!
//! Both processes open a NIC of their own. One of them runs [`VerbsRun::run`], the other
//! [`serve_peer`]; they talk over a [`Link`], a pair of byte streams. For each case both make
//! queue pairs and memory, connect, and play requester and target. What arrives is checked at the
//! end of each.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`VerbsRun`]: the settings, and the rounds |
//! | `experiment.rs` | [`Experiment`]: the names |
//! | `plan.rs` | [`Wishes`]: from experiments to cases |
//! | `case.rs` | one measurement: what, over which transport, how |
//! | `link.rs` | [`Link`]: the conversation of the two processes |
//! | `play.rs` | a case on one side; [`serve_peer`] |
//! | `side.rs` | memory, queues and connections of one side |
//! | `queue.rs` | accounts of send queues, waiting |
//! | `messages.rs` | composing messages and taking them |
//! | `oneway.rs` | requests in one direction |
//! | `echo.rs` | echoes and sequencers |
//! | `outcome.rs` | what a side finds out |
//! | `report.rs`, `print.rs` | [`VerbsReport`], and its table |
//! | `error.rs` | [`VerbsRunError`] |

mod case;
mod echo;
mod error;
mod experiment;
mod link;
mod messages;
mod oneway;
mod outcome;
mod plan;
mod play;
mod print;
mod queue;
mod report;
mod side;

use std::time::{Duration, Instant};

use verbs::typed::Context;

use self::link::Message;
use crate::limit::{BetweenCores, Exchange, between_cores};
use crate::machine::{Machine, pin};
use crate::measured::median;

pub use case::{Case, POSTLIST_MAX, QPS_MAX, Role, Rung, SIZE_MAX, Target, Verb};
pub use error::VerbsRunError;
pub use experiment::Experiment;
pub use link::Link;
pub use plan::{Inline, Wishes};
pub use play::serve_peer;
pub use print::write_verbs;
pub use report::{AgainstLimit, Row, VerbsReport};

/// A limit takes no longer than this; it is steadier than what runs against it.
const LIMIT_TIME_MAX: Duration = Duration::from_millis(40);

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct VerbsRun {
    /// This process's NIC; the peer has its own.
    pub context: Context,
    /// What is measured.
    pub experiments: Vec<Experiment>,
    /// What the user wants of it.
    pub wishes: Wishes,
    /// The CPUs of this process's measuring thread and of the peer, when they are to be pinned.
    pub cpus: Option<[usize; 2]>,
    /// How long each measurement takes.
    pub each: Duration,
    /// How often each is repeated; reports have medians.
    pub rounds: u32,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What is measured now.
    pub experiment: Experiment,
    /// Measurements done.
    pub done: usize,
    /// Measurements in all.
    pub total: usize,
}

impl VerbsRun {
    /// The usual experiments, briefly: 50 ms each, three rounds, unpinned.
    pub fn new(context: Context) -> Self {
        VerbsRun {
            context,
            experiments: Experiment::all(),
            wishes: Wishes {
                brief: true,
                ..Wishes::default()
            },
            cpus: None,
            each: Duration::from_millis(50),
            rounds: 3,
        }
    }

    fn cases(&self) -> Result<Vec<Case>, VerbsRunError> {
        let mtu = self.context.port(1)?.mtu.bytes();
        let device = self.context.device();
        plan::plan(&self.experiments, &self.wishes, &device, mtu)
    }

    /// How many measurements a run makes, rounds included.
    ///
    /// # Errors
    /// `Setting` when a wish cannot be fulfilled.
    pub fn count(&self) -> Result<usize, VerbsRunError> {
        Ok(self.cases()?.len() * self.rounds.max(1) as usize)
    }

    /// Measures, with the peer at the other end of the link.
    ///
    /// Cases take turns: each round goes through all of them, and each experiment of a round has
    /// the limits measured beside it.
    ///
    /// # Errors
    /// What went wrong first, on this side or in the peer's words.
    pub fn run(
        &self,
        mut link: Link,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<VerbsReport, VerbsRunError> {
        let cases = self.cases()?;
        let link = &mut link;
        link.send(&Message::Hello {
            version: env!("CARGO_PKG_VERSION").into(),
            cpu: self.cpus.map(|[_, cpu]| cpu),
        })?;
        let rounds = self.rounds.max(1);
        let total = cases.len() * rounds as usize;
        let mut results: Vec<Vec<_>> = cases.iter().map(|_| Vec::new()).collect();
        let mut limits: Vec<(Experiment, BetweenCores)> = Vec::new();
        let mut done = 0;
        for _ in 0..rounds {
            let mut before = None;
            for (case, result) in cases.iter().zip(&mut results) {
                progress(Progress {
                    experiment: case.experiment,
                    done,
                    total,
                });
                if before != Some(case.experiment) {
                    before = Some(case.experiment);
                    limits.push((case.experiment, self.limit(&cases, case.experiment)));
                }
                result.push(self.one(case, link).map_err(|error| named(case, error))?);
                done += 1;
            }
        }
        let rows = cases.iter().zip(&results).map(|(case, result)| {
            let beside = limits.iter().filter(|(one, _)| *one == case.experiment);
            Row::new(case, result, &median_limit(beside.map(|(_, limit)| limit)))
        });
        Ok(VerbsReport {
            machine: Machine::this(),
            version: env!("CARGO_PKG_VERSION"),
            device: self.context.device().name,
            cpus: self.cpus,
            each_s: self.each.as_secs_f64(),
            rounds,
            wishes: self.wishes.clone(),
            clock_ns: clock_ns(),
            rows: rows.collect(),
            limit: median_limit(limits.iter().map(|(_, limit)| limit)),
        })
    }

    fn one(
        &self,
        case: &Case,
        link: &mut Link,
    ) -> Result<(outcome::Outcome, outcome::Arrived), VerbsRunError> {
        link.send(&Message::Begin {
            case: case.clone(),
            each_us: self.each.as_micros() as u64,
        })?;
        // A thread of its own, so that the caller's is not pinned: the limits need both CPUs.
        let played = std::thread::scope(|scope| {
            let playing = scope.spawn(|| {
                if let Some([cpu, _]) = self.cpus
                    && !pin(cpu)
                {
                    let text = format!("this process may not run on CPU {cpu}");
                    return Err(VerbsRunError::Setting(text));
                }
                let requester = case.role == Role::Outbound;
                play::play(&self.context, case, requester, self.each, link)
            });
            playing.join().map_err(|_| VerbsRunError::Panicked)?
        });
        played.inspect_err(|error| {
            let why = error.to_string();
            // The error is reported here in any case; the peer may be the one that failed.
            drop(link.send(&Message::Failed { why }));
        })
    }

    /// The limits that an experiment runs against.
    fn limit(&self, cases: &[Case], experiment: Experiment) -> BetweenCores {
        let own = cases.iter().filter(|case| case.experiment == experiment);
        let echoes = own.filter(|case| case.answer.is_some() && !case.timed);
        let mut windows: Vec<usize> = echoes.map(|case| case.window as usize).collect();
        windows.sort_unstable();
        windows.dedup();
        let each = self.each.min(LIMIT_TIME_MAX);
        between_cores(self.cpus, each, &windows, &mut |_| {})
    }
}

/// An error with the case that it happened in.
fn named(case: &Case, error: VerbsRunError) -> VerbsRunError {
    VerbsRunError::Case {
        case: format!(
            "{}: {} over {} with {} bytes, window {}",
            case.experiment,
            case.verb(),
            case.transport(),
            case.size,
            case.window
        ),
        error: Box::new(error),
    }
}

fn median_limit<'a>(limits: impl Iterator<Item = &'a BetweenCores>) -> BetweenCores {
    let all: Vec<&BetweenCores> = limits.collect();
    let mut windows: Vec<usize> = all
        .iter()
        .flat_map(|limit| limit.exchange.iter().map(|one| one.window))
        .collect();
    windows.sort_unstable();
    windows.dedup();
    let exchange = windows.into_iter().map(|window| {
        let same = all.iter().flat_map(|limit| &limit.exchange);
        let mops = median(same.filter(|one| one.window == window).map(|one| one.mops));
        Exchange { window, mops }
    });
    BetweenCores {
        cpus: all.first().and_then(|limit| limit.cpus),
        pingpong_ns: median(all.iter().map(|limit| limit.pingpong_ns)),
        ring_mops: median(all.iter().map(|limit| limit.ring_mops)),
        exchange: exchange.collect(),
    }
}

/// What a look at the clock costs.
fn clock_ns() -> f64 {
    const LOOKS: u32 = 10_000;
    let began = Instant::now();
    for _ in 0..LOOKS {
        std::hint::black_box(Instant::now());
    }
    began.elapsed().as_nanos() as f64 / f64::from(LOOKS)
}
