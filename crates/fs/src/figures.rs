//! What a file system has done and what it holds.

use filelayer::{FileError, PAGE, Recovery};
use index::Blocks as _;
use meta::Embedded;

use crate::Local;

/// What compaction has done since the file system was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Pages that it has copied.
    pub pages: u64,
    /// Extents that it has given back.
    pub extents: u64,
}

/// Counts since the file system was opened, and what there is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Bytes that files may take, and those that are free.
    pub bytes_total: u64,
    /// Bytes of segments that nothing is in.
    pub bytes_free: u64,
    /// Bytes of pages that files have; one that several share counts once.
    pub bytes_valid: u64,
    /// Bytes of the data's segments: what is not valid in them is garbage, or still to be written.
    pub bytes_taken: u64,
    /// Bytes of the data's index in memory.
    pub index_bytes: u64,
    /// Bytes of rows in memory.
    pub rows_bytes: u64,
    /// Pages found in the cache.
    pub cache_hits: u64,
    /// Pages that had to be read.
    pub cache_misses: u64,
    /// What compaction has done.
    pub compacted: Compacted,
    /// How the index of the data was recovered when the file system was opened.
    pub recovery: Recovery,
    /// Requests, commits and reads of the index.
    pub index: index::Counts,
    /// The metadata engine's.
    pub rows: meta::Counts,
    /// Requests of the data's device.
    pub device: block::Counts,
}

impl Local {
    /// What it has done and what it holds. Reads memory alone.
    ///
    /// # Errors
    /// The streams' do not say which extents there are.
    pub async fn figures(&self) -> Result<Figures, FileError> {
        let inner = &self.inner;
        let unit = &inner.blocks.unit;
        let space = unit.space().await?;
        let room = inner.blocks.room();
        let (cache_hits, cache_misses) = unit.cache_counts();
        Ok(Figures {
            bytes_total: room.total,
            bytes_free: room.free,
            bytes_valid: space.valid * PAGE as u64,
            bytes_taken: space.pages * PAGE as u64,
            index_bytes: unit.index_bytes() as u64,
            rows_bytes: inner.index.cached_bytes(),
            cache_hits,
            cache_misses,
            compacted: inner.compacted.get(),
            recovery: unit.recovery(),
            index: inner.index.counts(),
            rows: inner
                .rows
                .as_ref()
                .map(Embedded::counts)
                .unwrap_or_default(),
            device: inner.disk.counts(),
        })
    }
}
