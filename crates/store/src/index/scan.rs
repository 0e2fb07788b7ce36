//! Looking through a line for a tag, as many slots at once as the processor can.
#![allow(unsafe_code)]

use super::entry::{KIND_MASK, MARK};
use super::region::{Line, SLOTS};
use super::sync::Ordering;

/// What a processor can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    /// A slot at a time.
    Word,
    /// Four slots at a time.
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
    Avx2,
    /// A line at a time.
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
    Avx512,
}

impl Width {
    /// Of this processor.
    pub(super) fn here() -> Self {
        #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
        if is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("popcnt") {
            if is_x86_feature_detected!("avx512f") {
                return Width::Avx512;
            }
            if is_x86_feature_detected!("avx2") {
                return Width::Avx2;
            }
        }
        Width::Word
    }

    /// All that this processor can do.
    #[cfg(test)]
    pub(super) fn all_here() -> Vec<Self> {
        match Width::here() {
            Width::Word => vec![Width::Word],
            #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
            Width::Avx2 => vec![Width::Word, Width::Avx2],
            // Processors that can do this can do that.
            #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
            Width::Avx512 => vec![Width::Word, Width::Avx2, Width::Avx512],
        }
    }
}

/// A way to look through a line.
pub(super) trait Scan {
    /// The slots of a line with entries of this kind, and those with marks, a bit each. Empty slots are
    /// of kind zero.
    ///
    /// # Safety
    /// The processor can do it.
    unsafe fn slots(line: &Line, kind: u64) -> (u32, u32);
}

/// A slot at a time.
pub(super) struct Word;

impl Scan for Word {
    #[inline(always)]
    unsafe fn slots(line: &Line, kind: u64) -> (u32, u32) {
        (0..SLOTS).fold((0, 0), |(found, marks), slot| {
            let entry = line.0[slot].load(Ordering::Relaxed);
            let is_found = u32::from((entry ^ kind) & KIND_MASK == 0);
            let is_marked = u32::from(entry & MARK != 0);
            (found | is_found << slot, marks | is_marked << slot)
        })
    }
}

#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
pub(super) use vectors::{Avx2, Avx512};

#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
mod vectors {
    use std::arch::asm;
    use std::arch::x86_64::{
        __m256i, __m512i, _mm256_and_si256, _mm256_castsi256_pd, _mm256_cmpeq_epi64,
        _mm256_movemask_pd, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_slli_epi64,
        _mm256_xor_si256, _mm512_set1_epi64, _mm512_test_epi64_mask, _mm512_testn_epi64_mask,
        _mm512_xor_si512,
    };

    use super::{KIND_MASK, Line, MARK, Scan};

    // Other threads change the slots meanwhile. The language has no vectors of atomics, so the loads
    // are the processor's own: each aligned word of a vector is loaded whole on every x86-64 that has
    // AVX2, and loads keep their order, so that these are loads like those of `Word`.

    /// Four slots at a time.
    pub(crate) struct Avx2;

    impl Scan for Avx2 {
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn slots(line: &Line, kind: u64) -> (u32, u32) {
            let (low, high): (__m256i, __m256i);
            // SAFETY: reads the 64 bytes of the line, which is aligned, and nothing else.
            unsafe {
                asm!(
                    "vmovdqa {low}, ymmword ptr [{line}]",
                    "vmovdqa {high}, ymmword ptr [{line} + 32]",
                    line = in(reg) std::ptr::from_ref(line),
                    low = lateout(ymm_reg) low,
                    high = out(ymm_reg) high,
                    options(nostack, preserves_flags, readonly),
                );
            }
            let kinds = _mm256_set1_epi64x(kind as i64);
            let mask = _mm256_set1_epi64x(KIND_MASK as i64);
            let slots = |words: __m256i| {
                let other = _mm256_and_si256(_mm256_xor_si256(words, kinds), mask);
                let same = _mm256_cmpeq_epi64(other, _mm256_setzero_si256());
                // The mark becomes the sign, of which the mask is made.
                let signs = _mm256_slli_epi64::<{ 63 - MARK.trailing_zeros() as i32 }>(words);
                let mask = |words| _mm256_movemask_pd(_mm256_castsi256_pd(words)) as u32;
                (mask(same), mask(signs))
            };
            let (low, high) = (slots(low), slots(high));
            (low.0 | high.0 << 4, low.1 | high.1 << 4)
        }
    }

    /// A line at a time.
    pub(crate) struct Avx512;

    impl Scan for Avx512 {
        #[inline]
        #[target_feature(enable = "avx512f")]
        unsafe fn slots(line: &Line, kind: u64) -> (u32, u32) {
            let words: __m512i;
            // SAFETY: reads the 64 bytes of the line, which is aligned, and nothing else.
            unsafe {
                asm!(
                    "vmovdqa64 {words}, zmmword ptr [{line}]",
                    line = in(reg) std::ptr::from_ref(line),
                    words = lateout(zmm_reg) words,
                    options(nostack, preserves_flags, readonly),
                );
            }
            let other = _mm512_xor_si512(words, _mm512_set1_epi64(kind as i64));
            let found = _mm512_testn_epi64_mask(other, _mm512_set1_epi64(KIND_MASK as i64));
            let marks = _mm512_test_epi64_mask(words, _mm512_set1_epi64(MARK as i64));
            (u32::from(found), u32::from(marks))
        }
    }
}

#[cfg(all(test, target_arch = "x86_64", not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn all_widths_find_the_same_slots() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let line = Line::default();
            let kind = random.u64(0..4) << 12;
            for slot in &line.0 {
                let upper = random.u64(..) << 14;
                slot.store(upper | random.u64(0..4) << 12, Ordering::Relaxed);
            }
            // SAFETY: a slot at a time is always possible.
            let expected = unsafe { Word::slots(&line, kind) };
            if is_x86_feature_detected!("avx2") {
                // SAFETY: it can.
                assert_eq!(unsafe { Avx2::slots(&line, kind) }, expected);
            }
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: it can.
                assert_eq!(unsafe { Avx512::slots(&line, kind) }, expected);
            }
        }
    }
}
