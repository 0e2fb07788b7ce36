//! Keys of which the log may hold something that the index does not know, and places of which the index
//! knows that are not to be believed.
//!
//! Both come of errors, or of operations that were dropped. As long as there are none, asking costs one
//! load of a line that nobody writes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::format::layout::Layout;
use crate::hash::KeyHash;
use crate::index::Place;
use crate::shared::Shared;

/// Beyond this many keys, all count as unsettled: each failed change has left one.
const KEYS_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    /// Of both tables together.
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    keys: HashMap<KeyHash, Noted>,
    has_lost_count: bool,
    superseded: HashMap<KeyHash, Vec<Place>>,
}

/// Why a key is noted.
#[derive(Debug, Default)]
struct Noted {
    /// Changes of it that their callers have left, and that have not ended.
    left: u32,
    /// One has ended without the index knowing of its record, and none has been carried out since.
    is_unknown: bool,
}

impl Unsettled {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let count = state.keys.len() + state.superseded.len() + usize::from(state.has_lost_count);
        self.count.store(count, Ordering::Release);
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn note_as(&self, hash: KeyHash, note: impl FnOnce(&mut Noted)) {
        self.change(|state| {
            if state.keys.len() < KEYS_MAX || state.keys.contains_key(&hash) {
                note(state.keys.entry(hash).or_default());
            } else {
                state.has_lost_count = true;
            }
        });
    }

    /// Notes that a record of the key may come to the log without the index knowing it, of a change that its
    /// caller has left, until it is known what has become of it; what becomes of other changes of the key
    /// says nothing of that. Whoever removes the key has to write a tombstone even if it seems to have no
    /// value.
    pub(crate) fn note_left(shared: &Arc<Shared>, hash: KeyHash) -> Left {
        shared.unsettled.note_as(hash, |noted| noted.left += 1);
        Left {
            shared: shared.clone(),
            hash,
            end: End::Unknown,
        }
    }

    fn end_left(&self, hash: KeyHash, end: End) {
        self.change(|state| {
            let Some(noted) = state.keys.get_mut(&hash) else {
                return;
            };
            noted.left = noted.left.saturating_sub(1);
            match end {
                End::Known => noted.is_unknown = false,
                End::Nothing => {}
                End::Unknown => noted.is_unknown = true,
            }
            if noted.left == 0 && !noted.is_unknown {
                state.keys.remove(&hash);
            }
        });
    }

    /// Whether a record of the key may be in the log that the index does not know.
    pub(crate) fn is_noted(&self, hash: KeyHash) -> bool {
        !self.is_empty() && {
            let state = self.state();
            state.has_lost_count || state.keys.contains_key(&hash)
        }
    }

    /// A later change of the key is in the log, and the index knows it.
    pub(crate) fn settle(&self, hash: KeyHash) {
        if !self.is_empty() {
            self.change(|state| {
                if let Some(noted) = state.keys.get_mut(&hash) {
                    noted.is_unknown = false;
                    if noted.left == 0 {
                        state.keys.remove(&hash);
                    }
                }
            });
        }
    }

    /// What stands in these places cannot be read. If it is of this key, it is not current any more. Nothing is noted, and
    /// this is false, if `take_over` says that something else is not in their place: no record is moved while it is asked.
    pub(crate) fn supersede(
        &self,
        hash: KeyHash,
        places: &[Place],
        take_over: impl FnOnce() -> bool,
    ) -> bool {
        let mut is_noted = false;
        self.change(|state| {
            is_noted = take_over();
            if is_noted {
                state.superseded.entry(hash).or_default().extend(places);
            }
        });
        is_noted
    }

    /// Has `replace` make the index point at a copy of a record, and returns what that says. What is noted of the record holds
    /// for the copy too from then on.
    pub(crate) fn relocate(
        &self,
        hash: KeyHash,
        old: Place,
        new: Place,
        replace: impl FnOnce() -> bool,
    ) -> bool {
        let mut state = self.state();
        let is_replaced = replace();
        // Who has found the record by the index a moment ago still asks for its own place.
        if is_replaced
            && let Some(places) = state.superseded.get_mut(&hash)
            && places.contains(&old)
        {
            places.push(new);
        }
        is_replaced
    }

    /// Whether what stands in a place is not to be shown for this key.
    #[inline]
    pub(crate) fn is_superseded(&self, hash: KeyHash, place: Place) -> bool {
        !self.is_empty() && {
            let state = self.state();
            let places = state.superseded.get(&hash);
            places.is_some_and(|places| places.contains(&place))
        }
    }

    /// What stood in a segment is not to be believed any more, and something else may come to stand there.
    pub(crate) fn forget_segment(&self, layout: &Layout, segment: u32) {
        if !self.is_empty() {
            self.change(|state| {
                state.superseded.retain(|_, places| {
                    places.retain(|place| layout.segment_of(place.grain()).0 != segment);
                    !places.is_empty()
                });
            });
        }
    }

    /// Whether the index alone says what the store holds.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_empty()
    }
}

/// A change that its caller has left. If this is dropped, nobody knows what has become of it.
pub(crate) struct Left {
    shared: Arc<Shared>,
    hash: KeyHash,
    end: End,
}

#[derive(Clone, Copy, Debug)]
enum End {
    /// The index knows its record, which is the newest.
    Known,
    /// Nothing of it is in the log.
    Nothing,
    /// Something of it may be.
    Unknown,
}

impl Left {
    /// The index says what the log says.
    pub(crate) fn end_known(mut self) {
        self.end = End::Known;
    }

    /// It has written nothing.
    pub(crate) fn end_empty(mut self) {
        self.end = End::Nothing;
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.shared.unsettled.end_left(self.hash, self.end);
    }
}

#[cfg(test)]
mod tests {
    use block::sim::{SimConfig, SimDevice};

    use super::*;
    use crate::{Options, Store};

    /// What cannot be read is noted by its place, until something else stands there.
    #[test]
    fn a_value_in_the_place_of_what_could_not_be_read_is_shown() {
        let options = Options {
            segment_bytes: Some(64 << 10),
            ..Options::default()
        };
        let device = SimDevice::new(SimConfig::new(1, 9 * (64 << 10)));
        let store = Store::on(Arc::new(device), &options).expect("a store");
        let shared = &store.shared;
        let (hash, value) = (shared.hash(b"key"), [7; 3000]);
        let place = || {
            let mut candidates = crate::index::Candidates::new();
            shared.index.candidates(hash.index(), &mut candidates);
            candidates[0]
        };
        store.put(b"key", &value).expect("put");
        let first = place();
        store.delete(b"key").expect("deleted");
        assert!(shared.unsettled.supersede(hash, &[first], || true));
        for round in 0..20_000_u32 {
            store.put(b"key", &value).expect("put");
            if place() == first {
                let found = store.get(b"key").expect("got");
                assert!(found.as_deref() == Some(&value[..]), "round {round}");
                return;
            }
            for other in 0..(round % 5) as u8 {
                store.put(&[b'o', other], &value).expect("put");
            }
        }
        panic!("it never came there again");
    }

    #[test]
    fn what_becomes_of_one_change_says_nothing_of_another_one() {
        let device = SimDevice::new(SimConfig::new(1, 1 << 20));
        let made = Store::unmaintained(Arc::new(device), &Options::default());
        let (store, _) = made.expect("a store");
        let (shared, unsettled) = (&store.shared, &store.shared.unsettled);
        let hash = KeyHash::new(1, b"key");
        let left = || Unsettled::note_left(shared, hash);
        // One is in the log, and nobody knows; nothing of the next one is.
        drop(left());
        left().end_empty();
        assert!(unsettled.is_noted(hash));
        // A later change is carried out while another one has not ended.
        let other = left();
        unsettled.settle(hash);
        assert!(unsettled.is_noted(hash));
        other.end_empty();
        assert!(unsettled.is_settled());
        left().end_known();
        assert!(!unsettled.is_noted(hash));
    }
}
