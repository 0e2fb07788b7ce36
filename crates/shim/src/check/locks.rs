//! The locks of checks: over a fork, and when the process ends in the middle of something.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, Weak};

use super::objects::{self, Grave};
use super::regions::{self, Regions};
use super::report::{self, Found};
use super::sleep;
use super::state::{self, State, is_free, lock};
use crate::process::caller::{self, Places, Stack};

/// All locks of this process's, so that a forked child's copies of what they guard are whole, and not locked for ever.
pub(crate) struct Held {
    _contexts: MutexGuard<'static, Vec<Weak<State>>>,
    _graves: MutexGuard<'static, Option<HashMap<usize, Grave>>>,
    _undrained: MutexGuard<'static, Option<HashMap<usize, Stack>>>,
    _found: MutexGuard<'static, Option<Found>>,
    _places: MutexGuard<'static, Places>,
    _regions: MutexGuard<'static, Regions>,
}

/// Takes them, in the order in which whoever has more than one has taken them.
pub(crate) fn hold() -> Held {
    Held {
        _contexts: lock(&state::CONTEXTS),
        _graves: lock(&objects::GRAVES),
        _undrained: lock(&sleep::UNDRAINED),
        _found: lock(&report::FOUND),
        _places: caller::hold(),
        _regions: lock(&regions::REGIONS),
    }
}

/// Whether findings can be told, and contexts be looked at.
pub(super) fn are_free() -> bool {
    is_free(&state::CONTEXTS)
        && is_free(&report::FOUND)
        && is_free(&caller::PLACES)
        && is_free(&regions::REGIONS)
}

/// The contexts that can be looked at.
pub(super) fn free_contexts() -> Vec<Arc<State>> {
    let mut contexts = state::contexts();
    contexts.retain(|state| state.is_free());
    contexts
}
