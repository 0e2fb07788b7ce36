//! Which values a cache takes up.
//!
//! Most of what is put into a cache is never asked for, and writing it wears the drive and pushes
//! out what is. A value that replaces another one is always taken up: the old one has to go.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use crate::hash::KeyHash;
use crate::options::Admission;

/// Fingerprints of keys that were met lately; each cache line is a set of its own.
const SETS: usize = 1 << 14;
const WAYS: usize = 32;

/// Decides.
pub(crate) enum Gate {
    All,
    Share {
        /// Of 2^32.
        of: u64,
        counter: AtomicU64,
    },
    SecondAccess(Box<[Set]>),
}

#[repr(align(64))]
pub(crate) struct Set {
    met: [AtomicU16; WAYS],
}

impl Gate {
    pub(crate) fn new(admission: Admission) -> Self {
        match admission {
            Admission::All => Self::All,
            Admission::Share(share) => Self::Share {
                of: (share.clamp(0.0, 1.0) * 4_294_967_296.0) as u64,
                counter: AtomicU64::new(0),
            },
            Admission::SecondAccess => {
                let set = || Set {
                    met: std::array::from_fn(|_| AtomicU16::new(0)),
                };
                Self::SecondAccess(std::iter::repeat_with(set).take(SETS).collect())
            }
        }
    }

    /// Whether to take up a value whose key has none.
    pub(crate) fn admits(&self, hash: KeyHash) -> bool {
        match self {
            Self::All => true,
            Self::Share { of, counter } => {
                // A sequence of fractions that are spread evenly, whatever stretch of it is taken.
                let next = counter.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
                next >> 32 < *of
            }
            Self::SecondAccess(_) => self.meet(hash),
        }
    }

    /// Notes that a key was met, and says whether it had been before.
    pub(crate) fn meet(&self, hash: KeyHash) -> bool {
        let Self::SecondAccess(sets) = self else {
            return false;
        };
        let bits = (hash.whole() >> 64) as u64;
        let set = &sets[(bits >> 48) as usize % SETS].met;
        // Zero is an empty place.
        let print = (bits as u16).max(1);
        if set.iter().any(|met| met.load(Ordering::Relaxed) == print) {
            return true;
        }
        let place = (bits >> 16) as usize % WAYS;
        set[place].store(print, Ordering::Relaxed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(i: u32) -> KeyHash {
        KeyHash::new(5, &i.to_le_bytes())
    }

    #[test]
    fn a_share_is_taken_up() {
        for share in [0.0, 0.1, 0.5, 1.0] {
            let gate = Gate::new(Admission::Share(share));
            let admitted = (0..1000).filter(|&i| gate.admits(key(i))).count();
            assert!(
                (admitted as f64 - share * 1000.0).abs() < 10.0,
                "{admitted}"
            );
        }
    }

    #[test]
    fn the_second_access_opens() {
        let gate = Gate::new(Admission::SecondAccess);
        let first = (0..10_000).filter(|&i| gate.admits(key(i))).count();
        assert!(first < 50, "{first} of 10000 taken for others");
        let second = (0..10_000).filter(|&i| gate.admits(key(i))).count();
        assert!(second > 9000, "{second} of 10000 remembered");
        gate.meet(key(20_000));
        assert!(gate.admits(key(20_000)), "asked for, then stored");
    }
}
