//! Extents on one disk (the article's *extentsvr*).
//!
//! | file | what |
//! | --- | --- |
//! | `mod` | the server, and reads |
//! | `format` | formatting a device and opening it |
//! | `segment` | what is known of each segment, in memory |
//! | `append` | appends under way |
//! | `change` | create, seal, fence, free: changes of the table of segments |
//! | `prepare` | segments written once before their first use |
//! | `walk` | the frames of an extent, one after the other, and where they are damaged |
//!
//! A disk belongs to one core. An extent lives in one segment, and its pages' places are computed. What
//! the table says of a segment is changed durably before anybody is told.

mod append;
mod change;
mod format;
mod prepare;
mod segment;
mod walk;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use block::{Buf, Disk};
use rt::Handle;
use rt::sync::Semaphore;

pub use append::Appending;
pub use format::{CopyFault, FormatOptions};
pub(crate) use walk::{Found, Walk, is_written, recovered_length};

use crate::error::ExtentError;
use crate::format::entry::SegmentState;
use crate::format::superblock::Superblock;
use crate::format::{FormatError, PAGE};
use crate::ids::{Epoch, ExtentId, StreamId};
use segment::Segment;

/// The server of one disk's extents. Cloning costs one increment; not `Send`.
#[derive(Clone)]
pub struct ExtentServer {
    inner: Rc<Inner>,
}

struct Inner {
    disk: Disk,
    device: Arc<str>,
    core: Handle,
    superblock: Superblock,
    segments: RefCell<Vec<Segment>>,
    /// Where the search for a free segment begins: all are used in turn.
    next: Cell<u32>,
    /// One change of the table at a time.
    changes: Semaphore,
    /// One flush at a time.
    flushes: Semaphore,
    /// Whether segments are written once before their first use.
    writes_ahead: Cell<bool>,
}

/// Where an extent is: in which segment of the disk. What a replica's row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentPlace {
    /// The extent.
    pub extent: ExtentId,
    /// Its segment.
    pub segment: u32,
}

/// What an extent was created for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewExtent {
    /// Its name, never used before.
    pub extent: ExtentId,
    /// Its stream.
    pub stream: StreamId,
    /// Its number in the stream.
    pub number: u32,
    /// Its writer's epoch.
    pub epoch: Epoch,
}

/// How long a sealed extent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Its pages.
    pub pages: u32,
    /// How many of them were known to be on the medium when it was sealed. Less than `pages` only if a
    /// flush has failed: what is behind may be lost with the power, and nobody was promised otherwise.
    pub durable: u32,
}

/// What the table says of a segment, for listings and checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The segment.
    pub segment: u32,
    /// What it is used for.
    pub state: SegmentState,
    /// By which extent, if it is not free.
    pub extent: ExtentId,
    /// Of which stream.
    pub stream: StreamId,
    /// Its number in the stream.
    pub number: u32,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its pages: of a sealed one for good, of an open one those acknowledged so far. `None` if that is not
    /// known since the disk was opened.
    pub pages: Option<u32>,
    /// Both copies of the entry are damaged: the other fields mean nothing.
    pub is_damaged: bool,
}

impl ExtentServer {
    /// The disk's name among all disks: what a replica's row holds.
    #[must_use]
    pub fn disk_id(&self) -> u64 {
        self.inner.superblock.disk
    }

    /// What the device is called in messages.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.inner.device
    }

    /// Pages of a segment: of the longest extent.
    #[must_use]
    pub fn segment_pages(&self) -> u32 {
        self.inner.superblock.segment_pages()
    }

    /// How many segments the disk has.
    #[must_use]
    pub fn segments(&self) -> u32 {
        self.inner.superblock.segments
    }

    /// Segments that are free now.
    #[must_use]
    pub fn free_segments(&self) -> u32 {
        let segments = self.inner.segments.borrow();
        let free = segments.iter().filter(|segment| segment.is_free());
        u32::try_from(free.count()).expect("as many as segments at most")
    }

    /// What the table says of all segments.
    #[must_use]
    pub fn list(&self) -> Vec<SegmentInfo> {
        let segments = self.inner.segments.borrow();
        (0..).zip(segments.iter()).map(Segment::info).collect()
    }

    /// The pages of an extent: of a sealed one, or those of an open one whose writes have ended well.
    ///
    /// # Errors
    /// No such extent. `None` for an open one that nobody has written or sealed since the disk was opened.
    pub fn length(&self, at: ExtentPlace) -> Result<Option<u32>, ExtentError> {
        self.inner.with(at, |segment| Ok(segment.pages()))
    }

    /// Reads pages of an extent, with one read of the device: of a sealed one, or of an open one by its
    /// writer, who names its epoch, below what is acknowledged. Their checksums are the caller's.
    ///
    /// # Errors
    /// [`ExtentError::NoExtent`] (also if it is freed meanwhile), [`ExtentError::Beyond`], the device's.
    pub async fn read(
        &self,
        at: ExtentPlace,
        writer: Option<Epoch>,
        page: u32,
        pages: u32,
    ) -> Result<Buf, ExtentError> {
        let inner = &self.inner;
        let end = inner.with(at, |segment| Ok(segment.readable(writer)))?;
        if page.checked_add(pages).is_none_or(|last| last > end) {
            return Err(ExtentError::Beyond {
                extent: at.extent,
                page,
                pages,
                end,
            });
        }
        let buf = inner.disk.buffer(pages as usize * PAGE);
        let place = inner.superblock.page_at(at.segment, page);
        let (result, buf) = inner.disk.read(buf, place).await;
        result?;
        // Its segment may hold another one by now.
        inner.with(at, |_| Ok(()))?;
        Ok(buf)
    }

    /// What the table says of one segment; `None` behind the last one.
    pub(crate) fn info(&self, segment: u32) -> Option<SegmentInfo> {
        let segments = self.inner.segments.borrow();
        let found = segments.get(segment as usize)?;
        Some(Segment::info((segment, found)))
    }

    /// Why nobody knows what a segment holds, if that is so.
    pub(crate) fn damage(&self, segment: u32) -> Option<FormatError> {
        self.inner.segments.borrow().get(segment as usize)?.damage
    }

    /// How many pages of a sealed extent were promised to survive.
    pub(crate) fn promised(&self, segment: u32) -> Option<u32> {
        let segments = self.inner.segments.borrow();
        let entry = segments.get(segment as usize)?.entry;
        (entry.state == SegmentState::Sealed).then_some(entry.durable)
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.inner.disk
    }

    pub(crate) fn seed(&self) -> u32 {
        self.inner.superblock.seed
    }
}

impl Inner {
    /// Has `look` see or change the segment of an extent that is in it.
    fn with<T>(
        &self,
        at: ExtentPlace,
        look: impl FnOnce(&mut Segment) -> Result<T, ExtentError>,
    ) -> Result<T, ExtentError> {
        let mut segments = self.segments.borrow_mut();
        let segment = segments.get_mut(at.segment as usize);
        match segment.filter(|segment| segment.holds(at.extent)) {
            Some(segment) => look(segment),
            None => Err(ExtentError::NoExtent {
                device: self.device.clone(),
                extent: at.extent,
                segment: at.segment,
            }),
        }
    }
}

impl fmt::Debug for ExtentServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtentServer")
            .field("device", &self.inner.device)
            .field("free", &self.free_segments())
            .finish_non_exhaustive()
    }
}
