//! The cache's table alone: batches of random GETs of a MICA partition in one thread, beside the
//! standard library's hash map over the same items.
//!
//! The partition's log has wrapped before it is measured, as that of a cache has that runs for a
//! while.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::io::Write;
use std::time::{Duration, Instant};

use cache::mica::{CreateError, KeyHash, NewValue, Options, Partition, Probe};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use bench::machine::Machine;
use bench::print::{Table, facts};
use bench::{Measured, Rounds, units};

type Key = [u8; 16];
type Value = [u8; 32];

/// Bytes of log for an item of this size, and of two slots of the index.
const BYTES_PER_ITEM: usize = 64 + 16;
/// GETs in a batch at most.
const BATCH_MAX: usize = 64;
/// Batches between two looks at the clock.
const BETWEEN_LOOKS: u32 = 256;
/// Any time in seconds at which no item has expired.
const NOW_S: u32 = 1;

/// The settings of a run.
#[derive(clap::Args, Clone, Debug)]
pub struct MicaRun {
    /// Items; far more than the caches hold. Each takes about 300 bytes in all tables.
    #[arg(long, value_name = "N", default_value_t = 20_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub items: u64,
    /// GETs in a batch, one measurement each.
    #[arg(
        long = "batch",
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,8,16,32"
    )]
    pub batches: Vec<usize>,
    /// How long each measurement takes.
    #[arg(long = "for", value_name = "TIME", default_value = "500ms", value_parser = units::duration)]
    pub each: Duration,
    /// How often each is repeated, in turn; the median counts.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Repeats the keys exactly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Why a run ended without a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MicaError {
    /// There is no such partition.
    #[error("a partition for the items: {0}")]
    Partition(#[from] CreateError),
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(&'static str),
    /// Items are not where they were stored.
    #[error("{map} has lost {lost} of {items} items")]
    Lost {
        /// Which table.
        map: &'static str,
        /// How many of those asked for were missing.
        lost: u64,
        /// How many were asked for.
        items: u64,
    },
}

/// Throughput by batch.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Batch {
    /// GETs in a batch.
    pub batch: usize,
    /// Millions of GETs a second.
    pub mops: Measured,
}

/// What a run has found out.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct MicaReport {
    /// The machine.
    pub machine: Machine,
    /// The version that measured.
    pub version: &'static str,
    /// Items in each table.
    pub items: u64,
    /// Bytes of the partition's memory.
    pub partition_bytes: usize,
    /// What its memory is made of.
    pub pages: String,
    /// MICA, by batch.
    pub mica: Vec<Batch>,
    /// The standard hash map as it comes, in millions of GETs a second.
    pub hashmap_mops: Measured,
    /// The standard hash map with MICA's hash function.
    pub hashmap_xxh3_mops: Measured,
    /// MICA at its best batch by the standard hash map.
    pub mica_vs_hashmap: f64,
}

impl MicaReport {
    /// The best batch.
    pub fn best(&self) -> Option<Batch> {
        let by_mid = |one: &&Batch, other: &&Batch| one.mops.mid.total_cmp(&other.mops.mid);
        self.mica.iter().max_by(by_mid).copied()
    }
}

impl MicaRun {
    /// Fills the tables and measures. `progress` is told what is done.
    ///
    /// # Errors
    /// Settings that make no sense, memory that the system does not give.
    pub fn run(&self, progress: &mut dyn FnMut(&str)) -> Result<MicaReport, MicaError> {
        if self.items == 0 || self.rounds == 0 {
            return Err(MicaError::Setting(
                "there is at least one item and one round",
            ));
        }
        let batches = &self.batches;
        if batches.is_empty() || batches.iter().any(|batch| !(1..=BATCH_MAX).contains(batch)) {
            return Err(MicaError::Setting("a batch has 1 to 64 GETs"));
        }
        progress("filling the partition");
        let mut partition = self.partition()?;
        progress("filling the hash maps");
        let map: HashMap<Key, Value> = self.map();
        let xxh3_map: HashMap<Key, Value, BuildHasherDefault<Xxh3>> = self.map();
        let widest = batches.iter().copied().max().unwrap_or(1);
        let [sip, xxh3] = [batches.len(), batches.len() + 1];
        let rounds = Rounds::alternate(self.rounds as usize, xxh3 + 1, |side| {
            if let Some(batch) = batches.get(side) {
                progress("MICA");
                let get = |keys: &[Key]| get_batch(self.seed, &mut partition, keys);
                return self.measure("MICA", *batch, get);
            }
            if side == sip {
                progress("HashMap");
                return self.measure("HashMap", widest, |keys| get_from_map(&map, keys));
            }
            progress("HashMap with XXH3");
            self.measure("HashMap", widest, |keys| get_from_map(&xxh3_map, keys))
        })?;
        let measured = |side| rounds.measured(side).unwrap_or_default();
        let batch = |(side, batch): (usize, &usize)| Batch {
            batch: *batch,
            mops: measured(side),
        };
        let hashmap_mops = measured(sip);
        let mut report = MicaReport {
            machine: Machine::this(),
            version: env!("CARGO_PKG_VERSION"),
            items: self.items,
            partition_bytes: self.bytes(),
            pages: partition.pages().to_string(),
            mica: batches.iter().enumerate().map(batch).collect(),
            hashmap_mops,
            hashmap_xxh3_mops: measured(xxh3),
            mica_vs_hashmap: 0.0,
        };
        if let Some(best) = report.best()
            && hashmap_mops.mid > 0.0
        {
            report.mica_vs_hashmap = best.mops.mid / hashmap_mops.mid;
        }
        Ok(report)
    }

    fn bytes(&self) -> usize {
        self.items as usize * BYTES_PER_ITEM + (1 << 20)
    }

    fn partition(&self) -> Result<Partition, MicaError> {
        let mut partition = Partition::new(&Options {
            bytes: self.bytes(),
            index_permille: 200,
            prefault: true,
            ..Options::new(0)
        })?;
        // Half a lap of other items first, so that the log has wrapped.
        let mut refused = 0;
        for number in (self.items..self.items * 3 / 2).chain(0..self.items) {
            let (key, value) = (key_of(number), value_of(number));
            let hash = KeyHash::new(self.seed, &key);
            let stored = partition.set(hash, &key, NewValue::new(&value), NOW_S);
            refused += u64::from(stored.is_err());
        }
        if refused > 0 {
            return Err(MicaError::Lost {
                map: "MICA",
                lost: refused,
                items: self.items * 3 / 2,
            });
        }
        Ok(partition)
    }

    fn map<S: BuildHasher + Default>(&self) -> HashMap<Key, Value, S> {
        let mut map = HashMap::with_capacity_and_hasher(self.items as usize, S::default());
        map.extend((0..self.items).map(|number| (key_of(number), value_of(number))));
        map
    }

    /// GETs random keys, all of which were stored; millions a second.
    fn measure(
        &self,
        map: &'static str,
        batch: usize,
        mut get: impl FnMut(&[Key]) -> (u64, u64),
    ) -> Result<f64, MicaError> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let (mut hits, mut sum, mut done) = (0, 0u64, 0u64);
        let mut keys = [[0; 16]; BATCH_MAX];
        let began = Instant::now();
        while done == 0 || began.elapsed() < self.each {
            for _ in 0..BETWEEN_LOOKS {
                for key in &mut keys[..batch] {
                    *key = key_of(random.u64(0..self.items));
                }
                let (hit, value) = get(&keys[..batch]);
                hits += hit;
                sum = sum.wrapping_add(value);
            }
            done += u64::from(BETWEEN_LOOKS) * batch as u64;
        }
        let seconds = began.elapsed().as_secs_f64();
        std::hint::black_box(sum);
        // A lossy index loses some, and those that are lost are found faster.
        let lost = done - hits;
        if lost > done / 20 {
            let items = done;
            return Err(MicaError::Lost { map, lost, items });
        }
        Ok(done as f64 / seconds / 1e6)
    }
}

/// The pipeline that a server runs: each stage for the whole batch.
fn get_batch(seed: u64, partition: &mut Partition, keys: &[Key]) -> (u64, u64) {
    let mut probes = [Probe::default(); BATCH_MAX];
    let probes = &mut probes[..keys.len()];
    if let [key] = keys {
        probes[0] = KeyHash::new(seed, key).into();
    } else {
        for (probe, key) in probes.iter_mut().zip(keys) {
            *probe = partition.probe(KeyHash::new(seed, key));
        }
        for probe in probes.iter_mut() {
            partition.refine(probe);
        }
    }
    let (mut hits, mut sum) = (0, 0u64);
    for (probe, key) in probes.iter().zip(keys) {
        if let Some(item) = partition.get(*probe, key, NOW_S) {
            hits += 1;
            sum = sum.wrapping_add(checksum(item.value));
        }
    }
    (hits, sum)
}

fn get_from_map<S: BuildHasher>(map: &HashMap<Key, Value, S>, keys: &[Key]) -> (u64, u64) {
    let (mut hits, mut sum) = (0, 0u64);
    for value in keys.iter().filter_map(|key| map.get(key)) {
        hits += 1;
        sum = sum.wrapping_add(checksum(value));
    }
    (hits, sum)
}

fn key_of(number: u64) -> Key {
    let low = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(low) << 64 | u128::from(number)).to_le_bytes()
}

fn value_of(number: u64) -> Value {
    [number as u8; 32]
}

/// Touches the whole value, as whoever asks for it does.
fn checksum(value: &[u8]) -> u64 {
    let (words, _) = value.as_chunks::<8>();
    words
        .iter()
        .fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

/// MICA's hash function as a map's.
#[derive(Default)]
struct Xxh3(u64);

impl Hasher for Xxh3 {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Writes a report as a table.
///
/// # Errors
/// The writer's.
pub fn write_mica(report: &MicaReport, out: &mut impl Write) -> std::io::Result<()> {
    let items = format!("{} of 16 + 32 B, in {}", report.items, report.pages);
    facts(
        out,
        [("machine", report.machine.to_string()), ("items", items)],
    )?;
    let mut table = Table::new(1, &["random GETs, one thread", "Mop/s", "ns each"]);
    let mut row = |name: &str, mops: f64| {
        table.row([name, &format!("{mops:.2}"), &format!("{:.0}", 1e3 / mops)]);
    };
    for one in &report.mica {
        row(&format!("MICA, batches of {}", one.batch), one.mops.mid);
    }
    row("HashMap", report.hashmap_mops.mid);
    row("HashMap with XXH3", report.hashmap_xxh3_mops.mid);
    let ratio = report.mica_vs_hashmap;
    writeln!(
        out,
        "\n{table}\nMICA at its best is {ratio:.2} times as fast as the HashMap."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tables_hold_the_items() {
        let run = MicaRun {
            items: 5000,
            batches: vec![1, 32],
            each: Duration::from_millis(5),
            rounds: 2,
            seed: 3,
        };
        let report = run.run(&mut |_| {}).expect("a report");
        assert_eq!(report.mica.len(), 2);
        assert!(report.mica_vs_hashmap > 0.0 && report.hashmap_xxh3_mops.mid > 0.0);
        let none = MicaRun {
            batches: vec![65],
            ..run
        };
        assert!(matches!(none.run(&mut |_| {}), Err(MicaError::Setting(_))));
    }
}
