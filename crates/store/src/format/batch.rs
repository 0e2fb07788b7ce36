//! What one write brought to the log: a header, then records, from one block to another.
//!
//! ```text
//!  0     4       7      8          16      20      24        28        32
//!  +-----+-------+------+----------+-------+-------+---------+---------+--------------------------+-----+
//!  | crc | magic | kind | sequence | block | bytes | records | settled | records, each at a grain | pad |
//!  +-----+-------+------+----------+-------+-------+---------+---------+--------------------------+-----+
//! ```
//!
//! The header says which segment, of which time, and at which block of it: so what an earlier use
//! of the segment left is not taken for a batch of this one. `bytes` counts header and records.
//! `settled` is the block of the segment before which every batch had been durably written when this one was
//! composed: what is missing before it was lost later, and what is missing behind it may never have
//! been acknowledged. The checksum covers the header alone; each record has its own.

use block::crc32c;

use super::segment::Kind;
use super::{Emitter, FormatError, Reader, bind};

/// The length of a header.
pub const BATCH_HEADER_LEN: usize = 32;

const MAGIC: [u8; 3] = *b"vrB";
const WHAT: &str = "a batch";

/// The beginning of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// What its segment holds.
    pub kind: Kind,
    /// Of the segment.
    pub seq: u64,
    /// The block of the segment at which the batch begins.
    pub block: u32,
    /// How long the batch is, without padding.
    pub bytes: u32,
    /// How many records it holds.
    pub records: u32,
    /// Batches of the segment before this block had been durably written.
    pub settled: u32,
}

impl BatchHeader {
    fn crc(bytes: &[u8; BATCH_HEADER_LEN], seed: u64, seq: u64, block: u32) -> u32 {
        crc32c::checksum(&bytes[4..]) ^ bind(seed, seq, block)
    }

    /// Writes the header, and returns its checksum.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than [`BATCH_HEADER_LEN`].
    pub fn emit(&self, seed: u64, out: &mut [u8]) -> u32 {
        let out: &mut [u8; BATCH_HEADER_LEN] = out.first_chunk_mut().expect("room for a header");
        Emitter::new(out)
            .u32(0)
            .bytes(&MAGIC)
            .bytes(&[self.kind as u8])
            .u64(self.seq)
            .u32(self.block)
            .u32(self.bytes)
            .u32(self.records)
            .u32(self.settled);
        let crc = Self::crc(out, seed, self.seq, self.block);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// Reads the header of a batch that begins at `block` of a segment, whatever the segment's
    /// sequence number was.
    pub fn identify(bytes: &[u8], seed: u64, block: u32) -> Option<Self> {
        let seq = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
        Self::parse(bytes, seed, seq, block).ok()
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
        let foreign = FormatError::Foreign { what: WHAT };
        if bytes[4..7] != MAGIC {
            return Err(foreign);
        }
        if Self::stored_crc(bytes) != Self::crc(bytes, seed, seq, block) {
            return Err(FormatError::Checksum { what: WHAT });
        }
        let mut reader = Reader(&bytes[8..]);
        let found = reader.u64();
        let mut word = || reader.u32().unwrap_or_default();
        let field = |field| FormatError::Field { what: WHAT, field };
        let header = Self {
            kind: Kind::parse(bytes[7]).ok_or(field("the kind"))?,
            seq: found.unwrap_or_default(),
            block: word(),
            bytes: word(),
            records: word(),
            settled: word(),
        };
        if header.seq != seq || header.block != block {
            return Err(foreign);
        }
        if (header.bytes as usize) < BATCH_HEADER_LEN {
            return Err(field("the length"));
        }
        Ok(header)
    }

    /// Reads a header in which one bit is wrong, and says what it was.
    pub fn mend(bytes: &[u8], seed: u64, seq: u64, block: u32) -> Option<Self> {
        let mut bytes: [u8; BATCH_HEADER_LEN] = *bytes.first_chunk()?;
        // What is known of it. A header that an earlier use of the segment left differs in the
        // sequence number, and seldom in one bit of it.
        let mut known = [0; BATCH_HEADER_LEN];
        known[4..7].copy_from_slice(&MAGIC);
        known[8..16].copy_from_slice(&seq.to_le_bytes());
        known[16..20].copy_from_slice(&block.to_le_bytes());
        let differs = (4..7)
            .chain(8..20)
            .map(|i| (bytes[i] ^ known[i]).count_ones());
        if differs.sum::<u32>() > 1 {
            return None;
        }
        for bit in 0..BATCH_HEADER_LEN * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(header) = Self::parse(&bytes, seed, seq, block) {
                return Some(header);
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        None
    }

    /// The checksum that a header has.
    pub fn stored_crc(bytes: &[u8; BATCH_HEADER_LEN]) -> u32 {
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: BatchHeader = BatchHeader {
        kind: Kind::Moved,
        seq: 1 << 33 | 5,
        block: 17,
        bytes: 1000,
        records: 3,
        settled: 9,
    };

    #[test]
    fn a_header_comes_back_only_where_it_was_written() {
        let mut bytes = [0; 64];
        HEADER.emit(9, &mut bytes);
        assert_eq!(BatchHeader::parse(&bytes, 9, HEADER.seq, 17), Ok(HEADER));
        assert_eq!(BatchHeader::identify(&bytes, 9, 17), Some(HEADER));
        for (seed, seq, block) in [(8, HEADER.seq, 17), (9, 5, 17), (9, HEADER.seq, 18)] {
            assert!(BatchHeader::parse(&bytes, seed, seq, block).is_err());
        }
        assert_eq!(BatchHeader::identify(&bytes, 9, 18), None);
        assert!(BatchHeader::parse(&bytes[..31], 9, HEADER.seq, 17).is_err());
    }

    #[test]
    fn one_wrong_bit_is_noticed_and_found() {
        let mut bytes = [0; 64];
        HEADER.emit(9, &mut bytes);
        for bit in 0..BATCH_HEADER_LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(BatchHeader::parse(&flipped, 9, HEADER.seq, 17).is_err());
            let mended = BatchHeader::mend(&flipped, 9, HEADER.seq, 17);
            assert_eq!(mended, Some(HEADER), "bit {bit}");
            flipped[(bit / 8 + 5) % BATCH_HEADER_LEN] ^= 2;
            assert_eq!(BatchHeader::mend(&flipped, 9, HEADER.seq, 17), None);
        }
        assert_eq!(BatchHeader::mend(&bytes, 9, HEADER.seq + 1, 17), None);
    }
}
