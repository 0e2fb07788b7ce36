//! The store's index beside concurrent maps: lookups, inserts, memory, and what growing does to
//! single inserts. `tables` has the rivals, `docs/design/store-index.md` what came of it.

mod tables;

use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use hdrhistogram::Histogram;
use serde::Serialize;

use bench::Measured;
use bench::cache::histogram;
use bench::machine::{allowed_cpus, pin};
use bench::measured::median;
use tables::{ALL, Table, Which};

use crate::goals::StoreRatios;

/// Parts in which the tables are filled in turn.
const SLICES: u64 = 20;
/// Operations in a batch.
const BATCH: usize = 256;
/// Threads that fill and ask, each on a CPU of its own if there are as many.
const THREADS: usize = 2;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct IndexRun {
    /// Keys in each table; far more than the caches hold. Each takes about 80 bytes in all tables.
    pub keys: u64,
    /// How long each measurement of lookups takes.
    pub each: Duration,
    /// How often the tables are filled and asked; figures are medians.
    pub rounds: u32,
    /// Repeats the keys asked for exactly.
    pub seed: u64,
}

/// A table's figures. Speeds are millions of operations a second by all threads.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figures {
    /// Which table.
    pub table: &'static str,
    /// Lookups of keys that are there.
    pub hit_mops: Measured,
    /// Inserts into a table that grows.
    pub insert_mops: Measured,
    /// Inserts into a table that has room for all from the beginning.
    pub insert_room_mops: Measured,
    /// Resident memory by the number of keys.
    pub bytes_per_entry: f64,
    /// The slowest of ten thousand single inserts while the table grows, in microseconds.
    pub grow_p9999_us: f64,
}

/// What a run has found out.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct IndexReport {
    /// Keys in each table.
    pub keys: u64,
    /// Threads.
    pub threads: usize,
    /// The tables, ours first.
    pub tables: Vec<Figures>,
}

/// What has been measured of a table so far, a figure a round.
#[derive(Default)]
struct Samples {
    hit: Vec<f64>,
    insert: Vec<f64>,
    insert_room: Vec<f64>,
}

impl IndexRun {
    /// Fills the tables and measures, and puts what becomes of the goals into `ratios`: ours by the better
    /// one of the rivals. `progress` is told what is done.
    ///
    /// # Errors
    /// Memory that the system does not give, a table that has lost something.
    pub fn run(
        &self,
        ratios: &mut StoreRatios,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<IndexReport> {
        // Alone, one after the other, as memory and the slowest insert are each table's own.
        let mut alone = Vec::new();
        for which in ALL {
            progress(&format!("{}: single inserts and memory", which.name()));
            alone.push(self.alone(which)?);
        }
        let mut samples: [Samples; 3] = Default::default();
        for round in 1..=self.rounds {
            let of_all = format!("round {round} of {}", self.rounds);
            progress(&format!("{of_all}: inserts with room"));
            self.filled(true, |number, mops| samples[number].insert_room.push(mops))?;
            progress(&format!("{of_all}: inserts"));
            let tables = self.filled(false, |number, mops| samples[number].insert.push(mops))?;
            progress(&format!("{of_all}: lookups"));
            for ((which, table), samples) in ALL.iter().zip(&tables).zip(&mut samples) {
                samples.hit.push(self.look_up(*which, &**table)?);
            }
        }
        // By rounds, so that a slow moment of the machine weighs on both sides of a ratio.
        let [ours, rivals @ ..] = &samples;
        let best = |of: fn(&Samples) -> &[f64]| {
            let ratio = |(round, ours): (usize, &f64)| {
                let rivals = rivals.iter().map(|rival| of(rival)[round]);
                ours / rivals.fold(0.0, f64::max)
            };
            Some(median(of(ours).iter().enumerate().map(ratio)))
        };
        ratios.index_lookup_vs_best = best(|samples| &samples.hit);
        ratios.index_insert_vs_best = best(|samples| &samples.insert);
        ratios.index_insert_room_vs_best = best(|samples| &samples.insert_room);
        let measured = |figures: &[f64]| Measured::of(figures).unwrap_or_default();
        let tables = ALL.into_iter().zip(alone).zip(&samples);
        let tables: Vec<Figures> = tables
            .map(
                |((which, (bytes_per_entry, grow_p9999_us)), samples)| Figures {
                    table: which.name(),
                    hit_mops: measured(&samples.hit),
                    insert_mops: measured(&samples.insert),
                    insert_room_mops: measured(&samples.insert_room),
                    bytes_per_entry,
                    grow_p9999_us,
                },
            )
            .collect();
        ratios.index_bytes_per_entry = Some(tables[0].bytes_per_entry);
        ratios.index_grow_p9999_ms = Some(tables[0].grow_p9999_us / 1e3);
        Ok(IndexReport {
            keys: self.keys,
            threads: THREADS,
            tables,
        })
    }

    /// A table's memory by its keys, and the slowest of ten thousand single inserts in microseconds.
    fn alone(&self, which: Which) -> anyhow::Result<(f64, f64)> {
        // Zero where the kernel does not tell.
        let resident = || bench::process::resident_bytes(std::process::id()).unwrap_or(0);
        let before = resident();
        let table = which.make(self.keys, false)?;
        let (_, times) = on_threads(|thread| {
            let mut times = histogram();
            for number in part(thread, &(0..self.keys)) {
                let entry = (hash_of(number), number);
                let began = Instant::now();
                table.insert(&[entry]);
                times.saturating_record(began.elapsed().as_nanos() as u64);
            }
            times
        });
        let bytes = resident().saturating_sub(before);
        self.check(which, table.len())?;
        let mut all: Histogram<u64> = histogram();
        times.into_iter().for_each(|one| all += one);
        let p9999_us = all.value_at_quantile(0.9999) as f64 / 1e3;
        Ok((bytes as f64 / self.keys as f64, p9999_us))
    }

    /// All tables, filled slice by slice in turn, so that what else runs here weighs on all alike; `tell` gets
    /// each one's number and speed.
    fn filled(
        &self,
        has_room: bool,
        mut tell: impl FnMut(usize, f64),
    ) -> anyhow::Result<Vec<Box<dyn Table>>> {
        let tables = ALL.iter().map(|which| which.make(self.keys, has_room));
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        let mut took = [Duration::ZERO; 3];
        for slice in 0..SLICES {
            let at = |slice: u64| self.keys * slice / SLICES;
            for (table, took) in tables.iter().zip(&mut took) {
                *took += fill(&**table, &(at(slice)..at(slice + 1)));
            }
        }
        for (number, (table, took)) in tables.iter().zip(took).enumerate() {
            self.check(ALL[number], table.len())?;
            tell(number, self.keys as f64 / took.as_secs_f64() / 1e6);
        }
        Ok(tables)
    }

    /// Lookups of keys that are there, in millions a second.
    fn look_up(&self, which: Which, table: &dyn Table) -> anyhow::Result<f64> {
        let (done, found) = (AtomicU64::new(0), AtomicU64::new(0));
        let (took, _) = on_threads(|thread| {
            let seed = self.seed.wrapping_mul(1000) + thread as u64;
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut operations, mut hits, mut sum) = (0, 0, 0u64);
            let mut hashes = [0; BATCH];
            let began = Instant::now();
            while operations == 0 || began.elapsed() < self.each {
                for hash in &mut hashes {
                    *hash = hash_of(random.u64(0..self.keys));
                }
                let (some, numbers) = table.look_up(&hashes);
                hits += some;
                sum = sum.wrapping_add(numbers);
                operations += BATCH as u64;
            }
            black_box(sum);
            done.fetch_add(operations, Ordering::Relaxed);
            found.fetch_add(hits, Ordering::Relaxed);
        });
        let (done, found) = (done.into_inner(), found.into_inner());
        // False ones may come on top, never be missing.
        let name = which.name();
        ensure!(found >= done, "{name} has {found} of {done} keys");
        Ok(done as f64 / took.as_secs_f64() / 1e6)
    }

    fn check(&self, which: Which, held: u64) -> anyhow::Result<()> {
        let (table, keys) = (which.name(), self.keys);
        ensure!(held == keys, "{table} holds {held} of {keys} keys");
        Ok(())
    }
}

/// The hash of a key: no two numbers have the same one.
#[inline]
fn hash_of(number: u64) -> u64 {
    let number = number + 1;
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Stores a range of keys, an equal part by each thread. How long it took.
fn fill(table: &dyn Table, keys: &Range<u64>) -> Duration {
    let (took, _) = on_threads(|thread| {
        let mut entries = Vec::with_capacity(BATCH);
        for number in part(thread, keys) {
            entries.push((hash_of(number), number));
            if entries.len() == BATCH {
                table.insert(&entries);
                entries.clear();
            }
        }
        table.insert(&entries);
    });
    took
}

/// A thread's part of some keys.
fn part(thread: usize, keys: &Range<u64>) -> Range<u64> {
    let count = keys.end - keys.start;
    let at = |thread: usize| keys.start + count * thread as u64 / THREADS as u64;
    at(thread)..at(thread + 1)
}

/// Runs all threads side by side. How long it took, and what each returned.
fn on_threads<R: Send>(work: impl Fn(usize) -> R + Sync) -> (Duration, Vec<R>) {
    let cpus = allowed_cpus();
    let began = Instant::now();
    let results = std::thread::scope(|scope| {
        let start = |thread| {
            let (work, cpu) = (&work, cpus.get(thread).copied());
            let is_alone = cpus.len() >= THREADS;
            scope.spawn(move || {
                // A CPU that the kernel refuses makes the run no worse than without.
                let _pinned = cpu.filter(|_| is_alone).is_none_or(pin);
                work(thread)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    (began.elapsed(), results)
}
