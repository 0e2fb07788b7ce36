//! A session of a thread that blocks, from which whoever closes the store takes it away.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::{self, ThreadId};

use crate::session::Session;

/// The session of one thread, as that thread has it. Dropped with the thread, and the session with it,
/// unless closing the store has taken that away.
pub(crate) struct Own {
    slot: Arc<Slot>,
    /// Not `Send`: it stays with the thread that made the session.
    here: PhantomData<Rc<()>>,
}

/// The same as others have it: they may take the session away.
pub(crate) struct Slot {
    session: Mutex<Option<Parked>>,
    thread: ThreadId,
}

/// A session that nobody uses.
struct Parked(Session);

// SAFETY: what keeps a session to a thread are the counts that its disk, writer, buffers and batches
// share without atomics; the wakers that it keeps are `Send`, and so is its queue, which may be dropped by
// any thread when nothing is in flight. All that share a count are in the slot whenever its lock is free:
// an operation runs under the lock and keeps nothing (see `Own::with`). Only two things are done with the
// session, both under the lock: its thread uses or drops it by its `Own`, which is not `Send`; and another
// thread drops it when it is idle (`Slot::clear`). Who holds a slot last, wherever, finds none: `Own` has
// taken the session out.
unsafe impl Send for Parked {}

impl Own {
    pub(crate) fn new(session: Session) -> Self {
        let slot = Slot {
            session: Mutex::new(Some(Parked(session))),
            thread: thread::current().id(),
        };
        Self {
            slot: Arc::new(slot),
            here: PhantomData,
        }
    }

    /// What others may have of it.
    pub(crate) fn slot(&self) -> Weak<Slot> {
        Arc::downgrade(&self.slot)
    }

    /// Runs an operation with the session. `Err` gives the operation back: the session has been taken
    /// away, or this thread is using it just now.
    ///
    /// # Safety
    ///
    /// Nothing that the operation leaves behind may hold the session, its disk, its writer, a buffer or a
    /// batch of theirs, or a future of an operation on one, neither in what it returns nor elsewhere.
    pub(crate) unsafe fn with<T, F: FnOnce(&Session) -> T>(&self, run: F) -> Result<T, F> {
        debug_assert_eq!(self.slot.thread, thread::current().id());
        let mut guard = match self.slot.session.try_lock() {
            Ok(guard) => guard,
            // An operation has panicked. What it left behind is as after an error.
            Err(TryLockError::Poisoned(poison)) => poison.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(run),
        };
        // One whose writer has panicked is of no use any more.
        drop(guard.take_if(|Parked(session)| session.is_undriven()));
        let Some(Parked(session)) = &*guard else {
            return Err(run);
        };
        let outcome = run(session);
        debug_assert!(
            !session.is_idle() || session.is_alone(),
            "an operation keeps a part of the session"
        );
        Ok(outcome)
    }

    /// Whether the session has been taken away.
    pub(crate) fn is_empty(&self) -> bool {
        match self.slot.session.try_lock() {
            Ok(session) => session.is_none(),
            Err(TryLockError::Poisoned(poison)) => poison.into_inner().is_none(),
            Err(TryLockError::WouldBlock) => false,
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        debug_assert_eq!(self.slot.thread, thread::current().id());
        // Here and not where the slot is dropped: who closes the store may hold that a moment longer, and
        // a session with something under way must not end there.
        let session = self.slot.lock().take();
        drop(session);
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Parked>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the session, for a thread that may be another than its own. One that still has something
    /// under way, after an error, is left for its thread.
    pub(crate) fn clear(&self) {
        let is_idle = |Parked(session): &mut Parked| session.is_idle() && session.is_alone();
        drop(self.lock().take_if(is_idle));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use block::sim::{SimConfig, SimDevice};
    use block::{BlockError, Device, Done, Geometry, Queue, Request};
    use rt::Arm;

    use super::*;
    use crate::{Options, Store};

    /// A simulated device that notes which threads have dropped a queue with something under way.
    struct Watched {
        device: SimDevice,
        dropped: Arc<Mutex<Vec<ThreadId>>>,
    }

    struct WatchedQueue {
        queue: Box<dyn Queue>,
        in_flight: AtomicUsize,
        dropped: Arc<Mutex<Vec<ThreadId>>>,
    }

    impl Device for Watched {
        fn name(&self) -> Arc<str> {
            self.device.name()
        }

        fn geometry(&self) -> Geometry {
            self.device.geometry()
        }

        fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, BlockError> {
            Ok(Box::new(WatchedQueue {
                queue: self.device.queue(depth)?,
                in_flight: AtomicUsize::new(0),
                dropped: self.dropped.clone(),
            }))
        }
    }

    // SAFETY: whatever is asked of it, the queue within does.
    unsafe impl Queue for WatchedQueue {
        unsafe fn submit(&mut self, requests: &[Request]) {
            self.in_flight.fetch_add(requests.len(), Ordering::Relaxed);
            // SAFETY: the caller's promise.
            unsafe { self.queue.submit(requests) };
        }

        fn poll(&mut self, done: &mut [Done]) -> usize {
            let count = self.queue.poll(done);
            self.in_flight.fetch_sub(count, Ordering::Relaxed);
            count
        }

        fn arm(&mut self) -> Arm<'_> {
            self.queue.arm()
        }

        fn disarm(&mut self) {
            self.queue.disarm();
        }
    }

    impl Drop for WatchedQueue {
        fn drop(&mut self) {
            if self.in_flight.load(Ordering::Relaxed) > 0 {
                let thread = thread::current().id();
                self.dropped.lock().expect("not poisoned").push(thread);
            }
        }
    }

    /// Whoever closes the store has the slot in his hands while its thread ends, and the session has
    /// something under way.
    #[test]
    fn a_session_with_something_under_way_ends_with_its_own_thread() {
        let dropped = Arc::new(Mutex::default());
        let device = Watched {
            device: SimDevice::new(SimConfig::new(1, 1 << 20)),
            dropped: dropped.clone(),
        };
        let (store, _) = Store::unmaintained(Arc::new(device), &Options::default()).expect("new");
        let (slot, thread) = thread::scope(|scope| {
            let work = || {
                let own = Own::new(store.session().expect("a session"));
                let read = |session: &Session| {
                    let disk = session.disk();
                    // Two, of which one ends: the other is given up and stays under way.
                    let reads = [0, 512].map(|at| disk.read(disk.buffer(512), at));
                    disk.poll();
                    drop(reads);
                    assert!(!session.is_idle());
                };
                // SAFETY: the futures are dropped.
                assert!(unsafe { own.with(read) }.is_ok());
                let slot = own.slot().upgrade().expect("it is held");
                slot.clear();
                assert!(!own.is_empty(), "left for its thread");
                (slot, thread::current().id())
            };
            scope.spawn(work).join().expect("no panic")
        });
        slot.clear();
        drop(slot);
        assert_eq!(*dropped.lock().expect("not poisoned"), [thread]);
    }

    #[test]
    fn a_session_that_has_panicked_is_given_up() {
        let device = SimDevice::new(SimConfig::new(1, 1 << 20));
        let (store, _) = Store::unmaintained(Arc::new(device), &Options::default()).expect("new");
        let own = Own::new(store.session().expect("a session"));
        // SAFETY: it keeps nothing.
        assert!(unsafe { own.with(|session| session.writer.fail()) }.is_ok());
        // SAFETY: it is not carried out.
        assert!(unsafe { own.with(|_| ()) }.is_err());
        assert!(own.is_empty());
    }

    #[test]
    fn an_idle_session_is_taken_away_by_another_thread() {
        let device = SimDevice::new(SimConfig::new(1, 1 << 20));
        let (store, _) = Store::unmaintained(Arc::new(device), &Options::default()).expect("new");
        let own = Own::new(store.session().expect("a session"));
        let slot = own.slot().upgrade().expect("it is held");
        thread::scope(|scope| scope.spawn(move || slot.clear()).join()).expect("no panic");
        assert!(own.is_empty());
        // SAFETY: it is not carried out.
        assert!(unsafe { own.with(|_| ()) }.is_err());
    }
}
