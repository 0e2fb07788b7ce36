//! What goes on beside the users: preparing segments, moving live records out of old ones, and in a
//! cache giving old ones up.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use block::{Disk, Durable};
use rt::cross::Notified;

use crate::counters::add;
use crate::effort::{Effort, Postponed};
use crate::error::StoreError;
use crate::fill::Measure;
use crate::format::layout::Layout;
use crate::format::record::{Meta, Record};
use crate::format::segment::{Contents, Kind, SEGMENT_HEADER_LEN, SegmentHeader, SegmentState};
use crate::hash::KeyHash;
use crate::index::{Candidates, Place, SizeCode};
use crate::mover::Mover;
use crate::read::version;
use crate::scan::{Passed, Scan};
use crate::segments::{Candidate, Closable};
use crate::shared::{FailedFlush, Shared};
use crate::stream::Room;

/// Segments that users must leave free: moving out of one segment needs two at most, and the
/// tombstones of a cache one.
pub(crate) fn spare(shared: &Shared) -> usize {
    if shared.superblock.cache { 1 } else { 2 }
}

/// How often others may go on before a segment's records are taken for damaged, for now.
const PATIENCE: usize = 100;

/// How often a segment is tried to be opened before users are told why there is none.
const PERSISTENCE: u32 = 8;

/// One collection in so many takes the oldest segment, whatever it holds, if the one before it has gained a segment or
/// users have got one since: tombstones are kept for as long as older segments live.
const OLDEST_EVERY: u64 = 8;

/// What goes on beside the users. One a store.
pub(crate) struct Maintainer {
    shared: Arc<Shared>,
    disk: Disk,
    mover: Mover,
    notified: Notified,
    /// Collections since one of the oldest segment.
    since_oldest: u64,
    effort: Effort,
    postponed: Postponed,
    /// Why the users' next segment could not be opened, if it was tried.
    opening: Option<StoreError>,
}

impl Maintainer {
    pub(crate) fn new(shared: Arc<Shared>, disk: Disk, notified: Notified) -> Self {
        Self {
            mover: Mover::new(shared.clone(), disk.clone()),
            shared,
            disk,
            notified,
            since_oldest: 0,
            effort: Effort::default(),
            postponed: Postponed::default(),
            opening: None,
        }
    }

    /// Works until the store is closed.
    pub(crate) async fn run(&mut self) {
        let mut failures = 0;
        while !self.shared.is_closed.load(Ordering::Acquire) {
            // If this future is dropped meanwhile, that is known from then on.
            self.shared.is_stepping.store(true, Ordering::Release);
            let stepped = self.step().await;
            self.shared.is_stepping.store(false, Ordering::Release);
            match stepped {
                Ok(true) => failures = 0,
                Ok(false) => self.notified.wait().await,
                Err(StoreError::Closed) => {}
                Err(error) => {
                    failures += 1;
                    tracing::error!(%error, device = %self.shared.device.name(), "maintaining a store");
                    if failures > PERSISTENCE {
                        // Whoever waits for room is told why there is none.
                        let refusal = self.opening.clone().unwrap_or(StoreError::Full);
                        self.shared.user.refuse(refusal);
                        self.notified.wait().await;
                    }
                }
            }
        }
        self.mover.end();
    }

    /// Does one thing that is to be done, and says whether there was one.
    async fn step(&mut self) -> Result<bool, StoreError> {
        let shared = self.shared.clone();
        let spare = spare(&shared);
        if shared.user.wants_next() {
            let opened = shared.segments.open(Kind::User, spare);
            if self.open_next(opened).await? {
                return Ok(true);
            }
        }
        let disk = self.disk.clone();
        if let Err(error) = close_segments(&shared, &disk, self.flush()).await {
            self.mover.abandon();
            return Err(error);
        }
        let segments = shared.layout().segments;
        let low = spare + 1 + segments as usize / 32;
        if shared.segments.free_len() >= low {
            return Ok(false);
        }
        let live = || shared.fill.grains();
        if self.effort.is_worth_while(live())
            && let Some(victim) = self.victim()
        {
            self.give_up(victim).await?;
            self.effort
                .note(shared.segments.free_len(), segments, live());
            return Ok(true);
        }
        if shared.user.wants_next() {
            let opened = shared.segments.open_doubtful(Kind::User, spare);
            if self.open_next(opened).await? {
                return Ok(true);
            }
            if self.await_batches().await {
                self.effort = Effort::default();
                return Ok(true);
            }
            shared.user.refuse(StoreError::Full);
        }
        Ok(false)
    }

    /// Waits until a segment may be given up that was kept by batches under way, which may be the emptiest. Says whether
    /// there is one. What keeps it may itself wait for room: so there is an end to the waiting when nothing is on its
    /// way to the device any more.
    async fn await_batches(&self) -> bool {
        let segments = &self.shared.segments;
        let before = segments.unended();
        let mut patience = PATIENCE;
        let is_closed = &self.shared.is_closed;
        while patience > 0 && !before.is_empty() && !is_closed.load(Ordering::Acquire) {
            if segments.unended() != before {
                return true;
            }
            if !self.shared.writes.is_any() {
                patience -= 1;
            }
            // Takes about as long as what is waited for.
            let block = self.shared.layout().block();
            let _ = self.disk.read(self.disk.buffer(block), 0).await;
        }
        false
    }

    /// Gives users the segment that was opened for them. Says whether there was one.
    async fn open_next(&mut self, opened: Option<(u32, u64)>) -> Result<bool, StoreError> {
        let Some(opened) = opened else {
            return Ok(false);
        };
        let room = begin_segment(&self.shared, &self.disk, opened, Kind::User).await;
        self.opening = room.as_ref().err().cloned();
        self.shared.user.give(room?);
        self.effort = Effort::default();
        Ok(true)
    }

    /// Flushes, and gives users the segments that they want meanwhile: the writes beside the flush are waited for, and one
    /// that its user does not drive ends late or never. What else is to be done waits.
    async fn flush(&mut self) -> Result<(), FailedFlush> {
        let (shared, disk) = (self.shared.clone(), self.disk.clone());
        shared.flush_and(&disk, self.drained()).await
    }

    async fn drained(&mut self) -> bool {
        let shared = self.shared.clone();
        let mut drained = pin!(shared.drained());
        let (mut was_notified, mut tries) = (false, PERSISTENCE);
        let is_drained = loop {
            let ended = {
                let mut wanted = pin!(async {
                    while tries == 0 || !shared.user.wants_next() {
                        self.notified.wait().await;
                        was_notified = true;
                        tries = tries.max(1);
                    }
                });
                poll_fn(|cx| match drained.as_mut().poll(cx) {
                    Poll::Ready(is_drained) => Poll::Ready(Some(is_drained)),
                    Poll::Pending => wanted.as_mut().poll(cx).map(|()| None),
                })
                .await
            };
            if let Some(is_drained) = ended {
                break is_drained;
            }
            let opened = shared.segments.open(Kind::User, spare(&shared));
            match self.open_next(opened).await {
                Ok(true) => {}
                // None becomes free meanwhile.
                Ok(false) => tries = 0,
                Err(error) => {
                    tries -= 1;
                    tracing::error!(%error, device = %shared.device.name(), "opening a segment of a store");
                    if tries == 0 {
                        shared.user.refuse(error);
                    }
                }
            }
        };
        if was_notified {
            // Of more than users that want a segment, maybe.
            shared.wake_maintainer();
        }
        is_drained
    }

    fn victim(&mut self) -> Option<Candidate> {
        let shared = &self.shared;
        let candidates = shared.segments.candidates();
        let now = shared.segments.next_seq();
        let (due, waiting) = self.postponed.split(candidates, now);
        // If nothing else is left, those that were to wait: without room no segment will be opened.
        let choice = self.choose(&due, now);
        let choice = choice.or_else(|| self.choose(&waiting, now))?;
        let is_oldest = due.iter().chain(&waiting).all(|c| c.seq >= choice.seq);
        self.since_oldest = if is_oldest { 0 } else { self.since_oldest + 1 };
        Some(choice)
    }

    fn choose(&self, candidates: &[Candidate], now: u64) -> Option<Candidate> {
        let shared = &self.shared;
        if shared.superblock.cache {
            let least = candidates.iter().min_by_key(|c| (c.touched, c.seq));
            return least.copied();
        }
        let size = shared.layout().segment_bytes() >> shared.layout().grain_shift;
        let segments = shared.layout().segments;
        let worth = |c: &&Candidate| worth(c, size, segments, now);
        // Moving nearly everything gains nearly nothing.
        let gains = |c: &&Candidate| c.kept <= size - size / 32;
        let gaining = candidates.iter().filter(gains);
        if !self.effort.is_great() && shared.segments.free_len() >= spare(shared) {
            let best = gaining.max_by_key(worth);
            let is_due = self.since_oldest + 1 >= OLDEST_EVERY && self.effort.is_none();
            if is_due && best.is_some() {
                return candidates.iter().min_by_key(|c| c.seq).copied();
            }
            return best.copied();
        }
        // What was let in gains room in the end if the emptiest is moved each time, and nothing else is sure to.
        let emptiest = match shared.fill.measure() {
            Measure::Bytes => gaining.min_by_key(|c| c.kept),
            Measure::BytesAndEnds => gaining.min_by_key(|c| c.kept + c.ends),
        };
        emptiest.copied()
    }

    /// Empties a segment and frees it.
    async fn give_up(&mut self, victim: Candidate) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        let segment = victim.segment;
        if !shared.segments.leave(segment) {
            return Ok(());
        }
        let leaving = self.empty(victim).await;
        let moved = self.mover.write().await;
        let before = shared.segments.closable();
        if let Err(failed) = self.flush().await {
            // The copies may be lost, and a further flush would not tell: what they are copies of
            // has to stay.
            let is_by_itself = matches!(failed, FailedFlush::Itself(_));
            let error = failed.into_error();
            note_failed_flush(&shared, &error);
            let unused = self.mover.take_back();
            self.mover.abandon();
            shared.segments.stay(segment);
            if is_by_itself {
                self.postpone(segment, victim.seq);
            }
            self.free_unused(unused).await;
            return Err(error);
        }
        self.mover.settle();
        // Before the headers of what was moved say that it counts no more.
        if let Err(error) = close_flushed(&shared, &self.disk, before).await {
            tracing::warn!(%error, device = %shared.device.name(), "closing a segment");
        }
        let (leaving, is_whole) = match moved.and(leaving) {
            Ok(emptied) => emptied,
            Err(error) => {
                // What could be moved was moved; the rest stays where it is.
                shared.segments.stay(segment);
                if !self.mover.take_found_no_segment() {
                    self.postpone(segment, victim.seq);
                }
                return Err(error);
            }
        };
        if !is_whole || !accounts_for_all(&shared, segment, &leaving).await {
            tracing::warn!(
                device = %shared.device.name(),
                segment,
                "records of a segment seem to be damaged"
            );
            shared.segments.stay(segment);
            self.postpone(segment, victim.seq);
            return Ok(());
        }
        if let Err(error) = free_segment(&shared, &self.disk, segment).await {
            shared.segments.stay(segment);
            self.postpone(segment, victim.seq);
            return Err(error);
        }
        // Only now, when no crash can bring them back: nobody is told before that they are gone.
        for (hash, place) in leaving {
            if shared.index.remove(hash.index(), place) {
                shared.sub_live(place);
            }
        }
        self.freed(segment);
        let counters = &shared.counters;
        if shared.superblock.cache {
            add(&counters.evicted_segments, 1);
        } else {
            add(&counters.collected, 1);
        }
        Ok(())
    }

    /// Frees segments in which nothing counts, not even tombstones. As segments to be given up they would need room for
    /// these, and each collection that fails would cost one, until nothing could be moved any more.
    async fn free_unused(&self, unused: Vec<u32>) {
        let shared = &self.shared;
        for segment in unused {
            if !shared.segments.leave(segment) {
                continue;
            }
            if !accounts_for_all(shared, segment, &[]).await {
                shared.segments.stay(segment);
                continue;
            }
            if let Err(error) = free_segment(shared, &self.disk, segment).await {
                tracing::warn!(%error, device = %shared.device.name(), segment, "freeing a segment");
                shared.segments.stay(segment);
                continue;
            }
            self.freed(segment);
        }
    }

    /// The headers of a segment say that it is free.
    fn freed(&self, segment: u32) {
        let shared = &self.shared;
        shared.segments.free(segment);
        // Not before: who has found one of its records by the index a moment ago is to believe what is noted, or else not
        // what stands there.
        shared.unsettled.forget_segment(shared.layout(), segment);
        shared.user.admit();
    }

    /// Has the mover copy what has to live on, and returns what the index is still to forget, and whether no tombstone
    /// is missing.
    async fn empty(
        &mut self,
        victim: Candidate,
    ) -> Result<(Vec<(KeyHash, Place)>, bool), StoreError> {
        let shared = self.shared.clone();
        let disk = self.disk.clone();
        let layout = *shared.layout();
        let oldest = shared.segments.oldest_but(victim.segment);
        // A cache moves no values: what is older than its oldest segment is gone.
        let hides_nothing = shared.superblock.cache && oldest > victim.seq;
        let mut leaving = Vec::new();
        let mut scan = Scan::of(&shared, &disk, victim.segment, victim.seq);
        while let Some(mut batch) = scan.next().await? {
            while let Some(Passed { record, grain }) = batch.next() {
                let version = version(&layout, record.meta, victim.seq, grain);
                let moved = |meta| Record {
                    meta: Meta {
                        origin: Some(version),
                        ..meta
                    },
                    ..record
                };
                if let Some(fence) = record.meta.tombstone {
                    // One of an earlier session: nobody may have been told of it, and an older version may
                    // have been moved all the while.
                    let is_earlier = victim.seq < shared.session;
                    let fence = if is_earlier {
                        fence.max(shared.session)
                    } else {
                        fence
                    };
                    // Older versions of the key may stand in what is older.
                    if oldest < fence {
                        let copy = moved(Meta {
                            tombstone: Some(fence),
                            ..record.meta
                        });
                        self.mover.make_room(copy.encoded_len(), victim.seq).await?;
                        self.mover.bury(&copy, fence);
                    }
                    continue;
                }
                let hash = shared.hash(record.key);
                let grains = record.encoded_len().div_ceil(layout.grain()) as u64;
                let place = layout.place(victim.segment, grain);
                let place = Place::new(place, SizeCode::of(grains));
                if !is_live(&shared, hash.index(), place) {
                    continue;
                }
                if shared.unsettled.is_superseded(hash, place) {
                    // It could not be read when its key was changed.
                    leaving.push((hash, place));
                    continue;
                }
                let is_expired = shared.is_expired(record.meta.expiry);
                if !is_expired && !shared.superblock.cache {
                    let copy = moved(record.meta);
                    self.mover.make_room(copy.encoded_len(), victim.seq).await?;
                    // Only now: see the head of `mover.rs`.
                    if is_live(&shared, hash.index(), place) {
                        self.mover.copy(&copy, hash, place);
                    }
                    continue;
                }
                let counters = &shared.counters;
                add(
                    if is_expired {
                        &counters.expired
                    } else {
                        &counters.evicted
                    },
                    1,
                );
                // An older version must not come back when this one is gone. The tombstone is of
                // the same version: it says nothing of what is written later.
                let tombstone = Record {
                    value: b"",
                    ..moved(Meta {
                        tombstone: Some(shared.segments.next_seq()),
                        ..Meta::default()
                    })
                };
                if record.meta.replaces && !hides_nothing {
                    let len = tombstone.encoded_len();
                    self.mover.make_room(len, victim.seq).await?;
                    let fence = tombstone.meta.tombstone.unwrap_or_default();
                    self.mover.bury(&tombstone, fence);
                }
                leaving.push((hash, place));
            }
        }
        let outcome = scan.finish();
        add(&shared.counters.damaged, outcome.damaged());
        // The index tells which records are missing. Of tombstones it does not, and of one that is missing nobody knows
        // what it keeps from coming back: here everything is missed but writes that failed.
        let fence = shared.segments.fence(victim.segment);
        let has_tombstones = fence > oldest || (fence > 0 && victim.seq < shared.session);
        let is_whole = !has_tombstones
            || shared.settings.forget_damaged
            || shared.segments.accounts_for(victim.segment, &outcome);
        Ok((leaving, is_whole))
    }

    /// Leaves a segment alone for a while that an error of the device has kept in use.
    fn postpone(&mut self, segment: u32, seq: u64) {
        let shared = &self.shared;
        add(&shared.counters.postponed, 1);
        let now = shared.segments.next_seq();
        if !self.postponed.postpone(segment, seq, now) {
            tracing::error!(
                device = %shared.device.name(),
                segment,
                "a segment cannot be given up: it is set aside until the store is opened again"
            );
            shared.segments.retire(segment);
        }
    }
}

/// What giving a segment up is worth: greedy, with age, since what was left alone for long is likely to stay
/// as it is.
fn worth(candidate: &Candidate, size: u64, segments: u32, now: u64) -> u64 {
    let freed = size.saturating_sub(candidate.kept);
    freed * (u64::from(segments) + now - candidate.seq)
}

/// Whether everything in a segment that the index points at is about to leave.
async fn accounts_for_all(shared: &Shared, segment: u32, leaving: &[(KeyHash, Place)]) -> bool {
    // A change that has had the index point elsewhere counts a moment later.
    for _ in 0..PATIENCE {
        let live = shared.segments.live(segment);
        let still = leaving
            .iter()
            .filter(|(hash, place)| is_live(shared, hash.index(), *place));
        let known: u64 = still.map(|(_, place)| shared.grains(*place)).sum();
        if live <= known {
            return true;
        }
        yield_once().await;
    }
    false
}

/// Lets others go on.
pub(crate) async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Prepares the users' next segment, if more than `spare` are free. Says whether.
pub(crate) async fn prepare_segment(
    shared: &Shared,
    disk: &Disk,
    spare: usize,
) -> Result<bool, StoreError> {
    let Some(opened) = shared.segments.open(Kind::User, spare) else {
        return Ok(false);
    };
    let room = begin_segment(shared, disk, opened, Kind::User).await?;
    shared.user.give(room);
    Ok(true)
}

/// Begins a segment that was opened: its header is on the device when this returns. If that fails, the
/// segment is opened anew later, with another sequence number: a header that was written nevertheless
/// is one of an empty segment, and replaced before anything goes there.
pub(crate) async fn begin_segment(
    shared: &Shared,
    disk: &Disk,
    (segment, seq): (u32, u64),
    kind: Kind,
) -> Result<Room, StoreError> {
    if let Err(error) = write_header(shared, disk, segment, seq, kind).await {
        shared.segments.doubt(segment);
        return Err(error);
    }
    Ok(Room::whole(shared.layout(), segment, seq, kind))
}

/// Whether the index points at this place for this hash.
pub(crate) fn is_live(shared: &Shared, hash: u64, place: Place) -> bool {
    let mut candidates = Candidates::new();
    shared.index.candidates(hash, &mut candidates);
    candidates.contains(&place)
}

/// Durably writes the header of a segment that is about to be used, and its copy. The copy is written
/// first: if only one of them is newer, it is that one.
pub(crate) async fn write_header(
    shared: &Shared,
    disk: &Disk,
    segment: u32,
    seq: u64,
    kind: Kind,
) -> Result<(), StoreError> {
    let header = SegmentHeader {
        seq,
        kind,
        state: SegmentState::Open,
        ..header(shared, segment)
    };
    put_header(shared, disk, &header, Which::Copy).await?;
    put_header(shared, disk, &header, Which::First).await
}

/// Has the header's copy say what a segment holds to which nobody writes any more. All of it is durable.
pub(crate) async fn close_segment(
    shared: &Shared,
    disk: &Disk,
    (segment, seq): (u32, u64),
    kind: Kind,
    contents: Contents,
) -> Result<(), StoreError> {
    let header = SegmentHeader {
        seq,
        kind,
        state: SegmentState::Closed,
        contents,
        ..header(shared, segment)
    };
    put_header(shared, disk, &header, Which::Copy).await
}

/// Durably says in the header of a segment, and in the copy, that it is free from now on.
pub(crate) async fn free_segment(
    shared: &Shared,
    disk: &Disk,
    segment: u32,
) -> Result<(), StoreError> {
    let header = SegmentHeader {
        seq: shared.segments.last_seq(segment),
        state: SegmentState::Free,
        ..header(shared, segment)
    };
    put_header(shared, disk, &header, Which::First).await?;
    put_header(shared, disk, &header, Which::Copy).await
}

/// Closes segments to which nobody writes any more, as far as all that was written to them is known. It has `flush` run if
/// that needs one.
pub(crate) async fn close_segments(
    shared: &Shared,
    disk: &Disk,
    flush: impl Future<Output = Result<(), FailedFlush>>,
) -> Result<(), StoreError> {
    let closable = shared.segments.closable();
    let is_durable = |closable: &Closable| shared.is_durable(closable.kind);
    if !closable.iter().all(is_durable)
        && let Err(failed) = flush.await
    {
        let error = failed.into_error();
        note_failed_flush(shared, &error);
        return Err(error);
    }
    close_flushed(shared, disk, closable).await
}

/// What was written since the last flush, and is not durable by itself, may be lost: no further flush tells.
/// Nothing of it is closed nor settled, and who closes the store is told.
fn note_failed_flush(shared: &Shared, error: &StoreError) {
    let segments = &shared.segments;
    segments.note_lost_writes(|kind| !shared.is_durable(kind));
    if shared.durable() == Durable::No {
        shared.user.leave_current();
        shared.note_lost(error);
    }
}

/// Closes segments whose batches are durable.
async fn close_flushed(
    shared: &Shared,
    disk: &Disk,
    closable: Vec<Closable>,
) -> Result<(), StoreError> {
    for closable in closable {
        let Closable {
            segment,
            seq,
            kind,
            contents,
            failed,
        } = closable;
        if let Err(error) = erase(shared, disk, segment, failed).await {
            // What stands there may be taken for what counts.
            let device = shared.device.name();
            tracing::warn!(%device, segment, %error, "erasing what could not be written");
            shared.segments.note_failure(segment);
            continue;
        }
        let closed = close_segment(shared, disk, (segment, seq), kind, contents).await;
        if let Err(error) = closed {
            // It counts as open, whether that has reached the device or not.
            shared.segments.note_failure(segment);
            return Err(error);
        }
        shared.segments.note_closed(segment);
    }
    Ok(())
}

/// How much is erased at once.
const ERASED: usize = 1 << 20;

/// Durably overwrites blocks of a segment in which nothing counts.
pub(crate) async fn erase(
    shared: &Shared,
    disk: &Disk,
    segment: u32,
    stretches: impl IntoIterator<Item = Range<u32>>,
) -> Result<(), StoreError> {
    let layout = shared.layout();
    let most = ERASED >> layout.block_shift;
    for stretch in stretches {
        for first in stretch.clone().step_by(most) {
            let blocks = most.min((stretch.end - first) as usize);
            let mut buf = disk.buffer(blocks << layout.block_shift);
            buf.fill(0);
            let at = layout.block_at(segment, first);
            let (result, _) = shared.writes.write(disk, buf, at, Durable::Yes).await;
            result?;
        }
    }
    Ok(())
}

/// The header that a segment gets now.
fn header(shared: &Shared, segment: u32) -> SegmentHeader {
    SegmentHeader {
        user: shared.user.settled(),
        moved: shared.segments.moved(),
        ..SegmentHeader::unused(shared.superblock.store, segment)
    }
}

/// Which of a segment's two headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// In the first block.
    First,
    /// In the last block.
    Copy,
}

impl Which {
    pub(crate) const BOTH: [Self; 2] = [Self::First, Self::Copy];

    /// The block of the segment.
    pub(crate) fn block(self, layout: &Layout) -> u32 {
        match self {
            Self::First => 0,
            Self::Copy => layout.copy_block(),
        }
    }
}

/// Durably writes a header.
pub(crate) async fn put_header(
    shared: &Shared,
    disk: &Disk,
    header: &SegmentHeader,
    which: Which,
) -> Result<(), StoreError> {
    let layout = shared.layout();
    let mut buf = disk.buffer(layout.block());
    buf[SEGMENT_HEADER_LEN..].fill(0);
    header.emit(&mut buf);
    let at = layout.block_at(header.segment, which.block(layout));
    add(&shared.counters.header_bytes, layout.block() as u64);
    let (result, _) = shared.writes.write(disk, buf, at, Durable::Yes).await;
    result.map_err(StoreError::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_old_is_worth_more_than_what_is_a_little_emptier() {
        let candidate = |seq, kept| Candidate {
            segment: 1,
            seq,
            kept,
            ends: 0,
            touched: seq,
        };
        let worth = |seq, kept| worth(&candidate(seq, kept), 1000, 10, 100);
        assert!(worth(20, 500) > worth(95, 400), "an old one is preferred");
        assert!(worth(95, 400) > worth(94, 500), "of one age the emptier");
        assert!(worth(20, 1000) == 0, "what frees nothing is worth nothing");
    }
}
