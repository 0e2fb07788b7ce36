//! Delegations: given with an open, wanted back when others come (RFC 8881, sections 10.2 and 20.2).
//!
//! A session has one slot for callbacks. Recalls of one client take turns at it, and each is repeated
//! until the client has taken it or its lease would have run out.

use std::rc::Rc;
use std::time::Duration;

use files::{Caller, Delegation, Event, Handle, Request};
use rt::Instant;

use crate::wire::{
    CbCompound4Args, CbCompound4Res, CbRecall4Args, CbSequence4Args, NfsCbArgop4, NfsCbResop4,
    Nfsstat4, ReferringCallList4, Sessionid4, Stateid4,
};
use crate::xdr::{Decoder, Opaque, to_bytes};

use super::Door;
use super::handles::Place;
use super::sessions::BackTurn;
use super::states::{ClientId, Held, Referring, StateNum};

/// How long a client has for the answer to a callback, before it is called again.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A delegation that is wanted back.
struct Wanted {
    client: ClientId,
    file: Handle,
    stateid: Stateid4,
    /// The request whose answer gave it.
    referring: Option<Referring>,
}

impl Door {
    /// Whether a client can be told that a delegation is wanted back.
    pub(super) fn can_recall(&self, client: ClientId) -> bool {
        self.delegations && self.back_channel(client).is_some()
    }

    /// A session of a client with a connection for callbacks.
    fn back_channel(&self, client: ClientId) -> Option<Sessionid4> {
        let clients = self.clients.borrow();
        let sessions = self.sessions.borrow();
        let mut of_client = clients.get(client)?.sessions.iter();
        let id = of_client.find(|id| {
            let session = sessions.get(id);
            session.is_some_and(|session| session.back_connection().is_some())
        });
        id.copied()
    }

    /// Delegates a file to a client for reading, if nobody is in the way.
    pub(super) async fn delegate(
        &self,
        client: ClientId,
        file: Handle,
        reclaim: bool,
        referring: Option<Referring>,
    ) -> Option<Stateid4> {
        if !self.states.borrow_mut().begin_grant(client, file) {
            return None;
        }
        let request = Request::Delegate {
            file,
            client,
            kind: Delegation::Read,
            reclaim,
        };
        let granted = self.fs.call(&Caller::ROOT, request).await;
        let is_wanted = self.states.borrow_mut().end_grant(client, file);
        granted.ok()?;
        if is_wanted || self.clients.borrow().get(client).is_none() {
            // It was wanted back, or the client forgotten, before it was recorded: it is not given.
            self.give_back(client, file).await;
            return None;
        }
        let mut states = self.states.borrow_mut();
        let held = Held::Delegation {
            is_recalled: false,
            referring,
        };
        let num = states.add(client, file, held);
        self.count(|counts| counts.delegations += 1);
        Some(states.stateid(num))
    }

    async fn give_back(&self, client: ClientId, file: Handle) {
        let request = Request::ReturnDelegation { file, client };
        if let Err(error) = self.fs.call(&Caller::ROOT, request).await {
            tracing::error!(%error, client, "a delegation could not be taken away");
        }
    }

    /// What is to be recalled; none: it has come back, is being recalled, or is not given yet.
    fn wanted(&self, client: ClientId, file: Handle) -> Option<Wanted> {
        let mut states = self.states.borrow_mut();
        let Some(num) = states.delegation(client, file) else {
            states.wanted_in_grant(client, file);
            return None;
        };
        let Held::Delegation {
            is_recalled,
            referring,
        } = &mut states.get_mut(num)?.held
        else {
            return None;
        };
        if std::mem::replace(is_recalled, true) {
            return None;
        }
        let referring = referring.clone();
        Some(Wanted {
            client,
            file,
            stateid: states.stateid(num),
            referring,
        })
    }

    /// Where it is in the table, if the client still has it.
    fn still_has(&self, wanted: &Wanted) -> Option<StateNum> {
        let states = self.states.borrow();
        let num = states.delegation(wanted.client, wanted.file)?;
        (states.stateid(num).other == wanted.stateid.other).then_some(num)
    }

    /// Tells a client that a delegation is wanted back. If it cannot be told, or does not give it back
    /// within a lease, the delegation is taken away.
    async fn recall(&self, client: ClientId, file: Handle) {
        let Some(wanted) = self.wanted(client, file) else {
            return;
        };
        self.count(|counts| counts.recalls += 1);
        let deadline = self.core.now() + Duration::from_millis(self.lease_ms);
        let pause = Duration::from_millis(self.lease_ms / 20 + 1);
        let mut is_told = false;
        while self.still_has(&wanted).is_some() && self.core.now() < deadline {
            is_told = is_told || self.call_back(&wanted, deadline).await;
            if self.still_has(&wanted).is_some() {
                self.core.sleep(pause).await;
            }
        }
        self.revoke(&wanted).await;
    }

    /// Takes a delegation away that has not come back.
    async fn revoke(&self, wanted: &Wanted) {
        let Some(num) = self.still_has(wanted) else {
            return;
        };
        if let Some(state) = self.states.borrow_mut().get_mut(num) {
            state.is_revoked = true;
        }
        if let Some(client) = self.clients.borrow_mut().get_mut(wanted.client) {
            client.is_revoked = true;
        }
        self.give_back(wanted.client, wanted.file).await;
    }

    /// CB_SEQUENCE and CB_RECALL. Returns whether the client has taken it: if not, it is told again.
    async fn call_back(&self, wanted: &Wanted, deadline: Instant) -> bool {
        let Some(id) = self.back_channel(wanted.client) else {
            return false;
        };
        let slot = self
            .sessions
            .borrow()
            .get(&id)
            .map(|of| of.back_slot.clone());
        let Some(slot) = slot else {
            return false;
        };
        let left = deadline - self.core.now();
        let Ok(_turn) = self.core.timeout(left, slot.acquire()).await else {
            return false;
        };
        if let Some(BackTurn::Unanswered(_)) = self.back_turn(&id) {
            // Whether or not the client has seen that call, it has when this one is answered. The
            // next has another number, and so no answer to the one before is taken for its own.
            self.call_once(&id, None).await;
        }
        let Some(BackTurn::Next(_)) = self.back_turn(&id) else {
            return false;
        };
        let answered = self.call_once(&id, Some(wanted)).await;
        // A client that says DELAY has not begun to give it back. BADHANDLE and BAD_STATEID come from
        // one that has not seen the answer to its OPEN (RFC 8881, section 20.2.4), or has just given
        // the delegation back.
        answered == Some(Nfsstat4::NFS4_OK)
    }

    fn back_turn(&self, id: &Sessionid4) -> Option<BackTurn> {
        self.sessions.borrow().get(id).map(|of| of.back_turn)
    }

    /// A callback on a session's slot, which the caller has: CB_SEQUENCE, and CB_RECALL if something is
    /// wanted. Returns its status, or none without an answer.
    async fn call_once(&self, id: &Sessionid4, wanted: Option<&Wanted>) -> Option<Nfsstat4> {
        let (connection, record, sequence) = {
            let mut sessions = self.sessions.borrow_mut();
            let session = sessions.get_mut(id)?;
            let connection = session.back_connection()?;
            let (BackTurn::Next(sequence) | BackTurn::Unanswered(sequence)) = session.back_turn
            else {
                return None;
            };
            session.back_turn = BackTurn::Unanswered(sequence);
            (connection, session.record.clone(), sequence)
        };
        let arguments = self.arguments(id, sequence, wanted);
        let credential = record.callback_credential.credential()?;
        let program = record.callback_program;
        let call = connection.call(program, &credential, &arguments);
        let answer = self.core.timeout(ANSWER_WITHIN, call).await.ok()??;
        let result: CbCompound4Res<'_> = Decoder::new(&answer).take().ok()?;
        let at_slot = match result.resarray.first()? {
            NfsCbResop4::CbSequence(Ok(_)) => Nfsstat4::NFS4_OK,
            NfsCbResop4::CbSequence(Err(status)) => *status,
            _ => return None,
        };
        if let Some(session) = self.sessions.borrow_mut().get_mut(id) {
            session.back_turn = session.back_turn.after(at_slot);
        }
        Some(result.status)
    }

    fn arguments(&self, id: &Sessionid4, sequence: u32, wanted: Option<&Wanted>) -> Vec<u8> {
        let referring = wanted.and_then(|wanted| wanted.referring.clone());
        let handle = wanted.map(|wanted| self.handles.seal(Place::Object(wanted.file)));
        let mut argarray = vec![NfsCbArgop4::CbSequence(CbSequence4Args {
            csa_sessionid: *id,
            csa_sequenceid: sequence,
            csa_slotid: 0,
            csa_highest_slotid: 0,
            csa_cachethis: false,
            csa_referring_call_lists: referring
                .into_iter()
                .map(|(session, call)| ReferringCallList4 {
                    rcl_sessionid: session,
                    rcl_referring_calls: vec![call],
                })
                .collect(),
        })];
        if let (Some(wanted), Some(handle)) = (wanted, &handle) {
            argarray.push(NfsCbArgop4::CbRecall(CbRecall4Args {
                stateid: wanted.stateid.clone(),
                truncate: false,
                fh: Opaque(handle),
            }));
        }
        to_bytes(&CbCompound4Args {
            tag: Opaque(b""),
            minorversion: 1,
            callback_ident: 0,
            argarray,
        })
    }
}

/// Does what the file system tells of its own accord.
pub(super) async fn keep(door: Rc<Door>) {
    loop {
        match door.fs.event().await {
            Event::Recall { client, file, .. } => {
                let door = Rc::clone(&door);
                let core = door.core.clone();
                drop(core.spawn(async move { door.recall(client, file).await }));
            }
            other => tracing::warn!(?other, "an event that this door does not know"),
        }
    }
}
