//! What is asked of an engine, within etcd's limits.
//!
//! etcd refuses requests of more than 128 comparisons or 128 writes, of more than 1.5 MiB, and with a key
//! that is written twice (`--max-txn-ops`, `--max-request-bytes`; etcd, operations guide, limits).
//! A transaction that is too large for it cannot be built here, so that it fails where it is composed
//! and not, on another engine, where it is committed.

use thiserror::Error;

use crate::{Key, Row, Value};

/// Comparisons of a transaction at most, and writes at most.
pub const OPERATIONS_MAX: usize = 128;

/// Bytes of a transaction at most: its keys and values, and [`OPERATION_BYTES`] for each operation.
pub const BYTES_MAX: usize = 3 << 19;

/// What an operation counts for besides its key and value: its kind, lengths and version.
pub const OPERATION_BYTES: usize = 32;

/// Bytes of a key at most.
pub const KEY_LEN_MAX: usize = 1024;

/// What has to hold for a transaction to be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// No row stands under the key.
    Absent(Key),
    /// A row stands under the key.
    Exists(Key),
    /// The row under the key was written by the commit of this revision.
    Version(Key, u64),
    /// The row under the key has this value.
    Value(Key, Value),
}

impl Compare {
    /// The key whose row is compared.
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::Absent(key) | Self::Exists(key) | Self::Version(key, _) | Self::Value(key, _) => {
                key
            }
        }
    }

    /// Whether it holds of what stands under its key.
    #[must_use]
    pub fn holds(&self, row: Option<&Row>) -> bool {
        match self {
            Self::Absent(_) => row.is_none(),
            Self::Exists(_) => row.is_some(),
            Self::Version(_, version) => row.is_some_and(|row| row.version == *version),
            Self::Value(_, value) => row.is_some_and(|row| row.value == *value),
        }
    }

    fn value_len(&self) -> usize {
        match self {
            Self::Value(_, value) => value.len(),
            Self::Absent(_) | Self::Exists(_) | Self::Version(..) => 0,
        }
    }
}

/// What a transaction changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// The row under the key has this value from now on.
    Put(Key, Value),
    /// No row stands under the key from now on. Fine if none did.
    Delete(Key),
}

impl Write {
    /// The key whose row is written.
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::Put(key, _) | Self::Delete(key) => key,
        }
    }

    /// What it writes; `None` deletes.
    #[must_use]
    pub fn value(&self) -> Option<&Value> {
        match self {
            Self::Put(_, value) => Some(value),
            Self::Delete(_) => None,
        }
    }
}

/// Why an operation does not fit into its transaction, which is left as it was.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// A key has no bytes, or more than [`KEY_LEN_MAX`].
    #[error("a key of {len} bytes: it has to have 1 to {KEY_LEN_MAX}")]
    KeyLen {
        /// Its bytes.
        len: usize,
    },
    /// There are [`OPERATIONS_MAX`] of the kind already.
    #[error("a transaction has at most {OPERATIONS_MAX} comparisons and {OPERATIONS_MAX} writes")]
    Operations,
    /// The transaction would be longer than [`BYTES_MAX`].
    #[error("a transaction of {bytes} bytes: it has at most {BYTES_MAX}")]
    Bytes {
        /// What it would count with the operation.
        bytes: usize,
    },
    /// The transaction writes this key already.
    #[error("a transaction writes a key once, and this one twice")]
    WrittenTwice,
}

/// Comparisons, and the writes that are carried out if all of them hold, as one.
///
/// ```
/// use meta::Transaction;
///
/// let mut rename = Transaction::new();
/// rename.version("from", 7)?.absent("to")?.delete("from")?.put("to", "inode 3")?;
/// assert_eq!((rename.compares().len(), rename.writes().len()), (2, 2));
/// # Ok::<(), meta::LimitError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    compares: Vec<Compare>,
    writes: Vec<Write>,
    bytes: usize,
}

impl Transaction {
    /// One that compares and writes nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Has it compare that no row stands under `key`.
    ///
    /// # Errors
    /// [`LimitError`]; so with all below.
    pub fn absent(&mut self, key: impl AsRef<[u8]>) -> Result<&mut Self, LimitError> {
        self.compare(Compare::Absent(key.as_ref().into()))
    }

    /// Has it compare that a row stands under `key`.
    pub fn exists(&mut self, key: impl AsRef<[u8]>) -> Result<&mut Self, LimitError> {
        self.compare(Compare::Exists(key.as_ref().into()))
    }

    /// Has it compare that the row under `key` was written by the commit of this revision.
    pub fn version(
        &mut self,
        key: impl AsRef<[u8]>,
        version: u64,
    ) -> Result<&mut Self, LimitError> {
        self.compare(Compare::Version(key.as_ref().into(), version))
    }

    /// Has it compare that `key` is as it was read: absent, or of that row's version.
    pub fn unchanged(
        &mut self,
        key: impl AsRef<[u8]>,
        seen: Option<&Row>,
    ) -> Result<&mut Self, LimitError> {
        match seen {
            Some(row) => self.version(key, row.version),
            None => self.absent(key),
        }
    }

    /// Has it compare that the row under `key` has this value.
    pub fn value_is(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<&mut Self, LimitError> {
        self.compare(Compare::Value(key.as_ref().into(), value.as_ref().into()))
    }

    /// Has it write a row. Copies both; [`Transaction::write`] does not.
    pub fn put(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<&mut Self, LimitError> {
        self.write(Write::Put(key.as_ref().into(), value.as_ref().into()))
    }

    /// Has it delete a row, if there is one.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<&mut Self, LimitError> {
        self.write(Write::Delete(key.as_ref().into()))
    }

    /// Adds a comparison.
    pub fn compare(&mut self, compare: Compare) -> Result<&mut Self, LimitError> {
        let bytes = self.with(compare.key(), compare.value_len(), self.compares.len())?;
        self.bytes = bytes;
        self.compares.push(compare);
        Ok(self)
    }

    /// Adds a write.
    pub fn write(&mut self, write: Write) -> Result<&mut Self, LimitError> {
        let value_len = write.value().map_or(0, |value| value.len());
        let bytes = self.with(write.key(), value_len, self.writes.len())?;
        if self.writes.iter().any(|other| other.key() == write.key()) {
            return Err(LimitError::WrittenTwice);
        }
        self.bytes = bytes;
        self.writes.push(write);
        Ok(self)
    }

    /// What has to hold.
    #[must_use]
    pub fn compares(&self) -> &[Compare] {
        &self.compares
    }

    /// What changes then.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// What it counts, of [`BYTES_MAX`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Comparisons and writes that may still be added, whichever are fewer.
    #[must_use]
    pub fn room(&self) -> usize {
        OPERATIONS_MAX - self.compares.len().max(self.writes.len())
    }

    /// Whether it writes nothing.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.writes.is_empty()
    }

    /// What it counts with one operation more.
    /// Of parts that were within the limits before their keys became longer.
    pub(crate) fn unchecked(compares: Vec<Compare>, writes: Vec<Write>) -> Self {
        let compared = compares.iter().map(|c| c.key().len() + c.value_len());
        let written = writes
            .iter()
            .map(|w| w.key().len() + w.value().map_or(0, |v| v.len()));
        let bytes = compared
            .chain(written)
            .map(|len| OPERATION_BYTES + len)
            .sum();
        Self {
            compares,
            writes,
            bytes,
        }
    }

    fn with(&self, key: &[u8], value_len: usize, of_kind: usize) -> Result<usize, LimitError> {
        let len = key.len();
        if len == 0 || len > KEY_LEN_MAX {
            return Err(LimitError::KeyLen { len });
        }
        if of_kind == OPERATIONS_MAX {
            return Err(LimitError::Operations);
        }
        let bytes = self.bytes + OPERATION_BYTES + len + value_len;
        if bytes > BYTES_MAX {
            return Err(LimitError::Bytes { bytes });
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let mut full = Transaction::new();
        for i in 0..OPERATIONS_MAX {
            let key = format!("key {i}");
            full.exists(key.as_bytes())
                .unwrap()
                .delete(key.as_bytes())
                .unwrap();
        }
        let before = full.clone();
        assert_eq!(full.room(), 0);
        assert_eq!(full.absent("more").err(), Some(LimitError::Operations));
        assert_eq!(full.put("more", "").err(), Some(LimitError::Operations));
        assert_eq!(full, before);
    }

    #[test]
    fn bytes_are_counted_to_the_last() {
        let mut one = Transaction::new();
        let room = BYTES_MAX - OPERATION_BYTES - 1;
        let bytes = BYTES_MAX + 1;
        let too_long = one.put("k", vec![0; room + 1]).err();
        assert_eq!(too_long, Some(LimitError::Bytes { bytes }));
        one.put("k", vec![0; room]).unwrap();
        assert_eq!(one.bytes(), BYTES_MAX);
        let bytes = BYTES_MAX + OPERATION_BYTES + 1;
        assert_eq!(one.exists("k").err(), Some(LimitError::Bytes { bytes }));
    }

    #[test]
    fn keys_have_bytes_but_not_too_many_and_are_written_once() {
        let mut one = Transaction::new();
        assert_eq!(one.exists("").err(), Some(LimitError::KeyLen { len: 0 }));
        let len = KEY_LEN_MAX + 1;
        assert_eq!(
            one.delete(vec![1; len]).err(),
            Some(LimitError::KeyLen { len })
        );
        one.put(vec![1; KEY_LEN_MAX], "").unwrap();
        assert_eq!(
            one.delete(vec![1; KEY_LEN_MAX]).err(),
            Some(LimitError::WrittenTwice)
        );
        one.absent(vec![1; KEY_LEN_MAX])
            .unwrap()
            .exists(vec![1; KEY_LEN_MAX])
            .unwrap();
    }
}
