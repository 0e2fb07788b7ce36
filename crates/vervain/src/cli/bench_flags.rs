//! The flags of `vervain bench`.

use std::path::PathBuf;
use std::time::Duration;

use bench::cache::Rates;
use bench::store::Mix as StoreMix;
use bench::verbs::{Experiment, POSTLIST_MAX, QPS_MAX};
use bench::workload::{Distribution, Mix};
use clap::{Args, Subcommand, ValueEnum};

use super::flags::{ClientFlags, NicFlags};
use super::units;

#[derive(Args, Debug)]
pub(super) struct BenchFlags {
    #[command(subcommand)]
    pub(super) what: BenchWhat,
}

#[derive(Subcommand, Debug)]
pub(super) enum BenchWhat {
    /// The cache under YCSB's mixes: alone, or beside memcached.
    Cache(Box<BenchCache>),
    /// What a client notices while others connect, stand still and are killed.
    Death(BenchDeath),
    /// A client that `bench death` kills, told on standard input when to connect.
    #[command(hide = true)]
    DeathVictim(BenchDeathVictim),
    /// Our socket door beside memcached's, cell by cell.
    Door(BenchDoor),
    /// The store's index alone, beside concurrent hash maps.
    Index(BenchIndex),
    /// What this machine can do at all: the limits that the others run against.
    Limit(BenchLimit),
    /// The cache's table alone, beside the standard hash map.
    Mica(BenchMica),
    /// Everything, as JSON, plots and a page: how fast is it here, compared with memcached, and
    /// how far from the limit?
    Report(BenchReport),
    /// The store on flash beside its bare device.
    Store(BenchStore),
    /// A process that loads a store and is killed then, for `bench report --store`.
    #[command(hide = true)]
    StoreLoad(BenchStoreLoad),
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

/// `vervain bench index`.
#[derive(Args, Debug)]
#[command(
    after_help = "Fills our index, dashmap, and std's HashMap behind sharded locks with the same hashes in \
turn, and looks them up in turn. Takes about three minutes and 4 GB with 50 million keys."
)]
pub(crate) struct BenchIndex {
    /// Keys in each table; far more than the caches hold. Each takes about 80 bytes in all tables.
    #[arg(long, value_name = "N", default_value_t = 50_000_000,
          value_parser = clap::value_parser!(u64).range(1..=1 << 36))]
    pub(crate) keys: u64,
    /// Threads, each on a CPU of its own if there are as many.
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// How long each measurement of lookups takes.
    #[arg(long = "for", value_name = "TIME", default_value = "500ms", value_parser = units::duration)]
    pub(crate) each: Duration,
    /// How often the tables are filled and asked; figures are medians.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Repeats the keys asked for exactly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
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
  vervain bench report --from report.json    draws a report again
  vervain bench report --store               the store on flash instead: store.json and plots"
)]
pub(crate) struct BenchReport {
    /// Where the page, the plots and the JSON go.
    #[arg(long, value_name = "DIR", default_value = "vervain-report")]
    pub(crate) out: PathBuf,
    /// Measure the store on flash instead: beside its bare device, its index, its recovery. Takes
    /// about 8 minutes, and up to 14 GiB of the directory's disk meanwhile.
    #[arg(long, conflicts_with_all = ["from", "full"])]
    pub(crate) store: bool,
    /// Where --store has its temporary files, which have no names: nothing is left of them.
    #[arg(long, value_name = "DIR", default_value = ".", requires = "store")]
    pub(crate) dir: PathBuf,
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

/// `vervain bench store`.
#[derive(Args, Debug)]
#[command(
    after_help = "Needs no server. Each figure stands beside that of the bare device: the same \
transfers on the same file, by the same calls at the same depth, without an index. Examples:
  vervain bench store                              GET and PUT at depth 1 and 128
  vervain bench store --engine uring,aio,threads --depth 128 --mix get
  vervain bench store --mix ycsb-a,ycsb-b --depth 32 --cores 2
  vervain bench store --file /dev/nvme1n1 --overwrite    a whole drive, whose contents are lost"
)]
pub(crate) struct BenchStore {
    /// Where the temporary file goes. It has no name, and nothing is left of it afterwards.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Use this file or drive instead. It stays.
    #[arg(long, value_name = "PATH", conflicts_with = "dir")]
    pub(crate) file: Option<PathBuf>,
    /// Use a file that is there already, or a drive: its contents are lost.
    #[arg(long, requires = "file")]
    pub(crate) overwrite: bool,
    /// Bytes of a new file.
    #[arg(long, value_name = "SIZE", default_value = "6G", value_parser = units::size)]
    pub(crate) size: usize,
    /// By which calls: uring, aio, threads, blocking; several are measured in turn.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "uring"
    )]
    pub(crate) engine: Vec<block::Engine>,
    /// Requests under way on each core, one measurement each.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,128",
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) depth: Vec<u16>,
    /// What is asked for: get, put (new keys), update, ycsb-a, ycsb-b, ycsb-c.
    #[arg(
        long,
        value_name = "MIX,...",
        value_delimiter = ',',
        default_value = "get,put"
    )]
    pub(crate) mix: Vec<StoreMix>,
    /// Cores, each with its own queue of the device.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) cores: u16,
    /// Items at first.
    #[arg(long, value_name = "N", default_value_t = 200_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keys: u64,
    /// Bytes of a value.
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = units::size)]
    pub(crate) value: usize,
    /// PUTs survive the death of the process, but no power cut; raw writes likewise.
    #[arg(long)]
    pub(crate) volatile: bool,
    /// Cores sleep when they have nothing to do, instead of spinning: then CPU time tells what a request
    /// costs.
    #[arg(long)]
    pub(crate) sleep: bool,
    /// How long each measurement takes.
    #[arg(long = "for", value_name = "TIME", default_value = "500ms", value_parser = units::duration)]
    pub(crate) each: Duration,
    /// How long each runs before it is measured.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = units::duration)]
    pub(crate) warm_up: Duration,
    /// How often each side has its turn; figures are medians.
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Repeats the requests exactly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Take a file in memory too: whether everything works, not how fast.
    #[arg(long, hide = true)]
    pub(crate) in_memory: bool,
}

/// `vervain bench store-load`.
#[derive(Args, Debug)]
pub(crate) struct BenchStoreLoad {
    /// The file, which is there.
    #[arg(long)]
    pub(crate) file: PathBuf,
    /// Items.
    #[arg(long)]
    pub(crate) keys: u64,
    /// Bytes of a value.
    #[arg(long)]
    pub(crate) value: usize,
    /// Repeats the items exactly.
    #[arg(long)]
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

/// `vervain bench death`.
#[derive(Args, Debug)]
#[command(
    after_help = "Starts a server of its own, and other clients as processes. Examples:
  vervain bench death                        40 deaths, one a second
  vervain bench death --out pictures         the figures as JSON, and two plots
  vervain bench death --rate 200k --deaths 60 --json"
)]
pub(crate) struct BenchDeath {
    /// Requests a second of the client that lives on.
    #[arg(long, value_name = "RATE", default_value = "50k", value_parser = units::rate)]
    pub(crate) rate: f64,
    /// How many clients die, one after the other.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub(crate) deaths: usize,
    /// From one death to the next.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub(crate) every: Duration,
    /// How long before and after an event requests count as before and during it.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = units::duration)]
    pub(crate) around: Duration,
    /// How many items there are.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) items: u64,
    /// The server's cores.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) cores: u16,
    /// Write the figures and the plots into this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Repeats the requests exactly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) nic: NicFlags,
}

/// `vervain bench death-victim`.
#[derive(Args, Debug)]
pub(crate) struct BenchDeathVictim {
    /// Is no client, and has so many bytes.
    #[arg(long, value_name = "BYTES")]
    pub(crate) stranger: Option<u64>,
    #[command(flatten)]
    pub(crate) client: ClientFlags,
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
