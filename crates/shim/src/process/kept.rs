//! What a thread keeps in the allocator's memory.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use rustix::process::getpid;
use rustix::thread::gettid;

/// A value of a thread-local variable, which is dropped as its thread ends; the main thread's never is. That thread ends as the process does,
/// maybe in a signal's handler that has interrupted the allocator and calls `exit`: giving memory back would wait for ever.
pub(crate) struct Kept<T>(ManuallyDrop<T>);

impl<T> Kept<T> {
    pub(crate) const fn new(value: T) -> Self {
        Kept(ManuallyDrop::new(value))
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Kept<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        if gettid() != getpid() {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}
