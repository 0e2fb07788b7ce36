//! What a block device gives here, bare and through `block`:
//! `cargo run --release -p block --example block -- FILE TABLE...`
//!
//! FILE is created with 4 GiB and written once, or used as it is. Everything runs on CPU 0.

mod bare;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bare::{Bare, Setup};
use block::{Device, Disk, Durable, Engine, FileDevice, Null, Options};
use rt::{Config, Core, IdleMode};
use rustix::thread::{CpuSet, sched_setaffinity};

const FILE_LEN: u64 = 4 << 30;
const ROUNDS: usize = 3;

/// What is measured.
#[derive(Clone, Copy, Debug)]
struct Load {
    len: usize,
    /// What offsets are multiples of.
    align: u64,
    depth: usize,
    write: Option<Durable>,
    window: Duration,
}

/// By which way.
#[derive(Clone, Copy)]
enum Way {
    Bare(Bare),
    /// Tasks on a core that spins.
    Core(Engine),
    /// The same with a device that takes no time.
    Null,
    /// One thread that blocks.
    Thread(Engine),
}

/// What an operation takes.
#[derive(Clone, Copy, Default)]
struct Speed {
    per_s: f64,
    median_us: f64,
    /// Of the CPU, interrupts included: what is not spent looking in vain.
    cpu_us: f64,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("a file");
    let mut set = CpuSet::new();
    set.set(0);
    sched_setaffinity(None, &set).expect("pinned to CPU 0");
    fill(path.as_ref());
    let way = |setup, registered| Way::Bare(Bare { setup, registered });
    for table in args {
        match table.as_str() {
            "fill" => {}
            "setups" => {
                let ways = [
                    ("plain", way(Setup::Plain, false)),
                    ("plain, registered", way(Setup::Plain, true)),
                    ("coop", way(Setup::Cooperative, false)),
                    ("coop, registered", way(Setup::Cooperative, true)),
                    ("defer", way(Setup::Deferred, false)),
                    ("defer, registered", way(Setup::Deferred, true)),
                ];
                rows(&path, &ways, &[(4096, 4096, 1), (4096, 4096, 128)], &[None]);
            }
            "engines-read" | "engines-write" | "engines-durable" => {
                let ways = [
                    ("bare uring", way(Setup::Deferred, true)),
                    ("uring", Way::Core(Engine::Uring)),
                    ("aio", Way::Core(Engine::Aio)),
                    ("threads", Way::Core(Engine::Threads)),
                ];
                let sizes = [
                    (4096, 4096, 1),
                    (4608, 512, 1),
                    (5120, 512, 1),
                    (4096, 4096, 128),
                    (4608, 512, 128),
                    (5120, 512, 128),
                ];
                let write = match table.as_str() {
                    "engines-read" => None,
                    "engines-write" => Some(Durable::No),
                    _ => Some(Durable::Yes),
                };
                rows(&path, &ways, &sizes, &[write]);
            }
            "blocking" => {
                let ways = [
                    ("uring", Way::Thread(Engine::Uring)),
                    ("aio", Way::Thread(Engine::Aio)),
                    ("threads", Way::Thread(Engine::Threads)),
                    ("blocking", Way::Thread(Engine::Blocking)),
                ];
                rows(&path, &ways, &[(4096, 4096, 1)], &[None, Some(Durable::No)]);
            }
            "large" => {
                let ways = [
                    ("bare uring", way(Setup::Deferred, true)),
                    ("uring", Way::Core(Engine::Uring)),
                ];
                let sizes = [
                    (16384, 4096, 8),
                    (65536, 4096, 1),
                    (65536, 4096, 8),
                    (262_144, 4096, 4),
                    (1 << 20, 4096, 1),
                    (1 << 20, 4096, 4),
                ];
                rows(&path, &ways, &sizes, &[None, Some(Durable::No)]);
            }
            "overhead" => {
                let ways = [
                    ("bare uring", way(Setup::Deferred, true)),
                    ("uring", Way::Core(Engine::Uring)),
                    ("null", Way::Null),
                ];
                rows(
                    &path,
                    &ways,
                    &[(4096, 4096, 1), (4096, 4096, 128)],
                    &[None, Some(Durable::No)],
                );
            }
            "fresh" => {
                // Each row on space of its own that was allocated and never written.
                for (len, depth) in [(4096, 128), (65536, 8)] {
                    for write in [Durable::No, Durable::Yes] {
                        let fresh = format!("{path}.fresh");
                        let options = Options::create(FILE_LEN);
                        drop(FileDevice::open(&fresh, &options).expect("a new file"));
                        let sizes = [(len, 65536, depth)];
                        let ways = [("uring, never written", Way::Core(Engine::Uring))];
                        rows(&fresh, &ways, &sizes, &[Some(write)]);
                        std::fs::remove_file(&fresh).expect("removed");
                        let ways = [("uring, written", Way::Core(Engine::Uring))];
                        rows(&path, &ways, &sizes, &[Some(write)]);
                    }
                }
            }
            "profile" => {
                let load = Load {
                    len: 4096,
                    align: 4096,
                    depth: 128,
                    write: None,
                    window: Duration::from_secs(5),
                };
                let speed = measure(&path, Way::Core(Engine::Uring), load);
                println!("{:.0}/s", speed.per_s);
            }
            other => panic!(
                "no table {other:?}: setups, engines-read, engines-write, engines-durable, blocking, large, overhead, fresh, profile"
            ),
        }
    }
}

/// Prints the medians of alternating runs.
fn rows(
    path: &str,
    ways: &[(&str, Way)],
    sizes: &[(usize, u64, usize)],
    writes: &[Option<Durable>],
) {
    let count = ways.len() * sizes.len() * writes.len() * ROUNDS;
    let window = Duration::from_secs_f64((45.0 / count as f64).min(1.0));
    println!(
        "{:20} {:>7} {:>8} {:>5}  {:>9} {:>9} {:>7} {:>7}",
        "", "bytes", "", "depth", "per s", "median us", "CPU us", "MB/s"
    );
    for &write in writes {
        for &(len, align, depth) in sizes {
            let load = Load {
                len,
                align,
                depth,
                write,
                window,
            };
            let mut speeds = vec![Vec::new(); ways.len()];
            for _ in 0..ROUNDS {
                for (index, (_, way)) in ways.iter().enumerate() {
                    speeds[index].push(measure(path, *way, load));
                }
            }
            for ((name, _), speeds) in ways.iter().zip(&mut speeds) {
                let speed = Speed {
                    per_s: median(speeds.iter().map(|speed| speed.per_s).collect()),
                    median_us: median(speeds.iter().map(|speed| speed.median_us).collect()),
                    cpu_us: median(speeds.iter().map(|speed| speed.cpu_us).collect()),
                };
                let op = match write {
                    None => "read",
                    Some(Durable::No) => "write",
                    Some(Durable::Yes) => "durable",
                };
                println!(
                    "{name:20} {len:7} {op:>8} {depth:5}  {:9.0} {:9.1} {:7.2} {:7.0}",
                    speed.per_s,
                    speed.median_us,
                    speed.cpu_us,
                    speed.per_s * len as f64 / 1e6
                );
            }
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(path: &str, way: Way, load: Load) -> Speed {
    match way {
        Way::Bare(bare) => bare::run(bare, path, load),
        Way::Core(engine) => on_core(&device(path, engine), load),
        Way::Null => on_core(&Null(FILE_LEN), load),
        Way::Thread(engine) => on_thread(path, engine, load),
    }
}

fn device(path: &str, engine: Engine) -> FileDevice {
    let device = FileDevice::open(path, &Options::existing().with_engine(engine));
    let device = device.expect("the file opens");
    assert!(device.is_direct());
    device
}

/// Counts operations and their latencies until the window is over.
struct Meter {
    start: Instant,
    window: Duration,
    ends: RefCell<Vec<u32>>,
    end: Cell<Instant>,
    rng: RefCell<fastrand::Rng>,
    places: u64,
    load: Load,
    idle: RefCell<Idle>,
}

/// Looks in vain: how many, and how long one takes. One that an interrupt falls into takes longer, so
/// that their sum is not the time that is left over.
#[derive(Default)]
struct Idle {
    count: u64,
    last: Option<Instant>,
    intervals_ns: Vec<u32>,
}

impl Idle {
    /// Notes a look and whether it was in vain.
    fn note(&mut self, is_vain: bool) {
        let now = Instant::now();
        if let Some(last) = self.last {
            self.count += 1;
            if self.intervals_ns.len() < 1 << 20 {
                self.intervals_ns.push((now - last).as_nanos() as u32);
            }
        }
        self.last = is_vain.then_some(now);
    }

    fn total(&mut self) -> Duration {
        self.intervals_ns.sort_unstable();
        let median_ns = self.intervals_ns.get(self.intervals_ns.len() / 2);
        Duration::from_nanos(self.count * u64::from(median_ns.copied().unwrap_or(0)))
    }
}

/// A poller that notes when it finds nothing.
struct Watched(block::DiskPoller, Rc<Meter>);

impl rt::Poller for Watched {
    fn poll(&mut self, now: rt::Instant, budget: usize) -> usize {
        let count = self.0.poll(now, budget);
        self.1.idle.borrow_mut().note(count == 0);
        count
    }

    fn arm(&mut self) -> rt::Arm<'_> {
        self.0.arm()
    }

    fn disarm(&mut self) {
        self.0.disarm();
    }
}

impl Meter {
    fn new(load: Load) -> Self {
        let start = Instant::now();
        Self {
            start,
            window: load.window,
            ends: RefCell::new(Vec::with_capacity(1 << 20)),
            end: Cell::new(start),
            rng: RefCell::new(fastrand::Rng::new()),
            places: (FILE_LEN - load.len as u64) / load.align,
            load,
            idle: RefCell::default(),
        }
    }

    fn place(&self) -> u64 {
        self.rng.borrow_mut().u64(0..self.places) * self.load.align
    }

    /// Notes an end; whether to go on.
    fn note(&self, begin: &mut Instant) -> bool {
        let now = Instant::now();
        let latency_ns = (now - *begin).as_nanos().min(u32::MAX.into());
        self.ends.borrow_mut().push(latency_ns as u32);
        self.end.set(now);
        *begin = now;
        now - self.start < self.window
    }

    fn speed(&self) -> Speed {
        let mut ends = self.ends.borrow_mut();
        ends.sort_unstable();
        let elapsed = self.end.get() - self.start;
        let busy = elapsed.saturating_sub(self.idle.borrow_mut().total());
        Speed {
            per_s: ends.len() as f64 / elapsed.as_secs_f64(),
            cpu_us: busy.as_secs_f64() * 1e6 / ends.len() as f64,
            median_us: f64::from(ends[ends.len() / 2]) / 1000.0,
        }
    }
}

async fn client(disk: Disk, meter: Rc<Meter>) {
    let load = meter.load;
    let mut buf = disk.buffer(load.len);
    let mut begin = Instant::now();
    loop {
        let at = meter.place();
        let result;
        (result, buf) = match load.write {
            None => disk.read(buf, at).await,
            Some(durable) => disk.write(buf, at, durable).await,
        };
        result.expect("the device works");
        if !meter.note(&mut begin) {
            return;
        }
    }
}

fn on_core(device: &dyn Device, load: Load) -> Speed {
    let mut config = Config::default();
    config.idle = IdleMode::Poll;
    config.poller_budget = 256;
    let mut core = Core::new(config).expect("a core opens");
    let handle = core.handle();
    let disk = Disk::open(device, load.depth).expect("a queue opens");
    let meter = Rc::new(Meter::new(load));
    let poller = Watched(disk.poller(), meter.clone());
    handle.register_poller(poller).detach();
    let tasks: Vec<_> = (0..load.depth)
        .map(|_| handle.spawn(client(disk.clone(), meter.clone())))
        .collect();
    core.block_on(async {
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    meter.speed()
}

fn on_thread(path: &str, engine: Engine, load: Load) -> Speed {
    let disk = Disk::open(&device(path, engine), load.depth).expect("a queue opens");
    let meter = Rc::new(Meter::new(load));
    disk.block_on(client(disk.clone(), meter.clone()));
    meter.speed()
}

/// Space that was never written costs more to write, and reads as zeros without the device.
fn fill(path: &Path) {
    if path.exists() {
        return;
    }
    let device = FileDevice::open(path, &Options::create(FILE_LEN)).expect("a new file");
    let disk = Disk::open(&device, 8).expect("a queue opens");
    disk.block_on(async {
        for at in (0..FILE_LEN).step_by(8 << 20) {
            let mut buf = disk.buffer(8 << 20);
            fastrand::fill(&mut buf);
            disk.write(buf, at, Durable::No).await.0.expect("written");
        }
        disk.flush().await.expect("flushed");
    });
}
