//! Bounds how many tasks of a core do something at once.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use super::waiters::{WaiterKey, Waiters};

/// A number of permits, shared by cloning. Fair: a permit goes to who waits longest.
#[derive(Clone)]
pub struct Semaphore(Rc<State>);

struct State {
    permits: Cell<usize>,
    waiters: RefCell<Waiters>,
}

impl State {
    fn give_back(&self) {
        // A chosen waiter owns the permit from here on; it is never seen as free.
        if !self.waiters.borrow_mut().choose() {
            self.permits.set(self.permits.get() + 1);
        }
    }
}

struct Wait<'a> {
    state: &'a State,
    key: Option<WaiterKey>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let chosen = self.state.waiters.borrow_mut().leave(key);
            if chosen {
                self.state.give_back();
            }
        }
    }
}

/// The right to go on; dropping it gives it back.
#[must_use = "a permit that is dropped at once protects nothing"]
pub struct Permit(Rc<State>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl Semaphore {
    /// A semaphore of `permits`.
    #[must_use]
    pub fn new(permits: usize) -> Self {
        Self(Rc::new(State {
            permits: Cell::new(permits),
            waiters: RefCell::default(),
        }))
    }

    /// Permits that are free now.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.permits.get()
    }

    /// A permit, if one is free and nobody waits for it.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit> {
        let permits = self.0.permits.get();
        if permits == 0 || !self.0.waiters.borrow().is_empty() {
            return None;
        }
        self.0.permits.set(permits - 1);
        Some(Permit(self.0.clone()))
    }

    /// A permit, waiting for it if need be. Dropping the future gives up the place in the queue.
    pub async fn acquire(&self) -> Permit {
        let mut wait = Wait {
            state: &self.0,
            key: None,
        };
        poll_fn(|cx| match wait.key {
            None => match self.try_acquire() {
                Some(permit) => Poll::Ready(permit),
                None => {
                    let mut waiters = self.0.waiters.borrow_mut();
                    wait.key = Some(waiters.push(cx.waker().clone()));
                    Poll::Pending
                }
            },
            Some(key) if self.0.waiters.borrow_mut().check(key, cx.waker()) => {
                wait.key = None;
                Poll::Ready(Permit(self.0.clone()))
            }
            Some(_) => Poll::Pending,
        })
        .await
    }
}
