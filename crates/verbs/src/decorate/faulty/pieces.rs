//! A WRITE whose bytes are placed in another order than theirs: as pieces, each a WRITE of its own.

use std::collections::BTreeSet;
use std::ops::Range;

use super::plan::Random;
use crate::wr::{Payload, Sge};

/// Pieces of a WRITE at most.
pub(super) const PIECES_MAX: usize = 4;

/// Bytes that stay together: an aligned word is placed at once.
const WORD: usize = 8;

/// The pieces of so many bytes in the order in which they are placed, which is any but for the last byte: it is not in the last piece.
/// One piece where they are too few for two.
pub(super) fn pieces(len: usize, random: &mut Random) -> Vec<Range<usize>> {
    let words = len.div_ceil(WORD);
    if words < 2 {
        return std::iter::once(0..len).collect();
    }
    let count = 2 + random.below(PIECES_MAX.min(words) - 1);
    let mut cuts = BTreeSet::from([0]);
    while cuts.len() < count {
        cuts.insert(WORD * (1 + random.below(words - 1)));
    }
    let ends = cuts.iter().copied().skip(1).chain([len]);
    let mut pieces: Vec<_> = cuts
        .iter()
        .zip(ends)
        .map(|(&start, end)| start..end)
        .collect();
    for last in (1..count).rev() {
        pieces.swap(last, random.below(last + 1));
    }
    if pieces[count - 1].end == len {
        pieces.swap(count - 1, random.below(count - 1));
    }
    pieces
}

/// A part of a payload.
pub(super) enum Part {
    Bytes(Vec<u8>),
    Elements(Vec<Sge>),
}

impl Part {
    /// These bytes of a payload.
    pub(super) fn of(payload: Payload<'_>, range: &Range<usize>) -> Part {
        let sges = match payload {
            Payload::Inline(bytes) => return Part::Bytes(bytes[range.clone()].to_vec()),
            Payload::InlineParts(parts) => {
                return Part::Bytes(parts.concat()[range.clone()].to_vec());
            }
            Payload::Gather(sges) => sges,
        };
        let (mut elements, mut at) = (Vec::new(), 0);
        for sge in sges {
            let end = at + sge.len as usize;
            let (from, to) = (range.start.max(at), range.end.min(end));
            if from < to {
                elements.push(Sge {
                    addr: sge.addr.wrapping_add((from - at) as u64),
                    len: (to - from) as u32,
                    lkey: sge.lkey,
                });
            }
            at = end;
        }
        Part::Elements(elements)
    }

    pub(super) fn payload(&self) -> Payload<'_> {
        match self {
            Part::Bytes(bytes) => Payload::Inline(bytes),
            Part::Elements(sges) => Payload::Gather(sges),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Lkey;

    #[test]
    fn pieces_are_all_bytes_in_any_order_without_the_last_one_at_the_end() {
        let mut orders = BTreeSet::new();
        for (nth, len) in (1..200).cycle().take(10_000).enumerate() {
            let draw = || pieces(len, &mut Random::at(7, 1, nth as u64));
            let placed = draw();
            assert_eq!(placed, draw(), "the same seed gives the same pieces");
            let mut sorted = placed.clone();
            sorted.sort_by_key(|piece| piece.start);
            let mut end = 0;
            for piece in &sorted {
                assert!(piece.start == end && piece.end > end, "{len}: {placed:?}");
                end = piece.end;
            }
            assert_eq!(end, len);
            assert!(placed.len() <= PIECES_MAX);
            let Some(last) = placed.last().filter(|_| len > WORD) else {
                assert_eq!(placed.len(), 1, "{len}");
                continue;
            };
            assert!(last.end < len, "{len}: {placed:?}");
            let place = |piece: &Range<usize>| sorted.iter().position(|one| one == piece);
            orders.insert(placed.iter().map(place).collect::<Vec<_>>());
        }
        // All orders of two, three and four pieces in which the last is not at the end.
        assert_eq!(orders.len(), 1 + 4 + 18);
    }

    #[test]
    fn a_part_of_elements_is_elements() {
        let sge = |addr, len| Sge {
            addr,
            len,
            lkey: Lkey(1),
        };
        let whole = [sge(100, 8), sge(200, 0), sge(300, 16)];
        let part = |range: Range<usize>| match Part::of(Payload::Gather(&whole), &range) {
            Part::Elements(sges) => sges,
            Part::Bytes(_) => panic!("bytes"),
        };
        assert_eq!(part(0..8), [sge(100, 8)]);
        assert_eq!(part(4..12), [sge(104, 4), sge(300, 4)]);
        assert_eq!(part(16..24), [sge(308, 8)]);
        let halves: [&[u8]; 2] = [b"abc", b"def"];
        let part = Part::of(Payload::InlineParts(&halves), &(2..5));
        assert!(matches!(part, Part::Bytes(bytes) if bytes == b"cde"));
    }
}
