//! What goes wrong with a block device.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;
use thiserror::Error;

use super::Op;

/// Why a device did not open, or an operation failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum BlockError {
    /// A step of opening a device failed.
    #[error("cannot {doing} {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The step: "open", "lock", "allocate 4096 bytes for".
        doing: String,
        /// The system's answer.
        source: Errno,
    },
    /// Another process, or another device of this one, has the file open.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be a device: a directory, too short, of an impossible length.
    #[error("{} cannot be used as a block device: {reason}", path.display())]
    Unsuitable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The system does not give a queue of this kind.
    #[error("cannot open a queue of {depth} requests on {device} ({engine}: {doing})")]
    Queue {
        /// The device.
        device: Arc<str>,
        /// How it would be used.
        engine: &'static str,
        /// The step that failed.
        doing: &'static str,
        /// The queue's depth.
        depth: usize,
        /// The system's answer.
        source: Errno,
    },
    /// Devices that do not make one.
    #[error("{device} cannot be made: {reason}")]
    Layout {
        /// The device that was to be.
        device: Arc<str>,
        /// What does not fit.
        reason: String,
    },
    /// An operation that breaks the device's rules; it was not carried out.
    #[error(
        "{op} of {len} bytes at {at} on {device} refused: the {what} is not a multiple of {block}"
    )]
    Misaligned {
        /// The operation.
        op: Op,
        /// What is not aligned.
        what: Misaligned,
        /// The device.
        device: Arc<str>,
        /// Offset in bytes.
        at: u64,
        /// Length in bytes.
        len: u64,
        /// The device's block.
        block: u32,
    },
    /// An operation beyond the device's end; it was not carried out.
    #[error("{op} of {len} bytes at {at} on {device} refused: the device ends at {end}")]
    OutOfRange {
        /// The operation.
        op: Op,
        /// The device.
        device: Arc<str>,
        /// Offset in bytes.
        at: u64,
        /// Length in bytes.
        len: u64,
        /// The device's length.
        end: u64,
    },
    /// The device gave fewer bytes than it has said to have: a file was cut short while open.
    #[error("{op} of {len} bytes at {at} on {device} failed: the file has become shorter")]
    CutShort {
        /// The operation.
        op: Op,
        /// The device.
        device: Arc<str>,
        /// Where the missing bytes begin.
        at: u64,
        /// How many are missing.
        len: u64,
    },
    /// The device failed an operation.
    #[error("{op} of {len} bytes at {at} on {device} failed")]
    Io {
        /// The operation.
        op: Op,
        /// The device.
        device: Arc<str>,
        /// Offset in bytes of the request that failed: a piece of a large operation.
        at: u64,
        /// Its length in bytes.
        len: u64,
        /// The system's answer.
        source: Errno,
    },
}

/// What of an operation is not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misaligned {
    /// The offset on the device.
    Offset,
    /// The length.
    Length,
    /// The address in memory.
    Memory,
}

impl BlockError {
    /// The system's answer, if that is what went wrong.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Open { source, .. } | Self::Queue { source, .. } | Self::Io { source, .. } => {
                Some(*source)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write(super::Durable::No) => "write",
            Self::Write(super::Durable::Yes) => "durable write",
            Self::Flush => "flush",
        })
    }
}

impl fmt::Display for Misaligned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Offset => "offset",
            Self::Length => "length",
            Self::Memory => "address in memory",
        })
    }
}
