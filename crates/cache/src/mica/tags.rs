//! Finding a tag in a bucket.

/// Words of a bucket.
const WORDS: usize = 8;
/// Bits of a match in the result of [`tag_matches`].
pub(crate) const MATCH_BITS: u32 = 4;

/// The upper one of four bits for each word whose upper 16 bits are `tag`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn tag_matches(words: &[u64; WORDS], tag: u16) -> u32 {
    let mut matches = 0;
    for (at, word) in words.iter().enumerate() {
        matches |= u32::from(word >> 48 == u64::from(tag)) << (at * 4 + 3);
    }
    matches
}

/// The upper one of four bits for each word whose upper 16 bits are `tag`: two words at a time are
/// compared in 16-bit lanes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn tag_matches(words: &[u64; WORDS], tag: u16) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_set_epi64x, _mm_set1_epi16,
    };
    // SAFETY: every x86-64 processor has these instructions, and they touch no memory.
    unsafe {
        let tags = _mm_set1_epi16(tag as i16);
        let pair = |at: usize| {
            let two = _mm_set_epi64x(words[at + 1] as i64, words[at] as i64);
            _mm_cmpeq_epi16(two, tags)
        };
        // A lane becomes a byte, and its sign a bit: four bits a word, the tag's is the upper one.
        let low = _mm_movemask_epi8(_mm_packs_epi16(pair(0), pair(2))) as u32;
        let high = _mm_movemask_epi8(_mm_packs_epi16(pair(4), pair(6))) as u32;
        (low | high << 16) & 0x8888_8888
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_are_the_words_with_the_tag_whatever_else_they_hold() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..1000 {
            // Few values, so that the lanes below often hold the tag as well.
            let tag = [1, 2, 0x8000, 0xffff][random.usize(..4)];
            let words: [u64; WORDS] = std::array::from_fn(|_| {
                (0..4).fold(0, |word, _| {
                    word << 16 | [0, 1, 0x8000, 0xffff][random.usize(..4)]
                })
            });
            let expected = (0..WORDS)
                .filter(|at| words[*at] >> 48 == u64::from(tag))
                .fold(0, |matches, at| matches | 8 << (at * 4));
            assert_eq!(tag_matches(&words, tag), expected);
        }
    }
}
