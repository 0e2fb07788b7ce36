//! What clients hold, by stateid: opens, locks, delegations (RFC 8881, section 8.2; RFC 7530, section
//! 9.1).
//!
//! A stateid's twelve bytes:
//!
//! ```text
//!  0          4         8            12
//!  | instance | place   | generation |      big-endian
//! ```
//! The instance is the server's since its start, so that stateids of an earlier one are told apart from
//! rubbish; a place of the table has another generation each time it is used.
//!
//! The conflicts between clients are the file system's business ([`files::Holder`]): here is only what
//! a client may say about its own.

use std::collections::{BTreeMap, BTreeSet};

use files::{Delegation, Handle, Share};

use crate::wire::{Nfsstat4, ReferringCall4, Sessionid4, Stateid4};

use super::owners::Owners;

/// A client, by the number that it got.
pub(super) type ClientId = u64;

/// One thing that a client holds.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) client: ClientId,
    pub(super) file: Handle,
    /// Counts the changes of what is held.
    sequence: u32,
    pub(super) held: Held,
    /// Taken away from the client, which has not acknowledged it yet.
    pub(super) is_revoked: bool,
}

/// What is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Open(Open),
    Lock {
        owner: u64,
        /// The opens under which it was taken; at least one.
        opens: BTreeSet<StateNum>,
    },
    Delegation {
        kind: Delegation,
        /// The file's change when it was given: a client that has written says another one.
        change: u64,
        /// It is wanted back, and the client is being told so.
        is_recalled: bool,
        /// The request whose answer gave it.
        referring: Option<Referring>,
    },
}

/// A request in a session: a client that is asked about what its answer gave may not have seen that
/// answer (RFC 8881, section 2.10.6.3).
pub(super) type Referring = (Sessionid4, ReferringCall4);

/// An open of a file by an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) owner: u64,
    pub(super) access: Share,
    pub(super) deny: Share,
    /// Which combinations of access and deny it was opened with: bit `access * 4 + deny`. Only to a
    /// union of some of them can it be reduced (RFC 8881, section 18.18).
    with: u16,
    /// NFSv4.0: the owner has confirmed that it is no ghost of an earlier one.
    pub(super) is_confirmed: bool,
}

impl Open {
    pub(super) fn new(owner: u64, access: Share, deny: Share, is_confirmed: bool) -> Self {
        Self {
            owner,
            access,
            deny,
            with: combination(access, deny),
            is_confirmed,
        }
    }

    /// Opened once more.
    pub(super) fn add(&mut self, access: Share, deny: Share) {
        self.access |= access;
        self.deny |= deny;
        self.with |= combination(access, deny);
    }

    /// Reduces it.
    ///
    /// # Errors
    /// INVAL: it was never opened like that.
    pub(super) fn reduce(&mut self, access: Share, deny: Share) -> Result<(), Nfsstat4> {
        let is_below = |at: u16| {
            let (of_access, of_deny) = apart(at);
            access.contains(of_access) && deny.contains(of_deny)
        };
        let kept = (0..16).filter(|at| self.with >> at & 1 == 1 && is_below(*at));
        let (mut union, mut left) = ((Share::empty(), Share::empty()), 0);
        for at in kept {
            let (of_access, of_deny) = apart(at);
            union = (union.0 | of_access, union.1 | of_deny);
            left |= 1 << at;
        }
        if union != (access, deny) || access.is_empty() {
            return Err(Nfsstat4::NFS4ERR_INVAL);
        }
        (self.access, self.deny, self.with) = (access, deny, left);
        Ok(())
    }
}

fn combination(access: Share, deny: Share) -> u16 {
    1 << (access.bits() * 4 + deny.bits())
}

fn apart(at: u16) -> (Share, Share) {
    let share = |bits: u16| Share::from_bits_truncate(bits as u8 & 3);
    (share(at / 4), share(at % 4))
}

/// A place in the table.
pub(super) type StateNum = u32;

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    state: Option<State>,
}

/// All that is held through this door.
#[derive(Debug)]
pub(super) struct States {
    instance: u32,
    slots: Vec<Slot>,
    free: Vec<StateNum>,
    of_owner: BTreeMap<(u64, Handle), StateNum>,
    delegations: BTreeMap<(Handle, ClientId), StateNum>,
    /// Delegations that the file system was asked for, and whether they are wanted back already.
    granting: BTreeMap<(Handle, ClientId), bool>,
    /// Delegations that are being taken away: the file system is told by file and client, and a newer
    /// one would go with them.
    revoking: BTreeSet<(Handle, ClientId)>,
    of_client: BTreeMap<ClientId, BTreeSet<StateNum>>,
    of_file: BTreeMap<Handle, BTreeSet<StateNum>>,
    pub(super) owners: Owners,
}

/// What a stateid in a request stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// Nothing: all zeros.
    Anonymous,
    /// Nothing, and locks of others are no hindrance to reading: all ones.
    Bypass,
    /// Something that is held.
    State(StateNum),
}

/// The stateid that stands for the compound's current one (RFC 8881, section 8.2.3).
pub(super) const CURRENT: Stateid4 = Stateid4 {
    seqid: 1,
    other: [0; 12],
};

impl States {
    /// Of a server that has started as this instance.
    pub(super) fn new(instance: u32) -> Self {
        Self {
            instance,
            slots: Vec::new(),
            free: Vec::new(),
            of_owner: BTreeMap::new(),
            delegations: BTreeMap::new(),
            granting: BTreeMap::new(),
            revoking: BTreeSet::new(),
            of_client: BTreeMap::new(),
            of_file: BTreeMap::new(),
            owners: Owners::default(),
        }
    }

    /// A request is about an owner no more.
    pub(super) fn leave_owner(&mut self, owner: u64, now_ms: u64) {
        self.owners.leave(owner);
        if self.held_by(owner).next().is_none() {
            self.owners.tidy(owner, now_ms);
        }
    }

    /// Forgets owners of 4.0 that have held nothing and said nothing for a lease.
    pub(super) fn expire_owners(&mut self, now_ms: u64, lease_ms: u64) {
        while let Some(owner) = self.owners.next_expired(now_ms, lease_ms) {
            if self.held_by(owner).next().is_none() {
                self.owners.forget(owner);
            }
        }
    }

    /// What an owner holds.
    pub(super) fn held_by(&self, owner: u64) -> impl Iterator<Item = StateNum> + '_ {
        let least = Handle::from_bytes([0; 12]);
        let range = self.of_owner.range((owner, least)..);
        range
            .take_while(move |((of, _), _)| *of == owner)
            .map(|(_, num)| *num)
    }

    /// What this owner holds of a file.
    pub(super) fn of_owner(&self, owner: u64, file: Handle) -> Option<StateNum> {
        self.of_owner.get(&(owner, file)).copied()
    }

    /// The delegation of a file that a client has.
    pub(super) fn delegation(&self, client: ClientId, file: Handle) -> Option<StateNum> {
        self.delegations.get(&(file, client)).copied()
    }

    /// Who but this client has a file delegated for writing, and the file's change when it got it.
    pub(super) fn writer(
        &self,
        file: Handle,
        but: Option<ClientId>,
    ) -> Option<(StateNum, ClientId, u64)> {
        let mut of_file = self.delegations.range((file, 0)..=(file, u64::MAX));
        of_file.find_map(|((_, client), num)| {
            let state = self.get(*num).filter(|state| !state.is_revoked)?;
            match state.held {
                Held::Delegation {
                    kind: Delegation::Write,
                    change,
                    ..
                } if but != Some(*client) => Some((*num, *client, change)),
                _ => None,
            }
        })
    }

    /// An open of a file by a client that allows this.
    pub(super) fn open_for(&self, client: ClientId, file: Handle, access: Share) -> Option<&Open> {
        let of_file = self.of_file.get(&file).into_iter().flatten();
        let mut states = of_file.filter_map(|num| self.get(*num));
        states.find_map(|state| match &state.held {
            Held::Open(open) if state.client == client && open.access.contains(access) => {
                Some(open)
            }
            _ => None,
        })
    }

    /// A delegation is about to be asked for; returns whether none was before.
    pub(super) fn begin_grant(&mut self, client: ClientId, file: Handle) -> bool {
        let key = (file, client);
        let is_known = self.delegations.contains_key(&key) || self.granting.contains_key(&key);
        if is_known || self.revoking.contains(&key) {
            return false;
        }
        self.granting.insert(key, false);
        true
    }

    /// A delegation is about to be taken away: until that has ended no other is given.
    pub(super) fn begin_revocation(&mut self, client: ClientId, file: Handle) {
        self.revoking.insert((file, client));
    }

    /// It has been taken away.
    pub(super) fn end_revocation(&mut self, client: ClientId, file: Handle) {
        self.revoking.remove(&(file, client));
    }

    /// A delegation is wanted back: it is not to be given, if it was only asked for so far.
    pub(super) fn wanted_in_grant(&mut self, client: ClientId, file: Handle) {
        if let Some(is_wanted) = self.granting.get_mut(&(file, client)) {
            *is_wanted = true;
        }
    }

    /// Whether a delegation that was asked for is wanted back already.
    pub(super) fn is_wanted_in_grant(&self, client: ClientId, file: Handle) -> bool {
        self.granting.get(&(file, client)).copied().unwrap_or(false)
    }

    /// It was given and recorded, or is the file system's again.
    pub(super) fn end_grant(&mut self, client: ClientId, file: Handle) {
        self.granting.remove(&(file, client));
    }

    /// Whether a client holds anything.
    pub(super) fn holds_something(&self, client: ClientId) -> bool {
        self.of_client.contains_key(&client)
    }

    /// How much a client holds.
    pub(super) fn count_of(&self, client: ClientId) -> usize {
        self.of_client.get(&client).map_or(0, BTreeSet::len)
    }

    /// What a client holds.
    pub(super) fn of_client(&self, client: ClientId) -> Vec<StateNum> {
        let held = self.of_client.get(&client).into_iter().flatten();
        held.copied().collect()
    }

    /// The files that a client has open.
    pub(super) fn opened_by(&self, client: ClientId) -> BTreeSet<Handle> {
        let held = self.of_client.get(&client).into_iter().flatten();
        let states = held.filter_map(|num| self.get(*num));
        let opens = states.filter(|state| matches!(state.held, Held::Open(_)));
        opens.map(|state| state.file).collect()
    }

    /// Who has a file open.
    pub(super) fn openers(&self, file: Handle) -> BTreeSet<ClientId> {
        let held = self.of_file(file);
        let opens = held.filter(|state| matches!(state.held, Held::Open(_)));
        opens.map(|state| state.client).collect()
    }

    /// What is held of a file.
    pub(super) fn of_file(&self, file: Handle) -> impl Iterator<Item = &State> {
        let held = self.of_file.get(&file).into_iter().flatten();
        held.filter_map(|num| self.get(*num))
    }

    /// How much is held in all.
    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Opens, locks and delegations. Looks at all of them.
    pub(super) fn by_kind(&self) -> (u64, u64, u64) {
        let (mut opens, mut locks, mut delegations) = (0, 0, 0);
        for state in self.slots.iter().filter_map(|slot| slot.state.as_ref()) {
            match state.held {
                Held::Open(_) => opens += 1,
                Held::Lock { .. } => locks += 1,
                Held::Delegation { .. } => delegations += 1,
            }
        }
        (opens, locks, delegations)
    }

    pub(super) fn get(&self, num: StateNum) -> Option<&State> {
        self.slots.get(num as usize)?.state.as_ref()
    }

    pub(super) fn get_mut(&mut self, num: StateNum) -> Option<&mut State> {
        self.slots.get_mut(num as usize)?.state.as_mut()
    }

    /// Something new is held.
    pub(super) fn add(&mut self, client: ClientId, file: Handle, held: Held) -> StateNum {
        let num = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as StateNum
        });
        match &held {
            Held::Open(Open { owner, .. }) | Held::Lock { owner, .. } => {
                self.of_owner.insert((*owner, file), num);
            }
            Held::Delegation { .. } => {
                self.delegations.insert((file, client), num);
            }
        }
        self.of_client.entry(client).or_default().insert(num);
        self.of_file.entry(file).or_default().insert(num);
        let slot = &mut self.slots[num as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.state = Some(State {
            client,
            file,
            sequence: 1,
            held,
            is_revoked: false,
        });
        num
    }

    /// Whether a place is that of a stateid still.
    pub(super) fn is_still(&self, num: StateNum, stateid: &Stateid4) -> bool {
        self.get(num).is_some() && self.stateid(num).other == stateid.other
    }

    /// A lock that is under another open too is no more one under this one; returns whether it is. What
    /// is under no other stays until its bytes are unlocked.
    pub(super) fn leave_open(&mut self, lock: StateNum, open: StateNum) -> bool {
        match self.get_mut(lock).map(|state| &mut state.held) {
            Some(Held::Lock { opens, .. }) if opens.iter().any(|other| *other != open) => {
                opens.remove(&open);
                true
            }
            _ => false,
        }
    }

    /// It is held no more.
    pub(super) fn remove(&mut self, num: StateNum) -> Option<State> {
        let state = self.slots.get_mut(num as usize)?.state.take()?;
        self.free.push(num);
        match &state.held {
            Held::Open(Open { owner, .. }) | Held::Lock { owner, .. } => {
                self.of_owner.remove(&(*owner, state.file));
            }
            Held::Delegation { .. } => {
                self.delegations.remove(&(state.file, state.client));
            }
        }
        drop_from(&mut self.of_client, &state.client, num);
        drop_from(&mut self.of_file, &state.file, num);
        Some(state)
    }

    /// Locks that were taken under an open.
    pub(super) fn locks_under(&self, open: StateNum) -> Vec<StateNum> {
        let Some(state) = self.get(open) else {
            return Vec::new();
        };
        let of_file = self.of_file.get(&state.file).into_iter().flatten().copied();
        let is_under = |num: &StateNum| {
            let held = self.get(*num).map(|state| &state.held);
            matches!(held, Some(Held::Lock { opens, .. }) if opens.contains(&open))
        };
        of_file.filter(is_under).collect()
    }

    /// Forgets a client with its owners; what it held is returned.
    pub(super) fn forget_client(&mut self, client: ClientId) -> Vec<State> {
        let held = self.of_client(client);
        let states = held
            .into_iter()
            .filter_map(|num| self.remove(num))
            .collect();
        self.owners.forget_client(client);
        states
    }

    /// The stateid of something held.
    pub(super) fn stateid(&self, num: StateNum) -> Stateid4 {
        let slot = &self.slots[num as usize];
        let mut other = [0; 12];
        other[..4].copy_from_slice(&self.instance.to_be_bytes());
        other[4..8].copy_from_slice(&num.to_be_bytes());
        other[8..].copy_from_slice(&slot.generation.to_be_bytes());
        let seqid = slot.state.as_ref().map_or(0, |state| state.sequence);
        Stateid4 { seqid, other }
    }

    /// What is held has changed: its stateid is another one. Zero means "the newest" and is left out.
    pub(super) fn changed(&mut self, num: StateNum) -> Stateid4 {
        if let Some(state) = self.get_mut(num) {
            state.sequence = state.sequence.wrapping_add(1).max(1);
        }
        self.stateid(num)
    }

    /// What a client's stateid stands for.
    ///
    /// # Errors
    /// STALE_STATEID: of an earlier instance. OLD_STATEID: what is held has changed since.
    /// BAD_STATEID: none of this client's. DELEG_REVOKED, EXPIRED: it was taken away.
    pub(super) fn find(
        &self,
        stateid: &Stateid4,
        client: Option<ClientId>,
    ) -> Result<Named, Nfsstat4> {
        let (seqid, other) = (stateid.seqid, stateid.other);
        match (seqid, other) {
            (0, other) if other == [0; 12] => return Ok(Named::Anonymous),
            (u32::MAX, other) if other == [0xff; 12] => return Ok(Named::Bypass),
            _ => {}
        }
        let word = |at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&other[at..at + 4]);
            u32::from_be_bytes(bytes)
        };
        let (instance, num, generation) = (word(0), word(4), word(8));
        if instance != self.instance {
            let is_ours = other != [0; 12] && other != [0xff; 12] && instance < self.instance;
            let stale = Nfsstat4::NFS4ERR_STALE_STATEID;
            return Err(if is_ours {
                stale
            } else {
                Nfsstat4::NFS4ERR_BAD_STATEID
            });
        }
        let slot = self.slots.get(num as usize);
        let slot = slot.filter(|slot| slot.generation == generation);
        let state = slot.and_then(|slot| slot.state.as_ref());
        let state = state.filter(|state| client.is_none_or(|client| client == state.client));
        let state = state.ok_or(Nfsstat4::NFS4ERR_BAD_STATEID)?;
        // Serial numbers: what is less than half the circle behind is old.
        let behind = state.sequence.wrapping_sub(seqid);
        if seqid != 0 && behind != 0 {
            let is_old = behind < 1 << 31;
            let old = Nfsstat4::NFS4ERR_OLD_STATEID;
            return Err(if is_old {
                old
            } else {
                Nfsstat4::NFS4ERR_BAD_STATEID
            });
        }
        if state.is_revoked {
            return Err(match state.held {
                Held::Delegation { .. } => Nfsstat4::NFS4ERR_DELEG_REVOKED,
                _ => Nfsstat4::NFS4ERR_EXPIRED,
            });
        }
        Ok(Named::State(num))
    }

    /// Whose opens or locks a stateid of 4.0 is about, however old it is: also one that the owner's last
    /// request has closed.
    pub(super) fn owner_by(&self, stateid: &Stateid4) -> Option<u64> {
        let num = [4, 5, 6, 7].map(|at| stateid.other[at]);
        let num = u32::from_be_bytes(num);
        if !self.is_still(num, stateid) {
            return self.owners.who_closed(&stateid.other);
        }
        match self.get(num)?.held {
            Held::Open(Open { owner, .. }) | Held::Lock { owner, .. } => Some(owner),
            Held::Delegation { .. } => None,
        }
    }

    /// As [`States::find`], also of what was revoked: which is to be freed.
    pub(super) fn find_revoked(
        &self,
        stateid: &Stateid4,
        client: ClientId,
    ) -> Result<Named, Nfsstat4> {
        match self.find(stateid, Some(client)) {
            Err(Nfsstat4::NFS4ERR_DELEG_REVOKED | Nfsstat4::NFS4ERR_EXPIRED) => {
                let mut num = [0; 4];
                num.copy_from_slice(&stateid.other[4..8]);
                Ok(Named::State(u32::from_be_bytes(num)))
            }
            found => found,
        }
    }
}

fn drop_from<K: Ord>(map: &mut BTreeMap<K, BTreeSet<StateNum>>, key: &K, num: StateNum) {
    if let Some(set) = map.get_mut(key) {
        set.remove(&num);
        if set.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::owners::OwnerKind;
    use files::VolumeId;

    fn file(number: u64) -> Handle {
        Handle {
            volume: VolumeId(1),
            file: files::FileId(number),
        }
    }

    fn open(owner: u64) -> Held {
        Held::Open(Open::new(owner, Share::READ, Share::empty(), true))
    }

    #[test]
    fn a_stateid_names_what_is_held_until_it_is_not() {
        let mut states = States::new(9);
        let owner = states.owners.take(1, OwnerKind::Open, b"o");
        let num = states.add(1, file(5), open(owner));
        let first = states.stateid(num);
        assert_eq!(states.find(&first, Some(1)), Ok(Named::State(num)));
        assert_eq!(
            states.find(&first, Some(2)),
            Err(Nfsstat4::NFS4ERR_BAD_STATEID)
        );
        let second = states.changed(num);
        assert_eq!(
            states.find(&first, Some(1)),
            Err(Nfsstat4::NFS4ERR_OLD_STATEID)
        );
        assert_eq!(states.find(&second, Some(1)), Ok(Named::State(num)));
        let newest = Stateid4 { seqid: 0, ..second };
        assert_eq!(states.find(&newest, Some(1)), Ok(Named::State(num)));
        let ahead = Stateid4 { seqid: 3, ..second };
        assert_eq!(
            states.find(&ahead, Some(1)),
            Err(Nfsstat4::NFS4ERR_BAD_STATEID)
        );
        states.remove(num);
        assert_eq!(
            states.find(&second, Some(1)),
            Err(Nfsstat4::NFS4ERR_BAD_STATEID)
        );
        let again = states.add(1, file(5), open(owner));
        assert_eq!(again, num, "the place is used again");
        assert_eq!(
            states.find(&second, Some(1)),
            Err(Nfsstat4::NFS4ERR_BAD_STATEID)
        );
        let later = States::new(10);
        assert_eq!(
            later.find(&second, Some(1)),
            Err(Nfsstat4::NFS4ERR_STALE_STATEID)
        );
    }

    #[test]
    fn special_stateids_are_nobodys() {
        let states = States::new(1);
        let zeros = Stateid4 {
            seqid: 0,
            other: [0; 12],
        };
        let ones = Stateid4 {
            seqid: u32::MAX,
            other: [0xff; 12],
        };
        assert_eq!(states.find(&zeros, None), Ok(Named::Anonymous));
        assert_eq!(states.find(&ones, None), Ok(Named::Bypass));
        assert_eq!(
            states.find(&CURRENT, None),
            Err(Nfsstat4::NFS4ERR_BAD_STATEID)
        );
        let invalid = Stateid4 {
            seqid: u32::MAX,
            other: [0; 12],
        };
        assert_eq!(
            states.find(&invalid, None),
            Err(Nfsstat4::NFS4ERR_BAD_STATEID)
        );
    }

    #[test]
    fn an_open_is_reduced_to_what_it_was_opened_with() {
        let mut open = Open::new(1, Share::READ, Share::empty(), true);
        open.add(Share::READ | Share::WRITE, Share::WRITE);
        assert_eq!(open.access, Share::READ | Share::WRITE);
        let write = open.reduce(Share::WRITE, Share::empty());
        assert_eq!(
            write,
            Err(Nfsstat4::NFS4ERR_INVAL),
            "never opened for writing alone"
        );
        assert_eq!(open.reduce(Share::READ, Share::empty()), Ok(()));
        assert_eq!((open.access, open.deny), (Share::READ, Share::empty()));
        let both = open.reduce(Share::READ | Share::WRITE, Share::WRITE);
        assert_eq!(both, Err(Nfsstat4::NFS4ERR_INVAL), "that is gone");
    }

    #[test]
    fn who_holds_what_is_known_by_owner_file_and_client() {
        let mut states = States::new(1);
        let owner = states.owners.take(1, OwnerKind::Open, b"o");
        assert_eq!(states.owners.take(1, OwnerKind::Open, b"o"), owner);
        assert_ne!(states.owners.take(2, OwnerKind::Open, b"o"), owner);
        let lock_owner = states.owners.take(1, OwnerKind::Lock, b"o");
        let opened = states.add(1, file(5), open(owner));
        let held = Held::Lock {
            owner: lock_owner,
            opens: [opened].into(),
        };
        let locked = states.add(1, file(5), held);
        let delegated = states.add(
            2,
            file(5),
            Held::Delegation {
                kind: Delegation::Write,
                change: 7,
                is_recalled: false,
                referring: None,
            },
        );
        assert_eq!(states.of_owner(owner, file(5)), Some(opened));
        assert_eq!(states.held_by(lock_owner).collect::<Vec<_>>(), [locked]);
        assert_eq!(states.locks_under(opened), [locked]);
        assert_eq!(states.delegation(2, file(5)), Some(delegated));
        assert_eq!(states.writer(file(5), Some(1)), Some((delegated, 2, 7)));
        assert_eq!(states.writer(file(5), Some(2)), None, "its own");
        assert_eq!(states.writer(file(6), None), None);
        assert!(states.open_for(1, file(5), Share::READ).is_some());
        assert!(states.open_for(1, file(5), Share::WRITE).is_none());
        assert!(states.open_for(2, file(5), Share::READ).is_none());
        assert_eq!(states.of_file(file(5)).count(), 3);
        assert_eq!(states.forget_client(1).len(), 2);
        let left: Vec<_> = states.of_file(file(5)).map(|of| of.client).collect();
        assert_eq!((states.count(), left), (1, vec![2]));
        assert_eq!(states.owners.known(1, OwnerKind::Open, b"o"), None);
    }
}
