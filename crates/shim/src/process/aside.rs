//! What this library does for itself: the memory that it frees meanwhile is none of the program's, and what a signal's handler does
//! in the middle of it is not looked at.

use std::cell::Cell;

thread_local! {
    /// Without a destructor, so that it is there as long as the thread.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Does something of this library's own.
pub(crate) fn aside<T>(work: impl FnOnce() -> T) -> T {
    let was_inside = IS_INSIDE.replace(true);
    let done = work();
    IS_INSIDE.set(was_inside);
    done
}

/// Whether this thread is at such a thing.
pub(crate) fn is_aside() -> bool {
    IS_INSIDE.get()
}
