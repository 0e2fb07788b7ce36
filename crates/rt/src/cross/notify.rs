//! A notification from any core to one task.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::atomics::{AtomicBool, Ordering};
use super::waker_cell::WakerCell;

#[derive(Debug)]
struct Shared {
    raised: AtomicBool,
    waiter: WakerCell,
}

/// The end that notifies; clone it for more, on any core or plain thread.
#[derive(Clone, Debug)]
pub struct Notifier(Arc<Shared>);

/// The end that waits; belongs to one task.
#[derive(Debug)]
pub struct Notified(Arc<Shared>);

/// A flag that any core raises and one task waits for. Raising it again before the task has seen
/// it adds nothing.
#[must_use]
pub fn notify() -> (Notifier, Notified) {
    let shared = Arc::new(Shared {
        raised: AtomicBool::new(false),
        waiter: WakerCell::new(),
    });
    (Notifier(shared.clone()), Notified(shared))
}

impl Notifier {
    /// Raises the flag and wakes the waiting task.
    pub fn notify(&self) {
        // A swap and not a store: who takes the flag down after two have raised it sees what both
        // wrote before.
        self.0.raised.swap(true, Ordering::Release);
        self.0.waiter.wake();
    }
}

impl Notified {
    /// Takes the flag down; `true` if it was raised.
    pub fn take(&mut self) -> bool {
        self.0.raised.load(Ordering::Relaxed) && self.0.raised.swap(false, Ordering::Acquire)
    }

    /// Waits for the flag and takes it down.
    pub async fn wait(&mut self) {
        poll_fn(|cx| {
            if self.take() {
                return Poll::Ready(());
            }
            // SAFETY: only the one waiting end registers, and it is borrowed mutably.
            unsafe { self.0.waiter.register(cx.waker()) };
            if self.take() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}
