//! Where segments lie on the device, and where a place in the log is.

use super::batch::BATCH_HEADER_LEN;
use super::{FormatError, VERSION_END, Version};

/// Where the first segment begins; the superblock and its copy are before it.
pub const FIRST_SEGMENT: u64 = 64 << 10;

/// The smallest segment and the largest.
pub const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;

/// How many bits number the grains of a device.
const PLACE_BITS: u32 = 40;

/// How a device is cut into segments, these into blocks, and these into grains.
///
/// A block is what the device writes, a grain what the index can point at: 4 bytes on devices up
/// to 4 TiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// log2 of the bytes of a block.
    pub block_shift: u8,
    /// log2 of the bytes of a grain.
    pub grain_shift: u8,
    /// log2 of the bytes of a segment.
    pub segment_shift: u8,
    /// How many segments there are.
    pub segments: u32,
}

impl Layout {
    /// The layout for a device of `len` bytes that writes blocks of `block` bytes. `segment` bytes
    /// make a segment; by default the device has 128 to 256
    /// of them, within [`SEGMENT_BYTES`].
    ///
    /// # Errors
    ///
    /// [`FormatError::Field`] if the device is too small for eight segments, or a size is no power
    /// of two within its bounds.
    pub fn new(len: u64, block: u32, segment: Option<u64>) -> Result<Self, FormatError> {
        let what = "the layout";
        let field = |field| FormatError::Field { what, field };
        if !block.is_power_of_two() || !(512..=32 << 10).contains(&block) {
            return Err(field("the size of a block"));
        }
        let usable = len.saturating_sub(FIRST_SEGMENT);
        let segment = segment.unwrap_or_else(|| {
            let (min, max) = SEGMENT_BYTES.into_inner();
            let share = (usable / 256).max(1);
            share.next_power_of_two().clamp(min, max)
        });
        if !segment.is_power_of_two()
            || !SEGMENT_BYTES.contains(&segment)
            || segment < 4 * u64::from(block)
        {
            return Err(field(
                "the size of a segment (a power of two from 64 KiB to 1 GiB)",
            ));
        }
        let segments = u32::try_from(usable / segment).map_err(|_| field("how many segments"))?;
        let whole = u64::from(segments) * segment;
        let layout = Self {
            block_shift: block.ilog2() as u8,
            grain_shift: (2..)
                .find(|shift| whole >> shift <= 1 << PLACE_BITS)
                .unwrap_or(2),
            segment_shift: segment.ilog2() as u8,
            segments,
        };
        layout.check(len)?;
        Ok(layout)
    }

    /// Whether the layout fits a device of `len` bytes.
    ///
    /// # Errors
    ///
    /// [`FormatError::Field`] if not.
    pub fn check(&self, len: u64) -> Result<(), FormatError> {
        let field = |field| FormatError::Field {
            what: "the layout",
            field,
        };
        let shifts = 9..=15;
        if !shifts.contains(&self.block_shift) {
            return Err(field("the size of a block"));
        }
        if !(2..=9).contains(&self.grain_shift) || self.grain_shift > self.block_shift {
            return Err(field("the size of a grain"));
        }
        if !(16..=30).contains(&self.segment_shift) || self.segment_shift < self.block_shift + 2 {
            return Err(field("the size of a segment"));
        }
        let whole = u64::from(self.segments) << self.segment_shift;
        if self.segments < 8
            || FIRST_SEGMENT + whole > len
            || whole >> self.grain_shift > 1 << PLACE_BITS
        {
            return Err(field("how many segments"));
        }
        Ok(())
    }

    /// The bytes of a block.
    pub fn block(&self) -> usize {
        1 << self.block_shift
    }

    /// The bytes of a grain.
    pub fn grain(&self) -> usize {
        1 << self.grain_shift
    }

    /// The bytes of a segment.
    pub fn segment_bytes(&self) -> u64 {
        1 << self.segment_shift
    }

    /// How many blocks a segment has; the first holds its header, and the last one the copy of that.
    pub fn segment_blocks(&self) -> u32 {
        1 << (self.segment_shift - self.block_shift)
    }

    /// The block of a segment that holds the copy of its header: batches end before it.
    pub fn copy_block(&self) -> u32 {
        self.segment_blocks() - 1
    }

    /// Where a segment begins on the device.
    pub fn segment_at(&self, segment: u32) -> u64 {
        FIRST_SEGMENT + (u64::from(segment) << self.segment_shift)
    }

    /// Where a block of a segment is on the device.
    pub fn block_at(&self, segment: u32, block: u32) -> u64 {
        self.segment_at(segment) + (u64::from(block) << self.block_shift)
    }

    /// Where a place is on the device.
    pub fn place_at(&self, place: u64) -> u64 {
        let (segment, grain) = self.segment_of(place);
        self.grain_at(segment, grain)
    }

    /// Where a grain of a segment is on the device.
    pub fn grain_at(&self, segment: u32, grain: u32) -> u64 {
        self.segment_at(segment) + (u64::from(grain) << self.grain_shift)
    }

    /// A length rounded up to whole blocks.
    pub fn blocks_of(&self, bytes: usize) -> u32 {
        (bytes.next_multiple_of(self.block()) >> self.block_shift) as u32
    }

    /// Where in a batch its first record begins.
    pub fn batch_start(&self) -> usize {
        BATCH_HEADER_LEN.next_multiple_of(self.grain())
    }

    /// The longest record that is taken up, in bytes. One that is moved grows by the version it had,
    /// and its key's tombstone has a fence: both have to fit a segment as well.
    pub fn record_max(&self) -> usize {
        const GROWS: usize = 16;
        (self.segment_blocks() as usize - 2) * self.block() - self.batch_start() - GROWS
    }

    /// How many bits number the grains of a segment.
    fn grain_bits(&self) -> u8 {
        self.segment_shift - self.grain_shift
    }

    /// The version of what is written to a grain of the segment with this sequence number.
    pub fn version(&self, seq: u64, grain: u32) -> Version {
        debug_assert!(seq < 2 * self.seq_end() && u64::from(grain) >> self.grain_bits() == 0);
        Version(seq << self.grain_bits() | u64::from(grain))
    }

    /// Sequence numbers on a device are less than this, a half of what versions have room for: a store
    /// that finds one goes on with greater ones.
    pub fn seq_end(&self) -> u64 {
        VERSION_END >> self.grain_bits() >> 1
    }

    /// The number of a grain of a segment among those of the device.
    pub fn place(&self, segment: u32, grain: u32) -> u64 {
        u64::from(segment) << (self.segment_shift - self.grain_shift) | u64::from(grain)
    }

    /// The segment of a place, and the grain in it.
    pub fn segment_of(&self, place: u64) -> (u32, u32) {
        let shift = self.segment_shift - self.grain_shift;
        ((place >> shift) as u32, (place & ((1 << shift) - 1)) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn layouts_fit_their_device(len in 0_u64..1 << 46, block in 9_u32..=15) {
            match Layout::new(len, 1 << block, None) {
                Ok(layout) => {
                    prop_assert!(layout.check(len).is_ok());
                    let last = layout.segment_at(layout.segments - 1) + layout.segment_bytes();
                    prop_assert!(last <= len);
                    prop_assert!(len - last < layout.segment_bytes().max(1 << 31));
                }
                Err(_) => prop_assert!(len < 9 << 20, "{len}"),
            }
        }

        #[test]
        fn places_come_back(segment in 0_u32..256, grain in 0_u32..1 << 20) {
            let layout = Layout::new(1 << 30, 512, Some(4 << 20)).expect("a layout");
            let place = layout.place(segment, grain);
            prop_assert_eq!(layout.segment_of(place), (segment, grain));
        }
    }

    #[test]
    fn the_default_cuts_a_device_into_some_hundred_segments() {
        for (len, segment, grain) in [
            (64 << 20, 256 << 10, 4),
            (4_u64 << 30, 16 << 20, 4),
            (1 << 40, 1 << 30, 4),
            (16 << 40, 1 << 30, 16),
        ] {
            let layout = Layout::new(len, 4096, None).expect("a layout");
            assert_eq!((layout.segment_bytes(), layout.grain()), (segment, grain));
        }
        assert!(Layout::new(FIRST_SEGMENT + (8 << 16) - 1, 512, None).is_err());
        assert!(Layout::new(FIRST_SEGMENT + (8 << 16), 512, None).is_ok());
    }

    #[test]
    fn versions_grow_with_the_log_and_never_overflow() {
        for segment in [64 << 10, 1 << 30] {
            let layout = Layout::new(1 << 40, 512, Some(segment)).expect("a layout");
            let grains = (layout.segment_bytes() >> layout.grain_shift) as u32;
            assert!(layout.version(1, grains - 1) < layout.version(2, 0));
            assert!(layout.version(2, 0) < layout.version(2, 1));
            let last = layout.version(2 * layout.seq_end() - 1, grains - 1);
            assert_eq!(last, Version(VERSION_END - 1));
        }
    }

    #[test]
    fn senseless_layouts_are_refused() {
        let good = Layout::new(1 << 30, 4096, None).expect("a layout");
        let mutants: [fn(&mut Layout); 7] = [
            |l| l.block_shift = 8,
            |l| l.block_shift = 16,
            |l| l.grain_shift = 1,
            |l| l.grain_shift = 13,
            |l| l.segment_shift = 31,
            |l| l.segments = 7,
            |l| l.segments += 256,
        ];
        for mutate in mutants {
            let mut layout = good;
            mutate(&mut layout);
            assert!(layout.check(1 << 30).is_err(), "{layout:?}");
        }
    }
}
