//! Checkpoints: the index, written to its own stream.
//!
//! A checkpoint is not of one moment: each block is written as it is when its turn comes, while
//! writers go on. It says from which extent on records may not be in it, or not all; these are read again
//! over it, which comes to the same as having read them once (see [`crate::index`]).

use std::cell::{Cell, OnceCell};

use block::Durable;
use nebula::streams::StreamServer;
use nebula::{Address, Epoch, ExtentError, Reader, StreamError, StreamId, Writer};

use super::{DataUnit, Inner};
use crate::error::FileError;
use crate::format::{CheckpointPart, Entry, Head, Put, Take, entries_of};
use crate::ids::{Fid, Key, PAGE, Volume};
use crate::index::{Applied, End, Index};

/// What becomes of the index stream.
pub(super) struct Checkpoints {
    /// There once the dataunit is open.
    writer: OnceCell<Writer>,
    /// The number of the last one that can be used; of none, that of which the data says that older ones cannot.
    pub(super) number: Cell<u64>,
    /// The number of the last one that was begun: it may be found, though its end was told to have failed.
    begun: Cell<u64>,
    /// Numbers of this owner's are greater than this, and all others' are not: also than those of checkpoints that
    /// could not be read.
    others_to: u64,
    /// From where on the last one that may be used needs the records; the same of the one under way.
    from: Cell<Option<u32>>,
    begun_from: Cell<Option<u32>>,
    /// Extents of the index stream from this one on have nothing of the last complete one.
    kept_to: Cell<u32>,
    /// Where the data ended when the last one was begun, of this owner's.
    data_end: Cell<Option<Address>>,
}

impl Checkpoints {
    pub(super) fn new(epoch: Epoch, number: u64, from: Option<u32>) -> Self {
        Self {
            kept_to: Cell::new(0),
            writer: OnceCell::new(),
            number: Cell::new(number),
            begun: Cell::new(number),
            others_to: epoch.0 << 32,
            from: Cell::new(from),
            begun_from: Cell::new(None),
            data_end: Cell::new(None),
        }
    }

    /// Checkpoints go there.
    pub(super) fn write_to(&self, writer: Writer) {
        // An owner begins with an extent of its own.
        self.kept_to.set(writer.end().extent);
        self.writer.get_or_init(|| writer);
    }

    fn writer(&self) -> &Writer {
        self.writer.get().expect("the dataunit is open")
    }

    pub(super) fn stream(&self) -> StreamId {
        self.writer().stream()
    }

    /// Whether no checkpoint that may be used lacks a record of this extent.
    pub(super) fn have(&self, extent: u32) -> bool {
        let mut needed = [&self.from, &self.begun_from]
            .into_iter()
            .filter_map(Cell::get);
        needed.all(|from| extent < from)
    }
}

/// Where a checkpoint was written.
struct Written {
    /// Its first part.
    first: Address,
    /// Its last part.
    last: Address,
    /// Bytes of all.
    bytes: u64,
}

/// What a checkpoint is made of, until its last part.
enum Next {
    Blocks(Key),
    Ends(Vec<([u8; 12], End)>, Vec<(Volume, u32)>),
    Done,
}

impl DataUnit {
    /// Writes the index to its stream, so that recovery reads only what comes after. Writers go on meanwhile.
    /// Returns the bytes written: none if nothing was changed since the last one.
    ///
    /// # Errors
    /// [`FileError::Full`] if it would need the reserve, [`FileError::InDoubt`], the stream's. The checkpoint before stays
    /// in use.
    pub async fn checkpoint(&self) -> Result<u64, FileError> {
        self.inner.checkpoint().await
    }
}

impl Inner {
    async fn checkpoint(&self) -> Result<u64, FileError> {
        let _one = self.moving.acquire().await;
        // A record that is found later must not be missed because the power went before it was durable.
        self.flush().await?;
        let data_end = self.writer.end();
        if self.checkpoints.data_end.get() == Some(data_end) {
            return Ok(0);
        }
        self.check_doubts_behind(None).await?;
        self.check_room_for_checkpoint()?;
        let from = self.order.horizon().extent;
        self.checkpoints.begun_from.set(Some(from));
        let checkpoints = &self.checkpoints;
        let number = checkpoints.begun.get().max(checkpoints.others_to) + 1;
        checkpoints.begun.set(number);
        let written = self.write_checkpoint(number, from).await;
        self.checkpoints.begun_from.set(None);
        let Written { first, last, bytes } = match written {
            Ok(written) => written,
            Err(error) => {
                // What was written of it is of no use to anybody.
                let kept_to = self.checkpoints.kept_to.get();
                self.release_extents(|extent| extent >= kept_to).await;
                return Err(error);
            }
        };
        self.checkpoints.kept_to.set(last.extent + 1);
        self.checkpoints.number.set(number);
        self.checkpoints.from.set(Some(from));
        self.checkpoints.data_end.set(Some(data_end));
        self.release_extents(|extent| extent < first.extent).await;
        Ok(bytes)
    }

    /// A checkpoint does without the reserve, which compaction may need: the one before goes only behind it.
    fn check_room_for_checkpoint(&self) -> Result<(), FileError> {
        let bytes = self.index.borrow().memory_bytes() as u64;
        // It may begin at the end of one, and the next one is handed out ahead.
        let segments = bytes / PAGE as u64 / self.segment_pages() + 2;
        if self.free_segments() < u64::from(self.options.reserve_segments) + segments {
            return Err(FileError::Full);
        }
        Ok(())
    }

    async fn write_checkpoint(&self, number: u64, from: u32) -> Result<Written, FileError> {
        let writer = self.checkpoints.writer();
        let room = writer.record_pages_max() as usize * PAGE;
        let mut next = Next::Blocks(Key {
            fid: Fid(0),
            label: 0,
        });
        let (mut part, mut first, mut bytes) = (0, None, 0);
        let doubts = [self.writer.doubts(), writer.doubts()];
        loop {
            let mut head = CheckpointPart {
                len: 0,
                number,
                from: Address {
                    extent: from,
                    page: 0,
                },
                reserved: self.index.borrow().reserved,
                part,
                ends: 0,
                snapshots: 0,
                is_last: false,
            };
            let payload = self.fill(&mut head, &mut next, room);
            let pages = payload.len().div_ceil(PAGE);
            let mut record = writer.record(&Head::Checkpoint(head).emit(), pages as u32);
            let to = record.payload_mut();
            to[..payload.len()].copy_from_slice(&payload);
            to[payload.len()..].fill(0);
            if head.is_last {
                // Unstable writes that have ended meanwhile are in it. It counts from here on, and must not name what
                // the power takes.
                self.flush().await?;
                if self.writer.doubts() != doubts[0] {
                    self.check_doubts_behind(None).await?;
                    return Err(FileError::InDoubt { extent: from });
                }
            }
            // One part after the other: whoever writes data comes in between.
            let appended = writer.append(record, Durable::No).await?;
            let first = *first.get_or_insert(appended.at);
            bytes += (pages * PAGE) as u64;
            if head.is_last {
                writer.flush().await?;
                if writer.doubts() != doubts[1] {
                    // An extent was full of which nobody waited to become durable.
                    let extent = first.extent;
                    return Err(FileError::InDoubt { extent });
                }
                let last = appended.at;
                return Ok(Written { first, last, bytes });
            }
            part += 1;
        }
    }

    /// The payload of one part.
    fn fill(&self, head: &mut CheckpointPart, next: &mut Next, room: usize) -> Vec<u8> {
        let mut payload = Vec::new();
        if let Next::Blocks(from) = *next {
            match self.fill_blocks(from, room, &mut payload) {
                Some(key) => *next = Next::Blocks(key),
                None => {
                    let index = self.index.borrow();
                    let ends = index.ends().map(|(handle, end)| (*handle, *end)).collect();
                    *next = Next::Ends(ends, index.snapshots().collect());
                }
            }
        }
        head.len = payload.len() as u32;
        if let Next::Ends(ends, snapshots) = next {
            while payload.len() + 24 <= room
                && let Some((handle, end)) = ends.pop()
            {
                payload.put(&handle);
                payload.u32(end.truncate_epoch);
                payload.u64(end.end);
                head.ends += 1;
            }
            while payload.len() + 8 <= room
                && let Some((volume, epoch)) = snapshots.pop()
            {
                payload.u32(volume.0);
                payload.u32(epoch);
                head.snapshots += 1;
            }
            if ends.is_empty() && snapshots.is_empty() {
                *next = Next::Done;
                head.is_last = true;
            }
        }
        payload
    }

    /// As many blocks as there is room for. Returns the next one.
    fn fill_blocks(&self, from: Key, room: usize, payload: &mut Vec<u8>) -> Option<Key> {
        let index = self.index.borrow();
        for (key, block) in index.blocks_from(from) {
            let len = payload.len();
            Entry::emit(&block.owner(*key), block.root, &block.map, payload);
            if payload.len() > room {
                payload.truncate(len);
                return Some(*key);
            }
        }
        None
    }

    /// Gives back sealed extents of the index stream that nothing is needed of.
    async fn release_extents(&self, is_over: impl Fn(u32) -> bool) {
        let stream = self.checkpoints.stream();
        let extents = match self.streams.extents(stream).await {
            Ok(extents) => extents,
            Err(error) => {
                tracing::warn!(%stream, %error, "looking for old checkpoints");
                return;
            }
        };
        let sealed = extents.iter().filter(|extent| extent.sealed.is_some());
        for extent in sealed.filter(|extent| is_over(extent.number)) {
            // What is not given back now is the next time.
            if let Err(error) = self.streams.release(stream, extent.number).await {
                tracing::warn!(%stream, extent = extent.number, %error, "releasing old checkpoints");
            }
        }
    }
}

/// A checkpoint that was read.
pub(super) struct Loaded {
    pub(super) index: Index,
    pub(super) number: u64,
    /// From which extent on records are to be read again.
    pub(super) from: u32,
}

/// What an index stream has.
pub(super) enum Found {
    /// A complete checkpoint.
    Last(Loaded),
    /// None.
    Nothing,
    /// Nobody knows: there may be one that can be read again later.
    Unreadable,
}

impl Found {
    /// From where on records are needed by the checkpoint that may be used at the next opening. Of one that nobody has
    /// read that is not known: compaction must not drop what any might need.
    pub(super) fn needed_from(&self) -> Option<u32> {
        match self {
            Self::Last(loaded) => Some(loaded.from),
            Self::Nothing => None,
            Self::Unreadable => Some(0),
        }
    }

    /// Its number.
    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Self::Last(loaded) => Some(loaded.number),
            Self::Nothing | Self::Unreadable => None,
        }
    }
}

/// Looks for the last complete checkpoint of a stream.
pub(super) async fn load(streams: &StreamServer, stream: StreamId) -> Found {
    match try_load(streams, stream).await {
        Ok(Some(loaded)) => Found::Last(loaded),
        Ok(None) => Found::Nothing,
        Err(error) => {
            tracing::warn!(%stream, %error, "checkpoints cannot be used: reading all of the data");
            Found::Unreadable
        }
    }
}

async fn try_load(streams: &StreamServer, stream: StreamId) -> Result<Option<Loaded>, FileError> {
    read_last(&streams.reader(stream).await?).await
}

/// Reads the last complete checkpoint of a stream.
///
/// # Errors
/// Something of it is damaged.
pub(super) async fn read_last(reader: &Reader) -> Result<Option<Loaded>, FileError> {
    let stream = reader.stream();
    let mut replay = reader.replay(Address::default());
    let (mut begun, mut complete): (Option<(Loaded, u32)>, Option<Loaded>) = (None, None);
    while let Some(frame) = replay.next().await? {
        for record in frame.records() {
            let at = record.at;
            let bad = |source| FileError::Record { stream, at, source };
            let head = Head::parse(record.head, record.pages() as u16, record.payload);
            let Head::Checkpoint(part) = head.map_err(bad)? else {
                continue;
            };
            if part.part == 0 {
                let loaded = Loaded {
                    index: Index::default(),
                    number: part.number,
                    from: part.from.extent,
                };
                begun = Some((loaded, 0));
            }
            // A part without those before it is of a checkpoint that has gone in part.
            let fits = |(loaded, parts): &mut (Loaded, u32)| {
                loaded.number == part.number && *parts == part.part
            };
            let Some(mut running) = begun.take_if(|running| fits(running)) else {
                continue;
            };
            running
                .0
                .index
                .take_part(&part, record.payload)
                .map_err(bad)?;
            running.1 += 1;
            if part.is_last {
                complete = Some(running.0);
            } else {
                begun = Some(running);
            }
        }
    }
    Ok(complete)
}

impl Index {
    fn take_part(
        &mut self,
        part: &CheckpointPart,
        payload: &[u8],
    ) -> Result<(), crate::FormatError> {
        let short = crate::FormatError::Short {
            what: "a checkpoint",
        };
        let mut take = Take(payload);
        let entries = entries_of(take.bytes(part.len as usize).ok_or(short)?)?;
        let head = Head::Maps { len: part.len };
        self.apply(&Applied {
            head: &head,
            at: Address::default(),
            sums: &[],
            entries: &entries,
        });
        self.reserved = self.reserved.max(part.reserved);
        for _ in 0..part.ends {
            let handle = take.handle().ok_or(short)?;
            let (truncate_epoch, end) = take.u32().zip(take.u64()).ok_or(short)?;
            self.tell_end(
                handle,
                End {
                    truncate_epoch,
                    end,
                },
            );
        }
        for _ in 0..part.snapshots {
            let (volume, epoch) = take.u32().zip(take.u32()).ok_or(short)?;
            let head = Head::Snapshot {
                volume: Volume(volume),
                epoch,
                is_taken: true,
            };
            self.apply(&Applied {
                head: &head,
                at: Address::default(),
                sums: &[],
                entries: &[],
            });
        }
        Ok(())
    }
}

/// Whether a stream is there.
pub(super) fn is_gone(error: &StreamError) -> bool {
    matches!(error, StreamError::NoStream { .. })
}

/// Whether the index stream is what keeps a dataunit from being opened for this reason, which may last: it is done
/// without.
pub(super) fn is_lost(error: &StreamError) -> bool {
    matches!(
        error,
        StreamError::NoStream { .. }
            | StreamError::Row { .. }
            | StreamError::Full { .. }
            | StreamError::Extent(ExtentError::NoExtent { .. } | ExtentError::Device(_))
    )
}

impl Checkpoints {
    /// Ends the index stream's writer.
    pub(super) async fn close(&self) -> Result<(), StreamError> {
        self.writer().clone().close().await
    }
}
