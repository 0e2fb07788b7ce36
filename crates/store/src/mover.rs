//! Where records go that outlive their segment, and tombstones that have to.
//!
//! A mover has an open segment of its own. It is open before anybody asks whether a record is
//! live: so a copy of a record that is removed meanwhile stands in a segment that the remover's
//! tombstone knows of (see `Session::remove`).
//!
//! What is moved comes to a segment with a greater sequence number, always: one that was opened after
//! what is given up ends the mover's open segment. Recovery relies on it: what is lost of a segment is
//! older than its end, whoever wrote it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use block::{Buf, Disk, Durable};

use crate::batch::Member;
use crate::counters::add;
use crate::error::StoreError;
use crate::format::record::Record;
use crate::format::segment::{Kind, Settled};
use crate::hash::KeyHash;
use crate::index::{Place, SizeCode};
use crate::maintain::begin_segment;
use crate::shared::Shared;
use crate::stream::Room;
use crate::writer::{Unended, compose};

/// How much is written at once.
pub(crate) const BATCH: usize = 256 << 10;

/// What becomes of a record's copy when it is written.
enum Then {
    /// The index points at it, if it pointed at the record until now.
    Point { hash: KeyHash, old: Place },
    /// It is a tombstone.
    Count { fence: u64 },
}

/// Copies records into segments of its own.
pub(crate) struct Mover {
    shared: Arc<Shared>,
    disk: Disk,
    /// What is left of the open segment.
    room: Option<Room>,
    buf: Option<Buf>,
    len: usize,
    members: Vec<Member>,
    then: Vec<Then>,
    /// Copies that the index points at and that no flush has covered yet: whose, from where, to where.
    unflushed: Vec<(KeyHash, Place, Place)>,
    /// Segments that were opened since the last flush: nothing else is in them but tombstones.
    fresh: Vec<u32>,
    found_no_segment: bool,
}

impl Mover {
    pub(crate) fn new(shared: Arc<Shared>, disk: Disk) -> Self {
        Self {
            shared,
            disk,
            room: None,
            buf: None,
            len: 0,
            members: Vec::new(),
            then: Vec::new(),
            unflushed: Vec::new(),
            fresh: Vec::new(),
            found_no_segment: false,
        }
    }

    /// Makes room for a record of so many bytes that comes from the segment with this sequence number, in
    /// one with a greater number that is open when this returns.
    pub(crate) async fn make_room(&mut self, len: usize, from: u64) -> Result<(), StoreError> {
        let layout = *self.shared.layout();
        let start = layout.batch_start();
        let end = self.len.max(start) + len;
        let fits = |room: Room, end| room.seq > from && layout.blocks_of(end) <= room.blocks;
        if !self.members.is_empty() && (end > BATCH || !self.room.is_some_and(|r| fits(r, end))) {
            self.write().await?;
        }
        let end = self.len.max(start) + len;
        if self.room.is_some_and(|room| fits(room, end)) {
            return Ok(());
        }
        if let Some(room) = self.room.take() {
            self.shared.segments.seal(room.segment);
        }
        self.found_no_segment = true;
        let segments = &self.shared.segments;
        let opened = segments.open(Kind::Moved, 0);
        let opened = opened.or_else(|| segments.open_doubtful(Kind::Moved, 0));
        let opened = opened.ok_or(StoreError::Full)?;
        let room = begin_segment(&self.shared, &self.disk, opened, Kind::Moved).await?;
        self.fresh.push(room.segment);
        self.room = Some(room);
        self.found_no_segment = false;
        Ok(())
    }

    /// Whether room was asked for since the last time and no segment could be opened: what was to be
    /// moved is not to blame.
    pub(crate) fn take_found_no_segment(&mut self) -> bool {
        std::mem::take(&mut self.found_no_segment)
    }

    /// Adds a copy of a record that the index points at; there is room for it.
    pub(crate) fn copy(&mut self, record: &Record<'_>, hash: KeyHash, old: Place) {
        self.add(record, Then::Point { hash, old });
    }

    /// Adds a tombstone; there is room for it.
    pub(crate) fn bury(&mut self, record: &Record<'_>, fence: u64) {
        self.add(record, Then::Count { fence });
    }

    fn add(&mut self, record: &Record<'_>, then: Then) {
        let layout = self.shared.layout();
        let at = self.len.max(layout.batch_start());
        let len = record.encoded_len();
        let end = (at + len).next_multiple_of(layout.grain());
        let held = self.buf.as_ref().map_or(0, |buf| buf.len());
        if end > held {
            let mut wider = self.disk.buffer(end.next_power_of_two().max(BATCH));
            if let Some(buf) = &self.buf {
                wider[..at].copy_from_slice(&buf[..at]);
            }
            self.buf = Some(wider);
        }
        let buf = self.buf.as_mut().expect("made above");
        record.emit(&mut buf[at..]);
        buf[at + len..end].fill(0);
        self.len = end;
        self.members.push(Member { at, len, of: None });
        self.then.push(then);
    }

    /// Writes what was added, and has the index point at it.
    pub(crate) async fn write(&mut self) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        let layout = shared.layout();
        let (Some(mut buf), Some(room)) = (self.buf.take(), self.room) else {
            return Ok(());
        };
        if self.members.is_empty() {
            self.buf = Some(buf);
            return Ok(());
        }
        let blocks = layout.blocks_of(self.len);
        let place = Room { blocks, ..room };
        let padded = blocks as usize * layout.block();
        if padded > buf.capacity() {
            let mut wider = self.disk.buffer(padded);
            wider[..self.len].copy_from_slice(&buf[..self.len]);
            buf = wider;
        }
        buf.set_len(padded);
        buf[self.len..].fill(0);
        let crc = compose(&shared, place, &mut buf[..self.len], &self.members, 0);
        self.room = Some(Room {
            block: room.block + blocks,
            blocks: room.blocks - blocks,
            ..room
        });
        let mut unended = Unended::new(&shared, &place);
        let at = shared.layout().block_at(room.segment, room.block);
        // Durable before the segment they come from is given up: its collector flushes.
        let write = shared.writes.write(&self.disk, buf, at, Durable::No);
        unended.is_sent = true;
        let written = write.to(&shared.segments, room.segment).await;
        unended.is_sent = false;
        let (result, mut buf) = written;
        let members = std::mem::take(&mut self.members);
        let then = std::mem::take(&mut self.then);
        self.len = 0;
        buf.set_len(buf.capacity());
        self.buf = Some(buf);
        if let Err(error) = result {
            // The rest of the segment may be as bad.
            self.room = None;
            shared.segments.seal(room.segment);
            return Err(error.into());
        }
        unended.end(room.block + blocks, crc, members.len() as u32);
        add(&shared.counters.moved_bytes, padded as u64);
        for (member, then) in members.iter().zip(then) {
            let grains = member.len.div_ceil(layout.grain()) as u64;
            let grain = (room.block << (layout.block_shift - layout.grain_shift))
                + (member.at >> layout.grain_shift) as u32;
            match then {
                Then::Point { hash, old } => {
                    let new = layout.place(room.segment, grain);
                    let new = Place::new(new, SizeCode::of(grains));
                    if shared.relocate(hash, old, new) {
                        self.unflushed.push((hash, old, new));
                        add(&shared.counters.moved, 1);
                    }
                }
                Then::Count { fence } => {
                    shared.segments.add_tombstone(room.segment, grains, fence);
                }
            }
        }
        Ok(())
    }

    /// A flush has covered all copies: everything that was written so far is durable.
    pub(crate) fn settle(&mut self) {
        self.unflushed.clear();
        self.fresh.clear();
        if let Some(room) = &mut self.room {
            room.settled = room.block;
            self.shared.segments.settle_moved(Settled {
                seq: room.seq,
                block: room.block,
            });
        }
    }

    /// A flush has failed: the copies may be lost, whatever a later flush says. The index points at what
    /// they are copies of again. Returns the segments in which nothing counts then, tombstones included: what they are copies
    /// of stays.
    pub(crate) fn take_back(&mut self) -> Vec<u32> {
        let shared = &self.shared;
        // Who visits all keys meanwhile learns of it: they come to what he has left behind.
        shared.taken_back.fetch_add(1, Ordering::SeqCst);
        for (hash, old, new) in self.unflushed.drain(..) {
            // Whoever has changed the key since has replaced the copy.
            let _is_changed = !shared.relocate(hash, new, old);
        }
        shared.taken_back.fetch_add(1, Ordering::SeqCst);
        std::mem::take(&mut self.fresh)
    }

    /// A flush has failed: what was written since the last one is lost, and the next one does not tell.
    pub(crate) fn abandon(&mut self) {
        if let Some(room) = &self.room {
            self.shared.segments.note_failure(room.segment);
        }
        self.end();
    }

    /// Ends the open segment.
    pub(crate) fn end(&mut self) {
        if let Some(room) = self.room.take() {
            self.shared.segments.seal(room.segment);
        }
    }
}
