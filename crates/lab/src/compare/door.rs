//! Our socket door beside memcached's, cell by cell.

use std::time::Duration;

use serde::Serialize;

use bench::cache::{CacheRun, Length, Pinning, RunError, Target, as_seconds};
use bench::machine::Machine;
use bench::process::{Listen, ProcessError, Server, ServerSettings, vervain};
use bench::workload::Mix;
use bench::{Rounds, units};

use super::ways::{Way, ratio, store};
use crate::memcached;

/// Why there is no matrix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoorError {
    /// A server could not be started.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A measurement did not finish.
    #[error("{server}: {error}")]
    Run {
        /// Which server.
        server: String,
        /// Why.
        error: RunError,
    },
}

/// The settings of a matrix: {get, set} x connections x {one at a time, pipelined, multiget} x
/// {TCP, Unix}, each cell measured on both servers in turn.
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Starts `vervain serve` and memcached with one thread each on the first CPU, \
                        and loads them in turn from the second one."
)]
pub struct DoorMatrix {
    /// How many items there are.
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub items: u64,
    /// Bytes of a key.
    #[arg(long = "key-size", value_name = "SIZE", default_value = "16", value_parser = units::size)]
    pub key_len: usize,
    /// Bytes of a value.
    #[arg(long = "value-size", value_name = "SIZE", default_value = "32", value_parser = units::size)]
    pub value_len: usize,
    /// Numbers of connections, each with cells of its own; all from one thread.
    #[arg(long, value_name = "N,N", default_value = "1,50", value_delimiter = ',',
          value_parser = units::count::<1, 1000>)]
    pub connections: Vec<usize>,
    /// Requests pipelined, and keys of a multiget.
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: u32,
    /// How long each measurement takes.
    #[arg(long = "for", value_name = "TIME", default_value = "300ms", value_parser = units::duration)]
    pub slice: Duration,
    /// How long to run before each measurement.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = units::duration)]
    pub warm_up: Duration,
    /// Measurements of each cell and server; figures are medians.
    #[arg(long, value_name = "N", default_value = "3", value_parser = units::count::<1, 1000>)]
    pub rounds: usize,
    /// Memory of each server.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = units::size)]
    pub memory: usize,
    /// The CPUs of both servers, which have a thread for each; none for one thread anywhere.
    #[arg(skip)]
    pub server_cpus: Vec<usize>,
    /// The CPU of the load, if it is to have one.
    #[arg(skip)]
    pub load_cpu: Option<usize>,
    /// Repeats the requests exactly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl DoorMatrix {
    /// Starts both servers, fills them and measures. `progress` is told which step of how many
    /// begins.
    ///
    /// # Errors
    /// memcached is not installed, a server does not start, a connection breaks.
    pub fn run(&self, progress: &mut dyn FnMut(usize, usize)) -> Result<DoorReport, DoorError> {
        let began = std::time::Instant::now();
        let exe = std::env::current_exe().map_err(ProcessError::system("where this program is"))?;
        let settings = ServerSettings {
            cpus: self.server_cpus.clone(),
            cores: self.server_cpus.len().max(1),
            memory: self.memory,
            value_len_max: self.value_len,
            ..ServerSettings::default()
        };
        // Both have a process a door, so that neither has more to watch than the other.
        let both = [Listen::Tcp, Listen::Unix];
        let theirs = both.map(|listen| memcached::start(&settings, listen));
        let ours = both.map(|_| vervain::start(&exe, &settings));
        let (theirs, ours) = (started(theirs)?, started(ours)?);
        let rows = self.rows();
        let steps = rows.len() * self.rounds * 2;
        let mut step = 0;
        for server in theirs.iter().chain(&ours) {
            let door = Target::Socket(server.address().clone());
            let stored = store(&door, &self.cache_run(door.clone()));
            stored.map_err(|error| run_error(server, error))?;
        }
        // Ours are the even sides, each followed by theirs.
        let rounds = Rounds::alternate(self.rounds, 2 * rows.len(), |side| {
            step += 1;
            progress(step, steps);
            let row = &rows[side / 2];
            let servers = if side % 2 == 0 { &ours } else { &theirs };
            let (server, address) = match row.listen {
                Listen::Tcp => (&servers[0], servers[0].address()),
                Listen::Unix => (
                    &servers[1],
                    servers[1].unix().unwrap_or(servers[1].address()),
                ),
            };
            let run = CacheRun {
                mix: row.mix,
                connections: row.connections,
                window: row.way.window,
                multiget: row.way.multiget,
                ..self.cache_run(Target::Socket(address.clone()))
            };
            let report = run.run(&mut |_, _| {});
            let report = report.map_err(|error| run_error(server, error))?;
            Ok::<_, DoorError>(report.throughput_mops)
        })?;
        let finish = |(at, row): (usize, Row)| {
            let (ours_mops, theirs_mops) = (rounds.median(2 * at), rounds.median(2 * at + 1));
            DoorRow {
                transport: match row.listen {
                    Listen::Tcp => "tcp",
                    Listen::Unix => "unix",
                },
                operation: row.operation,
                connections: row.connections,
                way: row.way,
                ours_mops,
                theirs_mops,
                ratio: ratio(ours_mops, theirs_mops),
            }
        };
        let rows: Vec<DoorRow> = rows.into_iter().enumerate().map(finish).collect();
        let ratios = rows.iter().map(|row| row.ratio);
        Ok(DoorReport {
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::this(),
            ours: ours[0].name().to_string(),
            theirs: theirs[0].name().to_string(),
            items: self.items,
            key_len: self.key_len,
            value_len: self.value_len,
            server_cpus: self.server_cpus.clone(),
            load_cpu: self.load_cpu,
            slice: self.slice,
            rounds: self.rounds,
            seed: self.seed,
            ratio_min: ratios.fold(f64::INFINITY, f64::min),
            rows,
            took: began.elapsed(),
        })
    }

    fn cache_run(&self, target: Target) -> CacheRun {
        CacheRun {
            items: self.items,
            key_len: self.key_len,
            value_len: self.value_len,
            pinning: match self.load_cpu {
                Some(cpu) => Pinning::Cpus(vec![cpu]),
                None => Pinning::None,
            },
            length: Length::Time(self.slice),
            warm_up: Length::Time(self.warm_up),
            preload: false,
            seed: self.seed,
            // A busy machine is no reason to give up.
            timeout: Duration::from_secs(10),
            ..CacheRun::new(target)
        }
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let pipelined = Way::pipelined(self.depth);
        let multiget = Way::multiget(self.depth, 1);
        let gets = (Mix::C, "get", vec![Way::PLAIN, pipelined, multiget]);
        let sets = (Mix::UPDATES, "set", vec![Way::PLAIN, pipelined]);
        for listen in [Listen::Tcp, Listen::Unix] {
            for (mix, operation, ways) in [&gets, &sets] {
                for &connections in &self.connections {
                    rows.extend(ways.iter().map(|&way| Row {
                        listen,
                        mix: *mix,
                        operation,
                        connections,
                        way,
                    }));
                }
            }
        }
        rows
    }
}

fn started<const N: usize>(
    servers: [Result<Server, ProcessError>; N],
) -> Result<Vec<Server>, ProcessError> {
    servers.into_iter().collect()
}

fn run_error(server: &Server, error: RunError) -> DoorError {
    DoorError::Run {
        server: server.name().to_string(),
        error,
    }
}

/// A row that is measured.
struct Row {
    listen: Listen,
    mix: Mix,
    operation: &'static str,
    connections: usize,
    way: Way,
}

/// One cell of the matrix on both servers.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct DoorRow {
    /// `tcp` or `unix`.
    pub transport: &'static str,
    /// `get` or `set`.
    pub operation: &'static str,
    /// Connections.
    pub connections: usize,
    /// How the requests were sent.
    #[serde(flatten)]
    pub way: Way,
    /// Ours, in millions of requests (keys) a second, the median.
    pub ours_mops: f64,
    /// Theirs.
    pub theirs_mops: f64,
    /// Ours over theirs.
    pub ratio: f64,
}

/// What a matrix has found out.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
#[expect(missing_docs, reason = "most fields are DoorMatrix's")]
pub struct DoorReport {
    /// The version that measured.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// Our server.
    pub ours: String,
    /// The other one.
    pub theirs: String,
    pub items: u64,
    pub key_len: usize,
    pub value_len: usize,
    pub server_cpus: Vec<usize>,
    pub load_cpu: Option<usize>,
    #[serde(rename = "slice_seconds", serialize_with = "as_seconds")]
    pub slice: Duration,
    pub rounds: usize,
    pub seed: u64,
    /// The cells.
    pub rows: Vec<DoorRow>,
    /// The worst cell's ratio.
    pub ratio_min: f64,
    /// How long it all took.
    #[serde(rename = "seconds", serialize_with = "as_seconds")]
    pub took: Duration,
}
