//! The faults of the research code, one test each. Each fails in a cache that
//! has the fault.

use std::collections::HashMap;

use cache::mica::{Arith, KeyHash, NewValue, Options, PagePolicy, Partition, Store};
use cache::route::Route;

const NOW_S: u32 = 1;

/// One bucket and a log that holds `items` of a line each.
fn one_bucket(items: usize) -> Partition {
    let partition = Partition::new(&Options {
        bytes: 64 + items * 64,
        index_permille: 1,
        pages: PagePolicy::Plain,
        prefault: false,
        ..Options::new(0)
    })
    .unwrap();
    assert_eq!(partition.census().buckets, 1);
    partition
}

fn tagged(tag: u16) -> KeyHash {
    KeyHash::from_bits(u64::from(tag) << 48)
}

fn key(number: u32) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[..4].copy_from_slice(&number.to_le_bytes());
    key
}

fn value(number: u32) -> [u8; 32] {
    [number as u8; 32]
}

fn set(partition: &mut Partition, hash: KeyHash, number: u32) {
    let value = value(number);
    let stored = partition.set(hash, &key(number), NewValue::new(&value), NOW_S);
    assert!(matches!(stored, Ok(Store::Stored { .. })));
}

/// Whether the item is there; if so, with its own value.
fn has(partition: &mut Partition, hash: KeyHash, number: u32) -> bool {
    match partition.get(hash, &key(number), NOW_S) {
        None => false,
        Some(item) => {
            assert_eq!(item.value, value(number));
            true
        }
    }
}

#[test]
fn tag_zero_is_not_an_empty_slot() {
    let mut partition = one_bucket(64);
    assert!(!has(&mut partition, tagged(0), 0));
    // The first item also gets the offset zero.
    for number in 0..8 {
        set(&mut partition, tagged(0), number);
    }
    for number in 0..8 {
        assert!(has(&mut partition, tagged(0), number));
    }
    assert_eq!(partition.stats().live_items, 8);
    assert_eq!(partition.stats().index_evictions, 0);
}

#[test]
fn put_uses_all_eight_slots() {
    let mut partition = one_bucket(64);
    for number in 0..8 {
        set(&mut partition, tagged(number as u16 + 1), number);
    }
    assert_eq!(partition.census().index_items, 8);
    assert_eq!(partition.stats().index_evictions, 0);
    for number in 0..8 {
        assert!(has(&mut partition, tagged(number as u16 + 1), number));
    }
}

#[test]
fn put_looks_beyond_an_empty_slot_for_its_key() {
    let mut partition = one_bucket(64);
    set(&mut partition, tagged(1), 1);
    set(&mut partition, tagged(2), 2);
    assert!(partition.delete(tagged(1), &key(1), NOW_S));
    // The first slot is empty now; the key is in the second. A longer value
    // keeps it from being updated in place.
    let long = [9; 100];
    let stored = partition.set(tagged(2), &key(2), NewValue::new(&long), NOW_S);
    assert!(stored.is_ok());
    assert_eq!(partition.stats().in_place_updates, 0);
    assert_eq!(partition.census().index_items, 1, "a stale duplicate");
    assert_eq!(
        partition.get(tagged(2), &key(2), NOW_S).unwrap().value,
        long
    );
    assert!(partition.delete(tagged(2), &key(2), NOW_S));
    assert!(
        !has(&mut partition, tagged(2), 2),
        "the stale value is back"
    );
}

#[test]
fn lookup_and_insertion_agree_for_equal_tags() {
    let mut partition = one_bucket(64);
    for round in 0..20 {
        for number in 0..4 {
            set(&mut partition, tagged(7), number + round % 3 * 4);
        }
        for number in 0..4 {
            assert!(has(&mut partition, tagged(7), number + round % 3 * 4));
        }
        assert!(partition.census().index_items <= 8);
    }
}

#[test]
fn equal_tags_of_different_keys_are_told_apart() {
    let mut partition = one_bucket(64);
    set(&mut partition, tagged(7), 1);
    assert!(!has(&mut partition, tagged(7), 2));
    // Nor does a key match that another one begins with.
    assert!(partition.get(tagged(7), &key(1)[..15], NOW_S).is_none());
    assert!(!partition.delete(tagged(7), &key(2), NOW_S));
    assert!(has(&mut partition, tagged(7), 1));
}

#[test]
fn a_full_bucket_gives_up_its_oldest_entry() {
    let mut partition = one_bucket(64);
    for number in [3, 1, 4, 5, 9, 2, 6, 8] {
        set(&mut partition, tagged(number as u16), number);
    }
    // A longer value makes the first one the newest.
    let renewed = partition.append(tagged(3), &key(3), b"and more", NOW_S);
    assert!(renewed.unwrap().cas().is_some());
    for (new, oldest) in [(11, 1), (12, 4), (13, 5), (14, 9), (15, 2)] {
        set(&mut partition, tagged(new as u16), new);
        assert!(!has(&mut partition, tagged(oldest as u16), oldest));
        assert!(has(&mut partition, tagged(new as u16), new));
        assert_eq!(partition.census().index_items, 8);
    }
    assert!(partition.get(tagged(3), &key(3), NOW_S).is_some());
    assert_eq!(partition.stats().index_evictions, 5);
}

/// Eight writes past the end in ten laps there; here dozens of laps with sizes
/// that never fill one evenly. Log and index are parts of one mapping, and the
/// items of all ages are compared, so a write at a wrong place shows.
#[test]
fn the_log_wraps_on_every_lap() {
    for size in [0, 1, 7, 13, 32, 100, 211] {
        let mut partition = Partition::new(&Options {
            bytes: 12 << 10,
            index_permille: 500,
            pages: PagePolicy::Plain,
            prefault: false,
            ..Options::new(0)
        })
        .unwrap();
        let mut newest = HashMap::new();
        let mut number = 0;
        while partition.stats().log_wraps < 40 {
            let bytes = vec![number as u8; (size + number as usize % 3) % 220];
            let hash = KeyHash::new(5, &key(number));
            let stored = partition.set(hash, &key(number), NewValue::new(&bytes), NOW_S);
            assert!(stored.is_ok());
            newest.insert(number, bytes);
            number += 1;
            newest.remove(&number.wrapping_sub(12));
            for (number, bytes) in &newest {
                let hash = KeyHash::new(5, &key(*number));
                let item = partition.get(hash, &key(*number), NOW_S);
                assert_eq!(item.expect("a recent item").value, bytes);
            }
        }
        let census = partition.census();
        assert_eq!(census.index_items, partition.stats().live_items);
        assert!(partition.stats().log_evictions > 0);
    }
}

#[test]
fn what_the_log_has_overwritten_is_a_miss_at_once() {
    let mut partition = one_bucket(16);
    set(&mut partition, tagged(1), 1);
    for number in 2..=16 {
        set(&mut partition, tagged(2), number);
        assert!(has(&mut partition, tagged(1), 1) || number > 8);
    }
    let mut partition = one_bucket(16);
    set(&mut partition, tagged(1), 1);
    // Fifteen more lines in one slot: the key is set and deleted, so that no
    // bucket overflows and nothing is updated in place.
    for _ in 0..15 {
        set(&mut partition, tagged(2), 2);
        assert!(partition.delete(tagged(2), &key(2), NOW_S));
        assert!(has(&mut partition, tagged(1), 1));
    }
    assert_eq!(partition.stats().log_evictions, 0);
    set(&mut partition, tagged(2), 2);
    assert!(!has(&mut partition, tagged(1), 1));
    assert_eq!(partition.stats().log_evictions, 1);
    assert_eq!(partition.stats().live_items, 1);
}

/// The partition's own keys fill all of its buckets.
#[test]
fn a_cores_share_of_the_keys_does_not_narrow_its_buckets() {
    let route = Route::new(6, 6);
    let mut partition = Partition::new(&Options {
        bytes: 1 << 20,
        index_permille: 100,
        pages: PagePolicy::Plain,
        prefault: false,
        ..Options::new(0)
    })
    .unwrap();
    let buckets = partition.census().buckets;
    let mut stored = 0;
    for number in 0.. {
        let hash = KeyHash::new(5, &key(number));
        if route.core(&key(number)) == 2 {
            set(&mut partition, hash, number);
            stored += 1;
        }
        if stored == buckets * 4 {
            break;
        }
    }
    // At half fill a uniform spread loses 1 in 50; a sixth of the buckets would
    // lose most.
    let lost = partition.stats().index_evictions;
    assert!(lost * 25 < stored, "{lost} of {stored}");
}

/// No DELETE, no statistics, no errors, no variable sizes there.
#[test]
fn what_was_missing_is_there() {
    let mut partition = Partition::new(&Options::new(8 << 20)).unwrap();
    let hash = tagged(5);
    for size in [0, 1, 1000, 1 << 20] {
        let bytes = vec![3; size];
        let stored = partition.set(hash, b"k", NewValue::new(&bytes), NOW_S);
        assert!(stored.is_ok());
        assert_eq!(partition.get(hash, b"k", NOW_S).unwrap().value, bytes);
        assert!(partition.delete(hash, b"k", NOW_S));
        assert!(partition.get(hash, b"k", NOW_S).is_none());
    }
    let too_large = vec![3; (1 << 20) + 1];
    let refused = partition.set(hash, b"k", NewValue::new(&too_large), NOW_S);
    assert!(refused.is_err());
    let stats = partition.stats();
    assert_eq!((stats.gets, stats.hits, stats.misses), (8, 4, 4));
    assert_eq!((stats.sets, stats.stored), (5, 4));
    assert_eq!((stats.deletes, stats.delete_hits), (4, 4));
}

/// The key is never polled nor zero-terminated: any bytes will do.
#[test]
fn keys_may_be_any_bytes() {
    let mut partition = Partition::new(&Options::new(1 << 20)).unwrap();
    let keys: Vec<Vec<u8>> = (0..=255_u8)
        .flat_map(|byte| [vec![byte], vec![byte; 16], vec![byte; 250]])
        .collect();
    for (number, key) in keys.iter().enumerate() {
        let text = number.to_string();
        let stored = partition.set(
            KeyHash::new(1, key),
            key,
            NewValue::new(text.as_bytes()),
            NOW_S,
        );
        assert!(stored.is_ok());
    }
    for (number, key) in keys.iter().enumerate() {
        let number = number as u64;
        let result = partition.incr(KeyHash::new(1, key), key, 0, NOW_S);
        assert!(matches!(result, Ok(Arith::Number { value, .. }) if value == number));
    }
}
