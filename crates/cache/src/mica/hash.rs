//! The hash of a key, and what each of its bits is for.

#![forbid(unsafe_code)]

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The keyed 64-bit hash of a key, computed once per request.
///
/// ```text
///  63          48 47          32 31                          0
/// +--------------+--------------+-----------------------------+
/// |     tag      |    unused    |           bucket            |
/// +--------------+--------------+-----------------------------+
/// ```
///
/// The fields share no bit: if they did, the keys of one bucket would share a
/// few tags. The bucket is picked by multiplication and shift, so their number
/// need not be a power of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyHash(u64);

impl KeyHash {
    /// Most buckets that [`bucket`](KeyHash::bucket) can reach.
    pub const BUCKETS_MAX: u64 = 1 << 32;

    /// Hashes `key` (XXH3) under `seed`. Who does not know the seed cannot
    /// choose keys that meet in one bucket, short of watching evictions: so a
    /// seed that serves strangers is told to nobody, and is not the one that
    /// picks the core ([`Route`](crate::route::Route)).
    #[inline]
    pub fn new(seed: u64, key: &[u8]) -> KeyHash {
        KeyHash(hash_bits(seed, key))
    }

    /// Takes 64 bits that are already a hash.
    pub const fn from_bits(bits: u64) -> KeyHash {
        KeyHash(bits)
    }

    /// All 64 bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Which of `buckets` (1 to [`BUCKETS_MAX`](KeyHash::BUCKETS_MAX)) of its partition holds the key.
    #[inline]
    pub const fn bucket(self, buckets: u64) -> u64 {
        debug_assert!(buckets > 0 && buckets <= KeyHash::BUCKETS_MAX);
        // Two factors of 32 bits, or one of them 2^32: the product fits.
        (self.0 as u32 as u64 * buckets) >> 32
    }

    /// What tells the keys of one bucket apart without going to the log: 1 to
    /// 65535. The hash bits 0 and 1 share the tag 1, so that no slot in use is
    /// the word zero, which says "empty".
    #[inline]
    pub const fn tag(self) -> u16 {
        let bits = (self.0 >> 48) as u16;
        if bits == 0 { 1 } else { bits }
    }
}

/// The hash of a key (XXH3).
#[inline]
pub(crate) fn hash_bits(seed: u64, key: &[u8]) -> u64 {
    // For the usual key the hash is compiled for its length.
    if let Ok(short) = <&[u8; 16]>::try_from(key) {
        return xxh3_64_with_seed(short, seed);
    }
    xxh3_64_with_seed(key, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Route;

    fn fields(bits: u64) -> (u64, u16) {
        let hash = KeyHash::from_bits(bits);
        (hash.bucket(1 << 32), hash.tag())
    }

    #[test]
    fn no_bit_belongs_to_two_fields() {
        let bits = 0x8421_7d3c_0f96_a5e1;
        let (bucket, tag) = fields(bits);
        for bit in 0..64 {
            let (b, t) = fields(bits ^ (1 << bit));
            let changed = (b != bucket, t != tag);
            let owner = match bit {
                0..32 => (true, false),
                32..48 => (false, false),
                _ => (false, true),
            };
            assert_eq!(changed, owner, "bit {bit}");
        }
    }

    /// Chi-square of `counts` against a uniform distribution, in standard
    /// deviations from its mean.
    fn deviation(counts: &[u64]) -> f64 {
        let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let square = |count: &u64| (*count as f64 - expected).powi(2) / expected;
        let freedom = (counts.len() - 1) as f64;
        (counts.iter().map(square).sum::<f64>() - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn within_a_core_and_a_bucket_the_other_fields_stay_uniform() {
        const CORES: u32 = 6;
        const BUCKETS: u64 = 96;
        let route = Route::new(8, CORES);
        let mut buckets = vec![0; BUCKETS as usize];
        let mut tags = vec![0; 64];
        let mut cores = vec![0; CORES as usize];
        for key in 0..400_000_u64 {
            let key = key.to_le_bytes();
            let (hash, core) = (KeyHash::new(7, &key), route.core(&key));
            cores[core as usize] += 1;
            if core == 3 {
                buckets[hash.bucket(BUCKETS) as usize] += 1;
                if hash.bucket(BUCKETS) < 16 {
                    tags[usize::from(hash.tag() >> 10)] += 1;
                }
            }
        }
        for counts in [&cores, &buckets, &tags] {
            assert!(deviation(counts).abs() < 5.0, "{counts:?}");
        }
    }

    #[test]
    fn any_number_of_buckets_is_covered_to_its_ends() {
        for buckets in [1, 2, 3, 5, 96, 1000, 65_537, KeyHash::BUCKETS_MAX] {
            assert_eq!(KeyHash::from_bits(0).bucket(buckets), 0);
            assert_eq!(KeyHash::from_bits(u64::MAX).bucket(buckets), buckets - 1);
        }
    }

    #[test]
    fn the_seed_matters() {
        assert_ne!(KeyHash::new(1, b"key"), KeyHash::new(2, b"key"));
    }
}
