//! Visiting every key.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use store::{Attributes, Durability, Options};

use super::basics::open;

/// Keys that stay are all visited, while others come and go so that records are moved all the time.
#[test]
fn no_key_is_missed_while_records_are_moved() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = Options::default();
    options.durability = Durability::Process;
    let store = open(dir.path(), &options).expect("a store");
    let plain = Attributes {
        flags: 9,
        expiry: 0,
    };
    for i in 0..300_u32 {
        store
            .put_with(&i.to_le_bytes(), &[i as u8; 2000], plain)
            .expect("put");
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(1);
            while !is_over.load(Ordering::Relaxed) {
                let key = random.u32(1000..1200);
                store
                    .put(&key.to_le_bytes(), &vec![7; random.usize(..4000)])
                    .expect("put");
            }
        });
        for round in 0..8 {
            let before = store.stats().moved;
            let mut seen = HashMap::new();
            let visited = store.for_each(|visited| {
                let key = u32::from_le_bytes(visited.key.try_into().expect("four bytes"));
                if key < 300 {
                    assert_eq!(visited.value, [key as u8; 2000]);
                    assert_eq!(visited.flags, 9);
                    let version = seen.entry(key).or_insert(visited.version);
                    assert_eq!(
                        *version, visited.version,
                        "a moved record keeps its version"
                    );
                }
                ControlFlow::Continue(())
            });
            visited.expect("visited");
            assert_eq!(seen.len(), 300, "round {round}");
            while store.stats().moved == before {
                std::thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let mut count = 0;
    let visited = store.for_each(|_| {
        count += 1;
        if count == 5 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    visited.expect("visited");
    assert_eq!(count, 5);
}
