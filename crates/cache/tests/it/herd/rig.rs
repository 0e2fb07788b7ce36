//! A server and its clients in one thread, step by step.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;

use cache::herd::client::{Control, Pace};
use cache::herd::{
    Acceptor, Armed, Attachment, BlockingClient, Client, ClientConfig, Server, ServerConfig,
};
use cache::mica::{Options, Partition};
use rustix::event::{PollFd, PollFlags, Timespec};
use tempfile::TempDir;
use verbs::typed::{Context, ProtectionDomain};

use crate::herd::meddler::Meddler;

/// Time that passes in a step.
pub(crate) const STEP_NS: u64 = 1_000;

pub(crate) struct Machine {
    pub(crate) servers: Vec<Server>,
    pub(crate) partitions: Vec<Partition>,
    pub(crate) acceptor: Acceptor,
    /// Made by the acceptor, not yet with their cores.
    pub(crate) arriving: VecDeque<Attachment>,
    /// Clients whose control stream closed.
    pub(crate) leaving: Vec<u32>,
    /// Differs from start to start of the server.
    pub(crate) incarnation: u64,
}

pub(crate) struct World {
    pub(crate) now_ns: u64,
    pub(crate) now_s: u32,
    pub(crate) machine: Option<Machine>,
    /// Cores that do not run.
    pub(crate) frozen: Vec<u32>,
    /// New attachments wait.
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
    partition_bytes: usize,
    _run_dir: Option<Rc<TempDir>>,
}

impl Rig {
    pub(crate) fn new(config: ServerConfig) -> Rig {
        let fabric = super::fabric();
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
            partition_bytes: 8 << 20,
            _run_dir: fabric.run_dir.map(Rc::new),
        };
        rig.start();
        rig
    }

    /// Starts the server, with empty partitions.
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
        let partition = |_| Partition::new(&Options::new(self.partition_bytes)).unwrap();
        self.world.borrow_mut().machine = Some(Machine {
            servers,
            partitions: (0..config.cores).map(partition).collect(),
            acceptor: Acceptor::new(pd, &config, ports).unwrap(),
            arriving: VecDeque::new(),
            leaving: Vec::new(),
            incarnation,
        });
    }

    /// Ends the server at once.
    pub(crate) fn kill(&self) {
        self.world.borrow_mut().machine = None;
    }

    /// Lets every core that runs poll once, and time pass.
    pub(crate) fn step(&self) -> usize {
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        world.now_ns += STEP_NS;
        let Some(machine) = &mut world.machine else {
            return 0;
        };
        if !world.attach_later {
            for attachment in machine.arriving.drain(..) {
                machine.servers[attachment.core() as usize].attach(attachment);
            }
        }
        for client in machine.leaving.drain(..) {
            let (gone, arriving) = std::mem::take(&mut machine.arriving)
                .into_iter()
                .partition(|attachment| attachment.client() == client);
            machine.arriving = arriving;
            let attached = machine
                .servers
                .iter_mut()
                .filter_map(|server| server.detach(client));
            let gone: VecDeque<Attachment> = gone;
            for attachment in attached.chain(gone) {
                machine.acceptor.release(attachment, world.now_ns);
            }
        }
        let mut done = 0;
        for (server, partition) in machine.servers.iter_mut().zip(&mut machine.partitions) {
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
            let count = server.poll(partition, world.now_ns, world.now_s, 64);
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

    pub(crate) fn dial(&self) -> impl FnMut() -> io::Result<Line> + use<> {
        let world = Rc::clone(&self.world);
        move || {
            let incarnation = match &world.borrow().machine {
                Some(machine) => machine.incarnation,
                None => return Err(io::ErrorKind::ConnectionRefused.into()),
            };
            Ok(Line {
                world: Rc::clone(&world),
                incarnation,
                sent: Vec::new(),
                received: VecDeque::new(),
                client: None,
            })
        }
    }

    pub(crate) fn client(&self, config: ClientConfig) -> Client<impl FnMut() -> io::Result<Line>> {
        Client::connect(self.client_pd(), config, self.dial(), self.now_ns()).unwrap()
    }

    pub(crate) fn blocking(
        &self,
        config: ClientConfig,
    ) -> BlockingClient<impl FnMut() -> io::Result<Line>, Rig> {
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

/// A control stream: the server's door answers while the client writes.
pub(crate) struct Line {
    world: Rc<RefCell<World>>,
    incarnation: u64,
    sent: Vec<u8>,
    received: VecDeque<u8>,
    client: Option<u32>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Line of {:?}", self.client)
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sent.extend_from_slice(bytes);
        let mut world = self.world.borrow_mut();
        let now_ns = world.now_ns;
        let Some(machine) = &mut world.machine else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        while let Some(end) = self.sent.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.sent.drain(..=end).collect();
            let reply = machine.acceptor.answer(&line, now_ns);
            self.received.extend(reply.line.bytes());
            self.received.extend(b"\r\n");
            if let Some((client, attachments)) = reply.attached {
                self.client = Some(client);
                machine.arriving.extend(attachments);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Line {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.received.read(bytes)
    }
}

impl Control for Line {
    fn is_closed(&mut self) -> bool {
        let world = self.world.borrow();
        !matches!(&world.machine, Some(machine) if machine.incarnation == self.incarnation)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Ok(mut world) = self.world.try_borrow_mut()
            && let Some(machine) = &mut world.machine
            && machine.incarnation == self.incarnation
            && let Some(client) = self.client
        {
            machine.leaving.push(client);
        }
    }
}
