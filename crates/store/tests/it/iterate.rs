//! Visiting every key.

use std::collections::HashMap;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block::Device;
use block::sim::SimDevice;
use engine::{Answer, Ask, Asker, Command, Engine, Expiry, Failure, Mode, NoBudget, Segments};
use store::examine::examine;
use store::{Attributes, Durability, Options, State, Store, StoreEngine, StoreError};

use super::basics::open;
use super::rig::{Rig, key};
use super::world::{self, blank, shared, with_image};

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

/// Where the newest record of each key stands in a closed store, in the order of the log.
fn places(device: &SimDevice) -> Vec<(u64, Vec<u8>)> {
    let mut places = Vec::new();
    examine(
        &shared(device),
        |_, _| (),
        |record| places.push((record.at, record.key.to_vec())),
    )
    .expect("examined");
    // The index stands in records as well.
    places.retain(|(_, key)| key.len() == 4);
    places.sort_unstable();
    places
}

/// Copies of a closed store of 200 keys in which a record is damaged in the middle of a segment, with others
/// before and behind it there and elsewhere.
struct Harmed {
    copies: Vec<(&'static str, SimDevice)>,
    key: Vec<u8>,
    /// Where all records stand, and their keys.
    places: Vec<(u64, Vec<u8>)>,
}

fn harmed() -> Harmed {
    let device = blank(1, 12);
    let options = world::options();
    let store = Store::on(shared(&device), &options).expect("a store");
    for i in 0..200_u32 {
        store.put(&i.to_le_bytes(), &[i as u8; 1500]).expect("put");
    }
    store.close().expect("closed");
    let places = places(&device);
    assert_eq!(places.len(), 200);
    let (at, key) = places[60].clone();
    let block = u64::from(device.geometry().block);
    let within = (at + block) / block * block;
    let zeroed = || {
        let mut image = device.image();
        image.write(within, &vec![0; block as usize]);
        with_image(2, image)
    };
    let same = |flips: &[(u64, u8)]| {
        let device = with_image(2, device.image());
        flips.iter().for_each(|&(at, bit)| device.flip_bit(at, bit));
        device
    };
    let unreadable = || {
        let device = same(&[]);
        device.make_unreadable(within, block);
        device
    };
    let copies = vec![
        ("a bit of the value", same(&[(at + 700, 3)])),
        (
            "bits of the key",
            same(&[(at + 8, 0), (at + 9, 5), (at + 7, 1)]),
        ),
        ("a block of zeroes", zeroed()),
        ("a block that cannot be read", unreadable()),
    ];
    Harmed {
        copies,
        key,
        places,
    }
}

/// A store that is flushed forgets what is damaged as well. Where nobody knows whose records are, it says so,
/// and all others are gone.
#[test]
fn what_is_damaged_is_flushed_with_the_rest() {
    let harmed = harmed();
    for (what, device) in harmed.copies {
        let store = world::open(&device, &world::options()).expect("opened");
        let mut core = rt::Core::new(rt::Config::default()).expect("a core");
        let handle = core.handle();
        core.block_on(async {
            let session = store.session_on(&handle).expect("a session");
            let budget = Arc::new(NoBudget);
            let mut engine = StoreEngine::new(session, handle.clone(), 4096, budget);
            let flush = Command::FlushAll { at_s: 0 };
            let flushed = ask(&mut engine, flush).await;
            let is_known = what.starts_with("a bit of");
            match flushed {
                Answer::Done => {}
                Answer::Failed(Failure::Damaged) => assert!(!is_known, "{what}"),
                other => panic!("{what}: {other:?}"),
            }
            let mut hidden = 0;
            for (_, key) in &harmed.places {
                let get = Command::Get { key, touch: None };
                match ask(&mut engine, get).await {
                    Answer::Miss => {}
                    // What shares a block with it may be lost as well.
                    Answer::Failed(Failure::Damaged) if !is_known => hidden += 1,
                    other => panic!("{what}, {key:?}: {other:?}"),
                }
            }
            assert!(hidden <= 3, "{what}: {hidden} keys");
            // What was damaged is in nobody's way.
            let set = Command::Store {
                mode: Mode::Set,
                key: &harmed.key,
                value: b"new"[..].into(),
                flags: 0,
                expiry: Expiry::NEVER,
            };
            assert!(
                matches!(ask(&mut engine, set).await, Answer::Stored { .. }),
                "{what}"
            );
            engine.finish().await;
        });
    }
}

/// The answer to a command, but for its value.
async fn ask(engine: &mut StoreEngine, command: Command<'_>) -> Answer<'static> {
    let asked = Ask {
        now_s: 1000,
        asker: Asker::ANYBODY,
        command,
    };
    let shape = |answer: Answer<'_>| answer.with_value(Segments::EMPTY).unwrap_or(Answer::Miss);
    match engine.start(&asked, (), shape) {
        Ok(answer) => answer,
        Err(mut ticket) => poll_fn(|context| engine.fetch(&mut ticket, context, shape)).await,
    }
}

/// A backup of a damaged store has all that can be had, and says that something is missing.
#[test]
fn damage_hides_no_other_key() {
    let Harmed {
        copies,
        key,
        places,
    } = harmed();
    for (what, device) in copies {
        let store = world::open(&device, &world::options()).expect("opened");
        let mut seen = Vec::new();
        let visited = store.for_each(|visited| {
            assert_eq!(visited.value, [visited.key[0]; 1500], "{what}");
            seen.push(visited.key.to_vec());
            ControlFlow::Continue(())
        });
        let error = visited.expect_err(what);
        assert!(
            matches!(error, StoreError::Damaged { .. }),
            "{what}: {error}"
        );
        assert!(!seen.contains(&key), "{what}");
        // What shares a block with it may be lost as well.
        assert!(seen.len() >= 197, "{what}: {} of 199 others", seen.len());
        for (_, other) in &places {
            let can_be_had = store.get(other).is_ok();
            assert_eq!(can_be_had, seen.contains(other), "{what}: {other:?}");
        }
    }
}

/// A segment is full, and its header does not say yet what it holds: what has rotted in it is missed by nobody else.
#[test]
fn what_has_rotted_in_a_segment_that_is_not_closed_yet_is_told() {
    // Of the last batch all, so that nothing seems to be there, or only the end of its record; or of one before it.
    for (back, is_head) in [(0, true), (0, false), (1, true), (1, false)] {
        let what = format!("{back} before the last, its head: {is_head}");
        let mut rig = Rig::new();
        rig.settle_maintenance(usize::MAX);
        let is_sealed = |state: &State| matches!(state, State::Sealed(_));
        let mut count = 0;
        let segment = loop {
            rig.put(count, &[count as u8; 3000], 0).expect("put");
            count += 1;
            if let Some(segment) = rig.store.segments().iter().position(is_sealed) {
                break segment as u32;
            }
        };
        let mut places = Vec::new();
        let on_record = |record: store::examine::ExaminedRecord<'_>| {
            if record.segment == segment {
                places.push((record.at, record.key.to_vec()));
            }
        };
        examine(&shared(&rig.device), |_, _| (), on_record).expect("examined");
        places.sort_unstable();
        let (at, lost) = places[places.len() - 1 - back].clone();
        let sector = (at / 512 + if is_head { 0 } else { 4 }) * 512;
        let bytes = super::regions::read(&rig.device.image(), sector, 512);
        for (at, byte) in (sector..).zip(bytes) {
            let bits = (0..8).filter(|bit| byte >> bit & 1 == 1);
            bits.for_each(|bit| rig.device.flip_bit(at, bit));
        }
        let mut seen = Vec::new();
        let session = rig.session.clone();
        let visited = rig.finish(pin!(session.for_each(|visited| {
            seen.push(visited.key.to_vec());
            ControlFlow::Continue(())
        })));
        assert!(
            matches!(visited, Err(StoreError::Damaged { .. })),
            "{what}: {visited:?}"
        );
        for key in (0..count).map(key).filter(|key| *key != lost) {
            assert!(seen.contains(&key), "{what}: {key:?} is hidden");
        }
    }
}
