//! The tables: the store's index and its rivals, from hashes to numbers, all driven by the same loops.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{PoisonError, RwLock};

use arrayvec::ArrayVec;
use dashmap::DashMap;
use store::index::{CreateError, Index, Options, Place, SizeCode};

use super::BATCH;

/// A table that several threads share. All methods take a batch, so that a table may overlap its
/// cache misses if it knows how.
pub(super) trait Table: Send + Sync {
    /// Stores numbers under hashes that are not there.
    fn insert(&self, entries: &[(u64, u64)]);
    /// How many of the hashes are there, and something that depends on each number found.
    fn look_up(&self, hashes: &[u64]) -> (u64, u64);
    /// Entries.
    fn len(&self) -> u64;
}

/// A kind of table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    Ours,
    DashMap,
    Sharded,
}

pub(super) const ALL: [Which; 3] = [Which::Ours, Which::DashMap, Which::Sharded];

impl Which {
    pub(super) fn name(self) -> &'static str {
        match self {
            Which::Ours => "store::Index",
            Which::DashMap => "DashMap",
            Which::Sharded => "sharded HashMap",
        }
    }

    /// An empty one, which grows while it is filled, or has room for all the keys from the beginning.
    pub(super) fn make(self, keys: u64, has_room: bool) -> Result<Box<dyn Table>, CreateError> {
        let room = if has_room { keys as usize } else { 0 };
        Ok(match self {
            Which::Ours => {
                let mut options = Options::for_entries(keys);
                if has_room {
                    options.regions = Options::REGIONS_EXPECTED;
                }
                Box::new(Ours(Index::new(&options)?))
            }
            Which::DashMap => Box::new(Dash(DashMap::with_capacity_and_hasher(
                room,
                ByHash::default(),
            ))),
            Which::Sharded => Box::new(Sharded::new(room / SHARDS)),
        })
    }
}

/// Numbers are grains, and all records have a size.
const SIZE_GRAINS: u64 = 3;

struct Ours(Index);

fn place_of(number: u64) -> Place {
    Place::new(number, SizeCode::of(SIZE_GRAINS))
}

impl Table for Ours {
    fn insert(&self, entries: &[(u64, u64)]) {
        for some in entries.chunks(BATCH) {
            let places: ArrayVec<_, BATCH> = some
                .iter()
                .map(|&(hash, value)| (hash, place_of(value)))
                .collect();
            // It has no limit of memory; what the report counts in the end would show it.
            if let Err((_, full)) = self.0.insert_batch(&places) {
                panic!("{full}");
            }
        }
    }

    fn look_up(&self, hashes: &[u64]) -> (u64, u64) {
        let (mut found, mut sum) = (0, 0u64);
        self.0.candidates_batch(hashes, |_, place| {
            found += 1;
            sum = sum.wrapping_add(place.grain());
        });
        (found, sum)
    }

    fn len(&self) -> u64 {
        self.0.len()
    }
}

/// Keys are hashes already.
#[derive(Default, Clone, Copy)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        // Never called for integers, but right for anything.
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type ByHash = BuildHasherDefault<Hashed>;

struct Dash(DashMap<u64, u64, ByHash>);

impl Table for Dash {
    fn insert(&self, entries: &[(u64, u64)]) {
        for &(hash, number) in entries {
            self.0.insert(hash, number);
        }
    }

    fn look_up(&self, hashes: &[u64]) -> (u64, u64) {
        let (mut found, mut sum) = (0, 0u64);
        for number in hashes.iter().filter_map(|hash| self.0.get(hash)) {
            found += 1;
            sum = sum.wrapping_add(*number);
        }
        (found, sum)
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

/// Shards of the standard map: as many as there are threads to meet in them rarely.
const SHARDS: usize = 256;

/// A lock in a cache line of its own.
#[repr(align(64))]
struct Shard(RwLock<HashMap<u64, u64, ByHash>>);

struct Sharded(Vec<Shard>);

impl Sharded {
    fn new(room: usize) -> Self {
        let empty = || {
            let map = HashMap::with_capacity_and_hasher(room, ByHash::default());
            Shard(RwLock::new(map))
        };
        Sharded(std::iter::repeat_with(empty).take(SHARDS).collect())
    }

    /// By bits that the map itself does not use, neither for the bucket nor for its tag of seven bits.
    #[inline]
    fn shard(&self, hash: u64) -> &RwLock<HashMap<u64, u64, ByHash>> {
        &self.0[(hash >> 40) as usize % SHARDS].0
    }
}

impl Table for Sharded {
    fn insert(&self, entries: &[(u64, u64)]) {
        for &(hash, number) in entries {
            let shard = self.shard(hash).write();
            let mut shard = shard.unwrap_or_else(PoisonError::into_inner);
            shard.insert(hash, number);
        }
    }

    fn look_up(&self, hashes: &[u64]) -> (u64, u64) {
        let (mut found, mut sum) = (0, 0u64);
        for hash in hashes {
            let shard = self.shard(*hash).read();
            let shard = shard.unwrap_or_else(PoisonError::into_inner);
            if let Some(number) = shard.get(hash) {
                found += 1;
                sum = sum.wrapping_add(*number);
            }
        }
        (found, sum)
    }

    fn len(&self) -> u64 {
        let len = |shard: &Shard| {
            let shard = shard.0.read().unwrap_or_else(PoisonError::into_inner);
            shard.len() as u64
        };
        self.0.iter().map(len).sum()
    }
}
