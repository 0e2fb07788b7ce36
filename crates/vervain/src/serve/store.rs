//! `vervain serve --engine store`: a store on flash behind both doors.
//!
//! Every core serves every key: the store is shared, and a key's changes take their turns in it. An
//! answer comes when the change has the durability that was asked for.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use block::{BlockError, FileDevice};
use cache::herd::Server;
use cache::herd::server::Prepared;
use engine::{Answer, Ask, Command, Engine, Failure, Limits as ItemLimits, StatsPage};
use memcache::{Event, Host, Pool};
use rt::cross::{ChannelReceiver, ChannelSender};
use rt::net::Listener;
use rt::threads::Shutdown;
use rt::{Clock, Handle, SystemClock};
use serde::Serialize;
use store::{Durability, Options, Recovery, Store, StoreEngine};

use super::control::Control;
use super::door::{self, Door, accept};
use super::herd::{Date, HerdBoard, HerdPoller, Rdma};
use super::limits::Limits;
use super::mail::{MAIL_MAX, Mail, Post};
use super::stats::Doors;
use super::watch::Watch;
use super::{
    LINGER_MAX, bind_tcp, bind_unix, herd_config, join_control, machine, patiently, plural,
    run_cores,
};
use crate::cli::{Durable, ServeFlags, on_a_line, show_size};

/// How long commands under way are waited for when the server stops.
const FINISH_MAX: Duration = Duration::from_secs(60);

/// Messages taken at once.
const MAIL_AT_ONCE: usize = 64;

/// What all cores share.
#[derive(Clone)]
struct Shared {
    started: Instant,
    store: Arc<Store>,
    doors: Arc<Doors>,
    herd: Arc<HerdBoard>,
    pool: Arc<Pool>,
    limits: Limits,
    cores: usize,
    settings: Arc<Settings>,
    /// Cores that have not ended their commands.
    busy: Arc<AtomicUsize>,
}

/// What a core is made of. It travels to the core's thread.
struct Parts {
    listeners: Vec<OwnedFd>,
    server: Prepared,
    control: Control,
    mail: ChannelReceiver<Mail>,
    post: Vec<ChannelSender<Mail>>,
    shared: Shared,
}

/// What the server was started with, besides its limits.
struct Settings {
    listen: String,
    unix: String,
    store: String,
    durable: &'static str,
}

/// Serves a store until SIGINT or SIGTERM, and closes it.
pub(super) fn run(
    flags: &ServeFlags,
    cores: usize,
    cpus: &[usize],
    json: bool,
) -> anyhow::Result<()> {
    let path = flags
        .store
        .as_deref()
        .context("--engine store needs --store FILE")?;
    let limits = Limits::new(flags, cores)?;
    let config = herd_config(flags, cores);
    machine::check_memory(&machine::Needs {
        items: 0,
        connections: limits.connections_memory,
        herd: config.memory_max() + config.outgoing_max(),
        cores,
    })?;
    let rdma = Rdma::open(flags)?;
    let (tcp, address) = bind_tcp(flags.listen)?;
    let unix = flags.unix.as_deref().map(bind_unix).transpose()?;
    let store = open(flags, path)?;
    let herd = rdma.prepare(&config)?;
    let shared = Shared {
        started: Instant::now(),
        store: Arc::new(store),
        doors: Arc::new(Doors::new(limits.connections)),
        herd: herd.board,
        pool: Arc::new(Pool::new(limits.connections_memory)),
        limits,
        cores,
        busy: Arc::new(AtomicUsize::new(cores)),
        settings: Arc::new(Settings {
            listen: address.to_string(),
            unix: flags
                .unix
                .as_ref()
                .map_or_else(|| "-".into(), |path| on_a_line(path)),
            store: on_a_line(path),
            durable: name(flags.durable),
        }),
    };
    let (post, mail): (Vec<_>, Vec<_>) = (0..cores).map(|_| rt::cross::channel(MAIL_MAX)).unzip();
    let mut parts = Vec::new();
    for (server, mail) in herd.servers.into_iter().zip(mail) {
        let mut listeners = vec![tcp.try_clone()?];
        if let Some(unix) = &unix {
            listeners.push(unix.socket.try_clone()?);
        }
        parts.push(Parts {
            listeners,
            server,
            control: herd.control.clone(),
            mail,
            post: post.clone(),
            shared: shared.clone(),
        });
    }
    drop((herd.control, post));
    let greet = || {
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            engine: "store",
            cores,
            listen: address.to_string(),
            unix: flags.unix.as_deref(),
            store: path,
            gid: rdma.options.gid.to_string(),
            run_dir: &rdma.options.run_dir,
            durable: name(flags.durable),
            keys: shared.store.len(),
        };
        if let Err(error) = hello.say(json, flags.durable) {
            // Whoever started us may not care to hear it; the store serves all the same.
            tracing::warn!(%error, "nobody takes the greeting");
        }
    };
    // Items outlive the server, so they expire by the wall clock, and not by one that began with it.
    let clock = Arc::new(SystemClock);
    let served = run_cores(flags, cpus, &clock, parts, serve, greet);
    let joined = join_control(herd.threads);
    // However the cores have ended: otherwise the next start reads the whole log.
    let closed = match Arc::try_unwrap(shared.store) {
        Ok(store) => store.close().context("closing the store"),
        Err(_) => Err(anyhow!(
            "the store is still in use; the next start reads its log"
        )),
    };
    served.and(joined).and(closed)
}

/// As the flag says it.
fn name(durable: Durable) -> &'static str {
    match durable {
        Durable::PowerCut => "power-cut",
        Durable::Process => "process",
    }
}

/// Opens the store, or makes one in a new file.
fn open(flags: &ServeFlags, path: &Path) -> anyhow::Result<Store> {
    let is_there = std::fs::metadata(path).is_ok_and(|file| !file.is_file() || file.len() > 0);
    let file = if is_there {
        block::Options::existing()
    } else {
        block::Options::create(flags.store_size as u64)
    };
    let is_in_use = |error: &BlockError| matches!(error, BlockError::InUse { .. });
    let wait = || {
        tracing::warn!(
            "{} is in use by another process: waiting up to {} s for it",
            path.display(),
            LINGER_MAX.as_secs()
        );
    };
    let device = Arc::new(patiently(
        || FileDevice::open(path, &file),
        is_in_use,
        wait,
    )?);
    let mut options = Options::default();
    options.durability = match flags.durable {
        Durable::PowerCut => Durability::PowerCut,
        Durable::Process => Durability::Process,
    };
    let store =
        Store::on(device, &options).with_context(|| format!("cannot serve {}", path.display()))?;
    if let Recovery::Log {
        records, damaged, ..
    } = store.recovery()
    {
        tracing::info!(
            records,
            damaged,
            "the store had not been closed: read its log"
        );
    }
    Ok(store)
}

/// One core: its session, and the doors in front of it.
async fn serve(
    core: Handle,
    number: usize,
    parts: Parts,
    shutdown: Shutdown,
) -> std::io::Result<()> {
    let Parts {
        listeners,
        control,
        mail,
        shared,
        ..
    } = parts;
    let busy = Busy(Arc::clone(&shared.busy));
    let session = shared
        .store
        .session_on(&core)
        .map_err(std::io::Error::other)?;
    let value_max = shared.limits.item_size_max;
    let host = StoreHost {
        engine: StoreEngine::new(session, core.clone(), value_max, shared.pool.clone()),
        shared: shared.clone(),
    };
    let host = Rc::new(RefCell::new(host));
    let server: Rc<RefCell<Server<StoreHost>>> = Rc::new(RefCell::new(parts.server.serve()));
    let post = Rc::new(Post::new(number, parts.post, Arc::clone(&shared.pool)));
    let _herd = core.register_poller(HerdPoller::new(
        Rc::clone(&server),
        Rc::clone(&host),
        Arc::clone(&shared.herd),
        Arc::new(SystemClock),
        || Date {
            now_s: SystemClock.unix_s(),
            ahead_s: 0,
        },
        |_| true,
    )?);
    let doors = Arc::clone(&shared.doors);
    let watch = Watch::new(&core, shared.limits, shared.pool, doors);
    let watch = Rc::new(watch);
    let door = Rc::new(Door {
        core: core.clone(),
        engine: host,
        herd: door::Herd {
            post: Rc::clone(&post),
            control: control.clone(),
        },
        doors: shared.doors,
        watch: Rc::clone(&watch),
        limits: shared.limits,
    });
    drop(shared.store);
    let mut tasks = vec![core.spawn(async move { watch.keep().await })];
    let handle = core.clone();
    tasks.push(core.spawn(async move { post.send_waiting(&handle).await }));
    tasks.push(core.spawn(come_and_go(core.clone(), mail, server, control)));
    for listener in listeners {
        let listener = Listener::adopt(&core, listener)?;
        tasks.push(core.spawn(accept(Rc::clone(&door), listener)));
    }
    // None of these tasks ends by itself.
    let mut stop = pin!(shutdown.wait());
    let served = poll_fn(|context| {
        if stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut ended = tasks.iter_mut().map(|task| pin!(task).poll(context));
        if ended.any(|ended| ended.is_ready()) {
            return Poll::Ready(Err(std::io::Error::other("a task of the core has ended")));
        }
        Poll::Pending
    })
    .await;
    // What is being written is waited for, so that the index can be written and nothing is in doubt.
    let finish = door.engine.borrow().engine.finish();
    let cores = Arc::clone(&busy.0);
    let all_finish = async {
        finish.await;
        drop(busy);
        // A write may hold commands of several cores, and a core that has ended drives none.
        while cores.load(Ordering::Acquire) > 0 {
            core.sleep(Duration::from_millis(1)).await;
        }
    };
    if core.timeout(FINISH_MAX, all_finish).await.is_err() {
        tracing::warn!("commands are still under way: the next start may read the log");
    }
    served
}

/// Takes HERD clients on, and lets them go: all that cores of a store send each other.
async fn come_and_go(
    core: Handle,
    mut mail: ChannelReceiver<Mail>,
    server: Rc<RefCell<Server<StoreHost>>>,
    control: Control,
) {
    while mail.ready().await {
        mail.drain(MAIL_AT_ONCE, |one| match one {
            Mail::Attach(attachment) => server.borrow_mut().attach(*attachment),
            Mail::Detach(client) => {
                let gone = server.borrow_mut().detach(client);
                if let Some(attachment) = gone {
                    control.release(Box::new(attachment));
                }
            }
            Mail::Errand(_) | Mail::Answer(_) => unreachable!("every core has every key"),
        });
        core.yield_now().await;
    }
}

/// A core that has not ended its commands, among those that are counted.
struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// A core's engine, and what the process adds to it.
struct StoreHost {
    engine: StoreEngine,
    shared: Shared,
}

impl StoreHost {
    /// The counters of the process; the engine's follow.
    fn stats(&self, page: &mut StatsPage) {
        let Shared {
            started,
            doors,
            herd,
            pool,
            cores,
            limits,
            ..
        } = &self.shared;
        page.add("pid", std::process::id());
        page.add("uptime", started.elapsed().as_secs());
        page.add("time", SystemClock.unix_s());
        page.add("version", memcache::VERSION);
        page.add("vervain_version", env!("CARGO_PKG_VERSION"));
        page.add("pointer_size", usize::BITS);
        doors.tell(&mut |name, value| page.add(name, value));
        herd.general(&mut |name, value| page.add(name, value));
        page.add("connections_bytes", pool.used());
        page.add("limit_connections_bytes", limits.connections_memory);
        page.add("threads", cores);
    }
}

impl StoreHost {
    fn settings(&self, page: &mut StatsPage) {
        let Shared {
            settings,
            limits,
            cores,
            ..
        } = &self.shared;
        page.add("num_threads", cores);
        limits.tell(&mut |name, value| page.add(name, value));
        self.shared
            .herd
            .settings(&mut |name, value| page.add(name, value));
        page.add("listen", &settings.listen);
        page.add("unix", &settings.unix);
        page.add("store", &settings.store);
        page.add("durable", settings.durable);
    }
}

impl Engine for StoreHost {
    type Probe = ();
    type Ticket = store::Ticket;

    fn probe(&self, key: &[u8]) {
        self.engine.probe(key);
    }

    fn start<R>(
        &mut self,
        ask: &Ask<'_>,
        probe: (),
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Result<R, store::Ticket> {
        if matches!(ask.command, Command::ResetStats) {
            self.shared.doors.reset();
            self.shared.herd.reset();
        }
        let mut all = StatsPage::default();
        match ask.command {
            Command::Stats { section: "" } => {}
            Command::Stats {
                section: "settings",
            } => {
                self.settings(&mut all);
                return Ok(answer(Answer::Stats(&all)));
            }
            Command::Stats { section: "herd" } => {
                self.shared
                    .herd
                    .herd(&mut |name, value| all.add(name, value));
                return Ok(answer(Answer::Stats(&all)));
            }
            Command::Stats { section: "nic" } => {
                self.shared
                    .herd
                    .nic(&mut |name, value| all.add(name, value));
                return Ok(answer(Answer::Stats(&all)));
            }
            _ => return self.engine.start(ask, probe, answer),
        }
        self.stats(&mut all);
        self.engine.start(ask, probe, |said| {
            let Answer::Stats(page) = said else {
                return answer(Answer::Failed(Failure::Unsupported));
            };
            for (name, value) in page.iter() {
                all.add(name, value);
            }
            answer(Answer::Stats(&all))
        })
    }

    fn fetch<R>(
        &mut self,
        ticket: &mut store::Ticket,
        context: &mut Context<'_>,
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Poll<R> {
        self.engine.fetch(ticket, context, answer)
    }

    fn limits(&self) -> ItemLimits {
        self.engine.limits()
    }
}

impl Host for StoreHost {
    fn note(&mut self, event: Event) {
        self.shared.doors.note(event);
    }

    fn allows_upgrade(&self, _arguments: &[u8]) -> bool {
        true
    }
}

/// What a server says when it is ready.
#[derive(Serialize)]
struct Hello<'a> {
    version: &'static str,
    pid: u32,
    engine: &'static str,
    cores: usize,
    listen: String,
    unix: Option<&'a Path>,
    store: &'a Path,
    gid: String,
    run_dir: &'a Path,
    durable: &'static str,
    keys: u64,
}

impl Hello<'_> {
    fn say(&self, json: bool, durable: Durable) -> anyhow::Result<()> {
        let mut out = bench::print::output();
        if json {
            writeln!(out, "{}", serde_json::to_string(self)?)?;
            return Ok(out.flush()?);
        }
        let size = std::fs::metadata(self.store).map_or(0, |file| file.len());
        writeln!(
            out,
            "vervain {}: the store {}{}, {} key{}, on {} core{}",
            self.version,
            on_a_line(self.store),
            match size {
                0 => String::new(),
                size => format!(" of {}", show_size(size as usize)),
            },
            self.keys,
            plural(self.keys as usize),
            self.cores,
            plural(self.cores),
        )?;
        writeln!(out, "  memcached protocol  {}", self.listen)?;
        if let Some(unix) = self.unix {
            writeln!(out, "                      {}", on_a_line(unix))?;
        }
        let (gid, run_dir) = (&self.gid, on_a_line(self.run_dir));
        writeln!(out, "  RDMA (software NIC) {gid} in {run_dir}")?;
        let durable = match durable {
            Durable::PowerCut => "a power cut",
            Durable::Process => "the death of the server, not a power cut",
        };
        writeln!(
            out,
            "A change that was answered, by either door, survives {durable}. Ctrl-C stops the server."
        )?;
        Ok(out.flush()?)
    }
}
