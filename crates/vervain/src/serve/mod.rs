//! `vervain serve`: the cache as a process.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | starting and stopping: everything that can fail fails before anything serves |
//! | `core.rs` | one core of the cache: partition, HERD server, doors, mail |
//! | `door.rs` | accepting, and handing HERD clients on |
//! | `engine.rs` | the cache as the Memcache door sees it |
//! | `herd.rs` | the RDMA side, whatever the engine |
//! | `mail.rs` | what cores send each other |
//! | `store.rs` | the same doors over a store on flash |
//! | `control.rs` | what may block, off the cores |
//! | `limits.rs` | how much of everything is allowed |
//! | `watch.rs` | who is idle for too long, who holds memory that others need |
//! | `clock.rs` | the date, whatever becomes of the wall clock |
//! | `stats.rs`, `doors.rs` | counters for whoever asks |
//! | `machine.rs`, `cgroup.rs` | what the machine has and allows |

mod cgroup;
mod clock;
mod control;
mod core;
mod door;
mod doors;
mod engine;
mod herd;
mod limits;
mod machine;
mod mail;
mod stats;
mod store;
mod watch;

use std::fs::{File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use cache::herd::ServerConfig;
use cache::herd::server::Prepared;
use cache::mica::{Options, Partition};
use memcache::Pool;
use nic_soft::SoftOptions;
use rt::net::{Addr, ListenOptions};
use rt::threads::{Shutdown, Threads};
use rt::{Clock, Config, Handle, IdleMode, IoKind};
use serde::Serialize;

use self::clock::{Ahead, Machine, ServeClock};
use self::control::Control;
use self::core::Parts;
use self::herd::Rdma;
use self::limits::Limits;
use self::stats::{Board, Settings};
use crate::cli::{EngineKind, Io, ServeFlags, on_a_line, show_size};
use crate::signals;

/// The index's share of memory, in thousandths: about two slots for each item of 64 bytes, header
/// included, so that few small items lose their slot.
const INDEX_PERMILLE: u32 = 200;
/// The least memory of a core.
const MEMORY_MIN: usize = 1 << 20;

/// How long a server's sockets and files may outlive it: the kernel ends what an io_uring had under
/// way, and closes them, a moment after the process has gone. On a busy machine that was more than a
/// second once in some hundred times.
const LINGER_MAX: Duration = Duration::from_secs(5);

/// Runs the cache until SIGINT or SIGTERM; the second one ends it at once.
pub(crate) fn run(flags: &ServeFlags, json: bool) -> anyhow::Result<()> {
    let cpus = rt::threads::cpus();
    let cores = match flags.cores {
        Some(cores) => cores as usize,
        None => (cpus.len() / 2).max(1),
    };
    if flags.engine == EngineKind::Store {
        return store::run(flags, cores, &cpus, json);
    }
    ensure!(
        flags.memory / cores >= MEMORY_MIN,
        "--memory {} is too little for {cores} core{}; each needs at least {}",
        show_size(flags.memory),
        plural(cores),
        show_size(MEMORY_MIN),
    );
    let limits = Limits::new(flags, cores)?;
    let herd = herd_config(flags, cores);
    machine::check_memory(&machine::Needs {
        items: flags.memory,
        connections: limits.connections_memory,
        herd: herd.memory_max(),
        cores,
    })?;
    let rdma = Rdma::open(flags)?;
    let (tcp, address) = bind_tcp(flags.listen)?;
    let unix = flags.unix.as_deref().map(bind_unix).transpose()?;
    let prepared = rdma.prepare(&herd)?;
    let pool = Arc::new(Pool::new(limits.connections_memory));
    let settings = Settings {
        cores,
        memory: flags.memory,
        listen: address.to_string(),
        unix: flags
            .unix
            .as_ref()
            .map_or_else(|| "-".into(), |path| on_a_line(path)),
        io: match flags.io {
            Io::Auto => "auto",
            Io::Uring => "uring",
            Io::Epoll => "epoll",
        },
        limits,
        pool: Arc::clone(&pool),
        poll: flags.poll,
        spin_us: flags.spin.as_micros(),
    };
    let board = Arc::new(Board::new(settings, Arc::clone(&prepared.board)));
    let listeners = Listeners {
        tcp,
        unix: unix
            .as_ref()
            .map(|unix| unix.socket.try_clone())
            .transpose()?,
    };
    let clock = Arc::new(match &flags.clock_ahead {
        Some(path) => ServeClock::start(Ahead::new(path)?),
        None => ServeClock::start(Machine),
    });
    let shared = SharedParts {
        board,
        clock: Arc::clone(&clock),
        limits,
        pool,
    };
    let parts = make_cores(
        flags,
        &herd,
        prepared.servers,
        prepared.control,
        &shared,
        &listeners,
    )?;
    let greet = || {
        if let Err(error) = say_hello(json, cores, flags, address, &rdma.options) {
            // Whoever started us may not care to hear it; the cache serves all the same.
            tracing::warn!(%error, "nobody takes the greeting");
        }
    };
    run_cores(flags, &cpus, &clock, parts, core::run, greet)?;
    join_control(prepared.threads)
}

/// Waits for the control threads, which end when the last core's end of their queue is gone.
fn join_control(threads: Vec<std::thread::JoinHandle<()>>) -> anyhow::Result<()> {
    for thread in threads {
        if thread.join().is_err() {
            bail!("a control thread has ended badly");
        }
    }
    Ok(())
}

/// Runs a core for each of `parts` until SIGINT or SIGTERM, or until one of them fails: the others
/// cannot do without it.
fn run_cores<P, F>(
    flags: &ServeFlags,
    cpus: &[usize],
    clock: &Arc<impl Clock + 'static>,
    parts: Vec<P>,
    serve: impl Fn(Handle, usize, P, Shutdown) -> F + Send + Sync + 'static,
    greet: impl FnOnce(),
) -> anyhow::Result<()>
where
    P: Send + 'static,
    F: Future<Output = std::io::Result<()>> + 'static,
{
    let shutdown = signals::watch(None)?;
    let configs = (0..parts.len())
        .map(|core| core_config(flags, core, cpus, Arc::clone(clock) as Arc<dyn Clock>))
        .collect();
    let slots: Vec<_> = parts.into_iter().map(|one| Mutex::new(Some(one))).collect();
    let signal = shutdown.clone();
    let threads = Threads::start(configs, &shutdown, move |handle, number| {
        let taken = slots[number]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let signal = signal.clone();
        let serving = taken.map(|part| serve(handle, number, part, signal.clone()));
        async move {
            let served = match serving {
                Some(serving) => serving.await,
                None => Ok(()),
            };
            if served.is_err() {
                signal.trigger();
            }
            served
        }
    })
    .context(match flags.io {
        Io::Uring => "cannot start the cores with io_uring (--io auto does without it)",
        Io::Auto | Io::Epoll => "cannot start the cores",
    })?;
    greet();
    let ends = threads.join().context("a core has ended badly")?;
    for (number, end) in ends.into_iter().enumerate() {
        end.with_context(|| format!("core {number} could not serve"))?;
    }
    Ok(())
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

struct Listeners {
    tcp: OwnedFd,
    unix: Option<OwnedFd>,
}

/// What all cores share.
struct SharedParts {
    board: Arc<Board>,
    clock: Arc<ServeClock>,
    limits: Limits,
    pool: Arc<Pool>,
}

fn herd_config(flags: &ServeFlags, cores: usize) -> ServerConfig {
    let mut random = fastrand::Rng::new();
    ServerConfig {
        cores: cores as u32,
        clients_max: flags.clients,
        window_max: flags.window,
        idle_ns: if flags.poll {
            0
        } else {
            flags.spin.as_nanos().max(1) as u64
        },
        route_seed: random.u64(..),
        incarnation: random.u64(1..),
        value_len_max: flags.item_max as u32,
        ..ServerConfig::default()
    }
}

/// A number that nobody can guess, not even from others that were drawn: std has it from the system.
fn secret() -> u64 {
    RandomState::new().hash_one(())
}

fn make_cores(
    flags: &ServeFlags,
    config: &ServerConfig,
    servers: Vec<Prepared>,
    control: Control,
    shared: &SharedParts,
    listeners: &Listeners,
) -> anyhow::Result<Vec<Parts>> {
    let cores = config.cores as usize;
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..cores)
        .map(|_| rt::cross::channel(mail::MAIL_MAX))
        .unzip();
    let mut parts = Vec::new();
    let partitions = make_partitions(flags, cores)?;
    for ((server, mail), partition) in servers.into_iter().zip(receivers).zip(partitions) {
        let mut sockets = vec![listeners.tcp.try_clone()?];
        if let Some(unix) = &listeners.unix {
            sockets.push(unix.try_clone()?);
        }
        parts.push(Parts {
            partition,
            server,
            mail,
            post: senders.clone(),
            listeners: sockets,
            control: control.clone(),
            board: Arc::clone(&shared.board),
            route: config.route(),
            clock: Arc::clone(&shared.clock),
            limits: shared.limits,
            pool: Arc::clone(&shared.pool),
        });
    }
    Ok(parts)
}

/// Makes each core's partition on the CPU that the core will run on: memory lies on the node of
/// whoever touches it first.
fn make_partitions(flags: &ServeFlags, cores: usize) -> anyhow::Result<Vec<Partition>> {
    let cpus = rt::threads::cpus();
    let hash_seed = secret();
    let make = |core: usize| {
        if let Some(cpu) = cpu_of(flags, core, &cpus) {
            rt::threads::pin(cpu);
        }
        let options = Options {
            index_permille: INDEX_PERMILLE,
            prefault: flags.prefault,
            first_version: fastrand::u32(..),
            hash_seed,
            ..Options::new(flags.memory / cores)
        };
        Partition::new(&options).map(|mut partition| {
            partition.limit_values(flags.item_max);
            partition
        })
    };
    std::thread::scope(|scope| {
        let makers: Vec<_> = (0..cores)
            .map(|core| scope.spawn(move || make(core)))
            .collect();
        makers
            .into_iter()
            .map(|maker| {
                let made = maker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                made.with_context(|| format!("cannot have {} of memory", show_size(flags.memory)))
            })
            .collect()
    })
}

/// The CPU that a core is kept on, if it is.
fn cpu_of(flags: &ServeFlags, core: usize, cpus: &[usize]) -> Option<usize> {
    flags.pin.then(|| cpus[core % cpus.len()])
}

fn core_config(flags: &ServeFlags, core: usize, cpus: &[usize], clock: Arc<dyn Clock>) -> Config {
    let mut config = Config::default();
    config.clock = clock;
    config.idle = if flags.poll {
        IdleMode::Poll
    } else {
        IdleMode::Sleep { spin: flags.spin }
    };
    config.seed = fastrand::u64(..);
    config.io = match flags.io {
        Io::Auto => None,
        Io::Uring => Some(IoKind::Uring),
        Io::Epoll => Some(IoKind::Epoll),
    };
    config.cpu = cpu_of(flags, core, cpus);
    config
}

/// One server a NIC address: clients must know whom they talk to.
fn lock_gid(nic: &SoftOptions) -> anyhow::Result<File> {
    let path = nic
        .run_dir
        .join(format!("server-{}.lock", nic.gid).replace(':', "."));
    let file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let is_in_use = |error: &TryLockError| matches!(error, TryLockError::WouldBlock);
    let wait = || tracing::info!("a server runs on this GID: waiting for its end");
    match patiently(|| file.try_lock(), is_in_use, wait) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!(
            "a server already runs on GID {}; stop it, or choose another address with --gid",
            nic.gid
        ),
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
    }
    Ok(file)
}

/// Tries again and again while what is wanted is in use, for as long as that of a server that has
/// just ended may linger. Says so by `wait` before it waits.
fn patiently<T, E>(
    mut take: impl FnMut() -> Result<T, E>,
    is_in_use: impl Fn(&E) -> bool,
    wait: impl FnOnce(),
) -> Result<T, E> {
    let give_up = Instant::now() + LINGER_MAX;
    let mut wait = Some(wait);
    loop {
        match take() {
            Err(error) if is_in_use(&error) && Instant::now() < give_up => {
                if let Some(wait) = wait.take() {
                    wait();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            taken => return taken,
        }
    }
}

fn bind_patiently(bind: impl FnMut() -> std::io::Result<OwnedFd>) -> std::io::Result<OwnedFd> {
    let is_in_use = |error: &std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
    patiently(bind, is_in_use, || {
        tracing::info!("an address is in use: waiting for it");
    })
}

fn bind_tcp(address: SocketAddr) -> anyhow::Result<(OwnedFd, SocketAddr)> {
    let socket = bind_patiently(|| rt::net::bind(&Addr::Tcp(address), ListenOptions::default()))
        .with_context(|| why_not(&format!("cannot listen on {address}")))?;
    let listener = std::net::TcpListener::from(socket);
    let address = listener
        .local_addr()
        .context("asking for the listening address")?;
    Ok((listener.into(), address))
}

fn why_not(what: &str) -> String {
    format!("{what} (choose another address with --listen)")
}

/// A listening Unix socket, removed with the server.
struct UnixDoor {
    socket: OwnedFd,
    path: PathBuf,
}

impl Drop for UnixDoor {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "cannot remove the door's socket");
        }
    }
}

fn bind_unix(path: &Path) -> anyhow::Result<UnixDoor> {
    let address = Addr::Unix(path.to_path_buf());
    let bound = bind_patiently(|| {
        // A server that was killed leaves its socket; nobody answers there any more.
        if is_left_over(path) {
            std::fs::remove_file(path)?;
        }
        rt::net::bind(&address, ListenOptions::default())
    });
    let socket = bound.with_context(|| {
        format!(
            "cannot listen on {} (choose another path with --unix)",
            path.display()
        )
    })?;
    Ok(UnixDoor {
        socket,
        path: path.to_path_buf(),
    })
}

/// Whether there is a socket that nobody listens on. A file of another kind refuses connections as
/// well, and is somebody's.
fn is_left_over(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
        && UnixStream::connect(path)
            .is_err_and(|refused| refused.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// What a server says when it is ready.
#[derive(Serialize)]
struct Hello {
    version: &'static str,
    pid: u32,
    engine: &'static str,
    cores: usize,
    memory_bytes: usize,
    listen: String,
    unix: Option<PathBuf>,
    gid: String,
    run_dir: PathBuf,
}

fn say_hello(
    json: bool,
    cores: usize,
    flags: &ServeFlags,
    address: SocketAddr,
    nic: &SoftOptions,
) -> anyhow::Result<()> {
    let hello = Hello {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        engine: "mica",
        cores,
        memory_bytes: flags.memory,
        listen: address.to_string(),
        unix: flags.unix.clone(),
        gid: nic.gid.to_string(),
        run_dir: nic.run_dir.clone(),
    };
    let mut out = bench::print::output();
    if json {
        writeln!(out, "{}", serde_json::to_string(&hello)?)?;
    } else {
        writeln!(
            out,
            "vervain {}: {} on {cores} core{}",
            hello.version,
            show_size(flags.memory),
            plural(cores),
        )?;
        writeln!(out, "  memcached protocol  {address}")?;
        if let Some(unix) = &flags.unix {
            writeln!(out, "                      {}", on_a_line(unix))?;
        }
        writeln!(
            out,
            "  RDMA (software NIC) {} in {}",
            hello.gid,
            on_a_line(&hello.run_dir)
        )?;
        writeln!(
            out,
            "Ctrl-C stops it. In another terminal: vervain set greeting hello"
        )?;
    }
    out.flush()?;
    Ok(())
}
