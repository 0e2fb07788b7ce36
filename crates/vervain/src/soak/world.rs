//! What all threads of a run share.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bench::cache::as_seconds;
use bench::units::name_of;
use clap::ValueEnum;
use serde::Serialize;

use super::clock::Wall;
use super::faults::Fault;
use super::mix::SHARED;
use super::model::{Item, Moment, OpId, Unexplained, Upset};
use super::tally::Tally;

/// How a client reaches the server: `--over`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// RDMA, over the software NIC.
    Herd,
    /// The Memcache protocol over TCP.
    Tcp,
    /// The Memcache protocol over a Unix socket.
    Unix,
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
    /// Too many answers were not judged for the others to say anything.
    Unjudged(String),
    /// A process that ended, or did not end, as it should not.
    Ended(String),
}

impl Failure {
    /// What it is called, and how those of its kind are counted.
    pub(super) fn names(&self) -> [&'static str; 2] {
        match self {
            Failure::Wrong(_) => ["wrong answer", "wrong_answers"],
            Failure::Hang(_) => ["hang", "hangs"],
            Failure::Leak(_) => ["leak", "leaks"],
            Failure::Unjudged(_) => ["too many unjudged", "too_many_unjudged"],
            Failure::Ended(_) => ["death", "deaths"],
        }
    }
}

/// A wrong answer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Wrong {
    pub(super) client: String,
    pub(super) key: String,
    pub(super) asked: String,
    pub(super) came: String,
    pub(super) allowed: String,
    #[serde(rename = "at_seconds", serialize_with = "as_seconds")]
    pub(super) at: Duration,
    pub(super) history: Vec<String>,
}

/// A key that all write.
pub(super) struct SharedSlot {
    pub(super) key: Vec<u8>,
    pub(super) item: Item,
    number: usize,
    /// Keys before it.
    renewed: usize,
}

/// What all clients have to do with.
pub(super) struct Shared {
    pub(super) slots: Vec<SharedSlot>,
    /// Since when each client waits for answers.
    asking: Vec<Moment>,
    upsets: Vec<(Moment, Upset)>,
    /// What is to be flushed by then.
    pub(super) pending: Option<(Moment, Flush)>,
    /// Flushes that are over: which, and the items that must be gone and have not been looked for.
    pub(super) gone: Vec<(Fault, u32)>,
}

/// A flush: the number of its upset, and of the items that were stored before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flush {
    pub(super) id: OpId,
    pub(super) items: u32,
}

impl SharedSlot {
    fn new(number: usize, renewed: usize) -> Self {
        SharedSlot {
            key: format!("shared-{number}-{renewed}").into_bytes(),
            item: Item::default(),
            number,
            renewed,
        }
    }
}

impl Shared {
    pub(super) fn new(clients: usize) -> Self {
        Shared {
            slots: (0..SHARED).map(|it| SharedSlot::new(it, 0)).collect(),
            asking: vec![Moment::MAX; clients],
            upsets: Vec::new(),
            pending: None,
            gone: Vec::new(),
        }
    }

    /// A number for the next upset.
    pub(super) fn upset_id(&self) -> OpId {
        self.upsets.len() as OpId
    }

    /// Something has happened to all items.
    pub(super) fn upset(&mut self, at: Moment, upset: Upset) {
        self.upsets.push((at, upset));
        for slot in &mut self.slots {
            slot.item.upset(upset, at, at);
        }
    }

    /// What happened until a moment, from the first one on that has this number.
    pub(super) fn upsets_from(
        &mut self,
        first: usize,
        now: Moment,
        until: Moment,
    ) -> Vec<(Moment, Upset)> {
        self.settle_flushes(now);
        let news = self.upsets[first..].iter().copied();
        news.take_while(|(at, _)| *at <= until).collect()
    }

    /// Has a flush be over whose time has come.
    pub(super) fn settle_flushes(&mut self, now: Moment) {
        if let Some((to, flush)) = self.pending.take_if(|(to, _)| *to < now) {
            self.upset(to, Upset::Flushed(flush.id));
            self.gone.push((Fault::FlushLater, flush.items));
        }
    }

    /// A flush that is to come is replaced at any moment, or dies with the server.
    pub(super) fn drop_pending(&mut self, now: Moment) {
        if let Some((_, flush)) = self.pending.take() {
            self.upset(now, Upset::MayHaveFlushed(flush.id));
        }
    }

    /// A client has been answered, and its answers have been told. Judges what nobody waits for any
    /// more, and counts it.
    pub(super) fn answered(
        &mut self,
        client: usize,
        tally: &mut Tally,
    ) -> Result<(), (Vec<u8>, Box<Unexplained>)> {
        self.asking[client] = Moment::MAX;
        let before = self.asking.iter().min().copied().unwrap_or(Moment::MAX);
        for slot in &mut self.slots {
            let judged = slot.item.judge(before, tally);
            judged.map_err(|wrong| (slot.key.clone(), wrong))?;
            if slot.item.is_worn() {
                slot.item.give_up(tally);
                *slot = SharedSlot::new(slot.number, slot.renewed + 1);
            }
        }
        Ok(())
    }
}

/// A client's place: the process in it comes and goes.
pub(super) struct ClientSlot {
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

impl ClientSlot {
    pub(super) fn new(number: usize, door: Door) -> Self {
        ClientSlot {
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
        format!("client {} ({})", self.number, name_of(&self.door))
    }

    /// Kills the process, and says whether there was one; it is waited for by whoever talks to it.
    pub(super) fn kill(&self) -> bool {
        let mut process = lock(&self.process);
        let Some(process) = process.as_mut() else {
            return false;
        };
        self.killed.store(true, Ordering::Release);
        // It may have ended by itself.
        drop(process.kill());
        true
    }
}

/// What clients are to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
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
    phase: Phase,
    /// Clients that wait for another phase.
    clients: usize,
    /// When they were allowed to ask last.
    spoke_at: Moment,
}

/// A run.
pub(super) struct World {
    pub(super) began: Instant,
    pub(super) dir: PathBuf,
    pub(super) slots: Vec<ClientSlot>,
    pub(super) shared: Mutex<Shared>,
    /// The server's wall clock.
    pub(super) wall: Wall,
    stop: AtomicBool,
    phase: (Mutex<Waiting>, Condvar),
    /// The server is stopped or dead.
    pub(super) server_away: AtomicBool,
    failure: Mutex<Option<Failure>>,
    faults: Mutex<BTreeMap<Fault, u64>>,
    log: Mutex<File>,
}

impl World {
    pub(super) fn new(dir: PathBuf, slots: Vec<ClientSlot>) -> std::io::Result<Self> {
        let log = File::create(dir.join("events.log"))?;
        let wall = Wall::new(&dir)?;
        let shared = Shared::new(slots.len());
        Ok(World {
            began: Instant::now(),
            dir,
            slots,
            shared: Mutex::new(shared),
            wall,
            stop: AtomicBool::new(false),
            phase: (Mutex::new(Waiting::default()), Condvar::new()),
            server_away: AtomicBool::new(false),
            failure: Mutex::new(None),
            faults: Mutex::default(),
            log: Mutex::new(log),
        })
    }

    pub(super) fn now(&self) -> Moment {
        self.began.elapsed().as_nanos() as Moment
    }

    /// A fault has happened.
    pub(super) fn count(&self, fault: Fault) {
        *lock(&self.faults).entry(fault).or_default() += 1;
    }

    /// How often each has.
    pub(super) fn faults(&self) -> BTreeMap<Fault, u64> {
        lock(&self.faults).clone()
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
        shared.drop_pending(now);
        // The next one has none of their items, whatever flushes do.
        shared.gone.clear();
        let id = shared.upset_id();
        shared.upset(now, Upset::Killed(id));
    }

    /// A client asks from now on.
    pub(super) fn asks(&self, client: usize) -> Moment {
        let mut shared = lock(&self.shared);
        let now = self.now();
        shared.asking[client] = now;
        now
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.set_phase(Phase::Busy);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Tells clients what to do. At the end of a run they finish, whatever they are told.
    pub(super) fn set_phase(&self, phase: Phase) {
        let mut waiting = lock(&self.phase.0);
        waiting.phase = if self.is_stopping() {
            Phase::Busy
        } else {
            phase
        };
        if waiting.phase == Phase::Busy {
            waiting.spoke_at = self.now();
        }
        self.phase.1.notify_all();
    }

    pub(super) fn phase(&self) -> Phase {
        lock(&self.phase.0).phase
    }

    /// When clients were allowed to ask last.
    pub(super) fn spoke_at(&self) -> Moment {
        lock(&self.phase.0).spoke_at
    }

    /// A client waits until it may ask.
    pub(super) fn wait(&self) {
        let mut waiting = lock(&self.phase.0);
        waiting.clients += 1;
        while waiting.phase != Phase::Busy {
            waiting = self
                .phase
                .1
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        waiting.clients -= 1;
    }

    /// Whether all clients wait.
    pub(super) fn all_wait(&self) -> bool {
        lock(&self.phase.0).clients == self.slots.len()
    }

    /// Nobody is to blame for getting no answer before now.
    pub(super) fn excuse_all(&self) {
        let now = self.now();
        for slot in &self.slots {
            slot.excused.store(now, Ordering::Release);
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
