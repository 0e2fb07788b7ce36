//! The header of a segment, which stands in its first block and in its last one.
//!
//! ```text
//!  0       4     8          24         32        36     37      38   40
//!  +-------+-----+----------+----------+---------+------+-------+----+
//!  | magic | crc | store id | sequence | segment | kind | state | 0  |
//!  +-------+-----+----------+----------+---------+------+-------+----+
//!  40    44        48        52   56    64                80                 88
//!  +-----+---------+---------+----+-----+-----------------+------------------+
//!  | end | batches | records | 0  | sum | settled: user's | settled: user's  |
//!  |     |         |         |    |     | sequence, moved | block, moved     |
//!  +-----+---------+---------+----+-----+-----------------+------------------+
//! ```
//!
//! Every segment has one at any time, a free one too: that a segment is free is written down and never
//! concluded from something missing. Of the two copies the newer one counts, first by the sequence number,
//! then by the state: a segment is opened, closed and freed under one sequence number. The copies are
//! written one after the other, so a write that is cut short leaves the other one.
//!
//! `end`, `batches`, `records` and `sum` describe a closed segment: the block behind its last batch, how
//! many batches and records it holds, and a sum over the batches' checksums. `settled` says, for what
//! users wrote and for what was moved, up to which block of which segment everything had been durably
//! written when this header was composed.

use block::crc32c;

use super::{Emitter, FormatError, Reader, mix};

/// The length of a header; the rest of its block is zeroes.
pub const SEGMENT_HEADER_LEN: usize = 88;

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

impl Kind {
    pub(crate) fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::User,
            2 => Self::Moved,
            3 => Self::Index,
            _ => return None,
        })
    }
}

/// What a segment is used for. Under one sequence number, a later state is a greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentState {
    /// Batches may have been written to it.
    Open = 1,
    /// No further batch will be, and [`Contents`] says what it holds.
    Closed = 2,
    /// What it held under this sequence number does not count any more.
    Free = 3,
}

/// What a closed segment holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The block behind the last batch.
    pub end: u32,
    /// How many batches there are.
    pub batches: u32,
    /// How many records they hold.
    pub records: u32,
    /// A sum over the checksums of the batches' headers, whatever their order.
    pub sum: u64,
}

impl Contents {
    /// Counts a batch that ends before the block `end`, and whose header has the checksum `crc`.
    pub fn add(&mut self, end: u32, crc: u32, records: u32) {
        self.end = self.end.max(end);
        self.batches = self.batches.saturating_add(1);
        self.records = self.records.saturating_add(records);
        self.sum = self.sum.wrapping_add(batch_sum(end, crc));
    }
}

/// What a batch adds to the sum over a segment's batches.
pub(crate) fn batch_sum(end: u32, crc: u32) -> u64 {
    mix(u64::from(end) << 32 | u64::from(crc))
}

/// A position in the log: everything before it in its segment had been durably written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Settled {
    /// The sequence number of the segment; 0 for none.
    pub seq: u64,
    /// The block in it.
    pub block: u32,
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Of the store.
    pub store: u128,
    /// One more than that of the segment opened before: no two segments ever had the same. 0 if the
    /// segment was never opened.
    pub seq: u64,
    /// Which segment of the device this is.
    pub segment: u32,
    /// What it holds.
    pub kind: Kind,
    /// What it is used for.
    pub state: SegmentState,
    /// What is in it, if it is closed.
    pub contents: Contents,
    /// How far users' writes had got.
    pub user: Settled,
    /// How far moving had got.
    pub moved: Settled,
}

impl SegmentHeader {
    /// The header of a segment that was never used.
    pub fn unused(store: u128, segment: u32) -> Self {
        Self {
            store,
            seq: 0,
            segment,
            kind: Kind::User,
            state: SegmentState::Free,
            contents: Contents::default(),
            user: Settled::default(),
            moved: Settled::default(),
        }
    }

    /// Of two headers of a segment, the one with the greater age was written later.
    pub fn age(&self) -> (u64, SegmentState) {
        (self.seq, self.state)
    }

    /// Writes the header.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than [`SEGMENT_HEADER_LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let out: &mut [u8; SEGMENT_HEADER_LEN] = out.first_chunk_mut().expect("room for a header");
        Emitter::new(out)
            .u32(MAGIC)
            .u32(0)
            .bytes(&self.store.to_le_bytes())
            .u64(self.seq)
            .u32(self.segment)
            .bytes(&[self.kind as u8, self.state as u8, 0, 0])
            .u32(self.contents.end)
            .u32(self.contents.batches)
            .u32(self.contents.records)
            .u32(0)
            .u64(self.contents.sum)
            .u64(self.user.seq)
            .u64(self.moved.seq)
            .u32(self.user.block)
            .u32(self.moved.block);
        let crc = crc32c::checksum(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads the header of `segment` of `store`, whose sequence numbers are below `seq_end`.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if there is no header of this segment.
    pub fn parse(
        bytes: &[u8],
        store: u128,
        segment: u32,
        seq_end: u64,
    ) -> Result<Self, FormatError> {
        let bytes: &[u8; SEGMENT_HEADER_LEN] = bytes
            .first_chunk()
            .ok_or(FormatError::Short { what: WHAT })?;
        let mut reader = Reader(bytes);
        let foreign = FormatError::Foreign { what: WHAT };
        let field = |field| FormatError::Field { what: WHAT, field };
        if reader.u32() != Some(MAGIC) {
            return Err(foreign);
        }
        if reader.u32() != Some(crc32c::checksum(&bytes[8..])) {
            return Err(FormatError::Checksum { what: WHAT });
        }
        let mut word = || reader.u32().unwrap_or(0);
        let mut long = || u64::from(word()) | u64::from(word()) << 32;
        let found = u128::from(long()) | u128::from(long()) << 64;
        let seq = long();
        if found != store || word() != segment {
            return Err(foreign);
        }
        let [kind, state, _, _] = word().to_le_bytes();
        let mut contents = Contents {
            end: word(),
            batches: word(),
            records: word(),
            sum: 0,
        };
        word();
        let mut long = || u64::from(word()) | u64::from(word()) << 32;
        contents.sum = long();
        let seqs = [long(), long()];
        let [user, moved] = seqs.map(|seq| Settled { seq, block: word() });
        if seq.max(user.seq).max(moved.seq) >= seq_end {
            return Err(field("the sequence number"));
        }
        let state = match state {
            1 => SegmentState::Open,
            2 => SegmentState::Closed,
            3 => SegmentState::Free,
            _ => return Err(field("the state")),
        };
        if seq == 0 && state != SegmentState::Free {
            return Err(field("the sequence number"));
        }
        Ok(Self {
            store,
            seq,
            segment,
            kind: Kind::parse(kind).ok_or(field("the kind"))?,
            state,
            contents,
            user,
            moved,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u64 = 1 << 40;

    fn header() -> SegmentHeader {
        SegmentHeader {
            store: 5 << 100 | 3,
            seq: 77,
            segment: 4,
            kind: Kind::Moved,
            state: SegmentState::Closed,
            contents: Contents {
                end: 90,
                batches: 8,
                records: 70,
                sum: 1 << 60 | 5,
            },
            user: Settled { seq: 78, block: 6 },
            moved: Settled { seq: 77, block: 9 },
        }
    }

    #[test]
    fn a_header_comes_back_to_its_store_and_segment() {
        let header = header();
        let mut bytes = [0; 512];
        header.emit(&mut bytes);
        let parse = |bytes: &[u8], store, segment| SegmentHeader::parse(bytes, store, segment, END);
        assert_eq!(parse(&bytes, header.store, 4), Ok(header));
        assert!(parse(&bytes, 3, 4).is_err());
        assert!(parse(&bytes, header.store, 5).is_err());
        for bit in 0..SEGMENT_HEADER_LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&flipped, header.store, 4).is_err());
        }
    }

    #[test]
    fn a_sequence_number_without_a_next_one_is_none() {
        for (seq, settled, is_right) in [
            (END - 1, END - 1, true),
            (END, 1, false),
            (1, u64::MAX, false),
            (0, 1, false),
        ] {
            let mut header = header();
            header.seq = seq;
            header.user.seq = settled;
            let mut bytes = [0; SEGMENT_HEADER_LEN];
            header.emit(&mut bytes);
            let parsed = SegmentHeader::parse(&bytes, header.store, 4, END);
            assert_eq!(parsed.is_ok(), is_right);
        }
    }

    #[test]
    fn a_segment_is_opened_then_closed_then_freed() {
        let of = |seq, state| {
            SegmentHeader {
                seq,
                state,
                ..header()
            }
            .age()
        };
        assert!(of(1, SegmentState::Open) < of(1, SegmentState::Closed));
        assert!(of(1, SegmentState::Closed) < of(1, SegmentState::Free));
        assert!(of(1, SegmentState::Free) < of(2, SegmentState::Open));
    }

    #[test]
    fn what_a_segment_holds_does_not_depend_on_the_order_of_its_batches() {
        let batches = [(5, 99, 3), (9, 12, 1), (30, 7, 8)];
        let sum = |order: [usize; 3]| {
            let mut contents = Contents::default();
            for (end, crc, records) in order.map(|i| batches[i]) {
                contents.add(end, crc, records);
            }
            contents
        };
        assert_eq!(sum([0, 1, 2]), sum([2, 0, 1]));
        assert_eq!(sum([0, 1, 2]).end, 30);
        assert_eq!((sum([0, 1, 2]).batches, sum([0, 1, 2]).records), (3, 12));
    }
}
