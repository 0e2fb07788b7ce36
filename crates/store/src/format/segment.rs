//! The first block of a segment that is in use.
//!
//! ```text
//!  0       4     8          24         32        40        44     45     46   48
//!  +-------+-----+----------+----------+---------+---------+------+------+----+
//!  | magic | crc | store id | sequence | session | segment | kind | torn | 0  |
//!  +-------+-----+----------+----------+---------+---------+------+------+----+
//! ```
//!
//! A segment without a valid one is free, whatever else it holds: destroying it is how a segment
//! is given up, and it is durably destroyed before anything that made its records superfluous may
//! go too.

use super::{FormatError, Reader, Writer};

/// The length of a header; the rest of its block is zeroes.
pub const SEGMENT_HEADER_LEN: usize = 48;

/// Sequence numbers are less than this. Whoever opens a segment each microsecond gets there in two
/// thousand years; what says more was not written by a store, and would leave no number for the next.
pub const SEQ_END: u64 = 1 << 56;

const MAGIC: u32 = u32::from_le_bytes(*b"vrvS");
const WHAT: &str = "a segment header";

/// What a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Records as users wrote them.
    User = 1,
    /// Records that were moved out of other segments.
    Moved = 2,
    /// A part of the index, as it was when the store was closed.
    Index = 3,
}

/// The beginning of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Of the store.
    pub store: u128,
    /// One more than that of the segment opened before: no two segments ever had the same.
    pub seq: u64,
    /// The least sequence number of the session that opened it: segments with lesser ones were not
    /// written to any more.
    pub session: u64,
    /// Which segment of the device this is.
    pub segment: u32,
    /// What it holds.
    pub kind: Kind,
    /// It was written to when the store crashed: what is damaged in it had not been acknowledged.
    pub torn: bool,
}

impl SegmentHeader {
    /// Writes the header.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than [`SEGMENT_HEADER_LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let out: &mut [u8; SEGMENT_HEADER_LEN] = out.first_chunk_mut().expect("room for a header");
        Writer::new(out)
            .u32(MAGIC)
            .u32(0)
            .bytes(&self.store.to_le_bytes())
            .u64(self.seq)
            .u64(self.session)
            .u32(self.segment)
            .bytes(&[self.kind as u8, self.torn.into(), 0, 0]);
        let crc = crc32fast::hash(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads the header of `segment` of `store`.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if the segment is not in use by this store.
    pub fn parse(bytes: &[u8], store: u128, segment: u32) -> Result<Self, FormatError> {
        let bytes: &[u8; SEGMENT_HEADER_LEN] = bytes
            .first_chunk()
            .ok_or(FormatError::Short { what: WHAT })?;
        let mut reader = Reader(bytes);
        let foreign = FormatError::Foreign { what: WHAT };
        if reader.u32() != Some(MAGIC) {
            return Err(foreign);
        }
        if reader.u32() != Some(crc32fast::hash(&bytes[8..])) {
            return Err(FormatError::Checksum { what: WHAT });
        }
        let (low, high) = (reader.u64(), reader.u64());
        let found = u128::from(low.unwrap_or(0)) | u128::from(high.unwrap_or(0)) << 64;
        let seq = reader.u64().unwrap_or(0);
        let session = reader.u64().unwrap_or(0);
        if found != store || reader.u32() != Some(segment) {
            return Err(foreign);
        }
        if seq.max(session) >= SEQ_END {
            let field = "the sequence number";
            return Err(FormatError::Field { what: WHAT, field });
        }
        let kind = match reader.u8() {
            Some(1) => Kind::User,
            Some(2) => Kind::Moved,
            Some(3) => Kind::Index,
            _ => {
                let field = "the kind";
                return Err(FormatError::Field { what: WHAT, field });
            }
        };
        let torn = reader.u8() == Some(1);
        Ok(Self {
            store,
            seq,
            session,
            segment,
            kind,
            torn,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_to_its_store_and_segment() {
        let header = SegmentHeader {
            store: 5 << 100 | 3,
            seq: 77,
            session: 70,
            segment: 4,
            kind: Kind::Moved,
            torn: true,
        };
        let mut bytes = [0; 64];
        header.emit(&mut bytes);
        assert_eq!(SegmentHeader::parse(&bytes, header.store, 4), Ok(header));
        assert!(SegmentHeader::parse(&bytes, 3, 4).is_err());
        assert!(SegmentHeader::parse(&bytes, header.store, 5).is_err());
        for bit in 0..SEGMENT_HEADER_LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::parse(&flipped, header.store, 4).is_err());
        }
    }

    #[test]
    fn a_sequence_number_without_a_next_one_is_none() {
        for (seq, session, is_right) in [
            (SEQ_END - 1, SEQ_END - 1, true),
            (SEQ_END, 1, false),
            (1, u64::MAX, false),
        ] {
            let header = SegmentHeader {
                store: 1,
                seq,
                session,
                segment: 2,
                kind: Kind::User,
                torn: false,
            };
            let mut bytes = [0; SEGMENT_HEADER_LEN];
            header.emit(&mut bytes);
            assert_eq!(SegmentHeader::parse(&bytes, 1, 2).is_ok(), is_right);
        }
    }
}
