//! Writes, and what makes them durable.

use std::rc::Rc;

use super::append::Item;
use super::read::pages_of;
use super::{DataUnit, Inner, durable};
use crate::error::FileError;
use crate::format::{Change, Entry, Head};
use crate::ids::{BLOCK_PAGES, Fid, Key, Mark, PAGE, Stability, UnitId};
use crate::locks::Lock;

/// Serial numbers that one record reserves.
const RESERVED_AT_ONCE: u64 = 1 << 16;

/// A write's, or a commit's, answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteDone {
    /// Changes when unstable writes may have been lost: if it differs between a write and the commit behind it,
    /// the write has to be repeated. Never the same again after a restart with a higher epoch.
    pub verifier: u64,
}

impl DataUnit {
    /// New blocks, without pages. Their numbers are never given out again, even if nothing is ever written to
    /// them. Costs a durable append each 65536 blocks.
    ///
    /// # Errors
    /// [`FileError::Exhausted`], [`FileError::Full`], the stream's.
    pub async fn allocate(&self, count: usize) -> Result<Vec<Fid>, FileError> {
        let inner = &self.inner;
        let count = count as u64;
        let wanted = inner.serial.get().saturating_add(count);
        if wanted > inner.index.borrow().reserved {
            inner.reserve(count).await?;
        }
        let first = inner.serial.get();
        inner.serial.set(first + count);
        let fid = |serial| Fid::new(inner.unit, serial).expect("it was reserved");
        Ok((first..first + count).map(fid).collect())
    }

    /// Writes bytes into a block.
    ///
    /// Changes of one page take place in the order in which their futures were first polled. A page that is
    /// written in part is read first: from the cache, or with one request. Then the record goes out in a frame
    /// with all that other tasks write in this turn: one write of the device, durable if the write is to be stable, and
    /// nothing else. A write of more than 1 MiB is several records; a crash can leave the first ones.
    ///
    /// # Errors
    /// [`FileError::Range`], [`FileError::OtherUnit`], [`FileError::Full`]: nothing was written. [`FileError::BadPage`]: a
    /// page that is written in part is bad; nothing was written. The stream's: the write may be there after a crash.
    pub async fn write(
        &self,
        fid: Fid,
        offset: u32,
        data: &[u8],
        mark: Mark,
        stability: Stability,
    ) -> Result<WriteDone, FileError> {
        let inner = &self.inner;
        inner.check(fid, offset, data.len())?;
        if data.is_empty() {
            return Ok(inner.done());
        }
        let (from, to) = pages_of(offset, data.len());
        let _room = inner.take_room((to - from).into())?;
        let (lock, mut items) = inner.begin(fid, from, to, mark.snapshot_epoch).await;
        let edges = inner.edges(fid, offset, data.len()).await?;
        items.extend(inner.records_of(fid, offset, data, mark, &edges));
        // What is lost while this is under way, the commit behind it has to tell.
        let done = inner.done();
        inner.append(items, durable(stability), vec![lock]).await?;
        Ok(done)
    }

    /// Makes all changes durable that had ended before, of these blocks and of all others: one flush, if there
    /// is anything to flush.
    ///
    /// # Errors
    /// The stream's. Unstable writes may have been lost then, and the verifier is another one.
    pub async fn commit(&self, fids: &[Fid]) -> Result<WriteDone, FileError> {
        fids.iter()
            .try_for_each(|fid| self.inner.check_unit(*fid))?;
        self.inner.flush().await?;
        Ok(self.inner.done())
    }

    /// Looks whether power may still take something that was to be durable: what a flush that has failed has left
    /// open. [`DataUnit::commit`] knows nothing of that once it has told of it, by an error or another verifier.
    /// Compaction moves it. What a flush leaves open is known once something else was asked for: a commit before this.
    ///
    /// # Errors
    /// [`FileError::InDoubt`] if there is such a thing, the stream's.
    pub async fn check_doubts(&self) -> Result<(), FileError> {
        self.inner.check_doubts_behind(None).await
    }
}

impl Inner {
    pub(super) fn done(&self) -> WriteDone {
        WriteDone {
            verifier: self
                .verifier
                .get()
                .wrapping_add(self.writer.doubts().into()),
        }
    }

    pub(super) async fn flush(&self) -> Result<(), FileError> {
        if !self.is_dirty.replace(false) {
            // A flush that another task has begun may be under way.
            return self.writer.flush().await.map_err(|error| self.lost(error));
        }
        self.writer.flush().await.map_err(|error| {
            self.is_dirty.set(true);
            self.lost(error)
        })
    }

    fn lost(&self, error: nebula::StreamError) -> FileError {
        self.doubt();
        error.into()
    }

    /// Waits for the turn of a change of these pages. Returns what has to be appended before it: what the block is now, if
    /// a snapshot keeps that; then the lock is the whole block's.
    pub(super) async fn begin(
        &self,
        fid: Fid,
        from: u16,
        to: u16,
        epoch: u32,
    ) -> (Lock, Vec<Item>) {
        let keeps = || self.index.borrow().to_keep(fid, epoch).is_some();
        let mut is_whole = keeps();
        loop {
            let (from, to) = if is_whole {
                (0, BLOCK_PAGES)
            } else {
                (from, to)
            };
            let lock = self.locks.queue(fid, from, to);
            lock.turn().await;
            if !keeps() {
                return (lock, Vec::new());
            }
            // A snapshot was taken while this waited.
            if std::mem::replace(&mut is_whole, true) {
                return (lock, self.keep(fid, epoch).into_iter().collect());
            }
        }
    }

    /// The record by which a snapshot keeps what a block is, if one has to. The block is locked.
    pub(super) fn keep(&self, fid: Fid, epoch: u32) -> Option<Item> {
        let index = self.index.borrow();
        let label = index.to_keep(fid, epoch)?;
        let block = index.block(Key::head(fid))?;
        let entry = Entry {
            owner: block.owner(Key { fid, label }),
            root: block.root,
            map: block.map.clone(),
        };
        drop(index);
        Some(self.maps(vec![entry]))
    }

    /// What stands in the first and the last page of a write beside it; empty where the write covers the page.
    async fn edges(&self, fid: Fid, offset: u32, len: usize) -> Result<[Vec<u8>; 2], FileError> {
        let (from, to) = pages_of(offset, len);
        let end = offset as usize + len;
        let mut edges = [Vec::new(), Vec::new()];
        if !(offset as usize).is_multiple_of(PAGE) {
            edges[0] = self.page(fid, from).await?;
        }
        if !end.is_multiple_of(PAGE) && (to - from > 1 || edges[0].is_empty()) {
            edges[1] = self.page(fid, to - 1).await?;
        }
        Ok(edges)
    }

    /// A page as it is.
    pub(super) async fn page(&self, fid: Fid, page: u16) -> Result<Vec<u8>, FileError> {
        let mut bytes = Vec::with_capacity(PAGE);
        let offset = u32::from(page) * PAGE as u32;
        self.read_head(fid, offset, PAGE as u32, &mut bytes).await?;
        Ok(bytes)
    }

    /// The records of a write. Only the last one tells the file's end: all of the write is there if it is.
    fn records_of(
        &self,
        fid: Fid,
        offset: u32,
        data: &[u8],
        mark: Mark,
        edges: &[Vec<u8>; 2],
    ) -> Vec<Item> {
        let (from, to) = pages_of(offset, data.len());
        let most = self.record_pages();
        let mut items = Vec::with_capacity(usize::from((to - from).div_ceil(most)));
        let mut first = from;
        while first < to {
            let pages = most.min(to - first);
            let is_last = first + pages == to;
            let end = if is_last { mark.end } else { 0 };
            let head = Head::Change(Change {
                fid,
                root: self.root_of(fid),
                mark: Mark { end, ..mark },
                cut: (0, 0),
                first,
                split: pages,
                second: 0,
            });
            let mut item = self.filled(head, pages);
            let payload = item.record.payload_mut();
            if first == from && !edges[0].is_empty() {
                payload[..PAGE].copy_from_slice(&edges[0]);
            }
            if is_last && !edges[1].is_empty() {
                payload[usize::from(pages - 1) * PAGE..].copy_from_slice(&edges[1]);
            }
            let begin = usize::from(first) * PAGE;
            let (offset, end) = (offset as usize, begin + payload.len());
            let (here, there) = (begin.max(offset), end.min(offset + data.len()));
            payload[here - begin..there - begin]
                .copy_from_slice(&data[here - offset..there - offset]);
            items.push(item);
            first += pages;
        }
        items
    }

    /// Pages of a record at most.
    pub(super) fn record_pages(&self) -> u16 {
        self.writer.record_pages_max().min(256) as u16
    }

    /// The first of a block's family.
    pub(super) fn root_of(&self, fid: Fid) -> Fid {
        let index = self.index.borrow();
        index.block(Key::head(fid)).map_or(fid, |block| block.root)
    }

    /// Reserves serial numbers, durably.
    async fn reserve(self: &Rc<Self>, count: u64) -> Result<(), FileError> {
        let _one = self.reserving.acquire().await;
        let wanted = self.serial.get().saturating_add(count);
        if wanted <= self.index.borrow().reserved {
            return Ok(());
        }
        let unit: UnitId = self.unit;
        let all = 1u64 << Fid::SERIAL_BITS;
        if wanted > all {
            return Err(FileError::Exhausted { unit });
        }
        self.check_room()?;
        let reserved = wanted.saturating_add(RESERVED_AT_ONCE).min(all);
        let checkpoint = self.index.borrow().checkpoint;
        let item = self.bare(Head::State {
            reserved,
            checkpoint,
        });
        self.append(vec![item], block::Durable::Yes, Vec::new())
            .await
    }
}
