//! Cuts, holes, and room that is set aside.

use files::{Answer, Error, Handle, Range, Share};

use super::map::place;
use super::mark_of;
use crate::blocks::{BLOCK_LEN, BlockId, Mark, Span};
use crate::cache::MapRow;
use crate::commit::Draft;
use crate::format::inode::Inode;
use crate::format::keys::{self, RowKind};
use crate::format::rows::{MAP_ROW_BLOCKS, decode_map, encode_nothing};
use crate::inner::{BAD_KEY, Inner, Job, Loaded, Stop, bad_row};

/// Rows of a block map that one transaction deletes at most.
pub(crate) const ROWS_A_STEP: usize = 32;

/// Bytes that holes are made in.
const PAGE: u64 = 4096;

impl Inner {
    /// Whether bytes behind a file's end may be stored.
    pub(crate) fn is_ragged(&self, file: Handle) -> bool {
        let state = self.state.borrow();
        state.live.get(&file).is_some_and(|live| live.is_ragged)
    }

    /// Cuts off what is stored behind a file's end. The caller holds the file exclusively. Fine a second
    /// time, so that what a crash interrupts is done again.
    pub(crate) async fn finish_cut(&self, file: Handle) -> Result<(), Stop> {
        let loaded = self.file(file).await?;
        self.make_live(file, &loaded);
        if self.with_live(file, |live| live.has_stray_ends) {
            self.raise_truncate_epoch(file, &loaded).await?;
        }
        let loaded = self.file(file).await?;
        let size = loaded.inode.attributes.size;
        let mark = mark_of(file, &loaded);
        let gone_from = size.div_ceil(BLOCK_LEN);
        self.cut_last(file, size, mark).await?;
        let (mut row, _) = place(gone_from);
        loop {
            let range = keys::parts_from(RowKind::Map, file, row, u64::MAX);
            let rows = self.scan(range, ROWS_A_STEP).await?;
            let mut draft = Draft::default();
            for (key, value) in &rows {
                let mut ids = decode_map(&value.value).map_err(|bad| bad_row(key, bad))?;
                let (_, number) = keys::part_of(key).ok_or_else(|| bad_row(key, BAD_KEY))?;
                let seen = MapRow {
                    ids: ids.into(),
                    version: value.version,
                };
                let gone = take_from(&mut ids, number, gone_from);
                self.free_blocks(file, gone, mark).await?;
                if ids != *seen.ids {
                    draft.put_map(file, number, &seen, ids);
                }
                row = number + 1;
            }
            let is_last = rows.len() < ROWS_A_STEP;
            let loaded = self.load(file).await?;
            draft.put_inode(file, &loaded, Inode::clone(&loaded.inode));
            if is_last {
                draft.delete(keys::task(RowKind::Cut, file));
            }
            self.commit(draft).await?;
            if is_last {
                self.with_live(file, |live| live.is_ragged = false);
                return Ok(());
            }
        }
    }

    /// Cuts off what is stored behind a file's end, before its bytes in front of `end` are changed. If that fails,
    /// since a page there is bad, say, only what does not touch the last whole page in front of the size is let
    /// pass. Returns whether it is done: if not, the file stays as it is behind that page.
    pub(super) async fn finish_cut_before(&self, file: Handle, end: u64) -> Result<bool, Stop> {
        let error = match self.finish_cut(file).await {
            Ok(()) => return Ok(true),
            Err(Stop::Again) => return Err(Stop::Again),
            Err(Stop::Refused(error)) => error,
        };
        let size = self.file(file).await?.inode.attributes.size;
        match end <= size / PAGE * PAGE {
            true => Ok(false),
            false => Err(error.into()),
        }
    }

    /// Has the ends that records have told so far not count any more: one of a write that has failed may be
    /// behind the file's.
    async fn raise_truncate_epoch(&self, file: Handle, loaded: &Loaded) -> Result<(), Stop> {
        let mut inode = Inode::clone(&loaded.inode);
        inode.truncate_epoch = inode.truncate_epoch.wrapping_add(1);
        let mut draft = Draft::default();
        draft.put(keys::task(RowKind::Cut, file), encode_nothing());
        draft.put_inode(file, loaded, inode);
        self.commit(draft).await?;
        self.with_live(file, |live| live.has_stray_ends = false);
        Ok(())
    }

    /// Drops blocks of a live file. What they occupied is counted at once: whatever comes next may fail, and
    /// nobody could tell it any more.
    async fn free_blocks(
        &self,
        file: Handle,
        blocks: Vec<BlockId>,
        mark: Mark,
    ) -> Result<(), Error> {
        let mut freed = 0;
        for block in &blocks {
            freed += self.blocks.used(*block).await?;
        }
        if let Err(error) = self.blocks.free(blocks, mark).await {
            self.miscount(file);
            return Err(error);
        }
        self.change_used(file, 0, freed);
        Ok(())
    }

    /// Makes a hole of the last block's bytes behind the end of a live file.
    async fn cut_last(&self, file: Handle, size: u64, mark: Mark) -> Result<(), Error> {
        let from = size % BLOCK_LEN;
        if from == 0 {
            return Ok(());
        }
        let Some(block) = self.block(file, size / BLOCK_LEN).await? else {
            return Ok(());
        };
        let span = Span {
            block,
            from: from as u32,
            len: (BLOCK_LEN - from) as u32,
        };
        self.punch(file, span, mark).await
    }

    /// Makes a hole in a block of a live file, and counts what that frees.
    async fn punch(&self, file: Handle, span: Span, mark: Mark) -> Result<(), Error> {
        let before = self.blocks.used(span.block).await?;
        let done = self.blocks.punch(span, mark).await;
        self.count_change(file, span.block, before, done).await
    }

    /// Counts what a change of a block of a live file has come to. Of one that has failed, nobody can tell: what
    /// the file occupies is counted again then, before its row says so for good.
    pub(super) async fn count_change(
        &self,
        file: Handle,
        block: BlockId,
        before: u64,
        done: Result<(), Error>,
    ) -> Result<(), Error> {
        let after = match done {
            Ok(()) => self.blocks.used(block).await,
            Err(error) => Err(error),
        };
        match after {
            Ok(after) => self.change_used(file, after, before),
            Err(_) => self.miscount(file),
        }
        after.map(drop)
    }

    fn miscount(&self, file: Handle) {
        let mut state = self.state.borrow_mut();
        state.with_bytes(file, |live| live.is_miscounted = true);
    }

    /// Takes note that a change of a live file's data has failed, if it has: contents may be others, and so the
    /// change number has to be. What is begun anew changes it then.
    pub(super) fn note_part<T>(&self, file: Handle, done: Result<T, Stop>) -> Result<T, Stop> {
        if let Err(Stop::Refused(_)) = done {
            let now = self.now();
            let mut state = self.state.borrow_mut();
            state.with_bytes(file, |live| live.changed_in_part(now));
        }
        done
    }

    /// Makes holes of a range's blocks.
    pub(super) async fn punch_range(&self, file: Handle, from: u64, end: u64) -> Result<(), Error> {
        let mark = mark_of(file, &self.load(file).await?);
        let mut at = from;
        while at < end {
            let Some((number, block)) = self.next_mapped(file, at / BLOCK_LEN).await? else {
                return Ok(());
            };
            at = at.max(number * BLOCK_LEN);
            if at >= end {
                return Ok(());
            }
            let until = end.min((number + 1) * BLOCK_LEN);
            let span = Span {
                block,
                from: (at % BLOCK_LEN) as u32,
                len: (until - at) as u32,
            };
            self.punch(file, span, mark).await?;
            at = until;
        }
        Ok(())
    }

    /// Notes bytes that a live file occupies more, or less.
    pub(super) fn change_used(&self, file: Handle, more: u64, less: u64) {
        let mut state = self.state.borrow_mut();
        state.with_bytes(file, |live| {
            let used = &mut live.inode.attributes.used;
            *used = (*used + more).saturating_sub(less);
        });
    }

    /// What room and holes begin with: it is a regular file, the range is one, the caller may.
    async fn need_range(&self, job: &Job<'_>, file: Handle, range: Range) -> Result<u64, Stop> {
        let loaded = self.file(file).await?;
        if range.len == 0 {
            return Err(Error::Invalid.into());
        }
        let end = range.end().ok_or(Error::FileTooLarge)?;
        self.need_io(job.caller, file, &loaded, Share::WRITE)?;
        Ok(end)
    }

    pub(crate) async fn allocate(
        &self,
        job: &Job<'_>,
        file: Handle,
        range: Range,
    ) -> Result<Answer, Stop> {
        let end = self.need_range(job, file, range).await?;
        if range.len > self.blocks.room().total {
            return Err(Error::NoSpace.into());
        }
        let is_cut = !self.is_ragged(file) || self.finish_cut_before(file, end).await?;
        let reserved = self.reserve(file, range).await?;
        let filled = self.fill(job, file, range).await;
        self.unreserve(file, reserved);
        filled?;
        let now = self.now();
        let grow = |inode: &mut Inode| {
            if end > inode.attributes.size {
                inode.attributes.size = end;
                inode.attributes.mtime = now;
            }
            inode.touch_attributes(now);
        };
        let answer = self.keep(job, file, Answer::Done, grow).await?;
        self.stay_ragged(file, !is_cut);
        Ok(answer)
    }

    /// Takes note that what is behind a file's end is still to be cut off.
    fn stay_ragged(&self, file: Handle, is_ragged: bool) {
        let mut state = self.state.borrow_mut();
        state.with_bytes(file, |live| live.is_ragged |= is_ragged);
    }

    async fn fill(&self, job: &Job<'_>, file: Handle, range: Range) -> Result<(), Stop> {
        let pieces = self.prepare(job, file, range).await?;
        // Until the row says so, what is behind the end is nobody's.
        self.with_live(file, |live| live.is_ragged = true);
        let mark = mark_of(file, &self.load(file).await?);
        for span in pieces.iter().filter_map(|piece| piece.span) {
            let before = self.blocks.used(span.block).await?;
            let done = self.blocks.reserve(span, mark).await;
            self.count_change(file, span.block, before, done).await?;
        }
        Ok(())
    }

    pub(crate) async fn deallocate(
        &self,
        job: &Job<'_>,
        file: Handle,
        range: Range,
    ) -> Result<Answer, Stop> {
        let end = self.need_range(job, file, range).await?;
        let size = self.load(file).await?.inode.attributes.size;
        // A hole that reaches the end of the file takes the last page with it.
        let end = match end >= size {
            true => size.next_multiple_of(PAGE),
            false => end,
        };
        // Behind the end there is nothing.
        let end = if range.offset < size { end } else { 0 };
        self.prepare_none(job, file).await?;
        let punched = self.punch_and_keep(job, file, (range.offset, end)).await;
        self.note_part(file, punched)
    }

    async fn punch_and_keep(
        &self,
        job: &Job<'_>,
        file: Handle,
        (from, end): (u64, u64),
    ) -> Result<Answer, Stop> {
        // Holes grow no file. What is behind its end may stay there, and one in the place of a bad page heals it.
        let is_ragged = self.is_ragged(file);
        self.punch_range(file, from, end).await?;
        let now = self.now();
        let touch = |inode: &mut Inode| {
            inode.touch(now);
        };
        let answer = self.keep(job, file, Answer::Done, touch).await?;
        self.stay_ragged(file, is_ragged);
        Ok(answer)
    }

    /// Writes a file's row after a change of its data, with new size and times, and the answer. The caller
    /// holds it exclusively.
    pub(super) async fn keep(
        &self,
        job: &Job<'_>,
        file: Handle,
        answer: Answer,
        change: impl FnOnce(&mut Inode),
    ) -> Result<Answer, Stop> {
        let loaded = self.load(file).await?;
        let mut inode = Inode::clone(&loaded.inode);
        change(&mut inode);
        let mut draft = Draft::default();
        draft.put_inode(file, &loaded, inode);
        let answer = self.finish(job, draft, answer).await?;
        self.with_live(file, |live| live.is_ragged = false);
        Ok(answer)
    }
}

impl MapRow {
    /// The row that there is not.
    pub(crate) fn none() -> Self {
        Self {
            ids: [0; MAP_ROW_BLOCKS].into(),
            version: 0,
        }
    }
}

/// Takes blocks out of a row, from a number on.
fn take_from(ids: &mut [u64; MAP_ROW_BLOCKS], row: u64, from: u64) -> Vec<BlockId> {
    let first = row * MAP_ROW_BLOCKS as u64;
    let keep = from.saturating_sub(first).min(MAP_ROW_BLOCKS as u64) as usize;
    let gone = ids[keep..].iter_mut().map(std::mem::take);
    gone.filter(|id| *id != 0).map(BlockId).collect()
}
