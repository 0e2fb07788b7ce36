//! One record of the log.
//!
//! ```text
//!  0      4     5        6..      ..        ..       ..       ..      ..    ..
//!  +------+-----+--------+--------+---------+--------+--------+-------+-----+-------+-----+
//!  | crc  | kind| key's  | value's| origin  | fence  | expiry | flags | key | value | pad |
//!  |      | bits| length | length | 8 bytes | 8      | 4      | 4     |     |       |     |
//!  +------+-----+--------+--------+---------+--------+--------+-------+-----+-------+-----+
//!           1     1..3     1..5     if the bits say so (fence: tombstones)          to a grain
//! ```
//!
//! The checksum covers everything behind itself but the padding, and is tied to the place. A short
//! record costs 8 bytes beside its key and value: uDepot's 6 + 2, with a checksum over the data.

use block::crc32c;

use super::{Emitter, FormatError, Reader, VERSION_END, Version, bind, varint_len};

/// The longest key.
pub const KEY_MAX: usize = 64 << 10;

const TOMBSTONE: u8 = 1;
const REPLACES: u8 = 1 << 1;
const ORIGIN: u8 = 1 << 2;
const EXPIRY: u8 = 1 << 3;
const FLAGS: u8 = 1 << 4;
const ALL: u8 = TOMBSTONE | REPLACES | ORIGIN | EXPIRY | FLAGS;

pub(super) const CRC_LEN: usize = 4;
/// What a record grows by when it is moved.
pub(crate) const ORIGIN_LEN: usize = 8;

/// The longest header: what has to be read to find a key.
pub const HEADER_MAX: usize = CRC_LEN + 1 + 3 + 5 + 8 + 8 + 4 + 4;

const WHAT: &str = "a record";

/// What a record says beside its key and value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The key is gone. `fence` is the first sequence number that no segment had yet when the key
    /// was removed from the index: older versions may stand in segments below it, so long must the
    /// tombstone stay.
    pub tombstone: Option<u64>,
    /// An older version of this key may stand in the log: when this one is given up, a tombstone
    /// must take its place.
    pub replaces: bool,
    /// When the record was first written, if it was moved since.
    pub origin: Option<Version>,
    /// The second, since the epoch, from which the record is not to be seen; 0 for never.
    pub expiry: u32,
    /// What the user keeps with the value.
    pub flags: u32,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it says beside its key and value.
    pub meta: Meta,
    /// Its key.
    pub key: &'a [u8],
    /// Its value; empty in a tombstone.
    pub value: &'a [u8],
}

/// The beginning of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it says beside its key and value.
    pub meta: Meta,
    crc: u32,
    /// Where the key begins.
    pub key_at: usize,
    /// How long the key is.
    pub key_len: usize,
    /// How long the value is.
    pub value_len: usize,
}

impl Header {
    /// Reads a header; nothing is known to be right yet.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if the bytes cannot be a record.
    #[inline(always)]
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let header = Self::parse_any_origin(bytes)?;
        if header
            .meta
            .origin
            .is_some_and(|origin| origin.0 >= VERSION_END)
        {
            let field = "the origin";
            return Err(FormatError::Field { what: WHAT, field });
        }
        Ok(header)
    }

    /// The same, even if the origin is no version.
    #[inline(always)]
    pub(super) fn parse_any_origin(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader(bytes);
        let short = FormatError::Short { what: WHAT };
        let field = |field| FormatError::Field { what: WHAT, field };
        let crc = reader.u32().ok_or(short)?;
        let bits = reader.u8().ok_or(short)?;
        if bits & !ALL != 0 {
            return Err(field("the kind"));
        }
        let key_len = reader.varint().ok_or(field("the key's length"))? as usize;
        if key_len > KEY_MAX {
            return Err(field("the key's length"));
        }
        let value_len = reader.varint().ok_or(field("the value's length"))? as usize;
        let mut meta = Meta {
            replaces: bits & REPLACES != 0,
            ..Meta::default()
        };
        if bits & ORIGIN != 0 {
            meta.origin = Some(Version(reader.u64().ok_or(short)?));
        }
        if bits & TOMBSTONE != 0 {
            meta.tombstone = Some(reader.u64().ok_or(short)?);
        }
        if bits & EXPIRY != 0 {
            meta.expiry = reader.u32().ok_or(short)?;
        }
        if bits & FLAGS != 0 {
            meta.flags = reader.u32().ok_or(short)?;
        }
        let key_at = bytes.len() - reader.0.len();
        Ok(Self {
            meta,
            crc,
            key_at,
            key_len,
            value_len,
        })
    }

    /// How many bytes the record takes, without the padding.
    pub fn record_len(&self) -> usize {
        self.key_at + self.key_len + self.value_len
    }

    /// Reads the rest of the record of which this is the header, at the beginning of `bytes`, and checks all of it: that it was
    /// written for `grain` of the segment with the sequence number `seq`.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if no such record was written here.
    #[inline]
    pub fn check<'a>(
        &self,
        bytes: &'a [u8],
        seed: u64,
        seq: u64,
        grain: u32,
    ) -> Result<Record<'a>, FormatError> {
        let bytes = bytes
            .get(..self.record_len())
            .ok_or(FormatError::Short { what: WHAT })?;
        if self.crc ^ bind(seed, seq, grain) != crc32c::checksum(&bytes[CRC_LEN..]) {
            return Err(FormatError::Checksum { what: WHAT });
        }
        let (key, value) = bytes[self.key_at..].split_at(self.key_len);
        Ok(Record {
            meta: self.meta,
            key,
            value,
        })
    }
}

impl<'a> Record<'a> {
    /// Reads the record at the beginning of `bytes`, which was written for `grain` of the segment
    /// with the sequence number `seq`, and checks all of it.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if no such record was written here.
    pub fn parse(bytes: &'a [u8], seed: u64, seq: u64, grain: u32) -> Result<Self, FormatError> {
        Header::parse(bytes)?.check(bytes, seed, seq, grain)
    }

    fn header_len(&self) -> usize {
        let meta = &self.meta;
        CRC_LEN
            + 1
            + varint_len(self.key.len() as u32)
            + varint_len(self.value.len() as u32)
            + if meta.origin.is_some() { ORIGIN_LEN } else { 0 }
            + if meta.tombstone.is_some() { 8 } else { 0 }
            + if meta.expiry != 0 { 4 } else { 0 }
            + if meta.flags != 0 { 4 } else { 0 }
    }

    /// How many bytes the record takes, without the padding.
    pub fn encoded_len(&self) -> usize {
        self.header_len() + self.key.len() + self.value.len()
    }

    /// Writes the record to the beginning of `out`. Its checksum is tied to no place yet:
    /// [`tie`] does that when the place is known.
    ///
    /// # Panics
    ///
    /// If `out` has not [`Record::encoded_len`] bytes.
    pub fn emit(&self, out: &mut [u8]) {
        let meta = &self.meta;
        let mut bits = 0;
        for (bit, set) in [
            (TOMBSTONE, meta.tombstone.is_some()),
            (REPLACES, meta.replaces),
            (ORIGIN, meta.origin.is_some()),
            (EXPIRY, meta.expiry != 0),
            (FLAGS, meta.flags != 0),
        ] {
            bits |= if set { bit } else { 0 };
        }
        let mut emitter = Emitter::new(out);
        emitter.u32(0).bytes(&[bits]);
        emitter.varint(self.key.len() as u32);
        emitter.varint(self.value.len() as u32);
        if let Some(origin) = meta.origin {
            emitter.u64(origin.0);
        }
        if let Some(fence) = meta.tombstone {
            emitter.u64(fence);
        }
        if meta.expiry != 0 {
            emitter.u32(meta.expiry);
        }
        if meta.flags != 0 {
            emitter.u32(meta.flags);
        }
        let len = emitter.bytes(self.key).bytes(self.value).len();
        let crc = crc32c::checksum(&out[CRC_LEN..len]);
        out[..CRC_LEN].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Ties the record at the beginning of `bytes` to its place.
///
/// # Panics
///
/// If there is no room for a checksum.
pub fn tie(bytes: &mut [u8], seed: u64, seq: u64, grain: u32) {
    let crc: &mut [u8; CRC_LEN] = bytes.first_chunk_mut().expect("a record has a checksum");
    *crc = (u32::from_le_bytes(*crc) ^ bind(seed, seq, grain)).to_le_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn metas() -> impl Strategy<Value = Meta> {
        (
            any::<Option<u64>>(),
            any::<bool>(),
            proptest::option::of(0..VERSION_END),
            any::<u32>(),
            any::<u32>(),
        )
            .prop_map(|(tombstone, replaces, origin, expiry, flags)| Meta {
                tombstone,
                replaces,
                origin: origin.map(Version),
                expiry,
                flags,
            })
    }

    fn emitted(record: &Record<'_>) -> Vec<u8> {
        let mut bytes = vec![0xee; record.encoded_len()];
        record.emit(&mut bytes);
        tie(&mut bytes, 1, 2, 3);
        bytes
    }

    proptest! {
        #[test]
        fn a_record_comes_back_and_no_flipped_bit_does(
            meta in metas(),
            key in prop::collection::vec(any::<u8>(), 0..300),
            value in prop::collection::vec(any::<u8>(), 0..300),
            flip in any::<prop::sample::Index>(),
        ) {
            let record = Record { meta, key: &key, value: &value };
            let mut bytes = emitted(&record);
            prop_assert_eq!(Record::parse(&bytes, 1, 2, 3), Ok(record));
            // Not at another place, nor at another time, nor in another store.
            for (seed, seq, grain) in [(2, 2, 3), (1, 3, 3), (1, 2, 4)] {
                prop_assert!(Record::parse(&bytes, seed, seq, grain).is_err());
            }
            prop_assert!(Record::parse(&bytes[..bytes.len() - 1], 1, 2, 3).is_err());
            let bit = flip.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Record::parse(&bytes, 1, 2, 3).is_err());
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Record::parse(&bytes, 1, 2, 3);
        }
    }

    #[test]
    fn a_short_record_costs_eight_bytes() {
        let record = Record {
            meta: Meta::default(),
            key: &[7; 16],
            value: &[8; 1024],
        };
        assert_eq!(record.encoded_len(), 16 + 1024 + 8);
        let empty = Record {
            value: b"",
            ..record
        };
        assert_eq!(empty.encoded_len(), 16 + 7);
        assert!(Record::parse(&emitted(&empty), 1, 2, 3).is_ok());
    }

    #[test]
    fn a_header_with_everything_fits() {
        let (key, value) = ([0; KEY_MAX], []);
        let record = Record {
            meta: Meta {
                tombstone: Some(1),
                replaces: true,
                origin: Some(Version(2)),
                expiry: 3,
                flags: 4,
            },
            key: &key,
            value: &value,
        };
        assert_eq!(record.header_len() + 4, HEADER_MAX);
    }
}
