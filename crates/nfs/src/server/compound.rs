//! A compound: operations one after the other, on a current and a saved file handle (RFC 8881,
//! section 16.2; RFC 7530, section 15.2).

use std::rc::Rc;

use files::{Answer, Caller, Delegation, Error, Handle, Holder, Name, Once, Request, Share};

use crate::compound::CompoundArgs;
use crate::wire::*;
use crate::xdr::{Encode, Encoder};

use super::budget::Reserved;
use super::connection::Connection;
use super::handles::Place;
use super::lengths::changed_len_max;
use super::operations::number_of;
use super::states::{CURRENT, ClientId, Held, Named, StateNum};
use super::{Door, measure, status};

/// The user on whose behalf a call is made, as AUTH_SYS says; none: AUTH_NONE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
}

/// Which slot a compound came on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OnSlot {
    pub(super) session: Sessionid4,
    pub(super) slot: u32,
    pub(super) sequence: u32,
    pub(super) is_cached: bool,
}

/// What a compound has come to.
pub(super) struct Compound<'a> {
    pub(super) door: &'a Door,
    pub(super) connection: &'a Rc<Connection>,
    pub(super) user: Option<&'a User>,
    pub(super) minor: u32,
    pub(super) current: Option<Place>,
    pub(super) saved: Option<Place>,
    pub(super) current_stateid: Option<Stateid4>,
    pub(super) saved_stateid: Option<Stateid4>,
    /// Whose session it came in.
    pub(super) client: Option<ClientId>,
    pub(super) on_slot: Option<OnSlot>,
    /// Which operation it is at, from 0.
    pub(super) operation: u32,
    /// The operation so far that says most of what it is for.
    pub(super) main: NfsOpnum4,
    /// How many there are.
    pub(super) operations: u32,
    /// Bytes of the request, RPC's header among them.
    pub(super) request_size: usize,
    /// Bytes that the encoder may hold at most.
    pub(super) size_max: usize,
    /// What large results have taken of the door's memory.
    pub(super) reserved: Reserved<'a>,
}

/// Puts a result in its place, and says how the operation ended.
pub(super) fn put<T: Encode>(
    out: &mut Encoder,
    operation: NfsOpnum4,
    result: Result<T, Nfsstat4>,
) -> Nfsstat4 {
    out.put(&operation);
    out.put(&result);
    result.err().unwrap_or(Nfsstat4::NFS4_OK)
}

/// Bytes of the longest result of an operation that has failed, if it was not carried out: that of
/// SETATTR.
pub(super) const FAILED_LEN: usize = 12;

/// Puts the result of an operation that has failed, whatever it is.
pub(super) fn put_failed(out: &mut Encoder, operation: NfsOpnum4, status: Nfsstat4) -> Nfsstat4 {
    put::<()>(out, operation, Err(status));
    // The only result that has something behind every status: which attributes were set.
    if operation == NfsOpnum4::OP_SETATTR {
        out.put(&Bitmap4::EMPTY);
    }
    status
}

/// A name as the protocol sends it.
pub(super) fn name(component: &Component4<'_>) -> Result<Name, Nfsstat4> {
    Name::new(component.to_vec()).map_err(status::of_name)
}

pub(super) const fn change(info: files::ChangeInfo) -> ChangeInfo4 {
    ChangeInfo4 {
        atomic: true,
        before: info.before,
        after: info.after,
    }
}

/// Which operation's result begins there.
pub(super) fn number_at(begin: usize, out: &Encoder) -> NfsOpnum4 {
    let mut number = [0; 4];
    number.copy_from_slice(&out.as_bytes()[begin..begin + 4]);
    NfsOpnum4(u32::from_be_bytes(number))
}

impl Compound<'_> {
    /// Carries out the operations that follow in the request, and puts their results: until one fails.
    pub(super) async fn run(&mut self, from: &mut CompoundArgs<'_>, out: &mut Encoder) -> Nfsstat4 {
        loop {
            let begin = out.size();
            let Some(status) = self.next(from, out).await else {
                return Nfsstat4::NFS4_OK;
            };
            let number = number_at(begin, out);
            if measure::weight(number) > measure::weight(self.main) {
                self.main = number;
            }
            if self.room_left(out).is_none() {
                out.truncate(begin);
                let status = self.refuse_large(number, out);
                self.operation += 1;
                return status;
            }
            self.operation += 1;
            if status != Nfsstat4::NFS4_OK {
                return status;
            }
        }
    }

    /// The result is more than the client takes: it is told so in its place.
    fn refuse_large(&self, number: NfsOpnum4, out: &mut Encoder) -> Nfsstat4 {
        let is_cached = self.on_slot.is_some_and(|on| on.is_cached);
        put_failed(out, number, self.is_too_large(is_cached))
    }

    /// What a client is told of an answer that is more than it takes, or wants to have kept.
    pub(super) const fn is_too_large(&self, is_cached: bool) -> Nfsstat4 {
        match (self.minor, is_cached) {
            (0, _) => Nfsstat4::NFS4ERR_RESOURCE,
            (_, true) => Nfsstat4::NFS4ERR_REP_TOO_BIG_TO_CACHE,
            _ => Nfsstat4::NFS4ERR_REP_TOO_BIG,
        }
    }

    /// One operation. One that changes something is carried out only if there is room to say so: its
    /// client would take it for failed.
    async fn next(&mut self, from: &mut CompoundArgs<'_>, out: &mut Encoder) -> Option<Nfsstat4> {
        let operation = match from.next_operation()? {
            Ok(operation) => operation,
            Err(bad) => return Some(put_failed(out, bad.operation, bad.status)),
        };
        let begin = out.size();
        let len_max = changed_len_max(&operation);
        if self.room_left(out).is_none_or(|room| room < len_max) {
            return Some(self.refuse_large(number_of(&operation), out));
        }
        let status = self.operate(operation, out).await;
        debug_assert!(
            len_max == 0 || status != Nfsstat4::NFS4_OK || out.size() - begin <= len_max,
            "{:?}: {} of {len_max}",
            number_at(begin, out),
            out.size() - begin
        );
        Some(status)
    }

    /// The current place.
    pub(super) fn place(&self) -> Result<Place, Nfsstat4> {
        self.current.ok_or(Nfsstat4::NFS4ERR_NOFILEHANDLE)
    }

    /// The current object; above the exports there is nothing that `otherwise` would not do.
    pub(super) fn object_or(&self, otherwise: Nfsstat4) -> Result<Handle, Nfsstat4> {
        match self.place()? {
            Place::Object(handle) => Ok(handle),
            Place::Pseudo(_) => Err(otherwise),
        }
    }

    /// The current object, to be changed.
    pub(super) fn object(&self) -> Result<Handle, Nfsstat4> {
        self.object_or(Nfsstat4::NFS4ERR_ROFS)
    }

    /// The saved object, to be changed.
    pub(super) fn saved_object(&self) -> Result<Handle, Nfsstat4> {
        match self.saved.ok_or(Nfsstat4::NFS4ERR_NOFILEHANDLE)? {
            Place::Object(handle) => Ok(handle),
            Place::Pseudo(_) => Err(Nfsstat4::NFS4ERR_ROFS),
        }
    }

    /// The current file handle is another one from now on, and the current stateid none.
    pub(super) fn go(&mut self, place: Place) {
        self.current = Some(place);
        self.current_stateid = None;
    }

    /// Who asks, for an object.
    pub(super) fn caller(&self, object: Handle) -> Result<Caller, Nfsstat4> {
        let export = self.door.exports.of(object.volume, self.connection.peer());
        let export = export.ok_or(Nfsstat4::NFS4ERR_ACCESS)?;
        let caller = match self.user {
            Some(user) => Caller {
                groups: user.groups.clone(),
                ..Caller::user(user.uid, user.gid)
            },
            None => Caller::user(export.anonymous.0, export.anonymous.1),
        };
        Ok(export.squash(caller))
    }

    /// Who asks for a change: one that is carried out once, however often it comes.
    pub(super) fn changer(&self, object: Handle) -> Result<Caller, Nfsstat4> {
        let mut caller = self.caller(object)?;
        let export = self.door.exports.of(object.volume, self.connection.peer());
        if export.is_some_and(|export| export.read_only) {
            return Err(Nfsstat4::NFS4ERR_ROFS);
        }
        // What a client changes is no reason to have its own delegations back.
        caller.holder = self.own_holder();
        caller.once = self.once();
        Ok(caller)
    }

    /// What names the operation for ever; none: it came on no slot.
    pub(super) fn once(&self) -> Option<Once> {
        self.on_slot.map(|on| Once {
            session: on.session,
            slot: on.slot,
            sequence: on.sequence,
            operation: self.operation,
        })
    }

    /// A client that asks for no owner in particular; none: no session says which.
    fn own_holder(&self) -> Option<Holder> {
        self.client.map(|client| Holder { client, owner: 0 })
    }

    /// Asks the file system.
    pub(super) async fn ask(&self, caller: &Caller, request: Request) -> Result<Answer, Nfsstat4> {
        let answer = self.door.fs.call(caller, request).await;
        answer.map_err(|error| self.of_error(error))
    }

    /// What an error of the file system is in the compound's version.
    pub(super) fn of_error(&self, error: Error) -> Nfsstat4 {
        status::of_error_in(self.minor, error)
    }

    /// A stateid of the request, the current one in its place.
    pub(super) fn stateid(&self, given: &Stateid4) -> Result<Stateid4, Nfsstat4> {
        if self.minor > 0 && *given == CURRENT {
            let current = self.current_stateid.as_ref();
            return current.cloned().ok_or(Nfsstat4::NFS4ERR_BAD_STATEID);
        }
        Ok(given.clone())
    }

    /// What a client holds by a stateid, of the current file.
    pub(super) fn held(&self, given: &Stateid4, file: Handle) -> Result<StateNum, Nfsstat4> {
        let stateid = self.stateid(given)?;
        let states = self.door.states.borrow();
        let Named::State(num) = states.find(&stateid, self.client)? else {
            return Err(Nfsstat4::NFS4ERR_BAD_STATEID);
        };
        let state = states.get(num).filter(|state| state.file == file);
        let state = state.ok_or(Nfsstat4::NFS4ERR_BAD_STATEID)?;
        self.heard_of(state.client)?;
        Ok(num)
    }

    /// A request of a client, which a stateid has named. Where no SEQUENCE has renewed its lease, each
    /// such request does (RFC 7530, section 9.5).
    fn heard_of(&self, client: ClientId) -> Result<(), Nfsstat4> {
        if self.client.is_some() {
            return Ok(());
        }
        let renewed = self.door.renew_without_session(client);
        renewed.map_err(|_| Nfsstat4::NFS4ERR_BAD_STATEID)
    }

    /// For whom bytes are read or written under a stateid: none for the special ones.
    ///
    /// # Errors
    /// OPENMODE: the file was not opened for that.
    pub(super) fn holder_for(
        &self,
        given: &Stateid4,
        file: Handle,
        access: Share,
    ) -> Result<Option<Holder>, Nfsstat4> {
        let stateid = self.stateid(given)?;
        let states = self.door.states.borrow();
        let num = match states.find(&stateid, self.client)? {
            Named::Anonymous | Named::Bypass => return Ok(self.own_holder()),
            Named::State(num) => num,
        };
        let state = states.get(num).filter(|state| state.file == file);
        let state = state.ok_or(Nfsstat4::NFS4ERR_BAD_STATEID)?;
        self.heard_of(state.client)?;
        let open = match &state.held {
            Held::Open(open) => Some(open),
            Held::Lock { opens, .. } => {
                let opens = opens
                    .iter()
                    .filter_map(|num| match &states.get(*num)?.held {
                        Held::Open(open) => Some(open),
                        _ => None,
                    });
                // The one that allows it, if there is one.
                let open = opens.max_by_key(|open| open.access.contains(access));
                Some(open.ok_or(Nfsstat4::NFS4ERR_BAD_STATEID)?)
            }
            Held::Delegation { kind, .. }
                if access == Share::WRITE && *kind == Delegation::Read =>
            {
                return Err(Nfsstat4::NFS4ERR_OPENMODE);
            }
            // What the client was allowed when it opened the file.
            Held::Delegation { .. } => states.open_for(state.client, file, access),
        };
        // Who has opened for writing may read: clients read the rest of a page that they write into.
        if open.is_some_and(|open| access == Share::WRITE && !open.access.contains(access)) {
            return Err(Nfsstat4::NFS4ERR_OPENMODE);
        }
        if open.is_some_and(|open| !open.is_confirmed) {
            return Err(Nfsstat4::NFS4ERR_BAD_STATEID);
        }
        let owner = open.map_or(0, |open| open.owner);
        Ok(Some(Holder {
            client: state.client,
            owner,
        }))
    }

    /// The client of the session, which operations on state are about.
    pub(super) fn client(&self) -> Result<ClientId, Nfsstat4> {
        self.client.ok_or(Nfsstat4::NFS4ERR_OP_NOT_IN_SESSION)
    }

    /// Whether an owner may get something of a file that it has nothing of.
    ///
    /// # Errors
    /// RESOURCE (4.0), DELAY: its client holds as much as it may.
    pub(super) fn may_hold(
        &self,
        client: ClientId,
        owner: u64,
        file: Handle,
    ) -> Result<(), Nfsstat4> {
        let is_new = self.door.states.borrow().of_owner(owner, file).is_none();
        if is_new {
            self.may_make(client)
        } else {
            Ok(())
        }
    }

    /// Whether a client may get something of a file that is not there yet. To be asked before it is made.
    ///
    /// # Errors
    /// As [`Self::may_hold`].
    pub(super) fn may_make(&self, client: ClientId) -> Result<(), Nfsstat4> {
        let is_full = self.door.states.borrow().count_of(client) >= self.door.states_max;
        match is_full {
            true if self.minor == 0 => Err(Nfsstat4::NFS4ERR_RESOURCE),
            true => Err(Nfsstat4::NFS4ERR_DELAY),
            false => Ok(()),
        }
    }

    /// Waits until the door has room for a large result.
    ///
    /// # Errors
    /// DELAY: others do not take theirs.
    pub(super) async fn reserve(&self, size: usize) -> Result<(), Nfsstat4> {
        let has_room = self.reserved.add(&self.door.core, size).await;
        has_room.then_some(()).ok_or(Nfsstat4::NFS4ERR_DELAY)
    }

    /// Bytes of a result that can still follow, if another operation's that fails is to follow it. None:
    /// that has no room any more.
    fn room_left(&self, out: &Encoder) -> Option<usize> {
        let is_last = self.operation + 1 >= self.operations;
        let after = if is_last { 0 } else { FAILED_LEN };
        self.size_max.checked_sub(out.size() + after)
    }

    /// Bytes of a result that can still follow.
    pub(super) fn room(&self, out: &Encoder) -> usize {
        self.room_left(out).unwrap_or(0)
    }
}
