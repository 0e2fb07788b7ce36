//! What clients ask: every command, of few items, with values that tell where they come from.

use std::collections::HashMap;

use cache::herd::StoreMode;
use cache::mica::KeyHash;

use crate::plan::Plan;
use checker::history::Action;

/// Hashes that fall into one of so many equal parts, fall into one bucket of a small index.
const BUCKETS_ALIKE: u64 = 24;
/// Pairs of keys alike at most: they have to be searched for.
const PAIRS_MAX: usize = 3;

/// The keys of a run's items.
pub(super) fn keys(plan: &Plan) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..plan.keys).map(key).collect();
    if plan.keys_alike {
        let pairs = PAIRS_MAX.min(keys.len() / 2);
        keys.splice(..pairs * 2, pairs_alike(plan, pairs).flatten());
    }
    keys
}

/// Pairs of keys whose hashes differ in nothing that an index of few buckets looks at. They share
/// core and tag, and neighbouring values of the rest.
fn pairs_alike(plan: &Plan, count: usize) -> impl Iterator<Item = [Vec<u8>; 2]> {
    let (seed, route) = (plan.hash_seed(), plan.server.route());
    let mut met = HashMap::new();
    let name = |number: u64| format!("twin-{number}").into_bytes();
    let pairs = (0..).filter_map(move |number| {
        let key = name(number);
        let hash = KeyHash::new(seed, &key);
        let place = (route.core(&key), hash.bucket(BUCKETS_ALIKE), hash.tag());
        // No key is in two pairs.
        let Some(twin) = met.remove(&place) else {
            met.insert(place, number);
            return None;
        };
        Some([name(twin), name(number)])
    });
    pairs.take(count)
}

/// The bytes of an item's key: short and long ones.
fn key(number: usize) -> Vec<u8> {
    let mut key = format!("key-{number}").into_bytes();
    let len = [key.len(), 16, 40, 250][number % 4];
    key.resize(len.max(key.len()), b'.');
    key
}

/// Draws what a client asks of an item; `number` is the command's own, `cas` a token that the client
/// has seen.
pub(super) fn draw(
    plan: &Plan,
    random: &mut fastrand::Rng,
    (key, number, clock_s): (usize, usize, u32),
    cas: Option<u64>,
) -> Action {
    let is_counter = key.is_multiple_of(3);
    let expiry_s = match random.u8(..3) {
        0 if plan.expires => clock_s + random.u32(..6),
        _ => 0,
    };
    let flags = random.u32(..) & 0xff;
    let choice = random.u8(..100);
    if plan.touches && choice < 70 {
        let soon_s = clock_s + random.u32(1..3);
        return match choice {
            0..15 => Action::GetAndTouch { expiry_s: 0 },
            15..30 => Action::GetAndTouch { expiry_s: soon_s },
            30..45 => Action::Get,
            _ => store(StoreMode::Set, value(plan, random, number), flags, soon_s),
        };
    }
    if is_counter {
        let text = |random: &mut fastrand::Rng| random.u32(..2_000).to_string().into_bytes();
        return match choice {
            0..25 => Action::Get,
            25..65 => Action::Incr {
                delta: random.u64(1..100),
            },
            65..75 => Action::Decr {
                delta: random.u64(1..100),
            },
            75..85 => store(StoreMode::Set, text(random), flags, expiry_s),
            85..91 => store(StoreMode::Add, text(random), flags, expiry_s),
            91..94 => store(StoreMode::Append, b"1".to_vec(), 0, 0),
            94..96 => Action::Touch { expiry_s },
            96..98 => Action::GetAndTouch { expiry_s },
            _ => Action::Delete,
        };
    }
    match choice {
        0..35 => Action::Get,
        35..60 => store(StoreMode::Set, value(plan, random, number), flags, expiry_s),
        60..66 => store(StoreMode::Add, value(plan, random, number), flags, expiry_s),
        66..72 => store(
            StoreMode::Replace,
            value(plan, random, number),
            flags,
            expiry_s,
        ),
        72..78 => match cas {
            Some(cas) => store(
                StoreMode::Cas(cas),
                value(plan, random, number),
                flags,
                expiry_s,
            ),
            None => Action::Get,
        },
        78..83 => store(StoreMode::Append, piece(plan, random, number), 0, 0),
        83..87 => store(StoreMode::Prepend, piece(plan, random, number), 0, 0),
        87..90 => Action::Touch { expiry_s },
        90..94 => Action::GetAndTouch { expiry_s },
        94..97 => Action::Incr { delta: 1 },
        _ => Action::Delete,
    }
}

fn store(mode: StoreMode, value: Vec<u8>, flags: u32, expiry_s: u32) -> Action {
    Action::Store {
        mode,
        value,
        flags,
        expiry_s,
    }
}

fn tag(number: usize) -> Vec<u8> {
    format!("<{number}>").into_bytes()
}

/// What is put before or behind a value: mostly little, sometimes more than there is room for.
fn piece(plan: &Plan, random: &mut fastrand::Rng, number: usize) -> Vec<u8> {
    match random.u8(..4) {
        0 => value(plan, random, number),
        _ => tag(number),
    }
}

/// A value that no other command stores. Some lengths come often, so that items are overwritten in
/// place.
fn value(plan: &Plan, random: &mut fastrand::Rng, number: usize) -> Vec<u8> {
    let mut value = tag(number);
    let len = if random.u32(..plan.large_one_in) == 0 {
        random.usize(..=plan.value_len_max)
    } else {
        [8, 32, 32, 100, 300][random.usize(..5)]
    };
    // Each byte depends on the command and on its place.
    let mut pattern = fastrand::Rng::with_seed(number as u64);
    while value.len() < len {
        value.push(pattern.u8(b'a'..=b'z'));
    }
    value
}
