//! The signal to stop, from any thread to all who wait for it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, PoisonError};
use std::task::{Poll, Waker};

use super::atomics::{AtomicBool, Mutex, MutexGuard, Ordering};

/// A signal to stop, given once, from any thread, to all who wait for it.
///
/// It takes a lock: trigger it from a thread that waits for signals, not from a signal handler.
#[derive(Clone, Default)]
pub struct Shutdown(Arc<ShutdownState>);

#[derive(Default)]
struct ShutdownState {
    triggered: AtomicBool,
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Shutdown {
    /// A signal nobody has given.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the signal.
    pub fn trigger(&self) {
        let wakers = {
            let mut waiters = self.lock();
            // Under the lock, so that a waiter either sees it or is woken.
            self.0.triggered.store(true, Ordering::Release);
            std::mem::take(&mut waiters.wakers)
        };
        for waker in wakers.into_values() {
            waker.wake();
        }
    }

    /// Whether it has been given. Costs a load.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        self.0.triggered.load(Ordering::Acquire)
    }

    /// Waits for it.
    pub async fn wait(&self) {
        let mut registration = Registration {
            shutdown: self,
            id: None,
        };
        poll_fn(|cx| {
            if self.is_triggered() {
                return Poll::Ready(());
            }
            let mut waiters = self.lock();
            if self.is_triggered() {
                return Poll::Ready(());
            }
            let id = *registration.id.get_or_insert_with(|| {
                waiters.next += 1;
                waiters.next
            });
            waiters.wakers.insert(id, cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, Waiters> {
        // The map is whole whenever the lock is free; no user code runs under it.
        self.0
            .waiters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shutdown")
            .field(&self.is_triggered())
            .finish()
    }
}

struct Registration<'a> {
    shutdown: &'a Shutdown,
    id: Option<u64>,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let waker = self.shutdown.lock().wakers.remove(&id);
            drop(waker);
        }
    }
}
