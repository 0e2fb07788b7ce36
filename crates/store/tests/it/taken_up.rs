//! Records that outlive many segments, each newer than the last, when what they are moved to is a fraction of a
//! segment: a few keys are changed again and again, and between them stand others that stay.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use block::sim::{SimConfig, SimDevice};
use block::{Device, Disk};
use engine::{Answer, Ask, Asker, Command, Engine, NoBudget, OwnedAnswer};
use store::examine::examine;
use store::format::segment::Kind;
use store::{Options, Recovery, Store, StoreEngine, StoreError};

use super::rig::{LEN, Rig, SEGMENT, key, poll};
use super::world::World;

/// Six of these and a short one fill a segment.
const LONG: usize = 9800;
/// Keys that are changed again and again.
const CHANGING: std::ops::Range<u32> = 900..906;
/// As many keys fill a segment each time, and stay; but the first is changed later.
const GROUPS: [u32; 3] = [100, 110, 120];
const GROUP: u32 = 6;

/// What the keys have that are not changed any more.
type Expected = BTreeMap<u32, Option<Vec<u8>>>;

/// Changes the keys that change, once: about a segment of records.
fn change(rig: &mut Rig, round: u32) {
    for i in CHANGING {
        rig.put(i, &vec![round as u8; LONG], 0).expect("put");
        rig.settle_maintenance(usize::MAX);
    }
}

/// A store that has given many segments up, each for the sake of a record or two. `look` is shown it after
/// each round.
fn aged(mut look: impl FnMut(&Rig, &Expected)) -> (Rig, Expected) {
    let mut rig = Rig::new();
    let mut expected = Expected::new();
    let put = |rig: &mut Rig, expected: &mut Expected, i: u32, value: Vec<u8>| {
        rig.put(i, &value, 0).expect("put");
        expected.insert(i, Some(value));
    };
    for round in 0..36 {
        match round {
            // The mover has opened a segment by now.
            13..=15 => {
                let first = GROUPS[round as usize - 13];
                for i in first..first + GROUP {
                    put(&mut rig, &mut expected, i, vec![i as u8; LONG]);
                }
            }
            17..=18 => {
                let first = GROUPS[round as usize - 17];
                put(&mut rig, &mut expected, first, vec![first as u8; 70]);
            }
            19 => {
                let session = rig.session.clone();
                let deleted = rig.finish(pin!(session.delete(&key(GROUPS[2]))));
                assert!(deleted.expect("deleted"), "it was there");
                expected.insert(GROUPS[2], None);
            }
            _ => put(&mut rig, &mut expected, round, vec![round as u8; 100]),
        }
        change(&mut rig, round);
        look(&rig, &expected);
    }
    assert!(rig.store.stats().collected > 15);
    assert!(rig.store.stats().moved > 15);
    (rig, expected)
}

/// A record or tombstone that was moved: its key, and where it is on the device.
struct Moved {
    key: u32,
    at: u64,
}

/// What was moved. All of it stands in segments that are newer than what they have taken up.
fn moved(rig: &Rig) -> Vec<Moved> {
    let image = SimDevice::with_image(SimConfig::new(2, LEN), rig.device.image());
    let device: Arc<dyn Device> = Arc::new(image);
    let mut records = Vec::new();
    let examined = examine(
        &device,
        |_, _| (),
        |record| {
            let number = std::str::from_utf8(&record.key[4..]).expect("a number");
            let key = number.parse().expect("a number");
            let at = record.at;
            records.push((record.segment, record.version, Moved { key, at }));
        },
    );
    let examined = examined.expect("a store");
    let header = |segment| {
        let mut of_number = examined.segments.iter().filter(|s| s.segment == segment);
        let found = of_number.next().expect("a segment in use");
        found.header.expect("a whole header")
    };
    let mut moved = Vec::new();
    for (segment, version, record) in records {
        let header = header(segment);
        let layout = examined.superblock.layout;
        assert!(
            version < layout.version(header.seq + 1, 0),
            "key {} is newer than its segment",
            record.key
        );
        if header.kind == Kind::Moved {
            assert!(
                version < layout.version(header.seq, 0),
                "key {} was moved to what is older",
                record.key
            );
            moved.push(record);
        }
    }
    moved
}

#[test]
fn records_come_to_segments_that_are_newer_than_theirs() {
    let mut most = 0;
    let (..) = aged(|rig, _| most = most.max(moved(rig).len()));
    assert!(most > 10, "{most} records of a store were moved");
}

/// What a visit of all keys sees while others are changed: so many changes after each of its steps, or
/// all of them at one.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Always(u32),
    At { step: u32, rounds: u32 },
}

/// Visits all keys, and says whether the visit had come to the step.
fn visit(meanwhile: Meanwhile) -> bool {
    let (mut rig, expected) = aged(|_, _| ());
    let session = rig.session.clone();
    let seen = RefCell::new(BTreeMap::new());
    let mut visit = pin!(session.for_each(|visited| {
        let mut seen = seen.borrow_mut();
        seen.insert(visited.key.to_vec(), visited.value.to_vec());
        ControlFlow::Continue(())
    }));
    let mut changing = CHANGING.cycle();
    let mut has_come = false;
    for number in 0.. {
        if let Poll::Ready(visited) = poll(visit.as_mut()) {
            visited.expect("visited");
            break;
        }
        match meanwhile {
            Meanwhile::Always(changes) => {
                for i in changing.by_ref().take(changes as usize) {
                    rig.put(i, &[number as u8; LONG], 0).expect("put");
                    rig.settle_maintenance(usize::MAX);
                }
            }
            Meanwhile::At { step, rounds } if step == number => {
                (0..rounds).for_each(|round| change(&mut rig, round));
                has_come = true;
            }
            Meanwhile::At { .. } => {}
        }
        session.disk().poll();
    }
    for (i, value) in &expected {
        let seen = seen.borrow();
        let found = seen.get(&key(*i));
        assert_eq!(found, value.as_ref(), "{meanwhile:?}, key {i}");
    }
    has_come
}

#[test]
fn a_visit_sees_what_stays_whatever_is_moved_meanwhile() {
    for changes in 1..=6 {
        visit(Meanwhile::Always(changes));
    }
    for rounds in [1, 3, 12] {
        let steps = (0..).take_while(|&step| visit(Meanwhile::At { step, rounds }));
        assert!(steps.count() > 5, "a step for each segment");
    }
}

/// The device with a bit of a record flipped, or the record's first sector zero.
fn rotten(rig: &Rig, at: u64, is_bit: bool) -> SimDevice {
    let mut image = rig.device.image();
    let sector = at / 512 * 512;
    let mut bytes = [0; 512];
    image.read(sector, &mut bytes);
    if is_bit {
        bytes[(at - sector) as usize] ^= 4;
    } else {
        bytes.fill(0);
    }
    image.write(sector, &bytes);
    SimDevice::with_image(SimConfig::new(2, LEN), image)
}

/// Rot in what was moved is an error after a crash, or the key's right value if what rots was not its
/// newest record; never one that it had before.
fn judge_rot(rig: &Rig, expected: &Expected, record: &Moved, is_bit: bool) {
    // In the middle of a record that is shorter than this there is its key.
    let at = record.at + if is_bit { 5 } else { 0 };
    let device: Arc<dyn Device> = Arc::new(rotten(rig, at, is_bit));
    let (store, _) = Store::unmaintained(device, &rig.options).expect("recovered");
    let is_told = matches!(store.recovery(), Recovery::Log { damaged: 1.., .. });
    assert!(is_told, "{:?}", store.recovery());
    for (i, value) in expected {
        match store.get(&key(*i)) {
            Err(StoreError::Damaged { .. } | StoreError::MaybeOld { .. }) => {}
            // Of a sector that is zero nobody knows whose records stood there.
            Ok(None) if !is_bit => {}
            found => {
                let found = found.expect("got");
                assert!(
                    found == *value,
                    "key {i}, one bit {is_bit}, of key {}: {:?}",
                    record.key,
                    found.map(|found| found.len())
                );
            }
        }
    }
}

#[test]
fn rot_in_what_was_moved_shows_nothing_older_after_a_crash() {
    let mut tried = 0;
    let mut collected = 0;
    let mut judge_all = |rig: &Rig, expected: &Expected, is_due: fn(u32) -> bool| {
        let moved = moved(rig);
        for record in moved.iter().filter(|record| is_due(record.key)) {
            for is_bit in [true, false] {
                judge_rot(rig, expected, record, is_bit);
                tried += 1;
            }
        }
    };
    let (rig, expected) = aged(|rig, expected| {
        let now = rig.store.stats().collected;
        if std::mem::replace(&mut collected, now) != now {
            judge_all(rig, expected, |i| GROUPS.contains(&i));
        }
    });
    judge_all(&rig, &expected, |_| true);
    assert!(tried > 60, "{tried} records were damaged");
}

/// A flush of all keys beside a collector that moves them.
#[test]
fn a_flush_misses_nothing_that_is_moved_meanwhile() {
    let mut options = Options::default();
    options.segment_bytes = Some(SEGMENT);
    options.seed = Some(5);
    let device = SimDevice::new(SimConfig::new(1, LEN));
    let (store, maintenance) =
        Store::unmaintained(Arc::new(device.clone()), &options).expect("a store");
    let disk = Disk::open(&device, 32).expect("a queue");
    let mut core = rt::Core::new(rt::Config::default()).expect("a core");
    let handle = core.handle();
    core.block_on(async {
        handle.register_poller(disk.poller()).detach();
        drop(handle.spawn(maintenance.run(disk.clone())));
        let session = store.session_on(&handle).expect("a session");
        let mut engine =
            StoreEngine::new(session.clone(), handle.clone(), 4000, Arc::new(NoBudget));
        for turn in 0..24_u32 {
            let stays = 0..30;
            for i in stays.clone() {
                session.put(&key(i), &[i as u8; 100]).await.expect("put");
                for other in CHANGING {
                    session.put(&key(other), &[7; LONG]).await.expect("put");
                }
            }
            let is_over = Rc::new(Cell::new(false));
            let (changing, ended) = (session.clone(), Rc::clone(&is_over));
            let beside = handle.spawn(async move {
                for i in CHANGING.cycle() {
                    if ended.get() {
                        break;
                    }
                    changing.put(&key(i), &[8; LONG]).await.expect("put");
                }
            });
            let ask = Ask {
                now_s: 1,
                asker: Asker {
                    connection: 1,
                    room: 100,
                },
                command: Command::FlushAll { at_s: 0 },
            };
            let mut ticket = engine.start(&ask, (), |_| ()).expect_err("a ticket");
            let answer =
                poll_fn(|context| engine.fetch(&mut ticket, context, OwnedAnswer::new)).await;
            assert!(matches!(answer.answer(), Answer::Done), "turn {turn}");
            is_over.set(true);
            beside.await.expect("it puts");
            for i in stays {
                let found = session.get(&key(i)).await.expect("got");
                assert!(found.is_none(), "turn {turn}: key {i} was not deleted");
            }
        }
    });
    drop((core, handle));
    store.close().expect("closed");
}

/// Both headers of any segment are lost, in use or free: what stands in it may be of its last use, and be gone
/// since. In a cache that takes no tombstones with it.
#[test]
fn two_lost_headers_bring_nothing_back() {
    let mut options = super::world::options();
    options.cache = true;
    let device = super::world::blank(1, 12);
    let mut world = World::open(&device, &options, 1).expect("a store");
    let session = world.sessions[0].clone();
    let mut doubted = 0;
    for i in 0..120 {
        let put = world.finish(session.put(&key(i), &[i as u8; LONG]));
        put.expect("it ends").expect("put");
        world.rest();
        if i < 90 || i % 5 > 0 {
            continue;
        }
        let gone = |i: &u32| world.store.get(&key(*i)).expect("got").is_none();
        let gone: Vec<u32> = (0..i).filter(gone).collect();
        let layout = world.store.superblock().layout;
        for segment in 0..layout.segments {
            let mut image = device.image();
            for block in [0, layout.copy_block()] {
                let at = layout.block_at(segment, block);
                image.write(at, &vec![0; layout.block()]);
            }
            let device = super::world::with_image(1, image);
            // What was told is told again.
            for opening in 0..2 {
                let store = super::world::open(&device, &options).expect("recovered");
                for i in &gone {
                    match store.get(&key(*i)) {
                        Ok(None) => {}
                        Err(StoreError::MaybeOld { .. }) => doubted += 1,
                        found => panic!(
                            "segment {segment}, opening {opening}: key {i} is back: {:?}",
                            found.map(|found| found.map(|found| found.len()))
                        ),
                    }
                }
                let is_told = matches!(store.recovery(), Recovery::Log { damaged: 2.., .. });
                assert!(is_told, "{:?}", store.recovery());
            }
        }
    }
    assert!(doubted > 0, "what is gone stands in a free segment");
}
