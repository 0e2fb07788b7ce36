//! Which slots of a line hold something, as whoever holds the region's lock sees it.
#![allow(unsafe_code)]

use super::entry::{EMPTY, MARK};
use super::region::Line;
#[cfg(any(test, loom, miri, not(target_arch = "x86_64")))]
use super::region::SLOTS;

/// Slots of a line: two bits each, of which the lower one counts. That is how vectors of bytes come.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Slots(u16);

impl Slots {
    /// Those with this entry. The lock is held.
    #[inline(always)]
    pub(super) fn with(line: &Line, entry: u64) -> Self {
        matching(line, !MARK, entry)
    }

    /// Those without an entry. The lock is held.
    #[inline(always)]
    pub(super) fn empty(line: &Line) -> Self {
        Slots::with(line, EMPTY)
    }

    /// Those with a mark. The lock is held.
    #[inline(always)]
    pub(super) fn marked(line: &Line) -> Self {
        matching(line, MARK, MARK)
    }

    /// The first of them, if there is one.
    #[inline(always)]
    pub(super) fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize / 2)
    }

    #[inline(always)]
    pub(super) fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there are so many, which is easier to tell than how many there are.
    #[inline(always)]
    pub(super) fn are_at_least(self, count: u32) -> bool {
        let rest = (1..count).fold(self.0, |rest, _| rest & rest.wrapping_sub(1));
        rest != 0
    }

    /// Adds a slot, without a branch, where nobody can foresee which ones it is.
    #[inline(always)]
    pub(super) fn add_if(&mut self, slot: usize, condition: bool) {
        self.0 |= u16::from(condition) << (2 * slot);
    }

    /// Those that are in one of both only.
    #[inline(always)]
    pub(super) fn differing(self, others: Self) -> Self {
        Slots(self.0 ^ others.0)
    }
}

impl Iterator for Slots {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let slot = self.first()?;
        self.0 &= self.0 - 1;
        Some(slot)
    }
}

/// The slots that are `value` where `mask` has ones.
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[inline(always)]
fn matching(line: &Line, mask: u64, value: u64) -> Slots {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi32, _mm_load_si128, _mm_movemask_epi8,
        _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi64x,
    };
    // SAFETY: every x86-64 has SSE2. A line is 64 bytes, aligned to 64. Only whoever holds the lock of its
    // region stores to it, and that is the caller: what others do meanwhile are atomic loads.
    let bytes = unsafe {
        let (mask, value) = (_mm_set1_epi64x(mask as i64), _mm_set1_epi64x(value as i64));
        let pairs = std::ptr::from_ref(line).cast::<__m128i>();
        // Halves of words that are as they should be, all ones each.
        let same = |pair| {
            let words = _mm_and_si128(_mm_load_si128(pairs.add(pair)), mask);
            _mm_cmpeq_epi32(words, value)
        };
        let low = _mm_packs_epi32(same(0), same(1));
        let high = _mm_packs_epi32(same(2), same(3));
        _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u16
    };
    // Both halves of a word.
    Slots(bytes & bytes >> 1 & 0x5555)
}

/// The same a slot at a time.
#[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
fn matching(line: &Line, mask: u64, value: u64) -> Slots {
    by_word(line, mask, value)
}

#[cfg(any(test, loom, miri, not(target_arch = "x86_64")))]
fn by_word(line: &Line, mask: u64, value: u64) -> Slots {
    use super::sync::load_locked;

    let mut slots = Slots::default();
    for slot in 0..SLOTS {
        slots.add_if(slot, load_locked(&line.0[slot]) & mask == value);
    }
    slots
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::index::sync::Ordering;

    #[test]
    fn vectors_find_what_words_do() {
        let mut random = fastrand::Rng::with_seed(5);
        // Some differ in one half only.
        let words = [
            EMPTY,
            MARK,
            1,
            1 << 32,
            1 << 40 | 1,
            MARK | 1 << 40,
            u64::MAX,
        ];
        for _ in 0..20_000 {
            let line = Line::default();
            for slot in &line.0 {
                slot.store(words[random.usize(..words.len())], Ordering::Relaxed);
            }
            for value in words {
                for mask in [!MARK, MARK, u64::MAX] {
                    let found = matching(&line, mask, value);
                    assert!(found == by_word(&line, mask, value));
                    let numbers: Vec<_> = found.collect();
                    let is = |slot: &usize| line.0[*slot].load(Ordering::Relaxed) & mask == value;
                    assert!(numbers.iter().copied().eq((0..SLOTS).filter(is)));
                    assert_eq!(found.first(), numbers.first().copied());
                    assert_eq!(found.count() as usize, numbers.len());
                    for count in 1..=9 {
                        assert_eq!(found.are_at_least(count), found.count() >= count);
                    }
                }
            }
        }
    }
}
