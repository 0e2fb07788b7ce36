//! Owners of opens and locks: their numbers, for as long as they hold something or a request is about
//! them; of NFSv4.0 also their sequence numbers and last answers (RFC 7530, sections 9.1.6 to 9.1.11).

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use crate::wire::{Nfsstat4, Stateid4};

use super::Door;
use super::handles::Place;
use super::states::ClientId;

/// Whose opens or locks: a client's owners have numbers, for the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OwnerKind {
    Open,
    Lock,
}

/// Owners of 4.0 that hold nothing at most: beyond that the one that has been silent for the longest is
/// forgotten before its lease runs out.
const IDLE_MAX: usize = 10_000;

/// What an operation of a sequence was answered.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) status: Nfsstat4,
    /// The result, its operation's number before it.
    pub(super) bytes: Vec<u8>,
    /// What the compound's current file handle and stateid are after it.
    pub(super) current: Option<Place>,
    pub(super) stateid: Option<Stateid4>,
}

/// The sequence of an owner of 4.0.
#[derive(Debug)]
struct Sequence {
    /// The number of the last request that counted.
    last: u32,
    /// That request's hash, so that another one with its number is not taken for its repeat.
    asked: [u8; 16],
    /// None: the answer is kept at another owner's sequence.
    answered: Option<Rc<Answered>>,
    /// The owner has shown that it is no ghost of an earlier one. Lock-owners need not.
    is_confirmed: bool,
    /// The stateid that its last request has closed: it names the owner in a repeat.
    closed: Option<[u8; 12]>,
    /// Since when it holds nothing.
    idle_since_ms: u64,
}

/// What a request of a sequence is.
#[derive(Clone, Debug)]
pub(super) enum InSequence {
    /// The next one.
    New,
    /// An OPEN in place of one that was never confirmed: that is to be closed first.
    Anew,
    /// The last one again.
    Again(Rc<Answered>),
}

#[derive(Debug)]
struct Owner {
    client: ClientId,
    kind: OwnerKind,
    name: Box<[u8]>,
    /// Requests that are about it.
    users: usize,
    /// It stands in the queue of those that hold nothing.
    is_queued: bool,
    sequence: Option<Sequence>,
    /// What the request that is being carried out has closed.
    closing: Option<[u8; 12]>,
}

/// All owners that are known.
#[derive(Debug)]
pub(super) struct Owners {
    by_name: BTreeMap<(ClientId, OwnerKind, Box<[u8]>), u64>,
    by_number: BTreeMap<u64, Owner>,
    closed: BTreeMap<[u8; 12], u64>,
    /// Owners of 4.0 since they hold nothing, the earliest first. One that holds something again stays
    /// here until its turn.
    idle: VecDeque<(u64, u64)>,
    next: u64,
}

impl Default for Owners {
    /// 0 is no owner's number.
    fn default() -> Self {
        Self {
            by_name: BTreeMap::new(),
            by_number: BTreeMap::new(),
            closed: BTreeMap::new(),
            idle: VecDeque::new(),
            next: 1,
        }
    }
}

impl Owners {
    /// The number of an owner, for a request that is about it until [`Owners::leave`].
    pub(super) fn take(&mut self, client: ClientId, kind: OwnerKind, name: &[u8]) -> u64 {
        let number = self.known(client, kind, name).unwrap_or_else(|| {
            let number = self.next;
            self.next += 1;
            self.by_name.insert((client, kind, name.into()), number);
            let owner = Owner {
                client,
                kind,
                name: name.into(),
                users: 0,
                is_queued: false,
                sequence: None,
                closing: None,
            };
            self.by_number.insert(number, owner);
            number
        });
        self.join(number);
        number
    }

    /// One more request is about it.
    pub(super) fn join(&mut self, number: u64) {
        if let Some(owner) = self.by_number.get_mut(&number) {
            owner.users += 1;
        }
    }

    /// A request is about it no more.
    pub(super) fn leave(&mut self, number: u64) {
        if let Some(owner) = self.by_number.get_mut(&number) {
            owner.users = owner.users.saturating_sub(1);
        }
    }

    /// An owner that holds nothing is forgotten, or kept for a lease for its sequence's sake.
    pub(super) fn tidy(&mut self, number: u64, now_ms: u64) {
        match self.by_number.get_mut(&number) {
            Some(owner) if owner.users == 0 => match &mut owner.sequence {
                Some(sequence) => {
                    sequence.idle_since_ms = now_ms;
                    if !std::mem::replace(&mut owner.is_queued, true) {
                        self.idle.push_back((now_ms, number));
                    }
                }
                None => self.forget(number),
            },
            _ => {}
        }
    }

    /// The next owner whose time may be over: it holds nothing since long, or there are too many.
    pub(super) fn next_expired(&mut self, now_ms: u64, lease_ms: u64) -> Option<u64> {
        loop {
            let (since_ms, number) = *self.idle.front()?;
            if self.idle.len() <= IDLE_MAX && now_ms.saturating_sub(since_ms) <= lease_ms {
                return None;
            }
            self.idle.pop_front();
            let Some(owner) = self.by_number.get_mut(&number) else {
                continue;
            };
            owner.is_queued = false;
            match &owner.sequence {
                // It comes back when the last request is over.
                _ if owner.users > 0 => {}
                Some(sequence) if sequence.idle_since_ms == since_ms => return Some(number),
                Some(sequence) => {
                    owner.is_queued = true;
                    self.idle.push_back((sequence.idle_since_ms, number));
                }
                None => {}
            }
        }
    }

    /// The number of an owner, if it is known.
    pub(super) fn known(&self, client: ClientId, kind: OwnerKind, name: &[u8]) -> Option<u64> {
        self.by_name.get(&(client, kind, name.into())).copied()
    }

    /// Whose an owner's number is, and what the client calls it.
    pub(super) fn name(&self, number: u64) -> Option<(ClientId, &[u8])> {
        let owner = self.by_number.get(&number)?;
        Some((owner.client, &owner.name))
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.by_number.len()
    }

    /// Forgets an owner that no other request than the caller's is about.
    pub(super) fn forget_unused(&mut self, number: u64) {
        let owner = self.by_number.get(&number);
        if owner.is_some_and(|owner| owner.users <= 1) {
            self.forget(number);
        }
    }

    pub(super) fn forget(&mut self, number: u64) {
        let Some(owner) = self.by_number.remove(&number) else {
            return;
        };
        self.by_name.remove(&(owner.client, owner.kind, owner.name));
        if let Some(closed) = owner.sequence.and_then(|sequence| sequence.closed) {
            self.closed.remove(&closed);
        }
    }

    pub(super) fn forget_client(&mut self, client: ClientId) {
        let (of, until) = (client, client.saturating_add(1));
        let least = |client| (client, OwnerKind::Open, Box::from(&[][..]));
        let gone = self.by_name.range(least(of)..least(until));
        let gone: Vec<u64> = gone.map(|(_, number)| *number).collect();
        gone.into_iter().for_each(|number| self.forget(number));
    }

    /// Who has closed a stateid with its last request.
    pub(super) fn who_closed(&self, other: &[u8; 12]) -> Option<u64> {
        self.closed.get(other).copied()
    }

    /// The request of an owner of 4.0 that is being carried out has closed this.
    pub(super) fn closes(&mut self, number: u64, other: [u8; 12]) {
        let owner = self.by_number.get_mut(&number);
        if let Some(owner) = owner.filter(|owner| owner.sequence.is_some()) {
            owner.closing = Some(other);
        }
    }

    /// Whether an owner has confirmed itself.
    pub(super) fn is_confirmed(&self, number: u64) -> bool {
        let owner = self.by_number.get(&number);
        let sequence = owner.and_then(|owner| owner.sequence.as_ref());
        sequence.is_some_and(|sequence| sequence.is_confirmed)
    }

    /// An owner confirms itself with the request that is being carried out.
    pub(super) fn confirm(&mut self, number: u64) {
        let owner = self.by_number.get_mut(&number);
        if let Some(sequence) = owner.and_then(|owner| owner.sequence.as_mut()) {
            sequence.is_confirmed = true;
        }
    }

    /// A request of an owner comes; `opens`: it is an OPEN.
    ///
    /// # Errors
    /// BAD_SEQID: neither the next nor the last one.
    pub(super) fn begin(
        &mut self,
        number: u64,
        seqid: u32,
        asked: [u8; 16],
        opens: bool,
    ) -> Result<InSequence, Nfsstat4> {
        let bad = Nfsstat4::NFS4ERR_BAD_SEQID;
        let owner = self.by_number.get_mut(&number).ok_or(bad)?;
        let Some(sequence) = &mut owner.sequence else {
            // The first one may have any number.
            owner.sequence = Some(Sequence {
                last: seqid.wrapping_sub(1),
                asked: [0; 16],
                answered: None,
                is_confirmed: false,
                closed: None,
                idle_since_ms: 0,
            });
            return Ok(InSequence::New);
        };
        let is_last = seqid == sequence.last && asked == sequence.asked;
        if let (true, Some(answered)) = (is_last, &sequence.answered) {
            return Ok(InSequence::Again(Rc::clone(answered)));
        }
        if opens && !sequence.is_confirmed {
            sequence.last = seqid.wrapping_sub(1);
            return Ok(InSequence::Anew);
        }
        match seqid == sequence.last.wrapping_add(1) {
            true => Ok(InSequence::New),
            false => Err(bad),
        }
    }

    /// Whether a number is the next of a lock-owner, which may be new.
    pub(super) fn is_next(&self, number: u64, seqid: u32) -> bool {
        let owner = self.by_number.get(&number);
        let sequence = owner.and_then(|owner| owner.sequence.as_ref());
        sequence.is_none_or(|sequence| seqid == sequence.last.wrapping_add(1))
    }

    /// A request of an owner was answered. What it has closed names the owner until the next one.
    pub(super) fn end(
        &mut self,
        number: u64,
        seqid: u32,
        asked: [u8; 16],
        answered: Option<Rc<Answered>>,
    ) {
        let Some(owner) = self.by_number.get_mut(&number) else {
            return;
        };
        let before = owner.sequence.take();
        if let Some(other) = before.as_ref().and_then(|before| before.closed) {
            self.closed.remove(&other);
        }
        let closed = owner.closing.take();
        if let Some(other) = closed {
            self.closed.insert(other, number);
        }
        owner.sequence = Some(Sequence {
            last: seqid,
            asked,
            answered,
            is_confirmed: before.is_some_and(|before| before.is_confirmed),
            closed,
            idle_since_ms: 0,
        });
    }
}

/// Whether a request that was answered like this counts in its owner's sequence (RFC 7530, section
/// 9.1.7).
pub(super) fn counts(status: Nfsstat4) -> bool {
    !matches!(
        status,
        Nfsstat4::NFS4ERR_STALE_CLIENTID
            | Nfsstat4::NFS4ERR_STALE_STATEID
            | Nfsstat4::NFS4ERR_BAD_STATEID
            | Nfsstat4::NFS4ERR_BAD_SEQID
            | Nfsstat4::NFS4ERR_BADXDR
            | Nfsstat4::NFS4ERR_RESOURCE
            | Nfsstat4::NFS4ERR_NOFILEHANDLE
            | Nfsstat4::NFS4ERR_MOVED
    )
}

/// An owner that a request is about: it is not forgotten until this is dropped.
pub(super) struct OwnerUse<'a> {
    door: &'a Door,
    pub(super) number: u64,
}

impl Door {
    /// An owner by its name, which may be new.
    pub(super) fn owner(&self, client: ClientId, kind: OwnerKind, name: &[u8]) -> OwnerUse<'_> {
        let mut states = self.states.borrow_mut();
        states.expire_owners(self.now_ms(), self.lease_ms);
        let number = states.owners.take(client, kind, name);
        OwnerUse { door: self, number }
    }

    /// An owner by its number.
    pub(super) fn owner_of(&self, number: u64) -> OwnerUse<'_> {
        self.states.borrow_mut().owners.join(number);
        OwnerUse { door: self, number }
    }
}

impl Drop for OwnerUse<'_> {
    fn drop(&mut self) {
        // Whoever panics may have them borrowed: a second panic would end the process.
        if let Ok(mut states) = self.door.states.try_borrow_mut() {
            states.leave_owner(self.number, self.door.now_ms());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(byte: u8) -> Rc<Answered> {
        Rc::new(Answered {
            status: Nfsstat4::NFS4_OK,
            bytes: vec![byte],
            current: None,
            stateid: None,
        })
    }

    /// Stands for a request's hash.
    fn asked(what: &[u8]) -> [u8; 16] {
        let mut hash = [0; 16];
        hash[..what.len()].copy_from_slice(what);
        hash
    }

    fn is_again(what: Result<InSequence, Nfsstat4>, byte: u8) -> bool {
        matches!(what, Ok(InSequence::Again(of)) if of.bytes == [byte])
    }

    #[test]
    fn a_sequence_goes_on_by_one_and_repeats_its_last_answer() {
        let mut owners = Owners::default();
        let owner = owners.take(1, OwnerKind::Open, b"o");
        let first = owners.begin(owner, u32::MAX, asked(b"open"), true);
        assert!(matches!(first, Ok(InSequence::New)), "any is the first");
        owners.end(owner, u32::MAX, asked(b"open"), Some(answered(1)));
        assert!(is_again(
            owners.begin(owner, u32::MAX, asked(b"open"), true),
            1
        ));
        let confirm = owners.begin(owner, 0, asked(b"confirm"), false);
        assert!(matches!(confirm, Ok(InSequence::New)), "it goes round");
        owners.confirm(owner);
        owners.closes(owner, [7; 12]);
        owners.end(owner, 0, asked(b"confirm"), Some(answered(2)));
        assert_eq!(owners.who_closed(&[7; 12]), Some(owner));
        assert!(is_again(
            owners.begin(owner, 0, asked(b"confirm"), false),
            2
        ));
        for (seqid, what) in [(0, b"other".as_slice()), (2, b"open"), (u32::MAX, b"open")] {
            let refused = owners.begin(owner, seqid, asked(what), true);
            assert!(matches!(refused, Err(Nfsstat4::NFS4ERR_BAD_SEQID)));
        }
        assert!(owners.is_next(owner, 1) && !owners.is_next(owner, 0));
        owners.end(owner, 1, asked(b"open"), Some(answered(3)));
        assert_eq!(owners.who_closed(&[7; 12]), None, "it has asked since");
    }

    #[test]
    fn who_was_never_confirmed_begins_anew() {
        let mut owners = Owners::default();
        let owner = owners.take(1, OwnerKind::Open, b"o");
        assert!(owners.begin(owner, 5, asked(b"open"), true).is_ok());
        owners.end(owner, 5, asked(b"open"), Some(answered(1)));
        let anew = owners.begin(owner, 90, asked(b"open"), true);
        assert!(matches!(anew, Ok(InSequence::Anew)));
        assert!(owners.begin(owner, 70, asked(b"close"), false).is_err());
    }

    #[test]
    fn owners_are_forgotten_when_nobody_needs_them() {
        let mut owners = Owners::default();
        let plain = owners.take(1, OwnerKind::Open, b"4.1");
        let counted = owners.take(1, OwnerKind::Open, b"4.0");
        assert!(owners.begin(counted, 1, asked(b""), true).is_ok());
        owners.tidy(plain, 10);
        assert_eq!(owners.count(), 2, "a request is about it");
        for owner in [plain, counted] {
            owners.leave(owner);
            owners.tidy(owner, 10);
        }
        assert_eq!(owners.known(1, OwnerKind::Open, b"4.1"), None);
        assert_eq!(owners.next_expired(100, 90), None);
        assert_eq!(owners.next_expired(101, 90), Some(counted));
        owners.take(2, OwnerKind::Lock, b"l");
        owners.forget_client(1);
        assert_eq!((owners.count(), owners.by_name.len()), (1, 1));
    }
}
