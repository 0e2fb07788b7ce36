//! What a disk was formatted with. It never changes, so that no write that is cut short can lose it; a
//! copy guards against rot.
//!
//! ```text
//!  0        8         10    11     12     16        24     28     32              40
//!  +--------+---------+-----+------+------+---------+------+------+---------------+
//!  | magic  | version | log | rdy  | slot | disk id | seed | segs | segment bytes |
//!  +--------+---------+-----+------+------+---------+------+------+---------------+
//!  40         48         52         56         60      64
//!  +----------+----------+----------+----------+-------+
//!  | segments | required | optional | 0        | crc32c|   of the 60 bytes before
//!  | begin at |          |          |          |       |
//!  +----------+----------+----------+----------+-------+
//!  log: log2 of a page's bytes; rdy: 1 once formatting has ended; slot: bytes of an entry of the table
//! ```
//!
//! `required` and `optional` are bits of features that later programs may add: a disk with a required
//! one that this program does not know is refused, an optional one is left as it is. There are none yet.

use super::{Emitter, FORMAT_VERSION, FormatError, PAGE, Reader};

/// The length of a superblock.
pub(crate) const SUPERBLOCK_LEN: usize = 64;

/// Where the superblock and its copy are.
pub(crate) const SUPERBLOCKS: [u64; 2] = [0, 32 << 10];

/// Where the table of segments begins; its copy follows it.
pub(crate) const TABLE: u64 = 64 << 10;

const MAGIC: &[u8; 8] = b"vrvnebul";
const WHAT: &str = "a superblock";

/// The least that a segment has: the longest frame must fit into it several times.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// The most: a page's number in its extent takes 32 bits, and has room above.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 1 << 40;

/// What a disk was formatted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Tells this disk from all others.
    pub(crate) disk: u64,
    /// What checksums of headers begin with: those of another disk, or of this one before it was
    /// formatted anew, are wrong here.
    pub(crate) seed: u32,
    /// Bytes of an entry of the table with the room around it: what the device writes at once.
    pub(crate) slot: u32,
    pub(crate) segments: u32,
    pub(crate) segment_bytes: u64,
    /// Whether formatting has ended.
    pub(crate) ready: bool,
    pub(crate) optional_features: u32,
}

impl Superblock {
    /// Where the entry of a segment is in one of the table's two copies.
    pub(crate) fn entry_at(&self, copy: u64, segment: u32) -> u64 {
        let slot = u64::from(self.slot);
        TABLE + copy * self.table_len() + u64::from(segment) * slot
    }

    /// Bytes of one copy of the table.
    pub(crate) fn table_len(&self) -> u64 {
        table_len(self.segments, self.slot)
    }

    /// Where the first segment begins.
    pub(crate) fn begin(&self) -> u64 {
        TABLE + 2 * self.table_len()
    }

    /// Where a page of a segment is on the device: computed, not looked up.
    pub(crate) fn page_at(&self, segment: u32, page: u32) -> u64 {
        self.begin() + u64::from(segment) * self.segment_bytes + u64::from(page) * PAGE as u64
    }

    /// Pages of a segment.
    pub(crate) fn segment_pages(&self) -> u32 {
        u32::try_from(self.segment_bytes / PAGE as u64).expect("checked when it was read")
    }

    /// Where the last segment ends.
    pub(crate) fn end(&self) -> u64 {
        self.page_at(self.segments, 0)
    }

    /// As many segments as a device of `len` bytes takes.
    pub(crate) fn segments_on(len: u64, segment_bytes: u64, slot: u32) -> u32 {
        let rest = len.saturating_sub(TABLE + 2 * PAGE as u64);
        let each = segment_bytes + 2 * u64::from(slot);
        let segments = u32::try_from(rest / each).unwrap_or(u32::MAX);
        // Rounding the table up to pages may take a little more than was left for it.
        let fits = |segments: u32| {
            TABLE + 2 * table_len(segments, slot) + u64::from(segments) * segment_bytes <= len
        };
        if fits(segments) {
            segments
        } else {
            segments.saturating_sub(1)
        }
    }

    /// Writes the superblock.
    ///
    /// # Panics
    /// If `out` is shorter than [`SUPERBLOCK_LEN`].
    pub(crate) fn emit(&self, out: &mut [u8]) {
        let out: &mut [u8; SUPERBLOCK_LEN] = out.first_chunk_mut().expect("room for a superblock");
        Emitter::new(out)
            .bytes(MAGIC)
            .u16(FORMAT_VERSION)
            .bytes(&[PAGE.ilog2() as u8, self.ready.into()])
            .u32(self.slot)
            .u64(self.disk)
            .u32(self.seed)
            .u32(self.segments)
            .u64(self.segment_bytes)
            .u64(self.begin())
            .u32(0)
            .u32(self.optional_features)
            .u32(0);
        let sum = block::crc32c::checksum(&out[..SUPERBLOCK_LEN - 4]);
        out[SUPERBLOCK_LEN - 4..].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads a superblock.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let bytes: &[u8; SUPERBLOCK_LEN] = bytes
            .first_chunk()
            .ok_or(FormatError::Short { what: WHAT })?;
        if !bytes.starts_with(MAGIC) {
            return Err(FormatError::Foreign { what: WHAT });
        }
        let mut reader = Reader(&bytes[8..]);
        let short = FormatError::Short { what: WHAT };
        // Before the checksum, which another version may keep elsewhere.
        let found = reader.u16().ok_or(short)?;
        if found != FORMAT_VERSION {
            return Err(FormatError::Version { found });
        }
        let sum = block::crc32c::checksum(&bytes[..SUPERBLOCK_LEN - 4]);
        if bytes[SUPERBLOCK_LEN - 4..] != sum.to_le_bytes() {
            return Err(FormatError::Checksum { what: WHAT });
        }
        let (page, ready) = (reader.u8().ok_or(short)?, reader.u8().ok_or(short)?);
        let slot = reader.u32().ok_or(short)?;
        let disk = reader.u64().ok_or(short)?;
        let (seed, segments) = (reader.u32().ok_or(short)?, reader.u32().ok_or(short)?);
        let segment_bytes = reader.u64().ok_or(short)?;
        let begin = reader.u64().ok_or(short)?;
        let unknown = reader.u32().ok_or(short)?;
        let optional_features = reader.u32().ok_or(short)?;
        if unknown != 0 {
            return Err(FormatError::Features { unknown });
        }
        let superblock = Self {
            disk,
            seed,
            slot,
            segments,
            segment_bytes,
            ready: ready != 0,
            optional_features,
        };
        let field = |field| FormatError::Field { what: WHAT, field };
        if u32::from(page) != PAGE.ilog2() {
            return Err(field("the size of a page"));
        }
        if !slot.is_power_of_two() || !(512..=PAGE as u32).contains(&slot) {
            return Err(field("the size of a slot"));
        }
        check_segment_bytes(segment_bytes)?;
        if begin != superblock.begin() {
            return Err(field("the beginning of the segments"));
        }
        Ok(superblock)
    }
}

/// Whether segments may have this length.
pub(crate) fn check_segment_bytes(bytes: u64) -> Result<(), FormatError> {
    let is_allowed = (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes);
    if is_allowed && bytes.is_multiple_of(PAGE as u64) {
        return Ok(());
    }
    Err(FormatError::Field {
        what: WHAT,
        field: "the size of a segment (64 KiB to 1 TiB, a multiple of 4 KiB)",
    })
}

/// Bytes of one copy of the table, whole pages.
fn table_len(segments: u32, slot: u32) -> u64 {
    (u64::from(segments) * u64::from(slot)).next_multiple_of(PAGE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_comes_back_and_no_flipped_bit_does() {
        let superblock = Superblock {
            disk: 1 << 60 | 7,
            seed: 5,
            slot: 512,
            segments: 3,
            segment_bytes: 1 << 20,
            ready: true,
            optional_features: 5,
        };
        let mut bytes = [0; 512];
        superblock.emit(&mut bytes);
        assert_eq!(Superblock::parse(&bytes), Ok(superblock));
        for bit in 0..SUPERBLOCK_LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::parse(&flipped).is_err(), "bit {bit}");
        }
        assert!(Superblock::parse(&bytes[..63]).is_err());
        bytes[8] = 9;
        let newer = FormatError::Version { found: 9 };
        assert_eq!(Superblock::parse(&bytes), Err(newer));
    }

    #[test]
    fn segments_fit_and_one_more_would_not() {
        for slot in [512, 4096] {
            for len in (0..400).map(|n| n * 65_537).chain([1 << 40, u64::MAX]) {
                let segment_bytes = if len > 1 << 30 { 64 << 20 } else { 64 << 10 };
                let segments = Superblock::segments_on(len, segment_bytes, slot);
                let end = |segments: u32| {
                    u128::from(TABLE + 2 * table_len(segments, slot))
                        + u128::from(segments) * u128::from(segment_bytes)
                };
                assert!(segments == 0 || end(segments) <= len.into(), "{len}");
                let is_most = end(segments.saturating_add(2)) > len.into();
                assert!(is_most || segments > u32::MAX - 2, "{len}");
            }
        }
    }
}
