//! Cookies: what an entry's name becomes a number by.
//!
//! ```text
//! bit 63   0
//! 62.. 8   55 bits of SipHash-2-4 of the name, keyed; never 0
//!  7.. 0   collision number: which of the names of that hash
//! ```
//!
//! The cookie is the entry's key in the directory and where a listing goes on after it, so that entries
//! that come and go move nobody else's. Names of one hash are found by one scan of up to 256 keys. The key
//! is drawn when the index is formatted: nobody outside can make up names that collide.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// The lowest bits of a cookie, which tell names of one hash apart.
const COLLISION_BITS: u32 = 8;

/// Bits of a name's hash in a cookie.
pub(crate) const HASH_BITS: u8 = 55;

/// How names become cookies.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    key: [u8; 16],
    bits: u8,
}

impl Names {
    /// With this key, and so many bits of hashes: 1 to [`HASH_BITS`].
    pub(crate) fn new(key: [u8; 16], bits: u8) -> Self {
        Self { key, bits }
    }

    /// The first cookie of a name's hash.
    pub(crate) fn first(&self, name: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(name);
        let hash = hasher.finish() >> (64 - u32::from(self.bits));
        hash.max(1) << COLLISION_BITS
    }

    /// The last cookie of the hash of a cookie.
    pub(crate) fn last(first: u64) -> u64 {
        first | ((1 << COLLISION_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_have_63_bits_and_are_never_small() {
        let names = Names::new(*b"0123456789abcdef", HASH_BITS);
        let others = Names::new(*b"0123456789abcdeF", HASH_BITS);
        for name in 0..1000u32 {
            let name = name.to_le_bytes();
            let first = names.first(&name);
            assert!(first > 2 && Names::last(first) < 1 << 63);
            assert_eq!(Names::last(first) - first, 255);
            assert_ne!(first, others.first(&name), "the key decides");
        }
        let few = Names::new(*b"0123456789abcdef", 1);
        assert_eq!(few.first(b"a"), 1 << COLLISION_BITS);
    }
}
