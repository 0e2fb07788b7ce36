//! A closed store holds nothing, whichever threads have used it.

use std::process::Command;
use std::sync::{Arc, Barrier, Mutex};

use rt::block::{Engine, FileDevice};
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
        let file = rt::block::Options::create(4 << 20).with_engine(engine);
        let device = FileDevice::open(&path, &file).expect("free");
        Store::on(Arc::new(device), &Options::default())
    };
    // Not every system lets us use every engine.
    let Ok(first) = open() else {
        eprintln!("left out: {engine}");
        return;
    };
    drop(first);
    let before = descriptors();
    let store = Mutex::new(None);
    let (used, reopened) = (Barrier::new(4), Barrier::new(4));
    std::thread::scope(|scope| {
        for thread in 0..3_u8 {
            let (store, used, reopened, open) = (&store, &used, &reopened, &open);
            scope.spawn(move || {
                for round in 0..4_u8 {
                    // Another thread opens it each time.
                    if thread == round % 3 {
                        let opened = open().expect("a store");
                        *store.lock().expect("not poisoned") = Some(Arc::new(opened));
                    }
                    reopened.wait();
                    let shared: Arc<Store> =
                        store.lock().expect("not poisoned").clone().expect("open");
                    if round > 0 {
                        let found = shared.get(&[thread]).expect("got");
                        assert_eq!(found, Some(vec![round - 1; 100]), "{engine}");
                    }
                    shared.put(&[thread], &[round; 100]).expect("put");
                    drop(shared);
                    used.wait();
                    // The main thread closes it.
                    used.wait();
                }
            });
        }
        for _ in 0..4 {
            reopened.wait();
            used.wait();
            let store = store.lock().expect("not poisoned").take().expect("open");
            let store = Arc::into_inner(store).expect("nobody else's");
            store.close().expect("closed");
            assert_eq!(descriptors(), before, "{engine}");
            used.wait();
        }
    });
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
