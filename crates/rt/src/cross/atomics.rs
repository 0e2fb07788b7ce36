//! What cross-core code is built from: the real atomics, locks and queues, or loom's and, for the
//! queue, a model of it.

#[cfg(loom)]
pub(crate) use crate::queue::ArrayQueue;
#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
};

#[cfg(not(loom))]
pub(crate) use crossbeam_queue::ArrayQueue;
#[cfg(not(loom))]
pub(crate) use real::UnsafeCell;
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering, fence},
};

#[cfg(not(loom))]
mod real {
    /// A cell with loom's closure interface, so that one source serves both.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}
