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

/// Copies fewer than `LINE` bytes without a call to `memcpy`, in address order.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, and they do not overlap.
#[inline(always)]
unsafe fn copy_short(dst: *mut u8, src: *const u8, len: usize) {
    debug_assert!(len < LINE);
    let mut done = 0;
    // SAFETY: the pieces add up to `len`.
    unsafe {
        if len & 32 != 0 {
            std::ptr::copy_nonoverlapping(src, dst, 32);
            done = 32;
        }
        if len & 16 != 0 {
            std::ptr::copy_nonoverlapping(src.add(done), dst.add(done), 16);
            done += 16;
        }
        if len & 8 != 0 {
            std::ptr::copy_nonoverlapping(src.add(done), dst.add(done), 8);
            done += 8;
        }
        if len & 4 != 0 {
            std::ptr::copy_nonoverlapping(src.add(done), dst.add(done), 4);
            done += 4;
        }
        if len & 2 != 0 {
            std::ptr::copy_nonoverlapping(src.add(done), dst.add(done), 2);
            done += 2;
        }
        if len & 1 != 0 {
            src.add(done).copy_to_nonoverlapping(dst.add(done), 1);
        }
    }
}

/// Copies `len` bytes out of shared memory: what was visible before the call, or newer.
///
/// # Safety
/// As for [`place`], with the roles of `src` and `dst` exchanged.
#[inline]
pub unsafe fn fetch(dst: *mut u8, src: *const u8, len: usize) {
    fence(Ordering::Acquire);
    // SAFETY: both ranges are valid by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, len) };
    fence(Ordering::Acquire);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied_exactly() {
        let source: Vec<u8> = (0..=255).collect();
        for start in 0..16 {
            for len in 0..230 {
                let mut target = [0xeeu8; 288];
                // SAFETY: both ranges lie inside their arrays.
                unsafe { place(target.as_mut_ptr().add(16 + start), source.as_ptr(), len) };
                assert!(target[..16 + start].iter().all(|&b| b == 0xee));
                assert_eq!(&target[16 + start..16 + start + len], &source[..len]);
                assert!(target[16 + start + len..].iter().all(|&b| b == 0xee));
                let mut back = vec![0u8; len];
                // SAFETY: both ranges lie inside their arrays.
                unsafe { fetch(back.as_mut_ptr(), target.as_ptr().add(16 + start), len) };
                assert_eq!(back, &source[..len]);
            }
        }
    }
}
