//! The loss of power at every event of a random workload, on a simulated device that keeps of the
//! writes since the last flush what it likes.
//!
//! `VERVAIN_CRASH_SEEDS=FROM..TO` runs other seeds than the usual few.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use block::Device;
use block::sim::{Image, SimConfig, SimDevice};
use fastrand::Rng;
use store::{Options, Session, Stats, Store, StoreError};

/// A change of a key, in events of the device.
#[derive(Clone, Debug)]
struct Change {
    began: u64,
    /// `None` if it was never acknowledged.
    ended: Option<u64>,
    /// What the key has afterwards.
    value: Option<Vec<u8>>,
}

type History = HashMap<Vec<u8>, Vec<Change>>;

const LEN: u64 = (64 << 10) + 10 * (64 << 10);

fn options(is_cache: bool) -> Options {
    let mut options = Options::default();
    options.cache = is_cache;
    options.segment_bytes = Some(64 << 10);
    options.seed = Some(5);
    options.recovery_threads = Some(1);
    options.live_share = 0.6;
    options
}

fn device(seed: u64, image: Option<Image>) -> SimDevice {
    let config = SimConfig::new(seed, LEN);
    match image {
        None => SimDevice::new(config),
        Some(image) => SimDevice::with_image(config, image),
    }
}

/// Drives some futures until all have ended.
async fn all(mut futures: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
    std::future::poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if futures.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Changes keys, each key by one task, and notes what becomes of them.
async fn task(
    session: &Session,
    device: &SimDevice,
    number: u32,
    seed: u64,
    steps: u32,
    history: &RefCell<History>,
) {
    let mut random = Rng::with_seed(seed << 8 | u64::from(number));
    for step in 0..steps {
        // Some keys often, most seldom: a segment of old records has live ones.
        let which = (random.f64().powi(2) * 24.0) as u32;
        let key = format!("{number} {which}").into_bytes();
        let len = match random.u32(..10) {
            0 => 0,
            1..4 => random.usize(..200),
            _ => random.usize(..5000),
        };
        let mut value = format!("{step}:").into_bytes();
        value.resize(value.len() + len, step as u8);
        let deletes = random.u32(..4) == 0;
        let began = device.events();
        let outcome = if deletes {
            session.delete(&key).await.map(|_| None)
        } else {
            session.put(&key, &value).await.map(|_| Some(value.clone()))
        };
        let change = match outcome {
            Ok(value) => Change {
                began,
                ended: Some(device.events()),
                value,
            },
            // Its record may be in the log nevertheless.
            Err(StoreError::Full) => Change {
                began,
                ended: None,
                value: (!deletes).then_some(value),
            },
            Err(error) => panic!("seed {seed}, task {number}, step {step}: {error}"),
        };
        history.borrow_mut().entry(key).or_default().push(change);
    }
}

fn work(
    store: Store,
    maintenance: store::Maintenance,
    device: &SimDevice,
    seed: u64,
    steps: u32,
) -> (History, Stats) {
    let history = RefCell::new(History::new());
    let session = store.session().expect("a session");
    session.block_on(async {
        let tasks = (0..5).map(|number| {
            let task = task(&session, device, number, seed, steps, &history);
            Box::pin(task) as Pin<Box<dyn Future<Output = ()>>>
        });
        let mut tasks = pin!(all(tasks.collect()));
        let mut maintenance = pin!(maintenance.run(session.disk().clone()));
        std::future::poll_fn(|cx| {
            assert!(
                maintenance.as_mut().poll(cx).is_pending(),
                "the store is open"
            );
            tasks.as_mut().poll(cx)
        })
        .await;
    });
    (history.into_inner(), store.stats())
}

/// Compares what a store has with what it may have when the events after `event` did not happen.
fn check(store: &Store, history: &History, event: u64, is_cache: bool, what: &str) {
    let mut present = 0;
    for (key, changes) in history {
        let name = String::from_utf8_lossy(key);
        let found = store
            .get(key)
            .unwrap_or_else(|error| panic!("{what}, key {name}: {error}"));
        present += u64::from(found.is_some());
        let sure = changes
            .iter()
            .rposition(|c| c.ended.is_some_and(|ended| ended < event));
        let mut allowed = vec![sure.and_then(|i| changes[i].value.as_ref())];
        let later = &changes[sure.map_or(0, |i| i + 1)..];
        let begun = later.iter().take_while(|change| change.began < event);
        allowed.extend(begun.map(|change| change.value.as_ref()));
        if is_cache {
            allowed.push(None);
        }
        assert!(
            allowed.contains(&found.as_ref()),
            "{what}, key {name}: {} allowed, found {:?}; changes {:?}",
            allowed.len(),
            found.map(|value| (
                value.len(),
                String::from_utf8_lossy(&value[..value.len().min(8)]).into_owned()
            )),
            changes
                .iter()
                .map(|c| (c.began, c.ended, c.value.as_ref().map(Vec::len)))
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(store.len(), present, "{what}: nothing but what was put");
}

fn reopen(image: Image, is_cache: bool) -> (Store, store::Maintenance, SimDevice) {
    let device = device(1, Some(image));
    let shared: Arc<dyn Device> = Arc::new(device.clone());
    let (store, maintenance) = Store::unmaintained(shared, &options(is_cache)).expect("recovered");
    (store, maintenance, device)
}

fn cut_everywhere(seed: u64, is_cache: bool, steps: u32) -> usize {
    let device = device(seed, None);
    let shared: Arc<dyn Device> = Arc::new(device.clone());
    let (store, maintenance) = Store::unmaintained(shared, &options(is_cache)).expect("a store");
    device.record();
    let (history, stats) = work(store, maintenance, &device, seed, steps);
    let moves = if is_cache { stats.evicted } else { stats.moved };
    assert!(moves > 10, "seed {seed}: {stats:?}");
    let snapshots = device.take_snapshots();
    let mut random = Rng::with_seed(seed);
    for snapshot in &snapshots {
        let cut = random.u64(..);
        let what = format!(
            "seed {seed}, cache {is_cache}, event {}, cut {cut}",
            snapshot.event()
        );
        let (store, maintenance, device) = reopen(snapshot.crash(cut), is_cache);
        check(&store, &history, snapshot.event(), is_cache, &what);
        if random.u32(..16) == 0 {
            // Some more work, and another cut.
            let known: Vec<Vec<u8>> = history.keys().cloned().collect();
            let before: HashMap<_, _> = known
                .iter()
                .map(|key| (key.clone(), store.get(key).expect("got")))
                .collect();
            let (mut second, _) = work(store, maintenance, &device, seed + 1000, 12);
            for (key, value) in before {
                let changes = second.entry(key).or_default();
                changes.insert(
                    0,
                    Change {
                        began: 0,
                        ended: Some(0),
                        value,
                    },
                );
            }
            let (event, image) = (device.events() + 1, device.snapshot().crash(cut));
            let (store, _, _) = reopen(image, is_cache);
            check(
                &store,
                &second,
                event,
                is_cache,
                &format!("{what}, cut again"),
            );
        }
    }
    snapshots.len()
}

fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(seeds) = std::env::var("VERVAIN_CRASH_SEEDS") else {
        return usual;
    };
    let parse = |text: &str| text.parse().expect("VERVAIN_CRASH_SEEDS is FROM..TO");
    let (from, to) = seeds
        .split_once("..")
        .expect("VERVAIN_CRASH_SEEDS is FROM..TO");
    parse(from)..parse(to)
}

#[test]
fn a_store_survives_a_cut_at_every_event() {
    for seed in seeds(0..3) {
        let cuts = cut_everywhere(seed, false, 120);
        assert!(cuts > 300, "{cuts}");
    }
}

#[test]
fn a_cache_survives_a_cut_at_every_event() {
    for seed in seeds(0..3) {
        let cuts = cut_everywhere(seed, true, 90);
        assert!(cuts > 300, "{cuts}");
    }
}

/// What the index has after concurrent changes of the same keys is what the log says too.
#[test]
fn concurrent_changes_end_alike_in_index_and_log() {
    for seed in 0..40 {
        let device = device(seed, None);
        let shared: Arc<dyn Device> = Arc::new(device.clone());
        let (store, maintenance) = Store::unmaintained(shared, &options(false)).expect("a store");
        let session = store.session().expect("a session");
        session.block_on(async {
            let tasks = (0..12_u64).map(|number| {
                let session = session.clone();
                let task = async move {
                    let mut random = Rng::with_seed(seed << 8 | number);
                    for step in 0..10 {
                        let key = [random.u8(..2)];
                        if random.u32(..4) == 0 {
                            session.delete(&key).await.expect("deleted");
                        } else {
                            let value = vec![number as u8 * 16 + step; random.usize(1..3000)];
                            session.put(&key, &value).await.expect("put");
                        }
                    }
                };
                Box::pin(task) as Pin<Box<dyn Future<Output = ()>>>
            });
            let mut tasks = pin!(all(tasks.collect()));
            let mut maintenance = pin!(maintenance.run(session.disk().clone()));
            std::future::poll_fn(|cx| {
                assert!(
                    maintenance.as_mut().poll(cx).is_pending(),
                    "the store is open"
                );
                tasks.as_mut().poll(cx)
            })
            .await;
        });
        let has = |store: &Store| [0, 1].map(|key| store.get(&[key]).expect("got"));
        let before = has(&store);
        let (after, _, _) = reopen(device.snapshot().crash(seed), false);
        assert!(has(&after) == before, "seed {seed}");
    }
}
