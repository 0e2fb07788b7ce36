//! An engine that promises some of its answers and keeps the promises late, for tests.

use std::task::{Context, Poll};

use crate::{Answer, Ask, Command, Engine, Failure, Limits, OwnedAnswer};

/// Carries commands out at once on the engine inside, and tells the answers of randomly chosen ones
/// later: what a door does with tickets can be tested without a disk or another core.
///
/// A `Get` of the key `busy` fails, and the answer to one of the key `held` does not come before
/// [`LateEngine::let_go`].
pub struct LateEngine<E> {
    /// The engine inside.
    pub inner: E,
    random: fastrand::Rng,
    /// The share of answers that come later, in percent.
    late_percent: u32,
    /// Whether new answers are promised.
    holds_new: bool,
    /// Whether promises are kept.
    keeps: bool,
}

/// An answer that is told after so many polls.
pub struct Late {
    polls_left: u32,
    held: bool,
    // Boxed, so that a ticket is as small as those of other engines.
    answer: Box<OwnedAnswer>,
}

impl<E> LateEngine<E> {
    /// An engine that promises so many of a hundred answers.
    pub fn new(inner: E, seed: u64, late_percent: u32) -> Self {
        Self {
            inner,
            random: fastrand::Rng::with_seed(seed),
            late_percent,
            holds_new: false,
            keeps: false,
        }
    }

    /// Promises all answers from here on, for when they are let go.
    pub fn hold(&mut self) {
        self.holds_new = true;
    }

    /// Answers new commands as before, and keeps back what was promised.
    pub fn release(&mut self) {
        self.holds_new = false;
    }

    /// Keeps all promises.
    pub fn let_go(&mut self) {
        self.holds_new = false;
        self.keeps = true;
    }
}

impl<E: Engine<Ticket = std::convert::Infallible>> Engine for LateEngine<E> {
    type Probe = E::Probe;
    type Ticket = Late;

    fn probe(&self, key: &[u8]) -> E::Probe {
        self.inner.probe(key)
    }

    fn refine(&self, probe: &mut E::Probe) {
        self.inner.refine(probe);
    }

    fn start<R>(
        &mut self,
        ask: &Ask<'_>,
        probe: E::Probe,
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Result<R, Late> {
        let is_get_of = |of: &[u8]| matches!(ask.command, Command::Get { key, .. } if key == of);
        let held = self.holds_new || is_get_of(b"held");
        let owned = if is_get_of(b"busy") {
            OwnedAnswer::new(Answer::Failed(Failure::Busy("busy")))
        } else {
            let Ok(owned) = self.inner.start(ask, probe, OwnedAnswer::new);
            owned
        };
        if held || self.random.u32(..100) < self.late_percent {
            return Err(Late {
                polls_left: self.random.u32(..3),
                held,
                answer: Box::new(owned),
            });
        }
        Ok(answer(owned.answer()))
    }

    fn fetch<R>(
        &mut self,
        ticket: &mut Late,
        context: &mut Context<'_>,
        answer: impl FnOnce(Answer<'_>) -> R,
    ) -> Poll<R> {
        if ticket.held && !self.keeps {
            return Poll::Pending;
        }
        if !ticket.held && ticket.polls_left > 0 {
            ticket.polls_left -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(answer(ticket.answer.answer()))
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }
}
