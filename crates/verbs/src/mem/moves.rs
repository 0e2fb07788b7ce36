//! Moving bytes that others may read and write at the same time.
//!
//! A plain copy of such bytes is a data race, whatever the processor makes of it. On x86-64 the
//! moves are inline assembly, which the compiler does not look into: vectors of whole words, as
//! `memcpy` would use. Elsewhere, and under Miri, they are relaxed atomics of a word each, which
//! cost about twice as much for short copies.
//!
//! Each aligned word of 8 bytes on the shared side that lies whole in the range is read or written
//! once by one instruction, or several times as a whole: never in parts. So a word that others
//! change is copied as it was at some moment. Parts of words at either end go in aligned pieces of
//! 4, 2 and 1 bytes.

/// Copies `len` bytes, in address order up to the cache line. `shared` is the address of the side
/// that others access: `src` or `dst`.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, and they do not overlap. Others may access
/// either at the same time, through atomics, this module or another process only.
#[inline(always)]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize, shared: usize) {
    let tail = len & 7;
    // SAFETY: the pieces lie inside the first `len` bytes.
    unsafe {
        if shared & 7 != 0 {
            return ragged(dst, src, len, shared);
        }
        words(dst, src, len - tail);
        if tail != 0 {
            end(dst.add(len - tail), src.add(len - tail), tail);
        }
    }
}

/// [`copy`] for a range that starts inside a word.
///
/// # Safety
/// As for [`copy`].
// Cold, as `many` below, so that callers keep their registers for what is short and aligned.
#[cold]
#[inline(never)]
unsafe fn ragged(mut dst: *mut u8, mut src: *const u8, mut len: usize, shared: usize) {
    let mut to_word = shared.wrapping_neg() & 7;
    // SAFETY: as there; the pieces are aligned on the shared side.
    unsafe {
        while to_word != 0 && len != 0 {
            let mut size = 1 << to_word.trailing_zeros();
            while size > len {
                size >>= 1;
            }
            piece(dst, src, size);
            (dst, src, len) = (dst.add(size), src.add(size), len - size);
            to_word -= size;
        }
        let tail = len & 7;
        words(dst, src, len - tail);
        end(dst.add(len - tail), src.add(len - tail), tail);
    }
}

/// Copies the last `len` bytes, fewer than a word, which start on one.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
unsafe fn end(mut dst: *mut u8, mut src: *const u8, len: usize) {
    for size in [4, 2, 1] {
        if len & size != 0 {
            // SAFETY: as there.
            unsafe {
                piece(dst, src, size);
                (dst, src) = (dst.add(size), src.add(size));
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod arch {
    use std::arch::asm;

    /// From so many bytes on, vectors of 32 bytes are worth asking the processor for.
    const WIDE: usize = 256;

    /// Copies whole words.
    ///
    /// # Safety
    /// As for [`super::copy`]; `len` is a multiple of 8.
    #[inline(always)]
    pub(super) unsafe fn words(dst: *mut u8, src: *const u8, len: usize) {
        debug_assert!(len.is_multiple_of(8));
        // SAFETY: each vector lies inside the first `len` bytes and holds whole words. The two
        // from either end may meet in the middle, where they write the same words again.
        unsafe {
            if len > 64 {
                many(dst, src, len);
            } else if len > 32 {
                asm!(
                    "movdqu {a}, [{src}]",
                    "movdqu {b}, [{src} + 16]",
                    "movdqu {c}, [{src} + {len} - 32]",
                    "movdqu {d}, [{src} + {len} - 16]",
                    "movdqu [{dst}], {a}",
                    "movdqu [{dst} + 16], {b}",
                    "movdqu [{dst} + {len} - 32], {c}",
                    "movdqu [{dst} + {len} - 16], {d}",
                    dst = in(reg) dst, src = in(reg) src, len = in(reg) len,
                    a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                    options(nostack, preserves_flags),
                );
            } else if len >= 16 {
                asm!(
                    "movdqu {a}, [{src}]",
                    "movdqu {b}, [{src} + {len} - 16]",
                    "movdqu [{dst}], {a}",
                    "movdqu [{dst} + {len} - 16], {b}",
                    dst = in(reg) dst, src = in(reg) src, len = in(reg) len,
                    a = out(xmm_reg) _, b = out(xmm_reg) _,
                    options(nostack, preserves_flags),
                );
            } else if len != 0 {
                let word: u64;
                asm!("mov {}, [{}]", out(reg) word, in(reg) src,
                    options(nostack, preserves_flags, readonly));
                asm!("mov [{}], {}", in(reg) dst, in(reg) word, options(nostack, preserves_flags));
            }
        }
    }

    /// [`words`] for more than a line.
    ///
    /// # Safety
    /// As there.
    #[cold]
    #[inline(never)]
    unsafe fn many(mut dst: *mut u8, mut src: *const u8, mut len: usize) {
        // SAFETY: each turn copies what is left of the range. Vectors of 32 bytes are used where
        // the processor has them, and their upper halves are cleared afterwards.
        unsafe {
            if len >= WIDE && std::arch::is_x86_feature_detected!("avx") {
                let whole = len & !127;
                asm!(
                    "2:",
                    "vmovdqu ymm0, [{src}]",
                    "vmovdqu ymm1, [{src} + 32]",
                    "vmovdqu ymm2, [{src} + 64]",
                    "vmovdqu ymm3, [{src} + 96]",
                    "vmovdqu [{dst}], ymm0",
                    "vmovdqu [{dst} + 32], ymm1",
                    "vmovdqu [{dst} + 64], ymm2",
                    "vmovdqu [{dst} + 96], ymm3",
                    "sub {src}, -128",
                    "sub {dst}, -128",
                    "add {left}, -128",
                    "jnz 2b",
                    "vzeroupper",
                    dst = inout(reg) dst, src = inout(reg) src, left = inout(reg) whole => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    options(nostack),
                );
                len -= whole;
            }
            while len > 64 {
                asm!(
                    "movdqu {a}, [{src}]",
                    "movdqu {b}, [{src} + 16]",
                    "movdqu {c}, [{src} + 32]",
                    "movdqu {d}, [{src} + 48]",
                    "movdqu [{dst}], {a}",
                    "movdqu [{dst} + 16], {b}",
                    "movdqu [{dst} + 32], {c}",
                    "movdqu [{dst} + 48], {d}",
                    dst = in(reg) dst, src = in(reg) src,
                    a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                    options(nostack, preserves_flags),
                );
                (dst, src, len) = (dst.add(64), src.add(64), len - 64);
            }
            words(dst, src, len);
        }
    }

    /// Copies 4, 2 or 1 bytes with one instruction each way.
    ///
    /// # Safety
    /// As for [`super::copy`].
    #[inline(always)]
    pub(super) unsafe fn piece(dst: *mut u8, src: *const u8, size: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match size {
                4 => asm!("mov {t:e}, [{src}]", "mov [{dst}], {t:e}",
                    t = out(reg) _, src = in(reg) src, dst = in(reg) dst,
                    options(nostack, preserves_flags)),
                2 => asm!("movzx {t:e}, word ptr [{src}]", "mov word ptr [{dst}], {t:x}",
                    t = out(reg) _, src = in(reg) src, dst = in(reg) dst,
                    options(nostack, preserves_flags)),
                _ => asm!("movzx {t:e}, byte ptr [{src}]", "mov byte ptr [{dst}], {t:l}",
                    t = out(reg) _, src = in(reg) src, dst = in(reg) dst,
                    options(nostack, preserves_flags)),
            }
        }
    }

    /// Reads eight bytes.
    ///
    /// # Safety
    /// As for [`super::copy`].
    #[inline(always)]
    pub(in super::super) unsafe fn load(src: *const u8) -> u64 {
        let word;
        // SAFETY: the caller's promise.
        unsafe {
            asm!("mov {}, [{}]", out(reg) word, in(reg) src,
                options(nostack, preserves_flags, readonly));
        }
        word
    }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
mod arch {
    use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed, fence};

    const LINE: usize = 64;

    /// Copies whole words; a release fence between lines keeps their order.
    ///
    /// # Safety
    /// As for [`super::copy`]; `len` is a multiple of 8.
    pub(super) unsafe fn words(dst: *mut u8, src: *const u8, len: usize) {
        for at in (0..len).step_by(8) {
            // SAFETY: the word lies inside the first `len` bytes.
            unsafe {
                if (dst.addr() + at).is_multiple_of(LINE) {
                    fence(std::sync::atomic::Ordering::Release);
                }
                store::<8>(dst.add(at), load_array(src.add(at)));
            }
        }
    }

    /// Copies 4, 2 or 1 bytes.
    ///
    /// # Safety
    /// As for [`super::copy`].
    pub(super) unsafe fn piece(dst: *mut u8, src: *const u8, size: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match size {
                4 => store::<4>(dst, load_array(src)),
                2 => store::<2>(dst, load_array(src)),
                _ => store::<1>(dst, load_array(src)),
            }
        }
    }

    /// Reads eight bytes.
    ///
    /// # Safety
    /// As for [`super::copy`].
    pub(in super::super) unsafe fn load(src: *const u8) -> u64 {
        // SAFETY: the caller's promise.
        u64::from_ne_bytes(unsafe { load_array(src) })
    }

    /// Reads as one atomic where that is aligned, and byte by byte otherwise.
    unsafe fn load_array<const N: usize>(src: *const u8) -> [u8; N] {
        let mut bytes = [0; N];
        let src = src.cast_mut();
        // SAFETY: the caller's promise; the atomics are aligned.
        unsafe {
            match N {
                8 if src.addr() % 8 == 0 => {
                    let word = AtomicU64::from_ptr(src.cast()).load(Relaxed);
                    bytes.copy_from_slice(&word.to_ne_bytes());
                }
                4 if src.addr() % 4 == 0 => {
                    let word = AtomicU32::from_ptr(src.cast()).load(Relaxed);
                    bytes.copy_from_slice(&word.to_ne_bytes());
                }
                2 if src.addr() % 2 == 0 => {
                    let word = AtomicU16::from_ptr(src.cast()).load(Relaxed);
                    bytes.copy_from_slice(&word.to_ne_bytes());
                }
                _ => {
                    for (at, byte) in bytes.iter_mut().enumerate() {
                        *byte = AtomicU8::from_ptr(src.add(at)).load(Relaxed);
                    }
                }
            }
        }
        bytes
    }

    /// Writes as one atomic where that is aligned, and byte by byte otherwise.
    unsafe fn store<const N: usize>(dst: *mut u8, bytes: [u8; N]) {
        let padded = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            word
        };
        let word = padded(&bytes);
        let half = [word[0], word[1], word[2], word[3]];
        // SAFETY: the caller's promise; the atomics are aligned.
        unsafe {
            match N {
                8 if dst.addr() % 8 == 0 => {
                    AtomicU64::from_ptr(dst.cast()).store(u64::from_ne_bytes(word), Relaxed);
                }
                4 if dst.addr() % 4 == 0 => {
                    AtomicU32::from_ptr(dst.cast()).store(u32::from_ne_bytes(half), Relaxed);
                }
                2 if dst.addr() % 2 == 0 => {
                    let two = u16::from_ne_bytes([word[0], word[1]]);
                    AtomicU16::from_ptr(dst.cast()).store(two, Relaxed);
                }
                _ => {
                    for (at, byte) in bytes.iter().enumerate() {
                        AtomicU8::from_ptr(dst.add(at)).store(*byte, Relaxed);
                    }
                }
            }
        }
    }
}

pub(super) use arch::load;
use arch::{piece, words};
