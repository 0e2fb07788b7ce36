//! What a key hashes to.

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The hash of a key, from the seed that a store draws when it is formatted.
///
/// The index uses the low 64 bits. Where keys must be told apart without the device, all 128 bits
/// stand for the key: with the seed unknown, two keys of a store of 2^40 have the same ones with a
/// probability of 2^-49.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(u128);

impl KeyHash {
    /// Hashes a key.
    pub fn new(seed: u64, key: &[u8]) -> Self {
        Self(xxh3_128_with_seed(key, seed))
    }

    /// The part that the index uses.
    pub fn index(self) -> u64 {
        self.0 as u64
    }

    /// The whole hash.
    pub fn whole(self) -> u128 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_depends_on_key_and_seed() {
        let hash = KeyHash::new(1, b"key");
        assert_eq!(hash, KeyHash::new(1, b"key"));
        assert_ne!(hash, KeyHash::new(2, b"key"));
        assert_ne!(hash, KeyHash::new(1, b"kez"));
        assert_eq!(hash.index(), hash.whole() as u64);
    }
}
