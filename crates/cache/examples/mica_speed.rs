//! Random GETs of a partition, in batches with the staged prefetch, against the
//! standard hash map over the same items.
//!
//! `cargo run --release -p cache --example mica_speed [items] [gets]`

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Instant;

use cache::mica::{KeyHash, NewValue, Options, Partition};
use xxhash_rust::xxh3::xxh3_64_with_seed;

type Key = [u8; 16];
type Value = [u8; 32];

const SEED: u64 = 0x5eed;
const ROUNDS: u32 = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let items = numbers.next().transpose()?.unwrap_or(20_000_000);
    let gets = numbers.next().transpose()?.unwrap_or(20_000_000);

    let mut partition = Partition::new(&Options {
        // 64 bytes of log for each item and two slots of the index.
        bytes: items as usize * (64 + 16) + (1 << 20),
        index_permille: 200,
        prefault: true,
        ..Options::new(0)
    })?;
    let begin = Instant::now();
    // Half a lap of other items first, so that the log has wrapped.
    for number in (items..items * 3 / 2).chain(0..items) {
        let key = key_of(number);
        let value = value_of(number);
        let hash = KeyHash::new(SEED, &key);
        let stored = partition.set(hash, &key, NewValue::new(&value), 1)?;
        assert!(stored.cas().is_some());
    }
    report("mica, set, one by one", items * 3 / 2, begin);
    let stats = partition.stats();
    println!(
        "{} items in {}, {} evicted from the index, {} from the log",
        stats.live_items,
        partition.pages(),
        stats.index_evictions,
        stats.log_evictions
    );

    let mut map: HashMap<Key, Value> = HashMap::with_capacity(items as usize);
    fill(&mut map, items);
    let mut fast_map: HashMap<Key, Value, BuildHasherDefault<Xxh3>> =
        HashMap::with_capacity_and_hasher(items as usize, BuildHasherDefault::default());
    fill(&mut fast_map, items);

    // In turn, and the best of each, so that what else runs on the machine
    // weighs on all alike.
    let (mut best, mut best_map, mut best_fast_map) = (0.0_f64, 0.0_f64, 0.0_f64);
    for _ in 0..ROUNDS {
        for batch in [1, 8, 16, 32] {
            let name = format!("mica, get, batches of {batch}");
            let mops = measure(&name, items, gets, batch, |keys| {
                get_batch(&mut partition, keys)
            });
            best = best.max(mops);
        }
        let mops = measure("HashMap (SipHash), get", items, gets, 32, |keys| {
            get_from_map(&map, keys)
        });
        best_map = best_map.max(mops);
        let mops = measure("HashMap (XXH3), get", items, gets, 32, |keys| {
            get_from_map(&fast_map, keys)
        });
        best_fast_map = best_fast_map.max(mops);
    }
    println!(
        "best: mica {best:.2} Mop/s, HashMap {best_map:.2} (x {:.2}), with XXH3 {best_fast_map:.2} (x {:.2})",
        best / best_map,
        best / best_fast_map
    );
    Ok(())
}

/// The pipeline that a server runs: each stage for the whole batch.
fn get_batch(partition: &mut Partition, keys: &[Key]) -> (u64, u64) {
    let mut hashes = [KeyHash::from_bits(0); 32];
    let hashes = &mut hashes[..keys.len()];
    if let [key] = keys {
        hashes[0] = KeyHash::new(SEED, key);
    } else {
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = KeyHash::new(SEED, key);
            partition.prefetch_bucket(*hash);
        }
        for hash in hashes.iter() {
            partition.prefetch_entry(*hash);
        }
    }
    let mut hits = 0;
    let mut sum = 0;
    for (hash, key) in hashes.iter().zip(keys) {
        if let Some(item) = partition.get(*hash, key, 1) {
            hits += 1;
            sum += checksum(item.value);
        }
    }
    (hits, sum)
}

fn get_from_map<S: std::hash::BuildHasher>(
    map: &HashMap<Key, Value, S>,
    keys: &[Key],
) -> (u64, u64) {
    let mut hits = 0;
    let mut sum = 0;
    for key in keys {
        if let Some(value) = map.get(key) {
            hits += 1;
            sum += checksum(value);
        }
    }
    (hits, sum)
}

/// Gets random keys, all of which were stored, and returns Mop/s.
fn measure(
    name: &str,
    items: u64,
    gets: u64,
    batch: usize,
    mut get: impl FnMut(&[Key]) -> (u64, u64),
) -> f64 {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut hits, mut sum) = (0, 0_u64);
    let mut keys = [[0; 16]; 32];
    let begin = Instant::now();
    let rounds = gets / batch as u64;
    for _ in 0..rounds {
        for key in &mut keys[..batch] {
            *key = key_of(random.u64(0..items));
        }
        let (hit, value) = get(&keys[..batch]);
        hits += hit;
        sum = sum.wrapping_add(value);
    }
    let done = rounds * batch as u64;
    let mops = report(name, done, begin);
    // What is printed cannot be optimised away.
    println!(
        "    {:.2} % hits, sum {sum:016x}",
        100.0 * hits as f64 / done as f64
    );
    mops
}

fn report(name: &str, count: u64, begin: Instant) -> f64 {
    let seconds = begin.elapsed().as_secs_f64();
    let mops = count as f64 / seconds / 1e6;
    println!("{name}: {mops:.2} Mop/s, {:.0} ns each", 1e3 / mops);
    mops
}

fn fill<S: std::hash::BuildHasher>(map: &mut HashMap<Key, Value, S>, items: u64) {
    for number in 0..items {
        map.insert(key_of(number), value_of(number));
    }
}

fn key_of(number: u64) -> Key {
    let low = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(low) << 64 | u128::from(number)).to_le_bytes()
}

fn value_of(number: u64) -> Value {
    [number as u8; 32]
}

fn checksum(value: &[u8]) -> u64 {
    let words = value.chunks_exact(8);
    words.fold(0, |sum, word| {
        sum.wrapping_add(u64::from_le_bytes(word.try_into().expect("eight bytes")))
    })
}

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
