//! A lane: one writer, one reader, four lines.

use std::sync::Arc as StdArc;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::bounded_model;
use crate::shared::allotment::Allotment;
use crate::shared::lane::{Found, Full, Keeps, Message, Reader, Writer};
use crate::shared::layout::{Kind, LANE_LINES, LaneHead, Line};
use crate::sync::{AtomicU64, Ordering};

struct Memory {
    lines: Box<[Line; LANE_LINES]>,
    consumed: AtomicU64,
    /// What the plain copies of payload touch, a line each. Loom objects when both ends do at once.
    payload: [UnsafeCell<u64>; LANE_LINES],
}

// SAFETY: loom watches the cells.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

fn ends() -> (StdArc<Memory>, Writer, Reader) {
    let line = || Line {
        word: Default::default(),
        imm: Default::default(),
        reserved: Default::default(),
        payload: Default::default(),
    };
    let memory = StdArc::new(Memory {
        lines: Box::new(std::array::from_fn(|_| line())),
        consumed: AtomicU64::new(0),
        payload: std::array::from_fn(|_| UnsafeCell::new(0)),
    });
    let keeps: StdArc<dyn Keeps> = memory.clone();
    let writer = Writer::new(&memory.lines, &memory.consumed, keeps);
    let reader = Reader::new(&memory.lines[..], &memory.consumed);
    (memory, writer, reader)
}

impl Memory {
    /// The line whose payload is at `at`.
    fn line_at(&self, at: *const u8) -> usize {
        self.lines
            .iter()
            .position(|line| line.payload.as_ptr().cast() == at)
            .expect("the start of a line's payload")
    }

    /// Writes a message's payload: `value` into each of its lines, and what looks like a header of
    /// the next lap where the lines behind the first begin.
    fn fill(&self, at: *const u8, lines: usize, value: u64, lap: u64) {
        let first = self.line_at(at);
        for line in first..first + lines {
            self.payload[line].with_mut(|cell| {
                // SAFETY: loom watches the cell.
                unsafe { *cell = value }
            });
            if line > first {
                let disguise = (lap + 1) | (Kind::Send as u64) << 16;
                self.lines[line].word.store(disguise, Ordering::Relaxed);
            }
        }
    }

    fn read(&self, message: &Message, lines: usize) -> u64 {
        let first = self.line_at(message.payload);
        let read = |line: usize| {
            self.payload[line].with(|cell| {
                // SAFETY: loom watches the cell.
                unsafe { *cell }
            })
        };
        let value = read(first);
        for line in first..first + lines {
            assert_eq!(read(line), value);
        }
        value
    }
}

/// Sends messages of so many lines each and receives them.
fn converse(messages: &'static [usize]) {
    let (memory, mut writer, mut reader) = ends();
    let sender = {
        let memory = memory.clone();
        thread::spawn(move || {
            let mut position = 0;
            for (number, &lines) in messages.iter().enumerate() {
                let len = (lines - 1) * 64 + 48;
                let to_end = LANE_LINES - position % LANE_LINES;
                let start = if to_end < lines {
                    position + to_end
                } else {
                    position
                };
                let lap = (start / LANE_LINES) as u64 + 1;
                let number = number as u64;
                loop {
                    let fill = |at: *mut u8| memory.fill(at, lines, number, lap);
                    let imm = number as u32;
                    match writer.push(Kind::Send, 0, imm, len as u32, len, fill) {
                        Ok(()) => break,
                        Err(Full) => thread::yield_now(),
                    }
                }
                position = start + lines;
            }
        })
    };
    for (number, &lines) in messages.iter().enumerate() {
        let message = loop {
            match reader.peek() {
                Found::Message(message) => break message,
                Found::Nothing => thread::yield_now(),
                Found::Garbage => panic!("garbage in the lane"),
            }
        };
        assert_eq!(message.imm as usize, number);
        assert_eq!(message.len as usize, (lines - 1) * 64 + 48);
        assert_eq!(memory.read(&message, lines) as usize, number);
        reader.consume(&message);
    }
    assert!(matches!(reader.peek(), Found::Nothing));
    sender.join().unwrap();
    assert!(matches!(reader.peek(), Found::Nothing));
}

#[test]
fn short_messages_arrive_whole_and_in_order_over_a_lap() {
    bounded_model(|| converse(&[1, 1, 1, 1, 1]));
}

#[test]
fn payload_that_looks_like_a_message_is_not_taken_for_one() {
    // The second lap's messages end in front of what the first lap's payload has left.
    loom::model(|| converse(&[3, 1, 1, 1]));
}

#[test]
fn what_does_not_fit_before_the_end_starts_at_the_beginning() {
    bounded_model(|| converse(&[3, 2, 1]));
}

#[test]
fn a_lane_that_is_used_again_begins_empty() {
    loom::model(|| {
        let (memory, mut writer, mut reader) = ends();
        let head = || LaneHead {
            consumed: Default::default(),
            released: Default::default(),
        };
        let heads = StdArc::new([head(), head()]);
        let sender = {
            let (memory, heads) = (memory.clone(), heads.clone());
            thread::spawn(move || {
                let lanes = Allotment::default();
                let lane = lanes.take(&heads).expect("a lane");
                lanes.opened(lane);
                let fill = |at: *mut u8| memory.fill(at, 1, 1, 1);
                writer.push(Kind::Send, 0, 1, 48, 48, fill).expect("room");
                writer.close(0);
                lanes.give_back(lane);
                let again = lanes.take(&heads).expect("a lane");
                if again == lane {
                    let keeps: StdArc<dyn Keeps> = memory.clone();
                    let mut writer = Writer::new(&memory.lines, &memory.consumed, keeps);
                    let fill = |at: *mut u8| memory.fill(at, 1, 2, 1);
                    writer.push(Kind::Send, 0, 2, 48, 48, fill).expect("room");
                }
                again == lane
            })
        };
        let next = |reader: &mut Reader| loop {
            match reader.peek() {
                Found::Message(message) => break message,
                Found::Nothing => thread::yield_now(),
                Found::Garbage => panic!("garbage in the lane"),
            }
        };
        let message = next(&mut reader);
        assert_eq!((message.imm, memory.read(&message, 1)), (1, 1));
        reader.consume(&message);
        let message = next(&mut reader);
        assert_eq!(message.kind, Kind::Close);
        reader.consume(&message);
        // What the owner of an inbox does to give a lane back (`inbox.rs`).
        for line in memory.lines.iter() {
            line.word.store(0, Ordering::Relaxed);
        }
        memory.consumed.store(0, Ordering::Relaxed);
        heads[0].released.store(1, Ordering::Release);
        let mut reader = Reader::new(&memory.lines[..], &memory.consumed);
        if sender.join().unwrap() {
            let message = next(&mut reader);
            assert_eq!((message.imm, memory.read(&message, 1)), (2, 2));
        } else {
            assert!(matches!(reader.peek(), Found::Nothing));
        }
    });
}
