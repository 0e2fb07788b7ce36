//! LOCK, LOCKT, LOCKU, RELEASE_LOCKOWNER: byte-range locks.

use files::{Caller, Conflict, Error, Handle, Holder, Lock, LockKind, LockRange, Request, Share};

use crate::server::compound::Compound;
use crate::server::owners::{OwnerKind, OwnerUse};
use crate::server::states::{ClientId, Held, StateNum};
use crate::server::status;
use crate::wire::*;
use crate::xdr::{Encoder, Opaque};

/// Why a lock was not granted.
enum Refused {
    Status(Nfsstat4),
    Denied(Conflict),
}

impl From<Nfsstat4> for Refused {
    fn from(status: Nfsstat4) -> Self {
        Self::Status(status)
    }
}

impl Compound<'_> {
    /// LOCK (RFC 8881, section 18.10). Who has to wait asks again.
    pub(super) async fn lock(&mut self, of: &Lock4Args<'_>, out: &mut Encoder) -> Nfsstat4 {
        let result = self.locked(of).await;
        out.put(&NfsOpnum4::OP_LOCK);
        match result {
            Ok(stateid) => {
                self.current_stateid = Some(stateid.clone());
                out.put(&Lock4Res::Nfs4Ok(Lock4Resok {
                    lock_stateid: stateid,
                }));
                Nfsstat4::NFS4_OK
            }
            Err(Refused::Status(status)) => {
                out.put(&Lock4Res::Default(status));
                status
            }
            Err(Refused::Denied(conflict)) => {
                self.denied(conflict, |denied| {
                    out.put(&Lock4Res::Nfs4ErrDenied(denied));
                });
                Nfsstat4::NFS4ERR_DENIED
            }
        }
    }

    async fn locked(&mut self, of: &Lock4Args<'_>) -> Result<Stateid4, Refused> {
        let file = self.object_or(Nfsstat4::NFS4ERR_ISDIR)?;
        let lock = lock(of.locktype, of.offset, of.length)?;
        let client = self.lock_client(&of.locker)?;
        self.door.may_claim(client, of.reclaim).await?;
        let needs = match lock.kind {
            LockKind::Read => Share::READ,
            LockKind::Write => Share::WRITE,
        };
        let (_open, _lock, locker) = loop {
            let before = self.locker(&of.locker, (file, client), needs)?;
            let open = self.door.turns.take(before.open_owner, file).await;
            let lock = self.door.turns.take(before.owner.number, file).await;
            // The open may have been closed meanwhile, and another one be it that allows the lock.
            let locker = self.locker(&of.locker, (file, client), needs)?;
            if locker.open_owner == before.open_owner {
                break (open, lock, locker);
            }
        };
        if !locker.access.contains(needs) {
            return Err(Nfsstat4::NFS4ERR_OPENMODE.into());
        }
        self.may_hold(client, locker.owner.number, file)?;
        let holder = Holder {
            client,
            owner: locker.owner.number,
        };
        let request = Request::Lock {
            file,
            holder,
            lock,
            reclaim: of.reclaim,
        };
        self.ask_for_lock(file, &request).await?;
        self.door.still_there(client).await?;
        let mut states = self.door.states.borrow_mut();
        let known = states.of_owner(locker.owner.number, file);
        Ok(match known {
            Some(num) => {
                if let Some(Held::Lock { opens, .. }) =
                    states.get_mut(num).map(|state| &mut state.held)
                {
                    opens.insert(locker.open);
                }
                states.changed(num)
            }
            None => {
                let held = Held::Lock {
                    owner: locker.owner.number,
                    opens: [locker.open].into(),
                };
                let num = states.add(client, file, held);
                states.stateid(num)
            }
        })
    }

    /// Whose lock it is: in 4.0 the stateid says so, since there is no session.
    fn lock_client(&self, locker: &Locker4<'_>) -> Result<ClientId, Nfsstat4> {
        if let Some(client) = self.client {
            return Ok(client);
        }
        match locker {
            Locker4::OpenOwner(open) => {
                let client = open.lock_owner.clientid;
                self.door.renew_without_session(client)?;
                Ok(client)
            }
            Locker4::LockOwner(known) => self.door.client_of(&known.lock_stateid),
        }
    }

    /// Who locks, and the open that the lock comes under: of those of a lock-owner one that allows it.
    fn locker(
        &self,
        of: &Locker4<'_>,
        (file, client): (Handle, ClientId),
        needs: Share,
    ) -> Result<Locker<'_>, Nfsstat4> {
        let (num, new_owner) = match of {
            Locker4::OpenOwner(open) => (
                self.held(&open.open_stateid, file)?,
                Some(&open.lock_owner.owner),
            ),
            Locker4::LockOwner(known) => (self.held(&known.lock_stateid, file)?, None),
        };
        let states = self.door.states.borrow();
        let bad = Nfsstat4::NFS4ERR_BAD_STATEID;
        let state = states
            .get(num)
            .filter(|state| state.client == client)
            .ok_or(bad)?;
        let (open, known_owner) = match (&state.held, new_owner) {
            (Held::Open(_), Some(_)) => (num, None),
            (Held::Lock { owner, opens }, None) => {
                let allows = |num: &&StateNum| {
                    let held = states.get(**num).map(|state| &state.held);
                    matches!(held, Some(Held::Open(open)) if open.access.contains(needs))
                };
                let open = opens.iter().find(allows).or_else(|| opens.first());
                (*open.ok_or(bad)?, Some(*owner))
            }
            _ => return Err(bad),
        };
        let Some(Held::Open(opened)) = states.get(open).map(|state| &state.held) else {
            return Err(bad);
        };
        if !opened.is_confirmed {
            return Err(bad);
        }
        let (open_owner, access) = (opened.owner, opened.access);
        drop(states);
        let owner = match (known_owner, new_owner) {
            (Some(owner), _) => self.door.owner_of(owner),
            (None, Some(name)) => self.door.owner(client, OwnerKind::Lock, name),
            (None, None) => return Err(bad),
        };
        Ok(Locker {
            owner,
            open,
            open_owner,
            access,
        })
    }

    /// Asks for a lock; who is in the way and has lost its lease is forgotten.
    async fn ask_for_lock(&self, file: Handle, request: &Request) -> Result<(), Refused> {
        let caller = self.caller(file)?;
        loop {
            let refused = match self.door.fs.call(&caller, request.clone()).await {
                Ok(_) => return Ok(()),
                Err(refused) => refused,
            };
            let Error::Locked(conflict) = refused else {
                return Err(Refused::Status(self.of_error(refused)));
            };
            if !self.door.forget_lapsed(conflict.holder.client).await {
                return Err(Refused::Denied(conflict));
            }
        }
    }

    /// Says who is in the way.
    fn denied(&self, conflict: Conflict, put: impl FnOnce(Lock4Denied<'_>)) {
        let states = self.door.states.borrow();
        let Conflict { holder, lock } = conflict;
        let (client, name) = states
            .owners
            .name(holder.owner)
            .unwrap_or((holder.client, &[]));
        put(Lock4Denied {
            offset: lock.range.offset,
            length: lock.range.len.unwrap_or(u64::MAX),
            locktype: match lock.kind {
                LockKind::Read => NfsLockType4::READ_LT,
                LockKind::Write => NfsLockType4::WRITE_LT,
            },
            owner: StateOwner4 {
                clientid: client,
                owner: Opaque(name),
            },
        });
    }

    /// LOCKT (RFC 8881, section 18.11).
    pub(super) async fn lockt(&self, of: &Lockt4Args<'_>, out: &mut Encoder) -> Nfsstat4 {
        let result = self.lock_tested(of).await;
        out.put(&NfsOpnum4::OP_LOCKT);
        match result {
            Ok(()) => {
                out.put(&Lockt4Res::Nfs4Ok);
                Nfsstat4::NFS4_OK
            }
            Err(Refused::Status(status)) => {
                out.put(&Lockt4Res::Default(status));
                status
            }
            Err(Refused::Denied(conflict)) => {
                self.denied(conflict, |denied| {
                    out.put(&Lockt4Res::Nfs4ErrDenied(denied));
                });
                Nfsstat4::NFS4ERR_DENIED
            }
        }
    }

    async fn lock_tested(&self, of: &Lockt4Args<'_>) -> Result<(), Refused> {
        let file = self.object_or(Nfsstat4::NFS4ERR_ISDIR)?;
        let lock = lock(of.locktype, of.offset, of.length)?;
        let client = match self.client {
            Some(client) => client,
            None => {
                self.door.renew_without_session(of.owner.clientid)?;
                of.owner.clientid
            }
        };
        self.door.may_claim(client, false).await?;
        // An owner that has locked nothing is nobody's holder; 0 is no owner's number.
        let owner = {
            let states = self.door.states.borrow();
            let known = states
                .owners
                .known(client, OwnerKind::Lock, &of.owner.owner);
            known.unwrap_or(0)
        };
        let holder = Holder { client, owner };
        let request = Request::TestLock { file, holder, lock };
        self.ask_for_lock(file, &request).await
    }

    /// LOCKU (RFC 8881, section 18.12).
    pub(super) async fn locku(&mut self, of: &Locku4Args) -> Result<Stateid4, Nfsstat4> {
        let file = self.object_or(Nfsstat4::NFS4ERR_ISDIR)?;
        let range = lock(of.locktype, of.offset, of.length)?.range;
        let before = self.held(&of.lock_stateid, file)?;
        let owner = self.door.owner_of(self.lock_holder(before)?.owner);
        let _turn = self.door.turns.take(owner.number, file).await;
        // The file may have been closed meanwhile.
        let num = self.held(&of.lock_stateid, file)?;
        let holder = self.lock_holder(num)?;
        let held = self.door.states.borrow().stateid(num);
        let caller = self.caller(file)?;
        self.ask(
            &caller,
            Request::Unlock {
                file,
                holder,
                range,
            },
        )
        .await?;
        let stateid = {
            let mut states = self.door.states.borrow_mut();
            if !states.is_still(num, &held) {
                return Err(Nfsstat4::NFS4ERR_EXPIRED);
            }
            states.changed(num)
        };
        self.current_stateid = Some(stateid.clone());
        Ok(stateid)
    }

    fn lock_holder(&self, num: StateNum) -> Result<Holder, Nfsstat4> {
        let states = self.door.states.borrow();
        let state = states.get(num).ok_or(Nfsstat4::NFS4ERR_BAD_STATEID)?;
        match state.held {
            Held::Lock { owner, .. } => Ok(Holder {
                client: state.client,
                owner,
            }),
            _ => Err(Nfsstat4::NFS4ERR_BAD_STATEID),
        }
    }

    /// RELEASE_LOCKOWNER (RFC 7530, section 16.37): the owner's states go with it.
    pub(super) async fn release_lockowner(&self, of: &LockOwner4<'_>) -> Result<(), Nfsstat4> {
        self.door.renew_without_session(of.clientid)?;
        let known = {
            let states = self.door.states.borrow();
            states.owners.known(of.clientid, OwnerKind::Lock, &of.owner)
        };
        let Some(owner) = known.map(|number| self.door.owner_of(number)) else {
            return Ok(());
        };
        let held: Vec<StateNum> = self.door.states.borrow().held_by(owner.number).collect();
        for num in held {
            self.free_lock(num).await?;
        }
        let mut states = self.door.states.borrow_mut();
        if states.held_by(owner.number).next().is_none() {
            states.owners.forget_unused(owner.number);
        }
        Ok(())
    }

    /// A lock that locks no bytes is no more.
    ///
    /// # Errors
    /// LOCKS_HELD: it locks some.
    pub(super) async fn free_lock(&self, num: StateNum) -> Result<(), Nfsstat4> {
        let holder = self.lock_holder(num)?;
        let (file, stateid) = {
            let states = self.door.states.borrow();
            let state = states.get(num).ok_or(Nfsstat4::NFS4ERR_BAD_STATEID)?;
            (state.file, states.stateid(num))
        };
        let _owner = self.door.owner_of(holder.owner);
        let _turn = self.door.turns.take(holder.owner, file).await;
        let asked = Request::HasLocks { file, holder };
        match self.door.fs.call(&Caller::ROOT, asked).await {
            Ok(_) => return Err(Nfsstat4::NFS4ERR_LOCKS_HELD),
            // Of a file that is gone nothing is locked.
            Err(Error::NotHeld | Error::Stale) => {}
            Err(error) => return Err(status::of_error(error)),
        }
        let mut states = self.door.states.borrow_mut();
        // It may have gone meanwhile.
        if states.is_still(num, &stateid) {
            states.remove(num);
        }
        Ok(())
    }
}

/// Who locks.
struct Locker<'a> {
    owner: OwnerUse<'a>,
    open: StateNum,
    open_owner: u64,
    /// What the file was opened for.
    access: Share,
}

/// A lock as the protocol says it: who would wait is told at once that somebody is in the way.
fn lock(kind: NfsLockType4, offset: u64, length: u64) -> Result<Lock, Nfsstat4> {
    let kind = match kind {
        NfsLockType4::READ_LT | NfsLockType4::READW_LT => LockKind::Read,
        NfsLockType4::WRITE_LT | NfsLockType4::WRITEW_LT => LockKind::Write,
        _ => return Err(Nfsstat4::NFS4ERR_INVAL),
    };
    let range = LockRange {
        offset,
        len: (length != u64::MAX).then_some(length),
    };
    range.last().ok_or(Nfsstat4::NFS4ERR_INVAL)?;
    Ok(Lock { range, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_of_some_bytes_that_can_be() {
        let range =
            |offset, length| lock(NfsLockType4::READW_LT, offset, length).map(|l| l.range.last());
        assert_eq!(range(5, 1), Ok(Some(5)));
        assert_eq!(range(5, u64::MAX), Ok(Some(u64::MAX)));
        assert_eq!(range(5, 0), Err(Nfsstat4::NFS4ERR_INVAL));
        assert_eq!(range(u64::MAX, 2), Err(Nfsstat4::NFS4ERR_INVAL));
        let kind = lock(NfsLockType4(9), 0, 1);
        assert_eq!(kind, Err(Nfsstat4::NFS4ERR_INVAL));
    }
}
