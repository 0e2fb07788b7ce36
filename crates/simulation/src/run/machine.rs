//! The server: its cores, which poll, stall, sleep and wake, and its death.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use anyhow::Context as _;
use cache::herd::local::LocalDoor;
use cache::herd::{Acceptor, Armed, Server, ServerConfig};
use cache::mica::{Options, Partition};
use conformance::model::ModelNic;
use engine::LateEngine;
use rustix::event::{PollFd, PollFlags, Timespec};
use sim::Env;
use verbs::typed::Context;

use super::{Failure, Life, Shared, State, steps};
use crate::plan::Plan;

/// A partition whose answers may come later, as those of an engine that reads a device.
type Engine = LateEngine<Partition>;

/// One core.
pub(super) struct Core {
    pub(super) server: Server<Engine>,
    pub(super) engine: Engine,
    /// It found nothing to do, and goes to sleep next, if it may.
    is_arming: bool,
    is_asleep: bool,
}

/// A server from its start to its death.
pub(super) struct Machine {
    pub(super) cores: Vec<Core>,
    pub(super) door: LocalDoor,
}

impl Machine {
    fn start(plan: &Plan, nic: &ModelNic, incarnation: u64) -> anyhow::Result<Machine> {
        let pd = Context::new(Arc::new(nic.clone())).alloc_pd()?;
        let config = ServerConfig {
            incarnation,
            ..plan.server.clone()
        };
        let (mut cores, mut ports) = (Vec::new(), Vec::new());
        for core in 0..config.cores {
            let (server, port) = Server::new(&pd, core, &config)?;
            let options = Options {
                index_permille: 300,
                // As a random one would, it differs from start to start.
                hash_seed: plan.hash_seed(),
                first_version: (incarnation as u32).wrapping_mul(0x0123_4567),
                ..Options::new(plan.partition_bytes)
            };
            let seed = plan.seed ^ incarnation << 32 ^ u64::from(core);
            let partition = Partition::new(&options)?;
            cores.push(Core {
                server,
                engine: LateEngine::new(partition, seed, plan.late_percent),
                is_arming: false,
                is_asleep: false,
            });
            ports.push(port);
        }
        let door = LocalDoor::new(Acceptor::new(pd, &config, ports)?);
        Ok(Machine { cores, door })
    }

    /// Lets a core run once, with its clocks; returns the clients that it let go.
    fn step(&mut self, core: usize, now_ns: u64, now_s: u32) -> anyhow::Result<Vec<u32>> {
        self.door.pass_time(now_ns);
        let has_news = self.door.has_news(core as u32);
        let core = &mut self.cores[core];
        if core.is_asleep {
            if !has_news && !is_readable(core.server.channel())? {
                return Ok(Vec::new());
            }
            core.is_asleep = false;
            core.server.disarm().context("waking a core")?;
        }
        if std::mem::take(&mut core.is_arming)
            && core.server.arm(now_ns).context("arming a core")? == Armed::Sleep
        {
            core.is_asleep = true;
            return Ok(Vec::new());
        }
        let gone = self.door.serve(&mut core.server, now_ns);
        let done = core.server.poll(&mut core.engine, now_ns, now_s, 64);
        core.is_arming = done == 0;
        Ok(gone)
    }
}

/// The program of the server's node.
pub(super) async fn serve(env: Env, state: Shared) {
    let _life = Life::new(&state, State::server_died);
    let started = state.borrow_mut().start_machine(&env.nic, env.boots);
    if let Err(error) = started {
        return state.borrow_mut().failed = Some(error.into());
    }
    for (number, core) in env.cores.iter().enumerate() {
        let step = move |state: &mut State| state.step_core(number);
        drop(core.spawn(steps(core.clone(), state.clone(), step)));
    }
    std::future::pending::<()>().await;
}

impl State {
    fn start_machine(&mut self, nic: &ModelNic, incarnation: u64) -> anyhow::Result<()> {
        let machine = Machine::start(&self.plan, nic, incarnation)?;
        let partitions = machine.cores.iter().map(|core| &core.engine.inner);
        self.item_len_max = partitions.map(Partition::item_bytes_max).min().unwrap_or(0);
        self.exchange.borrow_mut().lead_to(machine.door.clone());
        self.machine = Some(machine);
        self.note(|| "the server starts".to_string());
        Ok(())
    }

    /// Lets a core run once; returns how long it waits until the next time.
    fn step_core(&mut self, core: usize) -> Result<u64, Failure> {
        let (now_ns, now_s) = (self.now_ns(), self.clock_s(core));
        let poll_ns = self.plan.core_poll_ns;
        let Some(machine) = &mut self.machine else {
            return Ok(poll_ns);
        };
        let gone = machine.step(core, now_ns, now_s)?;
        let is_arming = machine.cores[core].is_arming;
        for client in gone {
            if let Some(&wire) = self.wires_by_client.get(&client) {
                self.moment += 1;
                self.was_let_go(wire, core);
                self.note(|| format!("core {core} lets client {client} go (stream {wire})"));
            }
        }
        // Its next step begins with going to sleep: what arrives in between, its last look must find.
        Ok(if is_arming {
            self.random.u64(..=self.arming_ns_max.max(poll_ns))
        } else {
            self.random.u64(poll_ns / 2..=poll_ns * 2)
        })
    }

    /// The server has died.
    fn server_died(&mut self) {
        let Some(machine) = self.machine.take() else {
            return;
        };
        machine.door.close();
        if !self.is_calm {
            self.counts.note("servers died", 1);
        }
        for core in &machine.cores {
            let stats = core.engine.inner.stats();
            let pushed_out = stats.log_evictions + stats.index_evictions;
            self.counts.note("items pushed out", pushed_out);
            self.counts
                .note("answers that came later", core.server.stats().waits);
        }
        drop(machine);
        let wire_next = self.exchange.borrow_mut().end_all();
        self.wires_by_client.clear();
        self.moment += 1;
        self.all_died(wire_next);
        self.note(|| "the server dies".to_string());
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> anyhow::Result<bool> {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    Ok(rustix::event::poll(&mut fds, Some(&Timespec::default()))? > 0)
}
