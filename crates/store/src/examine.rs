//! Looking into a store that is not open, and mending it.

use std::sync::Arc;

use block::{Device, Disk};

use crate::error::StoreError;
use crate::format::record::Meta;
use crate::format::segment::{Kind, SEGMENT_HEADER_LEN, SegmentHeader};
use crate::format::superblock::{SUPERBLOCKS, Superblock};
use crate::format::{FormatError, Version};
use crate::read::version;
use crate::scan::{Passed, Scan};
use crate::store::{read_superblock, write_superblock};

/// What is on a device.
#[derive(Clone, Debug)]
pub struct Examined {
    /// What it was formatted with.
    pub superblock: Superblock,
    /// What is wrong with the superblock, and with its copy.
    pub superblock_problems: [Option<FormatError>; 2],
    /// Every segment that is in use, or whose header is damaged.
    pub segments: Vec<ExaminedSegment>,
    /// Segments that are not in use.
    pub free: u32,
}

/// What is in a segment.
#[derive(Clone, Debug)]
pub struct ExaminedSegment {
    /// Its number.
    pub segment: u32,
    /// Its header, or what is wrong with it.
    pub header: Result<SegmentHeader, FormatError>,
    /// Batches in it.
    pub batches: u64,
    /// Records in it, current or not.
    pub records: u64,
    /// Tombstones in it.
    pub tombstones: u64,
    /// Bytes of its batches.
    pub bytes: u64,
    /// Stretches in which no record was where one had been.
    pub damaged: u64,
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
        let is_sound = |s: &ExaminedSegment| s.header.is_ok() && s.damaged == 0;
        self.superblock_problems.iter().all(Option::is_none) && self.segments.iter().all(is_sound)
    }

    /// Whether the store was closed, so that it opens without reading its log.
    pub fn is_closed(&self) -> bool {
        let newest = self.segments.iter().filter_map(|s| s.header.ok());
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
        let mut segments = Vec::new();
        let mut free = 0;
        for segment in 0..layout.segments {
            on_segment(segment, layout.segments);
            let (result, buf) = disk
                .read(disk.buffer(layout.block()), layout.segment_at(segment))
                .await;
            result?;
            let header = SegmentHeader::parse(&buf, superblock.store, segment);
            let mut examined = ExaminedSegment {
                segment,
                header,
                batches: 0,
                records: 0,
                tombstones: 0,
                bytes: 0,
                damaged: 0,
            };
            let Ok(header) = header else {
                if buf[..SEGMENT_HEADER_LEN].iter().all(|&byte| byte == 0) {
                    free += 1;
                } else {
                    segments.push(examined);
                }
                continue;
            };
            let mut scan = Scan::new(&superblock, &disk, segment, header.seq);
            while let Some(mut batch) = scan.next().await? {
                examined.batches += 1;
                examined.bytes += batch.len() as u64;
                while let Some(Passed { record, grain }) = batch.next() {
                    examined.records += u64::from(record.meta.tombstone.is_none());
                    examined.tombstones += u64::from(record.meta.tombstone.is_some());
                    on_record(ExaminedRecord {
                        segment,
                        at: layout.place_at(layout.place(segment, grain)),
                        version: version(record.meta, header.seq, grain),
                        meta: record.meta,
                        key: record.key,
                        value_len: record.value.len(),
                    });
                }
            }
            examined.damaged = scan.damaged;
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
    let mut found = None;
    let mut problems = [None, None];
    for (at, problem) in SUPERBLOCKS.into_iter().zip(&mut problems) {
        match read_superblock(&**device, disk, at).await? {
            Ok(superblock) => found = found.or(Some(superblock)),
            Err(error) => *problem = Some(error),
        }
    }
    match (found, problems[0]) {
        (Some(superblock), _) => {
            crate::store::check(&device.name(), &superblock, device.geometry())?;
            Ok((superblock, problems))
        }
        (None, problem) => Err(StoreError::NoStore {
            device: device.name(),
            source: problem.unwrap_or(FormatError::Foreign {
                what: "a superblock",
            }),
        }),
    }
}

/// Writes superblocks that are damaged anew; says how many. Damaged headers of segments are mended
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
