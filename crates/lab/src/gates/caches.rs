//! Which lines travel between two caches, one a side, large enough for everything.

use std::collections::HashMap;

use super::places::Line;

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

/// The first access to a line.
struct First<T> {
    side: Side,
    writes: bool,
    tag: T,
}

struct State<T> {
    /// A bit for each side that has a valid copy.
    holders: u8,
    first: First<T>,
}

fn travels(holders: u8, side: Side, writes: bool) -> bool {
    if writes {
        holders != side.bit()
    } else {
        holders & side.bit() == 0
    }
}

/// The two caches: who has each line. Accesses carry a tag, by which those that make lines travel
/// are told.
pub(crate) struct Caches<T> {
    lines: HashMap<Line, State<T>>,
}

impl<T> Default for Caches<T> {
    fn default() -> Self {
        Caches {
            lines: HashMap::new(),
        }
    }
}

impl<T> Caches<T> {
    /// One access; gives back the tag if the line, or the right to write it, has to come from the
    /// other side. Of first accesses [`Caches::finish`] tells.
    pub(crate) fn access(&mut self, side: Side, line: Line, writes: bool, tag: T) -> Option<T> {
        let Some(state) = self.lines.get_mut(&line) else {
            let first = First { side, writes, tag };
            let holders = side.bit();
            self.lines.insert(line, State { holders, first });
            return None;
        };
        let travels = travels(state.holders, side, writes);
        state.holders = if writes {
            side.bit()
        } else {
            state.holders | side.bit()
        };
        travels.then_some(tag)
    }

    /// Tells which first accesses made their lines travel. Lines are used again and again, so each
    /// was found as it is left now.
    pub(crate) fn finish(self, mut tell: impl FnMut(Side, T)) {
        for state in self.lines.into_values() {
            let first = state.first;
            if travels(state.holders, first.side, first.writes) {
                tell(first.side, first.tag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Side::{Client, Server};

    /// Who, and whether it writes; gives back which accesses made the line travel.
    fn travelling(accesses: &[(Side, bool)]) -> Vec<usize> {
        let mut caches = Caches::default();
        let line = Line { file: 0, number: 7 };
        let mut told: Vec<usize> = accesses
            .iter()
            .enumerate()
            .filter_map(|(number, (side, writes))| caches.access(*side, line, *writes, number))
            .collect();
        caches.finish(|_, number| told.push(number));
        told.sort_unstable();
        told
    }

    #[test]
    fn lines_travel_when_the_other_side_has_written_or_reads() {
        let accesses = [
            (Client, true),
            (Client, false),
            (Server, false),
            (Server, false),
            (Client, false),
            // The copy of the other side is to be invalidated.
            (Client, true),
            (Client, true),
            (Server, true),
        ];
        // The first one too: the server has the line in the end, so it had it before.
        assert_eq!(travelling(&accesses), [0, 2, 5, 7]);
    }

    #[test]
    fn a_look_at_what_has_not_changed_fetches_nothing() {
        // The client looks at the next line of a ring, which it has read a lap ago.
        let accesses = [(Client, false), (Server, true), (Client, false)];
        assert_eq!(travelling(&accesses), [1, 2]);
    }
}
