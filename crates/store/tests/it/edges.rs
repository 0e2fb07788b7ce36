//! What has ended, is full, or is about to be closed: an answer, and nothing left behind.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use block::Device;
use block::sim::{Image, Kind, Loss, SimConfig, SimDevice};
use rustix::io::Errno;
use store::examine::examine;
use store::format::record::Header;
use store::{Attributes, Options, State, Store, StoreError, Swap};

use super::regions::read;
use super::world::{Task, World, blank, open, options, shared, value, with_image};

fn key(i: u32) -> Vec<u8> {
    format!("key {i:04}").into_bytes()
}

fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Nobody drives a session whose store is closed: who asks then has to be told at once.
#[test]
fn changes_after_close_are_refused() {
    let device = blank(1, 8);
    let mut world = World::open(&device, &options(), 1).expect("a store");
    let session = world.sessions[0].clone();
    let put = world.finish(session.put(&key(1), b"value"));
    put.expect("it ends").expect("put");
    world.close().expect("closed");
    let name = key(1);
    let mut delete = pin!(session.delete(&name));
    for _ in 0..1000 {
        if let Poll::Ready(outcome) = poll(delete.as_mut()) {
            assert!(matches!(outcome, Err(StoreError::Closed)), "{outcome:?}");
            return;
        }
        session.disk().poll();
    }
    panic!("a DELETE after close hangs");
}

/// Maintenance has ended: nobody opens another segment.
#[test]
fn who_waits_for_a_segment_hears_that_the_store_is_closed() {
    let device = blank(1, 8);
    let (store, _maintenance) = Store::unmaintained(shared(&device), &options()).expect("a store");
    let session = store.session().expect("a session");
    let values: Vec<_> = (0..4).map(|i| value(&key(i), 0, 50_000)).collect();
    let outcomes = RefCell::new(Vec::new());
    let put = |i: u32| {
        let (session, outcomes, value) = (&session, &outcomes, &values[i as usize]);
        Box::pin(async move {
            let outcome = session.put(&key(i), value).await;
            outcomes.borrow_mut().push(outcome.map(drop));
        }) as Task<'_>
    };
    let mut puts: Vec<_> = (0..4).map(put).collect();
    let mut driver = pin!(session.drive());
    let mut go = |puts: &mut Vec<Task<'_>>| {
        for _ in 0..100 {
            puts.retain_mut(|put| poll(put.as_mut()).is_pending());
            let _ = poll(driver.as_mut()).is_ready();
            session.disk().poll();
        }
    };
    go(&mut puts);
    assert!(!puts.is_empty(), "the maintenance does not run");
    drop(store);
    let mut ended = false;
    for _ in 0..100 {
        puts.retain_mut(|put| poll(put.as_mut()).is_pending());
        ended = ended || poll(driver.as_mut()).is_ready();
        if ended && puts.is_empty() {
            break;
        }
        session.disk().poll();
    }
    assert!(puts.is_empty(), "{} changes hang", puts.len());
    drop(puts);
    let outcomes = outcomes.into_inner();
    let is_closed = |outcome: &&Result<(), StoreError>| matches!(outcome, Err(StoreError::Closed));
    assert!(
        outcomes.iter().any(|outcome| is_closed(&outcome)),
        "{outcomes:?}"
    );
}

/// A core that ends while a write of its session is under way lets go of the device, and nobody waits for it. When its segment
/// is given up: `orphans.rs`.
#[test]
fn a_core_that_goes_in_the_middle_of_a_write_leaves_nothing_behind() {
    let device: Arc<dyn Device> = Arc::new(blank(1, 8));
    let held = Arc::downgrade(&device);
    let (store, maintenance) = Store::unmaintained(device, &options()).expect("a store");
    {
        let session = store.session().expect("a session");
        let mut put = pin!(session.put(b"key", b"value"));
        assert!(poll(put.as_mut()).is_pending());
        // The write begins, and nobody sees its end.
        assert!(poll(pin!(session.drive())).is_pending());
    }
    drop(maintenance);
    store.close().expect("closed without waiting for anybody");
    assert!(held.upgrade().is_none(), "somebody holds the device");
}

/// A value that takes the place of one as long needs no room in the end.
#[test]
fn a_full_store_takes_values_over_as_long_ones() {
    let device = blank(1, 12);
    let mut world = World::open(&device, &options(), 1).expect("a store");
    let session = world.sessions[0].clone();
    let mut stored = 0;
    let mut put = |i: u32, number: u32, len: usize| {
        let new = value(&key(i), number, len);
        world.finish(session.put(&key(i), &new)).expect("it ends")
    };
    while put(stored, 0, 3000).is_ok() {
        stored += 1;
    }
    assert!(stored > 100, "{stored}");
    for round in 1..5 {
        for i in 0..stored {
            put(i, round, 3000).unwrap_or_else(|error| panic!("round {round}, key {i}: {error}"));
        }
    }
    assert!(
        matches!(put(0, 9, 6000), Err(StoreError::Full)),
        "a longer one"
    );
    assert!(
        matches!(put(stored, 9, 3000), Err(StoreError::Full)),
        "a new one"
    );
    for i in 0..stored {
        let found = world.finish(session.get(&key(i))).expect("it ends");
        let found = found.expect("got").expect("there");
        assert_eq!(found[..], value(&key(i), 4, 3000)[..]);
    }
}

/// A PUT that the index has no room for leaves no record that would come back.
#[test]
fn a_full_index_takes_its_record_back() {
    let device = blank(1, 30);
    let mut options = options();
    options.index_bytes_max = Some(160 << 10);
    let mut world = World::open(&device, &options, 1).expect("a store");
    let session = world.sessions[0].clone();
    let mut refused = None;
    for i in 0..60_000 {
        match world.finish(session.put(&key(i), b"")).expect("it ends") {
            Ok(_) => {}
            Err(StoreError::IndexFull) => {
                refused = Some(i);
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    let refused = refused.expect("the index becomes full");
    let got = world.finish(session.get(&key(refused))).expect("it ends");
    assert!(got.expect("got").is_none());
    let len = world.store.len();
    drop(world);
    let cut = with_image(1, device.snapshot().after(Loss::All));
    let store = open(&cut, &options).expect("recovered");
    assert_eq!(store.get(&key(refused)).expect("got"), None);
    assert_eq!(store.len(), len);
}

/// A PUT that the index has no room for, and that cannot read what it replaces, leaves the old value or the new one.
#[test]
fn a_full_index_deletes_nothing_that_cannot_be_read() {
    let device = blank(1, 30);
    let mut options = options();
    options.index_bytes_max = Some(160 << 10);
    let mut world = World::open(&device, &options, 1).expect("a store");
    let session = world.sessions[0].clone();
    let mut stored = 0;
    loop {
        match world
            .finish(session.put(&key(stored), b"old"))
            .expect("it ends")
        {
            Ok(_) => stored += 1,
            Err(StoreError::IndexFull) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let mut refused = Vec::new();
    for i in 0..stored {
        // Each is read twice before it counts as unreadable; more of them also fail for who goes on with the change.
        for _ in 0..2 + 2 * (i % 3) {
            device.fail(Kind::Read, 0, Errno::IO);
        }
        let put = world.finish(session.put(&key(i), b"new")).expect("it ends");
        world.rest();
        device.clear_faults();
        match put {
            Ok(_) => {}
            Err(StoreError::IndexFull) => refused.push(i),
            Err(error) => panic!("{error}"),
        }
        if refused.len() == 30 {
            break;
        }
    }
    assert!(!refused.is_empty(), "the index has room");
    let judge = |what: &str, i: u32, found: Option<&[u8]>| {
        let is_one = found
            .is_some_and(|found| [b"old", b"new"].contains(&found.try_into().expect("3 bytes")));
        assert!(is_one, "{what}, key {i}: {found:?}");
    };
    for &i in &refused {
        let got = world.finish(session.get(&key(i))).expect("it ends");
        judge("now", i, got.expect("got").as_deref());
    }
    drop(world);
    let cut = with_image(1, device.snapshot().after(Loss::All));
    let store = open(&cut, &options).expect("recovered");
    for &i in &refused {
        let got = store.get(&key(i)).expect("got");
        judge("after a crash", i, got.as_deref());
    }
}

/// The power goes before what the index has no room for is taken back: recovery takes up what the log has, and more
/// than that only if there is room.
#[test]
fn a_store_whose_index_is_full_opens_after_a_cut_at_any_moment() {
    let device = blank(1, 30);
    let mut options = options();
    options.index_bytes_max = Some(160 << 10);
    let mut world = World::open(&device, &options, 1).expect("a store");
    let session = world.sessions[0].clone();
    let mut stored = 0;
    let is_full = |put| matches!(put, Err(StoreError::IndexFull));
    loop {
        let before = device.snapshot();
        device.record();
        let put = world
            .finish(session.put(&key(stored), b""))
            .expect("it ends");
        let cuts = device.take_snapshots();
        if is_full(put) {
            let taken_back = device.snapshot();
            drop(world);
            for cut in std::iter::once(&before).chain(&cuts).chain([&taken_back]) {
                cut_with_a_full_index(cut.after(Loss::None), &options, stored);
            }
            return;
        }
        stored += 1;
    }
}

/// All keys below `stored` are there, and the next one may be. They can be changed and removed, and others stored when
/// enough have gone.
fn cut_with_a_full_index(image: Image, options: &Options, stored: u32) {
    let device = with_image(1, image);
    let mut world = World::open(&device, options, 1).expect("recovered");
    let session = world.sessions[0].clone();
    let len = world.store.len();
    assert!(
        (u64::from(stored)..=u64::from(stored) + 1).contains(&len),
        "{len} of {stored}"
    );
    let mut finish = |i: u32, new: Option<&[u8]>| {
        let change = async {
            match new {
                Some(new) => session.put(&key(i), new).await.map(drop),
                None => session.delete(&key(i)).await.map(drop),
            }
        };
        world.finish(change).expect("it ends")
    };
    for i in (0..stored).step_by(97) {
        finish(i, Some(b"new")).unwrap_or_else(|error| panic!("key {i}: {error}"));
    }
    for i in 0..=stored {
        finish(i, None).unwrap_or_else(|error| panic!("key {i}: {error}"));
    }
    for i in 0..stored / 2 {
        finish(i, Some(b"")).unwrap_or_else(|error| panic!("key {i}: {error}"));
    }
    assert_eq!(world.store.len(), u64::from(stored / 2));
    world.close().expect("closed");
}

/// The version in a long record's header has rotted. A swap that believes it replaces what it must not.
#[test]
fn a_swap_believes_no_header_that_was_not_checked() {
    let device = blank(1, 8);
    let mut world = World::open(&device, &options(), 1).expect("a store");
    let session = world.sessions[0].clone();
    let with = Attributes {
        flags: 1,
        expiry: 0xf000_0000,
    };
    let name = key(1);
    let long = value(&name, 0, 5000);
    let put = session.put_with(&name, &long, with);
    let put = world.finish(put).expect("it ends").expect("put");
    let mut at = 0;
    let found = examine(&shared(&device), |_, _| (), |record| at = record.at);
    found.expect("examined");
    let head = Header::parse(&read(&device.image(), at, 64)).expect("a header");
    // Each bit of what stands before the key.
    for bit in 0..head.key_at as u64 * 8 {
        device.flip_bit(at + bit / 8, (bit % 8) as u8);
        let swap = session.compare_and_swap(&name, put.version, b"new", with);
        let swap = world.finish(swap).expect("it ends");
        let absent = session.put_if_absent(&name, b"new", with);
        let absent = world.finish(absent).expect("it ends");
        assert!(!matches!(swap, Ok(Swap::Swapped(_))), "bit {bit}");
        assert!(!matches!(absent, Ok(Some(_))), "bit {bit}");
        device.flip_bit(at + bit / 8, (bit % 8) as u8);
    }
    let swap = session.compare_and_swap(&name, put.version, b"new", with);
    let swap = world.finish(swap).expect("it ends").expect("swapped");
    assert!(matches!(swap, Swap::Swapped(_)));
}

/// The segment that was free the longest is used first: no part of the drive is worn out before others.
#[test]
fn all_segments_are_used_alike() {
    let device = blank(1, 24);
    let mut world = World::open(&device, &options(), 1).expect("a store");
    let session = world.sessions[0].clone();
    let mut opened = vec![0; 24];
    let mut before = world.store.segments();
    for round in 0..1500 {
        let new = value(&key(round % 40), round, 5000);
        let put = world.finish(session.put(&key(round % 40), &new));
        put.expect("it ends").expect("put");
        let now = world.store.segments();
        for (segment, (before, now)) in before.iter().zip(&now).enumerate() {
            let is_opened = matches!(now, State::Open(_)) && !matches!(before, State::Open(_));
            opened[segment] += usize::from(is_opened);
        }
        before = now;
    }
    let (least, most) = (opened.iter().min(), opened.iter().max());
    assert!(least.is_some_and(|&least| least >= 3), "{opened:?}");
    assert!(most <= least.map(|least| 2 * least).as_ref(), "{opened:?}");
}

/// A copy of a record is longer than the record, and so is the tombstone of a key without a value.
/// Records of more than 4 MiB count as long as they are, and are read once.
#[test]
fn very_long_records_are_counted_and_read_once() {
    let segment = 16 << 20;
    let device = SimDevice::new(SimConfig::new(1, (64 << 10) + 8 * segment));
    let mut options = Options::default();
    options.segment_bytes = Some(segment);
    let store = Store::on(Arc::new(device), &options).expect("a store");
    let len = 9 << 20;
    store.put(b"key", &vec![7; len]).expect("put");
    let live = store.live_bytes();
    assert!(
        (len as u64..len as u64 * 9 / 8 + 4096).contains(&live),
        "{live}"
    );
    let before = store.stats().reads;
    assert_eq!(store.get(b"key").expect("got").map(|v| v.len()), Some(len));
    assert_eq!(store.stats().reads, before + 1);
}

#[test]
fn the_longest_record_can_be_moved_and_removed() {
    let device = blank(1, 8);
    let mut world = World::open(&device, &options(), 1).expect("a store");
    let session = world.sessions[0].clone();
    let longest = (0..64 << 10)
        .rev()
        .map(|len| value(b"long", 0, len))
        .find(|value| {
            let put = world.finish(session.put(b"long", value)).expect("it ends");
            match put {
                Ok(_) => true,
                Err(StoreError::TooLong { .. }) => false,
                Err(error) => panic!("{error}"),
            }
        })
        .expect("something fits");
    assert!(longest.len() > 60 << 10, "{} bytes", longest.len());
    // Every eighth segment that is collected is the oldest one, whatever it holds.
    for i in 0..600 {
        let small = value(&key(i % 3), i, 9000);
        let put = world.finish(session.put(&key(i % 3), &small));
        put.expect("it ends").expect("put");
    }
    let moved = world.store.stats().moved_bytes;
    assert!(moved > longest.len() as u64, "{moved} bytes moved");
    let got = world.finish(session.get(b"long")).expect("it ends");
    assert!(got.expect("read").as_deref() == Some(&longest[..]));
    let deleted = world.finish(session.delete(b"long")).expect("it ends");
    assert!(deleted.expect("removed"));
    world.close().expect("closed");
}
