//! The index from the records of the log.
//!
//! Several threads, or one task, read segments and note of each record its key's hash, version and
//! place. Then the notes are sorted, and of each key the newest counts. When the notes take more
//! memory than they may, those of greater hashes are dropped, and found in a further pass.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use block::Disk;

use super::{OnProgress, Progress, Readers, Recovery};
use crate::counters::add;
use crate::error::StoreError;
use crate::format::segment::{Kind, SegmentHeader, SegmentState, Settled};
use crate::index::{Place, SizeCode};
use crate::maintain::{Which, erase, free_segment, put_header};
use crate::options::Options;
use crate::read::version;
use crate::scan::{Outcome, Passed, Scan};
use crate::shared::{FailedFlush, Shared};

/// What is noted of a record, in 32 bytes; of the same hash, the last in order is the newest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Note {
    hash: u128,
    /// The version, and in the lowest bit whether it is a tombstone: of a record and a tombstone of
    /// the same version the tombstone is the later one.
    rank: u64,
    /// Where it is, and in the highest bit whether it is whole: of a record and its copy either will do.
    place: u64,
}

/// Says in a note that the record is whole.
const WHOLE: u64 = 1 << 63;

/// How notes are divided by the upper bits of their hashes.
const PARTS: usize = 256;

fn part(hash: u128) -> usize {
    (hash >> 120) as usize
}

/// Entries that the index gets at once: enough for its cache misses to overlap.
const BATCH: usize = 256;

/// What the threads of a pass share.
struct Pass<'s> {
    shared: &'s Shared,
    segments: &'s [SegmentHeader],
    next: AtomicU32,
    /// The parts that this pass is about; the end may shrink.
    first: usize,
    end: AtomicU32,
    /// What is on the device is durable.
    is_flushed: bool,
    notes: AtomicU64,
    notes_max: u64,
    found: Mutex<Vec<Vec<Note>>>,
    counts: Mutex<Counts>,
    on_progress: Option<&'s OnProgress>,
}

#[derive(Default)]
struct Counts {
    records: u64,
    damaged: u64,
    torn: u64,
    bytes: u64,
}

/// Builds the index, counting live records and tombstones.
pub(super) async fn recover(
    shared: &Shared,
    disk: &Disk,
    segments: &[SegmentHeader],
    lost: &[u32],
    headers_damaged: u64,
    options: &Options,
    readers: Readers,
) -> Result<Recovery, StoreError> {
    let flushed = shared.flush(disk).await;
    let flushed = flushed.map_err(FailedFlush::into_error);
    if let Err(error) = &flushed {
        tracing::warn!(%error, device = %shared.device.name(), "recovering a store");
    }
    for &segment in lost {
        // What it held nobody knows.
        if shared.settings.forget_damaged {
            free_segment(shared, disk, segment).await?;
            shared.segments.free(segment);
        } else {
            let next = shared.segments.next_seq();
            shared.doubt_before(shared.layout().version(next, 0));
        }
    }
    let threads = match readers {
        Readers::Task => 1,
        Readers::Threads(threads) => threads,
    };
    let mut first = 0;
    let mut passes = 0;
    let (mut records, mut damaged, mut torn, mut bytes) = (0, headers_damaged, 0, 0);
    while first < PARTS && !segments.is_empty() {
        let pass = Pass {
            shared,
            segments,
            next: AtomicU32::new(0),
            first,
            end: AtomicU32::new(PARTS as u32),
            is_flushed: flushed.is_ok(),
            notes: AtomicU64::new(0),
            notes_max: (options.recovery_bytes_max / size_of::<Note>() as u64).max(1 << 16),
            found: Mutex::new(vec![Vec::new(); PARTS]),
            counts: Mutex::default(),
            on_progress: options.on_progress.as_ref(),
        };
        let is_first = passes == 0;
        match readers {
            Readers::Task => pass.read(disk, is_first).await?,
            Readers::Threads(_) => run(threads, || {
                let disk = Disk::open(&*shared.device, options.queue_depth)?;
                disk.block_on(pass.read(&disk, is_first))
            })?,
        }
        let end = pass.end.load(Ordering::Relaxed) as usize;
        let counts = pass
            .counts
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        bytes += counts.bytes;
        if is_first {
            records = counts.records;
            damaged += counts.damaged;
            torn = counts.torn;
        }
        let mut found = pass
            .found
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        found.truncate(end);
        let parts = Mutex::new(found);
        run(threads, || {
            loop {
                let part = parts.lock().unwrap_or_else(PoisonError::into_inner).pop();
                match part {
                    Some(part) => point(shared, part)?,
                    None => return Ok(()),
                }
            }
        })?;
        first = end;
        passes += 1;
    }
    add(&shared.counters.damaged, damaged);
    Ok(Recovery::Log {
        records,
        bytes,
        damaged,
        torn,
        passes,
    })
}

/// Runs the same on several threads; the first error is everyone's.
fn run(threads: usize, work: impl Fn() -> Result<(), StoreError> + Sync) -> Result<(), StoreError> {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(&work)).collect();
        let mut result = work();
        for other in others {
            let other = other
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(other);
        }
        result
    })
}

impl Pass<'_> {
    /// Reads segments until there are none left.
    async fn read(&self, disk: &Disk, is_first: bool) -> Result<(), StoreError> {
        let read_before = disk.counts().read_bytes;
        let mut found = vec![Vec::new(); PARTS];
        let mut counts = Counts::default();
        loop {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(header) = self.segments.get(next as usize) else {
                break;
            };
            self.read_segment(disk, header, is_first, &mut found, &mut counts)
                .await?;
            self.keep_within(&mut found);
            if let Some(on_progress) = self.on_progress {
                on_progress(Progress {
                    segments: next + 1,
                    segments_total: self.segments.len() as u32,
                    records: counts.records,
                });
            }
        }
        let mut all = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        for (all, mut found) in all.iter_mut().zip(found) {
            if all.is_empty() {
                *all = found;
            } else {
                all.append(&mut found);
            }
        }
        let mut sum = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        sum.records += counts.records;
        sum.damaged += counts.damaged;
        sum.torn += counts.torn;
        sum.bytes += disk.counts().read_bytes - read_before;
        Ok(())
    }

    async fn read_segment(
        &self,
        disk: &Disk,
        header: &SegmentHeader,
        is_first: bool,
        found: &mut [Vec<Note>],
        counts: &mut Counts,
    ) -> Result<(), StoreError> {
        let shared = self.shared;
        let layout = *shared.layout();
        let scan = Scan::of(shared, disk, header.segment, header.seq);
        let mut scan = scan.tolerant();
        let mut noted = 0;
        while let Some(mut batch) = scan.next().await? {
            let end = self.end.load(Ordering::Relaxed) as usize;
            while let Some(Passed { record, grain }) = batch.next() {
                counts.records += 1;
                let grains = record.encoded_len().div_ceil(layout.grain()) as u64;
                if let Some(fence) = record.meta.tombstone
                    && is_first
                {
                    shared.segments.add_tombstone(header.segment, grains, fence);
                }
                let hash = shared.hash(record.key).whole();
                if !(self.first..end).contains(&part(hash)) {
                    continue;
                }
                noted += 1;
                found[part(hash)].push(Note {
                    hash,
                    rank: version(&layout, record.meta, header.seq, grain).0 << 1
                        | u64::from(record.meta.tombstone.is_some()),
                    place: WHOLE
                        | Place::new(layout.place(header.segment, grain), SizeCode::of(grains))
                            .bits(),
                });
            }
        }
        let outcome = scan.finish();
        counts.damaged += outcome.damaged();
        counts.torn += outcome.torn();
        let forgets = shared.settings.forget_damaged;
        if is_first {
            self.close(disk, header, &outcome).await?;
        }
        for suspect in outcome.suspects.iter().filter(|_| !forgets) {
            // The index points at it, so that whoever asks for the key is told, and not given an
            // older version. So with a tombstone.
            let hash = shared.hash(&suspect.key).whole();
            let end = self.end.load(Ordering::Relaxed) as usize;
            if !(self.first..end).contains(&part(hash)) {
                continue;
            }
            let grains = suspect.len.div_ceil(layout.grain()) as u64;
            // One that was moved is older than its place, if that can be read.
            let place = layout.version(header.seq, suspect.grain);
            let version = version(&layout, suspect.meta, header.seq, suspect.grain).min(place);
            found[part(hash)].push(Note {
                hash,
                rank: version.0 << 1,
                place: Place::new(
                    layout.place(header.segment, suspect.grain),
                    SizeCode::of(grains),
                )
                .bits(),
            });
        }
        self.notes.fetch_add(noted, Ordering::Relaxed);
        Ok(())
    }

    /// Says in the header of a segment that was open what has become of it, so that what is lost later is
    /// noticed. What is lost already stays so, until somebody gives it up.
    async fn close(
        &self,
        disk: &Disk,
        header: &SegmentHeader,
        outcome: &Outcome,
    ) -> Result<(), StoreError> {
        let shared = self.shared;
        let layout = shared.layout();
        let segment = header.segment;
        let is_given_up = shared.settings.forget_damaged;
        if shared.segments.is_damaged(segment) {
            // Its headers are lost, and all that was written before them is doubted.
            return Ok(());
        }
        if outcome.damaged() > 0 && !is_given_up {
            if let Some(block) = outcome.doubt {
                let grain = block << (layout.block_shift - layout.grain_shift);
                shared.doubt_before(layout.version(header.seq, grain));
            }
            shared.segments.retire_damaged(segment);
            if header.state == SegmentState::Open {
                self.keep_settled(disk, header, outcome.settled).await;
            }
            return Ok(());
        }
        let (contents, _) = shared.segments.extent(segment);
        let is_closed = contents.is_some() && outcome.damaged() == 0;
        if is_closed || !self.is_flushed {
            return Ok(());
        }
        // What it says of other segments stays: these may not have been read.
        let closed = SegmentHeader {
            state: SegmentState::Closed,
            contents: outcome.found,
            ..*header
        };
        // Nothing whole is to be left of what does not count: it would be found by who looks for what is lost later.
        let closing = async {
            erase(shared, disk, segment, outcome.torn_gaps()).await?;
            put_header(shared, disk, &closed, Which::Copy).await
        };
        match closing.await {
            Ok(()) => {
                let segments = &shared.segments;
                segments.adopt_extent(segment, Some(outcome.found), 0);
            }
            Err(error) => {
                let device = shared.device.name();
                tracing::warn!(%device, segment, %error, "closing a segment");
            }
        }
        Ok(())
    }

    /// Says in a damaged segment's own header up to where it had been written: others say so too, but only
    /// until they are written anew. The header in the first block goes on saying of other segments what
    /// this one does not any more.
    async fn keep_settled(&self, disk: &Disk, header: &SegmentHeader, block: u32) {
        let shared = self.shared;
        let seq = header.seq;
        let mut own = *header;
        match header.kind {
            Kind::Moved => own.moved = Settled { seq, block },
            Kind::User | Kind::Index => own.user = Settled { seq, block },
        }
        shared.segments.adopt_extent(header.segment, None, block);
        if let Err(error) = put_header(shared, disk, &own, Which::Copy).await {
            let device = shared.device.name();
            tracing::warn!(%device, segment = header.segment, %error, "keeping what is damaged");
        }
    }

    /// Drops notes of this thread that are beyond the pass's end, which shrinks when there are too
    /// many.
    fn keep_within(&self, found: &mut [Vec<Note>]) {
        while self.notes.load(Ordering::Relaxed) > self.notes_max {
            let end = self.end.load(Ordering::Relaxed) as usize;
            if end == self.first + 1 {
                break;
            }
            let half = self.first + (end - self.first).div_ceil(2);
            let shrunk = self.end.compare_exchange(
                end as u32,
                half as u32,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if shrunk.is_ok() {
                // About half of the notes go, in each thread when it gets here.
                let notes = self.notes.load(Ordering::Relaxed);
                self.notes.fetch_sub(notes / 2, Ordering::Relaxed);
            }
        }
        let end = self.end.load(Ordering::Relaxed) as usize;
        for part in &mut found[end..] {
            *part = Vec::new();
        }
    }
}

/// Where the record stands that the last note is of: of it and its copies, as whole as each other, the
/// one that was written first. So the segment that copies were being moved to is empty, and can be given
/// up without room, whenever what they are copies of has not been. One in a damaged segment counts only
/// if there is no other: damage spreads.
fn original(shared: &Shared, notes: &[Note]) -> Place {
    let place = |note: &Note| Place::from_bits(note.place & !WHOLE);
    let last = notes.last().expect("a note");
    let is_copy = |note: &&Note| {
        let is_as_whole = (note.place ^ last.place) & WHOLE == 0;
        (note.hash, note.rank) == (last.hash, last.rank) && is_as_whole
    };
    let copies = notes.iter().rev().take_while(is_copy).map(place);
    let written = |place: &Place| {
        let (segment, _) = shared.layout().segment_of(place.grain());
        let segments = &shared.segments;
        (segments.is_damaged(segment), segments.seq(segment))
    };
    copies.min_by_key(written).unwrap_or(place(last))
}

/// Has the index point at the newest records.
fn point(shared: &Shared, mut notes: Vec<Note>) -> Result<(), StoreError> {
    notes.sort_unstable();
    let mut entries = Vec::with_capacity(BATCH);
    let insert = |entries: &mut Vec<(u64, Place)>| {
        let inserted = shared.index.insert_batch(entries);
        inserted.map_err(|_| StoreError::IndexFull)?;
        for &(_, place) in entries.iter() {
            shared.add_live(place);
        }
        entries.clear();
        Ok(())
    };
    for (i, note) in notes.iter().enumerate() {
        let is_newest = notes.get(i + 1).is_none_or(|next| next.hash != note.hash);
        if is_newest && note.rank & 1 == 0 {
            entries.push((note.hash as u64, original(shared, &notes[..=i])));
            if entries.len() == BATCH {
                insert(&mut entries)?;
            }
        }
    }
    insert(&mut entries)
}
