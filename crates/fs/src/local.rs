//! A file system in a directory of this machine.
//!
//! ```text
//! DIR/rows/    the metadata engine: a journal and a database
//! DIR/data     segments of streams
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use block::{Disk, FileDevice};
use filelayer::{DataUnit, UnitId};
use files::{Timestamp, VolumeId};
use index::{Index, Quota};
use meta::{Embedded, Engine, Scoped};
use nebula::extents::{ExtentServer, FormatOptions};
use nebula::streams::StreamServer;

use crate::blocks::UnitBlocks;
use crate::growth::Growth;
use crate::{LocalError, unit};

/// The metadata engine's directory.
const ROWS: &str = "rows";
/// The device of the data.
const DATA: &str = "data";

/// Whose rows are under which byte.
const INDEX: u8 = b'i';
const STREAMS: u8 = b's';
const UNITS: u8 = b'u';

/// Requests of the device that are under way at a time.
const DEPTH: usize = 256;

/// How a file system is made.
#[derive(Clone, Debug)]
pub struct LocalFormat {
    /// Bytes of its data.
    pub data_bytes: u64,
    /// Bytes of a segment: what is given back at once, and the longest extent.
    pub segment_bytes: u64,
    /// What its names are drawn from: at random.
    pub seed: u64,
    /// The date.
    pub now: Timestamp,
    /// What its first volume may use.
    pub quota: Quota,
}

impl LocalFormat {
    /// So many bytes of data in segments of 16 MiB, or of a 64th of it if that is less.
    #[must_use]
    pub fn new(data_bytes: u64, seed: u64, now: Timestamp) -> Self {
        let segment = (data_bytes / 64)
            .next_power_of_two()
            .clamp(1 << 20, 16 << 20);
        Self {
            data_bytes,
            segment_bytes: segment,
            seed,
            now,
            quota: Quota::default(),
        }
    }
}

/// How a file system is opened.
#[derive(Clone)]
pub struct LocalOptions {
    /// The date.
    pub now: Rc<dyn Fn() -> Timestamp>,
    /// Of random choices.
    pub seed: u64,
    /// Bytes of pages that are kept in memory.
    pub cache_bytes: usize,
    /// Bytes of rows that are kept in memory.
    pub rows_bytes: u64,
}

impl LocalOptions {
    /// 256 MiB of pages, 64 MiB of rows.
    #[must_use]
    pub fn new(now: Rc<dyn Fn() -> Timestamp>, seed: u64) -> Self {
        Self {
            now,
            seed,
            cache_bytes: 256 << 20,
            rows_bytes: 64 << 20,
        }
    }
}

/// What the directory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of data in all.
    pub total: u64,
    /// Bytes of segments in use.
    pub taken: u64,
    /// Bytes of pages that files have.
    pub valid: u64,
}

/// A file system in a directory: cloning costs one increment.
#[derive(Clone)]
pub struct Local {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) core: rt::Handle,
    pub(crate) index: Index,
    pub(crate) blocks: UnitBlocks,
    pub(crate) growth: Growth,
    rows: Embedded,
    _disk: rt::PollerGuard,
}

impl Local {
    /// The volume that every file system has.
    pub const VOLUME: VolumeId = VolumeId(1);

    /// Makes a file system in an empty directory, or one that is not there. The index is made last: if
    /// it is interrupted, there is none, and the directory is emptied and made again.
    ///
    /// # Errors
    /// [`LocalError::NotEmpty`], no room, the device's.
    pub async fn format(
        core: &rt::Handle,
        dir: &Path,
        format: &LocalFormat,
    ) -> Result<(), LocalError> {
        let io = |source| LocalError::Io {
            path: dir.to_path_buf(),
            source,
        };
        fs::create_dir_all(dir).map_err(io)?;
        if fs::read_dir(dir).map_err(io)?.next().is_some() {
            return Err(LocalError::NotEmpty(dir.to_path_buf()));
        }
        let mut random = fastrand::Rng::with_seed(format.seed);
        let rows = Embedded::open(dir.join(ROWS), &meta::Options::create(random.u128(..)))?;
        let data_bytes = format.data_bytes / format.segment_bytes * format.segment_bytes;
        let device = FileDevice::open(dir.join(DATA), &block::Options::create(data_bytes))?;
        let disk = Disk::open(&device, DEPTH)?;
        let _polled = core.register_poller(disk.poller());
        let mut extents = FormatOptions::new(random.u64(..), random.u32(..));
        extents.segment_bytes = format.segment_bytes;
        ExtentServer::format(&device, &disk, &extents).await?;
        let extents = ExtentServer::open(core, &device, &disk).await?;
        let engine = rows.handle();
        let streams = StreamServer::open(core, scope(&engine, STREAMS), vec![extents]).await?;
        let of_unit = DataUnit::create(&streams).await?;
        unit::create(&*scope(&engine, UNITS), of_unit).await?;
        let (mut name_key, mut secret) = ([0; 16], [0; 32]);
        random.fill(&mut name_key);
        random.fill(&mut secret);
        let mut of_index = index::Format::new(name_key, secret, format.now);
        of_index.volumes = vec![(Self::VOLUME, format.quota)];
        Index::format(&*scope(&engine, INDEX), &of_index).await?;
        rows.close()?;
        Ok(())
    }

    /// Whether there is something in a directory that can be opened.
    #[must_use]
    pub fn is_there(dir: &Path) -> bool {
        dir.join(ROWS).is_dir() && dir.join(DATA).exists()
    }

    /// Opens the file system of a directory: nobody else can at the same time.
    ///
    /// # Errors
    /// [`LocalError`] says what is wrong with which part.
    pub async fn open(
        core: &rt::Handle,
        dir: &Path,
        options: &LocalOptions,
    ) -> Result<Self, LocalError> {
        if !Self::is_there(dir) {
            return Err(LocalError::NoFileSystem(PathBuf::from(dir)));
        }
        let rows = Embedded::open(dir.join(ROWS), &meta::Options::existing())?;
        let device = FileDevice::open(dir.join(DATA), &block::Options::existing())?;
        let disk = Disk::open(&device, DEPTH)?;
        let polled = core.register_poller(disk.poller());
        let extents = ExtentServer::open(core, &device, &disk).await?;
        let engine = rows.handle();
        let of_streams = scope(&engine, STREAMS);
        let streams = StreamServer::open(core, of_streams, vec![extents.clone()]).await?;
        let units = scope(&engine, UNITS);
        let (of_unit, epoch) = unit::take(&*units).await?;
        let mut of_layer = filelayer::Options::default();
        of_layer.cache_bytes = options.cache_bytes;
        let number = UnitId::new(1).expect("a small number");
        let unit = DataUnit::open(core, &streams, number, of_unit, epoch, of_layer).await?;
        unit::rename(&*units, unit.streams()).await?;
        let blocks = UnitBlocks {
            unit,
            disk: extents,
        };
        let mut of_index = index::Options::new(
            core.clone(),
            scope(&engine, INDEX),
            Rc::new(blocks.clone()),
            Rc::clone(&options.now),
        );
        of_index.seed = options.seed;
        of_index.cache_bytes = options.rows_bytes;
        of_index.grace = true;
        let index = Index::open(of_index).await?;
        Ok(Self {
            inner: Rc::new(Inner {
                core: core.clone(),
                index,
                blocks,
                growth: Growth::default(),
                rows,
                _disk: polled,
            }),
        })
    }

    /// Writes down what is in memory alone, so that the next start has little to recover. Nothing else may
    /// be under way; what is asked afterwards may fail.
    ///
    /// # Errors
    /// Those of the parts: the next start does what was left.
    pub async fn close(self) -> Result<(), LocalError> {
        let settled = self.inner.index.settle_all().await;
        if let Err(error) = settled {
            tracing::warn!(%error, "sizes and times are recovered at the next start");
        }
        let unit = self.inner.blocks.unit.clone();
        unit.checkpoint().await?;
        unit.close().await?;
        self.inner.rows.checkpoint().await?;
        Ok(())
    }

    /// What the directory holds.
    ///
    /// # Errors
    /// The streams'.
    pub async fn space(&self) -> Result<Space, LocalError> {
        let space = self.inner.blocks.unit.space().await?;
        let disk = &self.inner.blocks.disk;
        let segment = u64::from(disk.segment_pages()) * filelayer::PAGE as u64;
        let free = u64::from(disk.free_segments());
        Ok(Space {
            total: u64::from(disk.segments()) * segment,
            taken: (u64::from(disk.segments()) - free) * segment,
            valid: space.valid * filelayer::PAGE as u64,
        })
    }

    /// What the index has done.
    #[must_use]
    pub fn index_counts(&self) -> index::Counts {
        self.inner.index.counts()
    }

    /// What the metadata engine has done.
    #[must_use]
    pub fn rows_counts(&self) -> meta::Counts {
        self.inner.rows.counts()
    }

    /// Pages found in memory, and not found there.
    #[must_use]
    pub fn cache_counts(&self) -> (u64, u64) {
        self.inner.blocks.unit.cache_counts()
    }
}

fn scope(engine: &Rc<dyn Engine>, of: u8) -> Rc<dyn Engine> {
    Rc::new(Scoped::new(Rc::clone(engine), of))
}
