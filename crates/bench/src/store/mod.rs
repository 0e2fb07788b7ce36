//! The store on flash beside its bare device: the same file, calls and depth, once through the
//! store and once through a loop without an index, in turn.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`StoreRun`]: the settings and the run |
//! | `location.rs` | the file or drive, and its part that is the store's |
//! | `measure.rs` | one measurement: cores, tasks, counts |
//! | `log.rs` | a log without an index, which writes are compared with |
//! | `collecting.rs` | what is written for a PUT when segments have to be emptied |
//! | `report.rs` | [`StoreReport`], what a run has found out |
//! | `show.rs` | the same as a table |
//! | `recovery.rs` | opening a store after a crash and after a clean stop |

mod collecting;
mod location;
mod log;
mod measure;
mod recovery;
mod report;
mod show;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::store::{Durability, Options, Store};
use anyhow::ensure;
use block::{Device, Durable, Engine, FileDevice};
use clap::builder::{BoolValueParser, TypedValueParser as _};
use clap::{ArgAction, Args};
use serde::Serialize;

use self::location::{OpenLocation, Part, fill};
use self::measure::{Numbers, Requests, Side, Slice, Tally};
use crate::machine::{Machine, allowed_cpus};
use crate::units;
use crate::workload::{self, Distribution, Tape, Workload};

pub use self::collecting::Collected;
pub use self::location::Location;
pub use self::recovery::{Recovered, load};
pub use self::report::{Figures, Loaded, Row, StoreReport};
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

/// The settings of a run, which are arguments of a command line as well.
#[derive(Args, Clone, PartialEq, Debug)]
pub struct StoreRun {
    /// Where.
    #[arg(skip = Location::Temporary(".".into()))]
    pub location: Location,
    /// What is measured.
    #[arg(skip = cells(&[Mix::Get, Mix::Put], &[1, 128], &[Engine::Uring], Idle::Spin))]
    pub cells: Vec<Cell>,
    /// Bytes of a new file, of which the store gets four fifths.
    #[arg(long = "size", value_name = "SIZE", default_value = "6G", value_parser = units::bytes)]
    pub bytes: u64,
    /// Take a file in memory too: whether everything works, not how fast.
    #[arg(long, hide = true)]
    pub in_memory: bool,
    /// Cores, each with its own queue of the device.
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::count::<1, 256>)]
    pub cores: usize,
    /// Items at first.
    #[arg(long, value_name = "N", default_value_t = 200_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: u64,
    /// Bytes of a value.
    #[arg(long = "value", value_name = "SIZE", default_value = "4K", value_parser = units::size)]
    pub value_len: usize,
    /// PUTs survive the death of the process, but no power cut; raw writes likewise.
    #[arg(long = "volatile", action = ArgAction::SetTrue,
          value_parser = BoolValueParser::new().map(survives))]
    pub durability: Durability,
    /// How long each measurement takes.
    #[arg(long = "for", value_name = "TIME", default_value = "500ms", value_parser = units::duration)]
    pub length: Duration,
    /// How long each runs before it is measured.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = units::duration)]
    pub warm_up: Duration,
    /// How often each side has its turn; figures are medians.
    #[arg(long, value_name = "N", default_value = "5", value_parser = units::count::<1, 1000>)]
    pub rounds: usize,
    /// Repeats the requests exactly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

fn survives(volatile: bool) -> Durability {
    match volatile {
        true => Durability::Process,
        false => Durability::PowerCut,
    }
}

impl Default for StoreRun {
    /// What a command line without arguments says.
    fn default() -> Self {
        units::usual()
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
    pub fn run(&self, progress: &mut dyn FnMut(&str)) -> anyhow::Result<StoreReport> {
        self.check()?;
        let location = OpenLocation::open(&self.location, self.bytes, self.in_memory)?;
        let bench = Bench::prepare(self, &location, progress)?;
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
            durability: self.durability,
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

    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.length.is_zero(), "a measurement takes some time");
        let is_some = |cell: &Cell| cell.depth > 0 && !cell.engines.is_empty();
        ensure!(
            !self.cells.is_empty() && self.cells.iter().all(is_some),
            "there is at least one engine, one mix, and one request under way"
        );
        ensure!(
            self.value_len > 0,
            "an empty value has no bare transfer to compare with"
        );
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
        at: &OpenLocation,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Self> {
        let first = run.cells.first().and_then(|cell| cell.engines.first());
        let file = at.device(first.copied().unwrap_or(Engine::Uring))?;
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
        let (keys, value_len, mib) = (run.keys, run.value_len, geometry.len >> 20);
        ensure!(
            puts >= slices * 64,
            "{keys} of {value_len} bytes need a file of more than {mib} MiB"
        );
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
    fn load(&self) -> anyhow::Result<Loaded> {
        let began = Instant::now();
        let numbers = Numbers::new(0);
        numbers.allow(self.run.keys);
        let puts = Slice::puts(self.run, self.cpus.clone(), FILL_DEPTH, numbers);
        puts.run(&Side::Store(self.store.clone()))?;
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
    fn compare(&self, cell: &Cell, progress: &mut dyn FnMut(&str)) -> anyhow::Result<Vec<Row>> {
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
                let name = units::name_of(&mix);
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
            let store = &row.store.counts;
            let asked = store.hits + store.misses;
            for (what, count) in [("lost items", store.misses), ("wrong values", store.wrong)] {
                ensure!(count == 0, "{what}: {count} of {asked}");
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
