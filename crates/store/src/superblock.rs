//! What a device holds before anything else: which of its two superblocks counts, or a new store's.
//!
//! `format/superblock.rs` draws one; here they are read, believed or not, and written. A device is formatted only if
//! it looks blank or by force, and both superblocks say so until every segment has its header.

use block::{BlockError, Device, Disk, Durable};

use crate::error::StoreError;
use crate::format::FormatError;
use crate::format::layout::Layout;
use crate::format::segment::SegmentHeader;
use crate::format::superblock::{SUPERBLOCKS, Superblock};
use crate::options::Options;
use crate::scan::is_of_medium;

/// The superblock, and whether it is new.
pub(crate) async fn superblock(
    device: &dyn Device,
    disk: &Disk,
    options: &Options,
) -> Result<(Superblock, bool), StoreError> {
    let name = device.name();
    let geometry = device.geometry();
    let (found, problems) = read_superblocks(device, disk).await?;
    if let Some(superblock) = found.filter(|superblock| superblock.ready) {
        for problem in problems.into_iter().flatten() {
            tracing::warn!(device = %name, error = %problem, "a superblock is damaged: its copy is used");
        }
        check(&name, &superblock, geometry)?;
        return Ok((superblock, false));
    }
    if geometry.len < SUPERBLOCKS[1] {
        return Err(StoreError::CutShort {
            device: name,
            len: geometry.len,
            needed: SUPERBLOCKS[1],
        });
    }
    let foreign = |error: &&FormatError| matches!(error, FormatError::Foreign { .. });
    let is_ours = found.is_some();
    if !options.create || (!is_ours && !options.force) {
        // What is certainly a store's says more than that the copy is none.
        let told = problems.iter().flatten().find(|error| !foreign(error));
        let foreign = problems[0].unwrap_or(FormatError::Unfinished);
        match (told, block::first_used(device, disk).await?) {
            (Some(&source), _) => {
                return Err(StoreError::NoStore {
                    device: name,
                    source,
                });
            }
            (None, Some(at)) if !is_ours => return Err(StoreError::NotEmpty { device: name, at }),
            (None, _) if !options.create => {
                return Err(StoreError::NoStore {
                    device: name,
                    source: foreign,
                });
            }
            (None, _) => {}
        }
    }
    format(device, disk, options)
        .await
        .map(|superblock| (superblock, true))
}

/// Reads both superblocks: the one that counts, and what is wrong with each. One whose formatting has
/// ended comes before one that has not.
pub(crate) async fn read_superblocks(
    device: &dyn Device,
    disk: &Disk,
) -> Result<(Option<Superblock>, [Option<FormatError>; 2]), StoreError> {
    let geometry = device.geometry();
    let block = geometry.block.max(512) as usize;
    let mut found: Option<Superblock> = None;
    let mut problems = [None, None];
    let mut failed = Vec::new();
    let places = ["the superblock", "the copy of the superblock"];
    for ((at, what), problem) in SUPERBLOCKS.into_iter().zip(places).zip(&mut problems) {
        if at + block as u64 > geometry.len {
            *problem = Some(FormatError::Short { what });
            continue;
        }
        let (result, buf) = disk.read(disk.buffer(block), at).await;
        let parsed = match result {
            Ok(()) => Superblock::parse(&buf).map_err(|error| error.of(what)),
            Err(error) if is_of_medium(&error) => {
                failed.push(error);
                Err(FormatError::Unreadable { what })
            }
            Err(error) => return Err(error.into()),
        };
        match parsed {
            Ok(superblock) if found.is_none_or(|found| !found.ready && superblock.ready) => {
                found = Some(superblock);
            }
            Ok(_) => {}
            Err(error) => *problem = Some(error),
        }
    }
    if found.is_none()
        && let Some(error) = failed.into_iter().next()
    {
        return Err(error.into());
    }
    Ok((found, problems))
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
