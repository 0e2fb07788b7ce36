//! What cores share, in the interleavings that loom finds. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p rt --release --test loom`.
#![cfg(loom)]
#![allow(unreachable_pub, missing_docs)]

#[path = "../src/cross"]
mod cross {
    pub(crate) mod atomics;
    pub(crate) mod inbox;
    pub(crate) mod notify;
    pub(crate) mod oneshot;
    pub(crate) mod waker_cell;
}

use std::future::Future;
use std::pin::pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Wake, Waker};

use cross::inbox::{Inbox, Link};
use cross::waker_cell::WakerCell;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// Stands for an eventfd: a ring stays until it is waited for.
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn new() -> Self {
        Self {
            rung: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }

    /// Loom reports a deadlock if nobody ever rings.
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

struct BellWaker(Arc<Bell>);

impl Wake for BellWaker {
    fn wake(self: StdArc<Self>) {
        self.0.ring();
    }
}

/// Polls to the end, sleeping on the bell in between.
fn block_on<F: Future>(future: F) -> F::Output {
    let bell = Arc::new(Bell::new());
    let waker = Waker::from(StdArc::new(BellWaker(bell.clone())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        bell.wait();
    }
}

/// Every interleaving of three threads with at most two preemptions; all of them take hours, and
/// lost wake-ups are known to need few.
fn bounded_model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(body);
}

struct Core {
    inbox: Inbox,
    bell: Bell,
    links: [Link; 2],
}

impl Core {
    fn new() -> Self {
        Self {
            inbox: Inbox::new(),
            bell: Bell::new(),
            links: [Link::new(), Link::new()],
        }
    }

    fn wake(&self, link: usize) {
        let link = &self.links[link];
        // SAFETY: claimed, and the links live as long as the inbox.
        if link.claim() && unsafe { self.inbox.push(link) } {
            self.bell.ring();
        }
    }

    /// The scheduler's protocol: drain; when there is nothing, announce, look again, sleep.
    fn drain_or_sleep(&self) -> usize {
        let count = self.inbox.drain(|_| {});
        if count == 0 && self.inbox.announce_sleep() {
            self.bell.wait();
            self.inbox.announce_awake();
        }
        count
    }
}

#[test]
fn a_sleeping_core_misses_no_wake() {
    loom::model(|| {
        let core = Arc::new(Core::new());
        let other = core.clone();
        let waker = thread::spawn(move || other.wake(0));
        while core.drain_or_sleep() == 0 {}
        waker.join().unwrap();
    });
}

#[test]
fn two_wakers_reach_one_core() {
    bounded_model(|| {
        let core = Arc::new(Core::new());
        let wakers: Vec<_> = (0..2)
            .map(|link| {
                let core = core.clone();
                thread::spawn(move || core.wake(link))
            })
            .collect();
        let mut seen = 0;
        while seen < 2 {
            seen += core.drain_or_sleep();
        }
        for waker in wakers {
            waker.join().unwrap();
        }
        assert_eq!(seen, 2);
        assert!(!core.inbox.is_sleeping());
    });
}

#[test]
fn what_was_written_before_a_wake_is_seen_after_it() {
    // Two cores wake one task: the second wake may find the link claimed, and what its core wrote
    // must be seen nevertheless.
    bounded_model(|| {
        let core = Arc::new(Core::new());
        let written = Arc::new(AtomicUsize::new(0));
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let (core, written) = (core.clone(), written.clone());
                thread::spawn(move || {
                    written.fetch_add(1, Ordering::Relaxed);
                    core.wake(0);
                })
            })
            .collect();
        while written.load(Ordering::Relaxed) < 2 {
            core.drain_or_sleep();
        }
        for waker in wakers {
            waker.join().unwrap();
        }
    });
}

#[test]
fn a_registered_waker_misses_nothing() {
    bounded_model(|| {
        let state = Arc::new((WakerCell::new(), AtomicUsize::new(0)));
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let state = state.clone();
                thread::spawn(move || {
                    state.1.fetch_add(1, Ordering::Relaxed);
                    state.0.wake();
                })
            })
            .collect();
        block_on(std::future::poll_fn(|cx| {
            if state.1.load(Ordering::Relaxed) == 2 {
                return Poll::Ready(());
            }
            // SAFETY: one task registers.
            unsafe { state.0.register(cx.waker()) };
            if state.1.load(Ordering::Relaxed) == 2 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }));
        for waker in wakers {
            waker.join().unwrap();
        }
    });
}

#[test]
fn a_reply_arrives() {
    loom::model(|| {
        let (sender, receiver) = cross::oneshot::oneshot();
        let thread = thread::spawn(move || sender.send(7));
        assert_eq!(block_on(receiver), Some(7));
        thread.join().unwrap();
    });
}

#[test]
fn a_dropped_sender_ends_the_wait() {
    loom::model(|| {
        let (sender, receiver) = cross::oneshot::oneshot::<u32>();
        let thread = thread::spawn(move || drop(sender));
        assert_eq!(block_on(receiver), None);
        thread.join().unwrap();
    });
}

#[test]
fn a_notification_arrives() {
    loom::model(|| {
        let (notifier, mut notified) = cross::notify::notify();
        let done = Arc::new(AtomicBool::new(false));
        let wrote = done.clone();
        let thread = thread::spawn(move || {
            wrote.store(true, Ordering::Relaxed);
            notifier.notify();
        });
        block_on(notified.wait());
        assert!(done.load(Ordering::Relaxed));
        thread.join().unwrap();
    });
}
