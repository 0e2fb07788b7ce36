//! Answers to reads, composed.

use std::borrow::Cow;

use engine::{Answer, Failure, Segments};

use super::outbox::Outbox;
use crate::herd::wire::answer::{CAS_LEN, HEADER_LEN, Head, Status};

/// Where an answer goes.
#[derive(Clone, Copy)]
pub(super) struct To {
    pub(super) client: u32,
    pub(super) id: u32,
}

/// How a request ended, where that is all there is to tell.
pub(super) fn status_of_answer(answer: &Answer<'_>) -> Status {
    match answer {
        Answer::Item { .. }
        | Answer::Stored { .. }
        | Answer::Number { .. }
        | Answer::Deleted
        | Answer::Touched
        | Answer::Done
        | Answer::Stats(_) => Status::Ok,
        Answer::Miss | Answer::NotFound => Status::NotFound,
        Answer::NotStored => Status::NotStored,
        Answer::Exists => Status::Exists,
        Answer::NotANumber => Status::NotANumber,
        Answer::TooLong | Answer::Failed(Failure::TooLarge) => Status::TooLarge,
        Answer::Failed(Failure::OutOfMemory) => Status::OutOfMemory,
        Answer::Failed(_) => Status::Failed,
    }
}

/// Bytes of a value that one answer takes.
#[inline]
pub(super) fn value_room(answer_len_max: usize) -> usize {
    answer_len_max - HEADER_LEN - CAS_LEN
}

/// The value's bytes in one piece.
#[inline]
fn in_one_piece(value: Segments<'_>) -> Cow<'_, [u8]> {
    match value.as_slice() {
        Some(bytes) => Cow::Borrowed(bytes),
        None => Cow::Owned(value.to_vec()),
    }
}

/// Composes the answer to a read: the value, or its first piece.
#[inline(always)]
pub(super) fn write_item(
    outbox: &mut Outbox,
    to: To,
    wants_cas: bool,
    answer_len_max: usize,
    answer: &Answer<'_>,
) {
    let Answer::Item { value, flags, cas } = *answer else {
        let head = Head::bare(to.id, status_of_answer(answer));
        return outbox.push(to.client, &head, &[]);
    };
    if !wants_cas
        && let Some(bytes) = value.as_slice()
        && outbox.push_short(to.client, to.id, flags, bytes)
    {
        return;
    }
    write_long(outbox, to, wants_cas, answer_len_max, (value, flags, cas));
}

/// As [`write_item`], for what does not fit the usual answer.
#[inline(never)]
fn write_long(
    outbox: &mut Outbox,
    to: To,
    wants_cas: bool,
    answer_len_max: usize,
    (value, flags, cas): (Segments<'_>, u32, u64),
) {
    let bytes = in_one_piece(value);
    let room = value_room(answer_len_max);
    let whole = bytes.len() <= room;
    let head = Head {
        id: to.id,
        status: if whole { Status::Ok } else { Status::Partial },
        item_flags: flags,
        total_len: bytes.len() as u32,
        cas: (wants_cas || !whole).then_some(cas),
        is_number: false,
    };
    outbox.push(to.client, &head, &bytes[..room.min(bytes.len())]);
}

/// Composes an answer that is a status alone.
pub(super) fn write_bare(outbox: &mut Outbox, to: To, status: Status) {
    outbox.push(to.client, &Head::bare(to.id, status), &[]);
}

/// Which piece of a value is asked for, and the token that the item must still have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    offset: usize,
    len: usize,
    pub(super) cas: u64,
}

impl Range {
    pub(super) fn new(offset: u32, len: u32, cas: u64) -> Self {
        Range {
            offset: offset as usize,
            len: len as usize,
            cas,
        }
    }

    pub(super) fn bytes(&self) -> std::ops::Range<usize> {
        self.offset..self.offset.saturating_add(self.len)
    }
}

/// Composes the answer to a request for a piece. False if there is no such piece.
pub(super) fn write_piece(
    outbox: &mut Outbox,
    to: To,
    range: Range,
    answer_len_max: usize,
    answer: &Answer<'_>,
) -> bool {
    let bare = |status| Head::bare(to.id, status);
    let Answer::Item { value, flags, cas } = *answer else {
        write_bare(outbox, to, status_of_answer(answer));
        return true;
    };
    if cas != range.cas {
        write_bare(outbox, to, Status::Changed);
        return true;
    }
    let bytes = in_one_piece(value);
    let piece = bytes
        .get(range.offset..)
        .and_then(|rest| rest.get(..range.len))
        .filter(|piece| piece.len() <= value_room(answer_len_max));
    let head = match piece {
        Some(_) => Head {
            item_flags: flags,
            total_len: bytes.len() as u32,
            ..bare(Status::Ok)
        },
        None => bare(Status::Invalid),
    };
    outbox.push(to.client, &head, piece.unwrap_or_default());
    piece.is_some()
}
