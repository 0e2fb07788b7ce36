//! Events that a program acknowledges: an object does not go before all are that it was told of.

use std::sync::atomic::{AtomicU32, Ordering};

use libc::{pthread_cond_t, pthread_mutex_t};

/// Notes the acknowledgement of some events.
///
/// # Safety
/// All are a live object's.
pub(crate) unsafe fn acknowledge(
    mutex: *mut pthread_mutex_t,
    cond: *mut pthread_cond_t,
    completed: *mut u32,
    count: u32,
) {
    // SAFETY: the caller's promise; who counts here has the mutex.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        *completed = (*completed).wrapping_add(count);
        libc::pthread_cond_broadcast(cond);
        libc::pthread_mutex_unlock(mutex);
    }
}

/// Waits until as many are acknowledged as were reported. No more are reported.
///
/// # Safety
/// As [`acknowledge`].
pub(crate) unsafe fn wait(
    mutex: *mut pthread_mutex_t,
    cond: *mut pthread_cond_t,
    completed: *const u32,
    reported: &AtomicU32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        while *completed != reported.load(Ordering::Relaxed) {
            libc::pthread_cond_wait(cond, mutex);
        }
        libc::pthread_mutex_unlock(mutex);
    }
}
