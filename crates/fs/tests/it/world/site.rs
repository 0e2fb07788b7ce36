//! The whole of a server in a world: door, file system, engine, disk, and what goes wrong with them.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use block::sim::{Rates, SimConfig, SimDevice, Speed};
use files::Timestamp;
use fs::{Local, LocalFormat, LocalOptions, Parts, check_parts};
use meta::{Model, Pace};
use nfs::server::{Door, Export, Options, Squash};
use rt::net::{ListenOptions, Listener};
use sim::{Env, World, WorldOptions};

pub(crate) const PORT: u16 = 2049;

/// The server's node, and the first of two for clients.
pub(crate) const SERVER: usize = 0;
pub(crate) const CLIENTS: usize = 1;

/// How long a lease is here.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// How long it takes to close at most.
const CLOSED_WITHIN: Duration = Duration::from_secs(60);

/// How often the index of the data is written down here.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(20);

const MS: Duration = Duration::from_millis(1);
/// Virtual time in which a server comes back whose disk works.
const UP_WITHIN: Duration = Duration::from_secs(5);

/// What the server's disk is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// It loses with the power what was not flushed, and nothing else goes wrong.
    Sound,
    /// It takes a hundred times as long as others.
    Slow,
    /// Requests fail now and then; it says so.
    Faulty,
    /// It is soon full.
    Full,
    /// It fails all requests for some time, until the server has another path to it.
    Dying,
}

impl Nature {
    pub(crate) const ALL: [Self; 5] = [
        Self::Sound,
        Self::Slow,
        Self::Faulty,
        Self::Full,
        Self::Dying,
    ];

    fn disk(self) -> SimConfig {
        let bytes = if self == Self::Full {
            2 << 20
        } else {
            24 << 20
        };
        let mut config = SimConfig::new(0, bytes);
        // A write is torn between pages and not within.
        config.geometry.block = 4096;
        config.sector = 4096;
        if self == Self::Slow {
            config.speed = Speed {
                read: 8 * MS,
                write: 2 * MS,
                flush: 50 * MS,
                ..Speed::default()
            };
        }
        config
    }

    pub(crate) fn rates(self) -> Rates {
        let mut rates = Rates::default();
        match self {
            Self::Faulty => {
                rates.write_error = 0.01;
                rates.flush_error = 0.03;
                rates.read_error = 0.01;
                rates.short = 0.05;
                rates.again = 0.05;
            }
            Self::Sound | Self::Slow | Self::Full | Self::Dying => {}
        }
        rates
    }
}

const DEAD: Rates = Rates {
    read_error: 1.0,
    write_error: 1.0,
    flush_error: 1.0,
    short: 0.0,
    again: 0.0,
};

/// A server on a node, and two nodes for clients.
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) nature: Nature,
    rows: Model,
    /// What happened, for who looks at a failure.
    pub(crate) log: Rc<RefCell<String>>,
    /// Whether the file system is open, and the door.
    is_up: Rc<Cell<bool>>,
    /// The file system that is open.
    fs: Rc<RefCell<Option<Local>>>,
    /// What starts have met.
    pub(crate) starts: Rc<Starts>,
}

/// What a server has met when it started.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    /// How often it was opened.
    pub(crate) all: Cell<u64>,
    /// The index of the data came from a checkpoint.
    pub(crate) from_checkpoints: Cell<u64>,
    /// No room was left for writers.
    pub(crate) full: Cell<u64>,
}

/// The date of a world.
fn date(core: &rt::Handle) -> Timestamp {
    let ns = core.now().as_ns();
    Timestamp {
        seconds: 1_000_000_000 + (ns / 1_000_000_000) as i64,
        nanoseconds: (ns % 1_000_000_000) as u32,
    }
}

impl Site {
    /// A file system that is made, opened and served.
    pub(crate) fn new(seed: u64, nature: Nature) -> Self {
        let mut options = WorldOptions::new(seed, 3);
        options.disk = Some(nature.disk());
        options.step = Duration::from_micros(2);
        let mut world = World::new(options);
        let rows = Model::new(seed);
        let to_rows = rows.clone();
        let made = world.run(0, move |env| async move {
            let disk = env.disk.clone().expect("it has one");
            let parts = Parts {
                engine: to_rows.handle(),
                device: &disk,
            };
            let mut format = LocalFormat::new(disk.image().len(), seed, date(&env.core));
            format.segment_bytes = 128 << 10;
            Local::format_parts(&env.core, parts, &format).await
        });
        made.expect("no panic").expect("an empty disk");
        // What was made survives the power.
        world.kill(0).expect("no panic");
        let mut site = Self {
            world,
            nature,
            rows,
            log: Rc::default(),
            is_up: Rc::default(),
            fs: Rc::default(),
            starts: Rc::default(),
        };
        site.begin(seed);
        site
    }

    fn begin(&mut self, seed: u64) {
        let (rows, nature, is_up) = (self.rows.clone(), self.nature, Rc::clone(&self.is_up));
        let (log, now, starts) = (
            Rc::clone(&self.log),
            Rc::clone(&self.fs),
            Rc::clone(&self.starts),
        );
        self.world.boot(0, move |env| {
            let (rows, is_up, log) = (rows.clone(), Rc::clone(&is_up), Rc::clone(&log));
            let (now, starts) = (Rc::clone(&now), Rc::clone(&starts));
            async move {
                let fs = open(&env, &rows, nature, seed, &log).await;
                starts.note(&fs).await;
                let door = open_door(&env, &fs).await;
                *now.borrow_mut() = Some(fs.clone());
                is_up.set(true);
                serve(&env, fs, door).await;
            }
        });
        self.set_rates();
    }

    fn set_rates(&self) {
        let disk = self.world.disk(0).expect("it has one");
        disk.set_rates(self.nature.rates());
    }

    pub(crate) fn note(&self, what: &str) {
        let now = self.world.now().as_ns();
        writeln!(self.log.borrow_mut(), "{now:>12} {what}").expect("a string");
    }

    /// Lets it go on until the rows have an extent less than before: its segment is not free yet. False if none goes.
    pub(crate) fn await_release(&mut self, time: Duration) -> bool {
        let rows = self.rows.clone();
        let (seen, before) = (Cell::new(0), Cell::new(0));
        let has_gone = |_: &World| {
            if seen.replace(rows.revision()) == rows.revision() {
                return false;
            }
            let is_extent = |(key, _): &(meta::Key, meta::Row)| key.starts_with(b"snebula/x");
            let count = rows.rows().into_iter().filter(is_extent).count();
            before.replace(count) > count
        };
        let ended = self.world.run_until(time, has_gone);
        ended.unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// Lets it come back, if it can.
    pub(crate) fn await_up(&mut self) {
        let is_up = Rc::clone(&self.is_up);
        let ended = self.world.run_until(UP_WITHIN, |_| is_up.get());
        ended.unwrap_or_else(|error| panic!("{error:?}"));
    }

    /// The power goes, and comes back after a while.
    pub(crate) fn cut_power(&mut self) {
        self.note("the power goes");
        self.is_up.set(false);
        *self.fs.borrow_mut() = None;
        // Commits under way are carried out or not: who waits for them would give them up as it ends.
        self.rows.lose_power();
        self.world.kill(0).expect("no panic");
        self.come_back();
    }

    /// The file system is closed in order, if it is open, and another process started. Whether all of it could be
    /// written down: then nothing is wrong with it.
    pub(crate) fn restart(&mut self) -> bool {
        let is_closed = self.close();
        self.end_process();
        // A segment that a disk did not free is freed at the next start.
        if is_closed && !matches!(self.nature, Nature::Faulty | Nature::Dying) {
            self.examine();
        }
        self.come_back();
        is_closed
    }

    /// The process is killed, and another one started.
    pub(crate) fn kill(&mut self) {
        self.end_process();
        self.come_back();
    }

    fn end_process(&mut self) {
        self.note("the process is killed");
        self.is_up.set(false);
        *self.fs.borrow_mut() = None;
        self.rows.lose_power();
        self.world.kill_process(0).expect("no panic");
    }

    /// The file system is closed in order, if it is open. Whether all of it could be written down.
    pub(crate) fn close(&mut self) -> bool {
        let Some(fs) = self.fs.borrow_mut().take() else {
            return false;
        };
        self.note("the file system is closed");
        let mut closing = self
            .world
            .spawn(0, move |_| async move { fs.close().await });
        let ended = self
            .world
            .run_until(CLOSED_WITHIN, |_| closing.is_finished());
        ended.unwrap_or_else(|error| panic!("{error:?}"));
        match closing.try_take() {
            Some(closed) => closed.expect("no panic").is_ok(),
            None => panic!("it does not close"),
        }
    }

    /// Opens the file system with a disk that works, closes it, and reads all of it: nothing is wrong with it.
    pub(crate) fn check(&mut self) {
        self.nature = Nature::Sound;
        match self.world.chance().u8(..3) {
            0 => self.cut_power(),
            1 => self.kill(),
            _ => self.set_rates(),
        }
        self.await_up();
        assert!(self.is_up.get(), "it does not open");
        assert!(self.close(), "it is not closed");
        self.end_process();
        self.examine();
    }

    /// Reads all that a file system which was closed in order has left: nothing is wrong with it.
    pub(crate) fn examine(&self) {
        let image = self.world.disk(0).expect("it has one").image();
        let mut config = SimConfig::new(0, image.len());
        config.geometry.block = 4096;
        config.sector = 4096;
        let device = SimDevice::with_image(config, image);
        let mut core = rt::Core::new(rt::Config::default()).expect("a core");
        let (handle, engine) = (core.handle(), self.rows.handle());
        let parts = Parts {
            engine,
            device: &device,
        };
        let checked = core.block_on(check_parts(&handle, parts, &mut |_| ()));
        let checked = checked.expect("it can be read");
        assert!(checked.faults.is_empty(), "{:#?}", checked.faults);
        assert!(checked.is_closed && checked.objects > 0);
    }

    fn come_back(&mut self) {
        let wait = self.world.chance().u64(..2_000_000);
        self.world
            .run_for(Duration::from_nanos(wait))
            .expect("no panic");
        self.world.restart(0);
        self.set_rates();
    }

    /// The server stands still.
    pub(crate) fn stall(&mut self, time: Duration) {
        self.note(&format!("the server stands still for {time:?}"));
        self.world.stall(0, time);
    }

    /// The disk fails everything from now on, until the next restart.
    pub(crate) fn die(&mut self) {
        self.note("the disk dies");
        self.world.disk(0).expect("it has one").set_rates(DEAD);
    }

    /// How many streams there are.
    pub(crate) fn streams(&self) -> usize {
        let rows = self.rows.rows();
        let is_stream = |key: &meta::Key| key.starts_with(b"snebula/s");
        rows.iter().filter(|(key, _)| is_stream(key)).count()
    }

    /// Requests since the last start that were answered with what had been done before.
    pub(crate) fn repeats(&mut self) -> u64 {
        self.await_up();
        let fs = self.fs.borrow().clone().expect("it is up");
        let figures = self
            .world
            .run(0, move |_| async move { fs.figures().await });
        let figures = figures.expect("no panic").expect("it is read");
        figures.index.repeats
    }

    /// Some of what is asked of the engine ends without an answer that says what became of it.
    pub(crate) fn doubt(&self, percent: u8) {
        self.rows.set_unknown_percent(percent);
    }
}

impl Starts {
    async fn note(&self, fs: &Local) {
        let count = |of: &Cell<u64>, is_so: bool| of.set(of.get() + u64::from(is_so));
        count(&self.all, true);
        if let Ok(figures) = fs.figures().await {
            count(&self.from_checkpoints, figures.recovery.from_checkpoint);
            count(&self.full, figures.bytes_free == 0);
        }
    }
}

async fn open(env: &Env, rows: &Model, nature: Nature, seed: u64, log: &RefCell<String>) -> Local {
    loop {
        let disk = env.disk.as_ref().expect("it has one");
        let parts = Parts {
            engine: rows.handle_on(&env.core, Pace::default()),
            device: disk,
        };
        let core = env.core.clone();
        let mut options = LocalOptions::new(Rc::new(move || date(&core)), seed ^ env.boots);
        options.cache_bytes = 256 << 10;
        options.rows_bytes = 64 << 10;
        options.checkpoint_every = CHECKPOINT_EVERY;
        match Local::open_parts(&env.core, parts, &options).await {
            Ok(fs) => return fs,
            Err(error) if matches!(nature, Nature::Faulty | Nature::Dying) => {
                let now = env.core.now().as_ns();
                writeln!(log.borrow_mut(), "{now:>12} {error}").expect("a string");
                env.core.sleep(MS).await;
            }
            Err(error) => panic!("the file system does not open: {error:?}"),
        }
    }
}

async fn open_door(env: &Env, fs: &Local) -> Rc<Door> {
    let mut export = Export::new("/", Local::VOLUME);
    export.squash = Squash::None;
    let mut options = Options::new(vec![export]);
    options.lease = LEASE;
    let door = Door::open(&env.core, Rc::new(fs.clone()), options).await;
    door.expect("a door")
}

async fn serve(env: &Env, fs: Local, door: Rc<Door>) {
    drop(env.core.spawn(async move { fs.keep().await }));
    drop(env.core.spawn(Rc::clone(&door).keep()));
    let addr = env.addr(0, PORT);
    let listener = Listener::bind(&env.core, &addr, ListenOptions::default());
    door.serve(listener.expect("a free port")).await;
}
