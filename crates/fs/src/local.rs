//! A file system in a directory of this machine.
//!
//! ```text
//! DIR/rows/            the metadata engine: a journal and a database
//! DIR/data             segments of streams
//! DIR/vervain.making   there only until the file system is made: the rest is of no use then
//! ```

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use block::{BlockError, Disk, FileDevice};
use filelayer::{DataUnit, UnitId};
use files::{Timestamp, VolumeId};
use index::{Index, Quota};
use meta::{Embedded, Engine, Scoped};
use nebula::extents::{ExtentServer, FormatOptions};
use nebula::streams::StreamServer;

use crate::blocks::UnitBlocks;
use crate::gate::Gate;
use crate::growth::Growth;
use crate::unit::UnitRow;
use crate::{LocalError, unit};

/// The metadata engine's directory.
const ROWS: &str = "rows";
/// The device of the data.
const DATA: &str = "data";
/// Says that the file system is not made yet, and is locked while it is.
const MAKING: &str = "vervain.making";

/// How often, and how long, opening waits for the end of a killed process's last write: 30 s in all.
const ATTEMPTS_MAX: u32 = 3000;
const ATTEMPT: Duration = Duration::from_millis(10);

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
    /// Whether clients that had opens and locks before may claim them first: false only where there was none.
    pub grace: bool,
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
            grace: true,
        }
    }
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
    pub(crate) gate: Gate,
    rows: Embedded,
    _disk: rt::PollerGuard,
}

impl Local {
    /// The volume that every file system has.
    pub const VOLUME: VolumeId = VolumeId(1);

    /// Makes a file system in an empty directory, or one that is not there, or one where making it was
    /// interrupted: what that has left is removed.
    ///
    /// # Errors
    /// [`LocalError::NotEmpty`], [`LocalError::InUse`], no room, the device's.
    pub async fn format(
        core: &rt::Handle,
        dir: &Path,
        format: &LocalFormat,
    ) -> Result<(), LocalError> {
        fs::create_dir_all(dir).map_err(failed(dir))?;
        let making = begin_making(dir)?;
        Self::make(core, dir, format).await?;
        sync(dir)?;
        fs::remove_file(dir.join(MAKING)).map_err(failed(&dir.join(MAKING)))?;
        sync(dir)?;
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync(parent)?;
        }
        drop(making);
        Ok(())
    }

    async fn make(core: &rt::Handle, dir: &Path, format: &LocalFormat) -> Result<(), LocalError> {
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
        let disk = extents.disk_id();
        let engine = rows.handle();
        let streams = StreamServer::open(core, scope(&engine, STREAMS), vec![extents]).await?;
        let streams = DataUnit::create(&streams).await?;
        unit::create(&*scope(&engine, UNITS), streams, disk).await?;
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
        dir.join(ROWS).is_dir() && dir.join(DATA).exists() && !dir.join(MAKING).exists()
    }

    /// Whether a file system can be made in a directory: it is empty, not there, or has what is left of an
    /// interrupted making.
    #[must_use]
    pub fn can_make(dir: &Path) -> bool {
        let is_empty = fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none());
        is_empty || dir.join(MAKING).exists()
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
        let device = open_device(core, &dir.join(DATA)).await?;
        let disk = Disk::open(&device, DEPTH)?;
        let polled = core.register_poller(disk.poller());
        let extents = ExtentServer::open(core, &device, &disk).await?;
        let engine = rows.handle();
        let units = scope(&engine, UNITS);
        // Segments that the rows do not know are freed next: those of another disk must not be.
        let UnitRow {
            streams: of_unit,
            epoch,
            disk,
        } = unit::take(&*units).await?;
        if disk != extents.disk_id() {
            return Err(LocalError::OtherDisk(dir.join(DATA)));
        }
        let of_streams = scope(&engine, STREAMS);
        let streams = StreamServer::open(core, of_streams, vec![extents.clone()]).await?;
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
        of_index.grace = options.grace;
        let index = Index::open(of_index).await?;
        // What marks were needed for is in the rows now.
        blocks.unit.forget_ends();
        Ok(Self {
            inner: Rc::new(Inner {
                core: core.clone(),
                index,
                blocks,
                growth: Growth::default(),
                gate: Gate::default(),
                rows,
                _disk: polled,
            }),
        })
    }

    /// Answers [`files::Error::Delay`] to whatever is asked from now on, waits for what is under way, and
    /// writes down what is in memory alone, so that the next start has little to recover. Ends
    /// [`Local::keep`].
    ///
    /// It waits for futures of requests that somebody holds and does not poll: drop them before.
    ///
    /// # Errors
    /// The first of the parts': the others are closed all the same, and the next start does what was left.
    pub async fn close(self) -> Result<(), LocalError> {
        self.inner.gate.close().await;
        if let Err(error) = self.inner.index.settle_all().await {
            tracing::warn!(%error, "sizes and times are recovered at the next start");
        }
        let unit = self.inner.blocks.unit.clone();
        if let Err(error) = unit.checkpoint().await {
            tracing::warn!(%error, "the next start reads more of the data");
        }
        let unit = unit.close().await;
        let rows = self.inner.rows.checkpoint().await;
        unit?;
        Ok(rows?)
    }

    /// Makes a volume, or sets the bounds of one.
    ///
    /// # Errors
    /// The metadata engine's.
    pub async fn set_quota(&self, volume: VolumeId, quota: Quota) -> Result<(), files::Error> {
        self.inner.index.set_quota(volume, quota).await
    }
}

fn scope(engine: &Rc<dyn Engine>, of: u8) -> Rc<dyn Engine> {
    Rc::new(Scoped::new(Rc::clone(engine), of))
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> LocalError {
    let path = path.to_path_buf();
    move |source| LocalError::Io { path, source }
}

/// Has names in a directory survive the loss of power.
fn sync(dir: &Path) -> Result<(), LocalError> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(failed(dir))
}

/// Says in a directory that a file system is being made there, and removes what is left of an interrupted
/// making. The lock holds as long as the file is open.
fn begin_making(dir: &Path) -> Result<File, LocalError> {
    let path = dir.join(MAKING);
    if !Local::can_make(dir) {
        return Err(LocalError::NotEmpty(dir.to_path_buf()));
    }
    let making = File::create(&path).map_err(failed(&path))?;
    match making.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(LocalError::InUse(dir.to_path_buf())),
        Err(TryLockError::Error(error)) => return Err(failed(&path)(error)),
    }
    sync(dir)?;
    let is_gone = |removed: std::io::Result<()>| match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let (rows, data) = (dir.join(ROWS), dir.join(DATA));
    is_gone(fs::remove_dir_all(&rows)).map_err(failed(&rows))?;
    is_gone(fs::remove_file(&data)).map_err(failed(&data))?;
    Ok(making)
}

/// Opens the device of the data. The rows are locked, so that only what is left of a killed process can hold
/// it: the kernel takes its time to end a ring, whose last write may be under way until then.
async fn open_device(core: &rt::Handle, path: &Path) -> Result<FileDevice, LocalError> {
    let mut attempts = 1;
    loop {
        match FileDevice::open(path, &block::Options::existing()) {
            Err(BlockError::InUse { .. }) if attempts < ATTEMPTS_MAX => {
                attempts += 1;
                core.sleep(ATTEMPT).await;
            }
            opened => return Ok(opened?),
        }
    }
}
