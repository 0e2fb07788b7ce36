//! Why a client did not get what it asked for.

use std::io;

use thiserror::Error;

use crate::rpc::{CallError, Outcome, RecordError};
use crate::wire::Nfsstat4;
use crate::xdr::XdrError;

/// Why a client did not get what it asked for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection was not made, or failed.
    #[error("the connection to the server")]
    Io(#[from] io::Error),
    /// The server has ended the connection; what was asked may have been carried out or not.
    #[error("the server has ended the connection")]
    Ended,
    /// The server says nothing; what was asked may have been carried out or not.
    #[error("the server does not answer")]
    Silent,
    /// What was written is lost before it was made durable: the server has restarted, or its device has failed for a
    /// moment. Write it again.
    #[error("the server has lost what was written: its device failed, or it restarted")]
    Lost,
    /// The server says no.
    #[error("{}", words(*.0))]
    Status(Nfsstat4),
    /// The server did not take the call.
    #[error("the server refused the call: {0:?}")]
    Refused(Outcome),
    /// The server's answer makes no sense.
    #[error("the server's answer makes no sense: {0}")]
    Xdr(#[from] XdrError),
    /// What came is no message.
    #[error("the server's answer makes no sense: {0}")]
    Message(#[from] CallError),
    /// What came is larger than anything that was asked for.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// An answer that does not belong to the question.
    #[error("the server answered something else than it was asked")]
    Unexpected,
    /// A path that names nothing.
    #[error("{0:?} is no path of a file")]
    Path(String),
}

impl From<Nfsstat4> for ClientError {
    fn from(status: Nfsstat4) -> Self {
        Self::Status(status)
    }
}

/// A status as the system's own errors read.
fn words(status: Nfsstat4) -> String {
    let words = match status {
        Nfsstat4::NFS4ERR_PERM => "operation not permitted",
        Nfsstat4::NFS4ERR_NOENT => "no such file or directory",
        Nfsstat4::NFS4ERR_IO => "the server's storage failed: its log says where",
        Nfsstat4::NFS4ERR_ACCESS => "permission denied",
        Nfsstat4::NFS4ERR_EXIST => "it exists",
        Nfsstat4::NFS4ERR_NOTDIR => "not a directory",
        Nfsstat4::NFS4ERR_ISDIR => "is a directory",
        Nfsstat4::NFS4ERR_SYMLINK => "is a symbolic link",
        Nfsstat4::NFS4ERR_NOTEMPTY => "the directory is not empty",
        Nfsstat4::NFS4ERR_NOSPC => "no space left on the server",
        Nfsstat4::NFS4ERR_DQUOT => "the volume's quota is used up",
        Nfsstat4::NFS4ERR_ROFS => "read-only",
        Nfsstat4::NFS4ERR_NAMETOOLONG => "a name is too long",
        Nfsstat4::NFS4ERR_GRACE => {
            "the server has restarted: its clients claim what they had first"
        }
        Nfsstat4::NFS4ERR_DELAY => "the server asks to come again in a moment",
        Nfsstat4::NFS4ERR_STALE => "the file is gone",
        other => return format!("the server says {other:?}"),
    };
    words.to_string()
}
