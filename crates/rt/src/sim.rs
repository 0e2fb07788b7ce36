//! Several cores on one thread, in virtual time, from one seed.
//!
//! The cores run the same scheduler as on real threads; what differs is who turns it. In each step
//! every core takes one turn, in an order drawn from the seed; when no core has anything to do,
//! the clock jumps to the next deadline. If there is none, everything waits for everything else,
//! and the run ends with an error that names the seed.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::config::{Config, IdleMode};
use crate::handle::Handle;
use crate::io::IoKind;
use crate::scheduler::{BusyPoller, Inner};
use crate::task::{JoinError, JoinHandle, enter};
use crate::time::{Clock, Instant, ManualClock};

/// What to simulate.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SimConfig {
    /// The seed of everything: the order of cores, and each core's random numbers.
    pub seed: u64,
    /// How many cores.
    pub cores: usize,
    /// Virtual time that a step with work in it takes; not zero, or a task that yields until a
    /// deadline would never see it.
    pub step: Duration,
    /// Wall-clock seconds at the start.
    pub unix_s: u64,
    /// Steps after which the run is taken for endless.
    pub steps_max: u64,
}

impl SimConfig {
    /// `cores` cores from `seed`, 100 ns a step, starting at the wall-clock second 1 000 000 000.
    #[must_use]
    pub fn new(seed: u64, cores: usize) -> Self {
        Self {
            seed,
            cores,
            step: Duration::from_nanos(100),
            unix_s: 1_000_000_000,
            steps_max: u64::MAX,
        }
    }
}

/// Why a simulated run did not end. The seed repeats it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimError {
    /// Tasks are left, and nothing will ever wake them.
    #[error("deadlock at {at_ns} ns with {tasks} tasks left (seed {seed})")]
    Deadlock {
        /// The seed of the run.
        seed: u64,
        /// Virtual time, in nanoseconds.
        at_ns: u64,
        /// Tasks that have not ended, on all cores.
        tasks: usize,
    },
    /// More steps than allowed.
    #[error("no end after {steps} steps, at {at_ns} ns (seed {seed})")]
    Endless {
        /// The seed of the run.
        seed: u64,
        /// Virtual time, in nanoseconds.
        at_ns: u64,
        /// Steps taken.
        steps: u64,
    },
    /// The main task panicked.
    #[error("the main task failed (seed {seed})")]
    Failed {
        /// The seed of the run.
        seed: u64,
        /// What it failed with.
        #[source]
        error: JoinError,
    },
}

/// A cluster of simulated cores.
pub struct Sim {
    config: SimConfig,
    clock: Arc<ManualClock>,
    cores: Vec<Rc<Inner>>,
    order: Vec<usize>,
    rng: fastrand::Rng,
    steps: u64,
    /// A running hash of what each turn did: equal for equal runs.
    trace: u64,
}

impl Sim {
    /// The cores, at time zero.
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        let clock = Arc::new(ManualClock::new(config.unix_s));
        let mut rng = fastrand::Rng::with_seed(config.seed);
        let cores = (0..config.cores)
            .map(|_| {
                let core = Config {
                    idle: IdleMode::Poll,
                    seed: rng.u64(..),
                    clock: clock.clone(),
                    io: Some(IoKind::None),
                    ..Config::default()
                };
                Inner::new(core, false).expect("a core without a bell and sockets opens nothing")
            })
            .collect();
        Self {
            clock,
            cores,
            order: (0..config.cores).collect(),
            rng,
            steps: 0,
            trace: config.seed,
            config,
        }
    }

    /// A core's handle.
    ///
    /// # Panics
    /// If there is no such core.
    #[must_use]
    pub fn handle(&self, core: usize) -> Handle {
        Handle::new(self.cores[core].clone())
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The clock, to step the date with. Moving the time itself is the simulator's business.
    #[must_use]
    pub fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }

    /// Steps taken so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// A hash of the whole run so far: the same seed and tasks give the same value.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Starts a task on a core.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn spawn<F>(&self, core: usize, task: impl FnOnce(Handle) -> F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
    {
        let handle = self.handle(core);
        let future = task(handle.clone());
        handle.spawn(future)
    }

    /// Runs all cores until the task started here, on `core`, ends.
    pub fn run<F>(
        &mut self,
        core: usize,
        main: impl FnOnce(Handle) -> F,
    ) -> Result<F::Output, SimError>
    where
        F: Future + 'static,
    {
        let mut main = self.spawn(core, main);
        let seed = self.config.seed;
        while !main.is_finished() {
            self.step()?;
        }
        let result = main.try_take().expect("a finished task has a result");
        result.map_err(|error| SimError::Failed { seed, error })
    }

    /// Runs all cores until no task is left.
    pub fn run_to_end(&mut self) -> Result<(), SimError> {
        while self.cores.iter().any(|core| core.tasks_alive() > 0) {
            self.step()?;
        }
        Ok(())
    }

    /// One turn of every core; then time passes.
    fn step(&mut self) -> Result<(), SimError> {
        if self.steps >= self.config.steps_max {
            return Err(SimError::Endless {
                seed: self.config.seed,
                at_ns: self.now().as_ns(),
                steps: self.steps,
            });
        }
        self.steps += 1;
        self.rng.shuffle(&mut self.order);
        let mut work = 0;
        for &core in &self.order {
            let inner = &self.cores[core];
            let _entered = enter(&inner.queue);
            let done = inner.turn();
            work += done;
            self.trace = mix(self.trace, core, done);
        }
        // Truncation is fine for a hash.
        let time_bits = self.now().as_ns() as usize;
        self.trace = mix(self.trace, work, time_bits);
        if work > 0 {
            self.clock.advance(self.config.step);
            return Ok(());
        }
        self.jump()
    }

    /// Moves the clock to the next deadline of any core.
    fn jump(&mut self) -> Result<(), SimError> {
        let mut next: Option<Instant> = None;
        for core in &self.cores {
            let _entered = enter(&core.queue);
            match core.next_deadline() {
                Ok(deadline) => next = [next, deadline].into_iter().flatten().min(),
                // It has work now: the next step gives it its turn.
                Err(BusyPoller::Ready) => {
                    self.clock.advance(self.config.step);
                    return Ok(());
                }
                // It wants to be polled all the time: time passes at the pace of the steps.
                Err(BusyPoller::Busy) => {
                    let soon = self.clock.now() + self.config.step;
                    next = Some(next.map_or(soon, |next| next.min(soon)));
                }
            }
        }
        match next {
            Some(next) => {
                self.clock.advance_to(next);
                Ok(())
            }
            None => Err(SimError::Deadlock {
                seed: self.config.seed,
                at_ns: self.now().as_ns(),
                tasks: self.cores.iter().map(|core| core.tasks_alive()).sum(),
            }),
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        for core in &self.cores {
            let _entered = enter(&core.queue);
            core.close();
        }
    }
}

fn mix(hash: u64, a: usize, b: usize) -> u64 {
    // The odd constants of a 64-bit linear congruential step; quality does not matter here.
    (hash ^ (a as u64))
        .wrapping_mul(0x5851_f42d_4c95_7f2d)
        .rotate_left(29)
        .wrapping_add(b as u64)
        .wrapping_mul(0x1405_7b7e_f767_814f)
}
