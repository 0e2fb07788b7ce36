//! Any operations, on indexes so small that everything collides.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::index::region::LINES_MAX;

/// What entries that cannot be told from each other have in common.
type Alike = (u32, u32, u64);

struct Model {
    index: Index,
    places: BTreeMap<Alike, Vec<Place>>,
    next: u64,
}

impl Model {
    fn new(index: Index) -> Self {
        Model {
            index,
            places: BTreeMap::new(),
            next: 0,
        }
    }

    fn alike(&self, hash: u64) -> Alike {
        let line = entry::line(hash, self.index.region_lines - 1);
        let shard = entry::shard(hash, self.index.shards());
        (shard, line, entry::tag(hash))
    }

    fn new_place(&mut self) -> Place {
        self.next += 1;
        Place::new(self.next, SizeCode::of(self.next % 50))
    }

    fn insert(&mut self, hash: u64) -> Result<(), IndexFull> {
        let place = self.new_place();
        self.index.insert(hash, place)?;
        let alike = self.alike(hash);
        self.places.entry(alike).or_default().push(place);
        Ok(())
    }

    /// Adds many at once, up to the first one that is refused.
    fn insert_batch(&mut self, hashes: &[u64]) {
        let entries: Vec<_> = hashes
            .iter()
            .map(|&hash| (hash, self.new_place()))
            .collect();
        let added = match self.index.insert_batch(&entries) {
            Ok(()) => entries.len(),
            Err((refused, _)) => refused,
        };
        for &(hash, place) in &entries[..added] {
            let alike = self.alike(hash);
            self.places.entry(alike).or_default().push(place);
        }
    }

    /// Replaces or removes one of a hash's places, and one that it does not have.
    fn change(&mut self, hash: u64, choice: usize, is_removal: bool) {
        let (alike, new) = (self.alike(hash), self.new_place());
        let absent = self.new_place();
        assert!(!self.index.replace(hash, absent, new));
        assert!(!self.index.remove(hash, absent));
        let places = self.places.entry(alike).or_default();
        if places.is_empty() {
            return;
        }
        let at = choice % places.len();
        if is_removal {
            assert!(self.index.remove(hash, places.swap_remove(at)));
        } else {
            assert!(self.index.replace(hash, places[at], new));
            places[at] = new;
        }
    }

    fn check(&self, hash: u64) {
        let mut expected = self
            .places
            .get(&self.alike(hash))
            .cloned()
            .unwrap_or_default();
        expected.sort_unstable();
        assert_eq!(found(&self.index, hash), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 96 }, ..Default::default() })]

    /// Exactly what was stored and not removed is found, whatever collides and whenever shards grow.
    #[test]
    fn the_index_holds_what_the_model_holds(
        shards in 1u32..3,
        lines in prop::sample::select(vec![2u32, 4, 16]),
        // How many bits of the hashes differ: few, and everything collides.
        spread in prop::sample::select(vec![0x8000_0000_0000_6003u64, 0xffff_ffff_0000_60ff, u64::MAX]),
        steps in prop::collection::vec((any::<u64>(), 0u8..10, any::<usize>()), 1..600),
    ) {
        let mut model = Model::new(small(shards, lines));
        let mut hashes = Vec::new();
        for (number, kind, choice) in steps {
            let hash = hash_of(number) & spread;
            match kind {
                0..5 => {
                    // What is refused is not there, as the check says.
                    let _full = model.insert(hash);
                    hashes.push(hash);
                }
                5 => {
                    let batch: Vec<_> = (0..choice as u64 % 100)
                        .map(|other| hash_of(number ^ other) & spread)
                        .collect();
                    model.insert_batch(&batch);
                    hashes.extend(batch);
                }
                6 => model.check(hash),
                _ if hashes.is_empty() => {}
                _ => {
                    let hash = hashes[choice % hashes.len()];
                    model.change(hash, choice / 7, kind == 9);
                    model.check(hash);
                }
            }
        }
        for hash in hashes {
            model.check(hash);
        }
        let held: usize = model.places.values().map(Vec::len).sum();
        prop_assert_eq!(model.index.len(), held as u64);
    }
}

#[test]
fn an_empty_slot_does_not_end_a_lookup() {
    // All of one tag, so that they fill both their lines.
    let index = small(1, LINES_MAX);
    let hash = 5 << 13 | 77;
    let places: Vec<Place> = (0..16).map(|number| place_of(number, 0)).collect();
    for place in &places {
        index.insert(hash, *place).expect("room");
    }
    // A hole before each of them, in each order of the two lines.
    let mut sorted = places.clone();
    sorted.sort_unstable();
    for hole in &places {
        assert!(index.remove(hash, *hole));
        sorted.retain(|place| place != hole);
        assert_eq!(found(&index, hash), sorted);
    }
}

#[test]
fn what_growth_cannot_help_is_refused_without_growing() {
    let index = small(1, LINES_MAX);
    let hash = 9 << 13 | 3;
    for number in 0..16 {
        index.insert(hash, place_of(number, 0)).expect("room");
    }
    // Seventeen that are alike fit no two lines, however many regions there are.
    assert!(index.insert(hash, place_of(16, 0)).is_err());
    assert_eq!((index.regions(), index.len()), (1, 16));
    assert!(index.remove(hash, place_of(3, 0)));
    index.insert(hash, place_of(16, 0)).expect("room again");
    assert_eq!(found(&index, hash).len(), 16);
}
