//! The device fails when a segment is opened: its header may be there then or not, and the segment is
//! opened again later.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use block::sim::{Image, Kind, Loss, Rates, SimConfig, SimDevice};
use block::{Device, Disk};
use rustix::io::Errno;
use store::{Options, Recovery, State, Store, StoreError};

use super::rig::{LEN, Rig, key, poll};

/// Seven of these fill a segment.
const VALUE: usize = 9000;

const FAILS: Rates = Rates {
    read_error: 0.0,
    write_error: 1.0,
    flush_error: 0.0,
    short: 0.0,
    again: 0.0,
};

impl Rig {
    fn count(&self, state: State) -> usize {
        let states = self.store.segments();
        states.iter().filter(|s| **s == state).count()
    }

    /// Puts keys, from `stored` on, until the next header is to be written.
    fn fill_to_next_header(&mut self, stored: &mut u32) -> Result<(), StoreError> {
        let open = State::Open(store::format::segment::Kind::User);
        self.settle_maintenance(usize::MAX);
        loop {
            self.put(*stored, &vec![*stored as u8; VALUE], 0)?;
            *stored += 1;
            // One is written to, and the next one is prepared beside it.
            if self.count(open) == 1 {
                return Ok(());
            }
        }
    }

    /// Puts keys until there is no room.
    fn fill_to_the_end(&mut self, stored: &mut u32) {
        loop {
            match self.put(*stored, &vec![*stored as u8; VALUE], 0) {
                Ok(()) => *stored += 1,
                Err(StoreError::Full) => break,
                Err(error) => panic!("{error}"),
            }
            self.settle_maintenance(usize::MAX);
        }
        self.settle_maintenance(usize::MAX);
    }

    /// Changes some keys again and again: all segments are used anew.
    fn churn(&mut self, stored: u32) {
        for round in 0..9 {
            for i in 0..stored / 4 {
                let put = self.put(i, &vec![i as u8; VALUE - round], 0);
                put.unwrap_or_else(|error| panic!("round {round}, key {i}: {error}"));
                self.settle_maintenance(usize::MAX);
            }
        }
    }
}

/// The device writes nothing while a closed store is opened: its index is taken up nevertheless, and not
/// believed any more when something was written later.
#[test]
fn a_closed_store_opens_on_a_device_that_writes_nothing() {
    let mut rig = Rig::new();
    for i in 0..20 {
        rig.put(i, b"first", 0).expect("put");
    }
    rig.settle_maintenance(usize::MAX);
    let Rig {
        device,
        options,
        store,
        session,
        driver,
        maintenance,
        ..
    } = rig;
    drop((driver, maintenance, session));
    store.close().expect("closed");
    let open = |device: &SimDevice| {
        let shared: Arc<dyn Device> = Arc::new(device.clone());
        Store::on(shared, &options).expect("it opens")
    };
    let has_all = |store: &Store, changed: u32| {
        for i in 0..20 {
            let expected: &[u8] = if i < changed { b"second" } else { b"first" };
            let found = store.get(&key(i)).expect("got");
            assert_eq!(found.as_deref(), Some(expected), "key {i}");
        }
    };
    let again = |device: &SimDevice| SimDevice::with_image(SimConfig::new(2, LEN), device.image());
    device.set_rates(FAILS);
    let store = open(&device);
    assert_eq!(store.recovery(), Recovery::Closed);
    has_all(&store, 0);
    has_all(&open(&again(&device)), 0);
    device.set_rates(Rates::default());
    // Who asks for room is told of errors before, and has the maintenance try again.
    while store.put(&key(0), b"second").is_err() {
        std::thread::yield_now();
    }
    has_all(&store, 1);
    let crashed = open(&again(&device));
    assert!(matches!(crashed.recovery(), Recovery::Log { .. }));
    has_all(&crashed, 1);
    store.close().expect("closed");
    let closed = open(&device);
    assert_eq!(closed.recovery(), Recovery::Closed);
    has_all(&closed, 1);
}

fn reopen(image: Image, rig: &Rig) -> Store {
    let device: Arc<dyn Device> = Arc::new(SimDevice::with_image(SimConfig::new(2, LEN), image));
    let (store, _) = Store::unmaintained(device, &rig.options).expect("recovered");
    store
}

/// Whichever header it is that cannot be written once.
#[test]
fn a_header_that_failed_once_costs_no_room() {
    let mut rig = Rig::new();
    let mut all = 0;
    rig.fill_to_the_end(&mut all);
    let free = rig.count(State::Free);
    let mut failures = 0;
    for pass in 0.. {
        let mut rig = Rig::new();
        let mut stored = 0;
        let mut opened = Ok(());
        for _ in 0..=pass {
            opened = opened.and_then(|()| rig.fill_to_next_header(&mut stored));
        }
        if opened.is_err() {
            break;
        }
        rig.device.fail(Kind::Write, 0, Errno::IO);
        while rig.count(State::Doubtful) == 0 && rig.maintain() {}
        if rig.count(State::Doubtful) == 0 {
            // No further segment may be opened.
            break;
        }
        failures += 1;
        rig.fill_to_the_end(&mut stored);
        assert_eq!(stored, all, "header {pass}: {:?}", rig.store.segments());
        for i in 0..stored / 2 {
            let session = rig.session.clone();
            assert!(rig.finish(pin!(session.delete(&key(i)))).expect("deleted"));
            rig.settle_maintenance(usize::MAX);
        }
        rig.churn(stored);
        let states = rig.store.segments();
        assert_eq!(rig.count(State::Doubtful), 0, "header {pass}: {states:?}");
        assert_eq!(rig.count(State::Retired), 0, "header {pass}: {states:?}");
        for i in stored / 2..stored {
            assert_eq!(rig.after_a_crash(&key(i)), Some(vec![i as u8; VALUE]));
        }
    }
    assert!(
        failures >= 7,
        "{failures} headers, {free} segments to spare"
    );
}

/// The power is cut after some headers in a row could not be written, each of which may be there or
/// not, and while something is written to the segment that was open before.
#[test]
fn a_crash_after_headers_that_failed_loses_nothing() {
    for failures in 0..=4 {
        for full in [1, 3] {
            let mut rig = Rig::new();
            let mut stored = 0;
            for _ in 0..full {
                rig.fill_to_next_header(&mut stored).expect("room");
            }
            rig.device.record();
            rig.rates = FAILS;
            while rig.count(State::Doubtful) < failures {
                assert!(rig.maintain(), "headers are to be written");
            }
            rig.rates = Rates::default();
            let before = rig.device.take_snapshots();
            // Now it is certain which are there.
            let flush = rig.disk.flush();
            rig.finish(pin!(flush)).expect("flushed");
            let session = rig.session.clone();
            let (name, value) = (key(0), vec![99; VALUE + 1000]);
            let mut put = pin!(session.put(&name, &value));
            let outcome = rig.settle(put.as_mut(), true);
            assert!(matches!(outcome, Poll::Ready(Ok(_))), "{outcome:?}");
            let while_put = rig.device.take_snapshots();
            let cuts = before.iter().map(|snapshot| (snapshot, 4));
            for (snapshot, cuts) in cuts.chain(while_put.iter().map(|snapshot| (snapshot, 24))) {
                for cut in 0..cuts {
                    let event = snapshot.event();
                    let what = format!("{full} full, {failures} failed, event {event}, cut {cut}");
                    let store = reopen(snapshot.crash(cut), &rig);
                    for i in 0..stored {
                        let found = store.get(&key(i));
                        let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
                        let found = found.unwrap_or_else(|| panic!("{what}: key {i} is gone"));
                        let is_new = i == 0 && found == value;
                        assert!(is_new || found == vec![i as u8; VALUE], "{what}, key {i}");
                    }
                    assert_eq!(store.len(), u64::from(stored), "{what}");
                }
            }
        }
    }
}

/// Who wants room is told what is wrong, each time after a few attempts, and has it when the device has
/// recovered.
#[test]
fn a_device_that_writes_no_header_is_an_error_until_it_recovers() {
    let mut rig = Rig::new();
    let mut all = 0;
    rig.fill_to_the_end(&mut all);
    let mut rig = Rig::new();
    let mut stored = 0;
    rig.fill_to_next_header(&mut stored).expect("room");
    rig.rates = FAILS;
    let mut refused = 0;
    while refused < 300 {
        let writes = rig.disk.counts().writes;
        match rig.put(stored, &vec![stored as u8; VALUE], 0) {
            Ok(()) => stored += 1,
            Err(error) => {
                refused += 1;
                let told = error.to_string();
                assert!(told.starts_with("durable write of 512 bytes"), "{told}");
            }
        }
        rig.settle_maintenance(usize::MAX);
        let attempts = rig.disk.counts().writes - writes;
        assert!(attempts <= 2 || refused <= 1, "{attempts} attempts");
    }
    assert!(stored <= 14, "{stored} in two segments");
    rig.rates = Rates::default();
    // The one that is refused has the maintenance try again.
    let asked = rig.put(stored, &vec![stored as u8; VALUE], 0);
    assert!(asked.is_err(), "nothing has been tried since");
    rig.settle_maintenance(usize::MAX);
    rig.fill_to_the_end(&mut stored);
    assert_eq!(stored, all, "{:?}", rig.store.segments());
    for i in 0..stored {
        assert_eq!(rig.after_a_crash(&key(i)), Some(vec![i as u8; VALUE]));
    }
}

/// The first header that a store writes when it is opened.
#[test]
fn a_store_opens_although_a_header_cannot_be_written() {
    let mut rig = Rig::new();
    let mut stored = 0;
    rig.fill_to_next_header(&mut stored).expect("room");
    let mut failures = 0;
    // By the seed, the header is there or not. Before it, segments that are left open are closed.
    for seed in 0..32 {
        let device = SimDevice::with_image(SimConfig::new(seed, LEN), rig.device.image());
        device.fail(Kind::Write, seed / 8, Errno::IO);
        let shared: Arc<dyn Device> = Arc::new(device);
        let store = Store::on(shared.clone(), &rig.options).expect("opened");
        if !store.segments().contains(&State::Doubtful) {
            // It was another write that has failed, or is to fail.
            continue;
        }
        failures += 1;
        for i in 0..stored {
            assert_eq!(store.get(&key(i)).expect("got"), Some(vec![i as u8; VALUE]));
            store.put(&key(i), b"new").expect("put");
        }
        // The index is all that is read next time, whatever has become of the header.
        store.close().expect("closed");
        let store = Store::on(shared, &rig.options).expect("opened");
        assert_eq!(store.recovery(), Recovery::Closed, "seed {seed}");
        assert_eq!(store.len(), u64::from(stored));
    }
    assert!(failures >= 8, "{failures} headers could not be written");
}

/// What is to be moved finds no segment to go to, however often that is tried. The segments that it
/// stands in are not set aside for that.
#[test]
fn segments_that_found_no_room_to_move_to_are_given_up_later() {
    let mut rig = Rig::new();
    let mut all = 0;
    rig.fill_to_the_end(&mut all);
    let mut rig = Rig::new();
    let keys = all * 3 / 4;
    let change = |rig: &mut Rig, round: u32| {
        // Every third key stays: something is to be moved out of each segment.
        let i = (round * 3 + round % 2) % keys;
        let outcome = rig.put(i, &vec![i as u8; VALUE], 0);
        rig.settle_maintenance(usize::MAX);
        outcome
    };
    for i in 0..keys {
        rig.put(i, &vec![i as u8; VALUE], 0).expect("put");
        rig.settle_maintenance(usize::MAX);
    }
    let collected = rig.store.stats().collected;
    rig.rates = FAILS;
    let mut refused = 0;
    for round in 0..500 {
        refused += u32::from(change(&mut rig, round).is_err());
    }
    rig.rates = Rates::default();
    assert!(refused > 400, "{refused}");
    assert!(change(&mut rig, 0).is_err(), "nothing has been tried since");
    for round in 0..100 {
        change(&mut rig, round).unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    let states = rig.store.segments();
    assert_eq!(rig.count(State::Retired), 0, "{states:?}");
    assert!(rig.store.stats().moved > 0 && rig.store.stats().collected > collected);
    for i in 0..keys {
        assert_eq!(rig.after_a_crash(&key(i)), Some(vec![i as u8; VALUE]));
    }
}

/// Opens the store by a task that is polled so often at most. `None` if it was dropped before it had ended.
fn open_for(
    polls: usize,
    device: &SimDevice,
    disk: &Disk,
    options: &Options,
) -> Option<Result<Store, StoreError>> {
    let mut opening = pin!(Store::unmaintained_on(
        disk,
        Arc::new(device.clone()),
        options
    ));
    for _ in 0..polls {
        if let Poll::Ready(opened) = poll(opening.as_mut()) {
            return Some(opened.map(|(store, _)| store));
        }
        disk.poll();
    }
    None
}

/// A new store, and one that was cut: whenever an opening is given up, the next one finds what had been acknowledged.
#[test]
fn an_opening_that_was_given_up_harms_no_later_one() {
    for is_new in [true, false] {
        let rig = Rig::new();
        let before = (!is_new).then(|| vec![7; VALUE]);
        let image = match &before {
            None => Image::new(LEN),
            Some(value) => {
                let mut rig = rig;
                for i in 0..20 {
                    rig.put(i, value, 0).expect("put");
                }
                rig.device.snapshot().after(Loss::All)
            }
        };
        let options = Rig::new().options;
        let mut ended = false;
        for polls in 1.. {
            let mut config = SimConfig::new(polls as u64, LEN);
            // What is under way together ends in any order.
            config.speed.jitter = 8.0;
            let device = SimDevice::with_image(config, image.clone());
            let disk = Disk::open(&device, 32).expect("a queue");
            let opened = open_for(polls, &device, &disk, &options);
            ended = opened.is_some_and(|opened| opened.is_ok());
            while !disk.is_idle() {
                disk.poll();
            }
            let again = open_for(usize::MAX, &device, &disk, &options).expect("it ends");
            let again = again.unwrap_or_else(|error| panic!("{is_new} {polls}: {error}"));
            again.put(b"later", b"value").expect("put");
            let cut =
                SimDevice::with_image(SimConfig::new(2, LEN), device.snapshot().after(Loss::All));
            let (after, _) = Store::unmaintained(Arc::new(cut), &options).expect("recovered");
            let later = after.get(b"later").expect("got");
            assert_eq!(later.as_deref(), Some(&b"value"[..]), "{is_new} {polls}");
            for i in 0..20 {
                let found = after.get(&key(i)).expect("got");
                assert!(found == before, "{is_new} {polls}, key {i}");
            }
            if ended {
                break;
            }
        }
        assert!(ended);
    }
}

/// Whatever fails while a store is made: when that is told, nothing is under way any more.
#[test]
fn a_store_that_cannot_be_made_leaves_nothing_under_way() {
    let options = Rig::new().options;
    let mut told = 0;
    for pass in 0.. {
        let device = SimDevice::new(SimConfig::new(1, LEN));
        let disk = Disk::open(&device, 4).expect("a queue");
        device.fail(Kind::Write, pass, Errno::IO);
        match open_for(usize::MAX, &device, &disk, &options).expect("it ends") {
            Ok(_) => break,
            Err(StoreError::Device(_)) => told += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(disk.is_idle(), "the write after {pass} others");
    }
    assert!(told > 20, "{told}");
}
