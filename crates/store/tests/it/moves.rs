//! A change of a key at every moment at which its record is being moved, evicted or expired.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use block::Device;
use block::sim::{Kind, Loss, Rates, SimConfig, SimDevice};
use rustix::io::Errno;
use store::examine::examine;
use store::format::Version;
use store::{State, Store, StoreError};

use super::rig::{LEN, Rig, SEGMENT, key, poll};

/// Seven of these fill a segment, but for less than is worth a move.
const VALUE: usize = 9150;
const A_SEGMENT: u32 = 7;
/// Of the first segments' records so many of a segment stay: a segment that takes up those of one has
/// room for some of the next one's, but not for all.
const STAY: u32 = 4;
const MIXED: u32 = 6 * A_SEGMENT;
const KEYS: u32 = MIXED + 5;
/// Changes of other keys afterwards.
const ROUNDS: usize = 250;
/// When the mixed segments' records expire, if they do.
const EXPIRY: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Delete,
    Put,
}

/// A change that overlaps with giving a segment up.
#[derive(Clone, Copy, Debug)]
struct Case {
    change: Change,
    /// Whether the segment's records have expired.
    expired: bool,
    /// The how-manieth segment that is given up.
    collection: usize,
    /// The how-manieth of the keys that stay in it.
    key: usize,
    /// How many steps of the maintenance come before the change begins.
    begin: usize,
    /// And before its record is written.
    end: usize,
}

/// How far the segment was when the change began, and when it went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    Both,
    Begin,
    Neither,
}

/// A record in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Logged {
    key: u32,
    segment: u32,
    /// Of its value, if it is a long one.
    round: Option<u32>,
    version: Version,
}

/// A value whose length tells the round.
fn value(i: u32, round: u32) -> Vec<u8> {
    vec![i as u8; VALUE + round as usize]
}

impl Rig {
    /// Fills the store until the segment of this collection is about to be given up: its number, and
    /// the keys that stay in it. Segments in which nothing stays do not count.
    pub(super) fn fill(&mut self, expired: bool, collection: usize) -> (u32, Vec<u32>) {
        let expiry = if expired { EXPIRY } else { 0 };
        let stays = |i: u32| i < MIXED && i % A_SEGMENT < STAY;
        // Keys that expire hide older versions of theirs, that have no end. They fill segments of
        // their own.
        let older = (0..MIXED).filter(|_| expired).map(|i| (i, 0, 0));
        let mixed = (0..MIXED).map(|i| (i, 1, if stays(i) { expiry } else { 0 }));
        let rest = (0..KEYS).filter(|&i| !stays(i)).map(|i| (i, 2, 0));
        let again = (0..).map(|n| (MIXED + n % (KEYS - MIXED), 3, 0));
        let mut begun = 0;
        for (i, round, expiry) in older.chain(mixed).chain(rest).chain(again) {
            self.put(i, &value(i, round), expiry).expect("put");
            while self.settle_maintenance(self.left + 1) {
                let segment = self.leaving.expect("a segment that is given up");
                let mut keys = self.log();
                keys.retain(|record| record.segment == segment && record.round == Some(1));
                keys.retain(|record| stays(record.key));
                begun += usize::from(!keys.is_empty());
                if begun == collection {
                    return (segment, keys.iter().map(|record| record.key).collect());
                }
            }
        }
        unreachable!("there are always more")
    }

    /// All records and tombstones that stand in the log.
    fn log(&self) -> Vec<Logged> {
        let mut log = Vec::new();
        let image = SimDevice::with_image(SimConfig::new(2, LEN), self.device.image());
        let device: Arc<dyn Device> = Arc::new(image);
        let examined = examine(
            &device,
            |_, _| (),
            |record| {
                let number = std::str::from_utf8(&record.key[4..]).expect("a number");
                log.push(Logged {
                    key: number.parse().expect("a number"),
                    segment: record.segment,
                    round: record
                        .value_len
                        .checked_sub(VALUE)
                        .map(|round| round as u32),
                    version: record.version,
                });
            },
        );
        examined.expect("examined");
        log
    }
}

fn run(case: Case) -> Met {
    let mut rig = Rig::new();
    let (segment, keys) = rig.fill(case.expired, case.collection);
    assert_eq!(keys.len(), STAY as usize, "{case:?}: {keys:?}");
    if case.expired {
        rig.now.store(EXPIRY, Ordering::Relaxed);
    }
    let number = keys[case.key];
    let name = key(number);
    let expected = (case.change == Change::Put).then(|| value(number, 9));
    let session = rig.session.clone();
    let mut change = pin!(async {
        match &expected {
            Some(value) => session.put(&name, value).await.map(drop),
            None => session.delete(&name).await.map(drop),
        }
    });
    let mut met = Met::Neither;
    let mut outcome = Poll::Pending;
    for step in 0.. {
        if rig.leaving != Some(segment) {
            break;
        }
        if step == case.begin {
            outcome = rig.settle(change.as_mut(), false);
            met = Met::Begin;
        }
        if step == case.end {
            met = Met::Both;
            break;
        }
        rig.maintain();
    }
    if met == Met::Neither {
        return met;
    }
    let outcome = match outcome {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => rig.finish(change.as_mut()),
    };
    outcome.unwrap_or_else(|error| panic!("{case:?}: {error}"));
    // Everything goes but the segments in which something stands of the key: what is older than these
    // first. Whatever is left of it meanwhile, a crash shows what the key has.
    rig.settle_maintenance(usize::MAX);
    let (mut collected, mut stands) = (None, Vec::new());
    let mut held: HashSet<u32> = HashSet::new();
    // Each other key once, to little, and then a few again and again: what they leave behind is dead
    // as a whole, and goes before the segments that are held.
    let once = (0..KEYS).map(|i| (i, b"short".to_vec()));
    let again = (KEYS..KEYS + 20).cycle().map(|i| (i, value(i, 4)));
    let mut others = once.chain(again);
    for _ in 0..ROUNDS {
        let now = Some(rig.store.stats().collected);
        if now != collected {
            collected = now;
            let log = rig.log();
            let of_key: Vec<_> = log.iter().filter(|r| r.key == number).copied().collect();
            let with_it = |r: &&Logged| of_key.iter().any(|of_key| of_key.segment == r.segment);
            held = log.iter().filter(with_it).map(|r| r.key).collect();
            held.insert(number);
            if of_key != stands {
                let found = rig.after_a_crash(&name);
                assert!(found == expected, "{case:?}: {of_key:?}");
                stands = of_key;
            }
            if stands.len() <= usize::from(expected.is_some()) {
                break;
            }
        }
        let (other, value) = others.find(|(i, _)| !held.contains(i)).expect("others");
        rig.put(other, &value, 0).expect("put");
        rig.settle_maintenance(usize::MAX);
    }
    let found = rig
        .finish(pin!(rig.session.clone().get(&name)))
        .expect("got");
    assert_eq!(found.as_deref(), expected.as_deref(), "{case:?}");
    met
}

/// Runs the change of each key at each moment.
fn at_every_moment(change: Change, expired: bool) {
    let mut runs = 0;
    for collection in 1..=2 {
        // The first to be moved, and the last, for which there is no room in the second round.
        for key in [0, STAY as usize - 1] {
            'begin: for begin in 0.. {
                for end in begin.. {
                    let case = Case {
                        change,
                        expired,
                        collection,
                        key,
                        begin,
                        end,
                    };
                    runs += 1;
                    match run(case) {
                        Met::Both => {}
                        Met::Begin => break,
                        Met::Neither => break 'begin,
                    }
                }
            }
        }
    }
    assert!(runs > 50, "{runs} runs");
}

#[test]
fn a_key_deleted_while_it_is_moved_stays_deleted() {
    at_every_moment(Change::Delete, false);
}

#[test]
fn a_key_changed_while_it_is_moved_keeps_its_new_value() {
    at_every_moment(Change::Put, false);
}

#[test]
fn a_key_deleted_while_it_expires_stays_deleted() {
    at_every_moment(Change::Delete, true);
}

#[test]
fn a_key_written_while_its_old_value_expires_keeps_the_new_one() {
    at_every_moment(Change::Put, true);
}

/// A change cannot read its key's old record, at any moment at which that is being moved: wherever the record comes to stand,
/// it is not shown for the key any more.
#[test]
fn a_record_that_could_not_be_read_when_its_key_was_changed_is_not_shown_where_it_was_moved() {
    for (change, is_first) in [(Change::Delete, true), (Change::Put, false)] {
        for begin in 0.. {
            let what = format!("{change:?} after {begin} steps");
            let mut rig = Rig::new();
            let (segment, keys) = rig.fill(false, 1);
            for _ in 0..begin {
                rig.maintain();
            }
            if rig.leaving != Some(segment) {
                assert!(begin > 3, "{what}");
                break;
            }
            let number = keys[if is_first { 0 } else { keys.len() - 1 }];
            let (name, session) = (key(number), rig.session.clone());
            let expected = (change == Change::Put).then(|| value(number, 9));
            for _ in 0..2 {
                rig.device.fail(Kind::Read, 0, Errno::IO);
            }
            let mut changed = Box::pin(async {
                match &expected {
                    Some(value) => session.put(&name, value).await.map(drop),
                    None => session.delete(&name).await.map(drop),
                }
            });
            let outcome = rig.settle(changed.as_mut(), true);
            assert_eq!(rig.device.faults_to_come(), 0, "{what}");
            match outcome {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => rig.finish(changed.as_mut()),
            }
            .unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(changed);
            rig.settle_maintenance(usize::MAX);
            let found = rig.finish(pin!(session.get(&name))).expect("got");
            assert!(found.as_deref() == expected.as_deref(), "{what}");
            assert!(rig.after_a_crash(&name) == expected, "{what}");
            drop(session);
            assert!(rig.after_closing(&name) == expected, "{what}, closed");
        }
    }
}

/// Records that leave much room at the ends of segments: moving them gains nothing.
#[test]
fn a_store_full_of_long_records_says_so_and_rests() {
    let mut rig = Rig::new();
    let value = vec![7; SEGMENT as usize * 33 / 64];
    let mut stored = 0;
    let refused = loop {
        match rig.put(stored, &value, 0) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::Full), "{refused}");
    assert!(stored >= 7, "{stored} segments of 12");
    rig.settle_maintenance(usize::MAX);
    let writes = rig.device.totals().writes;
    for i in 0..100 {
        let refused = rig.put(stored, &value, 0).expect_err("full");
        assert!(matches!(refused, StoreError::Full), "{i}: {refused}");
        rig.settle_maintenance(usize::MAX);
    }
    assert_eq!(
        rig.device.totals().writes,
        writes,
        "nothing is moved in vain"
    );
    for i in 0..stored {
        let session = rig.session.clone();
        let was_there = rig.finish(pin!(session.delete(&key(i)))).expect("deleted");
        assert!(was_there);
        rig.put(i, &value, 0).expect("there is room again");
    }
    for i in 0..stored {
        assert_eq!(rig.after_a_crash(&key(i)).as_ref(), Some(&value), "key {i}");
    }
}

/// The device fails once, at any request of the maintenance while it gives a segment up. But for a
/// flush, the segment is given up nevertheless, later.
#[test]
fn a_segment_that_could_not_be_read_once_is_given_up_later() {
    for kind in [Kind::Read, Kind::Write, Kind::Flush] {
        let mut postponed = 0;
        for pass in 0..4 {
            let what = format!("{kind:?} {pass}");
            let mut rig = Rig::new();
            let (segment, keys) = rig.fill(false, 1);
            rig.device.fail(kind, pass, Errno::IO);
            rig.settle_maintenance(usize::MAX);
            let stats = rig.store.stats();
            postponed += stats.postponed;
            for round in 0..60 {
                let other = MIXED + round % (KEYS - MIXED);
                // The error may still have to come.
                match rig.put(other, &value(other, 5), 0) {
                    Ok(()) | Err(StoreError::Device(_)) => {}
                    // A free segment whose header could not be written is missing.
                    Err(StoreError::Full) if kind != Kind::Read => {}
                    Err(error) => panic!("{what}: {error}"),
                }
                rig.settle_maintenance(usize::MAX);
            }
            let retired = |state: &&State| **state == State::Retired;
            let retired = rig.store.segments().iter().filter(retired).count();
            match kind {
                Kind::Read => assert_eq!(retired, 0, "{what}"),
                // A new segment whose header cannot be written; copies that may not be there.
                _ => assert!(retired <= 1, "{what}: {retired}"),
            }
            if kind == Kind::Read {
                let is_there = |r: &Logged| r.segment == segment && r.round == Some(1);
                let log = rig.log();
                assert!(
                    !log.iter().any(|r| is_there(r) && keys.contains(&r.key)),
                    "{what}"
                );
            }
            for key_of in keys {
                let found = rig.after_a_crash(&key(key_of));
                assert_eq!(found, Some(value(key_of, 1)), "{what}, key {key_of}");
            }
        }
        assert!(postponed > 0 || kind == Kind::Flush, "{kind:?}");
    }
}

/// A segment that can never be read is not tried for ever, and the store goes on without it.
#[test]
fn a_segment_that_cannot_be_read_is_set_aside_in_the_end() {
    let mut rig = Rig::new();
    let (_, keys) = rig.fill(false, 1);
    rig.rates = Rates {
        read_error: 1.0,
        ..Rates::default()
    };
    for round in 0..200 {
        let other = MIXED + round % (KEYS - MIXED);
        match rig.put(other, &value(other, 5), 0) {
            Ok(()) | Err(StoreError::Full) => {}
            Err(error) => panic!("{error}"),
        }
        rig.settle_maintenance(usize::MAX);
    }
    let states = rig.store.segments();
    let retired = states.iter().filter(|state| **state == State::Retired);
    let (retired, stats) = (retired.count() as u64, rig.store.stats());
    assert!(retired > 0, "{states:?} {stats:?}");
    assert!((retired..=12 * 6).contains(&stats.postponed), "{stats:?}");
    // The first one's read was under way.
    assert!(stats.collected <= 1, "{stats:?}");
    for key_of in keys {
        assert_eq!(rig.after_a_crash(&key(key_of)), Some(value(key_of, 1)));
    }
}

/// The tombstone of a key has rotted in a store that goes on and gives its segment up.
#[test]
fn a_tombstone_that_has_rotted_lets_nothing_come_back() {
    // A bit of its fence, which tells what it was, and all of it.
    for is_whole in [false, true] {
        let mut rig = Rig::new();
        let (kept, gone) = (100..100 + A_SEGMENT - 1, 500);
        rig.put(gone, &value(gone, 0), 0).expect("put");
        for i in kept.clone() {
            rig.put(i, &value(i, 0), 0).expect("put");
        }
        let session = rig.session.clone();
        let delete = rig.finish(pin!(session.delete(&key(gone))));
        assert!(delete.expect("deleted"));
        // Two of them if a segment was opened meanwhile.
        let mut tombstones = Vec::new();
        let device: Arc<dyn Device> = Arc::new(rig.device.clone());
        let examined = examine(
            &device,
            |_, _| (),
            |record| {
                if record.meta.tombstone.is_some() {
                    tombstones.push(record.at);
                }
            },
        );
        examined.expect("examined");
        assert!(!tombstones.is_empty());
        for at in tombstones {
            for byte in if is_whole { 0..24 } else { 10..11 } {
                rig.device.flip_bit(at + byte, 3);
            }
        }
        let is_there = |rig: &Rig| rig.log().iter().any(|record| record.key == gone);
        for round in 0..400 {
            let i = 200 + round % 20;
            rig.put(i, &value(i, round), 0).expect("put");
            rig.settle_maintenance(usize::MAX);
            if !is_there(&rig) {
                break;
            }
            let image = SimDevice::with_image(SimConfig::new(2, LEN), rig.device.image());
            let device: Arc<dyn Device> = Arc::new(image);
            let crashed = store::Store::unmaintained(device, &rig.options).expect("recovered");
            let found = crashed.0.get(&key(gone));
            let is_told = matches!(
                found,
                Ok(None) | Err(StoreError::Damaged { .. } | StoreError::MaybeOld { .. })
            );
            assert!(is_told, "round {round}: it has come back");
        }
    }
}

/// The same if the tombstone stands behind a write that has failed, which was under way when it was written.
#[test]
fn a_rotten_tombstone_behind_a_failed_write_lets_nothing_come_back() {
    let mut rig = Rig::new();
    let (kept, gone) = (100..100 + A_SEGMENT - 1, 500);
    rig.put(gone, &value(gone, 0), 0).expect("put");
    for i in kept {
        rig.put(i, &value(i, 0), 0).expect("put");
    }
    rig.settle_maintenance(usize::MAX);
    let lower = rig.store.session().expect("a session");
    let driven = lower.clone();
    let mut driver = Box::pin(async move { driven.drive().await });
    let (name, failing) = (key(600), value(600, 0));
    let mut put = Box::pin(lower.put(&name, &failing));
    assert!(poll(put.as_mut()).is_pending());
    // It has its place in the log, and the device has not heard of it.
    assert!(poll(driver.as_mut()).is_pending());
    let session = rig.session.clone();
    let delete = rig.finish(pin!(session.delete(&key(gone))));
    assert!(delete.expect("deleted"));
    rig.device.fail(Kind::Write, 0, Errno::IO);
    let failed = loop {
        lower.disk().poll();
        assert!(poll(driver.as_mut()).is_pending());
        if let Poll::Ready(failed) = poll(put.as_mut()) {
            break failed;
        }
    };
    assert!(failed.is_err());
    drop(put);
    drop((driver, lower));
    // The segment is left for the next one, if there is one.
    rig.settle_maintenance(usize::MAX);
    let mut tombstones = Vec::new();
    let device: Arc<dyn Device> = Arc::new(rig.device.clone());
    let examined = examine(
        &device,
        |_, _| (),
        |record| {
            if record.meta.tombstone.is_some() {
                tombstones.push(record.at);
            }
        },
    );
    examined.expect("examined");
    assert_eq!(tombstones.len(), 1);
    for byte in 0..24 {
        rig.device.flip_bit(tombstones[0] + byte, 3);
    }
    let is_there = |rig: &Rig| rig.log().iter().any(|record| record.key == gone);
    for round in 0..400 {
        let i = 200 + round % 20;
        rig.put(i, &value(i, round), 0).expect("put");
        rig.settle_maintenance(usize::MAX);
        let image = SimDevice::with_image(SimConfig::new(2, LEN), rig.device.image());
        let device: Arc<dyn Device> = Arc::new(image);
        let (store, _) = store::Store::unmaintained(device, &rig.options).expect("recovered");
        let found = store.get(&key(gone));
        let is_told = matches!(
            found,
            Ok(None) | Err(StoreError::Damaged { .. } | StoreError::MaybeOld { .. })
        );
        assert!(is_told, "round {round}: it has come back");
        if !is_there(&rig) {
            break;
        }
    }
}

/// The system tells of writes that are lost once, and whom it tells may be a user whose own durable write is under way.
/// The flush behind the copies succeeds then; they count as lost.
#[test]
fn copies_are_lost_when_a_users_durable_write_fails() {
    let mut failed = 0;
    for steps in 0..40 {
        let mut rig = Rig::new();
        rig.fill(false, 1);
        for _ in 0..steps {
            rig.maintain();
        }
        rig.device.fail(Kind::Write, 0, Errno::IO);
        let session = rig.session.clone();
        let outcome = rig.settle(pin!(session.put(b"key 999", b"")), true);
        rig.device.clear_faults();
        failed += u32::from(matches!(outcome, Poll::Ready(Err(StoreError::Device(_)))));
        rig.settle_maintenance(usize::MAX);
        compare_with_a_cut(&mut rig, steps);
    }
    assert!(failed > 20, "{failed} writes have failed");
}

/// The same, but the user's session is dropped while the device has its write: nobody hears what becomes of that.
#[test]
fn copies_are_lost_when_a_durable_write_may_have_failed_that_nobody_waits_for() {
    let mut told = 0;
    for steps in 0..40 {
        let mut rig = Rig::new();
        rig.fill(false, 1);
        for _ in 0..steps {
            rig.maintain();
        }
        rig.device.fail(Kind::Write, 0, Errno::IO);
        {
            let session = rig.store.session().expect("a session");
            let mut put = pin!(session.put(b"key 999", b""));
            let mut driver = pin!(session.drive());
            assert!(poll(put.as_mut()).is_pending());
            assert!(poll(driver.as_mut()).is_pending());
            while rig.device.faults_to_come() > 0 && session.disk().poll() > 0 {}
        }
        told += u32::from(rig.device.faults_to_come() == 0);
        rig.device.clear_faults();
        rig.settle_maintenance(usize::MAX);
        compare_with_a_cut(&mut rig, steps);
    }
    assert!(told > 20, "{told} writes were told of a loss");
}

/// The same, but the user's core does not look at its queue before the flush has ended: the maintenance waits for it.
#[test]
fn copies_are_lost_when_a_durable_write_fails_of_which_its_core_has_not_heard() {
    let mut waited = 0;
    for steps in 0..40 {
        let mut rig = Rig::new();
        rig.fill(false, 1);
        for _ in 0..steps {
            rig.maintain();
        }
        rig.device.fail(Kind::Write, 0, Errno::IO);
        let session = rig.session.clone();
        let mut put = pin!(session.put(b"key 999", b""));
        assert!(poll(put.as_mut()).is_pending());
        assert!(poll(rig.driver.as_mut()).is_pending());
        while rig.device.faults_to_come() > 0 && session.disk().poll() > 0 {}
        let is_told = rig.device.faults_to_come() == 0;
        rig.device.clear_faults();
        rig.settle_maintenance(usize::MAX);
        let collected = rig.store.stats().collected;
        compare_with_a_cut(&mut rig, steps);
        let outcome = rig.settle(put.as_mut(), true);
        let has_failed = matches!(outcome, Poll::Ready(Err(StoreError::Device(_))));
        assert_eq!(has_failed, is_told, "{steps} steps");
        rig.settle_maintenance(usize::MAX);
        compare_with_a_cut(&mut rig, steps);
        waited += u32::from(is_told && rig.store.stats().collected > collected);
    }
    assert!(waited > 10, "{waited} times the maintenance has waited");
}

/// The same, but what fails is a write of the maintenance: a copy's, or that of a header of the segment in which copies are to
/// go on, durable as it is, so that it may be told of the loss of the copies before.
#[test]
fn copies_are_lost_when_a_header_cannot_be_written() {
    let mut failed = 0;
    for collection in 1..=2 {
        for pass in 0..8 {
            let mut rig = Rig::new();
            rig.fill(false, collection);
            rig.device.fail(Kind::Write, pass, Errno::IO);
            rig.settle_maintenance(usize::MAX);
            failed += u32::from(rig.device.faults_to_come() == 0);
            rig.device.clear_faults();
            for round in 0..60 {
                let other = MIXED + round % (KEYS - MIXED);
                match rig.put(other, &value(other, 5), 0) {
                    // A free segment whose header could not be written is missing.
                    Ok(()) | Err(StoreError::Full) => {}
                    Err(error) => panic!("collection {collection}, write {pass}: {error}"),
                }
                rig.settle_maintenance(usize::MAX);
            }
            compare_with_a_cut(&mut rig, pass as u32);
        }
    }
    assert!(failed > 8, "{failed} writes have failed");
}

/// What is there now is there after a cut.
pub(super) fn compare_with_a_cut(rig: &mut Rig, steps: u32) {
    let cut = SimConfig::new(2, LEN);
    let cut = SimDevice::with_image(cut, rig.device.snapshot().after(Loss::All));
    let made = Store::unmaintained(Arc::new(cut), &rig.options);
    let (after, _) = made.expect("recovered");
    for i in 0..KEYS {
        let (name, session) = (key(i), rig.session.clone());
        let before = rig.finish(pin!(session.get(&name))).expect("got");
        let found = after.get(&name).expect("got");
        assert!(
            found.as_deref() == before.as_deref(),
            "{steps} steps, key {i}"
        );
    }
}
