//! Lanes: how messages go from one queue pair to another.
//!
//! A lane is a ring of 64-byte lines in the receiver's inbox with one writer and one reader. A
//! message starts on a line of its own, so that a short one (up to 48 bytes) costs the two caches
//! exactly one line. A message is complete when its first word says so: the word carries the lap,
//! so the reader knows a new message from an old one without anybody clearing lines.
//!
//! Old payload could look like such a word. A line that held payload is therefore cleared by the
//! writer before the message in front of it is published; the writer remembers which lines those
//! are, and with short messages there are none.
//!
//! The writer learns how far the reader has come from a counter that the reader publishes now and
//! then, and looks at it only when the ring seems full.

use std::sync::Arc;

use verbs::mem;

use crate::shared::layout::{FAILS, Kind, LANE_LINES, LINE, Line, MESSAGE_HEADER_LEN, SOLICITED};
use crate::sync::{AtomicU64, Ordering};

const LINES: u64 = LANE_LINES as u64;

/// How often the reader publishes its position: every so many lines.
const PUBLISH_EVERY: u64 = LINES.div_ceil(16);

/// Lines that a reader asks for ahead of the message that it has found: they come from the writer's
/// cache, which takes as long as taking some messages.
const AHEAD: u64 = 6;

/// Bytes of payload in one message at most; longer SENDs go in pieces.
pub(crate) const PIECE_MAX: usize = 4096;

/// Messages of the greatest length that a lane holds, wherever they begin in it: one of them may be
/// too long for the lines before the lane's end, and a line stays free.
pub(crate) const LONGEST_IN_LANE: usize = {
    let lines = (MESSAGE_HEADER_LEN + PIECE_MAX).div_ceil(LINE);
    match LANE_LINES > 2 * lines {
        true => (LANE_LINES - lines) / lines,
        false => 1,
    }
};

/// Lines that a message with `len` payload bytes takes.
#[inline]
fn lines_of(len: usize) -> u64 {
    ((MESSAGE_HEADER_LEN + len).div_ceil(LINE)) as u64
}

/// A position's lap, never 0.
#[inline]
fn lap_of(position: u64) -> u16 {
    (position / LINES % 0xffff) as u16 + 1
}

#[inline]
fn word_of(kind: Kind, flags: u8, len: u32) -> u64 {
    u64::from(kind as u8) << 16 | u64::from(flags) << 24 | u64::from(len) << 32
}

/// The lane has no room for the message now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

/// What keeps a lane's memory mapped.
pub(crate) trait Keeps: Send + Sync {}
impl<T: Send + Sync> Keeps for T {}

/// The writing end.
pub(crate) struct Writer {
    lines: *const Line,
    consumed: *const AtomicU64,
    tip: Tip,
    consumed_seen: u64,
    /// For each line, whether it holds payload of the last lap.
    dirty: Box<[bool; LANE_LINES]>,
    _keeps: Arc<dyn Keeps>,
}

/// Where the next message goes. It is copied into the loop over several, which then keeps it in
/// registers.
#[derive(Clone, Copy, Debug)]
struct Tip {
    position: u64,
    /// The position's lap.
    lap: u16,
}

impl Tip {
    /// The number of the line at the position.
    #[inline(always)]
    fn index(self) -> usize {
        (self.position % LINES) as usize
    }

    /// Completes the message at the position and moves on. `word` is its first one without a lap.
    ///
    /// # Safety
    /// `lines` are those of the lane.
    #[inline(always)]
    unsafe fn publish(
        &mut self,
        lines: *const Line,
        dirty: &mut [bool; LANE_LINES],
        word: u64,
        count: u64,
    ) {
        let (first, next) = (self.index(), self.position + count);
        let after = (next % LINES) as usize;
        // A reader that comes to a line of payload must not take it for a header. The first line was
        // cleared before the message in front was published.
        debug_assert!(!dirty[first], "a line of payload before the message");
        if count > 1 {
            dirty[(first + 1) % LANE_LINES] = true;
        }
        if count > 2 {
            mark_dirty(dirty, first + 2, first + count as usize);
        }
        // SAFETY: both are below the number of lines.
        let (line, line_after) = unsafe { (&*lines.add(first), &*lines.add(after)) };
        if dirty[after] {
            dirty[after] = false;
            line_after.word.store(0, Ordering::Relaxed);
        }
        line.word
            .store(word | u64::from(self.lap), Ordering::Release);
        self.position = next;
        if after == 0 {
            self.lap = lap_of(next);
        }
    }
}

/// Notes lines of payload after a message's second one.
#[cold]
#[inline(never)]
fn mark_dirty(dirty: &mut [bool; LANE_LINES], from: usize, to: usize) {
    dirty[from..to].fill(true);
}

// SAFETY: the pointers lead to shared memory that `_keeps` keeps mapped; it is accessed through
// atomics and `verbs::mem` only.
unsafe impl Send for Writer {}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("position", &self.tip.position)
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// Starts writing a fresh lane.
    pub(crate) fn new(
        lines: &[Line; LANE_LINES],
        consumed: &AtomicU64,
        keeps: Arc<dyn Keeps>,
    ) -> Self {
        Writer {
            lines: lines.as_ptr(),
            consumed,
            tip: Tip {
                position: 0,
                lap: lap_of(0),
            },
            consumed_seen: 0,
            dirty: Box::new([false; LANE_LINES]),
            _keeps: keeps,
        }
    }

    /// Whether `lines` lines are free, as far as the reader was seen to have come.
    #[inline(always)]
    fn has_room(&self, lines: u64) -> bool {
        self.tip.position + lines - self.consumed_seen <= LINES
    }

    /// Has room for a message of so many lines, and one more, before the lane's end: looks at the
    /// reader's counter, and fills the lines up to the end with a pad.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, lines: u64) -> bool {
        // SAFETY: the counter stays mapped.
        let consumed = unsafe { &*self.consumed }.load(Ordering::Acquire);
        // The counter is the reader's word; one that cannot be is not believed.
        if consumed >= self.consumed_seen && consumed <= self.tip.position {
            self.consumed_seen = consumed;
        }
        let to_end = LINES - self.tip.index() as u64;
        let pad = if to_end < lines { to_end } else { 0 };
        let has_room = self.has_room(pad + lines + 1);
        if has_room && pad > 0 {
            self.publish(Kind::Pad, 0, pad as u32, pad);
        }
        has_room
    }

    /// Whether a message with so many bytes of payload finds room; then the next push does.
    #[inline(always)]
    pub(crate) fn finds_room(&mut self, len: usize) -> bool {
        debug_assert!(len <= PIECE_MAX);
        let lines = lines_of(len);
        // One line stays free, so that the lane can always be closed.
        let fits = self.tip.index() as u64 + lines <= LINES && self.has_room(lines + 1);
        fits || self.make_room(lines)
    }

    /// Writes one message. `fill` gets the place of its `len` payload bytes and must write all of
    /// them.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        kind: Kind,
        flags: u8,
        imm: u32,
        reported_len: u32,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<(), Full> {
        let lines = lines_of(len);
        if !self.finds_room(len) {
            return Err(Full);
        }
        let index = self.tip.index();
        debug_assert!(index as u64 + lines <= LINES, "inside the lane");
        // SAFETY: the index is below the number of lines.
        fill(unsafe { payload_at(self.lines, index) });
        // SAFETY: as above.
        unsafe { &*self.lines.add(index) }
            .imm
            .store(imm, Ordering::Relaxed);
        self.publish(kind, flags, reported_len, lines);
        Ok(())
    }

    /// Writes SENDs without immediate data one after the other, each with its flags, as far as there
    /// is room that was seen before. Returns the one for which there is none.
    #[inline(always)]
    pub(crate) fn push_sends<'b>(
        &mut self,
        messages: &mut impl Iterator<Item = (u8, &'b [u8])>,
    ) -> Option<(u8, &'b [u8])> {
        let (lines, dirty) = (self.lines, &mut *self.dirty);
        let mut tip = self.tip;
        // One line stays free, so that the lane can always be closed.
        let end = self.consumed_seen + LINES - 1;
        let unsent = loop {
            let (flags, bytes) = match messages.next() {
                Some(message) => message,
                None => break None,
            };
            let len = bytes.len();
            debug_assert!(len <= PIECE_MAX);
            let (index, count) = (tip.index(), lines_of(len));
            if index as u64 + count > LINES || tip.position + count > end {
                break Some((flags, bytes));
            }
            // SAFETY: the index is below the number of lines, and there are enough of them for the
            // bytes.
            unsafe {
                mem::put(payload_at(lines, index), bytes.as_ptr(), len);
                (*lines.add(index)).imm.store(0, Ordering::Relaxed);
                let word = word_of(Kind::Send, flags, len as u32);
                tip.publish(lines, dirty, word, count);
            }
        };
        self.tip = tip;
        unsent
    }

    /// Says that nothing more comes.
    pub(crate) fn close(&mut self, flags: u8) {
        self.publish(Kind::Close, flags, 0, 1);
    }

    /// Completes the message at the current position and moves on.
    #[inline(always)]
    fn publish(&mut self, kind: Kind, flags: u8, len: u32, lines: u64) {
        let word = word_of(kind, flags, len);
        // SAFETY: they are the lane's.
        unsafe {
            self.tip.publish(self.lines, &mut self.dirty, word, lines);
        }
    }
}

/// Where the payload of a message at a line begins.
///
/// # Safety
/// The index is below the number of lines, which stay mapped.
#[inline(always)]
unsafe fn payload_at(lines: *const Line, index: usize) -> *mut u8 {
    // SAFETY: the caller's promise. The payload may go on in the lines behind, so the pointer must
    // lead to the whole lane.
    let payload = unsafe { &raw const (*lines.add(index)).payload };
    payload.cast::<u8>().cast_mut()
}

/// A message, as found in a lane. `payload` leads to memory that the writer can still change:
/// whatever is copied out is not to be trusted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) len: u32,
    pub(crate) imm: u32,
    pub(crate) payload: *const u8,
    lines: u64,
}

impl Message {
    /// Whether it raises a solicited event. What fails counts as solicited.
    pub(crate) fn is_solicited(&self) -> bool {
        match self.kind {
            Kind::Send | Kind::WriteImm | Kind::SendEnd => self.flags & SOLICITED != 0,
            Kind::TooLong | Kind::BadRecv => true,
            Kind::Close => self.flags & FAILS != 0,
            Kind::Pad => false,
        }
    }
}

/// What the reader finds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// Nothing new.
    Nothing,
    /// A message, which stays until it is consumed.
    Message(Message),
    /// Bytes that no writer of ours would write.
    Garbage,
}

/// The reading end. It is copied into loops over several messages, which then keep it in registers.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    lines: *const Line,
    published: *const AtomicU64,
    position: u64,
    /// The position's lap.
    lap: u16,
    publish_at: u64,
}

// SAFETY: the pointers lead to the adapter's own segments, which the reader's holder keeps mapped;
// they are accessed through atomics and `verbs::mem` only.
unsafe impl Send for Reader {}

impl Reader {
    /// Starts reading a fresh lane. The caller keeps the adapter's segments mapped.
    pub(crate) fn new(lines: &[Line], published: &AtomicU64) -> Self {
        assert_eq!(lines.len(), LANE_LINES);
        Reader {
            lines: lines.as_ptr(),
            published,
            position: 0,
            lap: lap_of(0),
            publish_at: PUBLISH_EVERY,
        }
    }

    /// Looks at the next message. Costs one load when there is none.
    #[inline]
    pub(crate) fn peek(&mut self) -> Found {
        loop {
            let index = self.position % LINES;
            // SAFETY: the index is below the number of lines.
            let (at, line) = unsafe {
                let at = self.lines.add(index as usize);
                (at, &*at)
            };
            let word = line.word.load(Ordering::Acquire);
            if word as u16 != self.lap {
                return Found::Nothing;
            }
            let (kind, len) = ((word >> 16) as u8, (word >> 32) as u32);
            // Most are SENDs.
            let (kind, lines) = if kind == Kind::Send as u8 {
                let lines = lines_of(len as usize);
                if len as usize > PIECE_MAX || index + lines > LINES {
                    return Found::Garbage;
                }
                (Kind::Send, lines)
            } else {
                match Kind::from_byte(kind) {
                    Some(Kind::Pad) if self.skip_pad(u64::from(len)) => continue,
                    Some(Kind::Pad) | None => return Found::Garbage,
                    Some(kind) => (kind, 1),
                }
            };
            // SAFETY: the index is below the number of lines.
            mem::prefetch(unsafe { self.lines.add((index + AHEAD) as usize % LANE_LINES) });
            return Found::Message(Message {
                kind,
                flags: (word >> 24) as u8,
                len,
                imm: line.imm.load(Ordering::Relaxed),
                // SAFETY: as above. The payload may go on in the lines behind, so the pointer must
                // lead to the whole lane.
                payload: unsafe { (&raw const (*at).payload).cast() },
                lines,
            });
        }
    }

    /// The next message, if it is a SEND, as most are. Anything else [`peek`](Self::peek) finds.
    #[inline(always)]
    pub(crate) fn peek_send(&self) -> Option<Message> {
        let index = self.position % LINES;
        // SAFETY: the index is below the number of lines.
        let line = unsafe { &*self.lines.add(index as usize) };
        let word = line.word.load(Ordering::Acquire);
        let (kind, len) = ((word >> 16) as u8, (word >> 32) as u32);
        let lines = lines_of(len as usize);
        let is_send = word as u16 == self.lap && kind == Kind::Send as u8;
        if !is_send || len as usize > PIECE_MAX || index + lines > LINES {
            return None;
        }
        // SAFETY: the index is below the number of lines.
        mem::prefetch(unsafe { self.lines.add((index + AHEAD) as usize % LANE_LINES) });
        Some(Message {
            kind: Kind::Send,
            flags: (word >> 24) as u8,
            len,
            imm: line.imm.load(Ordering::Relaxed),
            // SAFETY: as above.
            payload: unsafe { payload_at(self.lines, index as usize) },
            lines,
        })
    }

    /// Goes on behind lines that hold nothing; false when no writer of ours would leave so many.
    #[cold]
    fn skip_pad(&mut self, lines: u64) -> bool {
        // To the lane's end, and shorter than the longest message: so never two in a row, which could
        // keep the reader here.
        let to_end = self.position % LINES + lines == LINES;
        let is_right = lines > 0 && to_end && lines < lines_of(PIECE_MAX);
        if is_right {
            self.advance(lines);
        }
        is_right
    }

    /// A reader that runs ahead of this one, and gives nothing back to the writer.
    fn ahead(&self) -> Reader {
        Reader {
            published: std::ptr::null(),
            publish_at: u64::MAX,
            ..*self
        }
    }

    /// For a reader that runs ahead: goes on to the end of what is there by now, and says whether
    /// any of it raises a solicited event.
    fn passes_solicited(&mut self) -> bool {
        debug_assert!(self.published.is_null(), "one that runs ahead");
        for _ in 0..LANE_LINES {
            match self.peek() {
                Found::Message(message) => {
                    self.consume(&message);
                    if message.is_solicited() {
                        return true;
                    }
                }
                Found::Nothing | Found::Garbage => return false,
            }
        }
        false
    }

    /// The line that is read next, and its lap.
    #[cfg(feature = "fuzz")]
    pub(crate) fn place(&self) -> (usize, u16) {
        ((self.position % LINES) as usize, self.lap)
    }

    /// Gives the lines of a message that `peek` found back to the writer.
    #[inline]
    pub(crate) fn consume(&mut self, message: &Message) {
        self.advance(message.lines);
    }

    #[inline]
    fn advance(&mut self, lines: u64) {
        self.position += lines;
        // No message crosses the lane's end.
        if self.position.is_multiple_of(LINES) {
            self.lap = lap_of(self.position);
        }
        if self.position >= self.publish_at {
            self.publish_position();
        }
    }

    fn publish_position(&mut self) {
        self.publish_at = self.position + PUBLISH_EVERY;
        // SAFETY: the counter stays mapped.
        unsafe { &*self.published }.store(self.position, Ordering::Release);
    }
}

/// What was seen of the messages that a reader has not come to yet. Each is looked at once.
#[derive(Debug)]
pub(crate) struct LookAhead {
    reader: Reader,
    /// The message just before `reader` raises a solicited event.
    is_solicited: bool,
}

impl LookAhead {
    /// Has seen nothing yet.
    pub(crate) fn from(reader: &Reader) -> Self {
        LookAhead {
            reader: reader.ahead(),
            is_solicited: false,
        }
    }

    /// Whether any message that is there by now, and that the lane's reader has not come to yet,
    /// raises a solicited event.
    pub(crate) fn finds_solicited(&mut self, reader: &Reader) -> bool {
        if self.reader.position <= reader.position {
            *self = LookAhead::from(reader);
        }
        self.is_solicited = self.is_solicited || self.reader.passes_solicited();
        self.is_solicited
    }
}

/// Copies a message's bytes `from..from + len` out.
///
/// # Safety
/// `to` is writable for `len` bytes, and the range lies inside the message.
#[inline]
pub(crate) unsafe fn copy_out(message: &Message, from: usize, to: *mut u8, len: usize) {
    debug_assert!(from + len <= message.len as usize, "inside the message");
    // SAFETY: the caller's promise; the lines stay mapped while the reader lives.
    unsafe { mem::fetch(to, message.payload.add(from), len) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Memory {
        lines: Box<[Line; LANE_LINES]>,
        consumed: AtomicU64,
    }

    fn memory() -> Arc<Memory> {
        let lines: Box<[Line; LANE_LINES]> =
            // SAFETY: lines are atomics, for which zeros are valid.
            unsafe {
                let mut zeros = Box::<[Line; LANE_LINES]>::new_uninit();
                zeros.as_mut_ptr().write_bytes(0, 1);
                zeros.assume_init()
            };
        Arc::new(Memory {
            lines,
            consumed: AtomicU64::new(0),
        })
    }

    fn ends(memory: &Arc<Memory>) -> (Writer, Reader) {
        let keeps: Arc<dyn Keeps> = Arc::<Memory>::clone(memory);
        (
            Writer::new(&memory.lines, &memory.consumed, keeps),
            Reader::new(&memory.lines[..], &memory.consumed),
        )
    }

    fn push(writer: &mut Writer, bytes: &[u8], imm: u32) -> Result<(), Full> {
        let fill = |to: *mut u8| {
            // SAFETY: the lane has room for the bytes.
            unsafe { mem::put(to, bytes.as_ptr(), bytes.len()) };
        };
        let len = bytes.len();
        writer.push(Kind::Send, 0, imm, len as u32, len, fill)
    }

    fn pop(reader: &mut Reader) -> Option<(Vec<u8>, u32)> {
        let send = reader.peek_send();
        match reader.peek() {
            Found::Nothing => None,
            Found::Garbage => panic!("garbage in the lane"),
            Found::Message(message) => {
                // The short way finds the same, unless padding stood in front.
                if let Some(send) = send {
                    let parts = |m: &Message| (m.payload, m.len, m.imm, m.flags, m.lines);
                    assert_eq!(parts(&send), parts(&message));
                }
                let mut bytes = vec![0; message.len as usize];
                // SAFETY: the vector has the message's length.
                unsafe { copy_out(&message, 0, bytes.as_mut_ptr(), bytes.len()) };
                reader.consume(&message);
                Some((bytes, message.imm))
            }
        }
    }

    /// Payload that looks exactly like the headers of the next laps.
    fn disguised(position: u64, len: usize) -> Vec<u8> {
        let lap = u64::from(lap_of(position + LINES));
        let word = word_of(Kind::Send, 0, 7) | lap;
        word.to_le_bytes().into_iter().cycle().take(len).collect()
    }

    #[test]
    fn what_was_looked_at_ahead_is_not_looked_at_again() {
        let memory = memory();
        let (mut writer, mut reader) = ends(&memory);
        let mut push = |flags| {
            let pushed = writer.push(Kind::Send, flags, 0, 0, 0, |_| {});
            pushed.expect("room");
        };
        let mut ahead = LookAhead::from(&reader);
        push(0);
        assert!(!ahead.finds_solicited(&reader));
        // Who looked at it again would find it changed.
        let word = &memory.lines[0].word;
        word.fetch_or(u64::from(SOLICITED) << 24, Ordering::Relaxed);
        push(0);
        assert!(!ahead.finds_solicited(&reader));
        push(SOLICITED);
        push(0);
        for taken in 0..4 {
            assert_eq!(ahead.finds_solicited(&reader), taken < 3, "{taken} taken");
            let Found::Message(message) = reader.peek() else {
                panic!("message {taken} is there");
            };
            reader.consume(&message);
        }
        assert!(!ahead.finds_solicited(&reader));
    }

    #[test]
    fn messages_of_all_lengths_arrive_once_and_in_order_over_many_laps() {
        let memory = memory();
        let (mut writer, mut reader) = ends(&memory);
        let mut random = fastrand::Rng::with_seed(7);
        let mut waiting = std::collections::VecDeque::new();
        let mut at_once = 0;
        for number in 0..60_000u32 {
            if random.u8(..) < 100 {
                for _ in 0..random.usize(0..40) {
                    assert_eq!(pop(&mut reader), waiting.pop_front());
                }
            }
            let len = if random.bool() {
                random.usize(0..=48)
            } else {
                random.usize(0..=PIECE_MAX)
            };
            let bytes = disguised(writer.tip.position, len);
            if random.bool() {
                // Several at once go as far as there is room that was seen.
                let count = random.usize(0..5);
                let mut several = (0..count).map(|_| (3, &bytes[..]));
                let unsent = writer.push_sends(&mut several);
                let pushed = count - several.count() - usize::from(unsent.is_some());
                waiting.extend((0..pushed).map(|_| (bytes.clone(), 0)));
                at_once += pushed;
                continue;
            }
            match push(&mut writer, &bytes, number) {
                Ok(()) => waiting.push_back((bytes, number)),
                Err(Full) => {
                    while let Some(expected) = waiting.pop_front() {
                        assert_eq!(pop(&mut reader), Some(expected));
                    }
                    assert_eq!(pop(&mut reader), None);
                }
            }
        }
        assert!(writer.tip.position > 20 * LINES && at_once > 10_000);
    }

    #[test]
    fn a_full_lane_says_so_and_loses_nothing() {
        let memory = memory();
        let (mut writer, mut reader) = ends(&memory);
        let mut sent = 0u32;
        while push(&mut writer, &sent.to_le_bytes(), sent).is_ok() {
            sent += 1;
        }
        assert_eq!(
            u64::from(sent),
            LINES - 1,
            "a line is left to close the lane"
        );
        for number in 0..sent {
            assert_eq!(
                pop(&mut reader),
                Some((number.to_le_bytes().to_vec(), number))
            );
        }
        assert_eq!(pop(&mut reader), None);
        assert_eq!(push(&mut writer, b"again", 1), Ok(()));
        assert_eq!(pop(&mut reader), Some((b"again".to_vec(), 1)));
    }

    #[test]
    fn a_counter_that_cannot_be_is_not_believed() {
        let memory = memory();
        let (mut writer, _reader) = ends(&memory);
        while push(&mut writer, b"x", 0).is_ok() {}
        memory.consumed.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(push(&mut writer, b"x", 0), Err(Full));
    }

    #[test]
    fn garbage_is_recognised() {
        for (kind, len) in [
            (2u64, PIECE_MAX as u64 + 1),
            (1, 0),
            (1, LINES + 1),
            // Padding that leads around the lane, or to the middle of it.
            (1, LINES),
            (1, 10),
            (0, 1),
            (99, 1),
        ] {
            let memory = memory();
            let (_, mut reader) = ends(&memory);
            memory.lines[0]
                .word
                .store(1 | kind << 16 | len << 32, Ordering::Relaxed);
            assert!(reader.peek_send().is_none(), "kind {kind} length {len}");
            assert!(
                matches!(reader.peek(), Found::Garbage),
                "kind {kind} length {len}"
            );
        }
    }

    #[test]
    fn two_threads_agree() {
        let memory = memory();
        let (mut writer, mut reader) = ends(&memory);
        let sender = std::thread::spawn(move || {
            let mut random = fastrand::Rng::with_seed(3);
            for number in 0..100_000u32 {
                let len = random.usize(4..200);
                let mut bytes = disguised(writer.tip.position, len);
                bytes[..4].copy_from_slice(&number.to_le_bytes());
                while push(&mut writer, &bytes, number).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        for number in 0..100_000u32 {
            let (bytes, imm) = loop {
                match pop(&mut reader) {
                    Some(message) => break message,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(imm, number);
            assert_eq!(bytes[..4], number.to_le_bytes());
        }
        sender.join().expect("the sender finishes");
    }
}
