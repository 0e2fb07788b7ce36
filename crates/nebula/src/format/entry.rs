//! What the table says of one segment: to which extent it belongs, and how far that goes.
//!
//! ```text
//!  0       4         6       7   8          16          24          32         40       44
//!  +-------+---------+-------+---+----------+-----------+-----------+----------+--------+
//!  | magic | version | state | 0 | sequence | extent id | stream    | epoch    | number |
//!  +-------+---------+-------+---+----------+-----------+-----------+----------+--------+
//!  44       48        52        56           60       64
//!  +--------+---------+---------+------------+--------+
//!  | length | durable | segment | 0          | crc32c |   of the 60 bytes before, begun with the seed
//!  +--------+---------+---------+------------+--------+
//!  state: 1 free, 2 open, 3 sealed; length, durable: pages of a sealed extent
//! ```
//!
//! There are two copies of each entry, written one after the other. The one with the greater sequence
//! counts; a copy that is older or damaged is one whose write was cut short, or has rotted, and the other
//! is what was there before or after. 64 zeros are an entry that was never written: a free segment.

use super::{Emitter, FORMAT_VERSION, FormatError, Reader};
use crate::ids::{Epoch, ExtentId, StreamId};

/// The length of an entry.
pub(crate) const ENTRY_LEN: usize = 64;

const MAGIC: &[u8; 4] = b"nbsg";
const WHAT: &str = "an entry of the table of segments";

/// What a segment is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentState {
    /// For nothing.
    #[default]
    Free = 1,
    /// For an extent that may grow.
    Open = 2,
    /// For an extent of a length that does not change.
    Sealed = 3,
}

/// What the table says of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Counts the changes of this entry.
    pub(crate) sequence: u64,
    pub(crate) state: SegmentState,
    pub(crate) extent: ExtentId,
    pub(crate) stream: StreamId,
    /// The extent's number in its stream.
    pub(crate) number: u32,
    /// Lower ones are refused.
    pub(crate) epoch: Epoch,
    /// Pages of a sealed extent.
    pub(crate) length: u32,
    /// How many of them were known to be on the medium when it was sealed.
    pub(crate) durable: u32,
}

impl Entry {
    /// Writes the entry of `segment`.
    ///
    /// # Panics
    /// If `out` is shorter than [`ENTRY_LEN`].
    pub(crate) fn emit(&self, segment: u32, seed: u32, out: &mut [u8]) {
        let out: &mut [u8; ENTRY_LEN] = out.first_chunk_mut().expect("room for an entry");
        Emitter::new(out)
            .bytes(MAGIC)
            .u16(FORMAT_VERSION)
            .bytes(&[self.state as u8, 0])
            .u64(self.sequence)
            .u64(self.extent.0)
            .u64(self.stream.0)
            .u64(self.epoch.0)
            .u32(self.number)
            .u32(self.length)
            .u32(self.durable)
            .u32(segment)
            .u32(0);
        let sum = block::crc32c::append(seed, &out[..ENTRY_LEN - 4]);
        out[ENTRY_LEN - 4..].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads the entry of `segment`.
    pub(crate) fn parse(
        bytes: &[u8],
        segment: u32,
        segment_pages: u32,
        seed: u32,
    ) -> Result<Self, FormatError> {
        let bytes: &[u8; ENTRY_LEN] = bytes
            .first_chunk()
            .ok_or(FormatError::Short { what: WHAT })?;
        if bytes == &[0; ENTRY_LEN] {
            return Ok(Self::default());
        }
        if !bytes.starts_with(MAGIC) {
            return Err(FormatError::Foreign { what: WHAT });
        }
        let sum = block::crc32c::append(seed, &bytes[..ENTRY_LEN - 4]);
        if bytes[ENTRY_LEN - 4..] != sum.to_le_bytes() {
            return Err(FormatError::Checksum { what: WHAT });
        }
        let short = FormatError::Short { what: WHAT };
        let mut reader = Reader(&bytes[4..]);
        let found = reader.u16().ok_or(short)?;
        if found != FORMAT_VERSION {
            return Err(FormatError::Version { found });
        }
        let state = match reader.u8().ok_or(short)? {
            1 => SegmentState::Free,
            2 => SegmentState::Open,
            3 => SegmentState::Sealed,
            _ => {
                let field = "the state";
                return Err(FormatError::Field { what: WHAT, field });
            }
        };
        reader.u8();
        let mut word = || reader.u64().ok_or(short);
        let (sequence, extent, stream, epoch) = (word()?, word()?, word()?, word()?);
        let mut half = || reader.u32().ok_or(short);
        let (number, length, durable, place) = (half()?, half()?, half()?, half()?);
        if place != segment {
            return Err(FormatError::Misplaced { what: WHAT });
        }
        if length > segment_pages || durable > length {
            let field = "the length";
            return Err(FormatError::Field { what: WHAT, field });
        }
        Ok(Self {
            sequence,
            state,
            extent: ExtentId(extent),
            stream: StreamId(stream),
            number,
            epoch: Epoch(epoch),
            length,
            durable,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_back_at_its_place_alone_and_no_flipped_bit_does() {
        let entry = Entry {
            sequence: 9,
            state: SegmentState::Sealed,
            extent: ExtentId(1 << 50),
            stream: StreamId(3),
            number: 4,
            epoch: Epoch(5),
            length: 16,
            durable: 15,
        };
        let mut bytes = [0; 512];
        entry.emit(7, 11, &mut bytes);
        assert_eq!(Entry::parse(&bytes, 7, 16, 11), Ok(entry));
        assert!(Entry::parse(&bytes, 8, 16, 11).is_err(), "another place");
        assert!(Entry::parse(&bytes, 7, 16, 12).is_err(), "another disk");
        assert!(Entry::parse(&bytes, 7, 15, 11).is_err(), "too long");
        for bit in 0..ENTRY_LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Entry::parse(&flipped, 7, 16, 11).is_err(), "bit {bit}");
        }
        assert_eq!(Entry::parse(&[0; 512], 1, 16, 11), Ok(Entry::default()));
    }
}
