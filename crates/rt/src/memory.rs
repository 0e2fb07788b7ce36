//! What the process's allocator does with memory that is given back.

/// Bytes at each heap's end that stay there when they are free.
#[cfg(target_env = "gnu")]
const STAYS: libc::c_int = 256 << 20;
/// Bytes by which a heap grows.
#[cfg(target_env = "gnu")]
const GROWS: libc::c_int = 4 << 20;
/// Allocations from so many bytes on are mapped by themselves: the highest that glibc takes.
#[cfg(target_env = "gnu")]
const MAPPED: libc::c_int = 32 << 20;

/// Has the allocator keep freed memory for the next request instead of giving it to the system: up to 256 MiB at each
/// heap's end (threads that allocate much have heaps of their own), and whatever lies before something that is in use.
/// Allocations from 32 MiB on are given back one by one.
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
