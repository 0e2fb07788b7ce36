//! A session of a thread that blocks, from which whoever closes the store takes it away.
#![allow(unsafe_code)]

use std::sync::{Mutex, PoisonError, TryLockError};

use crate::session::Session;

/// The session of one thread. A thread that ends drops it; so does closing the store, however long the
/// thread lives on.
pub(crate) struct Slot(Mutex<Option<Parked>>);

/// A session that nobody uses.
struct Parked(Session);

// SAFETY: what keeps a session to a thread are the counts that its disk, writer and buffers share
// without atomics. All that share them are in the slot whenever its lock is free: an operation runs
// under the lock and keeps nothing (see `Slot::with`). The queue itself may be dropped by any thread
// when nothing is in flight, and only then is a session dropped by another than its own.
unsafe impl Send for Parked {}

impl Slot {
    pub(crate) fn new(session: Session) -> Self {
        Self(Mutex::new(Some(Parked(session))))
    }

    /// Runs an operation with the session. `Err` gives the operation back: the session has been taken
    /// away, or this thread is using it just now.
    ///
    /// # Safety
    ///
    /// Only the thread that made the session may call this, and nothing that the operation leaves
    /// behind may hold the session, its disk, its writer, a buffer of theirs, or a part of one.
    pub(crate) unsafe fn with<T, F: FnOnce(&Session) -> T>(&self, run: F) -> Result<T, F> {
        let guard = match self.0.try_lock() {
            Ok(guard) => guard,
            // An operation has panicked. What it left behind is as after an error.
            Err(TryLockError::Poisoned(poison)) => poison.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(run),
        };
        match &*guard {
            Some(Parked(session)) => Ok(run(session)),
            None => Err(run),
        }
    }

    /// Drops the session, for a thread that may be another than its own. One that still has something
    /// under way, after an error, is left for its thread.
    pub(crate) fn clear(&self) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = |Parked(session): &mut Parked| session.is_idle();
        drop(guard.take_if(is_idle));
    }

    /// Whether the session has been taken away.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.try_lock().is_ok_and(|session| session.is_none())
    }
}
