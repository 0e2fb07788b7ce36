//! How much of a store its live records take, and how much they may take so that each of them can be written over.
//!
//! Whoever writes over a record needs room in the log, which comes from moving what is live out of the emptiest
//! segments. So what is let in is counted as what it takes when it has been moved, and the ends of segments count that
//! are left because the next record is too long for them:
//!
//! - Of records of which k fit a segment, each counts as one of k, so that three of .3 segments count as a whole one.
//!   If others are shorter, they count as much, and this is the best bound of a store of nearly equal values.
//! - A segment is left with less than 1/k of it unused if k of the longest records fit. So bytes may fill 1 - 1/k of
//!   the segments; and half of them whatever the lengths, since two segments that follow each other hold more than fits
//!   one.
//! - Only long records leave long ends, each less than its own length, and at most 1/16 is lost to others. So bytes may
//!   fill 15/16 of the segments if records of which less than 16 fit a segment count twice.
//!
//! One of these has to hold of what is live and what is being written. All of them go on to hold if a record takes the
//! place of one that is as long or longer. A copy is longer than its record was: what counts is how long that was written,
//! or each record could grow by the difference whenever it has been moved.
//!
//! Four segments do not count: the users' open one, that of who moves, and two that users leave to whoever moves. Of the
//! others one in 64 is kept back, so that moving gains a segment with so many collections at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::format::layout::Layout;
use crate::format::record::ORIGIN_LEN;
use crate::index::SizeCode;
use crate::mover;
use crate::shared::Shared;

/// Segments that hold nothing for long.
const SET_ASIDE: u64 = 4;
/// Records of which fewer fit a segment are long.
const LONG: u64 = 16;
/// Classes of records: each number from 1 to 15 that fit a segment has its own, and then each power of two.
const CLASSES: usize = 21;
/// How many of the longest records of a class fit a segment.
const FIT: [u64; CLASSES] = {
    let mut fit = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let number = class as u64 + 1;
        fit[class] = if number < LONG {
            number
        } else {
            LONG << (number - LONG)
        };
        class += 1;
    }
    fit
};

/// How full a store is.
pub(crate) struct Fill {
    bounds: Bounds,
    /// What records count that stand where they were written, and copies, by the codes of their lengths.
    weights: Box<[[Weight; SizeCode::COUNT]; 2]>,
    /// What the index points at.
    live: Tally,
    /// What was let in, and the index does not point at yet.
    promised: Tally,
}

/// Records, as they are when they have been moved.
#[derive(Default)]
struct Tally {
    grains: AtomicU64,
    classes: [AtomicU64; CLASSES],
}

/// What a store of some geometry takes up, in grains.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// What a record grows by.
    grows: u64,
    /// Of a segment that records are moved to: what is left for them by headers and by the blocks that batches do not
    /// fill.
    segment: u64,
    /// What all segments that count hold.
    whole: u64,
    /// What may be live whatever the rest says.
    share: u64,
}

/// What one record counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Grains of it as it is.
    pub(crate) len: u64,
    /// What it counts of its segment beside that, if it is long.
    pub(crate) end: u64,
    /// Grains of it when it has been moved.
    grains: u64,
    class: usize,
}

impl Weight {
    /// Whether two records count alike when both have been moved.
    pub(crate) fn is_alike(self, other: Self) -> bool {
        (self.grains, self.class) == (other.grains, other.class)
    }
}

impl Bounds {
    fn new(layout: &Layout, live_share: f64) -> Self {
        let segment_grains = layout.segment_bytes() >> layout.grain_shift;
        let whole = u64::from(layout.segments) * segment_grains;
        let blocks = u64::from(layout.copy_block() - 1);
        let bytes = blocks << layout.block_shift;
        // Each batch has a header, and all but the last a block that it does not fill: what the last one leaves is the
        // segment's end. A segment that holds no two collections begins with what another one had no room for and ends
        // with the next one's; other batches are half as long at least as the longest.
        let full = bytes / (mover::BATCH as u64 / 2);
        let lost = (1 + full) * layout.block() as u64 + (2 + full) * layout.batch_start() as u64;
        let segment = bytes.saturating_sub(lost).max(bytes / 4) >> layout.grain_shift;
        let counted = u64::from(layout.segments).saturating_sub(SET_ASIDE);
        Self {
            grows: ORIGIN_LEN.div_ceil(layout.grain()) as u64,
            segment,
            whole: counted * segment / 64 * 63,
            share: (whole as f64 * live_share) as u64,
        }
    }

    fn weight(&self, size: SizeCode, is_copy: bool) -> Weight {
        // No segment holds a record whose length its place does not tell.
        let len = size.grains().unwrap_or(0);
        let grains = if is_copy {
            len.max(1)
        } else {
            len + self.grows
        };
        let fit = (self.segment / grains).max(1);
        let class = match fit {
            LONG.. => (LONG - 1) as usize + (fit / LONG).ilog2() as usize,
            _ => fit as usize - 1,
        };
        let class = class.min(CLASSES - 1);
        Weight {
            len,
            end: match FIT[class] {
                LONG.. => 0,
                fit => self.segment / fit,
            },
            grains,
            class,
        }
    }

    fn grains_max(&self) -> u64 {
        self.share.min(self.whole)
    }

    /// Whether so many grains of so many records of each class may be live. Says by what the emptiest segment is told
    /// then, which is less full than those that its records are moved to.
    fn admit(&self, grains: u64, classes: impl Fn(usize) -> u64) -> Option<Measure> {
        if grains > self.share {
            return None;
        }
        if 2 * grains <= self.whole {
            return Some(Measure::Bytes);
        }
        let (mut all, mut long, mut fit) = (0, 0, 0);
        for (class, &of_class) in FIT.iter().enumerate() {
            let records = classes(class);
            all += records;
            if records > 0 && fit == 0 {
                fit = of_class;
            }
            if of_class < LONG {
                long += records * (self.segment / of_class);
            }
        }
        let fit = fit.max(1);
        let by_number = all * self.segment <= self.whole * fit;
        if by_number || grains <= self.whole / fit * (fit - 1) {
            return Some(Measure::Bytes);
        }
        let by_long = grains + long <= self.whole / LONG * (LONG - 1);
        by_long.then_some(Measure::BytesAndEnds)
    }
}

/// By what the emptiest segment is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Bytes,
    /// Long records count twice.
    BytesAndEnds,
}

impl Tally {
    fn add(&self, weight: Weight) {
        self.grains.fetch_add(weight.grains, Ordering::Relaxed);
        self.classes[weight.class].fetch_add(1, Ordering::Relaxed);
    }

    fn sub(&self, weight: Weight) {
        self.grains.fetch_sub(weight.grains, Ordering::Relaxed);
        self.classes[weight.class].fetch_sub(1, Ordering::Relaxed);
    }
}

impl Fill {
    /// An empty store of this geometry, of which live records may take this share.
    pub(crate) fn new(layout: &Layout, live_share: f64) -> Self {
        let bounds = Bounds::new(layout, live_share);
        let sizes = SizeCode::all();
        let weights = [false, true].map(|is_copy| sizes.map(|size| bounds.weight(size, is_copy)));
        Self {
            bounds,
            weights: Box::new(weights),
            live: Tally::default(),
            promised: Tally::default(),
        }
    }

    /// What a record of this length counts; that of a copy includes what the record has grown by.
    pub(crate) fn weight(&self, size: SizeCode, is_copy: bool) -> Weight {
        self.weights[usize::from(is_copy)][usize::from(size.bits())]
    }

    /// The index points at such a record from now on.
    pub(crate) fn add(&self, weight: Weight) {
        self.live.add(weight);
    }

    /// The index does not point at it any more.
    pub(crate) fn sub(&self, weight: Weight) {
        self.live.sub(weight);
    }

    /// Grains that live records take, as they are when they have been moved.
    pub(crate) fn grains(&self) -> u64 {
        self.live.grains.load(Ordering::Relaxed)
    }

    /// How many grains records may take of which very many fit a segment.
    pub(crate) fn grains_max(&self) -> u64 {
        self.bounds.grains_max()
    }

    /// By what the emptiest segment is told.
    pub(crate) fn measure(&self) -> Measure {
        self.admit(None).unwrap_or(Measure::Bytes)
    }

    /// Whether what is live, what is promised and one more record may be live.
    fn admit(&self, more: Option<Weight>) -> Option<Measure> {
        let tallies = [&self.live, &self.promised];
        let grains = tallies.map(|tally| tally.grains.load(Ordering::Relaxed));
        let grains = grains[0] + grains[1] + more.map_or(0, |more| more.grains);
        self.bounds.admit(grains, |class| {
            let records = tallies.map(|tally| tally.classes[class].load(Ordering::Relaxed));
            records[0] + records[1] + u64::from(more.is_some_and(|more| more.class == class))
        })
    }
}

/// What [`crate::Store::live_bytes_max`] says of a store of this geometry.
pub(crate) fn live_bytes_max(layout: &Layout, live_share: f64) -> u64 {
    Bounds::new(layout, live_share).grains_max() << layout.grain_shift
}

/// Whether a store takes a record up.
pub(crate) enum LetIn {
    /// It does. The promise is kept until the index points at the record, or never will.
    Yes(Option<Promise>),
    /// It does if the record takes the place of one that is as long, as is said.
    IfReplaces,
}

/// Room for a record that is being written.
pub(crate) struct Promise {
    shared: Arc<Shared>,
    weight: Weight,
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.shared.fill.promised.sub(self.weight);
    }
}

impl LetIn {
    /// Decides of a record. `replaces` says whether it takes the place of one that was as long when it was written. Nothing if
    /// the store is full. A cache evicts instead.
    pub(crate) fn decide(
        shared: &Arc<Shared>,
        record_len: usize,
        replaces: impl FnOnce(SizeCode) -> bool,
    ) -> Option<Self> {
        if shared.superblock.cache {
            return Some(Self::Yes(None));
        }
        let size = SizeCode::of(record_len.div_ceil(shared.layout().grain()) as u64);
        let weight = shared.fill.weight(size, false);
        if replaces(size) {
            let may = shared.fill.admit(Some(weight)).is_some();
            return Some(if may {
                Self::Yes(None)
            } else {
                Self::IfReplaces
            });
        }
        shared.fill.promised.add(weight);
        let promise = Promise {
            shared: shared.clone(),
            weight,
        };
        let may = shared.fill.admit(None).is_some();
        may.then_some(Self::Yes(Some(promise)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAIN: usize = 4;

    /// Of 16 segments of 1 MiB, with blocks of 4 KiB.
    fn bounds() -> Bounds {
        let layout = Layout::new((64 << 10) + (16 << 20), 4096, Some(1 << 20)).expect("a layout");
        Bounds::new(&layout, 1.0)
    }

    /// How many records of the lengths in turn are let in.
    fn filled(lens: &[usize]) -> usize {
        let bounds = bounds();
        let (mut grains, mut classes) = (0, [0; CLASSES]);
        for (number, len) in lens.iter().cycle().enumerate() {
            let weight = bounds.weight(SizeCode::of(len.div_ceil(GRAIN) as u64), false);
            grains += weight.grains;
            classes[weight.class] += 1;
            if bounds.admit(grains, |class| classes[class]).is_none() {
                return number;
            }
        }
        unreachable!("there is an end to it");
    }

    #[test]
    fn records_of_nearly_one_length_count_as_what_they_take_of_a_segment() {
        // One, two and three of them fit.
        assert_eq!(filled(&[600 << 10]), 11);
        assert_eq!(filled(&[400 << 10]), 23);
        assert_eq!(filled(&[300 << 10]), 35);
        assert!(
            filled(&[300 << 10, 10 << 10]) >= 35,
            "shorter ones count less"
        );
    }

    #[test]
    fn few_long_records_cost_little() {
        let short = [10 << 10; 500];
        let mut lens = short;
        lens[50] = 400 << 10;
        let bytes = |lens: &[usize]| lens.iter().cycle().take(filled(lens)).sum::<usize>();
        assert!(bytes(&short) > 10 << 20, "{}", bytes(&short));
        assert!(bytes(&lens) > 9 << 20, "{}", bytes(&lens));
    }

    #[test]
    fn what_is_let_in_may_be_replaced_by_what_is_shorter() {
        let bounds = bounds();
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let (mut grains, mut classes) = (0, [0; CLASSES]);
            let mut records = Vec::new();
            let longest = random.usize(1 << 10..1 << 20);
            loop {
                let len = random.usize(..longest);
                let weight = bounds.weight(SizeCode::of(len.div_ceil(GRAIN) as u64), false);
                let of = |class| classes[class] + u64::from(class == weight.class);
                if bounds.admit(grains + weight.grains, of).is_none() {
                    break;
                }
                grains += weight.grains;
                classes[weight.class] += 1;
                records.push((len, weight));
            }
            random.shuffle(&mut records);
            for (len, old) in records {
                let new = random.usize(..=len);
                let new = bounds.weight(SizeCode::of(new.div_ceil(GRAIN) as u64), false);
                grains = grains + new.grains - old.grains;
                classes[old.class] -= 1;
                classes[new.class] += 1;
                assert!(bounds.admit(grains, |class| classes[class]).is_some());
            }
        }
    }
}
