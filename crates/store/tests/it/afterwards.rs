//! What comes after the first thing that went wrong: another opening after one that has found damage, writes
//! after one that failed, a write that ends when its session has gone.
//!
//! `VERVAIN_STORE_SEEDS=FROM..TO` runs other seeds than the usual few.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use block::sim::{Kind, Loss, SimDevice};
use block::{BlockError, Device, Disk, Done, Geometry, Op, Queue, Region, Request};
use fastrand::Rng;
use rt::Arm;
use rustix::io::Errno;
use store::examine::{Examined, ExaminedSegment, examine};
use store::format::batch::BATCH_HEADER_LEN;
use store::format::record::{Meta, Record};
use store::format::segment::{Kind as SegmentKind, SegmentHeader, SegmentState};
use store::{Options, Recovery, State, Store, StoreError};

use super::allowed::{Allowed, NOW};
use super::cases::{Cases, seeds};
use super::loss::{SEVERAL, USUAL, spread};
use super::regions::{read, records_of_open_segments};
use super::world::{Task, World, blank, judge_all, open, options, shared, value, with_image};

const SECTOR: u64 = 512;

fn told(error: StoreError) -> String {
    error.to_string()
}

/// What is shown of keys: what they may have, or that it is damaged.
fn right_or_damaged<'k>(
    store: &Store,
    keys: impl IntoIterator<Item = &'k [u8]>,
    allowed: &Allowed,
    event: u64,
) -> Result<(), String> {
    for key in keys {
        match store.get(key) {
            Ok(found) => allowed.judge(key, found.as_deref(), event)?,
            Err(StoreError::Damaged { .. } | StoreError::MaybeOld { .. }) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// The last record of each segment that is open, and one of the others.
fn picked(device: &SimDevice, random: &mut Rng) -> Vec<std::ops::Range<u64>> {
    let segments = records_of_open_segments(device);
    let mut picked = Vec::new();
    for records in &segments {
        picked.extend(records.last().cloned());
        picked.extend(random.choice(records).cloned());
    }
    picked
}

/// Writes until all segments but those that are set aside have been used again.
fn churn(device: &SimDevice, options: &Options) -> Result<(), String> {
    let mut world = World::open(device, options, 1).map_err(told)?;
    let session = world.sessions[0].clone();
    for i in 0..40 {
        let key = format!("other {}", i % 3).into_bytes();
        let put = world.finish(session.put(&key, &value(&key, i, 19_000)))?;
        match put {
            Ok(_) => {}
            // With a segment set aside there may be no room for more.
            Err(StoreError::Full) => break,
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// A record is lost after a crash, and opening says so. It says so again when it is cut short, when it is
/// repeated, and when every header that knew has been written anew.
fn told_again(seed: u64) -> Result<usize, String> {
    let life = SEVERAL;
    let (world, allowed) = life.live(seed)?;
    let device = world.device.clone();
    drop(world);
    let mut random = Rng::with_seed(seed);
    let mut count = 0;
    for snapshot in spread(device.take_snapshots(), 16) {
        let image = snapshot.after(Loss::All);
        for place in picked(&with_image(1, image.clone()), &mut random) {
            let at = format!("event {}, a sector of {place:?}", snapshot.event());
            let at = |error: String| format!("{at}: {error}");
            let mut damaged = image.clone();
            let sector = random.u64(place) / SECTOR * SECTOR;
            damaged.write(sector, &[0; SECTOR as usize]);
            let device = with_image(1, damaged);
            device.record();
            let store = open(&device, &life.options()).map_err(told).map_err(at)?;
            let lost: Vec<&[u8]> = allowed
                .keys()
                .filter(|key| store.get(key).is_err())
                .collect();
            drop(store);
            if lost.is_empty() {
                // It was taken for a write that was cut short.
                continue;
            }
            count += 1;
            let judge = |device: &SimDevice| {
                let store = open(device, &life.options()).map_err(told)?;
                right_or_damaged(&store, lost.iter().copied(), &allowed, snapshot.event())
            };
            for cut in spread(device.take_snapshots(), 3) {
                let loss = Loss::Some(random.u64(..));
                judge(&with_image(2, cut.after(loss)))
                    .map_err(|error| at(format!("cut at {}, {loss:?}: {error}", cut.event())))?;
            }
            judge(&device).map_err(|error| at(format!("again: {error}")))?;
            churn(&device, &life.options()).map_err(at)?;
            judge(&device).map_err(|error| at(format!("after more: {error}")))?;
        }
    }
    Ok(count)
}

#[test]
fn damage_that_was_told_once_is_told_again() {
    let mut cases = Cases::of("afterwards");
    for seed in seeds(0..2) {
        cases.run("damage", || {
            let count = told_again(seed).map_err(|error| format!("seed {seed}, {error}"))?;
            if count < 10 {
                return Err(format!("seed {seed}: only {count} records were missed"));
            }
            Ok(())
        });
    }
    cases.end();
}

/// A block cannot be read after a crash, wherever it is: nothing older is shown. If it can be read later,
/// nothing is lost.
fn unreadable_once(seed: u64) -> Result<(), String> {
    let life = SEVERAL;
    let (world, allowed) = life.live(seed)?;
    let device = world.device.clone();
    drop(world);
    let mut random = Rng::with_seed(seed);
    for snapshot in spread(device.take_snapshots(), 60) {
        let image = snapshot.after(Loss::All);
        for place in picked(&with_image(1, image.clone()), &mut random) {
            let at = format!("event {}, a sector of {place:?}", snapshot.event());
            let at = |error: String| format!("{at}: {error}");
            let device = with_image(1, image.clone());
            device.make_unreadable(random.u64(place), 1);
            let store = open(&device, &life.options()).map_err(told).map_err(at)?;
            // Of one that had no other value nobody knows, but that something is lost.
            let is_told = matches!(store.recovery(), Recovery::Log { damaged: 1.., .. });
            for key in allowed.keys() {
                match store.get(key) {
                    Ok(None) if is_told => {}
                    Ok(found) => {
                        let judged = allowed.judge(key, found.as_deref(), snapshot.event());
                        judged.map_err(at)?;
                    }
                    Err(_) => {}
                }
            }
            drop(store);
            let device = with_image(1, device.image());
            let store = open(&device, &life.options()).map_err(told).map_err(at)?;
            judge_all(&store, &allowed, snapshot.event(), false)
                .map_err(|error| at(format!("readable again: {error}")))?;
            if let Recovery::Log { damaged: 1.., .. } = store.recovery() {
                return Err(at("readable again, and damage is told".to_owned()));
            }
        }
    }
    Ok(())
}

#[test]
fn a_block_that_cannot_be_read_once_hides_nothing_and_costs_nothing_later() {
    let mut cases = Cases::of("afterwards");
    for seed in seeds(0..2) {
        cases.run("unreadable", || {
            unreadable_once(seed).map_err(|error| format!("seed {seed}, {error}"))
        });
    }
    cases.end();
}

/// A write fails; what is written after it is missed nevertheless when it is lost.
fn after_a_failed_write(seed: u64) -> Result<(), String> {
    let mut random = Rng::with_seed(seed);
    let device = blank(seed, 10);
    let mut world = World::open(&device, &options(), 1).map_err(told)?;
    let session = world.sessions[0].clone();
    let mut allowed = Allowed::default();
    let mut put = |world: &mut World, i: u32, number: u32, fails: bool| {
        let key = format!("key {i}").into_bytes();
        let new = value(&key, number, 900);
        allowed.begin(&key, Some(&new), device.events());
        if fails {
            device.fail(Kind::Write, 0, Errno::IO);
        }
        match (world.finish(session.put(&key, &new))?, fails) {
            (Ok(_), _) => allowed.acknowledge(&key, device.events()),
            (Err(_), true) => {}
            (Err(error), false) => return Err(error.to_string()),
        }
        Ok::<_, String>(())
    };
    for i in 0..random.u32(8..16) {
        put(&mut world, i % 8, 0, false)?;
    }
    put(&mut world, 8, 0, true)?;
    for i in 0..8 {
        put(&mut world, i, 1, false)?;
    }
    // What was acknowledged last of all is known to nobody else.
    let lost = format!("key {}", random.u32(..7)).into_bytes();
    drop(world);
    let mut image = device.snapshot().after(Loss::All);
    let mut places = Vec::new();
    let on_record = |record: store::examine::ExaminedRecord<'_>| {
        if record.key == lost {
            places.push((record.version, record.at));
        }
    };
    examine(&shared(&with_image(1, image.clone())), |_, _| (), on_record).map_err(told)?;
    let (_, at) = places.into_iter().max().expect("it was written");
    image.write(at / SECTOR * SECTOR, &[0; SECTOR as usize]);
    let store = open(&with_image(1, image), &options()).map_err(told)?;
    right_or_damaged(&store, allowed.keys(), &allowed, NOW)
}

#[test]
fn what_follows_a_failed_write_is_missed_when_it_is_lost() {
    let mut cases = Cases::of("afterwards");
    for seed in seeds(0..6) {
        cases.run("a failed write", || {
            after_a_failed_write(seed).map_err(|error| format!("seed {seed}: {error}"))
        });
    }
    cases.end();
}

/// A device one of whose queues may be told to keep its writes to itself for a while, and that notes where it
/// was written to.
#[derive(Clone)]
struct Reluctant {
    device: SimDevice,
    /// Whether the queue that is opened next is the one.
    is_next: Arc<AtomicBool>,
    keeps: Arc<AtomicBool>,
    written: Arc<Mutex<Vec<u64>>>,
}

struct ReluctantQueue {
    queue: Box<dyn Queue>,
    of: Reluctant,
    may_keep: bool,
    kept: Vec<Request>,
}

impl Reluctant {
    fn new(device: &SimDevice) -> Self {
        Self {
            device: device.clone(),
            is_next: Arc::default(),
            keeps: Arc::default(),
            written: Arc::default(),
        }
    }
}

impl Device for Reluctant {
    fn name(&self) -> Arc<str> {
        self.device.name()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, BlockError> {
        Ok(Box::new(ReluctantQueue {
            queue: self.device.queue(depth)?,
            of: self.clone(),
            may_keep: self.is_next.swap(false, Ordering::Relaxed),
            kept: Vec::new(),
        }))
    }
}

// SAFETY: the pointers in it are of requests that it has not passed on yet.
unsafe impl Send for ReluctantQueue {}

// SAFETY: every request goes to the simulated device's queue as it came, some of them later.
unsafe impl Queue for ReluctantQueue {
    unsafe fn submit(&mut self, requests: &[Request]) {
        let is_write = |request: &&Request| matches!(request.op, Op::Write(_));
        let writes = requests.iter().filter(is_write).map(|request| request.at);
        self.of.written.lock().expect("not poisoned").extend(writes);
        if self.may_keep && self.of.keeps.load(Ordering::Relaxed) {
            self.kept.extend_from_slice(requests);
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { self.queue.submit(requests) };
    }

    fn poll(&mut self, done: &mut [Done]) -> usize {
        if !self.of.keeps.load(Ordering::Relaxed) && !self.kept.is_empty() {
            let kept = std::mem::take(&mut self.kept);
            // SAFETY: the promise of `submit`'s caller, which holds until the requests end.
            unsafe { self.queue.submit(&kept) };
        }
        self.queue.poll(done)
    }

    fn arm(&mut self) -> Arm<'_> {
        self.queue.arm()
    }

    fn disarm(&mut self) {
        self.queue.disarm();
    }

    unsafe fn register(&mut self, memory: *mut u8, len: usize) -> Option<Region> {
        // SAFETY: the caller's promise.
        unsafe { self.queue.register(memory, len) }
    }
}

/// A session goes while its write is on the device's way, and the write ends much later: no segment is given up before.
fn a_late_write(seed: u64) -> Result<(), String> {
    let mut random = Rng::with_seed(seed);
    let device = blank(seed, 64);
    let reluctant = Reluctant::new(&device);
    let shared: Arc<dyn Device> = Arc::new(reluctant.clone());
    let mut world = World::on(&device, shared, &options(), 1).map_err(told)?;
    let mut allowed = Allowed::default();
    let put = |world: &mut World, allowed: &mut Allowed, i: u32, number: u32, len: usize| {
        let session = world.sessions[0].clone();
        let key = format!("key {i}").into_bytes();
        let new = value(&key, number, len);
        allowed.begin(&key, Some(&new), 0);
        world.finish(session.put(&key, &new))?.map_err(told)?;
        allowed.acknowledge(&key, 0);
        Ok::<_, String>(())
    };
    for i in 0..8 {
        put(&mut world, &mut allowed, i, 0, 3000)?;
    }
    // Another session, whose write nobody sees end.
    reluctant.is_next.store(true, Ordering::Relaxed);
    let session = world.store.session().map_err(told)?;
    reluctant.keeps.store(true, Ordering::Relaxed);
    let late: Disk = session.disk().clone();
    let (key, new) = (
        b"key 3".to_vec(),
        value(b"key 3", 1, random.usize(..20_000)),
    );
    allowed.begin(&key, Some(&new), 0);
    let mut cx = Context::from_waker(Waker::noop());
    {
        let driven = session.clone();
        let mut driver: Pin<Box<dyn Future<Output = ()>>> =
            Box::pin(async move { driven.drive().await });
        let mut put = pin!(session.put(&key, &new));
        assert!(put.as_mut().poll(&mut cx).is_pending());
        assert!(driver.as_mut().poll(&mut cx).is_pending());
        late.poll();
    }
    drop(session);
    if late.is_idle() {
        return Err("nothing is under way".to_owned());
    }
    let mut change = |world: &mut World, allowed: &mut Allowed, number| {
        let i = [0, 1, 2, 4, 5][random.usize(..5)];
        put(world, allowed, i, number, random.usize(..19_000))
    };
    let free = |world: &World| {
        let states = world.store.segments();
        states.iter().filter(|s| **s == State::Free).count()
    };
    let mut numbers = 2..;
    // With 4 the maintenance wants to give segments up.
    while free(&world) > 3 {
        let number = numbers.next().expect("no end");
        change(&mut world, &mut allowed, number)?;
    }
    if world.store.stats().collected > 0 {
        return Err("a segment was given up".to_owned());
    }
    reluctant.keeps.store(false, Ordering::Relaxed);
    while !late.is_idle() {
        late.poll();
    }
    for number in numbers.take(200) {
        change(&mut world, &mut allowed, number)?;
    }
    judge_all(&world.store, &allowed, NOW, false)?;
    world.rest();
    drop(late);
    let crashed = with_image(1, device.snapshot().after(Loss::All));
    let store = open(&crashed, &options()).map_err(told)?;
    judge_all(&store, &allowed, NOW, false).map_err(|error| format!("after a crash: {error}"))
}

#[test]
fn a_write_that_ends_when_its_session_has_gone_harms_nobody() {
    let mut cases = Cases::of("afterwards");
    for seed in seeds(0..6) {
        cases.run("a late write", || {
            a_late_write(seed).map_err(|error| format!("seed {seed}: {error}"))
        });
    }
    cases.end();
}

/// After a crash between the moving of a record and the end of what it was moved from, both are there. One
/// of them is enough.
fn copies(seed: u64) -> Result<usize, String> {
    let (world, allowed) = USUAL.live(seed)?;
    let device = world.device.clone();
    drop(world);
    let mut random = Rng::with_seed(seed);
    let mut count = 0;
    for snapshot in device.take_snapshots().into_iter().step_by(3) {
        let image = snapshot.after(Loss::None);
        let mut places: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let on_record = |record: store::examine::ExaminedRecord<'_>| {
            if record.meta.tombstone.is_none() && record.value_len > 0 {
                let encoded = Record {
                    meta: record.meta,
                    key: record.key,
                    value: &vec![0; record.value_len],
                };
                let len = encoded.encoded_len() as u64;
                let of_key = places.entry((record.key.to_vec(), record.version));
                of_key.or_default().push((record.at, len));
            }
        };
        examine(&shared(&with_image(1, image.clone())), |_, _| (), on_record).map_err(told)?;
        let mut newest = BTreeMap::new();
        for ((key, version), places) in places {
            newest.insert(key, (version, places));
        }
        let twice: Vec<_> = newest
            .into_iter()
            .filter(|(_, (_, places))| places.len() > 1)
            .collect();
        let Some((key, (_, places))) = random.choice(twice) else {
            continue;
        };
        for (at, len) in places {
            let mut damaged = image.clone();
            let last = at + len - 1;
            let byte = read(&damaged, last, 1)[0];
            damaged.write(last, &[byte ^ 1 << random.u32(..8)]);
            let store = open(&with_image(1, damaged), &options()).map_err(told)?;
            let shown = store.get(&key).map_err(|error| {
                let key = String::from_utf8_lossy(&key);
                format!("event {}, key {key}: {error}", snapshot.event())
            })?;
            allowed.judge(&key, shown.as_deref(), snapshot.event())?;
            count += 1;
        }
    }
    Ok(count)
}

#[test]
fn of_a_record_and_its_copy_one_is_enough() {
    let mut cases = Cases::of("afterwards");
    let mut count = 0;
    for seed in seeds(0..2) {
        cases.run("copies", || {
            count += copies(seed).map_err(|error| format!("seed {seed}: {error}"))?;
            Ok(())
        });
    }
    cases.end();
    assert!(count > 4, "{count} copies");
}

/// Of two headers of a segment the damaged one is written anew, and the other one not before that.
#[test]
fn a_damaged_header_is_mended_before_its_twin_is_written() {
    let mut cases = Cases::of("afterwards");
    let (world, allowed) = SEVERAL.live(5).expect("it works");
    let device = world.device.clone();
    drop(world);
    let image = device.snapshot().after(Loss::All);
    let layout = examine(&shared(&with_image(1, image.clone())), |_, _| (), |_| ())
        .expect("a store")
        .superblock
        .layout;
    for segment in 0..layout.segments {
        let places = [0, layout.copy_block()].map(|block| layout.block_at(segment, block));
        for (bad, good) in [(places[0], places[1]), (places[1], places[0])] {
            cases.run("a header", || {
                let mut damaged = image.clone();
                damaged.write(bad, &[0; SECTOR as usize]);
                let device = with_image(1, damaged);
                let noted = Reluctant::new(&device);
                let shared: Arc<dyn Device> = Arc::new(noted.clone());
                let (store, _) = Store::unmaintained(shared, &options()).map_err(told)?;
                judge_all(&store, &allowed, NOW, false)
                    .map_err(|error| format!("segment {segment}: {error}"))?;
                let written = noted.written.lock().expect("not poisoned");
                let first = |place| written.iter().position(|&at| at == place);
                match (first(bad), first(good)) {
                    (Some(bad), Some(good)) if good < bad => Err(format!(
                        "segment {segment}: the only whole header is written"
                    )),
                    (None, _) => Err(format!("segment {segment}: it is not mended")),
                    _ => Ok(()),
                }
            });
        }
    }
    cases.end();
}

/// A value such that the next record of a batch begins a sector.
fn to_sector(key: &[u8], sectors: usize) -> Vec<u8> {
    let end = |len| {
        let record = Record {
            meta: Meta::default(),
            key,
            value: &vec![1; len],
        };
        (BATCH_HEADER_LEN + record.encoded_len()).next_multiple_of(4)
    };
    let wanted = sectors * SECTOR as usize;
    let len = (0..wanted).find(|&len| end(len) == wanted);
    vec![1; len.expect("a length for each end")]
}

/// A crash cuts a batch short before another one that is whole. What is left of it stands for nothing that is lost
/// later.
#[test]
fn what_a_crash_cut_short_does_not_make_up_for_what_is_lost_later() {
    let device = blank(1, 10);
    let mut world = World::open(&device, &options(), 2).expect("a store");
    let sessions = world.sessions.clone();
    let old = world.finish(sessions[0].put(b"b2", b"old"));
    old.expect("it ends").expect("put");
    world.rest();
    // Two batches at the same time, of two records each.
    let first = [b"a1", b"b1"].map(|key| to_sector(key, 3));
    let both = |i: usize, keys: [&'static [u8; 2]; 2]| {
        let (session, first) = (sessions[i].clone(), first[i].clone());
        let other = sessions[i].clone();
        let one: Task<'static> = Box::pin(async move {
            session.put(keys[0], &first).await.expect("put");
        });
        let two: Task<'static> = Box::pin(async move {
            other.put(keys[1], &[2; 300]).await.expect("put");
        });
        [one, two]
    };
    let mut tasks: Vec<Task<'_>> = Vec::new();
    tasks.extend(both(0, [b"a1", b"a2"]));
    tasks.extend(both(1, [b"b1", b"b2"]));
    world.run(tasks).expect("they end");
    assert_eq!(world.store.stats().batches, 3);
    drop((world, sessions));
    let mut places = BTreeMap::new();
    let on_record = |record: store::examine::ExaminedRecord<'_>| {
        places.insert(record.key.to_vec(), record.at);
    };
    let mut image = device.snapshot().after(Loss::All);
    examine(&shared(&with_image(1, image.clone())), |_, _| (), on_record).expect("a store");
    let place = |key: &[u8; 2]| places[&key[..]] / SECTOR * SECTOR;
    assert!(place(b"a1") < place(b"a2") && place(b"a2") < place(b"b1"));
    assert_eq!(places[&b"b2"[..]], place(b"b2"), "it begins a sector");
    image.write(place(b"a1"), &[0; SECTOR as usize]);
    let device = with_image(1, image);
    let store = open(&device, &options()).expect("recovered");
    let is_torn = |recovery| {
        matches!(
            recovery,
            Recovery::Log {
                damaged: 0,
                torn: 1,
                ..
            }
        )
    };
    assert!(is_torn(store.recovery()), "{:?}", store.recovery());
    assert_eq!(store.get(b"a2").expect("got"), None);
    assert!(
        store
            .get(b"b2")
            .expect("got")
            .is_some_and(|new| new == [2; 300])
    );
    drop(store);
    let mut image = device.image();
    image.write(place(b"b2"), &[0; SECTOR as usize]);
    let device = with_image(1, image);
    let examined = examine(&shared(&device), |_, _| (), |_| ()).expect("a store");
    assert!(!examined.is_sound(), "nobody misses a record");
    let store = open(&device, &options()).expect("recovered");
    let found = store.get(b"b2");
    assert!(
        matches!(
            found,
            Err(StoreError::Damaged { .. } | StoreError::MaybeOld { .. })
        ),
        "{found:?}"
    );
    let found = store.get(b"a2");
    assert!(!matches!(found, Ok(Some(_))), "what was cut short is back");
}

/// Neither header of a segment can be read that held an index and was free since. Nothing of the log is lost with it, and
/// it serves again.
#[test]
fn a_segment_of_an_index_whose_headers_are_lost_serves_again() {
    const KEYS: u8 = 50;
    let device = blank(1, 10);
    let put_all = |world: &mut World, count: usize, with: u8| {
        let session = world.sessions[0].clone();
        for i in (0..KEYS).cycle().take(count) {
            let put = world.finish(session.put(&[i], &vec![with; 6000]));
            put.expect("it ends").expect("put");
            world.rest();
        }
    };
    let mut world = World::open(&device, &options(), 1).expect("a store");
    put_all(&mut world, 120, 1);
    world.close().expect("closed");
    let examine =
        |device: &SimDevice| examine(&shared(device), |_, _| (), |_| ()).expect("a store");
    let examined = examine(&device);
    let kind = |examined: &Examined, segment| {
        let of_number = |found: &&ExaminedSegment| found.segment == segment;
        let found = examined.segments.iter().find(of_number)?;
        let used = |header: &SegmentHeader| header.state != SegmentState::Free;
        Some(found.header.ok().filter(used)?.kind)
    };
    let layout = examined.superblock.layout;
    let is_index = |segment: &u32| kind(&examined, *segment) == Some(SegmentKind::Index);
    let segment = (0..layout.segments).find(is_index).expect("an index");
    drop(open(&device, &options()).expect("opened"));
    let mut image = device.snapshot().after(Loss::All);
    for block in [0, layout.copy_block()] {
        image.write(layout.block_at(segment, block), &[0; SECTOR as usize]);
    }
    let mut used = 0;
    for count in (50..150).step_by(10) {
        let device = with_image(1, image.clone());
        let mut world = World::open(&device, &options(), 1).expect("recovered");
        let recovery = world.store.recovery();
        assert!(
            matches!(recovery, Recovery::Log { damaged: 2, .. }),
            "{recovery:?}"
        );
        put_all(&mut world, count, 2);
        world.close().expect("closed");
        let is_log = |kind| kind != SegmentKind::Index;
        used += usize::from(kind(&examine(&device), segment).is_some_and(is_log));
        let store = open(&device, &options()).expect("opened");
        assert_eq!(store.recovery(), Recovery::Closed, "{count}");
        for i in 0..KEYS {
            assert_eq!(store.get(&[i]).expect("got"), Some(vec![2; 6000]));
        }
        assert!(!store.segments().contains(&State::Retired), "{count}");
    }
    assert!(used > 0, "it was never in use");
}
