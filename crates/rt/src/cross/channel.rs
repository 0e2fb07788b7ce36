//! A bounded channel from many cores to one.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use thiserror::Error;

use super::atomics::{ArrayQueue, AtomicBool, AtomicUsize, Ordering};
use super::waker_cell::WakerCell;

struct Shared<T> {
    items: ArrayQueue<T>,
    receiver: WakerCell,
    senders: AtomicUsize,
    receiver_gone: AtomicBool,
}

/// Why [`ChannelSender::try_send`] did not send; holds the item.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// As many items wait as the channel holds.
    #[error("the channel is full")]
    Full(T),
    /// Nobody will receive any more.
    #[error("the channel's receiver is gone")]
    Closed(T),
}

/// The sending end; clone it for more senders, on any core.
pub struct ChannelSender<T>(Arc<Shared<T>>);

/// The receiving end; belongs to one task.
pub struct ChannelReceiver<T>(Arc<Shared<T>>);

/// A channel for `capacity` items, from many cores to one.
///
/// Many to one, because a core serves requests from all others with one queue to look at; items
/// of one sender arrive in order. Nothing is allocated after this call. A full channel hands the
/// item back: how to wait, drop or shed is the sender's decision.
///
/// # Panics
/// If `capacity` is zero.
#[must_use]
pub fn channel<T: Send>(capacity: usize) -> (ChannelSender<T>, ChannelReceiver<T>) {
    let shared = Arc::new(Shared {
        items: ArrayQueue::new(capacity),
        receiver: WakerCell::new(),
        senders: AtomicUsize::new(1),
        receiver_gone: AtomicBool::new(false),
    });
    (ChannelSender(shared.clone()), ChannelReceiver(shared))
}

impl<T> ChannelSender<T> {
    /// Sends `item` without waiting, and wakes the receiver's core if it sleeps. An item that is
    /// sent while the receiver goes away is dropped with the channel.
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        if self.0.receiver_gone.load(Ordering::Relaxed) {
            return Err(TrySendError::Closed(item));
        }
        self.0.items.push(item).map_err(TrySendError::Full)?;
        self.0.receiver.wake();
        Ok(())
    }

    /// Items that wait now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.items.len()
    }

    /// Whether no item waits now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.items.is_empty()
    }

    /// Items that the channel holds at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.items.capacity()
    }
}

impl<T> Clone for ChannelSender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl<T> Drop for ChannelSender<T> {
    fn drop(&mut self) {
        // The release makes what this sender has sent visible to who sees it gone.
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.receiver.wake();
        }
    }
}

impl<T> ChannelReceiver<T> {
    /// The next item, if there is one now.
    pub fn try_recv(&mut self) -> Option<T> {
        self.0.items.pop()
    }

    /// Hands over what waits now, at most `limit` items, and returns how many.
    pub fn drain(&mut self, limit: usize, mut deliver: impl FnMut(T)) -> usize {
        let mut count = 0;
        while count < limit
            && let Some(item) = self.0.items.pop()
        {
            deliver(item);
            count += 1;
        }
        count
    }

    /// The next item; `None` once the channel is empty and every sender is gone.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| {
            if let Some(item) = self.0.items.pop() {
                return Poll::Ready(Some(item));
            }
            // SAFETY: only the one receiver registers, and `self` is borrowed mutably.
            unsafe { self.0.receiver.register(cx.waker()) };
            // In this order: a sender that is seen gone has nothing more to send.
            let closed = self.0.senders.load(Ordering::Acquire) == 0;
            match self.0.items.pop() {
                Some(item) => Poll::Ready(Some(item)),
                None if closed => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Waits until at least one item can be taken; `false` once none will come.
    pub async fn ready(&mut self) -> bool {
        poll_fn(|cx| {
            if !self.0.items.is_empty() {
                return Poll::Ready(true);
            }
            // SAFETY: as in `recv`.
            unsafe { self.0.receiver.register(cx.waker()) };
            let closed = self.0.senders.load(Ordering::Acquire) == 0;
            match self.0.items.is_empty() {
                false => Poll::Ready(true),
                true if closed => Poll::Ready(false),
                true => Poll::Pending,
            }
        })
        .await
    }

    /// Items that wait now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.items.len()
    }

    /// Whether no item waits now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.items.is_empty()
    }
}

impl<T> Drop for ChannelReceiver<T> {
    fn drop(&mut self) {
        self.0.receiver_gone.store(true, Ordering::Relaxed);
        // What waits is dropped now, not when the last sender goes.
        while self.0.items.pop().is_some() {}
    }
}
