//! Changes that write little: truncation, holes, frees, clones.

use super::{DataUnit, Inner, durable};
use crate::error::FileError;
use crate::format::{Change, Entry, Head};
use crate::ids::{BLOCK_PAGES, Fid, Key, Mark, PAGE, Stability};
use crate::unit::WriteDone;

impl DataUnit {
    /// Removes all bytes of a block from `len` on; they read as zeros. The page that is cut through is written
    /// anew. Goes on when the dataunit is full.
    ///
    /// # Errors
    /// As those of [`DataUnit::write`].
    pub async fn truncate(
        &self,
        fid: Fid,
        len: u32,
        mark: Mark,
        stability: Stability,
    ) -> Result<WriteDone, FileError> {
        let rest = crate::BLOCK.checked_sub(len);
        let rest = rest.ok_or(FileError::Range {
            offset: len,
            len: 0,
        })?;
        self.punch(fid, (len, rest), mark, stability).await
    }

    /// Makes a hole in a block: the range reads as zeros, and pages that are all in it are given back. Those that
    /// it covers in part are written anew. Goes on when the dataunit is full.
    ///
    /// # Errors
    /// As those of [`DataUnit::write`].
    pub async fn punch(
        &self,
        fid: Fid,
        (offset, len): (u32, u32),
        mark: Mark,
        stability: Stability,
    ) -> Result<WriteDone, FileError> {
        let inner = &self.inner;
        inner.check(fid, offset, len as usize)?;
        let hole = Hole::of(offset, len);
        let (lock, mut items) = inner
            .begin(fid, hole.touched.0, hole.touched.1, mark.snapshot_epoch)
            .await;
        let mut pages = Vec::new();
        for (page, from, to) in hole.edges {
            if from < to && inner.is_mapped(fid, page) {
                let mut bytes = inner.page(fid, page).await?;
                bytes[from..to].fill(0);
                pages.push((page, bytes));
            }
        }
        let place = |at: usize| pages.get(at).map_or(0, |(page, _)| *page);
        let head = Head::Change(Change {
            fid,
            root: inner.root_of(fid),
            mark,
            cut: hole.cut,
            first: place(0),
            split: pages.len().min(1) as u16,
            second: place(1),
        });
        let mut item = inner.filled(head, pages.len() as u16);
        for (to, (_, bytes)) in item.record.payload_mut().chunks_exact_mut(PAGE).zip(&pages) {
            to.copy_from_slice(bytes);
        }
        items.push(item);
        let done = inner.done();
        inner.append(items, durable(stability), vec![lock]).await?;
        Ok(done)
    }

    /// Ends a block. What snapshots keep of it stays, and so do its clones. Goes on when the dataunit is full.
    ///
    /// `snapshot_epoch` is the volume's, as in [`Mark`].
    ///
    /// # Errors
    /// [`FileError::OtherUnit`], the stream's.
    pub async fn free(
        &self,
        fid: Fid,
        snapshot_epoch: u32,
        stability: Stability,
    ) -> Result<(), FileError> {
        let inner = &self.inner;
        inner.check_unit(fid)?;
        let (lock, mut items) = inner.begin(fid, 0, BLOCK_PAGES, snapshot_epoch).await;
        items.push(inner.bare(Head::Free {
            key: Key::head(fid),
        }));
        inner.append(items, durable(stability), vec![lock]).await
    }

    /// Has a new block be what another one is, durably. They share pages until one of them changes a page. Costs a
    /// durable append of 4 to 16 KiB, whose frame it shares with other clones that are begun in the same turn; no page
    /// of data is read or written. What the source was written unstably is durable then, too. Nothing is
    /// appended if the source has no pages.
    ///
    /// `clone` was given out by [`DataUnit::allocate`], and nothing was written to it. `mark` says whose it is; of its end nothing
    /// is taken.
    ///
    /// # Errors
    /// [`FileError::NotNew`] if `clone` has pages, or is `fid`; else as those of [`DataUnit::write`].
    pub async fn clone_block(&self, fid: Fid, clone: Fid, mark: Mark) -> Result<(), FileError> {
        let inner = &self.inner;
        inner.check_unit(fid)?;
        inner.check_unit(clone)?;
        inner.check_room()?;
        if fid == clone {
            return Err(FileError::NotNew { fid: clone });
        }
        let locks = [fid, clone].map(|fid| inner.locks.queue_all(fid));
        for lock in &locks {
            lock.turn().await;
        }
        if inner.index.borrow().block(Key::head(clone)).is_some() {
            return Err(FileError::NotNew { fid: clone });
        }
        let Some(entry) = inner.clone_of(fid, clone, mark) else {
            return Ok(());
        };
        let item = inner.maps(vec![entry]);
        let append = inner.append(vec![item], block::Durable::Yes, locks.into());
        append.await
    }
}

impl Inner {
    fn is_mapped(&self, fid: Fid, page: u16) -> bool {
        let index = self.index.borrow();
        let block = index.block(Key::head(fid));
        block.is_some_and(|block| block.map.at(page).is_some())
    }

    /// What a clone of a block is, unless that has no pages.
    fn clone_of(&self, fid: Fid, clone: Fid, mark: Mark) -> Option<Entry> {
        let index = self.index.borrow();
        let block = index.block(Key::head(fid))?;
        let mut owner = block.owner(Key::head(clone));
        owner.volume = mark.volume();
        owner.born = mark.snapshot_epoch;
        owner.changed = mark.snapshot_epoch;
        Some(Entry {
            owner,
            root: block.root,
            map: block.map.clone(),
        })
    }
}

/// What a range of bytes is, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    /// All pages that it touches: first and end.
    touched: (u16, u16),
    /// Pages that are all in it.
    cut: (u16, u16),
    /// Pages that are in it in part: (page, first byte, end).
    edges: [(u16, usize, usize); 2],
}

impl Hole {
    fn of(offset: u32, len: u32) -> Self {
        let page = PAGE as u32;
        let end = offset + len;
        let (first, last) = (offset.div_ceil(page) as u16, (end / page) as u16);
        let byte = |offset: u32| (offset % page) as usize;
        let (before, behind) = ((offset / page) as u16, (end / page) as u16);
        if len == 0 {
            let (cut, edges) = ((0, 0), [(0, 0, 0); 2]);
            let touched = (0, 0);
            return Self {
                touched,
                cut,
                edges,
            };
        }
        let touched = (before, end.div_ceil(page) as u16);
        if before == behind {
            let edges = [(before, byte(offset), byte(end)), (0, 0, 0)];
            let cut = (0, 0);
            return Self {
                touched,
                cut,
                edges,
            };
        }
        let head = match byte(offset) {
            0 => (0, 0, 0),
            from => (before, from, PAGE),
        };
        Self {
            touched,
            cut: (first, last.max(first)),
            edges: [head, (behind, 0, byte(end))],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_range_is_in_its_hole_once() {
        let page = PAGE as u32;
        let offsets = [0, 1, page - 1, page, page + 1, 3 * page, 3 * page + 7];
        for offset in offsets {
            for end in [0, 5, page, 2 * page, 2 * page + 1, 4 * page, 5 * page - 1] {
                let Some(len) = end.checked_sub(offset) else {
                    continue;
                };
                let hole = Hole::of(offset, len);
                let bytes = |from: u16, to: u16| u32::from(from) * page..u32::from(to) * page;
                let mut seen: Vec<u32> = bytes(hole.cut.0, hole.cut.1).collect();
                for (at, from, to) in hole.edges {
                    let begin = u32::from(at) * page;
                    seen.extend(begin + from as u32..begin + to as u32);
                }
                seen.sort_unstable();
                assert!(
                    seen.iter().copied().eq(offset..end),
                    "{offset} to {end}: {hole:?}"
                );
                let touched = bytes(hole.touched.0, hole.touched.1);
                assert!(seen.iter().all(|byte| touched.contains(byte)), "{hole:?}");
            }
        }
    }
}
