//! Single faults when nothing else goes wrong: what comes of each is known exactly, and anything less
//! is a failure. Among many faults the same mistakes only make things slower.

use conformance::model::Faults;

use super::healing::{HEALED_NS, calm};
use super::{Failure, Run, SERVER, State};
use crate::plan::US;
use cache::herd::StoreMode;
use checker::history::Action;

/// Requests that come when a core is about to go to sleep.
const WAKES: usize = 20;
/// How long a core may take to fall asleep meanwhile, and how exactly requests are aimed at it.
const ARMING_NS_MAX: u64 = 2 * US;
/// The server's NIC stands still for so long: less than it takes until somebody asks again.
const PILE_UP_NS: u64 = 4 * US;
/// Connections are lost so often, so long after clients began to store large values at most.
const CUTS: usize = 3;
const CUT_NS_MAX: u64 = 25 * US;
/// Times that answers are lost.
const LOSSES: usize = 4;
/// A core has taken all requests by then, and sent its answers.
const TAKEN_NS: u64 = 10 * US;
/// Times that a slot is used again while a repeat of its last request waits in the NIC.
const REUSES: usize = 3;
/// Values of the two requests: too long for inlining, and the second one longer.
const REUSED_LENS: [usize; 2] = [250, 300];
/// A key with which both fit a slot.
const REUSED_KEY_LEN_MAX: usize = 100;
/// A client has sent what it was asked by then; and the NIC stands still for so long after the
/// answer has come, in which the client goes on.
const SENT_NS: u64 = 5 * US;
const GOES_ON_NS: u64 = 15 * US;
/// Messages leave the NIC so far apart at most that a core looks in between.
const APART_NS_MAX: u64 = 3 * US;
/// Commands to one core at once at most, of all clients: their repeats come all at once, and a core
/// takes only so many kicks at a time.
const AT_ONCE_MAX: usize = 64;
/// Commands of one item at once: the checker tries their orders.
const OF_ITEM_MAX: u32 = 3;

/// A network that loses what servers send, and nothing else.
fn without_datagrams() -> Faults {
    Faults {
        lose_datagrams: true,
        ..calm()
    }
}

impl Run {
    /// Requests come to each core just when it is about to go to sleep. Nothing is lost, so nothing may
    /// be sent again.
    pub(super) fn wake_sleepers(&mut self) -> Result<(), Failure> {
        let idle_ns = self.state().plan.server.idle_ns;
        if idle_ns == 0 {
            return Ok(());
        }
        self.state().arming_ns_max = ARMING_NS_MAX;
        for _ in 0..WAKES {
            let aim_ns = self.state().random.u64(..3 * ARMING_NS_MAX);
            self.pass((idle_ns + aim_ns).saturating_sub(2 * ARMING_NS_MAX))?;
            let mut state = self.state();
            let index = state.draw_client();
            for core in 0..state.plan.server.cores as usize {
                if let Some(key) = state.key_of(core) {
                    state.submit(index, key, Action::Get)?;
                }
            }
        }
        self.state().arming_ns_max = 0;
        self.until_idle()
    }

    /// Answers pile up at the server, more than it has memory for where there are many clients with
    /// wide windows. Nothing is lost, so nothing may be sent again.
    pub(super) fn pile_up(&mut self) -> Result<(), Failure> {
        let mut state = self.state();
        for key in 0..state.plan.keys {
            // Too long for inlining.
            let value = format!("{:<300}", state.history.len());
            let index = key % state.actors.len();
            state.submit(index, key, store(StoreMode::Set, value))?;
        }
        drop(state);
        self.until_idle()?;
        self.state().pause(SERVER, PILE_UP_NS);
        self.use_all_slots_at_once()
    }

    /// Connections are lost while large values are on their way or being stored. Each is stored once
    /// at most.
    pub(super) fn cut_transfers(&mut self) -> Result<(), Failure> {
        let state = self.state();
        let len = state.plan.server.slot_len as usize + 50;
        if state.plan.server.value_len_max < len as u32 {
            return Ok(());
        }
        let count = state.plan.keys.min(state.actors.len());
        drop(state);
        for _ in 0..CUTS {
            for at in 0..count {
                self.submit(at, at, Action::Delete)?;
            }
            self.until_idle()?;
            for at in 0..count {
                let value = format!("{:<len$}", self.state().history.len());
                self.submit(at, at, store(StoreMode::Add, value))?;
            }
            let cut_ns = self.state().random.u64(..CUT_NS_MAX);
            self.pass(cut_ns)?;
            let state = self.state();
            state.network.set_faults(without_datagrams());
            let whole = state.exchange.borrow().whole();
            for wire in whole {
                state.exchange.borrow_mut().break_at_client(wire);
            }
            drop(state);
            self.pass(TAKEN_NS)?;
            self.world.fabric().set_faults(calm());
            self.until_idle()?;
            for at in 0..count {
                self.submit(at, at, Action::Get)?;
            }
            self.until_idle()?;
        }
        Ok(())
    }

    /// Answers are lost, to requests whose ids run from the first one of a connection. The next one
    /// must come when the client asks again, and a slot whose command was given up must be free as
    /// soon as the client says so: no connection is lost.
    pub(super) fn lose_answers(&mut self) -> Result<(), Failure> {
        let exchange = self.state().exchange.clone();
        let whole = exchange.borrow().whole();
        for wire in whole {
            let mut exchange = exchange.borrow_mut();
            exchange.break_at_client(wire);
            exchange.break_at_server(wire);
        }
        self.until_idle()?;
        let mut state = self.state();
        let before = state.losses();
        // Repeats, too, come to cores that are about to go to sleep.
        state.arming_ns_max = ARMING_NS_MAX;
        drop(state);
        for _ in 0..LOSSES {
            let mut state = self.state();
            let (first, repeats) = (state.history.len(), state.repeats());
            state.network.set_faults(without_datagrams());
            state.ask_a_little(false)?;
            drop(state);
            self.pass(TAKEN_NS)?;
            self.world.fabric().set_faults(calm());
            self.until_idle()?;
            let state = self.state();
            if let Some(lost) = state.unanswered(first) {
                stuck!("no answer though only the first one was lost: {lost}");
            }
            let (asked, repeats) = (state.history.len() - first, state.repeats() - repeats);
            if repeats > asked as u64 {
                stuck!("{repeats} requests were sent again though only {asked} answers were lost");
            }
        }
        self.state().arming_ns_max = 0;
        self.give_up()?;
        let lost = self.state().losses() - before;
        if lost > 0 {
            stuck!("{lost} connections were lost though the network works");
        }
        Ok(())
    }

    /// Clients give commands up that have been carried out.
    fn give_up(&mut self) -> Result<(), Failure> {
        let mut state = self.state();
        let (deadline_ns, lost_ns) = (state.plan.client.deadline_ns, state.plan.client.lost_ns);
        // Whoever hears nothing for longer takes the connection for lost.
        if deadline_ns + deadline_ns / 4 > lost_ns {
            return Ok(());
        }
        state.network.set_faults(without_datagrams());
        state.ask_a_little(true)?;
        drop(state);
        // The fastest clock is a tenth ahead.
        self.pass(deadline_ns - deadline_ns / 8)?;
        self.world.fabric().set_faults(calm());
        self.until_idle()?;
        self.pass(TAKEN_NS)?;
        self.use_all_slots_at_once()
    }

    /// An answer comes late, when its request has been repeated and the client's NIC has not sent the
    /// repeat yet. It will read the slot's memory then, so the slot must not be used until it has:
    /// the bytes would be of the next request, but the length of the last.
    pub(super) fn reuse_slots(&mut self) -> Result<(), Failure> {
        for _ in 0..REUSES {
            let mut state = self.state();
            let fits = |key: &usize| state.keys[*key].len() <= REUSED_KEY_LEN_MAX;
            let keys: Vec<usize> = (0..state.plan.keys).filter(fits).collect();
            let index = state.draw_client();
            let key = keys[state.random.usize(..keys.len())];
            drop(state);
            self.reuse_slot(index, key)?;
        }
        Ok(())
    }

    fn reuse_slot(&mut self, index: usize, key: usize) -> Result<(), Failure> {
        let set = |state: &mut State, len: usize| {
            let value = format!("{:<len$}", state.history.len());
            state.submit(index, key, store(StoreMode::Set, value))
        };
        let mut state = self.state();
        // By then it has been repeated, whatever the client's clock says.
        let late_ns = state.plan.client.retry_ns * 5 / 4 + SENT_NS;
        state.pause(SERVER, late_ns);
        set(&mut state, REUSED_LENS[0])?;
        drop(state);
        self.pass(SENT_NS)?;
        self.state().pause(index + 1, late_ns + GOES_ON_NS);
        self.pass(late_ns)?;
        let mut state = self.state();
        state.network.set_faults(Faults {
            post_ns_max: APART_NS_MAX,
            ..calm()
        });
        for _ in 1..state.window() {
            state.submit(index, key, Action::Get)?;
        }
        let until_ns = state.now_ns() + HEALED_NS;
        drop(state);
        while !set(&mut self.state(), REUSED_LENS[1])? {
            if self.state().now_ns() >= until_ns {
                stuck!("client {index} cannot use a slot whose request was answered");
            }
            self.pass(US)?;
        }
        self.until_idle()?;
        self.world.fabric().set_faults(calm());
        self.submit(index, key, Action::Get)?;
        self.until_idle()
    }
}

impl State {
    /// A node's NIC stands still for so long.
    fn pause(&self, node: usize, ns: u64) {
        self.network.pause(node, self.now_ns() + ns);
    }

    fn draw_client(&mut self) -> usize {
        self.random.usize(..self.actors.len())
    }

    /// Has clients ask a few things of each core.
    fn ask_a_little(&mut self, only_reads: bool) -> Result<(), Failure> {
        let mut at_core = vec![0; self.plan.server.cores as usize];
        for index in 0..self.actors.len() {
            for _ in 0..self.random.usize(1..=4) {
                let key = self.random.usize(..self.plan.keys);
                let core = self.core_of(key);
                if self.under_way[key] >= OF_ITEM_MAX || at_core[core] >= AT_ONCE_MAX {
                    continue;
                }
                let action = if only_reads {
                    Action::Get
                } else {
                    self.draw_small()
                };
                at_core[core] += usize::from(self.submit(index, key, action)?);
            }
        }
        Ok(())
    }

    /// A command that takes one request, and mostly one answer.
    fn draw_small(&mut self) -> Action {
        let number = self.history.len();
        match self.random.u8(..8) {
            0 | 1 => Action::Get,
            2 | 3 => Action::Incr { delta: 1 },
            4 => store(StoreMode::Append, format!("{number}")),
            5 => store(StoreMode::Add, format!("{number}")),
            6 => Action::GetAndTouch { expiry_s: 0 },
            _ => store(StoreMode::Set, format!("{number}")),
        }
    }

    /// An item of a core, if there is one.
    fn key_of(&self, core: usize) -> Option<usize> {
        (0..self.plan.keys).find(|key| self.core_of(*key) == core)
    }

    fn losses(&self) -> u64 {
        let clients = self.actors.iter().filter_map(|actor| actor.client.as_ref());
        clients.map(|client| client.stats().losses).sum()
    }
}

fn store(mode: StoreMode, value: String) -> Action {
    Action::Store {
        mode,
        value: value.into_bytes(),
        flags: 0,
        expiry_s: 0,
    }
}
