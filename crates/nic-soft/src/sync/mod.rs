//! What threads and processes share things with: the real atomics and locks, or loom's.

pub(crate) mod bounded;
pub(crate) mod handover;
pub(crate) mod peer_epoch;
pub(crate) mod quiescence;
pub(crate) mod released;
pub(crate) mod table;
pub(crate) mod work_list;

#[cfg(loom)]
pub(crate) use loom::{
    cell::{MutPtr, UnsafeCell},
    sync::Mutex,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    thread::yield_now,
};

#[cfg(not(loom))]
pub(crate) use real::{MutPtr, UnsafeCell};
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

        #[inline(always)]
        pub(crate) fn get_mut(&self) -> MutPtr<T> {
            MutPtr(self.0.get())
        }
    }

    /// A pointer into a cell.
    #[derive(Debug)]
    pub(crate) struct MutPtr<T>(*mut T);

    impl<T> MutPtr<T> {
        /// # Safety
        /// The cell lives, and nobody else touches its value meanwhile.
        #[inline(always)]
        pub(crate) unsafe fn deref(&mut self) -> &mut T {
            // SAFETY: the caller's promise.
            unsafe { &mut *self.0 }
        }
    }
}
