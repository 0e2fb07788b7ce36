//! One task that waits for another core: the waker's cell, replies, notifications, the signal to
//! stop.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use crate::cross::notify::notify;
use crate::cross::oneshot::oneshot;
use crate::cross::shutdown::Shutdown;
use crate::cross::waker_cell::WakerCell;
use crate::{block_on, bounded_model};

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
        block_on(poll_fn(|cx| {
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
        let (sender, receiver) = oneshot();
        let thread = thread::spawn(move || sender.send(7));
        assert_eq!(block_on(receiver), Some(7));
        thread.join().unwrap();
    });
}

#[test]
fn a_dropped_sender_ends_the_wait() {
    loom::model(|| {
        let (sender, receiver) = oneshot::<u32>();
        let thread = thread::spawn(move || drop(sender));
        assert_eq!(block_on(receiver), None);
        thread.join().unwrap();
    });
}

/// Counts how often it is dropped.
struct Counted(StdArc<std::sync::atomic::AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

struct Deaf;

impl Wake for Deaf {
    fn wake(self: StdArc<Self>) {}
}

#[test]
fn a_reply_that_nobody_takes_is_dropped_once() {
    loom::model(|| {
        let drops = StdArc::new(std::sync::atomic::AtomicUsize::new(0));
        let (sender, receiver) = oneshot();
        let value = Counted(drops.clone());
        let thread = thread::spawn(move || sender.send(value));
        let waker = Waker::from(StdArc::new(Deaf));
        {
            let mut receiver = pin!(receiver);
            // Taken, or left when the receiver goes.
            drop(receiver.as_mut().poll(&mut Context::from_waker(&waker)));
        }
        thread.join().unwrap();
        assert_eq!(drops.load(std::sync::atomic::Ordering::Relaxed), 1);
    });
}

#[test]
fn a_notification_arrives() {
    loom::model(|| {
        let (notifier, mut notified) = notify();
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

#[test]
fn two_notifications_lose_nothing_that_was_written_before_them() {
    bounded_model(|| {
        let (notifier, mut notified) = notify();
        let written = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (notifier, written) = (notifier.clone(), written.clone());
                thread::spawn(move || {
                    written.fetch_add(1, Ordering::Relaxed);
                    notifier.notify();
                })
            })
            .collect();
        while written.load(Ordering::Relaxed) < 2 {
            block_on(notified.wait());
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn the_signal_to_stop_reaches_who_waits() {
    loom::model(|| {
        let shutdown = Shutdown::new();
        let trigger = shutdown.clone();
        let thread = thread::spawn(move || trigger.trigger());
        block_on(shutdown.wait());
        assert!(shutdown.is_triggered());
        thread.join().unwrap();
    });
}

#[test]
fn the_signal_to_stop_reaches_all() {
    bounded_model(|| {
        let shutdown = Shutdown::new();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let shutdown = shutdown.clone();
                thread::spawn(move || block_on(shutdown.wait()))
            })
            .collect();
        shutdown.trigger();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}
