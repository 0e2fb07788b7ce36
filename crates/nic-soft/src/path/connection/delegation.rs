//! Operations that the peer's process carries out, because nobody else can: atomics on memory that is not
//! mapped here, and WRITEs and READs of such memory where the kernel does not copy.
//!
//! A WRITE or a READ goes in pieces, in address order, one at a time, each through a stage of our inbox
//! there. What is behind it in the send queue waits until the last one is answered.

use std::sync::Arc;
use std::time::Instant;

use verbs::{Op, SendWr, Transport, mem};

use crate::contact::adapter::Adapter;
use crate::contact::copy::{CopyRequest, Waits, Way};
use crate::contact::delegated::{Delegated, DelegatedQuestion};
use crate::memory::local::Local;
use crate::path::connection::{Connection, Outcome, Progress, Wait, put_word};
use crate::path::remote::part;
use crate::shared::cause::Cause;
use crate::shared::layout::STAGE_LEN;

/// What the peer's process was asked for.
#[derive(Debug, Default)]
pub(super) struct Delegation {
    question: Option<Arc<DelegatedQuestion>>,
    /// A piece waits for a stage.
    waits: Option<Waits>,
}

impl Connection {
    /// Leaves what the peer's process was asked for alone: the request has been flushed, or given up.
    pub(crate) fn forget_asked(&mut self) {
        self.delegation = Delegation::default();
    }

    /// Asks the peer's process for an atomic.
    #[cold]
    pub(super) fn ask(&mut self, adapter: &Adapter, request: Delegated) -> Outcome {
        let Some(link) = &self.link else {
            return Outcome::Failed(Cause::NotConnected);
        };
        let question = DelegatedQuestion::new(request, None, Instant::now());
        let question = self.delegation.question.insert(Arc::new(question));
        link.peer.delegate(adapter, question);
        Outcome::Wait(Wait::Answer)
    }

    /// Asks the peer's process for the next piece of a WRITE or a READ, for which the kernel does not copy.
    #[cold]
    pub(super) fn delegate(
        &mut self,
        adapter: &Adapter,
        wr: &SendWr<'_>,
        local: &Local<'_>,
        len: usize,
        progress: &mut Progress,
    ) -> Outcome {
        let (remote, way) = match wr.op {
            Op::Write { remote, .. } => (remote, Way::Write),
            Op::Read { remote } => (remote, Way::Read),
            _ => return Outcome::Failed(Cause::Kernel),
        };
        let Some(link) = &mut self.link else {
            return Outcome::Failed(Cause::NotConnected);
        };
        link.peer.note_out_of_reach();
        let done = match *progress {
            Progress::Copied(done) => done,
            _ => 0,
        };
        let waits = &mut self.delegation.waits;
        let Some(stage) = link.peer.take_stage(waits) else {
            // Those of requests that were given up come back when the peer has answered.
            let is_over = |waits: &Waits| self.patience.is_over(adapter, waits.since());
            if !waits.as_ref().is_some_and(is_over) {
                return Outcome::Wait(Wait::Answer);
            }
            *waits = None;
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
            over: link.over(self.epoch),
            key: remote.rkey.0,
            addr: remote.addr.wrapping_add(done as u64),
            len: piece,
            stage: stage.number(),
            way,
        };
        // From here on it goes on over this connection alone.
        link.has_begun();
        *progress = Progress::Copied(done);
        let question =
            DelegatedQuestion::new(Delegated::Copy(request), Some(stage), Instant::now());
        let question = Arc::new(question);
        link.peer.delegate(adapter, &question);
        self.delegation = Delegation {
            question: Some(question),
            waits: None,
        };
        Outcome::Wait(Wait::Answer)
    }

    /// Looks what has become of what the peer's process was asked for; `None` when the operation goes on from
    /// there. What it has answered counts, whatever has become of its queue pair since.
    #[cold]
    pub(super) fn take_up(
        &mut self,
        adapter: &Adapter,
        wr: &SendWr<'_>,
        local: &Local<'_>,
        len: usize,
        progress: &mut Progress,
    ) -> Option<Outcome> {
        // A piece that waits for a stage was not asked for yet.
        let question = self.delegation.question.clone()?;
        let outcome = match (question.outcome(), &self.link) {
            (Some(Ok(before)), link) => match (question.request(), question.stage()) {
                (Delegated::Copy(request), Some(stage)) => {
                    let Some(link) = link else {
                        // The stage went with it.
                        return Some(self.unless_lost(Outcome::Wait(Wait::Peer)));
                    };
                    let done = match *progress {
                        Progress::Copied(done) => done,
                        _ => 0,
                    };
                    if request.way == Way::Read {
                        if let Err(cause) = local.fetch(done..done + request.len) {
                            self.delegation.question = None;
                            return Some(Outcome::Failed(cause));
                        }
                        let mut from = link.peer.stage(stage).cast_const();
                        for (to, len) in part(local.pieces(), done..done + request.len) {
                            // SAFETY: the pieces were checked for local writing, and the stage has as many
                            // bytes as the range.
                            unsafe { mem::fetch(to, from, len) };
                            from = from.wrapping_add(len);
                        }
                    }
                    self.delegation.question = None;
                    *progress = Progress::Copied(done + request.len);
                    let is_all = done + request.len == len;
                    return match wr.op {
                        _ if !is_all => None,
                        Op::Write { imm: Some(_), .. } => {
                            *progress = Progress::Placed;
                            None
                        }
                        _ => Some(Outcome::Done),
                    };
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
            (None, _) if self.is_peer_gone() => {
                return Some(self.unless_lost(Outcome::Wait(Wait::Peer)));
            }
            (None, _) if question.is_overdue(adapter, self.patience) => {
                Outcome::Failed(Cause::NoAnswer)
            }
            (None, Some(link)) => {
                link.peer.delegate(adapter, &question);
                return Some(Outcome::Wait(Wait::Answer));
            }
            (None, None) => Outcome::Failed(Cause::NotConnected),
        };
        self.delegation.question = None;
        Some(self.unless_lost(outcome))
    }

    /// Nobody tells an unreliable connection what became of its message.
    fn unless_lost(&self, outcome: Outcome) -> Outcome {
        match self.us.transport {
            Transport::Rc => outcome,
            _ => Outcome::Done,
        }
    }
}
