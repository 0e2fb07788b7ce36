//! Operations of NFSv4.0 that count in their owner's sequence: each is carried out once, however often
//! and over whatever connection it comes (RFC 7530, sections 9.1.7 to 9.1.11).

use std::rc::Rc;

use files::{Caller, Error, Handle, Holder, Request, Share};

use crate::server::compound::Compound;
use crate::server::owners::{Answered, InSequence, OwnerKind, OwnerUse, counts};
use crate::server::states::{Held, StateNum};
use crate::server::status;
use crate::server::turns::Turn;
use crate::wire::*;
use crate::xdr::{Encoder, to_bytes};

/// What an operation is in its owner's sequence.
pub(super) enum Counted<'a> {
    /// To be carried out; none: it has no sequence, or tells itself what is wrong with it.
    New(Option<Request0<'a>>),
    /// The last one again.
    Again(Rc<Answered>),
    /// Not to be carried out.
    Refused(Nfsstat4),
}

/// A request of an owner that is being carried out: the next one waits for its end. The turn ends
/// before the owner is left.
pub(super) struct Request0<'a> {
    _turn: Turn<'a>,
    owner: OwnerUse<'a>,
    seqid: u32,
    asked: [u8; 16],
    /// Of a LOCK by an owner that is new to the open: that one's number in its own sequence.
    lock_owner: Option<(OwnerUse<'a>, u32)>,
}

/// Stands for all files, in the turns of an owner: its sequence.
const SEQUENCE: [u8; 12] = [0; 12];

impl<'a> Compound<'a> {
    /// Finds an operation's place in its owner's sequence, and waits for its turn.
    pub(super) async fn count_in(&self, operation: &NfsArgop4<'_>) -> Counted<'a> {
        let Some((owner, seqid)) = self.sequence_of(operation) else {
            return Counted::New(None);
        };
        let turn = self
            .door
            .turns
            .take(owner.number, Handle::from_bytes(SEQUENCE))
            .await;
        let asked = self.door.handles.digest(&to_bytes(operation));
        let opens = matches!(operation, NfsArgop4::Open(_));
        let found = {
            let mut states = self.door.states.borrow_mut();
            states.owners.begin(owner.number, seqid, asked, opens)
        };
        match found {
            Ok(InSequence::Again(answered)) => return Counted::Again(answered),
            Ok(InSequence::Anew) => {
                if let Err(status) = self.drop_opens(owner.number).await {
                    return Counted::Refused(status);
                }
            }
            Ok(InSequence::New) => {}
            Err(status) => return Counted::Refused(status),
        }
        let lock_owner = match self.lock_owner_of(operation) {
            Ok(lock_owner) => lock_owner,
            Err(status) => return Counted::Refused(status),
        };
        Counted::New(Some(Request0 {
            _turn: turn,
            owner,
            seqid,
            asked,
            lock_owner,
        }))
    }

    /// In whose sequence an operation is, and its number there.
    fn sequence_of(&self, operation: &NfsArgop4<'_>) -> Option<(OwnerUse<'a>, u32)> {
        let door = self.door;
        let (stateid, seqid) = match operation {
            NfsArgop4::Open(of) => {
                let client = of.owner.clientid;
                door.renew_without_session(client).ok()?;
                let owner = door.owner(client, OwnerKind::Open, &of.owner.owner);
                return Some((owner, of.seqid));
            }
            NfsArgop4::OpenConfirm(of) => (&of.open_stateid, of.seqid),
            NfsArgop4::OpenDowngrade(of) => (&of.open_stateid, of.seqid),
            NfsArgop4::Close(of) => (&of.open_stateid, of.seqid),
            NfsArgop4::Locku(of) => (&of.lock_stateid, of.seqid),
            NfsArgop4::Lock(of) => match &of.locker {
                Locker4::OpenOwner(open) => (&open.open_stateid, open.open_seqid),
                Locker4::LockOwner(known) => (&known.lock_stateid, known.lock_seqid),
            },
            _ => return None,
        };
        let owner = door.states.borrow().owner_by(stateid)?;
        Some((door.owner_of(owner), seqid))
    }

    /// The lock-owner that a LOCK introduces, and the number that its sequence begins with.
    ///
    /// # Errors
    /// BAD_SEQID: it is known, and its next number is another one.
    fn lock_owner_of(
        &self,
        operation: &NfsArgop4<'_>,
    ) -> Result<Option<(OwnerUse<'a>, u32)>, Nfsstat4> {
        let NfsArgop4::Lock(of) = operation else {
            return Ok(None);
        };
        let Locker4::OpenOwner(open) = &of.locker else {
            return Ok(None);
        };
        let StateOwner4 { clientid, owner } = &open.lock_owner;
        let owner = self.door.owner(*clientid, OwnerKind::Lock, owner);
        let states = self.door.states.borrow();
        if !states.owners.is_next(owner.number, open.lock_seqid) {
            drop(states);
            return Err(Nfsstat4::NFS4ERR_BAD_SEQID);
        }
        drop(states);
        Ok(Some((owner, open.lock_seqid)))
    }

    /// An operation in a sequence was answered.
    pub(super) fn count_out(&self, request: Request0<'_>, status: Nfsstat4, result: &[u8]) {
        if !counts(status) {
            return;
        }
        let answered = Rc::new(Answered {
            status,
            bytes: result.to_vec(),
            current: self.current,
            stateid: self.current_stateid.clone(),
        });
        let (number, seqid) = (request.owner.number, request.seqid);
        let mut states = self.door.states.borrow_mut();
        states
            .owners
            .end(number, seqid, request.asked, Some(answered));
        if let Some((lock_owner, seqid)) = &request.lock_owner {
            let number = lock_owner.number;
            states.owners.end(number, *seqid, [0; 16], None);
        }
        drop(states);
        drop(request);
    }

    /// Answers an operation as it was answered before.
    pub(super) fn repeat(&mut self, answered: &Answered, out: &mut Encoder) -> Nfsstat4 {
        self.door.count(|counts| counts.repeats += 1);
        out.bytes(&answered.bytes);
        if answered.status == Nfsstat4::NFS4_OK {
            self.current = answered.current;
            self.current_stateid.clone_from(&answered.stateid);
        }
        answered.status
    }

    /// What an owner has opened and never confirmed is closed: it begins anew.
    async fn drop_opens(&self, owner: u64) -> Result<(), Nfsstat4> {
        let held: Vec<StateNum> = self.door.states.borrow().held_by(owner).collect();
        for num in held {
            let (file, client, stateid) = {
                let states = self.door.states.borrow();
                match states.get(num) {
                    Some(state) if matches!(state.held, Held::Open(_)) => {
                        (state.file, state.client, states.stateid(num))
                    }
                    _ => continue,
                }
            };
            let _turn = self.door.turns.take(owner, file).await;
            let request = Request::Downgrade {
                file,
                holder: Holder { client, owner },
                access: Share::empty(),
                deny: Share::empty(),
            };
            match self.door.fs.call(&Caller::ROOT, request).await {
                Ok(_) | Err(Error::NotHeld | Error::Stale) => {}
                Err(error) => return Err(status::of_error(error)),
            }
            let mut states = self.door.states.borrow_mut();
            if states.is_still(num, &stateid) {
                states.remove(num);
            }
        }
        Ok(())
    }
}
