//! What a lookup finds.

use std::ops::Deref;

use arrayvec::ArrayVec;

use super::entry;
use super::place::Place;
use super::region::SLOTS;

/// Entries that fit a hash at most: all of both its lines.
const CANDIDATES_MAX: usize = 2 * SLOTS;

/// The places that may hold a key: usually none or one.
#[derive(Clone, Default)]
pub struct Candidates(ArrayVec<Place, CANDIDATES_MAX>);

impl Candidates {
    /// None yet.
    #[inline]
    pub fn new() -> Self {
        Candidates::default()
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds an entry's place. An entry that is just moving may be seen twice; it counts once.
    #[inline]
    pub(super) fn add(&mut self, entry: u64) {
        let place = entry::place(entry);
        if !self.contains(&place) {
            self.0.push(place);
        }
    }
}

impl Deref for Candidates {
    type Target = [Place];

    #[inline]
    fn deref(&self) -> &[Place] {
        &self.0
    }
}

impl std::fmt::Debug for Candidates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
