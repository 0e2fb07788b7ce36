//! `bitmap4`: sets of attributes, of operations, of hints.

use std::fmt;

use crate::xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// Words that are kept: 128 numbers. RFC 7862 and its extensions use 87 (attributes) and 76
/// (operations).
const WORDS: usize = 4;

/// A set of small numbers (`uint32_t bitmap4<>`; number n is bit n mod 32 of word n / 32). Without
/// allocation: words beyond the fourth are passed over, and only remembered to have had bits.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct Bitmap4 {
    words: [u32; WORDS],
    beyond: bool,
}

impl Bitmap4 {
    /// The empty set.
    pub const EMPTY: Self = Self {
        words: [0; WORDS],
        beyond: false,
    };

    /// These numbers.
    ///
    /// # Panics
    /// If one is 128 or more.
    #[must_use]
    pub const fn of(numbers: &[u32]) -> Self {
        let mut set = Self::EMPTY;
        let mut at = 0;
        while at < numbers.len() {
            let number = numbers[at] as usize;
            set.words[number / 32] |= 1 << (number % 32);
            at += 1;
        }
        set
    }

    /// Whether a number is in it.
    #[must_use]
    pub const fn has(&self, number: u32) -> bool {
        let word = number as usize / 32;
        word < WORDS && self.words[word] >> (number % 32) & 1 == 1
    }

    /// Adds a number.
    ///
    /// # Panics
    /// If it is 128 or more.
    pub fn add(&mut self, number: u32) {
        *self = self.union(&Self::of(&[number]));
    }

    /// Those that are in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.with(other, |a, b| a & b, self.beyond && other.beyond)
    }

    /// Those that are in one or both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.with(other, |a, b| a | b, self.beyond || other.beyond)
    }

    /// Those that are not in the other.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.with(other, |a, b| a & !b, self.beyond)
    }

    /// Whether there are none, also none above 127.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS] && !self.beyond
    }

    /// Whether the peer's set had numbers above 127, which are forgotten.
    #[must_use]
    pub const fn has_beyond(&self) -> bool {
        self.beyond
    }

    /// The numbers, the lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        let mut words = self.words;
        std::iter::from_fn(move || {
            let at = words.iter().position(|word| *word != 0)?;
            let bit = words[at].trailing_zeros();
            words[at] &= words[at] - 1;
            Some(at as u32 * 32 + bit)
        })
    }

    fn with(&self, other: &Self, by: impl Fn(u32, u32) -> u32, beyond: bool) -> Self {
        let words = std::array::from_fn(|at| by(self.words[at], other.words[at]));
        Self { words, beyond }
    }
}

impl FromIterator<u32> for Bitmap4 {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut set = Self::EMPTY;
        numbers.into_iter().for_each(|number| set.add(number));
        set
    }
}

impl fmt::Debug for Bitmap4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beyond = self.beyond.then_some("beyond");
        f.debug_set().entries(self.iter()).entries(beyond).finish()
    }
}

impl Decode<'_> for Bitmap4 {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let count = from.len(u32::MAX as usize)?;
        let mut set = Self::EMPTY;
        for at in 0..count {
            let word: u32 = from.take()?;
            match set.words.get_mut(at) {
                Some(place) => *place = word,
                None => set.beyond |= word != 0,
            }
        }
        Ok(set)
    }
}

/// Without trailing words of zeros.
impl Encode for Bitmap4 {
    fn encode(&self, to: &mut Encoder) {
        let used = self.words.iter().rposition(|word| *word != 0);
        let words = &self.words[..used.map_or(0, |last| last + 1)];
        to.len(words.len());
        words.iter().for_each(|word| to.put(word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{from_bytes, to_bytes};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_bitmap_is_a_set(a: BTreeSet<u8>, b: BTreeSet<u8>) {
            let below = |set: &BTreeSet<u8>| -> BTreeSet<u32> {
                set.iter().map(|n| u32::from(*n) % 128).collect()
            };
            let (a, b) = (below(&a), below(&b));
            let [x, y] = [&a, &b].map(|set| set.iter().copied().collect::<Bitmap4>());
            prop_assert_eq!(x.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert_eq!(x.and(&y).iter().collect::<BTreeSet<_>>(), &a & &b);
            prop_assert_eq!(x.union(&y).iter().collect::<BTreeSet<_>>(), &a | &b);
            prop_assert_eq!(x.without(&y).iter().collect::<BTreeSet<_>>(), &a - &b);
            prop_assert!((0..200).all(|n| x.has(n) == a.contains(&n)));
            prop_assert_eq!(from_bytes::<Bitmap4>(&to_bytes(&x)), Ok(x));
        }
    }

    #[test]
    fn words_beyond_the_fourth_are_only_remembered() {
        let words = [6u32, 1, 0, 0, 0, 0, 8].map(u32::to_be_bytes).concat();
        let set: Bitmap4 = from_bytes(&words).expect("a bitmap");
        assert!(set.has(0) && set.has_beyond() && !set.is_empty());
        let zeros = [5u32, 0, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
        let set: Bitmap4 = from_bytes(&zeros).expect("a bitmap");
        assert!(set.is_empty());
        assert_eq!(to_bytes(&set), [0; 4], "no words");
    }

    #[test]
    fn the_announced_number_of_words_is_not_believed() {
        let short = [u32::MAX, 1].map(u32::to_be_bytes).concat();
        assert_eq!(from_bytes::<Bitmap4>(&short), Err(XdrError::Short));
    }
}
