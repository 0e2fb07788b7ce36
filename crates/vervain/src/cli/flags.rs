//! The flags, each defined once.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bench::cache::Rates;
use bench::verbs::{Experiment, POSTLIST_MAX, QPS_MAX};
use bench::workload::{Distribution, Mix};
use clap::{Args, Parser, Subcommand, ValueEnum};
use verbs::Gid;

use super::{parse_gid, units};

/// Data-centre storage services at RDMA speed, on any machine.
#[derive(Parser, Debug)]
#[command(
    name = "vervain",
    version,
    about,
    after_help = "Start with `vervain serve`; then, in another terminal, `vervain set greeting \
                  hello` and `vervain get greeting`. Any memcached client works on \
                  127.0.0.1:11211 as well."
)]
pub(super) struct Flags {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Say more about what happens (-v, -vv).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Run the cache.
    Serve(ServeFlags),
    /// Store a value.
    Set(SetFlags),
    /// Print values. Exits with 1 if any is missing.
    Get(GetFlags),
    /// Delete items. Exits with 1 if any was missing.
    Del(DelFlags),
    /// Add to a number (or subtract: a negative delta). Exits with 1 if it is missing.
    Incr(IncrFlags),
    /// Give an item a new expiry. Exits with 1 if it is missing.
    Touch(TouchFlags),
    /// Print the server's counters.
    Stats(StatsFlags),
    /// Keep a connection and take commands from standard input, a line each.
    Shell(ShellFlags),
    /// Measure.
    Bench(BenchFlags),
}

/// Which software NIC.
#[derive(Args, Debug, Clone)]
pub(crate) struct NicFlags {
    /// The NIC's address: an IP address or any name [default: 127.0.0.1].
    #[arg(long, value_name = "NAME", value_parser = parse_gid)]
    pub(crate) gid: Option<Gid>,
    /// Where the processes of this host meet [default: $XDG_RUNTIME_DIR/vervain, or
    /// /tmp/vervain-UID].
    #[arg(long, value_name = "PATH")]
    pub(crate) run_dir: Option<PathBuf>,
    /// Print every request and completion of the NIC on standard error.
    #[arg(long, help_heading = "Looking into the NIC")]
    pub(crate) nic_trace: bool,
    /// Lose, double and delay so many of a million messages on unreliable transports.
    #[arg(long, value_name = "PPM", help_heading = "Looking into the NIC",
          value_parser = clap::value_parser!(u32).range(..=500_000))]
    pub(crate) nic_loss: Option<u32>,
}

/// `vervain serve`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  vervain serve                                    256 MiB, for programs of this host
  vervain serve --cores 2 --memory 8G --prefault   more, and no page fault later
  vervain serve --poll --pin                       lowest latency; whole CPUs, also when idle
  vervain serve --unix /run/cache.sock             a Unix socket besides TCP
  vervain serve --gid b --listen 127.0.0.1:11311   a second cache on the same host")]
pub(crate) struct ServeFlags {
    /// Cores to serve with [default: half of the machine's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) cores: Option<u32>,
    /// Memory for items and their index, all cores together.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = units::size)]
    pub(crate) memory: usize,
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
    /// HERD clients at most.
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) clients: u32,
    /// Requests a HERD client may have under way to one core, a power of two.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = units::window)]
    pub(crate) window: u32,
    /// How the cores do socket I/O.
    #[arg(long, value_enum, default_value_t = Io::Auto)]
    pub(crate) io: Io,
    /// Touch all memory at the start, so that no request pays for it.
    #[arg(long)]
    pub(crate) prefault: bool,
    /// Count what passes through the NIC, for `stats nic`.
    #[arg(long, help_heading = "Looking into the NIC")]
    pub(crate) nic_count: bool,
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
pub(crate) struct ClientFlags {
    /// The server's door.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11211")]
    pub(crate) server: SocketAddr,
    /// The server's door on a Unix socket, instead.
    #[arg(long, value_name = "PATH")]
    pub(crate) unix: Option<PathBuf>,
    /// Speak the Memcache protocol over the socket instead of RDMA.
    #[arg(long)]
    pub(crate) socket: bool,
    #[command(flatten)]
    pub(crate) nic: NicFlags,
    /// How long to wait for an answer.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub(crate) timeout: Duration,
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
    /// `settings`, `herd`, `cores` or `nic`; nothing for the general ones.
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

#[derive(Args, Debug)]
pub(super) struct BenchFlags {
    #[command(subcommand)]
    pub(super) what: BenchWhat,
}

#[derive(Subcommand, Debug)]
pub(super) enum BenchWhat {
    /// The cache under YCSB's mixes: alone, or beside memcached.
    Cache(Box<BenchCache>),
    /// Our socket door beside memcached's, cell by cell.
    Door(BenchDoor),
    /// What this machine can do at all: the limits that the others run against.
    Limit(BenchLimit),
    /// The cache's table alone, beside the standard hash map.
    Mica(BenchMica),
    /// Everything, as JSON, plots and a page: how fast is it here, compared with memcached, and
    /// how far from the limit?
    Report(BenchReport),
    /// Microbenchmarks of RDMA verbs, between two processes.
    Verbs(Box<BenchVerbs>),
    /// The second process of `bench verbs`, told on standard input what to do.
    #[command(hide = true)]
    VerbsPeer(BenchVerbsPeer),
}

/// `vervain bench cache`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  vervain bench cache --serve                  95 % reads of a million small items, over RDMA
  vervain bench cache --against memcached      the same, beside memcached at its best
  vervain bench cache --serve --socket --window 32 --connections 50
  vervain bench cache --serve --rate auto      latency at nine loads
  vervain bench cache --mix a --distribution zipf --value-size 1K --threads 2
                                               a server that runs already
  vervain bench cache --socket --server 127.0.0.1:11311    any memcached")]
pub(crate) struct BenchCache {
    /// Start a server for the run, on the first CPUs; the load has the others.
    #[arg(long, conflicts_with_all = ["server", "unix", "no_preload", "pin"],
          help_heading = "Own servers")]
    pub(crate) serve: bool,
    /// Start our server and this one, and measure both in turn, each with several ways of sending
    /// requests: over RDMA windows of 1 to 64, over sockets one at a time, pipelined and multiget.
    #[arg(long, value_enum, value_name = "PEER", help_heading = "Own servers",
          conflicts_with_all = ["server", "unix", "no_preload", "pin", "window", "multiget", "serve"])]
    pub(crate) against: Option<Peer>,
    /// How often each side has its turn; figures are medians.
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Own servers",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Cores of an own server.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Own servers",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) cores: u32,
    /// Memory of an own server [default: twice what the items need].
    #[arg(long, value_name = "SIZE", value_parser = units::size, help_heading = "Own servers")]
    pub(crate) memory: Option<usize>,
    /// Reads and updates: YCSB's a (50 % reads), b (95 %) or c (all); put:5, put:50 or put:100 for
    /// so many percent of updates; or the permille of reads.
    #[arg(long, value_name = "MIX", default_value = "b")]
    pub(crate) mix: Mix,
    /// Which items: uniform, zipf (theta .99) or zipf:THETA.
    #[arg(long, value_name = "NAME", default_value = "uniform")]
    pub(crate) distribution: Distribution,
    /// Items in the cache.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) items: u64,
    /// Bytes of a key.
    #[arg(long, value_name = "SIZE", default_value = "16", value_parser = units::size)]
    pub(crate) key_size: usize,
    /// Bytes of a value.
    #[arg(long, value_name = "SIZE", default_value = "32", value_parser = units::size)]
    pub(crate) value_size: usize,
    /// Requests under way: to each server core over RDMA (a power of two), on each connection over
    /// a socket [default: 16, or as many as a multiget has keys].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) window: Option<u32>,
    /// Keys of one `get` over a socket; each counts as a request.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "socket",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) multiget: u32,
    /// Connections (HERD clients, or sockets) of each client thread.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) connections: u32,
    /// Client threads.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// Requests a second that are due whatever the server does, `auto` for 10 to 90 % of what a
    /// closed loop reaches, or several: 100k,1M. Latency counts from when a request is due.
    #[arg(long, alias = "rates", value_name = "R,R", value_parser = units::rates,
          conflicts_with = "against")]
    pub(crate) rate: Option<Rates>,
    /// How requests at a rate are spread over time.
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Arriving::Poisson)]
    pub(crate) arrival: Arriving,
    /// Pin client threads to the last CPUs; `serve --pin` takes the first.
    #[arg(long)]
    pub(crate) pin: bool,
    /// How long to measure [default: 5s; 2s each at a rate, .5s each with --against].
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    pub(crate) length: Option<Duration>,
    /// Measure so many requests instead.
    #[arg(long, value_name = "N", conflicts_with = "length")]
    pub(crate) operations: Option<u64>,
    /// How long to run before measuring [default: 1s; .1s each with --against].
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) warm_up: Option<Duration>,
    /// Take the items that are there, instead of storing all of them first.
    #[arg(long)]
    pub(crate) no_preload: bool,
    /// Repeats the requests exactly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Check that each value read is a whole value of its item.
    #[arg(long)]
    pub(crate) verify: bool,
    #[command(flatten)]
    pub(crate) client: ClientFlags,
}

/// `--arrival`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Arriving {
    /// At random, as those of many users.
    Poisson,
    /// At equal distances.
    Constant,
}

/// `--against`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// memcached, as installed.
    Memcached,
}

/// `vervain bench door`.
#[derive(Args, Debug)]
#[command(
    after_help = "Starts `vervain serve` and memcached with one thread each on the first CPU, \
                        and loads them in turn from the second one."
)]
pub(crate) struct BenchDoor {
    /// Numbers of connections, each with cells of its own.
    #[arg(long, value_name = "N,N", default_value = "1,50", value_delimiter = ',',
          value_parser = connections)]
    pub(crate) connections: Vec<usize>,
    /// Items in the caches.
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) items: u64,
    /// Bytes of a key.
    #[arg(long, value_name = "SIZE", default_value = "16", value_parser = units::size)]
    pub(crate) key_size: usize,
    /// Bytes of a value.
    #[arg(long, value_name = "SIZE", default_value = "32", value_parser = units::size)]
    pub(crate) value_size: usize,
    /// How long each measurement takes.
    #[arg(long = "for", value_name = "TIME", default_value = "300ms", value_parser = units::duration)]
    pub(crate) each: Duration,
    /// Measurements of each cell and server; figures are medians.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Repeats the requests exactly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// A number of connections that a server takes.
fn connections(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(count @ 1..=1000) => Ok(count),
        _ => Err("there are 1 to 1000 connections".to_string()),
    }
}

/// `vervain bench limit`.
#[derive(Args, Debug)]
pub(crate) struct BenchLimit {
    /// The two CPUs to measure between [default: the first and the last].
    #[arg(long, value_name = "A,B", value_parser = two_cpus)]
    pub(crate) cpus: Option<[usize; 2]>,
    /// How long each measurement takes.
    #[arg(long = "for", value_name = "TIME", default_value = "300ms", value_parser = units::duration)]
    pub(crate) each: Duration,
    /// Memory that random reads spread over.
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = units::size)]
    pub(crate) memory: usize,
}

/// `vervain bench mica`.
#[derive(Args, Debug)]
pub(crate) struct BenchMica {
    /// Items; far more than the caches hold. Each takes about 300 bytes in all tables.
    #[arg(long, value_name = "N", default_value_t = 20_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) items: u64,
    /// GETs in a batch, one measurement each.
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,8,16,32"
    )]
    pub(crate) batch: Vec<usize>,
    /// How long each measurement takes.
    #[arg(long = "for", value_name = "TIME", default_value = "500ms", value_parser = units::duration)]
    pub(crate) each: Duration,
    /// How often each is repeated; the median counts.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Repeats the keys exactly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// `vervain bench report`.
#[derive(Args, Debug)]
#[command(
    after_help = "Starts the servers it needs, memcached among them where it is installed, \
and takes under 8 minutes on two cores. Leave the machine alone meanwhile. Examples:
  vervain bench report                       into vervain-report/, with a page to look at
  vervain bench report --quick               a first look, in a minute and a half
  vervain bench report --json                the figures for a program, under `ratios`
  vervain bench report --from report.json    draws a report again"
)]
pub(crate) struct BenchReport {
    /// Where the page, the plots and the JSON go.
    #[arg(long, value_name = "DIR", default_value = "vervain-report")]
    pub(crate) out: PathBuf,
    /// Draw a report again instead of measuring.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "full", "tiny"])]
    pub(crate) from: Option<PathBuf>,
    /// A minute and a half: one round, fewer sizes. For a look, not for comparisons.
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// Longer measurements, five rounds, a hundred million items where memory allows it.
    #[arg(long)]
    pub(crate) full: bool,
    /// Seconds: whether everything works, not how fast.
    #[arg(long, hide = true, conflicts_with_all = ["quick", "full"])]
    pub(crate) tiny: bool,
    /// Repeats the requests exactly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// `vervain bench verbs`.
#[derive(Args, Debug)]
#[command(
    after_help = "Starts a second process of its own; needs no server. Examples:
  vervain bench verbs                            all experiments, briefly
  vervain bench verbs --list                     what there is
  vervain bench verbs write --sizes 16,64,1K     WRITE by size
  vervain bench verbs echo --window 1,16,64      the ladder of HERD's Fig 5
  vervain bench verbs read --latency             one at a time, each timed
  vervain bench verbs send --transport ud --role inbound --qps 1,64"
)]
pub(crate) struct BenchVerbs {
    /// Which experiments [default: all, with fewer sizes and windows].
    #[arg(value_name = "EXPERIMENT")]
    pub(crate) experiments: Vec<Experiment>,
    /// Show the experiments and measure nothing.
    #[arg(long)]
    pub(crate) list: bool,
    /// The CPUs of the two processes [default: the first and the last].
    #[arg(long, value_name = "A,B", value_parser = two_cpus)]
    pub(crate) cpus: Option<[usize; 2]>,
    /// Bytes of a message, several by commas.
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = units::size,
          help_heading = "Instead of the experiment's own choice")]
    pub(crate) sizes: Vec<usize>,
    /// Requests under way, on each queue pair.
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4096),
          help_heading = "Instead of the experiment's own choice")]
    pub(crate) window: Vec<u32>,
    /// Work requests in one post call.
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(POSTLIST_MAX)),
          help_heading = "Instead of the experiment's own choice")]
    pub(crate) postlist: Vec<u32>,
    /// One completion in so many work requests.
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4096),
          help_heading = "Instead of the experiment's own choice")]
    pub(crate) signal_every: Vec<u32>,
    /// Queue pairs.
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(QPS_MAX)),
          help_heading = "Instead of the experiment's own choice")]
    pub(crate) qps: Vec<u32>,
    /// Transports.
    #[arg(
        long,
        value_enum,
        value_name = "NAME,...",
        value_delimiter = ',',
        help_heading = "Instead of the experiment's own choice"
    )]
    pub(crate) transport: Vec<TransportFlag>,
    /// Which messages are carried within the work request.
    #[arg(long, value_enum, default_value_t = InlineFlag::Auto,
          help_heading = "Instead of the experiment's own choice")]
    pub(crate) inline: InlineFlag,
    /// Who posts.
    #[arg(
        long,
        value_enum,
        value_name = "ROLE",
        help_heading = "Instead of the experiment's own choice"
    )]
    pub(crate) role: Option<RoleFlag>,
    /// What the target's CPU does with WRITEs.
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        help_heading = "Instead of the experiment's own choice"
    )]
    pub(crate) target: Option<TargetFlag>,
    /// Measure the time of one request instead of throughput.
    #[arg(long)]
    pub(crate) latency: bool,
    /// How long each measurement takes.
    #[arg(long = "for", value_name = "TIME", default_value = "50ms", value_parser = units::duration)]
    pub(crate) each: Duration,
    /// How often each is repeated; shown are medians.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    #[command(flatten)]
    pub(crate) nic: NicFlags,
}

/// `vervain bench verbs-peer`.
#[derive(Args, Debug)]
pub(crate) struct BenchVerbsPeer {
    #[command(flatten)]
    pub(crate) nic: NicFlags,
}

/// `--transport`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportFlag {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// `--inline`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum InlineFlag {
    /// Those of up to 256 bytes.
    Auto,
    /// All of them.
    Always,
    /// None.
    Never,
}

/// `--role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleFlag {
    /// The process on the first CPU, which measures what it sends.
    Outbound,
    /// The process on the second CPU; the first one measures what arrives.
    Inbound,
}

/// `--target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TargetFlag {
    /// It polls for each message and reads it.
    Polling,
    /// Nothing.
    Idle,
}

/// Two different CPUs that this process may use.
fn two_cpus(text: &str) -> Result<[usize; 2], String> {
    let wrong = || format!("`{text}` is not two CPUs; write 0,1");
    let (one, two) = text.split_once(',').ok_or_else(wrong)?;
    let cpus = [one, two].map(|cpu| cpu.trim().parse());
    let [Ok(one), Ok(two)] = cpus else {
        return Err(wrong());
    };
    if one == two {
        return Err("the two CPUs are the same".into());
    }
    let allowed = bench::machine::allowed_cpus();
    match [one, two].iter().find(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => Err(format!(
            "this process may use the CPUs {allowed:?}, not {cpu}"
        )),
        None => Ok([one, two]),
    }
}
