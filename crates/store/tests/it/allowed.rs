//! What a store may answer for a key after all that has happened to it: the one model of the suites
//! that lose, rot, refuse and drop.
//!
//! Changes of a key follow each other. One that was acknowledged holds. One that was not (it failed, or
//! its future was dropped) holds or does not, and a crash may decide that anew; but the next one that
//! is acknowledged ends that: nothing from before it may be seen again.

use std::collections::BTreeMap;

/// A change of a key, in events of the device; see `SimDevice::events`.
#[derive(Clone, Debug)]
struct Change {
    began: u64,
    /// `None` if it was never acknowledged.
    ended: Option<u64>,
    /// What the key has afterwards.
    value: Option<Vec<u8>>,
}

/// What each key may show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed(BTreeMap<Vec<u8>, Vec<Change>>);

/// No event is later.
pub(crate) const NOW: u64 = u64::MAX;

impl Allowed {
    /// A change begins: `value` is what the key is to have, `None` if it is removed.
    pub(crate) fn begin(&mut self, key: &[u8], value: Option<&[u8]>, event: u64) {
        self.0.entry(key.to_vec()).or_default().push(Change {
            began: event,
            ended: None,
            value: value.map(<[u8]>::to_vec),
        });
    }

    /// The last change of the key was acknowledged.
    pub(crate) fn acknowledge(&mut self, key: &[u8], event: u64) {
        let changes = self.0.get_mut(key).expect("a key that was changed");
        changes.last_mut().expect("a change").ended = Some(event);
    }

    /// The last change of the key was refused before anything was written.
    pub(crate) fn refuse(&mut self, key: &[u8]) {
        let changes = self.0.get_mut(key).expect("a key that was changed");
        changes.pop();
    }

    /// How many changes were acknowledged, of how many.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let changes = || self.0.values().flatten();
        let acknowledged = changes().filter(|change| change.ended.is_some());
        (acknowledged.count(), changes().count())
    }

    /// How many bytes of values there may be at most now.
    pub(crate) fn bytes_max(&self) -> usize {
        let longest = |key: &Vec<u8>| {
            let lens = self.of(key, NOW).into_iter().flatten().map(<[u8]>::len);
            lens.max().unwrap_or(0)
        };
        self.0.keys().map(longest).sum()
    }

    /// All keys that were ever changed.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys().map(Vec::as_slice)
    }

    /// Forgets what came after an event, and what was not seen of the rest: what a store that was opened
    /// after a crash has shown is what it has.
    pub(crate) fn settle(&mut self, key: &[u8], seen: Option<&[u8]>) {
        let changes = self.0.entry(key.to_vec()).or_default();
        *changes = vec![Change {
            began: 0,
            ended: Some(0),
            value: seen.map(<[u8]>::to_vec),
        }];
    }

    /// What a key may have when nothing later than `event` happened.
    pub(crate) fn of(&self, key: &[u8], event: u64) -> Vec<Option<&[u8]>> {
        let changes = self.0.get(key).map_or(&[][..], Vec::as_slice);
        let is_sure = |change: &Change| change.ended.is_some_and(|ended| ended < event);
        let sure = changes.iter().rposition(is_sure);
        let later = &changes[sure.map_or(0, |sure| sure + 1)..];
        let begun = later.iter().take_while(|change| change.began < event);
        let sure = sure.and_then(|sure| changes[sure].value.as_deref());
        let mut may = vec![sure];
        may.extend(begun.map(|change| change.value.as_deref()));
        may
    }

    /// Whether a key may show this; if not, why.
    pub(crate) fn judge(&self, key: &[u8], found: Option<&[u8]>, event: u64) -> Result<(), String> {
        let may = self.of(key, event);
        if may.contains(&found) {
            return Ok(());
        }
        let name = String::from_utf8_lossy(key);
        let was_once = self.0.get(key).is_some_and(|changes| {
            let mut values = changes.iter().map(|change| change.value.as_deref());
            values.any(|value| value == found)
        });
        let what = match found {
            None => "lost",
            Some(_) if was_once => "what it had",
            Some(_) => "foreign",
        };
        Err(format!(
            "key {name} shows {} ({what}), and may show {}",
            show(found),
            may.into_iter().map(show).collect::<Vec<_>>().join(" or ")
        ))
    }
}

fn show(value: Option<&[u8]>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(value) => {
            let beginning = String::from_utf8_lossy(&value[..value.len().min(12)]);
            format!("{} bytes {beginning:?}", value.len())
        }
    }
}
