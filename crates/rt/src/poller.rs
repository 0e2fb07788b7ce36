//! Engines that a core drives without tasks: a scan of request regions, a completion queue.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::rc::Weak;

use crate::scheduler::Inner;
use crate::time::Instant;

/// What a poller says when its core wants to sleep.
#[derive(Debug)]
pub enum Arm<'a> {
    /// Work has shown up while arming: do not sleep, poll again.
    Ready,
    /// The poller cannot be woken: keep spinning.
    Busy,
    /// Sleep until one of these, or anything else that the core waits for.
    Sleep {
        /// Becomes readable when there is work. Watched until [`Poller::disarm`].
        fd: Option<BorrowedFd<'a>>,
        /// When to poll at the latest.
        deadline: Option<Instant>,
    },
}

/// An engine: each poll does bounded work and says how much it did.
///
/// A core that has found nothing to do for a while arms its pollers. A poller first asks for its
/// notification, then looks for work once more: what comes after that look must make the file
/// descriptor readable. So no wake-up is lost, whichever way the two race.
pub trait Poller {
    /// Does at most `budget` units of work and returns how many it did.
    fn poll(&mut self, now: Instant, budget: usize) -> usize;

    /// Prepares for sleep.
    fn arm(&mut self) -> Arm<'_>;

    /// The core is awake again; called once after each [`Poller::arm`].
    fn disarm(&mut self);
}

/// Keeps a poller registered; dropping it takes the poller off its core.
#[must_use = "a poller is deregistered when its guard is dropped"]
pub struct PollerGuard {
    core: Weak<Inner>,
    key: usize,
}

impl PollerGuard {
    pub(crate) fn new(core: Weak<Inner>, key: usize) -> Self {
        Self { core, key }
    }

    /// Leaves the poller registered for as long as its core lives.
    pub fn detach(mut self) {
        self.core = Weak::new();
    }
}

impl Drop for PollerGuard {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.pollers.remove(self.key);
        }
    }
}

impl fmt::Debug for PollerGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PollerGuard").field(&self.key).finish()
    }
}

/// The pollers of one core. A poller is out of its slot while it runs, so that it may register and
/// deregister others, and itself.
#[derive(Default)]
pub(crate) struct Pollers(std::cell::RefCell<slab::Slab<Option<Box<dyn Poller>>>>);

impl Pollers {
    pub(crate) fn insert(&self, poller: Box<dyn Poller>) -> usize {
        self.0.borrow_mut().insert(Some(poller))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    fn remove(&self, key: usize) {
        let poller = self.0.borrow_mut().try_remove(key);
        // Dropped outside the borrow: a poller may own guards.
        drop(poller);
    }

    pub(crate) fn clear(&self) {
        let pollers = std::mem::take(&mut *self.0.borrow_mut());
        drop(pollers);
    }

    /// Visits every poller; `visit` returns whether to go on.
    pub(crate) fn visit(&self, mut visit: impl FnMut(&mut dyn Poller) -> bool) {
        let mut key = 0;
        loop {
            let poller = {
                let mut slots = self.0.borrow_mut();
                if key >= slots.capacity() {
                    return;
                }
                slots.get_mut(key).and_then(Option::take)
            };
            if let Some(mut poller) = poller {
                let go_on = visit(poller.as_mut());
                // The slot is gone if the poller deregistered itself; its key may even have been
                // given to a new one, whose slot is then full.
                if let Some(slot @ None) = self.0.borrow_mut().get_mut(key) {
                    *slot = Some(poller);
                }
                if !go_on {
                    return;
                }
            }
            key += 1;
        }
    }
}
