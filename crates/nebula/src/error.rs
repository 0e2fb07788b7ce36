//! What goes wrong, and where.

use std::sync::Arc;

use block::BlockError;
use meta::MetaError;
use thiserror::Error;

use crate::format::FormatError;
use crate::ids::{Address, Epoch, ExtentId, StreamId};

/// Why a disk's extents cannot be used as they were asked to.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ExtentError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
    /// There is no free segment. What is there can be read and freed.
    #[error("{device} is full: release extents, or add a disk")]
    Full {
        /// The disk.
        device: Arc<str>,
    },
    /// The extent is not on this disk, or not in the segment where it was looked for: it was freed.
    #[error("{device} has no {extent} in segment {segment}")]
    NoExtent {
        /// The disk.
        device: Arc<str>,
        /// The extent.
        extent: ExtentId,
        /// Where it was looked for.
        segment: u32,
    },
    /// Somebody with a higher epoch owns the extent.
    #[error("{extent} is fenced: {epoch} is refused, {by} is in force")]
    Fenced {
        /// The extent.
        extent: ExtentId,
        /// The epoch that was brought.
        epoch: Epoch,
        /// The extent's.
        by: Epoch,
    },
    /// The extent has its length and takes no more.
    #[error("{extent} is sealed")]
    Sealed {
        /// The extent.
        extent: ExtentId,
    },
    /// The frame does not fit into what is left of the extent's segment.
    #[error("{extent} has no room for {pages} pages more")]
    NoRoom {
        /// The extent.
        extent: ExtentId,
        /// The frame's pages.
        pages: u32,
    },
    /// An append that does not go on where the last one ended.
    #[error("{extent} ends at page {end}: nothing can be appended at page {page}")]
    Gap {
        /// The extent.
        extent: ExtentId,
        /// Where the append was to go.
        page: u32,
        /// Where the extent ends.
        end: u32,
    },
    /// An append was repeated with other bytes.
    #[error("{extent} has another frame at page {page}")]
    Conflict {
        /// The extent.
        extent: ExtentId,
        /// Where it was to go.
        page: u32,
    },
    /// An append before this one has failed, or was given up: the extent has to be sealed.
    #[error("{extent} takes no more: an append to it has failed")]
    Failed {
        /// The extent.
        extent: ExtentId,
    },
    /// A read beyond what is acknowledged, or of an open extent that is another writer's.
    #[error("{extent} has no pages {page} to {} for this reader: it ends at {end}", page + pages)]
    Beyond {
        /// The extent.
        extent: ExtentId,
        /// The first page asked for.
        page: u32,
        /// How many.
        pages: u32,
        /// Where the reader's part ends.
        end: u32,
    },
    /// The device holds no disk of extents, or one that this program cannot use.
    #[error("{device} is no disk of extents that can be used: {source}")]
    NoDisk {
        /// The device.
        device: Arc<str>,
        /// What is wrong.
        source: FormatError,
    },
    /// What is to be formatted holds something.
    #[error("{device} is not empty: byte {at} is not zero (format by force to overwrite it)")]
    NotEmpty {
        /// The device.
        device: Arc<str>,
        /// The first byte found that is not zero.
        at: u64,
    },
    /// The device is too short for what it was formatted with, or for a segment.
    #[error("{device} has {len} bytes, but {needed} are needed")]
    TooShort {
        /// The device.
        device: Arc<str>,
        /// Its length.
        len: u64,
        /// What it should have.
        needed: u64,
    },
    /// Both copies of a segment's entry in the table are damaged: nobody knows what the segment holds.
    #[error("{device} does not know what segment {segment} holds: {source}")]
    Unknown {
        /// The disk.
        device: Arc<str>,
        /// The segment.
        segment: u32,
        /// What is wrong with one of the copies.
        source: FormatError,
    },
    /// The core that the disk belongs to has been shut down.
    #[error("the core of {device} was shut down")]
    Closed {
        /// The disk.
        device: Arc<str>,
    },
}

/// Why a stream was not written, read or changed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum StreamError {
    /// An extent, or the disk of one.
    #[error(transparent)]
    Extent(#[from] ExtentError),
    /// The metadata engine.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// There is no such stream.
    #[error("there is no {stream}")]
    NoStream {
        /// The stream.
        stream: StreamId,
    },
    /// The stream has no such extent: it was released, or never was.
    #[error("{stream} has no extent {number}")]
    NoExtent {
        /// The stream.
        stream: StreamId,
        /// The extent's number.
        number: u32,
    },
    /// The extent is the one that is written, or the one after it.
    #[error("extent {number} of {stream} is in use by its writer")]
    InUse {
        /// The stream.
        stream: StreamId,
        /// The extent's number.
        number: u32,
    },
    /// Somebody with a higher epoch owns the stream.
    #[error("{stream} is fenced: {epoch} is refused, {by} is in force")]
    Fenced {
        /// The stream.
        stream: StreamId,
        /// The epoch that was brought.
        epoch: Epoch,
        /// The stream's.
        by: Epoch,
    },
    /// All disks are full. Nothing was written.
    #[error("no disk has room for another extent of {stream}: release extents, or add a disk")]
    Full {
        /// The stream.
        stream: StreamId,
    },
    /// The record is longer than a segment of these disks.
    #[error("a record of {pages} pages is too long: {max} at most on these disks")]
    TooLong {
        /// Its pages.
        pages: u32,
        /// What a segment takes.
        max: u32,
    },
    /// A page is not what was written.
    #[error("page {at} of {stream} is damaged: its checksum is {found:#010x}, not {wanted:#010x}")]
    Page {
        /// The stream.
        stream: StreamId,
        /// The page.
        at: Address,
        /// The checksum of what was read.
        found: u32,
        /// That of what was written.
        wanted: u32,
    },
    /// Frames that were acknowledged are damaged.
    #[error("pages {from} to {to} of {stream} are damaged: {source}")]
    Damaged {
        /// The stream.
        stream: StreamId,
        /// The first page of what cannot be told.
        from: Address,
        /// The first page behind it.
        to: Address,
        /// What is wrong with the first.
        source: FormatError,
    },
    /// A flush has failed: these pages were acknowledged without a promise to survive the loss of power, and it
    /// is not known whether they would.
    #[error("pages {from} to {to} of {stream} may not survive the loss of power: {source}")]
    NotDurable {
        /// The stream.
        stream: StreamId,
        /// The first page in doubt.
        from: Address,
        /// The first page behind them.
        to: Address,
        /// What the device said.
        source: BlockError,
    },
    /// The record was not written: one that it means nothing without was written, and may not survive the loss of power.
    #[error(
        "a record was not written to {stream}, as the one before it may not survive the loss of power: {source}"
    )]
    NotWritten {
        /// The stream.
        stream: StreamId,
        /// What the device said.
        source: BlockError,
    },
    /// A row of the metadata engine is not what this program writes.
    #[error("the row of {what} makes no sense")]
    Row {
        /// Whose row.
        what: String,
    },
    /// Whether a change of the stream's rows was carried out cannot be found out now.
    #[error(
        "a change of {stream} was not carried out: its rows changed meanwhile, again and again"
    )]
    Contended {
        /// The stream.
        stream: StreamId,
    },
    /// A disk that the stream has an extent on is not among those that were opened.
    #[error("extent {number} of {stream} is on disk {disk:#x}, which is not here")]
    NoDisk {
        /// The stream.
        stream: StreamId,
        /// The extent's number.
        number: u32,
        /// The disk.
        disk: u64,
    },
    /// A disk has an extent that these rows can never have known: they are another system's, or older than the
    /// disk. Nothing was changed.
    #[error(
        "segment {segment} of disk {disk:#x} has extent {}, which is newer than the metadata engine's rows (are \
         they of this disk, and the latest?)",
        extent.0
    )]
    NotOurs {
        /// The disk.
        disk: u64,
        /// The segment.
        segment: u32,
        /// The extent.
        extent: ExtentId,
    },
    /// The writer was closed, or its core shut down.
    #[error("the writer of {stream} is closed")]
    Closed {
        /// The stream.
        stream: StreamId,
    },
}
