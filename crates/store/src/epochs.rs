//! Waiting for all that was under way, and for nothing that has begun since.
//!
//! Two counts tell them apart: whatever begins is counted in one of two epochs, and whoever waits makes the other one current.
//!
//! ```text
//!  bit 63     62            31             0
//!  +---------+-------------+--------------+--------------+
//!  | somebody| current is  | under way of | under way of |
//!  | waits   | the second  | the second 31| the first 31 |
//!  +---------+-------------+--------------+--------------+
//! ```

use std::future::poll_fn;
use std::task::{Poll, Waker};

#[cfg(loom)]
use loom::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

const WAITS: u64 = 1 << 63;
const SECOND: u64 = 1 << 62;
const COUNT_BITS: u32 = 31;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// In which of the two something has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Epoch {
    First,
    Second,
}

impl Epoch {
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

/// What is under way on all threads.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    state: AtomicU64,
    waiting: Mutex<Option<Waker>>,
}

impl Epochs {
    /// Something begins. To be [ended](Epochs::end) with what this returns.
    pub(crate) fn begin(&self) -> Epoch {
        let epoch = Epoch::current(self.state.load(Ordering::Relaxed));
        // Another one may be current by now. This then began after that, and who waits next looks at both.
        self.state.fetch_add(1 << epoch.shift(), Ordering::AcqRel);
        epoch
    }

    /// It has ended. Who has waited for it sees what was done before.
    pub(crate) fn end(&self, epoch: Epoch) {
        let before = self.state.fetch_sub(1 << epoch.shift(), Ordering::AcqRel);
        if before & WAITS != 0 && epoch.count(before) == 1 {
            self.wake();
        }
    }

    /// Whether something is under way.
    pub(crate) fn is_any(&self) -> bool {
        self.state.load(Ordering::Acquire) & !(WAITS | SECOND) != 0
    }

    /// Waits until all has ended that had begun before this is polled first. Returns false if `is_over` becomes true before
    /// that; call [`Epochs::wake`] after changing it.
    ///
    /// # Panics
    ///
    /// If somebody else waits.
    pub(crate) async fn drained(&self, is_over: impl Fn() -> bool) -> bool {
        // Not a load: what had begun is in what this reads.
        let before = self.state.fetch_or(WAITS, Ordering::AcqRel);
        assert_eq!(before & WAITS, 0, "one waits at a time");
        let _waits = Waits(self);
        for _ in 0..2 {
            // Nothing is added to it, but by who has read the state before it was this one.
            let ending = Epoch::current(self.state.load(Ordering::Relaxed)).other();
            if !self.has_ended(ending, &is_over).await {
                return false;
            }
            self.state.fetch_xor(SECOND, Ordering::AcqRel);
        }
        true
    }

    async fn has_ended(&self, epoch: Epoch, is_over: impl Fn() -> bool) -> bool {
        if epoch.count(self.state.load(Ordering::Acquire)) == 0 {
            return true;
        }
        poll_fn(|cx| {
            self.wait(Some(cx.waker().clone()));
            // Whoever ends the last one after this wakes: the lock was his before, or comes to him.
            let state = self.state.load(Ordering::Acquire);
            match (epoch.count(state), is_over()) {
                (0, _) => Poll::Ready(true),
                (_, true) => Poll::Ready(false),
                _ => Poll::Pending,
            }
        })
        .await
    }

    /// Has who waits look again.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.wait(None) {
            waker.wake();
        }
    }

    fn wait(&self, waker: Option<Waker>) -> Option<Waker> {
        let waiting = self.waiting.lock();
        std::mem::replace(&mut *waiting.unwrap_or_else(|e| e.into_inner()), waker)
    }
}

/// Somebody waits, until this is dropped.
struct Waits<'e>(&'e Epochs);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_and(!WAITS, Ordering::AcqRel);
        drop(self.0.wait(None));
    }
}

#[cfg(all(test, not(loom)))]
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
        let epochs = Epochs::default();
        let wakes = Arc::new(Wakes::default());
        let waker = wakes.clone().into();
        let mut cx = Context::from_waker(&waker);
        let before = [epochs.begin(), epochs.begin()];
        let mut drained = pin!(epochs.drained(|| false));
        assert!(drained.as_mut().poll(&mut cx).is_pending());
        let meanwhile = epochs.begin();
        epochs.end(before[0]);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0, "one is left");
        epochs.end(before[1]);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(drained.as_mut().poll(&mut cx), Poll::Ready(true));
        assert!(epochs.is_any(), "the one that began meanwhile");
        epochs.end(meanwhile);
        assert!(!epochs.is_any());
    }

    #[test]
    fn it_waits_for_one_that_was_counted_when_its_epoch_was_over() {
        let epochs = Epochs::default();
        let mut cx = Context::from_waker(Waker::noop());
        let late = epochs.begin();
        epochs.state.fetch_xor(SECOND, Ordering::Relaxed);
        let mut drained = pin!(epochs.drained(|| false));
        assert!(drained.as_mut().poll(&mut cx).is_pending());
        epochs.end(late);
        assert_eq!(drained.as_mut().poll(&mut cx), Poll::Ready(true));
    }

    #[test]
    fn it_does_not_wait_when_that_is_over() {
        let epochs = Epochs::default();
        let mut cx = Context::from_waker(Waker::noop());
        let _never_ends = epochs.begin();
        let is_over = Cell::new(false);
        let mut drained = pin!(epochs.drained(|| is_over.get()));
        assert!(drained.as_mut().poll(&mut cx).is_pending());
        is_over.set(true);
        assert_eq!(drained.as_mut().poll(&mut cx), Poll::Ready(false));
    }

    #[test]
    fn who_gives_up_waiting_leaves_it_to_others() {
        let epochs = Epochs::default();
        let mut cx = Context::from_waker(Waker::noop());
        let under_way = epochs.begin();
        for _ in 0..3 {
            let mut drained = Box::pin(epochs.drained(|| false));
            assert!(drained.as_mut().poll(&mut cx).is_pending());
        }
        epochs.end(under_way);
        let mut drained = pin!(epochs.drained(|| false));
        assert_eq!(drained.as_mut().poll(&mut cx), Poll::Ready(true));
    }

    #[test]
    #[should_panic(expected = "one waits at a time")]
    fn two_do_not_wait_at_once() {
        let epochs = Epochs::default();
        let mut cx = Context::from_waker(Waker::noop());
        let _never_ends = epochs.begin();
        let mut first = pin!(epochs.drained(|| false));
        assert!(first.as_mut().poll(&mut cx).is_pending());
        let mut second = pin!(epochs.drained(|| false));
        let _ = second.as_mut().poll(&mut cx);
    }
}
