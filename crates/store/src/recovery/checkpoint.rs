//! The index as it was when the store was closed, in segments of its own.
//!
//! The segments hold batches of records, as all others do. The keys are numbers: 0, 1, 2 and so on
//! for pieces of one stream, and `END` for the last record, which says how to take it apart:
//!
//! ```text
//!  END:                                             the stream:
//!  0        8            16       20      24     32 +--------------+---------------+-------------------+
//!  +--------+------------+--------+-------+-------+ | shards, each | their lengths | segments of the   |
//!  | pieces | newest     | shards | seg-  | doubt | | as the index | 4 bytes each  | log, 48 bytes each|
//!  |        | segment    |        | ments |       | | dumps it     |               |                   |
//!  +--------+------------+--------+-------+-------+ +--------------+---------------+-------------------+
//!
//!  a segment:  sequence 8 | live 8 | tombstones 8 | fence 8 | touched 8 | number 4 | damaged 4
//! ```
//!
//! `doubt` is the version before which values may be older ones, because newer ones are lost.
//! It counts only if no segment of the log is newer, and only once: opening the store destroys it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use block::{Disk, Durable};

use crate::batch::Member;
use crate::error::StoreError;
use crate::format::record::{Meta, Record};
use crate::format::segment::{Kind, SegmentHeader};
use crate::format::{Emitter, Reader, Version};
use crate::index::{self, Index};
use crate::maintain::{close_segments, write_header};
use crate::scan::{Passed, Scan};
use crate::segments::KeptSegment;
use crate::shared::Shared;
use crate::stream::Room;
use crate::writer::{Unended, compose};

/// The key of the last record.
const END: u64 = u64::MAX;
/// The longest piece.
const PIECE: usize = 256 << 10;
const HEAD: usize = 32;
const ENTRY: usize = 48;

/// Writes the index; nobody changes it meanwhile. Says whether there was room.
pub(crate) async fn write(shared: &Shared, disk: &Disk) -> Result<bool, StoreError> {
    let layout = *shared.layout();
    let kept = shared.segments.in_use();
    let newest = kept.iter().map(|kept| kept.seq).max().unwrap_or(0);
    let piece_max = PIECE.min(layout.record_max() / 2);
    let mut out = Output {
        shared,
        disk,
        room: None,
    };
    let mut pieces = 0;
    let mut lengths = Vec::new();
    let mut bytes = Vec::new();
    for shard in 0..shared.index.shards() {
        bytes.clear();
        shared.index.dump(shard, &mut bytes);
        lengths.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        for piece in bytes.chunks(piece_max) {
            if !out.write(pieces, piece).await? {
                return Ok(false);
            }
            pieces += 1;
        }
    }
    let mut table = lengths;
    let lengths_len = table.len();
    table.resize(lengths_len + kept.len() * ENTRY, 0);
    let mut emitter = Emitter::new(&mut table[lengths_len..]);
    for kept in &kept {
        emitter
            .u64(kept.seq)
            .u64(kept.live)
            .u64(kept.tombstones)
            .u64(kept.fence)
            .u64(kept.touched)
            .u32(kept.segment)
            .u32(kept.is_damaged.into());
    }
    for piece in table.chunks(piece_max) {
        if !out.write(pieces, piece).await? {
            return Ok(false);
        }
        pieces += 1;
    }
    disk.flush().await?;
    let mut last = [0; HEAD];
    Emitter::new(&mut last)
        .u64(pieces)
        .u64(newest)
        .u32(shared.index.shards())
        .u32(kept.len() as u32)
        .u64(shared.doubt.load(Ordering::Relaxed));
    if !out.write(END, &last).await? {
        return Ok(false);
    }
    out.end();
    close_segments(shared, disk, shared.flush(disk)).await?;
    Ok(true)
}

struct Output<'s> {
    shared: &'s Shared,
    disk: &'s Disk,
    room: Option<Room>,
}

impl Output<'_> {
    /// Writes a piece, in a new segment if need be; says whether there was one.
    async fn write(&mut self, key: u64, value: &[u8]) -> Result<bool, StoreError> {
        let (shared, disk) = (self.shared, self.disk);
        let layout = *shared.layout();
        let key = key.to_le_bytes();
        let record = Record {
            meta: Meta::default(),
            key: &key,
            value,
        };
        let start = layout.batch_start();
        let len = record.encoded_len();
        let end = (start + len).next_multiple_of(layout.grain());
        let blocks = layout.blocks_of(end);
        if self.room.is_none_or(|room| room.blocks < blocks) {
            self.end();
            let Some((segment, seq)) = shared.segments.open(Kind::Index, 0) else {
                return Ok(false);
            };
            write_header(shared, disk, segment, seq, Kind::Index).await?;
            self.room = Some(Room::whole(&layout, segment, seq, Kind::Index));
        }
        let room = self.room.as_mut().expect("made above");
        let mut buf = disk.buffer(blocks as usize * layout.block());
        record.emit(&mut buf[start..]);
        buf[start + len..].fill(0);
        let place = Room { blocks, ..*room };
        let member = Member {
            at: start,
            len,
            of: None,
        };
        let mut unended = Unended::new(shared, &place);
        let crc = compose(shared, place, &mut buf[..end], &[member], 0);
        let at = shared.layout().block_at(room.segment, room.block);
        room.block += blocks;
        room.blocks -= blocks;
        unended.is_sent = true;
        let (result, _) = shared.writes.write(disk, buf, at, Durable::Yes).await;
        unended.is_sent = false;
        result?;
        unended.end(room.block, crc, 1);
        room.settled = room.block;
        Ok(true)
    }

    /// Ends the open segment.
    fn end(&mut self) {
        if let Some(room) = self.room.take() {
            self.shared.segments.seal(room.segment);
        }
    }
}

/// Takes up the index if there is one, and it is of the log as it is. Says whether.
pub(crate) async fn load(
    shared: &mut Shared,
    disk: &Disk,
    segments: &[SegmentHeader],
    log: &[SegmentHeader],
) -> Result<bool, StoreError> {
    let newest = log.iter().map(|header| header.seq).max().unwrap_or(0);
    let mut pieces: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    // One that is older than the log is of an earlier index, and could not be given up.
    for header in segments.iter().filter(|header| header.seq > newest) {
        let scan = Scan::of(shared, disk, header.segment, header.seq);
        let mut scan = scan.tolerant();
        while let Some(mut batch) = scan.next().await? {
            while let Some(Passed { record, .. }) = batch.next() {
                let key = Reader(record.key).u64().unwrap_or(END - 1);
                pieces.insert(key, record.value.to_vec());
            }
        }
    }
    let Some(checkpoint) = Checkpoint::gather(pieces) else {
        return Ok(false);
    };
    let is_of_log = checkpoint.newest == newest
        && checkpoint.kept.len() == log.len()
        && checkpoint.kept.iter().all(|kept| {
            let same =
                |header: &SegmentHeader| (header.segment, header.seq) == (kept.segment, kept.seq);
            log.iter().any(same)
        });
    if !is_of_log {
        return Ok(false);
    }
    let Some(index) = checkpoint.index() else {
        tracing::warn!(device = %shared.device.name(), "the stored index is damaged: reading the log");
        return Ok(false);
    };
    shared.index = index;
    for kept in &checkpoint.kept {
        shared.segments.restore(kept);
    }
    shared.doubt_before(Version(checkpoint.doubt));
    for shard in 0..shared.index.shards() {
        for region in 0..shared.index.regions_of(shard) {
            shared.index.places(shard, region, |_, place| {
                let (segment, _) = shared.layout().segment_of(place.grain());
                let weight = shared.weight(place);
                shared.fill.add(weight);
                shared.segments.restore_end(segment, weight);
            });
        }
    }
    Ok(true)
}

struct Checkpoint {
    newest: u64,
    doubt: u64,
    shards: Vec<Vec<u8>>,
    kept: Vec<KeptSegment>,
}

impl Checkpoint {
    /// Puts pieces together; `None` if one is missing or of the wrong length.
    fn gather(mut pieces: BTreeMap<u64, Vec<u8>>) -> Option<Self> {
        let last = pieces.remove(&END)?;
        let mut reader = Reader(&last);
        let (count, newest) = (reader.u64()?, reader.u64()?);
        let (shards, segments) = (reader.u32()? as usize, reader.u32()? as usize);
        let doubt = reader.u64()?;
        if pieces.len() as u64 != count || pieces.keys().last().is_some_and(|&key| key >= count) {
            return None;
        }
        let bytes: Vec<u8> = pieces.into_values().flatten().collect();
        let table_at = bytes.len().checked_sub(segments * ENTRY)?;
        let lengths_at = table_at.checked_sub(shards * 4)?;
        let mut reader = Reader(&bytes[lengths_at..]);
        let lengths: Vec<u32> = (0..shards).map(|_| reader.u32()).collect::<Option<_>>()?;
        let mut kept = Vec::new();
        for _ in 0..segments {
            kept.push(KeptSegment {
                seq: reader.u64()?,
                live: reader.u64()?,
                tombstones: reader.u64()?,
                fence: reader.u64()?,
                touched: reader.u64()?,
                segment: reader.u32()?,
                is_damaged: reader.u32()? != 0,
            });
        }
        let mut rest = &bytes[..lengths_at];
        let mut dumps = Vec::new();
        for len in lengths {
            let (dump, after) = rest.split_at_checked(len as usize)?;
            dumps.push(dump.to_vec());
            rest = after;
        }
        rest.is_empty().then_some(Self {
            newest,
            doubt,
            shards: dumps,
            kept,
        })
    }

    fn index(&self) -> Option<Index> {
        let index = Index::new(&index::shape(self.shards.first()?).ok()?).ok()?;
        for shard in &self.shards {
            index.load(shard).ok()?;
        }
        Some(index)
    }
}
