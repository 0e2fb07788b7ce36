//! Memory straight from the system, for buffers.

use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// What a mapping of this size or more begins at a multiple of: a huge page.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// A mapping of its own, zeroed at first.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes, a multiple of the page size.
    ///
    /// # Panics
    /// If the system has no memory left, as every allocation does.
    pub(super) fn new(len: usize) -> Self {
        // Room to begin at a huge page; what is too much goes back at once.
        let spare = if len >= HUGE_PAGE { HUGE_PAGE } else { 0 };
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses touches nobody's memory.
        let mapped = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len + spare,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        };
        let mapped: *mut u8 = match mapped {
            Ok(mapped) => mapped.cast(),
            Err(error) => panic!("cannot map {len} bytes for buffers: {error}"),
        };
        let head = if spare > 0 {
            mapped.align_offset(HUGE_PAGE)
        } else {
            0
        };
        debug_assert!(head <= spare);
        unmap(mapped, head);
        // SAFETY: `head` is at most `spare`, so this is inside of the mapping.
        let start = unsafe { mapped.add(head) };
        // SAFETY: as above; at most the mapping's end.
        unmap(unsafe { start.add(len) }, spare - head);
        if spare > 0 {
            // Only advice: small pages do as well.
            // SAFETY: the range is the mapping made above.
            let _ = unsafe { madvise(start.cast(), len, Advice::LinuxHugepage) };
        }
        Self {
            start: NonNull::new(start).expect("the kernel maps nothing at zero"),
            len,
        }
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

fn unmap(start: *mut u8, len: usize) {
    if len > 0 {
        // SAFETY: callers pass a part of a mapping of their own that nothing points into.
        unsafe { munmap(start.cast(), len) }.expect("a part of a mapping can be unmapped");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.start.as_ptr(), self.len);
    }
}
