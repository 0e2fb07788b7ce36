//! Writes of batches that the device has, and how durable ones have ended since the last flush.
//!
//! The system tells of a loss once, and any durable write may be told of it in place of a flush (`docs/design/block.md`).
//! Its core may take that from its queue long after the flush has ended well. So a flush waits for the writes that were
//! under way beside it. Two counts tell them from those that begin meanwhile: writes begin in one of two periods, and a
//! flush makes the other one current.
//!
//! ```text
//!  bit 63     62            31             0
//!  +---------+-------------+--------------+--------------+
//!  | somebody| current is  | under way of | under way of |
//!  | waits   | the second  | the second 31| the first 31 |
//!  +---------+-------------+--------------+--------------+
//! ```

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use block::BlockError;

use crate::error::StoreError;

const WAITS: u64 = 1 << 63;
const SECOND: u64 = 1 << 62;
const COUNT_BITS: u32 = 31;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// One of the two periods, in which a write has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Period {
    First,
    Second,
}

impl Period {
    fn current(state: u64) -> Self {
        match state & SECOND {
            0 => Self::First,
            _ => Self::Second,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    fn shift(self) -> u32 {
        match self {
            Self::First => 0,
            Self::Second => COUNT_BITS,
        }
    }

    fn count(self, state: u64) -> u64 {
        state >> self.shift() & COUNT
    }
}

/// The writes of all sessions.
#[derive(Default)]
pub(crate) struct Writes {
    state: AtomicU64,
    waiting: Mutex<Option<Waker>>,
    /// Why a durable write has failed since the last flush, or that nobody has waited for its end.
    failed: Mutex<Option<StoreError>>,
}

impl Writes {
    /// The device is about to get a write. To be [ended](Writes::end) with what this returns.
    pub(crate) fn begin(&self) -> Period {
        let period = Period::current(self.state.load(Ordering::Relaxed));
        // A flush may end the period before this line. This write then began after it, and the next flush looks at both.
        self.state.fetch_add(1 << period.shift(), Ordering::AcqRel);
        period
    }

    /// The device is done with a write, or whoever waits for it has gone. What became of it has been noted.
    pub(crate) fn end(&self, period: Period) {
        let before = self.state.fetch_sub(1 << period.shift(), Ordering::AcqRel);
        if before & WAITS != 0 && period.count(before) == 1 {
            self.wake();
        }
    }

    /// Whether the device has any.
    pub(crate) fn is_any(&self) -> bool {
        self.state.load(Ordering::Acquire) & !(WAITS | SECOND) != 0
    }

    /// Notes how a durable write has ended.
    pub(crate) fn note(&self, result: &Result<(), BlockError>) {
        if let Err(error) = result {
            self.failed().get_or_insert_with(|| error.clone().into());
        }
    }

    /// Nobody hears any more how a durable write ends: it may be the one that is told of a loss.
    pub(crate) fn note_orphan(&self) {
        self.failed().get_or_insert(StoreError::Undriven);
    }

    /// Why one has failed since this was asked last.
    pub(crate) fn take_failed(&self) -> Option<StoreError> {
        self.failed().take()
    }

    /// Waits until all have ended that had begun before this call. False if `is_over` says so first, which
    /// [`Writes::wake`] has it asked again. One caller at a time.
    pub(crate) async fn settled(&self, is_over: impl Fn() -> bool) -> bool {
        for _ in 0..2 {
            // Nothing is added to it, but by a write that has read the state before it was this one.
            let ending = Period::current(self.state.load(Ordering::Relaxed)).other();
            if !self.has_ended(ending, &is_over).await {
                return false;
            }
            self.state.fetch_xor(SECOND, Ordering::AcqRel);
        }
        true
    }

    async fn has_ended(&self, period: Period, is_over: impl Fn() -> bool) -> bool {
        if period.count(self.state.load(Ordering::Acquire)) == 0 {
            return true;
        }
        let has_ended = poll_fn(|cx| {
            let old = self.waiting().replace(cx.waker().clone());
            drop(old);
            // Whoever ends the last one after this wakes.
            let state = self.state.fetch_or(WAITS, Ordering::AcqRel);
            match (period.count(state), is_over()) {
                (0, _) => Poll::Ready(true),
                (_, true) => Poll::Ready(false),
                _ => Poll::Pending,
            }
        });
        let has_ended = has_ended.await;
        self.state.fetch_and(!WAITS, Ordering::AcqRel);
        drop(self.take_waker());
        has_ended
    }

    /// Has who waits look again.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.take_waker() {
            waker.wake();
        }
    }

    fn take_waker(&self) -> Option<Waker> {
        self.waiting().take()
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> MutexGuard<'_, Option<StoreError>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::task::{Context, Wake};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn it_waits_for_what_was_under_way_and_for_nothing_else() {
        let writes = Writes::default();
        let wakes = Arc::new(Wakes::default());
        let waker = wakes.clone().into();
        let mut cx = Context::from_waker(&waker);
        let before = [writes.begin(), writes.begin()];
        let mut settled = pin!(writes.settled(|| false));
        assert!(settled.as_mut().poll(&mut cx).is_pending());
        let meanwhile = writes.begin();
        writes.end(before[0]);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0, "one is left");
        writes.end(before[1]);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(settled.as_mut().poll(&mut cx), Poll::Ready(true));
        assert!(writes.is_any(), "the one that began meanwhile");
        writes.end(meanwhile);
        assert!(!writes.is_any());
    }

    #[test]
    fn it_waits_for_one_that_was_counted_when_its_period_was_over() {
        let writes = Writes::default();
        let mut cx = Context::from_waker(Waker::noop());
        let late = writes.begin();
        writes.state.fetch_xor(SECOND, Ordering::Relaxed);
        let mut settled = pin!(writes.settled(|| false));
        assert!(settled.as_mut().poll(&mut cx).is_pending());
        writes.end(late);
        assert_eq!(settled.as_mut().poll(&mut cx), Poll::Ready(true));
    }

    #[test]
    fn it_does_not_wait_when_that_is_over() {
        let writes = Writes::default();
        let mut cx = Context::from_waker(Waker::noop());
        let _never_ends = writes.begin();
        let is_over = Cell::new(false);
        let mut settled = pin!(writes.settled(|| is_over.get()));
        assert!(settled.as_mut().poll(&mut cx).is_pending());
        is_over.set(true);
        assert_eq!(settled.as_mut().poll(&mut cx), Poll::Ready(false));
    }
}
