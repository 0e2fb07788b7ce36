//! What no hot path does: a path that allocates, by which tests see that allocations are counted.

use std::hint::black_box;

use gates::Mark;

use crate::Path;
use crate::tell::mark;

/// Asks the allocator three times a round, for one operation.
pub(crate) struct Probe;

impl Path for Probe {
    fn operations(&self) -> usize {
        1
    }

    fn round(&mut self) -> anyhow::Result<()> {
        mark(Mark::Server);
        // New memory, memory that grows, and memory that begins as zeros.
        let mut grown: Vec<u8> = black_box(Vec::with_capacity(16));
        grown.reserve_exact(black_box(64));
        let zeros: Vec<u8> = black_box(vec![0; 64]);
        mark(Mark::Nobody);
        // Nobody's allocations do not count.
        drop(black_box(Box::new(1)));
        drop((grown, zeros));
        Ok(())
    }
}
