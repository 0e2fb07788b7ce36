//! What stands on the device. All numbers are little-endian; `docs/design/store.md` draws it.
//!
//! | file | what |
//! | --- | --- |
//! | `superblock.rs` | what a store was formatted with, at the device's beginning |
//! | `layout.rs` | where segments lie, and where a place in the log is |
//! | `segment.rs` | the header of a segment, and its copy |
//! | `batch.rs` | what was written with one write, and its header |
//! | `record.rs` | a key, its value and what belongs to them |
//! | `mend.rs` | what can be told of damaged records |

pub mod batch;
pub mod layout;
pub(crate) mod mend;
pub mod record;
pub mod segment;
pub mod superblock;

use thiserror::Error;

/// The version of everything below; a store with another one is refused.
pub const FORMAT_VERSION: u16 = 3;

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
    /// Features without which the store cannot be read, and that this program does not know.
    #[error("features {unknown:#x}, which this program does not know")]
    Features {
        /// The bits of these features.
        unknown: u32,
    },
    /// The device does not give the bytes.
    #[error("{what} cannot be read")]
    Unreadable {
        /// Which structure.
        what: &'static str,
    },
    /// Whoever formatted this was interrupted.
    #[error("formatting it has not ended")]
    Unfinished,
    /// A structure and its copy contradict each other.
    #[error("{what} is older than its copy")]
    Stale {
        /// Which structure.
        what: &'static str,
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

impl FormatError {
    /// The same, said of another structure.
    pub(crate) fn of(self, what: &'static str) -> Self {
        match self {
            Self::Short { .. } => Self::Short { what },
            Self::Foreign { .. } => Self::Foreign { what },
            Self::Checksum { .. } => Self::Checksum { what },
            Self::Field { field, .. } => Self::Field { what, field },
            other => other,
        }
    }
}

/// When a record was written: later writes of a key have greater versions. It is the position in the log
/// at which the record was first written, in grains: see [`layout::Layout::version`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// Versions are below this; the bit above is used in recovery. At ten gigabytes a second the log gets
/// here after a century.
pub const VERSION_END: u64 = 1 << 63;

/// Ties a checksum to a place and a time: the right bytes at the wrong place, or left there by an
/// earlier use of the segment, do not pass.
pub(crate) fn bind(seed: u64, seq: u64, grain: u32) -> u32 {
    mix(seed ^ seq.rotate_left(28) ^ u64::from(grain)) as u32
}

/// The finalizer of SplitMix64: each bit of the input reaches each of the result.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Reads numbers one after another; `None` at the end of the bytes.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    #[inline]
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
    #[inline(always)]
    pub(crate) fn varint(&mut self) -> Option<u32> {
        // Most have one group or two.
        if let Some((&[low, high], _)) = self.0.split_first_chunk()
            && (low & 0x80 == 0 || (1..0x80).contains(&high))
        {
            let groups = 1 + usize::from(low >> 7);
            self.0 = &self.0[groups..];
            return Some(match groups {
                1 => low.into(),
                _ => u32::from(low & 0x7f) | u32::from(high) << 7,
            });
        }
        self.long_varint()
    }

    #[cold]
    fn long_varint(&mut self) -> Option<u32> {
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

/// How many bytes [`Emitter::varint`] takes.
pub(crate) fn varint_len(value: u32) -> usize {
    (value.max(1).ilog2() / 7 + 1) as usize
}

/// Writes numbers one after another into a slice that has room for them.
pub(crate) struct Emitter<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Emitter<'a> {
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
            let mut emitter = Emitter::new(&mut space);
            let len = emitter.varint(value).len();
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
    fn a_bound_checksum_depends_on_everything() {
        let one = bind(1, 2, 3);
        assert_ne!(one, bind(2, 2, 3));
        assert_ne!(one, bind(1, 3, 3));
        assert_ne!(one, bind(1, 2, 4));
    }
}
