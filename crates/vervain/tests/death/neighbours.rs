//! Those who must not notice: clients that work on their own keys all the time, and check.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cache::herd::BlockingClient;
use cache::herd::client::{BlockingError, Pace};
use nic_soft::{SoftNic, SoftOptions};
use verbs::typed::Context;

use crate::harness::{LIMIT, eventually};
use crate::victim::{Dialer, config, dialer};

/// Lengths of the values of a client's keys: within a line, within a slot, in several pieces.
const LENS: [usize; 6] = [20, 20, 100, 700, 3_000, 20_000];

/// What becomes of the server meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServerLives {
    /// It stays: nothing may be lost, nothing may fail.
    On,
    /// It dies and comes back, empty: what was under way may fail, what was stored may be gone.
    Again,
}

/// What a client has done, and what it has to complain of.
#[derive(Debug, Default)]
struct Diary {
    operations: AtomicU64,
    unknown: AtomicU64,
    connects: AtomicU64,
    complaints: Mutex<Vec<String>>,
}

/// Clients at work. Dropping them stops them.
#[derive(Debug)]
pub(crate) struct Neighbours {
    over: Arc<AtomicBool>,
    diaries: Vec<Arc<Diary>>,
    threads: Vec<JoinHandle<()>>,
}

impl Neighbours {
    /// Starts so many, each with a NIC of its own.
    pub(crate) fn start(
        count: usize,
        run_dir: &Path,
        door: SocketAddr,
        lives: ServerLives,
    ) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let diaries: Vec<Arc<Diary>> = (0..count).map(|_| Arc::default()).collect();
        let start = |(number, diary): (usize, &Arc<Diary>)| {
            let (over, diary) = (Arc::clone(&over), Arc::clone(diary));
            let run_dir = run_dir.to_path_buf();
            std::thread::spawn(move || {
                let mut client = Neighbour::connect(number, &run_dir, door, lives, diary);
                client.work_until(&over);
            })
        };
        let threads = diaries.iter().enumerate().map(start).collect();
        Neighbours {
            over,
            diaries,
            threads,
        }
    }

    /// Waits until each has done so many operations more.
    #[track_caller]
    pub(crate) fn go_on(&self, what: &str, operations: u64) {
        let done = |diary: &Arc<Diary>| diary.operations.load(Ordering::Relaxed);
        let goals: Vec<u64> = self
            .diaries
            .iter()
            .map(|one| done(one) + operations)
            .collect();
        eventually(what, || {
            self.expect_content();
            let mut all = self.diaries.iter().zip(&goals);
            all.all(|(diary, goal)| done(diary) >= *goal)
        });
    }

    /// Operations of the one that has done the fewest.
    pub(crate) fn least(&self) -> u64 {
        let done = |diary: &Arc<Diary>| diary.operations.load(Ordering::Relaxed);
        self.diaries.iter().map(done).min().unwrap_or(0)
    }

    /// Fails when somebody has seen something wrong.
    #[track_caller]
    pub(crate) fn expect_content(&self) {
        for diary in &self.diaries {
            let complaints = diary.complaints.lock().expect("no panic under the lock");
            assert!(
                complaints.is_empty(),
                "a client that lives on: {complaints:?}"
            );
        }
    }

    /// Operations of all, those of them with an unknown end, and connections made.
    pub(crate) fn sums(&self) -> [u64; 3] {
        let fields = [
            |diary: &Diary| diary.operations.load(Ordering::Relaxed),
            |diary: &Diary| diary.unknown.load(Ordering::Relaxed),
            |diary: &Diary| diary.connects.load(Ordering::Relaxed),
        ];
        fields.map(|field| self.diaries.iter().map(|diary| field(diary)).sum())
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Its panic has been printed; without its operations the test fails anyway.
            drop(thread.join());
        }
    }
}

/// Looks a few times, then leaves the CPU to others.
struct Patient {
    started: Instant,
    waits: u32,
}

impl Pace for Patient {
    fn now_ns(&mut self) -> u64 {
        self.waits = 0;
        self.started.elapsed().as_nanos() as u64
    }

    fn wait(&mut self) {
        self.waits += 1;
        std::thread::sleep(Duration::from_micros(30));
    }
}

/// What a client knows of one of its keys.
#[derive(Default)]
struct Known {
    acked: u64,
    sent: u64,
    /// Stores that may still happen, or have.
    unknown: HashSet<u64>,
}

struct Neighbour {
    number: usize,
    client: BlockingClient<Dialer, Patient>,
    lives: ServerLives,
    diary: Arc<Diary>,
    known: [Known; LENS.len()],
    counter: Option<u64>,
    _nic: Arc<SoftNic>,
}

impl Neighbour {
    fn connect(
        number: usize,
        run_dir: &Path,
        door: SocketAddr,
        lives: ServerLives,
        diary: Arc<Diary>,
    ) -> Self {
        let nic = SoftNic::open(&SoftOptions::new(run_dir).contact_timeout(LIMIT)).expect("a NIC");
        let pd = Context::new(nic.clone()).alloc_pd().expect("a domain");
        let pace = Patient {
            started: Instant::now(),
            waits: 0,
        };
        let mut config = config();
        if lives == ServerLives::On {
            // Only a stall counts as a loss, and not a machine with much else to do.
            config.lost_ns = LIMIT.as_nanos() as u64 / 2;
        }
        let client = BlockingClient::connect(pd, config, dialer(door), pace);
        Neighbour {
            number,
            client: client.expect("a server that answers"),
            lives,
            diary,
            known: std::array::from_fn(|_| Known::default()),
            counter: None,
            _nic: nic,
        }
    }

    fn complain(&self, what: String) {
        let mut complaints = self
            .diary
            .complaints
            .lock()
            .expect("no panic under the lock");
        complaints.push(what);
    }

    /// Notes an operation. What failed though the server lives on is a complaint.
    fn did(&self, what: &str, error: Option<&BlockingError>) {
        let diary = &self.diary;
        diary.operations.fetch_add(1, Ordering::Relaxed);
        let connects = self.client.client().stats().connects;
        diary.connects.store(connects, Ordering::Relaxed);
        match error {
            None => {}
            Some(BlockingError::Unknown) if self.lives == ServerLives::Again => {
                diary.unknown.fetch_add(1, Ordering::Relaxed);
            }
            Some(error) => self.complain(format!("{what}: {error}")),
        }
    }

    /// Works until it is told that it is over, which without a server it looks for often enough.
    fn work_until(&mut self, over: &AtomicBool) {
        for index in (0..LENS.len()).cycle() {
            for operation in [Self::set, Self::get, |this: &mut Self, _| this.count()] {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                operation(self, index);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn key(&self, index: usize) -> String {
        format!("neighbour-{}-{index}", self.number)
    }

    fn value(&self, index: usize, count: u64) -> Vec<u8> {
        let mut value = format!("{}|{count}|", self.key(index)).into_bytes();
        let filling = (count as u8) | 0x80;
        value.resize(value.len().max(LENS[index]), filling);
        value
    }

    fn set(&mut self, index: usize) {
        let known = &mut self.known[index];
        known.sent += 1;
        let count = known.sent;
        let (key, value) = (self.key(index), self.value(index, count));
        let stored = self.client.set(key.as_bytes(), &value);
        self.did(&format!("setting {key}"), stored.as_ref().err());
        let known = &mut self.known[index];
        match stored {
            Ok(_) => known.acked = count,
            Err(_) => drop(known.unknown.insert(count)),
        }
    }

    fn get(&mut self, index: usize) {
        let key = self.key(index);
        let got = self.client.get(key.as_bytes());
        self.did(&format!("getting {key}"), got.as_ref().err());
        let Ok(got) = got else { return };
        let Some(item) = got else {
            if self.lives == ServerLives::On {
                self.complain(format!("{key} is gone"));
            }
            return;
        };
        let text = String::from_utf8_lossy(&item.value[..item.value.len().min(60)]).into_owned();
        let count = text.split('|').nth(1).and_then(|count| count.parse().ok());
        let known = &self.known[index];
        let right = count.is_some_and(|count| {
            item.value == self.value(index, count)
                && ((known.acked..=known.sent).contains(&count) || known.unknown.contains(&count))
        });
        if !right {
            self.complain(format!(
                "{key} holds {text:?}.. of {} bytes after {} was stored and {} sent",
                item.value.len(),
                known.acked,
                known.sent
            ));
        }
    }

    /// Adds one to a number, which nobody else does.
    fn count(&mut self) {
        let key = format!("neighbour-{}-counter", self.number);
        let Some(last) = self.counter else {
            let stored = self.client.set(key.as_bytes(), b"0");
            self.did("setting a counter", stored.as_ref().err());
            self.counter = stored.is_ok().then_some(0);
            return;
        };
        let number = self.client.incr(key.as_bytes(), 1);
        let is_missing = matches!(
            &number,
            Err(BlockingError::Refused(cache::herd::Status::NotFound))
        );
        let forgotten = is_missing && self.lives == ServerLives::Again;
        self.did("counting", number.as_ref().err().filter(|_| !forgotten));
        self.counter = match number {
            Ok(number) if number == last + 1 => Some(number),
            Ok(number) => {
                self.complain(format!("{key} is {number} after {last}"));
                None
            }
            // Counted once or not at all; or there is nothing any more. Begin anew.
            Err(_) => None,
        };
    }
}
