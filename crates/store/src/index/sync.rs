//! What threads share things with: the real atomics, or loom's.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// What is in a word that nobody else changes, as the caller holds the lock for that.
///
/// Loom remembers one access of a word only. If the load were one, it would forget that a reader has
/// looked there before, and never try how that ends when the word is stored first.
#[inline(always)]
pub(crate) fn load_locked(word: &AtomicU64) -> u64 {
    #[cfg(not(loom))]
    return word.load(Ordering::Relaxed);
    #[cfg(loom)]
    #[allow(unsafe_code)]
    // SAFETY: loom itself checks that all stores came before.
    return unsafe { word.unsync_load() };
}

/// How often to look again before others are offered the CPU. Locks are held for less than a
/// microsecond, but whoever holds one may have lost the CPU to us.
#[cfg(not(loom))]
const LOOKS_BEFORE_YIELD: u32 = 64;

/// A loop that waits for another thread.
#[derive(Default)]
pub(crate) struct Wait {
    #[cfg(not(loom))]
    looks: u32,
}

impl Wait {
    /// Lets the other thread go on.
    #[inline]
    pub(crate) fn pause(&mut self) {
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        {
            self.looks += 1;
            if self.looks.is_multiple_of(LOOKS_BEFORE_YIELD) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}
