//! Caches: full, they forget what was not used for long, and nothing else.

use std::cell::Cell;
use std::collections::HashMap;

use fastrand::Rng;
use store::{Admission, Attributes, Durability, Options};

use super::basics::open;
use super::world::{self, Task, World, blank};

fn cache() -> Options {
    let mut options = Options::default();
    options.cache = true;
    options.durability = Durability::Process;
    options
}

fn key(i: u64) -> Vec<u8> {
    format!("key {i}").into_bytes()
}

#[test]
fn a_full_cache_forgets_what_was_not_used() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path(), &cache()).expect("a cache");
    let value = vec![7; 1000];
    // Eight times its size; one key in fifty is asked for again and again.
    for i in 0..32_000 {
        store.put(&key(i), &value).expect("put");
        if i % 8 == 0 {
            store.get(&key(i / 400 % 8)).expect("got");
        }
    }
    let stats = store.stats();
    assert!(stats.evicted > 20_000, "{stats:?}");
    // Only tombstones of keys that the index took for another one's.
    assert!(stats.moved_bytes * 1000 < stats.written_bytes, "{stats:?}");
    let found = |i| store.get(&key(i)).expect("got").is_some();
    assert!((31_000..32_000).all(found), "the newest");
    let recent = (0..8).filter(|&i| found(i)).count();
    assert!(recent >= 7, "what is used stays: {recent} of 8");
    let old = (1000..20_000).filter(|&i| found(i)).count();
    assert!(old < 500, "what is not goes: {old}");
    let blocks = 1028_f64.div_euclid(512.0).ceil() * 512.0 + 512.0;
    assert!(stats.written_bytes as f64 <= 32_000.0 * blocks, "{stats:?}");
}

/// What a cache shows is what was stored last, or nothing; also after a crash, when versions that
/// were overwritten stand in older segments than those given up.
#[test]
fn a_cache_never_shows_an_old_value() {
    for seed in 0..4 {
        let dir = tempfile::tempdir().expect("a directory");
        let mut random = Rng::with_seed(seed);
        let mut last: HashMap<u64, Option<u64>> = HashMap::new();
        let mut counter = 0;
        for session in 0..5 {
            let store = open(dir.path(), &cache()).expect("a cache");
            let check = |i: u64, last: &HashMap<u64, Option<u64>>| {
                let found = store.get(&key(i)).expect("got");
                let found =
                    found.map(|value| u64::from_le_bytes(value[..8].try_into().expect("8")));
                if found.is_some() {
                    let what = format!("seed {seed}, session {session}, key {i}");
                    assert_eq!(found, last.get(&i).copied().flatten(), "{what}");
                }
                found.is_some()
            };
            let found = (0..4000).filter(|&i| check(i, &last)).count();
            assert!(session == 0 || found > 500, "seed {seed}: {found} are left");
            for _ in 0..4000 {
                // Old keys seldom: their first versions and their last lie far apart.
                let i = random.u64(..4000);
                match random.u32(..20) {
                    0 => {
                        store.delete(&key(i)).expect("deleted");
                        last.insert(i, None);
                    }
                    1..4 => {
                        check(i, &last);
                    }
                    _ => {
                        counter += 1;
                        let mut value = vec![0; random.usize(8..1500)];
                        value[..8].copy_from_slice(&u64::to_le_bytes(counter));
                        store.put(&key(i), &value).expect("put");
                        last.insert(i, Some(counter));
                    }
                }
            }
            if session % 2 == 0 {
                store.close().expect("closed");
            }
        }
    }
}

#[test]
fn a_cache_may_be_choosy() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = cache();
    options.admission = Admission::SecondAccess;
    let store = open(dir.path(), &options).expect("a cache");
    assert!(!store.put(b"k", b"1").expect("put").stored);
    assert_eq!(store.get(b"k").expect("got"), None);
    assert!(store.put(b"k", b"2").expect("put").stored);
    assert_eq!(store.get(b"k").expect("got").as_deref(), Some(&b"2"[..]));
    assert!(
        store.put(b"k", b"3").expect("put").stored,
        "the old one has to go"
    );
    assert_eq!(store.get(b"k").expect("got").as_deref(), Some(&b"3"[..]));
    let plain = Attributes::default();
    store.get(b"asked").expect("got");
    let put = store.put_if_absent(b"asked", b"1", plain).expect("put");
    assert!(put.is_some_and(|put| put.stored));
}

/// Records so short that the tombstones that would take their place do not fit where those stood. The oldest
/// segment needs none.
#[test]
fn a_cache_of_tiny_values_goes_on() {
    let mut options = world::options();
    options.cache = true;
    let device = blank(1, 12);
    let mut world = World::open(&device, &options, 1).expect("a cache");
    // Each of the first ones twice: their last records hide older ones.
    let keys: Vec<u32> = (0..16_000)
        .chain(0..16_000)
        .chain(50_000..130_000)
        .collect();
    let next = Cell::new(0);
    let session = world.sessions[0].clone();
    let put = |_| {
        let (session, next, keys) = (session.clone(), &next, &keys);
        Box::pin(async move {
            while let Some(key) = keys.get(next.replace(next.get() + 1)) {
                let put = session.put(&key.to_le_bytes(), b"").await;
                put.unwrap_or_else(|error| panic!("key {key}: {error}"));
            }
        }) as Task<'_>
    };
    let tasks: Vec<_> = (0..64).map(put).collect();
    world.run(tasks).expect("puts end");
    let stats = world.store.stats();
    assert!(stats.evicted > 50_000, "{stats:?}");
    let found = world.finish(session.get(&129_999_u32.to_le_bytes()));
    assert!(found.expect("it ends").expect("got").is_some());
}
