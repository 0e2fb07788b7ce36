//! A cache line that two threads share.

use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a line.
const WORDS: usize = 8;

/// A cache line of words. Whoever finds its last word finds the others as they were written.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Line([AtomicU64; WORDS]);

impl Line {
    /// Writes the line, the number last.
    #[inline]
    pub(super) fn write(&self, number: u64) {
        for word in &self.0[..WORDS - 1] {
            word.store(number, Ordering::Relaxed);
        }
        self.0[WORDS - 1].store(number, Ordering::Release);
    }

    /// Writes the number alone.
    #[inline]
    pub(super) fn set(&self, number: u64) {
        self.0[WORDS - 1].store(number, Ordering::Release);
    }

    /// The number written last.
    #[inline]
    pub(super) fn number(&self) -> u64 {
        self.0[WORDS - 1].load(Ordering::Acquire)
    }

    /// The sum of the other words.
    #[inline]
    pub(super) fn read(&self) -> u64 {
        let words = self.0[..WORDS - 1].iter();
        words.fold(0, |sum, word| {
            sum.wrapping_add(word.load(Ordering::Relaxed))
        })
    }
}
