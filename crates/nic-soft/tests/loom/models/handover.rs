//! A value that its owner uses without a lock, and a helper now and then.

use loom::sync::Arc;
use loom::thread;

use crate::bounded_model;
use crate::sync::handover::Handover;
use crate::sync::quiescence::Quiescence;

/// A queue of work: each entry is done once, in order, by whoever gets to it.
#[derive(Default)]
struct Work {
    waiting: Vec<u32>,
    done: Vec<u32>,
}

impl Work {
    /// Does one piece, and says whether more is left.
    fn step(&mut self) -> bool {
        if !self.waiting.is_empty() {
            let next = self.waiting.remove(0);
            self.done.push(next);
        }
        !self.waiting.is_empty()
    }
}

#[test]
fn an_owner_and_a_helper_never_meet_in_the_value() {
    loom::model(|| {
        let value = Arc::new(Handover::new(Work::default()));
        let helper = {
            let value = Arc::clone(&value);
            thread::spawn(move || {
                for _ in 0..2 {
                    value.help(Work::step);
                }
            })
        };
        for piece in 0..2 {
            // SAFETY: this thread alone owns the value.
            unsafe {
                value.own(|work| {
                    work.waiting.push(piece);
                    ((), true)
                });
            }
        }
        helper.join().expect("the helper ends");
        // SAFETY: as above.
        let done = unsafe {
            value.own(|work| {
                while work.step() {}
                (std::mem::take(&mut work.done), false)
            })
        };
        assert_eq!(done, [0, 1]);
        assert!(!value.is_shared());
    });
}

#[test]
fn what_a_helper_finishes_its_owner_sees() {
    loom::model(|| {
        let value = Arc::new(Handover::new(Work::default()));
        // SAFETY: this thread alone owns the value.
        unsafe {
            value.own(|work| {
                work.waiting.push(7);
                ((), true)
            });
        }
        let helper = {
            let value = Arc::clone(&value);
            thread::spawn(move || value.help(Work::step))
        };
        // SAFETY: as above.
        let seen =
            unsafe { value.own(|work| ((work.waiting.len(), work.done.len()), work.step())) };
        assert!(seen == (1, 0) || seen == (0, 1), "{seen:?}");
        helper.join().expect("the helper ends");
    });
}

#[test]
fn a_helper_that_comes_too_late_stays_away() {
    loom::model(|| {
        let value = Arc::new(Handover::new(Work::default()));
        let helper = {
            let value = Arc::clone(&value);
            thread::spawn(move || value.help(Work::step))
        };
        let own = |work: fn(&mut Work) -> ((), bool)| {
            // SAFETY: this thread alone owns the value.
            unsafe { value.own(work) }
        };
        own(|work| {
            work.waiting.push(7);
            ((), true)
        });
        // Finished here, or by the helper before; from then on the owner takes no lock.
        own(|work| ((), work.step()));
        // SAFETY: as above.
        let done = unsafe { value.alone() }.map(|mut alone| alone.value().done.len());
        assert_eq!(done, Some(1));
        own(|work| {
            assert_eq!(work.done, [7]);
            ((), false)
        });
        helper.join().expect("the helper ends");
    });
}

#[test]
fn a_visitor_meets_neither_the_owner_nor_a_helper() {
    let met = |with_helper: bool| {
        let value = Arc::new(Handover::new(Work::default()));
        let quiescence = Arc::new(Quiescence::new());
        let activity = quiescence.activity();
        let visitor = {
            let (value, quiescence) = (Arc::clone(&value), Arc::clone(&quiescence));
            thread::spawn(move || {
                value.recall();
                quiescence.wait();
                let work = |work: &mut Work| {
                    work.done.push(9);
                    ((), !work.waiting.is_empty())
                };
                // SAFETY: what the owner began before the recall is over, and nobody else visits.
                while unsafe { value.visit(work) }.is_none() {
                    thread::yield_now();
                }
            })
        };
        let helper = with_helper.then(|| {
            let value = Arc::clone(&value);
            thread::spawn(move || value.help(Work::step))
        });
        let own = |work: fn(&mut Work) -> ((), bool)| {
            let _active = activity.enter();
            // SAFETY: this thread alone owns the value.
            unsafe { value.own(work) }
        };
        own(|work| {
            work.waiting.push(7);
            ((), true)
        });
        own(|work| {
            while work.step() {}
            ((), false)
        });
        {
            let _active = activity.enter();
            // SAFETY: as above.
            if let Some(mut alone) = unsafe { value.alone() } {
                assert!(alone.value().waiting.is_empty());
            }
        }
        visitor.join().expect("the visitor ends");
        if let Some(helper) = helper {
            helper.join().expect("the helper ends");
        }
        // The visit is over, so this takes no lock.
        own(|work| {
            work.done.sort_unstable();
            assert_eq!(work.done, [7, 9]);
            ((), false)
        });
    };
    loom::model(move || met(false));
    bounded_model(move || met(true));
}

#[test]
fn a_visit_of_the_owner_leaves_another_visitor_his() {
    bounded_model(|| {
        let value = Arc::new(Handover::new(Work::default()));
        let quiescence = Arc::new(Quiescence::new());
        let activity = quiescence.activity();
        let visit = |value: &Handover<Work>, mark| {
            let work = |work: &mut Work| {
                work.done.push(mark);
                ((), false)
            };
            // SAFETY: recalled by the caller, and what the owner began before that is over.
            unsafe { value.visit_waiting(work) };
        };
        let visitor = {
            let (value, quiescence) = (Arc::clone(&value), Arc::clone(&quiescence));
            thread::spawn(move || {
                value.recall();
                quiescence.wait();
                visit(&value, 9);
            })
        };
        value.recall();
        visit(&value, 8);
        {
            let _active = activity.enter();
            // SAFETY: this thread alone owns the value.
            unsafe {
                value.own(|work| {
                    work.done.push(7);
                    ((), false)
                });
            }
        }
        visitor.join().expect("the visitor ends");
        // SAFETY: as above.
        let mut done = unsafe { value.own(|work| (std::mem::take(&mut work.done), false)) };
        done.sort_unstable();
        assert_eq!(done, [7, 8, 9]);
    });
}
