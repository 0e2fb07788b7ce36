//! Injects faults until the run ends, and sees to it now and then that nothing leaks.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use cache::herd::client::Address;
use rustix::process::{Pid, Signal, kill_process};

use super::clock::step;
use super::faults::{Fault, Faults, Rounds};
use super::flush::{flush, look_for_flushed};
use super::hostile::attack;
use super::keeper::Keeper;
use super::world::{ClientSlot, Door, Failure, Phase, World, lock};

/// How long all clients may take to end their processes: longer than one may.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// How often all clients leave, so that leaks show.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// What is wanted.
pub(super) struct Plan {
    pub(super) faults: Faults,
    /// The mean pause between two faults.
    pub(super) every: Duration,
    /// Doors that hostile clients come through.
    pub(super) doors: Vec<Address>,
    /// The server's memory.
    pub(super) memory: usize,
}

/// Injects faults.
pub(super) struct Injector {
    pub(super) world: Arc<World>,
    /// Nothing when the server is somebody else's.
    pub(super) keeper: Option<Arc<Mutex<Keeper>>>,
    pub(super) plan: Plan,
    pub(super) random: fastrand::Rng,
    /// Clients that nobody wants, at work.
    pub(super) hostile: Vec<JoinHandle<()>>,
}

impl Injector {
    /// Injects until the run ends.
    pub(super) fn run(mut self) {
        if let Err(error) = self.inject() {
            let error = crate::cli::explain(&error);
            self.world.fail(Failure::Ended(error));
        }
        for one in self.hostile.drain(..) {
            self.world.join(one);
        }
    }

    fn inject(&mut self) -> anyhow::Result<()> {
        let mut rounds = Rounds::new(self.plan.faults.clone());
        let mut looked = Instant::now();
        while !self.world.is_stopping() {
            let pause = self.plan.every.mul_f64(0.5 + self.random.f64());
            self.world.pause(pause);
            if self.world.is_stopping() {
                break;
            }
            if self.keeper.is_some() && looked.elapsed() > LOOK_EVERY {
                self.send_all_away()?;
                looked = Instant::now();
            }
            if let Err(error) = look_for_flushed(&self.world, &self.plan.doors[0]) {
                // The server may have as many connections as it takes; they are looked for again.
                self.world
                    .note(&format!("no look after a flush: {error:#}"));
            }
            if let Some(fault) = rounds.next(&mut self.random) {
                let done = self.cause(fault)?;
                rounds.tried(fault, done);
            }
        }
        Ok(())
    }

    /// Has all clients leave, and looks what the server keeps of them.
    fn send_all_away(&mut self) -> anyhow::Result<()> {
        for one in self.hostile.drain(..) {
            self.world.join(one);
        }
        self.world
            .note("all clients leave, to see whether the server lets go of them");
        self.world.set_phase(Phase::Away);
        let give_up = Instant::now() + AWAY_MAX;
        while !self.world.all_wait() && !self.world.is_stopping() {
            if Instant::now() > give_up {
                let text = "not all clients leave when they are told to".to_string();
                self.world.fail(Failure::Hang(text));
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some(keeper) = self.keeper.as_ref().filter(|_| self.world.all_wait())
            && let Err(failure) = lock(keeper).check_leaks()
        {
            self.world.fail(failure);
        }
        self.world.set_phase(Phase::Busy);
        Ok(())
    }

    /// Causes a fault; whether that could be done.
    fn cause(&mut self, fault: Fault) -> anyhow::Result<bool> {
        let slot = self.random.usize(..self.world.slots.len());
        let done = match fault {
            Fault::KillServer => self.kill_server()?,
            Fault::StopServer => self.stop_server()?,
            Fault::KillClient => {
                let slot = &self.world.slots[slot];
                self.world.note(&format!("kill {}", slot.name()));
                slot.kill()
            }
            Fault::StopClient => {
                let time = Duration::from_millis(self.random.u64(20..2000));
                stop(&self.world, &self.world.slots[slot], time)?
            }
            Fault::Leave => {
                let herd = self
                    .world
                    .slots
                    .iter()
                    .filter(|slot| slot.door == Door::Herd);
                let herd: Vec<&ClientSlot> = herd.collect();
                // Large values are most work over the NIC.
                let slot = match self.random.choice(&herd) {
                    Some(slot) if self.random.bool() => slot,
                    _ => &self.world.slots[slot],
                };
                self.world.note(&format!(
                    "{} leaves in the middle of a large PUT",
                    slot.name()
                ));
                slot.leave.store(true, Ordering::Release);
                // It counts when the client has got so far.
                return Ok(true);
            }
            Fault::Idle => {
                let time = Duration::from_millis(self.random.u64(300..2000));
                self.world.note(&format!("silence for {time:?}"));
                self.world.set_phase(Phase::Idle);
                self.world.pause(time);
                self.world.set_phase(Phase::Busy);
                true
            }
            // They count when what they took has been looked for.
            Fault::Flush | Fault::FlushLater => return Ok(self.upset(fault)),
            Fault::ClockAhead | Fault::ClockBack => self.upset(fault),
            // That one is a property of processes.
            Fault::Loss => false,
            hostile => self.send(hostile)?,
        };
        if done {
            self.world.count(fault);
        }
        Ok(done)
    }

    fn kill_server(&mut self) -> anyhow::Result<bool> {
        let Some(keeper) = &self.keeper else {
            return Ok(false);
        };
        self.world.note("kill the server");
        self.world.server_away.store(true, Ordering::Release);
        let killed = lock(keeper).kill(&self.world);
        self.world.excuse_all();
        self.world.server_away.store(false, Ordering::Release);
        killed?;
        Ok(true)
    }

    fn stop_server(&mut self) -> anyhow::Result<bool> {
        let Some(keeper) = &self.keeper else {
            return Ok(false);
        };
        let time = Duration::from_millis(self.random.u64(20..1500));
        self.world.note(&format!("stop the server for {time:?}"));
        self.world.server_away.store(true, Ordering::Release);
        lock(keeper).set_stopped(true)?;
        self.world.pause(time);
        lock(keeper).set_stopped(false)?;
        self.world.excuse_all();
        self.world.server_away.store(false, Ordering::Release);
        Ok(true)
    }

    /// Has the server forget everything, or sets its clock; whether it was done.
    fn upset(&mut self, fault: Fault) -> bool {
        let Some(door) = self.random.choice(&self.plan.doors).cloned() else {
            return false;
        };
        let (world, random) = (&self.world, &mut self.random);
        let done = match fault {
            Fault::Flush | Fault::FlushLater => {
                flush(world, &door, fault == Fault::FlushLater, random)
            }
            other => step(world, &door, other == Fault::ClockAhead, random).map(|()| true),
        };
        if let Err(error) = &done {
            // The server may have as many connections as it takes.
            world.note(&format!("{} at {door} failed: {error:#}", fault.name()));
        }
        done.unwrap_or(false)
    }

    /// Sends a hostile client.
    fn send(&mut self, fault: Fault) -> anyhow::Result<bool> {
        let (running, ended): (Vec<_>, Vec<_>) =
            self.hostile.drain(..).partition(|one| !one.is_finished());
        self.hostile = running;
        for one in ended {
            self.world.join(one);
        }
        let Some(door) = self.random.choice(&self.plan.doors).cloned() else {
            return Ok(false);
        };
        self.world.note(&format!("{} at {door}", fault.name()));
        let (memory, random) = (self.plan.memory, self.random.fork());
        let one = std::thread::Builder::new()
            .name("hostile".into())
            .spawn(move || attack(fault, &door, memory, random))
            .context("starting a thread")?;
        self.hostile.push(one);
        Ok(true)
    }
}

/// Stops a client's process for a while; whether there was one.
fn stop(world: &World, slot: &ClientSlot, time: Duration) -> anyhow::Result<bool> {
    let signal = |signal| -> anyhow::Result<bool> {
        // It is not waited for while it is in its slot, so its number is its own.
        let process = lock(&slot.process);
        let Some(process) = process.as_ref() else {
            return Ok(false);
        };
        kill_process(Pid::from_child(process), signal).context("stopping a client")?;
        Ok(true)
    };
    slot.stopped.store(true, Ordering::Release);
    world.note(&format!("stop {} for {time:?}", slot.name()));
    let stopped = signal(Signal::STOP)?;
    world.pause(time);
    signal(Signal::CONT)?;
    slot.excused.store(world.now(), Ordering::Release);
    slot.stopped.store(false, Ordering::Release);
    Ok(stopped)
}
