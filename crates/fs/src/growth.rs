//! What each write adds to what a block occupies.
//!
//! Writes of one block go on at the same time, and two of them may fill the same hole. Each is told what
//! has been added since the last one was told, so that the sum is what the block has grown.

use std::cell::RefCell;
use std::collections::HashMap;

use filelayer::Fid;

#[derive(Debug)]
struct Writing {
    writers: usize,
    /// What the block occupied when this was last asked, in bytes.
    told: u64,
}

/// Blocks that are being written.
#[derive(Debug, Default)]
pub(crate) struct Growth(RefCell<HashMap<Fid, Writing>>);

/// A write of a block that is under way.
pub(crate) struct Growing<'a> {
    growth: &'a Growth,
    fid: Fid,
}

impl Growth {
    /// A write begins; the block occupies so much if nobody else is writing it.
    pub(crate) fn begin(&self, fid: Fid, used: u64) -> Growing<'_> {
        let mut blocks = self.0.borrow_mut();
        let writing = blocks.entry(fid).or_insert(Writing {
            writers: 0,
            told: used,
        });
        writing.writers += 1;
        Growing { growth: self, fid }
    }
}

impl Growing<'_> {
    /// The block occupies so much now: what it has grown since anybody was told.
    pub(crate) fn grown(&self, used: u64) -> u64 {
        let mut blocks = self.growth.0.borrow_mut();
        let Some(writing) = blocks.get_mut(&self.fid) else {
            return 0;
        };
        let grown = used.saturating_sub(writing.told);
        writing.told = writing.told.max(used);
        grown
    }
}

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        let mut blocks = self.growth.0.borrow_mut();
        if let Some(writing) = blocks.get_mut(&self.fid) {
            writing.writers -= 1;
            if writing.writers == 0 {
                blocks.remove(&self.fid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_writes_fill_is_told_once() {
        let growth = Growth::default();
        let fid = Fid(7);
        let first = growth.begin(fid, 100);
        let second = growth.begin(fid, 150);
        assert_eq!(
            first.grown(160),
            60,
            "the second began while the first was under way"
        );
        assert_eq!(second.grown(160), 0);
        assert_eq!(second.grown(164), 4);
        drop((first, second));
        assert!(growth.0.borrow().is_empty());
        let third = growth.begin(fid, 164);
        assert_eq!(third.grown(164), 0);
    }
}
