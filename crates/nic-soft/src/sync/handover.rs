//! Handover: a value that belongs to one owner without a lock, except while it has unfinished work, when
//! others may help under a lock, or while it is recalled for a visitor.
//!
//! A queue pair's send side is used by the thread that posts. Only when requests have to wait (the
//! peer has no RECV or no room) must the thread that polls the completion queue carry on with them;
//! the control half changes it with the queue pair's state; and when a peer has gone, the agent takes
//! out what leads there. So the common case costs one
//! load, and the rare ones a mutex.

use std::marker::PhantomData;
use std::sync::{PoisonError, TryLockError};

#[cfg(debug_assertions)]
use crate::sync::AtomicBool;
use crate::sync::{AtomicU32, MutPtr, Mutex, Ordering, UnsafeCell};

/// Others may help: there is unfinished work.
const SHARED: u32 = 1;
/// Added for each who wants to visit.
const RECALLED: u32 = 2;

/// The value and whose it is.
#[derive(Debug)]
pub(crate) struct Handover<T> {
    /// `SHARED`, and `RECALLED` times those who want to visit. Whoever comes while it is not 0 touches
    /// the value under the lock only.
    state: AtomicU32,
    lock: Mutex<()>,
    value: UnsafeCell<T>,
    /// Whether the owner is at work, to catch a second one.
    #[cfg(debug_assertions)]
    owned: AtomicBool,
    /// Whether it is so without the lock, to catch those who do not wait for it.
    #[cfg(debug_assertions)]
    unlocked: AtomicBool,
}

/// The owner's access while nobody else has to do with the value. No closure, so that what is done
/// with it is compiled into the caller.
pub(crate) struct Alone<'a, T> {
    value: MutPtr<T>,
    of: PhantomData<&'a Handover<T>>,
    #[cfg(debug_assertions)]
    _at_work: AtWork<'a>,
}

impl<T> Alone<'_, T> {
    #[inline(always)]
    pub(crate) fn value(&mut self) -> &mut T {
        // SAFETY: nobody else touches the value while the access lives, by its maker's promise.
        unsafe { self.value.deref() }
    }
}

/// While it lives, the owner is at work.
#[cfg(debug_assertions)]
struct AtWork<'a> {
    owned: &'a AtomicBool,
    unlocked: &'a AtomicBool,
}

#[cfg(debug_assertions)]
impl<'a> AtWork<'a> {
    fn begin<T>(of: &'a Handover<T>) -> Self {
        let (owned, unlocked) = (&of.owned, &of.unlocked);
        let taken = owned.swap(true, Ordering::Relaxed);
        assert!(!taken, "one owner at a time, and not within itself");
        AtWork { owned, unlocked }
    }

    /// It found nobody else, and takes no lock.
    fn goes_unlocked(&self) {
        self.unlocked.store(true, Ordering::Relaxed);
    }
}

#[cfg(debug_assertions)]
impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.unlocked.store(false, Ordering::Relaxed);
        self.owned.store(false, Ordering::Relaxed);
    }
}

// SAFETY: the value is touched by one thread at a time: by the owner if it found 0, and under the
// lock otherwise. It is the owner that sets `SHARED`, when it has done; whoever adds `RECALLED`
// waits, before it touches the value, for an owner that has not seen it.
unsafe impl<T: Send> Sync for Handover<T> {}

impl<T> Handover<T> {
    pub(crate) fn new(value: T) -> Self {
        Handover {
            state: AtomicU32::new(0),
            lock: Mutex::new(()),
            value: UnsafeCell::new(value),
            #[cfg(debug_assertions)]
            owned: AtomicBool::new(false),
            #[cfg(debug_assertions)]
            unlocked: AtomicBool::new(false),
        }
    }

    /// Whether others may help at the moment.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.state.load(Ordering::Acquire) & SHARED != 0
    }

    /// The owner's access. The closure says whether there is unfinished work that others should
    /// help with.
    ///
    /// # Safety
    /// Only one thread at a time calls this for a value: the owner.
    #[inline]
    pub(crate) unsafe fn own<R>(&self, work: impl FnOnce(&mut T) -> (R, bool)) -> R {
        #[cfg(debug_assertions)]
        let at_work = AtWork::begin(self);
        if self.state.load(Ordering::Acquire) != 0 {
            let _held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: helpers and visitors touch the value under the lock only, and the owner
            // holds it.
            let (result, unfinished) = self.value.with_mut(|value| work(unsafe { &mut *value }));
            self.note(unfinished);
            return result;
        }
        #[cfg(debug_assertions)]
        at_work.goes_unlocked();
        // SAFETY: it is 0, so helpers stay away and a visitor waits; there is one owner.
        let (result, unfinished) = self.value.with_mut(|value| work(unsafe { &mut *value }));
        if unfinished {
            self.note(true);
        }
        result
    }

    /// The owner's access while there is no unfinished work and nobody visits; `None` otherwise. It
    /// leaves no unfinished work.
    ///
    /// # Safety
    /// As for [`own`](Self::own), and the access counts as a call of it.
    #[inline(always)]
    pub(crate) unsafe fn alone(&self) -> Option<Alone<'_, T>> {
        #[cfg(debug_assertions)]
        let at_work = AtWork::begin(self);
        // While it is 0, helpers stay away and a visitor waits; there is one owner.
        (self.state.load(Ordering::Acquire) == 0).then(|| {
            #[cfg(debug_assertions)]
            at_work.goes_unlocked();
            Alone {
                value: self.value.get_mut(),
                of: PhantomData,
                #[cfg(debug_assertions)]
                _at_work: at_work,
            }
        })
    }

    /// A helper's access, which waits for nobody: does nothing unless there is unfinished work, or
    /// while somebody else is at it. The closure says whether there still is.
    pub(crate) fn help(&self, work: impl FnOnce(&mut T) -> bool) {
        if !self.is_shared() {
            return;
        }
        let _held = match self.lock.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if !self.is_shared() {
            return;
        }
        // SAFETY: `SHARED` is set, so everybody touches the value under the lock, which is held.
        let unfinished = self.value.with_mut(|value| work(unsafe { &mut *value }));
        self.note(unfinished);
    }

    /// Has the owner come by the lock from now on, until the caller has visited.
    pub(crate) fn recall(&self) {
        self.state.fetch_add(RECALLED, Ordering::Relaxed);
    }

    /// A visitor's access, which waits for nobody, and is refused while the lock is held. The closure
    /// says whether there is unfinished work.
    ///
    /// # Safety
    /// The caller has [recalled](Self::recall) the value, once for each visit. Every call of
    /// [`own`](Self::own) that began before, or did not see it, has ended.
    pub(crate) unsafe fn visit<R>(&self, work: impl FnOnce(&mut T) -> (R, bool)) -> Option<R> {
        let _held = match self.lock.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.visit_held(work))
    }

    /// The same for a visitor who waits for the lock.
    ///
    /// # Safety
    /// As for [`visit`](Self::visit).
    pub(crate) unsafe fn visit_waiting<R>(&self, work: impl FnOnce(&mut T) -> (R, bool)) -> R {
        let _held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.visit_held(work)
    }

    fn visit_held<R>(&self, work: impl FnOnce(&mut T) -> (R, bool)) -> R {
        #[cfg(debug_assertions)]
        assert!(
            !self.unlocked.load(Ordering::Relaxed),
            "a visitor waits for an owner that has not seen it"
        );
        // SAFETY: the owner comes by the lock, as helpers and other visitors do, and it is held.
        let (result, unfinished) = self.value.with_mut(|value| work(unsafe { &mut *value }));
        self.note(unfinished);
        self.state.fetch_sub(RECALLED, Ordering::Release);
        result
    }

    /// Notes whether there is unfinished work. Others may recall the value at the same time.
    #[cold]
    fn note(&self, unfinished: bool) {
        if unfinished {
            self.state.fetch_or(SHARED, Ordering::Release);
        } else {
            self.state.fetch_and(!SHARED, Ordering::Release);
        }
    }
}
