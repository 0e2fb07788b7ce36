//! Several threads and several tasks of a core.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::{Engine, FileDevice};
use store::{Durability, Options, Store};

use super::basics::open;

#[test]
fn threads_share_a_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = Options::default();
    options.durability = Durability::Process;
    let store = open(dir.path(), &options).expect("a store");
    let total = AtomicU64::new(0);
    store.put(b"counter", b"0").expect("put");
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (store, total) = (&store, &total);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                let mut own = std::collections::HashMap::new();
                for round in 0..2000_u64 {
                    if random.u32(..4) == 0 {
                        store
                            .increment(b"counter", 1)
                            .expect("counted")
                            .expect("there");
                        total.fetch_add(1, Ordering::Relaxed);
                    }
                    let key = format!("{thread} {}", random.u32(..100)).into_bytes();
                    match own.get(&key) {
                        _ if random.bool() => {
                            let value = vec![round as u8; random.usize(..3000)];
                            store.put(&key, &value).expect("put");
                            own.insert(key, value);
                        }
                        expected => assert_eq!(store.get(&key).expect("got").as_ref(), expected),
                    }
                }
                for (key, value) in own {
                    assert_eq!(store.get(&key).expect("got"), Some(value));
                }
            });
        }
    });
    let counter = store.get(b"counter").expect("got").expect("there");
    let counter = String::from_utf8_lossy(&counter).trim_end().to_owned();
    assert_eq!(counter, total.into_inner().to_string());
    assert!(store.stats().collected > 0);
    store.close().expect("closed");
}

#[test]
fn tasks_of_a_core_share_batches() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let file = block::Options::create(8 << 20).with_engine(Engine::Threads);
    let device = FileDevice::open(&path, &file).expect("a device");
    let store = Store::on(Arc::new(device), &Options::default()).expect("a store");
    let mut core = rt::Core::new(rt::Config::default()).expect("a core");
    let handle = core.handle();
    core.block_on(async {
        let session = store.session_on(&handle).expect("a session");
        let task = |i: u64| {
            let session = session.clone();
            handle.spawn(async move {
                for round in 0..20_u64 {
                    let (key, value) = (i.to_le_bytes(), (i * round).to_le_bytes());
                    session.put(&key, &value).await.expect("put");
                    let found = session.get(&key).await.expect("got").expect("there");
                    assert_eq!(*found, value);
                }
            })
        };
        let tasks: Vec<_> = (0..64).map(task).collect();
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    let stats = store.stats();
    assert_eq!(stats.puts, 64 * 20);
    assert!(
        stats.batches * 4 < stats.puts,
        "writes are shared: {stats:?}"
    );
    assert_eq!(store.len(), 64);
    drop(core);
    store.close().expect("closed");
}
