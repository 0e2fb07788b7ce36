//! How large an index is, and how large it may get.

use super::directory::REGIONS_MAX;
use super::region::{LINES_MAX, Line, SLOTS};

/// Regions that a shard has when the index holds as many entries as were expected. More would make
/// tags tell fewer keys apart and have more regions looked through when one comes; fewer would let it grow
/// in larger steps.
const REGIONS_EXPECTED: u32 = 8;
/// How full regions are on the average, in percent.
const LOAD_PERCENT: u64 = 87;

/// How an index is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Parts that grow each for itself.
    pub shards: u32,
    /// Cache lines of a region, 8 entries each: a power of two, 2 to 1024. Small ones are for tests.
    pub region_lines: u32,
    /// Regions that each shard has from the beginning.
    pub regions: u32,
    /// Memory that entries may take.
    pub bytes_max: u64,
}

impl Options {
    /// Regions that each shard of [`Options::for_entries`] has in the end: who has it begin with so many
    /// saves it from growing, and takes all the memory at once.
    pub const REGIONS_EXPECTED: u32 = REGIONS_EXPECTED;

    /// An index that begins small and is at its best with about so many entries: half to twice as
    /// many. It holds up to sixteen times as many.
    pub fn for_entries(expected: u64) -> Self {
        let region = u64::from(LINES_MAX) * SLOTS as u64 * LOAD_PERCENT / 100;
        let shards = expected.div_ceil(region * u64::from(REGIONS_EXPECTED));
        Options {
            shards: shards.clamp(1, u64::from(u32::MAX)) as u32,
            region_lines: LINES_MAX,
            regions: 1,
            bytes_max: u64::MAX,
        }
    }

    /// What is wrong with them, if anything is.
    pub(crate) fn check(&self) -> Result<(), CreateError> {
        if self.shards == 0 {
            return Err(CreateError::Shards);
        }
        if !self.region_lines.is_power_of_two() || !(2..=LINES_MAX).contains(&self.region_lines) {
            return Err(CreateError::RegionLines(self.region_lines));
        }
        if self.regions == 0 || self.regions as usize > REGIONS_MAX {
            return Err(CreateError::Regions(self.regions));
        }
        let least = u64::from(self.shards) * u64::from(self.regions) * self.region_bytes();
        if self.bytes_max < least {
            return Err(CreateError::Limit {
                bytes: self.bytes_max,
                least,
            });
        }
        Ok(())
    }

    pub(super) fn region_bytes(&self) -> u64 {
        u64::from(self.region_lines) * size_of::<Line>() as u64
    }
}

/// Why there is no such index.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// No shards.
    #[error("an index has at least one shard")]
    Shards,
    /// Lines that are no power of two, too few or too many.
    #[error("a region has 2 to {LINES_MAX} lines, a power of two, not {0}")]
    RegionLines(u32),
    /// No regions, or too many.
    #[error("a shard has 1 to {REGIONS_MAX} regions, not {0}")]
    Regions(u32),
    /// What it begins with is more than it may have.
    #[error("an index of this shape takes {least} bytes, more than the limit of {bytes}")]
    Limit {
        /// The limit.
        bytes: u64,
        /// What it would begin with.
        least: u64,
    },
    /// The process has no room for it.
    #[error("reserving memory for an index: {0}")]
    Memory(#[from] std::io::Error),
}
