//! The store's index beside concurrent maps: lookups, inserts, memory, and what growing does to
//! single inserts.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | the run and its report |
//! | `tables.rs` | the index, and its rivals: dashmap, std's map behind sharded locks |
//! | `drive.rs` | the loops that drive them |
//! | `show.rs` | the report as a table |

mod drive;
mod show;
mod tables;

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use store::index::CreateError;

use bench::machine::{Machine, allowed_cpus};
use bench::{Measured, units};
use drive::{Load, Threads, some_lines};
use tables::{ALL, Table, Which};

pub use show::write_index;

/// Parts in which the tables are filled in turn.
const SLICES: u64 = 20;

/// The settings of a run.
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Fills our index, dashmap, and std's HashMap behind sharded locks with the same hashes in \
turn, and looks them up in turn. Takes about three minutes and 4 GB with 50 million keys."
)]
pub struct IndexRun {
    /// Keys in each table; far more than the caches hold. Each takes about 80 bytes in all tables.
    #[arg(long, value_name = "N", default_value_t = 50_000_000,
          value_parser = clap::value_parser!(u64).range(1..=1 << 36))]
    pub keys: u64,
    /// Threads, each on a CPU of its own if there are as many.
    #[arg(long, value_name = "N", default_value = "2", value_parser = units::count::<1, 1024>)]
    pub threads: usize,
    /// How long each measurement of lookups takes.
    #[arg(long = "for", value_name = "TIME", default_value = "500ms", value_parser = units::duration)]
    pub each: Duration,
    /// How often the tables are filled and asked; figures are medians.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Repeats the keys asked for exactly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Why a run ended without a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(&'static str),
    /// There is no such index.
    #[error("an index for the keys: {0}")]
    Create(#[from] CreateError),
    /// A table does not hold what was stored.
    #[error("{table} holds {held} of {keys} keys")]
    Lost {
        /// Which.
        table: &'static str,
        /// How many it says it holds, or were found among so many asked for.
        held: u64,
        /// How many there should be.
        keys: u64,
    },
}

/// How long single inserts took while a table grew from nothing, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Growing {
    /// The median.
    pub p50_us: f64,
    /// One in a hundred was slower.
    pub p99_us: f64,
    /// One in ten thousand was slower.
    pub p9999_us: f64,
    /// The slowest.
    pub max_us: f64,
}

/// A table's figures. Speeds are millions of operations a second by all threads.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figures {
    /// Which table.
    pub table: &'static str,
    /// Lookups of keys that are there.
    pub hit_mops: Measured,
    /// Lookups of keys that are not.
    pub miss_mops: Measured,
    /// Nine lookups to one update.
    pub mixed_mops: Measured,
    /// Inserts into a table that grows.
    pub insert_mops: Measured,
    /// Inserts into a table that has room for all from the beginning.
    pub insert_room_mops: Measured,
    /// Resident memory by the number of keys.
    pub bytes_per_entry: f64,
    /// Lookups of absent keys that found something, by lookups.
    pub false_hits: f64,
    /// Single inserts while the table grows.
    pub growing: Growing,
}

/// Ours by the better one of the rivals.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct IndexRatios {
    /// Lookups of keys that are there.
    pub index_lookup_vs_best: f64,
    /// Lookups of keys that are not.
    pub index_miss_vs_best: f64,
    /// Nine lookups to one update.
    pub index_mixed_vs_best: f64,
    /// Inserts while growing.
    pub index_insert_vs_best: f64,
    /// Inserts where there is room from the beginning.
    pub index_insert_room_vs_best: f64,
    /// Memory of ours.
    pub index_bytes_per_entry: f64,
    /// The slowest of ten thousand inserts while ours grows, in milliseconds.
    pub index_grow_p9999_ms: f64,
}

/// What a run has found out.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct IndexReport {
    /// The machine.
    pub machine: Machine,
    /// The version that measured.
    pub version: &'static str,
    /// Keys in each table.
    pub keys: u64,
    /// Threads.
    pub threads: usize,
    /// Random cache lines that the threads can read of memory as large as the index, millions a second.
    pub lines_mops: Measured,
    /// The tables, ours first.
    pub tables: Vec<Figures>,
    /// Ours beside the others.
    pub ratios: IndexRatios,
}

/// What has been measured of a table so far.
#[derive(Default)]
struct Samples {
    hit: Vec<f64>,
    miss: Vec<f64>,
    mixed: Vec<f64>,
    insert: Vec<f64>,
    insert_room: Vec<f64>,
    false_hits: f64,
}

impl IndexRun {
    /// Fills the tables and measures. `progress` is told what is done.
    ///
    /// # Errors
    /// Settings that make no sense, a table that has lost something.
    pub fn run(&self, progress: &mut dyn FnMut(&str)) -> Result<IndexReport, IndexError> {
        if self.keys == 0 || self.rounds == 0 || self.threads == 0 {
            return Err(IndexError::Setting(
                "there is at least one key, one thread and one round",
            ));
        }
        let cpus = allowed_cpus();
        let threads = Threads {
            count: self.threads,
            cpus: if cpus.len() >= self.threads {
                cpus
            } else {
                Vec::new()
            },
            seed: self.seed,
        };
        // Alone, one after the other, as memory and the slowest insert are each table's own.
        let mut alone = Vec::new();
        for which in ALL {
            progress(&format!("{}: single inserts and memory", which.name()));
            alone.push(self.alone(which, &threads)?);
        }
        let mut samples: [Samples; 3] = Default::default();
        let mut lines_mops = Vec::new();
        for round in 1..=self.rounds {
            drop(self.filled(round, true, &threads, &mut samples, progress)?);
            let tables = self.filled(round, false, &threads, &mut samples, progress)?;
            let lines = some_lines(self.keys * 9);
            progress(&format!("round {round} of {}: lookups", self.rounds));
            for load in [Load::Hits, Load::Misses, Load::Mixed] {
                lines_mops.push(threads.lines(&lines, self.each));
                for ((which, table), samples) in ALL.iter().zip(&tables).zip(&mut samples) {
                    self.ask(*which, &**table, load, &threads, samples)?;
                }
            }
        }
        Ok(self.report(alone, &samples, &lines_mops))
    }

    /// Memory of a table, and how long single inserts take.
    fn alone(&self, which: Which, threads: &Threads) -> Result<(f64, Growing), IndexError> {
        let before = resident_bytes();
        let table = which.make(self.keys, false)?;
        let histogram = threads.fill_timed(&*table, 0..self.keys);
        let bytes = resident_bytes().saturating_sub(before);
        check(which, table.len(), self.keys)?;
        Ok((bytes as f64 / self.keys as f64, Growing::of(&histogram)))
    }

    /// All tables, filled slice by slice in turn, so that what else runs here weighs on all alike.
    fn filled(
        &self,
        round: u32,
        has_room: bool,
        threads: &Threads,
        samples: &mut [Samples; 3],
        progress: &mut dyn FnMut(&str),
    ) -> Result<Vec<Box<dyn Table>>, IndexError> {
        let tables: Result<Vec<_>, _> = ALL
            .iter()
            .map(|which| which.make(self.keys, has_room))
            .collect();
        let tables = tables?;
        let mut took = [Duration::ZERO; 3];
        for slice in 0..SLICES {
            let percent = slice * 100 / SLICES;
            let what = match has_room {
                true => "inserts with room",
                false => "inserts",
            };
            progress(&format!(
                "round {round} of {}: {what}, {percent} %",
                self.rounds
            ));
            let at = |slice: u64| self.keys * slice / SLICES;
            for (table, took) in tables.iter().zip(&mut took) {
                *took += threads.fill(&**table, at(slice)..at(slice + 1));
            }
        }
        for (((which, table), took), samples) in
            ALL.iter().zip(&tables).zip(took).zip(&mut *samples)
        {
            check(*which, table.len(), self.keys)?;
            let mops = self.keys as f64 / took.as_secs_f64() / 1e6;
            let figures = match has_room {
                true => &mut samples.insert_room,
                false => &mut samples.insert,
            };
            figures.push(mops);
        }
        Ok(tables)
    }

    fn ask(
        &self,
        which: Which,
        table: &dyn Table,
        load: Load,
        threads: &Threads,
        samples: &mut Samples,
    ) -> Result<(), IndexError> {
        let (mops, found) = threads.operate(table, load, self.keys, self.each);
        match load {
            Load::Hits => {
                // False ones may come on top, never be missing.
                check(which, (found.min(1.0) * 1e6) as u64, 1_000_000)?;
                samples.hit.push(mops);
            }
            Load::Misses => {
                samples.miss.push(mops);
                samples.false_hits = found;
            }
            Load::Mixed => samples.mixed.push(mops),
        }
        Ok(())
    }

    fn report(
        &self,
        alone: Vec<(f64, Growing)>,
        samples: &[Samples; 3],
        lines_mops: &[f64],
    ) -> IndexReport {
        let median = |figures: &[f64]| Measured::of(figures).unwrap_or_default();
        let figures =
            |((which, (bytes_per_entry, growing)), samples): ((Which, _), &Samples)| Figures {
                table: which.name(),
                hit_mops: median(&samples.hit),
                miss_mops: median(&samples.miss),
                mixed_mops: median(&samples.mixed),
                insert_mops: median(&samples.insert),
                insert_room_mops: median(&samples.insert_room),
                bytes_per_entry,
                false_hits: samples.false_hits,
                growing,
            };
        let tables: Vec<Figures> = ALL
            .into_iter()
            .zip(alone)
            .zip(samples)
            .map(figures)
            .collect();
        let ours = &tables[0];
        // By rounds, so that a slow moment of the machine weighs on both sides of a ratio.
        let best = |of: fn(&Samples) -> &[f64]| {
            let [ours, rivals @ ..] = samples;
            let ratios = of(ours).iter().enumerate().map(|(round, ours)| {
                let best = rivals
                    .iter()
                    .map(|rival| of(rival)[round])
                    .fold(0.0, f64::max);
                ours / best
            });
            median(&ratios.collect::<Vec<_>>()).mid
        };
        let ratios = IndexRatios {
            index_lookup_vs_best: best(|samples| &samples.hit),
            index_miss_vs_best: best(|samples| &samples.miss),
            index_mixed_vs_best: best(|samples| &samples.mixed),
            index_insert_vs_best: best(|samples| &samples.insert),
            index_insert_room_vs_best: best(|samples| &samples.insert_room),
            index_bytes_per_entry: ours.bytes_per_entry,
            index_grow_p9999_ms: ours.growing.p9999_us / 1e3,
        };
        IndexReport {
            machine: Machine::this(),
            version: env!("CARGO_PKG_VERSION"),
            keys: self.keys,
            threads: self.threads,
            lines_mops: median(lines_mops),
            tables,
            ratios,
        }
    }
}

impl Growing {
    fn of(histogram: &Histogram<u64>) -> Self {
        let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Growing {
            p50_us: us(0.5),
            p99_us: us(0.99),
            p9999_us: us(0.9999),
            max_us: histogram.max() as f64 / 1e3,
        }
    }
}

fn check(which: Which, held: u64, keys: u64) -> Result<(), IndexError> {
    if held == keys {
        return Ok(());
    }
    let table = which.name();
    Err(IndexError::Lost { table, held, keys })
}

/// This process's; zero where the kernel does not tell.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|word| word.parse().ok());
    pages.unwrap_or(0u64) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_fills_and_asks_all_tables() {
        let run = IndexRun {
            keys: 30_000,
            threads: 2,
            each: Duration::from_millis(3),
            rounds: 2,
            seed: 5,
        };
        let mut said = Vec::new();
        let report = run
            .run(&mut |what| said.push(what.to_string()))
            .expect("a report");
        assert_eq!(report.tables.len(), 3);
        assert!(
            report
                .tables
                .iter()
                .all(|table| table.insert_mops.mid > 0.0)
        );
        assert!(report.ratios.index_lookup_vs_best > 0.0 && report.lines_mops.mid > 0.0);
        assert!(
            said.iter()
                .any(|what| what == "round 2 of 2: inserts, 95 %")
        );
        let mut table = Vec::new();
        write_index(&report, &mut table).expect("a table");
        let table = String::from_utf8(table).expect("text");
        for which in ALL {
            assert!(table.contains(which.name()), "{table}");
        }
        let none = IndexRun { keys: 0, ..run };
        assert!(matches!(none.run(&mut |_| {}), Err(IndexError::Setting(_))));
    }
}
