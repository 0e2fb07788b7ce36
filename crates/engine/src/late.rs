//! An engine that promises some of its answers and keeps the promises late, for tests.

use std::task::{Context, Poll, Waker};

use crate::{Answer, Ask, Command, Engine, Failure, Limits, OwnedAnswer};

/// Carries commands out at once on the engine inside, and tells the answers of randomly chosen ones
/// later: what a door does with tickets can be tested without a disk or another core.
pub struct LateEngine<E> {
    /// The engine inside.
    pub inner: E,
    /// The share of answers that come later, in percent.
    pub late_percent: u32,
    random: fastrand::Rng,
    /// GETs of this key fail.
    failing: Option<&'static [u8]>,
    /// The answer to a GET of this key does not come before [`LateEngine::let_go`].
    held: Option<&'static [u8]>,
    /// Whether new answers are promised.
    holds_new: bool,
    /// Whether promises are kept.
    keeps: bool,
    /// Who waits until they are.
    wakers: Vec<Waker>,
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
            failing: None,
            held: None,
            holds_new: false,
            keeps: false,
            wakers: Vec::new(),
        }
    }

    /// Fails each `Get` of this key.
    #[must_use]
    pub fn failing(mut self, key: &'static [u8]) -> Self {
        self.failing = Some(key);
        self
    }

    /// Keeps the answer to each `Get` of this key until [`LateEngine::let_go`].
    #[must_use]
    pub fn holding(mut self, key: &'static [u8]) -> Self {
        self.held = Some(key);
        self
    }

    /// Promises all answers from here on, for when they are let go.
    pub fn hold(&mut self) {
        self.holds_new = true;
        self.keeps = false;
    }

    /// Answers new commands as before, and keeps back what was promised.
    pub fn release(&mut self) {
        self.holds_new = false;
    }

    /// Keeps all promises.
    pub fn let_go(&mut self) {
        self.holds_new = false;
        self.keeps = true;
        self.wakers.drain(..).for_each(Waker::wake);
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
        let is_get_of =
            |of: Option<&[u8]>| matches!(ask.command, Command::Get { key, .. } if Some(key) == of);
        let held = self.holds_new || is_get_of(self.held);
        let owned = if is_get_of(self.failing) {
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
            let waits = |waker: &Waker| waker.will_wake(context.waker());
            if !self.wakers.iter().any(waits) {
                self.wakers.push(context.waker().clone());
            }
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
