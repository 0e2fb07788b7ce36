//! Rows and their keys, byte by byte (docs/design/index.md draws them).
//!
//! | module | what it holds |
//! | --- | --- |
//! | `keys` | the key of each row |
//! | `inode` | an object's attributes |
//! | `rows` | all other rows |
//! | `codec` | little-endian fields |
//!
//! Every value begins with a version byte. What is read is checked: an unknown version, a length or a
//! number that cannot be is a [`BadRow`].

mod codec;
pub(crate) mod inode;
pub(crate) mod keys;
pub(crate) mod rows;

use thiserror::Error;

/// Why a row's value is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct BadRow(pub(crate) &'static str);
