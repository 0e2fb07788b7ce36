//! Copying to and from memory that others read and write at the same time.
//!
//! What a WRITE promises its reader (and what HERD's polling relies on): bytes become visible in
//! address order up to the cache line, and the last bytes last. A reader that sees the last word
//! of a message therefore sees all of it.
//!
//! These functions are the only place where registered memory is touched by a CPU. They are no data
//! races (`moves.rs`), and copy each aligned word of 8 bytes as a whole; both sides treat what they
//! find as untrusted bytes, so a race can yield odd bytes but nothing worse.

mod moves;

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
#[inline(always)]
pub unsafe fn place(dst: *mut u8, src: *const u8, len: usize) {
    debug_assert!(are_disjoint(dst, src, len), "copying onto itself");
    let end = dst as usize + len;
    // Most messages end with a whole word and lie in one line: there only the word is ordered.
    let in_one_line = (dst as usize ^ end.wrapping_sub(1)) < LINE;
    if len >= 8 && end.is_multiple_of(8) && in_one_line {
        let head = len - 8;
        // SAFETY: both ranges are valid by the caller's promise; the last word is aligned.
        unsafe {
            moves::copy(dst, src, head, dst.addr());
            let word = moves::load(src.add(head));
            AtomicU64::from_ptr(dst.add(head).cast()).store(word, Ordering::Release);
        }
    } else {
        // SAFETY: the caller's promise.
        unsafe { place_long(dst, src, len) };
    }
}

/// Bytes of the word that ends a message, of `len` bytes and at `end`: as wide as its alignment and the
/// length allow. `len` is not 0.
#[inline]
pub fn last_word_len(end: usize, len: usize) -> usize {
    debug_assert!(len > 0, "a message without bytes has no end");
    let aligned = end.trailing_zeros().min(3);
    1 << aligned.min(len.ilog2())
}

/// [`place`] for what crosses lines or ends with less than a word.
///
/// # Safety
/// As for [`place`].
#[cold]
#[inline(never)]
unsafe fn place_long(dst: *mut u8, src: *const u8, len: usize) {
    if len == 0 {
        return;
    }
    let tail = last_word_len(dst.addr() + len, len);
    let head = len - tail;
    // SAFETY: the first `head` bytes are valid by the caller's promise. The word lies inside both
    // ranges and is aligned to `tail`, because `end` is a multiple of `tail`, a power of two.
    unsafe {
        moves::copy(dst, src, head, dst.addr());
        let (last, from) = (dst.add(head), src.add(head));
        let word = if tail == 8 {
            moves::load(from).to_le()
        } else {
            let mut bytes = [0; 8];
            moves::copy(bytes.as_mut_ptr(), from, tail, from.addr());
            u64::from_le_bytes(bytes)
        };
        match tail {
            8 => AtomicU64::from_ptr(last.cast()).store(word.to_le(), Ordering::Release),
            4 => AtomicU32::from_ptr(last.cast()).store((word as u32).to_le(), Ordering::Release),
            2 => AtomicU16::from_ptr(last.cast()).store((word as u16).to_le(), Ordering::Release),
            _ => AtomicU8::from_ptr(last).store(word as u8, Ordering::Release),
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
    unsafe { moves::copy(dst, src, len, dst.addr()) };
}

/// Whether two ranges of `len` bytes exist and do not overlap.
fn are_disjoint(one: *const u8, other: *const u8, len: usize) -> bool {
    let (low, high) = (one.addr().min(other.addr()), one.addr().max(other.addr()));
    len == 0 || (low > 0 && high.checked_add(len).is_some() && high - low >= len)
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
    unsafe { moves::copy(dst, src, len, src.addr()) };
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
    use std::sync::atomic::AtomicBool;

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

    /// Copies words that another thread changes, and counts those that it never wrote.
    fn torn_words(offset: usize, len: usize, out: bool) -> usize {
        const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };
        let shared: [AtomicU64; 40] = std::array::from_fn(|_| AtomicU64::new(0));
        let stop = AtomicBool::new(false);
        let base = shared.as_ptr().cast::<u8>().cast_mut();
        let whole = |word: u64| word == 0 || word == u64::MAX;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut torn = 0;
                let mut round = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    for word in &shared {
                        if out {
                            word.store(0u64.wrapping_sub(round & 1), Ordering::Relaxed);
                        } else {
                            torn += usize::from(!whole(word.load(Ordering::Relaxed)));
                        }
                    }
                    round += 1;
                }
                torn
            });
            let mut torn = 0;
            for round in 0..ROUNDS {
                let mut private = [0u64.wrapping_sub(round & 1); 41];
                let at = private.as_mut_ptr().cast::<u8>().wrapping_add(offset);
                // SAFETY: both ranges lie inside their arrays, and the other thread uses atomics.
                unsafe {
                    if out {
                        fetch(at, base.add(offset), len);
                    } else if round % 4 < 2 {
                        place(base.add(offset), at, len);
                    } else {
                        put(base.add(offset), at, len);
                    }
                }
                if out {
                    let words = private[offset.div_ceil(8)..(offset + len) / 8].iter();
                    torn += words.filter(|word| !whole(**word)).count();
                }
            }
            stop.store(true, Ordering::Relaxed);
            torn + other.join().expect("the other thread ends")
        })
    }

    #[test]
    fn an_aligned_word_is_copied_as_a_whole_whatever_the_length() {
        for (offset, len) in [
            (0, 9),
            (0, 12),
            (0, 15),
            (0, 17),
            (0, 31),
            (0, 33),
            (0, 63),
            (0, 65),
            (0, 257),
            (3, 13),
            (3, 30),
            (5, 70),
            (7, 300),
        ] {
            assert_eq!(
                torn_words(offset, len, true),
                0,
                "fetch {len} bytes at {offset}"
            );
            if offset == 0 && len.is_multiple_of(8) {
                assert_eq!(torn_words(offset, len, false), 0, "put {len} bytes");
            }
        }
        for len in [8, 16, 24, 40, 64, 72, 320] {
            assert_eq!(torn_words(0, len, true), 0, "fetch {len} bytes");
            assert_eq!(torn_words(0, len, false), 0, "put {len} bytes");
        }
    }
}
