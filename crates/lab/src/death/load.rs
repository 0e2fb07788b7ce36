//! The undisturbed client: requests are due at a steady rate, whatever happens to others.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::cache::herd::client::{Address, Door};
use ::cache::herd::{Client, ClientConfig, Command, Outcome, Status, StoreMode, SubmitError};
use verbs::typed::Context;

use super::DeathError;
use bench::cache::{Arrival, Rate, Schedule, spin};
use bench::machine::{pin, waited_for_cpu_ns};
use bench::workload::{is_value_of, write_key, write_value};

/// Bytes of a key, and of a value: HERD's figures have these.
const KEY_LEN: usize = 16;
const VALUE_LEN: usize = 32;
/// One request in so many is a PUT.
const PUT_EVERY: usize = 20;
/// A pause of the loop from which on it counts as one: somebody else had the CPU.
const STALL_NS: u64 = 50_000;
/// How long a request is waited for. A server that a busy machine does not let answer is late and
/// not lost, and how late it is the samples say.
const DRAIN: Duration = Duration::from_secs(20);

/// What a load is told.
#[derive(Clone, Debug)]
pub(super) struct LoadSettings {
    pub(super) door: Address,
    pub(super) rate: f64,
    pub(super) items: u64,
    pub(super) window: u32,
    pub(super) length: Duration,
    pub(super) seed: u64,
    pub(super) cpu: Option<usize>,
}

/// A request: when it was due, and how long it took from then on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) due_ns: u64,
    pub(super) took_ns: u64,
    /// The client itself stood still meanwhile, or had not caught up yet.
    pub(super) stalled: bool,
}

/// What a load has seen. Times count from the epoch that it was given.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) samples: Vec<Sample>,
    /// Pauses of the loop itself: when each ended, and how long it was.
    pub(super) stalls: Vec<(u64, u64)>,
    /// Answers that were wrong, and requests that failed.
    pub(super) wrong: u64,
    pub(super) failed: u64,
    /// Connections that were lost.
    pub(super) losses: u64,
    /// How long the thread was ready while others had its CPU.
    pub(super) waited_ns: Option<u64>,
}

/// Connects, stores the items, then says so in `ready` and asks until the time is over.
pub(super) fn run(
    context: &Context,
    settings: &LoadSettings,
    epoch: Instant,
    ready: &AtomicBool,
    begin: &AtomicBool,
) -> Result<Seen, DeathError> {
    // A CPU that the kernel refuses makes the run no worse than without.
    let _pinned = settings.cpu.is_none_or(pin);
    let now = || epoch.elapsed().as_nanos() as u64;
    let config = ClientConfig {
        window: settings.window,
        deadline_ns: DRAIN.as_nanos() as u64,
        lost_ns: DRAIN.as_nanos() as u64,
        seed: settings.seed,
        ..ClientConfig::default()
    };
    let door = settings.door.clone();
    let dial: Box<dyn FnMut() -> io::Result<Door>> = Box::new(move || door.dial(DRAIN));
    let mut client = Client::connect(context.alloc_pd()?, config, dial, now())?;
    let mut asker = Asker::new(settings.items);
    asker.store_all(&mut client, &now);
    ready.store(true, Ordering::Release);
    while !begin.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_micros(100));
    }
    let rate = Rate {
        per_second: settings.rate,
        arrival: Arrival::Poisson,
    };
    let mut schedule = Schedule::new(rate, 1, settings.seed);
    let expected = settings.rate * settings.length.as_secs_f64();
    let mut seen = Seen {
        samples: Vec::with_capacity((expected * 1.2) as usize + 1000),
        ..Seen::default()
    };
    let waited_ns = waited_for_cpu_ns();
    let mut random = fastrand::Rng::with_seed(settings.seed);
    let began_ns = now();
    let end_ns = began_ns + settings.length.as_nanos() as u64;
    let drained_ns = end_ns + DRAIN.as_nanos() as u64;
    schedule.begin(began_ns);
    let (mut now_ns, mut looks, mut under_way) = (began_ns, 0, 0usize);
    let mut ended: Vec<u64> = Vec::with_capacity(1024);
    let mut held = Held::default();
    loop {
        client.flush(now_ns);
        while schedule.due_ns() <= now_ns.min(end_ns) {
            let tag = seen.samples.len() as u64;
            if !asker.ask(&mut client, tag, &mut random)? {
                break;
            }
            seen.samples.push(Sample {
                due_ns: schedule.due_ns(),
                took_ns: u64::MAX,
                stalled: false,
            });
            schedule.advance();
            under_way += 1;
        }
        if now_ns >= drained_ns || (now_ns >= end_ns && under_way == 0) {
            break;
        }
        client.poll(now_ns, &mut |tag, outcome| {
            ended.push(tag);
            match asker.judge(tag, &outcome) {
                Verdict::Right => {}
                Verdict::Wrong => seen.wrong += 1,
                Verdict::Failed => seen.failed += 1,
            }
        });
        let before_ns = std::mem::replace(&mut now_ns, now());
        if now_ns - before_ns >= STALL_NS {
            seen.stalls.push((now_ns, now_ns - before_ns));
            held.stall(before_ns, now_ns);
        }
        under_way -= ended.len();
        held.look(now_ns, under_way);
        looks = if ended.is_empty() { looks + 1 } else { 0 };
        for tag in ended.drain(..) {
            let sample = &mut seen.samples[tag as usize];
            sample.took_ns = now_ns.saturating_sub(sample.due_ns).max(1);
        }
        if looks > 0 {
            spin(looks);
        }
    }
    // Those without an answer count with the time that they have waited for.
    for sample in &mut seen.samples {
        if sample.took_ns == u64::MAX {
            sample.took_ns = now_ns.saturating_sub(sample.due_ns).max(1);
            seen.failed += 1;
        }
    }
    held.mark(&mut seen.samples, now_ns);
    seen.losses = client.stats().losses;
    seen.waited_ns = waited_for_cpu_ns()
        .zip(waited_ns)
        .map(|(after, before)| after - before);
    Ok(seen)
}

/// When the client itself could not ask: its loop stood still, and then it caught up.
#[derive(Debug, Default)]
struct Held {
    times: Vec<(u64, u64)>,
    /// The one that is not over: when it began, and when it is over at the latest. What takes longer
    /// to catch up with than to fall behind is not the client's doing.
    open: Option<(u64, u64)>,
}

impl Held {
    fn stall(&mut self, from_ns: u64, to_ns: u64) {
        let began_ns = self.open.map_or(from_ns, |(began_ns, _)| began_ns);
        self.open = Some((began_ns, to_ns + (to_ns - from_ns)));
    }

    fn look(&mut self, now_ns: u64, under_way: usize) {
        if let Some((began_ns, latest_ns)) = self.open
            && (under_way == 0 || now_ns >= latest_ns)
        {
            self.times.push((began_ns, now_ns));
            self.open = None;
        }
    }

    /// Marks the requests that were under way or due at such a time.
    fn mark(mut self, samples: &mut [Sample], now_ns: u64) {
        self.look(now_ns, 0);
        for sample in samples {
            let first = self
                .times
                .partition_point(|(_, to_ns)| *to_ns <= sample.due_ns);
            sample.stalled = self
                .times
                .get(first)
                .is_some_and(|(from_ns, _)| *from_ns < sample.due_ns + sample.took_ns);
        }
    }
}

enum Verdict {
    Right,
    Wrong,
    Failed,
}

/// Composes requests and checks answers.
struct Asker {
    items: u64,
    version: u64,
    key: [u8; KEY_LEN],
    value: [u8; VALUE_LEN],
    /// What each request under way asks for, by its tag.
    asked: Vec<(u64, bool)>,
}

impl Asker {
    fn new(items: u64) -> Self {
        Asker {
            items,
            version: 0,
            key: [0; KEY_LEN],
            value: [0; VALUE_LEN],
            asked: vec![(0, false); 1 << 16],
        }
    }

    fn store_all(&mut self, client: &mut Client<Dialer>, now: &dyn Fn() -> u64) {
        let (mut item, mut stored) = (0, 0);
        while stored < self.items {
            let now_ns = now();
            client.flush(now_ns);
            while item < self.items && self.submit(client, item, item, true) == Ok(true) {
                item += 1;
            }
            // One that fails is missed later, and counted then.
            client.poll(now_ns, &mut |_, _| stored += 1);
        }
    }

    /// Submits the next request; false when there is no room.
    fn ask(
        &mut self,
        client: &mut Client<Dialer>,
        tag: u64,
        random: &mut fastrand::Rng,
    ) -> Result<bool, DeathError> {
        let item = random.u64(..self.items);
        let is_put = random.usize(..PUT_EVERY) == 0;
        Ok(self.submit(client, tag, item, is_put)?)
    }

    fn submit(
        &mut self,
        client: &mut Client<Dialer>,
        tag: u64,
        item: u64,
        is_put: bool,
    ) -> Result<bool, SubmitError> {
        write_key(item, &mut self.key);
        let command = if is_put {
            self.version += 1;
            write_value(item, self.version, &mut self.value);
            Command::Store {
                mode: StoreMode::Set,
                key: &self.key,
                value: &self.value,
                flags: 0,
                expiry_s: 0,
            }
        } else {
            Command::Get { key: &self.key }
        };
        match client.submit(&command, false, tag) {
            Ok(()) => {
                let place = tag as usize % self.asked.len();
                self.asked[place] = (item, is_put);
                Ok(true)
            }
            Err(SubmitError::Full) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn judge(&self, tag: u64, outcome: &Outcome<'_>) -> Verdict {
        let (item, is_put) = self.asked[tag as usize % self.asked.len()];
        match outcome {
            Outcome::Value { value, .. } if !is_put => {
                if value.len() == VALUE_LEN && is_value_of(item, value) {
                    Verdict::Right
                } else {
                    Verdict::Wrong
                }
            }
            // All items were stored, and there is room for them.
            Outcome::Refused(Status::NotFound) => Verdict::Wrong,
            Outcome::Done { .. } if is_put => Verdict::Right,
            _ => Verdict::Failed,
        }
    }
}

type Dialer = Box<dyn FnMut() -> io::Result<Door>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_client_that_stood_still_are_known() {
        let mut held = Held::default();
        // It stands still from 1000 to 2000, and has caught up at 2200.
        held.stall(1000, 2000);
        held.look(2100, 3);
        held.look(2200, 0);
        // It does not catch up, for longer than it stood still: others' doing from 6000 on.
        held.stall(4000, 5000);
        held.look(5500, 9);
        held.look(6000, 9);
        held.look(7000, 0);
        let sample = |due_ns, took_ns| Sample {
            due_ns,
            took_ns,
            stalled: false,
        };
        let mut samples = [
            sample(900, 99),
            sample(950, 1100),
            sample(1500, 600),
            sample(2150, 10),
            sample(2300, 1000),
            sample(5900, 1000),
            sample(6100, 900),
        ];
        held.mark(&mut samples, 8000);
        let stalled = samples.map(|sample| sample.stalled);
        assert_eq!(stalled, [false, true, true, true, false, true, false]);
    }
}
