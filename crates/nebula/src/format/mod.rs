//! What stands on a disk. All numbers are little-endian; `docs/design/nebula.md` draws it.
//!
//! | file | what |
//! | --- | --- |
//! | `superblock.rs` | what a disk was formatted with, and where its segments are |
//! | `entry.rs` | what the table says of one segment |
//! | `frame.rs` | the header of what was written with one write |

pub(crate) mod entry;
pub(crate) mod frame;
pub(crate) mod superblock;

use thiserror::Error;

/// The version of everything below; a disk with another one is refused.
pub const FORMAT_VERSION: u16 = 1;

/// Bytes of a page: what payloads are made of and aligned to, and what has a checksum of its own.
pub const PAGE: usize = 4096;

/// Why bytes of a disk are not what they should be.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
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
    #[error(
        "it has format version {found}, and this program reads {FORMAT_VERSION} (use the program that wrote it)"
    )]
    Version {
        /// The version found.
        found: u16,
    },
    /// Features without which the disk cannot be read, and that this program does not know.
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
    /// Formatting was interrupted.
    #[error("formatting it has not ended")]
    Unfinished,
    /// The structure is sound, and belongs somewhere else: to another extent, another place, an earlier
    /// use of the segment.
    #[error("{what} belongs to another place")]
    Misplaced {
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
}
