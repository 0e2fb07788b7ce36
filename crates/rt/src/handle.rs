//! What tasks ask of their core.

use std::cell::RefMut;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use thiserror::Error;

use crate::io::{IoKind, Sockets};
use crate::poller::{Poller, PollerGuard};
use crate::scheduler::Inner;
use crate::task::{JoinHandle, Shared};
use crate::time::{Clock, Instant};
use crate::timers::TimerKey;

/// A core, as its tasks see it. Cloning costs one increment; not `Send`.
#[derive(Clone)]
pub struct Handle {
    pub(crate) inner: Rc<Inner>,
}

/// The time was up first.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the time is up")]
pub struct Elapsed;

impl Handle {
    pub(crate) fn new(inner: Rc<Inner>) -> Self {
        Self { inner }
    }

    /// Starts a task on this core. Allocates; waking and polling it afterwards does not.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
    {
        let (state, header) = self.inner.spawn(future);
        JoinHandle {
            state,
            header,
            core: Rc::downgrade(&self.inner),
        }
    }

    /// The time stamp of the loop's current turn (outside the loop: of its last): free, and the
    /// same for everything in the turn.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.inner.now.get()
    }

    /// The date in the loop's current turn, in seconds of Unix time, read once a turn.
    #[must_use]
    pub fn unix_s(&self) -> u64 {
        let date_s = self.inner.date_s.get();
        date_s.unwrap_or_else(|| {
            let date_s = self.inner.config.clock.unix_s();
            self.inner.date_s.set(Some(date_s));
            date_s
        })
    }

    /// The clock itself, for who measures within a turn.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.config.clock
    }

    /// The core's random numbers, from the configured seed. Do not hold it across an await.
    pub fn rng(&self) -> RefMut<'_, fastrand::Rng> {
        self.inner.rng.borrow_mut()
    }

    /// Waits for `delay` from the turn's time stamp on.
    pub fn sleep(&self, delay: Duration) -> Sleep {
        self.sleep_until(self.now() + delay)
    }

    /// Waits until `deadline`. Never early; late by the turn under way.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep {
            inner: self.inner.clone(),
            deadline,
            key: None,
        }
    }

    /// Runs `future` for `limit` at most, then drops it.
    pub async fn timeout<F: Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        let mut sleep = pin!(self.sleep(limit));
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            sleep.as_mut().poll(cx).map(|()| Err(Elapsed))
        })
        .await
    }

    /// Lets every other ready task run first.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Has the core drive `poller` for as long as the guard lives.
    pub fn register_poller(&self, poller: impl Poller + 'static) -> PollerGuard {
        let key = self.inner.pollers.insert(Box::new(poller));
        PollerGuard::new(Rc::downgrade(&self.inner), key)
    }

    /// How this core does its socket I/O.
    #[must_use]
    pub fn io_kind(&self) -> IoKind {
        self.inner.io.borrow().kind()
    }

    /// The core's sockets, where they are simulated.
    pub(crate) fn sockets(&self) -> Option<Rc<dyn Sockets>> {
        self.inner.io.borrow().sockets()
    }

    /// The core's counters, for any thread.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor(self.inner.shared.clone())
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

/// A core's counters, readable from any thread.
#[derive(Clone, Debug)]
pub struct Monitor(Arc<Shared>);

impl Monitor {
    /// Turns of the loop so far.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.0.turns.load(Ordering::Relaxed)
    }

    /// Times the core has gone to sleep.
    #[must_use]
    pub fn sleeps(&self) -> u64 {
        self.0.sleeps.load(Ordering::Relaxed)
    }

    /// System calls that the core has made for its sockets: io_uring's entries into the kernel, or
    /// each look and each transfer with epoll.
    #[must_use]
    pub fn system_calls(&self) -> u64 {
        self.0.system_calls.load(Ordering::Relaxed)
    }

    /// Whether the core sleeps, or is about to.
    #[must_use]
    pub fn is_sleeping(&self) -> bool {
        self.0.inbox.is_sleeping()
    }
}

/// A wait for a point in time; dropping it cancels the timer.
#[must_use = "a wait does nothing until it is awaited"]
pub struct Sleep {
    inner: Rc<Inner>,
    deadline: Instant,
    key: Option<TimerKey>,
}

impl Sleep {
    /// When it ends.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.inner.now.get() >= self.deadline {
            return Poll::Ready(());
        }
        let mut timers = self.inner.timers.borrow_mut();
        match self.key {
            Some(key) if timers.check(key, cx.waker()) => Poll::Ready(()),
            Some(_) => Poll::Pending,
            None => {
                let key = timers.insert(self.deadline, cx.waker().clone());
                drop(timers);
                self.key = Some(key);
                Poll::Pending
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.inner.timers.borrow_mut().remove(key);
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
