//! What a file system answers.

use serde::{Deserialize, Serialize};

use crate::{Access, Attributes, FileId, FsStat, Handle, Kind, Name};

/// An object's `change` before and after an operation, for clients that cache directories. The two
/// were read in the operation's own transaction (`change_info4` with `atomic`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeInfo {
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Where a listing goes on after it. Never 0, 1 or 2, which protocols use themselves.
    pub cookie: u64,
    /// Its name.
    pub name: Name,
    /// The object.
    pub file: FileId,
    /// What the object is.
    pub kind: Kind,
    /// Its attributes, if they were asked for and the caller may search the directory.
    pub attributes: Option<Attributes>,
}

/// What came of a read. The bytes are where the caller wanted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDone {
    /// How many bytes there were.
    pub len: usize,
    /// Whether they reach the end of the file.
    pub is_end: bool,
}

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteDone {
    /// How many bytes were written, from the first; at least one unless none was asked for.
    pub len: usize,
    /// Another one than before says that unstable writes may have been lost: write them again.
    pub verifier: [u8; 8],
}

/// What came of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeekDone {
    /// Where.
    pub offset: u64,
    /// Whether that is the end of the file, or nothing of the kind follows.
    pub is_end: bool,
}

/// What is answered; which variant belongs to which request stands there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Answer {
    /// It is done.
    Done,
    /// Attributes.
    Attributes(Attributes),
    /// What the caller may do.
    Access(Access),
    /// An object.
    Found(Handle, Attributes),
    /// An object that is new, or was there.
    Created {
        /// It.
        handle: Handle,
        /// Its attributes.
        attributes: Attributes,
        /// The directory's change.
        directory: ChangeInfo,
        /// Whether this request has made it.
        is_new: bool,
    },
    /// A change of one object.
    Changed(ChangeInfo),
    /// Changes of two directories, perhaps the same.
    Renamed {
        /// Where the name was.
        from: ChangeInfo,
        /// Where it is.
        to: ChangeInfo,
    },
    /// A symbolic link's text.
    Link(Vec<u8>),
    /// A page of a directory.
    Entries {
        /// Its entries.
        entries: Vec<DirEntry>,
        /// Whether there are no more.
        is_end: bool,
    },
    /// Where data or a hole is.
    Seek(SeekDone),
    /// How many bytes were copied.
    Copied(u64),
    /// A value.
    Value(Vec<u8>),
    /// A page of names.
    Names {
        /// Names, without any prefix.
        names: Vec<Name>,
        /// Where the next page goes on.
        cookie: u64,
        /// Whether there are no more.
        is_end: bool,
    },
    /// Rows of the door's own: keys and values. None says that there are no more.
    Records(Vec<(Vec<u8>, Vec<u8>)>),
    /// A volume's room.
    Stat(FsStat),
    /// The write verifier, to a commit.
    Committed {
        /// Another one than a write's says that this write may have been lost.
        verifier: [u8; 8],
    },
}
