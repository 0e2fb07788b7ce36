//! Telling the processor what will be needed.
#![allow(unsafe_code)]

/// Starts to load the cache line of a value.
#[inline(always)]
pub(super) fn prefetch<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address has no effect that a program can see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

/// The same in order to change it: then no other core has it any more.
#[inline(always)]
pub(super) fn prefetch_write<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address has no effect that a program can see, and a processor that
    // does not know this one does nothing.
    unsafe {
        std::arch::asm!(
            "prefetchw byte ptr [{value}]",
            value = in(reg) std::ptr::from_ref(value),
            options(nostack, preserves_flags, readonly),
        );
    };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}
