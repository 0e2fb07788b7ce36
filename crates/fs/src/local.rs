//! A file system of its parts: an engine of rows, and a device of data.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use block::{Device, Disk};
use filelayer::{DataUnit, UnitId, UnitStreams};
use files::{Timestamp, VolumeId};
use index::{Index, Quota};
use meta::{Embedded, Engine, Scoped};
use nebula::extents::{ExtentServer, FormatOptions};
use nebula::streams::StreamServer;
use rt::Instant;
use rt::sync::Semaphore;

use crate::background::PAGES_A_STEP;
use crate::blocks::UnitBlocks;
use crate::figures::Compacted;
use crate::gate::Gate;
use crate::growth::Growth;
use crate::unit::UnitRow;
use crate::{LocalError, unit};

/// Whose rows are under which byte.
pub(crate) const INDEX: u8 = b'i';
pub(crate) const STREAMS: u8 = b's';
pub(crate) const UNITS: u8 = b'u';
const VOLUMES: u8 = b'v';

/// Requests of the device that are under way at a time.
pub(crate) const DEPTH: usize = 256;

/// Steps of compaction before a file system is closed, at most.
const MOVES_MAX: usize = 4096;

/// How a file system is made.
#[derive(Clone, Debug)]
pub struct LocalFormat {
    /// Bytes of its data, in a directory: a device has its own.
    pub data_bytes: u64,
    /// Bytes of a segment: what is given back at once, and the longest extent.
    pub segment_bytes: u64,
    /// What its names are drawn from: at random.
    pub seed: u64,
    /// The date.
    pub now: Timestamp,
    /// What its first volume may use.
    pub quota: Quota,
    /// The drive that its data is on, instead of a file of the directory.
    pub drive: Option<Drive>,
}

/// A drive that becomes a file system's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    /// Its name, by which it has to be found at each start: one below `/dev/disk/by-id` stays the same.
    pub path: PathBuf,
    /// Whether it is taken whatever it holds.
    pub force: bool,
}

impl LocalFormat {
    /// So many bytes of data in segments of 16 MiB, or of a 64th of it if that is less.
    #[must_use]
    pub fn new(data_bytes: u64, seed: u64, now: Timestamp) -> Self {
        Self {
            data_bytes,
            segment_bytes: segment_of(data_bytes),
            seed,
            now,
            quota: Quota::default(),
            drive: None,
        }
    }
}

/// Bytes of a segment of so many bytes of data.
pub(crate) fn segment_of(data_bytes: u64) -> u64 {
    (data_bytes / 64)
        .next_power_of_two()
        .clamp(1 << 20, 16 << 20)
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
    /// How often the index of the data is written down: what is younger is read again after a crash.
    pub checkpoint_every: Duration,
    /// Whether clients that had opens and locks before may claim them first: false only where there was none.
    pub grace: bool,
}

impl LocalOptions {
    /// 256 MiB of pages, 64 MiB of rows, a checkpoint a minute.
    #[must_use]
    pub fn new(now: Rc<dyn Fn() -> Timestamp>, seed: u64) -> Self {
        Self {
            now,
            seed,
            cache_bytes: 256 << 20,
            rows_bytes: 64 << 20,
            checkpoint_every: Duration::from_secs(60),
            grace: true,
        }
    }
}

/// What a file system stands on.
#[derive(Clone)]
pub struct Parts<'a> {
    /// The rows.
    pub engine: Rc<dyn Engine>,
    /// The data.
    pub device: &'a dyn Device,
}

/// A file system: cloning costs one increment.
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
    engine: Rc<dyn Engine>,
    /// The engine of a directory, which ends with the file system.
    pub(crate) rows: Option<Embedded>,
    pub(crate) disk: Disk,
    /// Names of volumes.
    pub(crate) names: Rc<dyn Engine>,
    /// One change of volumes at a time.
    pub(crate) volumes: Semaphore,
    pub(crate) compacted: Cell<Compacted>,
    /// When something was asked for last.
    pub(crate) asked_at: Cell<Instant>,
    pub(crate) checkpoint_every: Duration,
    _disk: rt::PollerGuard,
}

impl Local {
    /// The volume that every file system has.
    pub const VOLUME: VolumeId = VolumeId(1);

    /// Makes a file system of an engine without rows and a device.
    ///
    /// # Errors
    /// No room, the parts'.
    pub async fn format_parts(
        core: &rt::Handle,
        parts: Parts<'_>,
        format: &LocalFormat,
    ) -> Result<(), LocalError> {
        let Parts { engine, device } = parts;
        let mut random = fastrand::Rng::with_seed(format.seed);
        let disk = Disk::open(device, DEPTH)?;
        let _polled = core.register_poller(disk.poller());
        let mut extents = FormatOptions::new(random.u64(..), random.u32(..));
        extents.segment_bytes = format.segment_bytes;
        extents.force = format.drive.as_ref().is_some_and(|drive| drive.force);
        ExtentServer::format(device, &disk, &extents).await?;
        let extents = ExtentServer::open(core, device, &disk).await?;
        let disk = extents.disk_id();
        let streams = StreamServer::open(core, scope(&engine, STREAMS), vec![extents]).await?;
        let streams = DataUnit::create(&streams).await?;
        unit::create(&*scope(&engine, UNITS), streams, disk).await?;
        let (mut name_key, mut secret) = ([0; 16], [0; 32]);
        random.fill(&mut name_key);
        random.fill(&mut secret);
        let mut of_index = index::Format::new(name_key, secret, format.now);
        of_index.volumes = vec![(Self::VOLUME, format.quota)];
        Index::format(&*scope(&engine, INDEX), &of_index).await?;
        Ok(())
    }

    /// Opens the file system that was [made](Self::format_parts) of these parts. Nobody else may have them
    /// open.
    ///
    /// # Errors
    /// [`LocalError`] says what is wrong with which part.
    pub async fn open_parts(
        core: &rt::Handle,
        parts: Parts<'_>,
        options: &LocalOptions,
    ) -> Result<Self, LocalError> {
        Self::assemble(core, parts, options, None).await
    }

    pub(crate) async fn assemble(
        core: &rt::Handle,
        parts: Parts<'_>,
        options: &LocalOptions,
        rows: Option<Embedded>,
    ) -> Result<Self, LocalError> {
        let Parts { engine, device } = parts;
        let disk = Disk::open(device, DEPTH)?;
        let polled = core.register_poller(disk.poller());
        let extents = ExtentServer::open(core, device, &disk).await?;
        extents.write_segments_ahead();
        let units = scope(&engine, UNITS);
        // Segments that the rows do not know are freed next: those of another disk must not be.
        let UnitRow {
            streams: of_unit,
            epoch,
            disk: disk_id,
        } = unit::take(&*units).await?;
        if disk_id != extents.disk_id() {
            return Err(LocalError::OtherDisk(device.name()));
        }
        let of_streams = scope(&engine, STREAMS);
        let streams = StreamServer::open(core, of_streams, vec![extents.clone()]).await?;
        delete_what_nobody_has(&streams, of_unit).await?;
        let mut of_layer = filelayer::Options::default();
        of_layer.cache_bytes = options.cache_bytes;
        let number = UnitId::new(1).expect("a small number");
        let unit = DataUnit::open(core, &streams, number, of_unit, epoch, of_layer).await?;
        unit::rename(&*units, unit.streams()).await?;
        let blocks = UnitBlocks {
            unit,
            disk: extents,
            sure: Rc::default(),
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
        // What marks were needed for is in the rows now, but for those that could not be read.
        if index.is_recovered() {
            blocks.unit.forget_ends();
        }
        Ok(Self {
            inner: Rc::new(Inner {
                core: core.clone(),
                index,
                blocks,
                growth: Growth::default(),
                gate: Gate::default(),
                names: scope(&engine, VOLUMES),
                volumes: Semaphore::new(1),
                engine,
                rows,
                disk,
                compacted: Cell::default(),
                asked_at: Cell::new(core.now()),
                checkpoint_every: options.checkpoint_every,
                _disk: polled,
            }),
        })
    }

    /// Answers [`files::Error::Delay`] to whatever is asked from now on, and nothing to changes that are carried out
    /// once ([`files::Caller::once`]): a repeat may have its answer already. Waits for what is under way, and writes
    /// down what is in memory alone, so that the next start has little to recover. Ends [`Local::keep`].
    ///
    /// It waits for futures of requests that somebody holds and does not poll: drop them before.
    ///
    /// # Errors
    /// The first of the parts': the others are closed all the same, and the next start does what was left.
    pub async fn close(self) -> Result<(), LocalError> {
        self.inner.gate.close().await;
        let mut settled = self.inner.index.settle_all().await;
        if settled == Err(files::Error::Delay) && self.move_all().await {
            settled = self.inner.index.settle_all().await;
        }
        if let Err(error) = settled {
            tracing::warn!(%error, "sizes and times are recovered at the next start");
        }
        let unit = self.inner.blocks.unit.clone();
        if let Err(error) = unit.checkpoint().await {
            tracing::warn!(%error, "the next start reads more of the data");
        }
        let unit = unit.close().await;
        let rows = self.inner.engine.checkpoint().await;
        unit?;
        Ok(rows?)
    }

    /// Moves what a flush that has failed has left in doubt, and whatever else compaction finds to do. Whether it
    /// has come to an end.
    async fn move_all(&self) -> bool {
        for _ in 0..MOVES_MAX {
            match self.inner.blocks.unit.step(PAGES_A_STEP).await {
                Ok(done) if done.is_idle => return true,
                Ok(_) => self.inner.core.yield_now().await,
                Err(error) => {
                    tracing::warn!(%error, "an extent was not compacted");
                    return false;
                }
            }
        }
        false
    }

    /// Makes a volume, or sets the bounds of one.
    ///
    /// # Errors
    /// The metadata engine's.
    pub async fn set_quota(&self, volume: VolumeId, quota: Quota) -> Result<(), files::Error> {
        self.inner.index.set_quota(volume, quota).await
    }
}

/// Deletes streams that the dataunit does not have: its row was not written any more.
async fn delete_what_nobody_has(
    streams: &StreamServer,
    unit: UnitStreams,
) -> Result<(), LocalError> {
    for stream in streams.list().await? {
        if ![unit.data, unit.index].contains(&stream) {
            tracing::warn!(%stream, "a stream that nobody has is deleted");
            streams.delete(stream).await?;
        }
    }
    Ok(())
}

pub(crate) fn scope(engine: &Rc<dyn Engine>, of: u8) -> Rc<dyn Engine> {
    Rc::new(Scoped::new(Rc::clone(engine), of))
}
