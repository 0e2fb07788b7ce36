//! Looking into a store that is not open, and mending it.

use std::sync::Arc;

use block::{Device, Disk};

use crate::error::StoreError;
use crate::format::record::Meta;
use crate::format::segment::{Kind, SegmentHeader, SegmentState};
use crate::format::superblock::{SUPERBLOCKS, Superblock};
use crate::format::{FormatError, Version};
use crate::read::version;
use crate::recovery::headers;
pub use crate::scan::{Damage, Flaw};
use crate::scan::{Passed, Scan};
use crate::superblock::{check, read_superblocks, write_superblock};

/// What is on a device.
#[derive(Clone, Debug)]
pub struct Examined {
    /// What it was formatted with.
    pub superblock: Superblock,
    /// What is wrong with the superblock, and with its copy.
    pub superblock_problems: [Option<FormatError>; 2],
    /// Every segment that is in use, or one of whose headers is damaged.
    pub segments: Vec<ExaminedSegment>,
    /// Segments that are not in use.
    pub free: u32,
}

/// What is in a segment.
#[derive(Clone, Debug)]
pub struct ExaminedSegment {
    /// Its number.
    pub segment: u32,
    /// The newer of its two headers, or what is wrong with the first if neither can be read.
    pub header: Result<SegmentHeader, FormatError>,
    /// What is wrong with its header, and with the copy.
    pub header_problems: [Option<FormatError>; 2],
    /// Batches in it.
    pub batches: u64,
    /// Records in it, current or not.
    pub records: u64,
    /// Tombstones in it.
    pub tombstones: u64,
    /// Bytes of its batches.
    pub bytes: u64,
    /// Stretches in which something is lost that had been written.
    pub damaged: u64,
    /// Stretches of writes that may have been cut short.
    pub torn: u64,
    /// These stretches.
    pub flaws: Vec<Flaw>,
    /// The keys of damaged records, as far as they can be read.
    pub damaged_keys: Vec<Vec<u8>>,
}

/// A record as it stands on the device.
#[derive(Clone, Copy, Debug)]
pub struct ExaminedRecord<'a> {
    /// Its segment.
    pub segment: u32,
    /// Where on the device.
    pub at: u64,
    /// When it was written.
    pub version: Version,
    /// What it says beside its key and value.
    pub meta: Meta,
    /// Its key.
    pub key: &'a [u8],
    /// How long its value is.
    pub value_len: usize,
}

impl Examined {
    /// Whether everything is as it was written.
    pub fn is_sound(&self) -> bool {
        let is_sound = |s: &ExaminedSegment| {
            let has_headers = s.header_problems.iter().all(Option::is_none);
            s.header.is_ok() && has_headers && s.flaws.is_empty()
        };
        self.superblock_problems.iter().all(Option::is_none) && self.segments.iter().all(is_sound)
    }

    /// What [`Store::live_bytes_max`](crate::Store::live_bytes_max) says of it when it is opened with this
    /// [`Options::live_share`](crate::Options::live_share). A cache refuses nothing.
    pub fn live_bytes_max(&self, live_share: f64) -> u64 {
        crate::fill::live_bytes_max(&self.superblock.layout, live_share)
    }

    /// Whether the store was closed, so that it opens without reading its log.
    pub fn is_closed(&self) -> bool {
        let used = self.segments.iter().filter_map(|s| s.header.ok());
        let newest = used.filter(|header| header.state != SegmentState::Free);
        let newest = newest.max_by_key(|header| header.seq);
        newest.is_some_and(|header| header.kind == Kind::Index)
    }
}

/// Reads everything on a device. `on_record` is shown every record and tombstone, `on_segment` how
/// many segments were read and how many there are.
///
/// # Errors
///
/// [`StoreError::NoStore`] if neither superblock is one, or [`StoreError::Device`].
pub fn examine(
    device: &Arc<dyn Device>,
    mut on_segment: impl FnMut(u32, u32),
    mut on_record: impl FnMut(ExaminedRecord<'_>),
) -> Result<Examined, StoreError> {
    let disk = Disk::open(&**device, 32)?;
    disk.block_on(async {
        let (superblock, superblock_problems) = superblocks(device, &disk).await?;
        let layout = superblock.layout;
        let headers = headers::read(&superblock, &disk).await?;
        let mut segments = Vec::new();
        let mut free = 0;
        for known in &headers.segments {
            let segment = known.segment;
            on_segment(segment, layout.segments);
            let problem = known.problems[0].unwrap_or(FormatError::Unfinished);
            let mut examined = ExaminedSegment {
                segment,
                header: known.header.ok_or(problem),
                header_problems: known.problems,
                batches: 0,
                records: 0,
                tombstones: 0,
                bytes: 0,
                damaged: 0,
                torn: 0,
                flaws: Vec::new(),
                damaged_keys: Vec::new(),
            };
            let used = |header: &SegmentHeader| header.state != SegmentState::Free;
            let Some(header) = known.header.filter(used) else {
                free += u32::from(known.header.is_some());
                if known.problems.iter().any(Option::is_some) {
                    segments.push(examined);
                }
                continue;
            };
            let scan = Scan::new(&superblock, &disk, segment, header.seq);
            let scan = scan.closed(known.contents());
            let mut scan = scan.settled(headers.settled(header.seq)).tolerant();
            while let Some(mut batch) = scan.next().await? {
                examined.batches += 1;
                examined.bytes += batch.len() as u64;
                while let Some(Passed { record, grain }) = batch.next() {
                    examined.records += u64::from(record.meta.tombstone.is_none());
                    examined.tombstones += u64::from(record.meta.tombstone.is_some());
                    on_record(ExaminedRecord {
                        segment,
                        at: layout.place_at(layout.place(segment, grain)),
                        version: version(&layout, record.meta, header.seq, grain),
                        meta: record.meta,
                        key: record.key,
                        value_len: record.value.len(),
                    });
                }
            }
            let outcome = scan.finish();
            examined.damaged = outcome.damaged();
            examined.torn = outcome.torn();
            examined.flaws = outcome.flaws;
            let keys = outcome.suspects.into_iter().map(|suspect| suspect.key);
            examined.damaged_keys = keys.collect();
            segments.push(examined);
        }
        on_segment(layout.segments, layout.segments);
        Ok(Examined {
            superblock,
            superblock_problems,
            segments,
            free,
        })
    })
}

async fn superblocks(
    device: &Arc<dyn Device>,
    disk: &Disk,
) -> Result<(Superblock, [Option<FormatError>; 2]), StoreError> {
    let found = read_superblocks(&**device, disk).await?;
    let problems = found.problems();
    match found.ready() {
        Some(superblock) => {
            check(&device.name(), &superblock, device.geometry())?;
            Ok((superblock, problems))
        }
        None => Err(StoreError::NoStore {
            device: device.name(),
            source: problems[0].unwrap_or(FormatError::Unfinished),
        }),
    }
}

/// Writes superblocks that are damaged, or were left behind not ready, anew; says how many. Damaged headers of segments are mended
/// whenever a store is opened, and damaged records given up if [`crate::Options::forget_damaged`]
/// says so.
///
/// # Errors
///
/// As [`examine`].
pub fn repair_superblocks(device: &Arc<dyn Device>) -> Result<u32, StoreError> {
    let disk = Disk::open(&**device, 32)?;
    disk.block_on(async {
        let (superblock, problems) = superblocks(device, &disk).await?;
        let mut mended = 0;
        for (at, problem) in SUPERBLOCKS.into_iter().zip(problems) {
            if problem.is_some() {
                write_superblock(&disk, &superblock, at).await?;
                mended += 1;
            }
        }
        Ok(mended)
    })
}
