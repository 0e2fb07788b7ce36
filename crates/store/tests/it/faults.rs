//! What goes wrong with devices: an error or a repair, never a lost or a wrong value.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;

use block::sim::{Image, Kind, Rates, SimConfig, SimDevice};
use block::{Device, Engine, FileDevice};
use fastrand::Rng;
use rustix::io::Errno;
use store::examine::{examine, repair_superblocks};
use store::format::FORMAT_VERSION;
use store::format::segment::SEGMENT_HEADER_LEN;
use store::{Options, Recovery, Store, StoreError};

const LEN: u64 = (64 << 10) + 16 * (64 << 10);

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = Some(64 << 10);
    options.recovery_threads = Some(1);
    options
}

fn blank() -> SimDevice {
    SimDevice::new(SimConfig::new(3, LEN))
}

fn again(image: Image) -> SimDevice {
    SimDevice::with_image(SimConfig::new(4, LEN), image)
}

fn open(device: &SimDevice) -> Result<Store, StoreError> {
    open_with(device, &options())
}

fn open_with(device: &SimDevice, options: &Options) -> Result<Store, StoreError> {
    let shared: Arc<dyn Device> = Arc::new(device.clone());
    Store::on(shared, options)
}

fn shared(device: &SimDevice) -> Arc<dyn Device> {
    Arc::new(device.clone())
}

fn key(i: u32) -> Vec<u8> {
    format!("key {i}").into_bytes()
}

/// A store of some keys, each with an older version in the log.
fn filled(device: &SimDevice) -> Store {
    let store = open(device).expect("a store");
    for version in ["old", "new"] {
        for i in 0..60 {
            let value = format!("{version} value {i} {}", "x".repeat(400));
            store.put(&key(i), value.as_bytes()).expect("put");
        }
    }
    store
}

fn has_all(store: &Store) {
    for i in 0..60 {
        let value = store.get(&key(i)).expect("got");
        assert!(value.is_some_and(|v| v.starts_with(b"new")), "key {i}");
    }
}

#[test]
fn a_full_store_says_so_and_loses_nothing() {
    let device = blank();
    let store = open(&device).expect("a store");
    let value = vec![7; 5000];
    let mut stored = 0;
    let refused = loop {
        match store.put(&key(stored), &value) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.to_string(), "the store is full");
    assert!(u64::from(stored) * 5000 > LEN / 2, "{stored} values");
    for i in 0..stored {
        assert_eq!(store.get(&key(i)).expect("got").as_ref(), Some(&value));
    }
    // Still so after a while of overwriting, removing and refilling.
    for round in 0..10 {
        for i in 0..stored / 2 {
            assert!(store.delete(&key(i)).expect("deleted"), "round {round}");
        }
        for i in 0..stored / 2 {
            store.put(&key(i), &value).expect("room again");
        }
        assert!(store.put(&key(stored), &value).is_err() || round > 0);
        let _ = store.delete(&key(stored)).expect("deleted");
    }
    drop(store);
    let store = open(&again(device.image())).expect("recovered");
    assert_eq!(store.len(), u64::from(stored));
}

/// An error of the device at any request: an operation fails, the next ones go on, and what was
/// acknowledged is there, now and after a crash.
#[test]
fn an_error_at_any_request_loses_nothing() {
    for kind in [Kind::Read, Kind::Write, Kind::Flush] {
        for pass in (0..400).step_by(13) {
            let device = blank();
            let store = open(&device).expect("a store");
            device.fail(kind, pass, Errno::IO);
            let mut random = Rng::with_seed(pass);
            // What each key may have.
            let mut may: HashMap<u32, Vec<Option<Vec<u8>>>> = HashMap::new();
            let mut errors = 0;
            for step in 0..300_u32 {
                let i = random.u32(..25);
                let value = (random.u32(..4) > 0).then(|| vec![step as u8; random.usize(..3000)]);
                let outcome = match &value {
                    Some(value) => store.put(&key(i), value).map(drop),
                    None => store.delete(&key(i)).map(drop),
                };
                let may = may.entry(i).or_insert_with(|| vec![None]);
                match outcome {
                    Ok(()) => *may = vec![value],
                    Err(StoreError::Full) => {}
                    Err(error) => {
                        errors += 1;
                        assert!(error.to_string().contains("sim"), "says where: {error}");
                        may.push(value);
                    }
                }
            }
            let what = format!("{kind:?} {pass}");
            assert!(errors <= 1, "{what}: {errors} errors");
            let check = |store: &Store| {
                for (&i, may) in &may {
                    match store.get(&key(i)) {
                        Ok(found) => assert!(may.contains(&found), "{what}, key {i}"),
                        // The error had yet to come.
                        Err(StoreError::Device(_)) => {}
                        Err(error) => panic!("{what}, key {i}: {error}"),
                    }
                }
            };
            check(&store);
            drop(store);
            check(&open(&again(device.image())).expect("recovered"));
        }
    }
}

#[test]
fn a_store_that_cannot_be_written_to_can_be_read() {
    let device = blank();
    let store = filled(&device);
    store.put(b"one more", b"").expect("put");
    let rates = Rates {
        write_error: 1.0,
        ..Rates::default()
    };
    device.set_rates(rates);
    assert!(store.put(b"more", b"").is_err());
    // Whether that is there afterwards is open.
    assert!(store.delete(b"one more").is_err());
    has_all(&store);
    device.set_rates(Rates::default());
    drop(store);
    let store = open(&again(device.image())).expect("recovered");
    has_all(&store);
}

#[test]
fn short_and_repeated_transfers_are_nothing_to_the_user() {
    let device = blank();
    let rates = Rates {
        short: 0.3,
        again: 0.3,
        ..Rates::default()
    };
    device.set_rates(rates);
    let store = filled(&device);
    has_all(&store);
    drop(store);
    has_all(&open(&device).expect("recovered"));
}

/// Any flipped bit is noticed by whoever reads it, and never shows an older value. Whether the
/// store was closed or not.
#[test]
fn rot_is_an_error_and_no_old_value() {
    let mut random = Rng::with_seed(8);
    for closed in [true, false] {
        let device = blank();
        let store = filled(&device);
        if closed {
            store.close().expect("closed");
        } else {
            // So that what rots is not in a segment that the end of the store might have torn.
            for i in 0..60 {
                store.put(b"filler", &vec![0; 4000]).expect("put");
                assert!(store.len() == 61, "{i}");
            }
            drop(store);
        }
        let image = device.image();
        let mut noticed = 0;
        let mut records = Vec::new();
        let is_key = |key: &[u8]| key.starts_with(b"key");
        examine(
            &shared(&device),
            |_, _| (),
            |record| {
                if is_key(record.key) {
                    records.push((record.at, record.key.to_vec()));
                }
            },
        )
        .expect("examined");
        for round in 0..120 {
            let rotten = again(image.clone());
            // In the value: the key can still be read.
            let (at, _) = records[random.usize(..records.len())];
            let byte = at + random.u64(40..400);
            rotten.flip_bit(byte, random.u8(..8));
            let store = open(&rotten).expect("opened");
            assert_eq!(store.recovery() == Recovery::Closed, closed);
            for i in 0..60 {
                match store.get(&key(i)) {
                    Ok(value) => assert!(value.expect("there").starts_with(b"new"), "{round}"),
                    Err(StoreError::Damaged { .. }) => noticed += 1,
                    Err(error) => panic!("{round}: {error}"),
                }
            }
            if round % 10 == 0 {
                let examined = examine(&shared(&again(image.clone())), |_, _| (), |_| ());
                assert!(examined.expect("examined").is_sound());
                drop(store);
                let rotten_still = shared(&rotten);
                let examined = examine(&rotten_still, |_, _| (), |_| ()).expect("examined");
                assert!(!examined.is_sound());
            }
        }
        assert!(noticed > 30, "{noticed} of 120 flips hit a current value");
    }
}

#[test]
fn damaged_records_are_given_up_when_that_is_asked_for() {
    let device = blank();
    let store = filled(&device);
    for _ in 0..60 {
        store.put(b"filler", &vec![0; 4000]).expect("put");
    }
    drop(store);
    let mut newest = HashMap::new();
    examine(
        &shared(&device),
        |_, _| (),
        |record| {
            newest.insert(record.key.to_vec(), record.at);
        },
    )
    .expect("examined");
    device.flip_bit(newest[&key(7)] + 100, 0);
    let store = open(&device).expect("opened");
    assert!(matches!(
        store.get(&key(7)),
        Err(StoreError::Damaged { .. })
    ));
    let refused = store.increment(&key(7), 1);
    assert!(matches!(refused, Err(StoreError::Damaged { .. })));
    drop(store);
    let mut forgetting = options();
    forgetting.forget_damaged = true;
    let store = open_with(&device, &forgetting).expect("opened");
    let value = store.get(&key(7)).expect("got").expect("the older one");
    assert!(value.starts_with(b"old"));
    store.put(&key(7), b"again").expect("put");
}

#[test]
fn damaged_headers_are_mended() {
    let device = blank();
    drop(filled(&device));
    let examined = examine(&shared(&device), |_, _| (), |_| ()).expect("examined");
    assert!(examined.is_sound() && !examined.is_closed());
    let layout = examined.superblock.layout;
    // Of every segment with records, one bit each; and the superblock, all of it.
    let mut random = Rng::with_seed(2);
    for segment in examined.segments.iter().filter(|s| s.records > 0) {
        let byte = random.u64(..SEGMENT_HEADER_LEN as u64);
        device.flip_bit(layout.segment_at(segment.segment) + byte, random.u8(..8));
    }
    for byte in 0..64 {
        device.flip_bit(byte, 3);
    }
    let examined = examine(&shared(&device), |_, _| (), |_| ()).expect("the copy");
    assert!(!examined.is_sound());
    has_all(&open(&device).expect("mended"));
    assert_eq!(repair_superblocks(&shared(&device)).expect("mended"), 1);
    assert!(
        examine(&shared(&device), |_, _| (), |_| ())
            .expect("examined")
            .is_sound()
    );
    // Both superblocks gone: nobody formats over what may be a store.
    for at in [0, 32 << 10] {
        device.flip_bit(at + 20, 1);
    }
    let refused = open(&device).expect_err("no superblock");
    assert!(
        refused
            .to_string()
            .ends_with("the checksum of the superblock is wrong"),
        "{refused}"
    );
}

/// An error of the device at a superblock is one of its bytes, as damage is.
#[test]
fn a_superblock_that_cannot_be_read_has_a_copy() {
    for at in [0, 32 << 10] {
        let device = blank();
        filled(&device).close().expect("closed");
        device.make_unreadable(at, 1);
        let examined = examine(&shared(&device), |_, _| (), |_| ()).expect("the other one");
        assert!(!examined.is_sound(), "byte {at}");
        has_all(&open(&device).expect("the other one"));
    }
}

#[test]
fn another_format_is_refused() {
    let device = blank();
    drop(filled(&device));
    device.flip_bit(8, 1);
    device.flip_bit((32 << 10) + 8, 1);
    let refused = open(&device).expect_err("another format");
    let words = format!(
        "sim holds no store: format version {}, but this program reads {FORMAT_VERSION}",
        FORMAT_VERSION ^ 1 << 1
    );
    assert_eq!(refused.to_string(), words);
    let mut forced = options();
    forced.force = true;
    let refused = open_with(&device, &forced).expect_err("another format");
    assert!(
        matches!(&refused, StoreError::MaybeStore { source, .. } if words.ends_with(&source.to_string())),
        "{refused}"
    );
}

#[test]
fn a_file_cut_short_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let file = |options: block::Options| {
        let options = options.with_engine(Engine::Blocking);
        Ok::<_, StoreError>(Arc::new(FileDevice::open(&path, &options)?))
    };
    let device = file(block::Options::create(4 << 20)).expect("a device");
    let store = Store::on(device, &Options::default()).expect("a store");
    store.put(b"key", b"value").expect("put");
    store.close().expect("closed");
    let cut = std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("opened");
    cut.set_len(3 << 20).expect("cut");
    let device = file(block::Options::existing()).expect("a device");
    let refused = Store::on(device, &Options::default()).expect_err("cut short");
    assert!(
        refused
            .to_string()
            .contains("is cut short: it has 3145728 bytes"),
        "{refused}"
    );
}

/// A write that failed in the middle of the log hides nothing behind it.
#[test]
fn a_hole_in_the_log_hides_nothing() {
    for pass in 0..20 {
        let device = blank();
        let store = open(&device).expect("a store");
        device.fail(Kind::Write, pass, Errno::IO);
        let mut stored = Vec::new();
        for i in 0..40 {
            if store.put(&key(i), &vec![i as u8; 700]).is_ok() {
                stored.push(i);
            }
        }
        assert!(stored.len() >= 39);
        drop(store);
        let store = open(&again(device.image())).expect("recovered");
        for i in stored {
            assert_eq!(store.get(&key(i)).expect("got"), Some(vec![i as u8; 700]));
        }
    }
}

/// The index of a closed store is used once: what was written after it was loaded is not lost, and
/// what was removed does not come back.
#[test]
fn a_stale_index_is_not_believed() {
    let device = blank();
    filled(&device).close().expect("closed");
    let store = open(&device).expect("opened");
    assert_eq!(store.recovery(), Recovery::Closed);
    let at_once = device.snapshot();
    store.delete(&key(1)).expect("deleted");
    store.put(&key(2), b"newest").expect("put");
    drop(store);
    let store = open(&again(device.image())).expect("recovered");
    assert!(matches!(store.recovery(), Recovery::Log { .. }));
    assert_eq!(store.get(&key(1)).expect("got"), None);
    assert_eq!(
        store.get(&key(2)).expect("got").as_deref(),
        Some(&b"newest"[..])
    );
    for cut in 0..10 {
        has_all(&open(&again(at_once.crash(cut))).expect("recovered"));
    }
}

/// Rot in one record of a batch hides none of the others, wherever in it the bit is.
#[test]
fn a_damaged_record_hides_nothing_behind_it() {
    let device = blank();
    let store = open(&device).expect("a store");
    let session = store.session().expect("a session");
    let names: Vec<Vec<u8>> = (0..6).map(key).collect();
    session.block_on(async {
        let mut puts: Vec<_> = names
            .iter()
            .map(|name| Box::pin(session.put(name, b"some value or other")))
            .collect();
        std::future::poll_fn(|cx| {
            puts.retain_mut(|put| match put.as_mut().poll(cx) {
                Poll::Ready(outcome) => outcome.is_err(),
                Poll::Pending => true,
            });
            if puts.is_empty() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    });
    assert_eq!(store.stats().batches, 1, "all in one");
    drop(session);
    drop(store);
    let mut places = Vec::new();
    examine(&shared(&device), |_, _| (), |record| places.push(record.at)).expect("examined");
    let image = device.image();
    for byte in places[1]..places[2] {
        let rotten = again(image.clone());
        rotten.flip_bit(byte, (byte % 8) as u8);
        let store = open(&rotten).expect("recovered");
        let there = names
            .iter()
            .filter(|name| store.get(name).is_ok_and(|value| value.is_some()));
        let there = there.count();
        // The padding behind a record is nobody's.
        assert!(
            there == 5 || (there == 6 && byte + 4 > places[2]),
            "byte {byte}: {there}"
        );
    }
}
