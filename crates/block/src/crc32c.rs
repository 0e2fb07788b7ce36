//! CRC-32C, the checksum of what stands on devices.
//!
//! Processors have an instruction for it, which takes eight bytes. Its result is there three cycles later, so three
//! stretches are taken at a time, and put together by multiplying by powers of x. Where the processor
//! multiplies vectors of 64 bytes without carries, that is three times as fast for what is long (a library does
//! it); for what is short, and on other processors, the instruction costs the least.

use crc_fast::{CrcAlgorithm, Digest};

pub mod polynomial;

/// From how many bytes on vectors of 64 bytes are worth their beginning.
const LONG: usize = 512;

/// The checksum of some bytes.
///
/// ```
/// assert_eq!(block::crc32c::checksum(b"123456789"), 0xe306_9283);
/// ```
#[inline]
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(crc) = x86::checksum(bytes) {
        return crc;
    }
    portable(0, bytes)
}

/// The checksum of bytes that follow others, whose checksum is `crc`: of all of them together.
#[inline]
#[must_use]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(crc) = x86::append(crc, bytes) {
        return crc;
    }
    portable(crc, bytes)
}

/// As the library does it on this processor.
fn portable(crc: u32, bytes: &[u8]) -> u32 {
    let begun = u64::from(!crc);
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, begun);
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64,
        _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_xor_si128,
    };

    use super::LONG;
    use super::polynomial::x_to_the_power_of;

    #[inline]
    pub(super) fn checksum(bytes: &[u8]) -> Option<u32> {
        if bytes.len() >= LONG
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("avx512vl")
        {
            let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
            return Some(crc as u32);
        }
        append(0, bytes)
    }

    #[inline]
    pub(super) fn append(crc: u32, bytes: &[u8]) -> Option<u32> {
        if !is_x86_feature_detected!("sse4.2") || !is_x86_feature_detected!("pclmulqdq") {
            return None;
        }
        // SAFETY: the processor has both.
        Some(!unsafe { by_instruction(!crc, bytes) })
    }

    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn by_instruction(crc: u32, bytes: &[u8]) -> u32 {
        let (crc, bytes) = in_threes::<1024, 128>(crc.into(), bytes);
        let (crc, bytes) = in_threes::<256, 128>(crc, bytes);
        let (mut crc, bytes) = in_threes::<64, 64>(crc, bytes);
        let (words, rest) = bytes.as_chunks();
        for word in words {
            crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
        }
        let mut crc = crc as u32;
        let mut rest = rest;
        if let Some((word, after)) = rest.split_first_chunk() {
            crc = _mm_crc32_u32(crc, u32::from_le_bytes(*word));
            rest = after;
        }
        if let Some((word, after)) = rest.split_first_chunk() {
            crc = _mm_crc32_u16(crc, u16::from_le_bytes(*word));
            rest = after;
        }
        match rest.first() {
            Some(byte) => _mm_crc32_u8(crc, *byte),
            None => crc,
        }
    }

    /// Takes three stretches of `LEN` bytes at a time, as often as there are three, `GROUP` bytes of each between two
    /// branches. Returns what is left.
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn in_threes<const LEN: usize, const GROUP: usize>(
        mut crc: u64,
        mut bytes: &[u8],
    ) -> (u64, &[u8]) {
        while let Some((first, rest)) = bytes.split_first_chunk::<LEN>()
            && let Some((second, rest)) = rest.split_first_chunk::<LEN>()
            && let Some((third, rest)) = rest.split_first_chunk::<LEN>()
        {
            let [mut a, mut b, mut c] = [crc, 0, 0];
            let groups = |stretch| <[u8]>::as_chunks::<GROUP>(stretch).0;
            for ((x, y), z) in groups(first).iter().zip(groups(second)).zip(groups(third)) {
                for at in 0..GROUP / 8 {
                    let word = |group: &[u8; GROUP]| u64::from_le_bytes(group.as_chunks().0[at]);
                    a = _mm_crc32_u64(a, word(x));
                    b = _mm_crc32_u64(b, word(y));
                    c = _mm_crc32_u64(c, word(z));
                }
            }
            let times = |crc: u64, by: i64| {
                _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(crc as i64), _mm_cvtsi64_si128(by))
            };
            let a = times(a, const { shift(2 * LEN) });
            let b = times(b, const { shift(LEN) });
            let both = _mm_cvtsi128_si64(_mm_xor_si128(a, b)) as u64;
            crc = c ^ _mm_crc32_u64(0, both);
            bytes = rest;
        }
        (crc, bytes)
    }

    /// What a checksum is multiplied by when so many bytes follow. The product has a bit too few, and is taken
    /// for eight bytes of data: 33 powers that are not to be counted.
    const fn shift(len: usize) -> i64 {
        x_to_the_power_of(8 * len as u64 - 33) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit, as the polynomial says.
    fn slowly(crc: u32, bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!crc, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
            })
        })
    }

    #[test]
    fn every_way_comes_to_the_same() {
        let mut random = fastrand::Rng::with_seed(7);
        let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
            .take(20_000)
            .collect();
        let short = 0..300;
        let around = [511, 512, 767, 768, 3071, 3072, 4119, 6144, 9999, 19_990];
        for len in short.chain(around) {
            for start in [0, 1, 7] {
                let bytes = &bytes[start..start + len];
                let right = slowly(0, bytes);
                assert_eq!(checksum(bytes), right, "{len} bytes");
                assert_eq!(portable(0, bytes), right, "{len} bytes");
                let (head, tail) = bytes.split_at(random.usize(..=len));
                for way in [append, portable] {
                    assert_eq!(way(way(0, head), tail), right, "{len} bytes");
                }
            }
        }
    }
}
