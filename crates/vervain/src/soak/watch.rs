//! Watches a run: whether clients make progress, what the server uses, and what to tell meanwhile.

use std::io::{IsTerminal, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::faults::Faults;
use super::keeper::Keeper;
use super::tally::Tally;
use super::world::{Failure, Phase, World, lock};
use crate::cli::{explain, show_size};

/// A client that gets no answer for so long hangs: requests are given up after a second.
const HANG: Duration = Duration::from_secs(20);
/// A machine that lets nobody run for so long is an excuse.
const LATE: Duration = Duration::from_millis(500);
/// How often to look.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Watches until the time is over, somebody wants the end, or something is wrong.
pub(super) struct Watch<'a> {
    pub(super) world: &'a World,
    pub(super) keeper: Option<&'a Arc<Mutex<Keeper>>>,
    pub(super) interrupted: &'a AtomicBool,
    pub(super) faults: &'a Faults,
    /// Answers that are enough after each fault has happened.
    pub(super) until: Option<u64>,
    /// Nothing is told where output is for programs.
    pub(super) quiet: bool,
}

/// All tallies together.
pub(super) fn total(world: &World) -> Tally {
    let mut sum = Tally::default();
    for slot in &world.slots {
        sum.add(&lock(&slot.tally));
    }
    sum
}

impl Watch<'_> {
    /// Watches for so long. Returns the longest time for which this very process was held up: on a
    /// machine that stands still nobody makes progress.
    pub(super) fn run(&self, length: Duration) -> Duration {
        let mut held_up = Duration::ZERO;
        let terminal = std::io::stderr().is_terminal();
        let tell_every = Duration::from_secs(if terminal { 1 } else { 10 });
        let mut tell_at = tell_every;
        let mut look_at = Duration::ZERO;
        let mut before = (Duration::ZERO, 0);
        let mut enough = None;
        loop {
            let now = self.world.began.elapsed();
            let over = now >= length
                || self.interrupted.load(Ordering::Acquire)
                || self.is_enough(&mut enough);
            if over || self.world.failure().is_some() {
                break;
            }
            if now >= look_at {
                look_at = now + Duration::from_secs(1);
                self.look();
                self.look_for_hangs();
            }
            if now >= tell_at && !self.quiet {
                tell_at = now + tell_every;
                let checked = total(self.world).checked;
                let rate = (checked - before.1) as f64 / (now - before.0).as_secs_f64();
                before = (now, checked);
                self.tell(rate, terminal);
            }
            let slept = Instant::now();
            std::thread::sleep(LOOK_EVERY);
            let late = slept.elapsed().saturating_sub(LOOK_EVERY);
            held_up = held_up.max(late);
            if late > LATE {
                self.world
                    .note(&format!("the soak itself was held up for {late:.2?}"));
                self.world.excuse_all();
            }
        }
        if terminal && !self.quiet {
            // Nothing to do about a stderr that is closed.
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        held_up
    }

    /// Whether all has been done that is wanted. `enough` is how many answers will be, from the moment
    /// on when each fault has happened.
    fn is_enough(&self, enough: &mut Option<u64>) -> bool {
        let all_happened = || self.faults.all_happened(&self.world.faults());
        let checked = || total(self.world).checked;
        self.until.is_some_and(|answers| {
            all_happened() && checked() >= *enough.get_or_insert_with(|| checked() + answers)
        })
    }

    fn look(&self) {
        // While it is killed and started again it is held.
        if let Some(keeper) = self.keeper
            && let Ok(mut keeper) = keeper.try_lock()
            && let Err(error) = keeper.look()
        {
            self.world.fail(Failure::Ended(explain(&error)));
        }
    }

    fn look_for_hangs(&self) {
        if self.world.phase() != Phase::Busy || self.world.server_away.load(Ordering::Acquire) {
            return;
        }
        for slot in &self.world.slots {
            if slot.stopped.load(Ordering::Acquire) {
                continue;
            }
            let since = slot
                .progress
                .load(Ordering::Acquire)
                .max(slot.excused.load(Ordering::Acquire))
                .max(self.world.spoke_at());
            let silent = Duration::from_nanos(self.world.now().saturating_sub(since));
            if silent > HANG {
                self.world.fail(Failure::Hang(format!(
                    "{} has had no answer for {:.1} s",
                    slot.name(),
                    silent.as_secs_f64()
                )));
            }
        }
    }

    fn tell(&self, rate: f64, terminal: bool) {
        let all = total(self.world);
        let faults: u64 = self.world.faults().values().sum();
        let reads = (all.hits + all.misses).max(1);
        let peak = self
            .keeper
            .and_then(|keeper| Some(keeper.try_lock().ok()?.peak));
        let peak = peak.map_or(String::new(), |peak| {
            format!(
                "  server {}, {} fds",
                show_size(peak.resident_bytes as usize),
                peak.descriptors
            )
        });
        let line = format!(
            "{:>6.0} s  {:>10} answers checked  {:>7.0}/s  hits {:.0} %  unknown {}  faults {faults}{peak}",
            self.world.began.elapsed().as_secs_f64(),
            all.checked,
            rate,
            all.hits as f64 * 100.0 / reads as f64,
            all.unknown,
        );
        let mut out = std::io::stderr().lock();
        // Nothing to do about a stderr that is closed.
        let _ = if terminal {
            write!(out, "\r\x1b[K{line}").and_then(|()| out.flush())
        } else {
            writeln!(out, "{line}")
        };
    }
}

/// Waits for a thread that is about to end. False when it does not.
pub(super) fn wait_for(thread: &std::thread::JoinHandle<()>, within: Duration) -> bool {
    let give_up = Instant::now() + within;
    while !thread.is_finished() {
        if Instant::now() > give_up {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
