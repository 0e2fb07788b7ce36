//! Output in request order, while answers become ready in any order.
//!
//! Without a promised answer every byte goes straight to `ready`. Behind a promised one, what is
//! already known is held back: its bytes in `held`, what they are in `slots`.
//!
//! ```text
//! ready: bytes to send now
//! slots: | Wait(get k1) | Bytes(40) | Wait(get k2) | End | Wait(set) | ...
//! held:  | k1           | 40 bytes  | k2           |
//! ```

use std::collections::VecDeque;
use std::task::{Context, Poll};

use engine::Failure;

use crate::reply::{self, Form};
use crate::{Host, Limits};

/// Capacity that an emptied buffer keeps, in bytes; more is given back.
pub(crate) const BUFFER_KEEP: usize = 64 * 1024;

/// What a connection that waits for its client keeps of a buffer, and of slots.
pub(crate) const BUFFER_SMALL: usize = 4096;
const SLOTS_SMALL: usize = 64;

/// The most room that a promised answer is given.
const ROOM_MAX: usize = 1 << 30;

/// What an engine needs for a promise, besides its bytes.
const PROMISE_SIZE: usize = 512;

enum Slot<T> {
    /// A promised answer. Its key is in `held` if the answer repeats it.
    Wait {
        ticket: T,
        form: Form,
        key_size: u32,
        /// What the engine may hold for it: bytes of the answer, or those of the value to be stored.
        room: u32,
        stored: u32,
    },
    /// Bytes of answers that were at hand.
    Bytes { size: usize },
    /// A key of the current `get` failed.
    Fail(Failure),
    /// The end of a `get`.
    End,
}

/// The answers of one connection, in order.
pub(crate) struct Sequence<T> {
    ready: Vec<u8>,
    /// How much of `ready` was sent.
    ready_start: usize,
    slots: VecDeque<Slot<T>>,
    held: Vec<u8>,
    /// How much of `held` was moved on.
    held_start: usize,
    /// The slots that wait.
    in_flight: usize,
    /// Sums over them.
    rooms: usize,
    stored: usize,
    /// What the rooms should not pass, and the least that each has.
    room_most: usize,
    room_min: usize,
    /// The failure that the end of the `get` being written will report.
    failure: Option<Failure>,
}

impl<T> Sequence<T> {
    pub(crate) const fn new(room_most: usize, room_min: usize) -> Self {
        Self {
            ready: Vec::new(),
            ready_start: 0,
            slots: VecDeque::new(),
            held: Vec::new(),
            held_start: 0,
            in_flight: 0,
            rooms: 0,
            stored: 0,
            room_most,
            room_min,
            failure: None,
        }
    }

    pub(crate) const fn set_room(&mut self, most: usize, min: usize) {
        self.room_most = most;
        self.room_min = min;
    }

    /// Bytes of an answer that the engine may hold for the next request, should it be promised. Those
    /// that have no room are asked for again when it is their turn.
    #[inline]
    pub(crate) const fn room(&self) -> usize {
        let share = self.room_most.saturating_sub(self.rooms) / 128;
        let room = if share > self.room_min {
            share
        } else {
            self.room_min
        };
        if room > ROOM_MAX { ROOM_MAX } else { room }
    }

    pub(crate) fn output(&self) -> &[u8] {
        &self.ready[self.ready_start..]
    }

    pub(crate) fn consume_output(&mut self, size: usize) {
        assert!(size <= self.output().len(), "more consumed than there was");
        self.ready_start += size;
        if self.ready_start == self.ready.len() {
            self.ready_start = 0;
            empty(&mut self.ready);
        }
    }

    pub(crate) fn swap_output(&mut self, mut spare: Vec<u8>) -> Vec<u8> {
        spare.clear();
        self.ready.drain(..self.ready_start);
        self.ready_start = 0;
        std::mem::replace(&mut self.ready, spare)
    }

    /// Promised answers not yet there.
    pub(crate) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether everything there is to say is in the output.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes that wait for the client, or for an answer before them, what it takes to know their
    /// order, and values on their way to the engine.
    pub(crate) fn size(&self) -> usize {
        self.ready.len() - self.ready_start + self.held.len() - self.held_start
            + self.slots.len() * size_of::<Slot<T>>()
            + self.stored
    }

    pub(crate) fn memory(&self) -> usize {
        self.ready.capacity() + self.held.capacity() + self.slots.capacity() * size_of::<Slot<T>>()
    }

    /// What the engine may hold for the connection.
    pub(crate) const fn promised(&self) -> usize {
        self.rooms + self.stored + self.in_flight * PROMISE_SIZE
    }

    /// Gives back the memory of empty buffers that are larger than is usual.
    pub(crate) fn shrink(&mut self) {
        for buffer in [&mut self.ready, &mut self.held] {
            if buffer.is_empty() && buffer.capacity() > BUFFER_SMALL {
                *buffer = Vec::new();
            }
        }
        if self.slots.is_empty() && self.slots.capacity() > SLOTS_SMALL {
            self.slots = VecDeque::new();
        }
    }

    /// Writes what is known now to its place in the order.
    #[inline]
    pub(crate) fn write<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        if self.slots.is_empty() {
            return write(&mut self.ready);
        }
        let before = self.held.len();
        let result = write(&mut self.held);
        let written = self.held.len() - before;
        if let Some(Slot::Bytes { size }) = self.slots.back_mut() {
            *size += written;
        } else if written > 0 {
            self.slots.push_back(Slot::Bytes { size: written });
        }
        result
    }

    /// Keeps a place for a promised answer. So many bytes of a value went with the request.
    pub(crate) fn wait(&mut self, ticket: T, form: Form, key: &[u8], stored: usize) {
        let room = if matches!(form, Form::Value { .. }) {
            self.room()
        } else {
            0
        };
        self.rooms += room;
        self.stored += stored;
        let key = if matches!(form, Form::Value { .. }) {
            key
        } else {
            &[]
        };
        self.held.extend_from_slice(key);
        self.slots.push_back(Slot::Wait {
            ticket,
            form,
            key_size: key.len() as u32,
            room: u32::try_from(room).unwrap_or(u32::MAX),
            stored: u32::try_from(stored).unwrap_or(u32::MAX),
        });
        self.in_flight += 1;
    }

    /// Notes that a key of the current `get` failed.
    pub(crate) fn fail(&mut self, why: Failure) {
        if self.slots.is_empty() {
            self.failure = Some(why);
        } else {
            self.slots.push_back(Slot::Fail(why));
        }
    }

    /// Ends the current `get`.
    #[inline]
    pub(crate) fn end(&mut self) {
        if self.slots.is_empty() {
            reply::write_end(&mut self.ready, self.failure.take());
        } else {
            self.slots.push_back(Slot::End);
        }
    }

    /// Moves to `ready` what waits for no answer any more, until that holds as many bytes to send as
    /// the limits allow. Returns whether that is why it stopped; the waker is then not kept.
    pub(crate) fn poll<E: Host<Ticket = T>>(
        &mut self,
        engine: &mut E,
        context: &mut Context<'_>,
        limits: &Limits,
    ) -> bool {
        if self.slots.is_empty() {
            return false;
        }
        let mut is_full = false;
        while let Some(slot) = self.slots.front_mut() {
            is_full = self.ready.len() - self.ready_start >= limits.output_high_water;
            if is_full {
                break;
            }
            match slot {
                Slot::Wait {
                    ticket,
                    form,
                    key_size,
                    room,
                    stored,
                } => {
                    let key_end = self.held_start + *key_size as usize;
                    let key = &self.held[self.held_start..key_end];
                    let ready = &mut self.ready;
                    let answered = engine.fetch(ticket, context, |answer| {
                        let answer = reply::up_to(answer, limits.large_max);
                        reply::write_answer(ready, *form, key, answer)
                    });
                    let Poll::Ready(failure) = answered else {
                        break;
                    };
                    if let Some(failure) = failure
                        && reply::note(engine, *form, failure)
                    {
                        self.failure = Some(failure);
                    }
                    self.held_start = key_end;
                    self.in_flight -= 1;
                    self.rooms -= *room as usize;
                    self.stored -= *stored as usize;
                }
                Slot::Bytes { size } => {
                    let end = self.held_start + *size;
                    self.ready
                        .extend_from_slice(&self.held[self.held_start..end]);
                    self.held_start = end;
                }
                Slot::Fail(why) => self.failure = Some(*why),
                Slot::End => reply::write_end(&mut self.ready, self.failure.take()),
            }
            self.slots.pop_front();
        }
        self.compact();
        is_full
    }

    /// Gives back the part of `held` that was moved on, at a cost of less than a byte moved for each
    /// byte given back.
    fn compact(&mut self) {
        if self.held_start == self.held.len() {
            empty(&mut self.held);
            self.held_start = 0;
        } else if self.held_start > self.held.len() / 2 {
            self.held.drain(..self.held_start);
            self.held_start = 0;
        }
    }
}

/// Empties a buffer, and gives its memory back if one large value made it large.
pub(crate) fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > BUFFER_KEEP {
        *buffer = Vec::new();
    }
}
