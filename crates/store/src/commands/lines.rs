//! The order of commands on one key, on one core.
//!
//! Commands wait for the device, and several are under way at a time. Those on one key take their
//! turns, first come, first served; reads share a turn. So a `get` that was asked behind a `set` sees
//! it, and one asked before does not.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::hash::KeyHash;

/// The keys with commands under way on this core.
#[derive(Default)]
pub(super) struct Lines(RefCell<HashMap<KeyHash, Line>>);

#[derive(Default)]
struct Line {
    /// Commands whose turn it is: one that changes the key, or any number that read it.
    changing: bool,
    reading: usize,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    changes: bool,
    call: Rc<Call>,
}

/// How one that waits is called.
#[derive(Default)]
struct Call {
    came: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// A command's place in its key's line, and then its turn; dropping it leaves the line.
pub(super) struct Turn {
    lines: Rc<Lines>,
    hash: KeyHash,
    changes: bool,
    /// None if its turn came at once.
    call: Option<Rc<Call>>,
}

impl Lines {
    /// Joins the line of a key, now.
    pub(super) fn join(self: &Rc<Self>, hash: KeyHash, changes: bool) -> Turn {
        let mut lines = self.0.borrow_mut();
        let line = lines.entry(hash).or_default();
        let call = if line.waiting.is_empty() && line.admits(changes) {
            line.begin(changes);
            None
        } else {
            let call = Rc::<Call>::default();
            line.waiting.push_back(Waiting {
                changes,
                call: Rc::clone(&call),
            });
            Some(call)
        };
        Turn {
            lines: Rc::clone(self),
            hash,
            changes,
            call,
        }
    }

    /// Keys with commands under way.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

impl Line {
    fn admits(&self, changes: bool) -> bool {
        !self.changing && (!changes || self.reading == 0)
    }

    fn begin(&mut self, changes: bool) {
        if changes {
            self.changing = true;
        } else {
            self.reading += 1;
        }
    }

    /// Calls those whose turn it is now.
    fn call_next(&mut self) {
        while let Some(next) = self.waiting.front()
            && self.admits(next.changes)
        {
            let changes = next.changes;
            self.begin(changes);
            if let Some(Waiting { call, .. }) = self.waiting.pop_front() {
                call.came.set(true);
                if let Some(waker) = call.waker.take() {
                    waker.wake();
                }
            }
        }
    }
}

impl Turn {
    /// Waits for the turn.
    pub(super) async fn come(&self) {
        let Some(call) = &self.call else {
            return;
        };
        poll_fn(|context| {
            if call.came.get() {
                return Poll::Ready(());
            }
            *call.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lines = self.lines.0.borrow_mut();
        let Some(line) = lines.get_mut(&self.hash) else {
            return;
        };
        match &self.call {
            Some(call) if !call.came.get() => {
                line.waiting
                    .retain(|waiting| !Rc::ptr_eq(&waiting.call, call));
            }
            _ if self.changes => line.changing = false,
            _ => line.reading -= 1,
        }
        line.call_next();
        if !line.changing && line.reading == 0 && line.waiting.is_empty() {
            lines.remove(&self.hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    fn has_come(turn: &Turn) -> bool {
        let come = pin!(turn.come());
        come.poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    /// Random joins and leaves beside a plain list of who stands in line.
    #[test]
    fn turns_come_in_order_and_reads_share_one() {
        let mut random = fastrand::Rng::with_seed(3);
        let lines = Rc::<Lines>::default();
        let hashes = [KeyHash::new(1, b"a"), KeyHash::new(1, b"b")];
        let mut standing: Vec<(usize, bool, Turn)> = Vec::new();
        for _ in 0..5000 {
            if standing.is_empty() || (standing.len() < 9 && random.bool()) {
                let (key, changes) = (random.usize(..2), random.bool());
                standing.push((key, changes, lines.join(hashes[key], changes)));
            } else {
                // Whoever it is, also one that waits: a future may be dropped at any time.
                standing.remove(random.usize(..standing.len()));
            }
            for (at, (key, changes, turn)) in standing.iter().enumerate() {
                let mut before = standing[..at].iter().filter(|(other, ..)| other == key);
                let expected = if *changes {
                    before.next().is_none()
                } else {
                    before.all(|(_, changes, _)| !changes)
                };
                assert_eq!(
                    has_come(turn),
                    expected,
                    "number {at} of {}",
                    standing.len()
                );
            }
        }
        standing.clear();
        assert_eq!(lines.len(), 0, "a line was left behind");
    }

    #[test]
    fn who_waits_is_woken() {
        let lines = Rc::<Lines>::default();
        let hash = KeyHash::new(1, b"a");
        let first = lines.join(hash, true);
        let second = lines.join(hash, false);
        let woken = std::sync::Arc::new(Woken::default());
        let waker = Waker::from(std::sync::Arc::clone(&woken));
        let mut come = pin!(second.come());
        assert!(
            come.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        drop(first);
        assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed));
        assert!(come.poll(&mut Context::from_waker(&waker)).is_ready());
    }

    #[derive(Default)]
    struct Woken(std::sync::atomic::AtomicBool);

    impl std::task::Wake for Woken {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
}
