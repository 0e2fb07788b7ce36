//! The eight bytes of a slot, and which parts of a hash mean what.
//!
//! ```text
//!  63                            24 23       15   14     13   12          0
//! +--------------------------------+-----------+------+------+-------------+
//! | grain                       40 | size    9 | mark | away | tag      13 |
//! +--------------------------------+-----------+------+------+-------------+
//!  \____________________ place _______________/        \______ kind ______/
//! ```
//!
//! A slot without a place is empty: no record has a size of zero. `away` says that the entry lies in the
//! second of its two lines. The mark is not the entry's but the line's: the marks of a line's eight slots
//! tell which entries of this line may lie in their second one. An entry's tag chooses one of them.
//!
//! ```text
//!  63                            32           23 22   13 12          0
//! +--------------------------------+------------+-------+-------------+
//! | shard (of any number)       32 | not used 9 | line  | tag      13 |
//! +--------------------------------+------------+-------+-------------+
//!                                                        \ group   12 /
//! ```

use super::place::Place;

/// Bits of a tag.
pub(super) const TAG_BITS: u32 = 13;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
/// The entry lies in its second line.
const AWAY: u64 = 1 << TAG_BITS;
/// An entry of this line lies in its second one, if the tag chooses this mark.
pub(super) const MARK: u64 = 1 << (TAG_BITS + 1);
const PLACE_SHIFT: u32 = TAG_BITS + 2;
/// What a lookup compares: the tag, and whether this is the second line.
pub(super) const KIND_MASK: u64 = TAG_MASK | AWAY;
/// Bits of the tag that choose the region of a shard.
pub(super) const GROUP_BITS: u32 = if cfg!(loom) { 1 } else { 12 };
/// Bits of the line's number in a hash: as many as the largest region needs.
pub(super) const LINE_BITS: u32 = 10;
/// Bits of the number of a line's slot.
const SLOT_BITS: u32 = if cfg!(loom) { 1 } else { 3 };

/// What an empty slot holds, apart from the mark.
pub(super) const EMPTY: u64 = 0;

/// An entry of a key with this hash, in its first line.
#[inline]
pub(super) fn entry(hash: u64, place: Place) -> u64 {
    place.bits() << PLACE_SHIFT | tag(hash)
}

/// The same entry in the other one of its lines.
#[inline]
pub(super) fn turned(entry: u64) -> u64 {
    entry ^ AWAY
}

/// Whether an entry lies in its second line.
#[inline]
pub(super) fn is_away(entry: u64) -> bool {
    entry & AWAY != 0
}

/// What all entries have in common that fit a hash, in the first line or the second.
#[inline]
pub(super) fn kind(hash: u64, is_second: bool) -> u64 {
    tag(hash) | if is_second { AWAY } else { 0 }
}

/// Where the record of an entry lies.
#[inline]
pub(super) fn place(entry: u64) -> Place {
    Place::from_bits(entry >> PLACE_SHIFT)
}

/// The tag of a hash, or of an entry.
#[inline]
pub(super) fn tag(bits: u64) -> u64 {
    bits & TAG_MASK
}

/// The part of a hash or an entry that chooses the region of its shard.
#[inline]
pub(super) fn group(bits: u64) -> usize {
    (bits & ((1 << GROUP_BITS) - 1)) as usize
}

/// The shard of a hash.
#[inline]
pub(super) fn shard(hash: u64, shards: u32) -> u32 {
    // Scales the upper half to the number of shards, whatever that is.
    (((hash >> 32) * u64::from(shards)) >> 32) as u32
}

/// The first of a hash's two lines, in a region of `line_mask + 1` lines.
#[inline]
pub(super) fn line(hash: u64, line_mask: u32) -> u32 {
    (hash >> TAG_BITS) as u32 & line_mask
}

/// The other line of an entry that may lie in this one. It is the other one's other one, so that an
/// entry can be moved without its hash.
#[inline]
pub(super) fn other_line(line: u32, bits: u64, line_mask: u32) -> u32 {
    // Odd, so that it is another line in regions of any size.
    line ^ ((mixed(bits) >> (32 - LINE_BITS) | 1) & line_mask)
}

/// The slot whose mark says that an entry may lie in its second line.
#[inline]
pub(super) fn mark_slot(bits: u64) -> u32 {
    mixed(bits) >> (32 - LINE_BITS - SLOT_BITS) & ((1 << SLOT_BITS) - 1)
}

/// Fibonacci hashing: the upper bits of the product depend on all bits of the tag.
#[inline]
fn mixed(bits: u64) -> u32 {
    (tag(bits) as u32).wrapping_mul(0x9e37_79b9)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::index::SizeCode;

    #[test]
    fn an_entry_keeps_place_and_tag_and_is_never_empty() {
        let mut random = 1u64;
        for round in 0..10_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1;
            let hash = random ^ random >> 29;
            let at = Place::new(random >> 24, SizeCode::of(round));
            let entry = entry(hash, at);
            assert_eq!((place(entry), tag(entry)), (at, tag(hash)));
            assert!(entry & MARK == 0 && !is_away(entry) && is_away(turned(entry)));
            assert_eq!(place(turned(entry)), at);
            assert_eq!(group(entry), group(hash));
            assert_ne!(entry, EMPTY);
        }
        assert_ne!(entry(0, Place::new(0, SizeCode::of(0))), EMPTY);
    }

    #[test]
    fn two_lines_are_each_others_other_one() {
        for mask in [1, 3, 255, 1023] {
            for tag in 0..1 << TAG_BITS {
                let one = (tag as u32 * 7) & mask;
                let two = other_line(one, tag, mask);
                assert!(one != two && two <= mask);
                assert_eq!(other_line(two, tag, mask), one);
            }
        }
    }

    #[test]
    fn shards_are_used_alike() {
        for shards in [1u32, 3, 424, 1 << 20] {
            assert_eq!(shard(0, shards), 0);
            assert_eq!(shard(u64::MAX, shards), shards - 1);
        }
        let mut counts = [0; 3];
        for number in 0..3000u64 {
            let hash = (number << 32) * ((1 << 32) / 3000);
            counts[shard(hash, 3) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (999..=1001).contains(count)));
    }
}
