//! From what is on the device to a store that serves.
//!
//! | file | what |
//! | --- | --- |
//! | `headers.rs` | which segments are in use, and since when |
//! | `checkpoint.rs` | the index as it was when the store was closed |
//! | `log.rs` | the index from the records themselves |

pub(crate) mod checkpoint;
pub(crate) mod headers;
mod log;

use std::sync::Arc;

use block::Disk;

use crate::error::StoreError;
use crate::format::segment::Kind;
use crate::maintain::{destroy_header, prepare_segment, spare};
use crate::options::Options;
use crate::shared::Shared;

/// How a store came to its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// It was formatted just now.
    Formatted,
    /// It had been closed, and had written its index.
    Closed,
    /// It had not been closed: the log was read.
    Log {
        /// Records and tombstones in it.
        records: u64,
        /// Bytes read.
        bytes: u64,
        /// Stretches in which no record was where one had been: of writes that were cut short, or
        /// of damage.
        damaged: u64,
        /// How often the log was read.
        passes: u32,
    },
}

/// How far the recovery of a store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Segments of the log that were read, in all passes so far.
    pub segments: u32,
    /// Segments that there are to read in this pass.
    pub segments_total: u32,
    /// Records and tombstones found.
    pub records: u64,
}

/// Told from time to time how far recovery is, by any thread.
pub type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// Takes up what is on the device. Nobody else uses the store yet.
pub(crate) fn recover(
    shared: &mut Shared,
    disk: &Disk,
    options: &Options,
) -> Result<Recovery, StoreError> {
    let used = disk.block_on(headers::read(shared, disk))?;
    let newest = used
        .headers
        .iter()
        .map(|header| header.seq)
        .max()
        .unwrap_or(0);
    shared.segments.skip_to(newest + 1);
    shared.session = newest + 1;
    let (index, records): (Vec<_>, Vec<_>) = used
        .headers
        .into_iter()
        .partition(|header| header.kind == Kind::Index);
    let is_closed =
        options.believe_index && disk.block_on(checkpoint::load(shared, disk, &index, &records))?;
    for header in records.iter().chain(&index) {
        shared
            .segments
            .adopt(header.segment, header.seq, header.kind);
    }
    let recovery = if is_closed {
        Recovery::Closed
    } else {
        log::recover(shared, &records, &used.begun, options)?
    };
    disk.block_on(async {
        // The first of this session: it says that all others are not written to any more.
        if let Err(error) = prepare_segment(shared, disk, spare(shared)).await {
            // Maintenance begins another one.
            tracing::error!(%error, device = %shared.device.name(), "opening a store");
        }
        // What they say is about to become untrue; durably so before anything is written.
        for header in &index {
            destroy_header(shared, disk, header.segment).await?;
            shared.segments.free(header.segment);
        }
        Ok::<(), StoreError>(())
    })?;
    Ok(recovery)
}
