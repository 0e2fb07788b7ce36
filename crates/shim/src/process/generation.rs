//! Which process of a family of forks this is.

use std::sync::atomic::{AtomicU32, Ordering};

/// Counts the forks that this process comes from, as far as they were noticed.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// What an object notes when it is made; whoever asks later finds another number in a child.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Notes that this process has just been forked.
pub(crate) fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
