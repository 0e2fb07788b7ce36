//! Delegations: given with an open, wanted back when others come (RFC 8881, sections 10.2 and 20.2).

use std::rc::Rc;
use std::time::Duration;

use files::{Caller, Delegation, Event, Handle, Request};

use crate::wire::{
    CbCompound4Args, CbCompound4Res, CbRecall4Args, CbSequence4Args, NfsCbArgop4, Nfsstat4,
    Sessionid4, Stateid4,
};
use crate::xdr::{Decoder, Opaque, to_bytes};

use super::Door;
use super::connection::Connection;
use super::handles::Place;
use super::states::{ClientId, Held};

/// How long a client has for the answer to a callback.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

impl Door {
    /// Whether a client can be told that a delegation is wanted back.
    pub(super) fn can_recall(&self, client: ClientId) -> bool {
        self.delegations && self.back_channel(client).is_some()
    }

    /// A session of a client with a connection for callbacks.
    fn back_channel(&self, client: ClientId) -> Option<(Sessionid4, Rc<Connection>)> {
        let clients = self.clients.borrow();
        let sessions = self.sessions.borrow();
        let mut of_client = clients.get(client)?.sessions.iter();
        of_client.find_map(|id| {
            let session = sessions.get(id)?;
            let connection = session
                .back
                .upgrade()
                .filter(|connection| connection.is_open())?;
            (!session.is_back_busy).then_some((*id, connection))
        })
    }

    /// Gives a client a delegation, if nobody is in the way.
    pub(super) async fn delegate(
        &self,
        client: ClientId,
        file: Handle,
        kind: Delegation,
        reclaim: bool,
    ) -> Option<Stateid4> {
        if self.states.borrow().delegation(client, file).is_some() {
            return None;
        }
        let request = Request::Delegate {
            file,
            client,
            kind,
            reclaim,
        };
        self.fs.call(&Caller::ROOT, request).await.ok()?;
        let mut states = self.states.borrow_mut();
        let held = Held::Delegation {
            kind,
            recalled_until_ms: None,
        };
        let num = states.add(client, file, held);
        self.count(|counts| counts.delegations += 1);
        Some(states.stateid(num))
    }

    /// Tells a client that a delegation is wanted back. If it cannot be told, or does not give it back
    /// within a lease, the delegation is taken away.
    async fn recall(&self, client: ClientId, file: Handle) {
        let stateid = {
            let mut states = self.states.borrow_mut();
            let Some(num) = states.delegation(client, file) else {
                // It has come back meanwhile.
                return;
            };
            let until_ms = self.now_ms() + self.lease_ms;
            if let Some(Held::Delegation {
                recalled_until_ms, ..
            }) = states.get_mut(num).map(|state| &mut state.held)
            {
                if recalled_until_ms.is_some() {
                    return;
                }
                *recalled_until_ms = Some(until_ms);
            }
            states.stateid(num)
        };
        self.count(|counts| counts.recalls += 1);
        if self.call_back(client, file, &stateid).await.is_some() {
            let deadline = self.core.now() + Duration::from_millis(self.lease_ms);
            while self.core.now() < deadline {
                if self.states.borrow().delegation(client, file).is_none() {
                    return;
                }
                self.core
                    .sleep(Duration::from_millis(self.lease_ms / 20 + 1))
                    .await;
            }
        }
        self.revoke(client, file).await;
    }

    /// Takes a delegation away.
    async fn revoke(&self, client: ClientId, file: Handle) {
        {
            let mut states = self.states.borrow_mut();
            let Some(num) = states.delegation(client, file) else {
                return;
            };
            if let Some(state) = states.get_mut(num) {
                state.is_revoked = true;
            }
        }
        if let Some(client) = self.clients.borrow_mut().get_mut(client) {
            client.is_revoked = true;
        }
        let request = Request::ReturnDelegation { file, client };
        if let Err(error) = self.fs.call(&Caller::ROOT, request).await {
            tracing::error!(%error, client, "a delegation could not be taken away");
        }
    }

    /// CB_SEQUENCE and CB_RECALL; none: the client did not take it.
    async fn call_back(&self, client: ClientId, file: Handle, stateid: &Stateid4) -> Option<()> {
        let (id, connection) = self.back_channel(client)?;
        let (program, sequence) = {
            let mut sessions = self.sessions.borrow_mut();
            let session = sessions.get_mut(&id)?;
            session.back_sequence = session.back_sequence.wrapping_add(1);
            session.is_back_busy = true;
            (session.record.callback_program, session.back_sequence)
        };
        let handle = self.handles.seal(Place::Object(file));
        let arguments = to_bytes(&CbCompound4Args {
            tag: Opaque(b""),
            minorversion: 1,
            callback_ident: 0,
            argarray: vec![
                NfsCbArgop4::CbSequence(CbSequence4Args {
                    csa_sessionid: id,
                    csa_sequenceid: sequence,
                    csa_slotid: 0,
                    csa_highest_slotid: 0,
                    csa_cachethis: false,
                    csa_referring_call_lists: Vec::new(),
                }),
                NfsCbArgop4::CbRecall(CbRecall4Args {
                    stateid: stateid.clone(),
                    truncate: false,
                    fh: Opaque(&handle),
                }),
            ],
        });
        let answer = self
            .core
            .timeout(ANSWER_WITHIN, connection.call(program, &arguments))
            .await;
        if let Some(session) = self.sessions.borrow_mut().get_mut(&id) {
            session.is_back_busy = false;
        }
        let answer = answer.ok()??;
        let result: CbCompound4Res<'_> = Decoder::new(&answer).take().ok()?;
        // A client that is busy gives it back in its own time.
        matches!(result.status, Nfsstat4::NFS4_OK | Nfsstat4::NFS4ERR_DELAY).then_some(())
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
