//! Append-only streams of extents on block devices: what files are written to.
//!
//! A stream is a list of extents, of which the last one is written. An extent is a fixed part of a disk
//! that only grows, until it is sealed. What is appended is a record: a head of the caller's, and pages.
//! Records that tasks ask for in one turn make a frame, which is written with one write, describes itself,
//! and has a checksum of each page. A page has an address for ever, from which its place on the device is
//! computed.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`Writer`], [`Record`], [`Group`], [`Append`] | appends: acknowledged in order, durable or flushed later |
//! | [`Reader`], [`Replay`], [`Frame`] | pages by their addresses; all frames in order |
//! | [`Scrub`] | reads everything, and says what is damaged |
//! | [`streams`] | which extents a stream has: creating, taking over, releasing, deleting |
//! | [`extents`] | the extents of one disk |
//! | [`Address`], [`Epoch`], [`StreamId`], [`ExtentId`] | names |
//! | [`StreamError`], [`ExtentError`], [`FormatError`] | what went wrong, and where |
//!
//! **What is promised.** What was acknowledged is a prefix of what was appended. With
//! [`Durable::Yes`](block::Durable::Yes) it survives the loss of power, with all before it; otherwise from
//! the end of the next [`Writer::flush`] on. A page is never served that is not what was written.
//! Who takes a stream over with a higher [`Epoch`] finds all that was acknowledged, and whoever wrote before
//! is refused.
//!
//! ```
//! use block::{Device, Disk, Durable, FileDevice, Options};
//! use nebula::extents::{ExtentServer, FormatOptions};
//! use nebula::streams::StreamServer;
//! use nebula::{Epoch, PAGE};
//!
//! # let dir = tempfile::tempdir()?;
//! let device = FileDevice::open(&dir.path().join("disk"), &Options::create(8 << 20))?;
//! let mut core = rt::Core::new(rt::Config::default())?;
//! let handle = core.handle();
//! let disk = Disk::open(&device, 32)?;
//! let _polled = handle.register_poller(disk.poller());
//! core.block_on(async {
//!     let mut options = FormatOptions::new(1, 2); // At random.
//!     options.segment_bytes = 1 << 20;
//!     ExtentServer::format(&device, &disk, &options).await?;
//!     let extents = ExtentServer::open(&handle, &device, &disk).await?;
//!     let engine = meta::Model::new(3).handle();
//!     let streams = StreamServer::open(&handle, engine, vec![extents]).await?;
//!
//!     let stream = streams.create().await?;
//!     let writer = streams.open_for_writing(stream, Epoch(1)).await?;
//!     let mut record = writer.record(b"head", 1);
//!     record.payload_mut().fill(7);
//!     let sums: Vec<u32> = record.sums().collect();
//!     let appended = writer.append(record, Durable::Yes).await?;
//!     let page = writer.reader().read(appended.at, &sums).await?;
//!     assert_eq!(page[..], [7; PAGE]);
//!     writer.close().await?;
//!
//!     let mut replay = streams.reader(stream).await?.replay(appended.frame);
//!     let frame = replay.next().await?.expect("one frame");
//!     assert_eq!(frame.records().next().expect("one record").head, b"head");
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod error;
pub mod extents;
mod format;
mod ids;
mod reader;
mod record;
mod scrub;
pub mod streams;
mod writer;

pub use error::{ExtentError, StreamError};
pub use format::entry::SegmentState;
pub use format::frame::HEAD_LEN_MAX;
pub use format::{FORMAT_VERSION, FormatError, PAGE};
pub use ids::{Address, Epoch, ExtentId, StreamId};
pub use reader::{Frame, FrameRecord, Reader, Replay};
pub use record::Record;
pub use scrub::{Scrub, ScrubFault, ScrubStep};
pub use writer::{Append, Appended, Group, Writer};
