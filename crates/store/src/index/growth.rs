//! How a shard grows: one region at a time, and for each of those its regions one by one.
//!
//! A shard of `n` regions that grows gets region `n`, and each of the others gives it what is the new
//! one's by the directory. A region's level says for how many regions it has done so: what belongs
//! to the newest region is still in its old one as long as that one's level is below.

use super::directory::Directory;
use super::entry;
use super::region::{Guard, LINES_MAX, Region, SLOTS};
use super::slots::Slots;
use super::sync::{AtomicU32, AtomicU64, Ordering, Wait};
use super::{Index, IndexFull};

/// What all who use a shard look at.
#[derive(Default)]
pub(super) struct Shard {
    state: AtomicU64,
    /// Regions that have yet to give.
    left: AtomicU32,
    /// The next one that somebody may take on, below the number of regions of that growth.
    next: AtomicU64,
}

/// How many regions a shard has, and whether that is just changing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct State(u64);

/// Somebody is making the next region ready.
const PREPARING: u64 = 1 << 32;
/// Not all regions have given the newest one what is its own.
const GROWING: u64 = 1 << 33;

impl State {
    /// Regions, with the newest one.
    #[inline]
    pub(super) fn regions(self) -> u32 {
        self.0 as u32
    }

    /// Regions without one that has just come. A region of this level holds all that the directory of so
    /// many regions says; one that has given to the newest one has another level.
    #[inline(always)]
    pub(super) fn regions_complete(self) -> u32 {
        self.regions() - u32::from(self.is_growing())
    }

    #[inline]
    pub(super) fn is_growing(self) -> bool {
        self.0 & GROWING != 0
    }

    fn is_preparing(self) -> bool {
        self.0 & PREPARING != 0
    }
}

impl Shard {
    #[inline]
    pub(super) fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    /// Says how many regions there are, while nobody else uses the shard.
    pub(super) fn begin(&self, regions: u32) {
        self.state.store(u64::from(regions), Ordering::Release);
    }

    /// Says how many regions there are, of which some have yet to give to the newest one.
    pub(super) fn resume(&self, regions: u32, left: u32) {
        self.left.store(left, Ordering::Relaxed);
        let growing = if left > 0 { GROWING } else { 0 };
        self.state
            .store(u64::from(regions) | growing, Ordering::Release);
        // Last, so that nobody can end the growth before it is said to have begun.
        self.next.store(u64::from(regions) << 32, Ordering::Release);
    }
}

/// How full a region is when its shard grows.
const GROW_AT_PERCENT: u32 = 91;
/// Lines that are on their way while one is looked through.
const AHEAD: usize = 8;

/// What an insert has done for growth.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Growth {
    /// Regions looked through.
    pub(super) regions: u32,
    /// Entries moved to another region.
    pub(super) moved: u32,
}

/// How many entries of so many slots make a region's shard grow. Later would save memory, but the last
/// entries are the ones that others have to be moved for.
pub(super) fn threshold(slots: u32) -> u32 {
    // A new region gets about as many as made the shard grow. It varies by the square root of it, and a
    // full 97 % can be found room for; only regions of tests are so small that it counts.
    let has_room_for = (slots - slots / 32).saturating_sub(3 * slots.isqrt());
    has_room_for.min(slots * GROW_AT_PERCENT / 100)
}

impl Index {
    /// Has a shard grow where one of its regions is filling, and does a part of it if it grows.
    #[inline]
    pub(super) fn help(&self, shard: u32, is_filling: bool, growth: &mut Growth) {
        let state = self.shards[shard as usize].state();
        if state.is_growing() {
            self.help_growing(shard, growth);
        } else if is_filling && self.may_grow(state) {
            // Who finds no room at all tells why.
            let _full = self.begin_growth(shard, state);
        }
    }

    #[inline]
    fn may_grow(&self, state: State) -> bool {
        state.regions() < self.shard_regions_max
            && !state.is_preparing()
            && self.regions() < self.regions_max
    }

    #[cold]
    fn help_growing(&self, shard: u32, growth: &mut Growth) {
        let next = &self.shards[shard as usize].next;
        let of = |claim: u64| (claim as u32, (claim >> 32) as u32);
        loop {
            let (region, regions) = of(next.load(Ordering::Relaxed));
            if region + 1 >= regions {
                return;
            }
            // With the growth that it belongs to, as another one may have begun.
            let (region, regions) = of(next.fetch_add(1, Ordering::Acquire));
            if region + 1 >= regions {
                return;
            }
            let before = growth.regions;
            // Without room in the newest region, whoever needs room tells so.
            let _no_room = self.give(shard, region, regions, growth);
            if growth.regions > before {
                return;
            }
        }
    }

    /// Makes room for an insert that found none in a region of its shard, as far as one step goes.
    ///
    /// # Errors
    /// There is no more memory, or the newest region has no room for what it is to get.
    #[cold]
    pub(super) fn make_room(
        &self,
        shard: u32,
        region: u32,
        level: u32,
        growth: &mut Growth,
        wait: &mut Wait,
    ) -> Result<(), IndexFull> {
        let state = self.shards[shard as usize].state();
        if state.is_growing() {
            if level < state.regions() {
                return self.give(shard, region, state.regions(), growth);
            }
            for other in 0..state.regions() - 1 {
                self.give(shard, other, state.regions(), growth)?;
            }
            // The last one to give ends the growth, and that may be another thread.
            wait.pause();
            return Ok(());
        }
        if state.is_preparing() || state.regions() > level {
            wait.pause();
            return Ok(());
        }
        self.begin_growth(shard, state)
    }

    fn begin_growth(&self, number: u32, state: State) -> Result<(), IndexFull> {
        let shard = &self.shards[number as usize];
        let regions = state.regions();
        let begun = shard.state.compare_exchange(
            state.0,
            state.0 | PREPARING,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if begun.is_err() {
            // Another thread was faster.
            return Ok(());
        }
        if !self.reserve_region(regions + 1) {
            shard.state.store(state.0, Ordering::Release);
            return Err(self.full());
        }
        // The kernel fills memory now and not while locks are held.
        self.region(number, regions).touch();
        self.region(number, regions).header.begin(regions + 1);
        shard.resume(regions + 1, regions);
        Ok(())
    }

    /// Has a region give the newest one what is the newest one's.
    fn give(
        &self,
        shard: u32,
        from: u32,
        regions: u32,
        growth: &mut Growth,
    ) -> Result<(), IndexFull> {
        if self.region(shard, from).header.read().level() >= regions {
            return Ok(());
        }
        growth.regions += 1;
        let moved = give(
            &self.directory,
            regions,
            self.region(shard, from),
            self.region(shard, regions - 1),
        );
        match moved {
            Given::Moved(moved) => {
                growth.moved += moved;
                let shard = &self.shards[shard as usize];
                if shard.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    shard.state.store(u64::from(regions), Ordering::Release);
                }
                Ok(())
            }
            Given::Before => Ok(()),
            Given::NoRoom => Err(self.full()),
        }
    }
}

/// What came of giving.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Given {
    /// So many entries have moved.
    Moved(u32),
    /// Another thread did it before.
    Before,
    /// The newest region has no room for all of them, and none has moved.
    NoRoom,
}

/// Moves what belongs to the newest of `regions` regions from another one to it.
pub(super) fn give(
    directory: &Directory,
    regions: u32,
    from: Region<'_>,
    newest: Region<'_>,
) -> Given {
    let mut from = from.lock();
    if from.level() >= regions {
        return Given::Before;
    }
    let mut newest = newest.lock();
    let row = directory.row(regions);
    let mut marks = [Slots::default(); LINES_MAX as usize];
    let mut leaving = [0u16; LINES_MAX as usize * SLOTS];
    let mut moved = 0;
    for line in 0..from.lines() {
        from.prefetch((line + AHEAD) as u32 & from.line_mask());
        for slot in 0..SLOTS {
            let at = line * SLOTS + slot;
            let entry = from.slot(at);
            let is_leaving =
                entry != entry::EMPTY && u32::from(row[entry::group(entry)]) == regions - 1;
            // Without branches, as nobody can foresee who leaves.
            leaving[moved] = at as u16;
            moved += usize::from(is_leaving);
            let has_mark = entry::is_away(entry) && !is_leaving;
            from.need_mark(&mut marks, line as u32, entry, has_mark);
        }
    }
    let leaving = &leaving[..moved];
    for (done, &at) in leaving.iter().enumerate() {
        let (first, entry) = from.home_of(usize::from(at));
        if !newest.place(first, entry) {
            take_back(&from, &mut newest, &leaving[..done]);
            return Given::NoRoom;
        }
    }
    // Readers who have looked here in vain look there from now on.
    from.moved(regions);
    from.clear_all(leaving);
    from.renew_marks(&marks);
    Given::Moved(moved as u32)
}

/// Takes the copies of all entries that leave away again. No reader looks for them there yet.
#[cold]
fn take_back(from: &Guard<'_>, newest: &mut Guard<'_>, leaving: &[u16]) {
    for &at in leaving {
        let (first, entry) = from.home_of(usize::from(at));
        if let Some(at) = newest.find(first, entry) {
            newest.clear(at);
        }
    }
}
