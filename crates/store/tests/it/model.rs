//! Random operations against a map, on a store so small that segments are given up all the time,
//! closed and dropped in between.

use std::collections::HashMap;

use fastrand::Rng;
use store::{Durability, Options, Store, StoreError};

use super::basics::open;

fn value(random: &mut Rng) -> Vec<u8> {
    let len = match random.u32(..10) {
        0 => 0,
        1..8 => random.usize(..2000),
        _ => random.usize(..20_000),
    };
    let byte = random.u8(..);
    vec![byte; len]
}

fn run(seed: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut random = Rng::with_seed(seed);
    let mut model: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let mut refused = 0;
    let mut stats = Vec::new();
    let mut options = Options::default();
    options.durability = Durability::Process;
    for session in 0..4 {
        let store = open(dir.path(), &options).expect("a store");
        for step in 0..1500 {
            let key = format!("key {}", random.u32(..150)).into_bytes();
            let what = format!("seed {seed}, session {session}, step {step}");
            match random.u32(..10) {
                0..5 => {
                    let value = value(&mut random);
                    match store.put(&key, &value) {
                        Ok(put) => {
                            let old = model.insert(key, value);
                            assert_eq!(put.replaced, old.is_some(), "{what}");
                        }
                        Err(StoreError::Full) => refused += 1,
                        Err(error) => panic!("{what}: {error}"),
                    }
                }
                5..7 => {
                    let was_there = store.delete(&key).expect("deleted");
                    assert_eq!(was_there, model.remove(&key).is_some(), "{what}");
                }
                _ => assert_eq!(
                    store.get(&key).expect("got").as_ref(),
                    model.get(&key),
                    "{what}"
                ),
            }
        }
        assert_eq!(store.len(), model.len() as u64, "seed {seed}");
        stats.push(store.stats());
        if random.bool() {
            store.close().expect("closed");
        }
    }
    let store: Store = open(dir.path(), &Options::default()).expect("a store");
    for (key, value) in &model {
        assert_eq!(
            store.get(key).expect("got").as_ref(),
            Some(value),
            "seed {seed}"
        );
    }
    assert_eq!(
        store.len(),
        model.len() as u64,
        "seed {seed}: nothing comes back"
    );
    let collected: u64 = stats.iter().map(|stats| stats.collected).sum();
    assert!(collected > 10, "seed {seed}: {stats:?}");
    assert!(refused < 200, "seed {seed}: refused {refused}");
}

#[test]
fn a_small_store_does_what_a_map_does() {
    for seed in 0..4 {
        run(seed);
    }
}
