//! The lossy index: buckets of one cache line, eight slots each.
//!
//! ```text
//! slot   63        48 47                                      0
//!       +------------+-----------------------------------------+
//!       |    tag     |  log offset in units of 8 bytes, mod 2^48 |
//!       +------------+-----------------------------------------+
//! ```
//! The word zero is an empty slot; a tag is never zero, so no slot in use is.

#![forbid(unsafe_code)]

use super::arena::{Line, Span};
use super::hash::KeyHash;
use super::tags::{MATCH_BITS, tag_matches};
use verbs::mem::prefetch;

/// Bytes of a bucket.
pub(crate) const BUCKET_BYTES: usize = size_of::<Line>();
/// Slots of a bucket.
pub(crate) const SLOTS: usize = 8;

const OFFSET_BITS: u32 = 48;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// The part of the log that slots may refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValidRange {
    /// Offset of the next entry.
    pub(crate) head: u64,
    /// Units before it that are valid.
    pub(crate) len: u64,
}

impl ValidRange {
    /// The full offset that `slot` refers to, if it is in the valid range.
    ///
    /// A slot must not be older than 2^48 units: [`Index::sweep`] sees to that.
    #[inline]
    pub(crate) fn offset(self, slot: u64) -> Option<u64> {
        self.offset_of_used(slot).filter(|_| slot != 0)
    }

    /// As [`offset`](Self::offset), for a slot that is not empty.
    #[inline]
    fn offset_of_used(self, slot: u64) -> Option<u64> {
        let age = self.age(slot);
        (age.wrapping_sub(1) < self.len).then(|| self.head - age)
    }

    /// Whether an offset is in the valid range, whatever it is.
    #[inline]
    pub(crate) fn holds(self, offset: u64) -> bool {
        self.head.wrapping_sub(offset).wrapping_sub(1) < self.len
    }

    #[inline]
    fn age(self, slot: u64) -> u64 {
        self.head.wrapping_sub(slot) & OFFSET_MASK
    }
}

/// Where a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotAt {
    bucket: usize,
    slot: usize,
}

/// The slot that an insertion may take.
pub(crate) struct Vacancy {
    pub(crate) at: SlotAt,
    /// Offset of the entry that loses its slot.
    pub(crate) evicted: Option<u64>,
}

pub(crate) struct Index {
    buckets: Span<Line>,
    /// The bucket that is swept next.
    sweep_next: usize,
}

impl Index {
    /// Over zeroed buckets, at least one.
    pub(crate) fn new(buckets: Span<Line>) -> Index {
        Index {
            buckets,
            sweep_next: 0,
        }
    }

    pub(crate) fn buckets(&self) -> u64 {
        self.buckets.len() as u64
    }

    #[inline]
    fn bucket(&self, hash: KeyHash) -> usize {
        hash.bucket(self.buckets.len() as u64) as usize
    }

    /// Starts loading the bucket of `hash`.
    #[inline]
    pub(crate) fn prefetch(&self, hash: KeyHash) {
        // Nothing is read, so that no bound needs a check.
        prefetch(self.buckets.as_ptr().wrapping_add(self.bucket(hash)));
    }

    /// The offsets that the slots in the valid range with the tag of `hash` refer to.
    #[inline]
    pub(crate) fn candidates(&self, hash: KeyHash, valid: ValidRange) -> impl Iterator<Item = u64> {
        let slots = &self.buckets[self.bucket(hash)].0;
        // One pass without branches finds the tags; the loop over its result
        // nearly always has one round.
        let mut matches = tag_matches(slots, hash.tag());
        std::iter::from_fn(move || {
            while matches != 0 {
                let slot = (matches.trailing_zeros() / MATCH_BITS) as usize % SLOTS;
                matches &= matches - 1;
                // A tag is never zero.
                if let Some(offset) = valid.offset_of_used(slots[slot]) {
                    return Some(offset);
                }
            }
            None
        })
    }

    /// A slot for a new key: one that is empty or outside the valid range, else that
    /// of the bucket's oldest entry.
    pub(crate) fn vacancy(&self, hash: KeyHash, valid: ValidRange) -> Vacancy {
        let bucket = self.bucket(hash);
        let mut slot_oldest = 0;
        let mut oldest = u64::MAX;
        for (slot, word) in self.buckets[bucket].0.iter().enumerate() {
            match valid.offset(*word) {
                None => {
                    return Vacancy {
                        at: SlotAt { bucket, slot },
                        evicted: None,
                    };
                }
                Some(offset) if offset < oldest => (slot_oldest, oldest) = (slot, offset),
                Some(_) => {}
            }
        }
        Vacancy {
            at: SlotAt {
                bucket,
                slot: slot_oldest,
            },
            evicted: Some(oldest),
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, at: SlotAt, hash: KeyHash, offset: u64) {
        self.buckets[at.bucket].0[at.slot] = word(hash, offset);
    }

    /// Lets the slot that refers to the live entry at `old` refer to `offset`, or to nothing.
    pub(crate) fn replace(&mut self, hash: KeyHash, old: u64, offset: Option<u64>) {
        let bucket = self.bucket(hash);
        let before = word(hash, old);
        let slots = &mut self.buckets[bucket].0;
        let slot = slots.iter_mut().find(|slot| **slot == before);
        debug_assert!(slot.is_some(), "a live entry has a slot");
        if let Some(slot) = slot {
            *slot = offset.map_or(0, |offset| word(hash, offset));
        }
    }

    /// Empties the slots outside the valid range in the next bucket, round and round.
    pub(crate) fn sweep(&mut self, valid: ValidRange) {
        for word in &mut self.buckets[self.sweep_next].0 {
            if valid.offset(*word).is_none() {
                *word = 0;
            }
        }
        self.sweep_next = (self.sweep_next + 1) % self.buckets.len();
    }

    /// Slots that are not empty, whatever they refer to.
    #[cfg(test)]
    pub(crate) fn slots_in_use(&self) -> usize {
        let slots = self.buckets.iter().flat_map(|bucket| &bucket.0);
        slots.filter(|slot| **slot != 0).count()
    }

    /// The offsets that slots in the valid range refer to.
    pub(crate) fn offsets(&self, valid: ValidRange) -> impl Iterator<Item = u64> {
        let slots = self.buckets.iter().flat_map(|bucket| &bucket.0);
        slots.filter_map(move |slot| valid.offset(*slot))
    }
}

/// A slot that refers to `offset`.
#[inline]
fn word(hash: KeyHash, offset: u64) -> u64 {
    u64::from(hash.tag()) << OFFSET_BITS | offset & OFFSET_MASK
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mica::arena::{Arena, PagePolicy};

    fn index(buckets: usize) -> Index {
        let mut arena = Arena::new(buckets * BUCKET_BYTES, PagePolicy::Plain).unwrap();
        Index::new(arena.carve(buckets))
    }

    fn hash(tag: u16, bucket: u32) -> KeyHash {
        KeyHash::from_bits(u64::from(tag) << 48 | u64::from(bucket))
    }

    fn insert(index: &mut Index, hash: KeyHash, offset: u64, valid: ValidRange) -> Option<u64> {
        let vacancy = index.vacancy(hash, valid);
        index.set(vacancy.at, hash, offset);
        vacancy.evicted
    }

    #[test]
    fn valid_range_is_exact_at_both_ends_and_across_the_slot_width() {
        for head in [100, 1 << 48, (1 << 48) + 5, (1 << 48) - 1, 3 << 48 | 17] {
            let valid = ValidRange { head, len: 40 };
            let slot = |age: u64| 1 << 48 | (head - age) & OFFSET_MASK;
            assert_eq!(valid.offset(slot(0)), None);
            assert_eq!(valid.offset(slot(1)), Some(head - 1));
            assert_eq!(valid.offset(slot(40)), Some(head - 40));
            assert_eq!(valid.offset(slot(41)), None);
            assert_eq!(valid.offset(0), None);
        }
    }

    /// Faults: slot 0 never used; "oldest" picks the newest.
    #[test]
    fn all_eight_slots_are_used_before_the_oldest_entry_is_evicted() {
        let mut index = index(1);
        let valid = ValidRange {
            head: 1000,
            len: 1000,
        };
        // Written in an order in which the oldest is neither first nor last.
        let offsets = [50, 70, 20, 10, 30, 90, 80, 60];
        for (tag, offset) in (0..).zip(offsets) {
            assert_eq!(insert(&mut index, hash(tag, 0), offset, valid), None);
        }
        assert_eq!(index.offsets(valid).count(), SLOTS);
        assert_eq!(insert(&mut index, hash(9, 0), 100, valid), Some(10));
        assert_eq!(insert(&mut index, hash(10, 0), 110, valid), Some(20));
    }

    /// Fault: lookup and insertion choose different slots for equal tags.
    #[test]
    fn all_slots_of_equal_tag_are_candidates() {
        let mut index = index(3);
        let valid = ValidRange {
            head: 1000,
            len: 1000,
        };
        let bucket = u32::MAX / 2;
        for offset in 1..=8 {
            insert(&mut index, hash(7, bucket), offset, valid);
        }
        let found = |hash, valid| {
            let mut offsets: Vec<_> = index.candidates(hash, valid).collect();
            offsets.sort_unstable();
            offsets
        };
        assert_eq!(found(hash(7, bucket), valid), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(found(hash(8, bucket), valid).is_empty());
        assert!(found(hash(7, 0), valid).is_empty());
        let half = ValidRange { len: 996, ..valid };
        assert_eq!(found(hash(7, bucket), half), [4, 5, 6, 7, 8]);
    }

    #[test]
    fn sweeping_empties_slots_before_their_offsets_come_round_again() {
        let mut index = index(5);
        let valid = ValidRange { head: 90, len: 80 };
        for bucket in 0..5 {
            let hash = hash(1, bucket * (u32::MAX / 5) + 9);
            insert(&mut index, hash, 10, valid);
            insert(&mut index, hash, 60, valid);
        }
        let later = ValidRange { head: 130, len: 80 };
        let alias = ValidRange {
            head: (1 << 48) + 90,
            len: 80,
        };
        assert_eq!(
            index.offsets(alias).count(),
            10,
            "without a sweep they are back"
        );
        for _ in 0..5 {
            index.sweep(later);
        }
        assert_eq!(index.offsets(later).count(), 5);
        assert_eq!(index.offsets(alias).count(), 5);
    }
}
