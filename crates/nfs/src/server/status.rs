//! The file system's errors as the protocol's.

use files::{Error, NameError};

use crate::wire::Nfsstat4;

/// What an error is on the wire (RFC 8881, section 15.1).
pub(super) fn of_error(error: Error) -> Nfsstat4 {
    match error {
        Error::NotPermitted => Nfsstat4::NFS4ERR_PERM,
        Error::NotFound => Nfsstat4::NFS4ERR_NOENT,
        Error::Io => Nfsstat4::NFS4ERR_IO,
        Error::AccessDenied => Nfsstat4::NFS4ERR_ACCESS,
        Error::Exists => Nfsstat4::NFS4ERR_EXIST,
        Error::CrossVolume => Nfsstat4::NFS4ERR_XDEV,
        Error::NotDirectory => Nfsstat4::NFS4ERR_NOTDIR,
        Error::IsDirectory => Nfsstat4::NFS4ERR_ISDIR,
        Error::IsSymlink => Nfsstat4::NFS4ERR_SYMLINK,
        Error::WrongKind => Nfsstat4::NFS4ERR_WRONG_TYPE,
        Error::Invalid => Nfsstat4::NFS4ERR_INVAL,
        Error::FileTooLarge => Nfsstat4::NFS4ERR_FBIG,
        Error::NoSpace => Nfsstat4::NFS4ERR_NOSPC,
        Error::QuotaExceeded => Nfsstat4::NFS4ERR_DQUOT,
        Error::ReadOnly => Nfsstat4::NFS4ERR_ROFS,
        Error::TooManyLinks => Nfsstat4::NFS4ERR_MLINK,
        Error::NameTooLong => Nfsstat4::NFS4ERR_NAMETOOLONG,
        Error::NotEmpty => Nfsstat4::NFS4ERR_NOTEMPTY,
        Error::Stale => Nfsstat4::NFS4ERR_STALE,
        Error::BadCookie => Nfsstat4::NFS4ERR_BAD_COOKIE,
        Error::NoXattr => Nfsstat4::NFS4ERR_NOXATTR,
        Error::TooLarge => Nfsstat4::NFS4ERR_XATTR2BIG,
        Error::NothingThere => Nfsstat4::NFS4ERR_NXIO,
        Error::ShareDenied => Nfsstat4::NFS4ERR_SHARE_DENIED,
        Error::Locked(_) => Nfsstat4::NFS4ERR_LOCKED,
        Error::NotHeld => Nfsstat4::NFS4ERR_BAD_STATEID,
        // Somebody else will own the handle in a moment, or the route is asked for again.
        Error::Delay | Error::NotOwner { .. } => Nfsstat4::NFS4ERR_DELAY,
        Error::Grace => Nfsstat4::NFS4ERR_GRACE,
        Error::NoGrace => Nfsstat4::NFS4ERR_NO_GRACE,
        Error::NotSupported => Nfsstat4::NFS4ERR_NOTSUPP,
        _ => Nfsstat4::NFS4ERR_SERVERFAULT,
    }
}

/// What an error is on the wire of a minor version: 4.0 has no code for an object of another kind (RFC
/// 7530, section 13.1).
pub(super) fn of_error_in(minor: u32, error: Error) -> Nfsstat4 {
    match of_error(error) {
        Nfsstat4::NFS4ERR_WRONG_TYPE if minor == 0 => Nfsstat4::NFS4ERR_INVAL,
        status => status,
    }
}

/// What bytes that are no name are on the wire.
pub(super) fn of_name(error: NameError) -> Nfsstat4 {
    match error {
        NameError::Empty => Nfsstat4::NFS4ERR_INVAL,
        NameError::TooLong => Nfsstat4::NFS4ERR_NAMETOOLONG,
        NameError::BadByte => Nfsstat4::NFS4ERR_BADCHAR,
        _ => Nfsstat4::NFS4ERR_BADNAME,
    }
}
