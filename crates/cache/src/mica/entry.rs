//! The header of a log entry.
//!
//! ```text
//! byte 0         4         8         12        16
//!      +---------+---------+---------+---------+-----------+-----------+---------+
//!      | meta    | expiry  | flags   | version | key       | value     | padding |
//!      +---------+---------+---------+---------+-----------+-----------+---------+
//! meta: bits 0-20 value_len, 21-28 key_len, 29 dead, 30 pad, 31 zero
//! ```
//! All little-endian; an entry is padded to a multiple of 8 bytes. A pad entry
//! has the flags `dead` and `pad`, no key, and its length in units as `expiry`.

#![forbid(unsafe_code)]

/// Bytes before the key.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes in a unit, in which the log counts.
pub(crate) const UNIT_BYTES: usize = 8;
/// Units that a header takes.
pub(crate) const HEADER_UNITS: u64 = (HEADER_BYTES / UNIT_BYTES) as u64;

const VALUE_LEN_BITS: u32 = 21;
const KEY_LEN_BITS: u32 = 8;
const DEAD: u32 = 1 << 29;
const PAD: u32 = 1 << 30;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(VALUE_BYTES_MAX < 1 << VALUE_LEN_BITS);
const _: () = assert!(KEY_BYTES_MAX < 1 << KEY_LEN_BITS);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    meta: u32,
    pub(crate) expiry: u32,
    pub(crate) flags: u32,
    pub(crate) version: u32,
}

impl Header {
    /// A live entry. The lengths are within their maxima.
    #[inline]
    pub(crate) fn new(
        key_len: usize,
        value_len: usize,
        expiry: u32,
        flags: u32,
        version: u32,
    ) -> Header {
        debug_assert!(key_len <= KEY_BYTES_MAX && value_len <= VALUE_BYTES_MAX);
        Header {
            meta: value_len as u32 | (key_len as u32) << VALUE_LEN_BITS,
            expiry,
            flags,
            version,
        }
    }

    pub(crate) fn pad(units: u64) -> Header {
        Header {
            meta: DEAD | PAD,
            expiry: units as u32,
            flags: 0,
            version: 0,
        }
    }

    #[inline]
    pub(crate) fn parse(bytes: &[u8; HEADER_BYTES]) -> Header {
        let whole = u128::from_le_bytes(*bytes);
        Header {
            meta: whole as u32,
            expiry: (whole >> 32) as u32,
            flags: (whole >> 64) as u32,
            version: (whole >> 96) as u32,
        }
    }

    #[inline]
    pub(crate) fn emit(self) -> [u8; HEADER_BYTES] {
        let low = u64::from(self.meta) | u64::from(self.expiry) << 32;
        let high = u64::from(self.flags) | u64::from(self.version) << 32;
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
    }

    #[inline]
    pub(crate) fn key_len(self) -> usize {
        ((self.meta >> VALUE_LEN_BITS) & ((1 << KEY_LEN_BITS) - 1)) as usize
    }

    #[inline]
    pub(crate) fn value_len(self) -> usize {
        (self.meta & ((1 << VALUE_LEN_BITS) - 1)) as usize
    }

    /// Superseded, deleted or evicted from the index, or no item at all.
    #[inline]
    pub(crate) fn is_dead(self) -> bool {
        self.meta & DEAD != 0
    }

    /// Whether the entry is live and its key has `key_len` bytes: one comparison, since all bits
    /// above the key's length are zero in a live entry. No key is longer than it may be.
    #[inline(always)]
    pub(crate) fn is_live_of(self, key_len: usize) -> bool {
        key_len <= KEY_BYTES_MAX && self.meta >> VALUE_LEN_BITS == key_len as u32
    }

    pub(crate) fn is_pad(self) -> bool {
        self.meta & PAD != 0
    }

    pub(crate) fn into_dead(self) -> Header {
        Header {
            meta: self.meta | DEAD,
            ..self
        }
    }

    /// Whether the item counts as gone at `now_s`. Expiry 0 is never.
    #[inline]
    pub(crate) fn is_expired(self, now_s: u32) -> bool {
        self.expiry != 0 && self.expiry <= now_s
    }

    /// Units from this entry to the next one.
    #[inline]
    pub(crate) fn units(self) -> u64 {
        if self.is_pad() {
            u64::from(self.expiry)
        } else {
            entry_units(self.key_len(), self.value_len())
        }
    }
}

/// Units that an entry takes in the log.
#[inline]
pub(crate) fn entry_units(key_len: usize, value_len: usize) -> u64 {
    (HEADER_BYTES + key_len + value_len).div_ceil(UNIT_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_has_the_drawn_layout() {
        let header = Header::new(250, 1 << 20, 0x0403_0201, 0x0807_0605, 0x0c0b_0a09);
        let bytes = header.emit();
        let meta = (1_u32 << 20) | 250 << 21;
        assert_eq!(bytes[..4], meta.to_le_bytes());
        assert_eq!(bytes[4..], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(Header::parse(&bytes), header);
        assert_eq!((header.key_len(), header.value_len()), (250, 1 << 20));
        assert!(!header.is_dead() && !header.is_pad());
        assert!(header.is_live_of(250) && !header.is_live_of(249));
        assert!(!header.into_dead().is_live_of(250));
        // The bit that says so would be a longer key's.
        assert!(!header.into_dead().is_live_of(250 + (1 << KEY_LEN_BITS)));

        let dead = Header::parse(&header.into_dead().emit());
        assert!(dead.is_dead() && !dead.is_pad());
        assert_eq!((dead.key_len(), dead.value_len()), (250, 1 << 20));
        assert_eq!(dead.units(), header.units());
    }

    #[test]
    fn a_sixteen_byte_key_and_a_value_of_32_fill_a_line() {
        assert_eq!(entry_units(16, 32), 8);
        assert_eq!(entry_units(16, 33), 9);
        assert_eq!(entry_units(1, 0), 3);
    }

    #[test]
    fn pads_are_dead_and_know_their_length() {
        let pad = Header::parse(&Header::pad(77).emit());
        assert!(pad.is_pad() && pad.is_dead());
        assert_eq!(pad.units(), 77);
    }

    #[test]
    fn expiry_is_the_first_second_without_the_item() {
        let header = Header::new(1, 1, 100, 0, 1);
        assert!(!header.is_expired(99));
        assert!(header.is_expired(100));
        assert!(!Header::new(1, 1, 0, 0, 1).is_expired(u32::MAX));
    }
}
