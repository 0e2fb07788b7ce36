//! The end of a connection, which its tasks wait for beside what else they wait for.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use rt::sync::Notify;

/// An end that may be told. Once told it stays so, for whoever waits then or later.
#[derive(Default)]
pub(crate) struct Ended(Notify);

impl Ended {
    /// It has come.
    pub(crate) fn tell(&self) {
        self.0.notify_one();
    }

    /// What the future gives; none: the end has come before, and the future is dropped.
    pub(crate) async fn or<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let mut end = pin!(self.0.notified());
        poll_fn(|context| {
            if end.as_mut().poll(context).is_ready() {
                // For the next one.
                self.tell();
                return Poll::Ready(None);
            }
            future.as_mut().poll(context).map(Some)
        })
        .await
    }
}
