//! What went wrong, and where.

use std::sync::Arc;

use thiserror::Error;

/// Why an engine did not do what it was asked for. Cloning costs an increment: one failed write is the
/// answer to many.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetaError {
    /// There is no room for what a commit writes. Nothing was written, and reads go on.
    #[error(
        "no space left for metadata in {place} (free some, or move the directory to a larger disk)"
    )]
    NoSpace {
        /// The engine's directory.
        place: Arc<str>,
    },
    /// A device has failed before; nothing was written. Reads go on, of what is certain.
    #[error("{place} takes no more commits since an I/O error: {why} (restart to recover)")]
    Refused {
        /// The engine's directory.
        place: Arc<str>,
        /// The first error.
        why: Arc<str>,
    },
    /// The row may or may not have been changed by a commit whose write has failed. Opening the engine
    /// anew decides it.
    #[error(
        "{place}: an I/O error leaves open what was written under this key: {why} (restart to recover)"
    )]
    Undecided {
        /// The engine's directory.
        place: Arc<str>,
        /// The first error.
        why: Arc<str>,
    },
    /// The device does not give back what was stored.
    #[error("reading metadata from {place}: {why}")]
    Read {
        /// The engine's directory.
        place: Arc<str>,
        /// What the device or the format's checks say.
        why: Arc<str>,
    },
    /// The engine was closed, or its node has lost its power. Nothing was written.
    #[error("the metadata engine {place} is closed")]
    Closed {
        /// The engine's directory.
        place: Arc<str>,
    },
}
