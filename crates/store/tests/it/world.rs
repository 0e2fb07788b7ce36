//! A store on a simulated device, its sessions, its maintenance and its users' tasks, all on one thread
//! and polled in turn: the same seed does the same each time, and what hangs is counted and not waited for.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use block::sim::{Image, SimConfig, SimDevice};
use block::{Device, Disk};
use fastrand::Rng;
use store::{Attributes, Maintenance, Options, Session, Store, StoreError, Swap, Update};

use super::allowed::{Allowed, NOW};

pub(crate) const SEGMENT: u64 = 64 << 10;
/// Rounds after which something hangs. What goes on takes some hundreds.
const ROUNDS_MAX: u32 = 100_000;

pub(crate) type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

pub(crate) struct World {
    pub(crate) device: SimDevice,
    pub(crate) store: Store,
    pub(crate) sessions: Vec<Session>,
    drivers: Vec<Task<'static>>,
    maintenance: Option<Task<'static>>,
    maintenance_disk: Disk,
    /// A session whose core does something else for so many more rounds.
    pub(crate) stalled: Option<(usize, u32)>,
}

pub(crate) fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = Some(SEGMENT);
    options.seed = Some(5);
    options.recovery_threads = Some(1);
    options.live_share = 0.6;
    options
}

/// A device for so many segments.
pub(crate) fn blank(seed: u64, segments: u64) -> SimDevice {
    SimDevice::new(SimConfig::new(seed, SEGMENT + segments * SEGMENT))
}

pub(crate) fn with_image(seed: u64, image: Image) -> SimDevice {
    SimDevice::with_image(SimConfig::new(seed, image.len()), image)
}

pub(crate) fn shared(device: &SimDevice) -> Arc<dyn Device> {
    Arc::new(device.clone())
}

/// A store that nobody maintains: to be read.
pub(crate) fn open(device: &SimDevice, options: &Options) -> Result<Store, StoreError> {
    Store::unmaintained(shared(device), options).map(|(store, _)| store)
}

impl World {
    pub(crate) fn open(
        device: &SimDevice,
        options: &Options,
        sessions: usize,
    ) -> Result<Self, StoreError> {
        Self::on(device, shared(device), options, sessions)
    }

    /// The same on something that stands before the device.
    pub(crate) fn on(
        device: &SimDevice,
        shared: Arc<dyn Device>,
        options: &Options,
        sessions: usize,
    ) -> Result<Self, StoreError> {
        let (store, maintenance) = Store::unmaintained(shared, options)?;
        Self::over(device, store, maintenance, sessions)
    }

    fn over(
        device: &SimDevice,
        store: Store,
        maintenance: Maintenance,
        sessions: usize,
    ) -> Result<Self, StoreError> {
        let sessions: Vec<Session> = (0..sessions)
            .map(|_| store.session())
            .collect::<Result<_, _>>()?;
        let disk = Disk::open(device, 32)?;
        let driver = |session: &Session| {
            let session = session.clone();
            Box::pin(async move { session.drive().await }) as Task<'static>
        };
        Ok(Self {
            device: device.clone(),
            drivers: sessions.iter().map(driver).collect(),
            sessions,
            maintenance: Some(Box::pin(maintenance.run(disk.clone()))),
            maintenance_disk: disk,
            stalled: None,
            store,
        })
    }

    /// A session's driver is gone.
    pub(crate) fn end_driver(&mut self, number: usize) {
        self.drivers[number] = Box::pin(std::future::pending());
    }

    /// Everybody but the users goes one step further. Says whether anything ended on the device.
    pub(crate) fn step(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let stalled = self.stalled.map(|(session, _)| session);
        for (number, driver) in self.drivers.iter_mut().enumerate() {
            if stalled != Some(number) {
                assert!(driver.as_mut().poll(&mut cx).is_pending(), "it is open");
            }
        }
        if let Some(maintenance) = &mut self.maintenance {
            assert!(maintenance.as_mut().poll(&mut cx).is_pending(), "open");
        }
        let mut ended = self.maintenance_disk.poll();
        for (number, session) in self.sessions.iter().enumerate() {
            if stalled != Some(number) {
                ended += session.disk().poll();
            }
        }
        if let Some((_, rounds)) = &mut self.stalled {
            *rounds -= 1;
            self.stalled = self.stalled.filter(|(_, rounds)| *rounds > 0);
            return true;
        }
        ended > 0
    }

    /// Runs tasks until all have ended.
    pub(crate) fn run(&mut self, mut tasks: Vec<Task<'_>>) -> Result<(), String> {
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..ROUNDS_MAX {
            tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
            if tasks.is_empty() {
                return Ok(());
            }
            self.step();
        }
        Err(format!("{} tasks hang", tasks.len()))
    }

    /// Runs one operation to its end.
    pub(crate) fn finish<T>(&mut self, operation: impl Future<Output = T>) -> Result<T, String> {
        let outcome = RefCell::new(None);
        self.run(vec![Box::pin(async {
            *outcome.borrow_mut() = Some(operation.await);
        })])?;
        Ok(outcome.into_inner().expect("it has ended"))
    }

    /// Polls an operation this often, and drops it. `None` if it had not ended.
    pub(crate) fn drop_after<T>(
        &mut self,
        polls: u32,
        operation: impl Future<Output = T>,
    ) -> Option<T> {
        let mut operation = pin!(operation);
        let mut cx = Context::from_waker(Waker::noop());
        for poll in 0..polls {
            if poll > 0 {
                self.step();
            }
            if let Poll::Ready(outcome) = operation.as_mut().poll(&mut cx) {
                return Some(outcome);
            }
        }
        None
    }

    /// Lets everything that goes on by itself come to rest.
    pub(crate) fn rest(&mut self) {
        let mut idle = 0;
        for _ in 0..ROUNDS_MAX {
            idle = if self.step() { 0 } else { idle + 1 };
            if idle == 4 {
                return;
            }
        }
        panic!("the maintenance never rests");
    }

    pub(crate) fn close(mut self) -> Result<(), StoreError> {
        self.rest();
        drop((self.drivers, self.sessions, self.maintenance));
        self.store.close()
    }
}

/// What a task of a random workload does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) seed: u64,
    pub(crate) steps: u32,
    pub(crate) keys: u32,
    /// Some values are about as long as a segment, and some longer.
    pub(crate) has_long: bool,
    /// The device fails: errors are to be expected.
    pub(crate) may_fail: bool,
    pub(crate) is_cache: bool,
}

/// Changes keys of its own and looks at them, and notes what becomes of them.
pub(crate) async fn work(
    world: (Session, SimDevice),
    number: u32,
    of: Workload,
    allowed: &RefCell<Allowed>,
) -> Result<(), String> {
    let (session, device) = world;
    let mut random = Rng::with_seed(of.seed << 8 | u64::from(number));
    for step in 0..of.steps {
        // Some keys often, most seldom: a segment of old records has live ones.
        let which = (random.f64().powi(2) * f64::from(of.keys)) as u32;
        let key = format!("{number} {which}").into_bytes();
        let what = format!("task {number}, step {step}");
        let len = match random.u32(..if of.has_long { 30 } else { 20 }) {
            0 | 1 => 0,
            2..7 => random.usize(..200),
            7..18 => random.usize(..5000),
            18 | 20.. if of.has_long => random.usize(30_000..64_000),
            19 if of.has_long => random.usize(65_500..140_000),
            _ => random.usize(..20_000),
        };
        let value = value(&key, step, len);
        let deed = random.u32(..12);
        let was = {
            let allowed = allowed.borrow();
            let may = allowed.of(&key, NOW);
            let one = may.len() == 1 && !of.is_cache;
            one.then(|| may[0].map(<[u8]>::to_vec))
        };
        let new = (deed >= 3).then_some(&value[..]);
        if deed == 11 {
            let found = session.get(&key).await;
            match found {
                Ok(found) if found.is_none() && of.is_cache => {}
                Ok(found) => allowed
                    .borrow()
                    .judge(&key, found.as_deref(), NOW)
                    .map_err(|error| format!("{what}: {error}"))?,
                Err(error) if of.may_fail => drop(error),
                Err(error) => return Err(format!("{what}: {error}")),
            }
            continue;
        }
        allowed.borrow_mut().begin(&key, new, device.events());
        let with = Attributes::default();
        let not_done = "a condition was not seen to hold";
        let outcome = match deed {
            0..2 => session
                .delete(&key)
                .await
                .map(|had| Some(had) == was.as_ref().map(Option::is_some) || was.is_none()),
            2 => session.update(&key, |_| Update::Delete).await.map(|_| true),
            3 => session
                .update(&key, |_| Update::Put(value.clone(), with))
                .await
                .map(|_| true),
            4 if matches!(was, Some(None)) => {
                let put = session.put_if_absent(&key, &value, with).await;
                put.map(|put| put.is_some())
            }
            5 if matches!(was, Some(Some(_))) => {
                let put = session.put_if_present(&key, &value, with).await;
                put.map(|put| put.is_some())
            }
            6 if matches!(was, Some(Some(_))) => match session.get(&key).await {
                Ok(Some(old)) => {
                    let swap = session.compare_and_swap(&key, old.version(), &value, with);
                    swap.await.map(|swap| matches!(swap, Swap::Swapped(_)))
                }
                Ok(None) => Ok(false),
                Err(error) => Err(error),
            },
            _ => session.put(&key, &value).await.map(|_| true),
        };
        let mut allowed = allowed.borrow_mut();
        match outcome {
            Ok(true) => allowed.acknowledge(&key, device.events()),
            Ok(false) => return Err(format!("{what}: {not_done}")),
            Err(StoreError::TooLong { .. }) if len > 60_000 => allowed.refuse(&key),
            // Its record may be in the log nevertheless.
            Err(StoreError::Full) => {
                let (may, device) = (allowed.bytes_max(), device.geometry().len);
                if (may as u64) < device / 5 && !of.may_fail {
                    return Err(format!("{what}: full with {may} bytes of {device}"));
                }
            }
            Err(error) if of.may_fail => {
                if !error.to_string().contains("sim") {
                    return Err(format!("{what}: an error that says not where: {error}"));
                }
            }
            Err(error) => return Err(format!("{what}: {error}")),
        }
    }
    Ok(())
}

/// A value that says whose it is.
pub(crate) fn value(key: &[u8], number: u32, len: usize) -> Vec<u8> {
    let mut value = key.to_vec();
    value.extend(format!("#{number}:").bytes());
    value.resize(value.len().max(len), number as u8);
    value.truncate(len);
    value
}

/// Runs a workload of several tasks on each session, and returns what may be seen then.
pub(crate) fn work_all(
    world: &mut World,
    tasks: u32,
    of: Workload,
    allowed: Allowed,
) -> Result<Allowed, String> {
    let allowed = RefCell::new(allowed);
    let failed = RefCell::new(Ok(()));
    let sessions = world.sessions.clone();
    let mut all: Vec<Task<'_>> = Vec::new();
    for (number, session) in (0..tasks).zip(sessions.iter().cycle()) {
        let world = (session.clone(), world.device.clone());
        let (allowed, failed) = (&allowed, &failed);
        all.push(Box::pin(async move {
            if let Err(error) = work(world, number, of, allowed).await {
                *failed.borrow_mut() = Err(error);
            }
        }));
    }
    world.run(all)?;
    failed.into_inner()?;
    Ok(allowed.into_inner())
}

/// Compares all that a store shows with what it may show when nothing later than `event` happened.
pub(crate) fn judge_all(
    store: &Store,
    allowed: &Allowed,
    event: u64,
    is_cache: bool,
) -> Result<(), String> {
    let mut present = 0;
    for key in allowed.keys() {
        let found = store
            .get(key)
            .map_err(|error| format!("key {}: {error}", String::from_utf8_lossy(key)))?;
        present += u64::from(found.is_some());
        if found.is_some() || !is_cache {
            allowed.judge(key, found.as_deref(), event)?;
        }
    }
    if store.len() != present {
        let len = store.len();
        return Err(format!("{len} keys are counted, {present} are there"));
    }
    let mut visited = 0;
    let mut wrong = Ok(());
    let judge = |seen: store::Visited<'_>| {
        visited += 1;
        wrong = allowed.judge(seen.key, Some(seen.value), event);
        match &wrong {
            Ok(()) => std::ops::ControlFlow::Continue(()),
            Err(_) => std::ops::ControlFlow::Break(()),
        }
    };
    let all = store.for_each(judge);
    wrong.map_err(|error| format!("visited: {error}"))?;
    all.map_err(|error| format!("visiting all: {error}"))?;
    if visited < present {
        return Err(format!("{visited} keys were visited of {present}"));
    }
    Ok(())
}
