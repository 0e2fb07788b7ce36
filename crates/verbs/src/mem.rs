//! Copying to and from memory that others read and write at the same time.
//!
//! What a WRITE promises its reader (and what HERD's polling relies on): bytes become visible in
//! address order up to the cache line, and the last bytes last. A reader that sees the last word
//! of a message therefore sees all of it.
//!
//! These functions are the only place where registered memory is touched by a CPU. Bulk bytes
//! move by plain copies whose order is fenced by the atomic word at the end; both sides treat what
//! they find as untrusted bytes, so a race can yield odd bytes but nothing worse.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Bytes of a cache line.
const LINE: usize = 64;

/// Copies `len` bytes to shared memory so that they become visible in address order line by line,
/// and the last aligned word last, with release ordering.
///
/// Cost: one pass; no locked instruction.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, and they do not overlap. Others may read
/// and write `dst` at the same time, through atomics, this module or another process only.
#[inline]
pub unsafe fn place(dst: *mut u8, src: *const u8, len: usize) {
    debug_assert!(are_disjoint(dst, src, len), "copying onto itself");
    let end = dst as usize + len;
    // Most messages end with a whole word and lie in one line: there only the word is ordered.
    let in_one_line = (dst as usize ^ end.wrapping_sub(1)) < LINE;
    if len >= 8 && end.is_multiple_of(8) && in_one_line {
        let head = len - 8;
        // SAFETY: both ranges are valid by the caller's promise; the last word is aligned.
        unsafe {
            copy_short(dst, src, head);
            let word = src.add(head).cast::<u64>().read_unaligned();
            AtomicU64::from_ptr(dst.add(head).cast()).store(word, Ordering::Release);
        }
    } else {
        // SAFETY: the caller's promise.
        unsafe { place_long(dst, src, len) };
    }
}

/// [`place`] for what crosses lines or ends with less than a word.
///
/// # Safety
/// As for [`place`].
unsafe fn place_long(dst: *mut u8, src: *const u8, len: usize) {
    if len == 0 {
        return;
    }
    let end = dst as usize + len;
    // The word that ends the message is as wide as its alignment and the length allow.
    let mut tail = 1 << end.trailing_zeros().min(3);
    while tail > len {
        tail >>= 1;
    }
    let head = len - tail;
    let mut done = 0;
    // SAFETY: every range lies in the first `head` bytes, valid by the caller's promise.
    unsafe {
        let to_line = (dst as usize).wrapping_neg() % LINE;
        if to_line != 0 && head > 0 {
            done = to_line.min(head);
            copy_short(dst, src, done);
        }
        while head - done >= LINE {
            // A release fence between lines keeps their order; on x86 it is no instruction.
            fence(Ordering::Release);
            std::ptr::copy_nonoverlapping(src.add(done), dst.add(done), LINE);
            done += LINE;
        }
        fence(Ordering::Release);
        copy_short(dst.add(done), src.add(done), head - done);
    }
    // SAFETY: the word lies inside both ranges and is aligned to `tail`, because `end` is a
    // multiple of `tail`, which is a power of two.
    unsafe {
        let last = dst.add(head);
        match tail {
            8 => {
                let word = src.add(head).cast::<u64>().read_unaligned();
                AtomicU64::from_ptr(last.cast()).store(word, Ordering::Release);
            }
            4 => {
                let word = src.add(head).cast::<u32>().read_unaligned();
                AtomicU32::from_ptr(last.cast()).store(word, Ordering::Release);
            }
            2 => {
                let word = src.add(head).cast::<u16>().read_unaligned();
                AtomicU16::from_ptr(last.cast()).store(word, Ordering::Release);
            }
            _ => AtomicU8::from_ptr(last).store(src.add(head).read(), Ordering::Release),
        }
    }
}

/// Copies `len` bytes to shared memory in any order, for bytes that nobody looks at before a word
/// stored after them says so.
///
/// # Safety
/// As for [`place`].
#[inline]
pub unsafe fn put(dst: *mut u8, src: *const u8, len: usize) {
    debug_assert!(are_disjoint(dst, src, len), "copying onto itself");
    // SAFETY: the caller's promise.
    unsafe {
        if len <= LINE {
            copy_short(dst, src, len);
        } else {
            std::ptr::copy_nonoverlapping(src, dst, len);
        }
    }
}

/// Whether two ranges of `len` bytes exist and do not overlap.
fn are_disjoint(one: *const u8, other: *const u8, len: usize) -> bool {
    let (low, high) = (one.addr().min(other.addr()), one.addr().max(other.addr()));
    len == 0 || (low > 0 && high.checked_add(len).is_some() && high - low >= len)
}

/// Copies at most `LINE` bytes without a call to `memcpy`. Two copies may overlap in the middle,
/// so that there is one branch a power of two.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, and they do not overlap.
#[inline(always)]
unsafe fn copy_short(dst: *mut u8, src: *const u8, len: usize) {
    debug_assert!(len <= LINE);
    // SAFETY: each piece lies inside the first `len` bytes.
    unsafe {
        let copy = |at: usize, count: usize| {
            std::ptr::copy_nonoverlapping(src.add(at), dst.add(at), count);
        };
        if len > 32 {
            copy(0, 16);
            copy(16, 16);
            copy(len - 32, 16);
            copy(len - 16, 16);
        } else if len >= 16 {
            copy(0, 16);
            copy(len - 16, 16);
        } else if len >= 8 {
            copy(0, 8);
            copy(len - 8, 8);
        } else if len >= 4 {
            copy(0, 4);
            copy(len - 4, 4);
        } else if len > 0 {
            copy(0, 1);
            copy(len / 2, 1);
            copy(len - 1, 1);
        }
    }
}

/// Copies `len` bytes out of shared memory: what was visible before the call, or newer.
///
/// # Safety
/// As for [`place`], with the roles of `src` and `dst` exchanged.
#[inline]
pub unsafe fn fetch(dst: *mut u8, src: *const u8, len: usize) {
    debug_assert!(are_disjoint(dst, src, len), "copying onto itself");
    fence(Ordering::Acquire);
    // SAFETY: both ranges are valid by the caller's promise.
    unsafe {
        if len <= LINE {
            copy_short(dst, src, len);
        } else {
            std::ptr::copy_nonoverlapping(src, dst, len);
        }
    }
    fence(Ordering::Acquire);
}

/// Starts loading the cache line at `address`, which need not be a valid one. A hint: it has no
/// effect but on time, and none at all on processors that it is not known for.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
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

/// Starts loading the cache line at `address`, to be written: as [`prefetch`], and takes it from
/// other cores' caches.
#[inline(always)]
pub fn prefetch_to_write<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is harmless; it changes no register, no flag and no memory.
    // Processors that do not know the instruction take it for one that does nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied_exactly() {
        let source: Vec<u8> = (0..=255).collect();
        let check = |target: &[u8], start: usize, len: usize| {
            assert!(target[..16 + start].iter().all(|&b| b == 0xee));
            assert_eq!(&target[16 + start..16 + start + len], &source[..len]);
            assert!(target[16 + start + len..].iter().all(|&b| b == 0xee));
        };
        for start in 0..16 {
            for len in 0..230 {
                let mut target = [0xeeu8; 288];
                // SAFETY: both ranges lie inside their arrays.
                unsafe { place(target.as_mut_ptr().add(16 + start), source.as_ptr(), len) };
                check(&target, start, len);
                let mut target = [0xeeu8; 288];
                // SAFETY: both ranges lie inside their arrays.
                unsafe { put(target.as_mut_ptr().add(16 + start), source.as_ptr(), len) };
                check(&target, start, len);
                let mut back = vec![0u8; len];
                // SAFETY: both ranges lie inside their arrays.
                unsafe { fetch(back.as_mut_ptr(), target.as_ptr().add(16 + start), len) };
                assert_eq!(back, &source[..len]);
            }
        }
    }
}
