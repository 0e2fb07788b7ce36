//! A forked child begins anew: what it inherits is dead, and a device opened there works.

use std::cell::RefCell;
use std::sync::{MutexGuard, Once};

use super::manager::{self, Manager};

thread_local! {
    /// Held while this thread forks, so that the child's copy is whole.
    static HELD: RefCell<Option<MutexGuard<'static, Manager>>> = const { RefCell::new(None) };
}

/// Has a fork noticed from now on.
pub(super) fn notice() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: functions that stay as long as the process: this library is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
    });
}

unsafe extern "C" fn before() {
    HELD.with_borrow_mut(|held| *held = Some(manager::lock()));
}

unsafe extern "C" fn after() {
    HELD.with_borrow_mut(|held| *held = None);
}

unsafe extern "C" fn in_child() {
    HELD.with_borrow_mut(|held| {
        if let Some(mut manager) = held.take() {
            manager.begin_anew();
        }
    });
}
