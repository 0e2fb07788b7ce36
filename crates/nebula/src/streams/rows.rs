//! The rows of streams and extents in the metadata engine.
//!
//! Keys are ordered as what they name; numbers in keys are big-endian, in values little-endian.
//!
//! | key | value |
//! | --- | --- |
//! | `nebula/i` | ids: version (u16), the next id that nobody has (u64) |
//! | `nebula/s` stream (u64) | stream: version (u16), state (u16), epoch, change (u64 each), next extent's number (u32) |
//! | `nebula/x` stream (u64), number (u32) | extent: version, state, replicas, 0 (u16 each), extent id, epoch (u64 each), pages, durable (u32 each), and for each replica its disk (u64) and segment (u32) |
//!
//! `change` names the last change of a stream's rows by an id that nobody else has: so a row tells whether it
//! was this change that was carried out, where the engine does not know.

use crate::error::StreamError;
use crate::extents::{ExtentPlace, Sealed};
use crate::format::{Emitter, Reader};
use crate::ids::{Epoch, ExtentId, StreamId};

/// Of ids and extents.
const VERSION: u16 = 1;
/// Of streams. Version 1 counted changes, so that two could have the same number.
const STREAM_VERSION: u16 = 2;
const STREAM_LEN: usize = 24;
const EXTENT_LEN: usize = 32;
const REPLICA_LEN: usize = 12;
/// Replicas of an extent at most.
const REPLICAS_MAX: usize = 16;

/// The key of the ids.
pub(super) const IDS: &[u8] = b"nebula/i";
/// What the keys of all streams begin with.
pub(super) const STREAMS: &[u8] = b"nebula/s";
/// What the keys of all extents begin with.
pub(super) const EXTENTS: &[u8] = b"nebula/x";

/// What a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamRow {
    /// It is being deleted: there will be no writer any more.
    pub(super) is_deleted: bool,
    pub(super) epoch: Epoch,
    /// The name of the last change.
    pub(super) change: u64,
    /// The number of the next extent.
    pub(super) next: u32,
}

/// Where one replica of an extent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replica {
    pub(super) disk: u64,
    pub(super) segment: u32,
}

/// What an extent of a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExtentRow {
    pub(super) extent: ExtentId,
    /// That of the writer who created it.
    pub(super) epoch: Epoch,
    pub(super) sealed: Option<Sealed>,
    pub(super) replicas: Vec<Replica>,
}

pub(super) fn stream_key(stream: StreamId) -> Vec<u8> {
    [STREAMS, &stream.0.to_be_bytes()].concat()
}

pub(super) fn stream_of(key: &[u8]) -> Option<StreamId> {
    let id = key.strip_prefix(STREAMS)?.try_into().ok()?;
    Some(StreamId(u64::from_be_bytes(id)))
}

/// What the keys of a stream's extents begin with.
pub(super) fn extents_of(stream: StreamId) -> Vec<u8> {
    [EXTENTS, &stream.0.to_be_bytes()].concat()
}

pub(super) fn extent_key(stream: StreamId, number: u32) -> Vec<u8> {
    let mut key = extents_of(stream);
    key.extend(number.to_be_bytes());
    key
}

/// The extent's number, from its key.
pub(super) fn number_of(key: &[u8]) -> Option<u32> {
    let (_, number) = key.split_last_chunk()?;
    Some(u32::from_be_bytes(*number))
}

pub(super) fn emit_ids(next: u64) -> Vec<u8> {
    [&VERSION.to_le_bytes()[..], &next.to_le_bytes()].concat()
}

pub(super) fn parse_ids(bytes: &[u8]) -> Result<u64, StreamError> {
    let mut reader = Reader(bytes);
    match (reader.u16(), reader.u64(), reader.0) {
        (Some(VERSION), Some(next), []) => Ok(next),
        _ => Err(nonsense("the ids")),
    }
}

impl StreamRow {
    pub(super) fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; STREAM_LEN];
        Emitter::new(&mut bytes)
            .u16(STREAM_VERSION)
            .u16(self.is_deleted.into())
            .u64(self.epoch.0)
            .u64(self.change)
            .u32(self.next);
        bytes
    }

    pub(super) fn parse(bytes: &[u8], stream: StreamId) -> Result<Self, StreamError> {
        let parse = || {
            let mut reader = Reader(bytes);
            if reader.u16()? != STREAM_VERSION {
                return None;
            }
            let is_deleted = match reader.u16()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            let row = Self {
                is_deleted,
                epoch: Epoch(reader.u64()?),
                change: reader.u64()?,
                next: reader.u32()?,
            };
            reader.0.is_empty().then_some(row)
        };
        parse().ok_or_else(|| nonsense(&stream.to_string()))
    }
}

impl ExtentRow {
    pub(super) fn emit(&self) -> Vec<u8> {
        let sealed = self.sealed.unwrap_or(Sealed {
            pages: 0,
            durable: 0,
        });
        let replicas = u16::try_from(self.replicas.len()).expect("few replicas");
        let mut bytes = vec![0; EXTENT_LEN + REPLICA_LEN * self.replicas.len()];
        let mut emitter = Emitter::new(&mut bytes);
        emitter
            .u16(VERSION)
            .u16(self.sealed.is_some().into())
            .u16(replicas)
            .u16(0)
            .u64(self.extent.0)
            .u64(self.epoch.0)
            .u32(sealed.pages)
            .u32(sealed.durable);
        for replica in &self.replicas {
            emitter.u64(replica.disk).u32(replica.segment);
        }
        bytes
    }

    pub(super) fn parse(bytes: &[u8], stream: StreamId, number: u32) -> Result<Self, StreamError> {
        let parse = || {
            let mut reader = Reader(bytes);
            if reader.u16()? != VERSION {
                return None;
            }
            let is_sealed = match reader.u16()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            let count = usize::from(reader.u16()?);
            reader.u16()?;
            let (extent, epoch) = (ExtentId(reader.u64()?), Epoch(reader.u64()?));
            let (pages, durable) = (reader.u32()?, reader.u32()?);
            if !(1..=REPLICAS_MAX).contains(&count) {
                return None;
            }
            let mut replicas = Vec::with_capacity(count);
            for _ in 0..count {
                let (disk, segment) = (reader.u64()?, reader.u32()?);
                replicas.push(Replica { disk, segment });
            }
            let row = Self {
                extent,
                epoch,
                sealed: is_sealed.then_some(Sealed { pages, durable }),
                replicas,
            };
            reader.0.is_empty().then_some(row)
        };
        parse().ok_or_else(|| nonsense(&format!("extent {number} of {stream}")))
    }

    /// Where the replica is that is read and written: there is one.
    pub(super) fn place(&self) -> (u64, ExtentPlace) {
        let replica = self.replicas[0];
        let place = ExtentPlace {
            extent: self.extent,
            segment: replica.segment,
        };
        (replica.disk, place)
    }
}

pub(super) fn nonsense(what: &str) -> StreamError {
    StreamError::Row { what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_and_other_lengths_do_not() {
        let stream = StreamId(7);
        let row = StreamRow {
            is_deleted: true,
            epoch: Epoch(3),
            change: 1 << 40,
            next: 9,
        };
        assert_eq!(StreamRow::parse(&row.emit(), stream).ok(), Some(row));
        let replicas = [(5, 6), (7, 8)].map(|(disk, segment)| Replica { disk, segment });
        for sealed in [
            None,
            Some(Sealed {
                pages: 4,
                durable: 3,
            }),
        ] {
            let row = ExtentRow {
                extent: ExtentId(1),
                epoch: Epoch(2),
                sealed,
                replicas: replicas.to_vec(),
            };
            let bytes = row.emit();
            assert_eq!(ExtentRow::parse(&bytes, stream, 1).ok(), Some(row));
            for len in 0..bytes.len() {
                assert!(ExtentRow::parse(&bytes[..len], stream, 1).is_err(), "{len}");
            }
        }
        let bytes = row.emit();
        for len in 0..bytes.len() {
            assert!(StreamRow::parse(&bytes[..len], stream).is_err(), "{len}");
        }
        assert_eq!(parse_ids(&emit_ids(5)).ok(), Some(5));
        assert_eq!(stream_of(&stream_key(stream)), Some(stream));
        assert_eq!(number_of(&extent_key(stream, 9)), Some(9));
    }
}
