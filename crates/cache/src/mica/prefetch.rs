//! Asking the processor for a cache line before it is needed.

/// Starts loading the cache line that `value` begins in. A hint: it has no
/// effect but on time, and none at all on processors that it is not known for.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    let address = std::ptr::from_ref(value);
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is harmless, and every x86-64
        // processor has the instruction.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch of any address is harmless; it changes no register,
    // no flag and no memory.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
