//! Registered memory, read and written while a NIC does the same.
//!
//! The only file of this module with unsafe code: it keeps the address of a region, so that a
//! sweep over many clients costs one load each and not a virtual call.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use verbs::typed::MemoryRegion;
use verbs::{Sge, mem};

/// A region of this process with its address at hand.
#[derive(Debug)]
pub(super) struct Memory {
    region: MemoryRegion,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the pointer is into `region`, which may be sent and shared itself; all accesses go
// through atomics and `verbs::mem`, which allow others to access the same bytes.
unsafe impl Send for Memory {}

impl Memory {
    /// Takes hold of a region.
    ///
    /// # Panics
    /// When its memory is not in this process.
    pub(super) fn new(region: MemoryRegion) -> Self {
        let base = NonNull::new(region.as_ptr()).expect("a region has an address");
        let len = region.len();
        assert!(
            (base.as_ptr() as usize).is_multiple_of(8),
            "a region is aligned to words"
        );
        Memory { region, base, len }
    }

    /// A piece for a local work request.
    pub(super) fn sge(&self, range: Range<usize>) -> Sge {
        self.region.sge(range)
    }

    /// The word at `offset`: everything that its writer placed before it is visible as well.
    ///
    /// # Panics
    /// When it is not aligned or outside the region.
    #[inline]
    pub(super) fn word(&self, offset: usize) -> u32 {
        assert!(
            offset.is_multiple_of(4) && offset < self.len && self.len - offset >= 4,
            "outside the region"
        );
        // SAFETY: aligned, because the base is, inside the region, and alive as long as `self`.
        let word = unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) };
        u32::from_le(word.load(Ordering::Acquire))
    }

    /// Copies bytes out: a snapshot that may be torn when a NIC writes at the same time.
    ///
    /// # Panics
    /// When the range is outside the region.
    #[inline]
    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.check(offset, bytes.len());
        // SAFETY: the range was checked, and the region is alive as long as `self`.
        unsafe {
            mem::fetch(
                bytes.as_mut_ptr(),
                self.base.as_ptr().add(offset),
                bytes.len(),
            );
        }
    }

    /// Copies bytes in, the last bytes last.
    ///
    /// # Panics
    /// When the range is outside the region.
    #[inline]
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: the range was checked, and the region is alive as long as `self`.
        unsafe { mem::place(self.base.as_ptr().add(offset), bytes.as_ptr(), bytes.len()) };
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "outside the region"
        );
    }
}
