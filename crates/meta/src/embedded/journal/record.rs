//! A record of the journal: the transactions of one group.
//!
//! All numbers are little-endian. A record begins at a multiple of [`BLOCK`] and is filled up with zeros to
//! the next.
//!
//! ```text
//!  0        4        8                16               24       28       32
//!  +--------+--------+----------------+----------------+--------+--------+---------------+
//!  | magic  | crc    | epoch          | first revision | count  | len    | len bytes     |
//!  +--------+--------+----------------+----------------+--------+--------+---------------+
//!
//!  the bytes: count transactions
//!  +---------+--------------------------------------------------------------------+
//!  | writes  | a write each: kind u8 (0 delete, 1 put), key length u16,            |
//!  | u32     | value length u32, key, value                                        |
//!  +---------+--------------------------------------------------------------------+
//! ```
//!
//! `crc` is the CRC-32C of the journal's id (16 bytes), the record's offset in the journal (8 bytes), and
//! the record from its epoch to the end of its last block. So neither a record of another journal nor one
//! at another place is taken for this one, and a value that looks like a record is none.

use block::crc32c;

use crate::{Key, Write};

/// What records begin at multiples of.
pub(crate) const BLOCK: usize = 4096;

/// Bytes before the transactions.
pub(crate) const HEADER_LEN: usize = 32;

/// Bytes of a write besides its key and value.
const WRITE_LEN: usize = 7;

const MAGIC: u32 = u32::from_le_bytes(*b"VMJr");

/// Bytes that a transaction takes in a record.
pub(crate) fn transaction_len(writes: &[Write]) -> usize {
    let len = |write: &Write| WRITE_LEN + write.key().len() + write.value().map_or(0, |v| v.len());
    4 + writes.iter().map(len).sum::<usize>()
}

/// Bytes of a record whose transactions take `len`.
pub(crate) fn record_len(len: usize) -> usize {
    (HEADER_LEN + len).next_multiple_of(BLOCK)
}

/// A record that is being put together.
pub(crate) struct Composed {
    bytes: Vec<u8>,
    count: u32,
}

impl Composed {
    /// One without transactions.
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; HEADER_LEN],
            count: 0,
        }
    }

    /// Empties it, and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(HEADER_LEN);
        self.count = 0;
    }

    /// Adds a transaction.
    pub(crate) fn add(&mut self, writes: &[Write]) {
        self.count += 1;
        let out = &mut self.bytes;
        out.extend_from_slice(&(writes.len() as u32).to_le_bytes());
        for write in writes {
            let value = write.value().map_or(&[][..], |value| value);
            out.push(u8::from(write.value().is_some()));
            // Transactions keep to limits that are far below these types'.
            out.extend_from_slice(&(write.key().len() as u16).to_le_bytes());
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(write.key());
            out.extend_from_slice(value);
        }
    }

    /// Transactions in it.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Bytes that it takes in the journal.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len().next_multiple_of(BLOCK)
    }

    /// Bytes of its transactions.
    pub(crate) fn payload_len(&self) -> usize {
        self.bytes.len() - HEADER_LEN
    }

    /// Writes it to `out`, which has its length, as it stands at `at`.
    pub(crate) fn emit(&self, place: Place, first: u64, out: &mut [u8]) {
        out[..self.bytes.len()].copy_from_slice(&self.bytes);
        out[self.bytes.len()..].fill(0);
        out[..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[8..16].copy_from_slice(&place.epoch.to_le_bytes());
        out[16..24].copy_from_slice(&first.to_le_bytes());
        out[24..28].copy_from_slice(&self.count.to_le_bytes());
        out[28..32].copy_from_slice(&(self.payload_len() as u32).to_le_bytes());
        let crc = place.crc(out);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Where a record stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The journal's.
    pub(crate) id: u128,
    /// Of the area's present use.
    pub(crate) epoch: u64,
    /// Bytes from the journal's beginning.
    pub(crate) at: u64,
}

impl Place {
    fn crc(&self, record: &[u8]) -> u32 {
        let crc = crc32c::checksum(&self.id.to_le_bytes());
        let crc = crc32c::append(crc, &self.at.to_le_bytes());
        crc32c::append(crc, &record[8..])
    }
}

/// A record that was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The revision of its first transaction; the others follow.
    pub(crate) first: u64,
    /// Bytes that it takes in the journal.
    pub(crate) len: usize,
    /// The writes of each transaction.
    pub(crate) transactions: Vec<Vec<Write>>,
}

/// The record at the beginning of `bytes`, if a whole one of this place stands there.
pub(crate) fn parse(place: Place, bytes: &[u8]) -> Option<Record> {
    let header = bytes.get(..HEADER_LEN)?;
    let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    if u32_at(0) != MAGIC || u64_at(8) != place.epoch {
        return None;
    }
    let payload_len = u32_at(28) as usize;
    let len = record_len(payload_len);
    let record = bytes.get(..len)?;
    if place.crc(record) != u32_at(4) {
        return None;
    }
    let mut rest = &record[HEADER_LEN..HEADER_LEN + payload_len];
    let count = u32_at(24);
    let transactions = (0..count).map(|_| transaction(&mut rest));
    let transactions = transactions.collect::<Option<Vec<_>>>()?;
    let is_sound = rest.is_empty() && u64_at(16).checked_add(count.into()).is_some();
    is_sound.then_some(Record {
        first: u64_at(16),
        len,
        transactions,
    })
}

fn transaction(rest: &mut &[u8]) -> Option<Vec<Write>> {
    let writes = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
    (0..writes).map(|_| write(rest)).collect()
}

fn write(rest: &mut &[u8]) -> Option<Write> {
    let kind = take(rest, 1)?[0];
    let key_len = u16::from_le_bytes(take(rest, 2)?.try_into().ok()?);
    let value_len = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
    let key = Key::from(take(rest, key_len.into())?);
    let value = take(rest, value_len as usize)?;
    match kind {
        0 if value.is_empty() => Some(Write::Delete(key)),
        1 => Some(Write::Put(key, value.into())),
        _ => None,
    }
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place {
        id: 7,
        epoch: 3,
        at: 8192,
    };

    fn sample() -> (Vec<u8>, Vec<Vec<Write>>) {
        let put = |key: &[u8], value: &[u8]| Write::Put(key.into(), value.into());
        let transactions = vec![
            vec![put(b"\0", b""), Write::Delete(b"gone"[..].into())],
            vec![put(b"k", &[9; 5000])],
        ];
        let mut composed = Composed::new();
        for writes in &transactions {
            let before = composed.payload_len();
            composed.add(writes);
            assert_eq!(composed.payload_len() - before, transaction_len(writes));
        }
        let mut bytes = vec![1; composed.len()];
        composed.emit(PLACE, 40, &mut bytes);
        (bytes, transactions)
    }

    #[test]
    fn what_was_written_is_read() {
        let (bytes, transactions) = sample();
        let record = parse(PLACE, &bytes).expect("it is sound");
        assert_eq!(record.len, 8192);
        assert_eq!((record.first, record.transactions), (40, transactions));
    }

    #[test]
    fn a_record_of_another_place_is_none() {
        let (bytes, _) = sample();
        assert_eq!(parse(Place { id: 8, ..PLACE }, &bytes), None);
        assert_eq!(parse(Place { epoch: 4, ..PLACE }, &bytes), None);
        assert_eq!(parse(Place { at: 4096, ..PLACE }, &bytes), None);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        let (mut bytes, _) = sample();
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(PLACE, &bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for len in 0..bytes.len() {
            assert_eq!(parse(PLACE, &bytes[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn nonsense_with_a_right_checksum_is_refused() {
        let (sample, _) = sample();
        fastrand::seed(1);
        for _ in 0..20_000 {
            let mut bytes = sample.clone();
            for _ in 0..fastrand::usize(1..4) {
                let at = fastrand::usize(16..80);
                bytes[at] = fastrand::u8(..);
            }
            let crc = PLACE.crc(&bytes);
            bytes[4..8].copy_from_slice(&crc.to_le_bytes());
            if let Some(record) = parse(PLACE, &bytes) {
                let len = |writes: &Vec<Write>| transaction_len(writes);
                let payload: usize = record.transactions.iter().map(len).sum();
                assert_eq!(record_len(payload), record.len);
            }
        }
    }
}
