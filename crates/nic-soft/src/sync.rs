//! What threads and processes share things with: the real atomics and locks, or loom's.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::Mutex,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    thread::yield_now,
};

#[cfg(not(loom))]
pub(crate) use real::UnsafeCell;
#[cfg(not(loom))]
pub(crate) use std::{
    sync::Mutex,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    thread::yield_now,
};

/// The frequent side of a barrier that membarrier(2) completes on the rare side: it keeps the
/// compiler from moving accesses across, and costs no instruction.
#[inline]
pub(crate) fn light_barrier() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

#[cfg(not(loom))]
mod real {
    /// A cell with loom's closure interface, so that one source serves both.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub(crate) fn with_mut<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
            work(self.0.get())
        }
    }
}
