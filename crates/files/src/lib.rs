//! What a file door asks and a file system does: one vocabulary for every file protocol and every
//! file system behind it.
//!
//! A *door* speaks a protocol with clients (NFSv4 over TCP; the command line without any). A
//! [`FileSystem`] keeps files: the product's own, or a model in memory. Between them stand a
//! [`Request`], an [`Answer`] and an [`Error`]. The meaning is POSIX's (IEEE Std 1003.1-2017) where it
//! has one, and NFSv4's otherwise (RFC 8881, RFC 7862).
//!
//! | module | what it is |
//! | --- | --- |
//! | `handle` | [`Handle`], [`FileId`], [`VolumeId`]: what names an object for ever |
//! | `name` | [`Name`]: one component of a path, checked |
//! | `attributes` | [`Attributes`], [`SetAttributes`], [`Kind`], [`Timestamp`], [`FsStat`] |
//! | `caller` | [`Caller`]: who asks; [`Once`]: a request that is carried out once however often it comes |
//! | `access` | what permissions allow whom, once |
//! | `request`, `answer` | [`Request`], [`Answer`]: one pair an operation |
//! | `holds` | [`Holder`], [`Share`], [`Lock`], [`Delegation`]: what clients hold of a file |
//! | `error` | [`Error`]: why an operation was refused |
//! | `file_system` | [`FileSystem`]: the trait |
//! | [`waits`] | where a request's time goes, for doors that want to know |
//! | [`model`] | a file system in memory, with which others are compared |
//!
//! Everything that a request changes or reads is named by a [`Handle`], and handles are what requests
//! are routed by: each handle has one owner, which carries out its requests in their order.
#![forbid(unsafe_code)]

mod access;
mod answer;
mod attributes;
mod caller;
mod error;
mod file_system;
mod handle;
mod holds;
pub mod model;
mod name;
mod request;
pub mod waits;

pub use access::{Access, allowed};
pub use answer::{Answer, ChangeInfo, DirEntry, ReadDone, SeekDone, WriteDone};
pub use attributes::{Attributes, Device, FsStat, Kind, Mode, SetAttributes, SetTime, Timestamp};
pub use caller::{Caller, Once};
pub use error::Error;
pub use file_system::{Event, FileSystem, Pending};
pub use handle::{FileId, Handle, HandleBytes, VolumeId};
pub use holds::{Conflict, Delegation, Holder, Lock, LockKind, LockRange, Share};
pub use name::{NAME_LEN_MAX, Name, NameError};
pub use request::{
    CreateHow, New, Range, Request, SYMLINK_LEN_MAX, SeekFor, SetXattr, Stability,
    XATTR_VALUE_LEN_MAX,
};
