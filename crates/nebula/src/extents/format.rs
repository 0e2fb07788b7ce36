//! Formatting a device, and opening it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use block::{BlockError, Device, Disk, Durable};
use rt::Handle;
use rt::sync::Semaphore;

use super::segment::Segment;
use super::{ExtentServer, Inner};
use crate::error::ExtentError;
use crate::format::entry::Entry;
use crate::format::superblock::{SUPERBLOCKS, Superblock, check_segment_bytes};
use crate::format::{FormatError, PAGE};

/// Bytes of the table that are read or written at once.
const PIECE: u64 = 1 << 20;

/// How a device is formatted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FormatOptions {
    /// The disk's name among all disks, drawn at random.
    pub disk: u64,
    /// What its checksums begin with, drawn at random: nobody who stores data can then make up a frame.
    pub seed: u32,
    /// Bytes of a segment, and so of the longest extent: 64 KiB to 1 TiB, a multiple of 4 KiB.
    pub segment_bytes: u64,
    /// Overwrite what is on the device.
    pub force: bool,
}

impl FormatOptions {
    /// Segments of 64 MiB, on an empty device, with these random numbers.
    #[must_use]
    pub fn new(disk: u64, seed: u32) -> Self {
        Self {
            disk,
            seed,
            segment_bytes: 64 << 20,
            force: false,
        }
    }
}

/// A copy of the superblock, or of an entry of the table of segments, that is damaged while the other one is
/// sound: nothing is lost yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFault {
    /// Whose entry; none: the superblock.
    pub segment: Option<u32>,
    /// 0 for the first, 1 for the second.
    pub copy: u32,
    /// What is wrong.
    pub source: FormatError,
}

/// A segment whose entry's copies are not the same.
struct Copies {
    segment: u32,
    /// The one that counts.
    entry: Entry,
    /// What is wrong with each, if it is damaged.
    bad: [Option<FormatError>; 2],
    /// Which is not the one that counts.
    is_other: [bool; 2],
}

impl ExtentServer {
    /// Formats a device: two superblocks, and a table in two copies of segments that are all free. If it
    /// is interrupted the device is none that can be opened, and is formatted again.
    ///
    /// # Errors
    /// [`ExtentError::NotEmpty`], [`ExtentError::TooShort`], [`ExtentError::NoDisk`] for segments or blocks of
    /// an impossible length, the device's.
    pub async fn format(
        device: &dyn Device,
        disk: &Disk,
        options: &FormatOptions,
    ) -> Result<(), ExtentError> {
        let (name, geometry) = (device.name(), device.geometry());
        let is_wrong = |source| ExtentError::NoDisk {
            device: name.clone(),
            source,
        };
        check_segment_bytes(options.segment_bytes).map_err(is_wrong)?;
        let slot = slot_of(device).map_err(is_wrong)?;
        let segments = Superblock::segments_on(geometry.len, options.segment_bytes, slot);
        let mut superblock = Superblock {
            disk: options.disk,
            seed: options.seed,
            slot,
            segments,
            segment_bytes: options.segment_bytes,
            ready: false,
            optional_features: 0,
        };
        if segments == 0 {
            let needed = Superblock {
                segments: 1,
                ..superblock
            }
            .end();
            let len = geometry.len;
            return Err(ExtentError::TooShort {
                device: name,
                len,
                needed,
            });
        }
        if !options.force
            && let Some(at) = block::first_used(device, disk).await?
        {
            return Err(ExtentError::NotEmpty { device: name, at });
        }
        // From here on nobody takes it for what it was.
        for at in SUPERBLOCKS {
            write_superblock(disk, &superblock, at).await?;
        }
        let (mut at, end) = (superblock.entry_at(0, 0), superblock.begin());
        while at < end {
            let len = PIECE.min(end - at);
            let mut zeros = disk.buffer(len as usize);
            zeros.fill(0);
            disk.write(zeros, at, Durable::No).await.0?;
            at += len;
        }
        disk.flush().await?;
        superblock.ready = true;
        for at in SUPERBLOCKS.into_iter().rev() {
            write_superblock(disk, &superblock, at).await?;
        }
        Ok(())
    }

    /// Opens a device that was formatted, on the core that drives `disk`. Reads the table, and mends copies
    /// of entries whose writes were cut short.
    ///
    /// # Errors
    /// [`ExtentError::NoDisk`], [`ExtentError::TooShort`], the device's.
    pub async fn open(
        core: &Handle,
        device: &dyn Device,
        disk: &Disk,
    ) -> Result<Self, ExtentError> {
        let (superblock, bad) = read_superblock(device, disk).await?;
        mend_superblocks(&device.name(), disk, &superblock, bad).await;
        let (segments, copies) = read_table(&device.name(), disk, &superblock).await?;
        for copy in copies {
            let (name, segment) = (device.name(), copy.segment);
            if let Err(error) = mend(disk, &superblock, &copy).await {
                tracing::warn!(device = %name, segment, %error, "mending an entry");
            }
        }
        Ok(Self::over(core, device, disk, superblock, segments))
    }

    /// Opens a device to look at it: writes nothing, and says which copies are damaged that
    /// [`ExtentServer::open`] would mend.
    ///
    /// # Errors
    /// As [`ExtentServer::open`].
    pub async fn examine(
        core: &Handle,
        device: &dyn Device,
        disk: &Disk,
    ) -> Result<(Self, Vec<CopyFault>), ExtentError> {
        let (superblock, bad) = read_superblock(device, disk).await?;
        let (segments, copies) = read_table(&device.name(), disk, &superblock).await?;
        let bad = bad.into_iter().zip(0..);
        let mut faults: Vec<CopyFault> = bad
            .filter_map(|(bad, copy)| {
                Some(CopyFault {
                    segment: None,
                    copy,
                    source: bad?,
                })
            })
            .collect();
        for of in copies {
            let bad = of.bad.into_iter().zip(0..);
            faults.extend(bad.filter_map(|(bad, copy)| {
                Some(CopyFault {
                    segment: Some(of.segment),
                    copy,
                    source: bad?,
                })
            }));
        }
        let this = Self::over(core, device, disk, superblock, segments);
        Ok((this, faults))
    }

    fn over(
        core: &Handle,
        device: &dyn Device,
        disk: &Disk,
        superblock: Superblock,
        segments: Vec<Segment>,
    ) -> Self {
        Self {
            inner: Rc::new(Inner {
                disk: disk.clone(),
                device: device.name(),
                core: core.clone(),
                superblock,
                segments: RefCell::new(segments),
                next: Cell::new(0),
                changes: Semaphore::new(1),
                flushes: Semaphore::new(1),
                writes_ahead: Cell::new(false),
            }),
        }
    }
}

/// What the device writes at once, and so loses at once: entries are that far apart.
fn slot_of(device: &dyn Device) -> Result<u32, FormatError> {
    let slot = device
        .physical_block()
        .max(device.geometry().block)
        .max(512);
    if slot as usize > PAGE {
        return Err(FormatError::Field {
            what: "a disk",
            field: "the size of the device's blocks, more than 4096,",
        });
    }
    Ok(slot)
}

async fn write_superblock(disk: &Disk, superblock: &Superblock, at: u64) -> Result<(), BlockError> {
    let mut buf = disk.buffer(superblock.slot as usize);
    buf.fill(0);
    superblock.emit(&mut buf);
    disk.write(buf, at, Durable::Yes).await.0
}

/// The superblock that counts, the first that is sound and ready, and what is wrong with each.
async fn read_superblock(
    device: &dyn Device,
    disk: &Disk,
) -> Result<(Superblock, [Option<FormatError>; 2]), ExtentError> {
    let (name, geometry) = (device.name(), device.geometry());
    let block = geometry.block.max(512);
    let what = "a superblock";
    let mut found = [Err(FormatError::Short { what }); 2];
    for (at, found) in SUPERBLOCKS.into_iter().zip(&mut found) {
        if at + u64::from(block) > geometry.len {
            continue;
        }
        let (result, buf) = disk.read(disk.buffer(block as usize), at).await;
        *found = match result {
            Ok(()) => Superblock::parse(&buf).and_then(|superblock| {
                let unfinished = FormatError::Unfinished;
                superblock.ready.then_some(superblock).ok_or(unfinished)
            }),
            Err(BlockError::Io { .. }) => Err(FormatError::Unreadable { what }),
            Err(error) => return Err(error.into()),
        };
    }
    let superblock = match found {
        [Ok(first), Ok(copy)] if first != copy => {
            let field = "one of the superblocks, which contradict each other,";
            let source = FormatError::Field { what, field };
            return Err(ExtentError::NoDisk {
                device: name,
                source,
            });
        }
        [Ok(superblock), _] | [_, Ok(superblock)] => superblock,
        [Err(first), Err(copy)] => {
            // What certainly was a disk's says more than that the other is none.
            let source = if matches!(first, FormatError::Foreign { .. }) {
                copy
            } else {
                first
            };
            return Err(ExtentError::NoDisk {
                device: name,
                source,
            });
        }
    };
    if superblock.end() > geometry.len {
        return Err(ExtentError::TooShort {
            device: name,
            len: geometry.len,
            needed: superblock.end(),
        });
    }
    if slot_of(device).is_ok_and(|slot| slot > superblock.slot) {
        tracing::warn!(device = %name, "the device writes more at once than it did when it was formatted");
    }
    Ok((superblock, found.map(Result::err)))
}

/// Writes superblocks anew that are damaged.
async fn mend_superblocks(
    name: &Arc<str>,
    disk: &Disk,
    superblock: &Superblock,
    bad: [Option<FormatError>; 2],
) {
    for (at, bad) in SUPERBLOCKS.into_iter().zip(bad) {
        let Some(error) = bad else {
            continue;
        };
        tracing::warn!(device = %name, %error, "a superblock is damaged: writing it anew");
        if let Err(error) = write_superblock(disk, superblock, at).await {
            tracing::warn!(device = %name, %error, "writing a superblock anew");
        }
    }
}

/// Reads both copies of the table. Returns what the segments hold, and whose copies are not the same.
async fn read_table(
    name: &Arc<str>,
    disk: &Disk,
    superblock: &Superblock,
) -> Result<(Vec<Segment>, Vec<Copies>), ExtentError> {
    let copies = [
        read_copy(disk, superblock, 0).await?,
        read_copy(disk, superblock, 1).await?,
    ];
    let mut segments = Vec::with_capacity(superblock.segments as usize);
    let [first, copy] = copies;
    let mut differing = Vec::new();
    for (number, pair) in (0..).zip(first.into_iter().zip(copy)) {
        let mut segment = Segment::default();
        let bad = [
            pair.0.as_ref().err().copied(),
            pair.1.as_ref().err().copied(),
        ];
        match settle(pair) {
            Ok((entry, is_other)) => {
                segment.entry = entry;
                if is_other.contains(&true) {
                    differing.push(Copies {
                        segment: number,
                        entry,
                        bad,
                        is_other,
                    });
                }
            }
            Err(source) => {
                tracing::error!(device = %name, segment = number, %source, "what a segment holds is unknown");
                segment.damage = Some(source);
            }
        }
        segments.push(segment);
    }
    Ok((segments, differing))
}

/// Which of two copies counts, and which of them says something else.
fn settle(
    pair: (Result<Entry, FormatError>, Result<Entry, FormatError>),
) -> Result<(Entry, [bool; 2]), FormatError> {
    match pair {
        (Ok(first), Ok(copy)) if first.sequence >= copy.sequence => {
            Ok((first, [false, first != copy]))
        }
        (_, Ok(copy)) => Ok((copy, [true, false])),
        (Ok(first), Err(_)) => Ok((first, [false, true])),
        (Err(first), Err(_)) => Err(first),
    }
}

/// Writes the copy anew that says something else. The one that counts is not touched: it may be the only one.
async fn mend(disk: &Disk, superblock: &Superblock, of: &Copies) -> Result<(), BlockError> {
    for (copy, is_other) in (0..).zip(of.is_other) {
        if is_other {
            write_entry(disk, superblock, copy, of.segment, &of.entry).await?;
        }
    }
    Ok(())
}

/// Durably writes one copy of a segment's entry.
pub(super) async fn write_entry(
    disk: &Disk,
    superblock: &Superblock,
    copy: u64,
    segment: u32,
    entry: &Entry,
) -> Result<(), BlockError> {
    let mut buf = disk.buffer(superblock.slot as usize);
    buf.fill(0);
    entry.emit(segment, superblock.seed, &mut buf);
    let at = superblock.entry_at(copy, segment);
    disk.write(buf, at, Durable::Yes).await.0
}

/// Reads one copy of the table; entries that the device does not give are errors of their own.
async fn read_copy(
    disk: &Disk,
    superblock: &Superblock,
    copy: u64,
) -> Result<Vec<Result<Entry, FormatError>>, ExtentError> {
    let slot = superblock.slot as usize;
    let mut entries = Vec::with_capacity(superblock.segments as usize);
    let mut next = 0;
    while next < superblock.segments {
        let count = (PIECE as usize / slot).min((superblock.segments - next) as usize);
        let at = superblock.entry_at(copy, next);
        let (result, buf) = disk.read(disk.buffer(count * slot), at).await;
        match result {
            Ok(()) => {
                let slots = (next..).zip(buf.chunks(slot));
                entries.extend(slots.map(|(segment, bytes)| parse(superblock, segment, bytes)));
            }
            Err(BlockError::Io { .. }) => {
                for segment in next..next + count as u32 {
                    let at = superblock.entry_at(copy, segment);
                    let (result, buf) = disk.read(disk.buffer(slot), at).await;
                    let what = "an entry of the table of segments";
                    let unreadable = FormatError::Unreadable { what };
                    let entry = result.map_err(|_| unreadable);
                    entries.push(entry.and_then(|()| parse(superblock, segment, &buf)));
                }
            }
            Err(error) => return Err(error.into()),
        }
        next += count as u32;
    }
    Ok(entries)
}

fn parse(superblock: &Superblock, segment: u32, bytes: &[u8]) -> Result<Entry, FormatError> {
    Entry::parse(bytes, segment, superblock.segment_pages(), superblock.seed)
}
