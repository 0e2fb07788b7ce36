//! Values that say whose they are, so that a wrong or torn one is found out.
//!
//! ```text
//!   | item u64 | version u64 | first | first + step | first + 2 step | ... |     little-endian
//! ```
//! `first` depends on item and version, so a value made of pieces of two values does not fit.

/// Bytes of the shortest value that can be checked.
pub const CHECKABLE_LEN_MIN: usize = 24;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn first(item: u64, version: u64) -> u64 {
    let mut x = item.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ version.rotate_left(32);
    x = (x ^ (x >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 29)
}

/// The words of a value without end.
fn words(item: u64, version: u64) -> impl Iterator<Item = u64> {
    let mut next = first(item, version);
    let rest = std::iter::repeat_with(move || {
        let word = next;
        next = next.wrapping_add(STEP);
        word
    });
    [item, version].into_iter().chain(rest)
}

/// Fills `value`. Cost: about a nanosecond a word.
pub fn write_value(item: u64, version: u64, value: &mut [u8]) {
    for (bytes, word) in value.chunks_mut(8).zip(words(item, version)) {
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
}

/// Whether this is a whole value of this item. The value is at least [`CHECKABLE_LEN_MIN`] long,
/// or else not.
pub fn is_value_of(item: u64, value: &[u8]) -> bool {
    if value.len() < CHECKABLE_LEN_MIN {
        return false;
    }
    let version = value[8..16].try_into().map_or(0, u64::from_le_bytes);
    let chunks = value.chunks(8).zip(words(item, version));
    chunks.fold(true, |so_far, (bytes, word)| {
        so_far & (bytes == &word.to_le_bytes()[..bytes.len()])
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(item: u64, version: u64, len: usize) -> Vec<u8> {
        let mut value = vec![0; len];
        write_value(item, version, &mut value);
        value
    }

    proptest! {
        #[test]
        fn a_value_is_known_by_its_item_alone(item: u64, other: u64, version: u64, len in 24usize..300) {
            let value = value(item, version, len);
            prop_assert!(is_value_of(item, &value));
            prop_assert_eq!(is_value_of(other, &value), item == other);
        }

        #[test]
        fn a_flipped_bit_shows(item: u64, version: u64, len in 24usize..300, at: prop::sample::Index, bit in 0u8..8) {
            let mut value = value(item, version, len);
            *at.get_mut(&mut value) ^= 1 << bit;
            prop_assert!(!is_value_of(item, &value));
        }

        #[test]
        fn a_torn_value_shows(item: u64, versions: (u64, u64), len in 32usize..300, at in 8usize..292) {
            prop_assume!(versions.0 != versions.1 && at < len);
            let (old, new) = (value(item, versions.0, len), value(item, versions.1, len));
            let torn = [&old[..at], &new[at..]].concat();
            prop_assert_eq!(is_value_of(item, &torn), torn == old || torn == new);
        }
    }
}
