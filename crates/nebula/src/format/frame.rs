//! The header of a frame: what was written to an extent with one write.
//!
//! ```text
//!  frame:  | header: 1 to 8 pages | pages of the first record | of the second | ...
//!
//!  0       4         6      7   8           16       24      32       36     40
//!  +-------+---------+------+---+-----------+--------+-------+--------+------+
//!  | magic | version | hdr  | 0 | extent id | stream | epoch | number | page |
//!  +-------+---------+------+---+-----------+--------+-------+--------+------+
//!  40      44        48         52      54  56     60       64
//!  +-------+---------+----------+-------+---+------+--------+---------+---------+-----+---+
//!  | pages | durable | previous | count | 0 | used | crc32c | record  | record  | ... | 0 |
//!  +-------+---------+----------+-------+---+------+--------+---------+---------+-----+---+
//!
//!  record: | head length (u16) | pages (u16) | head | 0 to a multiple of 4 | crc32c of each page |
//! ```
//!
//! | field | what |
//! | --- | --- |
//! | hdr | pages of the header |
//! | number | of the extent in its stream |
//! | page, pages | where in its extent the frame begins, and its pages with the header |
//! | durable | how many pages of the extent were known to be on the medium when the frame was composed |
//! | previous | pages of the extent before this one, `u32::MAX` if there is none or it has gone |
//! | used | bytes of the header that are not the zeros at its end |
//! | crc32c | of all pages of the header, with zeros in its own place, begun with the disk's seed |
//!
//! A frame is found at its place alone: extent, stream, number and page are compared, and the extent's
//! id is never used again, so that what an earlier use of a segment has left is not taken for a frame.

use super::{Emitter, FORMAT_VERSION, FormatError, PAGE, Reader};
use crate::ids::{Epoch, ExtentId, StreamId};

/// The part of a header before its records.
pub(crate) const FIXED_LEN: usize = 64;
/// What a record has in the header besides its head and checksums.
pub(crate) const RECORD_LEN: usize = 4;
/// Pages of a header at most.
pub(crate) const HEADER_PAGES_MAX: u32 = 8;
/// Pages of payloads in a frame at most.
pub(crate) const PAYLOAD_PAGES_MAX: u32 = 256;
/// Pages of a frame at most.
pub(crate) const FRAME_PAGES_MAX: u32 = HEADER_PAGES_MAX + PAYLOAD_PAGES_MAX;
/// Bytes of a record's head at most.
pub const HEAD_LEN_MAX: usize = 256;
/// No extent is before this one.
pub(crate) const NO_PREVIOUS: u32 = u32::MAX;

const MAGIC: &[u8; 4] = b"nbfr";
const WHAT: &str = "a frame";
const CRC_AT: usize = FIXED_LEN - 4;

/// Where a frame belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) extent: ExtentId,
    pub(crate) stream: StreamId,
    /// The extent's number in its stream.
    pub(crate) number: u32,
    /// The frame's first page in the extent.
    pub(crate) page: u32,
}

/// The header of a frame, without its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) place: Place,
    pub(crate) epoch: Epoch,
    pub(crate) header_pages: u32,
    /// Pages of the whole frame.
    pub(crate) pages: u32,
    /// Pages of the extent that were known to be on the medium.
    pub(crate) durable: u32,
    /// Pages of the extent before, or [`NO_PREVIOUS`].
    pub(crate) previous: u32,
    /// How many records it has.
    pub(crate) count: u16,
    /// Bytes of the header without the zeros at its end.
    pub(crate) used: u32,
}

impl FrameHeader {
    /// Writes the header around its records, which are there already, as are the zeros behind them.
    ///
    /// # Panics
    /// If `header` is not as long as `header_pages` says.
    pub(crate) fn emit(&self, seed: u32, header: &mut [u8]) {
        assert_eq!(header.len(), self.header_pages as usize * PAGE);
        Emitter::new(&mut header[..FIXED_LEN])
            .bytes(MAGIC)
            .u16(FORMAT_VERSION)
            .bytes(&[self.header_pages as u8, 0])
            .u64(self.place.extent.0)
            .u64(self.place.stream.0)
            .u64(self.epoch.0)
            .u32(self.place.number)
            .u32(self.place.page)
            .u32(self.pages)
            .u32(self.durable)
            .u32(self.previous)
            .u16(self.count)
            .u16(0)
            .u32(self.used)
            .u32(0);
        let sum = block::crc32c::append(seed, header);
        header[CRC_AT..FIXED_LEN].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads the fixed part from the beginning of `bytes`, and checks that it belongs to `place`: not yet
    /// its checksum, for which all of the header has to be there.
    pub(crate) fn peek(bytes: &[u8], place: Place) -> Result<Self, FormatError> {
        let short = FormatError::Short { what: WHAT };
        let fixed = bytes.first_chunk::<FIXED_LEN>().ok_or(short)?;
        if !fixed.starts_with(MAGIC) {
            return Err(FormatError::Foreign { what: WHAT });
        }
        let mut reader = Reader(&fixed[4..]);
        let found = reader.u16().ok_or(short)?;
        let header_pages = u32::from(reader.u8().ok_or(short)?);
        reader.u8();
        let mut word = || reader.u64().ok_or(short);
        let (extent, stream, epoch) = (word()?, word()?, word()?);
        let mut half = || reader.u32().ok_or(short);
        let (number, page, pages) = (half()?, half()?, half()?);
        let (durable, previous) = (half()?, half()?);
        let count = reader.u16().ok_or(short)?;
        reader.u16();
        let used = reader.u32().ok_or(short)?;
        let found_place = Place {
            extent: ExtentId(extent),
            stream: StreamId(stream),
            number,
            page,
        };
        if found_place != place {
            return Err(FormatError::Misplaced { what: WHAT });
        }
        if found != FORMAT_VERSION {
            return Err(FormatError::Version { found });
        }
        let field = |field| Err(FormatError::Field { what: WHAT, field });
        if !(1..=HEADER_PAGES_MAX).contains(&header_pages) {
            return field("the length of the header");
        }
        if !(header_pages..=header_pages + PAYLOAD_PAGES_MAX).contains(&pages) {
            return field("the length");
        }
        if used as usize > header_pages as usize * PAGE || (used as usize) < FIXED_LEN {
            return field("the length of the records");
        }
        Ok(Self {
            place: found_place,
            epoch: Epoch(epoch),
            header_pages,
            pages,
            durable,
            previous,
            count,
            used,
        })
    }

    /// Checks the checksum, and that the records are as long together as the frame says.
    pub(crate) fn check(&self, seed: u32, header: &[u8]) -> Result<(), FormatError> {
        let short = FormatError::Short { what: WHAT };
        let header = header
            .get(..self.header_pages as usize * PAGE)
            .ok_or(short)?;
        let mut sum = block::crc32c::append(seed, &header[..CRC_AT]);
        sum = block::crc32c::append(sum, &[0; 4]);
        sum = block::crc32c::append(sum, &header[FIXED_LEN..]);
        if header[CRC_AT..FIXED_LEN] != sum.to_le_bytes() {
            return Err(FormatError::Checksum { what: WHAT });
        }
        let (mut count, mut pages, mut len) = (0u32, self.header_pages, FIXED_LEN);
        for record in self.records(header) {
            let record = record?;
            count += 1;
            pages = pages.saturating_add(record.pages);
            len += record_len(record.head.len(), record.pages);
        }
        if (count, pages, len) != (self.count.into(), self.pages, self.used as usize) {
            let field = "the number of records";
            return Err(FormatError::Field { what: WHAT, field });
        }
        Ok(())
    }

    /// The frame's records. What was not checked may end early with an error.
    pub(crate) fn records<'a>(
        &self,
        header: &'a [u8],
    ) -> impl Iterator<Item = Result<RecordView<'a>, FormatError>> + 'a {
        let all = header.get(FIXED_LEN..self.used as usize);
        let mut rest = all.unwrap_or_default();
        let mut page = self.header_pages;
        let mut has_failed = false;
        std::iter::from_fn(move || {
            if rest.is_empty() || has_failed {
                return None;
            }
            let Some((record, left)) = RecordView::first(rest, page) else {
                has_failed = true;
                return Some(Err(FormatError::Short { what: "a record" }));
            };
            rest = left;
            page = page.saturating_add(record.pages);
            Some(Ok(record))
        })
    }
}

/// What a header says of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordView<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) pages: u32,
    /// The pages' checksums, four bytes each.
    pub(crate) sums: &'a [u8],
    /// Where its pages begin, from the beginning of the frame.
    pub(crate) page: u32,
}

impl<'a> RecordView<'a> {
    fn first(bytes: &'a [u8], page: u32) -> Option<(Self, &'a [u8])> {
        let mut reader = Reader(bytes);
        let (head_len, pages) = (reader.u16()?, reader.u16()?);
        let head_len = usize::from(head_len);
        if head_len > HEAD_LEN_MAX || u32::from(pages) > PAYLOAD_PAGES_MAX {
            return None;
        }
        let head = reader.bytes(head_len)?;
        reader.bytes(head_len.next_multiple_of(4) - head_len)?;
        let sums = reader.bytes(usize::from(pages) * 4)?;
        let view = Self {
            head,
            pages: pages.into(),
            sums,
            page,
        };
        Some((view, reader.0))
    }

    /// The checksum of each page.
    pub(crate) fn sums(&self) -> impl Iterator<Item = u32> + 'a {
        let sums = self.sums.as_chunks::<4>().0.iter();
        sums.map(|sum| u32::from_le_bytes(*sum))
    }
}

/// Bytes of a record in the header.
pub(crate) fn record_len(head_len: usize, pages: u32) -> usize {
    RECORD_LEN + head_len.next_multiple_of(4) + 4 * pages as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u32 = 77;
    const PLACE: Place = Place {
        extent: ExtentId(1 << 40),
        stream: StreamId(2),
        number: 3,
        page: 4,
    };

    /// A header of two records: "head" with two pages, and one without either.
    fn sample() -> (FrameHeader, Vec<u8>) {
        let used = FIXED_LEN + record_len(4, 2) + record_len(0, 0);
        let header = FrameHeader {
            place: PLACE,
            epoch: Epoch(5),
            header_pages: 1,
            pages: 3,
            durable: 4,
            previous: NO_PREVIOUS,
            count: 2,
            used: used as u32,
        };
        let mut bytes = vec![0; PAGE];
        Emitter::new(&mut bytes[FIXED_LEN..])
            .u16(4)
            .u16(2)
            .bytes(b"head")
            .u32(11)
            .u32(12)
            .u16(0)
            .u16(0);
        header.emit(SEED, &mut bytes);
        (header, bytes)
    }

    fn parse(bytes: &[u8], place: Place) -> Result<FrameHeader, FormatError> {
        let header = FrameHeader::peek(bytes, place)?;
        header.check(SEED, bytes)?;
        Ok(header)
    }

    #[test]
    fn a_header_comes_back_with_its_records() {
        let (header, bytes) = sample();
        assert_eq!(parse(&bytes, PLACE), Ok(header));
        let records: Result<Vec<_>, _> = header.records(&bytes).collect();
        let records = records.expect("it was checked");
        assert_eq!(records[0].head, b"head");
        assert_eq!(records[0].sums().collect::<Vec<_>>(), [11, 12]);
        assert_eq!((records[0].page, records[0].pages), (1, 2));
        assert_eq!((records[1].page, records[1].pages), (3, 0));
    }

    #[test]
    fn no_flipped_bit_and_no_other_place_passes() {
        let (_, bytes) = sample();
        for bit in 0..PAGE * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&flipped, PLACE).is_err(), "bit {bit}");
        }
        for other in [
            Place {
                extent: ExtentId(1),
                ..PLACE
            },
            Place {
                stream: StreamId(1),
                ..PLACE
            },
            Place { number: 1, ..PLACE },
            Place { page: 5, ..PLACE },
        ] {
            let misplaced = FormatError::Misplaced { what: WHAT };
            assert_eq!(parse(&bytes, other), Err(misplaced));
        }
        assert!(FrameHeader::peek(&bytes[..63], PLACE).is_err());
    }

    #[test]
    fn records_that_do_not_add_up_are_refused_whatever_the_checksum_says() {
        let (header, bytes) = sample();
        for wrong in [
            FrameHeader { pages: 4, ..header },
            FrameHeader { count: 3, ..header },
            FrameHeader {
                used: header.used - 4,
                ..header
            },
            FrameHeader {
                used: header.used + 4,
                ..header
            },
            FrameHeader {
                used: header.used - 1,
                ..header
            },
        ] {
            let mut bytes = bytes.clone();
            wrong.emit(SEED, &mut bytes);
            assert!(parse(&bytes, PLACE).is_err(), "{wrong:?}");
        }
    }
}
