//! What clients hold: opens and share reservations, locks, delegations, and the grace period.

use std::collections::BTreeMap;

use crate::{
    Answer, Caller, Delegation, Error, Event, Handle, Holder, Lock, LockRange, Request, Share,
};

use super::world::World;

/// What a holder has a file open for, and denies to others.
#[derive(Clone, Copy)]
struct Opened {
    access: Share,
    deny: Share,
}

/// A file's opens.
#[derive(Default)]
pub(super) struct Opens(BTreeMap<Holder, Opened>);

/// What a client was given.
pub(super) struct Delegated {
    kind: Delegation,
    /// Whether the door was told to have it back.
    is_recalled: bool,
}

impl Opens {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a holder has it open for all of that.
    pub(super) fn has(&self, holder: Holder, share: Share) -> bool {
        let open = self.0.get(&holder);
        open.is_some_and(|open| open.access.contains(share))
    }

    /// Whether an open of somebody else is in the way.
    fn conflicts(&self, holder: Option<Holder>, access: Share, deny: Share) -> bool {
        let mut others = self.0.iter().filter(|(other, _)| holder != Some(**other));
        others.any(|(_, open)| open.deny.intersects(access) || open.access.intersects(deny))
    }

    /// Whether another client has it open for any of that.
    fn is_used(&self, client: u64, share: Share) -> bool {
        let mut others = self.0.iter().filter(|(other, _)| other.client != client);
        others.any(|(_, open)| open.access.intersects(share))
    }
}

impl World {
    /// The requests that hold something or give it up.
    pub(super) fn call_holds(
        &mut self,
        caller: &Caller,
        request: Request,
    ) -> Result<Answer, Error> {
        match request {
            Request::Open {
                file,
                holder,
                access,
                deny,
                reclaim,
            } => self.open(caller, file, holder, Opened { access, deny }, reclaim)?,
            Request::Downgrade {
                file,
                holder,
                access,
                deny,
            } => self.downgrade(file, holder, Opened { access, deny })?,
            Request::Lock {
                file,
                holder,
                lock,
                reclaim,
            } => self.lock(file, holder, lock, reclaim)?,
            Request::TestLock { file, holder, lock } => self.test_lock(file, holder, lock)?,
            Request::Unlock {
                file,
                holder,
                range,
            } => self.unlock(file, holder, range)?,
            Request::Delegate {
                file,
                client,
                kind,
                reclaim,
            } => self.delegate(file, client, kind, reclaim)?,
            Request::ReturnDelegation { file, client } => {
                let delegations = &mut self.object_mut(file)?.delegations;
                delegations.remove(&client).ok_or(Error::NotHeld)?;
            }
            Request::HasLocks { file, holder } => {
                let has = self.object(file)?.locks.has(holder);
                has.then_some(()).ok_or(Error::NotHeld)?;
            }
            Request::Forget { client } => self.forget(client),
            _ => return Err(Error::NotSupported),
        }
        Ok(Answer::Done)
    }

    fn open(
        &mut self,
        caller: &Caller,
        file: Handle,
        holder: Holder,
        wanted: Opened,
        reclaim: bool,
    ) -> Result<(), Error> {
        let Opened { access, deny } = wanted;
        self.object(file)?.bytes()?;
        if access.is_empty() {
            return Err(Error::Invalid);
        }
        let held = caller.holder;
        let caller = Caller {
            holder: Some(holder),
            ..caller.clone()
        };
        // Neither what this holder has open nor the open that the request came under is new.
        let judged =
            held.filter(|held| self.object(file).is_ok_and(|o| o.opens.has(*held, access)));
        if judged.is_none() {
            self.need_share(&caller, file, access)?;
        }
        self.need_period(reclaim)?;
        if self
            .object(file)?
            .opens
            .conflicts(Some(holder), access, deny)
        {
            return Err(Error::ShareDenied);
        }
        let writes = access.contains(Share::WRITE) || deny.contains(Share::READ);
        let kind = if writes {
            Delegation::Write
        } else {
            Delegation::Read
        };
        self.recall(&caller, file, kind)?;
        let opens = &mut self.object_mut(file)?.opens.0;
        let open = opens.entry(holder).or_insert(wanted);
        open.access |= access;
        open.deny |= deny;
        Ok(())
    }

    fn downgrade(&mut self, file: Handle, holder: Holder, to: Opened) -> Result<(), Error> {
        let object = self.object_mut(file)?;
        let open = object.opens.0.get_mut(&holder).ok_or(Error::NotHeld)?;
        let is_less = open.access.contains(to.access) && open.deny.contains(to.deny);
        if !is_less || to.access.is_empty() && !to.deny.is_empty() {
            return Err(Error::Invalid);
        }
        *open = to;
        if to.access.is_empty() {
            object.opens.0.remove(&holder);
            object.locks.release(|other| other == holder);
            self.reclaim(file);
        }
        Ok(())
    }

    fn lock(
        &mut self,
        file: Handle,
        holder: Holder,
        lock: Lock,
        reclaim: bool,
    ) -> Result<(), Error> {
        let last = self.last_byte(file, lock.range)?;
        self.need_period(reclaim)?;
        self.test_lock(file, holder, lock)?;
        let locks = &mut self.object_mut(file)?.locks;
        locks.lock(holder, lock.kind, lock.range.offset, last);
        Ok(())
    }

    fn test_lock(&self, file: Handle, holder: Holder, lock: Lock) -> Result<(), Error> {
        let last = self.last_byte(file, lock.range)?;
        let locks = &self.object(file)?.locks;
        match locks.conflict(holder, lock.kind, lock.range.offset, last) {
            Some(conflict) => Err(Error::Locked(conflict)),
            None => Ok(()),
        }
    }

    fn unlock(&mut self, file: Handle, holder: Holder, range: LockRange) -> Result<(), Error> {
        let last = self.last_byte(file, range)?;
        let locks = &mut self.object_mut(file)?.locks;
        locks.unlock(holder, range.offset, last);
        Ok(())
    }

    fn last_byte(&self, file: Handle, range: LockRange) -> Result<u64, Error> {
        self.object(file)?.bytes()?;
        range.last().ok_or(Error::Invalid)
    }

    fn delegate(
        &mut self,
        file: Handle,
        client: u64,
        kind: Delegation,
        reclaim: bool,
    ) -> Result<(), Error> {
        self.object(file)?.bytes()?;
        self.need_period(reclaim)?;
        let object = self.object_mut(file)?;
        let (uses, excludes_all) = match kind {
            Delegation::Read => (Share::WRITE, false),
            Delegation::Write => (Share::all(), true),
        };
        let mut others = object
            .delegations
            .iter()
            .filter(|(other, _)| **other != client);
        let is_delegated = others.any(|(_, other)| excludes_all || other.kind == Delegation::Write);
        if is_delegated || object.opens.is_used(client, uses) {
            return Err(Error::Delay);
        }
        let is_recalled = false;
        object
            .delegations
            .insert(client, Delegated { kind, is_recalled });
        Ok(())
    }

    fn forget(&mut self, client: u64) {
        for volume in self.volumes.values_mut() {
            for object in volume.objects.values_mut() {
                object.opens.0.retain(|holder, _| holder.client != client);
                object.locks.release(|holder| holder.client == client);
                object.delegations.remove(&client);
            }
        }
        self.reclaim_all();
    }

    pub(super) fn set_grace(&mut self, is_grace: bool) {
        self.is_grace = is_grace;
        self.reclaim_all();
    }

    /// New holds come outside of the grace period, old ones within.
    fn need_period(&self, reclaim: bool) -> Result<(), Error> {
        match (self.is_grace, reclaim) {
            (true, false) => Err(Error::Grace),
            (false, true) => Err(Error::NoGrace),
            _ => Ok(()),
        }
    }

    /// Refuses what the open of somebody else denies, or might before all opens were claimed again.
    pub(super) fn need_undenied(
        &self,
        caller: &Caller,
        file: Handle,
        share: Share,
    ) -> Result<(), Error> {
        let object = self.object(file)?;
        if object.opens.conflicts(caller.holder, share, Share::empty()) {
            return Err(Error::ShareDenied);
        }
        let is_claimed = caller.holder.is_some_and(|holder| {
            object.opens.has(holder, share) || object.delegations.contains_key(&holder.client)
        });
        match self.is_grace && !is_claimed {
            true => Err(Error::Grace),
            false => Ok(()),
        }
    }

    /// Has the delegations of other clients back that exclude an access of this kind, and refuses it
    /// until then. Of a kind other than a file nothing is delegated.
    pub(super) fn recall(
        &mut self,
        caller: &Caller,
        file: Handle,
        access: Delegation,
    ) -> Result<(), Error> {
        let client = caller.holder.map(|holder| holder.client);
        let object = self.object_mut(file)?;
        let mut events = Vec::new();
        let mut is_free = true;
        for (&other, delegated) in &mut object.delegations {
            let excludes = [delegated.kind, access].contains(&Delegation::Write);
            if client == Some(other) || !excludes {
                continue;
            }
            is_free = false;
            if !delegated.is_recalled {
                delegated.is_recalled = true;
                events.push(Event::Recall {
                    client: other,
                    file,
                    kind: delegated.kind,
                });
            }
        }
        self.events.extend(events);
        if is_free { Ok(()) } else { Err(Error::Delay) }
    }
}
