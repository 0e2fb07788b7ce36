//! What can be asked of a file system, one variant an operation.

use serde::{Deserialize, Serialize};

use crate::{
    Access, Delegation, Device, Handle, Holder, Lock, LockRange, Name, Once, SetAttributes, Share,
    VolumeId,
};

/// Bytes of a symbolic link's text at most (`PATH_MAX` without its NUL).
pub const SYMLINK_LEN_MAX: usize = 4095;

/// Bytes of an extended attribute's value at most (Linux's `XATTR_SIZE_MAX`).
pub const XATTR_VALUE_LEN_MAX: usize = 65536;

/// Bytes of a file: from an offset, so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The first byte.
    pub offset: u64,
    /// How many.
    pub len: u64,
}

impl Range {
    /// One past the last byte, or `None` past 2^63 - 1, the largest size a file can have.
    #[must_use]
    pub const fn end(self) -> Option<u64> {
        match self.offset.checked_add(self.len) {
            Some(end) if end <= i64::MAX as u64 => Some(end),
            _ => None,
        }
    }
}

/// What a new object is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum New {
    /// A directory.
    Directory,
    /// A symbolic link with this text: 1 to [`SYMLINK_LEN_MAX`] bytes, no NUL.
    Symlink(Vec<u8>),
    /// A block device's name.
    BlockDevice(Device),
    /// A character device's name.
    CharDevice(Device),
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
}

/// What happens if the name of a new file is taken (RFC 8881, section 18.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CreateHow {
    /// The file that is there is opened; of the attributes only a size of 0 is set.
    Unchecked,
    /// [`Error::Exists`](crate::Error::Exists).
    Guarded,
    /// The same, unless the file was made by a request with this verifier: then this is its repeat.
    /// The verifier is durable with the file until its attributes are set.
    Exclusive([u8; 8]),
}

/// What a write has to have survived when it is answered (RFC 8881, section 18.32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stability {
    /// Nothing yet: a later commit makes it durable.
    Unstable,
    /// The loss of power: the data, and what is needed to read it.
    DataSync,
    /// The loss of power: the data and all attributes.
    FileSync,
}

/// What is looked for in a sparse file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeekFor {
    /// The next byte that is stored.
    Data,
    /// The next that is not; the end of the file counts as one.
    Hole,
}

/// Whether an extended attribute has to be there already (RFC 8276, section 8.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetXattr {
    /// It may be.
    Either,
    /// It must not be.
    Create,
    /// It must be.
    Replace,
}

/// One operation. What is answered to each stands at its variant; every one may be answered by the
/// general errors too: `Stale`, `Io`, `NotOwner`, `Delay`, and permission.
///
/// Data comes and goes by [`FileSystem::read`](crate::FileSystem::read) and
/// [`FileSystem::write`](crate::FileSystem::write), which copy once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Request {
    /// An object's attributes. [`Answer::Attributes`](crate::Answer::Attributes).
    GetAttributes(Handle),
    /// Changes attributes. `Attributes`: the new ones. A change of size counts as a write; of a
    /// symbolic link's mode is `NotSupported`. Nothing to change changes nothing, not even times.
    SetAttributes(Handle, SetAttributes),
    /// Which of these the caller may do. `Access`. Never refused for want of permission.
    Access(Handle, Access),
    /// The object of a name. `Found`.
    Lookup(Handle, Name),
    /// The directory that a directory is in; the root has none: `NotFound`. `Found`.
    Parent(Handle),
    /// A symbolic link's text. `Link`.
    ReadLink(Handle),
    /// Entries after a cookie (0: the first), until their names and 24 bytes for each fill
    /// `bytes_max`, at least one. `Entries`. Entries that are there from the first page to the last
    /// are told exactly once, whatever is added and removed meanwhile.
    ReadDirectory {
        /// The directory.
        directory: Handle,
        /// After which entry.
        cookie: u64,
        /// How much is wanted.
        bytes_max: u32,
        /// Whether each entry's attributes are wanted too.
        attributes: bool,
    },
    /// Makes what is no regular file. `Created`.
    Create {
        /// Where.
        directory: Handle,
        /// Under which name.
        name: Name,
        /// What.
        new: New,
        /// Its first attributes; a mode that is not given is 0o777 or 0o666 as the kind goes.
        attributes: SetAttributes,
    },
    /// Makes a regular file, or finds it. `Created`, with `is_new` telling which.
    CreateFile {
        /// Where.
        directory: Handle,
        /// Under which name.
        name: Name,
        /// If it is there.
        how: CreateHow,
        /// Its first attributes.
        attributes: SetAttributes,
    },
    /// Removes a name, and the object if it was the last one and nobody has it open. Of a directory:
    /// if it is empty. `Changed`: the directory's change.
    Remove {
        /// Where.
        directory: Handle,
        /// What.
        name: Name,
        /// `Some(true)`: only a directory (`rmdir`); `Some(false)`: no directory (`unlink`).
        directory_only: Option<bool>,
    },
    /// Moves a name, over what has the new one if kinds allow it. `Renamed`.
    Rename {
        /// From where.
        from: Handle,
        /// Which.
        from_name: Name,
        /// To where.
        to: Handle,
        /// As which.
        to_name: Name,
    },
    /// Gives an object that is no directory one more name. `Changed`: the directory's change.
    Link {
        /// The object.
        object: Handle,
        /// Where.
        directory: Handle,
        /// Under which name.
        name: Name,
    },
    /// Makes durable what was written [`Stability::Unstable`]. `Committed`. Nobody is refused.
    Commit(Handle, Range),
    /// Reserves room, so that writes there do not fail for want of it; extends the file. `Done`. Of no
    /// bytes: `Invalid`.
    Allocate(Handle, Range),
    /// Makes a hole. The size stays. `Done`. Of no bytes: `Invalid`.
    Deallocate(Handle, Range),
    /// Where the next data or hole is. `Seek`: without more data, the end of the file. From the end of
    /// the file on: `NothingThere`.
    Seek(Handle, u64, SeekFor),
    /// Copies bytes from one file to another of the same volume, as if read and written (a length of
    /// 0: up to the end). `Copied`: how many there were. Over itself: `Invalid`.
    Copy {
        /// From which file.
        from: Handle,
        /// Which bytes.
        range: Range,
        /// To which.
        to: Handle,
        /// To where.
        offset: u64,
    },
    /// The same without moving them: both share them until one is written. Offsets and length are
    /// multiples of 4096, or the length reaches the end of the source and, at the target, its end.
    /// `Done`; past the end of the source, over itself, or more than can be shared in one step: `Invalid`.
    Clone {
        /// From which file.
        from: Handle,
        /// Which bytes.
        range: Range,
        /// To which.
        to: Handle,
        /// To where.
        offset: u64,
    },
    /// An extended attribute's value. `Value`.
    GetXattr(Handle, Name),
    /// Sets one. `Changed`: the object's change.
    SetXattr {
        /// Of which object.
        object: Handle,
        /// Which.
        name: Name,
        /// To what: at most [`XATTR_VALUE_LEN_MAX`] bytes.
        value: Vec<u8>,
        /// Whether it may be there already.
        how: SetXattr,
    },
    /// Removes one. `Changed`: the object's change.
    RemoveXattr(Handle, Name),
    /// Their names, after a cookie. `Names`.
    ListXattrs {
        /// Of which object.
        object: Handle,
        /// After which: 0 for the first.
        cookie: u64,
        /// Bytes of names at most, each counted as [`Name::listed_len`] says; one name is told however
        /// long it is.
        bytes_max: u32,
    },
    /// A volume's room. `Stat`.
    Stat(VolumeId),
    /// Opens a file for a holder: it lives on while anybody has it open, whatever becomes of its
    /// names. Asked again by the same holder, both are added. `Done`, or `ShareDenied`. Permission is
    /// judged now, for as long as it is open. A door that has just made the file opens it as the
    /// superuser, because a new file's mode does not bind its maker.
    Open {
        /// Which file.
        file: Handle,
        /// For whom.
        holder: Holder,
        /// What for.
        access: Share,
        /// What others must not.
        deny: Share,
        /// During the grace period: it was open before the restart.
        reclaim: bool,
    },
    /// Reduces an open; to nothing closes it, and gives up the holder's locks of the file. `Done`.
    Downgrade {
        /// Which file.
        file: Handle,
        /// For whom.
        holder: Holder,
        /// What for, from now on.
        access: Share,
        /// What others must not, from now on.
        deny: Share,
    },
    /// Locks bytes, in place of what the holder has locked of them. `Done`, or
    /// [`Error::Locked`](crate::Error::Locked).
    Lock {
        /// Of which file.
        file: Handle,
        /// For whom.
        holder: Holder,
        /// What.
        lock: Lock,
        /// During the grace period: it was locked before the restart.
        reclaim: bool,
    },
    /// What would be in the way of a lock. `Done`, or `Locked`.
    TestLock {
        /// Of which file.
        file: Handle,
        /// For whom.
        holder: Holder,
        /// What.
        lock: Lock,
    },
    /// Unlocks bytes; those that are not locked stay so. `Done`.
    Unlock {
        /// Of which file.
        file: Handle,
        /// For whom.
        holder: Holder,
        /// Which bytes.
        range: LockRange,
    },
    /// Delegates a file to a client, if nobody is in the way. `Done`, or `Delay`.
    Delegate {
        /// Which file.
        file: Handle,
        /// To whom.
        client: u64,
        /// What.
        kind: Delegation,
        /// During the grace period: it was delegated before the restart.
        reclaim: bool,
    },
    /// Gives a delegation back. `Done`.
    ReturnDelegation {
        /// Which file.
        file: Handle,
        /// Whose.
        client: u64,
    },
    /// Whether a holder has bytes locked. `Done` if it has, `NotHeld` if it has not.
    HasLocks {
        /// Of which file.
        file: Handle,
        /// Who.
        holder: Holder,
    },
    /// Gives up all that a client holds anywhere: it has gone, or its lease has run out. `Done`.
    Forget {
        /// Which client.
        client: u64,
    },
    /// The grace period is over: what was not claimed again is nobody's; files without a name that
    /// nobody has opened again end. `Done`.
    EndGrace,
    /// The answer that is kept for an operation ([`Once`]), whatever it is; `NotFound`
    /// without one.
    KeptAnswer(Once),
    /// Forgets the answers that are kept for a session: none of its requests comes again. `Done`.
    EndSession([u8; 16]),
    /// Keeps a row of the door's own, which survives restarts. A key has 1 to 512 bytes, a value at
    /// most 64 KiB. `Done`.
    PutRecord {
        /// Under which key.
        key: Vec<u8>,
        /// What.
        value: Vec<u8>,
    },
    /// Forgets a row of the door's own, if it is there. `Done`.
    RemoveRecord(Vec<u8>),
    /// The door's rows after a key, in the order of keys: as many as fit into 256 KiB, at least one if
    /// there is one. `Records`.
    Records {
        /// After which; the empty key is before all.
        after: Vec<u8>,
    },
}

impl Request {
    /// Whether it changes what survives a restart, so that its answer is kept for
    /// [`Once`]. What clients hold does not survive, and a request that was refused has
    /// changed nothing: these are carried out again when they are repeated.
    #[must_use]
    pub const fn is_durable_change(&self) -> bool {
        matches!(
            self,
            Self::SetAttributes(..)
                | Self::Create { .. }
                | Self::CreateFile { .. }
                | Self::Remove { .. }
                | Self::Rename { .. }
                | Self::Link { .. }
                | Self::Allocate(..)
                | Self::Deallocate(..)
                | Self::Copy { .. }
                | Self::Clone { .. }
                | Self::SetXattr { .. }
                | Self::RemoveXattr(..)
        )
    }
}
