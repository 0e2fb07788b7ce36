//! The circular log: entries one behind the other, the oldest overwritten by the newest.
//!
//! Offsets count units of 8 bytes since the log's first entry and never wrap
//! (2^64 units are 140 exabytes). An offset is in the log iff it is at least
//! `tail` and below `head`. The tail goes from entry to entry, ahead of what
//! the head is about to overwrite, and reports each one as it leaves.

#![forbid(unsafe_code)]

use std::hint::select_unpredictable;
use std::ops::Range;

use super::arena::{LINE_BYTES, Span};
use super::entry::{HEADER_BYTES, HEADER_UNITS, Header, UNIT_BYTES};
use crate::bytes::{copy, same};
use verbs::mem::prefetch;

/// Bytes of the usual key.
const SHORT: usize = 16;

/// A value in up to three pieces, so that an item can grow without a copy
/// outside the log.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pieces<'a> {
    pub(crate) before: &'a [u8],
    /// Offset of the entry whose value comes in the middle.
    pub(crate) kept: Option<u64>,
    pub(crate) after: &'a [u8],
}

/// An entry that was looked up.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) offset: u64,
    /// Where it begins, until it leaves the log.
    at: usize,
    pub(crate) header: Header,
}

pub(crate) struct Log {
    bytes: Span<u8>,
    units: u64,
    /// Offset of the next entry.
    head: u64,
    /// Offset of the oldest entry.
    tail: u64,
    /// Offset of the log's first byte in the current lap.
    lap: u64,
    wraps: u64,
}

impl Log {
    /// An empty log over `bytes` whose first entry gets the offset `first`.
    pub(crate) fn new(bytes: Span<u8>, first: u64) -> Log {
        let units = (bytes.len() / UNIT_BYTES) as u64;
        Log {
            bytes,
            units,
            head: first,
            tail: first,
            lap: first,
            wraps: 0,
        }
    }

    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    #[inline]
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// How often the head has gone back to the log's first byte.
    pub(crate) fn wraps(&self) -> u64 {
        self.wraps
    }

    /// Most units one entry may take: a quarter of the log, so that a pad wastes
    /// less than that and the tail stays behind the head.
    pub(crate) fn entry_units_max(&self) -> u64 {
        self.units / 4
    }

    #[inline]
    pub(crate) fn header(&self, offset: u64) -> Header {
        let at = self.position(offset);
        let bytes = self.bytes[at..].first_chunk();
        Header::parse(bytes.expect("an entry's header is in the log"))
    }

    #[inline]
    pub(crate) fn set_header(&mut self, offset: u64, header: Header) {
        let at = self.position(offset);
        self.write(at, &header.emit());
    }

    /// The live entry at `offset` if its key is `key`.
    #[inline(always)]
    pub(crate) fn entry_if_key(&self, offset: u64, key: &[u8]) -> Option<Found> {
        let at = self.position(offset);
        let entry = &self.bytes[at..];
        let found = |header| Found { offset, at, header };
        // The usual key: both are compared as a whole.
        if let Ok(short) = <&[u8; SHORT]>::try_from(key) {
            let start = entry.first_chunk::<{ HEADER_BYTES + SHORT }>()?;
            let (header, of_entry) = start.split_first_chunk().expect("the header comes first");
            let header = Header::parse(header);
            return (header.is_live_of(SHORT) && *of_entry == *short).then_some(found(header));
        }
        let (header, rest) = entry
            .split_first_chunk()
            .expect("an entry's header is in the log");
        let header = Header::parse(header);
        let same = header.is_live_of(key.len()) && same(&rest[..key.len()], key);
        same.then_some(found(header))
    }

    /// The value of an entry.
    #[inline]
    pub(crate) fn value(&self, found: Found) -> &[u8] {
        let header = found.header;
        &self.bytes[found.at..][HEADER_BYTES + header.key_len()..][..header.value_len()]
    }

    /// Starts loading the entry's first line, and its second unless it begins a
    /// line: then header, key and a short value are all in the first, and a
    /// second one would only take a place among the loads under way.
    #[inline]
    pub(crate) fn prefetch(&self, offset: u64) {
        let at = self.position(offset);
        // Nothing is read, so that no bound needs a check.
        let first = self.bytes.as_ptr().wrapping_add(at);
        prefetch(first);
        if !at.is_multiple_of(LINE_BYTES) {
            prefetch(first.wrapping_add(LINE_BYTES));
        }
    }

    /// Appends an entry of `header.units()`, at most `entry_units_max`, and
    /// returns its offset. `gone` hears of each entry that makes way for it.
    ///
    /// The entry named by `pieces.kept` may be among those: its bytes are moved
    /// before anything is overwritten.
    pub(crate) fn append(
        &mut self,
        header: Header,
        key: &[u8],
        pieces: Pieces<'_>,
        mut gone: impl FnMut(u64, Header),
    ) -> u64 {
        let units = header.units();
        debug_assert!(units <= self.entry_units_max());
        let kept = self.kept_range(pieces);
        let lap_end = self.lap + self.units;
        let left = lap_end - self.head;
        let pad = if left < units { left } else { 0 };
        let offset = self.head + pad;
        self.advance_tail(offset + units, &mut gone);

        let pad_at = self.position_in_lap(self.head);
        if offset == lap_end {
            self.lap = lap_end;
            self.wraps += 1;
        }
        self.head = offset + units;
        let at = self.position(offset);
        self.move_kept(at, key.len(), pieces, kept);
        if pad >= HEADER_UNITS {
            self.write(pad_at, &Header::pad(pad).emit());
        }
        self.write_entry(at, header, key, pieces);
        offset
    }

    /// Overwrites the entry at `offset` by one that takes as many units.
    pub(crate) fn rewrite(&mut self, offset: u64, header: Header, key: &[u8], pieces: Pieces<'_>) {
        debug_assert_eq!(self.header(offset).units(), header.units());
        let kept = self.kept_range(pieces);
        let at = self.position(offset);
        self.move_kept(at, key.len(), pieces, kept);
        self.write_entry(at, header, key, pieces);
    }

    /// Overwrites header and value of an entry; the new value is as long.
    #[inline(always)]
    pub(crate) fn overwrite(&mut self, old: Found, header: Header, value: &[u8]) {
        debug_assert_eq!(old.header.value_len(), value.len());
        let entry = &mut self.bytes[old.at..];
        let (header_to, rest) = entry
            .split_first_chunk_mut()
            .expect("an entry's header is in the log");
        *header_to = header.emit();
        copy(&mut rest[header.key_len()..][..value.len()], value);
    }

    /// Visits all entries but pads, from the oldest to the newest.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(u64, Header)) {
        let mut offset = self.tail;
        while offset < self.head {
            let (entry, units) = self.step(offset);
            if let Some(header) = entry {
                visit(offset, header);
            }
            offset += units;
        }
    }

    /// Lets entries leave until `end` is at most a whole log ahead of the tail.
    fn advance_tail(&mut self, end: u64, gone: &mut impl FnMut(u64, Header)) {
        while end - self.tail > self.units {
            let (entry, units) = self.step(self.tail);
            if let Some(header) = entry {
                gone(self.tail, header);
            }
            self.tail += units;
        }
        debug_assert!(self.tail <= self.head);
    }

    /// The entry at `offset`, unless it is a pad, and the units it takes. What
    /// is too short for a header at a lap's end is a pad without one.
    fn step(&self, offset: u64) -> (Option<Header>, u64) {
        let lap_end = if offset >= self.lap {
            self.lap + self.units
        } else {
            self.lap
        };
        let left = lap_end - offset;
        if left < HEADER_UNITS {
            return (None, left);
        }
        let header = self.header(offset);
        assert!(
            (1..=left).contains(&header.units()),
            "an entry crosses the end of the log"
        );
        ((!header.is_pad()).then_some(header), header.units())
    }

    /// Index of the byte at `offset`, which is in the log.
    ///
    /// Which lap an item of a full log was written in is as good as random, so
    /// it is selected and not branched upon.
    #[inline]
    fn position(&self, offset: u64) -> usize {
        let lap_before = select_unpredictable(offset < self.lap, self.units, 0);
        let unit = offset.wrapping_sub(self.lap).wrapping_add(lap_before);
        unit as usize * UNIT_BYTES
    }

    #[inline]
    fn position_in_lap(&self, offset: u64) -> usize {
        (offset - self.lap) as usize * UNIT_BYTES
    }

    #[inline]
    fn value_range(&self, offset: u64, header: Header) -> Range<usize> {
        let start = self.position(offset) + HEADER_BYTES + header.key_len();
        start..start + header.value_len()
    }

    fn kept_range(&self, pieces: Pieces<'_>) -> Range<usize> {
        pieces
            .kept
            .map_or(0..0, |offset| self.value_range(offset, self.header(offset)))
    }

    fn move_kept(&mut self, at: usize, key_len: usize, pieces: Pieces<'_>, kept: Range<usize>) {
        if !kept.is_empty() {
            let to = at + HEADER_BYTES + key_len + pieces.before.len();
            self.bytes.copy_within(kept, to);
        }
    }

    #[inline]
    fn write_entry(&mut self, at: usize, header: Header, key: &[u8], pieces: Pieces<'_>) {
        self.write(at, &header.emit());
        self.write(at + HEADER_BYTES, key);
        let value = at + HEADER_BYTES + key.len();
        self.write(value, pieces.before);
        if !pieces.after.is_empty() {
            self.write(
                value + header.value_len() - pieces.after.len(),
                pieces.after,
            );
        }
    }

    #[inline]
    fn write(&mut self, at: usize, bytes: &[u8]) {
        copy(&mut self.bytes[at..][..bytes.len()], bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mica::arena::{Arena, PagePolicy};
    use crate::mica::entry::entry_units;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const GUARD: u8 = 0xa5;

    struct Guarded {
        before: Span<u8>,
        log: Log,
        after: Span<u8>,
    }

    impl Guarded {
        fn new(log_bytes: usize, first: u64) -> Guarded {
            let mut arena = Arena::new(log_bytes + 8192, PagePolicy::Plain).unwrap();
            let mut before = arena.carve(64);
            let log = Log::new(arena.carve(log_bytes), first);
            let mut after = arena.carve(4096);
            before.fill(GUARD);
            after.fill(GUARD);
            Guarded { before, log, after }
        }

        fn check_guards(&self) {
            let mut guards = self.before.iter().chain(self.after.iter());
            assert!(guards.all(|byte| *byte == GUARD), "written past an end");
        }
    }

    fn live(key: &[u8], value_len: usize) -> Header {
        Header::new(key.len(), value_len, 0, 0, 1)
    }

    /// Appends entries of all `sizes` in turn, for dozens of laps, and compares
    /// the log with a queue.
    fn run_laps(log_bytes: usize, first: u64, sizes: &[usize]) {
        let mut guarded = Guarded::new(log_bytes, first);
        let log = &mut guarded.log;
        let mut queue = VecDeque::<(u64, [u8; 4], Vec<u8>)>::new();
        let mut count = 0_u32;
        while log.wraps() < 36 {
            let key = count.to_le_bytes();
            let size = sizes[count as usize % sizes.len()];
            let value: Vec<u8> = (0..size).map(|i| (count as usize * 7 + i) as u8).collect();
            let pieces = Pieces {
                before: &value,
                ..Pieces::default()
            };
            let mut gone = Vec::new();
            let offset = log.append(live(&key, size), &key, pieces, |offset, header| {
                gone.push((offset, header.value_len()));
            });
            for (offset, value_len) in gone {
                let (oldest, _, value) = queue.pop_front().unwrap();
                assert_eq!((oldest, value.len()), (offset, value_len));
            }
            queue.push_back((offset, key, value));
            assert!(log.head() - log.tail() <= log.units());
            for (offset, key, value) in &queue {
                let found = log.entry_if_key(*offset, key).expect("an entry is lost");
                assert_eq!(log.value(found), value);
            }
            let mut walked = Vec::new();
            log.for_each(|offset, _| walked.push(offset));
            assert!(walked.iter().eq(queue.iter().map(|(offset, ..)| offset)));
            count += 1;
        }
        guarded.check_guards();
    }

    #[test]
    fn wraps_many_laps_with_every_size() {
        for log_bytes in [512, 520, 568, 1024] {
            for size in 0..=log_bytes / 4 - HEADER_BYTES - 4 - 7 {
                run_laps(log_bytes, 0, &[size]);
            }
        }
    }

    #[test]
    fn wraps_where_a_slot_has_no_more_bits_for_an_offset() {
        run_laps(1024, (1 << 48) - 300, &[0, 13, 32, 200]);
    }

    #[test]
    fn leaves_no_waste_but_pads() {
        // Entries of a line in a log of whole lines need none.
        let mut guarded = Guarded::new(1024, 0);
        for _ in 0..100 {
            let value = [1; 32];
            let pieces = Pieces {
                before: &value,
                ..Pieces::default()
            };
            guarded
                .log
                .append(live(&[7; 16], 32), &[7; 16], pieces, |_, _| {});
        }
        assert_eq!(guarded.log.head(), 800);
        assert_eq!(guarded.log.head() - guarded.log.tail(), 128);
    }

    proptest! {
        #[test]
        fn wraps_many_laps_with_mixed_sizes(
            lines in 16_usize..40,
            first in prop_oneof![Just(0_u64), 0..u64::from(u32::MAX)],
            sizes in prop::collection::vec(0_usize..230, 1..20),
        ) {
            run_laps(lines * 64, first, &sizes);
        }

        /// An entry that grows from its own predecessor, wherever both lie.
        #[test]
        fn keeps_a_value_that_is_about_to_be_overwritten(
            log_bytes in (64_usize..200).prop_map(|units| units * 8),
            fillers in prop::collection::vec((0_usize..100, 0_usize..30), 1..60),
        ) {
            let mut guarded = Guarded::new(log_bytes, 0);
            let log = &mut guarded.log;
            let mut value = b"seed".to_vec();
            let pieces = Pieces { before: &value, ..Pieces::default() };
            let mut offset = log.append(live(b"key", 4), b"key", pieces, |_, _| {});
            for (filler, growth) in fillers {
                let filler = filler.min(log_bytes / 4 - 40);
                let bytes = vec![0xee; filler];
                let pieces = Pieces { before: &bytes, ..Pieces::default() };
                // Up to where the entry is the oldest one; a pad may be too much.
                let mut lost = false;
                while !lost && log.head() + entry_units(1, filler) - offset <= log.units() {
                    log.append(live(b"f", filler), b"f", pieces, |gone, _| lost |= gone == offset);
                }
                if lost {
                    value.clear();
                }
                let mut new = vec![growth as u8; growth];
                if entry_units(3, value.len() + 2 * growth) > log.entry_units_max() {
                    value.clear();
                    new.clear();
                }
                let kept = (!value.is_empty()).then_some(offset);
                let header = live(b"key", value.len() + 2 * new.len());
                let pieces = Pieces { before: &new, kept, after: &new };
                offset = log.append(header, b"key", pieces, |_, _| {});
                value = [&new[..], &value, &new].concat();
                let found = log.entry_if_key(offset, b"key").unwrap();
                prop_assert_eq!(log.value(found), &value);
            }
            guarded.check_guards();
        }
    }
}
