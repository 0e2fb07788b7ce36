//! One call: RPC, then a compound of 4.0, or of 4.1 and 4.2 with its slot.

use std::rc::Rc;

use crate::compound::CompoundArgs;
use crate::rpc::{self, AuthSys, Call, CallError, Credential, Message, Outcome, Reply};
use crate::wire::*;
use crate::xdr::{Decoder, Encoder};

use super::budget::Reserved;
use super::compound::{Compound, FAILED_LEN, OnSlot, User, put, put_failed};
use super::connection::Connection;
use super::sessions::{Kept, Mark, SEQUENCE_LEN, Turn};
use super::states::ClientId;
use super::{Door, RECORD_MAX};

/// Bytes of a record's marker.
const MARKER: usize = 4;

/// The highest minor version.
const MINOR_MAX: u32 = 2;

/// What follows a record.
pub(super) enum After<'a> {
    /// A call of the client's.
    Call(Call<'a>, Decoder<'a>),
    /// An answer to a call of the server's.
    Answer(Reply, Decoder<'a>),
    /// This is answered at once.
    Refuse(Reply),
}

/// What a record is.
///
/// # Errors
/// It is no message: the connection is of no use.
pub(super) fn message(record: &[u8]) -> Result<After<'_>, CallError> {
    let mut from = Decoder::new(record);
    match Message::take(&mut from) {
        Ok(Message::Call(call)) => Ok(After::Call(call, from)),
        Ok(Message::Reply(reply)) => Ok(After::Answer(reply, from)),
        Err(CallError::Version { xid, .. }) => Ok(After::Refuse(Reply {
            xid,
            outcome: Outcome::RpcMismatch { low: 2, high: 2 },
        })),
        Err(damaged) => Err(damaged),
    }
}

/// What a call was for, and how it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Called {
    /// That of its operations that says most.
    pub(super) operation: NfsOpnum4,
    pub(super) status: Nfsstat4,
}

impl Called {
    /// It had no operation.
    const NOTHING: Self = Self {
        operation: NfsOpnum4(0),
        status: Nfsstat4::NFS4_OK,
    };
}

/// Carries a call out; returns its answer as a record, and what it was for.
pub(super) async fn answer(
    door: &Door,
    connection: &Rc<Connection>,
    record: &[u8],
) -> (Vec<u8>, Called) {
    let mut out = Encoder::new(Vec::with_capacity(512));
    let marker = out.later();
    let mut called = Called::NOTHING;
    if let Ok(After::Call(call, from)) = message(record) {
        let size = record.len();
        called = carry_out(door, connection, &call, (from, size), &mut out).await;
    }
    let len = (out.size() - 4) as u32;
    out.fill_in(marker, len | 1 << 31);
    (out.into_bytes(), called)
}

async fn carry_out(
    door: &Door,
    connection: &Rc<Connection>,
    call: &Call<'_>,
    (from, request_size): (Decoder<'_>, usize),
    out: &mut Encoder,
) -> Called {
    let begin = out.size();
    let reply = |outcome| Reply {
        xid: call.xid,
        outcome,
    };
    let user = match Credential::of(&call.credential) {
        Ok(Credential::None) => None,
        Ok(Credential::Sys(user)) => Some(User::from(&user)),
        Err(refused) => {
            out.put(&reply(Outcome::AuthError(refused)));
            return Called::NOTHING;
        }
    };
    let outcome = match (call.program, call.version, call.procedure) {
        (program, _, _) if program != rpc::NFS_PROGRAM => Outcome::ProgramUnavailable,
        (_, version, _) if version != rpc::NFS_VERSION => Outcome::ProgramMismatch {
            low: rpc::NFS_VERSION,
            high: rpc::NFS_VERSION,
        },
        (_, _, rpc::PROC_NULL | rpc::PROC_COMPOUND) => Outcome::Success,
        _ => Outcome::ProcedureUnavailable,
    };
    out.put(&reply(outcome));
    if outcome != Outcome::Success || call.procedure == rpc::PROC_NULL {
        return Called::NOTHING;
    }
    let arguments = CompoundArgs::take(from);
    let Ok(mut arguments) = arguments else {
        out.truncate(begin);
        out.put(&reply(Outcome::GarbageArguments));
        return Called::NOTHING;
    };
    door.count(|counts| counts.compounds += 1);
    let compound = Compound {
        door,
        connection,
        user: user.as_ref(),
        minor: arguments.minor_version,
        current: None,
        saved: None,
        current_stateid: None,
        saved_stateid: None,
        client: None,
        on_slot: None,
        operation: 0,
        main: NfsOpnum4(0),
        operations: arguments.left(),
        request_size,
        size_max: 0,
        reserved: Reserved::new(&door.budget),
    };
    carry_out_compound(compound, &mut arguments, out).await
}

impl From<&AuthSys<'_>> for User {
    fn from(user: &AuthSys<'_>) -> Self {
        Self {
            uid: user.uid,
            gid: user.gid,
            groups: user.gids.to_vec(),
        }
    }
}

async fn carry_out_compound(
    mut compound: Compound<'_>,
    arguments: &mut CompoundArgs<'_>,
    out: &mut Encoder,
) -> Called {
    let status_later = out.later();
    out.put(&arguments.tag);
    let count_later = out.later();
    compound.size_max = out.size() + RECORD_MAX;
    let status = match compound.minor {
        0 => compound.run(arguments, out).await,
        1..=MINOR_MAX => in_session(&mut compound, arguments, out).await,
        _ => Nfsstat4::NFS4ERR_MINOR_VERS_MISMATCH,
    };
    let results = compound.operation;
    let counted = u64::from(results);
    compound.door.count(|counts| counts.operations += counted);
    out.fill_in(status_later, status.0);
    out.fill_in(count_later, results);
    Called {
        operation: compound.main,
        status,
    }
}

/// A compound of 4.1 or later: its first operation is SEQUENCE, or it is one that needs no session.
async fn in_session(
    compound: &mut Compound<'_>,
    arguments: &mut CompoundArgs<'_>,
    out: &mut Encoder,
) -> Nfsstat4 {
    let mut ahead = arguments.clone();
    let first = match ahead.next_operation() {
        None => return Nfsstat4::NFS4_OK,
        Some(Ok(first)) => first,
        // That is answered where it stands.
        Some(Err(_)) => return compound.run(arguments, out).await,
    };
    let NfsArgop4::Sequence(of) = first else {
        if !stands_alone(&first) {
            compound.operation = 1;
            let number = super::operations::number_of(&first);
            return put_failed(out, number, Nfsstat4::NFS4ERR_OP_NOT_IN_SESSION);
        }
        if compound.operations > 1 {
            compound.operation = 1;
            let number = super::operations::number_of(&first);
            return put_failed(out, number, Nfsstat4::NFS4ERR_NOT_ONLY_OP);
        }
        return compound.run(arguments, out).await;
    };
    *arguments = ahead;
    compound.operation = 1;
    let begin = out.size();
    match compound.begin(&of, begin) {
        Err(status) => put::<()>(out, NfsOpnum4::OP_SEQUENCE, Err(status)),
        Ok(Begun::Again(answer)) => {
            compound.door.count(|counts| counts.repeats += 1);
            compound.repeat_kept(&answer, out)
        }
        Ok(Begun::New(resok)) => {
            let door = compound.door;
            let _in_any_case = Busy { door, of: &of };
            let _alive = compound.client.map(|client| Alive::new(door, client));
            compound.main = NfsOpnum4::OP_SEQUENCE;
            put(out, NfsOpnum4::OP_SEQUENCE, Ok(resok));
            let second = arguments.clone();
            let status = compound.run(arguments, out).await;
            compound.end(&of, (status, second), begin, out);
            door.after_request(&of.sa_sessionid).await;
            status
        }
    }
}

/// Whether an operation needs no session (RFC 8881, section 2.10.2.1).
fn stands_alone(operation: &NfsArgop4<'_>) -> bool {
    matches!(
        operation,
        NfsArgop4::ExchangeId(_)
            | NfsArgop4::CreateSession(_)
            | NfsArgop4::BindConnToSession(_)
            | NfsArgop4::DestroySession(_)
            | NfsArgop4::DestroyClientid(_)
    )
}

/// A slot with a request on it: if that panics, or is given up, the slot is free all the same.
struct Busy<'a> {
    door: &'a Door,
    of: &'a Sequence4Args,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        // Whoever panics may have them borrowed: a second panic would end the process.
        if let Ok(mut sessions) = self.door.sessions.try_borrow_mut() {
            match sessions.get_mut(&self.of.sa_sessionid) {
                Some(session) => session.give_up(self.of.sa_slotid, self.of.sa_sequenceid),
                // Others of the session wait for no more than those that are left. What this one leaves is
                // found at the next start.
                None if std::thread::panicking() => drop(sessions.has_left(&self.of.sa_sessionid)),
                None => {}
            }
        }
    }
}

/// A request that is carried out: its client's lease begins anew when it has ended.
struct Alive<'a> {
    door: &'a Door,
    client: ClientId,
}

impl<'a> Alive<'a> {
    fn new(door: &'a Door, client: ClientId) -> Self {
        if let Some(client) = door.clients.borrow_mut().get_mut(client) {
            client.under_way += 1;
        }
        Self { door, client }
    }
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        // As above.
        if let Ok(mut clients) = self.door.clients.try_borrow_mut()
            && let Some(client) = clients.get_mut(self.client)
        {
            client.under_way -= 1;
            client.renewed_ms = self.door.now_ms();
        }
    }
}

/// What becomes of a SEQUENCE.
enum Begun {
    New(Sequence4Resok),
    Again(Kept),
}

/// An answer that is kept: status (4), results (4), their bytes.
fn kept(answer: &[u8]) -> (Nfsstat4, u32, &[u8]) {
    let mut from = Decoder::new(answer);
    let status = from.take().unwrap_or(Nfsstat4::NFS4ERR_SERVERFAULT);
    let results = from.take().unwrap_or(0);
    (status, results, from.rest())
}

impl Compound<'_> {
    /// SEQUENCE (RFC 8881, section 18.46).
    fn begin(&mut self, of: &Sequence4Args, begin: usize) -> Result<Begun, Nfsstat4> {
        let door = self.door;
        let mut sessions = door.sessions.borrow_mut();
        let session = sessions
            .get_mut(&of.sa_sessionid)
            .ok_or(Nfsstat4::NFS4ERR_BADSESSION)?;
        let limits = session.record.limits;
        let client = session.record.client;
        if of.sa_slotid >= limits.slots {
            return Err(Nfsstat4::NFS4ERR_BADSLOT);
        }
        if of.sa_highest_slotid >= limits.slots {
            return Err(Nfsstat4::NFS4ERR_BAD_HIGH_SLOT);
        }
        // None of these takes the slot's turn: the client sends something else with the same number.
        if self.operations > limits.operations_max {
            return Err(Nfsstat4::NFS4ERR_TOO_MANY_OPS);
        }
        if self.request_size > limits.request_max as usize {
            return Err(Nfsstat4::NFS4ERR_REQ_TOO_BIG);
        }
        let size = if of.sa_cachethis {
            limits.cached_max
        } else {
            limits.response_max
        };
        // The answer's record, without its marker (RFC 8881, section 18.36.3).
        let size_max = self.size_max.min(MARKER + size as usize);
        let after = if self.operations > 1 { FAILED_LEN } else { 0 };
        if begin + SEQUENCE_LEN + after > size_max {
            return Err(self.is_too_large(of.sa_cachethis));
        }
        door.renew(client).map_err(|status| match status {
            Nfsstat4::NFS4ERR_DELAY => status,
            _ => Nfsstat4::NFS4ERR_BADSESSION,
        })?;
        let mark = Mark {
            principal: self.user.map(|user| user.uid),
            operations: self.operations,
        };
        let turn = session.begin(of.sa_slotid, of.sa_sequenceid, mark)?;
        session.highest = of.sa_highest_slotid;
        session.minor = self.minor;
        // Without a connection for callbacks the client is told so, and binds one.
        let back_flags = session.back_flags();
        if let Turn::Again(answer) = turn {
            return Ok(Begun::Again(answer));
        }
        self.size_max = size_max;
        self.client = Some(client);
        self.on_slot = Some(OnSlot {
            session: of.sa_sessionid,
            slot: of.sa_slotid,
            sequence: of.sa_sequenceid,
            is_cached: of.sa_cachethis,
        });
        drop(sessions);
        let highest = limits.slots - 1;
        Ok(Begun::New(Sequence4Resok {
            sr_sessionid: of.sa_sessionid,
            sr_sequenceid: of.sa_sequenceid,
            sr_slotid: of.sa_slotid,
            sr_highest_slotid: highest,
            sr_target_highest_slotid: highest,
            sr_status_flags: door.status_flags(client) | back_flags,
        }))
    }

    /// Answers a request that comes again as it was answered before. What the client did not want kept is
    /// said to be so in the place of the second operation (RFC 8881, section 2.10.6.1.3).
    fn repeat_kept(&mut self, answer: &Kept, out: &mut Encoder) -> Nfsstat4 {
        match answer {
            Kept::Whole(answer) => {
                let (status, results, bytes) = kept(answer);
                self.operation = results;
                out.bytes(bytes);
                status
            }
            Kept::Sequence(sequence, second) => {
                out.bytes(sequence);
                let Some(second) = second else {
                    return Nfsstat4::NFS4_OK;
                };
                self.operation = 2;
                put_failed(out, *second, Nfsstat4::NFS4ERR_RETRY_UNCACHED_REP)
            }
            // A slot says so itself.
            Kept::Nothing => Nfsstat4::NFS4ERR_SERVERFAULT,
        }
    }

    /// The compound is answered; the answer is kept if the client wanted that, and what its SEQUENCE said
    /// in any case.
    fn end(
        &self,
        of: &Sequence4Args,
        (status, second): (Nfsstat4, CompoundArgs<'_>),
        begin: usize,
        out: &Encoder,
    ) {
        let mut sessions = self.door.sessions.borrow_mut();
        // It may have ended its own session.
        let Some(session) = sessions.get_mut(&of.sa_sessionid) else {
            return;
        };
        let results = &out.as_bytes()[begin..];
        let answer = if of.sa_cachethis {
            let mut answer = Vec::with_capacity(8 + results.len());
            answer.extend(status.0.to_be_bytes());
            answer.extend(self.operation.to_be_bytes());
            answer.extend(results);
            Kept::Whole(answer.into())
        } else {
            let sequence = results.first_chunk::<SEQUENCE_LEN>();
            sequence.map_or(Kept::Nothing, |sequence| {
                Kept::Sequence(*sequence, second.next_number())
            })
        };
        session.end(of.sa_slotid, answer);
    }
}

impl Door {
    /// What a client is told with every answer.
    fn status_flags(&self, client: u64) -> u32 {
        let clients = self.clients.borrow();
        let Some(client) = clients.get(client) else {
            return 0;
        };
        let mut flags = 0;
        // Until it says RECLAIM_COMPLETE, in the grace period or later (RFC 8881, section 18.46.3).
        if client.owes_complete && !self.is_of_this_start(client.record.id) {
            flags |= SEQ4_STATUS_RESTART_RECLAIM_NEEDED;
        }
        if client.is_revoked {
            flags |= SEQ4_STATUS_RECALLABLE_STATE_REVOKED;
        }
        flags
    }
}
