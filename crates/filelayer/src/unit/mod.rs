//! A dataunit: its streams, its index, and what is done with them.
//!
//! | file | what |
//! | --- | --- |
//! | `open` | creating, opening, recovery |
//! | `append` | records on their way to the stream, and into the index |
//! | `read` | reads |
//! | `write` | writes |
//! | `change` | truncation, holes, frees, clones |
//! | `snapshot` | snapshots, and going back to one |
//! | `compact`, `survey` | compaction: moving, and what a record of the extent needs |
//! | `checkpoint` | the index, written to its stream |
//! | `verify` | whether the data stream alone gives the same index |
//! | `examine` | the same of a dataunit that nobody has opened |

mod append;
mod change;
mod checkpoint;
mod compact;
mod examine;
mod open;
mod order;
mod read;
mod snapshot;
mod survey;
mod verify;
mod write;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use nebula::streams::StreamServer;
use nebula::{Reader, StreamId, Writer};
use rt::Handle;
use rt::sync::Semaphore;

pub use compact::{Compacted, Space};
pub use examine::{Examined, Flaw};
pub use open::{Recovery, UnitStreams};
pub use verify::Verified;
pub use write::WriteDone;

use crate::cache::Cache;
use crate::error::FileError;
use crate::ids::{BLOCK_PAGES, Fid, Key, PAGE, Stability, UnitId};
use crate::index::Index;
use crate::locks::Locks;
use crate::options::Options;
use checkpoint::Checkpoints;
use compact::{Compaction, Pass};
use order::Order;

/// A dataunit: blocks of 4 MiB at most, and where their pages are. Cloning costs one increment; not `Send`.
///
/// Every change is done by a task of its own once it is its turn, so that dropping the future of one gives up
/// waiting for it, and nothing else.
#[derive(Clone)]
pub struct DataUnit {
    inner: Rc<Inner>,
}

struct Inner {
    core: Handle,
    unit: UnitId,
    options: Options,
    streams: StreamServer,
    data: StreamId,
    writer: Writer,
    reader: Reader,
    index: RefCell<Index>,
    cache: Cache,
    locks: Locks,
    order: Order,
    /// The next serial number that is given out.
    serial: Cell<u64>,
    /// One task at a time reserves serial numbers.
    reserving: Semaphore,
    /// What a client compares to know whether unstable writes may have been lost.
    verifier: Cell<u64>,
    /// Whether anything was written since the last flush that a flush would make durable.
    is_dirty: Cell<bool>,
    /// Pages of writes under way.
    taken: Cell<u64>,
    /// One compaction or verification at a time.
    moving: Semaphore,
    compaction: RefCell<Option<Compaction>>,
    /// Removals that compaction has said again since it took the oldest extent.
    carried: Cell<u64>,
    /// Pages that were asked to be written, so far.
    written: Cell<u64>,
    /// What compaction of a full disk has begun with.
    pass: Cell<Option<Pass>>,
    /// Extents that compaction found damaged: it leaves them alone.
    damaged: RefCell<Vec<u32>>,
    checkpoints: Checkpoints,
    recovery: Recovery,
}

/// Room that a write takes while it is under way: segments are handed out only when it comes to them.
struct Taken<'a>(&'a Inner, u64);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.taken.set(self.0.taken.get() - self.1);
    }
}

impl DataUnit {
    /// The dataunit's number.
    #[must_use]
    pub fn unit(&self) -> UnitId {
        self.inner.unit
    }

    /// The streams, for the row of the dataunit: the index stream is another one if the old one was gone.
    #[must_use]
    pub fn streams(&self) -> UnitStreams {
        UnitStreams {
            data: self.inner.data,
            index: self.inner.checkpoints.stream(),
        }
    }

    /// How the index was recovered when the dataunit was opened.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.inner.recovery
    }

    /// Bytes that a block has: whole pages, without its holes.
    #[must_use]
    pub fn used(&self, fid: Fid) -> u32 {
        let index = self.inner.index.borrow();
        let block = index.block(Key::head(fid));
        block.map_or(0, |block| block.map.pages() * PAGE as u32)
    }

    /// The first byte from `from` on that is not in a hole, in pages: `None` if there is none.
    #[must_use]
    pub fn seek_data(&self, fid: Fid, from: u32) -> Option<u32> {
        let page = page_of(from)?;
        let index = self.inner.index.borrow();
        let found = index.block(Key::head(fid))?.map.next_data(page)?;
        Some(from.max(u32::from(found) * PAGE as u32))
    }

    /// The first byte from `from` on that is in a hole, in pages. The block's end is one.
    #[must_use]
    pub fn seek_hole(&self, fid: Fid, from: u32) -> u32 {
        let Some(page) = page_of(from) else {
            return from;
        };
        let index = self.inner.index.borrow();
        let block = index.block(Key::head(fid));
        let found = block.map_or(page, |block| block.map.next_hole(page));
        from.max(u32::from(found) * PAGE as u32)
    }

    /// The end of a file in bytes, as the marks of this dataunit's records tell it for this truncate epoch: the
    /// greatest of all its dataunits and of its row is the file's. Known again after a crash, until
    /// [`DataUnit::forget_end`].
    #[must_use]
    pub fn end_of(&self, handle: &[u8; 12], truncate_epoch: u32) -> Option<u64> {
        let end = self.inner.index.borrow().end_of(handle)?;
        (end.truncate_epoch == truncate_epoch).then_some(end.end)
    }

    /// The file's end stands in its row, durably: nobody will ask for it here any more.
    pub fn forget_end(&self, handle: &[u8; 12]) {
        self.inner.index.borrow_mut().forget_end(handle);
    }

    /// The ends of all files stand in their rows, durably.
    pub fn forget_ends(&self) {
        self.inner.index.borrow_mut().forget_ends();
    }

    /// Bytes of the index in memory: of maps exactly, of trees and tables by their entries.
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        self.inner.index.borrow().memory_bytes()
    }

    /// How many blocks the index has, with those that snapshots keep.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.inner.index.borrow().len()
    }

    /// Pages found in the cache and not found there, so far.
    #[must_use]
    pub fn cache_counts(&self) -> (u64, u64) {
        self.inner.cache.counts()
    }
}

impl Inner {
    /// Whether `len` bytes at `offset` are within a block of this dataunit.
    fn check(&self, fid: Fid, offset: u32, len: usize) -> Result<(), FileError> {
        self.check_unit(fid)?;
        let end = u64::from(offset) + len as u64;
        if end > u64::from(crate::BLOCK) {
            return Err(FileError::Range { offset, len });
        }
        Ok(())
    }

    fn check_unit(&self, fid: Fid) -> Result<(), FileError> {
        if fid.unit() != self.unit {
            let unit = self.unit;
            return Err(FileError::OtherUnit { fid, unit });
        }
        Ok(())
    }

    /// Whether there is room for who has no claim to the reserve.
    fn check_room(&self) -> Result<(), FileError> {
        if self.is_tight() {
            return Err(FileError::Full);
        }
        Ok(())
    }

    /// Takes room for a record of so many pages, until it is written.
    fn take_room(&self, pages: u64) -> Result<Taken<'_>, FileError> {
        self.check_room()?;
        self.taken.set(self.taken.get() + pages);
        self.written.set(self.written.get() + pages);
        Ok(Taken(self, pages))
    }

    /// Whether only the reserve is free, once all is written that is under way.
    fn is_tight(&self) -> bool {
        let taken = self.taken.get() / self.segment_pages();
        self.free_segments() <= u64::from(self.options.reserve_segments) + taken
    }

    fn free_segments(&self) -> u64 {
        let disks = self.streams.disks().iter();
        disks.map(|disk| u64::from(disk.free_segments())).sum()
    }
}

fn durable(stability: Stability) -> block::Durable {
    match stability {
        Stability::Unstable => block::Durable::No,
        Stability::Stable => block::Durable::Yes,
    }
}

/// The page of a byte, if a block has it.
fn page_of(offset: u32) -> Option<u16> {
    let page = offset / PAGE as u32;
    (page < u32::from(BLOCK_PAGES)).then_some(page as u16)
}

impl fmt::Debug for DataUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataUnit")
            .field("unit", &self.inner.unit)
            .field("data", &self.inner.data)
            .finish_non_exhaustive()
    }
}
