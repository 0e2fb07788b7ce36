//! The index beside a model.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `model.rs` | any operations, on indexes so small that everything collides |
//! | `fill.rs` | how full an index gets, what it takes, what an insert does for growth |
//! | `threads.rs` | readers and writers at once |
//! | `dumps.rs` | shards as bytes and back |

mod dumps;
mod fill;
mod model;
mod threads;

use super::*;

/// An index of small regions.
fn small(shards: u32, region_lines: u32) -> Index {
    let options = Options {
        shards,
        region_lines,
        regions: 1,
        bytes_max: u64::MAX,
    };
    Index::new(&options).expect("an index")
}

/// The places of a hash, in order. All ways to look up find the same ones.
fn found(index: &Index, hash: u64) -> Vec<Place> {
    let mut candidates = Candidates::new();
    index.candidates(hash, &mut candidates);
    let mut places = candidates.to_vec();
    places.sort_unstable();
    for width in Width::all_here() {
        let mut candidates = Candidates::new();
        while !index.look(width, hash, &mut candidates) {
            std::hint::spin_loop();
        }
        let mut looked = candidates.to_vec();
        looked.sort_unstable();
        assert_eq!(looked, places, "{width:?}");
    }
    let mut batch = Vec::new();
    index.candidates_batch(&[!hash, hash], |number, place| {
        if number == 1 {
            batch.push(place);
        }
    });
    batch.sort_unstable();
    assert_eq!(batch, places);
    places
}

/// The places of the record with this number, one for each of its versions.
fn place_of(number: u64, version: u64) -> Place {
    Place::new(number << 8 | version, SizeCode::of(1 + number % 600))
}

/// Well mixed hashes, each of another number.
fn hash_of(number: u64) -> u64 {
    let mixed = (number ^ number >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 32
}
