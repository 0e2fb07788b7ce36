//! A lock for each key with commands under way on this core: shared by reads, shared by values that are
//! put, exclusive to other changes; granted in the order of requests.
//!
//! Commands wait for the device, and several are under way at a time. The order of grants makes a
//! `get` that was asked behind a `set` see it, and one asked before not. Puts of a key follow each other into
//! the log and share its writes, which the store itself keeps in order: so each is let in when the one
//! before it has its place in the store's line.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::hash::KeyHash;

/// The locks of keys that somebody holds or waits for.
#[derive(Default)]
pub(super) struct KeyLocks(RefCell<HashMap<KeyHash, Lock>>);

/// With whom a command shares its key's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// A read, with other reads.
    Reads,
    /// A value that does not depend on the old one, with others.
    Puts,
    /// Any other change.
    Nobody,
}

#[derive(Default)]
struct Lock {
    /// How those who hold it share it.
    sharing: Option<Sharing>,
    holders: usize,
    /// The put that holds it and has no place in the store's line yet.
    entering: Option<u64>,
    puts: Puts,
    waiters: VecDeque<Waiter>,
}

/// What has become of the puts that share a lock, by their numbers, which count from 1.
#[derive(Default)]
struct Puts {
    granted: u64,
    under_way: Vec<u64>,
    /// The last that was stored.
    stored: u64,
    /// The last that has found no room.
    refused: u64,
}

/// What has become of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Stored,
    /// There was no room: the old value is not to be seen either.
    Refused,
    /// Whether it was stored is open.
    Failed,
}

struct Waiter {
    sharing: Sharing,
    grant: Rc<Grant>,
}

/// Tells a waiter that it holds the lock.
#[derive(Default)]
struct Grant {
    given: Cell<bool>,
    /// Which one it is of the puts that share the lock.
    put: Cell<u64>,
    waker: RefCell<Option<Waker>>,
}

/// A requested lock, held once it is granted; dropping it gives the lock, or the place in the queue,
/// back.
pub(super) struct Permit {
    locks: Rc<KeyLocks>,
    hash: KeyHash,
    /// Which one it is of the puts that share the lock, if it was granted at once.
    put: u64,
    /// None if the lock was granted at once.
    grant: Option<Rc<Grant>>,
}

impl KeyLocks {
    /// Requests the lock of a key. The place in its queue is taken by this call, not by waiting.
    pub(super) fn request(self: &Rc<Self>, hash: KeyHash, sharing: Sharing) -> Permit {
        let mut locks = self.0.borrow_mut();
        let lock = locks.entry(hash).or_default();
        let (mut put, mut grant) = (0, None);
        if lock.waiters.is_empty() && lock.admits(sharing) {
            put = lock.hold(sharing);
        } else {
            let waits = Rc::<Grant>::default();
            lock.waiters.push_back(Waiter {
                sharing,
                grant: Rc::clone(&waits),
            });
            grant = Some(waits);
        }
        Permit {
            locks: Rc::clone(self),
            hash,
            put,
            grant,
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

impl Lock {
    fn admits(&self, sharing: Sharing) -> bool {
        match self.sharing {
            None => true,
            Some(Sharing::Nobody) => false,
            Some(held) => held == sharing && self.entering.is_none(),
        }
    }

    /// Returns the number of a put.
    fn hold(&mut self, sharing: Sharing) -> u64 {
        self.sharing = Some(sharing);
        self.holders += 1;
        if sharing != Sharing::Puts {
            return 0;
        }
        self.puts.granted += 1;
        self.puts.under_way.push(self.puts.granted);
        self.entering = Some(self.puts.granted);
        self.puts.granted
    }

    /// A put has its place in the store's line, or takes none.
    fn let_next_in(&mut self, put: u64) {
        if self.entering == Some(put) {
            self.entering = None;
            self.grant_next();
        }
    }

    /// Grants the lock to the first waiters, as many as may hold it together.
    fn grant_next(&mut self) {
        while let Some(next) = self.waiters.front()
            && self.admits(next.sharing)
            && let Some(Waiter { sharing, grant }) = self.waiters.pop_front()
        {
            grant.put.set(self.hold(sharing));
            grant.given.set(true);
            if let Some(waker) = grant.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Puts {
    /// Notes what has become of a put, and says whether whoever asks has to remove the key.
    fn end(&mut self, put: u64, outcome: Outcome) -> bool {
        self.under_way.retain(|other| *other != put);
        match outcome {
            Outcome::Stored => self.stored = self.stored.max(put),
            Outcome::Refused => self.refused = self.refused.max(put),
            Outcome::Failed => {}
        }
        // A later one that is stored takes the old value's place, and one under way will see to it.
        let is_last = self.under_way.iter().all(|other| *other < self.refused);
        let has_to = self.refused > self.stored && is_last;
        if has_to {
            self.refused = 0;
        }
        has_to
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

    fn number(&self) -> u64 {
        let granted_late = self.grant.as_ref().map(|grant| grant.put.get());
        granted_late.unwrap_or(self.put)
    }

    /// Carries a put out. When it was polled once, it has its place in the store's line, and the next one
    /// is let in.
    pub(super) async fn put<T>(&self, put: impl Future<Output = T>) -> T {
        let mut put = pin!(put);
        let mut has_entered = false;
        poll_fn(|context| {
            let poll = put.as_mut().poll(context);
            if !std::mem::replace(&mut has_entered, true) {
                self.change(|lock| lock.let_next_in(self.number()));
            }
            poll
        })
        .await
    }

    /// Says what has become of a put; returns whether its key has to be removed, at once, so that nobody reads
    /// the value that was to be replaced.
    pub(super) fn ends(&self, outcome: Outcome) -> bool {
        self.change(|lock| lock.puts.end(self.number(), outcome))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Lock) -> T) -> T {
        let mut locks = self.locks.0.borrow_mut();
        change(
            locks
                .get_mut(&self.hash)
                .expect("who has a permit has a lock"),
        )
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
            _ => {
                lock.holders -= 1;
                if lock.holders == 0 {
                    lock.sharing = None;
                }
                let put = self.number();
                lock.puts.under_way.retain(|other| *other != put);
                lock.entering = lock.entering.filter(|entering| *entering != put);
            }
        }
        lock.grant_next();
        if lock.holders == 0 && lock.waiters.is_empty() {
            locks.remove(&self.hash);
        }
    }
}

#[cfg(test)]
mod tests {
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

    const SHARING: [Sharing; 3] = [Sharing::Reads, Sharing::Puts, Sharing::Nobody];

    /// Has a put take its place in the store's line.
    fn has_put(permit: &Permit) -> bool {
        let put = pin!(permit.put(std::future::ready(())));
        put.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Random requests and drops, beside a plain list of who has asked.
    #[test]
    fn locks_are_granted_in_order_and_reads_share_them() {
        let mut random = fastrand::Rng::with_seed(3);
        let locks = Rc::<KeyLocks>::default();
        let hashes = [KeyHash::new(1, b"a"), KeyHash::new(1, b"b")];
        let mut asked: Vec<(usize, Sharing, Permit)> = Vec::new();
        for _ in 0..5000 {
            if asked.is_empty() || (asked.len() < 9 && random.bool()) {
                let (key, sharing) = (random.usize(..2), SHARING[random.usize(..3)]);
                asked.push((key, sharing, locks.request(hashes[key], sharing)));
            } else {
                // Whoever it is, also one that waits: a future may be dropped at any time.
                asked.remove(random.usize(..asked.len()));
            }
            for (at, (key, sharing, permit)) in asked.iter().enumerate() {
                let mut before = asked[..at].iter().filter(|(other, ..)| other == key);
                let expected = match sharing {
                    Sharing::Nobody => before.next().is_none(),
                    shared => before.all(|(_, other, _)| other == shared),
                };
                assert_eq!(is_granted(permit), expected, "{at} of {}", asked.len());
                if expected && *sharing == Sharing::Puts {
                    // Until it has, those behind it wait.
                    assert!(has_put(permit));
                }
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
        let first = locks.request(hash, Sharing::Nobody);
        let second = locks.request(hash, Sharing::Reads);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut granted = pin!(second.granted());
        assert!(granted.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(woken.0.load(Ordering::Relaxed));
        assert!(granted.poll(&mut context).is_ready());
    }

    /// One is let in when the one before it has taken its place, however the core runs their tasks.
    #[test]
    fn puts_enter_one_after_the_other() {
        let locks = Rc::<KeyLocks>::default();
        let hash = KeyHash::new(1, b"a");
        let permits: Vec<Permit> = (0..4).map(|_| locks.request(hash, Sharing::Puts)).collect();
        let granted = || permits.iter().filter(|permit| is_granted(permit)).count();
        assert_eq!(granted(), 1);
        let mut context = Context::from_waker(Waker::noop());
        let mut first = pin!(permits[0].put(std::future::pending::<()>()));
        for _ in 0..2 {
            // Going on with the first lets nobody in who comes behind the second.
            assert!(first.as_mut().poll(&mut context).is_pending());
            assert_eq!(granted(), 2);
        }
        assert!(has_put(&permits[1]));
        assert_eq!(granted(), 3);
    }

    /// After a put that has found no room, nobody reads the old value, nor loses a later one.
    #[test]
    fn the_last_that_finds_no_room_removes_the_key() {
        use Outcome::{Failed, Refused, Stored};
        // What becomes of puts, in the order of their ends, and which of these has to remove the key.
        type Ends = &'static [(usize, Outcome)];
        let cases: [(Ends, &[bool]); 9] = [
            (&[(0, Stored)], &[false]),
            (&[(0, Refused)], &[true]),
            (&[(0, Failed)], &[false]),
            (&[(0, Refused), (1, Stored)], &[false, false]),
            (&[(1, Stored), (0, Refused)], &[false, false]),
            (&[(0, Refused), (1, Refused)], &[false, true]),
            (&[(0, Refused), (1, Failed)], &[false, true]),
            (&[(1, Failed), (0, Refused)], &[false, true]),
            (&[(1, Refused), (0, Stored)], &[true, false]),
        ];
        for (ends, expected) in cases {
            let locks = Rc::<KeyLocks>::default();
            let hash = KeyHash::new(1, b"a");
            let permits: Vec<Permit> = (0..ends.len())
                .map(|_| locks.request(hash, Sharing::Puts))
                .collect();
            assert!(permits.iter().all(has_put));
            let removes: Vec<bool> = ends
                .iter()
                .map(|&(put, outcome)| permits[put].ends(outcome))
                .collect();
            assert_eq!(removes, expected, "{ends:?}");
        }
    }
}
