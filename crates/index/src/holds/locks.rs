//! The byte-range locks of one file (POSIX `fcntl`; RFC 8881, section 9).
//!
//! A holder's locks do not overlap: a new one takes the place of what it covers, so that others are split
//! or cut, and neighbours of one kind become one. All locks of a file are looked at, in place.

use files::{Conflict, Error, Holder, Lock, LockKind, LockRange};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Locked {
    holder: Holder,
    kind: LockKind,
    first: u64,
    last: u64,
}

/// The locks of one file.
#[derive(Debug, Default)]
pub(super) struct Locks(Vec<Locked>);

impl Locks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whose lock is in the way of bytes: the first of them.
    pub(super) fn conflict(
        &self,
        holder: Holder,
        kind: LockKind,
        first: u64,
        last: u64,
    ) -> Option<Conflict> {
        let conflicts = |other: &&Locked| {
            other.holder != holder
                && other.first <= last
                && first <= other.last
                && (kind == LockKind::Write || other.kind == LockKind::Write)
        };
        let found = self
            .0
            .iter()
            .filter(conflicts)
            .min_by_key(|lock| lock.first)?;
        Some(Conflict {
            holder: found.holder,
            lock: Lock {
                range: range(found.first, found.last),
                kind: found.kind,
            },
        })
    }

    /// Locks bytes, in place of what the holder has of them.
    pub(super) fn lock(&mut self, holder: Holder, lock: Lock) -> Result<(), Error> {
        let last = lock.range.last().ok_or(Error::Invalid)?;
        let first = lock.range.offset;
        if let Some(conflict) = self.conflict(holder, lock.kind, first, last) {
            return Err(Error::Locked(conflict));
        }
        self.unlock(holder, first, last);
        let mut new = Locked {
            holder,
            kind: lock.kind,
            first,
            last,
        };
        self.0.retain(|other| {
            let touches = other.last.checked_add(1) == Some(new.first)
                || new.last.checked_add(1) == Some(other.first);
            let joins = other.holder == holder && other.kind == new.kind && touches;
            if joins {
                new.first = new.first.min(other.first);
                new.last = new.last.max(other.last);
            }
            !joins
        });
        self.0.push(new);
        Ok(())
    }

    /// Unlocks bytes of a holder.
    pub(super) fn unlock(&mut self, holder: Holder, first: u64, last: u64) {
        // Of a holder's locks, which do not overlap, one at most goes on at both sides.
        let mut behind = None;
        self.0.retain_mut(|lock| {
            if lock.holder != holder || last < lock.first || lock.last < first {
                return true;
            }
            let rest = (last < lock.last).then(|| Locked {
                first: last + 1,
                ..*lock
            });
            if lock.first < first {
                lock.last = first - 1;
                behind = behind.or(rest);
                return true;
            }
            if let Some(rest) = rest {
                *lock = rest;
            }
            rest.is_some()
        });
        self.0.extend(behind);
    }

    /// Whether unlocking these bytes leaves one lock more than there is.
    pub(super) fn splits(&self, holder: Holder, first: u64, last: u64) -> bool {
        let goes_on =
            |lock: &Locked| lock.holder == holder && lock.first < first && last < lock.last;
        self.0.iter().any(goes_on)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whose they are.
    pub(super) fn clients(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(|lock| lock.holder.client)
    }

    /// Whether a holder has any.
    pub(super) fn has(&self, holder: Holder) -> bool {
        self.0.iter().any(|lock| lock.holder == holder)
    }

    /// Forgets the locks of some holders.
    pub(super) fn forget(&mut self, of: impl Fn(Holder) -> bool) {
        self.0.retain(|lock| !of(lock.holder));
    }
}

/// As requests say it: up to the largest offset is without an end.
fn range(first: u64, last: u64) -> LockRange {
    LockRange {
        offset: first,
        len: (last != u64::MAX).then(|| last - first + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Holder = Holder {
        client: 1,
        owner: 1,
    };
    const B: Holder = Holder {
        client: 2,
        owner: 1,
    };

    fn lock(offset: u64, len: Option<u64>, kind: LockKind) -> Lock {
        Lock {
            range: LockRange { offset, len },
            kind,
        }
    }

    /// Every byte of a small file, against a map of bytes: random programs.
    #[test]
    fn locks_are_those_of_a_map_of_bytes() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut locks = Locks::default();
            let mut model: [[Option<LockKind>; 16]; 2] = [[None; 16]; 2];
            for step in 0..40 {
                let (who, first) = (rng.usize(0..2), rng.u64(0..16));
                let last = rng.u64(first..16);
                let holder = [A, B][who];
                let bytes = first as usize..=last as usize;
                if rng.bool() {
                    locks.unlock(holder, first, last);
                    model[who][bytes].fill(None);
                } else {
                    let kind = if rng.bool() {
                        LockKind::Read
                    } else {
                        LockKind::Write
                    };
                    let others = &model[1 - who][bytes.clone()];
                    let is_free = others
                        .iter()
                        .flatten()
                        .all(|other| kind == LockKind::Read && *other == LockKind::Read);
                    let asked = lock(first, Some(last - first + 1), kind);
                    let result = locks.lock(holder, asked);
                    assert_eq!(result.is_ok(), is_free, "seed {seed}, step {step}");
                    if is_free {
                        model[who][bytes].fill(Some(kind));
                    }
                }
                let mut runs = 0;
                for (who, holder) in [A, B].into_iter().enumerate() {
                    let found = |at: u64| {
                        let covers = |lock: &&Locked| {
                            lock.holder == holder && (lock.first..=lock.last).contains(&at)
                        };
                        locks.0.iter().find(covers).map(|lock| lock.kind)
                    };
                    let all: Vec<_> = (0..16).map(found).collect();
                    assert_eq!(all, model[who], "seed {seed}, step {step}");
                    runs += model[who]
                        .chunk_by(|a, b| a == b)
                        .filter(|run| run[0].is_some())
                        .count();
                }
                assert_eq!(locks.0.len(), runs, "neighbours are one lock");
            }
        }
    }

    #[test]
    fn a_lock_without_an_end_reaches_the_last_byte_there_can_be() {
        let mut locks = Locks::default();
        locks
            .lock(A, lock(10, None, LockKind::Write))
            .expect("free");
        let conflict = locks
            .conflict(B, LockKind::Read, u64::MAX, u64::MAX)
            .expect("locked");
        assert_eq!(
            conflict.lock.range,
            LockRange {
                offset: 10,
                len: None
            }
        );
        locks.unlock(A, u64::MAX, u64::MAX);
        let conflict = locks
            .conflict(B, LockKind::Read, 0, u64::MAX)
            .expect("locked");
        assert_eq!(conflict.lock.range.last(), Some(u64::MAX - 1));
        assert_eq!(
            locks.lock(A, lock(0, Some(0), LockKind::Read)),
            Err(Error::Invalid)
        );
        assert_eq!(
            locks.lock(A, lock(2, Some(u64::MAX), LockKind::Read)),
            Err(Error::Invalid)
        );
    }
}
