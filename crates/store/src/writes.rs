//! Writes that the device has, and how durable ones have ended since the last flush.
//!
//! The system tells of a loss once, and any durable write may be told of it in place of a flush (`docs/design/block.md`).
//! Its core may take that from its queue long after the flush has ended well. So a flush waits for the writes that were
//! under way beside it: until who waits for them has heard how they ended, or, if nobody does, until the device is done with
//! them. A write cannot end before: a [`Write`] has the count, or the operation of the disk that it was left to.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake};

use block::{BlockError, Buf, Disk, Durable, Transfer};
use rt::cross::Notifier;

use crate::epochs::{Epoch, Epochs};
use crate::error::StoreError;
use crate::segments::{Awaited, Segments};

/// The writes of all who write to the store.
pub(crate) struct Writes {
    /// Waits for segments that nobody writes to.
    maintainer: Notifier,
    under_way: Epochs,
    /// Why a durable write has failed since the last flush, or that nobody has waited for its end.
    failed: Mutex<Option<StoreError>>,
}

impl Writes {
    pub(crate) fn new(maintainer: Notifier) -> Self {
        Self {
            maintainer,
            under_way: Epochs::default(),
            failed: Mutex::default(),
        }
    }

    /// Writes the whole buffer to offset `at`.
    pub(crate) fn write<'w>(
        self: &'w Arc<Self>,
        disk: &Disk,
        buf: Buf,
        at: u64,
        durable: Durable,
    ) -> Write<'w> {
        let epoch = Some(self.under_way.begin());
        Write {
            transfer: disk.write(buf, at, durable),
            writes: self,
            durable,
            epoch,
            to: None,
        }
    }

    /// Whether the device has any.
    pub(crate) fn is_any(&self) -> bool {
        self.under_way.is_any()
    }

    /// Notes how a durable write has ended.
    fn note(&self, result: &Result<(), BlockError>) {
        if let Err(error) = result {
            self.failed().get_or_insert_with(|| error.clone().into());
        }
    }

    /// Why one has failed since this was asked last.
    pub(crate) fn take_failed(&self) -> Option<StoreError> {
        self.failed().take()
    }

    /// Waits until all have ended that had begun before. Returns false if `is_over` becomes true before that; call
    /// [`Writes::wake`] after changing it. One caller at a time.
    pub(crate) async fn drained(&self, is_over: impl Fn() -> bool) -> bool {
        self.under_way.drained(is_over).await
    }

    /// Has who waits look again.
    pub(crate) fn wake(&self) {
        self.under_way.wake();
    }

    fn failed(&self) -> MutexGuard<'_, Option<StoreError>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write under way. If it is dropped, it goes on for as long as the device has it.
#[must_use = "a write whose future is dropped may not happen"]
pub(crate) struct Write<'w> {
    transfer: Transfer,
    writes: &'w Arc<Writes>,
    durable: Durable,
    /// `None` when it has ended.
    epoch: Option<Epoch>,
    /// The segment that is not given up before the device is done with it.
    to: Option<(&'w Segments, u32)>,
}

impl<'w> Write<'w> {
    /// Nothing else is written to this segment before the device is done with the write, whether somebody hears of that or not.
    pub(crate) fn to(mut self, segments: &'w Segments, segment: u32) -> Self {
        self.to = Some((segments, segment));
        self
    }
}

impl Future for Write<'_> {
    type Output = (Result<(), BlockError>, Buf);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Poll::Ready(ended) = Pin::new(&mut this.transfer).poll(cx) else {
            return Poll::Pending;
        };
        if this.durable == Durable::Yes {
            this.writes.note(&ended.0);
        }
        if let Some(epoch) = this.epoch.take() {
            this.writes.under_way.end(epoch);
        }
        Poll::Ready(ended)
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        if let Some(epoch) = self.epoch.take() {
            let to = self.to;
            let orphan = Orphan {
                writes: self.writes.clone(),
                durable: self.durable,
                epoch,
                awaited: to.map(|(segments, segment)| segments.await_write(segment)),
            };
            self.transfer.leave_to(Arc::new(orphan).into());
        }
    }
}

/// A write of which nobody hears how it ends: the disk drops it when the device is done with the write.
struct Orphan {
    writes: Arc<Writes>,
    durable: Durable,
    epoch: Epoch,
    awaited: Option<Awaited>,
}

impl Wake for Orphan {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Orphan {
    fn drop(&mut self) {
        if self.durable == Durable::Yes {
            // It may be the one that was told of a loss.
            let mut failed = self.writes.failed();
            failed.get_or_insert(StoreError::Undriven);
        }
        self.writes.under_way.end(self.epoch);
        if let Some(awaited) = self.awaited.take() {
            drop(awaited);
            self.writes.maintainer.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use block::sim::{Kind, SimConfig, SimDevice};
    use rustix::io::Errno;

    use super::*;
    use crate::shared::FailedFlush;
    use crate::{Options, Store};

    /// What a failed write may have cost the flush has cost, which has failed too.
    #[test]
    fn a_flush_that_fails_answers_for_the_writes_before_it() {
        let device = SimDevice::new(SimConfig::new(1, 1 << 20));
        let made = Store::unmaintained(Arc::new(device.clone()), &Options::default());
        let (store, _) = made.expect("a store");
        let (shared, disk) = (&store.shared, Disk::open(&device, 4).expect("a queue"));
        let flush = || disk.block_on(shared.flush(&disk));
        device.fail(Kind::Write, 0, Errno::IO);
        let write = shared
            .writes
            .write(&disk, disk.buffer(512), 0, Durable::Yes);
        assert!(disk.block_on(write).0.is_err());
        device.fail(Kind::Flush, 0, Errno::IO);
        assert!(matches!(flush(), Err(FailedFlush::Itself(_))));
        assert!(flush().is_ok());
        device.fail(Kind::Write, 0, Errno::IO);
        let write = shared
            .writes
            .write(&disk, disk.buffer(512), 0, Durable::Yes);
        assert!(disk.block_on(write).0.is_err());
        assert!(matches!(flush(), Err(FailedFlush::Write(_))));
        assert!(flush().is_ok());
    }
}
