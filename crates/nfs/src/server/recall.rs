//! Delegations: given with an open, wanted back when others come (RFC 8881, sections 10.2 and 20.2).
//! Who has a file delegated for writing is asked for its size and change when others want to know them.
//!
//! A session has one slot for callbacks. Recalls of one client take turns at it, and each is repeated
//! until the client has taken it or its lease would have run out.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use files::{Answer, Attributes, Caller, Delegation, Event, Handle, Request};
use rt::Instant;
use rt::sync::Notify;

use crate::wire::{
    Attribute, Bitmap4, CbCompound4Args, CbCompound4Res, CbGetattr4Args, CbRecall4Args,
    CbSequence4Args, FATTR4_CHANGE, FATTR4_SIZE, NfsCbArgop4, NfsCbResop4, Nfsstat4,
    ReferringCallList4, Sessionid4, Stateid4,
};
use crate::xdr::{Decoder, Opaque, to_bytes};

use super::connection::Connection;
use super::handles::Place;
use super::sessions::BackTurn;
use super::states::{ClientId, Held, Referring, StateNum};
use super::{Door, PAUSE};

/// How long a client has for the answer to a callback, before it is called again.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Files that the door itself wants back, and from whom.
#[derive(Default)]
pub(super) struct WantedBack {
    queue: RefCell<VecDeque<(ClientId, Handle)>>,
    has_more: Notify,
}

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
        let back_channel = self.back_channel(client);
        self.delegations && back_channel.is_some_and(|(_, is_silent)| !is_silent)
    }

    /// Whether a client may have one more delegation. New ones leave it half of what it may hold: for opens
    /// and locks, as nobody wants its delegations back for those.
    pub(super) fn may_delegate(&self, client: ClientId, reclaim: bool) -> bool {
        let max = if reclaim {
            self.states_max
        } else {
            self.states_max / 2
        };
        self.states.borrow().count_of(client) < max
    }

    /// A session of a client with a connection for callbacks, and whether the last one was not answered
    /// there: one that answers, if there is one.
    fn back_channel(&self, client: ClientId) -> Option<(Sessionid4, bool)> {
        let clients = self.clients.borrow();
        let sessions = self.sessions.borrow();
        let of_client = clients.get(client)?.sessions.iter();
        let channels = of_client.filter_map(|id| {
            let session = sessions.get(id)?;
            session.back_connection()?;
            Some((*id, session.is_silent))
        });
        channels.min_by_key(|(_, is_silent)| *is_silent)
    }

    /// Delegates a file to a client, if nobody is in the way.
    pub(super) async fn delegate(
        &self,
        client: ClientId,
        (file, kind): (Handle, Delegation),
        reclaim: bool,
        referring: Option<Referring>,
    ) -> Option<Stateid4> {
        if !self.states.borrow_mut().begin_grant(client, file) {
            return None;
        }
        let request = Request::Delegate {
            file,
            client,
            kind,
            reclaim,
        };
        let granted = self.fs.call(&Caller::ROOT, request).await;
        let attributes = match &granted {
            Ok(_) => self.attributes(file).await,
            Err(_) => None,
        };
        let is_there = self.clients.borrow().get(client).is_some();
        let is_wanted = self.states.borrow().is_wanted_in_grant(client, file);
        let attributes = attributes.filter(|_| is_there && !is_wanted);
        let Some(attributes) = attributes else {
            if granted.is_ok() {
                // It was wanted back, or the client forgotten, before it was recorded: it is not given.
                self.give_back(client, file).await;
            }
            self.states.borrow_mut().end_grant(client, file);
            return None;
        };
        let mut states = self.states.borrow_mut();
        states.end_grant(client, file);
        let held = Held::Delegation {
            kind,
            change: attributes.change,
            is_recalled: false,
            referring,
        };
        let num = states.add(client, file, held);
        self.count(|counts| counts.delegations += 1);
        Some(states.stateid(num))
    }

    /// A file's attributes, as far as the file system knows.
    async fn attributes(&self, file: Handle) -> Option<Attributes> {
        let request = Request::GetAttributes(file);
        match self.fs.call(&Caller::ROOT, request).await {
            Ok(Answer::Attributes(attributes)) => Some(attributes),
            _ => None,
        }
    }

    async fn give_back(&self, client: ClientId, file: Handle) {
        let request = Request::ReturnDelegation { file, client };
        self.have_undone(&request).await;
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
            ..
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
            client.record.is_marked = true;
        }
        let (client, file) = (wanted.client, wanted.file);
        self.states.borrow_mut().begin_revocation(client, file);
        // Before others get the file: a client that hears nothing of this must not reclaim the delegation
        // after a restart (RFC 8881, section 8.4.2.1).
        while let Err(error) = self.write_down(wanted.client).await {
            tracing::error!(%error, client = wanted.client, "a revocation waits to be written down");
            self.core.sleep(PAUSE).await;
        }
        self.give_back(client, file).await;
        self.states.borrow_mut().end_revocation(client, file);
    }

    /// Somebody else than the file system wants a file back.
    pub(super) fn want_back(&self, client: ClientId, file: Handle) {
        self.wanted_back
            .queue
            .borrow_mut()
            .push_back((client, file));
        self.wanted_back.has_more.notify_one();
    }

    /// The next file that is wanted back so.
    async fn next_wanted_back(&self) -> (ClientId, Handle) {
        loop {
            let next = self.wanted_back.queue.borrow_mut().pop_front();
            if let Some(next) = next {
                return next;
            }
            self.wanted_back.has_more.notified().await;
        }
    }

    /// CB_RECALL. Returns whether the client has taken it: if not, it is told again.
    async fn call_back(&self, wanted: &Wanted, deadline: Instant) -> bool {
        let handle = self.handles.seal(Place::Object(wanted.file));
        let recall = NfsCbArgop4::CbRecall(CbRecall4Args {
            stateid: wanted.stateid.clone(),
            truncate: false,
            fh: Opaque(&handle),
        });
        let call = (recall, wanted.referring.clone());
        let answered = self.call_in_turn(wanted.client, call, deadline).await;
        // A client that says DELAY has not begun to give it back. BADHANDLE and BAD_STATEID come from
        // one that has not seen the answer to its OPEN (RFC 8881, section 20.2.4), or has just given
        // the delegation back.
        answered.is_some_and(|answered| answered.status == Nfsstat4::NFS4_OK)
    }

    /// CB_GETATTR: change and size of a file that a client has delegated for writing, as it says (RFC
    /// 8881, section 20.1).
    pub(super) async fn ask_writer(&self, client: ClientId, file: Handle) -> Option<(u64, u64)> {
        let handle = self.handles.seal(Place::Object(file));
        let getattr = NfsCbArgop4::CbGetattr(CbGetattr4Args {
            fh: Opaque(&handle),
            attr_request: Bitmap4::of(&[FATTR4_CHANGE, FATTR4_SIZE]),
        });
        let deadline = self.core.now() + ANSWER_WITHIN;
        let referring = {
            let states = self.states.borrow();
            let num = states.delegation(client, file)?;
            match &states.get(num)?.held {
                Held::Delegation { referring, .. } => referring.clone(),
                _ => None,
            }
        };
        let call = (getattr, referring);
        let answered = self.call_in_turn(client, call, deadline).await?;
        answered.told
    }

    /// Calls a client back when it is this call's turn. None: it was not called, or has not answered.
    async fn call_in_turn(
        &self,
        client: ClientId,
        (operation, referring): (NfsCbArgop4<'_>, Option<Referring>),
        deadline: Instant,
    ) -> Option<CalledBack> {
        let (id, _) = self.back_channel(client)?;
        let slot = {
            let sessions = self.sessions.borrow();
            sessions.get(&id)?.back_slot.clone()
        };
        let left = deadline - self.core.now();
        let Ok(_turn) = self.core.timeout(left, slot.acquire()).await else {
            return None;
        };
        if let Some(BackTurn::Unanswered(_)) = self.back_turn(&id) {
            // Whether or not the client has seen that call, it has when this one is answered. The
            // next has another number, and so no answer to the one before is taken for its own.
            self.call_once(&id, Vec::new(), None).await;
        }
        let Some(BackTurn::Next(_)) = self.back_turn(&id) else {
            return None;
        };
        self.call_once(&id, vec![operation], referring).await
    }

    /// A callback was not answered. The client may have bound another connection meanwhile.
    fn was_silent(&self, id: &Sessionid4, connection: &Rc<Connection>) {
        if let Some(session) = self.sessions.borrow_mut().get_mut(id) {
            let is_its = session.back.ptr_eq(&Rc::downgrade(connection));
            session.is_silent |= is_its;
        }
    }

    fn back_turn(&self, id: &Sessionid4) -> Option<BackTurn> {
        self.sessions.borrow().get(id).map(|of| of.back_turn)
    }

    /// A callback on a session's slot, which the caller has: CB_SEQUENCE, and these operations behind it.
    /// None: it was not answered.
    async fn call_once(
        &self,
        id: &Sessionid4,
        operations: Vec<NfsCbArgop4<'_>>,
        referring: Option<Referring>,
    ) -> Option<CalledBack> {
        let (connection, record, minor, sequence) = {
            let mut sessions = self.sessions.borrow_mut();
            let session = sessions.get_mut(id)?;
            let connection = session.back_connection()?;
            let (BackTurn::Next(sequence) | BackTurn::Unanswered(sequence)) = session.back_turn
            else {
                return None;
            };
            session.back_turn = BackTurn::Unanswered(sequence);
            let record = session.record.clone();
            (connection, record, session.minor, sequence)
        };
        let arguments = arguments(id, minor, sequence, operations, referring);
        let credential = record.callback_credential.credential()?;
        let program = record.callback_program;
        let call = connection.call(program, &credential, &arguments);
        let answered = self.core.timeout(ANSWER_WITHIN, call).await;
        let answer = answered.ok().flatten();
        // One that makes no sense is none.
        let understood = answer.as_deref().and_then(at_slot);
        let Some((result, at_slot)) = understood else {
            self.was_silent(id, &connection);
            return None;
        };
        if let Some(session) = self.sessions.borrow_mut().get_mut(id) {
            session.is_silent = false;
            session.back_turn = session.back_turn.after(at_slot);
        }
        Some(CalledBack {
            status: result.status,
            told: result.resarray.get(1).and_then(told),
        })
    }
}

/// What was answered, and how its CB_SEQUENCE ended.
fn at_slot(answer: &[u8]) -> Option<(CbCompound4Res<'_>, Nfsstat4)> {
    let result: CbCompound4Res<'_> = Decoder::new(answer).take().ok()?;
    let status = match result.resarray.first()? {
        NfsCbResop4::CbSequence(Ok(_)) => Nfsstat4::NFS4_OK,
        NfsCbResop4::CbSequence(Err(status)) => *status,
        _ => return None,
    };
    Some((result, status))
}

/// The answer to a callback.
struct CalledBack {
    status: Nfsstat4,
    /// Change and size, if they were asked for.
    told: Option<(u64, u64)>,
}

/// Change and size that a client has told.
fn told(result: &NfsCbResop4<'_>) -> Option<(u64, u64)> {
    let NfsCbResop4::CbGetattr(Ok(of)) = result else {
        return None;
    };
    let (mut change, mut size) = (None, None);
    for attribute in of.obj_attributes.attributes() {
        match attribute.ok()? {
            Attribute::Change(told) => change = Some(told),
            Attribute::Size(told) => size = Some(told),
            _ => {}
        }
    }
    Some((change?, size?))
}

fn arguments(
    id: &Sessionid4,
    minor: u32,
    sequence: u32,
    operations: Vec<NfsCbArgop4<'_>>,
    referring: Option<Referring>,
) -> Vec<u8> {
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
    argarray.extend(operations);
    to_bytes(&CbCompound4Args {
        tag: Opaque(b""),
        minorversion: minor,
        callback_ident: 0,
        argarray,
    })
}

/// Does what the file system tells of its own accord.
pub(super) async fn keep(door: Rc<Door>) {
    loop {
        match door.fs.event().await {
            Event::Recall { client, file, .. } => begin(&door, client, file),
            other => tracing::warn!(?other, "an event that this door does not know"),
        }
    }
}

/// Has back what the door itself wants.
pub(super) async fn keep_own(door: Rc<Door>) {
    loop {
        let (client, file) = door.next_wanted_back().await;
        begin(&door, client, file);
    }
}

fn begin(door: &Rc<Door>, client: ClientId, file: Handle) {
    let of = Rc::clone(door);
    drop(
        door.core
            .spawn(async move { of.recall(client, file).await }),
    );
}
