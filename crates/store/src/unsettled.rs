//! Keys of which the log may hold something that the index does not know, and places of which the index
//! knows that are not to be believed.
//!
//! Both come of errors, or of operations that were dropped. As long as there are none, asking costs one
//! load of a line that nobody writes.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::hash::KeyHash;
use crate::index::Place;

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
    keys: HashSet<KeyHash>,
    has_lost_count: bool,
    superseded: HashMap<KeyHash, Vec<Place>>,
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

    /// Notes that a record of the key may have come to the log without the index knowing it. Whoever
    /// removes the key has to write a tombstone even if it seems to have no value. The caller has the
    /// right to the key.
    pub(crate) fn note(&self, hash: KeyHash) {
        self.change(|state| {
            if state.keys.len() < KEYS_MAX {
                state.keys.insert(hash);
            } else {
                state.has_lost_count = true;
            }
        });
    }

    /// Whether a record of the key may be in the log that the index does not know.
    pub(crate) fn is_noted(&self, hash: KeyHash) -> bool {
        !self.is_empty() && {
            let state = self.state();
            state.has_lost_count || state.keys.contains(&hash)
        }
    }

    /// A later change of the key is in the log, and the index knows it.
    pub(crate) fn settle(&self, hash: KeyHash) {
        if !self.is_empty() {
            self.change(|state| {
                state.keys.remove(&hash);
            });
        }
    }

    /// What stands in these places cannot be read. If it is of this key, it is not current any more.
    pub(crate) fn supersede(&self, hash: KeyHash, places: &[Place]) {
        self.change(|state| state.superseded.entry(hash).or_default().extend(places));
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

    /// The index does not point at this place any more.
    pub(crate) fn forget(&self, hash: KeyHash, place: Place) {
        if !self.is_empty() {
            self.change(|state| {
                if let Some(places) = state.superseded.get_mut(&hash) {
                    places.retain(|other| *other != place);
                    if places.is_empty() {
                        state.superseded.remove(&hash);
                    }
                }
            });
        }
    }

    /// Whether the index alone says what the store holds.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_empty()
    }
}
