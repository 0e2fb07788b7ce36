//! A send queue, and what is composed for it.

use verbs::batch::Wqe;
use verbs::nic::SendHalf;
use verbs::{Dest, Op, PostReason, SendBatch, Sge, Transport};

use super::request::send_flags;

/// Requests of a list that are composed before they are posted.
const LIST: u32 = 256;

/// A send queue, and what is composed for it.
pub(crate) struct Sender {
    half: Box<dyn SendHalf>,
    batch: SendBatch,
    /// What `ibv_wr_*` have begun.
    begun: Option<Begun>,
    /// What a datagram is about whose address comes after that.
    early: Early,
    /// The first thing that was wrong since `ibv_wr_start`.
    wrong: Option<PostReason>,
    /// Requests that the queue has room for at least.
    room: u32,
}

/// The bytes of a datagram that were told before its address, which is unusual.
#[derive(Default)]
enum Early {
    #[default]
    Nothing,
    Elements(Vec<Sge>),
    Bytes(Vec<u8>),
}

/// A request of which nobody has said yet what bytes it is about.
struct Begun {
    op: Op,
    to: Option<Dest>,
    id: u64,
    flags: u32,
}

impl Sender {
    /// One that `ibv_wr_*` compose for has room for all that the queue has, as nothing is posted before `ibv_wr_complete`.
    pub(super) fn new(half: Box<dyn SendHalf>, send_wr_max: u32, is_extended: bool) -> Self {
        let most = if is_extended { u32::MAX } else { LIST };
        let capacity = send_wr_max.clamp(1, most) as usize;
        let batch = SendBatch::new(half.limits(), capacity);
        Sender {
            half,
            batch,
            begun: None,
            early: Early::Nothing,
            wrong: None,
            room: 0,
        }
    }

    /// What lists are posted with.
    pub(super) fn parts(&mut self) -> (&mut dyn SendHalf, &mut SendBatch) {
        self.room = 0;
        (&mut *self.half, &mut self.batch)
    }

    /// Datagrams have a destination each, other requests none.
    pub(super) fn has_dest(&self) -> bool {
        self.batch.limits().transport == Transport::Ud
    }

    /// Begins anew: `ibv_wr_start`.
    pub(super) fn restart(&mut self) {
        self.batch.clear();
        (self.begun, self.wrong) = (None, None);
        self.early = Early::Nothing;
    }

    /// Posts what was composed since then, all or nothing: `ibv_wr_complete`. What the NIC refuses, it is seen to refuse; for
    /// anything else none of them are posted, which the second value says.
    pub(super) fn complete(&mut self) -> (Result<(), PostReason>, bool) {
        self.end();
        if let Some(reason) = self.wrong {
            (Err(reason), false)
        } else if self.has_no_room() {
            (Err(PostReason::QueueFull), false)
        } else {
            (self.post(), true)
        }
    }

    /// The ids of the requests that were composed.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.batch.wqes().iter().map(Wqe::id)
    }

    /// Whether a post would find room for some of the requests and not for all.
    fn has_no_room(&mut self) -> bool {
        let wanted = self.batch.len() as u32;
        if wanted > 1 && self.room < wanted {
            self.room = self.half.room();
        }
        let has_room = wanted <= self.room.max(1);
        self.room = self.room.saturating_sub(wanted);
        !has_room
    }

    /// Posts what is composed, for all of which there is room.
    fn post(&mut self) -> Result<(), PostReason> {
        let posted = self.half.post(&self.batch);
        posted.map_err(|error| error.reason)
    }

    pub(super) fn note(&mut self, done: Result<(), PostReason>) {
        if let Err(reason) = done {
            self.wrong.get_or_insert(reason);
        }
    }

    /// Whether a datagram was begun of which nobody has said yet where it goes.
    fn waits_for_address(&self) -> bool {
        self.has_dest() && self.begun.as_ref().is_some_and(|begun| begun.to.is_none())
    }

    /// Ends the request that was begun, with these elements.
    pub(super) fn gather(&mut self, sges: &[Sge]) {
        if self.waits_for_address() && !sges.is_empty() {
            self.early = Early::Elements(sges.to_vec());
            return;
        }
        let Some(Begun { op, to, id, flags }) = self.begun.take() else {
            return self.note(Err(PostReason::Payload));
        };
        let done = self.batch.gather(op, to, sges).map(|draft| {
            draft.id(id).flags(send_flags(flags)).commit_gathered();
        });
        self.note(done);
    }

    /// Ends it with these bytes.
    pub(super) fn inline<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]> + Clone) {
        if self.waits_for_address() {
            self.early = Early::Bytes(parts.flatten().copied().collect());
            return;
        }
        let Some(Begun { op, to, id, flags }) = self.begun.take() else {
            return self.note(Err(PostReason::Payload));
        };
        let len = parts.clone().map(<[u8]>::len).sum();
        let pushed = self.batch.push_inline(op, to, len, (id, send_flags(flags)));
        let done = pushed.map(|mut room| {
            for part in parts {
                let (now, rest) = room.split_at_mut(part.len());
                now.copy_from_slice(part);
                room = rest;
            }
        });
        self.note(done);
    }

    /// Says where the datagram goes that was begun, and ends it if its bytes are known.
    pub(super) fn address(&mut self, to: Option<Dest>) {
        let Some(begun) = &mut self.begun else {
            return self.note(Err(PostReason::Address));
        };
        begun.to = to;
        match std::mem::take(&mut self.early) {
            Early::Nothing => {}
            Early::Elements(sges) => self.gather(&sges),
            Early::Bytes(bytes) => self.inline(std::iter::once(&bytes[..])),
        }
    }

    /// Ends the one that was begun without a word on its bytes: it has none.
    pub(super) fn end(&mut self) {
        if !matches!(self.early, Early::Nothing) {
            self.early = Early::Nothing;
            self.note(Err(PostReason::Address));
        }
        if self.begun.is_some() {
            self.gather(&[]);
        }
    }

    pub(super) fn begin(&mut self, op: Op, id: u64, flags: u32) {
        self.end();
        self.begun = Some(Begun {
            op,
            to: None,
            id,
            flags,
        });
    }
}
