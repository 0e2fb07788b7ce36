//! Keys that somebody has chosen so that all of them fall into one bucket.
//!
//! The hash is keyed with a seed that a server draws when it starts, and tells HERD clients. Who knows
//! it can find such keys by trying. What they can do with them is to make each other forgotten.

use cache::mica::{KeyHash, NewValue, Options, PagePolicy, Partition, Store};

const SEED: u64 = 0x5eed_0f5e_ed0f_5eed;
const NOW_S: u32 = 1;
/// Slots of a bucket.
const SLOTS: usize = 8;

fn partition() -> Partition {
    Partition::new(&Options {
        bytes: 4 << 20,
        index_permille: 16,
        pages: PagePolicy::Plain,
        prefault: false,
        ..Options::new(0)
    })
    .expect("a partition")
}

/// The first keys, of all that are numbers, whose bucket is this one.
fn keys_of_bucket(bucket: u64, buckets: u64, count: usize) -> Vec<String> {
    (0u64..)
        .map(|number| format!("k{number}"))
        .filter(|key| KeyHash::new(SEED, key.as_bytes()).bucket(buckets) == bucket)
        .take(count)
        .collect()
}

fn set(partition: &mut Partition, key: &str, value: &str) {
    let hash = KeyHash::new(SEED, key.as_bytes());
    let value = NewValue::new(value.as_bytes());
    let stored = partition.set(hash, key.as_bytes(), value, NOW_S);
    assert!(matches!(stored, Ok(Store::Stored { .. })), "{stored:?}");
}

fn get(partition: &mut Partition, key: &str) -> Option<String> {
    let hash = KeyHash::new(SEED, key.as_bytes());
    let item = partition.get(hash, key.as_bytes(), NOW_S)?;
    Some(String::from_utf8(item.value.to_vec()).expect("text"))
}

#[test]
fn one_bucket_taking_all_keys_forgets_them_and_no_others() {
    let mut partition = partition();
    let buckets = partition.census().buckets;
    assert!(buckets > 1000);
    let crowd = keys_of_bucket(buckets / 2, buckets, 1000);
    // Neighbours on both sides, and all over the index.
    let others: Vec<String> = [buckets / 2 - 1, buckets / 2 + 1]
        .into_iter()
        .flat_map(|bucket| keys_of_bucket(bucket, buckets, 4))
        .chain((0..200).map(|number| format!("other{number}")))
        .filter(|key| KeyHash::new(SEED, key.as_bytes()).bucket(buckets) != buckets / 2)
        .collect();
    for key in &others {
        set(&mut partition, key, &format!("{key} is fine"));
    }
    let kept = others
        .iter()
        .filter(|key| get(&mut partition, key).is_some())
        .count();
    assert_eq!(kept, others.len());
    let mut random = fastrand::Rng::with_seed(3);
    let mut versions = vec![None; crowd.len()];
    for version in 0..20_000 {
        let at = random.usize(..crowd.len());
        match random.u8(..8) {
            0 => {
                let hash = KeyHash::new(SEED, crowd[at].as_bytes());
                partition.delete(hash, crowd[at].as_bytes(), NOW_S);
                versions[at] = None;
            }
            1..=4 => {
                set(&mut partition, &crowd[at], &format!("{version}"));
                versions[at] = Some(version);
                // What was stored last is there.
                assert_eq!(get(&mut partition, &crowd[at]), Some(version.to_string()));
            }
            _ => {
                // What is there is what was stored last.
                if let Some(got) = get(&mut partition, &crowd[at]) {
                    assert_eq!(
                        Some(got),
                        versions[at].map(|version: i32| version.to_string())
                    );
                }
            }
        }
    }
    let there = crowd
        .iter()
        .filter(|key| get(&mut partition, key).is_some())
        .count();
    assert!(there <= SLOTS, "{there} of them are there");
    assert!(partition.stats().index_evictions > 1000);
    for key in &others {
        assert_eq!(get(&mut partition, key), Some(format!("{key} is fine")));
    }
    let census = partition.census();
    assert_eq!(census.index_items, census.log_items);
    assert_eq!(census.log_items, partition.stats().live_items);
}
