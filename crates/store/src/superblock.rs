//! What a device holds before anything else: which of its two superblocks counts, or a new store's.
//!
//! `format/superblock.rs` draws one; here they are read, believed or not, and written. A device is formatted only if
//! it looks blank or by force, and both superblocks say so until every segment has its header. What may be a store is
//! never formatted over: one superblock that is not ready says nothing against another one that is, or was.

use block::{BlockError, Device, Disk, Durable};

use crate::error::StoreError;
use crate::format::FormatError;
use crate::format::layout::Layout;
use crate::format::segment::SegmentHeader;
use crate::format::superblock::{SUPERBLOCKS, Superblock};
use crate::options::Options;
use crate::scan::is_of_medium;

/// A superblock and its copy, as they are on a device.
pub(crate) struct Superblocks([Result<Superblock, FormatError>; 2]);

impl Superblocks {
    /// The one that counts: its formatting has ended.
    pub(crate) fn ready(&self) -> Option<Superblock> {
        let mut found = self.0.iter().flatten();
        found.find(|superblock| superblock.ready).copied()
    }

    /// What is wrong with each. One that is not ready is right only beside another such one.
    pub(crate) fn problems(&self) -> [Option<FormatError>; 2] {
        self.0.map(|found| match found {
            Ok(superblock) if superblock.ready => None,
            Ok(_) => Some(FormatError::Unfinished),
            Err(error) => Some(error),
        })
    }
}

/// The superblock, and whether it is new.
pub(crate) async fn superblock(
    device: &dyn Device,
    disk: &Disk,
    options: &Options,
) -> Result<(Superblock, bool), StoreError> {
    let name = device.name();
    let geometry = device.geometry();
    let found = read_superblocks(device, disk).await?;
    if let Some(superblock) = found.ready() {
        check(&name, &superblock, geometry)?;
        for (at, error) in SUPERBLOCKS.into_iter().zip(found.problems()) {
            let Some(error) = error else { continue };
            tracing::warn!(device = %name, %error, "a superblock is damaged: its copy is used");
            if error != FormatError::Unfinished {
                continue;
            }
            // Left behind by a crash at the end of formatting. It would say that nothing is lost.
            if let Err(error) = write_superblock(disk, &superblock, at).await {
                tracing::warn!(device = %name, %error, "writing a superblock anew");
            }
        }
        return Ok((superblock, false));
    }
    if geometry.len < SUPERBLOCKS[1] {
        return Err(StoreError::CutShort {
            device: name,
            len: geometry.len,
            needed: SUPERBLOCKS[1],
        });
    }
    may_be_formatted(device, disk, options, &found.problems()).await?;
    let superblock = format(device, disk, options).await?;
    Ok((superblock, true))
}

/// Refuses a device that is not to be formatted. Neither of its superblocks is ready, for these reasons.
async fn may_be_formatted(
    device: &dyn Device,
    disk: &Disk,
    options: &Options,
    problems: &[Option<FormatError>; 2],
) -> Result<(), StoreError> {
    let device_name = device.name();
    let [first, copy] = problems.map(|problem| problem.unwrap_or(FormatError::Unfinished));
    let is_told = |error: &FormatError| {
        use FormatError::{Foreign, Short, Unfinished};
        !matches!(error, Foreign { .. } | Short { .. } | Unfinished)
    };
    // What certainly was a store's says more than that the copy is none.
    if let Some(source) = [first, copy].into_iter().find(is_told) {
        return Err(if options.create && options.force {
            StoreError::MaybeStore {
                device: device_name,
                source,
            }
        } else {
            StoreError::NoStore {
                device: device_name,
                source,
            }
        });
    }
    let is_unfinished = problems.map(|problem| problem == Some(FormatError::Unfinished));
    if is_unfinished != [true; 2] && !(options.create && options.force) {
        // Formatting begins and ends with one of them: at its beginning nothing else is on the device.
        let block = u64::from(device.geometry().block.max(512));
        let own = SUPERBLOCKS.into_iter().zip(is_unfinished);
        let own = own.filter(|(_, is_unfinished)| *is_unfinished);
        let own = own.map(|(at, _)| at..at + block).next().unwrap_or(0..0);
        if let Some(at) = block::first_used_but(device, disk, own).await? {
            return Err(StoreError::NotEmpty {
                device: device_name,
                at,
            });
        }
    }
    if options.create {
        return Ok(());
    }
    Err(StoreError::NoStore {
        device: device_name,
        source: first,
    })
}

/// Reads both superblocks. Fails if the device does not give one of them and the other one is none.
pub(crate) async fn read_superblocks(
    device: &dyn Device,
    disk: &Disk,
) -> Result<Superblocks, StoreError> {
    let geometry = device.geometry();
    let block = geometry.block.max(512) as usize;
    let places = ["the superblock", "the copy of the superblock"];
    let mut found = places.map(|what| Err(FormatError::Short { what }));
    let mut failed = None;
    for ((at, what), found) in SUPERBLOCKS.into_iter().zip(places).zip(&mut found) {
        if at + block as u64 > geometry.len {
            continue;
        }
        let (result, buf) = disk.read(disk.buffer(block), at).await;
        *found = match result {
            Ok(()) => Superblock::parse(&buf).map_err(|error| error.of(what)),
            Err(error) if is_of_medium(&error) => {
                failed.get_or_insert(error);
                Err(FormatError::Unreadable { what })
            }
            Err(error) => return Err(error.into()),
        };
    }
    match failed {
        Some(error) if found.iter().all(Result::is_err) => Err(error.into()),
        _ => Ok(Superblocks(found)),
    }
}

/// The longest block.
const BLOCK_MAX: u32 = 32 << 10;

pub(crate) fn check(
    name: &str,
    superblock: &Superblock,
    geometry: block::Geometry,
) -> Result<(), StoreError> {
    let layout = &superblock.layout;
    let needed = layout.segment_at(layout.segments);
    if geometry.len < needed {
        return Err(StoreError::CutShort {
            device: name.into(),
            len: geometry.len,
            needed,
        });
    }
    layout
        .check(geometry.len)
        .map_err(|source| StoreError::NoStore {
            device: name.into(),
            source,
        })?;
    if geometry.block as usize > layout.block() {
        let field = "the size of a block, less than the device's,";
        let what = "the layout";
        return Err(StoreError::Layout {
            device: name.into(),
            source: FormatError::Field { what, field },
        });
    }
    Ok(())
}

async fn format(
    device: &dyn Device,
    disk: &Disk,
    options: &Options,
) -> Result<Superblock, StoreError> {
    let geometry = device.geometry();
    // What a drive writes at once it also loses at once: blocks are not shorter, so that a write that is
    // cut short damages nothing beside it.
    let block = geometry
        .block
        .max(512)
        .max(device.physical_block())
        .min(BLOCK_MAX);
    let layout = Layout::new(geometry.len, block, options.segment_bytes);
    let layout = layout.map_err(|source| StoreError::Layout {
        device: device.name(),
        source,
    })?;
    let [low, high, hash_seed, check_seed] = options.draw();
    let superblock = Superblock {
        store: u128::from(low) | u128::from(high) << 64,
        hash_seed,
        check_seed,
        layout,
        cache: options.cache,
        ready: false,
        required_features: 0,
        optional_features: 0,
    };
    // Whoever finds these knows that nothing is lost.
    for at in SUPERBLOCKS {
        write_superblock(disk, &superblock, at).await?;
    }
    // Every segment says that it is free.
    let unused = |(segment, block)| {
        let mut buf = disk.buffer(layout.block());
        buf.fill(0);
        SegmentHeader::unused(superblock.store, segment).emit(&mut buf);
        disk.write(buf, layout.block_at(segment, block), Durable::No)
    };
    let all: Vec<(u32, u32)> = (0..layout.segments)
        .flat_map(|segment| [(segment, 0), (segment, layout.copy_block())])
        .collect();
    for some in all.chunks(128) {
        let writes: Vec<_> = some.iter().copied().map(unused).collect();
        // None is under way when this returns, whatever becomes of one: the caller may try again at once.
        let mut written: Result<(), BlockError> = Ok(());
        for write in writes {
            written = written.and(write.await.0);
        }
        written?;
    }
    disk.flush().await?;
    let superblock = Superblock {
        ready: true,
        ..superblock
    };
    for at in SUPERBLOCKS.into_iter().rev() {
        write_superblock(disk, &superblock, at).await?;
    }
    Ok(superblock)
}

/// Durably writes the superblock to `at`.
pub(crate) async fn write_superblock(
    disk: &Disk,
    superblock: &Superblock,
    at: u64,
) -> Result<(), StoreError> {
    let mut buf = disk.buffer(superblock.layout.block());
    buf.fill(0);
    superblock.emit(&mut buf);
    disk.write(buf, at, Durable::Yes).await.0?;
    Ok(())
}
