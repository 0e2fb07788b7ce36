//! Where a file's data is: block maps, and what reads and writes need of them.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `mod` | plans of reads and writes |
//! | `map` | block maps |
//! | `prepare` | what has to be durable before data moves: block numbers, marks |
//! | `size` | cuts, holes, room |
//! | `copy` | copies within the file layer |
//! | `clone` | clones, which share blocks |

pub(crate) use size::ROWS_A_STEP;

mod clone;
mod copy;
mod map;
mod prepare;
mod size;

use std::cell::Cell;
use std::rc::Rc;

use files::waits::{Wait, waiting};
use files::{Answer, Caller, Error, Handle, Range, SeekDone, SeekFor, Share};

use crate::blocks::{BLOCK_LEN, BlockId, Mark, Span};
use crate::format::inode::Inode;
use crate::inner::{Inner, Job, Loaded, Stop};
use crate::slots::{Held, Mode, Place};

/// How often a plan is begun anew.
const TRIES_MAX: usize = 32;

/// Bytes of a plan for reading at most; a longer read is answered in part.
const READ_LEN_MAX: u64 = 1 << 30;

/// Part of a read or a write: bytes of a file that are in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where they are in the file.
    pub offset: u64,
    /// How many.
    pub len: u32,
    /// Where they are stored; `None` is a hole. Of a write there is always a block.
    pub span: Option<Span>,
}

/// What a read has to fetch. For as long as it lives, nothing cuts the file.
pub struct ReadPlan {
    /// In the order of the file.
    pub pieces: Vec<Piece>,
    /// How many bytes there are to read.
    pub len: u64,
    /// Whether they reach the end of the file.
    pub is_end: bool,
    _held: Held,
}

/// What a write has to store. For as long as it lives, nothing cuts the file.
#[must_use = "what was written shows once the plan is ended"]
pub struct WritePlan {
    /// In the order of the file.
    pub pieces: Vec<Piece>,
    /// What each record carries, but for its end.
    mark: Mark,
    file: Handle,
    offset: u64,
    reserved: Cell<u64>,
    is_ended: bool,
    is_counted: bool,
    inner: Rc<Inner>,
    _held: Held,
}

/// What came of a write's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// How many bytes were stored, from the first.
    pub len: u64,
    /// Bytes that the file's blocks occupy now and did not before.
    pub grown: u64,
    /// Whether that is all of the write. If it is not, more may be stored than is told here.
    pub is_whole: bool,
}

impl WritePlan {
    /// What the records of a piece have to carry: the file ends behind this piece at least, and not yet where
    /// the whole write does.
    #[must_use]
    pub fn mark_of(&self, piece: &Piece) -> Mark {
        Mark {
            end: piece.offset + u64::from(piece.len),
            ..self.mark
        }
    }

    /// The data is stored, as far as was asked for: size, times and the change number show it from now on.
    pub fn end(mut self, written: Written) {
        self.is_ended = true;
        let end = self.offset + written.len;
        let now = self.inner.now();
        let mut state = self.inner.state.borrow_mut();
        state.with_bytes(self.file, |live| {
            if written.len > 0 {
                let attributes = &mut live.inode.attributes;
                attributes.size = attributes.size.max(end);
            }
            if !written.is_whole {
                live.cut_short(now);
            } else if written.len > 0 {
                live.touch(now);
            }
            live.inode.attributes.used += written.grown;
        });
    }
}

impl Drop for WritePlan {
    fn drop(&mut self) {
        let now = self.inner.now();
        let mut state = self.inner.state.borrow_mut();
        if let Some(volume) = state.volumes.get_mut(&self.file.volume) {
            volume.reserved.bytes -= self.reserved.get() as i64;
        }
        if let Some(live) = state.live.get_mut(&self.file) {
            live.plans = live.plans.saturating_sub(self.is_counted.into());
            if !self.is_ended {
                live.cut_short(now);
            }
        }
    }
}

impl Inner {
    pub(crate) async fn begin_read(
        &self,
        caller: &Caller,
        file: Handle,
        range: Range,
        held: Held,
    ) -> Result<ReadPlan, Error> {
        waiting(Wait::Queue, held.ready()).await;
        let loaded = self.file(file).await?;
        self.need_io(caller, file, &loaded, Share::READ)?;
        let size = loaded.inode.attributes.size;
        let from = range.offset.min(size);
        let len = range.len.min(size - from);
        let is_end = range.offset >= size || from + len == size;
        self.note_read(file, &loaded);
        let planned = len.min(READ_LEN_MAX);
        let pieces = match loaded.inode.has_blocks {
            true => self.pieces(file, from, planned).await?,
            false => holes(from, planned),
        };
        Ok(ReadPlan {
            pieces,
            len: planned,
            is_end: is_end && planned == len,
            _held: held,
        })
    }

    /// The time of the last read is kept as long as memory lasts.
    fn note_read(&self, file: Handle, loaded: &Loaded) {
        let now = self.now();
        if loaded.inode.attributes.atime == now {
            return;
        }
        let mut state = self.state.borrow_mut();
        if let Some(live) = state.live.get_mut(&file) {
            live.inode.attributes.atime = now;
            return;
        }
        let mut inode = Inode::clone(&loaded.inode);
        inode.attributes.atime = now;
        state.cache.keep_inode(file, Rc::new(inode), loaded.version);
    }

    pub(crate) async fn begin_write(
        self: Rc<Self>,
        caller: &Caller,
        file: Handle,
        range: Range,
        held: Held,
    ) -> Result<WritePlan, Error> {
        waiting(Wait::Queue, held.ready()).await;
        for _ in 0..TRIES_MAX {
            match self.try_begin_write(caller, file, range, &held).await {
                // Others have begun meanwhile: the mark has to be renewed.
                Ok((_, _, reserved)) if range.len > 0 && !self.count_plan(file) => {
                    self.unreserve(file, reserved);
                }
                Ok((pieces, mark, reserved)) => {
                    held.give_up(Place::Map(file));
                    return Ok(WritePlan {
                        pieces,
                        mark,
                        file,
                        offset: range.offset,
                        reserved: Cell::new(reserved),
                        is_ended: range.len == 0,
                        is_counted: range.len > 0,
                        inner: self,
                        _held: held,
                    });
                }
                Err(Stop::Refused(error)) => return Err(error),
                Err(Stop::Again) => {}
            }
        }
        Err(Error::Delay)
    }

    /// Counts a write as under way, if its change number is within the mark's bound.
    fn count_plan(&self, file: Handle) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(live) = state.live.get_mut(&file) else {
            return false;
        };
        let is_within = live.has_change_for(live.plans + 1);
        live.plans += u64::from(is_within);
        is_within
    }

    async fn try_begin_write(
        &self,
        caller: &Caller,
        file: Handle,
        range: Range,
        held: &Held,
    ) -> Result<(Vec<Piece>, Mark, u64), Stop> {
        let loaded = self.file(file).await?;
        let end = range.end().ok_or(Error::FileTooLarge)?;
        self.need_io(caller, file, &loaded, Share::WRITE)?;
        if range.len == 0 {
            return Ok((Vec::new(), mark_of(file, &loaded), 0));
        }
        if self.is_ragged(file) {
            let alone = [(Place::Object(file), Mode::Exclusive)];
            held.extend(&alone).await;
            if !self.is_ragged(file) || self.finish_cut_before(file, end).await? {
                return Err(Stop::Again);
            }
            let loaded = self.file(file).await?;
            self.need_io(caller, file, &loaded, Share::WRITE)?;
        }
        let job = Job {
            caller,
            held,
            once: None,
        };
        let reserved = self.reserve(file, range).await?;
        let prepared = self.prepare(&job, file, range).await;
        let prepared = match prepared {
            Ok(pieces) => self
                .load(file)
                .await
                .map(|now| (pieces, now))
                .map_err(Stop::from),
            Err(stop) => Err(stop),
        };
        match prepared {
            Ok((pieces, now)) => Ok((pieces, mark_of(file, &now), reserved)),
            Err(stop) => {
                self.unreserve(file, reserved);
                Err(stop)
            }
        }
    }

    /// Sets bytes of the volume's bound aside for a write. Without a bound it costs nothing; near it, the
    /// file layer says how many the write really takes.
    pub(crate) async fn reserve(&self, file: Handle, range: Range) -> Result<u64, Stop> {
        let left = |inner: &Self| {
            let state = inner.state.borrow();
            let volume = state.volumes.get(&file.volume).ok_or(Error::Stale)?;
            Ok::<_, Error>(volume.row.bytes_max.map(|_| volume.bytes_left()))
        };
        if left(self)?.is_none() {
            return Ok(0);
        }
        let mut missing = 0;
        for piece in self.pieces(file, range.offset, range.len).await? {
            missing += match piece.span {
                Some(span) => self.blocks.missing(span).await?,
                None => whole_pages(piece.offset, u64::from(piece.len)),
            };
        }
        if left(self)?.is_some_and(|left| left < missing) {
            return Err(Error::QuotaExceeded.into());
        }
        let mut state = self.state.borrow_mut();
        if let Some(volume) = state.volumes.get_mut(&file.volume) {
            volume.reserved.bytes += missing as i64;
        }
        Ok(missing)
    }

    pub(crate) fn unreserve(&self, file: Handle, bytes: u64) {
        let mut state = self.state.borrow_mut();
        if let Some(volume) = state.volumes.get_mut(&file.volume) {
            volume.reserved.bytes -= bytes as i64;
        }
    }

    pub(crate) async fn commit_data(&self, file: Handle, range: Range) -> Result<Answer, Stop> {
        self.file(file).await?;
        range.offset.checked_add(range.len).ok_or(Error::Invalid)?;
        // One flush makes all of it durable: nothing is gained by asking for less.
        let verifier = self.blocks.commit().await?;
        Ok(Answer::Committed { verifier })
    }

    pub(crate) async fn seek(
        &self,
        job: &Job<'_>,
        file: Handle,
        (offset, what): (u64, SeekFor),
    ) -> Result<Answer, Stop> {
        let loaded = self.file(file).await?;
        self.need_io(job.caller, file, &loaded, Share::READ)?;
        let size = loaded.inode.attributes.size;
        if offset >= size {
            return Err(Error::NothingThere.into());
        }
        let found = match what {
            SeekFor::Data => self.seek_data(file, offset, size).await?,
            SeekFor::Hole => self.seek_hole(file, offset, size).await?,
        };
        let offset = found.min(size);
        let is_end = offset == size;
        Ok(Answer::Seek(SeekDone { offset, is_end }))
    }

    async fn seek_data(&self, file: Handle, offset: u64, size: u64) -> Result<u64, Error> {
        let mut at = offset;
        while at < size {
            let Some((number, block)) = self.next_mapped(file, at / BLOCK_LEN).await? else {
                break;
            };
            let start = (number * BLOCK_LEN).max(at);
            let from = (start % BLOCK_LEN) as u32;
            if let Some(found) = self.blocks.seek(block, from, SeekFor::Data).await? {
                return Ok(number * BLOCK_LEN + u64::from(found));
            }
            at = (number + 1) * BLOCK_LEN;
        }
        Ok(size)
    }

    async fn seek_hole(&self, file: Handle, offset: u64, size: u64) -> Result<u64, Error> {
        let mut at = offset;
        while at < size {
            let number = at / BLOCK_LEN;
            let Some(block) = self.block(file, number).await? else {
                return Ok(at);
            };
            let from = (at % BLOCK_LEN) as u32;
            let found = self.blocks.seek(block, from, SeekFor::Hole).await?;
            if let Some(found) = found.filter(|found| u64::from(*found) < BLOCK_LEN) {
                return Ok(number * BLOCK_LEN + u64::from(found));
            }
            at = (number + 1) * BLOCK_LEN;
        }
        Ok(size)
    }
}

/// What records of a file carry that do not say where it ends.
pub(crate) fn mark_of(file: Handle, loaded: &Loaded) -> Mark {
    Mark {
        file,
        end: 0,
        truncate_epoch: loaded.inode.truncate_epoch,
        snapshot_epoch: loaded.inode.snapshot_epoch,
    }
}

/// The bytes of one block that a range begins with: the block's number, where in it, how many.
pub(crate) fn first_part(offset: u64, len: u64) -> (u64, u32, u32) {
    let from = offset % BLOCK_LEN;
    let len = len.min(BLOCK_LEN - from);
    (offset / BLOCK_LEN, from as u32, len as u32)
}

/// A piece of a block, or a hole.
pub(crate) fn piece(offset: u64, block: Option<BlockId>, from: u32, len: u32) -> Piece {
    Piece {
        offset,
        len,
        span: block.map(|block| Span { block, from, len }),
    }
}

/// A range without any block, in pieces of a block's length.
fn holes(offset: u64, len: u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut at, end) = (offset, offset + len);
    while at < end {
        let (_, from, len) = first_part(at, end - at);
        pieces.push(piece(at, None, from, len));
        at += u64::from(len);
    }
    pieces
}

/// Bytes of the pages that a range touches.
fn whole_pages(offset: u64, len: u64) -> u64 {
    const PAGE: u64 = 4096;
    let end = offset.saturating_add(len).div_ceil(PAGE);
    (end - offset / PAGE) * PAGE
}
