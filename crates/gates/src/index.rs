//! The store's index alone: a million entries, more than any cache holds.

use std::hint::black_box;

use anyhow::ensure;
use gates::Mark;
use store::hash::KeyHash;
use store::index::{self, Candidates, Place, SizeCode};

use crate::Path;
use crate::tell::mark;

const ITEMS: u64 = 1 << 20;
/// Operations of a round, one a call.
const CALLS: usize = 32;
/// Hashes of a lookup of many.
const BATCH: usize = 256;
const SEED: u64 = 0x5eed;

/// The hash of an item's key.
fn hash_of(item: u64) -> u64 {
    KeyHash::new(SEED, &item.to_le_bytes()).index()
}

/// Where an item lies; the second time somewhere else.
fn place_of(item: u64, time: u64) -> Place {
    Place::new((time * ITEMS + item) * 8, SizeCode::of(8))
}

fn filled() -> anyhow::Result<index::Index> {
    let index = index::Index::new(&index::Options::for_entries(ITEMS))?;
    for item in 0..ITEMS {
        index.insert(hash_of(item), place_of(item, 0))?;
    }
    Ok(index)
}

/// What is asked of the index, one a call, or many of one call.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    LookupMany,
    Lookup,
    Insert,
    Replace,
}

pub(crate) struct Index {
    index: index::Index,
    call: Call,
    random: fastrand::Rng,
}

impl Index {
    pub(crate) fn new(call: Call) -> anyhow::Result<Self> {
        Ok(Index {
            index: filled()?,
            call,
            random: fastrand::Rng::with_seed(1),
        })
    }

    /// Items that are there, each another one.
    fn items(&mut self) -> [u64; CALLS] {
        let first = self.random.u64(..ITEMS);
        std::array::from_fn(|number| (first + number as u64) % ITEMS)
    }
}

impl Path for Index {
    fn operations(&self) -> usize {
        match self.call {
            Call::LookupMany => BATCH,
            _ => CALLS,
        }
    }

    fn round(&mut self) -> anyhow::Result<()> {
        let mut done = 0;
        match self.call {
            Call::LookupMany => {
                let items: [u64; BATCH] = std::array::from_fn(|_| self.random.u64(..ITEMS));
                let hashes = items.map(hash_of);
                let mut found = [0u32; BATCH];
                mark(Mark::Server);
                self.index.candidates_batch(&hashes, |number, place| {
                    black_box(place);
                    found[number] += 1;
                });
                mark(Mark::Nobody);
                done = found.iter().filter(|found| **found > 0).count();
            }
            Call::Lookup => {
                let items = self.items();
                let hashes = items.map(hash_of);
                let mut candidates = Candidates::new();
                mark(Mark::Server);
                for hash in hashes {
                    self.index.candidates(hash, &mut candidates);
                    done += usize::from(!black_box(&candidates).is_empty());
                }
                mark(Mark::Nobody);
            }
            Call::Insert => {
                let items = self.items();
                let hashes: [u64; CALLS] = std::array::from_fn(|_| self.random.u64(..));
                let places = items.map(|item| place_of(item, 1));
                mark(Mark::Server);
                for (hash, place) in hashes.into_iter().zip(places) {
                    done += usize::from(self.index.insert(hash, place).is_ok());
                }
                mark(Mark::Nobody);
                // As full for the next round.
                for (hash, place) in hashes.into_iter().zip(places) {
                    ensure!(self.index.remove(hash, place), "an entry was lost");
                }
            }
            Call::Replace => {
                let items = self.items();
                let hashes = items.map(hash_of);
                let [here, there] = [0, 1].map(|time| items.map(|item| place_of(item, time)));
                mark(Mark::Server);
                for ((hash, here), there) in hashes.into_iter().zip(here).zip(there) {
                    done += usize::from(self.index.replace(hash, here, there));
                }
                mark(Mark::Nobody);
                for ((hash, here), there) in hashes.into_iter().zip(here).zip(there) {
                    ensure!(self.index.replace(hash, there, here), "an entry was lost");
                }
            }
        }
        let operations = self.operations();
        ensure!(done == operations, "{done} of {operations} done");
        Ok(())
    }
}
