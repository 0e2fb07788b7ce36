//! The server: its cores, which poll, stall, sleep and wake, and its death.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use anyhow::Context as _;
use cache::herd::local::LocalDoor;
use cache::herd::{Acceptor, Armed, Server, ServerConfig};
use cache::mica::{Options, Partition};
use conformance::model::ModelNic;
use rustix::event::{PollFd, PollFlags, Timespec};
use verbs::typed::Context;

use crate::plan::Plan;

/// One core.
pub(super) struct Core {
    pub(super) server: Server,
    pub(super) partition: Partition,
    pub(super) stalled_until_ns: u64,
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
    pub(super) fn start(plan: &Plan, nic: &ModelNic, incarnation: u64) -> anyhow::Result<Machine> {
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
            let partition = Partition::new(&options)?;
            cores.push(Core {
                server,
                partition,
                stalled_until_ns: 0,
                is_arming: false,
                is_asleep: false,
            });
            ports.push(port);
        }
        let door = LocalDoor::new(Acceptor::new(pd, &config, ports)?);
        Ok(Machine { cores, door })
    }

    /// Whether a core's next step begins with going to sleep: what arrives in between, its last look
    /// must find.
    pub(super) fn is_arming(&self, core: usize) -> bool {
        self.cores[core].is_arming
    }

    /// Lets a core run once, with its clocks; returns the clients that it let go.
    pub(super) fn step(
        &mut self,
        core: usize,
        now_ns: u64,
        now_s: u32,
    ) -> anyhow::Result<Vec<u32>> {
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
        let done = core.server.poll(&mut core.partition, now_ns, now_s, 64);
        core.is_arming = done == 0;
        Ok(gone)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.door.close();
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> anyhow::Result<bool> {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    Ok(rustix::event::poll(&mut fds, Some(&Timespec::default()))? > 0)
}
