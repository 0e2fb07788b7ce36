//! The RDMA side of a server, whatever its engine: the NIC, each core's HERD server as a poller of the
//! core, and what all of them count.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use anyhow::Context as _;
use cache::herd::server::{Prepared, ServerStats};
use cache::herd::{Acceptor, Armed, Server, ServerConfig};
use engine::Engine;
use nic_soft::{SoftNic, SoftOptions};
use rt::{Arm, Clock, Instant, Poller};
use verbs::WcStatus;
use verbs::decorate::Counted;
use verbs::nic::Nic;
use verbs::typed::{Context, ProtectionDomain};

use super::control::{self, Control};
use super::lock_gid;
use crate::cli::{OpenedNic, ServeFlags, open_nic, told_run_dir};

/// How often counters are published, and the date is read, while the core is awake.
const PUBLISH_EVERY_NS: u64 = 10_000_000;

/// The NIC of a server.
pub(super) struct Rdma {
    pub(super) options: SoftOptions,
    soft: Arc<SoftNic>,
    counted: Option<Arc<Counted>>,
    pd: ProtectionDomain,
    /// One server an address.
    _only: File,
}

/// What a server has for each of its cores, and the threads that connect clients.
pub(super) struct HerdParts {
    pub(super) servers: Vec<Prepared>,
    pub(super) control: Control,
    pub(super) threads: Vec<std::thread::JoinHandle<()>>,
    pub(super) board: Arc<HerdBoard>,
}

impl Rdma {
    /// Opens the NIC that the flags ask for.
    pub(super) fn open(flags: &ServeFlags) -> anyhow::Result<Self> {
        let OpenedNic {
            options,
            soft,
            mut context,
        } = open_nic(&flags.nic)?;
        let counted = flags
            .nic_count
            .then(|| Arc::new(Counted::new(Arc::clone(context.nic()))));
        if let Some(counted) = &counted {
            let counting: Arc<dyn Nic> = Arc::<Counted>::clone(counted);
            context = Context::new(counting);
        }
        let only = lock_gid(&options)?;
        let pd = context
            .alloc_pd()
            .context("the NIC refuses a protection domain")?;
        Ok(Rdma {
            options,
            soft,
            counted,
            pd,
            _only: only,
        })
    }

    /// Makes each core's server, and starts the control threads.
    pub(super) fn prepare(&self, config: &ServerConfig) -> anyhow::Result<HerdParts> {
        let (mut servers, mut ports) = (Vec::new(), Vec::new());
        for core in 0..config.cores {
            let (server, port) = Prepared::new(&self.pd, core, config)
                .with_context(|| format!("cannot make core {core}'s HERD server"))?;
            servers.push(server);
            ports.push(port);
        }
        let acceptor =
            Acceptor::new(self.pd.clone(), config, ports).context("cannot take clients")?;
        let acceptor = Arc::new(acceptor);
        let (control, threads) =
            control::start(Arc::clone(&acceptor)).context("cannot start the control threads")?;
        let board = Arc::new(HerdBoard {
            cores: (0..config.cores).map(|_| Mutex::default()).collect(),
            resets: AtomicU64::new(0),
            acceptor,
            config: config.clone(),
            gid: self.options.gid.to_string(),
            // Whole, for those who work in another directory.
            run_dir: told_run_dir(&self.options.run_dir),
            nic: Arc::clone(&self.soft),
            counted: self.counted.clone(),
        });
        Ok(HerdParts {
            servers,
            control,
            threads,
            board,
        })
    }
}

/// One core's counters, as it published them last.
#[derive(Clone, Copy, Default)]
struct Snapshot {
    stats: ServerStats,
    clients: usize,
    pending: usize,
    staging: usize,
    /// How often the counters had been reset when the core looked last.
    resets: u64,
}

/// Where cores publish what their HERD servers count.
pub(super) struct HerdBoard {
    cores: Vec<Mutex<Snapshot>>,
    resets: AtomicU64,
    acceptor: Arc<Acceptor>,
    config: ServerConfig,
    gid: String,
    run_dir: String,
    /// The NIC, which knows what is in use of it.
    nic: Arc<SoftNic>,
    /// What counts the NIC's work, if that is wanted.
    counted: Option<Arc<Counted>>,
}

/// A counter's name, and where it is found.
type HerdCounter = (&'static str, fn(&ServerStats) -> u64);

/// The counters of a core's HERD server, by the names that they are told by.
const HERD_COUNTERS: [HerdCounter; 13] = [
    ("requests", |one| one.requests),
    ("batches", |one| one.batches),
    ("sweeps", |one| one.sweeps),
    ("kicks", |one| one.kicks),
    ("replays", |one| one.replays),
    ("waits", |one| one.waits),
    ("invalid", |one| one.invalid),
    ("wrong_core", |one| one.wrong_core),
    ("answers", |one| one.answers),
    ("answers_not_inlined", |one| one.answers_ring),
    ("post_errors", |one| one.post_errors),
    ("send_errors", |one| one.send_errors),
    ("queue_errors", |one| one.queue_errors),
];

impl HerdBoard {
    /// Publishes a core's counters, unless somebody is just reading them. Whether it did.
    fn publish<E: Engine>(&self, server: &mut Server<E>) -> bool {
        let Some(mut snapshot) = take_unless_read(&self.cores[server.core() as usize]) else {
            return false;
        };
        // Whoever reset the counters comes for this core's afterwards, so none from before come back.
        let resets = self.resets.load(Ordering::SeqCst);
        if snapshot.resets != resets {
            server.reset_stats();
        }
        *snapshot = Snapshot {
            stats: server.stats(),
            clients: server.clients(),
            pending: server.pending(),
            staging: server.staging_in_use(),
            resets,
        };
        true
    }

    /// Sets the counters to zero; each core follows when it publishes the next time.
    pub(super) fn reset(&self) {
        self.resets.fetch_add(1, Ordering::SeqCst);
        for core in &self.cores {
            core.lock().unwrap_or_else(PoisonError::into_inner).stats = ServerStats::default();
        }
        self.acceptor.reset_stats();
    }

    fn sum(&self, field: impl Fn(&Snapshot) -> u64) -> u64 {
        let read =
            |core: &Mutex<Snapshot>| field(&core.lock().unwrap_or_else(PoisonError::into_inner));
        self.cores.iter().map(read).sum()
    }

    /// Every core knows of each client, sooner or later.
    fn clients(&self) -> u64 {
        let read = |core: &Mutex<Snapshot>| {
            core.lock().unwrap_or_else(PoisonError::into_inner).clients as u64
        };
        self.cores.iter().map(read).max().unwrap_or(0)
    }

    /// Requests of a core's clients.
    pub(super) fn requests_of(&self, core: usize) -> u64 {
        let core = self.cores[core].lock();
        core.unwrap_or_else(PoisonError::into_inner).stats.requests
    }

    /// What belongs to the general counters.
    pub(super) fn general(&self, tell: &mut dyn FnMut(&str, u64)) {
        tell("herd_clients", self.clients());
        tell("herd_requests", self.sum(|one| one.stats.requests));
        tell("herd_clients_rejected", self.acceptor.usage().refused);
    }

    pub(super) fn settings(&self, out: &mut dyn FnMut(&str, &str)) {
        out("gid", &self.gid);
        out("run_dir", &self.run_dir);
        let mut tell = |name: &str, value: usize| out(name, &value.to_string());
        let (clients, cores) = (self.config.clients_max as usize, self.cores.len());
        tell("herd_window", self.config.window_max as usize);
        tell("herd_clients_max", clients);
        tell("herd_client_queue_pairs", cores);
        tell("herd_queue_pairs_max", clients * cores);
        let client_memory = self.config.client_memory();
        tell("herd_client_bytes_max", client_memory);
        tell("herd_bytes_max", clients * client_memory);
    }

    /// What clients hold, and what the cores have done for them.
    pub(super) fn herd(&self, out: &mut dyn FnMut(&str, &str)) {
        let mut tell = |name: &str, value: u64| out(name, &value.to_string());
        tell("clients", self.clients());
        let usage = self.acceptor.usage();
        // Also those that some core has not let go yet.
        tell("clients_held", usage.clients as u64);
        tell("handles_resting", usage.handles_resting as u64);
        tell("clients_max", self.config.clients_max.into());
        tell("clients_rejected", usage.refused);
        tell("queue_pairs", usage.queue_pairs as u64);
        tell("registered_bytes", usage.registered_bytes);
        tell("pending", self.sum(|one| one.pending as u64));
        tell("large_values", self.sum(|one| one.staging as u64));
        for (name, counter) in HERD_COUNTERS {
            tell(name, self.sum(|one| counter(&one.stats)));
        }
    }

    /// What is in use of the NIC, and its work if that is counted.
    pub(super) fn nic(&self, out: &mut dyn FnMut(&str, &str)) {
        let mut tell = |name: &str, value: u64| out(name, &value.to_string());
        let usage = self.nic.usage();
        tell("instance", usage.instance.into());
        tell("queue_pairs", usage.queue_pairs as u64);
        tell("regions", usage.regions as u64);
        tell("lanes", usage.lanes as u64);
        tell("peers", usage.peers as u64);
        tell("connections", usage.connections as u64);
        let counters = self.nic.counters();
        tell("connections_refused", counters.refused);
        tell("messages_unsent", counters.unsent);
        tell("messages_unreceived", counters.unreceived);
        let Some(counted) = &self.counted else {
            return;
        };
        let counts = counted.counts();
        tell("send_batches", counts.send_batches);
        tell("sends", counts.sends);
        tell("send_bytes", counts.send_bytes);
        tell("recv_batches", counts.recv_batches);
        tell("recvs", counts.recvs);
        tell("refusals", counts.refusals);
        tell("polls_empty", counts.polls_empty);
        tell("polls_full", counts.polls_full);
        tell("completions_ok", counts.completed(WcStatus::Success));
        let all: u64 = counts.completions.iter().sum();
        tell(
            "completions_failed",
            all - counts.completed(WcStatus::Success),
        );
        tell("completion_bytes", counts.completion_bytes);
        tell("arms", counts.arms);
    }
}

/// A core's counters to be written, unless somebody is just reading them.
pub(super) fn take_unless_read<T>(core: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match core.try_lock() {
        Ok(snapshot) => Some(snapshot),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The date by which items expire, and by how much clients' dates are ahead of it.
pub(super) struct Date {
    pub(super) now_s: u64,
    pub(super) ahead_s: i64,
}

/// A core's HERD server as a poller of the core, in front of the core's engine.
pub(super) struct HerdPoller<E: Engine> {
    server: Rc<RefCell<Server<E>>>,
    engine: Rc<RefCell<E>>,
    board: Arc<HerdBoard>,
    clock: Arc<dyn Clock>,
    /// Read every few milliseconds: items expire by the second.
    date: Box<dyn Fn() -> Date>,
    /// What else the core publishes; whether it did.
    publish: Box<dyn Fn(&E) -> bool>,
    date_s: u32,
    date_ns: u64,
    publish_ns: u64,
    /// Readable when a client kicks a sleeping server.
    wake: OwnedFd,
}

impl<E: Engine> HerdPoller<E> {
    pub(super) fn new(
        server: Rc<RefCell<Server<E>>>,
        engine: Rc<RefCell<E>>,
        board: Arc<HerdBoard>,
        clock: Arc<dyn Clock>,
        date: impl Fn() -> Date + 'static,
        publish: impl Fn(&E) -> bool + 'static,
    ) -> std::io::Result<Self> {
        let wake = server.borrow().channel().try_clone_to_owned()?;
        Ok(HerdPoller {
            server,
            engine,
            board,
            clock,
            date_s: cache::mica::seconds(date().now_s),
            date: Box::new(date),
            publish: Box::new(publish),
            date_ns: 0,
            publish_ns: 0,
            wake,
        })
    }

    /// Publishes the core's counters, unless somebody is just reading them. Whether it did.
    fn publish(&mut self) -> bool {
        self.board.publish(&mut self.server.borrow_mut()) && (self.publish)(&self.engine.borrow())
    }
}

impl<E: Engine> Poller for HerdPoller<E> {
    fn poll(&mut self, now: Instant, budget: usize) -> usize {
        let now_ns = now.as_ns();
        let mut server = self.server.borrow_mut();
        if now_ns.wrapping_sub(self.date_ns) >= PUBLISH_EVERY_NS {
            self.date_ns = now_ns;
            let Date { now_s, ahead_s } = (self.date)();
            self.date_s = cache::mica::seconds(now_s);
            server.set_dates_ahead(ahead_s);
        }
        let mut engine = self.engine.borrow_mut();
        let done = server.poll(&mut *engine, now_ns, self.date_s, budget);
        drop((server, engine));
        // Whatever the core does: its sockets' requests count as well.
        if now_ns.wrapping_sub(self.publish_ns) >= PUBLISH_EVERY_NS && self.publish() {
            self.publish_ns = now_ns;
        }
        done
    }

    fn arm(&mut self) -> Arm<'_> {
        if !self.publish() {
            // A reader would find old counters for as long as the core sleeps.
            return Arm::Busy;
        }
        let now_ns = self.clock.now().as_ns();
        let armed = self.server.borrow_mut().arm(now_ns);
        match armed {
            Ok(Armed::Busy) => Arm::Busy,
            Ok(Armed::Ready) => Arm::Ready,
            Ok(Armed::Sleep) => Arm::Sleep {
                fd: Some(self.wake.as_fd()),
                deadline: None,
            },
            Err(error) => {
                tracing::error!(%error, "a core cannot sleep");
                Arm::Busy
            }
        }
    }

    fn disarm(&mut self) {
        if let Err(error) = self.server.borrow_mut().disarm() {
            tracing::error!(%error, "a core's completion channel is broken");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_told_when_its_counters_could_not_be_published() {
        let snapshot = Mutex::<Snapshot>::default();
        let reader = snapshot.lock().unwrap();
        assert!(take_unless_read(&snapshot).is_none());
        drop(reader);
        assert!(take_unless_read(&snapshot).is_some());
    }

    #[test]
    fn each_counter_of_herd_is_told_by_its_own_name() {
        let mut stats = ServerStats::default();
        stats.requests = 1;
        stats.batches = 2;
        stats.sweeps = 3;
        stats.kicks = 4;
        stats.replays = 5;
        stats.waits = 6;
        stats.invalid = 7;
        stats.wrong_core = 8;
        stats.answers = 9;
        stats.answers_ring = 10;
        stats.post_errors = 11;
        stats.send_errors = 12;
        stats.queue_errors = 13;
        let told = HERD_COUNTERS.map(|(name, counter)| (name, counter(&stats)));
        assert_eq!(
            told,
            [
                ("requests", 1),
                ("batches", 2),
                ("sweeps", 3),
                ("kicks", 4),
                ("replays", 5),
                ("waits", 6),
                ("invalid", 7),
                ("wrong_core", 8),
                ("answers", 9),
                ("answers_not_inlined", 10),
                ("post_errors", 11),
                ("send_errors", 12),
                ("queue_errors", 13),
            ]
        );
    }
}
