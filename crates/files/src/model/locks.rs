//! Byte-range locks of one file.

use crate::{Conflict, Holder, Lock, LockKind, LockRange};

/// A lock on bytes from one to another, both among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    first: u64,
    last: u64,
    holder: Holder,
    /// Against everybody else, not only against writers.
    is_exclusive: bool,
}

/// All locks of a file, by their first bytes. Those of one holder do not overlap, and those of one
/// kind do not touch.
#[derive(Default)]
pub(super) struct Locks(Vec<Held>);

impl Locks {
    /// The first lock in the way of one.
    pub(super) fn conflict(
        &self,
        holder: Holder,
        kind: LockKind,
        first: u64,
        last: u64,
    ) -> Option<Conflict> {
        let is_exclusive = kind == LockKind::Write;
        let mut held = self.0.iter();
        let conflict = held.find(|held| {
            let overlaps = held.first <= last && first <= held.last;
            overlaps && held.holder != holder && (is_exclusive || held.is_exclusive)
        })?;
        let len = match conflict.last {
            u64::MAX => None,
            last => Some(last - conflict.first + 1),
        };
        let offset = conflict.first;
        let range = LockRange { offset, len };
        let kind = match conflict.is_exclusive {
            true => LockKind::Write,
            false => LockKind::Read,
        };
        Some(Conflict {
            holder: conflict.holder,
            lock: Lock { range, kind },
        })
    }

    /// Locks bytes in place of what the holder had locked of them. Locks that touch become one.
    pub(super) fn lock(&mut self, holder: Holder, kind: LockKind, first: u64, last: u64) {
        self.unlock(holder, first, last);
        let is_exclusive = kind == LockKind::Write;
        let mut new = Held {
            first,
            last,
            holder,
            is_exclusive,
        };
        self.0.retain(|held| {
            let touches = held.last.checked_add(1) == Some(new.first)
                || new.last.checked_add(1) == Some(held.first);
            let joins = held.holder == holder && held.is_exclusive == is_exclusive && touches;
            if joins {
                new.first = new.first.min(held.first);
                new.last = new.last.max(held.last);
            }
            !joins
        });
        self.0.push(new);
        self.0.sort_unstable();
    }

    /// Unlocks bytes: what is left of a lock on both sides stays.
    pub(super) fn unlock(&mut self, holder: Holder, first: u64, last: u64) {
        let mut left = Vec::new();
        self.0.retain(|held| {
            let is_cut = held.holder == holder && held.first <= last && first <= held.last;
            if is_cut && held.first < first {
                left.push(Held {
                    last: first - 1,
                    ..*held
                });
            }
            if is_cut && last < held.last {
                left.push(Held {
                    first: last + 1,
                    ..*held
                });
            }
            !is_cut
        });
        self.0.extend(left);
        self.0.sort_unstable();
    }

    /// Whether a holder has any.
    pub(super) fn has(&self, holder: Holder) -> bool {
        self.0.iter().any(|held| held.holder == holder)
    }

    /// Gives up a holder's locks.
    pub(super) fn release(&mut self, is_it: impl Fn(Holder) -> bool) {
        self.0.retain(|held| !is_it(held.holder));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Holder = Holder {
        client: 1,
        owner: 1,
    };
    const YOU: Holder = Holder {
        client: 1,
        owner: 2,
    };

    #[test]
    fn locks_are_split_replaced_and_joined() {
        let mut locks = Locks::default();
        locks.lock(ME, LockKind::Read, 0, 99);
        locks.lock(ME, LockKind::Write, 40, 59);
        let shape = |locks: &Locks| -> Vec<(u64, u64, bool)> {
            let held = locks.0.iter();
            held.map(|held| (held.first, held.last, held.is_exclusive))
                .collect()
        };
        assert_eq!(
            shape(&locks),
            [(0, 39, false), (40, 59, true), (60, 99, false)]
        );
        locks.lock(ME, LockKind::Read, 45, 50);
        locks.unlock(ME, 0, 10);
        locks.lock(ME, LockKind::Read, 40, 59);
        assert_eq!(shape(&locks), [(11, 99, false)]);
        locks.lock(ME, LockKind::Read, 100, u64::MAX);
        assert_eq!(shape(&locks), [(11, u64::MAX, false)]);
        let conflict = locks
            .conflict(YOU, LockKind::Write, 0, 11)
            .expect("byte 11");
        assert_eq!(
            (conflict.lock.range.offset, conflict.lock.range.len),
            (11, None)
        );
        assert_eq!(locks.conflict(YOU, LockKind::Read, 0, 11), None);
        locks.unlock(ME, u64::MAX, u64::MAX);
        assert_eq!(shape(&locks), [(11, u64::MAX - 1, false)]);
    }
}
