//! A lock for each key with commands under way on this core: shared by reads, exclusive to changes,
//! granted in the order of requests.
//!
//! Commands wait for the device, and several are under way at a time. The order of grants makes a
//! `get` that was asked behind a `set` see it, and one asked before not.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::hash::KeyHash;

/// The locks of keys that somebody holds or waits for.
#[derive(Default)]
pub(super) struct KeyLocks(RefCell<HashMap<KeyHash, Lock>>);

#[derive(Default)]
struct Lock {
    /// Held by a change.
    exclusive: bool,
    /// Reads that hold it.
    shared: usize,
    waiters: VecDeque<Waiter>,
}

struct Waiter {
    exclusive: bool,
    grant: Rc<Grant>,
}

/// Tells a waiter that it holds the lock.
#[derive(Default)]
struct Grant {
    given: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// A requested lock, held once it is granted; dropping it gives the lock, or the place in the queue,
/// back.
pub(super) struct Permit {
    locks: Rc<KeyLocks>,
    hash: KeyHash,
    exclusive: bool,
    /// None if the lock was granted at once.
    grant: Option<Rc<Grant>>,
}

impl KeyLocks {
    /// Requests the lock of a key. The place in its queue is taken by this call, not by waiting.
    pub(super) fn request(self: &Rc<Self>, hash: KeyHash, exclusive: bool) -> Permit {
        let mut locks = self.0.borrow_mut();
        let lock = locks.entry(hash).or_default();
        let grant = if lock.waiters.is_empty() && lock.admits(exclusive) {
            lock.hold(exclusive);
            None
        } else {
            let grant = Rc::<Grant>::default();
            lock.waiters.push_back(Waiter {
                exclusive,
                grant: Rc::clone(&grant),
            });
            Some(grant)
        };
        Permit {
            locks: Rc::clone(self),
            hash,
            exclusive,
            grant,
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

impl Lock {
    fn admits(&self, exclusive: bool) -> bool {
        !self.exclusive && (!exclusive || self.shared == 0)
    }

    fn hold(&mut self, exclusive: bool) {
        if exclusive {
            self.exclusive = true;
        } else {
            self.shared += 1;
        }
    }

    /// Grants the lock to the first waiters, as many as may hold it together.
    fn grant_next(&mut self) {
        while let Some(next) = self.waiters.front()
            && self.admits(next.exclusive)
        {
            let exclusive = next.exclusive;
            self.hold(exclusive);
            if let Some(Waiter { grant, .. }) = self.waiters.pop_front() {
                grant.given.set(true);
                if let Some(waker) = grant.waker.take() {
                    waker.wake();
                }
            }
        }
    }
}

impl Permit {
    /// Waits until the lock is granted.
    pub(super) async fn granted(&self) {
        let Some(grant) = &self.grant else {
            return;
        };
        poll_fn(|context| {
            if grant.given.get() {
                return Poll::Ready(());
            }
            *grant.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut locks = self.locks.0.borrow_mut();
        let Some(lock) = locks.get_mut(&self.hash) else {
            return;
        };
        match &self.grant {
            Some(grant) if !grant.given.get() => {
                let is_other = |waiter: &Waiter| !Rc::ptr_eq(&waiter.grant, grant);
                lock.waiters.retain(is_other);
            }
            _ if self.exclusive => lock.exclusive = false,
            _ => lock.shared -= 1,
        }
        lock.grant_next();
        if !lock.exclusive && lock.shared == 0 && lock.waiters.is_empty() {
            locks.remove(&self.hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    fn is_granted(permit: &Permit) -> bool {
        let granted = pin!(permit.granted());
        granted
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    /// Random requests and drops, beside a plain list of who has asked.
    #[test]
    fn locks_are_granted_in_order_and_reads_share_them() {
        let mut random = fastrand::Rng::with_seed(3);
        let locks = Rc::<KeyLocks>::default();
        let hashes = [KeyHash::new(1, b"a"), KeyHash::new(1, b"b")];
        let mut asked: Vec<(usize, bool, Permit)> = Vec::new();
        for _ in 0..5000 {
            if asked.is_empty() || (asked.len() < 9 && random.bool()) {
                let (key, exclusive) = (random.usize(..2), random.bool());
                asked.push((key, exclusive, locks.request(hashes[key], exclusive)));
            } else {
                // Whoever it is, also one that waits: a future may be dropped at any time.
                asked.remove(random.usize(..asked.len()));
            }
            for (at, (key, exclusive, permit)) in asked.iter().enumerate() {
                let mut before = asked[..at].iter().filter(|(other, ..)| other == key);
                let expected = if *exclusive {
                    before.next().is_none()
                } else {
                    before.all(|(_, exclusive, _)| !exclusive)
                };
                assert_eq!(is_granted(permit), expected, "{at} of {}", asked.len());
            }
        }
        asked.clear();
        assert_eq!(locks.len(), 0, "a lock was left behind");
    }

    #[test]
    fn who_waits_is_woken() {
        #[derive(Default)]
        struct Woken(AtomicBool);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let locks = Rc::<KeyLocks>::default();
        let hash = KeyHash::new(1, b"a");
        let first = locks.request(hash, true);
        let second = locks.request(hash, false);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut granted = pin!(second.granted());
        assert!(granted.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(woken.0.load(Ordering::Relaxed));
        assert!(granted.poll(&mut context).is_ready());
    }
}
