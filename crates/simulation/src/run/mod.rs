//! A run: first safety under faults, then healing.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | the world of a run, and what it and its nodes know |
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

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use conformance::model::{Broken, Faults, Network};

use self::client::Actor;
use self::fates::Fates;
use self::machine::Machine;
use crate::control::{Exchange, Exchanged, WireNum};
use crate::plan::{MS, Plan};
use checker::Unexplained;
use checker::history::{Action, Moment, Operation};
use rt::{Clock, ManualClock};
use sim::{Env, World, WorldError, WorldOptions};

/// Faults last so long at most, in virtual time.
const FAULTY_NS_MAX: u64 = 30 * MS;
/// Steps between two looks at whether what is waited for has come.
const STEPS_PER_LOOK: usize = 16;
/// The server's node; client `i` is on node `i + 1`.
const SERVER: usize = 0;

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
    /// A panic: the cache's fault, or the simulation's.
    Panicked(String),
    /// The machine or the NIC failed; not the cache's fault.
    Broken(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Lie(what) => write!(f, "a wrong answer: {what}"),
            Failure::Stuck(what) => write!(f, "stuck: {what}"),
            Failure::Leak(what) => write!(f, "not given back: {what}"),
            Failure::Panicked(what) => write!(f, "a panic: {what}"),
            Failure::Broken(what) => write!(f, "the simulation failed: {what}"),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::Broken(format!("{error:#}"))
    }
}

impl From<WorldError> for Failure {
    fn from(error: WorldError) -> Self {
        match &error {
            WorldError::Failed { error: why, .. } => Failure::Panicked(format!("{error}: {why}")),
            _ => Failure::Broken(error.to_string()),
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What happened.
    pub counts: Counts,
    /// What is wrong, if anything is.
    pub failure: Option<Failure>,
    /// Everything that happened, a line each, if asked for.
    pub trace: String,
    /// The hash of all turns of all cores.
    pub turns: u64,
}

/// A run: its nodes, and what they write down.
struct Run {
    world: World,
    state: Shared,
}

/// What the run and the programs of its nodes know.
type Shared = Rc<RefCell<State>>;

struct State {
    plan: Plan,
    options: Options,
    keys: Vec<Vec<u8>>,
    random: fastrand::Rng,
    clock: Arc<ManualClock>,
    moment: Moment,
    network: Network,
    exchange: Exchanged,
    machine: Option<Machine>,
    /// Most bytes of a key and its value, by the partitions.
    item_len_max: usize,
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
    /// What a node's program ended with.
    failed: Option<Failure>,
}

/// Runs a plan.
pub fn run(plan: &Plan, options: &Options) -> Report {
    let mut run = Run::new(plan, options);
    let outcome = run.all();
    let mut state = run.state();
    state.note_network();
    let commands = state.history.len() as u64;
    state.counts.note("commands", commands);
    let network = state.network.stats();
    for (what, often) in [
        ("messages sent", network.sent),
        ("messages lost", network.lost),
        ("messages cut", network.cut),
        ("messages doubled", network.doubled),
        ("messages slow", network.slow),
    ] {
        state.counts.note(what, often);
    }
    Report {
        counts: std::mem::take(&mut state.counts),
        failure: outcome.err(),
        trace: std::mem::take(&mut state.trace),
        turns: run.world.trace(),
    }
}

impl Run {
    fn new(plan: &Plan, options: &Options) -> Run {
        let mut random = sim::chance::stream(plan.seed, "run");
        // One node more, from which streams are broken.
        let mut world = WorldOptions::new(plan.seed, plan.clients + 2);
        world.nics.inline_max = plan.inline_max;
        world.nics.mtu = plan.mtu;
        world.fabric = Faults {
            broken: options.broken,
            ..plan.faults.clone()
        };
        let mut world = World::new(world);
        world.set_cores(SERVER, plan.server.cores as usize);
        let network = world.fabric().clone();
        if options.trace {
            network.trace();
        }
        let actors = (0..plan.clients)
            .map(|_| Actor::new(&mut random, plan.keys, plan.drift_permille))
            .collect();
        let state = State {
            keys: load::keys(plan),
            options: options.clone(),
            random,
            clock: world.clock().clone(),
            moment: 0,
            network,
            exchange: Rc::new(RefCell::new(Exchange::default())),
            machine: None,
            item_len_max: 0,
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
            failed: None,
            plan: plan.clone(),
        };
        let state = Rc::new(RefCell::new(state));
        Run { world, state }
    }

    fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    fn all(&mut self) -> Result<(), Failure> {
        let plan = self.state().plan.clone();
        self.state().note(|| format!("{plan:#?}"));
        self.boot(SERVER, machine::serve);
        for index in 0..plan.clients {
            self.boot(index + 1, move |env, state| client::work(env, state, index));
        }
        self.boot(plan.clients + 1, chaos::trouble);
        let holds = self.looks(|state| state.history.len() >= state.plan.operations);
        let within = Duration::from_nanos(FAULTY_NS_MAX);
        let chaos = plan.chaos.of_nodes(&plan);
        let troubles = self.world.run_under_until(&chaos, within, holds)?;
        let [server, clients] = [troubles[0], troubles[1]];
        for (what, often) in [
            ("server stalled", server.stalls),
            ("cores stalled", server.core_stalls),
            ("clients stalled", clients.stalls + clients.core_stalls),
            ("clients cut off", server.cuts),
            ("all clients cut off", server.isolations),
        ] {
            self.state().counts.note(what, often);
        }
        self.heal()?;
        self.state().judge()
    }

    fn boot<F>(&mut self, node: usize, program: impl Fn(Env, Shared) -> F + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let state = self.state.clone();
        self.world
            .boot(node, move |env| program(env, state.clone()));
    }

    /// Looks now and then whether something holds, which costs more than most turns, or a program has failed.
    fn looks(
        &self,
        holds: impl Fn(&State) -> bool + 'static,
    ) -> impl FnMut(&World) -> bool + 'static {
        let (state, mut steps) = (self.state.clone(), 0);
        move |_| {
            steps += 1;
            let state = state.borrow();
            state.failed.is_some() || steps % STEPS_PER_LOOK == 1 && holds(&state)
        }
    }

    /// Lets virtual time pass until something holds; `false` when it does not within so long.
    fn drive_until(
        &mut self,
        within_ns: u64,
        holds: impl Fn(&State) -> bool + Clone + 'static,
    ) -> Result<bool, Failure> {
        let looks = self.looks(holds.clone());
        let within = Duration::from_nanos(within_ns);
        let held = self.world.run_until(within, looks)?;
        let mut state = self.state();
        match state.failed.take() {
            Some(failure) => Err(failure),
            None => Ok(held || holds(&state)),
        }
    }

    /// Lets so much virtual time pass.
    fn pass(&mut self, ns: u64) -> Result<(), Failure> {
        self.drive_until(ns, |_| false).map(drop)
    }

    /// Has a client [submit](State::submit) a command.
    fn submit(&self, index: usize, key: usize, action: Action) -> Result<bool, Failure> {
        self.state().submit(index, key, action)
    }
}

/// Takes steps, as far apart as each of them says; one that fails ends the run.
async fn steps(
    core: rt::Handle,
    state: Shared,
    mut step: impl FnMut(&mut State) -> Result<u64, Failure>,
) {
    loop {
        let wait_ns = step(&mut state.borrow_mut());
        match wait_ns {
            Ok(wait_ns) => core.sleep(Duration::from_nanos(wait_ns)).await,
            Err(failure) => return state.borrow_mut().failed = Some(failure),
        }
    }
}

/// Tells the run of the death of a program's node, which drops it.
struct Life<F: Fn(&mut State)> {
    state: Shared,
    died: F,
}

impl<F: Fn(&mut State)> Life<F> {
    fn new(state: &Shared, died: F) -> Self {
        let state = state.clone();
        Self { state, died }
    }
}

impl<F: Fn(&mut State)> Drop for Life<F> {
    fn drop(&mut self) {
        (self.died)(&mut self.state.borrow_mut());
    }
}

impl State {
    fn now_ns(&self) -> u64 {
        self.clock.now().as_ns()
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.options.trace {
            self.note_network();
            let line = format!("{:>10} {}\n", self.now_ns(), what());
            self.trace.push_str(&line);
        }
    }

    /// Writes down what the network has done since the last time.
    fn note_network(&mut self) {
        for (at_ns, line) in self.network.take_trace() {
            self.trace.push_str(&format!("{at_ns:>10} {line}\n"));
        }
    }

    /// The clock of a core by which items expire: cores differ by fractions of a second.
    fn clock_s(&self, core: usize) -> u32 {
        let second_ns = self.plan.second_ns;
        let ahead_ns = core as u64 * second_ns / 3;
        1_000_000 + self.jumped_s + ((self.now_ns() + ahead_ns) / second_ns) as u32
    }

    /// Most bytes of an item's value, by the servers and by their partitions.
    fn value_len_max(&self, key: usize) -> usize {
        let by_partition = self.item_len_max - self.keys[key].len();
        by_partition.min(self.plan.server.value_len_max as usize)
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
            match checker::check(&of_key, self.value_len_max(key) + 1) {
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
