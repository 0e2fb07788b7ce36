//! What clients hold of files: opens, byte-range locks, delegations. In memory only; after a restart
//! clients claim them again during the grace period.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `mod` | opens and delegations, by file |
//! | `locks` | the byte-range locks of one file |

mod locks;

use std::collections::HashMap;

use files::{Caller, Conflict, Delegation, Error, Event, Handle, Holder, Lock, LockRange, Share};

use locks::Locks;

/// An open of one holder.
#[derive(Clone, Copy, Debug)]
struct Opened {
    holder: Holder,
    access: Share,
    deny: Share,
}

/// A delegation of one client.
#[derive(Clone, Copy, Debug)]
struct Delegated {
    client: u64,
    kind: Delegation,
    is_recalled: bool,
}

#[derive(Default)]
struct Holds {
    opens: Vec<Opened>,
    locks: Locks,
    delegations: Vec<Delegated>,
}

impl Holds {
    fn is_empty(&self) -> bool {
        self.opens.is_empty() && self.locks.is_empty() && self.delegations.is_empty()
    }
}

/// Ranges of bytes that a client may have locked at most, in all files: each is 48 bytes, and looked at
/// by every lock of its file.
pub(crate) const RANGES_MAX: usize = 1 << 16;

/// All that is held of all files.
#[derive(Default)]
pub(crate) struct AllHolds {
    files: HashMap<Handle, Holds>,
    /// How many ranges each client has locked.
    ranges: HashMap<u64, usize>,
    pub(crate) is_grace: bool,
}

impl AllHolds {
    /// Whether anybody has a file open.
    pub(crate) fn is_open(&self, file: Handle) -> bool {
        let holds = self.files.get(&file);
        holds.is_some_and(|holds| !holds.opens.is_empty())
    }

    /// Whether a caller's holder has a file open for this.
    pub(crate) fn has_open(&self, file: Handle, caller: &Caller, access: Share) -> bool {
        let (Some(holder), Some(holds)) = (caller.holder, self.files.get(&file)) else {
            return false;
        };
        let mut opens = holds.opens.iter();
        opens.any(|open| open.holder == holder && open.access.contains(access))
    }

    /// Whether the grace period allows a new hold, or a claim of an old one.
    pub(crate) fn check_grace(&self, reclaim: bool) -> Result<(), Error> {
        match (self.is_grace, reclaim) {
            (true, false) => Err(Error::Grace),
            (false, true) => Err(Error::NoGrace),
            _ => Ok(()),
        }
    }

    /// Refuses data that somebody's open denies to all others.
    pub(crate) fn check_share(
        &self,
        file: Handle,
        caller: &Caller,
        access: Share,
    ) -> Result<(), Error> {
        let Some(holds) = self.files.get(&file) else {
            return Ok(());
        };
        let denies =
            |open: &Opened| Some(open.holder) != caller.holder && open.deny.intersects(access);
        match holds.opens.iter().any(denies) {
            true => Err(Error::ShareDenied),
            false => Ok(()),
        }
    }

    /// Refuses data during the grace period to whom no hold was given that covers it: who had one may
    /// still claim it again.
    pub(crate) fn check_claimed(
        &self,
        file: Handle,
        caller: &Caller,
        access: Share,
    ) -> Result<(), Error> {
        if !self.is_grace || self.has_open(file, caller, access) {
            return Ok(());
        }
        let client = caller.holder.map(|holder| holder.client);
        let holds = self.files.get(&file);
        let is_delegated = holds.is_some_and(|holds| {
            let mut all = holds.delegations.iter();
            all.any(|delegated| Some(delegated.client) == client)
        });
        match is_delegated {
            true => Ok(()),
            false => Err(Error::Grace),
        }
    }

    /// Has delegations given back that exclude an access of this kind by a client (`None`: by nobody
    /// known). Refuses it meanwhile.
    pub(crate) fn check_delegations(
        &mut self,
        file: Handle,
        client: Option<u64>,
        access: Delegation,
        tell: &mut dyn FnMut(Event),
    ) -> Result<(), Error> {
        let Some(holds) = self.files.get_mut(&file) else {
            return Ok(());
        };
        let mut is_in_the_way = false;
        for delegated in &mut holds.delegations {
            let conflicts = [access, delegated.kind].contains(&Delegation::Write);
            if Some(delegated.client) == client || !conflicts {
                continue;
            }
            is_in_the_way = true;
            if !std::mem::replace(&mut delegated.is_recalled, true) {
                tell(Event::Recall {
                    client: delegated.client,
                    file,
                    kind: delegated.kind,
                });
            }
        }
        match is_in_the_way {
            true => Err(Error::Delay),
            false => Ok(()),
        }
    }

    /// Whether somebody else's open is in the way of one.
    pub(crate) fn check_open(
        &self,
        file: Handle,
        holder: Holder,
        access: Share,
        deny: Share,
    ) -> Result<(), Error> {
        let denies = |open: &Opened| {
            open.holder != holder && (open.deny.intersects(access) || open.access.intersects(deny))
        };
        match self.files.get(&file) {
            Some(holds) if holds.opens.iter().any(denies) => Err(Error::ShareDenied),
            _ => Ok(()),
        }
    }

    /// Opens a file, once it is known that nothing is in the way.
    pub(crate) fn open(&mut self, file: Handle, holder: Holder, access: Share, deny: Share) {
        let holds = self.files.entry(file).or_default();
        let mut own = holds.opens.iter_mut();
        match own.find(|open| open.holder == holder) {
            Some(open) => {
                open.access |= access;
                open.deny |= deny;
            }
            None => holds.opens.push(Opened {
                holder,
                access,
                deny,
            }),
        }
    }

    /// Reduces an open. Returns whether the file is open no more.
    pub(crate) fn downgrade(
        &mut self,
        file: Handle,
        holder: Holder,
        access: Share,
        deny: Share,
    ) -> Result<bool, Error> {
        let holds = self.files.get_mut(&file).ok_or(Error::NotHeld)?;
        let own = holds.opens.iter().position(|open| open.holder == holder);
        let at = own.ok_or(Error::NotHeld)?;
        let open = &mut holds.opens[at];
        let is_less = open.access.contains(access) && open.deny.contains(deny);
        if !is_less || access.is_empty() && !deny.is_empty() {
            return Err(Error::Invalid);
        }
        (open.access, open.deny) = (access, deny);
        if access.is_empty() {
            holds.opens.swap_remove(at);
        }
        let is_closed = holds.opens.is_empty();
        if access.is_empty() {
            self.change_locks(file, holder.client, |locks| locks.forget(|of| of == holder));
        }
        Ok(is_closed)
    }

    /// Locks bytes.
    ///
    /// # Errors
    /// `Locked`: somebody else has. `Delay`: the client has as many ranges locked as it may.
    pub(crate) fn lock(&mut self, file: Handle, holder: Holder, lock: Lock) -> Result<(), Error> {
        let is_full = self.has_all_ranges(holder.client);
        self.change_locks(file, holder.client, |locks| match is_full {
            true => Err(Error::Delay),
            false => locks.lock(holder, lock),
        })
    }

    fn has_all_ranges(&self, client: u64) -> bool {
        self.ranges.get(&client).is_some_and(|of| *of >= RANGES_MAX)
    }

    /// Changes a client's locks of a file, and counts them.
    fn change_locks<T>(
        &mut self,
        file: Handle,
        client: u64,
        change: impl FnOnce(&mut Locks) -> T,
    ) -> T {
        let locks = &mut self.files.entry(file).or_default().locks;
        let before = locks.len();
        let result = change(locks);
        let after = locks.len();
        if before != after {
            let count = self.ranges.entry(client).or_default();
            *count = (*count + after).saturating_sub(before);
            if *count == 0 {
                self.ranges.remove(&client);
            }
        }
        self.tidy(file);
        result
    }

    /// What is in the way of a lock.
    pub(crate) fn test(&self, file: Handle, holder: Holder, lock: Lock) -> Result<(), Error> {
        let last = lock.range.last().ok_or(Error::Invalid)?;
        let locks = self.files.get(&file).map(|holds| &holds.locks);
        let conflict: Option<Conflict> =
            locks.and_then(|locks| locks.conflict(holder, lock.kind, lock.range.offset, last));
        conflict.map_or(Ok(()), |conflict| Err(Error::Locked(conflict)))
    }

    /// Unlocks bytes.
    ///
    /// # Errors
    /// `Delay`: that makes one range more, and the client has as many as it may.
    pub(crate) fn unlock(
        &mut self,
        file: Handle,
        holder: Holder,
        range: LockRange,
    ) -> Result<(), Error> {
        let last = range.last().ok_or(Error::Invalid)?;
        let first = range.offset;
        let is_full = self.has_all_ranges(holder.client);
        self.change_locks(file, holder.client, |locks| {
            if is_full && locks.splits(holder, first, last) {
                return Err(Error::Delay);
            }
            locks.unlock(holder, first, last);
            Ok(())
        })
    }

    /// Delegates a file, if nobody's open or delegation is in the way.
    pub(crate) fn delegate(
        &mut self,
        file: Handle,
        client: u64,
        kind: Delegation,
    ) -> Result<(), Error> {
        let holds = self.files.entry(file).or_default();
        let conflicts = |open: &Opened| {
            open.holder.client != client
                && (kind == Delegation::Write || open.access.contains(Share::WRITE))
        };
        let others = |other: &Delegated| {
            other.client != client && [kind, other.kind].contains(&Delegation::Write)
        };
        let is_refused = holds.opens.iter().any(conflicts) || holds.delegations.iter().any(others);
        if !is_refused {
            holds.delegations.retain(|other| other.client != client);
            holds.delegations.push(Delegated {
                client,
                kind,
                is_recalled: false,
            });
        }
        self.tidy(file);
        match is_refused {
            true => Err(Error::Delay),
            false => Ok(()),
        }
    }

    /// Takes a delegation back.
    pub(crate) fn give_back(&mut self, file: Handle, client: u64) -> Result<(), Error> {
        let holds = self.files.get_mut(&file).ok_or(Error::NotHeld)?;
        let before = holds.delegations.len();
        holds.delegations.retain(|other| other.client != client);
        let is_gone = holds.delegations.len() < before;
        self.tidy(file);
        match is_gone {
            true => Ok(()),
            false => Err(Error::NotHeld),
        }
    }

    /// Whether a holder has bytes of a file locked.
    pub(crate) fn has_locks(&self, file: Handle, holder: Holder) -> bool {
        let holds = self.files.get(&file);
        holds.is_some_and(|holds| holds.locks.has(holder))
    }

    /// Gives up all that a client holds. Returns the files that it was the last to have open.
    pub(crate) fn forget(&mut self, client: u64) -> Vec<Handle> {
        let mut closed = Vec::new();
        self.ranges.remove(&client);
        self.files.retain(|file, holds| {
            let was_open = !holds.opens.is_empty();
            holds.opens.retain(|open| open.holder.client != client);
            holds.locks.forget(|of| of.client == client);
            holds.delegations.retain(|other| other.client != client);
            if was_open && holds.opens.is_empty() {
                closed.push(*file);
            }
            !holds.is_empty()
        });
        closed
    }

    /// Forgets all of a file: it has ended.
    pub(crate) fn end(&mut self, file: Handle) {
        let Some(holds) = self.files.remove(&file) else {
            return;
        };
        for client in holds.locks.clients() {
            if let Some(count) = self.ranges.get_mut(&client) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.ranges.remove(&client);
                }
            }
        }
    }

    /// Forgets all of a virtual node.
    pub(crate) fn forget_node(&mut self, node: u16) {
        let of_node = |file: &&Handle| file.file.virtual_node() == node;
        let gone: Vec<Handle> = self.files.keys().filter(of_node).copied().collect();
        for file in gone {
            self.end(file);
        }
    }

    fn tidy(&mut self, file: Handle) {
        if self.files.get(&file).is_some_and(Holds::is_empty) {
            self.files.remove(&file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use files::{FileId, LockKind, VolumeId};

    fn file(number: u64) -> Handle {
        Handle {
            volume: VolumeId(1),
            file: FileId(number),
        }
    }

    fn holder(client: u64) -> Holder {
        Holder { client, owner: 1 }
    }

    fn byte(at: u64) -> Lock {
        Lock {
            range: LockRange {
                offset: at,
                len: Some(1),
            },
            kind: LockKind::Write,
        }
    }

    /// What is counted for each client is what it has, whatever becomes of it.
    #[test]
    fn ranges_are_counted_by_client() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut all = AllHolds::default();
            for step in 0..60 {
                let (file, holder) = (file(rng.u64(1..4)), holder(rng.u64(1..4)));
                let range = LockRange {
                    offset: rng.u64(0..12),
                    len: Some(rng.u64(1..6)),
                };
                match rng.u8(0..10) {
                    0..5 => {
                        let kind = LockKind::Read;
                        all.lock(file, holder, Lock { range, kind })
                            .expect("shared");
                    }
                    5..7 => all.unlock(file, holder, range).expect("no end"),
                    7 => {
                        all.open(file, holder, Share::READ, Share::empty());
                        let none = Share::empty();
                        all.downgrade(file, holder, none, none).expect("open");
                    }
                    8 => drop(all.forget(holder.client)),
                    _ => all.end(file),
                }
                let mut counted: HashMap<u64, usize> = HashMap::new();
                for holds in all.files.values() {
                    for client in holds.locks.clients() {
                        *counted.entry(client).or_default() += 1;
                    }
                }
                assert_eq!(all.ranges, counted, "seed {seed}, step {step}");
            }
        }
    }

    #[test]
    fn a_client_has_so_many_ranges_and_no_more() {
        let mut all = AllHolds::default();
        // Every second byte is one: the counter alone is set near its end, as each is looked at by all.
        let (one, two) = (holder(1), holder(2));
        let whole = Lock {
            range: LockRange {
                offset: 0,
                len: None,
            },
            kind: LockKind::Write,
        };
        all.lock(file(1), one, whole).expect("free");
        all.ranges.insert(1, RANGES_MAX);
        let inside = byte(9).range;
        assert_eq!(all.unlock(file(1), one, inside), Err(Error::Delay));
        assert_eq!(all.lock(file(2), one, byte(0)), Err(Error::Delay));
        all.lock(file(2), two, byte(0)).expect("another client's");
        // What makes no more of them is done.
        all.unlock(file(1), one, byte(0).range)
            .expect("an end of it");
        all.unlock(file(1), one, whole.range).expect("all of it");
        all.lock(file(2), one, byte(5)).expect("there is room");
    }
}
