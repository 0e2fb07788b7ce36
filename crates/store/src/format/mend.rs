//! What can still be told of damaged records: which bit is wrong, and where the next whole record is.
//!
//! CRC-32C tells the place of a single wrong bit: its syndrome, the checksum found beside the one stored,
//! is the bit's place as a power of x. And from the checksums of two prefixes follows that of what lies
//! between them, so looking for a record at every grain costs no more than reading once.

use block::crc32c;
use block::crc32c::polynomial::{times, times_x, x_to_the_power_of};

use super::bind;
use super::record::{CRC_LEN, Header, Meta, Record};

/// How many steps may be spent on finding wrong bits in one segment.
const STEPS_MAX: u64 = 1 << 28;

/// The bytes of a record's header that say how long it is, and what follows them at most.
const LENGTHS_END: usize = CRC_LEN + 1 + 3 + 5;

/// A record in which one bit is wrong, as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mended {
    pub(crate) meta: Meta,
    pub(crate) key: Vec<u8>,
    /// How long it is, without the padding.
    pub(crate) len: usize,
}

/// Finds wrong bits, as long as that takes no more than some effort.
#[derive(Debug)]
pub(crate) struct Mender {
    steps_left: u64,
}

impl Default for Mender {
    fn default() -> Self {
        Self {
            steps_left: STEPS_MAX,
        }
    }
}

impl Mender {
    /// What the record at the beginning of `bytes` was, if one bit of it is wrong.
    pub(crate) fn mend(&mut self, bytes: &[u8], seed: u64, seq: u64, grain: u32) -> Option<Mended> {
        let bound = bind(seed, seq, grain);
        self.in_place(bytes, bound)
            .or_else(|| self.in_lengths(bytes, seed, seq, grain))
    }

    /// One bit of the checksum, the key, the value or a field that has always the same length.
    fn in_place(&mut self, bytes: &[u8], bound: u32) -> Option<Mended> {
        // The wrong bit may be the one that makes the origin greater than any version.
        let header = Header::parse_any_origin(bytes).ok()?;
        let len = header.record_len();
        let covered = bytes.get(CRC_LEN..len)?;
        // A damaged header may claim any length, again and again.
        self.steps_left = self.steps_left.checked_sub(covered.len() as u64 / 8)?;
        let stored = u32::from_le_bytes(*bytes.first_chunk()?);
        let syndrome = crc32c::checksum(covered) ^ stored ^ bound;
        let mut head = bytes[..header.key_at + header.key_len].to_vec();
        if syndrome.count_ones() != 1 {
            let (byte, bit) = self.find_bit(syndrome, covered.len())?;
            if let Some(wrong) = head.get_mut(CRC_LEN + byte) {
                *wrong ^= bit;
            }
        }
        let mended = Header::parse(&head).ok()?;
        let lengths = |header: &Header| (header.key_at, header.key_len, header.value_len);
        (lengths(&mended) == lengths(&header)).then(|| Mended {
            meta: mended.meta,
            key: head[mended.key_at..].to_vec(),
            len,
        })
    }

    /// The byte, and the bit in it, that has this syndrome when it is wrong.
    fn find_bit(&mut self, syndrome: u32, len: usize) -> Option<(usize, u8)> {
        // The last bit that goes into a checksum is the highest one of the last byte.
        let mut error = x_to_the_power_of(32);
        for byte in (0..len).rev() {
            self.steps_left = self.steps_left.checked_sub(8)?;
            for bit in (0..8).rev() {
                if error == syndrome {
                    return Some((byte, 1 << bit));
                }
                error = times_x(error);
            }
        }
        None
    }

    /// One bit of what says how long the record is.
    fn in_lengths(&mut self, bytes: &[u8], seed: u64, seq: u64, grain: u32) -> Option<Mended> {
        let mut head = [0; LENGTHS_END];
        let held = bytes.len().min(LENGTHS_END);
        head[..held].copy_from_slice(&bytes[..held]);
        let mut copy = Vec::new();
        for bit in CRC_LEN * 8..held * 8 {
            head[bit / 8] ^= 1 << (bit % 8);
            // What follows the lengths is the same.
            let mut start = [0; super::record::HEADER_MAX];
            let beginning = bytes.len().min(start.len());
            start[..beginning].copy_from_slice(&bytes[..beginning]);
            start[..held].copy_from_slice(&head[..held]);
            let header = Header::parse(&start[..beginning]);
            head[bit / 8] ^= 1 << (bit % 8);
            let Ok(header) = header else { continue };
            let len = header.record_len();
            if len > bytes.len() || bit / 8 >= len {
                continue;
            }
            self.steps_left = self.steps_left.checked_sub(len as u64)?;
            copy.clear();
            copy.extend_from_slice(&bytes[..len]);
            copy[bit / 8] ^= 1 << (bit % 8);
            if let Ok(record) = Record::parse(&copy, seed, seq, grain) {
                return Some(Mended {
                    meta: record.meta,
                    key: record.key.to_vec(),
                    len: record.encoded_len(),
                });
            }
        }
        None
    }
}

/// The checksum of a record without key and value.
const EMPTY_CRC: u32 = 0x6064_a37a;

/// How far apart the prefixes are whose checksums are kept.
const STEP: usize = 256;

/// Looks for whole records among bytes. All of them together cost about as much as reading the bytes
/// once, whatever the bytes are.
pub(crate) struct Finder<'a> {
    bytes: &'a [u8],
    /// The checksums of the first 0, 256, 512 and so on bytes.
    prefixes: Vec<u32>,
}

impl<'a> Finder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let mut prefixes = Vec::with_capacity(bytes.len() / STEP + 1);
        let mut crc = 0;
        prefixes.push(crc);
        for step in bytes.chunks_exact(STEP) {
            crc = crc32c::append(crc, step);
            prefixes.push(crc);
        }
        Self { bytes, prefixes }
    }

    /// The checksum of the first `end` bytes.
    fn prefix(&self, end: usize) -> u32 {
        let whole = end / STEP;
        crc32c::append(self.prefixes[whole], &self.bytes[whole * STEP..end])
    }

    fn checksum(&self, start: usize, end: usize) -> u32 {
        let shift = x_to_the_power_of(8 * (end - start) as u64);
        times(shift, self.prefix(start)) ^ self.prefix(end)
    }

    /// Whether a whole record begins at byte `at`, which is the grain `grain` of the segment `seq`.
    pub(crate) fn is_record(&self, at: usize, seed: u64, seq: u64, grain: u32) -> bool {
        let bytes = &self.bytes[at..];
        let Ok(header) = Header::parse(bytes) else {
            return false;
        };
        let len = header.record_len();
        if len > bytes.len() {
            return false;
        }
        let stored = u32::from_le_bytes(*bytes.first_chunk().expect("a header is longer"));
        let covered = &bytes[CRC_LEN..len];
        // Zeroes make a record without key and value at every grain.
        let found = match covered {
            [0, 0, 0] => EMPTY_CRC,
            [..] if covered.len() <= STEP => crc32c::checksum(covered),
            [..] => self.checksum(at + CRC_LEN, at + len),
        };
        stored ^ bind(seed, seq, grain) == found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Version;
    use super::super::record::tie;
    use super::*;

    fn emitted(meta: Meta, key: &[u8], value: &[u8]) -> Vec<u8> {
        let record = Record { meta, key, value };
        let mut bytes = vec![0; record.encoded_len()];
        record.emit(&mut bytes);
        tie(&mut bytes, 1, 2, 3);
        bytes
    }

    #[test]
    fn any_one_wrong_bit_is_found() {
        let with = Meta {
            replaces: true,
            expiry: 1 << 31 | 7,
            ..Meta::default()
        };
        let tombstone = Meta {
            tombstone: Some(77),
            ..Meta::default()
        };
        let moved = Meta {
            origin: Some(Version(77)),
            ..Meta::default()
        };
        for (meta, value_len) in [
            (moved, 0),
            (Meta::default(), 0),
            (Meta::default(), 300),
            (with, 200),
            (tombstone, 0),
        ] {
            let (key, value) = (b"the key of it", vec![0x5a; value_len]);
            let right = emitted(meta, key, &value);
            let mut bytes = right.clone();
            // What follows it in its batch.
            bytes.extend_from_slice(&emitted(meta, b"another", b"one"));
            for bit in 0..right.len() * 8 {
                let mut wrong = bytes.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                let mended = Mender::default().mend(&wrong, 1, 2, 3);
                let whole = Mended {
                    meta,
                    key: key.to_vec(),
                    len: right.len(),
                };
                assert_eq!(mended, Some(whole), "bit {bit} of {}", right.len() * 8);
            }
        }
    }

    #[test]
    fn what_is_no_record_takes_bounded_effort() {
        let mut mender = Mender::default();
        let mut random = fastrand::Rng::with_seed(3);
        let bytes: Vec<u8> = (0..1 << 20).map(|_| random.u8(..)).collect();
        for at in (0..bytes.len()).step_by(4) {
            mender.mend(&bytes[at..], 1, 2, 3);
        }
        assert!(mender.steps_left < STEPS_MAX);
    }

    proptest! {
        #[test]
        fn checksums_follow_from_prefixes(
            bytes in prop::collection::vec(any::<u8>(), 1..3000),
            a in any::<prop::sample::Index>(),
            b in any::<prop::sample::Index>(),
        ) {
            let (a, b) = (a.index(bytes.len()), b.index(bytes.len() + 1));
            let (a, b) = (a.min(b), a.max(b));
            let finder = Finder::new(&bytes);
            prop_assert_eq!(finder.checksum(a, b), crc32c::checksum(&bytes[a..b]));
        }
    }

    #[test]
    fn zeroes_have_the_checksum_that_is_known_of_them() {
        assert_eq!(EMPTY_CRC, crc32c::checksum(&[0; 3]));
    }

    #[test]
    fn records_are_found_behind_anything() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut bytes: Vec<u8> = (0..5000).map(|_| random.u8(..)).collect();
        let record = emitted(Meta::default(), b"key", &[9; 700]);
        bytes.extend_from_slice(&record);
        bytes.extend((0..400).map(|_| random.u8(..)));
        let finder = Finder::new(&bytes);
        let found: Vec<_> = (0..bytes.len() - 8)
            .step_by(4)
            .filter(|&at| finder.is_record(at, 1, 2, 3))
            .collect();
        assert_eq!(found, [5000]);
    }
}
