//! The reader of a lane, which reads what peers write, without the rest: for fuzz targets.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::shared::lane::{self, Found, Reader};
use crate::shared::layout::{Kind, LANE_LINES, LINE, Line};

/// Bytes of a lane.
pub const LANE_BYTES: usize = LANE_LINES * LINE;

/// A lane whose writer is not to be trusted.
pub struct Lane {
    reader: Reader,
    lines: Box<[Line]>,
    consumed: Box<AtomicU64>,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (place, consumed) = (self.place(), self.consumed());
        write!(f, "Lane at {place:?}, {consumed} lines consumed")
    }
}

/// What a reader found at its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// No message yet.
    Nothing,
    /// What no writer writes; the reader gives the lane up.
    Garbage,
    /// A message, copied out.
    Message {
        /// Its bytes; only SENDs have any.
        bytes: Vec<u8>,
        /// As it says of itself.
        len: u32,
        /// As it says of itself.
        imm: u32,
    },
}

impl Default for Lane {
    fn default() -> Self {
        let lines: Box<[Line]> = Box::new(
            [const {
                Line {
                    word: AtomicU64::new(0),
                    imm: AtomicU32::new(0),
                    reserved: AtomicU32::new(0),
                    payload: [const { AtomicU64::new(0) }; 6],
                }
            }; LANE_LINES],
        );
        let consumed = Box::new(AtomicU64::new(0));
        Lane {
            // Both stay where they are as long as the reader.
            reader: Reader::new(&lines, &consumed),
            lines,
            consumed,
        }
    }
}

impl Lane {
    /// Writes eight bytes at a multiple of eight, as a peer can at any time.
    ///
    /// # Panics
    /// When the place is outside the lane or no multiple of eight.
    pub fn write(&self, at: usize, word: u64) {
        assert!(at.is_multiple_of(8), "a word's place");
        let line = &self.lines[at / LINE];
        match at % LINE / 8 {
            0 => line.word.store(word, Ordering::Release),
            1 => {
                line.imm.store(word as u32, Ordering::Relaxed);
                line.reserved.store((word >> 32) as u32, Ordering::Relaxed);
            }
            place => line.payload[place - 2].store(word, Ordering::Relaxed),
        }
    }

    /// Takes the next message, if there is one.
    pub fn read(&mut self) -> Read {
        match self.reader.peek() {
            Found::Nothing => Read::Nothing,
            Found::Garbage => Read::Garbage,
            Found::Message(message) => {
                let len = if message.kind == Kind::Send {
                    message.len
                } else {
                    0
                };
                let mut bytes = vec![0; len as usize];
                // SAFETY: the vector has the message's length, which the reader has checked.
                unsafe { lane::copy_out(&message, 0, bytes.as_mut_ptr(), bytes.len()) };
                self.reader.consume(&message);
                Read::Message {
                    bytes,
                    len: message.len,
                    imm: message.imm,
                }
            }
        }
    }

    /// The line that is read next, and the lap that its word must carry.
    pub fn place(&self) -> (usize, u16) {
        self.reader.place()
    }

    /// How many lines the writer may use again.
    pub fn consumed(&self) -> u64 {
        self.consumed.load(Ordering::Acquire)
    }
}
