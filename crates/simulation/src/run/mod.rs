//! A run: first safety under faults, then healing.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | virtual time: who runs when |
//! | `machine.rs` | the server's cores |
//! | `client.rs` | clients, and the history that they write |
//! | `load.rs` | what they ask |
//! | `fates.rs` | when a command without an answer is over |
//! | `chaos.rs` | what goes wrong besides the network |
//! | `healing.rs` | that everything ends well once nothing goes wrong any more |
//! | `trials.rs` | single faults after that, of which what comes is known |

/// Ends the run: something does not end.
macro_rules! stuck {
    ($($what:tt)*) => { return Err(Failure::Stuck(format!($($what)*))) };
}
/// Ends the run: something was not given back.
macro_rules! leak {
    ($($what:tt)*) => { return Err(Failure::Leak(format!($($what)*))) };
}

mod chaos;
mod client;
mod fates;
mod healing;
mod load;
mod machine;
mod trials;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use conformance::model::{Broken, ModelNic, Network, NetworkOptions};

use self::client::Actor;
use self::fates::Fates;
use self::machine::Machine;
use crate::control::{Exchange, Shared, WireNum};
use crate::plan::{MS, Plan};
use checker::Unexplained;
use checker::history::{Moment, Operation};
use rt::Instant;
use sim::Timeline;

/// Faults last so long at most, in virtual time.
const FAULTY_NS_MAX: u64 = 30 * MS;
/// Turns between two looks at whether what is waited for has come.
const TURNS_PER_LOOK: usize = 16;
/// How often it is decided what goes wrong next.
const CHAOS_NS: u64 = 20_000;

/// How a run is made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Write down everything that happens.
    pub trace: bool,
    /// A promise that the network breaks.
    pub broken: Option<Broken>,
}

/// What happened, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts(pub BTreeMap<&'static str, u64>);

impl Counts {
    /// How often something happened.
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    /// Something happened so often.
    fn note(&mut self, what: &'static str, often: u64) {
        *self.0.entry(what).or_default() += often;
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Counts) {
        for (what, often) in &other.0 {
            self.note(what, *often);
        }
    }
}

/// What is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// An answer that nothing explains, and the history of its item.
    Lie(String),
    /// Something that does not end.
    Stuck(String),
    /// Something that was not given back.
    Leak(String),
    /// The machine or the NIC failed; not the cache's fault.
    Broken(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Lie(what) => write!(f, "a wrong answer: {what}"),
            Failure::Stuck(what) => write!(f, "stuck: {what}"),
            Failure::Leak(what) => write!(f, "not given back: {what}"),
            Failure::Broken(what) => write!(f, "the simulation failed: {what}"),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::Broken(format!("{error:#}"))
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// What happened.
    pub counts: Counts,
    /// What is wrong, if anything is.
    pub failure: Option<Failure>,
    /// Everything that happened, a line each, if asked for.
    pub trace: String,
}

/// Who runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Who {
    Core(usize),
    Client(usize),
    Chaos,
}

/// The world of a run.
struct Run {
    plan: Plan,
    options: Options,
    keys: Vec<Vec<u8>>,
    random: fastrand::Rng,
    now_ns: u64,
    moment: Moment,
    /// Who runs next.
    queue: Timeline<Who>,
    network: Network,
    /// The server's, then one for each client.
    nics: Vec<ModelNic>,
    exchange: Shared,
    machine: Option<Machine>,
    machines: u64,
    restart_at_ns: u64,
    blackout_until_ns: u64,
    /// The clock by which items expire is so many seconds ahead.
    jumped_s: u32,
    actors: Vec<Actor>,
    wires_by_client: BTreeMap<u32, WireNum>,
    history: Vec<Operation>,
    /// Commands of each item that have no outcome yet.
    under_way: Vec<u32>,
    fates: Fates,
    /// Clients ask.
    asking: bool,
    /// Nothing goes wrong any more.
    is_calm: bool,
    /// A core may take so long between finding nothing to do and going to sleep.
    arming_ns_max: u64,
    counts: Counts,
    trace: String,
}

/// Runs a plan.
pub fn run(plan: &Plan, options: &Options) -> Report {
    let mut run = Run::new(plan, options);
    let outcome = run.all();
    run.counts.note("commands", run.history.len() as u64);
    let network = run.network.stats();
    for (what, often) in [
        ("messages sent", network.sent),
        ("messages lost", network.lost),
        ("messages cut", network.cut),
        ("messages doubled", network.doubled),
        ("messages slow", network.slow),
    ] {
        run.counts.note(what, often);
    }
    Report {
        counts: run.counts,
        failure: outcome.err(),
        trace: run.trace,
    }
}

impl Run {
    fn new(plan: &Plan, options: &Options) -> Run {
        let mut random = fastrand::Rng::with_seed(plan.seed);
        let (nics, network) = ModelNic::networked(
            plan.clients as u8 + 1,
            NetworkOptions {
                seed: random.u64(..),
                inline_max: plan.inline_max,
                mtu: plan.mtu,
                ns_per_look: 0,
            },
        );
        network.set_faults(conformance::model::Faults {
            broken: options.broken,
            ..plan.faults.clone()
        });
        if options.trace {
            network.trace();
        }
        let actors = (0..plan.clients)
            .map(|_| Actor::new(&mut random, plan.keys, plan.drift_permille))
            .collect();
        Run {
            keys: load::keys(plan),
            options: options.clone(),
            random,
            now_ns: 0,
            moment: 0,
            queue: Timeline::default(),
            network,
            nics,
            exchange: Rc::new(RefCell::new(Exchange::default())),
            machine: None,
            machines: 0,
            restart_at_ns: 0,
            blackout_until_ns: 0,
            jumped_s: 0,
            actors,
            wires_by_client: BTreeMap::new(),
            history: Vec::new(),
            under_way: vec![0; plan.keys],
            fates: Fates::default(),
            asking: true,
            is_calm: false,
            arming_ns_max: 0,
            counts: Counts::default(),
            trace: String::new(),
            plan: plan.clone(),
        }
    }

    fn all(&mut self) -> Result<(), Failure> {
        self.note_plan();
        self.start_machine()?;
        for core in 0..self.plan.server.cores as usize {
            self.later(0, Who::Core(core));
        }
        for client in 0..self.plan.clients {
            let wait_ns = self.random.u64(..10_000);
            self.later(wait_ns, Who::Client(client));
        }
        self.later(CHAOS_NS, Who::Chaos);
        self.drive_until(FAULTY_NS_MAX, |run| {
            run.history.len() >= run.plan.operations
        })?;
        self.heal()?;
        self.judge()
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.options.trace {
            let line = format!("{:>10} {}\n", self.now_ns, what());
            self.trace.push_str(&line);
        }
    }

    fn note_plan(&mut self) {
        let plan = format!("{:#?}", self.plan);
        self.note(|| plan);
    }

    /// Brings the network up to now.
    fn advance(&mut self) {
        self.network.advance(self.now_ns);
        if self.options.trace {
            for (at_ns, line) in self.network.take_trace() {
                self.trace.push_str(&format!("{at_ns:>10} {line}\n"));
            }
        }
    }

    fn later(&mut self, wait_ns: u64, who: Who) {
        self.queue.add(Instant::from_ns(self.now_ns + wait_ns), who);
    }

    /// Lets virtual time pass until something holds; `false` when it does not within so long.
    fn drive_until(
        &mut self,
        within_ns: u64,
        holds: impl Fn(&Run) -> bool,
    ) -> Result<bool, Failure> {
        let until_ns = self.now_ns + within_ns;
        let mut turns = 0;
        loop {
            // Looking costs more than most turns.
            if turns % TURNS_PER_LOOK == 0 && holds(self) {
                return Ok(true);
            }
            turns += 1;
            if self.queue.is_empty() {
                return Ok(false);
            }
            let Some((at, who)) = self.queue.take_by(Instant::from_ns(until_ns)) else {
                self.now_ns = until_ns;
                return Ok(holds(self));
            };
            self.now_ns = at.as_ns();
            self.turn(who)?;
        }
    }

    /// Lets so much virtual time pass.
    fn pass(&mut self, ns: u64) -> Result<(), Failure> {
        self.drive_until(ns, |_| false).map(drop)
    }

    fn turn(&mut self, who: Who) -> Result<(), Failure> {
        let wait_ns = match who {
            Who::Core(core) => {
                self.step_core(core)?;
                let poll_ns = self.plan.core_poll_ns;
                let is_arming = |machine: &Machine| machine.is_arming(core);
                if self.machine.as_ref().is_some_and(is_arming) {
                    self.random.u64(..=self.arming_ns_max.max(poll_ns))
                } else {
                    self.random.u64(poll_ns / 2..=poll_ns * 2)
                }
            }
            Who::Client(index) => {
                let stalled_ns = self.actors[index].stalled_until_ns;
                if stalled_ns > self.now_ns {
                    stalled_ns - self.now_ns
                } else {
                    self.step_client(index)?;
                    self.random
                        .u64(self.plan.client_poll_ns / 2..=self.plan.client_poll_ns * 2)
                }
            }
            Who::Chaos => {
                self.inject_faults()?;
                CHAOS_NS
            }
        };
        self.later(wait_ns, who);
        Ok(())
    }

    /// The clock of a core by which items expire: cores differ by fractions of a second.
    fn clock_s(&self, core: usize) -> u32 {
        let second_ns = self.plan.second_ns;
        let ahead_ns = core as u64 * second_ns / 3;
        1_000_000 + self.jumped_s + ((self.now_ns + ahead_ns) / second_ns) as u32
    }

    fn step_core(&mut self, core: usize) -> Result<(), Failure> {
        self.advance();
        let now_s = self.clock_s(core);
        let Some(machine) = &mut self.machine else {
            return Ok(());
        };
        if machine.cores[core].stalled_until_ns > self.now_ns {
            return Ok(());
        }
        let gone = machine.step(core, self.now_ns, now_s)?;
        for client in gone {
            if let Some(&wire) = self.wires_by_client.get(&client) {
                self.moment += 1;
                self.was_let_go(wire, core);
                self.note(|| format!("core {core} lets client {client} go (stream {wire})"));
            }
        }
        Ok(())
    }

    fn start_machine(&mut self) -> Result<(), Failure> {
        self.machines += 1;
        let machine = Machine::start(&self.plan, &self.nics[0], self.machines)?;
        self.exchange
            .borrow_mut()
            .lead_to(Some(machine.door.clone()));
        self.machine = Some(machine);
        self.note(|| "the server starts".to_string());
        Ok(())
    }

    /// The server dies.
    fn kill_machine(&mut self) {
        let Some(machine) = self.machine.take() else {
            return;
        };
        self.counts.note("servers died", 1);
        self.count_evictions(&machine);
        drop(machine);
        let mut exchange = self.exchange.borrow_mut();
        exchange.lead_to(None);
        let wire_next = exchange.end_all();
        drop(exchange);
        self.wires_by_client.clear();
        self.moment += 1;
        self.all_died(wire_next);
        self.note(|| "the server dies".to_string());
    }

    fn count_evictions(&mut self, machine: &Machine) {
        for core in &machine.cores {
            let stats = core.partition.stats();
            let pushed_out = stats.log_evictions + stats.index_evictions;
            self.counts.note("items pushed out", pushed_out);
        }
    }

    /// Checks every item's history.
    fn judge(&mut self) -> Result<(), Failure> {
        for key in 0..self.plan.keys {
            let of_key: Vec<&Operation> = self
                .history
                .iter()
                .filter(|operation| operation.key == key)
                .collect();
            self.counts.note("histories checked", 1);
            match checker::check(&of_key) {
                Ok(()) => {}
                Err(Unexplained::Undecided) => self.counts.note("histories undecided", 1),
                Err(Unexplained::Lie(lie)) => {
                    let mut text = format!(
                        "{}\n  {}\n  the history of its item, by beginnings:\n",
                        self.history[lie.number], lie.why
                    );
                    for operation in of_key {
                        let mark = if operation.number == lie.number {
                            ">"
                        } else {
                            " "
                        };
                        text.push_str(&format!("  {mark} {operation}\n"));
                    }
                    return Err(Failure::Lie(text));
                }
            }
        }
        Ok(())
    }
}
