//! Rot in a record, in its copy, or in both, when a crash comes while a segment is given up.

use std::collections::BTreeMap;
use std::sync::Arc;

use block::Device;
use block::sim::{SimConfig, SimDevice};
use store::examine::examine;
use store::{Store, StoreError};

use super::rig::{LEN, Rig, SEGMENT, key};

const CHANGING: std::ops::Range<u32> = 900..905;

/// Where records of one version stand that were being moved, by version: the original and its copies.
fn copied(rig: &Rig) -> Vec<(Vec<u8>, Vec<u64>)> {
    let mut found: BTreeMap<_, (Vec<u8>, Vec<u64>)> = BTreeMap::new();
    let image = SimDevice::with_image(SimConfig::new(2, LEN), rig.device.image());
    let device: Arc<dyn Device> = Arc::new(image);
    let examined = examine(
        &device,
        |_, _| (),
        |record| {
            let (_, places) = found
                .entry(record.version)
                .or_insert_with(|| (record.key.to_vec(), Vec::new()));
            places.push(record.at);
        },
    );
    examined.expect("a store");
    found.into_values().filter(|(_, at)| at.len() > 1).collect()
}

/// Asks a store that has crashed, with a bit of the records at these places wrong, for all keys.
fn judge(rig: &Rig, expected: &BTreeMap<u32, Vec<u8>>, of: &[u8], damaged: &[u64], is_lost: bool) {
    let image = SimDevice::with_image(SimConfig::new(2, LEN), rig.device.image());
    for at in damaged {
        // In the key of a copy, and in the value of what it is a copy of.
        image.flip_bit(at + 18, 3);
    }
    let (store, _) = Store::unmaintained(Arc::new(image), &rig.options).expect("recovered");
    for (i, value) in expected {
        match store.get(&key(*i)) {
            Err(StoreError::Damaged { .. }) if is_lost && key(*i) == of => {}
            found => {
                let found = found.unwrap_or_else(|error| panic!("{damaged:?}: key {i}: {error}"));
                assert!(!is_lost || key(*i) != of, "{damaged:?}: key {i} is there");
                assert!(found.as_ref() == Some(value), "{damaged:?}: key {i}");
            }
        }
    }
}

/// Overwrites until segments are given up, and shows each step of that with the records that have copies by then, but
/// for those that are changed, whose older versions say nothing.
fn while_moving(mut look: impl FnMut(&Rig, &BTreeMap<u32, Vec<u8>>, &[(Vec<u8>, Vec<u64>)])) {
    let mut rig = Rig::new();
    let mut expected = BTreeMap::new();
    let changing = CHANGING.map(key).collect::<Vec<_>>();
    for round in 0..40 {
        let mut puts = vec![(round, 300)];
        puts.extend(CHANGING.map(|i| (i, 9800)));
        for (i, len) in puts {
            let value = vec![round as u8; len];
            rig.put(i, &value, 0).expect("put");
            expected.insert(i, value);
            while rig.settle_maintenance(rig.left + 1) {
                while rig.leaving.is_some() {
                    rig.maintain();
                    let mut copied = copied(&rig);
                    copied.retain(|(of, _)| !changing.contains(of));
                    look(&rig, &expected, &copied);
                }
            }
        }
    }
}

#[test]
fn one_of_a_record_and_its_copy_is_enough() {
    let mut tried = 0;
    while_moving(|rig, expected, copied| {
        for (of, places) in copied {
            for &at in places {
                judge(rig, expected, of, &[at], false);
            }
            judge(rig, expected, of, places, true);
            tried += 1;
        }
    });
    assert!(tried > 20, "{tried} records were damaged");
}

/// What was moved out of a segment in which something has rotted is not looked for there again.
#[test]
fn a_copy_counts_before_an_original_beside_damage() {
    let mut tried = 0;
    while_moving(|rig, expected, copied| {
        let segment = |at: u64| at / SEGMENT;
        let victim = rig.leaving.map(|victim| u64::from(victim) + 1);
        let originals = copied.iter().filter_map(|(of, places)| {
            let at = places.iter().find(|&&at| Some(segment(at)) == victim)?;
            Some((of, *at))
        });
        let originals: Vec<_> = originals.collect();
        for pair in originals.windows(2) {
            let [(_, rotten), (of, beside)] = pair else {
                unreachable!("two each");
            };
            let image = SimDevice::with_image(SimConfig::new(2, LEN), rig.device.image());
            image.flip_bit(rotten + 18, 3);
            let device = Arc::new(image.clone());
            let (store, _) = Store::unmaintained(device, &rig.options).expect("recovered");
            image.flip_bit(beside + 18, 3);
            for (i, value) in expected {
                let found = store.get(&key(*i));
                let found =
                    found.unwrap_or_else(|error| panic!("{of:?} beside damage: key {i}: {error}"));
                assert!(found.as_ref() == Some(value), "key {i}");
            }
            tried += 1;
        }
    });
    assert!(tried > 5, "{tried} segments were damaged");
}
