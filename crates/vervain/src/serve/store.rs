//! `vervain serve --engine store`: a store on flash behind the Memcache door.
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
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use anyhow::{Context as _, anyhow};
use block::{BlockError, FileDevice};
use engine::{Answer, Ask, Command, Engine, Failure, Limits as ItemLimits, StatsPage};
use memcache::{Event, Host, Pool};
use rt::net::Listener;
use rt::threads::{Shutdown, Threads};
use rt::{Clock, Handle, SystemClock};
use serde::Serialize;
use store::{Durability, Options, Recovery, Store, StoreEngine};

use super::door::{Door, accept};
use super::limits::Limits;
use super::stats::Doors;
use super::watch::Watch;
use super::{bind_tcp, bind_unix, core_config, patiently, plural, stop_on_signals};
use crate::cli::{Durable, ServeFlags, show_size};

/// What all cores share.
#[derive(Clone)]
struct Shared {
    store: Arc<Store>,
    doors: Arc<Doors>,
    pool: Arc<Pool>,
    limits: Limits,
    cores: usize,
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
    let (tcp, address) = bind_tcp(flags.listen)?;
    let unix = flags.unix.as_deref().map(bind_unix).transpose()?;
    let store = open(flags, path)?;
    let shared = Shared {
        store: Arc::new(store),
        doors: Arc::new(Doors::new(limits.connections)),
        pool: Arc::new(Pool::new(limits.connections_memory)),
        limits,
        cores,
    };
    let mut slots = Vec::new();
    for _ in 0..cores {
        let mut listeners = vec![tcp.try_clone()?];
        if let Some(unix) = &unix {
            listeners.push(unix.socket.try_clone()?);
        }
        slots.push(Mutex::new(Some((listeners, shared.clone()))));
    }
    let served = serve_until_told(flags, cores, cpus, slots, || {
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            cores,
            listen: address.to_string(),
            store: path,
            keys: shared.store.len(),
        };
        if let Err(error) = hello.say(json, flags) {
            // Whoever started us may not care to hear it; the store serves all the same.
            tracing::warn!(%error, "nobody takes the greeting");
        }
    });
    // However the cores have ended: otherwise the next start reads the whole log.
    let closed = match Arc::try_unwrap(shared.store) {
        Ok(store) => store.close().context("closing the store"),
        Err(_) => Err(anyhow!(
            "the store is still in use; the next start reads its log"
        )),
    };
    served.and(closed)
}

/// What a core's thread takes with it.
type Slot = Mutex<Option<(Vec<OwnedFd>, Shared)>>;

/// Runs the cores until SIGINT or SIGTERM, or until one of them fails.
fn serve_until_told(
    flags: &ServeFlags,
    cores: usize,
    cpus: &[usize],
    slots: Vec<Slot>,
    greet: impl FnOnce(),
) -> anyhow::Result<()> {
    let shutdown = Shutdown::new();
    stop_on_signals(&shutdown)?;
    // Items outlive the server, so they expire by the wall clock, and not by one that began with it.
    let configs = (0..cores)
        .map(|core| core_config(flags, core, cpus, Arc::new(SystemClock)))
        .collect();
    let signal = shutdown.clone();
    let threads = Threads::start(configs, &shutdown, move |handle, number| {
        let taken = slots[number]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let signal = signal.clone();
        async move {
            match taken {
                Some((listeners, shared)) => {
                    let served = serve(handle, listeners, shared, signal.clone()).await;
                    if served.is_err() {
                        // The others would serve on, and nobody would hear of it.
                        signal.trigger();
                    }
                    served
                }
                None => Ok(()),
            }
        }
    })
    .context("cannot start the cores")?;
    greet();
    for end in threads.join().context("a core has ended badly")? {
        end.context("a core could not serve")?;
    }
    Ok(())
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
    let device = Arc::new(patiently(|| FileDevice::open(path, &file), is_in_use)?);
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
    listeners: Vec<OwnedFd>,
    shared: Shared,
    shutdown: Shutdown,
) -> std::io::Result<()> {
    let session = shared
        .store
        .session_on(&core)
        .map_err(std::io::Error::other)?;
    let value_max = shared.limits.item_size_max;
    let host = StoreHost {
        engine: StoreEngine::new(session, core.clone(), value_max),
        shared: shared.clone(),
    };
    let doors = Arc::clone(&shared.doors);
    let watch = Watch::new(&core, shared.limits, shared.pool, doors);
    let watch = Rc::new(watch);
    let door = Rc::new(Door {
        core: core.clone(),
        engine: RefCell::new(host),
        herd: None,
        doors: shared.doors,
        watch: Rc::clone(&watch),
        limits: shared.limits,
    });
    drop(shared.store);
    let mut tasks = vec![core.spawn(async move { watch.keep().await })];
    for listener in listeners {
        let listener = Listener::adopt(&core, listener)?;
        tasks.push(core.spawn(accept(Rc::clone(&door), listener)));
    }
    // None of these tasks ends by itself.
    let mut stop = pin!(shutdown.wait());
    poll_fn(|context| {
        if stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut ended = tasks.iter_mut().map(|task| pin!(task).poll(context));
        if ended.any(|ended| ended.is_ready()) {
            return Poll::Ready(Err(std::io::Error::other("a task of the core has ended")));
        }
        Poll::Pending
    })
    .await
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
            doors, pool, cores, ..
        } = &self.shared;
        page.add("pid", std::process::id());
        page.add("time", SystemClock.unix_s());
        page.add("pointer_size", usize::BITS);
        doors.tell(&mut |name, value| page.add(name, value));
        page.add("connections_bytes", pool.used());
        page.add("threads", cores);
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
        let Command::Stats { section: "" } = ask.command else {
            return self.engine.start(ask, probe, answer);
        };
        let mut all = StatsPage::default();
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
}

/// What a server says when it is ready.
#[derive(Serialize)]
struct Hello<'a> {
    version: &'static str,
    pid: u32,
    cores: usize,
    listen: String,
    store: &'a Path,
    keys: u64,
}

impl Hello<'_> {
    fn say(&self, json: bool, flags: &ServeFlags) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if json {
            writeln!(out, "{}", serde_json::to_string(self)?)?;
            return Ok(out.flush()?);
        }
        let size = std::fs::metadata(self.store).map_or(0, |file| file.len());
        writeln!(
            out,
            "vervain {}: the store {}{}, {} key{}, on {} core{}",
            self.version,
            self.store.display(),
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
        if let Some(unix) = &flags.unix {
            writeln!(out, "                      {}", unix.display())?;
        }
        let durable = match flags.durable {
            Durable::PowerCut => "a power cut",
            Durable::Process => "the death of the server, not a power cut",
        };
        writeln!(
            out,
            "An answered change survives {durable}. Ctrl-C stops the server."
        )?;
        Ok(out.flush()?)
    }
}
