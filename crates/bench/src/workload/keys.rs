//! Keys of items: text of a fixed length, distinct, spread.

use super::shuffle::scramble;

/// Six bits a letter; all of them may stand in a Memcache key.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Letters that 64 bits fill.
const LETTERS_MAX: usize = 11;

/// How many distinct keys of this length there are, as far as 64 bits count.
pub(super) fn count_max(key_len: usize) -> u64 {
    if key_len >= LETTERS_MAX {
        u64::MAX
    } else {
        1 << (6 * key_len)
    }
}

/// Writes the key of an item over the whole of `key`.
///
/// Item numbers are scrambled, so that neighbours share no beginning; what is longer than 64 bits
/// take is padded in front.
pub fn write_key(item: u64, key: &mut [u8]) {
    let letters = key.len().min(LETTERS_MAX);
    let bits = (6 * letters as u32).clamp(1, 64);
    let mut left = scramble(item, bits, 0);
    for byte in key.iter_mut().rev().take(letters) {
        *byte = LETTERS[(left & 63) as usize];
        left >>= 6;
    }
    let padding = key.len() - letters;
    key[..padding].fill(b'.');
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn key(item: u64, len: usize) -> Vec<u8> {
        let mut key = vec![0; len];
        write_key(item, &mut key);
        key
    }

    #[test]
    fn keys_are_distinct() {
        for (len, count) in [(1, 64), (2, 4096), (3, 20_000), (16, 20_000), (40, 5000)] {
            let keys: HashSet<_> = (0..count).map(|item| key(item, len)).collect();
            assert_eq!(keys.len() as u64, count, "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn keys_are_words_of_their_length(item: u64, len in 1usize..=250) {
            let key = key(item, len);
            prop_assert_eq!(key.len(), len);
            prop_assert!(key.iter().all(u8::is_ascii_graphic));
        }

        #[test]
        fn any_two_long_keys_differ(one: u64, two: u64, len in 11usize..=32) {
            prop_assert_eq!(one == two, key(one, len) == key(two, len));
        }
    }
}
