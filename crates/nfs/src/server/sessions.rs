//! Sessions: slots that make every request's answer come exactly once (RFC 8881, section 2.10).
//!
//! A session's row, under `session/` and its identity (16), numbers little-endian:
//!
//! ```text
//!  0         1       4        12            16             20              24
//!  | version | zeros | client | request max | response max | cached max    |
//!  24               28      32                 36           37
//!  | operations max | slots | callback program | flavor (1) | authsys_parms of callbacks |
//! ```
//! The flavor is that of callbacks' credentials: 0 none allowed, 1 AUTH_NONE, 2 AUTH_SYS, whose body
//! follows as the client gave it (RFC 5531, appendix A).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use crate::rpc::{AuthSys, Credential};
use rt::sync::Semaphore;

use crate::wire::{
    CallbackSecParms4, ChannelAttrs4, NfsOpnum4, Nfsstat4, SEQ4_STATUS_BACKCHANNEL_FAULT,
    SEQ4_STATUS_CB_PATH_DOWN_SESSION, Sessionid4,
};
use crate::xdr::{Decoder, to_bytes};

use super::clients::Principal;
use super::connection::Connection;
use super::states::ClientId;

/// Where rows of sessions begin.
pub(super) const ROWS: &[u8] = b"session/";

const VERSION: u8 = 2;
const ROW_LEN_MIN: usize = 37;

/// What a session's channels carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Bytes of a request at most.
    pub(super) request_max: u32,
    /// Bytes of an answer at most.
    pub(super) response_max: u32,
    /// Bytes of an answer that is kept, at most.
    pub(super) cached_max: u32,
    /// Operations of a compound at most.
    pub(super) operations_max: u32,
    /// Requests at a time.
    pub(super) slots: u32,
}

/// What the server takes at most.
const MOST: Limits = Limits {
    request_max: super::RECORD_MAX as u32,
    response_max: super::RECORD_MAX as u32,
    cached_max: 16 << 10,
    operations_max: 64,
    slots: 64,
};

/// Bytes of an answer that is kept where memory for those is short: enough for an OPEN and what usually
/// stands beside it.
const CACHED_LEAST: u32 = 2048;

/// Below this no compound of any use goes through.
const REQUEST_LEAST: u32 = 512;

impl Limits {
    /// What both sides agree on.
    ///
    /// # Errors
    /// TOOSMALL: the client's own are of no use.
    pub(super) fn agree(asked: &ChannelAttrs4) -> Result<Self, Nfsstat4> {
        let least = asked.ca_maxrequestsize.min(asked.ca_maxresponsesize);
        if least < REQUEST_LEAST || asked.ca_maxoperations < 2 {
            return Err(Nfsstat4::NFS4ERR_TOOSMALL);
        }
        if asked.ca_maxrequests == 0 {
            return Err(Nfsstat4::NFS4ERR_INVAL);
        }
        Ok(Self {
            request_max: asked.ca_maxrequestsize.min(MOST.request_max),
            response_max: asked.ca_maxresponsesize.min(MOST.response_max),
            cached_max: asked.ca_maxresponsesize_cached.min(MOST.cached_max),
            operations_max: asked.ca_maxoperations.min(MOST.operations_max),
            slots: asked.ca_maxrequests.min(MOST.slots),
        })
    }

    /// A third of the memory that is left for answers that are kept, at most: first with fewer slots, then
    /// with shorter answers.
    pub(super) fn within(mut self, left: usize) -> Self {
        let share = left / 3;
        if self.kept_max() > share {
            let slots = u32::try_from(share / self.cached_max as usize).unwrap_or(u32::MAX);
            self.slots = self.slots.min(slots.max(1));
        }
        if self.kept_max() > share {
            self.cached_max = self.cached_max.min(CACHED_LEAST);
        }
        self
    }

    /// Bytes of answers that are kept, at most.
    const fn kept_max(&self) -> usize {
        self.slots as usize * self.cached_max as usize
    }

    /// As the client is told.
    pub(super) fn to_wire(self) -> ChannelAttrs4 {
        ChannelAttrs4 {
            ca_headerpadsize: 0,
            ca_maxrequestsize: self.request_max,
            ca_maxresponsesize: self.response_max,
            ca_maxresponsesize_cached: self.cached_max,
            ca_maxoperations: self.operations_max,
            ca_maxrequests: self.slots,
            ca_rdma_ird: None,
        }
    }
}

/// What a session may keep of answers, taken of the memory that there is for those until it is dropped.
pub(super) struct Keeps {
    all: Rc<Cell<usize>>,
    size: usize,
}

impl Drop for Keeps {
    fn drop(&mut self) {
        self.all.set(self.all.get() - self.size);
    }
}

/// What is kept of a session for a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: Sessionid4,
    pub(super) client: ClientId,
    pub(super) limits: Limits,
    pub(super) callback_program: u32,
    pub(super) callback_credential: CallbackCredential,
}

/// Whom the server says that it is when it calls a client back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallbackCredential {
    /// The client takes nothing that is served: it is not called.
    Impossible,
    /// AUTH_NONE.
    None,
    /// AUTH_SYS with this body, as the client asked for.
    Sys(Vec<u8>),
}

impl CallbackCredential {
    /// The first that is served of those a client takes (RFC 8881, section 18.36.3).
    pub(super) fn choose(of: &[CallbackSecParms4<'_>]) -> Self {
        let served = of.iter().find_map(|parms| match parms {
            CallbackSecParms4::AuthNone => Some(Self::None),
            CallbackSecParms4::AuthSys(user) => Some(Self::Sys(to_bytes(user))),
            CallbackSecParms4::RpcsecGss(_) => None,
        });
        served.unwrap_or(Self::Impossible)
    }

    /// None: there is no credential that the client takes.
    pub(super) fn credential(&self) -> Option<Credential<'_>> {
        match self {
            Self::Impossible => None,
            Self::None => Some(Credential::None),
            Self::Sys(body) => Decoder::new(body).take().ok().map(Credential::Sys),
        }
    }
}

impl Record {
    pub(super) fn key(id: &Sessionid4) -> Vec<u8> {
        [ROWS, id].concat()
    }

    pub(super) fn to_row(&self) -> Vec<u8> {
        let mut row = vec![VERSION, 0, 0, 0];
        row.extend(self.client.to_le_bytes());
        let limits = &self.limits;
        for number in [
            limits.request_max,
            limits.response_max,
            limits.cached_max,
            limits.operations_max,
            limits.slots,
            self.callback_program,
        ] {
            row.extend(number.to_le_bytes());
        }
        let (flavor, body) = match &self.callback_credential {
            CallbackCredential::Impossible => (0, &[][..]),
            CallbackCredential::None => (1, &[][..]),
            CallbackCredential::Sys(body) => (2, body.as_slice()),
        };
        row.push(flavor);
        debug_assert_eq!(row.len(), ROW_LEN_MIN);
        row.extend(body);
        row
    }

    /// None: no row of a session of this version.
    pub(super) fn from_row(key: &[u8], row: &[u8]) -> Option<Self> {
        let id = key.strip_prefix(ROWS)?.try_into().ok()?;
        let (row, body) = row.split_first_chunk::<ROW_LEN_MIN>()?;
        if row[..4] != [VERSION, 0, 0, 0] {
            return None;
        }
        let callback_credential = match (row[ROW_LEN_MIN - 1], body) {
            (0, []) => CallbackCredential::Impossible,
            (1, []) => CallbackCredential::None,
            (2, body) => {
                let mut from = Decoder::new(body);
                from.take::<AuthSys<'_>>().ok()?;
                from.end().ok()?;
                CallbackCredential::Sys(body.to_vec())
            }
            _ => return None,
        };
        let number = |at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&row[at..at + 4]);
            u32::from_le_bytes(bytes)
        };
        let limits = Limits {
            request_max: number(12),
            response_max: number(16),
            cached_max: number(20),
            operations_max: number(24),
            slots: number(28),
        };
        if limits.slots == 0 || limits.slots > MOST.slots {
            return None;
        }
        Some(Self {
            id,
            client: u64::from(number(4)) | u64::from(number(8)) << 32,
            limits,
            callback_program: number(32),
            callback_credential,
        })
    }
}

/// A place for one request at a time.
#[derive(Debug, Default)]
struct Slot {
    /// The sequence number of the last request; none: there was none since the restart, and any can be
    /// the first.
    sequence: Option<u32>,
    is_busy: bool,
    /// What shows that another request is no repeat of it.
    mark: Mark,
    /// What was answered to it.
    answer: Kept,
}

/// What is told of a request that comes again, without keeping it: whose it was, and how many operations
/// it had (RFC 8881, section 2.10.6.1.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) principal: Principal,
    pub(super) operations: u32,
}

/// Bytes of the result of a SEQUENCE that has succeeded.
pub(super) const SEQUENCE_LEN: usize = 44;

/// What is kept of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Kept {
    /// Nothing: the request was given up.
    #[default]
    Nothing,
    /// That of its SEQUENCE; and which operation came behind that, if there was one. The client did not
    /// ask for more.
    Sequence([u8; SEQUENCE_LEN], Option<NfsOpnum4>),
    /// All of it.
    Whole(Rc<[u8]>),
}

/// What a SEQUENCE finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// A new request.
    New,
    /// The last one again: this is kept of its answer.
    Again(Kept),
}

/// A session.
pub(super) struct Session {
    pub(super) record: Record,
    slots: Vec<Slot>,
    /// The highest slot that the client has used lately.
    pub(super) highest: u32,
    /// The minor version that its client speaks, in which it is called back too: Linux knows no session of another.
    pub(super) minor: u32,
    /// Over which callbacks go.
    pub(super) back: Weak<Connection>,
    /// The one slot of callbacks: who calls has it.
    pub(super) back_slot: Semaphore,
    /// What that slot is at.
    pub(super) back_turn: BackTurn,
    /// The last callback was not answered, though its connection may look open.
    pub(super) is_silent: bool,
    _keeps: Keeps,
}

/// What a client's slot of callbacks is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackTurn {
    /// The next callback has this number.
    Next(u32),
    /// The callback of this number was not answered: whether the client has seen it is open.
    Unanswered(u32),
    /// The two sides do not agree. Nothing mends that but a new session.
    Broken,
}

impl BackTurn {
    /// CB_SEQUENCE was answered like this. An error leaves the client's slot as it was (RFC 8881,
    /// section 20.9.3).
    pub(super) fn after(self, status: Nfsstat4) -> Self {
        let (Self::Next(number) | Self::Unanswered(number)) = self else {
            return self;
        };
        match status {
            Nfsstat4::NFS4_OK
            // The client has seen this number before.
            | Nfsstat4::NFS4ERR_RETRY_UNCACHED_REP
            | Nfsstat4::NFS4ERR_SEQ_FALSE_RETRY => Self::Next(number.wrapping_add(1)),
            // It may be busy with this number, or not have begun.
            Nfsstat4::NFS4ERR_DELAY => Self::Unanswered(number),
            _ => Self::Broken,
        }
    }
}

impl Session {
    /// A new session's slots begin with sequence number 1; one of before a restart with any.
    pub(super) fn new(record: Record, keeps: Keeps, is_restored: bool) -> Self {
        let slot = || Slot {
            sequence: (!is_restored).then_some(0),
            ..Slot::default()
        };
        let slots = (0..record.limits.slots).map(|_| slot()).collect();
        Self {
            record,
            slots,
            highest: 0,
            // A session of before a restart says it with its first request.
            minor: 1,
            back: Weak::new(),
            back_slot: Semaphore::new(1),
            // How far a session of before a restart had come, the client alone knows.
            back_turn: if is_restored {
                BackTurn::Broken
            } else {
                BackTurn::Next(1)
            },
            is_silent: false,
            _keeps: keeps,
        }
    }

    /// The connection that callbacks go over, if there can be any.
    pub(super) fn back_connection(&self) -> Option<Rc<Connection>> {
        let credential = &self.record.callback_credential;
        if self.back_turn == BackTurn::Broken || *credential == CallbackCredential::Impossible {
            return None;
        }
        self.back
            .upgrade()
            .filter(|connection| connection.is_open())
    }

    /// What SEQUENCE says of the session's way back (RFC 8881, section 18.46.3).
    pub(super) fn back_flags(&self) -> u32 {
        let can_be = self.record.callback_credential != CallbackCredential::Impossible;
        match self.back_turn {
            BackTurn::Broken if can_be => SEQ4_STATUS_BACKCHANNEL_FAULT,
            // The client binds another connection, unless this one is heard of again.
            _ if self.is_silent || self.back_connection().is_none() => {
                SEQ4_STATUS_CB_PATH_DOWN_SESSION
            }
            _ => 0,
        }
    }

    /// A request comes on a slot.
    ///
    /// # Errors
    /// BADSLOT; SEQ_MISORDERED; DELAY: it is being carried out; SEQ_FALSE_RETRY: it is another one than
    /// that which had this number; RETRY_UNCACHED_REP: that was given up.
    pub(super) fn begin(&mut self, slot: u32, sequence: u32, mark: Mark) -> Result<Turn, Nfsstat4> {
        let place = self
            .slots
            .get_mut(slot as usize)
            .ok_or(Nfsstat4::NFS4ERR_BADSLOT)?;
        let is_next = place
            .sequence
            .is_none_or(|last| sequence == last.wrapping_add(1));
        let is_last = place.sequence == Some(sequence);
        if place.is_busy {
            let delay = Nfsstat4::NFS4ERR_DELAY;
            return Err(if is_last {
                delay
            } else {
                Nfsstat4::NFS4ERR_SEQ_MISORDERED
            });
        }
        if is_next {
            *place = Slot {
                sequence: Some(sequence),
                is_busy: true,
                mark,
                answer: Kept::Nothing,
            };
            return Ok(Turn::New);
        }
        if !is_last {
            return Err(Nfsstat4::NFS4ERR_SEQ_MISORDERED);
        }
        match &place.answer {
            // Of a slot that was never used there is nothing to repeat.
            Kept::Nothing if sequence == 0 => Err(Nfsstat4::NFS4ERR_SEQ_MISORDERED),
            Kept::Nothing => Err(Nfsstat4::NFS4ERR_RETRY_UNCACHED_REP),
            _ if place.mark != mark => Err(Nfsstat4::NFS4ERR_SEQ_FALSE_RETRY),
            kept => Ok(Turn::Again(kept.clone())),
        }
    }

    /// The request of a slot has been answered.
    pub(super) fn end(&mut self, slot: u32, answer: Kept) {
        if let Some(place) = self.slots.get_mut(slot as usize) {
            place.is_busy = false;
            place.answer = answer;
        }
    }

    /// Nothing will be answered to this request, if nothing was yet.
    pub(super) fn give_up(&mut self, slot: u32, sequence: u32) {
        let place = self.slots.get(slot as usize);
        if place.is_some_and(|place| place.is_busy && place.sequence == Some(sequence)) {
            self.end(slot, Kept::Nothing);
        }
    }

    /// How many requests are being carried out.
    fn busy(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_busy).count()
    }

    /// Whether a request other than that of this slot is being carried out.
    pub(super) fn is_busy_but(&self, slot: Option<u32>) -> bool {
        let numbered = self.slots.iter().zip(0u32..);
        let mut others = numbered.filter(|(_, at)| Some(*at) != slot);
        others.any(|(slot, _)| slot.is_busy)
    }
}

/// All sessions.
#[derive(Default)]
pub(super) struct Sessions {
    by_id: BTreeMap<Sessionid4, Session>,
    next: u32,
    /// How many requests are being carried out on those that are no more: what is kept of them is
    /// removed after the last one, which may have added to it.
    ending: BTreeMap<Sessionid4, usize>,
    /// Bytes of answers that all of them may keep.
    kept: Rc<Cell<usize>>,
}

impl Sessions {
    /// An identity that was never used before: the client's number, the server's instance, a counter.
    pub(super) fn fresh_id(&mut self, client: ClientId, instance: u32) -> Sessionid4 {
        self.next += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&client.to_be_bytes());
        id[8..12].copy_from_slice(&instance.to_be_bytes());
        id[12..].copy_from_slice(&self.next.to_be_bytes());
        id
    }

    pub(super) fn add(&mut self, session: Session) {
        self.by_id.insert(session.record.id, session);
    }

    pub(super) fn get(&self, id: &Sessionid4) -> Option<&Session> {
        self.by_id.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &Sessionid4) -> Option<&mut Session> {
        self.by_id.get_mut(id)
    }

    /// A session is no more. Returns whether requests are being carried out on it: then the last one of
    /// them ends what is kept of it.
    pub(super) fn end(&mut self, id: &Sessionid4) -> bool {
        let session = self.by_id.remove(id);
        let busy = session.map_or(0, |session| session.busy());
        if busy > 0 {
            self.ending.insert(*id, busy);
        }
        busy > 0
    }

    /// A request has ended. Returns whether it was the last one on a session that is no more.
    pub(super) fn has_left(&mut self, id: &Sessionid4) -> bool {
        let Some(busy) = self.ending.get_mut(id) else {
            return false;
        };
        *busy -= 1;
        let is_last = *busy == 0;
        if is_last {
            self.ending.remove(id);
        }
        is_last
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Bytes of answers that all of them may keep.
    pub(super) fn kept_max(&self) -> usize {
        self.kept.get()
    }

    /// Takes what a session may keep.
    pub(super) fn keep(&self, limits: &Limits) -> Keeps {
        let size = limits.kept_max();
        self.kept.set(self.kept.get() + size);
        Keeps {
            all: Rc::clone(&self.kept),
            size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(slots: u32) -> Record {
        Record {
            id: [7; 16],
            client: 0x1_0000_0002,
            limits: Limits { slots, ..MOST },
            callback_program: 0x4000_0000,
            callback_credential: CallbackCredential::None,
        }
    }

    #[test]
    fn a_record_comes_back_from_its_row_and_nothing_else_does() {
        let user = AuthSys {
            uid: 7,
            ..AuthSys::default()
        };
        for callback_credential in [
            CallbackCredential::Impossible,
            CallbackCredential::Sys(to_bytes(&user)),
        ] {
            let record = Record {
                callback_credential,
                ..record(3)
            };
            let (key, mut row) = (Record::key(&record.id), record.to_row());
            assert_eq!(Record::from_row(&key, &row), Some(record));
            row.push(0);
            assert_eq!(Record::from_row(&key, &row), None, "a byte too many");
        }
        let record = record(3);
        let (key, row) = (Record::key(&record.id), record.to_row());
        assert_eq!(Record::from_row(&key, &row), Some(record));
        assert_eq!(Record::from_row(&key[..20], &row), None);
        assert_eq!(Record::from_row(&key, &row[1..]), None);
        for at in [0, 1, 2, 3, 28, 29, ROW_LEN_MIN - 1] {
            let mut other = row.clone();
            other[at] = 99;
            assert_eq!(Record::from_row(&key, &other), None, "byte {at}");
        }
    }

    const MARK: Mark = Mark {
        principal: Some(7),
        operations: 3,
    };

    #[test]
    fn a_slot_answers_a_repeat_as_it_answered_first() {
        let mut session = session(2, false);
        let misordered = Err(Nfsstat4::NFS4ERR_SEQ_MISORDERED);
        assert_eq!(session.begin(2, 1, MARK), Err(Nfsstat4::NFS4ERR_BADSLOT));
        assert_eq!(session.begin(0, 2, MARK), misordered);
        assert_eq!(session.begin(0, 0, MARK), misordered);
        assert_eq!(session.begin(0, 1, MARK), Ok(Turn::New));
        let under_way = session.begin(0, 1, MARK);
        assert_eq!(under_way, Err(Nfsstat4::NFS4ERR_DELAY));
        assert!(session.is_busy_but(None) && !session.is_busy_but(Some(0)));
        let done = Kept::Whole(Rc::from(*b"done"));
        session.end(0, done.clone());
        assert_eq!(session.begin(0, 1, MARK), Ok(Turn::Again(done)));
        let others = [
            Mark {
                principal: Some(8),
                ..MARK
            },
            Mark {
                operations: 4,
                ..MARK
            },
        ];
        for mark in others {
            let refused = session.begin(0, 1, mark);
            assert_eq!(refused, Err(Nfsstat4::NFS4ERR_SEQ_FALSE_RETRY));
        }
        assert_eq!(session.begin(0, 2, MARK), Ok(Turn::New));
        session.end(0, Kept::Nothing);
        let given_up = session.begin(0, 2, MARK);
        assert_eq!(given_up, Err(Nfsstat4::NFS4ERR_RETRY_UNCACHED_REP));
        assert_eq!(session.begin(0, 1, MARK), misordered);
    }

    fn session(slots: u32, is_restored: bool) -> Session {
        let record = record(slots);
        let keeps = Sessions::default().keep(&record.limits);
        Session::new(record, keeps, is_restored)
    }

    #[test]
    fn sessions_keep_less_when_little_is_left() {
        let sessions = Sessions::default();
        let left = |of: &Sessions| (64_usize << 20).saturating_sub(of.kept_max());
        let mut kept = Vec::new();
        for _ in 0..1000 {
            let limits = MOST.within(left(&sessions));
            assert!(limits.slots > 0 && limits.cached_max >= CACHED_LEAST);
            kept.push(sessions.keep(&limits));
        }
        assert!(sessions.kept_max() < (64 << 20) + 1000 * CACHED_LEAST as usize);
        kept.clear();
        assert_eq!(sessions.kept_max(), 0);
        assert_eq!(MOST.within(left(&sessions)), MOST);
        let nothing = Limits {
            cached_max: 0,
            ..MOST
        };
        assert_eq!(nothing.within(0), nothing, "it keeps nothing");
    }

    #[test]
    fn sequence_numbers_go_round() {
        let mut session = session(1, true);
        let first = session.begin(0, u32::MAX, MARK);
        assert_eq!(first, Ok(Turn::New), "any is the first after a restart");
        session.end(0, Kept::Nothing);
        assert_eq!(session.begin(0, 0, MARK), Ok(Turn::New));
    }

    #[test]
    fn channels_are_no_larger_than_either_side_takes() {
        let asked = ChannelAttrs4 {
            ca_headerpadsize: 0,
            ca_maxrequestsize: u32::MAX,
            ca_maxresponsesize: 4096,
            ca_maxresponsesize_cached: 100,
            ca_maxoperations: 8,
            ca_maxrequests: 1000,
            ca_rdma_ird: None,
        };
        let limits = Limits::agree(&asked).expect("of use");
        assert_eq!(
            (limits.request_max, limits.response_max),
            (MOST.request_max, 4096)
        );
        assert_eq!((limits.cached_max, limits.slots), (100, MOST.slots));
        let small = ChannelAttrs4 {
            ca_maxrequestsize: 100,
            ..asked.clone()
        };
        assert_eq!(Limits::agree(&small), Err(Nfsstat4::NFS4ERR_TOOSMALL));
        let none = ChannelAttrs4 {
            ca_maxrequests: 0,
            ..asked
        };
        assert_eq!(Limits::agree(&none), Err(Nfsstat4::NFS4ERR_INVAL));
    }
}
