//! Finding a key's record.
//!
//! The index gives places of records whose keys may be the one; the record itself tells. Nothing
//! keeps a segment from being given up while it is read: instead, who has not found what he came
//! for looks whether the index still says the same, and begins again if not.

use std::future::Future;
use std::ops::Range;

use block::{BlockError, Buf, Disk, Transfer};

use crate::counters::{Counters, count};
use crate::error::StoreError;
use crate::flights::Current;
use crate::format::FormatError;
use crate::format::Version;
use crate::format::layout::Layout;
use crate::format::record::{HEADER_MAX, Header, Meta, ORIGIN_LEN};
use crate::hash::KeyHash;
use crate::index::{Candidates, Place, SizeCode};
use crate::shared::Shared;

/// A record that was read. Short, as it is handed on from place to place.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) buf: Buf,
    value_at: u32,
    value_len: u32,
    pub(crate) expiry: u32,
    pub(crate) flags: u32,
    pub(crate) place: Place,
    pub(crate) version: Version,
    /// How long it was when it was written.
    pub(crate) written: SizeCode,
}

impl Found {
    /// Where in the buffer its value is.
    pub(crate) fn value(&self) -> Range<usize> {
        let at = self.value_at as usize;
        at..at + self.value_len as usize
    }

    /// Where it is, and for how long it is to be seen.
    pub(crate) fn current(&self) -> Current {
        Current {
            place: self.place,
            expiry: self.expiry,
            written: self.written,
        }
    }
}

/// What a session reads and writes with.
#[derive(Clone, Copy)]
pub(crate) struct View<'s> {
    pub(crate) shared: &'s Shared,
    pub(crate) disk: &'s Disk,
    /// Of the session.
    pub(crate) counters: &'s Counters,
}

/// How much of a record somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// To know where it is, and of a long one no more: what its beginning says is not checked then.
    Place,
    /// Its value too.
    Value,
}

/// What a place holds.
enum There {
    Key(Found),
    OtherKey,
    /// A record that was not written as it is now, but whose key seems to be the one that is looked for.
    Seems(Found, FormatError),
    /// No record that was written there as it is now.
    Nothing(FormatError),
    /// The device does not say.
    Unreadable(BlockError),
}

/// What a change finds of what it replaces.
pub(crate) struct Old {
    /// Where the key's record is, as far as its beginning tells.
    pub(crate) found: Option<Current>,
    /// Places of which nobody knows whether they hold the key.
    pub(crate) doubtful: Vec<Place>,
}

impl Old {
    pub(crate) fn none() -> Self {
        Self::of(None)
    }

    pub(crate) fn of(found: Option<Current>) -> Self {
        Self {
            found,
            doubtful: Vec::new(),
        }
    }
}

/// Finds what a change of a key replaces. Damage is no error: what is replaced need not be read.
pub(crate) async fn find_old(view: View<'_>, hash: KeyHash, key: &[u8]) -> Old {
    let View {
        shared, counters, ..
    } = view;
    let mut candidates = Candidates::new();
    loop {
        shared.index.candidates(hash.index(), &mut candidates);
        let mut doubtful = Vec::new();
        for &place in candidates.iter() {
            if shared.unsettled.is_superseded(hash, place) {
                continue;
            }
            let mut there = look(view, key, place, Want::Place).await;
            if matches!(there, There::Unreadable(_)) {
                // Most errors pass.
                there = look(view, key, place, Want::Place).await;
            }
            match there {
                There::Key(found) | There::Seems(found, _) => {
                    let found = Some(found.current());
                    return Old { found, doubtful };
                }
                There::OtherKey => count(&counters.false_matches, 1),
                There::Nothing(_) | There::Unreadable(_) => doubtful.push(place),
            }
        }
        if candidates.is_empty() || !has_changed(shared, hash, &candidates) {
            let found = None;
            return Old { found, doubtful };
        }
    }
}

/// What was read may have stood there only after the record had been moved elsewhere.
fn has_changed(shared: &Shared, hash: KeyHash, candidates: &Candidates) -> bool {
    let mut now = Candidates::new();
    shared.index.candidates(hash.index(), &mut now);
    candidates[..] != now[..]
}

/// Finds the record of a key.
///
/// Cost: one read of the device for each place that the index gives, which is one in all but few
/// cases if the key is there, and none in all but few cases if it is not.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` moves its arguments once more when it begins"
)]
pub(crate) fn find<'a>(
    view: View<'a>,
    hash: KeyHash,
    key: &'a [u8],
) -> impl Future<Output = Result<Option<Found>, StoreError>> + 'a {
    async move {
        let shared = view.shared;
        let mut candidates = Candidates::new();
        loop {
            shared.index.candidates(hash.index(), &mut candidates);
            if candidates.is_empty() {
                return Ok(None);
            }
            let mut unknown = None;
            for &place in candidates.iter() {
                if shared.unsettled.is_superseded(hash, place) {
                    continue;
                }
                let there = if let Some(grains) = place.size().grains() {
                    // Nearly always it is one read. It is awaited here: a future of its own would cost a hundred
                    // instructions.
                    let spot = Spot::of(shared, place);
                    let whole = grains as usize * shared.layout().grain();
                    let (result, buf) = read(view, spot, whole).await;
                    spot.judge(shared, key, result, buf)
                } else {
                    look(view, key, place, Want::Value).await
                };
                match there {
                    There::Key(found) => return Ok(Some(found)),
                    There::OtherKey => count(&view.counters.false_matches, 1),
                    There::Seems(_, error) | There::Nothing(error) => {
                        let at = shared.layout().place_at(place.grain());
                        unknown.get_or_insert_with(|| shared.damaged(at, error));
                    }
                    There::Unreadable(error) => {
                        unknown.get_or_insert(StoreError::Device(error));
                    }
                }
            }
            if has_changed(shared, hash, &candidates) {
                continue;
            }
            return match unknown {
                None => Ok(None),
                Some(error) => {
                    if matches!(error, StoreError::Damaged { .. }) {
                        count(&view.counters.damaged, 1);
                    }
                    Err(error)
                }
            };
        }
    }
}

async fn look(view: View<'_>, key: &[u8], place: Place, want: Want) -> There {
    let shared = view.shared;
    let layout = shared.layout();
    let spot = Spot::of(shared, place);
    let whole = match place.size().grains() {
        Some(grains) => grains as usize * layout.grain(),
        // The record says itself how long it is.
        None => {
            let (result, buf) = read(view, spot, HEADER_MAX).await;
            if let Err(error) = result {
                return There::Unreadable(error);
            }
            match Header::parse(&buf[spot.offset(layout)..]) {
                Ok(header) => header.record_len(),
                Err(error) => return There::Nothing(error),
            }
        }
    };
    if want == Want::Place {
        let beginning = HEADER_MAX + key.len();
        if layout.blocks_of(beginning) < layout.blocks_of(whole) {
            let (result, buf) = read(view, spot, beginning).await;
            if let Err(error) = result {
                return There::Unreadable(error);
            }
            if let Some(header) = seems(&buf[spot.offset(layout)..], key) {
                return There::Key(spot.without_value(layout, buf, &header));
            }
            // Not it, as far as an unchecked header tells: the checksum has to say so.
        }
    }
    let (result, buf) = read(view, spot, whole).await;
    spot.judge(shared, key, result, buf)
}

/// Where a record is to be found, and what it is tied to: taken down before it is read.
#[derive(Clone, Copy)]
struct Spot {
    place: Place,
    /// Where it begins on the device.
    at: u64,
    segment: u32,
    /// In the segment.
    grain: u32,
    /// Of the segment.
    seq: u64,
}

impl Spot {
    #[inline]
    fn of(shared: &Shared, place: Place) -> Self {
        let layout = shared.layout();
        let (segment, grain) = layout.segment_of(place.grain());
        Self {
            place,
            at: layout.grain_at(segment, grain),
            segment,
            grain,
            seq: shared.segments.seq(segment),
        }
    }

    /// Where it begins in the blocks that are read for it.
    #[inline]
    fn offset(&self, layout: &Layout) -> usize {
        self.at as usize & (layout.block() - 1)
    }

    /// Tells what stands there, of which all was read.
    #[inline]
    fn judge(self, shared: &Shared, key: &[u8], result: Result<(), BlockError>, buf: Buf) -> There {
        if let Err(error) = result {
            return There::Unreadable(error);
        }
        let layout = shared.layout();
        let offset = self.offset(layout);
        let bytes = &buf[offset..];
        let header = match Header::parse(bytes) {
            Ok(header) => header,
            Err(error) => return There::Nothing(error),
        };
        let seed = shared.superblock.check_seed;
        let record = match header.check(bytes, seed, self.seq, self.grain) {
            Ok(record) => record,
            Err(error) => return self.damaged(layout, key, buf, error),
        };
        if record.key != key || header.meta.tombstone.is_some() {
            return There::OtherKey;
        }
        let (meta, value_len) = (header.meta, record.value.len());
        let len = header.record_len();
        // A segment is at most 1 GiB long.
        There::Key(Found {
            value_at: (offset + len - value_len) as u32,
            value_len: value_len as u32,
            expiry: meta.expiry,
            flags: meta.flags,
            place: self.place,
            version: version(layout, meta, self.seq, self.grain),
            written: written(layout, self.place, meta, len),
            buf,
        })
    }

    /// What stands there was not written as it is now.
    #[cold]
    fn damaged(self, layout: &Layout, key: &[u8], buf: Buf, error: FormatError) -> There {
        match seems(&buf[self.offset(layout)..], key) {
            Some(header) => There::Seems(self.without_value(layout, buf, &header), error),
            None => There::Nothing(error),
        }
    }

    /// Of which no more was asked for than what it says beside its value.
    fn without_value(self, layout: &Layout, buf: Buf, header: &Header) -> Found {
        let Meta { expiry, flags, .. } = header.meta;
        Found {
            buf,
            value_at: 0,
            value_len: 0,
            expiry,
            flags,
            place: self.place,
            version: version(layout, header.meta, self.seq, self.grain),
            written: written(layout, self.place, header.meta, header.record_len()),
        }
    }
}

/// The header of a record whose checksum is wrong or was not looked at, if it says that it is the key's.
fn seems(bytes: &[u8], key: &[u8]) -> Option<Header> {
    let header = Header::parse(bytes).ok()?;
    let is_key = bytes.get(header.key_at..header.key_at + header.key_len) == Some(key);
    (is_key && header.meta.tombstone.is_none()).then_some(header)
}

/// How long a record of so many bytes was when it was written.
#[inline]
fn written(layout: &Layout, place: Place, meta: Meta, len: usize) -> SizeCode {
    match meta.origin {
        None => place.size(),
        Some(_) => written_first(layout, place, len),
    }
}

/// The same for one that was moved since.
#[cold]
fn written_first(layout: &Layout, place: Place, len: usize) -> SizeCode {
    let grains = (len - ORIGIN_LEN).div_ceil(layout.grain()) as u64;
    // Its header may not have been checked.
    SizeCode::of(grains).min(place.size())
}

/// The version of a record that stands at a grain of a segment.
pub(crate) fn version(layout: &Layout, meta: Meta, seq: u64, grain: u32) -> Version {
    meta.origin.unwrap_or(layout.version(seq, grain))
}

/// The blocks that hold the first `len` bytes of a place, or what there is of them in its segment: where
/// they begin on the device, and how many bytes they are.
pub(crate) fn span(layout: &Layout, place: Place, len: u64) -> (u64, usize) {
    let (segment, grain) = layout.segment_of(place.grain());
    span_at(layout, segment, layout.grain_at(segment, grain), len)
}

/// The same of what begins there on the device, in this segment.
#[inline]
fn span_at(layout: &Layout, segment: u32, at: u64, len: u64) -> (u64, usize) {
    let first = at & !(layout.block() as u64 - 1);
    let last = layout.segment_at(segment) + layout.segment_bytes();
    let end = (at + len).next_multiple_of(layout.block() as u64);
    (first, (end.min(last) - first) as usize)
}

/// Reads the blocks that hold the first `len` bytes of a spot, or what there is of them in its
/// segment.
#[inline]
fn read(view: View<'_>, spot: Spot, len: usize) -> Transfer {
    let View {
        shared,
        disk,
        counters,
    } = view;
    let (first, blocks) = span_at(shared.layout(), spot.segment, spot.at, len as u64);
    count(&counters.reads, 1);
    count(&counters.read_bytes, blocks as u64);
    disk.read(disk.buffer(blocks), first)
}
