//! Changes of the same few keys by several sessions at once, some of which fail, or are dropped.
//!
//! `VERVAIN_STORE_SEEDS=FROM..TO` runs other seeds than the usual few.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use block::sim::{Loss, Rates};
use fastrand::Rng;
use store::{Attributes, Session, Store, StoreError, Update};

use super::cases::{Cases, seeds};
use super::world::{Task, World, blank, open, options, value, with_image};

const KEYS: u32 = 2;

/// A change, in numbers of what has happened.
#[derive(Clone, Debug)]
struct Change {
    key: u32,
    /// What it makes of the key.
    value: Option<Vec<u8>>,
    began: u64,
    /// When its caller was told of its end, or left it.
    over: u64,
    /// Whether its caller was told that it was carried out.
    is_sure: bool,
    version: Option<store::format::Version>,
}

#[derive(Default)]
struct History {
    clock: u64,
    changes: Vec<Change>,
}

impl History {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Whether a key may show this after all of it.
    fn judge(&self, key: u32, shown: Option<&[u8]>) -> Result<(), String> {
        let of_key = || self.changes.iter().filter(|change| change.key == key);
        // Nobody may be told of something, and see what was over before he began.
        let is_hidden = |over: u64| of_key().any(|later| later.is_sure && later.began > over);
        let mut makers = of_key().filter(|change| change.value.as_deref() == shown);
        let never = shown.is_none() && !is_hidden(0);
        if never || makers.any(|change| !is_hidden(change.over)) {
            return Ok(());
        }
        Err(format!("key {key} shows {:?}", shown.map(<[u8]>::len)))
    }

    /// Versions are in the order in which changes followed each other.
    fn judge_versions(&self) -> Result<(), String> {
        for one in &self.changes {
            for other in &self.changes {
                if let (Some(first), Some(second)) = (one.version, other.version)
                    && one.key == other.key
                    && one.over < other.began
                    && first >= second
                {
                    return Err(format!("{one:?} has a greater version than {other:?}"));
                }
            }
        }
        Ok(())
    }

    fn judge_all(&self, store: &Store) -> Result<(), String> {
        for i in 0..KEYS {
            let shown = store.get(&key(i)).map_err(|error| error.to_string())?;
            self.judge(i, shown.as_deref())?;
        }
        Ok(())
    }
}

fn key(i: u32) -> Vec<u8> {
    format!("hot {i}").into_bytes()
}

/// Polls a future so often, and drops it.
async fn polled<T>(mut future: Pin<Box<dyn Future<Output = T> + '_>>, mut polls: u32) -> Option<T> {
    poll_fn(move |cx| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

async fn work(session: Session, number: u32, seed: u64, steps: u32, history: &RefCell<History>) {
    let mut random = Rng::with_seed(seed << 8 | u64::from(number));
    for step in 0..steps {
        let i = random.u32(..KEYS);
        let key = key(i);
        let longest = if random.u32(..6) == 0 { 20_000 } else { 900 };
        let len = random.usize(20..longest);
        let mut value = value(&key, number << 16 | step, len);
        value.truncate(len);
        let polls = match random.u32(..5) {
            0 => random.u32(1..12),
            _ => u32::MAX,
        };
        let which = random.u32(..10);
        let new = (which != 0).then(|| value.clone());
        let at = {
            let mut history = history.borrow_mut();
            let began = history.tick();
            history.changes.push(Change {
                key: i,
                value: new,
                began,
                over: u64::MAX,
                is_sure: false,
                version: None,
            });
            history.changes.len() - 1
        };
        type Outcome = Result<Option<store::format::Version>, StoreError>;
        let operation: Pin<Box<dyn Future<Output = Outcome> + '_>> = match which {
            0 => Box::pin(async { session.delete(&key).await.map(|_| None) }),
            1 => Box::pin(async {
                let with = Attributes::default();
                session.update(&key, |_| Update::Put(value, with)).await
            }),
            _ => Box::pin(async { session.put(&key, &value).await.map(|put| Some(put.version)) }),
        };
        let outcome = polled(operation, polls).await;
        let mut history = history.borrow_mut();
        let over = history.tick();
        let change = &mut history.changes[at];
        change.over = over;
        if let Some(Ok(version)) = outcome {
            change.is_sure = true;
            change.version = version;
        }
    }
}

fn live(seed: u64, write_error: f64) -> Result<(), String> {
    let told = |error: StoreError| error.to_string();
    let device = blank(seed, 14);
    let mut world = World::open(&device, &options(), 3).map_err(told)?;
    device.set_rates(Rates {
        write_error,
        ..Rates::default()
    });
    let history = RefCell::new(History::default());
    let sessions = world.sessions.clone();
    let tasks = (0..9).zip(sessions.iter().cycle());
    let tasks = tasks.map(|(number, session)| -> Task<'_> {
        Box::pin(work(session.clone(), number, seed, 40, &history))
    });
    let tasks = tasks.collect();
    world.run(tasks)?;
    drop(sessions);
    device.set_rates(Rates::default());
    let history = history.into_inner();
    let sure = history.changes.iter().filter(|change| change.is_sure);
    if sure.count() * 2 < history.changes.len() {
        return Err("few changes were acknowledged".to_owned());
    }
    history.judge_versions()?;
    // What was left at the end may go on after this.
    let crashed = device.snapshot();
    world.rest();
    history.judge_all(&world.store)?;
    let rested = device.snapshot();
    world.close().map_err(told)?;
    for (what, image) in [
        ("crashed", crashed.after(Loss::All)),
        ("crashed, nothing lost", crashed.after(Loss::None)),
        ("crashed later", rested.after(Loss::All)),
        ("closed", device.image()),
    ] {
        let store = open(&with_image(1, image), &options()).map_err(told)?;
        let judged = history.judge_all(&store);
        judged.map_err(|error| format!("{what}: {error}"))?;
    }
    Ok(())
}

#[test]
fn changes_of_hot_keys_follow_each_other() {
    let mut cases = Cases::of("hot");
    for seed in seeds(0..8) {
        for (name, write_error) in [("whole", 0.0), ("failing", 0.03)] {
            cases.run(name, || {
                live(seed, write_error).map_err(|error| format!("seed {seed}: {error}"))
            });
        }
    }
    cases.end();
}

/// While a write is on its way, everything that is put under its key meanwhile goes with the next one, which
/// does not wait for the end of the first.
#[test]
fn puts_of_a_hot_key_share_writes_and_wait_for_none() {
    let device = blank(1, 8);
    let mut world = World::open(&device, &options(), 1).expect("a store");
    let session = world.sessions[0].clone();
    let put = world.finish(session.put(b"key", b"old")).expect("it ends");
    put.expect("put");
    let mut cx = Context::from_waker(Waker::noop());
    let mut driver = pin!(session.drive());
    let mut first = pin!(session.put(b"key", b"first"));
    let before = session.disk().counts().writes;
    assert!(first.as_mut().poll(&mut cx).is_pending());
    assert!(driver.as_mut().poll(&mut cx).is_pending());
    assert_eq!(session.disk().counts().writes, before + 1);
    let values: Vec<Vec<u8>> = (0..20).map(|i| format!("value {i}").into_bytes()).collect();
    let mut puts: Vec<_> = values
        .iter()
        .map(|value| Box::pin(session.put(b"key", value)))
        .collect();
    for put in &mut puts {
        assert!(put.as_mut().poll(&mut cx).is_pending());
    }
    assert!(driver.as_mut().poll(&mut cx).is_pending());
    assert_eq!(session.disk().counts().writes, before + 2);
    let first = world.finish(first).expect("it ends").expect("put");
    let mut last = first.version;
    for put in puts {
        let put = world.finish(put).expect("it ends").expect("put");
        assert!(put.version > last && put.replaced);
        last = put.version;
    }
    assert_eq!(session.disk().counts().writes, before + 2);
    let shown = world.finish(session.get(b"key")).expect("it ends");
    assert_eq!(&shown.expect("got").expect("there")[..], b"value 19");
}
