//! What one write brought to the log: a header, then records, from one block to another.
//!
//! ```text
//!  0       4     8           16       20      24        28
//!  +-------+-----+-----------+--------+-------+---------+--------------------------+-----+
//!  | magic | crc | sequence  | block  | bytes | records | records, each at a grain | pad |
//!  +-------+-----+-----------+--------+-------+---------+--------------------------+-----+
//! ```
//!
//! The header says which segment, of which time, and at which block of it: so what an earlier use
//! of the segment left is not taken for a batch of this one. `bytes` counts header and records.
//! The checksum covers the header alone; each record has its own.

use super::segment::SEQ_END;
use super::{FormatError, Reader, Writer, bind};

/// The length of a header.
pub const BATCH_HEADER_LEN: usize = 28;

const MAGIC: u32 = u32::from_le_bytes(*b"vrvB");
const WHAT: &str = "a batch";

/// The beginning of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Of the segment.
    pub seq: u64,
    /// The block of the segment at which the batch begins.
    pub block: u32,
    /// How long the batch is, without padding.
    pub bytes: u32,
    /// How many records it holds.
    pub records: u32,
}

impl BatchHeader {
    fn crc(bytes: &[u8; BATCH_HEADER_LEN], seed: u64, seq: u64, block: u32) -> u32 {
        crc32fast::hash(&bytes[8..]) ^ bind(seed, seq, block)
    }

    /// Writes the header.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than [`BATCH_HEADER_LEN`].
    pub fn emit(&self, seed: u64, out: &mut [u8]) {
        let out: &mut [u8; BATCH_HEADER_LEN] = out.first_chunk_mut().expect("room for a header");
        Writer::new(out)
            .u32(MAGIC)
            .u32(0)
            .u64(self.seq)
            .u32(self.block)
            .u32(self.bytes)
            .u32(self.records);
        let crc = Self::crc(out, seed, self.seq, self.block);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    /// The sequence number of a segment, as the header of its first batch says.
    pub fn seq_of_first(bytes: &[u8], seed: u64) -> Option<u64> {
        let seq = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
        let header = Self::parse(bytes, seed, seq, 1).ok()?;
        (header.seq < SEQ_END).then_some(header.seq)
    }

    /// Reads the header of a batch that begins at `block` of the segment `seq`.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if no batch of this segment begins here.
    pub fn parse(bytes: &[u8], seed: u64, seq: u64, block: u32) -> Result<Self, FormatError> {
        let bytes: &[u8; BATCH_HEADER_LEN] = bytes
            .first_chunk()
            .ok_or(FormatError::Short { what: WHAT })?;
        let mut reader = Reader(bytes);
        let mut word = || reader.u32().unwrap_or_default();
        let foreign = FormatError::Foreign { what: WHAT };
        if word() != MAGIC {
            return Err(foreign);
        }
        if word() != Self::crc(bytes, seed, seq, block) {
            return Err(FormatError::Checksum { what: WHAT });
        }
        let header = Self {
            seq: u64::from(word()) | u64::from(word()) << 32,
            block: word(),
            bytes: word(),
            records: word(),
        };
        if header.seq != seq || header.block != block {
            return Err(foreign);
        }
        if (header.bytes as usize) < BATCH_HEADER_LEN {
            let field = "the length";
            return Err(FormatError::Field { what: WHAT, field });
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_only_where_it_was_written() {
        let header = BatchHeader {
            seq: 1 << 33 | 5,
            block: 17,
            bytes: 1000,
            records: 3,
        };
        let mut bytes = [0; 64];
        header.emit(9, &mut bytes);
        assert_eq!(BatchHeader::parse(&bytes, 9, header.seq, 17), Ok(header));
        for (seed, seq, block) in [(8, header.seq, 17), (9, 5, 17), (9, header.seq, 18)] {
            assert!(BatchHeader::parse(&bytes, seed, seq, block).is_err());
        }
        for bit in 0..BATCH_HEADER_LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(BatchHeader::parse(&flipped, 9, header.seq, 17).is_err());
        }
        assert!(BatchHeader::parse(&bytes[..27], 9, header.seq, 17).is_err());
    }
}
