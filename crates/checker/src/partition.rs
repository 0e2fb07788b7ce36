//! Commands of a history, carried out on a partition of MICA.

use cache::herd::{Status, StoreMode};
use cache::mica::{Arith, NewValue, Partition, Probe, Store, StoreError};

use crate::Exact;
use crate::history::{Action, Answer};

fn stored(told: Result<Store, StoreError>) -> Answer {
    match told {
        Ok(Store::Stored { cas }) => Answer::Done { cas: Some(cas) },
        Ok(Store::NotStored) => Answer::Refused(Status::NotStored),
        Ok(Store::Exists) => Answer::Refused(Status::Exists),
        Ok(Store::NotFound) => Answer::Refused(Status::NotFound),
        Err(_) => Answer::Refused(Status::TooLarge),
    }
}

fn moved(told: Result<Arith, StoreError>) -> Answer {
    match told {
        Ok(Arith::Number { value, cas }) => {
            let cas = Some(cas);
            Answer::Number { value, cas }
        }
        Ok(Arith::NotFound) => Answer::Refused(Status::NotFound),
        Ok(Arith::NotANumber) => Answer::Refused(Status::NotANumber),
        Err(_) => Answer::Refused(Status::TooLarge),
    }
}

/// Carries a command out.
pub fn carry_out(
    partition: &mut Partition,
    probe: Probe,
    key: &[u8],
    action: &Action,
    now_s: u32,
) -> Answer {
    let done = |found: bool| match found {
        true => Answer::Done { cas: None },
        false => Answer::Refused(Status::NotFound),
    };
    match *action {
        Action::Get | Action::GetAndTouch { .. } => {
            let item = match *action {
                Action::GetAndTouch { expiry_s } => {
                    partition.get_and_touch(probe, key, expiry_s, now_s)
                }
                _ => partition.get(probe, key, now_s),
            };
            item.map_or(Answer::Refused(Status::NotFound), |item| Answer::Value {
                value: item.value.to_vec(),
                flags: item.flags,
                cas: Some(item.cas),
            })
        }
        Action::Touch { expiry_s } => done(partition.touch(probe, key, expiry_s, now_s)),
        Action::Delete => done(partition.delete(probe, key, now_s)),
        Action::Incr { delta } => moved(partition.incr(probe, key, delta, now_s)),
        Action::Decr { delta } => moved(partition.decr(probe, key, delta, now_s)),
        Action::Store {
            mode,
            value: ref bytes,
            flags,
            expiry_s,
        } => {
            let new = NewValue {
                bytes,
                flags,
                expiry_s,
            };
            stored(match mode {
                StoreMode::Set => partition.set(probe, key, new, now_s),
                StoreMode::Add => partition.add(probe, key, new, now_s),
                StoreMode::Replace => partition.replace(probe, key, new, now_s),
                StoreMode::Append => partition.append(probe, key, bytes, now_s),
                StoreMode::Prepend => partition.prepend(probe, key, bytes, now_s),
                StoreMode::Cas(token) => partition.cas(probe, key, new, token, now_s),
            })
        }
    }
}

/// Looks whether what is there is right; what is missing was forgotten.
///
/// # Panics
/// When it is not.
pub fn look(partition: &mut Partition, probe: Probe, key: &[u8], exact: &mut Exact) {
    let now_s = exact.now_s();
    let found = carry_out(partition, probe, key, &Action::Get, now_s);
    let right = exact.told(key, &Action::Get, &found);
    right.unwrap_or_else(|wrong| panic!("{key:?}: {wrong}"));
    let expiry_s = partition.get(probe, key, now_s).map(|item| item.expiry_s);
    assert_eq!(
        expiry_s,
        exact.item(key).map(|(_, expiry_s)| expiry_s),
        "of {key:?}"
    );
}

/// Carries a command out and checks the answer: nothing but what does not fit is too large.
///
/// # Panics
/// When the answer is wrong.
pub fn step(
    partition: &mut Partition,
    probe: Probe,
    key: &[u8],
    action: &Action,
    exact: &mut Exact,
) {
    let old_len = exact.value_len(key);
    let answer = carry_out(partition, probe, key, action, exact.now_s());
    let right = exact.told(key, action, &answer);
    right.unwrap_or_else(|wrong| panic!("{key:?}: {wrong}"));
    let Action::Store { mode, value, .. } = action else {
        let refused = answer == Answer::Refused(Status::TooLarge);
        return assert!(!refused, "{action} of {key:?} is refused as too large");
    };
    let extends = matches!(mode, StoreMode::Append | StoreMode::Prepend);
    let old_len = old_len.filter(|_| extends).unwrap_or(0);
    let fits = key.len() + old_len + value.len() <= partition.item_bytes_max();
    match answer {
        Answer::Refused(Status::TooLarge) => assert!(!fits, "{action} of {key:?}"),
        Answer::Done { .. } => assert!(fits, "{action} of {key:?}"),
        _ => {}
    }
}

/// Index, log and counters agree.
///
/// # Panics
/// When they do not.
pub fn check_accounts(partition: &Partition) {
    let (stats, census) = (partition.stats(), partition.census());
    assert_eq!(census.index_items, stats.live_items);
    assert_eq!(census.log_items, stats.live_items);
    assert_eq!(census.index_bytes, stats.live_bytes);
    assert_eq!(census.log_bytes, stats.live_bytes);
    assert_eq!(stats.hits + stats.misses, stats.gets);
}
