//! A value that belongs to one owner without a lock, except while it has unfinished work, when
//! others may help under a lock.
//!
//! A queue pair's send side is used by the thread that posts. Only when requests have to wait (the
//! peer has no RECV or no room) must the thread that polls the completion queue carry on with them.
//! So the common case costs one load, and the rare one a mutex.

use std::sync::PoisonError;

use crate::sync::{AtomicBool, Mutex, Ordering, UnsafeCell};

/// The value and whose it is.
#[derive(Debug)]
pub(crate) struct Handover<T> {
    /// Whether others may help; while it is set, the value is touched under the lock only.
    shared: AtomicBool,
    lock: Mutex<()>,
    value: UnsafeCell<T>,
    /// Whether the owner is at work, to catch a second one.
    #[cfg(debug_assertions)]
    owned: AtomicBool,
}

/// While it lives, the owner is at work.
#[cfg(debug_assertions)]
struct AtWork<'a>(&'a AtomicBool);

#[cfg(debug_assertions)]
impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

// SAFETY: the value is touched by one thread at a time: by the owner while `shared` is unset, which
// only a holder of the lock can bring about, and under the lock while it is set.
unsafe impl<T: Send> Sync for Handover<T> {}

impl<T> Handover<T> {
    pub(crate) fn new(value: T) -> Self {
        Handover {
            shared: AtomicBool::new(false),
            lock: Mutex::new(()),
            value: UnsafeCell::new(value),
            #[cfg(debug_assertions)]
            owned: AtomicBool::new(false),
        }
    }

    /// Whether others may help at the moment.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire)
    }

    /// The owner's access. The closure says whether there is unfinished work that others should
    /// help with.
    ///
    /// # Safety
    /// Only one thread at a time calls this for a value: the owner.
    #[inline]
    pub(crate) unsafe fn own<R>(&self, work: impl FnOnce(&mut T) -> (R, bool)) -> R {
        #[cfg(debug_assertions)]
        let _at_work = {
            let taken = self.owned.swap(true, Ordering::Relaxed);
            assert!(!taken, "one owner at a time, and not within itself");
            AtWork(&self.owned)
        };
        if self.is_shared() {
            let _held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: helpers touch the value under the lock only, and the owner holds it.
            let (result, unfinished) = self.value.with_mut(|value| work(unsafe { &mut *value }));
            self.shared.store(unfinished, Ordering::Release);
            return result;
        }
        // SAFETY: `shared` is unset, so helpers stay away, and there is one owner.
        let (result, unfinished) = self.value.with_mut(|value| work(unsafe { &mut *value }));
        if unfinished {
            self.shared.store(true, Ordering::Release);
        }
        result
    }

    /// A helper's access: does nothing unless there is unfinished work. The closure says whether
    /// there still is.
    pub(crate) fn help(&self, work: impl FnOnce(&mut T) -> bool) {
        if !self.is_shared() {
            return;
        }
        let _held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_shared() {
            return;
        }
        // SAFETY: `shared` is set, so everybody touches the value under the lock, which is held.
        let unfinished = self.value.with_mut(|value| work(unsafe { &mut *value }));
        self.shared.store(unfinished, Ordering::Release);
    }
}
