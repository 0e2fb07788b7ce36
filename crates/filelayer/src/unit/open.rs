//! Creating a dataunit, opening it, and recovering its index.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use nebula::streams::StreamServer;
use nebula::{Address, Epoch, Frame, FrameRecord, Reader, StreamError, StreamId, Writer};
use rt::Handle;
use rt::sync::Semaphore;

use super::checkpoint::{self, Checkpoints, Loaded};
use super::order::Order;
use super::{DataUnit, Inner};
use crate::cache::Cache;
use crate::error::FileError;
use crate::format::{Entry, Head, entries_of};
use crate::ids::{PAGE, UnitId};
use crate::index::{Applied, Index};
use crate::locks::Locks;
use crate::options::Options;

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
    /// now on. Its index is the last checkpoint and what came after, or, where the index stream is gone, cut short or
    /// damaged, all of the data stream read again.
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
        let (index_writer, loaded) = open_index(streams, of.index, epoch).await?;
        let reader = writer.reader();
        let horizon = writer.end();
        let last = loaded.as_ref().map(|loaded| (loaded.number, loaded.from));
        let (index, recovery) = recover(&reader, loaded).await?;
        check_extents(streams, of.data, &index).await?;
        let last = last.filter(|_| recovery.from_checkpoint);
        // Numbers of checkpoints that could not be used are not used again.
        let number = last.map_or(index.checkpoint, |(number, _)| number);
        let checkpoints = Checkpoints::new(index_writer, last);
        checkpoints.number.set(number);
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
            damaged: RefCell::default(),
            checkpoints,
            recovery,
        };
        Ok(Self {
            inner: Rc::new(inner),
        })
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
            Err(error) => return Err(error.into()),
        }
    }
    Ok(streams.open_for_writing(of.data, epoch).await?)
}

/// Takes the index stream over and reads its last checkpoint; makes another stream if it is gone.
async fn open_index(
    streams: &StreamServer,
    stream: StreamId,
    epoch: Epoch,
) -> Result<(Writer, Option<Loaded>), FileError> {
    match streams.open_for_writing(stream, epoch).await {
        Ok(writer) => {
            let loaded = checkpoint::load(streams, stream).await;
            Ok((writer, loaded))
        }
        // Whether there are checkpoints is not known after an error that may pass.
        Err(error) if !checkpoint::is_lost(&error) => Err(error.into()),
        Err(error) => {
            tracing::warn!(%stream, %error, "the index stream cannot be used: making another one");
            if !checkpoint::is_gone(&error)
                && let Err(error) = streams.delete(stream).await
            {
                tracing::warn!(%stream, %error, "deleting an index stream");
            }
            let stream = streams.create().await?;
            let writer = streams.open_for_writing(stream, epoch).await?;
            Ok((writer, None))
        }
    }
}

/// The index, from a checkpoint and what came after if that can be; otherwise from the data alone.
async fn recover(reader: &Reader, loaded: Option<Loaded>) -> Result<(Index, Recovery), FileError> {
    if let Some(Loaded {
        index,
        number,
        from,
    }) = loaded
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
    fn of_damaged(
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
