//! What an engine holds.

use std::sync::Arc;

/// The name of a row: 1 to [`KEY_LEN_MAX`](crate::KEY_LEN_MAX) bytes of any value, ordered byte by byte.
/// Cloning costs one increment.
pub type Key = Arc<[u8]>;

/// The bytes of a row, maybe none. Cloning costs one increment.
pub type Value = Arc<[u8]>;

/// What stands under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its bytes.
    pub value: Value,
    /// The revision of the commit that wrote it: etcd's `mod_revision`.
    pub version: u64,
}

/// The keys from one on, up to but without another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first key, if there is such a row.
    pub from: Vec<u8>,
    /// The first key that is not in the range; `None` for no end.
    pub to: Option<Vec<u8>>,
}

impl Range {
    /// The keys from `from` on, up to but without `to`. Empty if `to` is not above `from`.
    #[must_use]
    pub fn new(from: impl Into<Vec<u8>>, to: impl Into<Vec<u8>>) -> Self {
        Self {
            from: from.into(),
            to: Some(to.into()),
        }
    }

    /// All keys.
    #[must_use]
    pub fn all() -> Self {
        Self {
            from: Vec::new(),
            to: None,
        }
    }

    /// The keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: impl Into<Vec<u8>>) -> Self {
        let from = prefix.into();
        let mut to = from.clone();
        // The next prefix of at most this length: the last byte that can be raised is.
        while to.last() == Some(&u8::MAX) {
            to.pop();
        }
        let to = to.last_mut().map(|last| *last += 1).map(|()| to);
        Self { from, to }
    }

    /// What is left of this range behind `key`: for the next scan, after the last row of this one.
    #[must_use]
    pub fn after(&self, key: &[u8]) -> Self {
        let mut from = key.to_vec();
        from.push(0);
        Self {
            from: from.max(self.from.clone()),
            to: self.to.clone(),
        }
    }

    /// Whether `key` is in it.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        *key >= *self.from && self.to.as_ref().is_none_or(|to| *key < **to)
    }

    /// Whether no key can be in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    /// As maps take it. A range that [is empty](Self::is_empty) must not be asked for.
    pub(crate) fn bounds(&self) -> (std::ops::Bound<&[u8]>, std::ops::Bound<&[u8]>) {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let to = self.to.as_deref().map_or(Unbounded, Excluded);
        (Included(&self.from), to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_one_begins() {
        assert_eq!(Range::prefix("ab"), Range::new("ab", "ac"));
        assert_eq!(Range::prefix([1, 255, 255]), Range::new([1, 255, 255], [2]));
        assert_eq!(Range::prefix([255]).to, None);
        assert_eq!(Range::prefix([]), Range::all());
        assert!(Range::prefix([7]).contains(&[7, 255, 255, 255]));
        assert!(!Range::prefix([7]).contains(&[8]));
    }

    #[test]
    fn what_is_left_begins_behind_the_key() {
        let left = Range::prefix("a").after(b"ab");
        assert!(!left.contains(b"ab") && left.contains(b"ab\0") && left.contains(b"ac"));
        assert!(Range::new("m", "z").after(b"b").contains(b"m"));
        assert!(!Range::new("m", "z").after(b"b").contains(b"c"));
        assert!(Range::new("m", "n").after(b"n").is_empty());
    }
}
