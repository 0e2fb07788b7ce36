//! Reading a segment from one end to the other.
//!
//! What is damaged hides nothing behind it: after a block that begins no batch the next block is
//! tried, after a record that is not whole the next grain. What is missing is judged at the end, when
//! it is known up to where everything had been written: see [`Scan::finish`].

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use block::{BlockError, Buf, Disk};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::format::batch::{BATCH_HEADER_LEN, BatchHeader};
use crate::format::mend::{Finder, Mender};
use crate::format::record::{Header, Meta, Record};
use crate::format::segment::Contents;
use crate::format::superblock::Superblock;
use crate::shared::Shared;

/// How much is read at once.
const WINDOW: usize = 1 << 20;

/// A record of at most this many bytes, of which one bit seems to be wrong, was not cut short by a crash:
/// one that was seems so once in a hundred thousand times.
const SURE_LEN: usize = 4 << 10;

/// What is wrong with a stretch of a segment.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Damage {
    /// The header of a batch.
    BatchHeader,
    /// Records of a batch.
    Records,
    /// The device does not give the bytes.
    Unreadable,
    /// Less is there than was written.
    Missing,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BatchHeader => "the header of a batch is damaged",
            Self::Records => "records are damaged",
            Self::Unreadable => "the device does not give the bytes",
            Self::Missing => "less is there than was written",
        })
    }
}

/// A stretch of a segment in which something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// What is wrong.
    pub damage: Damage,
    /// The blocks of the segment.
    pub blocks: Range<u32>,
    /// Whether it may be of a write that a crash cut short, and that nobody was told of: otherwise
    /// what stood there had been written and was lost later.
    pub torn: bool,
    /// Whether every key is known of which something is lost there.
    pub explained: bool,
}

/// A segment that is being read.
pub(crate) struct Scan<'s> {
    superblock: &'s Superblock,
    disk: &'s Disk,
    segment: u32,
    seq: u64,
    /// What the segment holds, if it is closed.
    contents: Option<Contents>,
    /// Everything before this block had been durably written.
    settled: u32,
    is_tolerant: bool,
    /// The block at which the next batch is looked for.
    block: u32,
    /// The block behind the last that may hold a batch.
    end: u32,
    window: Option<Buf>,
    /// The block at which the window begins.
    start: u32,
    /// Where no batch begins, up to `block`.
    gap: Option<u32>,
    gaps: Vec<Range<u32>>,
    gaps_searched: bool,
    unreadable: BTreeSet<u32>,
    report: Report,
}

#[derive(Default)]
struct Report {
    found: Contents,
    flaws: Vec<Flaw>,
    suspects: Vec<Suspect>,
    mender: Mender,
}

/// What a damaged record seems to be.
pub(crate) struct Suspect {
    pub(crate) key: Vec<u8>,
    pub(crate) meta: Meta,
    /// Where in the segment it is.
    pub(crate) grain: u32,
    pub(crate) len: usize,
    /// The block at which its batch begins.
    block: u32,
    /// One bit of it is wrong: this is what it was.
    is_mended: bool,
}

/// What a scan has found, apart from records.
pub(crate) struct Outcome {
    /// What was there.
    pub(crate) found: Contents,
    /// What is wrong, but for what is known to be missing since the segment was closed.
    pub(crate) flaws: Vec<Flaw>,
    /// Records that had been acknowledged, and are damaged.
    pub(crate) suspects: Vec<Suspect>,
    /// Of keys that are not known something is lost, all of it before this block.
    pub(crate) doubt: Option<u32>,
    /// Everything before this block had been durably written.
    pub(crate) settled: u32,
    /// It is known what the segment holds, and all of that is there.
    pub(crate) is_complete: bool,
}

impl Outcome {
    /// Stretches in which no batch begins, before others in which one does: what stands there may be left of writes that
    /// were cut short.
    pub(crate) fn torn_gaps(&self) -> impl Iterator<Item = Range<u32>> {
        let is_gap = |flaw: &&Flaw| flaw.torn && flaw.damage == Damage::BatchHeader;
        let gaps = self.flaws.iter().filter(is_gap);
        gaps.map(|flaw| flaw.blocks.clone())
    }

    /// Stretches in which something is lost that had been acknowledged.
    pub(crate) fn damaged(&self) -> u64 {
        self.flaws.iter().filter(|flaw| !flaw.torn).count() as u64
    }

    /// Stretches of writes that may have been cut short.
    pub(crate) fn torn(&self) -> u64 {
        self.flaws.iter().filter(|flaw| flaw.torn).count() as u64
    }
}

/// A batch that was read, or what is left of some.
pub(crate) struct Scanned<'w> {
    bytes: &'w [u8],
    /// The block of the segment at which the batch begins.
    block: u32,
    end_block: u32,
    /// The grain of the segment at which the batch begins.
    grain: u32,
    at: usize,
    seed: u64,
    seq: u64,
    grain_shift: u8,
    block_len: usize,
    first: usize,
    /// How many records there are, as the header says; without a header nobody knows.
    records: Option<u32>,
    /// How many of them are whole, or at least known.
    known: u32,
    is_damaged: bool,
    is_unreadable: bool,
    is_over: bool,
    finder: Option<Finder<'w>>,
    report: &'w mut Report,
}

impl<'s> Scan<'s> {
    /// All of a segment, of which it is not known what it holds.
    pub(crate) fn new(superblock: &'s Superblock, disk: &'s Disk, segment: u32, seq: u64) -> Self {
        Self {
            superblock,
            disk,
            segment,
            seq,
            contents: None,
            settled: 0,
            is_tolerant: false,
            // The first block holds the segment's header.
            block: 1,
            end: superblock.layout.copy_block(),
            window: None,
            start: 0,
            gap: None,
            gaps: Vec::new(),
            gaps_searched: false,
            unreadable: BTreeSet::new(),
            report: Report::default(),
        }
    }

    /// A segment of an open store.
    pub(crate) fn of(shared: &'s Shared, disk: &'s Disk, segment: u32, seq: u64) -> Self {
        let scan = Self::new(&shared.superblock, disk, segment, seq);
        let (contents, settled) = shared.segments.extent(segment);
        scan.closed(contents).settled(settled)
    }

    /// The segment holds this, if anything is said.
    pub(crate) fn closed(mut self, contents: Option<Contents>) -> Self {
        if let Some(contents) = contents {
            self.contents = Some(contents);
            self.end = self.end.min(contents.end);
        }
        self
    }

    /// Everything before this block had been durably written.
    pub(crate) fn settled(mut self, block: u32) -> Self {
        self.settled = block;
        self
    }

    /// Takes bytes that the device does not give for damaged, and goes on.
    pub(crate) fn tolerant(mut self) -> Self {
        self.is_tolerant = true;
        self
    }

    /// The next batch; `None` at the segment's end.
    pub(crate) async fn next(&mut self) -> Result<Option<Scanned<'_>>, StoreError> {
        let layout = self.superblock.layout;
        while self.block < self.end {
            self.show(1).await?;
            let Some((header, crc, is_mended)) = self.header() else {
                self.gap.get_or_insert(self.block);
                self.block += 1;
                continue;
            };
            self.end_gap();
            let block = self.block;
            let len = layout.blocks_of(header.bytes as usize);
            self.show(len).await?;
            self.block += len;
            self.settled = self.settled.max(header.settled.min(self.end));
            let report = &mut self.report;
            report.found.add(self.block, crc, 0);
            if is_mended {
                report.flaws.push(Flaw {
                    damage: Damage::BatchHeader,
                    blocks: block..block + 1,
                    torn: false,
                    explained: true,
                });
            }
            return Ok(Some(self.scanned(block, Some(header))));
        }
        self.end_gap();
        if !self.gaps_searched {
            self.gaps_searched = true;
            if self.is_complete() {
                self.gaps.clear();
            }
        }
        let settled = self.settled_end();
        while let Some(gap) = self.gaps.pop() {
            let until = gap.end.min(settled);
            if gap.end < self.end && until < gap.end {
                // Batches stand behind it.
                self.report.flaws.push(Flaw {
                    damage: Damage::BatchHeader,
                    blocks: gap.start.max(until)..gap.end,
                    torn: true,
                    explained: true,
                });
            }
            if gap.start >= until {
                continue;
            }
            self.block = gap.start;
            self.show(until - gap.start).await?;
            // Not to be tried again.
            self.block = self.end;
            return Ok(Some(self.scanned_gap(gap.start..until)));
        }
        Ok(None)
    }

    /// What the scan has found; all batches were asked for.
    ///
    /// What is missing before the end of a closed segment, or before what a later write says had been
    /// settled, had been written and is damaged. What is missing elsewhere may be of a write that a
    /// crash cut short. What was missing when the segment was closed is not missed.
    pub(crate) fn finish(mut self) -> Outcome {
        let is_complete = self.is_complete();
        let settled = self.settled_end();
        let Report {
            mut found,
            mut flaws,
            suspects,
            ..
        } = std::mem::take(&mut self.report);
        found.end = found.end.max(settled);
        if is_complete {
            flaws.clear();
            return Outcome {
                found,
                flaws,
                suspects: Vec::new(),
                doubt: None,
                settled,
                is_complete,
            };
        }
        for flaw in &mut flaws {
            flaw.torn &= flaw.blocks.start >= settled && flaw.damage != Damage::Unreadable;
        }
        flaws.sort_unstable_by_key(|flaw| flaw.blocks.start);
        // A write that a crash cuts short leaves what can be read. So whatever stood there may have been
        // acknowledged, behind what is settled too.
        let lost = flaws.iter().filter(|flaw| !flaw.torn);
        let lost = lost.map(|flaw| flaw.blocks.clone());
        let untold = outside(self.unreadable.iter().copied(), lost);
        let is_sure = |suspect: &Suspect| {
            suspect.block < settled || (suspect.is_mended && suspect.len <= SURE_LEN)
        };
        let sure = suspects.iter().filter(|suspect| is_sure(suspect));
        let mut sure: Vec<u32> = sure.map(|suspect| suspect.block).collect();
        sure.sort_unstable();
        let stretches = flaws.iter().map(|flaw| flaw.blocks.clone());
        let has_sure = have_any(stretches, sure.into_iter());
        for (flaw, has_sure) in flaws.iter_mut().zip(has_sure) {
            flaw.torn &= !has_sure;
        }
        flaws.extend(untold.into_iter().map(|block| Flaw {
            damage: Damage::Unreadable,
            blocks: block..block + 1,
            torn: false,
            explained: false,
        }));
        let suspects: Vec<_> = suspects.into_iter().filter(is_sure).collect();
        if let Some(contents) = self.contents {
            let mended = suspects.iter().filter(|s| s.is_mended).count() as u32;
            if found.records.saturating_add(mended) == contents.records {
                for flaw in &mut flaws {
                    flaw.explained = true;
                }
            } else if flaws.iter().all(|flaw| flaw.explained) {
                flaws.push(Flaw {
                    damage: Damage::Missing,
                    blocks: 1..self.end,
                    torn: false,
                    explained: false,
                });
            }
        }
        let unexplained = flaws.iter().filter(|flaw| !flaw.torn && !flaw.explained);
        let doubt = unexplained.map(|flaw| flaw.blocks.end).max();
        flaws.sort_unstable_by_key(|flaw| flaw.blocks.start);
        Outcome {
            found,
            flaws,
            suspects,
            doubt,
            settled,
            is_complete,
        }
    }

    /// Whether all is there that was when the segment was closed.
    fn is_complete(&self) -> bool {
        let found = Contents {
            end: self.contents.map_or(0, |contents| contents.end),
            ..self.report.found
        };
        self.contents == Some(found)
    }

    /// The block before which all that is missing had been written.
    fn settled_end(&self) -> u32 {
        if self.contents.is_some() {
            self.end
        } else {
            self.settled.min(self.end)
        }
    }

    fn end_gap(&mut self) {
        if let Some(start) = self.gap.take() {
            self.gaps.push(start..self.block);
        }
    }

    /// The header of the batch that begins here, its checksum, and whether a bit of it was wrong.
    fn header(&self) -> Option<(BatchHeader, u32, bool)> {
        let seed = self.superblock.check_seed;
        let bytes = self.shown(1);
        let (header, is_mended) = match BatchHeader::parse(bytes, seed, self.seq, self.block) {
            Ok(header) => (header, false),
            Err(_) => (BatchHeader::mend(bytes, seed, self.seq, self.block)?, true),
        };
        let len = self.superblock.layout.blocks_of(header.bytes as usize);
        if len > self.end - self.block {
            return None;
        }
        let mut whole = [0; BATCH_HEADER_LEN];
        Some((header, header.emit(seed, &mut whole), is_mended))
    }

    fn scanned(&mut self, block: u32, header: Option<BatchHeader>) -> Scanned<'_> {
        let len = header.map_or(0, |header| header.bytes as usize);
        let records = header.map(|header| header.records);
        self.batch(block..self.block, len, records)
    }

    fn scanned_gap(&mut self, gap: Range<u32>) -> Scanned<'_> {
        let len = ((gap.end - gap.start) as usize) << self.superblock.layout.block_shift;
        self.batch(gap, len, None)
    }

    fn batch(&mut self, blocks: Range<u32>, len: usize, records: Option<u32>) -> Scanned<'_> {
        let layout = &self.superblock.layout;
        let start = ((blocks.start - self.start) << layout.block_shift) as usize;
        let window = self.window.as_ref().expect("it is shown");
        Scanned {
            bytes: &window[start..start + len],
            block: blocks.start,
            end_block: blocks.end,
            grain: blocks.start << (layout.block_shift - layout.grain_shift),
            at: layout.batch_start(),
            seed: self.superblock.check_seed,
            seq: self.seq,
            grain_shift: layout.grain_shift,
            block_len: layout.block(),
            first: layout.batch_start(),
            records,
            known: 0,
            is_damaged: false,
            is_unreadable: self.unreadable.range(blocks.clone()).next().is_some(),
            is_over: false,
            finder: None,
            report: &mut self.report,
        }
    }

    fn shown(&self, blocks: u32) -> &[u8] {
        let shift = self.superblock.layout.block_shift;
        let start = ((self.block - self.start) as usize) << shift;
        let window = self.window.as_deref().unwrap_or_default();
        &window[start..start + ((blocks as usize) << shift)]
    }

    /// Has the window hold so many blocks from the next one on.
    async fn show(&mut self, blocks: u32) -> Result<(), StoreError> {
        let layout = self.superblock.layout;
        let held = self.window.as_ref().map_or(0, |window| window.len());
        let end = self.start + (held >> layout.block_shift) as u32;
        if self.block >= self.start && self.block + blocks <= end {
            return Ok(());
        }
        let left = ((self.end - self.block) as usize) << layout.block_shift;
        let least = (blocks as usize) << layout.block_shift;
        let len = WINDOW.max(least).min(left);
        let mut buf = match self.window.take() {
            Some(buf) if buf.capacity() >= len => buf,
            _ => self.disk.buffer(len),
        };
        buf.set_len(len);
        let at = layout.block_at(self.segment, self.block);
        let (result, buf) = self.disk.read(buf, at).await;
        self.start = self.block;
        self.window = Some(buf);
        match result {
            Ok(()) => Ok(()),
            Err(error) if self.is_tolerant && is_of_medium(&error) => self.read_blocks(at).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the window block by block; what the device does not give is zero.
    async fn read_blocks(&mut self, at: u64) -> Result<(), StoreError> {
        let block = self.superblock.layout.block();
        let count = self.window.as_ref().map_or(0, |window| window.len()) / block;
        let mut piece = self.disk.buffer(block);
        for number in 0..count {
            let (result, buf) = self.disk.read(piece, at + (number * block) as u64).await;
            piece = buf;
            if let Err(error) = result {
                if !is_of_medium(&error) {
                    return Err(error.into());
                }
                piece.fill(0);
                self.unreadable.insert(self.start + number as u32);
            }
            let window = self.window.as_mut().expect("the caller has read into it");
            window[number * block..][..block].copy_from_slice(&piece);
        }
        Ok(())
    }
}

/// Whether an error says that some bytes are lost, and nothing of the others.
pub(crate) fn is_of_medium(error: &BlockError) -> bool {
    matches!(error, BlockError::Io { .. })
        && matches!(
            error.errno(),
            Some(Errno::IO | Errno::NODATA | Errno::ILSEQ)
        )
}

/// A record that a scan came by.
pub(crate) struct Passed<'w> {
    pub(crate) record: Record<'w>,
    /// Where in the segment it is.
    pub(crate) grain: u32,
}

impl<'w> Scanned<'w> {
    /// How long the batch is.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The next record of the batch.
    pub(crate) fn next(&mut self) -> Option<Passed<'w>> {
        let step = 1 << self.grain_shift;
        while self.at < self.bytes.len() {
            let grain = self.grain_at(self.at);
            let rest = &self.bytes[self.at..];
            // Where much is damaged, what claims to be long is not read as often as it claims to be.
            let finder = self.finder.as_ref();
            let may_be = finder.is_none_or(|f| f.is_record(self.at, self.seed, self.seq, grain));
            if may_be && let Ok(record) = Record::parse(rest, self.seed, self.seq, grain) {
                self.at += record.encoded_len().next_multiple_of(step);
                self.known += 1;
                let records = &mut self.report.found.records;
                *records = records.saturating_add(1);
                return Some(Passed { record, grain });
            }
            if !self.pass_damage(grain) {
                break;
            }
        }
        self.finish();
        None
    }

    fn grain_at(&self, at: usize) -> u32 {
        self.grain + (at >> self.grain_shift) as u32
    }

    /// Goes on behind what is no record; false if nothing follows.
    fn pass_damage(&mut self, grain: u32) -> bool {
        let step = 1 << self.grain_shift;
        let rest = &self.bytes[self.at..];
        if self.records.is_none() {
            // Between the last record of a batch and the first of the next there are zeroes, and a header.
            let next = self.at.next_multiple_of(self.block_len) + self.first;
            if next - self.at < self.block_len + self.first && self.is_whole(next) {
                self.at = next;
                return true;
            }
            if next >= self.bytes.len() && rest.iter().all(|&byte| byte == 0) && self.known > 0 {
                return false;
            }
        }
        self.is_damaged = true;
        let mended = self.report.mender.mend(rest, self.seed, self.seq, grain);
        if let Some(mended) = mended {
            self.known += 1;
            self.at += mended.len.next_multiple_of(step);
            self.report.suspects.push(Suspect {
                key: mended.key,
                meta: mended.meta,
                grain,
                len: mended.len,
                block: self.block,
                is_mended: true,
            });
            return true;
        }
        let suspect = suspect(rest, grain, self.block);
        if let Some(suspect) = suspect {
            let next = self.at + suspect.len.next_multiple_of(step);
            let fits = next == self.bytes.len() || self.is_whole(next);
            self.report.suspects.push(suspect);
            if fits {
                self.at = next;
                return true;
            }
        }
        let finder = self.finder.get_or_insert_with(|| Finder::new(self.bytes));
        let (seed, seq, first, shift) = (self.seed, self.seq, self.grain, self.grain_shift);
        let found = (self.at + step..self.bytes.len())
            .step_by(step)
            .find(|&at| finder.is_record(at, seed, seq, first + (at >> shift) as u32));
        self.at = found.unwrap_or(self.bytes.len());
        found.is_some()
    }

    fn is_whole(&self, at: usize) -> bool {
        let grain = self.grain_at(at);
        let bytes = self.bytes.get(at..).unwrap_or_default();
        if let Some(finder) = &self.finder {
            return !bytes.is_empty() && finder.is_record(at, self.seed, self.seq, grain);
        }
        Record::parse(bytes, self.seed, self.seq, grain).is_ok()
    }

    /// Says what is wrong with the batch, once.
    fn finish(&mut self) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let explained = match self.records {
            Some(records) => self.known == records,
            None => self.known > 0 && !self.is_damaged,
        };
        if !self.is_damaged && explained && self.records.is_some() {
            return;
        }
        let damage = match self.records {
            _ if self.is_unreadable => Damage::Unreadable,
            Some(_) => Damage::Records,
            None => Damage::BatchHeader,
        };
        self.report.flaws.push(Flaw {
            damage,
            blocks: self.block..self.end_block,
            torn: true,
            explained,
        });
    }
}

/// Those of some blocks that are in none of some stretches. Both are in ascending order, stretches by where
/// they begin, and each is looked at once.
fn outside(
    blocks: impl Iterator<Item = u32>,
    stretches: impl Iterator<Item = Range<u32>>,
) -> Vec<u32> {
    let mut stretches = stretches.peekable();
    let mut end = 0;
    let is_outside = |block: &u32| {
        while let Some(stretch) = stretches.next_if(|stretch| stretch.start <= *block) {
            end = end.max(stretch.end);
        }
        *block >= end
    };
    blocks.filter(is_outside).collect()
}

/// Of each stretch, whether any of some blocks is in it. As above.
fn have_any(
    stretches: impl Iterator<Item = Range<u32>>,
    blocks: impl Iterator<Item = u32>,
) -> Vec<bool> {
    let mut blocks = blocks.peekable();
    let has_any = |stretch: Range<u32>| {
        while blocks.next_if(|block| *block < stretch.start).is_some() {}
        blocks.peek().is_some_and(|block| *block < stretch.end)
    };
    stretches.map(has_any).collect()
}

/// What a damaged record says it is, if it is within the batch.
fn suspect(bytes: &[u8], grain: u32, block: u32) -> Option<Suspect> {
    let header = Header::parse(bytes).ok()?;
    let is_blank = bytes.iter().take(header.key_at).all(|&byte| byte == 0);
    let key = bytes.get(header.key_at..header.key_at + header.key_len)?;
    let len = header.record_len();
    (len <= bytes.len() && !is_blank).then(|| Suspect {
        key: key.to_vec(),
        meta: header.meta,
        grain,
        len,
        block,
        is_mended: false,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use fastrand::Rng;

    use super::*;

    /// What is damaged may be all of a segment: no stretch is compared with each of the others.
    #[test]
    fn stretches_and_blocks_are_looked_at_once_each() {
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let span = random.u32(10..3000);
            let mut stretches: Vec<_> = (0..random.usize(..400))
                .map(|_| {
                    let start = random.u32(..span);
                    start..start + random.u32(..40)
                })
                .collect();
            stretches.sort_unstable_by_key(|stretch| stretch.start);
            let mut blocks: Vec<_> = (0..random.usize(..400))
                .map(|_| random.u32(..span))
                .collect();
            blocks.sort_unstable();
            let steps = Cell::new(0);
            let counted = || steps.set(steps.get() + 1);
            let each_stretch = || stretches.iter().cloned().inspect(|_| counted());
            let each_block = || blocks.iter().copied().inspect(|_| counted());
            let in_any = |block: &u32| stretches.iter().any(|s| s.contains(block));
            let expected: Vec<_> = blocks.iter().copied().filter(|b| !in_any(b)).collect();
            assert_eq!(
                outside(each_block(), each_stretch()),
                expected,
                "seed {seed}"
            );
            let expected: Vec<_> = stretches
                .iter()
                .map(|stretch| blocks.iter().any(|block| stretch.contains(block)))
                .collect();
            assert_eq!(
                have_any(each_stretch(), each_block()),
                expected,
                "seed {seed}"
            );
            let all = 2 * (stretches.len() + blocks.len());
            assert!(steps.get() <= all, "seed {seed}: {} of {all}", steps.get());
        }
    }
}
