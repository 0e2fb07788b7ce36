//! From what is on the device to a store that serves.
//!
//! | file | what |
//! | --- | --- |
//! | `headers.rs` | what each segment is used for |
//! | `checkpoint.rs` | the index as it was when the store was closed |
//! | `log.rs` | the index from the records themselves |

pub(crate) mod checkpoint;
pub(crate) mod headers;
mod log;

use std::sync::Arc;

use block::Disk;

use crate::error::StoreError;
use crate::format::segment::{Kind, SegmentHeader, SegmentState};
use crate::maintain::{Which, free_segment, prepare_segment, put_header, spare};
use crate::options::Options;
use crate::shared::Shared;
use headers::{Headers, Known};

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
        /// Stretches in which something is lost that had been written.
        damaged: u64,
        /// Stretches of writes that the crash had cut short.
        torn: u64,
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

/// Who reads the log, and sorts what was found in it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Readers {
    /// The task that recovers, with its own disk. Nothing blocks.
    Task,
    /// So many threads, which block, the calling one among them.
    Threads(usize),
}

/// Takes up what is on the device. Nobody else uses the store yet.
pub(crate) async fn recover(
    shared: &mut Shared,
    disk: &Disk,
    options: &Options,
    readers: Readers,
) -> Result<Recovery, StoreError> {
    let headers = headers::read(&shared.superblock, disk).await?;
    shared.segments.skip_to(headers.newest + 1);
    shared.session = headers.newest + 1;
    let mut index = Vec::new();
    let mut records = Vec::new();
    for known in &headers.segments {
        let segment = known.segment;
        match known.header {
            Some(header) if header.state == SegmentState::Free => {
                shared.segments.note_last_seq(segment, header.seq);
            }
            Some(header) => {
                shared.segments.adopt(segment, header.seq, header.kind);
                let settled = headers.settled(header.seq);
                let segments = &shared.segments;
                segments.adopt_extent(segment, known.contents(), settled);
                match header.kind {
                    Kind::Index => index.push(header),
                    Kind::User | Kind::Moved => records.push(header),
                }
            }
            // It may have held anything.
            None => shared.segments.retire(segment),
        }
    }
    let by_age = |header: &SegmentHeader| header.seq;
    index.sort_unstable_by_key(by_age);
    records.sort_unstable_by_key(by_age);
    shared.segments.end_adoption();
    let damaged = tell_problems(shared, &headers);
    let is_guessed = |known: &&Known| known.is_guessed;
    let guessed = headers.segments.iter().filter(is_guessed);
    let guessed: Vec<&Known> = guessed.collect();
    // A damaged one first of all: until then the other one must not be written. One that a crash has only
    // left behind may alone say how far other segments are settled, until these have been read.
    let (of_damage, of_cuts) = headers
        .segments
        .iter()
        .filter(|known| !known.is_guessed)
        .partition::<Vec<_>, _>(|known| known.problems.iter().any(Option::is_some));
    mend(shared, disk, &of_damage).await;
    let is_closed =
        options.believe_index && checkpoint::load(shared, disk, &index, &records).await?;
    let recovery = if is_closed {
        // The index knows what these segments hold, unless they were doubted before it was written.
        let is_sure = |known: &&Known| !shared.segments.is_damaged(known.segment);
        let sure: Vec<&Known> = guessed.iter().copied().filter(is_sure).collect();
        mend(shared, disk, &sure).await;
        Recovery::Closed
    } else {
        let lost = headers
            .segments
            .iter()
            .filter(|known| known.header.is_none());
        let lost: Vec<u32> = lost.map(|known| known.segment).collect();
        if options.forget_damaged {
            mend(shared, disk, &guessed).await;
        } else {
            // What an index says is not believed: it goes with the others.
            let is_of_log = |known: &&Known| known.header.is_some_and(|h| h.kind != Kind::Index);
            let guessed: Vec<&Known> = guessed.into_iter().filter(is_of_log).collect();
            doubt(shared, &guessed);
        }
        log::recover(shared, disk, &records, &lost, damaged, options, readers).await?
    };
    mend(shared, disk, &of_cuts).await;
    // The first since the store was opened.
    if let Err(error) = prepare_segment(shared, disk, spare(shared)).await {
        // Maintenance begins another one.
        tracing::error!(%error, device = %shared.device.name(), "opening a store");
    }
    // What they say is about to become untrue. One whose header cannot be written is not believed any
    // more when the log has a newer segment, and it has one before anything is written.
    for header in &index {
        let segment = header.segment;
        match free_segment(shared, disk, segment).await {
            Ok(()) => shared.segments.free(segment),
            Err(error) => {
                let device = shared.device.name();
                tracing::warn!(%device, segment, %error, "giving a stored index up");
                shared.segments.doubt(segment);
            }
        }
    }
    Ok(recovery)
}

/// Doubts what stands in segments that may have been free. Their headers stay lost, so that it is doubted
/// again when the store is opened again.
fn doubt(shared: &Shared, guessed: &[&Known]) {
    for known in guessed {
        let seq = known.header.map_or(0, |header| header.seq);
        shared.doubt_before(shared.layout().version(seq + 1, 0));
        shared.segments.retire_damaged(known.segment);
    }
}

/// Says what is wrong with headers, and how many are.
fn tell_problems(shared: &Shared, headers: &Headers) -> u64 {
    let mut damaged = 0;
    for known in &headers.segments {
        for error in known.problems.iter().flatten() {
            let device = shared.device.name();
            tracing::warn!(%device, segment = known.segment, %error, "recovering a store");
            damaged += 1;
        }
    }
    damaged
}

/// Writes those headers anew that do not say what they should, if it is known what they should, and no
/// other ones: a write that goes wrong may cost what was there.
async fn mend(shared: &Shared, disk: &Disk, segments: &[&Known]) {
    for known in segments {
        let Some(header) = known.header else {
            continue;
        };
        let expected = Known::expected(&header).into_iter().zip(Which::BOTH);
        let outdated = expected.zip(known.outdated).filter(|(_, is_so)| *is_so);
        for ((header, which), _) in outdated {
            if let Err(error) = put_header(shared, disk, &header, which).await {
                let device = shared.device.name();
                tracing::warn!(%device, segment = known.segment, %error, "mending a header");
            }
        }
    }
}
