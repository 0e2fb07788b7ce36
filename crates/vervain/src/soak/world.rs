//! What all threads of a run share.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::clock::Wall;
use super::flush::{Flush, Flushes};
use super::mix::{COUNTERS, REGISTERS};
use super::model::{Counter, Moment, Register};
use super::tally::Tally;

/// How a client reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Herd,
    Tcp,
    Unix,
}

impl Door {
    pub(super) fn name(self) -> &'static str {
        match self {
            Door::Herd => "herd",
            Door::Tcp => "tcp",
            Door::Unix => "unix",
        }
    }
}

/// Unix seconds.
pub(super) fn unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Locks; a panic elsewhere is told where that thread is joined.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What went wrong.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    Wrong(Box<Wrong>),
    /// Which client made no progress for how long.
    Hang(String),
    Leak(String),
    /// A process that ended, or did not end, as it should not.
    Ended(String),
}

/// A wrong answer.
#[derive(Clone, Debug)]
pub(super) struct Wrong {
    pub(super) client: String,
    pub(super) key: String,
    pub(super) asked: String,
    pub(super) came: String,
    pub(super) allowed: String,
    pub(super) at: Duration,
    pub(super) history: Vec<String>,
}

/// Keys that all write.
pub(super) struct Shared {
    pub(super) registers: Vec<Register>,
    pub(super) counters: Vec<Counter>,
    pub(super) flushes: Flushes,
}

/// A client's place: the process in it comes and goes.
pub(super) struct Seat {
    pub(super) number: usize,
    pub(super) door: Door,
    pub(super) process: Mutex<Option<std::process::Child>>,
    /// Somebody has killed the process, or is about to.
    pub(super) killed: AtomicBool,
    /// The process is stopped.
    pub(super) stopped: AtomicBool,
    /// To leave in the middle of a large PUT.
    pub(super) leave: AtomicBool,
    /// When something was answered last.
    pub(super) progress: AtomicU64,
    /// Until when it had an excuse to get no answer.
    pub(super) excused: AtomicU64,
    pub(super) tally: Mutex<Tally>,
}

impl Seat {
    pub(super) fn new(number: usize, door: Door) -> Self {
        Seat {
            number,
            door,
            process: Mutex::new(None),
            killed: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            leave: AtomicBool::new(false),
            progress: AtomicU64::new(0),
            excused: AtomicU64::new(0),
            tally: Mutex::default(),
        }
    }

    pub(super) fn name(&self) -> String {
        format!("client {} ({})", self.number, self.door.name())
    }

    /// Kills the process, if there is one; it is waited for by whoever talks to it.
    pub(super) fn kill(&self) {
        if let Some(process) = lock(&self.process).as_mut() {
            self.killed.store(true, Ordering::Release);
            // It may have ended by itself.
            drop(process.kill());
        }
    }
}

/// What clients are to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Turn {
    /// To ask.
    #[default]
    Busy,
    /// To be silent.
    Idle,
    /// To end their processes.
    Away,
}

#[derive(Default)]
struct Waiting {
    turn: Turn,
    /// Clients that wait for another turn.
    clients: usize,
    /// When they were allowed to ask last.
    spoke_at: Moment,
}

/// A run.
pub(super) struct World {
    pub(super) began: Instant,
    pub(super) dir: PathBuf,
    pub(super) seats: Vec<Seat>,
    pub(super) shared: Mutex<Shared>,
    /// The server's wall clock.
    pub(super) wall: Wall,
    /// When the server was killed.
    kills: Mutex<Vec<Moment>>,
    stop: AtomicBool,
    turn: (Mutex<Waiting>, Condvar),
    /// The server is stopped or dead.
    pub(super) server_away: AtomicBool,
    failure: Mutex<Option<Failure>>,
    log: Mutex<File>,
}

impl World {
    pub(super) fn new(dir: PathBuf, seats: Vec<Seat>) -> std::io::Result<Self> {
        let log = File::create(dir.join("events.log"))?;
        let wall = Wall::new(&dir)?;
        Ok(World {
            began: Instant::now(),
            dir,
            seats,
            shared: Mutex::new(Shared {
                registers: (0..REGISTERS).map(|_| Register::default()).collect(),
                counters: (0..COUNTERS).map(|_| Counter::default()).collect(),
                flushes: Flushes::default(),
            }),
            wall,
            kills: Mutex::default(),
            stop: AtomicBool::new(false),
            turn: (Mutex::new(Waiting::default()), Condvar::new()),
            server_away: AtomicBool::new(false),
            failure: Mutex::new(None),
            log: Mutex::new(log),
        })
    }

    pub(super) fn now(&self) -> Moment {
        self.began.elapsed().as_nanos() as Moment
    }

    /// Writes an event, with its time, into the log.
    pub(super) fn note(&self, event: &str) {
        let mut line = String::new();
        let at = self.began.elapsed().as_secs_f64();
        // Writing to a string does not fail; and the run matters more than its log.
        let _ = writeln!(line, "{at:10.3}  {event}");
        drop(lock(&self.log).write_all(line.as_bytes()));
    }

    /// The server has been killed and its end waited for; the next one has not been started.
    pub(super) fn server_was_killed(&self) {
        let mut shared = lock(&self.shared);
        let now = self.now();
        shared.settle_flushes(now);
        shared.flushes.drop_pending();
        for register in &mut shared.registers {
            register.killed(now);
        }
        for counter in &mut shared.counters {
            counter.killed(now);
        }
        lock(&self.kills).push(now);
    }

    /// Flushes that are over, from the one on that has this number.
    pub(super) fn flushes_from(&self, first: usize) -> Vec<Flush> {
        let mut shared = lock(&self.shared);
        shared.settle_flushes(self.now());
        shared.flushes.from(first).to_vec()
    }

    /// When the server was killed, from the first time on that has this number.
    pub(super) fn kills_from(&self, first: usize) -> Vec<Moment> {
        lock(&self.kills)[first..].to_vec()
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.set_turn(Turn::Busy);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Tells clients what to do. At the end of a run they finish, whatever they are told.
    pub(super) fn set_turn(&self, turn: Turn) {
        let mut waiting = lock(&self.turn.0);
        waiting.turn = if self.is_stopping() { Turn::Busy } else { turn };
        if waiting.turn == Turn::Busy {
            waiting.spoke_at = self.now();
        }
        self.turn.1.notify_all();
    }

    pub(super) fn turn(&self) -> Turn {
        lock(&self.turn.0).turn
    }

    /// When clients were allowed to ask last.
    pub(super) fn spoke_at(&self) -> Moment {
        lock(&self.turn.0).spoke_at
    }

    /// A client waits until it may ask.
    pub(super) fn wait(&self) {
        let mut waiting = lock(&self.turn.0);
        waiting.clients += 1;
        while waiting.turn != Turn::Busy {
            waiting = self
                .turn
                .1
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        waiting.clients -= 1;
    }

    /// Whether all clients wait.
    pub(super) fn all_wait(&self) -> bool {
        lock(&self.turn.0).clients == self.seats.len()
    }

    /// Nobody is to blame for getting no answer before now.
    pub(super) fn excuse_all(&self) {
        let now = self.now();
        for seat in &self.seats {
            seat.excused.store(now, Ordering::Release);
        }
    }

    /// Waits, but not longer than the run.
    pub(super) fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.is_stopping() {
            let left = until.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }

    /// Something is wrong. The first one counts.
    pub(super) fn fail(&self, failure: Failure) {
        let mut first = lock(&self.failure);
        if first.is_none() {
            self.note(&format!("FAILURE {failure:?}"));
            *first = Some(failure);
        }
    }

    /// Waits for a thread; one that panicked is a failure.
    pub(super) fn join(&self, thread: std::thread::JoinHandle<()>) {
        let name = thread.thread().name().unwrap_or("a thread").to_string();
        if thread.join().is_err() {
            self.fail(Failure::Ended(format!("{name} of the soak has panicked")));
        }
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        lock(&self.failure).clone()
    }
}
