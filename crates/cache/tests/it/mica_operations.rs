//! What each operation answers, at its boundaries.

use cache::mica::{
    Arith, CreateError, KEY_BYTES_MAX, KeyHash, NewValue, Options, PageKind, PagePolicy, Partition,
    Store, StoreError, VALUE_BYTES_MAX,
};

fn partition() -> Partition {
    Partition::new(&Options::new(1 << 20)).unwrap()
}

fn hash(key: &[u8]) -> KeyHash {
    KeyHash::new(9, key)
}

fn set(partition: &mut Partition, key: &[u8], value: &[u8], expiry_s: u32, now_s: u32) -> u64 {
    let new = NewValue {
        bytes: value,
        flags: 0xf1a6,
        expiry_s,
    };
    let stored = partition.set(hash(key), key, new, now_s).unwrap();
    stored.cas().unwrap()
}

fn value(partition: &mut Partition, key: &[u8], now_s: u32) -> Option<Vec<u8>> {
    let item = partition.get(hash(key), key, now_s)?;
    assert_eq!(item.flags, 0xf1a6);
    Some(item.value.to_vec())
}

fn number(result: Result<Arith, StoreError>) -> Option<u64> {
    match result.unwrap() {
        Arith::Number { value, .. } => Some(value),
        Arith::NotFound | Arith::NotANumber => None,
    }
}

#[test]
fn add_replace_and_cas_depend_on_what_is_there() {
    let (mut cache, key) = (partition(), b"key");
    let new = NewValue::new(b"new");
    assert_eq!(cache.replace(hash(key), key, new, 1), Ok(Store::NotStored));
    assert_eq!(cache.append(hash(key), key, b"x", 1), Ok(Store::NotStored));
    assert_eq!(cache.prepend(hash(key), key, b"x", 1), Ok(Store::NotStored));
    assert_eq!(cache.cas(hash(key), key, new, 1, 1), Ok(Store::NotFound));
    let added = cache.add(hash(key), key, new, 1).unwrap().cas().unwrap();
    assert_eq!(cache.add(hash(key), key, new, 1), Ok(Store::NotStored));
    let replaced = cache.replace(hash(key), key, new, 1).unwrap();
    assert_ne!(replaced.cas().unwrap(), added);
    assert_eq!(cache.cas(hash(key), key, new, added, 1), Ok(Store::Exists));
    let swapped = cache.cas(hash(key), key, new, replaced.cas().unwrap(), 1);
    let token = swapped.unwrap().cas().unwrap();
    assert_eq!(cache.get(hash(key), key, 1).unwrap().cas, token);
}

#[test]
fn extending_keeps_flags_and_expiry() {
    let (mut cache, key) = (partition(), b"key");
    set(&mut cache, key, b"middle", 50, 1);
    for _ in 0..20 {
        assert!(
            cache
                .append(hash(key), key, b">>", 1)
                .unwrap()
                .cas()
                .is_some()
        );
        assert!(
            cache
                .prepend(hash(key), key, b"<", 1)
                .unwrap()
                .cas()
                .is_some()
        );
    }
    let expected = ["<".repeat(20), "middle".into(), ">>".repeat(20)].concat();
    assert_eq!(value(&mut cache, key, 49).unwrap(), expected.as_bytes());
    assert_eq!(cache.get(hash(key), key, 49).unwrap().expiry_s, 50);
    assert_eq!(value(&mut cache, key, 50), None);
    let stats = cache.stats();
    assert!(stats.in_place_updates > 0 && stats.in_place_updates < 40);
    assert_eq!(stats.live_items, 0);
}

#[test]
fn numbers_wrap_upwards_and_stop_at_zero() {
    let (mut cache, key) = (partition(), b"key");
    assert_eq!(cache.incr(hash(key), key, 1, 1), Ok(Arith::NotFound));
    let before = set(&mut cache, key, b"99", 0, 1);
    let Ok(Arith::Number { value: 100, cas }) = cache.incr(hash(key), key, 1, 1) else {
        panic!("99 + 1");
    };
    assert_ne!(cas, before);
    assert_eq!(cache.get(hash(key), key, 1).unwrap().cas, cas);
    assert_eq!(value(&mut cache, key, 1).unwrap(), b"100");
    assert_eq!(number(cache.decr(hash(key), key, 1, 1)), Some(99));
    assert_eq!(value(&mut cache, key, 1).unwrap(), b"99 ");
    assert_eq!(number(cache.incr(hash(key), key, 2, 1)), Some(101));
    assert_eq!(number(cache.decr(hash(key), key, 500, 1)), Some(0));
    assert_eq!(value(&mut cache, key, 1).unwrap(), b"0  ");
    assert_eq!(
        number(cache.incr(hash(key), key, u64::MAX, 1)),
        Some(u64::MAX)
    );
    assert_eq!(number(cache.incr(hash(key), key, 3, 1)), Some(2));
    assert_eq!(value(&mut cache, key, 1).unwrap(), b"2                   ");
    set(&mut cache, key, b"twelve", 0, 1);
    assert_eq!(cache.decr(hash(key), key, 1, 1), Ok(Arith::NotANumber));
    assert_eq!(value(&mut cache, key, 1).unwrap(), b"twelve");
}

#[test]
fn an_item_is_there_until_the_second_of_its_expiry() {
    let mut cache = partition();
    set(&mut cache, b"a", b"1", 10, 1);
    set(&mut cache, b"b", b"1", u32::MAX, 1);
    set(&mut cache, b"c", b"1", 0, 1);
    assert!(value(&mut cache, b"a", 9).is_some());
    assert_eq!(cache.stats().expired, 0);
    assert!(value(&mut cache, b"a", 10).is_none());
    assert_eq!((cache.stats().expired, cache.stats().live_items), (1, 2));
    assert!(value(&mut cache, b"a", 10).is_none());
    assert_eq!(cache.stats().expired, 1, "counted once");
    assert!(value(&mut cache, b"b", u32::MAX - 1).is_some());
    assert!(value(&mut cache, b"b", u32::MAX).is_none());
    assert!(value(&mut cache, b"c", u32::MAX).is_some());
    // To every operation an expired item is none.
    set(&mut cache, b"d", b"1", 5, 1);
    assert!(!cache.delete(hash(b"d"), b"d", 5));
    set(&mut cache, b"d", b"1", 5, 5);
    assert_eq!(cache.incr(hash(b"d"), b"d", 1, 5), Ok(Arith::NotFound));
}

#[test]
fn touching_changes_the_expiry_and_not_the_token() {
    let (mut cache, key) = (partition(), b"key");
    assert!(!cache.touch(hash(key), key, 9, 1));
    let cas = set(&mut cache, key, b"v", 10, 1);
    assert!(cache.touch(hash(key), key, 20, 9));
    let item = cache.get_and_touch(hash(key), key, 30, 19).unwrap();
    assert_eq!((item.value, item.expiry_s, item.cas), (&b"v"[..], 30, cas));
    assert!(cache.touch(hash(key), key, 0, 29));
    assert_eq!(cache.get(hash(key), key, u32::MAX).unwrap().cas, cas);
    assert!(cache.touch(hash(key), key, 3, 4), "touched into the past");
    assert!(cache.get_and_touch(hash(key), key, 0, 4).is_none());
    assert_eq!((cache.stats().touches, cache.stats().touch_hits), (6, 4));
}

#[test]
fn a_flush_drops_what_was_stored_before_it() {
    let mut cache = partition();
    for key in [b"a", b"b", b"c"] {
        set(&mut cache, key, b"old", 0, 5);
    }
    cache.flush_all(0, 5);
    assert_eq!((cache.stats().live_items, cache.stats().live_bytes), (0, 0));
    assert_eq!(cache.census().index_items, 0);
    assert_eq!(cache.census().log_items, 0);
    set(&mut cache, b"b", b"new", 0, 5);
    assert_eq!(value(&mut cache, b"a", 5), None);
    assert_eq!(value(&mut cache, b"b", 5).unwrap(), b"new");
    let added = cache.add(hash(b"c"), b"c", NewValue::new(b"new"), 5);
    assert!(added.unwrap().cas().is_some());
    assert_eq!((cache.stats().live_items, cache.stats().flushes), (2, 1));
}

#[test]
fn a_flush_to_come_drops_what_was_stored_before_its_moment() {
    let mut cache = partition();
    set(&mut cache, b"before", b"1", 0, 5);
    cache.flush_all(100, 5);
    set(&mut cache, b"between", b"1", 0, 99);
    assert!(value(&mut cache, b"before", 99).is_some());
    // The first operation at or after the moment is itself one after it.
    set(&mut cache, b"after", b"1", 0, 100);
    assert!(value(&mut cache, b"before", 100).is_none());
    assert!(value(&mut cache, b"between", 100).is_none());
    assert!(value(&mut cache, b"after", 100).is_some());
    assert!(value(&mut cache, b"after", 200).is_some(), "flushed once");
    // A later flush replaces one that is pending; one that is due comes first.
    cache.flush_all(300, 200);
    cache.flush_all(400, 200);
    assert!(value(&mut cache, b"after", 399).is_some());
    cache.flush_all(500, 400);
    assert!(value(&mut cache, b"after", 400).is_none());
    assert_eq!(cache.stats().flushes, 4, "those asked for");
}

#[test]
fn what_cannot_be_stored_is_refused_and_changes_only_what_it_must() {
    let mut cache = Partition::new(&Options {
        bytes: 4096,
        ..Options::new(0)
    })
    .unwrap();
    let max = cache.item_bytes_max();
    let bytes = vec![7; 4096];
    let fits = NewValue::new(&bytes[..max - 3]);
    let too_large = NewValue::new(&bytes[..max - 2]);
    let error = StoreError::TooLarge { bytes: max + 1 };
    let key = b"key";
    set(&mut cache, key, b"1", 0, 1);
    assert_eq!(cache.add(hash(key), key, too_large, 1), Err(error));
    assert_eq!(cache.replace(hash(key), key, too_large, 1), Err(error));
    assert_eq!(cache.cas(hash(key), key, too_large, 1, 1), Err(error));
    assert!(cache.append(hash(key), key, &bytes, 1).is_err());
    assert!(cache.prepend(hash(key), key, &bytes, 1).is_err());
    assert_eq!(value(&mut cache, key, 1).unwrap(), b"1");
    assert_eq!(cache.set(hash(key), key, too_large, 1), Err(error));
    assert_eq!(value(&mut cache, key, 1), None, "stale");
    assert!(cache.set(hash(key), key, fits, 1).is_ok());
    assert_eq!(cache.get(hash(key), key, 1).unwrap().value, fits.bytes);

    for len in [0, 251, 4096] {
        let error = Err(StoreError::KeyLength { len });
        let (key, new) = (&bytes[..len], NewValue::new(b""));
        assert_eq!(cache.set(hash(key), key, new, 1), error);
        assert_eq!(cache.add(hash(key), key, new, 1), error);
        assert_eq!(cache.replace(hash(key), key, new, 1), error);
        assert_eq!(cache.cas(hash(key), key, new, 1, 1), error);
        assert_eq!(cache.append(hash(key), key, b"", 1), error);
        assert!(cache.get(hash(key), key, 1).is_none());
        assert!(!cache.delete(hash(key), key, 1));
        assert_eq!(cache.incr(hash(key), key, 1, 1), Ok(Arith::NotFound));
    }
}

/// Two starts that are otherwise the same give no token twice.
#[test]
fn a_token_of_an_earlier_start_fits_nothing() {
    let start = |first_version| {
        Partition::new(&Options {
            first_version,
            ..Options::new(64 << 10)
        })
        .unwrap()
    };
    let (mut before, mut after) = (start(7), start(u32::MAX - 3));
    for round in 0..10 {
        let value = [round; 8];
        set(&mut before, b"key", &value, 0, 1);
        set(&mut after, b"key", &value, 0, 1);
        let old = before.get(hash(b"key"), b"key", 1).unwrap().cas;
        let new = NewValue::new(b"other");
        let stored = after.cas(hash(b"key"), b"key", new, old, 1);
        assert_eq!(stored, Ok(Store::Exists), "round {round}");
    }
}

/// Updated items move to the front before the log overwrites them, and the log
/// does not advance for them otherwise.
#[test]
fn an_item_in_use_outlives_many_laps_and_moves_once_a_lap() {
    let mut cache = Partition::new(&Options {
        bytes: 32 << 10,
        index_permille: 250,
        pages: PagePolicy::Plain,
        prefault: false,
        ..Options::new(0)
    })
    .unwrap();
    set(&mut cache, b"hot", b"0", 0, 1);
    let mut updates = 0;
    for number in 0_u32.. {
        set(&mut cache, &number.to_le_bytes(), &[0; 40], 0, 1);
        set(&mut cache, b"hot", b"1", 0, 1);
        updates += 1;
        assert!(value(&mut cache, b"hot", 1).is_some());
        if cache.stats().log_wraps == 30 {
            break;
        }
    }
    let moves = updates - cache.stats().in_place_updates;
    assert!((30..=45).contains(&moves), "{moves}");
}

#[test]
fn options_are_checked() {
    let new = |bytes, index_permille| {
        Partition::new(&Options {
            bytes,
            index_permille,
            pages: PagePolicy::Plain,
            prefault: true,
            ..Options::new(0)
        })
    };
    for permille in [0, 1000, u32::MAX] {
        assert!(matches!(
            new(1 << 20, permille),
            Err(CreateError::IndexShare(share)) if share == permille
        ));
    }
    for bytes in [0, 64, 1087] {
        assert!(matches!(new(bytes, 1), Err(CreateError::TooSmall { .. })));
    }
    assert!(matches!(new(4096, 900), Err(CreateError::TooSmall { .. })));
    assert!(matches!(new(usize::MAX, 1), Err(CreateError::Memory(_))));
    let smallest = new(1088, 1).unwrap();
    assert_eq!(smallest.census().log_size_bytes, 1024);
    assert_eq!(smallest.pages(), PageKind::Plain);

    // Index and log together take what was asked for, to a line or two.
    for permille in [1, 125, 500, 999] {
        let census = new(3 << 20, permille).unwrap().census();
        let used = census.buckets * 64 + census.log_size_bytes;
        assert!(used <= 3 << 20 && used + 64 >= 3 << 20);
        let share = census.buckets * 64 * 1000 / (3 << 20);
        assert!(share.abs_diff(u64::from(permille)) <= 1, "{share}");
    }
}

#[test]
fn counters_can_be_reset_and_gauges_stay() {
    let mut cache = partition();
    set(&mut cache, b"a", b"1", 0, 1);
    value(&mut cache, b"a", 1);
    cache.reset_stats();
    let stats = cache.stats();
    assert_eq!((stats.gets, stats.hits, stats.sets), (0, 0, 0));
    assert_eq!((stats.live_items, stats.live_bytes), (1, 24));
}

#[test]
fn no_item_is_larger_than_the_largest_value() {
    let mut cache = Partition::new(&Options::new(64 << 20)).unwrap();
    let largest = KEY_BYTES_MAX + VALUE_BYTES_MAX;
    assert_eq!(cache.item_bytes_max(), largest);
    let bytes = vec![7; 1000];
    let store = |cache: &mut Partition, len: usize| {
        let hash = KeyHash::new(1, b"key");
        cache.set(hash, b"key", NewValue::new(&bytes[..len]), 1)
    };
    assert!(store(&mut cache, 1000).is_ok());
    cache.limit_values(900);
    assert_eq!(cache.value_bytes_max(), 900);
    assert_eq!(cache.item_bytes_max(), KEY_BYTES_MAX + 900);
    assert!(store(&mut cache, 901).is_err());
    assert!(store(&mut cache, 900).is_ok());
    let hash = KeyHash::new(1, b"key");
    assert!(cache.append(hash, b"key", b"x", 1).is_err());
    cache.limit_values(usize::MAX);
    assert_eq!(cache.item_bytes_max(), largest);
}
