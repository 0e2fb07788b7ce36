//! What stands in the heads and payloads of records: drawn in `docs/design/filelayer.md`, and above each
//! constant here. All numbers are little-endian.

mod codec;
mod entry;
mod head;

pub(crate) use codec::{Put, Take};
pub(crate) use entry::{Entry, entries_of};
pub(crate) use head::{Change, CheckpointPart, Copy, Head, Owner};

use thiserror::Error;

/// The version of all records.
pub(crate) const VERSION: u8 = 1;

/// Why bytes are not a record of a dataunit.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatError {
    /// Too few bytes.
    #[error("{what} is cut short")]
    Short {
        /// Of what.
        what: &'static str,
    },
    /// A kind of record that this program does not know.
    #[error("no record is of kind {kind}")]
    Kind {
        /// The kind.
        kind: u8,
    },
    /// Another program's version.
    #[error("a record of version {found}: this program reads version {VERSION}")]
    Version {
        /// The version.
        found: u8,
    },
    /// A number that the field cannot have.
    #[error("{what} cannot be {value}")]
    Value {
        /// The field.
        what: &'static str,
        /// What it is.
        value: u64,
    },
    /// Bytes behind the end.
    #[error("{what} is followed by bytes that are not zero")]
    Excess {
        /// What should have ended.
        what: &'static str,
    },
}
