//! Clones: what takes the place of a target's blocks is made beside the file, and put in its place by one commit.
//!
//! ```text
//!            rows of the target   rows of a garbage object   blocks
//!   before   old                  none
//!   1        old                  new                        none is there yet
//!   2        old                  new                        new ones share pages; edges are copied into them
//!   3        new, size, used      old                        the commit that counts
//!   later    new                  none                       the background frees the old ones
//! ```
//!
//! So a crash, an error or a full disk leaves the file as it was, with garbage that the background frees, or as it
//! is to be (RFC 7862, section 15.13: other clients see all of a clone or nothing).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use files::{Answer, Error, Handle, Range};

use super::copy::{Source, Target};
use super::map::place;
use super::{Piece, holes, mark_of};
use crate::blocks::{BLOCK_LEN, BlockId, Mark, Span};
use crate::cache::MapRow;
use crate::commit::Draft;
use crate::format::inode::Inode;
use crate::format::keys::{self, RowKind};
use crate::format::rows::{MAP_ROW_BLOCKS, encode_map, encode_nothing};
use crate::inner::{Inner, Job, Loaded, Stop};
use crate::ops::beside;
use crate::rules::{drop_privileges, would_drop_privileges};

/// Clones are of whole pages.
const PAGE: u64 = 4096;

/// Rows of a block map that one clone changes at most: 15 GiB. Two writes for each, and those of the inode, the
/// cell and the garbage, have to fit into one transaction ([`meta::OPERATIONS_MAX`]).
const ROWS_MAX: usize = 60;

/// Bytes that a clone copies at most, because they lie at other places within their blocks: source and target stand
/// still meanwhile. Clients copy more than that themselves.
const COPIED_MAX: u64 = 16 * BLOCK_LEN;

/// Blocks that are shared at once: their records, of 16 KiB at most, are in memory together.
const SHARED_AT_ONCE: usize = 64;

/// What is cloned: from where, to where, how many bytes.
#[derive(Clone, Copy)]
struct Cloning {
    from: Handle,
    at: u64,
    to: Handle,
    offset: u64,
    len: u64,
    /// Whether nothing of the target is behind it.
    is_last: bool,
}

/// What is done to a new block besides sharing.
enum Edge {
    /// These bytes are copied to there.
    Copy(Span, Span),
    /// These are a hole.
    Hole(Span),
}

/// What a clone does.
#[derive(Default)]
struct Plan {
    /// Rows of the target's map: as they are, and as they are to be.
    rows: BTreeMap<u64, (MapRow, [u64; MAP_ROW_BLOCKS])>,
    /// New blocks that are what others are.
    shared: Vec<(BlockId, BlockId)>,
    edges: Vec<Edge>,
    /// Bytes that are copied.
    copied: u64,
}

impl Plan {
    /// The rows that change: the number, what is there, what is to be.
    fn changed(&self) -> impl Iterator<Item = (u64, &MapRow, &[u64; MAP_ROW_BLOCKS])> {
        let rows = self.rows.iter().map(|(row, (seen, ids))| (*row, seen, ids));
        rows.filter(|(_, seen, ids)| *seen.ids != **ids)
    }

    /// Whether any block is new.
    fn has_new(&self) -> bool {
        self.changed()
            .any(|(_, seen, ids)| has_any(&new_of(seen, ids)))
    }

    /// Whether any block is replaced.
    fn has_old(&self) -> bool {
        self.changed()
            .any(|(_, seen, ids)| has_any(&old_of(seen, ids)))
    }

    /// Does this to a new block.
    fn edge(&mut self, edge: Edge) {
        if let Edge::Copy(from, _) = &edge {
            self.copied += u64::from(from.len);
        }
        self.edges.push(edge);
    }

    /// Blocks of which new ones have pages, and at least how many bytes of each.
    fn parts(&self) -> impl Iterator<Item = (BlockId, u64)> {
        let mut otherwise = BTreeMap::<BlockId, u64>::new();
        for edge in &self.edges {
            let (Edge::Copy(_, to) | Edge::Hole(to)) = edge;
            *otherwise.entry(to.block).or_default() += u64::from(to.len);
        }
        let shared = self.shared.iter().map(move |(from, new)| {
            let otherwise = otherwise.get(new).copied().unwrap_or_default();
            (*from, BLOCK_LEN.saturating_sub(otherwise))
        });
        let copied = self.edges.iter().filter_map(|edge| match edge {
            Edge::Copy(from, _) => Some((from.block, u64::from(from.len))),
            Edge::Hole(_) => None,
        });
        shared.chain(copied)
    }

    /// Says what is in a new block: in the bytes that the clone covers what the source has there, in the others what is
    /// kept of the target.
    fn fill(
        &mut self,
        new: BlockId,
        (from, to): (u32, u32),
        kept: Option<BlockId>,
        pieces: &[Piece],
    ) {
        let span = |from: u32, to: u32| Span {
            block: new,
            from,
            len: to - from,
        };
        let alike = match pieces {
            [piece] => piece.span.filter(|span| span.from == from),
            _ => None,
        };
        // What there is more of is shared: pages can only be shared at their own places.
        let is_most = to - from >= BLOCK_LEN as u32 / 2;
        if let Some(alike) = alike.filter(|_| is_most || kept.is_none()) {
            self.shared.push((alike.block, new));
            let rests = [span(0, from), span(to, BLOCK_LEN as u32)];
            for rest in rests.into_iter().filter(|rest| rest.len > 0) {
                self.edge(match kept {
                    Some(block) => Edge::Copy(Span { block, ..rest }, rest),
                    None => Edge::Hole(rest),
                });
            }
            return;
        }
        self.shared.extend(kept.map(|block| (block, new)));
        let mut at = from;
        for piece in pieces {
            let there = span(at, at + piece.len);
            at += piece.len;
            match piece.span {
                Some(bytes) => self.edge(Edge::Copy(bytes, there)),
                // A new block is a hole already.
                None if kept.is_none() => {}
                None => self.edge(Edge::Hole(there)),
            }
        }
    }
}

impl Inner {
    pub(crate) async fn clone_range(
        &self,
        job: &Job<'_>,
        (from, range): Source,
        (to, offset): Target,
    ) -> Result<Answer, Stop> {
        self.need_both(job, from, to).await?;
        let size = self.load(from).await?.inode.attributes.size;
        let to_end = size.checked_sub(range.offset).ok_or(Error::Invalid)?;
        let len = if range.len == 0 { to_end } else { range.len };
        if len > to_end {
            return Err(Error::Invalid.into());
        }
        // A last page that is not whole can only become the target's last one.
        let target_end = offset.checked_add(len).ok_or(Error::FileTooLarge)?;
        let target_size = self.load(to).await?.inode.attributes.size;
        let is_last = len == to_end && target_end >= target_size;
        let is_page = |at: u64| at.is_multiple_of(PAGE);
        if !is_page(range.offset) || !is_page(offset) || !(is_page(len) || is_last) {
            return Err(Error::Invalid.into());
        }
        Range { offset, len }.end().ok_or(Error::FileTooLarge)?;
        if len == 0 {
            return self.finish(job, Draft::default(), Answer::Done).await;
        }
        if from == to && offset.abs_diff(range.offset) < len.next_multiple_of(PAGE) {
            return Err(Error::Invalid.into());
        }
        if self.is_ragged(from) {
            // What is behind its end would be shared.
            self.finish_cut(from).await?;
        }
        let cloning = Cloning {
            from,
            at: range.offset,
            to,
            offset,
            len,
            is_last,
        };
        let plan = self.plan_clone(&cloning).await?;
        if plan.changed().next().is_none() {
            return self.replace(job, &cloning, &plan, None).await;
        }
        let number = self.new_file(to.file.virtual_node()).await?;
        let garbage = beside(to, number);
        let done = self.clone_by(job, &cloning, &plan, garbage).await;
        if (done.is_err() || plan.has_old()) && self.check_owner(garbage).is_ok() {
            self.state.borrow_mut().garbage.insert(garbage);
            self.work.notify_one();
        }
        done
    }

    /// Says which blocks take whose places, and what is in them. Nothing is changed.
    async fn plan_clone(&self, cloning: &Cloning) -> Result<Plan, Stop> {
        let source = self.load(cloning.from).await?;
        let target = self.load(cloning.to).await?;
        let (offset, end) = (cloning.offset, cloning.offset + cloning.len);
        let mut plan = Plan::default();
        let mut at = offset;
        while at < end {
            let from = cloning.at + (at - offset);
            // The next place where either of them has a block.
            let there = match source.inode.has_blocks {
                true => self.next_mapped(cloning.from, from / BLOCK_LEN).await?,
                false => None,
            };
            let here = match target.inode.has_blocks {
                true => self.next_mapped(cloning.to, at / BLOCK_LEN).await?,
                false => None,
            };
            let there = there.map(|(number, _)| at + (number * BLOCK_LEN).max(from).abs_diff(from));
            let here = here.map(|(number, _)| (number * BLOCK_LEN).max(at));
            let Some(next) = there.into_iter().chain(here).min() else {
                break;
            };
            if next >= end {
                break;
            }
            let number = next / BLOCK_LEN;
            self.plan_block(cloning, (&source, &target), number, &mut plan)
                .await?;
            at = (number + 1) * BLOCK_LEN;
        }
        Ok(plan)
    }

    async fn plan_block(
        &self,
        cloning: &Cloning,
        (source, target): (&Loaded, &Loaded),
        number: u64,
        plan: &mut Plan,
    ) -> Result<(), Stop> {
        let begin = number * BLOCK_LEN;
        let end = cloning.offset + cloning.len;
        let (first, last) = (begin.max(cloning.offset), end.min(begin + BLOCK_LEN));
        let from = cloning.at + (first - cloning.offset);
        let pieces = match source.inode.has_blocks {
            true => self.pieces(cloning.from, from, last - first).await?,
            false => holes(from, last - first),
        };
        let (row, index) = place(number);
        let is_full = plan.rows.len() == ROWS_MAX;
        let (seen, ids) = match plan.rows.entry(row) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if is_full => return Err(Error::Invalid.into()),
            Entry::Vacant(entry) => {
                let seen = match target.inode.has_blocks {
                    true => self.map_row(cloning.to, row).await?,
                    false => MapRow::none(),
                };
                let ids = *seen.ids;
                entry.insert((seen, ids))
            }
        };
        let old = Some(BlockId(seen.ids[index])).filter(|block| block.0 != 0);
        let covered_from = (first - begin) as u32;
        let covered_to = match cloning.is_last && last == end {
            true => BLOCK_LEN as u32,
            false => (last - begin) as u32,
        };
        let covers_all = covered_from == 0 && covered_to == BLOCK_LEN as u32;
        let has_data = pieces.iter().any(|piece| piece.span.is_some());
        // What stays of the target in this block.
        let kept = old.filter(|_| !covers_all);
        if !has_data && kept.is_none() {
            ids[index] = 0;
            return Ok(());
        }
        let new = self.next_block().await?;
        ids[index] = new.0;
        plan.fill(new, (covered_from, covered_to), kept, &pieces);
        if plan.copied > COPIED_MAX {
            return Err(Error::Invalid.into());
        }
        Ok(())
    }

    async fn clone_by(
        &self,
        job: &Job<'_>,
        cloning: &Cloning,
        plan: &Plan,
        garbage: Handle,
    ) -> Result<Answer, Stop> {
        let growth = self.least_growth(cloning.to, plan).await?;
        // Before anything is written: what is over the bound would be taken from others until it is freed.
        let reserved = self.reserve_bytes(cloning.to, growth)?;
        let made = self.make_new(cloning.to, plan, garbage).await;
        self.unreserve(cloning.to, reserved);
        made?;
        self.replace(job, cloning, plan, Some(garbage)).await
    }

    /// Bytes that the target occupies more by a clone, at least. Nothing is asked where there is no bound.
    async fn least_growth(&self, to: Handle, plan: &Plan) -> Result<u64, Error> {
        let is_bound = {
            let state = self.state.borrow();
            let volume = state.volumes.get(&to.volume).ok_or(Error::Stale)?;
            volume.row.bytes_max.is_some()
        };
        if !is_bound {
            return Ok(0);
        }
        let mut growth = 0u64;
        for (block, len) in plan.parts() {
            // The others of its pages may be in the rest of it.
            let used = self.blocks.used(block).await?;
            growth += used.saturating_sub(BLOCK_LEN - len);
        }
        for (_, seen, ids) in plan.changed() {
            growth = growth.saturating_sub(self.used_by(&old_of(seen, ids)).await?);
        }
        Ok(growth)
    }

    /// Makes the new blocks, as the garbage object's.
    async fn make_new(&self, to: Handle, plan: &Plan, garbage: Handle) -> Result<(), Stop> {
        if plan.has_new() {
            self.hold_new(plan, garbage).await?;
        }
        let mark = mark_of(to, &self.load(to).await?);
        self.fill_new(plan, mark).await?;
        Ok(())
    }

    /// Has the new blocks be the garbage object's, before any of them is there.
    async fn hold_new(&self, plan: &Plan, garbage: Handle) -> Result<(), Stop> {
        let mut draft = Draft::default();
        draft.of(garbage);
        let key = keys::task(RowKind::Garbage, garbage);
        draft.absent(key.clone());
        draft.put(key, encode_nothing());
        for (row, seen, ids) in plan.changed() {
            let new = new_of(seen, ids);
            if has_any(&new) {
                let key = keys::part(RowKind::Map, garbage, row);
                draft.put(key, encode_map(&new));
            }
        }
        self.commit(draft).await?;
        Ok(())
    }

    /// Makes the new blocks what they are to be.
    async fn fill_new(&self, plan: &Plan, mark: Mark) -> Result<(), Error> {
        for shared in plan.shared.chunks(SHARED_AT_ONCE) {
            self.blocks.share(shared.to_vec(), mark).await?;
        }
        for edge in &plan.edges {
            match edge {
                Edge::Copy(from, to) => self.blocks.copy(*from, *to, mark).await?,
                Edge::Hole(span) => self.blocks.punch(*span, mark).await?,
            }
        }
        Ok(())
    }

    /// Puts the new blocks in the old ones' places, with size, times and what the file occupies, and the old ones
    /// into the garbage: one commit.
    async fn replace(
        &self,
        job: &Job<'_>,
        cloning: &Cloning,
        plan: &Plan,
        garbage: Option<Handle>,
    ) -> Result<Answer, Stop> {
        let to = cloning.to;
        let (mut before, mut after) = (0, 0);
        for (_, seen, ids) in plan.changed() {
            before += self.used_by(&old_of(seen, ids)).await?;
            after += self.used_by(&new_of(seen, ids)).await?;
        }
        let mut draft = Draft::default();
        for (row, seen, ids) in plan.changed() {
            draft.put_map(to, row, seen, *ids);
        }
        if let Some(garbage) = garbage {
            draft.of(garbage);
            for (row, seen, ids) in plan.changed() {
                let (key, old) = (keys::part(RowKind::Map, garbage, row), old_of(seen, ids));
                if has_any(&old) {
                    draft.put(key, encode_map(&old));
                } else {
                    draft.delete(key);
                }
            }
            let key = keys::task(RowKind::Garbage, garbage);
            match plan.has_old() {
                true => draft.put(key, encode_nothing()),
                false => draft.delete(key),
            }
        }
        let loaded = self.load(to).await?;
        let mut inode = Inode::clone(&loaded.inode);
        inode.has_blocks |= plan.has_new();
        if would_drop_privileges(&inode.attributes, job.caller) {
            drop_privileges(&mut inode.attributes, job.caller);
        }
        let attributes = &mut inode.attributes;
        attributes.size = attributes.size.max(cloning.offset + cloning.len);
        attributes.used = (attributes.used + after).saturating_sub(before);
        inode.touch(self.now());
        draft.put_inode(to, &loaded, inode);
        let reserved = self.reserve_bytes(to, after.saturating_sub(before))?;
        let answer = self.finish(job, draft, Answer::Done).await;
        self.unreserve(to, reserved);
        answer
    }

    /// Bytes that blocks occupy.
    async fn used_by(&self, ids: &[u64; MAP_ROW_BLOCKS]) -> Result<u64, Error> {
        let mut used = 0;
        for id in ids.iter().filter(|id| **id != 0) {
            used += self.blocks.used(BlockId(*id)).await?;
        }
        Ok(used)
    }

    /// Sets bytes of the volume's bound aside.
    fn reserve_bytes(&self, file: Handle, bytes: u64) -> Result<u64, Error> {
        let mut state = self.state.borrow_mut();
        let volume = state.volumes.get_mut(&file.volume).ok_or(Error::Stale)?;
        if volume.row.bytes_max.is_some() && volume.bytes_left() < bytes {
            return Err(Error::QuotaExceeded);
        }
        volume.reserved.bytes += bytes as i64;
        Ok(bytes)
    }
}

/// Blocks that come into a row.
fn new_of(seen: &MapRow, ids: &[u64; MAP_ROW_BLOCKS]) -> [u64; MAP_ROW_BLOCKS] {
    differing(ids, &seen.ids)
}

/// Blocks that leave a row.
fn old_of(seen: &MapRow, ids: &[u64; MAP_ROW_BLOCKS]) -> [u64; MAP_ROW_BLOCKS] {
    differing(&seen.ids, ids)
}

/// Those of `ids` that are others there.
fn differing(ids: &[u64; MAP_ROW_BLOCKS], others: &[u64; MAP_ROW_BLOCKS]) -> [u64; MAP_ROW_BLOCKS] {
    std::array::from_fn(|at| if ids[at] == others[at] { 0 } else { ids[at] })
}

fn has_any(ids: &[u64; MAP_ROW_BLOCKS]) -> bool {
    ids.iter().any(|id| *id != 0)
}
