//! One task's waker, left where other cores can find it.
//!
//! ```text
//!         register                  register ends
//! EMPTY ------------> WRITING --------------------> SET
//!   ^                    | wake                      | wake
//!   |  register ends     v                           v
//!   +---------------- MISSED                      TAKING
//!   +------------------------------------------------+
//! ```

use std::task::Waker;

use super::atomics::{AtomicU8, Ordering, UnsafeCell, fence};

const EMPTY: u8 = 0;
const WRITING: u8 = 1;
const SET: u8 = 2;
const MISSED: u8 = 3;
const TAKING: u8 = 4;

/// A slot for the waker of the one task that waits.
///
/// The waiter registers, then looks at what it waits for once more; a waking core first writes
/// that, then wakes. Both sides carry the fence that makes this order hold.
#[derive(Debug)]
pub(crate) struct WakerCell {
    state: AtomicU8,
    waker: UnsafeCell<Option<Waker>>,
}

// SAFETY: `waker` is touched only by who moved `state` into WRITING (there is one waiter) or into
// TAKING (won by one compare-exchange), and both leave with a release store.
unsafe impl Send for WakerCell {}
// SAFETY: as above.
unsafe impl Sync for WakerCell {}

impl WakerCell {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU8::new(EMPTY),
            waker: UnsafeCell::new(None),
        }
    }

    /// Leaves `waker` for the next [`WakerCell::wake`]. If one is under way, `waker` is woken at
    /// once. Afterwards the caller re-checks its condition.
    ///
    /// # Safety
    /// At most one thread is in this function at a time.
    pub(crate) unsafe fn register(&self, waker: &Waker) {
        let state = self.state.load(Ordering::Acquire);
        let free = (state == EMPTY || state == SET)
            && self
                .state
                .compare_exchange(state, WRITING, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !free {
            // A waking core is taking the previous waker, perhaps another task's.
            waker.wake_by_ref();
            return;
        }
        self.waker.with_mut(|slot| {
            // SAFETY: WRITING belongs to this thread until the exchange below.
            let slot = unsafe { &mut *slot };
            if !slot.as_ref().is_some_and(|old| old.will_wake(waker)) {
                *slot = Some(waker.clone());
            }
        });
        if self
            .state
            .compare_exchange(WRITING, SET, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            self.state.store(EMPTY, Ordering::Release);
            waker.wake_by_ref();
        }
        fence(Ordering::SeqCst);
    }

    /// Wakes the registered task, if there is one. Costs a fence and a load when nobody waits.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let (to, done) = match state {
                SET => (TAKING, false),
                WRITING => (MISSED, true),
                // Nobody waits, or another core is waking the waiter already.
                _ => return,
            };
            match self
                .state
                .compare_exchange(state, to, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) if done => return,
                Ok(_) => break,
                Err(seen) => state = seen,
            }
        }
        // SAFETY: TAKING belongs to this thread until the store below.
        let waker = self.waker.with_mut(|slot| unsafe { (*slot).take() });
        self.state.store(EMPTY, Ordering::Release);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
