//! The index in memory: from a key's hash to the places that may hold the key, 8 bytes an entry.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `place.rs` | where a record lies and about how long it is |
//! | `entry.rs` | the eight bytes of an entry, the parts of a hash |
//! | `candidates.rs` | what a lookup finds |
//! | `options.rs` | how large an index is |
//! | `lookup.rs` | finding the entries of a hash, or of many at once |
//! | `insert.rs` | adding entries, one or many at once |
//! | `scan.rs` | looking through a line for a tag |
//! | `slots.rs` | which slots of a line hold something, under the lock |
//! | `directory.rs` | which region of a shard an entry belongs to |
//! | `region.rs` | lines of entries, two for each entry, a lock and a version |
//! | `displace.rs` | room in two full lines |
//! | `growth.rs` | shards that grow by a region |
//! | `dump.rs` | a shard as bytes, for checkpoints |
//! | `walk.rs` | all entries, a region at a time |
//! | `prefetch.rs` | telling the processor what will be needed |
//! | `memory.rs` | memory that the kernel fills where it is touched |
//! | `sync.rs` | atomics, or loom's |
//!
//! `docs/design/store-index.md` draws it and says what is unlike the paper's and why.
//!
//! ```
//! use store::hash::KeyHash;
//! use store::index::{Candidates, Index, Options, Place, SizeCode};
//!
//! let index = Index::new(&Options::for_entries(1000))?;
//! let hash = KeyHash::new(7, b"key").index();
//! let place = Place::new(4096, SizeCode::of(3));
//! index.insert(hash, place)?;
//! let mut candidates = Candidates::new();
//! index.candidates(hash, &mut candidates);
//! assert_eq!(candidates[..], [place]);
//! assert!(index.remove(hash, place));
//! assert!(index.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod candidates;
mod directory;
mod displace;
mod dump;
mod entry;
mod growth;
mod insert;
mod lookup;
mod memory;
mod options;
mod place;
mod prefetch;
mod region;
mod scan;
mod slots;
mod sync;
mod walk;

pub use candidates::Candidates;
pub use dump::{LoadError, shape};
pub use options::{CreateError, Options};
pub use place::{Place, SizeCode};
pub use walk::Trait;

use directory::{Directory, REGIONS_MAX};
use growth::Shard;
use memory::Memory;
use region::{Guard, Header, Line, Region, SLOTS, Word};
use scan::Width;
use sync::{AtomicU64, Ordering, Wait};

/// There is no room for another entry: the index has reached its limit of memory, or so many hashes
/// are alike that no growth would help. What it holds stays, and there is room again when entries are
/// removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the index is full: {entries} entries in {bytes} bytes, of which it may have {bytes_max}")]
#[non_exhaustive]
pub struct IndexFull {
    /// Entries in it.
    pub entries: u64,
    /// Memory that they take.
    pub bytes: u64,
    /// Memory that they may take.
    pub bytes_max: u64,
}

/// From hashes to places. All cores share one; who looks up takes no lock.
///
/// It keeps no keys: a place that fits a hash may be another key's, and whoever asks compares the
/// key on the device.
pub struct Index {
    shards: Box<[Shard]>,
    directory: Directory,
    headers: Memory<Header>,
    lines: Memory<Line>,
    region_lines: u32,
    regions: AtomicU64,
    regions_max: u64,
    shard_regions_max: u32,
    /// Entries of a region from which on its shard grows.
    grow_at: u32,
    bytes_max: u64,
    width: Width,
}

impl Index {
    /// An empty one.
    ///
    /// # Errors
    /// Options that do not fit each other, or more memory than the process has addresses for. The
    /// memory itself is taken when it is used.
    pub fn new(options: &Options) -> Result<Self, CreateError> {
        options.check()?;
        let shards = u64::from(options.shards);
        let region_bytes = options.region_bytes();
        // All shards alike, with what one more than the limit's mean needs where they differ.
        let deepest = match options.bytes_max / region_bytes / shards {
            mean if mean < REGIONS_MAX as u64 / 2 => (mean * 2 + 2).min(REGIONS_MAX as u64),
            _ => REGIONS_MAX as u64,
        };
        let count = usize::try_from(shards * deepest).unwrap_or(usize::MAX);
        let mut index = Index {
            // First, as it is the largest, and the one that there may be no room for.
            lines: Memory::new(count.saturating_mul(options.region_lines as usize))?,
            headers: Memory::new(count)?,
            shards: std::iter::repeat_with(Shard::default)
                .take(options.shards as usize)
                .collect(),
            directory: Directory::new(),
            region_lines: options.region_lines,
            regions: AtomicU64::new(shards * u64::from(options.regions)),
            regions_max: 0,
            shard_regions_max: deepest as u32,
            grow_at: growth::threshold(options.region_lines * SLOTS as u32),
            bytes_max: 0,
            width: Width::here(),
        };
        index.limit(options.bytes_max);
        for (number, shard) in index.shards.iter().enumerate() {
            for region in 0..options.regions {
                index
                    .region(number as u32, region)
                    .header
                    .begin(options.regions);
            }
            shard.begin(options.regions);
        }
        Ok(index)
    }

    /// From now on it grows no further than so many bytes, nor than it was made for. It keeps what it has, be that more.
    pub fn limit(&mut self, bytes_max: u64) {
        let region_bytes = u64::from(self.region_lines) * size_of::<Line>() as u64;
        let regions = self.shards.len() as u64 * REGIONS_MAX as u64;
        self.regions_max = regions.min(bytes_max / region_bytes);
        self.bytes_max = bytes_max;
    }

    /// Starts to load what [`Index::candidates`] of this hash will look at first, so that the cache misses
    /// of several hashes overlap.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let (at, _) = self.locate(hash);
        prefetch::prefetch(self.line(at, at.first));
    }

    /// Puts a place where another one is; does nothing and says so where it is not (any more).
    ///
    /// Who does not look has lost a record, which the index does not point at:
    ///
    /// ```compile_fail
    /// #![deny(unused_must_use)]
    /// # use store::index::{Index, Place};
    /// fn moved(index: &Index, hash: u64, from: Place, to: Place) {
    ///     index.replace(hash, from, to);
    /// }
    /// ```
    #[inline]
    #[must_use = "false: the index does not point at the new place"]
    pub fn replace(&self, hash: u64, old: Place, new: Place) -> bool {
        let (mut region, at) = self.lock(hash);
        match region.find(at.first, entry::entry(hash, old)) {
            Some(found) => {
                region.overwrite(found, entry::entry(hash, new));
                true
            }
            None => false,
        }
    }

    /// Takes an entry away; does nothing and says so where it is not there (any more).
    #[inline]
    #[must_use = "false: the index may point at the record elsewhere"]
    pub fn remove(&self, hash: u64, old: Place) -> bool {
        let (mut region, at) = self.lock(hash);
        match region.find(at.first, entry::entry(hash, old)) {
            Some(found) => {
                region.clear(found);
                region.tidy();
                true
            }
            None => false,
        }
    }

    /// Entries. Counts region by region, while others change them.
    pub fn len(&self) -> u64 {
        let mut entries = 0;
        for (number, shard) in self.shards.iter().enumerate() {
            for region in 0..shard.state().regions() {
                entries += u64::from(self.region(number as u32, region).header.len());
            }
        }
        entries
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Parts that grow each for itself; [`Index::dump`] writes one of them.
    pub fn shards(&self) -> u32 {
        self.shards.len() as u32
    }

    /// Regions.
    pub fn regions(&self) -> u64 {
        self.regions.load(Ordering::Relaxed)
    }

    /// Entries for which there are slots.
    pub fn capacity(&self) -> u64 {
        self.regions() * u64::from(self.region_lines) * SLOTS as u64
    }

    /// Memory: of entries, 8 bytes a slot, and of what guards them.
    pub fn bytes(&self) -> u64 {
        let region = u64::from(self.region_lines) * size_of::<Line>() as u64;
        self.regions() * (region + size_of::<Header>() as u64)
            + (self.shards.len() * size_of::<Shard>()) as u64
    }

    /// Shards that are just growing.
    pub fn growing(&self) -> usize {
        let growing = |shard: &&Shard| shard.state().is_growing();
        self.shards.iter().filter(growing).count()
    }

    /// Where a hash's entries are, and what the region's header said then.
    #[inline(always)]
    fn locate(&self, hash: u64) -> (At, Word) {
        let shard = entry::shard(hash, self.shards.len() as u32);
        let regions = self.shards[shard as usize].state().regions_complete();
        let region = self.directory.region(regions, entry::group(hash));
        let number = self.number(shard, region);
        let word = self.headers[number].read();
        if word.level() == regions {
            (self.at(hash, number), word)
        } else {
            self.locate_growing(hash, shard)
        }
    }

    /// The same while its shard is growing.
    #[cold]
    #[inline(never)]
    fn locate_growing(&self, hash: u64, shard: u32) -> (At, Word) {
        let group = entry::group(hash);
        let mut wait = Wait::default();
        loop {
            let state = self.shards[shard as usize].state();
            let regions = state.regions();
            let mut region = self.directory.region(regions, group);
            if state.is_growing() && region + 1 == regions {
                // What belongs to the newest region may not have got there.
                let before = self.directory.region(regions - 1, group);
                let word = self.headers[self.number(shard, before)].read();
                if word.level() < regions {
                    region = before;
                }
            }
            let number = self.number(shard, region);
            let word = self.headers[number].read();
            if self.directory.region(word.level(), group) == region {
                return (self.at(hash, number), word);
            }
            // It has grown since the state was read.
            wait.pause();
        }
    }

    /// The lines of a hash in a region.
    #[inline(always)]
    fn at(&self, hash: u64, number: usize) -> At {
        At {
            number,
            first: entry::line(hash, self.region_lines - 1),
        }
    }

    /// A region among all.
    #[inline(always)]
    fn number(&self, shard: u32, region: u32) -> usize {
        region as usize * self.shards.len() + shard as usize
    }

    /// Locks the region that a hash's entries are in.
    #[inline]
    fn lock(&self, hash: u64) -> (Guard<'_>, At) {
        loop {
            let (at, word) = self.locate(hash);
            let guard = self.region_at(at.number).lock();
            if guard.level() == word.level() {
                return (guard, at);
            }
            // It has given others their own meanwhile, perhaps this one too.
        }
    }

    #[inline]
    fn region(&self, shard: u32, region: u32) -> Region<'_> {
        self.region_at(self.number(shard, region))
    }

    #[inline(always)]
    fn region_at(&self, number: usize) -> Region<'_> {
        let lines = self.region_lines as usize;
        Region {
            header: &self.headers[number],
            lines: &self.lines[number * lines..][..lines],
        }
    }

    /// A line of a region.
    #[inline(always)]
    fn line(&self, at: At, line: u32) -> &Line {
        &self.lines[at.number * self.region_lines as usize + line as usize]
    }

    /// The second line of a hash.
    #[inline(always)]
    fn second(&self, hash: u64, at: At) -> u32 {
        entry::other_line(at.first, hash, self.region_lines - 1)
    }

    /// The number of a hash's shard, and of a region in it.
    fn shard_of(&self, at: At) -> (u32, u32) {
        let shards = self.shards.len();
        ((at.number % shards) as u32, (at.number / shards) as u32)
    }

    /// Counts another region for a shard that will have so many, unless a limit is reached.
    fn reserve_region(&self, shard_regions: u32) -> bool {
        if shard_regions > self.shard_regions_max {
            return false;
        }
        let more = |regions: u64| (regions < self.regions_max).then_some(regions + 1);
        self.regions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    #[cold]
    fn full(&self) -> IndexFull {
        IndexFull {
            entries: self.len(),
            bytes: self.capacity() * size_of::<u64>() as u64,
            bytes_max: self.bytes_max,
        }
    }
}

/// Where the entries of a hash are.
#[derive(Clone, Copy, Default, Debug)]
struct At {
    /// The region's number among all.
    number: usize,
    /// The first line of the hash.
    first: u32,
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
