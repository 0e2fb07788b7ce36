//! Records, as callers make them and as streams give them back.

use std::fmt;

use block::{Buf, Disk};

use crate::format::PAGE;
use crate::format::frame::{FIXED_LEN, HEAD_LEN_MAX, PAYLOAD_PAGES_MAX, RECORD_LEN, record_len};

/// Where a record that is alone in its frame begins in the header.
const RECORD_AT: usize = FIXED_LEN;
const HEAD_AT: usize = RECORD_AT + RECORD_LEN;

/// What is appended: a head of 0 to 256 bytes, the caller's own, and a payload of 0 to 256 pages.
///
/// ```text
/// page 0: room for the header of the frame, with the head and the pages' checksums | page 1..: payload
/// ```
///
/// The memory is laid out as the frame is, so that a record that is alone in its frame goes to the device as
/// it is, without a copy.
pub struct Record {
    buf: Buf,
    head_len: u16,
    pages: u16,
    /// Whether the checksums are those of the payload.
    is_summed: bool,
}

impl Record {
    /// A record with this head and room for `pages` pages, which hold arbitrary bytes: fill them with
    /// [`Record::payload_mut`].
    ///
    /// # Panics
    /// If the head is longer than 256 bytes or there are more than 256 pages.
    #[must_use]
    pub(crate) fn new(disk: &Disk, head: &[u8], pages: u32) -> Self {
        assert!(
            head.len() <= HEAD_LEN_MAX && pages <= PAYLOAD_PAGES_MAX,
            "a record of {} bytes and {pages} pages",
            head.len()
        );
        let mut buf = disk.buffer((1 + pages as usize) * PAGE);
        buf[..PAGE].fill(0);
        let head_len = head.len() as u16;
        let pages = pages as u16;
        buf[RECORD_AT..][..2].copy_from_slice(&head_len.to_le_bytes());
        buf[RECORD_AT + 2..][..2].copy_from_slice(&pages.to_le_bytes());
        buf[HEAD_AT..][..head.len()].copy_from_slice(head);
        Self {
            buf,
            head_len,
            pages,
            is_summed: pages == 0,
        }
    }

    /// The caller's own bytes.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.buf[HEAD_AT..][..self.head_len.into()]
    }

    /// Pages of the payload.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages.into()
    }

    /// The payload: whole pages.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.buf[PAGE..]
    }

    /// The payload, to be changed.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.is_summed = self.pages == 0;
        &mut self.buf[PAGE..]
    }

    /// The CRC-32C of each page, which its reader has to bring along. Computed once.
    pub fn sums(&mut self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.sum();
        let sums = self.sum_bytes().as_chunks::<4>().0.iter();
        sums.map(|sum| u32::from_le_bytes(*sum))
    }

    /// Computes the checksums, if that was not done yet.
    pub(crate) fn sum(&mut self) {
        if std::mem::replace(&mut self.is_summed, true) {
            return;
        }
        let at = self.sums_at();
        let (header, payload) = self.buf.split_at_mut(PAGE);
        for (page, out) in payload
            .chunks_exact(PAGE)
            .zip(header[at..].chunks_exact_mut(4))
        {
            out.copy_from_slice(&block::crc32c::checksum(page).to_le_bytes());
        }
    }

    /// As it is in the header of its frame.
    pub(crate) fn in_header(&self) -> &[u8] {
        &self.buf[RECORD_AT..][..self.header_len()]
    }

    /// Bytes of the header that it takes.
    pub(crate) fn header_len(&self) -> usize {
        record_len(self.head_len.into(), self.pages.into())
    }

    /// The memory of a frame that has this record alone: its header lacks the fixed part.
    pub(crate) fn into_frame(self) -> Buf {
        self.buf
    }

    fn sums_at(&self) -> usize {
        HEAD_AT + usize::from(self.head_len).next_multiple_of(4)
    }

    fn sum_bytes(&self) -> &[u8] {
        &self.buf[self.sums_at()..][..usize::from(self.pages) * 4]
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("head", &self.head())
            .field("pages", &self.pages)
            .finish_non_exhaustive()
    }
}
