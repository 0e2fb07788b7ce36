//! A region: lines of entries behind one lock, with two lines for each entry to lie in.
//!
//! ```text
//!  header                                          lines (1024 of 64 bytes)
//! +---------------+---------+------+              +---+---+---+---+---+---+---+---+
//! | version    55 | level 8 | lock |            0 | e |   | e | e |   |   |   | e |
//! +---------------+---------+------+              +---+---+---+---+---+---+---+---+
//! | entries    32 | stale marks 32 |            1 | e | e | e | e | e | e | e | e |
//! +---------------+----------------+              :
//! ```
//!
//! Who changes a region holds its lock. Who reads takes none: an entry is one word. Only an entry
//! that is moved could be missed, by a reader who looks at its new slot before it is there and at the old
//! one when it has gone. So the version is counted up between the two, and the reader looks again:
//!
//! ```text
//!  mover                          reader
//!  new slot <- entry              version ->
//!  version  <- version + 1        both lines ->
//!  old slot <- another, or none   version -> not the same: again
//! ```

use super::entry::{self, EMPTY};
use super::prefetch::prefetch;
use super::slots::Slots;
use super::sync::{AtomicU32, AtomicU64, Ordering, Wait, fence, load_locked};

/// Entries in a line: a cache line.
pub(super) const SLOTS: usize = if cfg!(loom) { 2 } else { 8 };
/// Lines of a region at most: 8192 entries.
pub(super) const LINES_MAX: u32 = 1 << entry::LINE_BITS;
/// As long as the first line has so many empty slots, an entry goes there; then to the emptier one. More
/// would spread entries better and send more lookups to the second line.
pub(super) const SPARE: u32 = if cfg!(loom) { 1 } else { 3 };

/// The smallest page of memory.
const PAGE: usize = 4096;

const LOCKED: u64 = 1;
const LEVEL_SHIFT: u32 = 1;
const LEVEL_MASK: u64 = 0xff << LEVEL_SHIFT;
const VERSION_ONE: u64 = 1 << 9;

/// A cache line of entries.
#[repr(align(64))]
#[derive(Default)]
pub(super) struct Line(pub(super) [AtomicU64; SLOTS]);

/// What guards a region.
#[repr(align(16))]
#[derive(Default)]
pub(super) struct Header {
    word: AtomicU64,
    /// Entries in it; changed under the lock.
    len: AtomicU32,
    /// Entries that have left their second line since marks were last set anew; as above.
    stale: AtomicU32,
}

/// What a header said at a moment: whether it says the same later tells whether an entry has moved.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Word(u64);

impl Word {
    /// For how many regions of its shard a region has given away what is not its own.
    #[inline]
    pub(super) fn level(self) -> u32 {
        ((self.0 & LEVEL_MASK) >> LEVEL_SHIFT) as u32
    }
}

impl Header {
    #[inline]
    pub(super) fn read(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    /// Whether nothing has moved since the word was read. What was loaded in between counts only then.
    #[inline]
    pub(super) fn still(&self, word: Word) -> bool {
        // Pairs with the release of a slot that has lost its entry: who has seen that sees the version.
        fence(Ordering::Acquire);
        (self.word.load(Ordering::Relaxed) ^ word.0) & !LOCKED == 0
    }

    /// Entries in the region.
    pub(super) fn len(&self) -> u32 {
        self.len.load(Ordering::Relaxed)
    }

    /// Says for how many regions a new region has what is its own; nobody knows the region yet.
    pub(super) fn begin(&self, level: u32) {
        self.word
            .store(u64::from(level) << LEVEL_SHIFT, Ordering::Release);
    }
}

/// A region and its header.
#[derive(Clone, Copy)]
pub(super) struct Region<'a> {
    pub(super) header: &'a Header,
    pub(super) lines: &'a [Line],
}

impl<'a> Region<'a> {
    /// Writes to each page of its lines, of which nobody knows yet.
    #[cold]
    pub(super) fn touch(self) {
        for line in self.lines.iter().step_by(PAGE / size_of::<Line>()) {
            line.0[0].store(EMPTY, Ordering::Relaxed);
        }
    }

    /// Waits for the lock. Whoever holds two takes that of the region with the smaller number first.
    #[inline]
    pub(super) fn lock(self) -> Guard<'a> {
        let word = &self.header.word;
        let mut wait = Wait::default();
        loop {
            let now = word.load(Ordering::Relaxed);
            if now & LOCKED == 0
                && word
                    .compare_exchange_weak(now, now | LOCKED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return Guard {
                    region: self,
                    word: now,
                    len: self.header.len(),
                };
            }
            wait.pause();
        }
    }
}

/// The right to change a region.
pub(super) struct Guard<'a> {
    region: Region<'a>,
    /// The word to leave behind.
    word: u64,
    len: u32,
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.region.header.len.store(self.len, Ordering::Relaxed);
        self.region.header.word.store(self.word, Ordering::Release);
    }
}

impl Guard<'_> {
    /// For how many regions of its shard it has given away what is not its own.
    #[inline]
    pub(super) fn level(&self) -> u32 {
        Word(self.word).level()
    }

    /// Entries in it.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Lines in it.
    pub(super) fn lines(&self) -> usize {
        self.region.lines.len()
    }

    /// Slots in it.
    pub(super) fn slots(&self) -> usize {
        self.region.lines.len() * SLOTS
    }

    /// What is in a slot, counted through all lines.
    #[inline]
    pub(super) fn slot(&self, slot: usize) -> u64 {
        self.load(slot / SLOTS, slot % SLOTS)
    }

    /// Puts an entry into a slot that is known to be empty.
    pub(super) fn fill(&mut self, slot: usize, entry: u64) {
        debug_assert!(self.slot(slot) == EMPTY && entry != EMPTY);
        self.store(slot / SLOTS, slot % SLOTS, entry);
        self.len += 1;
    }

    /// Puts an entry, as it is in its first line, into one of its two lines; moves others where both
    /// are full. Says whether there was room.
    #[inline(always)]
    pub(super) fn place(&mut self, first: u32, entry: u64) -> bool {
        let empty = self.empty(first as usize);
        let second = entry::other_line(first, entry, self.line_mask());
        let is_first = empty.are_at_least(SPARE) || {
            let count = empty.count();
            count > 0 && count >= self.empty(second as usize).count()
        };
        if let Some(slot) = empty.first().filter(|_| is_first) {
            self.store(first as usize, slot, entry);
        } else if let Some(slot) = self.empty(second as usize).first() {
            self.mark(first as usize, entry);
            self.store(second as usize, slot, entry::turned(entry));
        } else if !self.displace([first, second], entry) {
            return false;
        }
        self.len += 1;
        true
    }

    /// Where an entry is: its line and slot.
    #[inline]
    pub(super) fn find(&self, first: u32, entry: u64) -> Option<(usize, usize)> {
        if let Some(slot) = self.position(first as usize, entry) {
            return Some((first as usize, slot));
        }
        let second = entry::other_line(first, entry, self.line_mask()) as usize;
        Some((second, self.position(second, entry::turned(entry))?))
    }

    /// Puts another place into an entry.
    #[inline]
    pub(super) fn overwrite(&mut self, (line, slot): (usize, usize), entry: u64) {
        let is_away = entry::is_away(self.load(line, slot));
        self.store(
            line,
            slot,
            if is_away { entry::turned(entry) } else { entry },
        );
    }

    /// Empties a slot that is full.
    #[inline]
    pub(super) fn clear(&mut self, (line, slot): (usize, usize)) {
        if entry::is_away(self.load(line, slot)) {
            self.add_stale(1);
        }
        self.store(line, slot, EMPTY);
        self.len -= 1;
    }

    /// The first line of an entry in a line, and the entry as it is there.
    #[inline]
    pub(super) fn home(&self, line: u32, entry: u64) -> (u32, u64) {
        if entry::is_away(entry) {
            let first = entry::other_line(line, entry, self.line_mask());
            (first, entry::turned(entry))
        } else {
            (line, entry)
        }
    }

    /// The first line of the entry in a slot, and the entry as it is there.
    #[inline]
    pub(super) fn home_of(&self, slot: usize) -> (u32, u64) {
        self.home((slot / SLOTS) as u32, self.slot(slot))
    }

    /// Sets marks anew if so many entries have left their second line that lookups look there in vain.
    #[inline]
    pub(super) fn tidy(&mut self) {
        let lines = self.region.lines.len() as u32;
        if self.region.header.stale.load(Ordering::Relaxed) > lines / 4 {
            self.set_marks();
        }
    }

    /// Empties slots that are full, counted through all lines. Marks stay.
    pub(super) fn clear_all(&mut self, slots: &[u16]) {
        for &slot in slots {
            let slot = usize::from(slot);
            self.store(slot / SLOTS, slot % SLOTS, EMPTY);
        }
        self.len -= slots.len() as u32;
    }

    /// Adds the mark of an entry that is in its second line to those of its first one, if it is needed.
    #[inline(always)]
    pub(super) fn need_mark(&self, marks: &mut [Slots], line: u32, entry: u64, is_needed: bool) {
        let first = entry::other_line(line, entry, self.line_mask());
        marks[first as usize].add_if(entry::mark_slot(entry) as usize, is_needed);
    }

    /// Sets exactly the marks that are needed.
    #[cold]
    pub(super) fn set_marks(&mut self) {
        let mut marks = [Slots::default(); LINES_MAX as usize];
        for line in 0..self.lines() {
            for slot in 0..SLOTS {
                let entry = self.load(line, slot);
                self.need_mark(&mut marks, line as u32, entry, entry::is_away(entry));
            }
        }
        self.renew_marks(&marks);
    }

    /// Leaves exactly these marks.
    pub(super) fn renew_marks(&mut self, marks: &[Slots]) {
        for (line, &marks) in self.region.lines.iter().zip(marks) {
            for number in marks.differing(Slots::marked(line)) {
                let slot = &line.0[number];
                slot.store(load_locked(slot) ^ entry::MARK, Ordering::Release);
            }
        }
        self.region.header.stale.store(0, Ordering::Relaxed);
    }

    /// Tells readers that what they look for is elsewhere now: here, or in the regions of this level.
    /// Copies come before this, what is taken away comes after it.
    pub(super) fn moved(&mut self, level: u32) {
        self.word =
            (self.word & !LEVEL_MASK).wrapping_add(VERSION_ONE) | u64::from(level) << LEVEL_SHIFT;
        // Who reads this version finds the copies.
        self.region
            .header
            .word
            .store(self.word | LOCKED, Ordering::Release);
    }

    /// Whether both lines of an entry are full of others that can never be told from it.
    pub(super) fn is_hopeless(&self, first: u32, entry: u64) -> bool {
        let second = entry::other_line(first, entry, self.line_mask());
        [first as usize, second as usize].into_iter().all(|line| {
            (0..SLOTS).all(|slot| {
                let other = self.load(line, slot);
                other != EMPTY && entry::tag(other) == entry::tag(entry)
            })
        })
    }

    /// Says in the first line of an entry that it may lie in the second one.
    #[inline]
    pub(super) fn mark(&self, first: usize, entry: u64) {
        let slot = &self.region.lines[first].0[entry::mark_slot(entry) as usize];
        let now = load_locked(slot);
        if now & entry::MARK == 0 {
            slot.store(now | entry::MARK, Ordering::Release);
        }
    }

    /// Counts entries that have left their second line.
    pub(super) fn add_stale(&self, count: u32) {
        let stale = &self.region.header.stale;
        stale.store(stale.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// Starts to load a line.
    #[inline]
    pub(super) fn prefetch(&self, line: u32) {
        prefetch(&self.region.lines[line as usize]);
    }

    #[inline]
    pub(super) fn line_mask(&self) -> u32 {
        self.region.lines.len() as u32 - 1
    }

    /// The slot of a line with this entry.
    #[inline]
    pub(super) fn position(&self, line: usize, entry: u64) -> Option<usize> {
        Slots::with(&self.region.lines[line], entry).first()
    }

    /// The empty slots of a line.
    #[inline]
    pub(super) fn empty(&self, line: usize) -> Slots {
        Slots::empty(&self.region.lines[line])
    }

    #[inline]
    pub(super) fn load(&self, line: usize, slot: usize) -> u64 {
        load_locked(&self.region.lines[line].0[slot]) & !entry::MARK
    }

    #[inline]
    pub(super) fn store(&self, line: usize, slot: usize, entry: u64) {
        let slot = &self.region.lines[line].0[slot];
        // The mark is the line's and stays.
        let mark = load_locked(slot) & entry::MARK;
        // Who sees that the slot has lost its entry sees the version that came before.
        slot.store(entry | mark, Ordering::Release);
    }
}
