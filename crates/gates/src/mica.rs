//! A partition alone: batches with the staged prefetch, as a server runs them.

use std::hint::black_box;

use anyhow::ensure;
use cache::mica::{KeyHash, NewValue, Options, Partition, Probe};
use gates::Mark;

use crate::Path;
use crate::tell::mark;

/// Items, more than any cache holds.
pub(crate) const ITEMS: u64 = 1 << 19;
const BATCH: usize = 32;
const SEED: u64 = 0x5eed;

/// The key of an item.
pub(crate) fn key_of(item: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&item.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key[8..].copy_from_slice(&item.to_le_bytes());
    key
}

/// A full partition, and the keys that are in it: the index is lossy.
pub(crate) fn filled(seed: u64) -> anyhow::Result<(Partition, Vec<[u8; 16]>)> {
    let mut partition = Partition::new(&Options {
        hash_seed: seed,
        ..Options::new(128 << 20)
    })?;
    for item in 0..ITEMS {
        let key = key_of(item);
        let hash = KeyHash::new(seed, &key);
        let stored = partition.set(hash, &key, NewValue::new(&[7; 32]), 0)?;
        ensure!(stored.cas().is_some(), "an item was not stored");
    }
    let mut keys: Vec<_> = (0..ITEMS).map(key_of).collect();
    keys.retain(|key| partition.get(KeyHash::new(seed, key), key, 0).is_some());
    Ok((partition, keys))
}

/// What is asked of the partition.
#[derive(Clone, Copy)]
pub(crate) enum Ask {
    Get,
    Put,
}

pub(crate) struct Mica {
    partition: Partition,
    ask: Ask,
    items: Vec<[u8; 16]>,
    random: fastrand::Rng,
}

impl Mica {
    pub(crate) fn new(ask: Ask) -> anyhow::Result<Self> {
        let (partition, items) = filled(SEED)?;
        Ok(Mica {
            partition,
            ask,
            items,
            random: fastrand::Rng::with_seed(1),
        })
    }
}

impl Path for Mica {
    fn operations(&self) -> usize {
        BATCH
    }

    fn round(&mut self) -> anyhow::Result<()> {
        let keys: [[u8; 16]; BATCH] =
            std::array::from_fn(|_| self.items[self.random.usize(..self.items.len())]);
        let value = black_box([8; 32]);
        let mut probes = [Probe::default(); BATCH];
        let mut done = 0;
        mark(Mark::Server);
        for (probe, key) in probes.iter_mut().zip(&keys) {
            *probe = self.partition.probe(KeyHash::new(SEED, key));
        }
        for probe in &mut probes {
            self.partition.refine(probe);
        }
        for (probe, key) in probes.iter().zip(&keys) {
            match self.ask {
                Ask::Get => {
                    if let Some(item) = self.partition.get(*probe, key, 1) {
                        black_box(item.value);
                        done += 1;
                    }
                }
                Ask::Put => {
                    let new = NewValue::new(&value);
                    let stored = self.partition.set(*probe, key, new, 1);
                    done += usize::from(stored.is_ok_and(|stored| stored.cas().is_some()));
                }
            }
        }
        mark(Mark::Nobody);
        ensure!(done == BATCH, "{done} of {BATCH} done");
        Ok(())
    }
}
