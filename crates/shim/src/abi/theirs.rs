//! What of an object belongs to the program.

use std::cell::UnsafeCell;

/// The structure at the beginning of an object: libibverbs'. The program reads it, and writes to it whenever it likes; so nobody
/// here has a reference to it, and its fields are read and written one by one through the pointer.
#[repr(transparent)]
pub(crate) struct Theirs<T>(UnsafeCell<T>);

// SAFETY: it only gives out a pointer; whoever reads or writes through it answers for that.
unsafe impl<T> Send for Theirs<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Theirs<T> {}

impl<T> Theirs<T> {
    pub(crate) fn new(c: T) -> Self {
        Theirs(UnsafeCell::new(c))
    }

    /// Where it is. The fields that libibverbs calls constant may be read as long as the object is there.
    pub(crate) fn at(&self) -> *mut T {
        self.0.get()
    }
}
