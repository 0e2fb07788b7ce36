//! What goes wrong, and where.

use nebula::{Address, StreamError, StreamId};
use thiserror::Error;

use crate::format::FormatError;
use crate::ids::{Fid, UnitId, Volume};

/// Why a block was not read or changed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// The stream below failed. A change may have been carried out or not.
    #[error(transparent)]
    Stream(StreamError),
    /// A page cannot be read, or is not what was written. It is not served; all others are.
    #[error("page {page} of {fid} cannot be read: {source}")]
    BadPage {
        /// The block.
        fid: Fid,
        /// The page's number in it.
        page: u16,
        /// What is wrong with it.
        source: StreamError,
    },
    /// There is no room but what frees, truncations and compaction need. Nothing was written.
    #[error("the dataunit is full: free or truncate blocks, or add a disk")]
    Full,
    /// A range that goes beyond a block.
    #[error(
        "{len} bytes at {offset} are not within a block of {} bytes",
        crate::BLOCK
    )]
    Range {
        /// Where it begins.
        offset: u32,
        /// How long it is.
        len: usize,
    },
    /// The block belongs to another dataunit.
    #[error("{fid} is not of dataunit {}", unit.number())]
    OtherUnit {
        /// The block.
        fid: Fid,
        /// The dataunit that was asked.
        unit: UnitId,
    },
    /// A clone into a block that is not new.
    #[error("{fid} has pages already, or is what was to be cloned")]
    NotNew {
        /// The block.
        fid: Fid,
    },
    /// All serial numbers of the dataunit were given out.
    #[error("dataunit {} has given out all its blocks' numbers", unit.number())]
    Exhausted {
        /// The dataunit.
        unit: UnitId,
    },
    /// There is no such snapshot.
    #[error("volume {} has no snapshot {epoch}", volume.0)]
    NoSnapshot {
        /// The volume.
        volume: Volume,
        /// The snapshot's epoch.
        epoch: u32,
    },
    /// A snapshot whose epoch nothing can be below or above: 0 and the two highest are not for snapshots.
    #[error("no snapshot can have epoch {epoch}")]
    Epoch {
        /// The epoch.
        epoch: u32,
    },
    /// A record that is not one of a dataunit's: another program wrote to the stream.
    #[error("the record at {at} of {stream} makes no sense: {source}")]
    Record {
        /// The stream.
        stream: StreamId,
        /// Its address.
        at: Address,
        /// What is wrong with it.
        source: FormatError,
    },
    /// Blocks refer to an extent that the stream does not have.
    #[error("blocks have pages in extent {extent}, which {stream} does not have")]
    Lost {
        /// The stream.
        stream: StreamId,
        /// The extent.
        extent: u32,
    },
    /// Compaction would have changed what is valid: it was given up, and the extent stays.
    #[error("compaction of extent {extent} was given up: {what}")]
    Invariant {
        /// The extent.
        extent: u32,
        /// What does not fit.
        what: String,
    },
    /// A flush has failed, and what blocks have in this extent may not survive the loss of power. Compaction moves it;
    /// until then no checkpoint may name it, and nothing that it took the place of may go.
    #[error(
        "what blocks have in extent {extent} may not survive the loss of power, and is moved first"
    )]
    InDoubt {
        /// The extent.
        extent: u32,
    },
    /// The dataunit changes too fast to be looked at.
    #[error("the dataunit did not stand still long enough")]
    Busy,
    /// The core was shut down.
    #[error("the dataunit's core was shut down")]
    Closed,
}

impl From<StreamError> for FileError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Full { .. } => Self::Full,
            error => Self::Stream(error),
        }
    }
}
