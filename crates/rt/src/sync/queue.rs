//! A queue between tasks of one core: many senders, one receiver.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

struct State<T> {
    items: VecDeque<T>,
    receiver: Option<Waker>,
    senders: usize,
    receiver_gone: bool,
}

/// The sending end; clone it for more senders.
pub struct QueueSender<T>(Rc<RefCell<State<T>>>);

/// The receiving end.
pub struct QueueReceiver<T>(Rc<RefCell<State<T>>>);

/// An unbounded queue; bound what goes in with a [`super::Semaphore`] where it matters. Memory
/// grows to the most items ever queued at once.
#[must_use]
pub fn queue<T>() -> (QueueSender<T>, QueueReceiver<T>) {
    let state = Rc::new(RefCell::new(State {
        items: VecDeque::new(),
        receiver: None,
        senders: 1,
        receiver_gone: false,
    }));
    (QueueSender(state.clone()), QueueReceiver(state))
}

impl<T> QueueSender<T> {
    /// Queues `item`, or hands it back when the receiver is gone.
    pub fn send(&self, item: T) -> Result<(), T> {
        let mut state = self.0.borrow_mut();
        if state.receiver_gone {
            return Err(item);
        }
        state.items.push_back(item);
        if let Some(waker) = state.receiver.take() {
            drop(state);
            waker.wake();
        }
        Ok(())
    }
}

impl<T> Clone for QueueSender<T> {
    fn clone(&self) -> Self {
        self.0.borrow_mut().senders += 1;
        Self(self.0.clone())
    }
}

impl<T> Drop for QueueSender<T> {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        state.senders -= 1;
        if state.senders == 0
            && let Some(waker) = state.receiver.take()
        {
            drop(state);
            waker.wake();
        }
    }
}

impl<T> QueueReceiver<T> {
    /// The next item, if there is one now.
    pub fn try_recv(&mut self) -> Option<T> {
        self.0.borrow_mut().items.pop_front()
    }

    /// The next item; `None` once the queue is empty and every sender is gone.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| {
            let mut state = self.0.borrow_mut();
            if let Some(item) = state.items.pop_front() {
                return Poll::Ready(Some(item));
            }
            if state.senders == 0 {
                return Poll::Ready(None);
            }
            state.receiver = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Items queued now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.borrow().items.len()
    }

    /// Whether nothing is queued now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for QueueReceiver<T> {
    fn drop(&mut self) {
        // Items may own senders of this very queue: drop them after the borrow ends.
        let items = {
            let mut state = self.0.borrow_mut();
            state.receiver_gone = true;
            std::mem::take(&mut state.items)
        };
        drop(items);
    }
}
