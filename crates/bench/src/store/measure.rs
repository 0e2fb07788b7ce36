//! One measurement: a core for each CPU, a task for each request under way.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use block::{Device, Disk, Durable, FileDevice};
use hdrhistogram::Histogram;
use rt::threads::{Shutdown, Threads};
use rt::{Config, Handle, IdleMode};
use rustix::time::{ClockId, clock_gettime};
use store::{Session, Store};

use super::log::Log;
use super::report::Counts;
use super::{Idle, KEY_LEN, StoreRun};
use crate::cache::histogram;
use crate::workload::{Tape, write_key};

/// How often to look whether requests have run out.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Where there are only so many requests, one of so many at most warms up.
const WARM_UP_SHARE: u64 = 5;

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) enum Requests {
    /// Recorded requests, a tape for each core, again and again.
    Tapes(Arc<[Tape]>),
    /// PUTs of items that are not there yet, until these are all used up.
    Fresh(Arc<Numbers>),
}

/// Numbers that are given out once each, and the items that they stand for.
#[derive(Debug)]
pub(super) struct Numbers {
    /// Any of so many items; the number itself when there is none.
    among: Option<u64>,
    next: AtomicU64,
    end: AtomicU64,
    /// From here on a measurement has warmed up, whatever the time.
    warm: AtomicU64,
}

impl Numbers {
    pub(super) fn new(first: u64) -> Self {
        Numbers {
            among: None,
            next: AtomicU64::new(first),
            end: AtomicU64::new(first),
            warm: AtomicU64::new(first),
        }
    }

    /// These numbers, each of which stands for any of some items.
    pub(super) fn among(items: u64, numbers: Range<u64>) -> Self {
        let among = Numbers {
            among: Some(items),
            ..Numbers::new(numbers.start)
        };
        among.allow(numbers.end - numbers.start);
        among
    }

    /// As many more may be given out.
    pub(super) fn allow(&self, count: u64) {
        // What was not taken stays out, so that a measurement has no more than it was given.
        let next = self
            .next
            .load(Ordering::Relaxed)
            .min(self.end.load(Ordering::Relaxed));
        self.next.store(next, Ordering::Relaxed);
        self.end.store(next + count, Ordering::Relaxed);
        self.warm
            .store(next + count / WARM_UP_SHARE, Ordering::Relaxed);
    }

    fn are_warm(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.warm.load(Ordering::Relaxed)
    }

    fn take(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let item = self.among.map_or(number, |items| {
            fastrand::Rng::with_seed(number).u64(..items)
        });
        (number < self.end.load(Ordering::Relaxed)).then_some(item)
    }
}

/// Who is asked.
#[derive(Clone)]
pub(super) enum Side {
    /// A store.
    Store(Arc<Store>),
    /// Its device, without an index: reads anywhere in the first bytes, and behind them a log that gathers
    /// what is written at a time as a store does.
    Raw {
        /// The device, by the calls that are measured.
        device: FileDevice,
        /// Reads are below this.
        read_end: u64,
        /// Writes are from here to the end.
        write_start: u64,
        /// As the store's.
        durable: Durable,
    },
}

/// How a measurement goes.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    /// A core for each, pinned if there is a CPU.
    pub(super) cpus: Vec<Option<usize>>,
    /// Requests under way, on each core.
    pub(super) depth: usize,
    pub(super) warm_up: Duration,
    pub(super) length: Duration,
    pub(super) requests: Requests,
    pub(super) value_len: usize,
    pub(super) seed: u64,
    pub(super) idle: Idle,
}

/// What was measured.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) seconds: f64,
    /// CPU time of the process meanwhile.
    pub(super) cpu_seconds: f64,
    /// Requests that ended in that time.
    pub(super) ended: u64,
    pub(super) latency: Histogram<u64>,
    /// From the first request to the last, warm-up included.
    pub(super) counts: Counts,
}

impl Tally {
    pub(super) fn new() -> Self {
        Tally {
            seconds: 0.0,
            cpu_seconds: 0.0,
            ended: 0,
            latency: histogram(),
            counts: Counts::default(),
        }
    }

    /// Adds what another core did at the same time.
    fn join(&mut self, other: &Tally) {
        self.seconds = self.seconds.max(other.seconds);
        // Each has seen that of all.
        self.cpu_seconds = self.cpu_seconds.max(other.cpu_seconds);
        self.add(other);
    }

    /// Adds everything but the time.
    pub(super) fn add(&mut self, other: &Tally) {
        self.ended += other.ended;
        self.latency += &other.latency;
        self.counts.add(&other.counts);
    }

    /// CPU time of a request in microseconds.
    pub(super) fn cpu_us(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.ended.max(1) as f64
    }

    /// Requests a second.
    pub(super) fn speed(&self) -> f64 {
        self.ended as f64 / self.seconds.max(1e-9)
    }
}

impl Slice {
    /// PUTs as long as there are numbers, as many under way as wanted.
    pub(super) fn puts(
        run: &StoreRun,
        cpus: Vec<Option<usize>>,
        depth: usize,
        numbers: Numbers,
    ) -> Self {
        Slice {
            cpus,
            depth,
            warm_up: Duration::ZERO,
            // Until there are no more.
            length: Duration::from_secs(86_400),
            requests: Requests::Fresh(Arc::new(numbers)),
            value_len: run.value_len,
            seed: run.seed,
            idle: Idle::Spin,
        }
    }

    /// Measures.
    pub(super) fn run(&self, side: &Side) -> anyhow::Result<Tally> {
        let configs = self.cpus.iter().map(|cpu| {
            let mut config = Config::default();
            config.idle = match self.idle {
                Idle::Spin => IdleMode::Poll,
                Idle::Sleep => IdleMode::Sleep {
                    spin: Duration::ZERO,
                },
            };
            config.cpu = *cpu;
            config
        });
        let beside = || match side {
            Side::Store(store) => {
                let stats = store.stats();
                stats.device_bytes() - stats.written_bytes
            }
            Side::Raw { .. } => 0,
        };
        let before = beside();
        let (slice, sides) = (self.clone(), side.clone());
        let threads = Threads::start(configs.collect(), &Shutdown::new(), move |core, number| {
            let (slice, side) = (slice.clone(), sides.clone());
            async move { slice.run_core(&side, &core, number).await }
        })?;
        let mut all = Tally::new();
        for tally in threads.join()? {
            all.join(&tally?);
        }
        all.counts.beside_bytes = beside() - before;
        Ok(all)
    }

    async fn run_core(&self, side: &Side, core: &Handle, number: usize) -> anyhow::Result<Tally> {
        let meter = Rc::new(Meter {
            tally: RefCell::new(Tally::new()),
            error: RefCell::default(),
            is_on: Cell::new(false),
            is_over: Cell::new(false),
            at: Cell::new(0),
            number,
            slice: self.clone(),
        });
        let mut tasks = Vec::with_capacity(self.depth);
        let disk = match side {
            Side::Store(store) => {
                let session = store.session_on(core)?;
                for task in 0..self.depth {
                    tasks.push(core.spawn(ask(session.clone(), meter.clone(), task)));
                }
                session.disk().clone()
            }
            Side::Raw {
                device,
                read_end,
                write_start,
                durable,
            } => {
                let disk = Disk::open(device, self.depth)?;
                core.register_poller(disk.poller()).detach();
                let raw = Raw {
                    disk: disk.clone(),
                    read_end: *read_end,
                    log: Log::new(core, &disk, *write_start..device.geometry().len, *durable),
                };
                for task in 0..self.depth {
                    tasks.push(core.spawn(raw.clone().ask(meter.clone(), task)));
                }
                disk
            }
        };
        watch(core, &meter, tasks).await?;
        let mut tally = meter.tally.replace(Tally::new());
        let device = disk.counts();
        tally.counts.device_reads = device.reads;
        tally.counts.device_read_bytes = device.read_bytes;
        tally.counts.device_writes = device.writes;
        tally.counts.device_written_bytes = device.written_bytes;
        Ok(tally)
    }
}

/// CPU time of this process so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Lets the tasks warm up, measures for a while, and waits for them to end.
async fn watch(core: &Handle, meter: &Meter, tasks: Vec<rt::JoinHandle<()>>) -> anyhow::Result<()> {
    let end = core.now() + meter.slice.warm_up;
    let is_warm = || match &meter.slice.requests {
        Requests::Tapes(_) => false,
        Requests::Fresh(numbers) => numbers.are_warm(),
    };
    while core.now() < end && !is_warm() {
        core.sleep((meter.slice.warm_up / 64).min(LOOK_EVERY)).await;
    }
    meter.is_on.set(true);
    let (began, cpu_began) = (Instant::now(), cpu_time());
    let end = core.now() + meter.slice.length;
    // Requests may run out before. Without one that has ended there is nothing to tell.
    let has_some = || meter.tally.borrow().ended > 0;
    while (core.now() < end || !has_some()) && !tasks.iter().all(rt::JoinHandle::is_finished) {
        core.sleep((meter.slice.length / 64).min(LOOK_EVERY)).await;
    }
    meter.is_on.set(false);
    {
        let mut tally = meter.tally.borrow_mut();
        tally.seconds = began.elapsed().as_secs_f64();
        tally.cpu_seconds = (cpu_time() - cpu_began).as_secs_f64();
    }
    meter.is_over.set(true);
    for task in tasks {
        task.await.map_err(|error| anyhow!("{error}"))?;
    }
    match meter.error.take() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// What the tasks of one core share.
struct Meter {
    tally: RefCell<Tally>,
    error: RefCell<Option<anyhow::Error>>,
    is_on: Cell<bool>,
    is_over: Cell<bool>,
    /// The next request of the tape.
    at: Cell<usize>,
    number: usize,
    slice: Slice,
}

/// One request.
struct Request {
    item: u64,
    is_put: bool,
}

impl Meter {
    /// The next request, and its key.
    fn next(&self, key: &mut [u8; KEY_LEN]) -> Option<Request> {
        if self.is_over.get() {
            return None;
        }
        match &self.slice.requests {
            Requests::Tapes(tapes) => {
                let tape = &tapes[self.number % tapes.len()];
                let at = self.at.get();
                self.at.set(if at + 1 == tape.len() { 0 } else { at + 1 });
                key.copy_from_slice(tape.key(at));
                let operation = tape.operation(at);
                Some(Request {
                    item: operation.item(),
                    is_put: operation.is_put(),
                })
            }
            Requests::Fresh(numbers) => {
                let item = numbers.take()?;
                write_key(item, key);
                Some(Request { item, is_put: true })
            }
        }
    }

    #[inline]
    fn ended(&self, began: Instant) {
        if self.is_on.get() {
            let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let mut tally = self.tally.borrow_mut();
            tally.ended += 1;
            tally.latency.saturating_record(ns.max(1));
        }
    }

    fn fail(&self, error: impl Into<anyhow::Error>) {
        self.is_over.set(true);
        self.error.borrow_mut().get_or_insert(error.into());
    }
}

/// Makes a value that names its item at both ends.
fn mark(value: &mut [u8], item: u64) {
    let bytes = item.to_le_bytes();
    let len = value.len().min(8);
    let end = value.len() - len;
    value[..len].copy_from_slice(&bytes[..len]);
    value[end..].copy_from_slice(&bytes[..len]);
}

/// Whether it is a whole value of its item; the store's checksum covers what is between its ends.
pub(super) fn is_marked(value: &[u8], item: u64, len: usize) -> bool {
    let bytes = item.to_le_bytes();
    let ends = len.min(8);
    value.len() == len && value[..ends] == bytes[..ends] && value[len - ends..] == bytes[..ends]
}

/// A value of random bytes, which nothing on the way can make shorter.
fn value(len: usize, seed: u64) -> Vec<u8> {
    let mut value = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut value);
    value
}

/// Asks a store for one thing after the other.
fn ask(session: Session, meter: Rc<Meter>, task: usize) -> impl Future<Output = ()> {
    let len = meter.slice.value_len;
    let mut put = value(len, meter.slice.seed ^ task as u64);
    let mut key = [0; KEY_LEN];
    async move {
        while let Some(Request { item, is_put }) = meter.next(&mut key) {
            if is_put {
                mark(&mut put, item);
                let began = Instant::now();
                if let Err(error) = session.put(&key, &put).await {
                    return meter.fail(error);
                }
                meter.ended(began);
                meter.tally.borrow_mut().counts.puts += 1;
            } else {
                let began = Instant::now();
                let found = match session.get(&key).await {
                    Ok(found) => found,
                    Err(error) => return meter.fail(error),
                };
                meter.ended(began);
                let counts = &mut meter.tally.borrow_mut().counts;
                match found {
                    Some(found) => {
                        counts.hits += 1;
                        counts.wrong += u64::from(!is_marked(&found, item, len));
                    }
                    None => counts.misses += 1,
                }
            }
        }
    }
}

/// Bytes of a record beside its key and value, and what places of records are multiples of.
const RECORD_HEADER: usize = 8;
const GRAIN: u64 = 4;

/// The device without an index.
#[derive(Clone)]
struct Raw {
    disk: Disk,
    read_end: u64,
    log: Log,
}

impl Raw {
    /// Reads at random places and writes what a value needs: writes of as many bytes as a record has, which
    /// share blocks and writes, reads of the blocks that a record lies in which begins anywhere.
    fn ask(self, meter: Rc<Meter>, task: usize) -> impl Future<Output = ()> {
        let block = u64::from(self.disk.geometry().block);
        let record = (RECORD_HEADER + KEY_LEN + meter.slice.value_len) as u64;
        let places = (self.read_end.saturating_sub(record + block) / GRAIN).max(1);
        let seed = meter.slice.seed ^ ((meter.number as u64) << 32 | task as u64);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut buf = self
            .disk
            .buffer((record + 2 * block).next_multiple_of(block) as usize);
        let mut written = vec![0; record.next_multiple_of(GRAIN) as usize];
        random.fill(&mut written);
        let mut key = [0; KEY_LEN];
        async move {
            while let Some(Request { is_put, .. }) = meter.next(&mut key) {
                let began = Instant::now();
                let result = if is_put {
                    self.log.append(&written).await
                } else {
                    let at = random.u64(..places) * GRAIN;
                    let start = at / block * block;
                    buf.set_len(((at + record).next_multiple_of(block) - start) as usize);
                    let (result, back) = self.disk.read(buf, start).await;
                    buf = back;
                    result
                };
                if let Err(error) = result {
                    return meter.fail(error);
                }
                meter.ended(began);
                let counts = &mut meter.tally.borrow_mut().counts;
                if is_put {
                    counts.puts += 1;
                } else {
                    counts.hits += 1;
                }
            }
        }
    }
}
