//! What has to be durable before data moves: the numbers of the blocks that it goes to, and a mark.

use std::collections::BTreeMap;

use files::{Error, Handle, Range};

use super::map::place;
use super::{Piece, first_part, piece};
use crate::blocks::{BLOCK_LEN, BlockId};
use crate::cache::MapRow;
use crate::commit::Draft;
use crate::format::inode::Inode;
use crate::inner::{Inner, Job, Stop};
use crate::live::Live;
use crate::rules::{drop_privileges, would_drop_privileges};
use crate::slots::{Mode, Place};

/// Block numbers that are asked for at once.
const AHEAD: usize = 64;

/// Rows of a block map in one transaction at most.
const ROWS_MAX: u64 = 48;

impl Inner {
    /// Has a file ready for data in a range, and says where it goes. Mostly there is nothing to do: then
    /// nothing is committed. The caller holds the file; the queue of its block map is joined if need be.
    pub(crate) async fn prepare(
        &self,
        job: &Job<'_>,
        file: Handle,
        range: Range,
    ) -> Result<Vec<Piece>, Stop> {
        let step = ROWS_MAX * 64 * BLOCK_LEN;
        let end = range.end().ok_or(Error::FileTooLarge)?;
        let (mut pieces, mut at) = (Vec::new(), range.offset);
        while at < end {
            let len = (end - at).min(step - at % step);
            pieces.extend(self.prepare_step(job, file, (at, len)).await?);
            at += len;
        }
        Ok(pieces)
    }

    async fn prepare_step(
        &self,
        job: &Job<'_>,
        file: Handle,
        (offset, len): (u64, u64),
    ) -> Result<Vec<Piece>, Stop> {
        if let Some(pieces) = self.is_ready(job, file, (offset, len)).await? {
            return Ok(pieces);
        }
        job.held
            .extend(&[(Place::Map(file), Mode::Exclusive)])
            .await;
        // Another write may have done it meanwhile.
        if let Some(pieces) = self.is_ready(job, file, (offset, len)).await? {
            return Ok(pieces);
        }
        let loaded = self.load(file).await?;
        self.make_live(file, &loaded);
        let mut rows: BTreeMap<u64, (MapRow, [u64; 64])> = BTreeMap::new();
        let (mut pieces, mut at) = (Vec::new(), offset);
        while at < offset + len {
            let (number, from, part) = first_part(at, offset + len - at);
            let (row, index) = place(number);
            if let std::collections::btree_map::Entry::Vacant(entry) = rows.entry(row) {
                let seen = match loaded.inode.has_blocks {
                    true => self.map_row(file, row).await?,
                    false => MapRow::none(),
                };
                let ids = *seen.ids;
                entry.insert((seen, ids));
            }
            let (_, ids) = rows.get_mut(&row).expect("it was put there");
            if ids[index] == 0 {
                ids[index] = self.next_block().await?.0;
            }
            pieces.push(piece(at, Some(BlockId(ids[index])), from, part));
            at += u64::from(part);
        }
        let mut draft = Draft::default();
        for (row, (seen, ids)) in &rows {
            if *seen.ids != *ids {
                draft.put_map(file, *row, seen, *ids);
            }
        }
        let has_new = !draft.is_empty();
        // Read again: what was awaited may have moved sizes and times on.
        let loaded = self.load(file).await?;
        let mut inode = Inode::clone(&loaded.inode);
        inode.has_blocks |= has_new;
        if would_drop_privileges(&inode.attributes, job.caller) {
            drop_privileges(&mut inode.attributes, job.caller);
        }
        let is_changed = inode.has_blocks != loaded.inode.has_blocks
            || inode.attributes.mode != loaded.inode.attributes.mode;
        let bound = self.with_live(file, |live| live.needs_mark().then(|| live.next_bound()));
        match is_changed {
            true => draft.prepare_inode(file, &loaded, inode),
            false => draft.unchanged(file, &loaded),
        }
        if let Some(bound) = bound {
            draft.mark(file, bound);
        }
        if !draft.is_empty() {
            self.commit(draft).await?;
        }
        Ok(pieces)
    }

    /// The same for a change that needs no block: marks the file, and takes privileges from it.
    pub(crate) async fn prepare_none(&self, job: &Job<'_>, file: Handle) -> Result<(), Stop> {
        self.prepare_step(job, file, (0, 0)).await.map(drop)
    }

    /// Where data goes, if nothing has to be committed before.
    async fn is_ready(
        &self,
        job: &Job<'_>,
        file: Handle,
        (offset, len): (u64, u64),
    ) -> Result<Option<Vec<Piece>>, Stop> {
        let loaded = self.load(file).await?;
        let needs_mark = {
            let state = self.state.borrow();
            let live = state.live.get(&file);
            live.is_none_or(Live::needs_mark)
        };
        let drops = would_drop_privileges(&loaded.inode.attributes, job.caller);
        let needs_blocks = len > 0 && !loaded.inode.has_blocks;
        if needs_mark || drops || needs_blocks {
            return Ok(None);
        }
        let pieces = self.pieces(file, offset, len).await?;
        let is_mapped = pieces.iter().all(|piece| piece.span.is_some());
        Ok(is_mapped.then_some(pieces))
    }

    /// A block that nobody has.
    pub(super) async fn next_block(&self) -> Result<BlockId, Error> {
        loop {
            if let Some(block) = self.state.borrow_mut().blocks_ahead.pop_front() {
                return Ok(block);
            }
            let more = self.blocks.allocate(AHEAD).await?;
            if more.is_empty() {
                return Err(Error::NoSpace);
            }
            self.state.borrow_mut().blocks_ahead.extend(more);
        }
    }
}
