//! Tests that begin where the counters of a partition run over.

use super::partition::{Options, Origin, Partition};
use super::{KeyHash, NewValue, Store};

fn hash(key: &[u8]) -> KeyHash {
    KeyHash::new(1, key)
}

fn small(origin: &Origin) -> Partition {
    Partition::with_origin(&Options::new(16 << 10), origin).unwrap()
}

fn set(partition: &mut Partition, key: &[u8], value: &[u8]) -> u64 {
    let stored = partition.set(hash(key), key, NewValue::new(value), 1);
    stored.unwrap().cas().unwrap()
}

#[test]
fn items_live_on_where_offsets_pass_the_width_of_a_slot() {
    let mut partition = small(&Origin {
        offset: (1 << 48) - 500,
        ..Origin::default()
    });
    for number in 0..2000_u32 {
        let key = number.to_le_bytes();
        set(&mut partition, &key, &[number as u8; 40]);
        for number in number.saturating_sub(20)..=number {
            let key = number.to_le_bytes();
            let item = partition.get(hash(&key), &key, 1).expect("a recent item");
            assert_eq!(item.value, [number as u8; 40]);
        }
        let census = partition.census();
        assert_eq!(census.index_items, partition.stats().live_items);
        assert_eq!(census.log_items, partition.stats().live_items);
    }
    assert!(partition.log.head() > 1 << 48);
}

#[test]
fn sweeping_along_takes_nothing_that_is_live() {
    let origin = Origin {
        sweep_units: 4000,
        ..Origin::default()
    };
    let mut swept = small(&origin);
    let mut unswept = small(&Origin::default());
    for number in 0..3000_u32 {
        let key = (number % 300).to_le_bytes();
        let value = [0; 50];
        set(&mut swept, &key, &value[..number as usize % 50]);
        set(&mut unswept, &key, &value[..number as usize % 50]);
        assert_eq!(swept.stats(), unswept.stats());
        assert_eq!(swept.census(), unswept.census());
    }
}

#[test]
fn slots_without_an_entry_are_swept_as_the_head_advances() {
    let stale_after = |sweep_units| {
        let mut partition = small(&Origin {
            sweep_units,
            ..Origin::default()
        });
        for number in 0..100_u32 {
            set(&mut partition, &number.to_le_bytes(), b"value");
        }
        // One key fills the log until nothing else is left, and once more.
        while partition.log.head() < 3 * partition.log.units() {
            set(&mut partition, b"only", b"value");
            assert!(partition.delete(hash(b"only"), b"only", 1));
        }
        assert_eq!(partition.stats().live_items, 0);
        partition.index.slots_in_use()
    };
    assert!(stale_after(1 << 46) > 90);
    assert_eq!(stale_after(1500), 0);
}

/// A token of one epoch of the version counter is not given out in the next
/// one, although the version's low bits come again.
#[test]
fn an_item_moves_when_the_version_counter_runs_over() {
    let mut partition = small(&Origin {
        version: (1 << 32) - 3,
        ..Origin::default()
    });
    let key = b"key";
    let before = set(&mut partition, key, b"1");
    let in_place = set(&mut partition, key, b"2");
    assert_eq!(partition.stats().in_place_updates, 1);
    assert_eq!(before as u32, in_place as u32);
    let after = set(&mut partition, key, b"3");
    assert_eq!(partition.stats().in_place_updates, 1, "it was not moved");
    assert_ne!(after as u32, in_place as u32);
    assert_ne!(after >> 32, 0, "the version zero is left out");
    set(&mut partition, key, b"4");
    assert_eq!(partition.stats().in_place_updates, 2);
    for token in [before, in_place, after] {
        let stored = partition.cas(hash(key), key, NewValue::new(b"5"), token, 1);
        assert_eq!(stored, Ok(Store::Exists));
    }
}

/// Offsets that are a multiple of 2^32 units apart, as after 2^32 sets of one
/// size, do not fold to one token.
#[test]
fn tokens_of_equal_version_differ_for_regular_distances() {
    use super::entry::Header;
    let header = Header::new(1, 1, 0, 0, 77);
    let token = Partition::token(1000, header);
    for distance in 1..1000 {
        assert_ne!(Partition::token(1000 + (distance << 32), header), token);
        assert_ne!(Partition::token(1000 + distance * 8, header), token);
    }
}

#[test]
fn partitions_move_between_threads() {
    fn assert_send<T: Send>() {}
    assert_send::<Partition>();
}
