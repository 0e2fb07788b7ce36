//! Finding a key's record.
//!
//! The index gives places of records whose keys may be the one; the record itself tells. Nothing
//! keeps a segment from being given up while it is read: instead, who has not found what he came
//! for looks whether the index still says the same, and begins again if not.

use std::ops::Range;

use block::{Buf, Disk};

use crate::counters::add;
use crate::error::StoreError;
use crate::format::FormatError;
use crate::format::Version;
use crate::format::record::{HEADER_MAX, Header, Meta, Record};
use crate::hash::KeyHash;
use crate::index::{Candidates, Place};
use crate::shared::Shared;

/// A record that was read.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) buf: Buf,
    pub(crate) value: Range<usize>,
    pub(crate) meta: Meta,
    pub(crate) place: Place,
    pub(crate) version: Version,
}

/// How much of a record somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// To know where it is.
    Place,
    /// Its value too.
    Value,
}

/// What a place holds.
enum There {
    Key(Found),
    OtherKey,
    /// No record that was written there as it is now.
    Nothing(FormatError),
}

/// Finds the record of a key.
///
/// Cost: one read of the device for each place that the index gives, which is one in all but few
/// cases if the key is there, and none in all but few cases if it is not.
pub(crate) async fn find(
    shared: &Shared,
    disk: &Disk,
    hash: KeyHash,
    key: &[u8],
    want: Want,
) -> Result<Option<Found>, StoreError> {
    let mut candidates = Candidates::new();
    loop {
        shared.index.candidates(hash.index(), &mut candidates);
        if candidates.is_empty() {
            return Ok(None);
        }
        let mut damaged = None;
        for &place in candidates.iter() {
            match look(shared, disk, key, place, want).await? {
                There::Key(found) => return Ok(Some(found)),
                There::OtherKey => add(&shared.counters.false_matches, 1),
                There::Nothing(error) => {
                    damaged.get_or_insert((place, error));
                }
            }
        }
        // What was read may have stood there only after the record had been moved elsewhere.
        let mut now = Candidates::new();
        shared.index.candidates(hash.index(), &mut now);
        if candidates[..] != now[..] {
            continue;
        }
        return match damaged {
            None => Ok(None),
            Some((place, error)) => {
                add(&shared.counters.damaged, 1);
                Err(shared.damaged(shared.layout().place_at(place.grain()), error))
            }
        };
    }
}

async fn look(
    shared: &Shared,
    disk: &Disk,
    key: &[u8],
    place: Place,
    want: Want,
) -> Result<There, StoreError> {
    let layout = shared.layout();
    let (segment, grain) = layout.segment_of(place.grain());
    let seq = shared.segments.seq(segment);
    let whole = match place.size().grains() {
        Some(grains) => grains as usize * layout.grain(),
        // The record says itself how long it is.
        None => {
            let buf = read(shared, disk, place, HEADER_MAX).await?;
            let at = offset(shared, place);
            match Header::parse(&buf[at..]) {
                Ok(header) => header.record_len(),
                Err(error) => return Ok(There::Nothing(error)),
            }
        }
    };
    if want == Want::Place {
        let beginning = HEADER_MAX + key.len();
        if layout.blocks_of(beginning) < layout.blocks_of(whole) {
            let buf = read(shared, disk, place, beginning).await?;
            let at = offset(shared, place);
            if let Ok(header) = Header::parse(&buf[at..])
                && header.meta.tombstone.is_none()
                && buf.get(at + header.key_at..at + header.key_at + header.key_len) == Some(key)
            {
                return Ok(There::Key(Found {
                    buf,
                    value: 0..0,
                    meta: header.meta,
                    place,
                    version: version(header.meta, seq, grain),
                }));
            }
            // Not it, as far as an unchecked header tells: the checksum has to say so.
        }
    }
    let buf = read(shared, disk, place, whole).await?;
    let at = offset(shared, place);
    let seed = shared.superblock.check_seed;
    let record = match Record::parse(&buf[at..], seed, seq, grain) {
        Ok(record) => record,
        Err(error) => return Ok(There::Nothing(error)),
    };
    if record.key != key || record.meta.tombstone.is_some() {
        return Ok(There::OtherKey);
    }
    let (meta, len) = (record.meta, record.value.len());
    let end = at + record.encoded_len();
    Ok(There::Key(Found {
        buf,
        value: end - len..end,
        meta,
        place,
        version: version(meta, seq, grain),
    }))
}

/// The version of a record that stands at a grain of a segment.
pub(crate) fn version(meta: Meta, seq: u64, grain: u32) -> Version {
    meta.origin.unwrap_or(Version::new(seq, grain))
}

/// Where a record begins in the blocks that are read for it.
fn offset(shared: &Shared, place: Place) -> usize {
    shared.layout().place_at(place.grain()) as usize & (shared.layout().block() - 1)
}

/// Reads the blocks that hold the first `len` bytes of a place, or what there is of them in its
/// segment.
async fn read(shared: &Shared, disk: &Disk, place: Place, len: usize) -> Result<Buf, StoreError> {
    let layout = shared.layout();
    let (segment, _) = layout.segment_of(place.grain());
    let at = shared.layout().place_at(place.grain());
    let first = at & !(layout.block() as u64 - 1);
    let last = layout.segment_at(segment) + layout.segment_bytes();
    let end = (at + len as u64).next_multiple_of(layout.block() as u64);
    let blocks = (end.min(last) - first) as usize;
    add(&shared.counters.reads, 1);
    add(&shared.counters.read_bytes, blocks as u64);
    let (result, buf) = disk.read(disk.buffer(blocks), first).await;
    result?;
    Ok(buf)
}
