//! Memory that is reserved as a whole and filled by the kernel where it is touched.
#![allow(unsafe_code)]

use std::io;
use std::ops::Deref;

#[cfg(not(loom))]
use super::region::{Header, Line};

/// Types of which zeroed memory is a value, so that mapped memory can be used as it comes.
///
/// # Safety
/// All-zero bytes are a valid value, and the type has no destructor.
#[cfg(not(loom))]
pub(super) unsafe trait Zeroed: Sync {}

// SAFETY: integers, in atomics.
#[cfg(not(loom))]
unsafe impl Zeroed for Line {}
// SAFETY: integers, in atomics.
#[cfg(not(loom))]
unsafe impl Zeroed for Header {}

/// Many zeroed values. They take no memory before they are touched.
pub(super) struct Memory<T> {
    #[cfg(not(any(loom, miri)))]
    mapped: mapped::Mapped<T>,
    #[cfg(any(loom, miri))]
    values: Vec<T>,
}

#[cfg(not(any(loom, miri)))]
impl<T: Zeroed> Memory<T> {
    /// So many of them.
    ///
    /// # Errors
    /// There is no such room among the process's addresses.
    pub(super) fn new(count: usize) -> io::Result<Self> {
        let mapped = mapped::Mapped::new(count)?;
        Ok(Memory { mapped })
    }
}

#[cfg(any(loom, miri))]
impl<T: Default> Memory<T> {
    /// So many of them.
    pub(super) fn new(count: usize) -> io::Result<Self> {
        let values = std::iter::repeat_with(T::default).take(count).collect();
        Ok(Memory { values })
    }
}

impl<T> Deref for Memory<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        #[cfg(not(any(loom, miri)))]
        return self.mapped.values();
        #[cfg(any(loom, miri))]
        return &self.values;
    }
}

#[cfg(not(any(loom, miri)))]
mod mapped {
    use std::ffi::c_void;
    use std::io;
    use std::marker::PhantomData;
    use std::ptr::NonNull;

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::Zeroed;

    /// What a mapping is a multiple of, so that all of it can consist of huge pages.
    const HUGE_PAGE: usize = 2 << 20;

    pub(super) struct Mapped<T> {
        /// Where the kernel has put it.
        base: NonNull<c_void>,
        bytes: usize,
        /// The first value, at the first huge page's boundary.
        first: NonNull<T>,
        count: usize,
        values: PhantomData<T>,
    }

    // SAFETY: the mapping is this value's own, and what it holds may be shared (`Zeroed`).
    unsafe impl<T: Zeroed> Send for Mapped<T> {}
    // SAFETY: as above.
    unsafe impl<T: Zeroed> Sync for Mapped<T> {}

    impl<T: Zeroed> Mapped<T> {
        pub(super) fn new(count: usize) -> io::Result<Self> {
            let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
            let bytes = count
                .checked_mul(size_of::<T>())
                .and_then(|bytes| bytes.checked_next_multiple_of(HUGE_PAGE))
                .and_then(|bytes| bytes.checked_add(HUGE_PAGE))
                .ok_or_else(too_large)?;
            // SAFETY: a new mapping at an address that the kernel chooses touches no memory there is.
            let base = unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    bytes,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE | MapFlags::NORESERVE,
                )
            }?;
            // SAFETY: this memory is a private mapping of our own; the advice changes no contents.
            // Without huge pages everything works, so that an old kernel's refusal does not matter.
            let _refused = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
            let base = NonNull::new(base).ok_or_else(too_large)?;
            let skip = base.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
            // SAFETY: the mapping is one huge page longer than the values, and `skip` at most that.
            let first = unsafe { base.byte_add(skip) }.cast();
            Ok(Mapped {
                base,
                bytes,
                first,
                count,
                values: PhantomData,
            })
        }
    }

    impl<T> Mapped<T> {
        #[inline]
        pub(super) fn values(&self) -> &[T] {
            // SAFETY: `count` values fit behind `first`, which is aligned to a page; the kernel gives
            // zeroes, which are values (`Zeroed` in `new`); the mapping lives as long as `self`.
            unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
        }
    }

    impl<T> Drop for Mapped<T> {
        fn drop(&mut self) {
            // SAFETY: the mapping is this value's own, and no reference outlives it. It can fail only
            // for addresses that are not page boundaries, and these are.
            let _never = unsafe { munmap(self.base.as_ptr(), self.bytes) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::index::sync::Ordering;

    #[test]
    fn memory_is_zeroed_aligned_and_keeps_what_is_written() {
        let memory: Memory<Line> = Memory::new(100_000).expect("memory");
        assert_eq!(memory.len(), 100_000);
        assert_eq!(memory.as_ptr() as usize % 64, 0);
        let last = &memory[99_999].0[7];
        assert_eq!(last.load(Ordering::Relaxed), 0);
        last.store(7, Ordering::Relaxed);
        assert_eq!(memory[99_999].0[7].load(Ordering::Relaxed), 7);
    }

    #[test]
    #[cfg(not(miri))]
    fn more_than_there_are_addresses_is_an_error() {
        assert!(Memory::<Line>::new(usize::MAX / 64).is_err());
        assert!(Memory::<Line>::new(1 << 50).is_err());
    }
}
