//! Record marking (RFC 5531, section 11): messages on a stream.

use std::ops::{Deref, Range};

use crate::xdr::Encoder;

/// The bit of a marker that says that the fragment is the record's last one.
const LAST: u32 = 1 << 31;
/// Bytes of a marker.
const MARKER: usize = 4;

/// A record of so many bytes is kept where it lies, if it is most of what has come.
const KEPT_MIN: usize = 64 << 10;

/// Bytes of records that are copied to be sent together: beyond that a system call costs less than the copy.
const TOGETHER_MAX: usize = 64 << 10;

/// Why a stream cannot be read on.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a record of {announced} bytes or more where {max} are the most")]
pub struct RecordError {
    /// What the record's fragments so far announce together.
    pub announced: u64,
    /// The bound.
    pub max: usize,
}

/// Finds records in what a stream delivers, however that is cut into fragments and pieces.
///
/// Bytes are received into [`Records::buffer`] and stay there: a record of one fragment is handed out
/// where it lies, the fragments of others are moved together, each byte once. Memory is taken for what
/// has arrived, not for what is announced.
#[derive(Debug)]
pub struct Records {
    /// What came, and where the record that comes together begins in it.
    buf: Vec<u8>,
    start: usize,
    /// The record's bytes that are together: `buf[start..][..together]`.
    together: usize,
    /// Where what has not been looked at begins.
    read: usize,
    /// Bytes of the fragment that are still to come; None before a marker.
    fragment: Option<usize>,
    /// Whether that fragment is the last.
    last: bool,
    max: usize,
    /// The record that was handed out last, until more bytes come.
    given: Range<usize>,
    /// Bytes of the longest record that was kept where it lay: the next one finds room for as many.
    longest: usize,
}

/// A record that stays when others come: see [`Records::keep`].
#[derive(Debug)]
pub struct Kept {
    bytes: Vec<u8>,
    begin: usize,
}

impl Deref for Kept {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }
}

impl Records {
    /// One for records of so many bytes at the most, markers not counted.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            buf: Vec::new(),
            start: 0,
            together: 0,
            read: 0,
            fragment: None,
            last: false,
            max,
            given: 0..0,
            longest: 0,
        }
    }

    /// The buffer that further bytes are appended to. Bytes before its present end belong to records
    /// and must stay; records that were handed out are dropped from it first.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.given = 0..0;
        // Closes the gap that markers inside a record have left.
        let end = self.start + self.together;
        if end != self.read {
            self.buf.copy_within(self.read.., end);
            self.buf.truncate(self.buf.len() - (self.read - end));
            self.read = end;
        }
        // Moving costs less than what was handed out since the last time.
        if self.start >= self.buf.len() - self.start {
            self.buf.copy_within(self.start.., 0);
            self.buf.truncate(self.buf.len() - self.start);
            (self.start, self.read) = (0, self.read - self.start);
        }
        &mut self.buf
    }

    /// The next record that is whole; None if more bytes are needed.
    ///
    /// # Errors
    /// If a record is above the bound. Nothing after that can be read.
    pub fn next_record(&mut self) -> Result<Option<&[u8]>, RecordError> {
        loop {
            let Some(left) = self.fragment else {
                let Some(marker) = self.buf[self.read..].first_chunk::<MARKER>() else {
                    return Ok(None);
                };
                self.begin_fragment(u32::from_be_bytes(*marker))?;
                continue;
            };
            let there = left.min(self.buf.len() - self.read);
            let end = self.start + self.together;
            if end != self.read {
                self.buf.copy_within(self.read..self.read + there, end);
            }
            self.together += there;
            self.read += there;
            if there < left {
                self.fragment = Some(left - there);
                return Ok(None);
            }
            self.fragment = None;
            if self.last {
                let record = self.start..self.start + self.together;
                self.start = self.read;
                self.together = 0;
                self.given = record.clone();
                return Ok(Some(&self.buf[record]));
            }
        }
    }

    /// Keeps the record that [`Records::next_record`] has handed out last; there is one as long as no more bytes
    /// were received. A short one is copied. A long one is given away with the buffer, and what has come behind it
    /// is copied instead: less than the record itself.
    pub fn keep(&mut self) -> Kept {
        let given = std::mem::take(&mut self.given);
        let behind = self.buf.len() - given.end.max(self.start);
        let is_most = given.len() > self.buf.len() / 2 && behind < given.len();
        if given.len() < KEPT_MIN || !is_most {
            let (bytes, begin) = (self.buf[given].to_vec(), 0);
            return Kept { bytes, begin };
        }
        // So many bytes have come before: to make room for as many again is no promise to whoever announces them.
        self.longest = self.longest.max(given.len());
        let mut rest = Vec::with_capacity(self.longest + KEPT_MIN);
        rest.extend_from_slice(&self.buf[self.start..]);
        let mut bytes = std::mem::replace(&mut self.buf, rest);
        (self.start, self.read) = (0, self.read - self.start);
        bytes.truncate(given.end);
        let begin = given.start;
        Kept { bytes, begin }
    }

    /// Whether the stream may end here: between two records.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.fragment.is_none() && self.together == 0 && self.read == self.buf.len()
    }

    /// Bytes that have come of records which were not handed out.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.buf.len() - self.start
    }

    fn begin_fragment(&mut self, marker: u32) -> Result<(), RecordError> {
        let size = marker & !LAST;
        let announced = self.together as u64 + u64::from(size);
        if announced > self.max as u64 {
            let max = self.max;
            return Err(RecordError { announced, max });
        }
        self.read += MARKER;
        if self.together == 0 {
            self.start = self.read;
        }
        self.fragment = Some(size as usize);
        self.last = marker & LAST != 0;
        Ok(())
    }
}

/// Puts a record of one fragment.
///
/// # Panics
/// If the record has 2 GiB or more.
pub fn put_record<T>(to: &mut Encoder, fill: impl FnOnce(&mut Encoder) -> T) -> T {
    let marker = to.later();
    let start = to.size();
    let filled = fill(to);
    let size = u32::try_from(to.size() - start).expect("records are small");
    assert!(size < LAST, "a record of {size} bytes");
    to.fill_in(marker, size | LAST);
    filled
}

/// Records that are sent together, in their order: a long one alone, as it is, and short ones as one.
pub(crate) fn batches(records: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut batches: Vec<Vec<u8>> = Vec::with_capacity(1);
    for record in records {
        match batches.last_mut() {
            Some(last) if last.len() + record.len() <= TOGETHER_MAX => last.extend(record),
            _ => batches.push(record),
        }
    }
    batches
}
