//! That everything ends well once nothing goes wrong any more: every command has its outcome,
//! every slot can be used, nothing need be sent twice, and what gone clients held is given back.

use std::collections::BTreeMap;

use conformance::model::Faults;

use super::client::Actor;
use super::{Failure, Run, SERVER, State};
use crate::plan::MS;
use checker::history::{Action, Answer};

/// Every wait of this phase ends by then, in virtual time: the longest pause between repeats is 128
/// times the first one, and a lost connection comes before that.
pub(super) const HEALED_NS: u64 = 40 * MS;
/// A slot that is free can be used by then: a few turns of a client.
const AT_ONCE_NS: u64 = 50_000;

/// A network that does nothing bad.
pub(super) fn calm() -> Faults {
    Faults {
        delay_ns_min: 300,
        delay_ns_max: 600,
        ..Faults::default()
    }
}

impl Run {
    /// Nothing goes wrong any more.
    pub(super) fn heal(&mut self) -> Result<(), Failure> {
        let mut state = self.state();
        state.is_calm = true;
        state.asking = false;
        state.note(|| "nothing goes wrong any more".to_string());
        state.network.set_faults(calm());
        state.plan.late_percent = 0;
        for core in state
            .machine
            .iter_mut()
            .flat_map(|machine| &mut machine.cores)
        {
            core.engine.late_percent = 0;
        }
        // What broke before does not come to light later on, and each client has found out.
        state.end_streams(true);
        // What is slow is still under way, and what is sent now comes behind it.
        let slow_ns = state.plan.faults.slow_ns_max;
        drop(state);
        self.pass(slow_ns)?;
        self.until_idle()?;
        // Rounds free the slots of abandoned requests, which hold up those behind them, until one goes
        // well; in the next one everything must go well at once.
        let until_ns = self.state().now_ns() + HEALED_NS;
        while let Some(unanswered) = self.use_all_slots(HEALED_NS)? {
            if self.state().now_ns() >= until_ns {
                stuck!("still no answer: {unanswered}");
            }
        }
        let mut state = self.state();
        state.plan.core_poll_ns = 300;
        state.plan.client_poll_ns = 1_000;
        let before = state.repeats();
        drop(state);
        self.use_all_slots_at_once()?;
        self.wake_sleepers()?;
        self.pile_up()?;
        let repeats = self.state().repeats() - before;
        if repeats > 0 {
            stuck!("{repeats} requests were sent again though nothing was lost");
        }
        self.lose_answers()?;
        self.reuse_slots()?;
        self.cut_transfers()?;
        let repeats = self.state().repeats();
        self.state().counts.note("sent again", repeats);
        self.leave()
    }

    /// Waits until every client is connected and no command is under way.
    pub(super) fn until_idle(&mut self) -> Result<(), Failure> {
        let idle = |state: &State| {
            let whole = state.exchange.borrow().whole();
            let is_well = |index| {
                let wire = state.wire_of(index);
                wire.is_some_and(|wire| whole.contains(&wire))
            };
            state.is_answered() && (0..state.actors.len()).all(is_well)
        };
        if self.drive_until(HEALED_NS, idle)? {
            return Ok(());
        }
        Err(Failure::Stuck(self.state().describe_waiting()))
    }

    /// The same where everything must go well at once.
    pub(super) fn use_all_slots_at_once(&mut self) -> Result<(), Failure> {
        match self.use_all_slots(AT_ONCE_NS)? {
            Some(unanswered) => Err(Failure::Stuck(format!(
                "no answer though nothing was lost: {unanswered}"
            ))),
            None => Ok(()),
        }
    }

    /// Has each client fill its window to each core, all at the same time, where every slot can be used
    /// within so long. Waits for the outcomes; returns a command without an answer, if there is one.
    fn use_all_slots(&mut self, patience_ns: u64) -> Result<Option<String>, Failure> {
        let state = self.state();
        let first = state.history.len();
        let window = state.window();
        // Different items of a core: the checker tells only so many commands of one item apart.
        let mut items: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for key in 0..state.plan.keys {
            items.entry(state.core_of(key)).or_default().push(key);
        }
        let mut missing: Vec<(usize, usize)> = Vec::new();
        for index in 0..state.actors.len() {
            for keys in items.values() {
                let first = index * window;
                let slots = first..first + window;
                missing.extend(slots.map(|slot| (index, keys[slot % keys.len()])));
            }
        }
        let until_ns = state.now_ns() + patience_ns;
        drop(state);
        while !missing.is_empty() {
            let mut left = Vec::new();
            for (index, key) in missing {
                if !self.submit(index, key, Action::Get)? {
                    left.push((index, key));
                }
            }
            if !left.is_empty() && self.state().now_ns() >= until_ns {
                stuck!("slots that cannot be used, by client and item: {left:?}");
            }
            missing = left;
            self.pass(5_000)?;
        }
        if !self.drive_until(HEALED_NS, State::is_answered)? {
            return Err(Failure::Stuck(self.state().describe_waiting()));
        }
        Ok(self.state().unanswered(first))
    }

    /// All clients go, and as many as there may be come; twice, and the same is left both times.
    fn leave(&mut self) -> Result<(), Failure> {
        let clients = self.state().actors.len();
        for index in 0..clients {
            self.world.kill(index + 1)?;
        }
        let full = self.fill()?;
        let again = self.fill()?;
        if full != again {
            leak!("{full} objects of the server's NIC with all clients, then {again}");
        }
        self.world.kill(SERVER)?;
        self.pass(MS)?;
        for node in 0..self.world.nodes() {
            let left = self.world.fabric().objects(node);
            if left > 0 {
                leak!("{left} objects of NIC {node}, whose user is gone");
            }
        }
        Ok(())
    }

    /// Waits until nobody is left, connects as many clients as there may be, counts the objects of
    /// the server's NIC, and lets them go.
    fn fill(&mut self) -> Result<usize, Failure> {
        let handle_rest_ns = self.state().plan.server.handle_rest_ns;
        self.pass(handle_rest_ns + MS)?;
        self.all_are_gone()?;
        let plan = self.state().plan.clone();
        let count = plan.server.clients_max as usize;
        let mut guests = Vec::new();
        // One more than are let in.
        for guest in 0..=count {
            let nic = self.world.env(1 + guest % plan.clients).nic;
            let mut state = self.state();
            let mut actor = Actor::new(&mut state.random, 0, 0);
            // Owners beyond those of the run.
            let owner = plan.clients + guest;
            let made = actor.connect(&nic, &plan.client, &state.exchange, owner, state.now_ns());
            match made {
                Ok(()) if guest == count => leak!("more than {count} clients are let in"),
                Err(error) if guest < count => {
                    leak!("client {guest} of {count} cannot connect: {error}")
                }
                _ => guests.push(actor),
            }
        }
        self.pass(MS)?;
        let objects = self.world.fabric().objects(SERVER);
        drop(guests);
        Ok(objects)
    }

    fn all_are_gone(&self) -> Result<(), Failure> {
        let state = self.state();
        let Some(machine) = &state.machine else {
            stuck!("the server is not there");
        };
        let usage = machine.door.usage();
        if usage.clients > 0 || usage.queue_pairs > 0 || usage.registered_bytes > 0 {
            leak!("the acceptor keeps {usage:?}");
        }
        for core in &machine.cores {
            let (clients, staging) = (core.server.clients(), core.server.staging_in_use());
            if clients > 0 || staging > 0 {
                let number = core.server.core();
                leak!("core {number} keeps {clients} clients, {staging} buffers");
            }
            checker::partition::check_accounts(&core.engine.inner);
        }
        Ok(())
    }
}

impl State {
    pub(super) fn repeats(&self) -> u64 {
        let clients = self.actors.iter().filter_map(|actor| actor.client.as_ref());
        clients.map(|client| client.stats().repeats).sum()
    }

    fn describe_waiting(&self) -> String {
        let mut text = String::from("some clients have not finished or not connected:\n");
        for (index, actor) in self.actors.iter().enumerate() {
            let stats = actor.client.as_ref().map(cache::herd::Client::stats);
            let wire = self.wire_of(index);
            let waiting: Vec<u64> = actor.pending.keys().copied().collect();
            if !waiting.is_empty() || wire.is_none() {
                text.push_str(&format!(
                    "  client {index} stream {wire:?} waits for {waiting:?}: {stats:?}\n"
                ));
            }
        }
        text
    }

    /// A command without an answer, from this number on, if there is one.
    pub(super) fn unanswered(&self, first: usize) -> Option<String> {
        let mut told = self.history[first..].iter();
        let lost = told.find(|told| !told.answer.as_ref().is_some_and(Answer::is_known));
        lost.map(ToString::to_string)
    }

    /// Whether no command is under way.
    fn is_answered(&self) -> bool {
        self.actors.iter().all(|actor| actor.pending.is_empty())
    }

    /// How many commands a client has under way to a core at most.
    pub(super) fn window(&self) -> usize {
        self.plan.client.window.min(self.plan.server.window_max) as usize
    }
}
