//! Why there is no file system.

use std::path::PathBuf;
use std::sync::Arc;

use block::BlockError;
use nebula::ExtentError;
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
    /// The path is that of something else than a drive.
    #[error("{path} is no drive: without one the data is a file of the directory", path = .0.display())]
    NotDrive(PathBuf),
    /// Another process makes a file system in the directory.
    #[error("another process is making a file system in {dir}", dir = .0.display())]
    InUse(PathBuf),
    /// The data is not that of the rows: files of two file systems were mixed up. Of it nothing was changed
    /// but copies of its superblock and its table that were damaged: those were mended.
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
    Device(#[from] BlockError),
    /// Extents of the device.
    #[error(transparent)]
    Extents(#[from] ExtentError),
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

impl LocalError {
    /// Whether a drive was not taken because it holds something.
    #[must_use]
    pub fn is_of_contents(&self) -> bool {
        matches!(self, Self::Extents(ExtentError::NotEmpty { .. }))
    }

    /// Whether a file system of another size may be made where this one was not: there is not enough room, or files
    /// cannot be as long.
    #[must_use]
    pub fn is_of_size(&self) -> bool {
        use std::io::ErrorKind::{FileTooLarge, InvalidInput, QuotaExceeded, StorageFull};
        match self {
            Self::Device(BlockError::Open { source, .. }) => matches!(
                std::io::Error::from(*source).kind(),
                StorageFull | FileTooLarge | QuotaExceeded | InvalidInput
            ),
            Self::Extents(ExtentError::Full { .. }) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_does_not_fit_may_fit_in_another_size() {
        let with = |code: i32| {
            let source = std::io::Error::from_raw_os_error(code);
            let open = BlockError::Open {
                path: "data".into(),
                doing: "allocate".into(),
                source: rustix::io::Errno::from_io_error(&source).expect("the system's"),
            };
            LocalError::from(open).is_of_size()
        };
        // ENOSPC, EFBIG; EACCES, EROFS, EIO.
        assert_eq!(
            [28, 27, 13, 30, 5].map(with),
            [true, true, false, false, false]
        );
        let in_use = BlockError::InUse {
            path: "data".into(),
        };
        assert!(!LocalError::from(in_use).is_of_size());
    }
}
