//! What can be asked of a file system, one variant an operation.

use serde::{Deserialize, Serialize};

use crate::{
    Access, Delegation, Device, Handle, Holder, Lock, LockRange, Name, SetAttributes, Share,
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
    /// Changes attributes. `Attributes`: the new ones. A change of size counts as a write.
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
    /// Makes durable what was written [`Stability::Unstable`]. `Committed`.
    Commit(Handle, Range),
    /// Reserves room, so that writes there do not fail for want of it; extends the file. `Done`.
    Allocate(Handle, Range),
    /// Makes a hole. The size stays. `Done`.
    Deallocate(Handle, Range),
    /// Where the next data or hole is. `Seek`.
    Seek(Handle, u64, SeekFor),
    /// Copies bytes from one file to another of the same volume, as if read and written (a length of
    /// 0: up to the end). `Copied`: how many.
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
    /// multiples of 4096, or the length reaches the end of the source. `Done`.
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
        /// Bytes of names at most, 4 more for each.
        bytes_max: u32,
    },
    /// A volume's room. `Stat`.
    Stat(VolumeId),
    /// Opens a file for a holder: it lives on while anybody has it open, whatever becomes of its
    /// names. Asked again by the same holder, both are added. `Done`, or `ShareDenied`.
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
    /// Gives up all that a client holds anywhere: it has gone, or its lease has run out. `Done`.
    Forget {
        /// Which client.
        client: u64,
    },
}
