//! A closed store holds nothing, whichever threads have used it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use block::sim::{SimConfig, SimDevice};
use block::{BlockError, Engine, FileDevice};
use store::format::segment::Kind;
use store::{Attributes, Options, Recovery, State, Store, StoreError};

use super::rig::{self, LEN, Rig};
use super::world;

const CHILD: &str = "VERVAIN_TEST_CLOSING";

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a list").count()
}

/// A process of its own, so that the descriptors are its own.
#[test]
fn a_closed_store_is_let_go_by_threads_that_live_on() {
    if std::env::var_os(CHILD).is_some() {
        for engine in Engine::ALL {
            let_go(engine);
        }
        return;
    }
    let name = "closing::a_closed_store_is_let_go_by_threads_that_live_on";
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args([name, "--exact", "--test-threads", "1"])
        .env(CHILD, "yes")
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

fn let_go(engine: Engine) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let open = || {
        let file = block::Options::create(4 << 20).with_engine(engine);
        let device = FileDevice::open(&path, &file).expect("free");
        Store::on(Arc::new(device), &Options::default())
    };
    // Not every system lets us use every engine.
    let Ok(first) = open() else {
        eprintln!("left out: {engine}");
        return;
    };
    drop(first);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (jobs, todo) = channel();
                scope.spawn(move || work(todo));
                jobs
            })
            .collect();
        for thread in &threads {
            // A thread that has blocked on a disk keeps a descriptor to be woken by, whatever it opens.
            on(thread, || drop(open().expect("a store")));
        }
        let before = descriptors();
        for round in 0..4_u8 {
            // Another thread opens it each time.
            let store = on(&threads[usize::from(round % 3)], || {
                open().expect("a store")
            });
            let store = Arc::new(store);
            for (thread, jobs) in (0_u8..).zip(&threads) {
                let store = store.clone();
                on(jobs, move || {
                    if round > 0 {
                        let found = store.get(&[thread]).expect("got");
                        assert_eq!(found, Some(vec![round - 1; 100]), "{engine}");
                    }
                    store.put(&[thread], &[round; 100]).expect("put");
                });
            }
            assert!(descriptors() > before, "{engine}");
            let store = Arc::into_inner(store).expect("nobody else's");
            // The main thread closes it.
            store.close().expect("closed");
            assert_eq!(descriptors(), before, "{engine}, round {round}");
        }
    });
}

type Job<'a> = Box<dyn FnOnce() + Send + 'a>;

fn work(jobs: Receiver<Job<'_>>) {
    jobs.into_iter().for_each(|job| job());
}

/// Has a thread do something. If it panics, so does the caller: nobody waits for ever.
fn on<'a, T: Send + 'a>(thread: &Sender<Job<'a>>, job: impl FnOnce() -> T + Send + 'a) -> T {
    let (done, result) = channel();
    let job = move || done.send(job()).expect("the caller waits");
    thread.send(Box::new(job)).expect("the thread lives on");
    result.recv().expect("the thread has not panicked")
}

/// A user's function may ask the store for something else meanwhile.
#[test]
fn an_operation_within_another_is_carried_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = super::basics::open(dir.path(), &Options::default()).expect("a store");
    store.put(b"one", b"two").expect("put");
    store.put(b"two", b"three").expect("put");
    let found = store
        .look(b"one", |one| store.get(one.expect("there")))
        .expect("looked");
    assert_eq!(found.expect("got").as_deref(), Some(&b"three"[..]));
    store.close().expect("closed");
}

/// Some keys change often, and others seldom: segments of old records have live ones.
fn key(put: u32) -> [u8; 4] {
    let spread = put.wrapping_mul(0x9e37_79b9) >> 16;
    (spread % 97).min(spread % 89).to_le_bytes()
}

fn value(put: u32) -> Vec<u8> {
    put.to_le_bytes().repeat(500)
}

/// Puts until there is no room, and returns how many were stored, and why there is none.
fn fill(store: &Store) -> (u32, StoreError) {
    let with = Attributes {
        flags: 0,
        expiry: 1000,
    };
    for put in 0..10_000 {
        if let Err(error) = store.put_with(&key(put), &value(put), with) {
            return (put, error);
        }
    }
    panic!("room without maintenance");
}

/// Whether the newest values are there, after so many puts.
fn has_all(store: &Store, stored: u32) {
    let newest: BTreeMap<_, _> = (0..stored).map(|put| (key(put), put)).collect();
    for (key, put) in newest {
        let found = store.get(&key).expect("got");
        assert_eq!(found, Some(value(put)), "put {put}");
    }
}

/// Whose maintenance panics can be read, and whoever waits for room hears why there is none.
#[test]
fn who_waits_for_room_hears_that_the_maintenance_has_panicked() {
    let device = world::blank(1, 12);
    let is_armed = Arc::new(AtomicBool::new(true));
    let armed = is_armed.clone();
    let mut options = world::options();
    // Its clock is asked while records are moved.
    options.now = Arc::new(move || {
        let is_maintenance = std::thread::current().name() == Some("store-maintain");
        assert!(
            !is_maintenance || !armed.load(Ordering::Relaxed),
            "on purpose"
        );
        1
    });
    let store = Store::on(world::shared(&device), &options).expect("a store");
    let (stored, error) = fill(&store);
    assert!(matches!(error, StoreError::Unmaintained), "{error}");
    assert!(stored > 20, "{stored} were stored");
    has_all(&store, stored);
    // It may have stopped in the middle of something: its index is not for the next one.
    store.close().expect("closed");
    is_armed.store(false, Ordering::Relaxed);
    let store = Store::on(world::shared(&device), &options).expect("a store");
    assert!(matches!(store.recovery(), Recovery::Log { .. }));
    has_all(&store, stored);
    store.put(b"more", b"of it").expect("room again");
    store.close().expect("closed");
}

/// Nobody runs it any more: a core that ends takes it along.
#[test]
fn who_waits_for_room_hears_that_the_maintenance_was_dropped() {
    let device = world::blank(1, 12);
    let options = world::options();
    let made = Store::unmaintained(world::shared(&device), &options);
    let (store, maintenance) = made.expect("a store");
    std::thread::scope(|scope| {
        let puts = scope.spawn(|| fill(&store));
        drop(maintenance);
        let (_, error) = puts.join().expect("it ends");
        assert!(matches!(error, StoreError::Unmaintained), "{error}");
    });
    store.close().expect("closed");
}

/// A core drives a session for as long as somebody holds it, and not longer: with it goes the file, though the core
/// lives on.
#[test]
fn a_core_lets_go_of_a_session_that_nobody_holds() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let open = || {
        let file = block::Options::create(8 << 20).with_engine(Engine::Threads);
        FileDevice::open(&path, &file)
    };
    let mut core = rt::Core::new(rt::Config::default()).expect("a core");
    let handle = core.handle();
    for is_held_longer in [false, true] {
        let device = open().expect("nobody has it");
        let store = Store::on(Arc::new(device), &Options::default()).expect("a store");
        let session = core.block_on(async {
            let session = store.session_on(&handle).expect("a session");
            session.put(b"key", b"value").await.expect("put");
            is_held_longer.then_some(session)
        });
        store.close().expect("closed");
        if let Some(session) = &session {
            assert!(matches!(open(), Err(BlockError::InUse { .. })));
            let refused = core.block_on(session.put(b"key", b"value"));
            assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
            let found = core.block_on(session.get(b"key")).expect("got");
            assert_eq!(found.as_deref(), Some(&b"value"[..]));
        }
        drop(session);
        core.block_on(async {
            for _ in 0..4 {
                handle.yield_now().await;
            }
        });
    }
    drop(open().expect("nobody has it"));
}

/// Notes its number when it is woken.
struct Woken(u32, Arc<Mutex<Vec<u32>>>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.1.lock().expect("not poisoned").push(self.0);
    }
}

/// In the order in which they have begun: a run in virtual time can be repeated.
#[test]
fn who_drives_a_session_is_woken_when_the_store_is_closed() {
    const DRIVERS: u32 = 16;
    let device = world::blank(1, 12);
    let (store, _) = Store::unmaintained(world::shared(&device), &world::options()).expect("new");
    let session = store.session().expect("a session");
    let mut drivers: Vec<_> = (0..DRIVERS).map(|_| Box::pin(session.drive())).collect();
    let woken = Arc::new(Mutex::default());
    for (number, driver) in (0..).zip(&mut drivers) {
        let waker = Waker::from(Arc::new(Woken(number, woken.clone())));
        let mut context = Context::from_waker(&waker);
        assert!(driver.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(*woken.lock().expect("not poisoned"), []);
    store.close().expect("closed");
    let order: Vec<_> = (0..DRIVERS).collect();
    assert_eq!(*woken.lock().expect("not poisoned"), order);
    for driver in &mut drivers {
        let poll = driver
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll.is_ready());
    }
}

/// Somebody else runs the maintenance, and is in the middle of a collection: the index that is written is one of the log
/// as it is when that has ended.
#[test]
fn closing_waits_for_a_maintenance_that_runs_elsewhere() {
    for steps in [0, 2, 4, 8, 16] {
        let mut rig = Rig::new();
        let mut puts = 0;
        while !rig.settle_maintenance(1) {
            let new = [puts as u8; 9000];
            rig.put(puts % 13, &new, 0).expect("put");
            puts += 1;
        }
        for _ in 0..steps {
            rig.maintain();
        }
        let Rig {
            device,
            options,
            store,
            mut maintenance,
            disk,
            session,
            mut driver,
            ..
        } = rig;
        drop(session);
        std::thread::scope(|scope| {
            let closing = scope.spawn(move || store.close());
            // The driver ends when the store is closed.
            let give_up = Instant::now() + Duration::from_secs(120);
            while rig::poll(driver.as_mut()).is_pending() {
                assert!(Instant::now() < give_up, "nobody closes it");
                std::thread::yield_now();
            }
            // Time to end for who does not wait.
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(1));
                assert!(!closing.is_finished(), "{steps} steps: it has not waited");
            }
            while rig::poll(maintenance.as_mut()).is_pending() {
                disk.poll();
            }
            closing.join().expect("no panic").expect("closed");
        });
        let image = SimDevice::with_image(SimConfig::new(2, LEN), device.image());
        let (store, _) = Store::unmaintained(world::shared(&image), &options).expect("opened");
        assert_eq!(store.recovery(), Recovery::Closed, "{steps} steps");
        for i in 0..13.min(puts) {
            let last = (0..puts)
                .rev()
                .find(|put| put % 13 == i)
                .expect("it was put");
            let found = store.get(&rig::key(i)).expect("got").expect("there");
            assert!(found == [last as u8; 9000], "{steps} steps, key {i}");
        }
    }
}

/// The maintenance is in the middle of preparing a segment when the store is closed: nothing is written there that the
/// index does not know of.
#[test]
fn a_segment_that_is_prepared_while_the_store_is_closed_takes_nothing() {
    let mut rig = Rig::new();
    let open = |rig: &Rig| {
        let states = rig.store.segments();
        states
            .iter()
            .filter(|state| **state == State::Open(Kind::User))
            .count()
    };
    rig.put(0, &[1; 9000], 0).expect("put");
    rig.settle_maintenance(usize::MAX);
    assert_eq!(open(&rig), 2);
    let mut puts = 1;
    while open(&rig) > 1 {
        rig.put(puts, &[1; 9000], 0).expect("put");
        puts += 1;
    }
    for _ in 0..100 {
        assert!(rig::poll(rig.maintenance.as_mut()).is_pending());
        if open(&rig) == 2 {
            break;
        }
        rig.disk.poll();
    }
    assert_eq!(open(&rig), 2, "its header is on its way");
    let other = rig.store.session().expect("a session");
    let name = rig::key(500);
    let mut put = pin!(other.put(&name, &[2; 9000]));
    assert!(rig::poll(put.as_mut()).is_pending());
    let Rig {
        device,
        options,
        store,
        mut maintenance,
        disk,
        session,
        mut driver,
        ..
    } = rig;
    drop(session);
    std::thread::scope(|scope| {
        let closing = scope.spawn(move || store.close());
        let give_up = Instant::now() + Duration::from_secs(120);
        while rig::poll(driver.as_mut()).is_pending() {
            assert!(Instant::now() < give_up, "nobody closes it");
            std::thread::yield_now();
        }
        // Time to go on for who does not wait.
        std::thread::sleep(Duration::from_millis(20));
        while rig::poll(maintenance.as_mut()).is_pending() {
            disk.poll();
        }
        closing.join().expect("no panic").expect("closed");
    });
    let put = other.block_on(put);
    assert!(matches!(put, Err(StoreError::Closed)), "{put:?}");
    let image = SimDevice::with_image(SimConfig::new(2, LEN), device.image());
    let (store, _) = Store::unmaintained(world::shared(&image), &options).expect("opened");
    assert_eq!(store.recovery(), Recovery::Closed);
    for i in 0..puts {
        let found = store.get(&rig::key(i)).expect("got");
        assert!(found.as_deref() == Some(&[1; 9000][..]), "key {i}");
    }
    assert_eq!(store.get(&name).expect("got"), None);
}
