//! A completion queue that sleeps until somebody completes on it.

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::bounded_model;
use crate::shared::arming::{Arming, arm, has_event, is_armed, must_ring, rung, take_event};
use crate::shared::layout::CqEntry;

/// A queue whose completions are counted, and its channel.
struct Queue {
    entry: CqEntry,
    completions: AtomicUsize,
    rings: Mutex<Vec<Arming>>,
    changed: Condvar,
}

impl Queue {
    fn new() -> Self {
        Queue {
            entry: CqEntry {
                armed: Default::default(),
            },
            completions: AtomicUsize::new(0),
            rings: Mutex::new(Vec::new()),
            changed: Condvar::new(),
        }
    }

    fn complete(&self, solicited: bool) {
        self.completions.fetch_add(1, Ordering::Release);
        if let Some(arming) = must_ring(&self.entry, solicited) {
            self.rings.lock().unwrap().push(arming);
            self.changed.notify_one();
        }
    }

    /// Waits for a ring. Loom reports a deadlock if it never comes.
    fn event(&self) {
        while !has_event(&self.entry) {
            let mut rings = self.rings.lock().unwrap();
            while rings.is_empty() {
                rings = self.changed.wait(rings).unwrap();
            }
            for arming in rings.drain(..) {
                rung(&self.entry, arming);
            }
        }
        take_event(&self.entry);
    }

    /// Polls until there were so many completions, and sleeps in between.
    fn wait_for(&self, count: usize, solicited_only: bool) {
        let seen = || self.completions.load(Ordering::Acquire);
        while seen() < count {
            arm(&self.entry, solicited_only, || {});
            if seen() < count {
                self.event();
                assert!(!is_armed(&self.entry));
            }
        }
    }
}

#[test]
fn a_queue_that_sleeps_is_woken_by_every_completion() {
    bounded_model(|| {
        let queue = Arc::new(Queue::new());
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || queue.complete(false))
            })
            .collect();
        queue.wait_for(2, false);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_queue_that_sleeps_until_a_solicited_completion_is_woken_by_it() {
    bounded_model(|| {
        let queue = Arc::new(Queue::new());
        let other = queue.clone();
        let thread = thread::spawn(move || {
            other.complete(false);
            other.complete(true);
        });
        queue.wait_for(2, true);
        thread.join().unwrap();
    });
}
