//! Room in two full lines: entries that move to their other lines.

use arrayvec::ArrayVec;

use super::entry::{self, EMPTY};
use super::region::{Guard, LINES_MAX, SLOTS};

/// Lines that are on their way when a search begins.
const LOOK_AHEAD: usize = SLOTS / 2;
/// Lines that a search for an empty slot looks at.
const SEARCH_MAX: usize = 256;

impl Guard<'_> {
    /// Frees a slot of one of two full lines by moving entries to their other lines, and takes it.
    #[cold]
    pub(super) fn displace(&mut self, roots: [u32; 2], entry: u64) -> bool {
        // Breadth first: the shortest way to a line with an empty slot.
        let mut reached = ArrayVec::<Step, SEARCH_MAX>::new();
        let mut seen = [0u64; LINES_MAX as usize / 64];
        for line in roots {
            seen[line as usize / 64] |= 1 << (line % 64);
            reached.push(Step {
                line: line as u16,
                before: 0,
                slot: 0,
                is_root: true,
            });
        }
        // Most often one of the first has room in its other line.
        for slot in 0..LOOK_AHEAD {
            let moving = self.load(roots[0] as usize, slot);
            let to = entry::other_line(roots[0], moving, self.line_mask());
            self.prefetch(to);
        }
        let mut next = 0;
        while let Some(&from) = reached.get(next) {
            for slot in 0..SLOTS {
                let line = usize::from(from.line);
                let moving = self.load(line, slot);
                let to = entry::other_line(line as u32, moving, self.line_mask());
                if seen[to as usize / 64] >> (to % 64) & 1 == 1 {
                    continue;
                }
                seen[to as usize / 64] |= 1 << (to % 64);
                let step = Step {
                    line: to as u16,
                    before: next as u16,
                    slot: slot as u8,
                    is_root: false,
                };
                if let Some(empty) = self.position(to as usize, EMPTY) {
                    self.shift(&reached, step, empty, entry);
                    return true;
                }
                if reached.try_push(step).is_err() {
                    return false;
                }
            }
            next += 1;
        }
        false
    }

    /// Moves entries along a way, the last one first, and puts the new one where the first was.
    fn shift(&mut self, reached: &[Step], last: Step, empty: usize, entry: u64) {
        let (mut step, mut empty) = (last, empty);
        while !step.is_root {
            let before = reached[usize::from(step.before)];
            let (line, slot) = (usize::from(before.line), usize::from(step.slot));
            let moving = self.load(line, slot);
            if entry::is_away(moving) {
                self.add_stale(1);
            } else {
                self.mark(line, moving);
            }
            self.store(usize::from(step.line), empty, entry::turned(moving));
            self.moved(self.level());
            (step, empty) = (before, slot);
        }
        let line = usize::from(step.line);
        let first = usize::from(reached[0].line);
        if line == first {
            self.store(line, empty, entry);
        } else {
            self.mark(first, entry);
            self.store(line, empty, entry::turned(entry));
        }
    }
}

/// A line that a search has reached, by moving an entry of the line before to it.
#[derive(Clone, Copy)]
struct Step {
    line: u16,
    /// The number of the step before.
    before: u16,
    /// The slot of the line before whose entry moves here.
    slot: u8,
    is_root: bool,
}
