//! Where a request lies: ids, slots, chunks.
//!
//! Each client has a region of its own. It holds one chunk per core, a chunk holds W slots:
//! ```text
//!   | chunk of core 0              | chunk of core 1              | ...
//!   | slot 0 | slot 1 | .. | W - 1 |
//!   | slot_len        | 64 unused  |   = stride
//! ```
//! Request `id` goes to slot `id mod W`. The 64 bytes between slots spread their last lines, which
//! are the busy ones, over the sets of a cache.

#![forbid(unsafe_code)]

/// Unused bytes between slots.
pub const GAP: usize = 64;

/// The sizes that both sides agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes of a slot, a multiple of 64.
    pub slot_len: usize,
    /// Bytes from slot to slot.
    pub stride: usize,
    /// Slots of a client, a power of two.
    pub window: usize,
}

impl Geometry {
    /// A geometry; `None` when the numbers make no sense.
    pub fn new(slot_len: usize, window: usize) -> Option<Self> {
        let sound = slot_len.is_multiple_of(64)
            && (128..=32768).contains(&slot_len)
            && window.is_power_of_two()
            && window <= 1024;
        sound.then_some(Geometry {
            slot_len,
            stride: slot_len + GAP,
            window,
        })
    }

    /// Bytes of a chunk.
    pub fn chunk_len(&self) -> usize {
        self.window * self.stride
    }

    /// The number of an id's slot.
    #[inline]
    pub fn slot(&self, id: u32) -> usize {
        id as usize & (self.window - 1)
    }

    /// Where an id's slot ends, from the start of the chunk.
    #[inline]
    pub fn slot_end(&self, id: u32) -> usize {
        self.slot(id) * self.stride + self.slot_len
    }
}

/// The id after `id`: counts from 1, and skips 0 when it wraps, because a fresh slot holds 0.
#[inline]
pub fn next_id(id: u32) -> u32 {
    id.wrapping_add(1).max(1)
}

/// Whether `id` comes before `cursor`.
#[inline]
pub fn is_before(id: u32, cursor: u32) -> bool {
    (cursor.wrapping_sub(id) as i32) > 0
}

/// The immediate data of a kick: the id's low 31 bits, and whether the request was posted before.
#[inline]
pub fn kick(id: u32, repeat: bool) -> u32 {
    id << 1 | u32::from(repeat)
}

/// The id's low 31 bits in a kick's immediate data, and whether it is a repeat.
#[inline]
pub fn parse_kick(imm: u32) -> (u32, bool) {
    (imm >> 1, imm & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_skip_zero_and_keep_their_order() {
        assert_eq!(next_id(0), 1);
        assert_eq!(next_id(u32::MAX), 1);
        assert!(is_before(u32::MAX, 1));
        assert!(is_before(1, 2));
        assert!(!is_before(2, 2));
        assert!(!is_before(3, 2));
    }

    #[test]
    fn the_busy_lines_fall_in_different_cache_sets() {
        let geometry = Geometry::new(1024, 16).unwrap();
        let sets: std::collections::HashSet<_> = (0..16)
            .map(|id| (geometry.slot_end(id) - 64) / 64 % 64)
            .collect();
        assert_eq!(sets.len(), 16);
        assert!(Geometry::new(1000, 16).is_none());
        assert!(Geometry::new(1024, 12).is_none());
        assert!(Geometry::new(1024, 0).is_none());
    }
}
