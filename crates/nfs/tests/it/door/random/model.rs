//! What clients hold, by the rules of RFC 8881, sections 8 to 10, and what the door does beyond them: a
//! client without a lease keeps what it holds until it is in somebody else's way.

use std::collections::{BTreeMap, BTreeSet};

use nfs::wire::Stateid4;

/// Bytes of a file that are locked or not.
pub(super) const BYTES: usize = 6;

/// A client and one of its owners.
pub(super) type Owner = (usize, usize);

/// An open: what for, and against whom; 1 reads, 2 writes.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) access: u32,
    pub(super) deny: u32,
    /// With what it was opened: it can be reduced to a union of these.
    pub(super) with: BTreeSet<(u32, u32)>,
    pub(super) stateid: Stateid4,
}

/// Locks of an owner, byte by byte: for writing or not.
#[derive(Clone, Debug)]
pub(super) struct Locks {
    pub(super) bytes: [Option<bool>; BYTES],
    pub(super) stateid: Stateid4,
}

#[derive(Clone, Debug)]
pub(super) struct Delegation {
    pub(super) writes: bool,
    pub(super) stateid: Stateid4,
}

#[derive(Clone, Debug, Default)]
pub(super) struct File {
    pub(super) opens: BTreeMap<Owner, Open>,
    pub(super) locks: BTreeMap<Owner, Locks>,
    pub(super) delegations: BTreeMap<usize, Delegation>,
}

impl File {
    /// Whose opens are in the way of this.
    pub(super) fn share_conflicts(&self, owner: Owner, access: u32, deny: u32) -> BTreeSet<usize> {
        let others = self.opens.iter().filter(|(other, _)| **other != owner);
        let conflicts =
            others.filter(|(_, open)| open.deny & access != 0 || open.access & deny != 0);
        conflicts.map(|((client, _), _)| *client).collect()
    }

    /// Whose locks are in the way of this.
    pub(super) fn lock_conflicts(
        &self,
        owner: Owner,
        range: std::ops::Range<usize>,
        writes: bool,
    ) -> BTreeSet<usize> {
        let others = self.locks.iter().filter(|(other, _)| **other != owner);
        let conflicts = others.filter(|(_, locks)| {
            let mut of_range = locks.bytes[range.clone()].iter().flatten();
            of_range.any(|other| writes || *other)
        });
        conflicts.map(|((client, _), _)| *client).collect()
    }

    /// Whose delegations are in the way of this client's access.
    pub(super) fn delegation_conflicts(&self, client: usize, writes: bool) -> BTreeSet<usize> {
        let others = self.delegations.iter();
        let conflicts = others.filter(|(other, of)| **other != client && (writes || of.writes));
        conflicts.map(|(other, _)| *other).collect()
    }

    /// Whether it may be delegated to a client.
    pub(super) fn may_delegate(&self, client: usize, writes: bool) -> bool {
        let in_use = self
            .opens
            .iter()
            .any(|((other, _), open)| *other != client && (writes || open.access & 2 != 0));
        let is_mine = self.delegations.contains_key(&client);
        !in_use && !is_mine && self.delegation_conflicts(client, writes).is_empty()
    }

    pub(super) fn forget(&mut self, client: usize) {
        self.opens.retain(|(of, _), _| *of != client);
        self.locks.retain(|(of, _), _| *of != client);
        self.delegations.remove(&client);
    }

    /// How many stateids there are.
    pub(super) fn count(&self) -> usize {
        self.opens.len() + self.locks.len() + self.delegations.len()
    }
}

impl Open {
    /// What it was opened with that is within this; whether their union is this.
    pub(super) fn reduced(&self, access: u32, deny: u32) -> Option<BTreeSet<(u32, u32)>> {
        let within = |of: &&(u32, u32)| of.0 & !access == 0 && of.1 & !deny == 0;
        let left: BTreeSet<_> = self.with.iter().filter(within).copied().collect();
        let union = left
            .iter()
            .fold((0, 0), |union, of| (union.0 | of.0, union.1 | of.1));
        (union == (access, deny)).then_some(left)
    }
}
