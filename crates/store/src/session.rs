//! What a core or a thread holds of a store.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use block::{Buf, Disk};

use crate::counters::{Counters, count};
use crate::error::StoreError;
use crate::format::Version;
use crate::read::{Found, View, find};
use crate::shared::Shared;
use crate::writer::Writer;

/// What a core or a thread holds of a store: operations as futures. Cloning costs four increments;
/// not `Send`.
///
/// Something has to drive it: [`crate::Store::session_on`] has a core of `rt` do so, and
/// [`Session::block_on`] the calling thread. While nobody does and a durable write of it is under way, the store's
/// maintenance waits for that write to be heard of, and gives no segment up: when none is free any more, whoever writes to
/// the store waits too. So does the write of a session whose driver has panicked, until its disk is polled or dropped.
#[derive(Clone)]
pub struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) disk: Disk,
    pub(crate) writer: Writer,
    pub(crate) counters: Arc<Counters>,
}

impl Session {
    pub(crate) fn open(shared: Arc<Shared>, queue_depth: usize) -> Result<Self, StoreError> {
        let disk = Disk::open(&*shared.device, queue_depth)?;
        let counters = shared.tally.session();
        let writer = Writer::new(shared.clone(), disk.clone(), counters.clone());
        Ok(Self {
            shared,
            disk,
            writer,
            counters,
        })
    }

    /// The value of a key.
    ///
    /// Cost: one read of the device, if the index knows the key; none otherwise, in all but one of
    /// some thousand cases.
    ///
    /// # Errors
    ///
    /// [`StoreError::Device`], [`StoreError::Damaged`] or [`StoreError::MaybeOld`].
    pub async fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        let shared = &self.shared;
        count(&self.counters.gets, 1);
        let hash = shared.hash(key);
        let found = find(self.view(), hash, key).await?;
        // Looked at where it is, as it is long.
        let seen = found.as_ref();
        let Some(seen) = seen.filter(|found| !shared.is_expired(found.expiry)) else {
            shared.gate.meet(hash);
            return Ok(None);
        };
        shared.trust(seen)?;
        count(&self.counters.hits, 1);
        if shared.superblock.cache {
            let (segment, _) = shared.layout().segment_of(seen.place.grain());
            shared.segments.touch(segment);
        }
        Ok(found.map(Value::new))
    }

    /// Drives this session's writes; ends when the store is closed and nothing is left to write.
    /// A core's task awaits it: [`crate::Store::session_on`]. Should it panic, changes under way and later
    /// ones fail with [`StoreError::Undriven`].
    pub async fn drive(&self) {
        let mut driver = Driver::of(&self.shared);
        poll_fn(|cx| {
            driver.keep(cx.waker());
            self.writer.step(cx);
            let is_closed = self.shared.is_closed.load(Ordering::Acquire);
            if is_closed && self.writer.is_idle() {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    }

    /// The same until nobody else holds the session any more, and nothing is left to write.
    pub(crate) async fn drive_while_held(&self) {
        poll_fn(|cx| {
            self.writer.step(cx);
            match self.writer.is_alone() && self.writer.is_idle() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        // Of reads whose callers have gone nobody is told when they end, and the disk's end would block the core until
        // they have. One more takes about as long.
        while !self.disk.is_idle() {
            let block = self.shared.layout().block();
            let _ = self.disk.read(self.disk.buffer(block), 0).await;
        }
    }

    /// Drives `future` and this session on the calling thread, for programs without a core. What a change leaves behind that
    /// has failed, or was dropped, goes on only while the session is driven, and later changes of its key wait for it.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        self.disk.block_on(poll_fn(|cx| {
            let poll = future.as_mut().poll(cx);
            self.writer.step(cx);
            poll
        }))
    }

    /// The same, and goes on until nothing is left of what `future` has left behind: changes of other sessions wait for it.
    /// It waits itself for the changes of its keys that were there before.
    pub(crate) fn finish<F: Future>(&self, future: F) -> F::Output {
        let output = self.block_on(future);
        if !self.writer.is_idle() {
            self.disk.block_on(poll_fn(|cx| {
                self.writer.step(cx);
                match self.writer.is_idle() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            }));
        }
        output
    }

    pub(crate) fn view(&self) -> View<'_> {
        View {
            shared: &self.shared,
            disk: &self.disk,
            counters: &self.counters,
        }
    }

    /// Whether it has nothing under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.writer.is_idle() && self.disk.is_idle()
    }

    /// Whether nothing is written any more.
    pub(crate) fn is_undriven(&self) -> bool {
        self.writer.has_panicked()
    }

    /// Whether it has no clones. Without any and idle, nobody has a part of it.
    pub(crate) fn is_alone(&self) -> bool {
        self.writer.is_alone()
    }

    /// The device as this session sees it. A core drives it for as long as it drives the session.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }
}

/// Those who drive sessions until the store is closed.
#[derive(Default)]
pub(crate) struct Drivers(Mutex<BTreeMap<u64, Waker>>);

impl Drivers {
    fn wakers(&self) -> MutexGuard<'_, BTreeMap<u64, Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store is closed. They are woken in the order in which they have begun: a simulated run can be repeated.
    pub(crate) fn wake(&self) {
        let wakers = std::mem::take(&mut *self.wakers());
        wakers.into_values().for_each(Waker::wake);
    }
}

/// One of them.
struct Driver<'s> {
    drivers: &'s Drivers,
    number: u64,
    waker: Option<Waker>,
}

impl<'s> Driver<'s> {
    fn of(shared: &'s Shared) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            drivers: &shared.drivers,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            waker: None,
        }
    }

    /// Is to be woken by this one from now on.
    #[inline]
    fn keep(&mut self, waker: &Waker) {
        if !self.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
            self.keep_another(waker);
        }
    }

    #[cold]
    fn keep_another(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
        let old = self.drivers.wakers().insert(self.number, waker.clone());
        // Whatever goes with it may be a driver too.
        drop(old);
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        let waker = self.drivers.wakers().remove(&self.number);
        drop(waker);
    }
}

/// A value, in the buffer that it was read into.
#[derive(Debug)]
pub struct Value(Found);

impl Value {
    pub(crate) fn new(found: Found) -> Self {
        Self(found)
    }

    pub(crate) fn into_found(self) -> Found {
        self.0
    }

    /// What was stored with it.
    pub fn flags(&self) -> u32 {
        self.0.flags
    }

    /// The second, since the epoch, from which it is not to be seen; 0 for never.
    pub fn expiry(&self) -> u32 {
        self.0.expiry
    }

    /// When it was written, as [`crate::Put::version`] said: for compare-and-swap.
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// The buffer, and where in it the value is.
    pub fn into_parts(self) -> (Buf, std::ops::Range<usize>) {
        let value = self.0.value();
        (self.0.buf, value)
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.buf[self.0.value()]
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}
