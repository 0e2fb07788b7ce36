//! What other cores write into: the queue of woken tasks and the sleeping flag.
//!
//! The queue is a stack that many threads push to and only the owner empties, all at once; a link
//! lives inside its task, so a wake allocates nothing. The flag and the queue together are the
//! handshake that keeps wake-ups from being lost:
//!
//! ```text
//! owner                              another core
//! sleeping = true                    push the link
//! fence                              fence
//! queue empty? yes: sleep            sleeping? yes: clear it, ring the bell
//! ```
//!
//! Whichever fence comes second, its side sees the other's write: either the owner finds the link,
//! or the other core finds the flag. Only who clears the flag rings, so one sleep costs one ring.

use std::ptr;

use super::atomics::{AtomicBool, AtomicPtr, Ordering, fence};

/// A place in an [`Inbox`]; belongs to one task for good.
#[derive(Debug)]
pub(crate) struct Link {
    next: AtomicPtr<Link>,
    queued: AtomicBool,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            queued: AtomicBool::new(false),
        }
    }

    /// Reserves the link for one push. `false` means that it is queued already, and that its owner
    /// will see everything written before this call.
    pub(crate) fn claim(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
    }
}

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Pushed {
    /// The owner is awake and will come to it.
    Queued,
    /// The caller has to ring the owner's bell.
    MustRing,
    /// The owner has gone: the link is still the caller's.
    Closed,
}

/// Stands in `head` once the owner has gone. No link has this address.
fn closed() -> *mut Link {
    ptr::without_provenance_mut(1)
}

/// The queue of links woken by other cores, and the flag that says whether to ring.
#[derive(Debug)]
pub(crate) struct Inbox {
    head: AtomicPtr<Link>,
    sleeping: AtomicBool,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
            sleeping: AtomicBool::new(false),
        }
    }

    /// Queues a claimed link.
    ///
    /// # Safety
    /// The caller has won [`Link::claim`] for this push, and the link stays valid until
    /// [`Inbox::drain`] or [`Inbox::close`] has handed it back, unless the inbox is closed.
    pub(crate) unsafe fn push(&self, link: *const Link) -> Pushed {
        let link = link.cast_mut();
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if head == closed() {
                return Pushed::Closed;
            }
            // SAFETY: the link is valid by contract; the claim makes this thread its only writer.
            unsafe { (*link).next.store(head, Ordering::Relaxed) };
            match self
                .head
                .compare_exchange_weak(head, link, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(seen) => head = seen,
            }
        }
        fence(Ordering::SeqCst);
        // The load keeps the flag's cache line shared while the owner is awake.
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::AcqRel) {
            Pushed::MustRing
        } else {
            Pushed::Queued
        }
    }

    /// Hands every queued link to `deliver`, oldest first, and returns how many there were. Only
    /// the owner calls this.
    pub(crate) fn drain(&self, deliver: impl FnMut(*const Link)) -> usize {
        if self.head.load(Ordering::Relaxed).is_null() {
            return 0;
        }
        self.take(ptr::null_mut(), deliver)
    }

    /// Whether nothing is queued. Only the owner calls this.
    pub(crate) fn is_empty(&self) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        head.is_null() || head == closed()
    }

    /// Drains for the last time: what is woken from now on stays with who wakes it. Only the owner
    /// calls this, and neither drains nor sleeps any more.
    pub(crate) fn close(&self, deliver: impl FnMut(*const Link)) {
        self.take(closed(), deliver);
    }

    fn take(&self, leave: *mut Link, mut deliver: impl FnMut(*const Link)) -> usize {
        let mut newest = self.head.swap(leave, Ordering::Acquire);
        debug_assert!(newest != closed(), "a closed inbox is left alone");
        let mut oldest = ptr::null_mut::<Link>();
        while !newest.is_null() {
            // SAFETY: a queued link is valid until delivered, and its `next` belongs to the owner
            // of the queue while `queued` is set.
            unsafe {
                let older = (*newest).next.load(Ordering::Relaxed);
                (*newest).next.store(oldest, Ordering::Relaxed);
                oldest = newest;
                newest = older;
            }
        }
        let mut count = 0;
        while !oldest.is_null() {
            let link = oldest;
            // SAFETY: as above; `next` is read before `queued` is cleared, since from then on a
            // waker may push the link again. The swap pairs with a failed claim.
            unsafe {
                oldest = (*link).next.load(Ordering::Relaxed);
                (*link).queued.swap(false, Ordering::AcqRel);
            }
            deliver(link);
            count += 1;
        }
        count
    }

    /// Announces that the owner is about to sleep and calls `doze`, which returns when the bell has
    /// rung or something else has happened; unless a link is queued or `has_work` finds anything
    /// else to do. Only the owner calls this.
    pub(crate) fn sleep_unless(&self, has_work: impl FnOnce() -> bool, doze: impl FnOnce()) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.head.load(Ordering::Relaxed).is_null() && !has_work() {
            doze();
        }
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Whether the owner has announced its sleep and nobody has rung since.
    pub(crate) fn is_sleeping(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed)
    }
}
