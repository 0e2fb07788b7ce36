//! Operations that the peer's process carries out, because nobody else can: atomics on memory that is not
//! mapped here, and WRITEs and READs of such memory where the kernel does not copy.
//!
//! A WRITE or a READ goes in pieces, in address order, one at a time, each through a stage of our inbox
//! there. What is behind it in the send queue waits until the last one is answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs::{Op, RemoteAddr, SendWr, Transport, mem};

use crate::contact::adapter::Adapter;
use crate::contact::copy::{CopyRequest, Waits, Way};
use crate::contact::delegated::{Delegated, DelegatedQuestion, Patience};
use crate::memory::local::Local;
use crate::path::connection::{Outcome, Progress, Wait, put_word};
use crate::path::link::Link;
use crate::path::remote::part;
use crate::shared::cause::Cause;
use crate::shared::layout::STAGE_LEN;

/// What the peer's process was asked for.
#[derive(Debug)]
pub(super) struct Delegation {
    transport: Transport,
    /// How long it waits for an answer, or for a stage.
    pub(super) patience: Patience,
    question: Option<Arc<DelegatedQuestion>>,
    /// A piece waits for a stage.
    waits: Option<Waits>,
}

impl Delegation {
    /// Nothing yet.
    pub(super) fn of(transport: Transport) -> Self {
        Delegation {
            transport,
            patience: Patience::AtLeast(Duration::ZERO),
            question: None,
            waits: None,
        }
    }

    /// Leaves what the peer's process was asked for alone: the request has been flushed, or given up.
    pub(super) fn forget(&mut self) {
        (self.question, self.waits) = (None, None);
    }

    /// Asks the peer's process for an atomic.
    #[cold]
    pub(super) fn ask(&mut self, adapter: &Adapter, link: &Link, request: Delegated) -> Outcome {
        let question = DelegatedQuestion::new(request, None, Instant::now());
        let question = self.question.insert(Arc::new(question));
        link.peer.delegate(adapter, question);
        Outcome::Wait(Wait::Answer)
    }

    /// Asks the peer's process for the next piece of a WRITE or a READ, for which the kernel does not copy.
    #[cold]
    #[allow(clippy::too_many_arguments)] // The parts of one request, as for `send`.
    pub(super) fn ask_for_piece(
        &mut self,
        adapter: &Adapter,
        link: &mut Link,
        from_epoch: u16,
        (remote, way): (RemoteAddr, Way),
        local: &Local<'_>,
        len: usize,
        progress: &mut Progress,
    ) -> Outcome {
        link.peer.note_out_of_reach();
        let done = progress.copied();
        let Some(stage) = link.peer.take_stage(&mut self.waits) else {
            // Those of requests that were given up come back when the peer has answered.
            let is_over = |waits: &Waits| self.patience.is_over(adapter, waits.since());
            if !self.waits.as_ref().is_some_and(is_over) {
                return Outcome::Wait(Wait::Answer);
            }
            self.waits = None;
            return self.unless_lost(Outcome::Failed(Cause::NoAnswer));
        };
        let piece = (len - done).min(STAGE_LEN);
        if way == Way::Write {
            if let Err(cause) = local.fetch(done..done + piece) {
                return Outcome::Failed(cause);
            }
            // SAFETY: a stage is as long as a piece at most, ours until the question is dropped, and the range
            // lies inside the payload, which was checked.
            unsafe { local.gather(done, link.peer.stage(&stage), piece) };
        }
        let request = CopyRequest {
            over: link.over(from_epoch),
            key: remote.rkey.0,
            addr: remote.addr.wrapping_add(done as u64),
            len: piece,
            stage: stage.number(),
            way,
        };
        // From here on it goes on over this connection alone.
        link.has_begun();
        *progress = Progress::Copied(done);
        let request = Delegated::Copy(request);
        let question = DelegatedQuestion::new(request, Some(stage), Instant::now());
        let question = self.question.insert(Arc::new(question));
        link.peer.delegate(adapter, question);
        Outcome::Wait(Wait::Answer)
    }

    /// Looks what has become of what the peer's process was asked for; `None` when the operation goes on from
    /// there. What it has answered counts, whatever has become of its queue pair since. Without a link the peer has gone.
    #[cold]
    pub(super) fn take_up(
        &mut self,
        adapter: &Adapter,
        link: Option<&Link>,
        wr: &SendWr<'_>,
        local: &Local<'_>,
        len: usize,
        progress: &mut Progress,
    ) -> Option<Outcome> {
        // A piece that waits for a stage was not asked for yet.
        let question = self.question.clone()?;
        let outcome = match (question.outcome(), link) {
            (Some(Ok(before)), link) => match (question.request(), question.stage()) {
                (Delegated::Copy(request), Some(stage)) => {
                    let Some(link) = link else {
                        // The stage went with it.
                        return Some(self.unless_lost(Outcome::Wait(Wait::Peer)));
                    };
                    self.question = None;
                    let stage = link.peer.stage(stage);
                    return take_piece(request, stage, wr, local, len, progress);
                }
                _ => match local.fetch(0..8) {
                    Ok(()) => {
                        put_word(local, before);
                        Outcome::Done
                    }
                    Err(cause) => Outcome::Failed(cause),
                },
            },
            // Nothing was done. It may be ready later.
            (Some(Err(Cause::PeerNotReady)), _) => {
                if matches!(*progress, Progress::Asked | Progress::Copied(0)) {
                    *progress = Progress::Nothing;
                }
                Outcome::Wait(Wait::Peer)
            }
            (Some(Err(cause)), _) => Outcome::Failed(cause),
            // Nobody knows whether it was carried out.
            (None, Some(link)) if !link.peer.is_dead() => {
                match question.is_overdue(adapter, self.patience) {
                    true => Outcome::Failed(Cause::NoAnswer),
                    false => {
                        link.peer.delegate(adapter, &question);
                        return Some(Outcome::Wait(Wait::Answer));
                    }
                }
            }
            (None, _) => return Some(self.unless_lost(Outcome::Wait(Wait::Peer))),
        };
        self.question = None;
        Some(self.unless_lost(outcome))
    }

    /// Nobody tells an unreliable connection what became of its message.
    fn unless_lost(&self, outcome: Outcome) -> Outcome {
        match self.transport {
            Transport::Rc => outcome,
            _ => Outcome::Done,
        }
    }
}

/// Takes up a piece that the peer's process has copied; `None` when the operation goes on.
fn take_piece(
    request: &CopyRequest,
    stage: *mut u8,
    wr: &SendWr<'_>,
    local: &Local<'_>,
    len: usize,
    progress: &mut Progress,
) -> Option<Outcome> {
    let done = progress.copied();
    let end = done + request.len;
    if request.way == Way::Read {
        if let Err(cause) = local.fetch(done..end) {
            return Some(Outcome::Failed(cause));
        }
        let mut from = stage.cast_const();
        for (to, len) in part(local.pieces(), done..end) {
            // SAFETY: the pieces were checked for local writing, and the stage has as many bytes as the range.
            unsafe { mem::fetch(to, from, len) };
            from = from.wrapping_add(len);
        }
    }
    *progress = Progress::Copied(end);
    match wr.op {
        _ if end < len => None,
        Op::Write { imm: Some(_), .. } => {
            *progress = Progress::Placed;
            None
        }
        _ => Some(Outcome::Done),
    }
}
