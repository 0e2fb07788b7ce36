//! Which region of a shard an entry belongs to, for every number of regions.
//!
//! A shard of `n` regions gives each of them an equal part of the groups (4096 values of the tag).
//! When a region comes, every region there was gives it the same part of its own, and nothing else
//! moves.

use super::entry::GROUP_BITS;

/// Regions that a shard has at most.
pub(super) const REGIONS_MAX: usize = if cfg!(loom) { 2 } else { 128 };

const GROUPS: usize = 1 << GROUP_BITS;

/// For each number of regions, the region of each group.
pub(super) struct Directory(Vec<[u8; GROUPS]>);

impl Directory {
    pub(super) fn new() -> Self {
        let mut rows = vec![[0u8; GROUPS]];
        let mut row = [0u8; GROUPS];
        let mut sizes = vec![GROUPS];
        for newest in 1..REGIONS_MAX {
            let share = GROUPS / (newest + 1);
            // What each gives: all end with the newest's share, or one more.
            let mut left = share;
            let mut gives = vec![0; newest];
            while left > 0 {
                let Some(largest) = (0..newest).max_by_key(|&region| sizes[region] - gives[region])
                else {
                    break;
                };
                gives[largest] += 1;
                left -= 1;
            }
            for region in &mut row {
                let donor = usize::from(*region);
                if gives[donor] > 0 {
                    gives[donor] -= 1;
                    sizes[donor] -= 1;
                    *region = newest as u8;
                }
            }
            sizes.push(share);
            rows.push(row);
        }
        Directory(rows)
    }

    /// The region of each group in a shard of so many regions.
    #[inline]
    pub(super) fn row(&self, regions: u32) -> &[u8; GROUPS] {
        &self.0[regions as usize - 1]
    }

    /// The region of a group in a shard of so many regions.
    #[inline]
    pub(super) fn region(&self, regions: u32, group: usize) -> u32 {
        u32::from(self.row(regions)[group])
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn parts_are_equal_and_only_the_newest_region_gains() {
        let directory = Directory::new();
        for regions in 1..=REGIONS_MAX as u32 {
            let mut counts = vec![0; regions as usize];
            for group in 0..GROUPS {
                let region = directory.region(regions, group);
                counts[region as usize] += 1;
                if regions > 1 {
                    let before = directory.region(regions - 1, group);
                    assert!(region == before || region == regions - 1);
                }
            }
            let (least, most) = (counts.iter().min(), counts.iter().max());
            let (least, most) = (*least.expect("one"), *most.expect("one"));
            assert!(most - least <= 1, "{regions} regions: {least} to {most}");
        }
    }
}
