//! Chance, and the proof that nothing else decides.

/// Random numbers for one purpose. A purpose that draws more of them does not shift what others draw.
#[must_use]
pub fn stream(seed: u64, purpose: &str) -> fastrand::Rng {
    let mut hash = Trace::new(seed);
    hash.add(purpose.as_bytes());
    fastrand::Rng::with_seed(hash.value())
}

/// A running hash of what happened: equal for equal runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace(u64);

impl Trace {
    /// Of a run that has not begun.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// Adds a number.
    pub fn note(&mut self, number: u64) {
        // The odd constants of a 64-bit linear congruential step; quality does not matter here.
        self.0 = (self.0 ^ number)
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .rotate_left(29)
            .wrapping_add(0x1405_7b7e_f767_814f);
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.note(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.note(u64::from_le_bytes(word));
        }
    }

    /// The hash.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}

/// Runs something twice from the same seed, and returns what it came to.
///
/// # Panics
/// If the two runs differ: something besides the seed decides.
pub fn twice<T: PartialEq + std::fmt::Debug>(seed: u64, mut run: impl FnMut(u64) -> T) -> T {
    let first = run(seed);
    assert_eq!(first, run(seed), "two runs of seed {seed} differ");
    first
}
