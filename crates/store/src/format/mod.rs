//! What stands on the device. All numbers are little-endian; `docs/design/store.md` draws it.
//!
//! | file | what |
//! | --- | --- |
//! | `superblock.rs` | what a store was formatted with, at the device's beginning |
//! | `layout.rs` | where segments lie, and where a place in the log is |
//! | `segment.rs` | the block at the beginning of a segment in use |
//! | `batch.rs` | what was written with one write, and its header |
//! | `record.rs` | a key, its value and what belongs to them |

pub mod batch;
pub mod layout;
pub mod record;
pub mod segment;
pub mod superblock;

use thiserror::Error;

/// The version of everything below; a store with another one is refused.
pub const FORMAT_VERSION: u16 = 1;

/// Why bytes of the device are not what they should be.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// Fewer bytes than the structure has.
    #[error("{what} is cut short")]
    Short {
        /// Which structure.
        what: &'static str,
    },
    /// There is no such structure here.
    #[error("there is no {what} here")]
    Foreign {
        /// Which structure.
        what: &'static str,
    },
    /// The bytes do not have the checksum that they were written with.
    #[error("the checksum of {what} is wrong")]
    Checksum {
        /// Which structure.
        what: &'static str,
    },
    /// A version that this program does not know.
    #[error("format version {found}, but this program reads {FORMAT_VERSION}")]
    Version {
        /// The version found.
        found: u16,
    },
    /// The checksum is right and a field makes no sense.
    #[error("{field} of {what} makes no sense")]
    Field {
        /// Which structure.
        what: &'static str,
        /// Which field.
        field: &'static str,
    },
}

/// When a record was written: later writes of a key have greater versions. The sequence number of
/// the segment it was first written to, above its grain there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// Bits of a version that count grains.
const GRAIN_BITS: u32 = 28;

impl Version {
    /// The version of what is written to a grain of a segment.
    pub fn new(seq: u64, grain: u32) -> Self {
        debug_assert!(u64::from(grain) < 1 << GRAIN_BITS && seq < 1 << (64 - GRAIN_BITS));
        Self(seq << GRAIN_BITS | u64::from(grain))
    }

    /// The sequence number of the segment.
    pub fn seq(self) -> u64 {
        self.0 >> GRAIN_BITS
    }
}

/// Ties a checksum to a place and a time: the right bytes at the wrong place, or left there by an
/// earlier use of the segment, do not pass.
pub(crate) fn bind(seed: u64, seq: u64, grain: u32) -> u32 {
    // The finalizer of SplitMix64: each bit of the input reaches each of the result.
    let mut z = seed ^ seq.rotate_left(GRAIN_BITS) ^ u64::from(grain);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as u32
}

/// Reads numbers one after another; `None` at the end of the bytes.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number in groups of seven bits, the lowest first; at most 32 bits, and never longer than
    /// it must be.
    pub(crate) fn varint(&mut self) -> Option<u32> {
        let mut value = 0_u64;
        for shift in (0..35).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let shortest = byte != 0 || shift == 0;
                return u32::try_from(value).ok().filter(|_| shortest);
            }
        }
        None
    }
}

/// How many bytes [`Writer::varint`] takes.
pub(crate) fn varint_len(value: u32) -> usize {
    (value.max(1).ilog2() / 7 + 1) as usize
}

/// Writes numbers one after another into a slice that has room for them.
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0 }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.out[self.at..][..bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn varint(&mut self, mut value: u32) -> &mut Self {
        while value >= 0x80 {
            self.bytes(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.bytes(&[value as u8])
    }

    /// How many bytes have been written.
    pub(crate) fn len(&self) -> usize {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for value in [
            0,
            1,
            0x7f,
            0x80,
            0x3fff,
            0x4000,
            0x1f_ffff,
            1 << 28,
            u32::MAX,
        ] {
            let mut space = [0xff; 8];
            let mut writer = Writer::new(&mut space);
            let len = writer.varint(value).len();
            assert_eq!(len, varint_len(value));
            let mut reader = Reader(&space[..len]);
            assert_eq!(reader.varint(), Some(value));
            assert!(reader.0.is_empty());
            assert_eq!(Reader(&space[..len - 1]).varint(), None);
        }
        // Longer than it must be, and more than 32 bits.
        assert_eq!(Reader(&[0x80, 0]).varint(), None);
        assert_eq!(Reader(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varint(), None);
        assert_eq!(Reader(&[0xff, 0xff, 0xff, 0xff, 0x8f, 0]).varint(), None);
    }

    #[test]
    fn versions_grow_with_the_log() {
        assert!(Version::new(1, u32::MAX >> 4) < Version::new(2, 0));
        assert!(Version::new(2, 0) < Version::new(2, 1));
        assert_eq!(Version::new(7, 9).seq(), 7);
    }

    #[test]
    fn a_bound_checksum_depends_on_everything() {
        let one = bind(1, 2, 3);
        assert_ne!(one, bind(2, 2, 3));
        assert_ne!(one, bind(1, 3, 3));
        assert_ne!(one, bind(1, 2, 4));
    }
}
