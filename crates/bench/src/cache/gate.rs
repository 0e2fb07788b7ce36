//! Where threads wait for each other between the phases of a run.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    round: u64,
    broken: bool,
}

/// A barrier that a thread breaks by leaving, so that nobody waits for one that has failed.
#[derive(Debug)]
pub(super) struct Gate {
    members: usize,
    state: Mutex<State>,
    changed: Condvar,
}

/// A thread has left before all had met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Broken;

/// One thread's place at a gate. Dropping it, by a panic too, breaks the gate for those who still
/// wait or come later.
#[derive(Debug)]
pub(super) struct Member<'a>(&'a Gate);

impl Gate {
    pub(super) fn new(members: usize) -> Self {
        Gate {
            members,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Takes a place. There are as many as members.
    pub(super) fn enter(&self) -> Member<'_> {
        Member(self)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member<'_> {
    /// Waits until all members are here.
    pub(super) fn meet(&self) -> Result<(), Broken> {
        let gate = self.0;
        let mut state = gate.lock();
        let round = state.round;
        state.waiting += 1;
        if state.waiting == gate.members {
            state.waiting = 0;
            state.round += 1;
            gate.changed.notify_all();
        }
        while state.round == round && !state.broken {
            state = gate
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.round == round {
            Err(Broken)
        } else {
            Ok(())
        }
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.0.lock().broken = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn members_meet_again_and_again() {
        let (gate, arrived) = (Gate::new(3), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let member = gate.enter();
                    for round in 1..=100 {
                        arrived.fetch_add(1, Ordering::Relaxed);
                        member.meet().expect("whole");
                        assert!(arrived.load(Ordering::Relaxed) >= 3 * round);
                    }
                });
            }
        });
    }

    #[test]
    fn nobody_waits_for_one_that_has_left() {
        let gate = Gate::new(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.enter().meet());
            let leaving = scope.spawn(|| {
                let _member = gate.enter();
                std::panic::resume_unwind(Box::new("a thread fails"));
            });
            assert!(leaving.join().is_err());
            assert_eq!(waiting.join().expect("no panic"), Err(Broken));
        });
    }
}
