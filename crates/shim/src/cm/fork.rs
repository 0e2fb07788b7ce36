//! A forked child begins anew: what it inherits is dead, and a device opened there works.

use std::cell::UnsafeCell;
use std::sync::{MutexGuard, Once};

use super::manager::{self, Manager};

struct Place(UnsafeCell<Option<MutexGuard<'static, Manager>>>);

// SAFETY: reached by the thread that holds the manager's lock, or its double in a child.
unsafe impl Sync for Place {}

/// Held while a thread forks, so that the child's copy is whole. Not a thread's, which would be gone when a program forks at its end.
static HELD: Place = Place(UnsafeCell::new(None));

/// Has a fork noticed from now on.
pub(super) fn notice() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: functions that stay as long as the process: this library is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
    });
}

unsafe extern "C" fn before() {
    let held = manager::lock();
    // SAFETY: held.
    unsafe { *HELD.0.get() = Some(held) };
}

unsafe extern "C" fn after() {
    // SAFETY: `before` has taken the lock.
    drop(unsafe { (*HELD.0.get()).take() });
}

unsafe extern "C" fn in_child() {
    // SAFETY: this thread's double has taken the lock in the parent.
    if let Some(mut manager) = unsafe { (*HELD.0.get()).take() } {
        manager.begin_anew();
    }
}
