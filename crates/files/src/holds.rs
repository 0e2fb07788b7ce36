//! What clients hold of a file: opens, byte-range locks, delegations.
//!
//! They live with the owner of the handle, in memory; after a restart clients claim them again during
//! the grace period.

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

/// Who holds: an owner of opens or locks of one client (RFC 8881, section 2.4 and 9.1.1). The door
/// gives both numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// The client.
    pub client: u64,
    /// The open-owner or lock-owner at that client.
    pub owner: u64,
}

bitflags! {
    /// What an open is for, or denies to others (`share_access`, `share_deny`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub struct Share: u8 {
        /// Reading.
        const READ = 1;
        /// Writing.
        const WRITE = 2;
    }
}

/// What a byte-range lock excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockKind {
    /// Other writers.
    Read,
    /// Everybody else.
    Write,
}

/// A range of bytes: `len` of them, or up to the largest offset there can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockRange {
    /// The first byte.
    pub offset: u64,
    /// How many, at least one; `None`: all there will ever be.
    pub len: Option<u64>,
}

impl LockRange {
    /// The last byte, or `None` if there is no such range: of no length, or past 2^64 - 1.
    #[must_use]
    pub const fn last(self) -> Option<u64> {
        match self.len {
            None => Some(u64::MAX),
            Some(0) => None,
            Some(len) => self.offset.checked_add(len - 1),
        }
    }
}

/// A byte-range lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lock {
    /// Of which bytes.
    pub range: LockRange,
    /// Against whom.
    pub kind: LockKind,
}

/// A promise to be told before anybody does what would conflict (RFC 8881, section 10.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Delegation {
    /// Nobody writes.
    Read,
    /// Nobody reads or writes.
    Write,
}

/// Who is in the way of a lock, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The holder of the lock.
    pub holder: Holder,
    /// The lock.
    pub lock: Lock,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_byte_of_a_range_is_where_it_can_be() {
        let last = |offset, len| LockRange { offset, len }.last();
        assert_eq!(last(5, None), Some(u64::MAX));
        assert_eq!(last(5, Some(1)), Some(5));
        assert_eq!(last(5, Some(0)), None);
        assert_eq!(last(u64::MAX, Some(1)), Some(u64::MAX));
        assert_eq!(last(u64::MAX, Some(2)), None);
    }
}
