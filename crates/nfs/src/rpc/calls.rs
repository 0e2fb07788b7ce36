//! Calls that wait for their answers.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// The calls of a connection's one side that were not answered yet, by the numbers that tell their answers
/// apart (RFC 5531, section 9: `xid`). `T` is what an answer is for the caller.
///
/// Cost: an entry of a hash table a call.
#[derive(Debug)]
pub struct Calls<T> {
    waiting: RefCell<HashMap<u32, Waiting<T>>>,
    next: Cell<u32>,
    is_ended: Cell<bool>,
}

#[derive(Debug)]
struct Waiting<T> {
    waker: Option<Waker>,
    answer: Option<T>,
}

impl<T> Default for Calls<T> {
    fn default() -> Self {
        Self {
            waiting: RefCell::default(),
            next: Cell::new(1),
            is_ended: Cell::new(false),
        }
    }
}

impl<T> Calls<T> {
    /// A call begins; when the value is dropped nobody waits for it any more.
    #[must_use]
    pub fn begin(&self) -> Waits<'_, T> {
        let mut waiting = self.waiting.borrow_mut();
        // A call that waits for a very long time keeps its number.
        while waiting.contains_key(&self.next.get()) {
            self.next.set(self.next.get().wrapping_add(1));
        }
        let xid = self.next.get();
        self.next.set(xid.wrapping_add(1));
        let call = Waiting {
            waker: None,
            answer: None,
        };
        waiting.insert(xid, call);
        Waits { of: self, xid }
    }

    /// An answer has come. Nothing happens if nobody waits for it.
    pub fn answered(&self, xid: u32, answer: T) {
        if let Some(call) = self.waiting.borrow_mut().get_mut(&xid) {
            call.answer = Some(answer);
            if let Some(waker) = call.waker.take() {
                waker.wake();
            }
        }
    }

    /// No answers come any more: whoever waits is told so.
    pub fn end(&self) {
        self.is_ended.set(true);
        for call in self.waiting.borrow_mut().values_mut() {
            if let Some(waker) = call.waker.take() {
                waker.wake();
            }
        }
    }

    /// Whether [`Calls::end`] was called.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.is_ended.get()
    }
}

/// A call that somebody waits for.
#[derive(Debug)]
pub struct Waits<'a, T> {
    of: &'a Calls<T>,
    xid: u32,
}

impl<T> Waits<'_, T> {
    /// The call's number.
    #[must_use]
    pub fn xid(&self) -> u32 {
        self.xid
    }

    /// Waits for the answer; `None`: there will be none. One that came before the end is given.
    pub async fn answer(&self) -> Option<T> {
        poll_fn(|context| {
            let mut waiting = self.of.waiting.borrow_mut();
            let Some(call) = waiting.get_mut(&self.xid) else {
                return Poll::Ready(None);
            };
            match call.answer.take() {
                Some(answer) => Poll::Ready(Some(answer)),
                None if self.of.is_ended() => Poll::Ready(None),
                None => {
                    call.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl<T> Drop for Waits<'_, T> {
    fn drop(&mut self) {
        self.of.waiting.borrow_mut().remove(&self.xid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    #[test]
    fn each_call_gets_its_own_answer_or_none_after_the_end() {
        let calls = Calls::default();
        let context = &mut Context::from_waker(Waker::noop());
        let (first, second, third) = (calls.begin(), calls.begin(), calls.begin());
        assert_eq!([first.xid(), second.xid(), third.xid()], [1, 2, 3]);
        let mut waits = pin!(second.answer());
        assert!(waits.as_mut().poll(context).is_pending());
        calls.answered(2, "b");
        calls.answered(77, "nobody's");
        assert_eq!(waits.as_mut().poll(context), Poll::Ready(Some("b")));
        calls.answered(1, "a");
        calls.end();
        assert_eq!(pin!(first.answer()).poll(context), Poll::Ready(Some("a")));
        assert_eq!(pin!(third.answer()).poll(context), Poll::Ready(None));
        drop((first, third));
        calls.answered(3, "late");
        assert_eq!(calls.waiting.borrow().len(), 1, "that of the second");
    }

    #[test]
    fn numbers_go_round_and_pass_over_those_that_wait() {
        let calls = Calls::<()>::default();
        let first = calls.begin();
        calls.next.set(u32::MAX);
        let others = [calls.begin(), calls.begin(), calls.begin()];
        assert_eq!(others.each_ref().map(Waits::xid), [u32::MAX, 0, 2]);
        drop(first);
    }
}
