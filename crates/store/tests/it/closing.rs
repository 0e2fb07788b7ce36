//! A closed store holds nothing, whichever threads have used it.

use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use block::{Engine, FileDevice};
use store::{Options, Store};

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
