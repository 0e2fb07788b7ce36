//! What the segments of a device are used for, and how much of each is live.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fill::Weight;
use crate::format::segment::{Contents, Kind, Settled};
use crate::scan::Outcome;
use crate::written::{Closing, Written};

/// What a segment is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// For nothing: its header says so.
    Free,
    /// It is written to.
    Open(Kind),
    /// It is full, or was left at the end of an earlier session.
    Sealed(Kind),
    /// Its live records are being moved out, or it is being emptied.
    Leaving(Kind),
    /// For nothing, as far as is known: its header could not be written, and may be there or not. It is
    /// written anew when some more segments have been opened, or when no other is left.
    Doubtful,
    /// It cannot be written to, read or given up: it is not used again until the store is opened anew.
    Retired,
}

/// What everybody counts of one segment.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// The sequence number, 0 if it is free. Changes when what the segment held is given up: who
    /// has read a record looks here again before he believes that it was not there.
    seq: AtomicU64,
    /// The last sequence number, also if it is free since.
    last_seq: AtomicU64,
    /// Grains of live records, as their places tell.
    live: AtomicU64,
    /// Grains that live records that are long cost beside that: see `fill.rs`.
    ends: AtomicU64,
    /// Grains of tombstones.
    tombstones: AtomicU64,
    /// The greatest fence of a tombstone in it.
    fence: AtomicU64,
    /// Batches whose records the index does not know yet.
    in_flight: AtomicU32,
    /// When a record in it was last asked for, in sequence numbers.
    touched: AtomicU64,
    /// What stands in it was moved there.
    is_of_copies: AtomicBool,
    /// Something in it is damaged, and nobody has given that up.
    is_damaged: AtomicBool,
    /// What was written to it, and whether its header says so.
    written: Mutex<Written>,
}

/// A segment whose header can be told what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Closable {
    pub(crate) segment: u32,
    pub(crate) seq: u64,
    pub(crate) kind: Kind,
    pub(crate) contents: Contents,
    /// Blocks that have to be erased before: what stands there does not count.
    pub(crate) failed: Vec<Range<u32>>,
}

#[derive(Debug)]
struct Table {
    states: Box<[State]>,
    free: Vec<u32>,
    doubtful: Vec<Doubtful>,
    /// How often in a row the header of each could not be written.
    failures: Box<[u32]>,
    next_seq: u64,
}

/// A segment whose header could not be written.
#[derive(Clone, Copy, Debug)]
struct Doubtful {
    segment: u32,
    /// The sequence number from which it is tried again.
    due: u64,
}

/// However often a header could not be written, it is tried again after 2 to the power of this many
/// openings.
const DOUBTS: u32 = 10;

/// The segments of a device.
#[derive(Debug)]
pub(crate) struct Segments {
    counts: Box<[Counts]>,
    /// Writes to each that the device may have, and of which nobody hears how they end.
    awaited: Arc<[AtomicU32]>,
    table: Mutex<Table>,
    next_seq: AtomicU64,
    /// Up to where everything that was moved is durable.
    moved: Mutex<Settled>,
    /// Sequence numbers are below this.
    seq_end: u64,
}

/// A segment that may be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) segment: u32,
    pub(crate) seq: u64,
    /// Grains that have to be moved.
    pub(crate) kept: u64,
    /// Grains of those that are lost beside them at most.
    pub(crate) ends: u64,
    pub(crate) touched: u64,
}

/// A segment of the log, as a checkpoint keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptSegment {
    pub(crate) segment: u32,
    pub(crate) seq: u64,
    pub(crate) live: u64,
    pub(crate) tombstones: u64,
    pub(crate) fence: u64,
    pub(crate) touched: u64,
    /// Something in it is damaged, and nobody has given that up: it stays.
    pub(crate) is_damaged: bool,
}

impl Segments {
    /// All free; the first opened one has the sequence number 1, and all are below `seq_end`.
    pub(crate) fn new(segments: u32, seq_end: u64) -> Self {
        Self {
            counts: (0..segments).map(|_| Counts::default()).collect(),
            awaited: (0..segments).map(|_| AtomicU32::new(0)).collect(),
            table: Mutex::new(Table {
                states: vec![State::Free; segments as usize].into(),
                // The first is taken first.
                free: (0..segments).rev().collect(),
                doubtful: Vec::new(),
                failures: vec![0; segments as usize].into(),
                next_seq: 1,
            }),
            next_seq: AtomicU64::new(1),
            moved: Mutex::default(),
            seq_end,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up a segment that was found in use when the store was opened.
    pub(crate) fn adopt(&self, segment: u32, seq: u64, kind: Kind) {
        let mut table = self.table();
        table.states[segment as usize] = State::Sealed(kind);
        table.next_seq = table.next_seq.max(seq + 1);
        self.next_seq.store(table.next_seq, Ordering::Release);
        let counts = &self.counts[segment as usize];
        let is_of_copies = kind == Kind::Moved;
        counts.is_of_copies.store(is_of_copies, Ordering::Relaxed);
        counts.last_seq.store(seq, Ordering::Relaxed);
        counts.seq.store(seq, Ordering::Release);
        counts.touched.fetch_max(seq, Ordering::Relaxed);
    }

    /// All segments that were found in use have been taken up: the others are free.
    pub(crate) fn end_adoption(&self) {
        let mut table = self.table();
        let Table { states, free, .. } = &mut *table;
        free.retain(|&free| states[free as usize] == State::Free);
    }

    /// A segment that is free had this sequence number last.
    pub(crate) fn note_last_seq(&self, segment: u32, seq: u64) {
        let last_seq = &self.counts[segment as usize].last_seq;
        last_seq.store(seq, Ordering::Relaxed);
    }

    /// The segments of the log that have a header.
    pub(crate) fn in_use(&self) -> Vec<KeptSegment> {
        let table = self.table();
        let mut kept = Vec::new();
        for (segment, (state, counts)) in table.states.iter().zip(&self.counts).enumerate() {
            if matches!(
                state,
                State::Free
                    | State::Doubtful
                    | State::Open(Kind::Index)
                    | State::Sealed(Kind::Index)
            ) {
                continue;
            }
            let seq = counts.seq.load(Ordering::Acquire);
            if seq == 0 {
                // Neither of its headers can be read.
                continue;
            }
            kept.push(KeptSegment {
                segment: segment as u32,
                seq,
                live: counts.live.load(Ordering::Relaxed),
                tombstones: counts.tombstones.load(Ordering::Relaxed),
                fence: counts.fence.load(Ordering::Relaxed),
                touched: counts.touched.load(Ordering::Relaxed),
                is_damaged: counts.is_damaged.load(Ordering::Relaxed),
            });
        }
        kept
    }

    /// Counts for a segment what a checkpoint kept of it.
    pub(crate) fn restore(&self, kept: &KeptSegment) {
        let counts = &self.counts[kept.segment as usize];
        counts.live.store(kept.live, Ordering::Relaxed);
        counts.tombstones.store(kept.tombstones, Ordering::Relaxed);
        counts.fence.store(kept.fence, Ordering::Relaxed);
        counts.touched.store(kept.touched, Ordering::Relaxed);
        if kept.is_damaged {
            self.retire_damaged(kept.segment);
        }
    }

    fn written(&self, segment: u32) -> MutexGuard<'_, Written> {
        let written = &self.counts[segment as usize].written;
        written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch has been written: it ends before the block `end`.
    pub(crate) fn note_batch(&self, segment: u32, end: u32, crc: u32, records: u32) {
        self.written(segment).contents.add(end, crc, records);
    }

    /// A batch could not be written to these blocks. It is not under way any more.
    pub(crate) fn note_failed_batch(&self, segment: u32, blocks: Range<u32>) {
        self.written(segment).failed.push(blocks);
    }

    /// Whether all that a scan has missed in a segment may be of writes that failed. Nobody writes to the segment any more.
    pub(crate) fn accounts_for(&self, segment: u32, outcome: &Outcome) -> bool {
        self.written(segment).accounts_for(outcome)
    }

    /// Whether something was written to a segment is not known.
    pub(crate) fn note_failure(&self, segment: u32) {
        self.written(segment).closing = Closing::Never;
    }

    /// Nobody hears how a write to a segment ends: nothing else is to be written there until what is returned is dropped.
    pub(crate) fn await_write(&self, segment: u32) -> Awaited {
        self.awaited[segment as usize].fetch_add(1, Ordering::Release);
        Awaited {
            counts: self.awaited.clone(),
            segment,
        }
    }

    /// Sealed segments that would be candidates but for batches whose records the index does not know yet.
    pub(crate) fn unended(&self) -> Vec<u32> {
        let table = self.table();
        let states = (0..).zip(&table.states);
        let is_unended = |&(segment, state): &(u32, &State)| {
            let in_flight = &self.counts[segment as usize].in_flight;
            matches!(state, State::Sealed(_)) && in_flight.load(Ordering::Acquire) > 0
        };
        states
            .filter(is_unended)
            .map(|(segment, _)| segment)
            .collect()
    }

    /// Whether something is on its way to a segment, or may be.
    fn is_busy(&self, segment: u32) -> bool {
        let segment = segment as usize;
        let counts = [&self.counts[segment].in_flight, &self.awaited[segment]];
        counts
            .iter()
            .any(|count| count.load(Ordering::Acquire) != 0)
    }

    /// What was written to segments of some kinds, and not flushed since, may be lost.
    pub(crate) fn note_lost_writes(&self, is_concerned: impl Fn(Kind) -> bool) {
        let table = self.table();
        for (segment, state) in (0..).zip(&table.states) {
            let (State::Open(kind) | State::Sealed(kind) | State::Leaving(kind)) = *state else {
                continue;
            };
            if !is_concerned(kind) {
                continue;
            }
            let is_busy = self.is_busy(segment);
            let mut written = self.written(segment);
            let is_empty = written.contents == Contents::default() && !is_busy;
            if written.closing == Closing::Due && !is_empty {
                written.closing = Closing::Never;
            }
        }
    }

    /// What a segment holds, if its header says so, or if nobody writes to it any more and no write to it has failed;
    /// otherwise up to which block everything in it is known to have been written.
    pub(crate) fn extent(&self, segment: u32) -> (Option<Contents>, u32) {
        let is_at_rest = self.is_at_rest(segment);
        let written = self.written(segment);
        (written.known(is_at_rest), written.settled)
    }

    /// What was found of a segment when the store was opened: what its header says that it holds, or up
    /// to which block everything had been written.
    pub(crate) fn adopt_extent(&self, segment: u32, contents: Option<Contents>, settled: u32) {
        *self.written(segment) = Written::found(contents, settled);
    }

    /// The segments that nobody writes to any more, and whose headers do not say yet what they hold.
    pub(crate) fn closable(&self) -> Vec<Closable> {
        let table = self.table();
        let mut closable = Vec::new();
        for (segment, (state, counts)) in table.states.iter().zip(&self.counts).enumerate() {
            let State::Sealed(kind) = *state else {
                continue;
            };
            let segment = segment as u32;
            if self.is_busy(segment) {
                continue;
            }
            let written = self.written(segment);
            if written.closing == Closing::Due {
                closable.push(Closable {
                    segment,
                    seq: counts.seq.load(Ordering::Acquire),
                    kind,
                    contents: written.contents,
                    failed: written.failed.clone(),
                });
            }
        }
        closable
    }

    /// The header of a segment says what it holds.
    pub(crate) fn note_closed(&self, segment: u32) {
        self.written(segment).closing = Closing::Done;
    }

    /// Everything that was moved up to here is durable.
    pub(crate) fn settle_moved(&self, settled: Settled) {
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        *moved = settled.max(*moved);
    }

    /// Up to where everything that was moved is durable.
    pub(crate) fn moved(&self) -> Settled {
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sequence number that no segment has had yet.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq.load(Ordering::Acquire)
    }

    /// Makes sure that no segment gets a sequence number below this one.
    pub(crate) fn skip_to(&self, seq: u64) {
        let mut table = self.table();
        table.next_seq = table.next_seq.max(seq);
        self.next_seq.store(table.next_seq, Ordering::Release);
    }

    /// Opens a free segment if more than `spare` are free: its number and its sequence number.
    pub(crate) fn open(&self, kind: Kind, spare: usize) -> Option<(u32, u64)> {
        let mut table = self.table();
        if table.free.len() <= spare || table.next_seq >= self.seq_end {
            return None;
        }
        // Users can wait for another one if this fails again; who moves would have to begin anew.
        let is_due = |doubtful: &Doubtful| doubtful.due <= table.next_seq;
        let due = table.doubtful.iter().position(is_due);
        let segment = match due.filter(|_| kind == Kind::User) {
            Some(due) => table.doubtful.swap_remove(due).segment,
            None => table.free.pop()?,
        };
        Some(self.begin_use(&mut table, segment, kind))
    }

    /// Opens a doubtful segment before its time, because there is nothing else to be done, if more than
    /// `spare` are free or doubtful.
    pub(crate) fn open_doubtful(&self, kind: Kind, spare: usize) -> Option<(u32, u64)> {
        let mut table = self.table();
        if table.free.len() + table.doubtful.len() <= spare || table.next_seq >= self.seq_end {
            return None;
        }
        let waiting = table.doubtful.iter().enumerate();
        let (first, _) = waiting.min_by_key(|(_, doubtful)| doubtful.due)?;
        let segment = table.doubtful.swap_remove(first).segment;
        Some(self.begin_use(&mut table, segment, kind))
    }

    fn begin_use(&self, table: &mut Table, segment: u32, kind: Kind) -> (u32, u64) {
        let seq = table.next_seq;
        table.next_seq += 1;
        self.next_seq.store(table.next_seq, Ordering::Release);
        table.states[segment as usize] = State::Open(kind);
        let counts = &self.counts[segment as usize];
        for zero in [
            &counts.live,
            &counts.ends,
            &counts.tombstones,
            &counts.fence,
        ] {
            zero.store(0, Ordering::Relaxed);
        }
        let is_of_copies = kind == Kind::Moved;
        counts.is_of_copies.store(is_of_copies, Ordering::Relaxed);
        counts.is_damaged.store(false, Ordering::Relaxed);
        counts.touched.store(seq, Ordering::Relaxed);
        counts.last_seq.store(seq, Ordering::Relaxed);
        counts.seq.store(seq, Ordering::Release);
        *self.written(segment) = Written::default();
        (segment, seq)
    }

    /// The header of a segment that was just opened could not be written. The device may do better with
    /// another one, or later. Nothing stands in it whatever has become of the header.
    pub(crate) fn doubt(&self, segment: u32) {
        self.counts[segment as usize].seq.store(0, Ordering::SeqCst);
        let mut table = self.table();
        table.states[segment as usize] = State::Doubtful;
        let failures = DOUBTS.min(table.failures[segment as usize] + 1);
        table.failures[segment as usize] = failures;
        let due = table.next_seq + (1 << failures);
        table.doubtful.push(Doubtful { segment, due });
    }

    /// Those whose header could not be written.
    pub(crate) fn doubtful(&self) -> Vec<u32> {
        let table = self.table();
        table
            .doubtful
            .iter()
            .map(|doubtful| doubtful.segment)
            .collect()
    }

    /// Nothing more will be written to it.
    pub(crate) fn seal(&self, segment: u32) {
        let state = &mut self.table().states[segment as usize];
        if let State::Open(kind) = *state {
            *state = State::Sealed(kind);
        }
    }

    /// Begins to give a sealed segment up; false if somebody else has, or it is in use.
    pub(crate) fn leave(&self, segment: u32) -> bool {
        if self.is_busy(segment) {
            return false;
        }
        let state = &mut self.table().states[segment as usize];
        let State::Sealed(kind) = *state else {
            return false;
        };
        *state = State::Leaving(kind);
        true
    }

    /// Whether no record comes to a segment any more, neither from who writes nor in the index.
    pub(crate) fn is_at_rest(&self, segment: u32) -> bool {
        let state = self.table().states[segment as usize];
        // After the state: what is sealed begins no batch.
        matches!(state, State::Sealed(_) | State::Leaving(_) | State::Retired) && {
            let in_flight = &self.counts[segment as usize].in_flight;
            in_flight.load(Ordering::Acquire) == 0
        }
    }

    /// Takes a segment that could not be emptied back among the sealed ones.
    pub(crate) fn stay(&self, segment: u32) {
        let state = &mut self.table().states[segment as usize];
        if let State::Leaving(kind) = *state {
            *state = State::Sealed(kind);
        }
    }

    /// The header is destroyed: the segment may be opened anew.
    pub(crate) fn free(&self, segment: u32) {
        // What stands in it is no longer to be believed.
        self.counts[segment as usize].seq.store(0, Ordering::SeqCst);
        let mut table = self.table();
        table.states[segment as usize] = State::Free;
        table.failures[segment as usize] = 0;
        table
            .doubtful
            .retain(|doubtful| doubtful.segment != segment);
        // The one that was free the longest is taken first: wear is spread.
        table.free.insert(0, segment);
    }

    /// The segment is not used again.
    pub(crate) fn retire(&self, segment: u32) {
        let mut table = self.table();
        table.states[segment as usize] = State::Retired;
        table.free.retain(|&free| free != segment);
    }

    /// The segment holds damage that nobody has given up: it stays as it is.
    pub(crate) fn retire_damaged(&self, segment: u32) {
        let is_damaged = &self.counts[segment as usize].is_damaged;
        is_damaged.store(true, Ordering::Relaxed);
        self.retire(segment);
    }

    /// Whether what stands in a segment was moved there.
    pub(crate) fn is_of_copies(&self, segment: u32) -> bool {
        let is_of_copies = &self.counts[segment as usize].is_of_copies;
        is_of_copies.load(Ordering::Relaxed)
    }

    /// Whether a segment holds damage that nobody has given up.
    pub(crate) fn is_damaged(&self, segment: u32) -> bool {
        let is_damaged = &self.counts[segment as usize].is_damaged;
        is_damaged.load(Ordering::Relaxed)
    }

    /// How many segments are free.
    pub(crate) fn free_len(&self) -> usize {
        self.table().free.len()
    }

    /// The states of all segments.
    pub(crate) fn states(&self) -> Vec<State> {
        self.table().states.to_vec()
    }

    /// The least sequence number of a segment in which something stands, or may come back.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest_but(u32::MAX)
    }

    /// The same, of all segments but one.
    pub(crate) fn oldest_but(&self, segment: u32) -> u64 {
        let table = self.table();
        let mut oldest = table.next_seq;
        for (number, (state, counts)) in table.states.iter().zip(&self.counts).enumerate() {
            match state {
                _ if number == segment as usize => {}
                State::Free | State::Doubtful => {}
                // Its records may come back with its header.
                State::Retired => return 0,
                _ => oldest = oldest.min(counts.seq.load(Ordering::Acquire)),
            }
        }
        oldest
    }

    /// The sealed segments of records that nobody is writing to.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let oldest = self.oldest();
        let table = self.table();
        let mut candidates = Vec::new();
        for (segment, (state, counts)) in table.states.iter().zip(&self.counts).enumerate() {
            let records = matches!(state, State::Sealed(Kind::User | Kind::Moved));
            if !records || self.is_busy(segment as u32) {
                continue;
            }
            let seq = counts.seq.load(Ordering::Acquire);
            // Its own records cannot come back once it is gone.
            let lasting = counts.fence.load(Ordering::Relaxed) > oldest && seq != oldest;
            let tombstones = counts.tombstones.load(Ordering::Relaxed);
            candidates.push(Candidate {
                segment: segment as u32,
                seq,
                kept: counts.live.load(Ordering::Relaxed) + if lasting { tombstones } else { 0 },
                ends: counts.ends.load(Ordering::Relaxed),
                touched: counts.touched.load(Ordering::Relaxed),
            });
        }
        candidates
    }

    /// The sequence number of a segment, 0 if it is free.
    pub(crate) fn seq(&self, segment: u32) -> u64 {
        match self.counts.get(segment as usize) {
            Some(counts) => counts.seq.load(Ordering::SeqCst),
            None => 0,
        }
    }

    /// The sequence number that a segment has or had last.
    pub(crate) fn last_seq(&self, segment: u32) -> u64 {
        self.counts[segment as usize]
            .last_seq
            .load(Ordering::Relaxed)
    }

    /// A record is live from now on.
    pub(crate) fn add_live(&self, segment: u32, weight: Weight) {
        let counts = &self.counts[segment as usize];
        counts.live.fetch_add(weight.len, Ordering::Relaxed);
        if weight.end > 0 {
            counts.ends.fetch_add(weight.end, Ordering::Relaxed);
        }
    }

    /// A record is not live any more.
    pub(crate) fn sub_live(&self, segment: u32, weight: Weight) {
        let counts = &self.counts[segment as usize];
        counts.live.fetch_sub(weight.len, Ordering::Relaxed);
        if weight.end > 0 {
            counts.ends.fetch_sub(weight.end, Ordering::Relaxed);
        }
    }

    /// What a live record counts in a segment beside its bytes, when those were restored.
    pub(crate) fn restore_end(&self, segment: u32, weight: Weight) {
        let counts = &self.counts[segment as usize];
        counts.ends.fetch_add(weight.end, Ordering::Relaxed);
    }

    /// Grains of all live records, as their places tell.
    pub(crate) fn live_grains(&self) -> u64 {
        let live = |counts: &Counts| counts.live.load(Ordering::Relaxed);
        self.counts.iter().map(live).sum()
    }

    pub(crate) fn live(&self, segment: u32) -> u64 {
        self.counts[segment as usize].live.load(Ordering::Relaxed)
    }

    /// Counts a tombstone.
    pub(crate) fn add_tombstone(&self, segment: u32, grains: u64, fence: u64) {
        let counts = &self.counts[segment as usize];
        counts.tombstones.fetch_add(grains, Ordering::Relaxed);
        counts.fence.fetch_max(fence, Ordering::Relaxed);
    }

    /// The greatest fence of a tombstone in a segment, 0 if there is none.
    pub(crate) fn fence(&self, segment: u32) -> u64 {
        self.counts[segment as usize].fence.load(Ordering::Relaxed)
    }

    /// A record of the segment was asked for.
    pub(crate) fn touch(&self, segment: u32) {
        let now = self.next_seq.load(Ordering::Relaxed);
        let touched = &self.counts[segment as usize].touched;
        // Most of the time it is already there: no cache line changes hands.
        if touched.load(Ordering::Relaxed) < now {
            touched.store(now, Ordering::Relaxed);
        }
    }

    /// Whether no batch is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        let is_idle = |counts: &Counts| counts.in_flight.load(Ordering::Acquire) == 0;
        self.counts.iter().all(is_idle)
    }

    /// A batch goes to the segment whose records the index does not know yet.
    pub(crate) fn begin(&self, segment: u32) {
        let in_flight = &self.counts[segment as usize].in_flight;
        in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// The index knows the batch's records.
    pub(crate) fn end(&self, segment: u32) {
        let in_flight = &self.counts[segment as usize].in_flight;
        let before = in_flight.fetch_sub(1, Ordering::Release);
        debug_assert!(before > 0, "a batch ends once");
    }
}

/// A write to a segment that the device may have, and of which nobody hears how it ends. Dropped when the device is done with
/// it.
pub(crate) struct Awaited {
    counts: Arc<[AtomicU32]>,
    segment: u32,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.counts[self.segment as usize].fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_whose_header_fails_is_tried_again_after_more_and_more_openings() {
        let segments = Segments::new(8, 1 << 40);
        let open = || segments.open(Kind::User, 2).expect("one is free");
        let (bad, _) = open();
        segments.doubt(bad);
        let mut waits = Vec::new();
        let mut others = 0;
        while waits.len() < 12 {
            assert_eq!(segments.free_len(), 7, "what is doubtful does not count");
            assert_eq!(segments.doubtful(), [bad]);
            let (segment, seq) = open();
            assert_eq!(segments.next_seq(), seq + 1);
            if segment == bad {
                segments.doubt(bad);
                waits.push(std::mem::take(&mut others));
            } else {
                segments.free(segment);
                others += 1;
            }
        }
        let doubled: Vec<_> = (1..=10).map(|i| 1 << i).chain([1 << 10; 2]).collect();
        assert_eq!(waits, doubled);
        loop {
            let (segment, _) = open();
            segments.free(segment);
            if segment == bad {
                break;
            }
        }
        assert!(segments.doubtful().is_empty());
        assert_eq!(segments.free_len(), 8);
    }

    #[test]
    fn what_is_doubtful_is_opened_before_its_time_if_nothing_else_is_left() {
        let segments = Segments::new(4, 1 << 40);
        while let Some((segment, _)) = segments.open(Kind::Moved, 0) {
            segments.doubt(segment);
        }
        assert_eq!(
            segments.oldest(),
            segments.next_seq(),
            "nothing stands there"
        );
        let again = |spare| segments.open_doubtful(Kind::User, spare);
        assert_eq!(again(4), None, "users leave some to who moves");
        let first = again(2).expect("four are doubtful");
        assert_eq!(first, (0, 5));
        segments.doubt(first.0);
        let second = again(2).expect("four are doubtful");
        assert_eq!(
            second,
            (1, 6),
            "another one than that which failed just now"
        );
        assert_eq!(segments.seq(1), 6);
    }
}
