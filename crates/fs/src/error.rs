//! Why there is no file system.

use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

/// Why a file system was not made or opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LocalError {
    /// The directory has something in it already.
    #[error("{dir} is not empty: a file system is made in a directory of its own", dir = .0.display())]
    NotEmpty(PathBuf),
    /// There is no file system in the directory.
    #[error("{dir} holds no file system: make one with `vervain fs format`", dir = .0.display())]
    NoFileSystem(PathBuf),
    /// The path is that of something else than a directory.
    #[error("{dir} is no directory: a file system is kept in a directory of its own", dir = .0.display())]
    NotDirectory(PathBuf),
    /// Another process makes a file system in the directory.
    #[error("another process is making a file system in {dir}", dir = .0.display())]
    InUse(PathBuf),
    /// The data is not that of the rows: files of two file systems were mixed up. Nothing was changed in it.
    #[error("{0} belongs to another file system")]
    OtherDisk(Arc<str>),
    /// A directory or file cannot be read or written.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The metadata engine's directory.
    #[error(transparent)]
    Engine(#[from] meta::OpenError),
    /// A row of the metadata engine.
    #[error(transparent)]
    Rows(#[from] meta::MetaError),
    /// The device of the data.
    #[error(transparent)]
    Device(#[from] block::BlockError),
    /// Extents of the device.
    #[error(transparent)]
    Extents(#[from] nebula::ExtentError),
    /// Streams.
    #[error(transparent)]
    Streams(#[from] nebula::StreamError),
    /// The dataunit.
    #[error(transparent)]
    Data(#[from] filelayer::FileError),
    /// The index.
    #[error(transparent)]
    Index(#[from] index::OpenError),
    /// The row of the dataunit is none, or of a later version.
    #[error("the row of the dataunit is damaged, or of a later version")]
    BadUnit,
    /// Another process has taken the dataunit over meanwhile.
    #[error("another process has taken the file system over")]
    Taken,
    /// It is not known whether a row was written.
    #[error(
        "it is not known whether the row of the dataunit was written (open the file system again)"
    )]
    Unknown,
}
