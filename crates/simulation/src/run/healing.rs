//! That everything ends well once nothing goes wrong any more: every command has its outcome,
//! every slot can be used, nothing need be sent twice, and what gone clients held is given back.

use std::collections::BTreeMap;

use conformance::model::Faults;

use super::client::Actor;
use super::{Failure, Run, Who};
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
        self.is_calm = true;
        self.asking = false;
        self.note(|| "nothing goes wrong any more".to_string());
        self.network.set_faults(calm());
        self.end_stalls();
        if let Some(machine) = &mut self.machine {
            machine
                .cores
                .iter_mut()
                .for_each(|core| core.stalled_until_ns = 0);
        }
        self.restart_at_ns = 0;
        // What broke before does not come to light later on, and each client has found out.
        self.end_streams(true);
        // What is slow is still under way, and what is sent now comes behind it.
        self.pass(self.plan.faults.slow_ns_max)?;
        self.until_idle()?;
        // Rounds free the slots of abandoned requests, which hold up those behind them, until one goes
        // well; in the next one everything must go well at once.
        let until_ns = self.now_ns + HEALED_NS;
        while let Some(unanswered) = self.use_all_slots(HEALED_NS)? {
            if self.now_ns >= until_ns {
                stuck!("still no answer: {unanswered}");
            }
        }
        self.plan.core_poll_ns = 300;
        self.plan.client_poll_ns = 1_000;
        let before = self.repeats();
        self.use_all_slots_at_once()?;
        self.wake_sleepers()?;
        self.pile_up()?;
        let repeats = self.repeats() - before;
        if repeats > 0 {
            stuck!("{repeats} requests were sent again though nothing was lost");
        }
        self.lose_answers()?;
        self.reuse_slots()?;
        self.cut_transfers()?;
        self.counts.note("sent again", self.repeats());
        self.leave()
    }

    /// Waits until every client is connected and no command is under way.
    pub(super) fn until_idle(&mut self) -> Result<(), Failure> {
        let idle = |run: &Run| {
            let whole = run.exchange.borrow().whole();
            let is_well = |index| run.wire_of(index).is_some_and(|wire| whole.contains(&wire));
            run.actors.iter().all(|actor| actor.pending.is_empty())
                && (0..run.actors.len()).all(is_well)
        };
        if self.drive_until(HEALED_NS, idle)? {
            return Ok(());
        }
        Err(Failure::Stuck(self.describe_waiting()))
    }

    /// Clients that stand still go on at once, and not when they would have: what they are asked from
    /// now on must not time out before they look.
    fn end_stalls(&mut self) {
        let usual_ns = self.now_ns + self.plan.client_poll_ns * 2;
        for index in 0..self.actors.len() {
            self.actors[index].stalled_until_ns = 0;
            let who = Who::Client(index);
            let turns = self.queue.len();
            self.queue
                .retain(|at, whose| *whose != who || at.as_ns() <= usual_ns);
            if self.queue.len() < turns {
                self.later(0, who);
            }
        }
    }

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
        let first = self.history.len();
        let window = self.plan.client.window.min(self.plan.server.window_max) as usize;
        // Different items of a core: the checker tells only so many commands of one item apart.
        let mut items: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for key in 0..self.plan.keys {
            items.entry(self.core_of(key)).or_default().push(key);
        }
        let mut missing: Vec<(usize, usize)> = Vec::new();
        for index in 0..self.actors.len() {
            for keys in items.values() {
                let first = index * window;
                let slots = first..first + window;
                missing.extend(slots.map(|slot| (index, keys[slot % keys.len()])));
            }
        }
        let until_ns = self.now_ns + patience_ns;
        while !missing.is_empty() {
            let mut left = Vec::new();
            for (index, key) in missing {
                if !self.submit(index, key, Action::Get)? {
                    left.push((index, key));
                }
            }
            if !left.is_empty() && self.now_ns >= until_ns {
                stuck!("slots that cannot be used, by client and item: {left:?}");
            }
            missing = left;
            self.pass(5_000)?;
        }
        let answered = |run: &Run| run.actors.iter().all(|actor| actor.pending.is_empty());
        if !self.drive_until(HEALED_NS, answered)? {
            return Err(Failure::Stuck(self.describe_waiting()));
        }
        Ok(self.unanswered(first))
    }

    /// All clients go, and as many as there may be come; twice, and the same is left both times.
    fn leave(&mut self) -> Result<(), Failure> {
        for index in 0..self.actors.len() {
            self.actors[index].client = None;
        }
        self.actors.clear();
        self.queue.retain(|_, who| !matches!(who, Who::Client(_)));
        let full = self.fill()?;
        let again = self.fill()?;
        if full != again {
            leak!("{full} objects of the server's NIC with all clients, then {again}");
        }
        let Some(machine) = self.machine.take() else {
            stuck!("the server is not there");
        };
        self.count_evictions(&machine);
        for core in &machine.cores {
            checker::partition::check_accounts(&core.partition);
        }
        drop(machine);
        let mut exchange = self.exchange.borrow_mut();
        exchange.lead_to(None);
        exchange.end_all();
        drop(exchange);
        self.network.advance(self.now_ns + MS);
        for (node, _) in self.nics.iter().enumerate() {
            let left = self.network.objects(node);
            if left > 0 {
                leak!("{left} objects of NIC {node}, whose user is gone");
            }
        }
        Ok(())
    }

    /// Waits until nobody is left, connects as many clients as there may be, counts the objects of
    /// the server's NIC, and lets them go.
    fn fill(&mut self) -> Result<usize, Failure> {
        let handle_rest_ns = self.plan.server.handle_rest_ns;
        self.pass(handle_rest_ns + MS)?;
        self.all_are_gone()?;
        let count = self.plan.server.clients_max as usize;
        let mut guests = Vec::new();
        for guest in 0..count {
            let mut actor = Actor::new(&mut self.random, 0, 0);
            let nic = &self.nics[1 + guest % self.plan.clients];
            // Owners beyond those of the run.
            let owner = self.plan.clients + guest;
            let config = &self.plan.client;
            if let Err(error) = actor.connect(nic, config, &self.exchange, owner, self.now_ns) {
                leak!("client {guest} of {count} cannot connect: {error}");
            }
            guests.push(actor);
        }
        let mut one_more = Actor::new(&mut self.random, 0, 0);
        let owner = self.plan.clients + count;
        if one_more
            .connect(
                &self.nics[1],
                &self.plan.client,
                &self.exchange,
                owner,
                self.now_ns,
            )
            .is_ok()
        {
            leak!("more than {count} clients are let in");
        }
        self.pass(MS)?;
        let objects = self.network.objects(0);
        drop(guests);
        Ok(objects)
    }

    fn all_are_gone(&mut self) -> Result<(), Failure> {
        let Some(machine) = &self.machine else {
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
        }
        Ok(())
    }
}
