//! The cache's table alone: batches of random GETs of a MICA partition in one thread, beside the
//! standard library's hash map over the same items.
//!
//! The partition's log has wrapped before it is measured, as that of a cache has that runs for a
//! while.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::time::{Duration, Instant};

use anyhow::ensure;
use cache::mica::{KeyHash, NewValue, Options, Partition, Probe};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use bench::{Measured, Rounds};

type Key = [u8; 16];
type Value = [u8; 32];

/// Bytes of log for an item of this size, and of two slots of the index.
const BYTES_PER_ITEM: usize = 64 + 16;
/// GETs in a batch at most.
const BATCH_MAX: usize = 32;
/// Batches between two looks at the clock.
const BETWEEN_LOOKS: u32 = 256;
/// Any time in seconds at which no item has expired.
const NOW_S: u32 = 1;

/// GETs in a batch, one measurement each.
const BATCHES: [usize; 4] = [1, 8, 16, 32];

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct MicaRun {
    /// Items; far more than the caches hold. Each takes about 300 bytes in all tables.
    pub items: u64,
    /// How long each measurement takes.
    pub each: Duration,
    /// How often each is repeated, in turn.
    pub rounds: usize,
    /// Repeats the keys exactly.
    pub seed: u64,
}

/// Millions of GETs a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MicaFigures {
    /// MICA, by GETs in a batch.
    pub mica: [(usize, Measured); BATCHES.len()],
    /// The standard hash map as it comes.
    pub hashmap: Measured,
    /// The standard hash map with MICA's hash function.
    pub hashmap_xxh3: Measured,
}

impl MicaFigures {
    /// MICA at its best batch by the standard hash map.
    pub fn ratio(&self) -> f64 {
        let best = self.mica.iter().map(|(_, mops)| mops.mid);
        best.fold(0.0, f64::max) / self.hashmap.mid
    }
}

impl MicaRun {
    /// Fills the tables and measures. `progress` is told what is done.
    ///
    /// # Errors
    /// Memory that the system does not give, items that a table has lost.
    pub fn run(&self, progress: &mut dyn FnMut(&str)) -> anyhow::Result<MicaFigures> {
        progress("filling the partition");
        let mut partition = self.partition()?;
        progress("filling the hash maps");
        let map: HashMap<Key, Value> = self.map();
        let xxh3_map: HashMap<Key, Value, BuildHasherDefault<Xxh3>> = self.map();
        let [sip, xxh3] = [BATCHES.len(), BATCHES.len() + 1];
        let rounds = Rounds::alternate(self.rounds, xxh3 + 1, |side| {
            if let Some(batch) = BATCHES.get(side) {
                progress("MICA");
                let get = |keys: &[Key]| get_batch(self.seed, &mut partition, keys);
                return self.measure("MICA", *batch, get);
            }
            progress("HashMap");
            self.measure("HashMap", BATCH_MAX, |keys| match side == sip {
                true => get_from_map(&map, keys),
                false => get_from_map(&xxh3_map, keys),
            })
        })?;
        let measured = |side| rounds.measured(side).unwrap_or_default();
        Ok(MicaFigures {
            mica: std::array::from_fn(|side| (BATCHES[side], measured(side))),
            hashmap: measured(sip),
            hashmap_xxh3: measured(xxh3),
        })
    }

    fn bytes(&self) -> usize {
        self.items as usize * BYTES_PER_ITEM + (1 << 20)
    }

    fn partition(&self) -> anyhow::Result<Partition> {
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
        ensure!(refused == 0, "MICA has refused {refused} items");
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
    ) -> anyhow::Result<f64> {
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
        ensure!(lost <= done / 20, "{map} has lost {lost} of {done} items");
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
