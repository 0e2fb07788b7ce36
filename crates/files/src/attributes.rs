//! What is known of an object.

use serde::{Deserialize, Serialize};

use crate::FileId;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A block device's name.
    BlockDevice(Device),
    /// A character device's name.
    CharDevice(Device),
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
}

/// The numbers of a device (`specdata4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Device {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

/// Permission bits: the low twelve of POSIX's `mode_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mode(u16);

impl Mode {
    /// Set user id on execution.
    pub const SET_UID: u16 = 0o4000;
    /// Set group id on execution; on a directory: what is made in it has its group.
    pub const SET_GID: u16 = 0o2000;
    /// On a directory: only an entry's owner, the directory's, and root remove it.
    pub const STICKY: u16 = 0o1000;

    /// Takes the low twelve bits.
    #[must_use]
    pub const fn new(bits: u32) -> Self {
        Self((bits & 0o7777) as u16)
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// Whether all of these are set.
    #[must_use]
    pub const fn has(self, bits: u16) -> bool {
        self.0 & bits == bits
    }

    /// Without these.
    #[must_use]
    pub const fn without(self, bits: u16) -> Self {
        Self(self.0 & !bits)
    }
}

/// Wall-clock time: seconds since 1970 (negative before) and nanoseconds below a second.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    pub seconds: i64,
    /// Nanoseconds, below 10^9.
    pub nanoseconds: u32,
}

/// What an object's attributes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Its number in the volume.
    pub file: FileId,
    /// What it is.
    pub kind: Kind,
    /// Who may do what with it.
    pub mode: Mode,
    /// How many names it has. A directory has 2, and one more for each directory in it.
    pub links: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Bytes from its beginning to its end; of a symbolic link: of its text.
    pub size: u64,
    /// Bytes that it occupies: no holes.
    pub used: u64,
    /// When its data was last read, as far as that is kept.
    pub atime: Timestamp,
    /// When its data was last changed.
    pub mtime: Timestamp,
    /// When its data or its attributes were last changed.
    pub ctime: Timestamp,
    /// When it was made.
    pub birth: Timestamp,
    /// A number that is another one after each change of data or attributes, and only grows.
    pub change: u64,
}

/// How a time is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// To the file system's own time: who may write may ask for that.
    Now,
    /// To this: only the owner may.
    To(Timestamp),
}

/// Attributes to change; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<Mode>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: a shorter file loses its end for good, a longer one ends in a hole.
    pub size: Option<u64>,
    /// Time of the last read.
    pub atime: Option<SetTime>,
    /// Time of the last change of data.
    pub mtime: Option<SetTime>,
    /// Time of creation: only the owner may. macOS sets it after each exclusive creation.
    pub birth: Option<Timestamp>,
}

/// A volume's room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsStat {
    /// Bytes in all: of the quota, if the volume has one.
    pub bytes_total: u64,
    /// Bytes that can still be written.
    pub bytes_free: u64,
    /// Objects in all.
    pub files_total: u64,
    /// Objects that can still be made.
    pub files_free: u64,
}
