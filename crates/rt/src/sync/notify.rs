//! Wakes tasks that wait for something to change.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use super::waiters::{WaiterKey, Waiters};

/// A condition to wait for, shared by cloning.
///
/// [`Notify::notify_one`] without a waiter is kept (once) for the next to come, so that a task
/// which looks first and waits afterwards misses nothing.
#[derive(Clone, Default)]
pub struct Notify(Rc<State>);

#[derive(Default)]
struct State {
    stored: Cell<bool>,
    waiters: RefCell<Waiters>,
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
                self.state.notify_one();
            }
        }
    }
}

impl State {
    fn notify_one(&self) {
        if !self.waiters.borrow_mut().choose() {
            self.stored.set(true);
        }
    }
}

impl Notify {
    /// A notification nobody has sent yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes the task that waits longest, or lets the next one through.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes every task that waits now; stores nothing.
    pub fn notify_all(&self) {
        while self.0.waiters.borrow_mut().choose() {}
    }

    /// Waits to be notified. Dropping the future passes a notification on.
    pub async fn notified(&self) {
        let mut wait = Wait {
            state: &self.0,
            key: None,
        };
        poll_fn(|cx| match wait.key {
            None if self.0.stored.replace(false) => Poll::Ready(()),
            None => {
                let mut waiters = self.0.waiters.borrow_mut();
                wait.key = Some(waiters.push(cx.waker().clone()));
                Poll::Pending
            }
            Some(key) if self.0.waiters.borrow_mut().check(key, cx.waker()) => {
                wait.key = None;
                Poll::Ready(())
            }
            Some(_) => Poll::Pending,
        })
        .await;
    }
}
