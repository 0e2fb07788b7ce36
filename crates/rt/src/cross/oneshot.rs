//! One value from one core to another: a reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::atomics::{AtomicU8, Ordering, UnsafeCell};
use super::waker_cell::WakerCell;

const OPEN: u8 = 0;
const SENT: u8 = 1;
const ABANDONED: u8 = 2;
const RECEIVED: u8 = 3;

struct Shared<T> {
    state: AtomicU8,
    value: UnsafeCell<Option<T>>,
    receiver: WakerCell,
}

// SAFETY: `value` is the sender's while `state` is OPEN and the receiver's once it is SENT; the
// store of SENT releases, the load acquires.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

/// The end that sends; dropping it unsent tells the receiver.
pub struct OneshotSender<T>(Option<Arc<Shared<T>>>);

/// The end that receives: a future of the value, `None` if the sender was dropped.
pub struct OneshotReceiver<T>(Arc<Shared<T>>);

/// A place for one reply. Allocates once; a path that cannot afford that carries its replies on a
/// [`super::channel()`].
#[must_use]
pub fn oneshot<T: Send>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let shared = Arc::new(Shared {
        state: AtomicU8::new(OPEN),
        value: UnsafeCell::new(None),
        receiver: WakerCell::new(),
    });
    (OneshotSender(Some(shared.clone())), OneshotReceiver(shared))
}

impl<T> OneshotSender<T> {
    /// Whether the receiver has gone, so that nobody would see the value.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        // There are two ends, and neither can be cloned.
        self.0
            .as_ref()
            .is_none_or(|shared| Arc::strong_count(shared) == 1)
    }

    /// Sends the value. A receiver that has gone away lets it drop.
    pub fn send(mut self, value: T) {
        let shared = self.0.take().expect("only `send` takes it, and once");
        shared.value.with_mut(|slot| {
            // SAFETY: the state is OPEN until the store below, so the value is the sender's.
            unsafe { *slot = Some(value) }
        });
        shared.state.store(SENT, Ordering::Release);
        shared.receiver.wake();
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.state.store(ABANDONED, Ordering::Release);
            shared.receiver.wake();
        }
    }
}

impl<T> OneshotReceiver<T> {
    fn take(&mut self) -> Poll<Option<T>> {
        match self.0.state.load(Ordering::Acquire) {
            OPEN => Poll::Pending,
            SENT => {
                self.0.state.store(RECEIVED, Ordering::Relaxed);
                // SAFETY: the state was SENT, so the value is the receiver's.
                Poll::Ready(self.0.value.with_mut(|slot| unsafe { (*slot).take() }))
            }
            _ => Poll::Ready(None),
        }
    }
}

impl<T> Future for OneshotReceiver<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if let Poll::Ready(value) = self.take() {
            return Poll::Ready(value);
        }
        // SAFETY: only the one receiver registers, and it is borrowed mutably.
        unsafe { self.0.receiver.register(cx.waker()) };
        self.take()
    }
}
