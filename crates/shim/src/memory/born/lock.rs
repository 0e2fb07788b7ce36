//! The lock of the table.
//!
//! It is taken in functions that signal handlers call, and held across a fork: so signals are blocked while
//! it is held, and whoever holds it may take it again, in the child as well.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::os;
use super::table::Table;

struct Shared(UnsafeCell<Table>);

// SAFETY: reached by the holder of the lock only.
unsafe impl Sync for Shared {}

static TABLE: Shared = Shared(UnsafeCell::new(Table::new()));

/// The thread that holds the lock, by a number that it has in a forked child as well; 0 for nobody.
static HOLDER: AtomicUsize = AtomicUsize::new(0);

type Signals = libc::sigset_t;

/// The signals that the thread had blocked before.
pub(super) struct Held(Option<Signals>);

fn own() -> usize {
    // SAFETY: it has no conditions.
    unsafe { libc::pthread_self() as usize }
}

/// Takes the lock.
pub(super) fn take() -> Held {
    let own = own();
    if HOLDER.load(Ordering::Relaxed) == own {
        return Held(None);
    }
    // SAFETY: sets of signals, which any bytes are.
    let (mut all, mut before): (Signals, Signals) = unsafe { std::mem::zeroed() };
    // SAFETY: both are there.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
    while HOLDER
        .compare_exchange_weak(0, own, success, failure)
        .is_err()
    {
        // SAFETY: it has no conditions.
        unsafe { libc::sched_yield() };
    }
    Held(Some(before))
}

/// Gives the lock back.
pub(super) fn give_back(held: Held) {
    let Some(before) = held.0 else {
        return;
    };
    HOLDER.store(0, Ordering::Release);
    // SAFETY: the set is there.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
}

/// The table, for the thread that holds the lock.
///
/// # Safety
/// The thread holds the lock, and is not inside [`locked`].
pub(super) unsafe fn table<'a>() -> &'a mut Table {
    // SAFETY: the caller's promise.
    unsafe { &mut *TABLE.0.get() }
}

/// Does something with the table. What it does calls nothing that comes here again. `errno` stays as the work
/// has left it.
pub(super) fn locked<R>(work: impl FnOnce(&mut Table) -> R) -> R {
    let held = take();
    // SAFETY: held, and the work comes here no second time.
    let result = work(unsafe { table() });
    let errno = os::errno();
    give_back(held);
    os::set_errno(errno);
    result
}
