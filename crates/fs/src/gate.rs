//! Who is at work, so that closing waits for them and lets nobody in any more.

use std::cell::Cell;
use std::rc::Rc;

use rt::sync::Notify;

/// Counts requests and pieces of background work under way.
#[derive(Clone, Default)]
pub(crate) struct Gate(Rc<State>);

#[derive(Default)]
struct State {
    is_closed: Cell<bool>,
    inside: Cell<usize>,
    has_changed: Notify,
}

/// Somebody at work, until it is dropped: also by a task that nobody waits for any more.
#[must_use = "it ends when it is dropped"]
pub(crate) struct Pass(Rc<State>);

impl Gate {
    /// Begins something; `None` once the gate is closed.
    pub(crate) fn enter(&self) -> Option<Pass> {
        if self.0.is_closed.get() {
            return None;
        }
        self.0.inside.set(self.0.inside.get() + 1);
        Some(Pass(Rc::clone(&self.0)))
    }

    /// Waits until the gate is closed.
    pub(crate) async fn closing(&self) {
        while !self.0.is_closed.get() {
            self.0.has_changed.notified().await;
        }
    }

    /// Lets nobody in from now on, and waits until all have left.
    pub(crate) async fn close(&self) {
        self.0.is_closed.set(true);
        self.0.has_changed.notify_all();
        while self.0.inside.get() > 0 {
            self.0.has_changed.notified().await;
        }
    }
}

impl Clone for Pass {
    fn clone(&self) -> Self {
        self.0.inside.set(self.0.inside.get() + 1);
        Self(Rc::clone(&self.0))
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.inside.set(self.0.inside.get() - 1);
        self.0.has_changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn closing_waits_for_those_inside_and_lets_nobody_in() {
        let gate = Gate::default();
        let (first, second) = (gate.enter().expect("open"), gate.enter().expect("open"));
        let mut cx = Context::from_waker(Waker::noop());
        let mut closing = pin!(gate.close());
        assert!(closing.as_mut().poll(&mut cx).is_pending());
        assert!(gate.enter().is_none());
        drop(first);
        assert!(closing.as_mut().poll(&mut cx).is_pending());
        drop(second);
        assert_eq!(closing.as_mut().poll(&mut cx), Poll::Ready(()));
        assert!(gate.enter().is_none());
    }
}
