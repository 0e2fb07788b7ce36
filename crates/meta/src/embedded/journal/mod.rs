//! The journal: groups of transactions on a block device, each durable by one write.
//!
//! ```text
//!  0        4096            4096 + area        4096 + 2 area
//!  +--------+---------------+------------------+
//!  | header | area 0        | area 1           |
//!  +--------+---------------+------------------+
//!
//!  the header, little-endian
//!  0         8         12        16        32          40                4092    4096
//!  +---------+---------+---------+---------+-----------+-----------------+-------+
//!  | magic   | version | block   | id      | area len  | zeros           | crc   |
//!  +---------+---------+---------+---------+-----------+-----------------+-------+
//! ```
//!
//! Areas are used by turns. Each use has an epoch, one more than the last; epoch `e` is in area `e % 2`. An
//! area is used again once the rows of all its records are durable elsewhere, so that at most two epochs
//! are *live*. One record is written at a time. So what the loss of power leaves is a sequence of whole
//! records, of consecutive revisions, and at most one torn record behind it.

pub(super) mod record;

use block::{BlockError, Disk, Durable, crc32c};
use thiserror::Error;

use record::{BLOCK, Composed, Place, Record};

const MAGIC: u64 = u64::from_le_bytes(*b"VervMeta");
/// Of the format above.
pub(super) const VERSION: u32 = 1;
/// The end of the header's checksummed bytes.
const CRC_AT: usize = BLOCK - 4;
/// Bytes that are read or zeroed at once.
const PIECE: usize = 1 << 20;

/// The least that an area may have: a record of the largest transaction, and its header.
pub(super) const AREA_LEN_MIN: u64 = 2 << 20;

/// Why a journal was not opened or recovered.
#[derive(Debug, Error)]
pub(super) enum JournalError {
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error("{name} is not a metadata journal: {why}")]
    Foreign { name: String, why: String },
    #[error(
        "{name} has version {found} of the journal's format, and this program reads version {VERSION}"
    )]
    Version { name: String, found: u32 },
    #[error("{name} is damaged: {why}")]
    Damaged { name: String, why: String },
}

/// A journal on a device, and where its next record goes.
pub(super) struct Journal {
    disk: Disk,
    id: u128,
    area_len: u64,
    /// Of the area in use.
    epoch: u64,
    /// Bytes of it that are used.
    used: u64,
}

/// Bytes of a journal with areas of this length.
pub(super) fn len_for(area_len: u64) -> u64 {
    BLOCK as u64 + 2 * area_len
}

impl Journal {
    /// Makes a device a journal without records. Writes all of it, so that later writes change no
    /// mapping of a file, and that nothing older is taken for a record.
    pub(super) async fn format(disk: &Disk, id: u128) -> Result<(), JournalError> {
        let len = disk.geometry().len;
        let mut at = BLOCK as u64;
        let mut buf = disk.buffer(PIECE);
        buf.fill(0);
        while at < len {
            let piece = (len - at).min(PIECE as u64);
            buf.set_len(piece as usize);
            let (result, back) = disk.write(buf, at, Durable::No).await;
            result?;
            buf = back;
            at += piece;
        }
        disk.flush().await?;
        buf.set_len(BLOCK);
        let area_len = (len - BLOCK as u64) / 2;
        buf[..8].copy_from_slice(&MAGIC.to_le_bytes());
        buf[8..12].copy_from_slice(&VERSION.to_le_bytes());
        buf[12..16].copy_from_slice(&(BLOCK as u32).to_le_bytes());
        buf[16..32].copy_from_slice(&id.to_le_bytes());
        buf[32..40].copy_from_slice(&area_len.to_le_bytes());
        let crc = crc32c::checksum(&buf[..CRC_AT]);
        buf[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        disk.write(buf, 0, Durable::Yes).await.0?;
        Ok(())
    }

    /// Opens a journal. It has to be recovered, and then started.
    pub(super) async fn open(disk: Disk) -> Result<Self, JournalError> {
        let name = disk.name().to_owned();
        let len = disk.geometry().len;
        let foreign = |why: &str| JournalError::Foreign {
            name: name.clone(),
            why: why.to_owned(),
        };
        if len < len_for(AREA_LEN_MIN) || !BLOCK.is_multiple_of(disk.geometry().block as usize) {
            return Err(foreign(
                "it is too short, or its device has too large blocks",
            ));
        }
        let (result, header) = disk.read(disk.buffer(BLOCK), 0).await;
        result?;
        let u32_at =
            |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let u64_at =
            |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        if u64_at(0) != MAGIC {
            return Err(foreign("it does not begin like one"));
        }
        if u32_at(CRC_AT) != crc32c::checksum(&header[..CRC_AT]) {
            let why = "the checksum of its header is wrong".to_owned();
            return Err(JournalError::Damaged { name, why });
        }
        if u32_at(8) != VERSION {
            let found = u32_at(8);
            return Err(JournalError::Version { name, found });
        }
        let area_len = u64_at(32);
        let fits = area_len >= AREA_LEN_MIN
            && area_len.is_multiple_of(BLOCK as u64)
            && area_len
                .checked_mul(2)
                .is_some_and(|both| both <= len - BLOCK as u64);
        if u32_at(12) != BLOCK as u32 || !fits {
            return Err(foreign("its header contradicts its length"));
        }
        Ok(Self {
            id: u128::from_le_bytes(header[16..32].try_into().expect("16 bytes")),
            disk,
            area_len,
            epoch: 0,
            used: 0,
        })
    }

    /// What its rows' database has to have as well.
    pub(super) fn id(&self) -> u128 {
        self.id
    }

    /// The disk that drives its futures.
    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The epoch of the area in use.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Hands over each record, in order. `live` is the lowest live epoch, and `applied` the last revision
    /// before it.
    pub(super) async fn recover(
        &self,
        live: u64,
        applied: u64,
        deliver: &mut dyn FnMut(Record),
    ) -> Result<(), JournalError> {
        let mut next = applied + 1;
        for epoch in [live, live + 1] {
            let bytes = self.read_area(epoch).await?;
            let mut at = 0;
            while let Some(record) = record::parse(self.place(epoch, at), &bytes[at as usize..]) {
                if record.first != next {
                    let found = record.first;
                    let why = format!("revision {found} stands where {next} should");
                    return Err(self.damaged(epoch, at, &why));
                }
                next += record.transactions.len() as u64;
                at += record.len as u64;
                deliver(record);
            }
            self.check_tail(epoch, at, &bytes)?;
        }
        Ok(())
    }

    /// Begins a new epoch, in an empty area, after a recovery or when the area in use is full. The other
    /// epoch that may be live is the one before.
    pub(super) fn start(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.used = 0;
    }

    /// Whether a record of this length fits into the area in use.
    pub(super) fn fits(&self, len: usize) -> bool {
        self.used + len as u64 <= self.area_len
    }

    /// Bytes of a record at most.
    pub(super) fn record_len_max(&self) -> usize {
        usize::try_from(self.area_len).unwrap_or(usize::MAX)
    }

    /// Writes a record that fits. It is durable when this ends. After an error it may be there or not,
    /// and nothing may be written until the journal was recovered.
    pub(super) async fn append(
        &mut self,
        composed: &Composed,
        first: u64,
    ) -> Result<(), BlockError> {
        let len = composed.len();
        assert!(self.fits(len), "who appends has looked");
        let place = self.place(self.epoch, self.used);
        let mut buf = self.disk.buffer(len);
        composed.emit(place, first, &mut buf);
        self.disk.write(buf, place.at, Durable::Yes).await.0?;
        self.used += len as u64;
        Ok(())
    }

    fn place(&self, epoch: u64, used: u64) -> Place {
        Place {
            id: self.id,
            epoch,
            at: BLOCK as u64 + epoch % 2 * self.area_len + used,
        }
    }

    async fn read_area(&self, epoch: u64) -> Result<Vec<u8>, BlockError> {
        let start = self.place(epoch, 0).at;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < self.area_len {
            let at = bytes.len() as u64;
            let piece = (self.area_len - at).min(PIECE as u64) as usize;
            let (result, buf) = self.disk.read(self.disk.buffer(piece), start + at).await;
            result?;
            bytes.extend_from_slice(&buf);
        }
        Ok(bytes)
    }

    /// Only the last record may be torn: a whole one behind a gap was acknowledged, and so were those in
    /// the gap.
    fn check_tail(&self, epoch: u64, mut at: u64, bytes: &[u8]) -> Result<(), JournalError> {
        let end = at;
        while at < self.area_len {
            if let Some(record) = record::parse(self.place(epoch, at), &bytes[at as usize..]) {
                let found = record.first;
                let why = format!("a record is unreadable, and revision {found} stands behind it");
                return Err(self.damaged(epoch, end, &why));
            }
            at += BLOCK as u64;
        }
        Ok(())
    }

    fn damaged(&self, epoch: u64, at: u64, why: &str) -> JournalError {
        let at = self.place(epoch, at).at;
        JournalError::Damaged {
            name: self.disk.name().to_owned(),
            why: format!("at offset {at}, {why} (restore a backup)"),
        }
    }
}

#[cfg(test)]
mod tests;
