//! Completions of several queue pairs, on their way to one poller.

use loom::sync::Arc;
use loom::thread;

use super::channel::Doorbell;
use crate::bounded_model;
use crate::shared::arming::{Then, polled};
use crate::shared::layout::CqEntry;
use crate::shared::wakeup::{Ring, Sleeper, event};
use crate::sync::AtomicBool;
use crate::sync::bounded::Bounded;
use crate::sync::released::Released;

#[test]
fn a_producer_of_a_queue_that_is_full_at_times() {
    loom::model(|| {
        let queue = Arc::new(Bounded::<u64>::new(1));
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || {
                for number in 0..2 {
                    while queue.push(number).is_none() {
                        thread::yield_now();
                    }
                }
            })
        };
        for number in 0..2 {
            // SAFETY: no other thread takes.
            while let None = unsafe { queue.take(|value| assert_eq!(*value, number)) } {
                thread::yield_now();
            }
        }
        producer.join().unwrap();
    });
}

/// Two producers try twice each. What was accepted comes out once, each one's in order.
fn two_producers(depth: usize) {
    let queue = Arc::new(Bounded::<(usize, u64)>::new(depth));
    let producers = [0, 1].map(|own| {
        let queue = queue.clone();
        thread::spawn(move || {
            let accepted = |number: &u64| queue.push((own, *number)).is_some();
            (1..=2).filter(accepted).collect::<Vec<_>>()
        })
    });
    let mut taken = [vec![], vec![]];
    let mut take = || {
        // SAFETY: no other thread takes.
        unsafe { queue.take(|(own, number)| taken[*own].push(*number)) }.is_some()
    };
    let early = [take(), take()];
    let accepted = producers.map(|producer| producer.join().unwrap());
    while take() {}
    assert_eq!(taken, accepted);
    let count = accepted.concat().len();
    assert!(count >= depth, "{count} of {depth} fit");
    assert!(count <= depth + early.iter().filter(|taken| **taken).count());
}

#[test]
fn what_two_producers_add_comes_out_once_and_in_order() {
    bounded_model(|| two_producers(1));
    bounded_model(|| two_producers(2));
}

#[test]
fn one_that_was_taken_leaves_room_for_whoever_knows_of_it() {
    loom::model(|| {
        let queue = Arc::new(Bounded::<u64>::new(2));
        assert!(queue.push(0).is_some());
        let other = queue.clone();
        let other = thread::spawn(move || assert!(other.push(1).is_some()));
        // SAFETY: no other thread takes.
        assert_eq!(unsafe { queue.take(|value| *value) }, Some(0));
        assert!(queue.push(2).is_some());
        other.join().unwrap();
    });
}

#[test]
fn room_in_a_send_queue_is_room_for_its_completions() {
    loom::model(|| {
        let shared = Arc::new((Bounded::<u64>::new(1), Released::new()));
        assert!(shared.0.push(1).is_some());
        let poster = {
            let shared = shared.clone();
            // Its send queue, as long as its completion queue, has room again.
            thread::spawn(move || shared.1.polled() < 1 || shared.0.push(2).is_some())
        };
        // SAFETY: no other thread takes.
        let taken = unsafe { shared.0.take(|position| *position) };
        shared.1.note(taken.expect("it is there"));
        assert!(poster.join().unwrap(), "an overrun");
    });
}

/// A queue whose owner sleeps until a request fails.
struct Sleeping {
    /// Whether each succeeded.
    completions: Bounded<bool>,
    entry: CqEntry,
    owed: AtomicBool,
    doorbell: Doorbell,
}

impl Sleeping {
    fn sleeper(&self) -> Sleeper<'_> {
        Sleeper {
            number: 0,
            entry: &self.entry,
            owed: &self.owed,
        }
    }

    fn complete(&self, is_ok: bool) {
        let place = self.completions.push(is_ok).expect("room");
        let notify = |solicited| {
            let ring = || self.doorbell.ring_for_nobody();
            self.sleeper().notify(solicited, ring);
        };
        notify(!is_ok);
        if is_ok && self.completions.is_followed(place) {
            notify(true);
        }
    }

    /// Polls since arming: whether a request has failed.
    fn poll(&self) -> bool {
        let (mut found, mut failed) = (false, false);
        loop {
            // SAFETY: no other thread takes.
            while let Some(is_ok) = unsafe { self.completions.take(|is_ok| *is_ok) } {
                (found, failed) = (true, failed | !is_ok);
            }
            if polled(&self.entry, found) != Then::ArmAnew {
                return failed;
            }
            self.sleeper().arm(true);
        }
    }

    fn wait_for_failure(&self) {
        let mut last = u32::MAX;
        loop {
            self.sleeper().arm(true);
            if self.poll() {
                return;
            }
            self.doorbell.wait();
            let ring = || self.doorbell.ring_for_nobody();
            let take = || Ok::<Ring, std::convert::Infallible>(self.doorbell.take());
            let _ = event([self.sleeper()].into_iter(), &mut last, 2, take, ring);
            if self.poll() {
                return;
            }
        }
    }
}

#[test]
fn whoever_sleeps_until_a_request_fails_is_woken_though_another_producer_stands_still() {
    bounded_model(|| {
        let queue = Arc::new(Sleeping {
            completions: Bounded::new(2),
            entry: CqEntry {
                armed: Default::default(),
            },
            owed: AtomicBool::new(false),
            doorbell: Doorbell::new(2),
        });
        let producers = [true, false].map(|is_ok| {
            let queue = queue.clone();
            thread::spawn(move || queue.complete(is_ok))
        });
        queue.wait_for_failure();
        for producer in producers {
            producer.join().unwrap();
        }
    });
}

#[test]
fn who_counts_them_counts_none_that_was_taken_meanwhile() {
    loom::model(|| {
        let queue = Arc::new(Bounded::<u64>::new(1));
        let other = queue.clone();
        let busy = thread::spawn(move || {
            for number in 0..2 {
                assert!(other.push(number).is_some(), "the last one was taken");
                // SAFETY: no other thread takes.
                assert_eq!(unsafe { other.take(|value| *value) }, Some(number));
            }
        });
        assert!(queue.len() <= 1, "it never held two");
        busy.join().unwrap();
    });
}
