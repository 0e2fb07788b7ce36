//! What names blocks and their writers.

use std::fmt;

/// Bytes of a page: what is mapped, checksummed and read.
pub const PAGE: usize = 4096;
/// Pages of a block.
pub const BLOCK_PAGES: u16 = 1024;
/// Bytes of a block.
pub const BLOCK: u32 = BLOCK_PAGES as u32 * PAGE as u32;

/// A dataunit's number: 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(u32);

impl UnitId {
    /// Bits of the number.
    pub const BITS: u32 = 24;

    /// A number of more than 24 bits is none.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number >> Self::BITS == 0 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// A block: up to 4 MiB of one file. Never used again.
///
/// ```text
/// dataunit (24 bits) | serial number (40 bits)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fid(pub u64);

impl Fid {
    /// Bits of the serial number.
    pub const SERIAL_BITS: u32 = 40;

    /// From its parts; a serial number of more than 40 bits has none.
    #[must_use]
    pub const fn new(unit: UnitId, serial: u64) -> Option<Self> {
        if serial >> Self::SERIAL_BITS != 0 {
            return None;
        }
        Some(Self((unit.0 as u64) << Self::SERIAL_BITS | serial))
    }

    /// The dataunit that serves it.
    #[must_use]
    pub const fn unit(self) -> UnitId {
        UnitId((self.0 >> Self::SERIAL_BITS) as u32)
    }

    /// Its number there.
    #[must_use]
    pub const fn serial(self) -> u64 {
        self.0 & ((1 << Self::SERIAL_BITS) - 1)
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}:{}", self.unit().0, self.serial())
    }
}

/// What the owner of a file says with each change of one of its blocks. It stands in the record, so that the
/// file's size can be found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The file's handle. Its first four bytes name the volume (as `files::Handle::to_bytes` has it).
    pub handle: [u8; 12],
    /// The file's length in bytes after this change; 0 says nothing.
    pub end: u64,
    /// Counts the file's truncations: ends of an earlier one say nothing any more.
    pub truncate_epoch: u32,
    /// Counts the volume's snapshots: what snapshot `e` has kept is the last change of an epoch up to `e`.
    pub snapshot_epoch: u32,
}

impl Mark {
    /// The volume.
    #[must_use]
    pub fn volume(&self) -> Volume {
        let [v0, v1, v2, v3, ..] = self.handle;
        Volume(u32::from_be_bytes([v0, v1, v2, v3]))
    }
}

/// A volume: the unit of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Volume(pub u32);

/// How far a change has to have come when it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Seen by every read. It may not survive the loss of power before a commit.
    Unstable,
    /// It survives the loss of power.
    Stable,
}

/// The head of a block, or what a snapshot has kept of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) fid: Fid,
    /// The youngest snapshot that it was kept for; [`HEAD`] for what is written.
    pub(crate) label: u32,
}

/// The label of a block that is written. No snapshot has it: it sorts behind all of them.
pub(crate) const HEAD: u32 = u32::MAX;

impl Key {
    pub(crate) fn head(fid: Fid) -> Self {
        Self { fid, label: HEAD }
    }
}
