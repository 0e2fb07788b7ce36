//! The memory that connections share, and what each of them holds of it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use rt::Instant;
use rt::sync::Notify;

use crate::Pressure;

/// Memory is accounted for in units of so many bytes, so that a connection that does little never
/// touches what all cores share.
const UNIT: usize = 32 << 10;

/// A bound on the memory of all connections together, for all cores.
///
/// It bounds by refusing and by holding back, not by failing allocations, and each connection settles
/// with it after each step. So the sum may pass the limit by what one step of each core adds, and by
/// 32 KiB for each connection, which are not accounted for.
#[derive(Debug)]
pub struct Pool {
    limit: usize,
    used: AtomicUsize,
    /// Seats so far.
    accounts: AtomicU64,
}

impl Pool {
    /// A pool of so many bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            used: AtomicUsize::new(0),
            accounts: AtomicU64::new(0),
        }
    }

    /// Bytes at most.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// How short memory is.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        let used = self.used();
        if used < self.limit / 2 {
            Pressure::None
        } else if used < self.limit {
            Pressure::Short
        } else {
            Pressure::Out
        }
    }

    /// Accounts for memory that is held outside of a connection's own.
    pub fn take(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives back what was taken.
    pub fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl engine::Budget for Pool {
    fn take(&self, bytes: usize) {
        self.take(bytes);
    }

    fn give_back(&self, bytes: usize) {
        self.give_back(bytes);
    }

    fn has_room(&self) -> bool {
        self.pressure() != Pressure::Out
    }
}

/// One connection's part of a [`Pool`], and when it last got on: for the one who serves it, and the
/// one who watches over all connections of a core.
pub struct Account {
    pool: Arc<Pool>,
    number: u64,
    /// Whom to tell that there is something to watch over.
    watched: Notify,
    units: Cell<usize>,
    active_at: Cell<Instant>,
    wants_less: Cell<bool>,
    owes: Cell<bool>,
    /// Wakes the task that serves the connection.
    waker: RefCell<Option<Waker>>,
}

impl Account {
    /// A connection that holds nothing, and came now. `watched` is notified when it comes to hold
    /// something.
    #[must_use]
    pub fn new(pool: Arc<Pool>, watched: Notify, now: Instant) -> Self {
        Self {
            number: pool.accounts.fetch_add(1, Ordering::Relaxed),
            pool,
            watched,
            units: Cell::new(0),
            active_at: Cell::new(now),
            wants_less: Cell::new(false),
            owes: Cell::new(false),
            waker: RefCell::new(None),
        }
    }

    /// A number that no other account of the pool has.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Bytes that it is accounted for.
    #[must_use]
    pub fn held(&self) -> usize {
        self.units.get() * UNIT
    }

    /// When it last received something, or had sent what was to be sent.
    #[must_use]
    pub fn active_at(&self) -> Instant {
        self.active_at.get()
    }

    /// The pool it belongs to.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Whether its client may be waiting for an answer, or has some of one to take: then it is not for the
    /// client to speak. A connection that has sent all it had to say finds that out when it is asked for
    /// less ([`Account::want_less`]).
    #[must_use]
    pub fn owes(&self) -> bool {
        self.owes.get()
    }

    /// Says whether the client may be waiting for an answer, or has some of one to take.
    #[inline]
    pub fn set_owes(&self, owes: bool) {
        self.owes.set(owes);
    }

    /// Has the connection give back what it does not need while it waits for its client.
    pub fn want_less(&self) {
        self.wants_less.set(true);
        self.wake();
    }

    /// Has the task that serves the connection polled.
    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Says which task serves the connection.
    pub fn served_by(&self, waker: &Waker) {
        let mut kept = self.waker.borrow_mut();
        if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            *kept = Some(waker.clone());
        }
    }

    #[inline]
    pub(crate) fn takes_less(&self) -> bool {
        self.wants_less.get() && self.wants_less.replace(false)
    }

    /// Notes that something was received, or that what was to be sent has gone.
    #[inline]
    pub fn got_on(&self, now: Instant) {
        self.active_at.set(now);
    }

    /// Accounts for what the connection holds now.
    #[inline]
    pub fn settle(&self, bytes: usize) {
        let units = bytes / UNIT;
        if units != self.units.get() {
            self.change(units);
        }
    }

    #[cold]
    fn change(&self, units: usize) {
        let before = self.units.replace(units);
        if units > before {
            self.pool.take((units - before) * UNIT);
        } else {
            self.pool.give_back((before - units) * UNIT);
        }
        if before == 0 && units > 0 {
            self.watched.notify_one();
        }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("held", &self.held())
            .field("active_at", &self.active_at())
            .finish_non_exhaustive()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.settle(0);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    #[test]
    fn seats_account_for_what_they_hold() {
        let pool = Arc::new(Pool::new(10 * UNIT));
        let watched = Notify::new();
        let sit = || Account::new(Arc::clone(&pool), watched.clone(), Instant::ZERO);
        let account = sit();
        account.settle(UNIT - 1);
        assert_eq!((account.held(), pool.used()), (0, 0));
        account.settle(5 * UNIT);
        assert_eq!(pool.pressure(), Pressure::Short);
        let other = sit();
        other.settle(7 * UNIT + 1);
        assert_eq!((pool.used(), pool.pressure()), (12 * UNIT, Pressure::Out));
        account.settle(0);
        assert_eq!(pool.used(), 7 * UNIT);
        drop((account, other));
        assert_eq!((pool.used(), pool.pressure()), (0, Pressure::None));
    }

    /// Whoever watches over all connections looks at each of them when it is notified.
    #[test]
    fn only_one_that_comes_to_hold_something_is_news() {
        let pool = Arc::new(Pool::new(10 * UNIT));
        let watched = Notify::new();
        let is_news = || {
            let mut context = Context::from_waker(Waker::noop());
            pin!(watched.notified()).poll(&mut context).is_ready()
        };
        let sit = || Account::new(Arc::clone(&pool), watched.clone(), Instant::ZERO);
        drop(sit());
        assert!(!is_news(), "it came and went");
        let account = sit();
        account.settle(UNIT - 1);
        assert!(!is_news(), "it holds next to nothing");
        account.settle(2 * UNIT);
        assert!(is_news());
        account.settle(3 * UNIT);
        account.settle(0);
        assert!(!is_news(), "it held something already");
        account.settle(UNIT);
        assert!(is_news());
        drop(account);
        assert!(!is_news(), "it has gone");
    }
}
