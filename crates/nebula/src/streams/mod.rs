//! Streams: which extents they have, and where (the article's *streamsvr*).
//!
//! | file | what |
//! | --- | --- |
//! | `mod` | the server: create, delete, list |
//! | `rows` | what stands in the metadata engine |
//! | `change` | one change of a stream's rows, as one transaction |
//! | `examine` | what reads a stream that nobody has taken over |
//! | `extent` | a stream's extents: new ones, sealed ones, released ones; who takes a stream over |
//! | `map` | where a stream's extents are, for its readers and its writer |

mod change;
mod examine;
mod extent;
mod map;
mod rows;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use meta::{Engine, Outcome, Transaction};
use rt::Handle;

pub use examine::Examined;
pub use extent::ExtentInfo;
pub(crate) use extent::Held;
pub(crate) use map::{Located, StreamMap};

use crate::error::{ExtentError, StreamError};
use crate::extents::{ExtentPlace, ExtentServer, SegmentInfo, is_written};
use crate::format::entry::SegmentState;
use crate::ids::{Address, Epoch, StreamId};
use crate::reader::Reader;
use crate::writer::Writer;
use change::scan;
use rows::{ExtentRow, StreamRow};

/// Ids that are taken from the engine at once; what is left of them at the end is skipped.
const IDS_AT_ONCE: u64 = 1024;
/// Extents of a stream that are deleted in one transaction, which has 128 writes at most.
const DELETED_AT_ONCE: usize = 100;

/// The server of streams, over a metadata engine and the disks of this process. Cloning costs one
/// increment; not `Send`.
#[derive(Clone)]
pub struct StreamServer {
    inner: Rc<Inner>,
}

struct Inner {
    core: Handle,
    engine: Rc<dyn Engine>,
    disks: Vec<ExtentServer>,
    ids: RefCell<Range<u64>>,
    maps: RefCell<HashMap<StreamId, Rc<StreamMap>>>,
    /// Epochs under which this server has begun to take streams over, and failed: they are nobody else's. They may be in
    /// force or not.
    begun: RefCell<HashMap<StreamId, Epoch>>,
    /// Segments of extents that no row has any more, which a disk has not freed yet.
    unfreed: RefCell<Vec<Unfreed>>,
}

/// A segment that is to be freed: the stream that had its extent, the disk, and where.
type Unfreed = (StreamId, u64, ExtentPlace);

impl StreamServer {
    /// A server over these disks. What a crash has left is put in order: segments of extents that no
    /// stream has are freed, and deletions go on. A segment that its disk does not free now is freed later, when it is
    /// needed or at the next start. Reads all rows of extents.
    ///
    /// There must be one server for an engine and its disks.
    ///
    /// # Errors
    /// [`StreamError::NotOurs`] if the disks have extents that the rows can never have known: nothing was changed.
    /// The engine's and the disks'.
    pub async fn open(
        core: &Handle,
        engine: Rc<dyn Engine>,
        disks: Vec<ExtentServer>,
    ) -> Result<Self, StreamError> {
        let this = Self::over(core, engine, disks);
        this.free_what_nobody_has().await?;
        for (stream, row) in this.rows().await? {
            if !row.is_deleted {
                continue;
            }
            match this.remove(stream).await {
                // Its row stays, so that its segments are known for what they are.
                Err(error @ StreamError::Extent(_)) => {
                    tracing::warn!(%stream, %error, "freeing what a deleted stream had");
                }
                removed => removed?,
            }
        }
        Ok(this)
    }

    /// A server that only looks: it leaves everything as it is, and what a crash has left too.
    #[must_use]
    pub fn examine(core: &Handle, engine: Rc<dyn Engine>, disks: Vec<ExtentServer>) -> Self {
        Self::over(core, engine, disks)
    }

    fn over(core: &Handle, engine: Rc<dyn Engine>, disks: Vec<ExtentServer>) -> Self {
        Self {
            inner: Rc::new(Inner {
                core: core.clone(),
                engine,
                disks,
                ids: RefCell::new(0..0),
                maps: RefCell::default(),
                begun: RefCell::default(),
                unfreed: RefCell::default(),
            }),
        }
    }

    /// Makes a stream without extents. One commit.
    ///
    /// # Errors
    /// The engine's.
    pub async fn create(&self) -> Result<StreamId, StreamError> {
        loop {
            let stream = StreamId(self.id().await?);
            let row = StreamRow {
                is_deleted: false,
                epoch: Epoch(0),
                change: stream.0,
                next: 0,
            };
            let mut create = Transaction::new();
            let key = rows::stream_key(stream);
            create
                .absent(&key)
                .and_then(|create| create.put(&key, row.emit()))
                .map_err(too_long)?;
            match self.inner.engine.commit(create).await? {
                Outcome::Committed(_) => return Ok(stream),
                // Nobody else knows the id.
                Outcome::Unknown if self.inner.engine.get(&key).await?.is_some() => {
                    return Ok(stream);
                }
                Outcome::Unknown | Outcome::Conflict => {}
            }
        }
    }

    /// The epoch in force: who takes the stream over brings a higher one.
    ///
    /// # Errors
    /// [`StreamError::NoStream`], the engine's.
    pub async fn epoch(&self, stream: StreamId) -> Result<Epoch, StreamError> {
        Ok(self.row(stream).await?.0.epoch)
    }

    /// Takes a stream over for writing: raises its epoch, seals what was open, and gives it a new extent.
    /// Whoever wrote before is refused from here on, and loses nothing that was acknowledged.
    ///
    /// # Errors
    /// [`StreamError::Fenced`] unless `epoch` is higher than the one in force, [`StreamError::NoStream`],
    /// [`StreamError::Full`], the engine's and the disks'. The epoch may be in force then; this server takes the stream
    /// over with the same one when it is asked again.
    pub async fn open_for_writing(
        &self,
        stream: StreamId,
        epoch: Epoch,
    ) -> Result<Writer, StreamError> {
        let begun = self.inner.begun.borrow_mut().remove(&stream);
        match self.raise(stream, epoch).await {
            Err(StreamError::Fenced { by, .. }) if by == epoch && begun == Some(epoch) => {}
            Err(error @ (StreamError::Fenced { .. } | StreamError::NoStream { .. })) => {
                return Err(error);
            }
            Err(error) => {
                self.inner.begun.borrow_mut().insert(stream, epoch);
                return Err(error);
            }
            Ok(()) => {}
        }
        match self.take_over(stream, epoch).await {
            Ok(first) => Ok(Writer::start(self, stream, epoch, first)),
            Err(error) => {
                self.inner.begun.borrow_mut().insert(stream, epoch);
                Err(error)
            }
        }
    }

    /// What reads a stream's sealed extents, by anybody.
    ///
    /// # Errors
    /// [`StreamError::NoStream`], [`StreamError::NoDisk`], the engine's.
    pub async fn reader(&self, stream: StreamId) -> Result<Reader, StreamError> {
        let map = self.map(stream).await?;
        Ok(Reader::new(stream, map, None))
    }

    /// All streams that there are, ascending.
    ///
    /// # Errors
    /// The engine's.
    pub async fn list(&self) -> Result<Vec<StreamId>, StreamError> {
        let rows = self.rows().await?.into_iter();
        let there = rows.filter(|(_, row)| !row.is_deleted);
        Ok(there.map(|(stream, _)| stream).collect())
    }

    /// Deletes a stream, whoever writes it: its rows go, 100 extents a commit, and then their segments.
    /// What was begun is ended when the server is opened again.
    ///
    /// # Errors
    /// [`StreamError::NoStream`], the engine's and the disks'.
    pub async fn delete(&self, stream: StreamId) -> Result<(), StreamError> {
        let delete = |row: &mut StreamRow, _: &mut Transaction| {
            row.is_deleted = true;
            Ok(())
        };
        self.change(stream, None, delete).await?;
        self.remove(stream).await
    }

    /// The disks.
    #[must_use]
    pub fn disks(&self) -> &[ExtentServer] {
        &self.inner.disks
    }

    pub(crate) fn core(&self) -> &Handle {
        &self.inner.core
    }

    /// The map of a stream that was just taken over.
    pub(crate) fn map_of_writer(&self, stream: StreamId) -> Rc<StreamMap> {
        let maps = self.inner.maps.borrow();
        maps.get(&stream).cloned().unwrap_or_default()
    }

    /// Removes what is left of a deleted stream. Its row goes last: extents of a stream without a row are never left.
    async fn remove(&self, stream: StreamId) -> Result<(), StreamError> {
        loop {
            let range = meta::Range::prefix(rows::extents_of(stream));
            let some = self.inner.engine.scan(range, DELETED_AT_ONCE).await?;
            let mut remove = Transaction::new();
            let mut places = Vec::new();
            for (key, row) in &some {
                let number = rows::number_of(key).unwrap_or(u32::MAX);
                places.push(ExtentRow::parse(&row.value, stream, number)?.place());
                remove.delete(key).map_err(too_long)?;
            }
            let first = match some.first() {
                Some((key, _)) => key.to_vec(),
                None => rows::stream_key(stream),
            };
            if some.is_empty() {
                self.free_left(Some(stream)).await?;
                remove.delete(&first).map_err(too_long)?;
            }
            let outcome = self.inner.engine.commit(remove).await?;
            if outcome == Outcome::Unknown && self.inner.engine.get(&first).await?.is_some() {
                continue;
            }
            self.forget(stream);
            let mut freed = Ok(());
            for (disk, place) in places {
                freed = freed.and(self.free(stream, disk, place).await);
            }
            freed?;
            if some.is_empty() {
                return Ok(());
            }
        }
    }

    /// Frees segments of extents that no row has: what was created and not committed, or the other way
    /// round.
    async fn free_what_nobody_has(&self) -> Result<(), StreamError> {
        for (server, place) in self.unknown_extents().await? {
            let disk = server.disk_id();
            let info = server.info(place.segment);
            let stream = info.map_or(StreamId(0), |info| info.stream);
            if let Err(error) = self.free(stream, disk, place).await {
                tracing::warn!(disk, segment = place.segment, %error, "freeing a segment that no row has");
            }
        }
        Ok(())
    }

    /// Extents on the disks that no row has, and that a crash may have left. All are looked at before one is freed: rows
    /// that are older than the disk, or another disk's, must not have it emptied.
    ///
    /// # Errors
    /// [`StreamError::NotOurs`], the engine's.
    pub async fn unknown_extents(&self) -> Result<Vec<(ExtentServer, ExtentPlace)>, StreamError> {
        let streams: HashMap<_, _> = self.rows().await?.into_iter().collect();
        let ids = self.inner.engine.get(rows::IDS).await?;
        let next = ids.map_or(Ok(1), |row| rows::parse_ids(&row.value))?;
        let all = scan(&*self.inner.engine, rows::EXTENTS.to_vec()).await?;
        let mut known = HashSet::new();
        for (key, row) in &all {
            let number = rows::number_of(key).unwrap_or(u32::MAX);
            let (disk, place) = ExtentRow::parse(&row.value, StreamId(0), number)?.place();
            known.insert((disk, place.segment, place.extent));
        }
        let mut unknown = Vec::new();
        for disk in &self.inner.disks {
            let is_unknown = |info: &SegmentInfo| {
                info.state != SegmentState::Free
                    && !info.is_damaged
                    && !known.contains(&(disk.disk_id(), info.segment, info.extent))
            };
            for info in disk.list().into_iter().filter(is_unknown) {
                let (extent, segment) = (info.extent, info.segment);
                let place = ExtentPlace { extent, segment };
                // Ids are in the rows before anything is written with them.
                let row = streams.get(&info.stream);
                if extent.0 >= next || !is_leftover(row, &info, disk, place).await? {
                    return Err(StreamError::NotOurs {
                        disk: disk.disk_id(),
                        segment,
                        extent,
                    });
                }
                unknown.push((disk.clone(), place));
            }
        }
        Ok(unknown)
    }

    /// An id that nobody has.
    async fn id(&self) -> Result<u64, StreamError> {
        loop {
            if let Some(id) = self.inner.ids.borrow_mut().next() {
                return Ok(id);
            }
            let row = self.inner.engine.get(rows::IDS).await?;
            let mut take = Transaction::new();
            let next = match &row {
                None => take.absent(rows::IDS).map(|_| 1),
                Some(row) => {
                    let next = rows::parse_ids(&row.value)?;
                    take.version(rows::IDS, row.version).map(|_| next)
                }
            };
            let next = next.map_err(too_long)?;
            let end = next + IDS_AT_ONCE;
            take.put(rows::IDS, rows::emit_ids(end)).map_err(too_long)?;
            // Of what is not certain nothing is used.
            if let Outcome::Committed(_) = self.inner.engine.commit(take).await? {
                *self.inner.ids.borrow_mut() = next..end;
            }
        }
    }

    async fn rows(&self) -> Result<Vec<(StreamId, StreamRow)>, StreamError> {
        let all = scan(&*self.inner.engine, rows::STREAMS.to_vec()).await?;
        let parsed = all.into_iter().map(|(key, row)| {
            let stream = rows::stream_of(&key).ok_or_else(|| rows::nonsense("a stream"))?;
            Ok((stream, StreamRow::parse(&row.value, stream)?))
        });
        parsed.collect()
    }

    /// A stream's row and its version.
    async fn row(&self, stream: StreamId) -> Result<(StreamRow, u64), StreamError> {
        let found = self.inner.engine.get(&rows::stream_key(stream)).await?;
        let Some(found) = found else {
            return Err(StreamError::NoStream { stream });
        };
        let row = StreamRow::parse(&found.value, stream)?;
        Ok((row, found.version))
    }

    fn disk(&self, stream: StreamId, number: u32, disk: u64) -> Result<ExtentServer, StreamError> {
        let mut disks = self.inner.disks.iter();
        let found = disks.find(|server| server.disk_id() == disk);
        let missing = StreamError::NoDisk {
            stream,
            number,
            disk,
        };
        found.cloned().ok_or(missing)
    }

    /// Frees a segment whose extent no row has any more. One that the disk does not free now is tried again when
    /// another one goes, or is needed.
    async fn free(
        &self,
        stream: StreamId,
        disk: u64,
        place: ExtentPlace,
    ) -> Result<(), StreamError> {
        let this = (stream, disk, place);
        {
            let mut unfreed = self.inner.unfreed.borrow_mut();
            if !unfreed.contains(&this) {
                unfreed.push(this);
            }
        }
        self.try_free(disk, place).await?;
        let mut unfreed = self.inner.unfreed.borrow_mut();
        unfreed.retain(|left| *left != this);
        Ok(())
    }

    /// Frees segments that could not be freed before: of one stream, or of all.
    async fn free_left(&self, only: Option<StreamId>) -> Result<(), StreamError> {
        let mut left = self.inner.unfreed.borrow().clone();
        left.retain(|(stream, ..)| only.is_none_or(|only| only == *stream));
        let mut outcome = Ok(());
        for (stream, disk, place) in left {
            if let Err(error) = self.free(stream, disk, place).await {
                tracing::warn!(disk, segment = place.segment, %error, "freeing a segment once more");
                outcome = Err(error);
            }
        }
        outcome
    }

    /// Frees a segment, which may be free already.
    async fn try_free(&self, disk: u64, place: ExtentPlace) -> Result<(), StreamError> {
        let mut disks = self.inner.disks.iter();
        let Some(server) = disks.find(|server| server.disk_id() == disk) else {
            return Ok(());
        };
        match server.free(place).await {
            Ok(()) | Err(ExtentError::NoExtent { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a crash may have left an extent that has no row, of a stream with this row: one that was released and not
/// freed, or created and not committed, so that nothing was written to it. Anything else is of later rows than these.
async fn is_leftover(
    row: Option<&StreamRow>,
    info: &SegmentInfo,
    disk: &ExtentServer,
    place: ExtentPlace,
) -> Result<bool, StreamError> {
    match row {
        Some(row) if row.epoch < info.epoch => Ok(false),
        Some(row) if info.number < row.next => Ok(true),
        _ => Ok(info.state == SegmentState::Open && !is_written(disk, place).await?),
    }
}

/// Transactions here are far below the limits.
fn too_long(error: meta::LimitError) -> StreamError {
    rows::nonsense(&format!("a transaction: {error}"))
}

/// The address of an extent's first page.
pub(crate) fn start_of(number: u32) -> Address {
    Address {
        extent: number,
        page: 0,
    }
}

impl fmt::Debug for StreamServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamServer")
            .field("disks", &self.inner.disks)
            .finish_non_exhaustive()
    }
}
