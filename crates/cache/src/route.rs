//! Which core of a server has a key.

#![forbid(unsafe_code)]

use crate::mica::hash_bits;

/// Where a server's keys live. Every client computes it, so its seed is told to everybody, and whoever
/// knows it can choose keys of one core. The tables of the cores hash with a seed of their own
/// ([`KeyHash`](crate::mica::KeyHash)), which nobody is told.
///
/// Cost: a hash of the key; nothing where there is one core.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    seed: u64,
    cores: u32,
}

impl Route {
    /// Most cores that [`core`](Route::core) can tell apart well.
    pub const CORES_MAX: u32 = 1 << 16;

    /// The route to 1 to [`CORES_MAX`](Route::CORES_MAX) cores.
    pub fn new(seed: u64, cores: u32) -> Route {
        debug_assert!(cores > 0 && cores <= Route::CORES_MAX);
        Route { seed, cores }
    }

    /// Whether a core of the server has a key.
    #[inline]
    pub(crate) fn is_of(&self, core: u32, key: &[u8]) -> bool {
        self.cores == 1 || self.core(key) == core
    }

    /// The core that has a key.
    #[inline]
    pub fn core(&self, key: &[u8]) -> u32 {
        if self.cores == 1 {
            return 0;
        }
        // By multiplication and shift, so that the number of cores need not be a power of two.
        let bits = u64::from((hash_bits(self.seed, key) >> 32) as u16);
        ((bits * u64::from(self.cores)) >> 16) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_spread_evenly_over_any_number_of_cores() {
        for cores in [1, 2, 3, 6, 16] {
            let route = Route::new(7, cores);
            let mut counts = vec![0_u64; cores as usize];
            for key in 0..60_000_u64 {
                counts[route.core(&key.to_le_bytes()) as usize] += 1;
            }
            let share = 60_000 / u64::from(cores);
            let is_fair = |count: &u64| count.abs_diff(share) < share / 10;
            assert!(counts.iter().all(is_fair), "{counts:?}");
        }
    }

    #[test]
    fn the_seed_matters() {
        let cores = |seed| {
            let route = Route::new(seed, 1 << 16);
            (0..4_u64)
                .map(|key| route.core(&key.to_le_bytes()))
                .collect::<Vec<_>>()
        };
        assert_ne!(cores(1), cores(2));
    }
}
