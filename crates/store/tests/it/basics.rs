//! Each operation, on a file, by one thread.

use std::path::Path;
use std::sync::Arc;

use block::{BlockError, Device, Engine, FileDevice, Geometry, Queue};
use store::{Attributes, Options, Recovery, Store, StoreError, Swap, Update};

/// A small store in a file of this directory.
pub(crate) fn open(dir: &Path, options: &Options) -> Result<Store, StoreError> {
    let path = dir.join("small.store");
    let file = match path.exists() {
        true => block::Options::existing(),
        false => block::Options::create(4 << 20),
    };
    let device = FileDevice::open(&path, &file.with_engine(Engine::Blocking))?;
    Store::on(Arc::new(SmallSectors(device)), options)
}

/// A file of which nobody says what its drive writes at once: so a store has the same blocks on each
/// machine.
struct SmallSectors(FileDevice);

impl Device for SmallSectors {
    fn name(&self) -> Arc<str> {
        self.0.name()
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, BlockError> {
        self.0.queue(depth)
    }
}

#[test]
fn what_was_put_is_got() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path(), &Options::default()).expect("a store");
    assert_eq!(store.recovery(), Recovery::Formatted);
    assert_eq!(store.get(b"key").expect("got"), None);
    let first = store.put(b"key", b"value").expect("put");
    assert!(!first.replaced);
    assert_eq!(
        store.get(b"key").expect("got").as_deref(),
        Some(&b"value"[..])
    );
    let second = store.put(b"key", b"").expect("put");
    assert!(second.replaced && second.version > first.version);
    assert_eq!(
        store.get(b"key").expect("got").as_deref(),
        Some(&b""[..]),
        "empty, not gone"
    );
    assert_eq!(store.len(), 1);
    assert!(store.delete(b"key").expect("deleted"));
    assert!(!store.delete(b"key").expect("deleted"));
    assert_eq!(store.get(b"key").expect("got"), None);
    assert!(store.is_empty());
    assert!(store.delete(b"").is_ok() && store.put(b"", b"empty").is_ok());
    assert_eq!(store.get(b"").expect("got").as_deref(), Some(&b"empty"[..]));
    store.close().expect("closed");
}

#[test]
fn conditions_are_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path(), &Options::default()).expect("a store");
    let plain = Attributes::default();
    assert_eq!(store.put_if_present(b"k", b"no", plain).expect("put"), None);
    let put = store
        .put_if_absent(b"k", b"1", plain)
        .expect("put")
        .expect("absent");
    assert_eq!(store.put_if_absent(b"k", b"no", plain).expect("put"), None);
    let next = store
        .put_if_present(b"k", b"2", plain)
        .expect("put")
        .expect("present");
    let swap = |version, value| {
        store
            .compare_and_swap(b"k", version, value, plain)
            .expect("swapped")
    };
    assert_eq!(swap(put.version, b"no"), Swap::Changed(next.version));
    let Swap::Swapped(last) = swap(next.version, b"3") else {
        panic!("the version is right");
    };
    let version = store
        .look(b"k", |value| value.map(|value| value.version()))
        .expect("looked");
    assert_eq!(version, Some(last.version));
    assert_eq!(store.increment(b"k", 8).expect("counted"), Some(11));
    assert_eq!(store.decrement(b"k", 20).expect("counted"), Some(0));
    assert_eq!(store.get(b"k").expect("got").as_deref(), Some(&b"0 "[..]));
    assert_eq!(
        store.increment(b"k", u64::MAX).expect("counted"),
        Some(u64::MAX)
    );
    assert_eq!(
        store.increment(b"k", 2).expect("counted"),
        Some(1),
        "modulo 2^64"
    );
    assert_eq!(store.increment(b"none", 1).expect("counted"), None);
    store.put(b"k", b"text").expect("put");
    assert!(matches!(
        store.increment(b"k", 1),
        Err(StoreError::NotANumber)
    ));
    let updated = store.update(b"k", |value| {
        let mut text = value.expect("there").to_vec();
        text.extend_from_slice(b" and more");
        Update::Put(
            text,
            Attributes {
                flags: 7,
                expiry: 0,
            },
        )
    });
    assert!(updated.expect("updated").is_some());
    let (text, flags) = store
        .look(b"k", |value| {
            value.map(|value| (value.to_vec(), value.flags()))
        })
        .expect("looked")
        .expect("there");
    assert_eq!((&text[..], flags), (&b"text and more"[..], 7));
    assert_eq!(
        store.update(b"k", |_| Update::Delete).expect("updated"),
        None
    );
    assert_eq!(swap(last.version, b"no"), Swap::Missing);
}

#[test]
fn what_is_too_long_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path(), &Options::default()).expect("a store");
    let long = vec![7; 70_000];
    let refused = store.put(&long, b"").expect_err("too long");
    assert_eq!(
        refused.to_string(),
        "a key of 70000 bytes is too long: 65536 at most"
    );
    let refused = store.put(b"k", &long).expect_err("too long");
    assert!(
        refused.to_string().starts_with("a record of 700"),
        "{refused}"
    );
    let most = vec![8; 60_000];
    store.put(&most[..1000], &most).expect("put");
    assert_eq!(store.get(&most[..1000]).expect("got"), Some(most));
}

#[test]
fn a_closed_store_opens_from_its_index_and_a_dropped_one_from_its_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let key = |i: u32| format!("key {i}").into_bytes();
    let mut expected = 0..0;
    for round in 0..6_u32 {
        let store = open(dir.path(), &Options::default()).expect("a store");
        let recovery = store.recovery();
        match round {
            0 => assert_eq!(recovery, Recovery::Formatted),
            1 | 3 | 5 => assert_eq!(recovery, Recovery::Closed, "round {round}"),
            _ => assert!(
                matches!(recovery, Recovery::Log { damaged: 0, .. }),
                "{recovery:?}"
            ),
        }
        for i in 0..expected.end + 10 {
            let found = store.get(&key(i)).expect("got");
            let present = expected
                .contains(&i)
                .then(|| format!("value {i}").into_bytes());
            assert_eq!(found, present, "round {round}, key {i}");
        }
        for i in expected.end..expected.end + 200 {
            store
                .put(&key(i), format!("value {i}").as_bytes())
                .expect("put");
        }
        for i in expected.start..expected.start + 50 {
            assert!(
                store.delete(&key(i)).expect("deleted"),
                "round {round}, key {i}"
            );
        }
        expected = expected.start + 50..expected.end + 200;
        if round % 2 == 0 {
            store.close().expect("closed");
        }
    }
}

#[test]
fn a_foreign_file_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("letters");
    std::fs::write(&path, vec![b'x'; 1 << 20]).expect("written");
    let refused = Store::open(&path).expect_err("no store");
    assert!(
        refused.to_string().contains("holds something else already"),
        "{refused}"
    );
    let held = Store::open(dir.path().join("mine")).expect("a store");
    let refused = Store::open(dir.path().join("mine")).expect_err("in use");
    assert!(
        refused.to_string().contains("in use by another process"),
        "{refused}"
    );
    drop(held);
    Store::open(dir.path().join("mine")).expect("free again");
}

#[test]
fn expired_values_are_not_seen() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let dir = tempfile::tempdir().expect("a directory");
    let now = Arc::new(AtomicU32::new(1000));
    let mut options = Options::default();
    let clock = now.clone();
    options.now = Arc::new(move || clock.load(Ordering::Relaxed));
    let store = open(dir.path(), &options).expect("a store");
    let until = Attributes {
        flags: 0,
        expiry: 1010,
    };
    store.put_with(b"k", b"v", until).expect("put");
    assert!(store.get(b"k").expect("got").is_some());
    now.store(1010, Ordering::Relaxed);
    assert!(store.get(b"k").expect("got").is_none());
    assert!(!store.put(b"k", b"w").expect("put").replaced, "it was gone");
    // A clock that jumps back shows nothing that was overwritten.
    now.store(0, Ordering::Relaxed);
    assert_eq!(store.get(b"k").expect("got").as_deref(), Some(&b"w"[..]));
}

#[test]
fn what_segments_lose_at_their_ends_is_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path(), &Options::default()).expect("a store");
    let layout = store.superblock().layout;
    let a_record = {
        store.put(b"0", &[0; 20_000]).expect("put");
        store.stats().written_bytes
    };
    assert_eq!(store.lost_bytes(), 0);
    // Three to a segment, and the last one begins the eleventh.
    for i in 1..31 {
        store.put(&[i], &[i; 20_000]).expect("put");
    }
    let headers = 10 * 2 * layout.block() as u64;
    let filled = store.stats().written_bytes - a_record + headers + store.lost_bytes();
    assert_eq!(filled, 10 * layout.segment_bytes());
}

/// A counter is the same thing here, in the cache, and behind both doors.
#[test]
fn counters_are_those_of_the_other_engine() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path(), &Options::default()).expect("a store");
    let values: [&[u8]; 12] = [
        b"7",
        b"  7",
        b"+7",
        b"-0",
        b"-1",
        b"7 text",
        b"7\0text",
        b"7x",
        b"x",
        b"",
        b"\t19",
        b"18446744073709551616",
    ];
    for value in values {
        store.put(b"k", value).expect("put");
        let counted = store.increment(b"k", 5);
        match engine::number::parse(value) {
            Some(number) => {
                assert_eq!(counted.expect("counted"), Some(number + 5), "{value:?}");
                let kept = store.get(b"k").expect("got").expect("there");
                assert_eq!(engine::number::parse(&kept), Some(number + 5));
                assert_eq!(kept.len(), value.len().max((number + 5).to_string().len()));
            }
            None => assert!(matches!(counted, Err(StoreError::NotANumber)), "{value:?}"),
        }
    }
}
