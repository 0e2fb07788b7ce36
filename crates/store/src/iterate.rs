//! Visiting every key, for backups.
//!
//! First the log is read, segment by segment. A segment *at rest* gets no record any more: so whoever's
//! record has left it before it was read is in one that is not read yet, or not at rest. Then the index is
//! walked once, for what it points at in none of the segments that were at rest: what was moved or
//! changed meanwhile, wherever it has gone, and what is damaged. `docs/design/store.md` says why none is missed.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use block::Buf;

use crate::error::StoreError;
use crate::format::mend::Mender;
use crate::format::record::Record;
use crate::format::{FormatError, Version};
use crate::hash::KeyHash;
use crate::index::{Place, SizeCode, Trait};
use crate::maintain::{is_live, yield_once};
use crate::read::{span, version};
use crate::scan::{Passed, Scan, is_of_medium};
use crate::session::Session;

/// How often the log is read, each time with what was written meanwhile: that is faster than one record
/// after another.
const SWEEPS: u32 = 2;
/// Records of changed keys that are read at once, and bytes of them.
const READS: usize = 32;
const READ_BYTES: u64 = 1 << 20;

/// A key and its value, as they are visited.
#[derive(Clone, Copy, Debug)]
pub struct Visited<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Whatever the user keeps with it.
    pub flags: u32,
    /// The second, since the epoch, from which it is not to be seen; 0 for never.
    pub expiry: u32,
    /// When it was written.
    pub version: Version,
}

/// A current record, as it is come by.
pub(crate) enum Seen<'a> {
    /// One that can be shown.
    Whole(Visited<'a>),
    /// One that cannot, of a key that is known.
    Lost { key: &'a [u8], error: StoreError },
}

impl Session {
    /// Visits every key that has a value all the while, with a value that it has meanwhile; a key
    /// that is changed or moved may be visited again, with a greater or the same version. Keys that
    /// come or go meanwhile are visited or not.
    ///
    /// Damage hides nothing behind it: all other keys are visited before it is told.
    ///
    /// It ends however much is written meanwhile. Cost: the log is read once, from one end to the other, but for
    /// segments without a current record, and what was written meanwhile once more; the index is looked
    /// through; one read for each key that was changed or moved since. Memory: a bit for each grain of a
    /// segment that is written to, or in which something is damaged.
    ///
    /// # Errors
    ///
    /// [`StoreError::Device`], [`StoreError::Damaged`] or [`StoreError::MaybeOld`]: a current record could
    /// not be visited, the first of those.
    pub async fn for_each(
        &self,
        mut visit: impl FnMut(Visited<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut lost = None;
        let visited = self.visit(async |seen| match seen {
            Seen::Whole(visited) => visit(visited),
            Seen::Lost { error, .. } => {
                lost.get_or_insert(error);
                ControlFlow::Continue(())
            }
        });
        visited.await?;
        lost.map_or(Ok(()), Err)
    }

    /// As [`Session::for_each`], for visitors that wait, and want the keys of damaged records too. An
    /// error is of records whose keys are not known.
    pub(crate) async fn visit(
        &self,
        mut visit: impl AsyncFnMut(Seen<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut missed = None;
        match self.visit_all(&mut missed, &mut visit).await {
            ControlFlow::Continue(()) => missed.map_or(Ok(()), Err),
            ControlFlow::Break(()) => Ok(()),
        }
    }

    async fn visit_all(
        &self,
        missed: &mut Option<StoreError>,
        visit: &mut impl AsyncFnMut(Seen<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let shared = &self.shared;
        let taken_back = || shared.taken_back.load(Ordering::SeqCst);
        let before = taken_back();
        let mut covered = Covered::default();
        for _ in 0..SWEEPS {
            let mut segments = shared.segments.in_use();
            segments.sort_unstable_by_key(|segment| segment.seq);
            for used in segments {
                let of_segment = (used.segment, used.seq);
                self.visit_segment(of_segment, &mut covered, missed, visit)
                    .await?;
            }
        }
        self.visit_index(&covered, missed, visit).await?;
        if taken_back() != before || !before.is_multiple_of(2) {
            // The index may point at what it had left before it was read.
            let nothing = Covered::default();
            self.visit_index(&nothing, missed, visit).await?;
        }
        ControlFlow::Continue(())
    }

    /// Visits the current records of a segment. `missed` is the first error that hid one.
    async fn visit_segment(
        &self,
        (segment, seq): (u32, u64),
        covered: &mut Covered,
        missed: &mut Option<StoreError>,
        visit: &mut impl AsyncFnMut(Seen<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let shared = &self.shared;
        let layout = *shared.layout();
        // Of this use of the segment: a later one has another number.
        let is_at_rest = shared.segments.is_at_rest(segment);
        if covered.is_whole((segment, seq)) {
            return ControlFlow::Continue(());
        }
        if shared.segments.live(segment) == 0 {
            if is_at_rest {
                covered.add((segment, seq));
            }
            return ControlFlow::Continue(());
        }
        let mut seen = covered.parts.remove(&seq).unwrap_or_default();
        let mut scan = Scan::of(shared, &self.disk, segment, seq).tolerant();
        loop {
            let mut batch = match scan.next().await {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) => {
                    missed.get_or_insert(error);
                    covered.parts.insert(seq, seen);
                    return ControlFlow::Continue(());
                }
            };
            while let Some(Passed { record, grain }) = batch.next() {
                let grains = record.encoded_len().div_ceil(layout.grain()) as u64;
                let place = Place::new(layout.place(segment, grain), SizeCode::of(grains));
                let hash = shared.hash(record.key);
                if record.meta.tombstone.is_some() || !is_live(shared, hash.index(), place) {
                    continue;
                }
                if seen.contains(grain) || !self.is_current(hash, place, seq) {
                    continue;
                }
                seen.insert(grain);
                self.show(&record, (place, seq), visit).await?;
            }
        }
        let outcome = scan.finish();
        for suspect in &outcome.suspects {
            let grains = suspect.len.div_ceil(layout.grain()) as u64;
            let place = Place::new(layout.place(segment, suspect.grain), SizeCode::of(grains));
            let hash = shared.hash(&suspect.key);
            let is_due = suspect.meta.tombstone.is_none() && !seen.contains(suspect.grain);
            if is_due && self.is_current(hash, place, seq) {
                seen.insert(suspect.grain);
                let source = FormatError::Checksum { what: "a record" };
                visit(Seen::Lost {
                    key: &suspect.key,
                    error: shared.damaged(layout.place_at(place.grain()), source),
                })
                .await?;
            }
        }
        // Where something is missing the index is asked what of it is current.
        if is_at_rest && outcome.is_complete {
            covered.add((segment, seq));
        } else {
            covered.parts.insert(seq, seen);
        }
        ControlFlow::Continue(())
    }

    /// Whether what was read in a place is what its key has. It stands in a segment of this sequence number.
    fn is_current(&self, hash: KeyHash, place: Place, seq: u64) -> bool {
        let shared = &self.shared;
        let (segment, _) = shared.layout().segment_of(place.grain());
        // In this order: if the segment is still the same one at the end, the index did not mean what
        // stands in its place later.
        !shared.unsettled.is_superseded(hash, place)
            && is_live(shared, hash.index(), place)
            && shared.segments.seq(segment) == seq
    }

    /// Shows a current record.
    async fn show(
        &self,
        record: &Record<'_>,
        (place, seq): (Place, u64),
        visit: &mut impl AsyncFnMut(Seen<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let shared = &self.shared;
        if shared.is_expired(record.meta.expiry) {
            return ControlFlow::Continue(());
        }
        let (_, grain) = shared.layout().segment_of(place.grain());
        let version = version(shared.layout(), record.meta, seq, grain);
        let key = record.key;
        visit(match shared.trust_version(version, place) {
            Ok(()) => Seen::Whole(Visited {
                key,
                value: record.value,
                flags: record.meta.flags,
                expiry: record.meta.expiry,
                version,
            }),
            Err(error) => Seen::Lost { key, error },
        })
        .await
    }

    /// Visits what the index points at, but for what is covered.
    async fn visit_index(
        &self,
        covered: &Covered,
        missed: &mut Option<StoreError>,
        visit: &mut impl AsyncFnMut(Seen<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let index = &self.shared.index;
        for shard in 0..index.shards() {
            let mut region = 0;
            // It may grow meanwhile.
            while region < index.regions_of(shard) {
                self.visit_region((shard, region), covered, missed, visit)
                    .await?;
                yield_once().await;
                region += 1;
            }
        }
        ControlFlow::Continue(())
    }

    /// Visits what a region of the index points at. What could not be read, because it was moved and its
    /// segment given up since, is looked for again.
    async fn visit_region(
        &self,
        region: (u32, u32),
        covered: &Covered,
        missed: &mut Option<StoreError>,
        visit: &mut impl AsyncFnMut(Seen<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let layout = self.shared.layout();
        let is_due = |due: &Due| {
            let (segment, grain) = layout.segment_of(due.place.grain());
            !covered.contains((segment, due.seq), grain)
        };
        let mut due = self.entries(region);
        due.retain(is_due);
        loop {
            let failed = self.visit_entries(&due, visit).await?;
            if failed.is_empty() {
                return ControlFlow::Continue(());
            }
            due = self.entries(region);
            let mut moved = HashSet::new();
            for (failed, error) in failed {
                if due.binary_search(&failed).is_ok() {
                    // The index still points at it.
                    missed.get_or_insert(error);
                } else {
                    moved.insert(failed.of);
                }
            }
            // Only those of the same keys: the others may change for ever.
            due.retain(|due| moved.contains(&due.of) && is_due(due));
        }
    }

    /// What a region of the index points at now, in the order of the device.
    fn entries(&self, (shard, region): (u32, u32)) -> Vec<Due> {
        let shared = &self.shared;
        let mut entries = Vec::new();
        shared.index.places(shard, region, |of, place| {
            let (segment, _) = shared.layout().segment_of(place.grain());
            // As long as the index points there, the segment is not given up.
            let seq = shared.segments.seq(segment);
            entries.push(Due { place, seq, of });
        });
        entries.sort_unstable();
        entries
    }

    /// Visits the keys of some entries. Returns those whose key could not be told, and why.
    async fn visit_entries(
        &self,
        entries: &[Due],
        visit: &mut impl AsyncFnMut(Seen<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<(), Vec<(Due, StoreError)>> {
        let shared = &self.shared;
        let layout = shared.layout();
        let mut failed = Vec::new();
        let mut rest = entries;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |due: &&Due| {
                bytes += shared.grains(due.place) << layout.grain_shift;
                bytes <= READ_BYTES
            };
            let count = rest.iter().take(READS).take_while(fits).count().max(1);
            let (some, behind) = rest.split_at(count);
            rest = behind;
            // All of them at the same time.
            let reads: Vec<_> = some.iter().map(|due| self.read_place(due.place)).collect();
            for (due, read) in some.iter().zip(reads) {
                let (result, buf) = read.await;
                let failure = match result {
                    Ok(()) => self.visit_place(*due, &buf, visit).await?,
                    Err(error) if is_of_medium(&error) => {
                        let source = FormatError::Unreadable { what: "a record" };
                        Some(shared.damaged(layout.place_at(due.place.grain()), source))
                    }
                    Err(error) => Some(error.into()),
                };
                failed.extend(failure.map(|error| (*due, error)));
            }
        }
        ControlFlow::Continue(failed)
    }

    /// Reads all of a record, and the blocks around it.
    fn read_place(&self, place: Place) -> block::Transfer {
        let layout = self.shared.layout();
        let grains = place.size().grains();
        let len = grains.map_or(layout.segment_bytes(), |grains| {
            grains << layout.grain_shift
        });
        let (first, blocks) = span(layout, place, len);
        self.disk.read(self.disk.buffer(blocks), first)
    }

    /// Visits the key whose record was read, with what it has now. Returns why it is not known whose
    /// record it is, if so.
    async fn visit_place(
        &self,
        Due { place, seq, .. }: Due,
        buf: &Buf,
        visit: &mut impl AsyncFnMut(Seen<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<(), Option<StoreError>> {
        let shared = &self.shared;
        let layout = shared.layout();
        let (_, grain) = layout.segment_of(place.grain());
        let at = layout.place_at(place.grain());
        let bytes = &buf[at as usize & (layout.block() - 1)..];
        let seed = shared.superblock.check_seed;
        let (key, whole, error) = match Record::parse(bytes, seed, seq, grain) {
            Ok(record) => (record.key.to_vec(), Some(record), None),
            Err(error) => {
                let error = shared.damaged(at, error);
                match Mender::default().mend(bytes, seed, seq, grain) {
                    Some(mended) => (mended.key, None, Some(error)),
                    None => return ControlFlow::Continue(Some(error)),
                }
            }
        };
        let hash = shared.hash(&key);
        if shared.unsettled.is_superseded(hash, place) {
            // What the key has now the index knows beside it.
            return ControlFlow::Continue(None);
        }
        if self.is_current(hash, place, seq) {
            match (whole, error) {
                (Some(record), _) => self.show(&record, (place, seq), visit).await?,
                (None, Some(error)) => visit(Seen::Lost { key: &key, error }).await?,
                (None, None) => {}
            }
            return ControlFlow::Continue(None);
        }
        // It was changed or moved since.
        match self.find(hash, &key).await {
            Ok(None) => {}
            Ok(Some(found)) if shared.is_expired(found.expiry) => {}
            Ok(Some(found)) => {
                visit(match shared.trust(&found) {
                    Ok(()) => Seen::Whole(Visited {
                        key: &key,
                        value: &found.buf[found.value()],
                        flags: found.flags,
                        expiry: found.expiry,
                        version: found.version,
                    }),
                    Err(error) => Seen::Lost { key: &key, error },
                })
                .await?;
            }
            Err(error) => visit(Seen::Lost { key: &key, error }).await?,
        }
        ControlFlow::Continue(None)
    }
}

/// What the index points at: a place, the sequence number of its segment, and what is known of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    place: Place,
    seq: u64,
    of: Trait,
}

/// What a visit has seen of the log.
#[derive(Default)]
struct Covered {
    /// Of each segment the sequence number under which it was at rest and has been read, all of it.
    whole: Vec<u64>,
    /// Of other segments, the grains at which records begin that were current and have been visited.
    parts: BTreeMap<u64, Grains>,
}

impl Covered {
    /// All of a segment, which was at rest, has been read.
    fn add(&mut self, (segment, seq): (u32, u64)) {
        let segment = segment as usize;
        if self.whole.len() <= segment {
            self.whole.resize(segment + 1, 0);
        }
        self.whole[segment] = seq;
    }

    fn is_whole(&self, (segment, seq): (u32, u64)) -> bool {
        seq != 0 && self.whole.get(segment as usize) == Some(&seq)
    }

    /// Whether a record has been visited if it was current.
    fn contains(&self, of_segment: (u32, u64), grain: u32) -> bool {
        let (_, seq) = of_segment;
        self.is_whole(of_segment)
            || self
                .parts
                .get(&seq)
                .is_some_and(|seen| seen.contains(grain))
    }
}

/// A set of grains of a segment.
#[derive(Default)]
struct Grains(Vec<u64>);

impl Grains {
    fn insert(&mut self, grain: u32) {
        let word = grain as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (grain % 64);
    }

    fn contains(&self, grain: u32) -> bool {
        let word = self.0.get(grain as usize / 64);
        word.is_some_and(|word| word >> (grain % 64) & 1 == 1)
    }
}
