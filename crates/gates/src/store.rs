//! A store in memory whose device ends every request with the next poll and does its work unseen:
//! what the store and `block` themselves do. How long a device takes, and so how often somebody
//! looks in vain, no count depends on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use anyhow::ensure;
use block::sim::{SimConfig, SimDevice, Speed};
use block::{BlockError, Device, Disk, Done, Geometry, Queue, Region, Request};
use gates::Mark;
use rt::poller::Arm;
use store::{Options, Session, Store};

use crate::Path;
use crate::tell::mark;

const STORE_LEN: u64 = 128 << 20;
/// Such that a round seldom begins another one.
const SEGMENT_LEN: u64 = 8 << 20;
const ITEMS: u64 = 4096;
const VALUE_LEN: usize = 4096;
const SEED: u64 = 0x5eed;
/// Requests that the store's maintenance has under way.
const MAINTENANCE_DEPTH: usize = 32;

/// A device whose work is nobody's, asked by the server.
struct Unseen(SimDevice);

struct UnseenQueue(Box<dyn Queue>);

/// What the device does does not count.
fn unseen<T>(run: impl FnOnce() -> T) -> T {
    mark(Mark::Nobody);
    let result = run();
    mark(Mark::Server);
    result
}

impl Device for Unseen {
    fn name(&self) -> Arc<str> {
        self.0.name()
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, BlockError> {
        Ok(Box::new(UnseenQueue(self.0.queue(depth)?)))
    }
}

// SAFETY: everything goes to the device's own queue as it came.
unsafe impl Queue for UnseenQueue {
    unsafe fn submit(&mut self, requests: &[Request]) {
        // SAFETY: the caller's promises are passed on.
        unseen(|| unsafe { self.0.submit(requests) });
    }

    fn poll(&mut self, done: &mut [Done]) -> usize {
        unseen(|| self.0.poll(done))
    }

    fn arm(&mut self) -> Arm<'_> {
        self.0.arm()
    }

    fn disarm(&mut self) {
        self.0.disarm();
    }

    unsafe fn register(&mut self, memory: *mut u8, len: usize) -> Option<Region> {
        // SAFETY: as above.
        unsafe { self.0.register(memory, len) }
    }
}

/// What is asked of the store.
#[derive(Clone, Copy)]
pub(crate) enum Ask {
    Get,
    /// A PUT over a value.
    Put,
    /// A PUT under a key that has none.
    PutNew,
}

type Operation<'a> = Pin<Box<dyn Future<Output = anyhow::Result<bool>> + 'a>>;

pub(crate) struct Stored {
    session: Session,
    /// What a core's task does for the session.
    drive: Pin<Box<dyn Future<Output = ()>>>,
    maintain: Pin<Box<dyn Future<Output = ()>>>,
    maintenance_disk: Disk,
    _store: Store,
    depth: usize,
    ask: Ask,
    /// Keys that have values.
    items: u64,
    value: Vec<u8>,
    random: fastrand::Rng,
}

impl Stored {
    /// A store with some items, of which so many operations ask at once.
    pub(crate) fn new(depth: usize, ask: Ask) -> anyhow::Result<Self> {
        let mut config = SimConfig::new(SEED, STORE_LEN);
        config.speed = Speed {
            read: Duration::ZERO,
            write: Duration::ZERO,
            flush: Duration::ZERO,
            jitter: 1.0,
            bytes_per_s: 0,
            ..Speed::default()
        };
        let device = SimDevice::new(config);
        let mut options = Options::default();
        options.seed = Some(SEED);
        options.segment_bytes = Some(SEGMENT_LEN);
        options.now = Arc::new(|| 1);
        let (store, maintenance) = Store::unmaintained(Arc::new(Unseen(device.clone())), &options)?;
        let session = store.session()?;
        let driver = session.clone();
        let maintenance_disk = Disk::open(&device, MAINTENANCE_DEPTH)?;
        let mut random = fastrand::Rng::with_seed(SEED);
        let value = std::iter::repeat_with(|| random.u8(..));
        let value = value.take(VALUE_LEN).collect();
        let mut stored = Stored {
            session,
            drive: Box::pin(async move { driver.drive().await }),
            maintain: Box::pin(maintenance.run(maintenance_disk.clone())),
            maintenance_disk,
            _store: store,
            depth,
            ask: Ask::PutNew,
            items: 0,
            value,
            random,
        };
        while stored.items < ITEMS {
            stored.round()?;
        }
        stored.ask = ask;
        Ok(stored)
    }

    /// Does what a store's thread does beside its users.
    fn maintain(&mut self, cx: &mut Context<'_>) -> anyhow::Result<()> {
        loop {
            let is_over = self.maintain.as_mut().poll(cx).is_ready();
            ensure!(!is_over, "the store's maintenance has ended");
            if self.maintenance_disk.is_idle() {
                return Ok(());
            }
            self.maintenance_disk.poll();
        }
    }
}

fn key_of(item: u64) -> String {
    format!("key:{item:012}")
}

async fn get(session: &Session, key: &[u8]) -> anyhow::Result<bool> {
    let value = session.get(key).await?;
    Ok(value.is_some_and(|value| value.len() == VALUE_LEN))
}

async fn put(session: &Session, key: &[u8], value: &[u8], replaces: bool) -> anyhow::Result<bool> {
    let put = session.put(key, value).await?;
    Ok(put.stored && put.replaced == replaces)
}

impl Path for Stored {
    fn operations(&self) -> usize {
        self.depth
    }

    fn round(&mut self) -> anyhow::Result<()> {
        let mut cx = Context::from_waker(Waker::noop());
        let first = match self.ask {
            Ask::Get | Ask::Put => self.random.u64(..self.items - self.depth as u64),
            Ask::PutNew => self.items,
        };
        let keys: Vec<String> = (first..).take(self.depth).map(key_of).collect();
        let (session, value) = (&self.session, &self.value[..]);
        let mut operations: Vec<Option<Operation<'_>>> = keys
            .iter()
            .map(|key| -> Option<Operation<'_>> {
                let key = key.as_bytes();
                Some(match self.ask {
                    Ask::Get => Box::pin(get(session, key)),
                    Ask::Put => Box::pin(put(session, key, value, true)),
                    Ask::PutNew => Box::pin(put(session, key, value, false)),
                })
            })
            .collect();
        let mut outcomes = Vec::with_capacity(self.depth);
        mark(Mark::Server);
        // As a core's turns go: tasks that were woken, and then the disk. All are, each time.
        while outcomes.len() < self.depth {
            for operation in &mut operations {
                if let Some(waiting) = operation
                    && let Poll::Ready(outcome) = waiting.as_mut().poll(&mut cx)
                {
                    *operation = None;
                    outcomes.push(outcome);
                }
            }
            ensure!(
                self.drive.as_mut().poll(&mut cx).is_pending(),
                "the store was closed"
            );
            self.session.disk().poll();
        }
        mark(Mark::Nobody);
        drop(operations);
        for outcome in outcomes {
            ensure!(outcome?, "the store has another value, or none");
        }
        if matches!(self.ask, Ask::PutNew) {
            self.items += self.depth as u64;
        }
        self.maintain(&mut cx)
    }
}
