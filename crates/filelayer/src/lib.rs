//! Random writes over append-only streams: blocks of files, kept in the records of a stream.
//!
//! A [`DataUnit`] owns blocks of up to 4 MiB, each of one file. Whatever changes a block is a record that is appended
//! to the dataunit's data stream: so a random write is one write of the device, and the stream alone tells
//! everything. An index in memory knows where each page is and its checksum: so a random read is one read. From time to time the
//! index is written to a stream of its own, so that recovery reads only what came after. Compaction empties
//! extents that hold little, and snapshots and clones share pages.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `ids` | [`Fid`], [`Mark`], [`Volume`]: what names blocks and their writers |
//! | `unit` | [`DataUnit`]: everything that is asked of it, a file an operation |
//! | `index` | the index in memory: what each record does; no I/O |
//! | `format` | records: heads, and blocks in full |
//! | `locks` | changes of one page, one after the other |
//! | `cache` | pages in memory, by block and number |
//! | `error`, `options` | [`FileError`], [`Options`] |
//!
//! Layouts, promises and figures are in `docs/design/filelayer.md`.
//!
//! ```
//! use block::{Disk, FileDevice};
//! use filelayer::{DataUnit, Mark, Options, Stability, UnitId};
//! use nebula::extents::{ExtentServer, FormatOptions};
//! use nebula::{Epoch, streams::StreamServer};
//!
//! # let dir = tempfile::tempdir()?;
//! let device = FileDevice::open(dir.path().join("disk"), &block::Options::create(32 << 20))?;
//! let mut core = rt::Core::new(rt::Config::default())?;
//! let handle = core.handle();
//! let disk = Disk::open(&device, 32)?;
//! let _polled = handle.register_poller(disk.poller());
//! core.block_on(async {
//!     let mut format = FormatOptions::new(1, 2); // At random.
//!     format.segment_bytes = 1 << 20;
//!     ExtentServer::format(&device, &disk, &format).await?;
//!     let extents = ExtentServer::open(&handle, &device, &disk).await?;
//!     let engine = meta::Model::new(3).handle();
//!     let streams = StreamServer::open(&handle, engine, vec![extents]).await?;
//!
//!     let of = DataUnit::create(&streams).await?;
//!     let id = UnitId::new(1).expect("24 bits");
//!     let unit = DataUnit::open(&handle, &streams, id, of, Epoch(1), Options::default()).await?;
//!     let fid = unit.allocate(1).await?[0];
//!     let mark = Mark { handle: [1; 12], end: 10_005, truncate_epoch: 0, snapshot_epoch: 1 };
//!     unit.write(fid, 10_000, b"hello", mark, Stability::Stable).await?;
//!     unit.close().await?;
//!
//!     let unit = DataUnit::open(&handle, &streams, id, of, Epoch(2), Options::default()).await?;
//!     let mut out = Vec::new();
//!     unit.read(fid, 9_999, 7, &mut out).await?;
//!     assert_eq!(out, b"\0hello\0");
//!     assert_eq!(unit.end_of(&[1; 12], 0), Some(10_005));
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod cache;
mod error;
mod format;
mod ids;
mod index;
mod locks;
mod options;
mod unit;

pub use error::FileError;
pub use format::FormatError;
pub use ids::{BLOCK, BLOCK_PAGES, Fid, Mark, PAGE, Stability, UnitId, Volume};
pub use index::Difference;
pub use options::{Options, RESERVE_SEGMENTS};
pub use unit::{
    Compacted, DataUnit, Examined, Flaw, Recovery, Space, UnitStreams, Verified, WriteDone,
};
