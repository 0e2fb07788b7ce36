//! All entries, a region at a time.

use super::entry::{self, EMPTY};
use super::{Index, Place};

/// All that a region knows of the hash of an entry: two entries of which this differs are of different keys.
/// It stays the same wherever in its region an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Trait(u32);

impl Index {
    /// Regions of a shard. While it grows, what a region gives away comes to a region that this
    /// counts already.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn regions_of(&self, shard: u32) -> u32 {
        self.shards[shard as usize].state().regions()
    }

    /// Shows all entries of a region, as they are at one moment: the region is locked meanwhile.
    /// An entry leaves its region only for a new one, behind all others. So who walks a shard from its first
    /// region to its last, and asks anew for their number, comes by every entry that is there all the
    /// time, and by one that moves perhaps twice.
    pub fn places(&self, shard: u32, region: u32, mut show: impl FnMut(Trait, Place)) {
        let region = self.region(shard, region).lock();
        for slot in 0..region.slots() {
            let entry = region.slot(slot);
            if entry != EMPTY {
                let (line, _) = region.home_of(slot);
                let known = Trait(line << entry::TAG_BITS | entry::tag(entry) as u32);
                show(known, entry::place(entry));
            }
        }
    }
}
