//! The nodes, and the time that passes for all of them.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use block::sim::{SimConfig as DiskConfig, SimDevice};
use conformance::model::{Faults, ModelNic, Network, NetworkOptions};
use rt::net::Addr;
use rt::{Clock, Config, Handle, Instant, JoinError, JoinHandle, ManualClock, ManualCore, Next};
use thiserror::Error;

use crate::chance::{Trace, stream};
use crate::chaos::Chances;
use crate::streams::{Links, Streams, ip_of};

/// What a world is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorldOptions {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// How many nodes.
    pub nodes: usize,
    /// Cores of each node, but for those that [`World::set_cores`] names.
    pub cores: usize,
    /// What the disk of a node is like, where nodes have one. Its clock and seed are the world's.
    pub disk: Option<DiskConfig>,
    /// The network between sockets.
    pub links: Links,
    /// What the network between the NICs does.
    pub fabric: Faults,
    /// What the NICs are like. Their seed is the world's, and so is their time.
    pub nics: NetworkOptions,
    /// Virtual time that a core's turn takes; not zero, or a task that yields until a deadline would
    /// never see it.
    pub step: Duration,
    /// Wall-clock seconds at the start.
    pub unix_s: u64,
    /// Steps after which the run is taken for endless.
    pub steps_max: u64,
}

impl WorldOptions {
    /// So many nodes of one core without a disk; 100 ns a step, starting at the wall-clock second
    /// 1 000 000 000.
    #[must_use]
    pub fn new(seed: u64, nodes: usize) -> Self {
        Self {
            seed,
            nodes,
            cores: 1,
            disk: None,
            links: Links::default(),
            fabric: Faults {
                delay_ns_min: 500,
                delay_ns_max: 2_000,
                ..Faults::default()
            },
            nics: NetworkOptions::default(),
            step: Duration::from_nanos(100),
            unix_s: 1_000_000_000,
            steps_max: u64::MAX,
        }
    }
}

/// Why a world does not go on. The seed repeats it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorldError {
    /// Tasks are left, and nothing will ever wake them.
    #[error("deadlock at {at_ns} ns with {tasks} tasks left (seed {seed})")]
    Deadlock {
        /// The seed of the run.
        seed: u64,
        /// Virtual time, in nanoseconds.
        at_ns: u64,
        /// Tasks that have not ended, on all nodes.
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
    /// A node's program panicked, or a task of a node whose handle had been dropped.
    #[error("node {node} failed at {at_ns} ns (seed {seed})")]
    Failed {
        /// The seed of the run.
        seed: u64,
        /// Virtual time, in nanoseconds.
        at_ns: u64,
        /// Which one.
        node: usize,
        /// What it failed with.
        #[source]
        error: JoinError,
    },
}

/// What a program finds on its node.
#[derive(Clone, Debug)]
pub struct Env {
    /// The number of the node.
    pub node: usize,
    /// How often the node has been started; 1 the first time.
    pub boots: u64,
    /// Its first core, which runs the program.
    pub core: Handle,
    /// All its cores.
    pub cores: Vec<Handle>,
    /// Its NIC.
    pub nic: ModelNic,
    /// Its disk, as the last power cut has left it.
    pub disk: Option<SimDevice>,
}

impl Env {
    /// The address of a node's port.
    #[must_use]
    pub fn addr(&self, node: usize, port: u16) -> Addr {
        Addr::Tcp(SocketAddr::new(ip_of(node), port))
    }
}

type Program = Rc<dyn Fn(Env) -> Pin<Box<dyn Future<Output = ()>>>>;

#[derive(Default)]
struct Node {
    /// How many it has from its next start on.
    core_count: usize,
    cores: Vec<Core>,
    program: Option<Program>,
    main: Option<JoinHandle<()>>,
    disk: Option<SimDevice>,
    boots: u64,
}

struct Core {
    core: ManualCore,
    /// When its next turn has something to do, as far as is known.
    due: Instant,
    /// It has pollers, which may find something at any time.
    polls: bool,
    /// Its last turn takes until then, or it stands still until then.
    busy_until: Instant,
}

/// When what never happens is due.
const NEVER: Instant = Instant::from_ns(u64::MAX);

impl Core {
    /// Takes a turn; returns how much it did.
    fn turn(&mut self, soon: Instant) -> usize {
        let done = self.core.turn();
        self.polls = self.core.has_pollers();
        self.busy_until = soon;
        self.due = match self.core.next() {
            Next::Now => soon,
            Next::At(at) => at,
            Next::Never => NEVER,
        };
        done
    }

    /// It takes a turn by then, or when it is no longer busy.
    fn look_by(&mut self, at: Instant) {
        self.due = self.due.min(at);
    }

    /// When it takes a turn if nothing else happens before. Who was woken takes one soon, and so does who
    /// polls, after others have done something.
    fn next(&mut self, soon: Instant, others_did: bool) -> Instant {
        if self.core.is_woken() || self.polls && others_did {
            self.look_by(soon);
        }
        self.due.max(self.busy_until)
    }
}

/// Nodes with cores, sockets, a disk and a NIC each, on one thread, in virtual time, from one seed.
///
/// Programs are those of real machines: tasks of `rt`, its sockets, block devices, verbs. In each step
/// the cores that have something to do, or to poll, take one turn, in an order drawn from the seed; then
/// the clock jumps to the next thing that is due, on any node or between them. A core whose last turn
/// still takes its time takes the next one afterwards.
pub struct World {
    options: WorldOptions,
    clock: Arc<ManualClock>,
    nodes: Vec<Node>,
    nics: Vec<ModelNic>,
    fabric: Network,
    streams: Streams,
    /// Cores that take a turn in this step, by node and number.
    order: Vec<(usize, usize)>,
    turns: fastrand::Rng,
    chance: fastrand::Rng,
    pub(crate) chances: Chances,
    steps: u64,
    trace: Trace,
}

impl World {
    /// The nodes, switched off, at time zero.
    ///
    /// # Panics
    /// If there are more than 255 nodes, or they have no cores.
    #[must_use]
    pub fn new(options: WorldOptions) -> Self {
        let seed = options.seed;
        let count = u8::try_from(options.nodes).expect("at most 255 nodes");
        let (nics, fabric) = ModelNic::networked(
            count,
            NetworkOptions {
                seed: stream(seed, "fabric").u64(..),
                ns_per_look: 0,
                ..options.nics.clone()
            },
        );
        fabric.set_faults(options.fabric.clone());
        let mut world = Self {
            clock: Arc::new(ManualClock::new(options.unix_s)),
            nodes: Vec::new(),
            nics,
            streams: Streams::new(seed, options.links, fabric.clone()),
            fabric,
            order: Vec::new(),
            turns: stream(seed, "turns"),
            chance: stream(seed, "chance"),
            chances: Chances::new(seed),
            steps: 0,
            trace: Trace::new(seed),
            options,
        };
        for node in 0..world.options.nodes {
            let disk = world.disk_config(node).map(SimDevice::new);
            world.nodes.push(Node {
                disk,
                ..Node::default()
            });
            world.set_cores(node, world.options.cores);
        }
        world
    }

    /// So many nodes of one core each, with all else as [`WorldOptions::new`] has it.
    #[must_use]
    pub fn of(seed: u64, nodes: usize) -> Self {
        Self::new(WorldOptions::new(seed, nodes))
    }

    fn disk_config(&self, node: usize) -> Option<DiskConfig> {
        let mut config = self.options.disk.clone()?;
        config.seed = stream(self.options.seed, &format!("disk {node}")).u64(..);
        config.clock = Some(self.clock.clone() as Arc<dyn Clock>);
        Some(config)
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The clock, to step the date with. Moving the time itself is the world's business.
    #[must_use]
    pub fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }

    /// Steps taken so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// A hash of the whole run so far: the same seed and programs give the same value.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.trace.value()
    }

    /// Chance for the test's own decisions, which shifts nobody else's.
    pub fn chance(&mut self) -> &mut fastrand::Rng {
        &mut self.chance
    }

    /// A node's disk, as it is now.
    #[must_use]
    pub fn disk(&self, node: usize) -> Option<&SimDevice> {
        self.nodes[node].disk.as_ref()
    }

    /// The network between the NICs.
    #[must_use]
    pub fn fabric(&self) -> &Network {
        &self.fabric
    }

    /// How many nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// From its next start on a node has so many cores.
    ///
    /// # Panics
    /// If that is none.
    pub fn set_cores(&mut self, node: usize, count: usize) {
        assert!(count > 0, "a node has a core at least");
        self.nodes[node].core_count = count;
    }

    /// How many cores a node has, or will have when it is started.
    #[must_use]
    pub fn cores(&self, node: usize) -> usize {
        let node = &self.nodes[node];
        match node.cores.len() {
            0 => node.core_count,
            on => on,
        }
    }

    /// Whether a node is on.
    #[must_use]
    pub fn is_on(&self, node: usize) -> bool {
        !self.nodes[node].cores.is_empty()
    }

    /// Starts a node with a program, which is also what it runs when it is started again.
    ///
    /// # Panics
    /// If it is on.
    pub fn boot<F>(&mut self, node: usize, program: impl Fn(Env) -> F + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let program: Program = Rc::new(move |env| Box::pin(program(env)));
        self.nodes[node].program = Some(program);
        self.restart(node);
    }

    /// Starts a node again, which has been killed.
    ///
    /// # Panics
    /// If it is on.
    pub fn restart(&mut self, node: usize) {
        assert!(!self.is_on(node), "node {node} is on");
        let env = self.env(node);
        if let Some(program) = self.nodes[node].program.clone() {
            let core = env.core.clone();
            self.nodes[node].main = Some(core.spawn(program(env)));
        }
    }

    /// Gives a node cores.
    fn power_up(&mut self, node: usize) {
        let boots = self.nodes[node].boots + 1;
        let mut random = stream(self.options.seed, &format!("node {node} boot {boots}"));
        let cores = (0..self.nodes[node].core_count).map(|_| {
            let mut config = Config::default();
            config.seed = random.u64(..);
            config.clock = self.clock.clone();
            Core {
                core: ManualCore::new(config, Some(self.streams.of(node))),
                due: Instant::ZERO,
                polls: false,
                busy_until: Instant::ZERO,
            }
        });
        let cores = cores.collect();
        let on = &mut self.nodes[node];
        on.cores = cores;
        on.boots = boots;
        self.trace.note(node as u64);
    }

    /// A node dies, as with a power cut: its tasks, its connections, its NIC's objects, and what its disk
    /// had not made durable.
    ///
    /// # Errors
    /// If one of its tasks panics while it is dropped. The node is off all the same.
    pub fn kill(&mut self, node: usize) -> Result<(), WorldError> {
        let config = self.disk_config(node);
        let off = &mut self.nodes[node];
        let purpose = format!("crash {} of node {node}", off.boots);
        let seed = stream(self.options.seed, &purpose).u64(..);
        if let (Some(disk), Some(config)) = (&off.disk, config) {
            let image = disk.snapshot().crash(seed);
            disk.cut_power();
            off.disk = Some(SimDevice::with_image(config, image));
        }
        self.end(node)
    }

    /// A node's process ends, as by SIGKILL: its tasks, its connections, its NIC's objects. Its disk has
    /// all that it was given, and loses what is not durable when the power goes.
    ///
    /// # Errors
    /// If one of its tasks panics while it is dropped. The node is off all the same.
    pub fn kill_process(&mut self, node: usize) -> Result<(), WorldError> {
        self.end(node)
    }

    fn end(&mut self, node: usize) -> Result<(), WorldError> {
        self.streams.kill(node);
        // Its NIC stands still no more when it is switched on again.
        self.fabric.pause(node, 0);
        let off = &mut self.nodes[node];
        off.main = None;
        let ended = std::mem::take(&mut off.cores).into_iter();
        let error = ended.filter_map(|it| it.core.end()).next();
        self.trace.note(!(node as u64));
        error.map_or(Ok(()), |error| Err(self.failed(node, error)))
    }

    /// A node does nothing for so long at least. Its sockets and its NIC still take what arrives.
    pub fn stall(&mut self, node: usize, duration: Duration) {
        (0..self.nodes[node].cores.len()).for_each(|core| self.stall_core(node, core, duration));
    }

    /// The same for one core of a node that is on.
    ///
    /// # Panics
    /// If the node has no such core.
    pub fn stall_core(&mut self, node: usize, core: usize, duration: Duration) {
        let until = self.now() + duration;
        let stalled = &mut self.nodes[node].cores[core];
        stalled.busy_until = stalled.busy_until.max(until);
        // It looks around afterwards.
        stalled.look_by(until);
    }

    /// A node that [stands still](World::stall) goes on, with all its cores.
    pub fn resume(&mut self, node: usize) {
        let soon = self.now() + self.options.step;
        for core in &mut self.nodes[node].cores {
            core.busy_until = core.busy_until.min(soon);
            core.look_by(soon);
        }
    }

    /// Nothing passes between two nodes until [`World::mend`], once for each cut. What is sent over
    /// sockets meanwhile arrives then; between NICs it is lost, or tried again where the transport is
    /// reliable.
    pub fn cut(&mut self, a: usize, b: usize) {
        self.fabric.cut(a, b);
    }

    /// Mends what [`World::cut`] has cut.
    ///
    /// # Panics
    /// If the nodes are not cut off from each other.
    pub fn mend(&mut self, a: usize, b: usize) {
        self.fabric.mend(a, b);
        self.streams.let_go();
    }

    /// What a program finds on a node, which is switched on if it is off.
    pub fn env(&mut self, node: usize) -> Env {
        if !self.is_on(node) {
            self.power_up(node);
        }
        let on = &mut self.nodes[node];
        for core in &mut on.cores {
            // It is given something to do from outside.
            core.look_by(Instant::ZERO);
        }
        let cores: Vec<Handle> = on.cores.iter().map(|it| it.core.handle()).collect();
        Env {
            node,
            boots: on.boots,
            core: cores[0].clone(),
            cores,
            nic: self.nics[node].clone(),
            disk: on.disk.clone(),
        }
    }

    /// Starts a task on the first core of a node, which is switched on if it is off.
    pub fn spawn<F>(&mut self, node: usize, task: impl FnOnce(Env) -> F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
    {
        let env = self.env(node);
        let core = env.core.clone();
        core.spawn(task(env))
    }

    /// Runs the world until the task started here, on a node, ends.
    ///
    /// # Errors
    /// If the task panics, or the world does not get that far.
    pub fn run<F>(
        &mut self,
        node: usize,
        main: impl FnOnce(Env) -> F,
    ) -> Result<F::Output, WorldError>
    where
        F: Future + 'static,
    {
        let mut main = self.spawn(node, main);
        while !main.is_finished() {
            self.step()?;
        }
        let result = main.try_take().expect("a finished task has a result");
        result.map_err(|error| self.failed(node, error))
    }

    /// Runs the world for so long.
    ///
    /// # Errors
    /// If a node's program panics, or the world does not get that far.
    pub fn run_for(&mut self, duration: Duration) -> Result<(), WorldError> {
        let until = self.now() + duration;
        while self.now() < until {
            self.step_until(Some(until))?;
        }
        Ok(())
    }

    /// Runs the world until something holds, for so long at most. Returns whether it does.
    ///
    /// # Errors
    /// If a node's program panics.
    pub fn run_until(
        &mut self,
        within: Duration,
        mut holds: impl FnMut(&World) -> bool,
    ) -> Result<bool, WorldError> {
        let until = self.now() + within;
        while !holds(self) {
            if self.now() >= until {
                return Ok(false);
            }
            self.step_until(Some(until))?;
        }
        Ok(true)
    }

    /// Runs the world until no task is left.
    ///
    /// # Errors
    /// If a node's program panics, or some tasks wait for ever.
    pub fn run_to_end(&mut self) -> Result<(), WorldError> {
        while self.tasks() > 0 {
            self.step()?;
        }
        Ok(())
    }

    fn tasks(&self) -> usize {
        let cores = self.nodes.iter().flat_map(|node| &node.cores);
        cores.map(|it| it.core.tasks()).sum()
    }

    fn failed(&self, node: usize, error: JoinError) -> WorldError {
        WorldError::Failed {
            seed: self.options.seed,
            at_ns: self.now().as_ns(),
            node,
            error,
        }
    }

    fn step(&mut self) -> Result<(), WorldError> {
        self.step_until(None)
    }

    /// One turn of every core that has something to do; then time passes, but not beyond `until`.
    fn step_until(&mut self, until: Option<Instant>) -> Result<(), WorldError> {
        let (now, seed) = (self.now(), self.options.seed);
        if self.steps >= self.options.steps_max {
            return Err(WorldError::Endless {
                seed,
                at_ns: now.as_ns(),
                steps: self.steps,
            });
        }
        self.steps += 1;
        let has_landed = self.fabric.next_ns().is_some_and(|at| at <= now.as_ns());
        self.fabric.advance(now.as_ns());
        let has_arrived = self.streams.advance(now) > 0;
        let soon = now + self.options.step;
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        for (number, node) in self.nodes.iter_mut().enumerate() {
            for (core, it) in node.cores.iter_mut().enumerate() {
                if has_arrived || it.polls && has_landed {
                    it.look_by(now);
                }
                if (it.due <= now || it.polls) && it.busy_until <= now {
                    order.push((number, core));
                }
            }
        }
        self.turns.shuffle(&mut order);
        let mut work = 0;
        for &(node, number) in &order {
            let core = &mut self.nodes[node].cores[number];
            let done = core.turn(soon);
            if let Some(error) = core.core.take_unjoined() {
                return Err(self.failed(node, error));
            }
            work += done;
            for what in [node, number, done] {
                self.trace.note(what as u64);
            }
            self.look_at_program(node)?;
        }
        self.order = order;
        self.trace.note(now.as_ns());
        match self.next(soon, work > 0).into_iter().chain(until).min() {
            Some(next) => self.clock.advance_to(next),
            // What was done last may be what the run waited for.
            None if work > 0 => self.clock.advance_to(soon),
            None => {
                return Err(WorldError::Deadlock {
                    seed,
                    at_ns: now.as_ns(),
                    tasks: self.tasks(),
                });
            }
        }
        Ok(())
    }

    fn look_at_program(&mut self, node: usize) -> Result<(), WorldError> {
        if !self.nodes[node]
            .main
            .as_ref()
            .is_some_and(JoinHandle::is_finished)
        {
            return Ok(());
        }
        let mut main = self.nodes[node].main.take().expect("just looked at");
        match main.try_take() {
            Some(Err(error @ JoinError::Panicked(_))) => Err(self.failed(node, error)),
            _ => Ok(()),
        }
    }

    /// When something happens next.
    fn next(&mut self, soon: Instant, has_worked: bool) -> Option<Instant> {
        let cores = self.nodes.iter_mut().flat_map(|node| &mut node.cores);
        let turn = cores.map(|core| core.next(soon, has_worked)).min();
        let fabric = self.fabric.next_ns().map(Instant::from_ns);
        let due = [turn, fabric, self.streams.next()];
        due.into_iter().flatten().min().filter(|due| *due < NEVER)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("seed", &self.options.seed)
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}
