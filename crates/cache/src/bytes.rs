//! Short bytes, copied and compared without a call.
//!
//! Keys and small values are a few words. For them a call to `memcpy` or `memcmp` costs as much as
//! the rest of the step around it.

#![forbid(unsafe_code)]

/// Copies `from` to `to`, which is as long.
#[inline(always)]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "as long");
    let len = from.len();
    if len > 64 {
        to.copy_from_slice(from);
    } else if len > 32 {
        piece::<32>(to, from, 0);
        piece::<32>(to, from, len - 32);
    } else if len >= 16 {
        piece::<16>(to, from, 0);
        piece::<16>(to, from, len - 16);
    } else if len >= 8 {
        piece::<8>(to, from, 0);
        piece::<8>(to, from, len - 8);
    } else {
        for (to, from) in to.iter_mut().zip(from) {
            *to = *from;
        }
    }
}

#[inline(always)]
fn piece<const N: usize>(to: &mut [u8], from: &[u8], at: usize) {
    to[at..at + N].copy_from_slice(&from[at..at + N]);
}

/// Whether two slices hold the same bytes.
#[inline(always)]
pub(crate) fn same(one: &[u8], two: &[u8]) -> bool {
    let len = one.len();
    if len != two.len() {
        return false;
    }
    if !(8..=32).contains(&len) {
        return one == two;
    }
    if len > 16 {
        return word::<16>(one, 0) == word::<16>(two, 0)
            && word::<16>(one, len - 16) == word::<16>(two, len - 16);
    }
    // Both words at once: a branch less.
    let first = u64::from_le_bytes(word(one, 0)) ^ u64::from_le_bytes(word(two, 0));
    let last = u64::from_le_bytes(word(one, len - 8)) ^ u64::from_le_bytes(word(two, len - 8));
    first | last == 0
}

#[inline(always)]
fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the length was checked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_and_compared_exactly() {
        let from: Vec<u8> = (1..=200).collect();
        for len in 0..=200 {
            let mut to = vec![0; len];
            copy(&mut to, &from[..len]);
            assert_eq!(to, from[..len]);
            assert!(same(&to, &from[..len]));
            for at in 0..len {
                to[at] ^= 0x80;
                assert!(!same(&to, &from[..len]), "{at} of {len}");
                to[at] ^= 0x80;
            }
            assert!(!same(&to, &from[..len + usize::from(len < 200)]) || len == 200);
        }
    }
}
