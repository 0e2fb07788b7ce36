//! The store on flash beside its bare device: the same file, calls and depth, once through the
//! store and once through a loop without an index, in turn.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`StoreRun`]: the settings and the run |
//! | `place.rs` | the file or drive, and its part that is the store's |
//! | `measure.rs` | one measurement: cores, tasks, counts |
//! | `log.rs` | a log without an index, which writes are compared with |
//! | `collecting.rs` | what is written for a PUT when segments have to be emptied |
//! | `report.rs` | [`StoreReport`], what a run has found out |
//! | `show.rs` | the same as a table |
//! | `recovery.rs` | opening a store after a crash and after a clean stop |

mod collecting;
mod log;
mod measure;
mod place;
mod recovery;
mod report;
mod show;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::store::{Durability, Options, Store, StoreError};
use block::{BlockError, Device, Durable, Engine, FileDevice};
use serde::Serialize;

use self::measure::{Numbers, Requests, Side, Slice, Tally};
use self::place::{Part, Place, fill};
use crate::machine::{Machine, allowed_cpus};
use crate::workload::{self, Distribution, Tape, Workload};

pub use self::collecting::{Collected, CollectingRun};
pub use self::place::Location;
pub use self::recovery::{Recovered, RecoveryRun, load};
pub use self::report::{Figures, Loaded, Row, StoreReport, Survives};
pub use self::show::write_store;

/// Bytes of a key.
pub const KEY_LEN: usize = 16;
/// Requests recorded for each core before they are measured.
const TAPE_LEN: usize = 1 << 16;
/// Requests under way while the store is filled: enough for writes of a quarter of a megabyte.
const FILL_DEPTH: usize = 1024;
/// Which share of the store's part is filled at most, before and by PUTs: beyond it segments would be
/// given up and moved, which is another measurement.
const USED_SHARE: f64 = 0.8;
/// Which part of the file is the store's; the rest takes the bare writes.
const STORE_SHARE: f64 = 0.8;

/// Why a measurement of a store ended without a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreBenchError {
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(String),
    /// The file cannot be used.
    #[error("cannot use {}: {error}", path.display())]
    File {
        /// Which file or directory.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file would be in memory.
    #[error(
        "{} is in memory (tmpfs), which is no device: what is measured there is how memory is \
         copied, and io_uring goes through threads of the kernel; name a directory on a disk with \
         --dir", .0.display()
    )]
    InMemory(PathBuf),
    /// The device fails.
    #[error(transparent)]
    Device(#[from] BlockError),
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Cores cannot be started.
    #[error(transparent)]
    Threads(#[from] rt::threads::ThreadsError),
    /// A request ended without an end.
    #[error("a task failed: {0}")]
    Task(String),
    /// There is no such workload.
    #[error(transparent)]
    Workload(#[from] workload::WorkloadError),
    /// A store gave something else than was stored.
    #[error("{what}: {count} of {of}")]
    Wrong {
        /// What went wrong.
        what: &'static str,
        /// How often.
        count: u64,
        /// Of how many.
        of: u64,
    },
    /// A store was to empty segments, and has not.
    #[error("no segment was emptied while {0} bytes were put")]
    NotCollected(u64),
    /// A process that loads a store fails.
    #[error("the process that loads the store: {0}")]
    Loader(String),
}

/// What is asked of a store.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// GETs, each item alike.
    Get,
    /// PUTs of new keys.
    Put,
    /// PUTs over values, each item alike.
    Update,
    /// YCSB's A: half GETs, half updates, Zipf's distribution.
    YcsbA,
    /// YCSB's B: 95 % GETs.
    YcsbB,
    /// YCSB's C: GETs alone.
    YcsbC,
}

impl Mix {
    /// Its name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Mix::Get => "get",
            Mix::Put => "put",
            Mix::Update => "update",
            Mix::YcsbA => "ycsb-a",
            Mix::YcsbB => "ycsb-b",
            Mix::YcsbC => "ycsb-c",
        }
    }

    fn drawn(self) -> (workload::Mix, Distribution) {
        match self {
            Mix::Get => (workload::Mix::C, Distribution::Uniform),
            Mix::Put | Mix::Update => (workload::Mix::UPDATES, Distribution::Uniform),
            Mix::YcsbA => (workload::Mix::A, Distribution::YCSB_ZIPF),
            Mix::YcsbB => (workload::Mix::B, Distribution::YCSB_ZIPF),
            Mix::YcsbC => (workload::Mix::C, Distribution::YCSB_ZIPF),
        }
    }
}

/// One measurement: a mix at a depth, by several engines in turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cell {
    /// What is asked for.
    pub mix: Mix,
    /// Requests under way on each core.
    pub depth: usize,
    /// By which calls.
    pub engines: Vec<Engine>,
    /// Whether cores spin where they have nothing to do, or sleep. Where they sleep, CPU time tells what
    /// a request costs.
    pub idle: Idle,
}

/// What a core does when it has nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Idle {
    /// Looks again and again.
    Spin,
    /// Sleeps at once.
    Sleep,
}

/// Every mix at every depth.
pub fn cells(mixes: &[Mix], depths: &[usize], engines: &[Engine], idle: Idle) -> Vec<Cell> {
    let cell = |mix, depth| Cell {
        mix,
        depth,
        engines: engines.to_vec(),
        idle,
    };
    let by_depth = |&mix| depths.iter().map(move |&depth| cell(mix, depth));
    mixes.iter().flat_map(by_depth).collect()
}

/// The settings of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct StoreRun {
    /// Where.
    pub location: Location,
    /// Bytes of a new file, of which the store gets four fifths.
    pub bytes: u64,
    /// Take a file in memory too.
    pub in_memory: bool,
    /// What is measured.
    pub cells: Vec<Cell>,
    /// Cores.
    pub cores: usize,
    /// Items at first.
    pub keys: u64,
    /// Bytes of a value.
    pub value_len: usize,
    /// What an acknowledged PUT survives, of the store and of the bare device.
    pub durability: Durability,
    /// How long each measurement takes.
    pub length: Duration,
    /// How long it runs before.
    pub warm_up: Duration,
    /// How often each is repeated; the median counts.
    pub rounds: usize,
    /// Repeats the requests exactly.
    pub seed: u64,
}

impl Default for StoreRun {
    fn default() -> Self {
        StoreRun {
            location: Location::Temporary(".".into()),
            bytes: 6 << 30,
            in_memory: false,
            cells: cells(
                &[Mix::Get, Mix::Put],
                &[1, 128],
                &[Engine::Uring],
                Idle::Spin,
            ),
            cores: 1,
            keys: 200_000,
            value_len: 4096,
            durability: Durability::PowerCut,
            length: Duration::from_millis(500),
            warm_up: Duration::from_millis(100),
            rounds: 5,
            seed: 1,
        }
    }
}

/// A store and what it is compared with.
struct Bench<'r> {
    run: &'r StoreRun,
    file: FileDevice,
    part: Arc<Part>,
    store: Arc<Store>,
    cpus: Vec<Option<usize>>,
    numbers: Arc<Numbers>,
    /// PUTs of new keys that a measurement may make.
    puts_each: u64,
    load: Loaded,
}

impl StoreRun {
    /// Fills a store and measures. `progress` is told what is done.
    ///
    /// # Errors
    /// Settings that make no sense, a device that cannot be used or fails, wrong values.
    pub fn run(&self, progress: &mut dyn FnMut(&str)) -> Result<StoreReport, StoreBenchError> {
        self.check()?;
        let place = Place::open(&self.location, self.bytes, self.in_memory)?;
        let bench = Bench::prepare(self, &place, progress)?;
        let mut rows = Vec::new();
        for cell in &self.cells {
            rows.extend(bench.compare(cell, progress)?);
        }
        let report = StoreReport {
            machine: Machine::this(),
            version: env!("CARGO_PKG_VERSION"),
            location: self.location.show(),
            is_direct: bench.file.is_direct(),
            block: bench.file.geometry().block,
            bytes: bench.file.geometry().len,
            keys: self.keys,
            key_len: KEY_LEN,
            value_len: self.value_len,
            durability: self.durability.into(),
            cpus: bench.cpus.clone(),
            rounds: self.rounds,
            slice_s: self.length.as_secs_f64(),
            seed: self.seed,
            load: bench.load,
            rows,
        };
        let Bench { store, .. } = bench;
        // Nobody else holds it: each measurement ends its cores.
        if let Ok(store) = Arc::try_unwrap(store) {
            store.close()?;
        }
        Ok(report)
    }

    fn check(&self) -> Result<(), StoreBenchError> {
        let wrong = |text: &str| Err(StoreBenchError::Setting(text.to_string()));
        if self.keys == 0 || self.rounds == 0 || self.cores == 0 || self.length.is_zero() {
            return wrong("there is at least one key, one round, one core, and some time");
        }
        let is_none = |cell: &Cell| cell.depth == 0 || cell.engines.is_empty();
        if self.cells.is_empty() || self.cells.iter().any(is_none) {
            return wrong("there is at least one engine, one mix, and one request under way");
        }
        if self.value_len == 0 {
            return wrong("an empty value has no bare transfer to compare with");
        }
        Ok(())
    }

    fn options(&self) -> Options {
        let deepest = self.cells.iter().map(|cell| cell.depth).max().unwrap_or(1);
        let mut options = Options::default();
        options.durability = self.durability;
        options.queue_depth = deepest.max(128);
        // Room for PUTs is kept by their number.
        options.live_share = 0.95;
        options.seed = Some(self.seed);
        // The file is the benchmark's own, and holds what the bare transfers have written.
        options.force = true;
        options
    }
}

impl<'r> Bench<'r> {
    fn prepare(
        run: &'r StoreRun,
        place: &Place,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, StoreBenchError> {
        let first = run.cells.first().and_then(|cell| cell.engines.first());
        let file = place.device(first.copied().unwrap_or(Engine::Uring))?;
        let geometry = file.geometry();
        let store_len = ((geometry.len as f64 * STORE_SHARE) as u64 >> 20) << 20;
        let record = (run.value_len + KEY_LEN + 32) as u64;
        let room = (store_len as f64 * USED_SHARE) as u64 / record;
        let puts = room.saturating_sub(run.keys);
        let cells = run.cells.iter().filter(|cell| cell.mix != Mix::Get);
        let slices = cells
            .map(|cell| cell.engines.len() * run.rounds)
            .sum::<usize>();
        let slices = slices.max(1) as u64;
        if puts < slices * 64 {
            return Err(StoreBenchError::Setting(format!(
                "{} of {} bytes need a file of more than {} MiB",
                run.keys,
                run.value_len,
                geometry.len >> 20
            )));
        }
        // The superblock and its surroundings stay as they are: of zeros.
        fill(&file, 1 << 20, geometry.len, progress)?;
        let part = Part::new(&file, store_len);
        let store = Arc::new(Store::on(part.clone(), &run.options())?);
        let allowed = allowed_cpus();
        // The last ones: interrupts go to the first, most often.
        let cpu = |core: usize| {
            let fits = allowed.len() >= run.cores;
            fits.then(|| allowed[allowed.len() - 1 - core])
        };
        let mut bench = Bench {
            run,
            file,
            part,
            store,
            cpus: (0..run.cores).map(cpu).collect(),
            numbers: Arc::new(Numbers::new(run.keys)),
            puts_each: puts / slices,
            load: Loaded::default(),
        };
        progress("storing values");
        bench.load = bench.load()?;
        Ok(bench)
    }

    /// Stores the items.
    fn load(&self) -> Result<Loaded, StoreBenchError> {
        let began = Instant::now();
        let numbers = Arc::new(Numbers::new(0));
        numbers.allow(self.run.keys);
        let slice = Slice {
            depth: FILL_DEPTH,
            warm_up: Duration::ZERO,
            // Until there are no more.
            length: Duration::from_secs(86_400),
            requests: Requests::Fresh(numbers),
            ..self.slice(FILL_DEPTH)
        };
        slice.run(&Side::Store(self.store.clone()))?;
        Ok(Loaded::of(&self.store, began.elapsed()))
    }

    fn slice(&self, depth: usize) -> Slice {
        Slice {
            cpus: self.cpus.clone(),
            depth,
            warm_up: self.run.warm_up,
            length: self.run.length,
            requests: Requests::Fresh(self.numbers.clone()),
            value_len: self.run.value_len,
            seed: self.run.seed,
            idle: Idle::Spin,
        }
    }

    /// Measures one mix at one depth, by all engines in turn.
    fn compare(
        &self,
        cell: &Cell,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Vec<Row>, StoreBenchError> {
        let run = self.run;
        let Cell {
            mix,
            depth,
            engines,
            idle,
        } = cell;
        let (mix, depth) = (*mix, *depth);
        let (drawn, distribution) = mix.drawn();
        let workload = Workload {
            mix: drawn,
            distribution,
            items: run.keys,
            key_len: KEY_LEN,
        };
        let generator = workload.generator(run.seed)?;
        let tapes = (0..run.cores).map(|core| Tape::record(&generator, core as u64, TAPE_LEN));
        let tapes: Arc<[Tape]> = tapes.collect();
        let mut all: Vec<[Vec<Tally>; 2]> = engines.iter().map(|_| Default::default()).collect();
        for round in 0..run.rounds {
            for (engine, sides) in engines.iter().zip(&mut all) {
                let name = mix.name();
                progress(&format!(
                    "{name} at depth {depth} by {engine}, round {} of {}",
                    round + 1,
                    run.rounds
                ));
                let slice = Slice {
                    requests: Requests::Tapes(tapes.clone()),
                    seed: run.seed + round as u64,
                    idle: *idle,
                    ..self.slice(depth)
                };
                sides[0].push(slice.run(&self.raw(*engine))?);
                self.part.use_engine(*engine);
                let mut slice = slice;
                if mix == Mix::Put {
                    self.numbers.allow(self.puts_each);
                    slice.requests = Requests::Fresh(self.numbers.clone());
                }
                sides[1].push(slice.run(&Side::Store(self.store.clone()))?);
            }
        }
        let mut rows = Vec::new();
        for (engine, [raw, store]) in engines.iter().zip(all) {
            let row = Row::of(cell, *engine, run.value_len, &raw, &store);
            let (asked, store) = (row.store.hits + row.store.misses, &row.store);
            for (what, count) in [("lost items", store.misses), ("wrong values", store.wrong)] {
                if count > 0 {
                    let of = asked;
                    return Err(StoreBenchError::Wrong { what, count, of });
                }
            }
            rows.push(row);
        }
        Ok(rows)
    }

    fn raw(&self, engine: Engine) -> Side {
        let store_len = self.part.geometry().len;
        let record = (self.run.value_len + KEY_LEN + 32) as u64;
        Side::Raw {
            device: self.file.with_engine(engine),
            // Where the items are.
            read_end: (self.run.keys * record).min(store_len),
            write_start: store_len,
            durable: match self.run.durability {
                Durability::PowerCut => Durable::Yes,
                Durability::Process => Durable::No,
            },
        }
    }
}
