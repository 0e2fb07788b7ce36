//! What the process's allocator does with memory that is given back.

/// Bytes at the end of a heap that stay there when they are free.
#[cfg(target_env = "gnu")]
const STAYS: libc::c_int = 256 << 20;
/// Bytes by which a heap grows.
#[cfg(target_env = "gnu")]
const GROWS: libc::c_int = 4 << 20;
/// Allocations from so many bytes on are mapped by themselves: the highest that glibc takes.
#[cfg(target_env = "gnu")]
const MAPPED: libc::c_int = 32 << 20;

/// Has the allocator keep freed memory for the next request, up to 256 MiB, instead of giving it to the system.
///
/// A server takes and gives back buffers all the time. Where glibc unmaps each of them, or cuts its heap's end,
/// every page of the next one is a fault and is cleared first: a quarter of a microsecond and more for each 4 KiB.
///
/// With another C library than glibc it does nothing.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    for (what, bytes) in [
        (libc::M_TRIM_THRESHOLD, STAYS),
        (libc::M_TOP_PAD, GROWS),
        (libc::M_MMAP_THRESHOLD, MAPPED),
    ] {
        // SAFETY: it takes the allocator's own lock, and touches nobody's memory.
        let is_taken = unsafe { libc::mallopt(what, bytes) } == 1;
        if !is_taken {
            tracing::warn!(what, bytes, "the allocator takes no advice");
        }
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use std::hint::black_box;
    use std::mem::MaybeUninit;

    /// Page faults of this thread so far that needed no disk.
    fn faults() -> i64 {
        let mut usage = MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: it writes one `rusage`.
        let usage = unsafe {
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), 0);
            usage.assume_init()
        };
        usage.ru_minflt
    }

    #[test]
    fn buffers_that_were_freed_are_used_again_without_faults() {
        super::keep_freed();
        let take = || {
            let buffers: Vec<Vec<u8>> = (0..8).map(|_| black_box(vec![1; 1 << 20])).collect();
            drop(buffers);
        };
        take();
        let before = faults();
        (0..10).for_each(|_| take());
        let faults = faults() - before;
        // Of 20,480 pages.
        assert!(faults < 1000, "{faults} faults");
    }
}
