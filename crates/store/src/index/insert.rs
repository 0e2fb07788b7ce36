//! Adding entries, one or many at once.
#![allow(unsafe_code)]

use super::entry;
use super::growth::Growth;
use super::place::Place;
use super::prefetch::prefetch_write;
use super::region::{Guard, SLOTS, SPARE};
use super::scan::{self, Scan, Width};
use super::sync::{Ordering, Wait};
use super::{At, Index, IndexFull};

/// Inserts that are begun before the first one ends: their headers and first lines are on their way.
const BEGUN: usize = 32;
/// So many of them, the oldest, have seen their first line, and their second one is on its way if that may be needed.
const PEEKED: usize = 20;
/// So many have seen both, and if those are full, lines that others may move to are on their way.
const READY: usize = 8;

impl Index {
    /// Adds an entry. The caller knows that the key has none, or wants a second one.
    ///
    /// # Errors
    /// The index has reached its limit. Nothing has changed then.
    #[inline]
    pub fn insert(&self, hash: u64, place: Place) -> Result<(), IndexFull> {
        let mut growth = Growth::default();
        self.insert_with(hash, place, &mut growth)
    }

    /// Adds many entries, in their order: the cache misses of all of them overlap.
    ///
    /// # Errors
    /// The index has reached its limit. The number is that of the entry that found no room: those before
    /// it have been added, and none after.
    #[inline]
    pub fn insert_batch(&self, entries: &[(u64, Place)]) -> Result<(), (usize, IndexFull)> {
        match self.width {
            // SAFETY: `Width::here` has asked the processor.
            #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
            Width::Avx512 => unsafe { by_avx512(self, entries) },
            // SAFETY: as above.
            #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
            Width::Avx2 => unsafe { by_avx2(self, entries) },
            // SAFETY: every processor can do that.
            Width::Word => unsafe { by::<scan::Word>(self, entries) },
        }
    }

    pub(super) fn insert_with(
        &self,
        hash: u64,
        place: Place,
        growth: &mut Growth,
    ) -> Result<(), IndexFull> {
        let entry = entry::entry(hash, place);
        let mut wait = Wait::default();
        loop {
            let (mut region, at) = self.lock(hash);
            if region.place(at.first, entry) {
                self.placed(region, entry::shard(hash, self.shards()), growth);
                return Ok(());
            }
            let level = region.level();
            // Growth helps only against what is full by its number of entries.
            let in_vain =
                region.is_hopeless(at.first, entry) || (region.len() as usize) < region.slots() / 4;
            drop(region);
            if in_vain {
                return Err(self.full());
            }
            let (shard, region) = self.shard_of(at);
            self.make_room(shard, region, level, growth, &mut wait)?;
        }
    }

    /// What is to be done when an entry has found its place.
    #[inline(always)]
    fn placed(&self, region: Guard<'_>, shard: u32, growth: &mut Growth) {
        let is_filling = region.len() > self.grow_at;
        drop(region);
        self.help(shard, is_filling, growth);
    }
}

#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[target_feature(enable = "avx512f,bmi1,popcnt")]
unsafe fn by_avx512(index: &Index, entries: &[(u64, Place)]) -> Result<(), (usize, IndexFull)> {
    // SAFETY: as the caller promises.
    unsafe { by::<scan::Avx512>(index, entries) }
}

#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[target_feature(enable = "avx2,bmi1,popcnt")]
unsafe fn by_avx2(index: &Index, entries: &[(u64, Place)]) -> Result<(), (usize, IndexFull)> {
    // SAFETY: as the caller promises.
    unsafe { by::<scan::Avx2>(index, entries) }
}

/// # Safety
/// The processor can scan in this way.
#[inline(always)]
unsafe fn by<S: Scan>(index: &Index, entries: &[(u64, Place)]) -> Result<(), (usize, IndexFull)> {
    let mut inserts = [Insert::default(); BEGUN];
    for number in 0..entries.len() + BEGUN {
        // The one that was begun so many before this one.
        let before = |distance: usize| {
            let number = number.checked_sub(distance)?;
            Some((number, *entries.get(number)?))
        };
        if let Some((number, (hash, place))) = before(BEGUN) {
            let insert = &inserts[number % BEGUN];
            if !insert.finish(index, entry::entry(hash, place)) {
                index.insert(hash, place).map_err(|full| (number, full))?;
            }
        }
        if let Some((number, (hash, _))) = before(BEGUN - READY) {
            // SAFETY: as the caller promises.
            unsafe { inserts[number % BEGUN].look_for_room::<S>(index, hash) };
        }
        if let Some((number, (hash, _))) = before(BEGUN - PEEKED) {
            // SAFETY: as the caller promises.
            unsafe { inserts[number % BEGUN].peek::<S>(index, hash) };
        }
        if let Some((number, (hash, _))) = before(0) {
            inserts[number % BEGUN] = Insert::begin(index, hash);
        }
    }
    Ok(())
}

/// An insert under way. What it has seen without the lock tells only what to prefetch.
#[derive(Clone, Copy, Default)]
struct Insert {
    at: At,
    shard: u32,
    /// The region is the hash's own as long as it is of this level.
    level: u32,
    is_first_full: bool,
}

impl Insert {
    #[inline(always)]
    fn begin(index: &Index, hash: u64) -> Self {
        // The header would tell which of two regions it is while the shard grows; but then this would have to
        // wait for it.
        let shard = entry::shard(hash, index.shards());
        let level = index.shards[shard as usize].state().regions_complete();
        let region = index.directory.region(level, entry::group(hash));
        let at = index.at(hash, index.number(shard, region));
        prefetch_write(&index.headers[at.number]);
        prefetch_write(index.line(at, at.first));
        Insert {
            at,
            shard,
            level,
            is_first_full: false,
        }
    }

    /// # Safety
    /// The processor can scan in this way.
    #[inline(always)]
    unsafe fn peek<S: Scan>(&mut self, index: &Index, hash: u64) {
        // SAFETY: as the caller promises.
        let empty = unsafe { empty::<S>(index, self.at, self.at.first) };
        if empty < SPARE {
            prefetch_write(index.line(self.at, index.second(hash, self.at)));
            self.is_first_full = empty == 0;
        }
    }

    /// # Safety
    /// The processor can scan in this way.
    #[inline(always)]
    unsafe fn look_for_room<S: Scan>(&self, index: &Index, hash: u64) {
        let At { first, .. } = self.at;
        // SAFETY: as the caller promises.
        let is_second_full =
            || unsafe { empty::<S>(index, self.at, index.second(hash, self.at)) } == 0;
        if self.is_first_full && is_second_full() {
            // Most often one of the first has room in its other line.
            for slot in &index.line(self.at, first).0[..SLOTS / 2] {
                let moving = slot.load(Ordering::Relaxed);
                let to = entry::other_line(first, moving, index.region_lines - 1);
                prefetch_write(index.line(self.at, to));
            }
        }
    }

    /// Puts the entry into its region, unless that is another one now or has no room.
    #[inline(always)]
    fn finish(&self, index: &Index, entry: u64) -> bool {
        let mut region = index.region_at(self.at.number).lock();
        let is_placed = region.level() == self.level && region.place(self.at.first, entry);
        if is_placed {
            index.placed(region, self.shard, &mut Growth::default());
        }
        is_placed
    }
}

/// About how many slots of a line are empty: some entries look as if they were.
///
/// # Safety
/// The processor can scan in this way.
#[inline(always)]
unsafe fn empty<S: Scan>(index: &Index, at: At, line: u32) -> u32 {
    // SAFETY: as the caller promises.
    let (slots, _) = unsafe { S::slots(index.line(at, line), entry::EMPTY) };
    slots.count_ones()
}
