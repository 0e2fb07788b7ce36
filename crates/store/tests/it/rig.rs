//! A store whose users and maintenance have a queue of the simulated device each, and which the test
//! polls in turn: so a step begins and ends exactly where the test says, whatever it overlaps with.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use block::sim::{Rates, SimConfig, SimDevice};
use block::{Device, Disk};
use store::{Attributes, Options, Session, State, Store, StoreError};

pub(super) const SEGMENT: u64 = 64 << 10;
pub(super) const LEN: u64 = SEGMENT + 12 * SEGMENT;

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

pub(super) struct Rig {
    pub(super) device: SimDevice,
    pub(super) options: Options,
    pub(super) now: Arc<AtomicU32>,
    pub(super) store: Store,
    pub(super) session: Session,
    pub(super) driver: Task<'static>,
    pub(super) maintenance: Task<'static>,
    pub(super) disk: Disk,
    pub(super) leaving: Option<u32>,
    pub(super) left: usize,
    /// How often the maintenance's requests fail.
    pub(super) rates: Rates,
}

pub(super) fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

pub(super) fn key(i: u32) -> Vec<u8> {
    format!("key {i:03}").into_bytes()
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::on(|device| Arc::new(device))
    }

    /// The store's sessions have the simulated device as `seen` makes it.
    pub(super) fn on(seen: impl FnOnce(SimDevice) -> Arc<dyn Device>) -> Self {
        let now = Arc::new(AtomicU32::new(1));
        let clock = now.clone();
        let mut options = Options::default();
        options.segment_bytes = Some(SEGMENT);
        options.seed = Some(5);
        options.recovery_threads = Some(1);
        options.now = Arc::new(move || clock.load(Ordering::Relaxed));
        let device = SimDevice::new(SimConfig::new(1, LEN));
        let made = Store::unmaintained(seen(device.clone()), &options);
        let (store, maintenance) = made.expect("a store");
        let session = store.session().expect("a session");
        let disk = Disk::open(&device, 32).expect("a queue");
        let driven = session.clone();
        Self {
            driver: Box::pin(async move { driven.drive().await }),
            maintenance: Box::pin(maintenance.run(disk.clone())),
            device,
            options,
            now,
            store,
            session,
            disk,
            leaving: None,
            left: 0,
            rates: Rates::default(),
        }
    }

    /// One step of the maintenance: whatever waits for the device waits for one request. Says whether
    /// it did anything.
    pub(super) fn maintain(&mut self) -> bool {
        let before = self.store.segments();
        self.device.set_rates(self.rates);
        assert!(
            poll(self.maintenance.as_mut()).is_pending(),
            "the store is open"
        );
        let ended = self.disk.poll();
        self.device.set_rates(Rates::default());
        let after = self.store.segments();
        let leaving = |state: &State| matches!(state, State::Leaving(_));
        let leaving = after.iter().position(leaving).map(|s| s as u32);
        self.left += usize::from(leaving.is_some() && leaving != self.leaving);
        self.leaving = leaving;
        ended > 0 || before != after
    }

    /// Whatever the users' queue can do without the maintenance; what they write is held back unless
    /// it is driven.
    pub(super) fn settle<T>(
        &mut self,
        mut change: Pin<&mut impl Future<Output = T>>,
        drives: bool,
    ) -> Poll<T> {
        let mut idle = 0;
        while idle < 3 {
            if let Poll::Ready(outcome) = poll(change.as_mut()) {
                return Poll::Ready(outcome);
            }
            if drives {
                assert!(poll(self.driver.as_mut()).is_pending(), "the store is open");
            }
            idle = if self.session.disk().poll() > 0 {
                0
            } else {
                idle + 1
            };
        }
        Poll::Pending
    }

    /// Drives a change to its end, and the maintenance only if the change waits for it.
    pub(super) fn finish<T>(&mut self, mut change: Pin<&mut impl Future<Output = T>>) -> T {
        for _ in 0..10_000 {
            if let Poll::Ready(outcome) = self.settle(change.as_mut(), true) {
                return outcome;
            }
            self.maintain();
        }
        panic!("a change never ends");
    }

    pub(super) fn put(&mut self, i: u32, value: &[u8], expiry: u32) -> Result<(), StoreError> {
        let session = self.session.clone();
        let with = Attributes { flags: 0, expiry };
        self.finish(pin!(session.put_with(&key(i), value, with)))
            .map(drop)
    }

    /// Has the maintenance do what there is to do, or up to the beginning of this collection. Says
    /// whether that has begun.
    pub(super) fn settle_maintenance(&mut self, collection: usize) -> bool {
        let mut idle = 0;
        for _ in 0..100_000 {
            idle = if self.maintain() { 0 } else { idle + 1 };
            if self.left == collection {
                return true;
            }
            if idle == 3 {
                return false;
            }
        }
        panic!("the maintenance never rests");
    }

    /// What a store that is opened with what is on the device now has of a key.
    pub(super) fn after_a_crash(&self, key: &[u8]) -> Option<Vec<u8>> {
        let image = SimDevice::with_image(SimConfig::new(2, LEN), self.device.image());
        let device: Arc<dyn Device> = Arc::new(image);
        let (store, _) = Store::unmaintained(device, &self.options).expect("recovered");
        store.get(key).expect("got")
    }

    /// What the store has of a key when it was closed and opened again.
    pub(super) fn after_closing(self, key: &[u8]) -> Option<Vec<u8>> {
        let Self {
            device,
            options,
            store,
            session,
            driver,
            maintenance,
            ..
        } = self;
        drop((driver, maintenance, session));
        store.close().expect("closed");
        let (store, _) = Store::unmaintained(Arc::new(device), &options).expect("opened");
        store.get(key).expect("got")
    }
}
