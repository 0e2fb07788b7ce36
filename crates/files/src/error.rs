//! Why an operation was refused.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Conflict;

/// Why an operation was refused. Nothing was changed, but for [`Error::Io`], after which that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Error {
    /// `EPERM`: only the owner or the superuser may.
    #[error("only the owner may do that")]
    NotPermitted,
    /// `ENOENT`: no entry of that name.
    #[error("no such file or directory")]
    NotFound,
    /// `EIO`: the storage below failed; its log says where.
    #[error("the storage failed")]
    Io,
    /// `EACCES`: the permission bits refuse it.
    #[error("permission denied")]
    AccessDenied,
    /// `EEXIST`: the name is taken.
    #[error("the name exists")]
    Exists,
    /// `EXDEV`: names of two volumes.
    #[error("not within one volume")]
    CrossVolume,
    /// `ENOTDIR`: the object is no directory.
    #[error("not a directory")]
    NotDirectory,
    /// `EISDIR`: the object is a directory.
    #[error("is a directory")]
    IsDirectory,
    /// The object is a symbolic link, and one of another kind was asked for.
    #[error("is a symbolic link")]
    IsSymlink,
    /// The object has another kind than the operation needs.
    #[error("an object of another kind")]
    WrongKind,
    /// `EINVAL`: the request makes no sense, such as moving a directory into itself.
    #[error("invalid request")]
    Invalid,
    /// `EFBIG`: past the largest offset there can be (2^63 - 1).
    #[error("beyond the largest file")]
    FileTooLarge,
    /// `ENOSPC`: the devices are full.
    #[error("no space left")]
    NoSpace,
    /// `EDQUOT`: the volume's quota is used up.
    #[error("quota exceeded")]
    QuotaExceeded,
    /// `EROFS`: a snapshot, or an export that is read-only.
    #[error("read-only")]
    ReadOnly,
    /// `EMLINK`: the object has as many names as it can.
    #[error("too many links")]
    TooManyLinks,
    /// `ENAMETOOLONG`.
    #[error("name too long")]
    NameTooLong,
    /// `ENOTEMPTY`: the directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// `ESTALE`: the object is no more.
    #[error("the object is gone")]
    Stale,
    /// No directory listing was ever at that cookie.
    #[error("no such place in the directory")]
    BadCookie,
    /// `ENODATA`: no extended attribute of that name.
    #[error("no such extended attribute")]
    NoXattr,
    /// `E2BIG`: larger than the file system takes.
    #[error("too large")]
    TooLarge,
    /// `ENXIO`: a seek begins at the end of the file or past it.
    #[error("at or past the end of the file")]
    NothingThere,
    /// An open of somebody else denies it.
    #[error("denied by another open")]
    ShareDenied,
    /// A lock of somebody else is in the way.
    #[error("locked by another")]
    Locked(Conflict),
    /// What the caller claims to hold, it does not.
    #[error("not held")]
    NotHeld,
    /// Ask again in a moment: a delegation is being recalled.
    #[error("ask again in a moment")]
    Delay,
    /// During the grace period only what was held before can be held.
    #[error("the grace period has not ended")]
    Grace,
    /// There is nothing to claim again: the grace period is over, or the client is unknown.
    #[error("nothing to reclaim")]
    NoGrace,
    /// The file system does not do that.
    #[error("not supported")]
    NotSupported,
    /// The handle belongs to somebody else since this epoch: ask for the route again.
    #[error("owned by another since epoch {epoch}")]
    NotOwner {
        /// The newest epoch that is known here.
        epoch: u64,
    },
}
