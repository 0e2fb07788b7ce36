//! What a lookup finds.

use std::ops::Deref;

use super::entry;
use super::place::Place;
use super::region::SLOTS;

/// Entries that fit a hash at most: all of both its lines.
const CANDIDATES_MAX: usize = 2 * SLOTS;

/// The places that may hold a key: usually none or one.
#[derive(Clone)]
pub struct Candidates {
    places: [Place; CANDIDATES_MAX],
    count: usize,
}

impl Candidates {
    /// None yet.
    pub fn new() -> Self {
        Candidates {
            places: [Place::from_bits(0); CANDIDATES_MAX],
            count: 0,
        }
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds an entry's place. An entry that is just moving may be seen twice; it counts once.
    #[inline]
    pub(super) fn add(&mut self, entry: u64) {
        let place = entry::place(entry);
        if !self.contains(&place) {
            self.places[self.count] = place;
            self.count += 1;
        }
    }
}

impl Default for Candidates {
    fn default() -> Self {
        Candidates::new()
    }
}

impl Deref for Candidates {
    type Target = [Place];

    #[inline]
    fn deref(&self) -> &[Place] {
        &self.places[..self.count]
    }
}

impl std::fmt::Debug for Candidates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
