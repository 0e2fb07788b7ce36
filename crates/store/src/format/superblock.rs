//! What a store was formatted with. It never changes, so that losing it to a write cut short is
//! impossible; a copy guards against rot.
//!
//! ```text
//!  0        8         10      11      12        13      14      15   16         32          40
//!  +--------+---------+-------+-------+---------+-------+-------+----+----------+-----------+
//!  | magic  | version | block | grain | segment | cache | ready | 0  | store id | hash seed |
//!  +--------+---------+-------+-------+---------+-------+-------+----+----------+-----------+
//!  40           48         52         56         60   64      72
//!  +------------+----------+----------+----------+----+-------+
//!  | check seed | segments | required | optional | 0  | xxh3  |     sizes as log2
//!  +------------+----------+----------+----------+----+-------+
//! ```
//!
//! `required` and `optional` are bits of features that later programs may add: a store with a required
//! one that this program does not know is refused, an optional one is left as it is. There are none yet.
//! While a store is being formatted its superblock is not `ready`; formatting begins again then.

use xxhash_rust::xxh3::xxh3_64;

use super::layout::Layout;
use super::{Emitter, FORMAT_VERSION, FormatError, Reader};

/// The length of a superblock.
pub const SUPERBLOCK_LEN: usize = 72;

/// Where the superblock and its copy are.
pub const SUPERBLOCKS: [u64; 2] = [0, 32 << 10];

/// The required features that this program knows.
const KNOWN_FEATURES: u32 = 0;

const MAGIC: &[u8; 8] = b"vrvstore";
const WHAT: &str = "a superblock";

/// What a store was formatted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Tells this store from all others, also from one formatted on the same device before.
    pub store: u128,
    /// The seed of the keys' hashes.
    pub hash_seed: u64,
    /// The seed of the log's checksums.
    pub check_seed: u64,
    /// Where segments are.
    pub layout: Layout,
    /// Whether this is a cache, which forgets what was not used for long when it is full.
    pub cache: bool,
    /// Whether formatting has ended.
    pub ready: bool,
    /// Features without which the store cannot be read.
    pub required_features: u32,
    /// Features that a program may ignore.
    pub optional_features: u32,
}

impl Superblock {
    /// Writes the superblock.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than [`SUPERBLOCK_LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let out: &mut [u8; SUPERBLOCK_LEN] = out.first_chunk_mut().expect("room for a superblock");
        let layout = &self.layout;
        Emitter::new(out)
            .bytes(MAGIC)
            .u16(FORMAT_VERSION)
            .bytes(&[
                layout.block_shift,
                layout.grain_shift,
                layout.segment_shift,
                self.cache.into(),
                self.ready.into(),
                0,
            ])
            .bytes(&self.store.to_le_bytes())
            .u64(self.hash_seed)
            .u64(self.check_seed)
            .u32(layout.segments)
            .u32(self.required_features)
            .u32(self.optional_features)
            .u32(0);
        let sum = xxh3_64(&out[..SUPERBLOCK_LEN - 8]);
        out[SUPERBLOCK_LEN - 8..].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads a superblock.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: no store's, rotten, or of a version or with features that this program does
    /// not know.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let bytes: &[u8; SUPERBLOCK_LEN] = bytes
            .first_chunk()
            .ok_or(FormatError::Short { what: WHAT })?;
        let short = || FormatError::Short { what: WHAT };
        let mut reader = Reader(bytes);
        if reader.bytes(8) != Some(MAGIC) {
            return Err(FormatError::Foreign { what: WHAT });
        }
        // Before the checksum, which another version may keep elsewhere.
        let found = reader.u16().ok_or_else(short)?;
        if found != FORMAT_VERSION {
            return Err(FormatError::Version { found });
        }
        let mut byte = || reader.u8().ok_or_else(short);
        let (block_shift, grain_shift, segment_shift) = (byte()?, byte()?, byte()?);
        let (cache, ready) = (byte()? != 0, byte()? != 0);
        byte()?;
        let (low, high) = (reader.u64(), reader.u64());
        let (low, high) = (low.ok_or_else(short)?, high.ok_or_else(short)?);
        let hash_seed = reader.u64().ok_or_else(short)?;
        let check_seed = reader.u64().ok_or_else(short)?;
        let segments = reader.u32().ok_or_else(short)?;
        let required_features = reader.u32().ok_or_else(short)?;
        let optional_features = reader.u32().ok_or_else(short)?;
        reader.u32();
        if reader.u64() != Some(xxh3_64(&bytes[..SUPERBLOCK_LEN - 8])) {
            return Err(FormatError::Checksum { what: WHAT });
        }
        let unknown = required_features & !KNOWN_FEATURES;
        if unknown != 0 {
            return Err(FormatError::Features { unknown });
        }
        let layout = Layout {
            block_shift,
            grain_shift,
            segment_shift,
            segments,
        };
        // Whether the device is long enough is another question.
        layout.check(u64::MAX)?;
        Ok(Self {
            store: u128::from(low) | u128::from(high) << 64,
            hash_seed,
            check_seed,
            layout,
            cache,
            ready,
            required_features,
            optional_features,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_comes_back_and_no_flipped_bit_does() {
        let superblock = Superblock {
            store: 3 << 99 | 1,
            hash_seed: 5,
            check_seed: 6,
            layout: Layout::new(1 << 30, 4096, None).expect("a layout"),
            cache: true,
            ready: true,
            required_features: 0,
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
        bytes[8] = 9;
        let newer = FormatError::Version { found: 9 };
        assert_eq!(Superblock::parse(&bytes), Err(newer));
        let words = format!("format version 9, but this program reads {FORMAT_VERSION}");
        assert_eq!(newer.to_string(), words);
        assert!(Superblock::parse(&bytes[..71]).is_err());
        let later = Superblock {
            required_features: 4,
            ..superblock
        };
        later.emit(&mut bytes);
        let unknown = FormatError::Features { unknown: 4 };
        assert_eq!(Superblock::parse(&bytes), Err(unknown));
    }
}
