//! Creating a dataunit, opening it, and recovering its index.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use nebula::streams::StreamServer;
use nebula::{
    Address, Epoch, ExtentError, Frame, FrameRecord, Reader, StreamError, StreamId, Writer,
};
use rt::Handle;
use rt::sync::Semaphore;

use super::checkpoint::{self, Checkpoints, Found, Loaded};
use super::compact::Pace;
use super::order::Order;
use super::{DataUnit, Inner};
use crate::cache::Cache;
use crate::error::FileError;
use crate::format::{Entry, Head, entries_of};
use crate::ids::{PAGE, UnitId};
use crate::index::{Applied, Index};
use crate::locks::Locks;
use crate::options::Options;

/// Pages that an opening copies at most, about, to make room on a full disk, and with one step.
const GIVEN_BACK_MAX: u32 = 1024;
const GIVEN_BACK_AT_ONCE: u32 = 64;

/// The streams of a dataunit: what its row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitStreams {
    /// All that there is, in order.
    pub data: StreamId,
    /// Checkpoints of the index: may be lost.
    pub index: StreamId,
}

/// How an index was recovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Whether a checkpoint could be used.
    pub from_checkpoint: bool,
    /// Records read of the data stream.
    pub records: u64,
    /// Bytes of the data stream that were read.
    pub bytes: u64,
}

impl DataUnit {
    /// Makes the streams of a new dataunit. Open them then; their names belong in the dataunit's row first.
    ///
    /// # Errors
    /// The streams'.
    pub async fn create(streams: &StreamServer) -> Result<UnitStreams, FileError> {
        let (data, index) = (streams.create().await?, streams.create().await?);
        Ok(UnitStreams { data, index })
    }

    /// Opens a dataunit for whoever owns it in this epoch, which is higher than any before: whoever had it is refused from
    /// now on. Its index is the last checkpoint and what came after, or, where the index stream is gone, cut short,
    /// damaged or cannot be read, all of the data stream read again.
    ///
    /// # Errors
    /// [`StreamError::Fenced`], the streams'. [`StreamError::Damaged`] or [`FileError::Record`] if records that the
    /// index needs are bad: it is not known then which pages they have changed, so that none can be served.
    pub async fn open(
        core: &Handle,
        streams: &StreamServer,
        unit: UnitId,
        of: UnitStreams,
        epoch: Epoch,
        options: Options,
    ) -> Result<Self, FileError> {
        let writer = open_data(streams, of, epoch).await?;
        let (index_writer, found) = match open_index(streams, of.index, epoch).await {
            // First something has to be given back.
            Err(FileError::Full) => (None, Found::Unreadable),
            opened => {
                let (writer, found) = opened?;
                (Some(writer), found)
            }
        };
        let reader = writer.reader();
        let horizon = writer.end();
        let mut from = found.needed_from();
        let mut number = found.number();
        let (index, recovery) = recover(&reader, found).await?;
        check_extents(streams, of.data, &index).await?;
        if number.is_some() && !recovery.from_checkpoint {
            // It is too old, and nobody will use it any more.
            (number, from) = (None, None);
        }
        let number = number.unwrap_or(index.checkpoint);
        let checkpoints = Checkpoints::new(epoch, number, from);
        let inner = Inner {
            core: core.clone(),
            unit,
            cache: Cache::new(options.cache_bytes),
            options,
            streams: streams.clone(),
            data: of.data,
            serial: Cell::new(index.reserved),
            index: RefCell::new(index),
            writer,
            reader,
            locks: Locks::default(),
            order: Order::new(horizon),
            reserving: Semaphore::new(1),
            verifier: Cell::new(epoch.0 << 32),
            is_dirty: Cell::new(false),
            taken: Cell::new(0),
            moving: Semaphore::new(1),
            compaction: RefCell::new(None),
            carried: Cell::new(0),
            written: Cell::new(0),
            pass: Cell::new(None),
            damaged: RefCell::default(),
            checkpoints,
            recovery,
        };
        let inner = Rc::new(inner);
        inner.give_back().await;
        let index_writer = match index_writer {
            Some(writer) => writer,
            None => begin_index(streams, epoch).await?,
        };
        inner.checkpoints.write_to(index_writer);
        Ok(Self { inner })
    }

    /// Writes what was asked for and ends the dataunit's writers, so that the next opening has nothing to seal. Nothing
    /// else may be under way.
    ///
    /// # Errors
    /// The streams': opening the dataunit again does what was left.
    pub async fn close(self) -> Result<(), FileError> {
        self.inner.flush().await?;
        self.inner.writer.clone().close().await?;
        self.inner.checkpoints.close().await?;
        Ok(())
    }
}

impl Inner {
    /// On a full disk: gives back what little there is in extents that openings before this one have taken, so that a
    /// process that dies again and again before compaction has its turn does not use the reserve up.
    async fn give_back(self: &Rc<Self>) {
        let mut copied = 0;
        while self.is_tight() && copied < GIVEN_BACK_MAX {
            match self.step(GIVEN_BACK_AT_ONCE, Pace::AtRest).await {
                Ok(done) if done.is_idle => return,
                Ok(done) => copied += done.pages,
                Err(error) => {
                    tracing::warn!(%error, "making room on a full disk");
                    return;
                }
            }
        }
    }
}

/// Takes the data stream over. Both streams get an extent: if there is no room for that, the index stream goes, which
/// can be made anew.
async fn open_data(
    streams: &StreamServer,
    of: UnitStreams,
    epoch: Epoch,
) -> Result<Writer, FileError> {
    let disks = streams.disks().iter();
    let free: u32 = disks.map(|disk| disk.free_segments()).sum();
    if free < 2 {
        tracing::warn!(free, "the disk is full: the index stream is made anew");
        match streams.delete(of.index).await {
            Ok(()) | Err(StreamError::NoStream { .. }) => {}
            // Some of its segments are free perhaps.
            Err(error @ StreamError::Extent(_)) => {
                tracing::warn!(stream = %of.index, %error, "deleting the index stream");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(streams.open_for_writing(of.data, epoch).await?)
}

/// Takes the index stream over and looks for its last checkpoint; makes another stream if it is gone, or cannot be
/// used.
async fn open_index(
    streams: &StreamServer,
    stream: StreamId,
    epoch: Epoch,
) -> Result<(Writer, Found), FileError> {
    let mut opened = streams.open_for_writing(stream, epoch).await;
    if let Err(StreamError::Extent(ExtentError::Device(error))) = &opened {
        // An error that passes costs no checkpoints.
        tracing::warn!(%stream, %error, "opening the index stream once more");
        opened = streams.open_for_writing(stream, epoch).await;
    }
    match opened {
        Ok(writer) => Ok((writer, checkpoint::load(streams, stream).await)),
        Err(error) if checkpoint::is_gone(&error) => {
            tracing::warn!(%stream, "the index stream is gone: making another one");
            Ok((begin_index(streams, epoch).await?, Found::Nothing))
        }
        Err(error) if checkpoint::is_lost(&error) => {
            tracing::warn!(%stream, %error, "the index stream cannot be used: making another one");
            let writer = replace_index(streams, stream, epoch, &error).await?;
            Ok((writer, Found::Unreadable))
        }
        Err(error) => Err(error.into()),
    }
}

/// Another index stream, and its writer.
async fn begin_index(streams: &StreamServer, epoch: Epoch) -> Result<Writer, StreamError> {
    let stream = streams.create().await?;
    let opened = streams.open_for_writing(stream, epoch).await;
    if opened.is_err() {
        delete(streams, stream).await;
    }
    opened
}

/// Another index stream in the place of one that cannot be used. The old one goes when the new one is there: what fails
/// may be all of the disk, for a while. Where there is no room for both it goes first.
async fn replace_index(
    streams: &StreamServer,
    old: StreamId,
    epoch: Epoch,
    error: &StreamError,
) -> Result<Writer, StreamError> {
    if !matches!(error, StreamError::Full { .. }) {
        match begin_index(streams, epoch).await {
            Err(StreamError::Full { .. }) => {}
            opened => {
                let writer = opened?;
                delete(streams, old).await;
                return Ok(writer);
            }
        }
    }
    delete(streams, old).await;
    begin_index(streams, epoch).await
}

/// Deletes an index stream that nobody needs. One that stays is deleted by whoever finds that no row names it.
async fn delete(streams: &StreamServer, stream: StreamId) {
    if let Err(error) = streams.delete(stream).await {
        tracing::warn!(%stream, %error, "deleting an index stream");
    }
}

/// The index, from a checkpoint and what came after if that can be; otherwise from the data alone.
async fn recover(reader: &Reader, found: Found) -> Result<(Index, Recovery), FileError> {
    if let Found::Last(Loaded {
        index,
        number,
        from,
    }) = found
    {
        let mut rebuild = Rebuild::new(reader, index, from);
        rebuild.run().await?;
        // Compaction has dropped records that a later checkpoint had: this one lacks them.
        if rebuild.index.checkpoint <= number {
            let mut recovery = rebuild.recovery;
            recovery.from_checkpoint = true;
            return Ok((rebuild.index, recovery));
        }
        tracing::warn!(
            number,
            needed = rebuild.index.checkpoint,
            "a checkpoint is too old"
        );
    }
    let mut rebuild = Rebuild::new(reader, Index::default(), 0);
    rebuild.run().await?;
    Ok((rebuild.index, rebuild.recovery))
}

/// Whether all pages are in extents that the stream has.
async fn check_extents(
    streams: &StreamServer,
    stream: StreamId,
    index: &Index,
) -> Result<(), FileError> {
    let there: Vec<u32> = streams
        .extents(stream)
        .await?
        .iter()
        .map(|info| info.number)
        .collect();
    match index
        .extents()
        .find(|extent| there.binary_search(extent).is_err())
    {
        Some(extent) => Err(FileError::Lost { stream, extent }),
        None => Ok(()),
    }
}

/// An index that is made of records.
pub(super) struct Rebuild {
    pub(super) index: Index,
    pub(super) recovery: Recovery,
    /// Pages of files that are damaged.
    pub(super) damaged: Vec<Address>,
    stream: StreamId,
    replay: nebula::Replay,
}

impl Rebuild {
    pub(super) fn new(reader: &Reader, index: Index, from: u32) -> Self {
        let from = Address {
            extent: from,
            page: 0,
        };
        Self {
            index,
            recovery: Recovery::default(),
            damaged: Vec::new(),
            stream: reader.stream(),
            replay: reader.replay_heads(from),
        }
    }

    /// Reads all records there are now. A page that is damaged is named to whoever reads it: what is needed here is
    /// where it is.
    pub(super) async fn run(&mut self) -> Result<(), FileError> {
        self.run_telling(&mut |_| ()).await
    }

    /// The same; `tell` hears the bytes of each frame. After damage the next call goes on behind it.
    pub(super) async fn run_telling(&mut self, tell: &mut dyn FnMut(u64)) -> Result<(), FileError> {
        while let Some(frame) = self.replay.next().await? {
            let bytes = u64::from(frame.end().page - frame.at().page) * PAGE as u64;
            self.recovery.bytes += bytes;
            tell(bytes);
            for record in frame.records() {
                self.recovery.records += 1;
                let parsed = Parsed::of_damaged(self.stream, &frame, &record)?;
                if !frame.is_whole() {
                    self.damaged.extend(record.damaged());
                }
                self.index.apply(&parsed.applied());
            }
        }
        Ok(())
    }
}

/// A record that was read.
pub(super) struct Parsed {
    pub(super) head: Head,
    pub(super) at: Address,
    pub(super) sums: Vec<u32>,
    pub(super) entries: Vec<Entry>,
}

impl Parsed {
    /// The same of a record whose pages may be damaged.
    ///
    /// # Errors
    /// [`StreamError::Damaged`] if what the record says is in them.
    pub(super) fn of_damaged(
        stream: StreamId,
        frame: &Frame<'_>,
        record: &FrameRecord<'_>,
    ) -> Result<Self, FileError> {
        if frame.is_whole() || record.is_whole() {
            return Self::of(stream, record);
        }
        match Self::of(stream, record) {
            Ok(parsed) if !parsed.head.reads_payload() => {
                tracing::error!(%stream, at = %record.at, "pages of a record are damaged");
                Ok(parsed)
            }
            _ => Err(FileError::Stream(StreamError::Damaged {
                stream,
                from: frame.at(),
                to: frame.end(),
                source: nebula::FormatError::Checksum {
                    what: "a page of a frame",
                },
            })),
        }
    }

    pub(super) fn of(stream: StreamId, record: &FrameRecord<'_>) -> Result<Self, FileError> {
        let at = record.at;
        let bad = |source| FileError::Record { stream, at, source };
        let head = Head::parse(record.head, record.pages() as u16, record.payload);
        let head = head.map_err(bad)?;
        let entries = match head {
            Head::Maps { len } => entries_of(&record.payload[..len as usize]).map_err(bad)?,
            _ => Vec::new(),
        };
        Ok(Self {
            head,
            at,
            sums: record.sums().collect(),
            entries,
        })
    }

    pub(super) fn applied(&self) -> Applied<'_> {
        Applied {
            head: &self.head,
            at: self.at,
            sums: &self.sums,
            entries: &self.entries,
        }
    }
}
