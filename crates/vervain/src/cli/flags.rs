//! The flags of the server, its clients and `soak`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bench::units;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, ValueEnum};
use verbs::Gid;

use super::parse_gid;
use crate::soak::{self, Faults};

/// Which software NIC.
#[derive(Args, Debug, Clone, Default)]
pub struct NicFlags {
    /// The NIC's address: an IP address or any name [default: 127.0.0.1].
    #[arg(long, value_name = "NAME", value_parser = parse_gid)]
    pub gid: Option<Gid>,
    /// Where the processes of this host meet [default: $XDG_RUNTIME_DIR/vervain, or
    /// /tmp/vervain-UID].
    #[arg(long, value_name = "PATH")]
    pub run_dir: Option<PathBuf>,
    /// How long another process may take to answer this one's first contact, or where a region's memory
    /// is [default: 1s].
    #[arg(long, value_name = "TIME", value_parser = contact_timeout)]
    pub contact_timeout: Option<Duration>,
    /// Print every request and completion of the NIC on standard error.
    #[arg(long, help_heading = "Looking into the NIC")]
    pub nic_trace: bool,
    /// Lose, double and delay so many of a million messages on unreliable transports.
    #[arg(long, value_name = "PPM", help_heading = "Looking into the NIC",
          value_parser = clap::value_parser!(u32).range(..=500_000))]
    pub nic_loss: Option<u32>,
}

/// A duration in which another process can answer.
fn contact_timeout(text: &str) -> Result<Duration, String> {
    match units::duration(text)? {
        Duration::ZERO => Err("nobody answers in no time".to_string()),
        timeout => Ok(timeout),
    }
}

/// `vervain serve`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  vervain serve                                    256 MiB, for programs of this host
  vervain serve --cores 2 --memory 8G --prefault   more, and no page fault later
  vervain serve --poll --pin                       lowest latency; whole CPUs, also when idle
  vervain serve --unix /run/cache.sock             a Unix socket besides TCP
  vervain serve --engine store --store my.store    items on flash, which survive a restart
  vervain serve --gid b --listen 127.0.0.1:11311   a second cache on the same host")]
pub(crate) struct ServeFlags {
    /// Cores to serve with [default: half of the machine's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) cores: Option<u32>,
    /// What keeps the items.
    #[arg(long, value_enum, default_value_t = EngineKind::Mica)]
    pub(crate) engine: EngineKind,
    /// Memory for items and their index, all cores together; a store's index takes what it needs.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = units::size)]
    pub(crate) memory: usize,
    /// The store's file or drive, with `--engine store`. A new file becomes a store.
    #[arg(long, value_name = "FILE", required_if_eq("engine", "store"))]
    pub(crate) store: Option<PathBuf>,
    /// Bytes of a new store's file.
    #[arg(long, value_name = "SIZE", default_value = "1G",
          value_parser = units::size_of::<{ 1 << 20 }, { 1 << 50 }>)]
    pub(crate) store_size: usize,
    /// What a store's answer to a change promises.
    #[arg(long, value_enum, default_value_t = Durable::PowerCut)]
    pub(crate) durable: Durable,
    /// The Memcache door's TCP address; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11211")]
    pub(crate) listen: SocketAddr,
    /// A Memcache door on a Unix socket as well.
    #[arg(long, value_name = "PATH")]
    pub(crate) unix: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) nic: NicFlags,
    /// Never sleep: lowest latency, and whole CPUs.
    #[arg(long)]
    pub(crate) poll: bool,
    /// Pin each core to a CPU.
    #[arg(long)]
    pub(crate) pin: bool,
    /// How long an idle core looks for work before it sleeps.
    #[arg(long, value_name = "TIME", default_value = "200us", value_parser = units::duration)]
    pub(crate) spin: Duration,
    /// HERD clients at most. Each takes a queue pair and registered memory of each core; `stats
    /// settings` tells how much.
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Limits",
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) clients: u32,
    /// Requests a HERD client may have under way to one core, a power of two.
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Limits",
          value_parser = units::window)]
    pub(crate) window: u32,
    /// Connections at most, those of HERD clients included; further ones are told so and closed
    /// [default: 16384, or what the limit on open files allows].
    #[arg(long, value_name = "N", help_heading = "Limits",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections: Option<u32>,
    /// Answers and values of one connection on their way, in bytes, at which no more is read from
    /// it. One answer may pass that by its own size.
    #[arg(long, value_name = "SIZE", default_value = "1M", help_heading = "Limits",
          value_parser = units::size_of::<{ 4 << 10 }, { 1 << 30 }>)]
    pub(crate) connection_memory: usize,
    /// Memory of all connections together, besides 32K for each. From half of it on, each works on
    /// one large answer or value at a time; beyond it, those larger than 16K are refused.
    #[arg(long, value_name = "SIZE", default_value = "64M", help_heading = "Limits",
          value_parser = units::size_of::<{ 1 << 20 }, { 1 << 40 }>)]
    pub(crate) connections_memory: usize,
    /// How long a client may leave answers unread or a request unfinished while that memory is used
    /// up; then it is disconnected.
    #[arg(long, value_name = "TIME", default_value = "5s", help_heading = "Limits",
          value_parser = units::duration)]
    pub(crate) stall_timeout: Duration,
    /// Disconnect clients that do nothing for so long; 0 never does. HERD clients may be silent.
    #[arg(long, value_name = "TIME", default_value = "0", help_heading = "Limits",
          value_parser = units::duration)]
    pub(crate) idle_timeout: Duration,
    /// Longest value.
    #[arg(long, value_name = "SIZE", default_value = "1M", help_heading = "Limits",
          value_parser = units::size_of::<1024, { 1 << 20 }>)]
    pub(crate) item_max: usize,
    /// Longest line of a `get` with many keys.
    #[arg(long, value_name = "SIZE", default_value = "1M", help_heading = "Limits",
          value_parser = units::size_of::<2048, { 64 << 20 }>)]
    pub(crate) line_max: usize,
    /// Keys of one `get` at most [default: as many as a line holds].
    #[arg(long, value_name = "N", help_heading = "Limits",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keys_max: Option<u32>,
    /// Requests of one connection that are carried out before others have their turn.
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Limits",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) requests_at_once: u32,
    /// How the cores do socket I/O.
    #[arg(long, value_enum, default_value_t = Io::Auto)]
    pub(crate) io: Io,
    /// Touch all memory at the start, so that no request pays for it.
    #[arg(long)]
    pub(crate) prefault: bool,
    /// Count what passes through the NIC too, for `stats nic`: from the start on, whatever `stats reset` does.
    #[arg(long, help_heading = "Looking into the NIC")]
    pub(crate) nic_count: bool,
    /// Go by a wall clock that is ahead of the machine's by the seconds in this file: eight bytes, a
    /// little-endian signed number, read whenever the clock is. For tests, which set it meanwhile.
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) clock_ahead: Option<PathBuf>,
}

/// Flags that mean nothing to a store, which has no table in memory and goes by the machine's clock.
const CACHE_ONLY: [&str; 3] = ["memory", "prefault", "clock_ahead"];
/// Flags that mean nothing to a cache.
const STORE_ONLY: [&str; 3] = ["store", "store_size", "durable"];

impl ServeFlags {
    /// What is wrong with these flags, if one was given that belongs to the other engine.
    pub(crate) fn of_the_other_engine(&self, given: &ArgMatches) -> Option<String> {
        let (names, why): (&[&str], _) = match self.engine {
            EngineKind::Store => (
                &CACHE_ONLY,
                "is for a cache in memory; with --engine store it would do nothing",
            ),
            EngineKind::Mica => (
                &STORE_ONLY,
                "is for --engine store; a cache in memory has no file",
            ),
        };
        let is_given = |name: &&&str| given.value_source(name) == Some(ValueSource::CommandLine);
        let name = names.iter().find(is_given)?;
        Some(format!("--{} {why}", name.replace('_', "-")))
    }
}

/// `--engine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineKind {
    /// MICA's table in memory: a cache, which forgets when it is full. Over sockets and RDMA.
    Mica,
    /// A store on flash: nothing is forgotten, and items survive a restart. Over sockets and RDMA.
    Store,
}

/// `--durable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durable {
    /// The change survives a power cut.
    PowerCut,
    /// The change survives the death of the server, but not the loss of what a drive has in a
    /// volatile cache.
    Process,
}

/// `--io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Io {
    /// io_uring, or epoll where the kernel refuses it.
    Auto,
    /// io_uring.
    Uring,
    /// epoll.
    Epoll,
}

/// How to reach a server.
#[derive(Args, Debug, Clone)]
pub struct ClientFlags {
    /// The server's door.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11211")]
    pub server: SocketAddr,
    /// The server's door on a Unix socket, instead.
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Speak the Memcache protocol over the socket instead of RDMA.
    #[arg(long)]
    pub socket: bool,
    /// The NIC.
    #[command(flatten)]
    pub nic: NicFlags,
    /// How long to wait for an answer. When none came over RDMA, the server is asked for its run directory
    /// over the socket, for 10s at most or as long again.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub timeout: Duration,
}

/// `vervain set`.
#[derive(Args, Debug)]
pub(crate) struct SetFlags {
    /// The key, 1 to 250 bytes.
    pub(crate) key: String,
    /// The value; `-` reads standard input.
    pub(crate) value: String,
    /// When it expires [default: never].
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) expire: Option<Duration>,
    /// 32 bits of your own, kept beside the value.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) flags: u32,
    /// Only if there is no such item.
    #[arg(long, conflicts_with = "replace")]
    pub(crate) add: bool,
    /// Only if there is such an item.
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) client: ClientFlags,
}

/// `vervain get`.
#[derive(Args, Debug)]
pub(crate) struct GetFlags {
    /// The keys.
    #[arg(required = true)]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) client: ClientFlags,
}

/// `vervain del`.
#[derive(Args, Debug)]
pub(crate) struct DelFlags {
    /// The keys.
    #[arg(required = true)]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) client: ClientFlags,
}

/// `vervain incr`.
#[derive(Args, Debug)]
pub(crate) struct IncrFlags {
    /// The key.
    pub(crate) key: String,
    /// How much to add.
    #[arg(default_value_t = 1, allow_negative_numbers = true)]
    pub(crate) delta: i64,
    #[command(flatten)]
    pub(crate) client: ClientFlags,
}

/// `vervain touch`.
#[derive(Args, Debug)]
pub(crate) struct TouchFlags {
    /// The key.
    pub(crate) key: String,
    /// When it expires from now on; 0 is never.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) expire: Duration,
    #[command(flatten)]
    pub(crate) client: ClientFlags,
}

/// `vervain stats`.
#[derive(Args, Debug)]
pub(crate) struct StatsFlags {
    /// `settings`, `herd`, `nic` or, of a cache, `cores`; nothing for the general ones.
    pub(crate) section: Option<String>,
    #[command(flatten)]
    pub(crate) client: ClientFlags,
}

/// `vervain shell`.
#[derive(Args, Debug)]
pub(crate) struct ShellFlags {
    #[command(flatten)]
    pub(crate) client: ClientFlags,
}

/// `vervain soak`.
#[derive(Args, Debug)]
#[command(
    after_help = "Starts a server of its own, with real clients over RDMA and over sockets, \
injects faults, and compares every answer with what a correct cache may say: it may forget, but \
never hand out a wrong, torn, foreign or old value. Exits with 1 if anything was wrong. Faults:
  kill-client, kill-server   kill -9; the server comes back empty
  stop-client, stop-server   SIGSTOP for a while, then SIGCONT
  leave                      a client is killed in the middle of a large PUT
  loss                       NICs of some processes lose, double and delay messages
  garbage, huge              nonsense, and too much, at the socket door
  half-open, slow, flood     connections that say half, read nothing, or come in hundreds
  pressure                   as much is stored as fits, so that everything is pushed out
  idle                       silence, so that the server sleeps
  flush, flush-later         flush_all, at once and with a delay
  clock-ahead, clock-back    the server's wall clock is set, by seconds to months
Examples:
  vervain soak                                  a minute with all faults
  vervain soak --for 10m                        longer
  vervain soak --for 1h --memory 16M --clients 12   everything is pushed out soon
  vervain soak --faults kill-server,loss        these faults only
  vervain soak --seed 7                         the same faults again
  vervain soak --server 127.0.0.1:11211         a server that runs already, which is left alive"
)]
pub(crate) struct SoakFlags {
    /// How long.
    #[arg(long = "for", value_name = "TIME", default_value = "1m", value_parser = units::duration)]
    pub(crate) length: Duration,
    /// End before that, once each fault has happened and so many answers were checked since.
    #[arg(long, value_name = "ANSWERS", hide = true)]
    pub(crate) until: Option<u64>,
    /// Repeats what is asked and which faults are injected; not how they fall together
    /// [default: another one each time].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Client processes.
    #[arg(long, value_name = "N", default_value_t = 6,
          value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) clients: u32,
    /// How clients reach the server, in turns [default: herd,tcp,unix; with --server and without
    /// --unix: herd,tcp].
    #[arg(long, value_enum, value_name = "DOOR,...", value_delimiter = ',')]
    pub(crate) over: Option<Vec<soak::Door>>,
    /// Which faults: `all`, `none`, or names by commas.
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub(crate) faults: Faults,
    /// The mean time between two faults.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub(crate) every: Duration,
    /// The server's cores.
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) cores: u32,
    /// The server's memory for items. In little memory items are pushed out before they expire.
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = units::size)]
    pub(crate) memory: usize,
    /// Keep the logs also when all was well.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Soak this server instead of one of its own; it is neither killed nor stopped nor flushed, and
    /// its clock is left alone.
    #[arg(long, value_name = "ADDR", conflicts_with = "cores")]
    pub(crate) server: Option<SocketAddr>,
    /// Its Unix socket.
    #[arg(long, value_name = "PATH", requires = "server")]
    pub(crate) unix: Option<PathBuf>,
    /// Its run directory [default: as for `serve`].
    #[arg(long, value_name = "PATH", requires = "server")]
    pub(crate) run_dir: Option<PathBuf>,
}

/// `vervain soak-client`.
#[derive(Args, Debug)]
pub(crate) struct SoakClient {
    #[command(flatten)]
    pub(crate) client: ClientFlags,
}
