//! A server and its clients in one thread, step by step.

use std::cell::RefCell;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use cache::herd::client::{Dial, Pace};
use cache::herd::local::{LocalDoor, LocalStream};
use cache::herd::{Acceptor, Armed, BlockingClient, Client, ClientConfig, Server, ServerConfig};
use rustix::event::{PollFd, PollFlags, Timespec};
use tempfile::TempDir;
use verbs::typed::{Context, ProtectionDomain};

use crate::herd::Fabric;
use crate::herd::meddler::Meddler;

/// Time that passes in a step.
pub(crate) const STEP_NS: u64 = 1_000;

pub(crate) struct Machine {
    pub(crate) servers: Vec<Server<super::Engine>>,
    pub(crate) engines: Vec<super::Engine>,
    pub(crate) door: LocalDoor,
}

pub(crate) struct World {
    pub(crate) now_ns: u64,
    pub(crate) now_s: u32,
    pub(crate) machine: Option<Machine>,
    /// Cores that do not run.
    pub(crate) frozen: Vec<u32>,
    /// Cores do not look who has come or gone.
    pub(crate) attach_later: bool,
    /// Cores go to sleep when they may.
    pub(crate) sleepy: bool,
    /// Cores that sleep, until their channel wakes them.
    pub(crate) asleep: Vec<u32>,
}

/// The server's and the clients' NICs, and what runs on them.
#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) server_nic: Meddler,
    pub(crate) client_nic: Meddler,
    pub(crate) world: Rc<RefCell<World>>,
    pub(crate) config: ServerConfig,
    catch_up: Rc<dyn Fn()>,
    #[allow(dead_code, reason = "without its reader, it is only kept")]
    run_dir: Option<Rc<TempDir>>,
}

impl Rig {
    pub(crate) fn new(config: ServerConfig) -> Rig {
        Rig::on(super::fabric(), config)
    }

    pub(in crate::herd) fn on(fabric: Fabric, config: ServerConfig) -> Rig {
        let (server_nic, client_nic) = (Meddler::new(fabric.server), Meddler::new(fabric.client));
        let rig = Rig {
            server_nic,
            client_nic,
            world: Rc::new(RefCell::new(World {
                now_ns: 1_000_000,
                now_s: 1_000_000,
                machine: None,
                frozen: Vec::new(),
                attach_later: false,
                sleepy: false,
                asleep: Vec::new(),
            })),
            config,
            catch_up: fabric.catch_up,
            run_dir: fabric.run_dir.map(Rc::new),
        };
        rig.start();
        rig
    }

    /// Starts the server, with nothing in its engines.
    pub(crate) fn start(&self) {
        let pd = Context::new(Arc::new(self.server_nic.clone()))
            .alloc_pd()
            .unwrap();
        let incarnation = self.config.incarnation + self.world.borrow().now_ns;
        let config = ServerConfig {
            incarnation,
            ..self.config.clone()
        };
        let made: Vec<_> = (0..config.cores)
            .map(|core| Server::new(&pd, core, &config).unwrap())
            .collect();
        let (servers, ports) = made.into_iter().unzip();
        self.world.borrow_mut().machine = Some(Machine {
            servers,
            engines: (0..config.cores).map(|_| super::engine()).collect(),
            door: LocalDoor::new(Acceptor::new(pd, &config, ports).unwrap()),
        });
    }

    /// Where the software NIC's adapters meet.
    #[allow(dead_code, reason = "the reference NIC's tests have no use for it")]
    pub(crate) fn run_dir(&self) -> &Path {
        self.run_dir.as_ref().expect("the software NIC").path()
    }

    /// Ends the server at once.
    pub(crate) fn kill(&self) {
        if let Some(machine) = self.world.borrow_mut().machine.take() {
            machine.door.close();
        }
    }

    /// Lets every core that runs poll once, and time pass.
    pub(crate) fn step(&self) -> usize {
        (self.catch_up)();
        let done = self.poll_cores();
        (self.catch_up)();
        done
    }

    /// Lets every core poll, until no request waits for its engine.
    pub(crate) fn settle(&self) {
        let pending = || {
            let waits = |machine: &mut Machine| machine.servers.iter().any(|at| at.pending() > 0);
            self.machine(waits)
        };
        self.step();
        while pending() {
            self.step();
        }
    }

    fn poll_cores(&self) -> usize {
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        world.now_ns += STEP_NS;
        let Some(machine) = &mut world.machine else {
            return 0;
        };
        let mut done = 0;
        for (server, engine) in machine.servers.iter_mut().zip(&mut machine.engines) {
            if !world.attach_later {
                machine.door.serve(server, world.now_ns);
            }
            if world.frozen.contains(&server.core()) {
                continue;
            }
            if world.asleep.contains(&server.core()) {
                if !is_readable(server.channel()) {
                    continue;
                }
                world.asleep.retain(|&core| core != server.core());
                server.disarm().unwrap();
            }
            let count = server.poll(engine, world.now_ns, world.now_s, 64);
            if world.sleepy && count == 0 && server.arm(world.now_ns).unwrap() == Armed::Sleep {
                world.asleep.push(server.core());
            }
            done += count;
        }
        done
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.world.borrow().now_ns
    }

    /// Looks at the machine, which must be there.
    pub(crate) fn machine<R>(&self, look: impl FnOnce(&mut Machine) -> R) -> R {
        look(self.world.borrow_mut().machine.as_mut().unwrap())
    }

    pub(crate) fn client_pd(&self) -> ProtectionDomain {
        Context::new(Arc::new(self.client_nic.clone()))
            .alloc_pd()
            .unwrap()
    }

    pub(crate) fn dial(&self) -> impl FnMut() -> io::Result<LocalStream> + use<> {
        let world = Rc::clone(&self.world);
        move || match &mut world.borrow_mut().machine {
            Some(machine) => machine.door.dial(),
            None => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }

    pub(crate) fn client(
        &self,
        config: ClientConfig,
    ) -> Client<impl FnMut() -> io::Result<LocalStream>> {
        Client::connect(self.client_pd(), config, self.dial(), self.now_ns()).unwrap()
    }

    pub(crate) fn blocking(
        &self,
        config: ClientConfig,
    ) -> BlockingClient<impl FnMut() -> io::Result<LocalStream>, Rig> {
        BlockingClient::connect(self.client_pd(), config, self.dial(), self.clone()).unwrap()
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
}

impl Pace for Rig {
    fn now_ns(&mut self) -> u64 {
        self.world.borrow().now_ns
    }

    fn wait(&mut self) {
        self.step();
    }
}
