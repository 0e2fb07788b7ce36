//! Which promises of a core were woken: bits that any thread sets and the core takes.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The bits, and a flag that says whether to look at them.
///
/// Whoever sets a bit sets the flag behind it; the core clears the flag and then looks at the bits. Each
/// change of the flag is a read-modify-write, so that all of them are one release sequence: the core sees
/// the bits of everybody whose flag it has cleared, also where several have set it. Whoever sets it later
/// is found the next time.
#[derive(Debug)]
pub(super) struct Ready {
    any: AtomicBool,
    words: Box<[AtomicU64]>,
}

impl Ready {
    /// Room for so many bits, a multiple of 64.
    pub(super) fn new(count: usize) -> Self {
        Ready {
            any: AtomicBool::new(false),
            words: (0..count / 64).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Sets a bit.
    pub(super) fn set(&self, number: usize) {
        self.set_all(number / 64, 1 << (number % 64));
    }

    fn set_all(&self, word: usize, bits: u64) {
        self.words[word].fetch_or(bits, Ordering::Release);
        self.any.swap(true, Ordering::Release);
    }

    /// Whether there may be a bit that nobody has taken.
    #[inline]
    pub(super) fn has_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Takes the numbers of up to `count_max` bits, from `start` on and once around, and says where to
    /// go on.
    pub(super) fn take(&self, mut start: usize, count_max: usize, numbers: &mut Vec<u32>) -> usize {
        let words = &self.words;
        let first = start / 64;
        self.any.swap(false, Ordering::Acquire);
        // The first word comes again at the end, for what lies before the start.
        for turn in 0..=words.len() {
            let at = (first + turn) % words.len();
            if words[at].load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = words[at].swap(0, Ordering::Acquire);
            let before = match turn {
                0 => bits & !(u64::MAX << (start % 64)),
                _ => 0,
            };
            bits &= !before;
            while bits != 0 && numbers.len() < count_max {
                let number = at * 64 + bits.trailing_zeros() as usize;
                numbers.push(number as u32);
                bits &= bits - 1;
                start = (number + 1) % (64 * words.len());
            }
            words[at].fetch_or(before, Ordering::Relaxed);
            if bits != 0 {
                self.set_all(at, bits);
                break;
            }
        }
        start
    }
}
