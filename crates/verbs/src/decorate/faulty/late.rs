//! Completions that come late: in bursts, or a request's only after the next message of its queue pair was received.
//!
//! Nobody is kept waiting for ever: what is held back is given after so many polls that found nothing, and at once to a poll
//! after the queue was armed, as whoever sleeps polls once more before.

use std::collections::VecDeque;

use super::small::Token;
use super::{Shared, lock};
use crate::names::CqNum;
use crate::polled::Polled;
use crate::wc::{Wc, WcOpcode};

/// What is kept with a completion queue.
#[derive(Debug, Default)]
pub struct Held {
    wcs: VecDeque<Wc>,
    /// Polls that have given nothing since something waits.
    polls_empty: u32,
    /// Armed, and nothing was given since.
    is_armed: bool,
    /// Enough were there: they are given until none is left.
    is_open: bool,
    /// So that those that are there can be counted.
    _token: Option<Token>,
}

/// A completion of a RECV. One that failed may be of either side, as its opcode says nothing.
fn is_message(wc: &Wc) -> bool {
    wc.is_ok() && matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm)
}

impl Held {
    pub(super) fn with(token: Option<Token>) -> Self {
        Held {
            _token: token,
            ..Held::default()
        }
    }

    pub(super) fn arm(&mut self) {
        self.is_armed = true;
    }

    /// Takes what was polled, and gives what is due.
    pub(super) fn pass(&mut self, shared: &Shared, cq: CqNum, out: &mut Polled) {
        let polled = out.completions().to_vec();
        for wc in polled {
            self.take(shared, wc);
        }
        self.take_due(shared, cq);
        // Of a queue pair that has gone nothing is heard.
        self.wcs.retain(|wc| shared.core(wc.qpn).is_some());
        out.clear();
        self.is_open |= self.wcs.len() >= shared.plan.burst as usize;
        let is_due = self.is_armed || self.is_open || self.polls_empty >= shared.plan.delay_calls;
        if is_due {
            while !out.is_full()
                && let Some(wc) = self.wcs.pop_front()
            {
                out.push(wc);
            }
        }
        if !out.completions().is_empty() {
            self.is_armed = false;
            self.polls_empty = 0;
        } else if !self.wcs.is_empty() {
            self.polls_empty += 1;
        }
        self.is_open &= !self.wcs.is_empty();
    }

    /// One completion, and what it lets go.
    fn take(&mut self, shared: &Shared, wc: Wc) {
        let core = shared.core(wc.qpn).filter(|_| shared.replies_first);
        let Some(core) = core else {
            return self.wcs.push_back(wc);
        };
        let mut core = lock(&core);
        if is_message(&wc) {
            self.wcs.push_back(wc);
            core.late.let_go();
        } else if wc.is_ok() {
            // Behind those of its queue that wait already.
            let waits = core.late.marks.pop_front().unwrap_or(false);
            if waits || !core.late.wcs.is_empty() {
                core.late.wait(wc, shared.plan.delay_calls);
            } else {
                self.wcs.push_back(wc);
            }
        } else {
            self.wcs.extend(core.late.wcs.drain(..));
            self.wcs.push_back(wc);
        }
    }

    /// What waits on queue pairs that send on this queue, and is due.
    fn take_due(&mut self, shared: &Shared, cq: CqNum) {
        if !shared.replies_first {
            return;
        }
        for core in shared.cores() {
            let mut core = lock(&core);
            if core.sends_on(cq) {
                let is_armed = self.is_armed;
                self.wcs.extend(core.late.due(is_armed));
            }
        }
    }
}

/// What is kept with a queue pair.
#[derive(Debug, Default)]
pub(super) struct LateSends {
    /// Whether each of the signaled requests under way is to wait for a message.
    pub(super) marks: VecDeque<bool>,
    /// Completions that wait.
    wcs: VecDeque<Wc>,
    /// Polls for which they do.
    polls_left: u32,
}

impl LateSends {
    fn wait(&mut self, wc: Wc, polls: u32) {
        if self.wcs.is_empty() {
            self.polls_left = polls;
        }
        self.wcs.push_back(wc);
    }

    /// A message has been received.
    fn let_go(&mut self) {
        self.polls_left = 0;
    }

    /// What need not wait any more; each call is a poll.
    fn due(&mut self, is_armed: bool) -> VecDeque<Wc> {
        if self.polls_left > 0 && !is_armed {
            self.polls_left -= 1;
            return VecDeque::new();
        }
        std::mem::take(&mut self.wcs)
    }

    pub(super) fn clear(&mut self) {
        *self = LateSends::default();
    }
}
