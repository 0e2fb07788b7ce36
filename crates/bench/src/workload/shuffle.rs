//! Permutations of numbers that need no memory.

/// A permutation of the numbers of `bits` bits that looks random.
///
/// Each step (exclusive-or with a shift to the right, product with an odd number modulo a power
/// of two) can be undone, so no two numbers meet.
#[inline]
pub(super) fn scramble(number: u64, bits: u32, seed: u64) -> u64 {
    debug_assert!((1..=64).contains(&bits));
    let mask = u64::MAX >> (64 - bits);
    let shift = bits.div_ceil(2);
    let mut x = (number ^ seed) & mask;
    for factor in [
        0xbf58_476d_1ce4_e5b9,
        0x94d0_49bb_1331_11eb,
        0x9e37_79b9_7f4a_7c15_u64,
    ] {
        x = x.wrapping_mul(factor) & mask;
        x ^= x >> shift.min(63);
    }
    x
}

/// A permutation of `0..count`.
#[derive(Clone, Debug)]
pub(super) struct Shuffle {
    count: u64,
    bits: u32,
    seed: u64,
}

impl Shuffle {
    pub(super) fn new(count: u64, seed: u64) -> Self {
        Shuffle {
            count,
            bits: (64 - (count - 1).leading_zeros()).max(1),
            seed,
        }
    }

    /// Where `number` goes. Cost: two scrambles at most on average, for the next power of two is
    /// less than twice as large.
    pub(super) fn at(&self, number: u64) -> u64 {
        let mut at = number;
        loop {
            // Numbers out of range are followed until they come back in, as they must.
            at = scramble(at, self.bits, self.seed);
            if at < self.count {
                return at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_place() {
        for count in [1, 2, 3, 5, 64, 1000, 4097] {
            for seed in [0, 1, u64::MAX] {
                let shuffle = Shuffle::new(count, seed);
                let mut seen = vec![false; count as usize];
                for number in 0..count {
                    let at = shuffle.at(number) as usize;
                    assert!(
                        !std::mem::replace(&mut seen[at], true),
                        "{count}: {at} twice"
                    );
                }
            }
        }
    }
}
