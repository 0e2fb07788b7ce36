//! Gathers records of one core into batches, and writes these to a stream of the log.
//!
//! Whatever is asked to be written between two turns of the driver becomes one batch. With several
//! batches on their way the next one grows until one of them has ended, or it is large enough: so a
//! lone PUT is written at once, and many share their writes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::ops::{Deref, Range};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

use block::{Buf, Disk, Durable};

use crate::batch::{Batch, HeldBatch, Member, Ticket};
use crate::counters::{Counters, count};
use crate::error::StoreError;
use crate::flights::Turn;
use crate::format::batch::BatchHeader;
use crate::format::layout::Layout;
use crate::format::record::{self, Record};
use crate::hash::KeyHash;
use crate::read::View;
use crate::shared::Shared;
use crate::stream::Room;

/// A batch that is this long, or fills a segment, is not held back.
const LARGE: usize = 256 << 10;
/// What a batch's buffer holds at least.
const USUAL: usize = 16 << 10;
/// A batch that is not large yet is held back while this many are on their way.
const ON_THEIR_WAY: usize = 4;

/// None holds the writer: it is dropped with them.
type Task = Pin<Box<dyn Future<Output = ()>>>;

struct Open {
    buf: Buf,
    len: usize,
    batch: HeldBatch,
}

/// The writer of one core to one stream.
#[derive(Clone)]
pub(crate) struct Writer(Rc<Inner>);

pub(crate) struct Inner {
    shared: Arc<Shared>,
    disk: Disk,
    counters: Arc<Counters>,
    open: RefCell<Option<Open>>,
    /// Large ones that wait for their write to begin.
    full: RefCell<VecDeque<Open>>,
    writing: RefCell<Vec<Task>>,
    /// The batch whose write was begun last has no place for all of its records yet. No other one begins
    /// before it has: records that are added later come behind those that were added before.
    is_placing: Rc<Cell<bool>>,
    /// The driver is no more.
    has_panicked: Cell<bool>,
    /// Changes whose records were gathered, and whose callers go on with them: they may still leave them.
    under_way: Cell<usize>,
    /// Changes whose callers have gone, after their records had been gathered.
    left: RefCell<Vec<Task>>,
    /// A batch that is this long is not held back. None is longer but for one record: it waits for one segment at most,
    /// and keeps but one from being given up.
    large: usize,
    /// What the next batch's buffer holds at first: as much as the one before it, so that under a steady
    /// load no batch outgrows its buffer.
    buffer_len: Cell<usize>,
    /// All that were ever needed at once.
    batches: RefCell<Vec<Rc<Batch>>>,
    driver: RefCell<Option<Waker>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The driver may be about to be the last who holds it, and wait for that.
        if Rc::strong_count(&self.0) == 2 {
            self.wake();
        }
    }
}

impl Deref for Writer {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, disk: Disk, counters: Arc<Counters>) -> Self {
        let large = LARGE.min(shared.layout().record_max());
        Self(Rc::new(Inner {
            shared,
            disk,
            counters,
            open: RefCell::default(),
            full: RefCell::default(),
            writing: RefCell::default(),
            is_placing: Rc::default(),
            has_panicked: Cell::default(),
            under_way: Cell::default(),
            left: RefCell::default(),
            large,
            buffer_len: Cell::new(USUAL),
            batches: RefCell::default(),
            driver: RefCell::default(),
        }))
    }

    /// A batch without records.
    fn batch(&self) -> HeldBatch {
        let mut batches = self.batches.borrow_mut();
        let unused = batches.iter().find(|batch| batch.is_unused());
        unused.map(HeldBatch::new).unwrap_or_else(|| {
            let batch = Batch::new(self.shared.clone());
            let held = HeldBatch::new(&batch);
            batches.push(batch);
            held
        })
    }

    /// Whether the record of a change is gathered here and has no place yet: whatever is added from now on
    /// comes behind it.
    pub(crate) fn is_gathered(&self, hash: KeyHash, turn: Turn) -> bool {
        let is_in = |open: &Open| {
            let members = open.batch.members.borrow();
            members
                .iter()
                .rev()
                .any(|member| member.of == Some((hash, turn)))
        };
        self.open.borrow().as_ref().is_some_and(is_in) || self.full.borrow().iter().any(is_in)
    }

    /// Adds a record to the open batch, unless the store is closed: nobody might write it. `of` says of
    /// which change it is, if others may follow it.
    pub(crate) fn append(
        &self,
        record: &Record<'_>,
        of: Option<(KeyHash, Turn)>,
    ) -> Result<Ticket, StoreError> {
        if self.shared.is_closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        if self.has_panicked.get() {
            return Err(StoreError::Undriven);
        }
        let layout = &self.shared.superblock.layout;
        let len = record.encoded_len();
        let mut slot = self.open.borrow_mut();
        if slot
            .as_ref()
            .is_some_and(|open| open.len + len > self.large)
        {
            self.full.borrow_mut().extend(slot.take());
        }
        let open = slot.get_or_insert_with(|| Open {
            buf: self.disk.buffer(self.buffer_len.get()),
            len: layout.batch_start(),
            batch: self.batch(),
        });
        let at = open.len;
        let end = (at + len).next_multiple_of(layout.grain());
        if end > open.buf.len() {
            // Doubled: what is copied on the way is less than the batch.
            let mut wider = self.disk.buffer(end.next_power_of_two());
            wider[..at].copy_from_slice(&open.buf[..at]);
            open.buf = wider;
        }
        record.emit(&mut open.buf[at..]);
        open.buf[at + len..end].fill(0);
        open.len = end;
        let mut members = open.batch.members.borrow_mut();
        members.push(Member { at, len, of });
        let ticket = Ticket {
            batch: open.batch.clone(),
            number: members.len() - 1,
        };
        drop(members);
        drop(slot);
        self.wake();
        Ok(ticket)
    }

    /// A change's record was gathered. The driver goes on until the change has ended.
    pub(crate) fn begin(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    /// The change has ended, or was given to [`Writer::go_on_with`].
    pub(crate) fn end(&self) {
        let under_way = self.under_way.get() - 1;
        self.under_way.set(under_way);
        if under_way == 0 && self.shared.is_closed.load(Ordering::Relaxed) {
            // The driver may have nothing else to wait for.
            self.wake();
        }
    }

    /// Has the driver go on with a change that its caller has left. Without a driver it is dropped.
    pub(crate) fn go_on_with(&self, change: impl Future<Output = ()> + 'static) {
        if self.has_panicked.get() {
            return;
        }
        self.left.borrow_mut().push(Box::pin(change));
        self.wake();
    }

    fn wake(&self) {
        // Whatever it runs may use the writer.
        let driver = self.driver.take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// Whether nothing is gathered nor on its way, nor can be left.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.get() == 0 && !self.has_work()
    }

    /// Whether it has no clones.
    pub(crate) fn is_alone(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    /// Whether it has panicked: it writes nothing any more.
    pub(crate) fn has_panicked(&self) -> bool {
        self.has_panicked.get()
    }

    /// Begins writes and goes on with those on their way. To be called again when the waker says so.
    #[inline]
    pub(crate) fn step(&self, cx: &mut Context<'_>) {
        let will_wake = |driver: &Waker| driver.will_wake(cx.waker());
        let is_kept = self.driver.borrow().as_ref().is_some_and(will_wake);
        // Between writes, as when its tasks only read, there is nothing to do.
        if (is_kept && !self.has_work()) || self.has_panicked.get() {
            return;
        }
        self.step_guarded(cx);
    }

    /// Whether something is gathered, on its way or left.
    fn has_work(&self) -> bool {
        // `writing` last: whoever is woken while it is borrowed asks too.
        self.open.borrow().is_some()
            || !self.full.borrow().is_empty()
            || !self.left.borrow().is_empty()
            || !self.writing.borrow().is_empty()
    }

    #[inline(never)]
    fn step_guarded(&self, cx: &mut Context<'_>) {
        let fuse = Fuse(self);
        self.step_on(cx);
        std::mem::forget(fuse);
    }

    /// Tells all who wait that nothing is written any more.
    pub(crate) fn fail(&self) {
        tracing::error!(device = %self.disk.name(), "what writes for a session of a store has panicked");
        self.has_panicked.set(true);
        let open = self.open.take();
        let full = self.full.take();
        for open in open.into_iter().chain(full) {
            open.batch.end(Err(StoreError::Undriven));
        }
        // Those tell who waits for them. What they have begun is as after an error.
        drop((self.writing.take(), self.left.take()));
    }

    fn step_on(&self, cx: &mut Context<'_>) {
        let will_wake = |driver: &Waker| driver.will_wake(cx.waker());
        if !self.driver.borrow().as_ref().is_some_and(will_wake) {
            // The old one may be the last that holds a task, which may use the writer when it is dropped.
            let old = self.driver.replace(Some(cx.waker().clone()));
            drop(old);
        }
        self.write(cx);
        if !self.left.borrow().is_empty() {
            // They may leave something behind themselves.
            let mut left = self.left.take();
            left.retain_mut(|change| change.as_mut().poll(cx).is_pending());
            self.left.borrow_mut().append(&mut left);
        }
    }

    fn write(&self, cx: &mut Context<'_>) {
        let mut writing = self.writing.borrow_mut();
        writing.retain_mut(|write| write.as_mut().poll(cx).is_pending());
        while !self.is_placing.get() {
            let full = self.full.borrow_mut().pop_front();
            let next = full.or_else(|| {
                let may = writing.len() < ON_THEIR_WAY;
                self.open.borrow_mut().take_if(|_| may)
            });
            let Some(open) = next else {
                return;
            };
            let len = open.len.next_power_of_two();
            self.buffer_len.set(len.clamp(USUAL, LARGE));
            let (shared, disk) = (self.shared.clone(), self.disk.clone());
            let (counters, is_placing) = (self.counters.clone(), self.is_placing.clone());
            is_placing.set(true);
            let mut write: Task = Box::pin(write(shared, disk, counters, is_placing, open));
            if write.as_mut().poll(cx).is_pending() {
                writing.push(write);
            }
        }
    }
}

/// Tells all who wait for a writer when it panics. Forgotten otherwise.
struct Fuse<'w>(&'w Writer);

impl Drop for Fuse<'_> {
    fn drop(&mut self) {
        self.0.fail();
    }
}

/// Ends a batch if its write is dropped.
struct Ending<'b> {
    batch: &'b Batch,
    has_ended: bool,
}

impl Ending<'_> {
    fn end(mut self, outcome: Result<(), StoreError>) {
        self.has_ended = true;
        self.batch.end(outcome);
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.batch.end(Err(StoreError::Undriven));
        }
    }
}

async fn write(
    shared: Arc<Shared>,
    disk: Disk,
    counters: Arc<Counters>,
    is_placing: Rc<Cell<bool>>,
    open: Open,
) {
    let Open { buf, len, batch } = open;
    let members = batch.members.take();
    let ending = Ending {
        batch: &batch,
        has_ended: false,
    };
    let view = View {
        shared: &shared,
        disk: &disk,
        counters: &counters,
    };
    let outcome = write_parts(view, buf, len, &batch, &members, &is_placing).await;
    if outcome.is_err() && batch.placed_len() < members.len() {
        is_placing.set(false);
    }
    batch.members.replace(members);
    ending.end(outcome);
}

/// Writes a batch: at once if its segment has room for it, otherwise what fits, and the rest to
/// the next segment.
async fn write_parts(
    view: View<'_>,
    buf: Buf,
    len: usize,
    batch: &Batch,
    members: &[Member],
    is_placing: &Cell<bool>,
) -> Result<(), StoreError> {
    let View {
        shared,
        disk,
        counters,
    } = view;
    let layout = &shared.superblock.layout;
    let mut whole = Some(buf);
    let mut rest = members;
    while let Some(first) = rest.first() {
        let fit = |blocks| layout.blocks_of(fitting(layout, rest, blocks).1);
        let room = shared
            .user
            .take(&shared.segments, fit, || shared.wake_maintainer());
        let room = room.await?;
        batch.hold(room.segment);
        let mut unended = Unended::new(shared, &room);
        let (fitting, bytes) = fitting(layout, rest, room.blocks);
        let padded = room.blocks as usize * layout.block();
        let (part, after) = rest.split_at(fitting);
        let shift = first.at - layout.batch_start();
        let mut buf = if shift == 0 && after.is_empty() && padded <= capacity(&whole) {
            let mut buf = whole.take().expect("the first part is the last one");
            buf.set_len(padded);
            buf
        } else {
            let from = whole.as_ref().expect("kept until the last part");
            let mut buf = disk.buffer(padded);
            buf[..bytes].copy_from_slice(&from[shift..shift + bytes]);
            buf
        };
        debug_assert!(shift + bytes <= len);
        buf[bytes..].fill(0);
        let crc = compose(shared, room, &mut buf[..bytes], part, shift);
        for member in part {
            let grain = grain_of(layout, room, member.at - shift);
            batch.place(&room, grain, member);
        }
        rest = after;
        if rest.is_empty() {
            is_placing.set(false);
        }
        let at = shared.layout().block_at(room.segment, room.block);
        count(&counters.batches, 1);
        count(&counters.written_bytes, padded as u64);
        let write = shared.writes.write(disk, buf, at, shared.durable());
        unended.is_sent = true;
        let written = write.to(&shared.segments, room.segment).await;
        unended.is_sent = false;
        let (result, _) = written;
        result?;
        let end = room.block + room.blocks;
        unended.end(end, crc, part.len() as u32);
        if shared.durable() == Durable::Yes {
            shared.user.settle(&room);
        }
    }
    Ok(())
}

/// A batch on its way to a segment. If it is dropped before it has ended, nobody knows what the segment
/// holds.
pub(crate) struct Unended<'s> {
    shared: &'s Shared,
    segment: u32,
    seq: u64,
    blocks: Range<u32>,
    has_ended: bool,
    /// The device may have it, and not be done with it.
    pub(crate) is_sent: bool,
}

impl<'s> Unended<'s> {
    /// It is to take all of this room.
    pub(crate) fn new(shared: &'s Shared, room: &Room) -> Self {
        Self {
            shared,
            segment: room.segment,
            seq: room.seq,
            blocks: room.block..room.block + room.blocks,
            has_ended: false,
            is_sent: false,
        }
    }

    /// The batch was written, up to the block `end`.
    pub(crate) fn end(mut self, end: u32, crc: u32, records: u32) {
        self.has_ended = true;
        self.shared
            .segments
            .note_batch(self.segment, end, crc, records);
    }
}

impl Drop for Unended<'_> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let segments = &self.shared.segments;
        match self.is_sent {
            true => segments.note_failure(self.segment),
            false => segments.note_failed_batch(self.segment, self.blocks.clone()),
        }
        self.shared.user.leave(self.seq);
    }
}

fn capacity(buf: &Option<Buf>) -> usize {
    buf.as_ref().map_or(0, Buf::capacity)
}

/// How many of the members go into a batch of so many blocks, and how long that becomes.
fn fitting(layout: &Layout, members: &[Member], blocks: u32) -> (usize, usize) {
    let limit = (blocks as usize) << layout.block_shift;
    let start = members[0].at - layout.batch_start();
    let end = |member: &Member| (member.at + member.len).next_multiple_of(layout.grain()) - start;
    // Most of the time all of them do.
    let count = match members.last() {
        Some(last) if end(last) <= limit => members.len(),
        _ => members.partition_point(|member| end(member) <= limit),
    };
    let bytes = members[..count].last().map_or(0, end);
    (count, bytes)
}

/// The grain of a segment at which a byte of a batch lies.
fn grain_of(layout: &Layout, room: Room, at: usize) -> u32 {
    (room.block << (layout.block_shift - layout.grain_shift)) + (at >> layout.grain_shift) as u32
}

/// Puts the header before the records of a batch, whose members' places are `shift` too great, and
/// ties them to their place. Returns the header's checksum.
pub(crate) fn compose(
    shared: &Shared,
    room: Room,
    bytes: &mut [u8],
    members: &[Member],
    shift: usize,
) -> u32 {
    let (layout, seed) = (&shared.superblock.layout, shared.superblock.check_seed);
    let header = BatchHeader {
        kind: room.kind,
        seq: room.seq,
        block: room.block,
        bytes: bytes.len() as u32,
        records: members.len() as u32,
        settled: room.settled,
    };
    bytes[..layout.batch_start()].fill(0);
    let crc = header.emit(seed, bytes);
    for member in members {
        let at = member.at - shift;
        record::tie(&mut bytes[at..], seed, room.seq, grain_of(layout, room, at));
    }
    crc
}
