//! Frames: records that are written with one write.

use std::collections::VecDeque;

use block::{Buf, Disk, Durable};

use super::Appended;
use super::state::Asked;
use crate::format::PAGE;
use crate::format::frame::{FIXED_LEN, FrameHeader, HEADER_PAGES_MAX, PAYLOAD_PAGES_MAX, Place};
use crate::ids::{Epoch, StreamId};
use crate::record::Record;
use crate::streams::{Held, start_of};

/// A record of more pages than this goes alone: copying it costs more than a write of its own.
const COPIED_PAGES_MAX: u32 = 16;

/// A frame that is complete but for its place.
pub(super) struct Composed {
    /// Its memory, unless that is under way.
    buf: Option<Buf>,
    pages: u32,
    header_pages: u32,
    count: u16,
    used: u32,
    /// Whether one of its records is to be durable.
    pub(super) is_durable: bool,
    pub(super) records: Vec<Part>,
}

/// A record of a frame.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) slot: usize,
    pub(super) group: Option<u64>,
    pub(super) is_durable: bool,
    /// Its first page, from the beginning of the frame.
    page: u32,
    /// Pages of its payload.
    pages: u32,
    /// Bytes of the header that it takes.
    in_header: u32,
}

/// How many of the records that were asked for make the next frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    count: usize,
    header_len: usize,
    payload_pages: u32,
}

impl Plan {
    /// The records at the beginning of what was asked for that go into one frame: at least one, if the
    /// first is a record.
    pub(super) fn of(asked: &VecDeque<Asked>) -> Self {
        let mut plan = Self {
            header_len: FIXED_LEN,
            ..Self::default()
        };
        for asked in asked {
            let Asked::Append { record, .. } = asked else {
                break;
            };
            let header_len = plan.header_len + record.header_len();
            let payload_pages = plan.payload_pages + record.pages();
            let is_too_long = header_len > HEADER_PAGES_MAX as usize * PAGE
                || payload_pages > PAYLOAD_PAGES_MAX
                || record.pages() > COPIED_PAGES_MAX;
            if plan.count > 0 && is_too_long {
                break;
            }
            plan = Self {
                count: plan.count + 1,
                header_len,
                payload_pages,
            };
            if record.pages() > COPIED_PAGES_MAX {
                break;
            }
        }
        plan
    }

    /// Whether there is no record at the beginning.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The same with as many of the first records as go into `pages` pages; none if not even one does.
    pub(super) fn within(mut self, pages: u32, asked: &VecDeque<Asked>) -> Self {
        while self.pages() > pages && self.count > 0 {
            self.count -= 1;
            if let Some(Asked::Append { record, .. }) = asked.get(self.count) {
                self.header_len -= record.header_len();
                self.payload_pages -= record.pages();
            }
        }
        self
    }

    fn header_pages(&self) -> u32 {
        self.header_len.div_ceil(PAGE) as u32
    }

    fn pages(&self) -> u32 {
        self.header_pages() + self.payload_pages
    }

    /// Takes the records out of what was asked for and makes a frame of them.
    pub(super) fn compose(
        self,
        asked: &mut VecDeque<Asked>,
        disk: &Disk,
        mut records: Vec<Part>,
    ) -> Composed {
        records.clear();
        let mut page = self.header_pages();
        let mut is_any_durable = false;
        let mut note = |slot, group, durable, record: &Record| {
            let is_durable = durable == Durable::Yes;
            is_any_durable |= is_durable;
            records.push(Part {
                slot,
                group,
                is_durable,
                page,
                pages: record.pages(),
                in_header: record.header_len() as u32,
            });
            page += record.pages();
        };
        let buf = if self.count == 1 {
            let Some(Asked::Append {
                record,
                durable,
                slot,
                group,
            }) = asked.pop_front()
            else {
                unreachable!("the plan was made of records");
            };
            note(slot, group, durable, &record);
            record.into_frame()
        } else {
            let mut buf = disk.buffer(self.pages() as usize * PAGE);
            let (header, payloads) = buf.split_at_mut(self.header_pages() as usize * PAGE);
            let (mut at, mut to) = (FIXED_LEN, 0);
            for asked in asked.drain(..self.count) {
                let Asked::Append {
                    record,
                    durable,
                    slot,
                    group,
                } = asked
                else {
                    unreachable!("the plan was made of records");
                };
                note(slot, group, durable, &record);
                let (in_header, payload) = (record.in_header(), record.payload());
                header[at..][..in_header.len()].copy_from_slice(in_header);
                payloads[to..][..payload.len()].copy_from_slice(payload);
                at += in_header.len();
                to += payload.len();
            }
            header[at..].fill(0);
            buf
        };
        Composed {
            buf: Some(buf),
            pages: self.pages(),
            header_pages: self.header_pages(),
            count: self.count as u16,
            used: self.header_len as u32,
            is_durable: is_any_durable,
            records,
        }
    }
}

impl Composed {
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    /// The same frame without the records of a group; none if there are no others. It is not under way.
    pub(super) fn without(&self, group: u64, disk: &Disk) -> Option<Self> {
        let is_kept = |part: &&Part| part.group != Some(group);
        let kept = || self.records.iter().filter(is_kept);
        let used = FIXED_LEN as u32 + kept().map(|part| part.in_header).sum::<u32>();
        let header_pages = used.div_ceil(PAGE as u32);
        let pages = header_pages + kept().map(|part| part.pages).sum::<u32>();
        let old = self.buf.as_ref().expect("it is not under way");
        let mut buf = disk.buffer(pages as usize * PAGE);
        let (header, payloads) = buf.split_at_mut(header_pages as usize * PAGE);
        let mut records = Vec::with_capacity(kept().count());
        let (mut from, mut at, mut to) = (FIXED_LEN, FIXED_LEN, 0);
        for part in &self.records {
            let in_header = part.in_header as usize;
            if is_kept(&part) {
                let payload = &old[part.page as usize * PAGE..][..part.pages as usize * PAGE];
                header[at..][..in_header].copy_from_slice(&old[from..][..in_header]);
                payloads[to..][..payload.len()].copy_from_slice(payload);
                let page = header_pages + (to / PAGE) as u32;
                records.push(Part { page, ..*part });
                at += in_header;
                to += payload.len();
            }
            from += in_header;
        }
        header[at..].fill(0);
        (!records.is_empty()).then(|| Self {
            buf: Some(buf),
            pages,
            header_pages,
            count: records.len() as u16,
            used,
            is_durable: kept().any(|part| part.is_durable),
            records,
        })
    }

    /// Completes the header for this place, and hands the memory out.
    pub(super) fn stamp(
        &mut self,
        held: &Held,
        page: u32,
        epoch: Epoch,
        stream: StreamId,
        durable: u32,
    ) -> Buf {
        let mut buf = fitting(
            self.buf.take().expect("it is not under way"),
            held.server.disk(),
        );
        let header = FrameHeader {
            place: Place {
                extent: held.place.extent,
                stream,
                number: held.number,
                page,
            },
            epoch,
            header_pages: self.header_pages,
            pages: self.pages,
            durable,
            previous: held.previous,
            count: self.count,
            used: self.used,
        };
        let bytes = self.header_pages as usize * PAGE;
        header.emit(held.server.seed(), &mut buf[..bytes]);
        buf
    }

    /// Takes the memory back.
    pub(super) fn give_back(&mut self, buf: Buf) {
        self.buf = Some(buf);
    }

    /// What an append of one of its records ends with, at this place.
    pub(super) fn appended(&self, part: &Part, number: u32, page: u32) -> Appended {
        let frame = start_of(number).plus(page);
        Appended {
            at: frame.plus(part.page),
            frame,
            end: frame.plus(self.pages),
        }
    }
}

/// Memory that this disk takes: that of another one may be aligned to less.
fn fitting(buf: Buf, disk: &Disk) -> Buf {
    let block = disk.geometry().block as usize;
    if (buf.as_ptr() as usize).is_multiple_of(block) {
        return buf;
    }
    let mut copy = disk.buffer(buf.len());
    copy.copy_from_slice(&buf);
    copy
}
