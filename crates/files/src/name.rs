//! One component of a path.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Bytes of a name at most, as everywhere (`NAME_MAX`).
pub const NAME_LEN_MAX: usize = 255;

/// A name in a directory: 1 to 255 bytes of anything but `/` and NUL, and neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Name(Box<[u8]>);

/// Why bytes are no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// No byte at all.
    #[error("a name has at least one byte")]
    Empty,
    /// Longer than [`NAME_LEN_MAX`].
    #[error("a name has at most {NAME_LEN_MAX} bytes")]
    TooLong,
    /// It contains `/` or NUL.
    #[error("a name contains neither `/` nor NUL")]
    BadByte,
    /// It is `.` or `..`.
    #[error("`.` and `..` name no entry of a directory")]
    Dots,
}

impl Name {
    /// Takes bytes for a name.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong with them.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, NameError> {
        let bytes = bytes.into();
        match bytes.as_slice() {
            [] => Err(NameError::Empty),
            b"." | b".." => Err(NameError::Dots),
            long if long.len() > NAME_LEN_MAX => Err(NameError::TooLong),
            bad if bad.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(NameError::BadByte),
            _ => Ok(Self(bytes.into())),
        }
    }

    /// Bytes that a listing of extended attributes counts for it: those of an XDR string, its length
    /// before it and zeros up to a multiple of 4 behind it.
    #[must_use]
    pub fn listed_len(&self) -> usize {
        4 + self.len().next_multiple_of(4)
    }
}

impl TryFrom<Vec<u8>> for Name {
    type Error = NameError;

    fn try_from(bytes: Vec<u8>) -> Result<Self, NameError> {
        Self::new(bytes)
    }
}

impl From<Name> for Vec<u8> {
    fn from(name: Name) -> Self {
        name.0.into()
    }
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_anything_but_separators_and_dots() {
        assert!(Name::new("ordinary").is_ok());
        assert!(Name::new(vec![0xff; NAME_LEN_MAX]).is_ok());
        assert!(Name::new("...").is_ok());
        assert_eq!(Name::new(""), Err(NameError::Empty));
        assert_eq!(Name::new("."), Err(NameError::Dots));
        assert_eq!(Name::new(".."), Err(NameError::Dots));
        assert_eq!(Name::new(vec![b'x'; 256]), Err(NameError::TooLong));
        assert_eq!(Name::new("a/b"), Err(NameError::BadByte));
        assert_eq!(Name::new("a\0"), Err(NameError::BadByte));
    }
}
