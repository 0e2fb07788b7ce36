//! The inbox of a core: wakes from others, its sleep and its end.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use loom::thread;

use crate::cross::inbox::{Inbox, Link, Pushed};
use crate::{Bell, bounded_model};

/// An engine with a notification of its own, as [`rt::Poller`] asks for it: its work, whether it is
/// armed, and a bell that is rung when work comes while it is.
#[derive(Default)]
struct Engine {
    work: AtomicUsize,
    armed: AtomicBool,
}

struct Core {
    inbox: Inbox,
    bell: Bell,
    links: [Link; 2],
    engine: Engine,
}

impl Core {
    fn new() -> Self {
        Self {
            inbox: Inbox::new(),
            bell: Bell::new(),
            links: [Link::new(), Link::new()],
            engine: Engine::default(),
        }
    }

    /// What `wake_task` does; false when the core has gone.
    fn wake(&self, link: usize) -> bool {
        let link = &self.links[link];
        if !link.claim() {
            return true;
        }
        // SAFETY: claimed, and the links live as long as the inbox.
        match unsafe { self.inbox.push(link) } {
            Pushed::Queued => true,
            Pushed::MustRing => {
                self.bell.ring();
                true
            }
            Pushed::Closed => false,
        }
    }

    /// Gives the engine work, from another thread.
    fn feed(&self) {
        self.engine.work.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.engine.armed.load(Ordering::Relaxed) {
            self.bell.ring();
        }
    }

    /// A turn of the loop, then sleep if it found nothing: drain, poll, arm, sleep.
    fn turn(&self) -> usize {
        let count = self.inbox.drain(|_| {}) + self.engine.work.swap(0, Ordering::Relaxed);
        if count == 0 {
            self.engine.armed.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if self.engine.work.load(Ordering::Relaxed) == 0 {
                self.inbox.sleep_unless(|| false, || self.bell.wait());
            }
            self.engine.armed.store(false, Ordering::Relaxed);
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
        while core.turn() == 0 {}
        assert!(waker.join().unwrap());
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
            seen += core.turn();
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
            core.turn();
        }
        for waker in wakers {
            waker.join().unwrap();
        }
    });
}

#[test]
fn a_task_that_is_woken_twice_runs_after_the_second_wake() {
    // The second wake comes while the core is taking the first. Bounded, because loom puts other
    // threads' stores between what a swap reads and what it writes: then it lets a waker that has
    // failed to clear the flag see its own old value when the flag has been set again.
    bounded_model(|| {
        let core = Arc::new(Core::new());
        let written = Arc::new(AtomicUsize::new(0));
        let waker = {
            let (core, written) = (core.clone(), written.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    written.fetch_add(1, Ordering::Relaxed);
                    core.wake(0);
                }
            })
        };
        while written.load(Ordering::Relaxed) < 2 {
            core.turn();
        }
        waker.join().unwrap();
    });
}

#[test]
fn a_task_that_is_woken_again_while_it_is_taken_cuts_no_other_off() {
    loom::model(|| {
        let core = Arc::new(Core::new());
        for link in [0, 1] {
            core.wake(link);
        }
        let waker = {
            let core = core.clone();
            thread::spawn(move || core.wake(0))
        };
        let mut others = 0;
        let other: *const Link = &core.links[1];
        for _ in 0..2 {
            core.inbox
                .drain(|link| others += usize::from(link == other));
        }
        waker.join().unwrap();
        core.inbox
            .drain(|link| others += usize::from(link == other));
        assert_eq!(others, 1);
    });
}

#[test]
fn neither_a_wake_nor_an_engine_s_work_is_slept_through() {
    bounded_model(|| {
        let core = Arc::new(Core::new());
        let (a, b) = (core.clone(), core.clone());
        let waker = thread::spawn(move || a.wake(0));
        let feeder = thread::spawn(move || b.feed());
        let mut seen = 0;
        while seen < 2 {
            seen += core.turn();
        }
        waker.join().unwrap();
        feeder.join().unwrap();
        assert_eq!(seen, 2);
    });
}

/// Each link is either delivered by the core's end or stays with who woke it: nobody frees it
/// twice, and nobody leaves it behind.
fn end_against(wakers: usize) {
    let core = Arc::new(Core::new());
    let threads: Vec<_> = (0..wakers)
        .map(|link| {
            let core = core.clone();
            thread::spawn(move || core.wake(link))
        })
        .collect();
    let mut delivered = 0;
    core.inbox.drain(|_| delivered += 1);
    core.inbox.close(|_| delivered += 1);
    let taken = threads
        .into_iter()
        .filter_map(|thread| thread.join().unwrap().then_some(()))
        .count();
    assert_eq!(delivered, taken);
}

#[test]
fn a_wake_that_meets_the_end_of_its_core_is_delivered_or_refused() {
    loom::model(|| end_against(1));
    bounded_model(|| end_against(2));
}
