//! Which lines travel between two caches, one a side, large enough for everything.

use std::collections::HashMap;

use crate::places::Line;

/// One of the two sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Side {
    /// The one that asks.
    Client,
    /// The one that answers.
    Server,
}

impl Side {
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The two caches: who has each line.
#[derive(Default)]
pub(crate) struct Caches {
    /// A bit for each side that has a valid copy.
    holders: HashMap<Line, u8>,
}

impl Caches {
    /// One access; whether the line, or the right to write it, had to come from the other side.
    ///
    /// A line never seen before comes from memory, which is nobody's fault here.
    pub(crate) fn access(&mut self, side: Side, line: Line, writes: bool) -> bool {
        let holders = self.holders.entry(line).or_insert(side.bit());
        let travels = if writes {
            *holders != side.bit()
        } else {
            *holders & side.bit() == 0
        };
        *holders = if writes {
            side.bit()
        } else {
            *holders | side.bit()
        };
        travels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_travel_when_the_other_side_has_written_or_reads() {
        use Side::{Client, Server};
        let mut caches = Caches::default();
        let line = Line { file: 0, number: 7 };
        // Who, whether it writes, whether the line travels.
        let accesses = [
            (Client, true, false),
            (Client, false, false),
            (Server, false, true),
            (Server, false, false),
            (Client, false, false),
            // The copy of the other side is to be invalidated.
            (Client, true, true),
            (Client, true, false),
            (Server, true, true),
        ];
        for (number, (side, writes, travels)) in accesses.into_iter().enumerate() {
            assert_eq!(
                caches.access(side, line, writes),
                travels,
                "access {number}"
            );
        }
        let other = Line { file: 1, number: 7 };
        assert!(!caches.access(Client, other, false), "another file");
    }
}
