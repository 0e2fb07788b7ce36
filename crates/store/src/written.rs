//! What was written to a segment since it was opened, or found in it, and whether its header says so.

use std::ops::Range;

use crate::format::segment::Contents;
use crate::scan::Outcome;

/// What was written to a segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    pub(crate) contents: Contents,
    /// Blocks to which something could not be written: it may stand there, or a part of it.
    pub(crate) failed: Vec<Range<u32>>,
    /// It was found when the store was opened, and nobody knows what it holds.
    pub(crate) is_unknown: bool,
    /// Everything before this block was durably written when the store was opened.
    pub(crate) settled: u32,
    pub(crate) closing: Closing,
}

/// Whether the header of a segment says what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Closing {
    /// It will, when everything that was begun has ended.
    #[default]
    Due,
    /// It does.
    Done,
    /// Nobody knows: something could not be written, or is damaged.
    Never,
}

impl Written {
    /// What was found when the store was opened: what the segment's header says that it holds, or up to which block
    /// everything had been written.
    pub(crate) fn found(contents: Option<Contents>, settled: u32) -> Self {
        Self {
            contents: contents.unwrap_or_default(),
            failed: Vec::new(),
            is_unknown: contents.is_none(),
            settled,
            closing: match contents {
                Some(_) => Closing::Done,
                None => Closing::Never,
            },
        }
    }

    /// What the segment holds, if that is known. Whether anybody may still write to it the caller says.
    pub(crate) fn known(&self, is_at_rest: bool) -> Option<Contents> {
        let is_done = self.closing == Closing::Done;
        let is_known = is_at_rest && !self.is_unknown && self.failed.is_empty();
        (is_done || is_known).then_some(self.contents)
    }

    /// Whether all that a scan has missed may be of writes that failed. Nobody writes to the segment any more.
    pub(crate) fn accounts_for(&self, outcome: &Outcome) -> bool {
        let has_failed = |block| self.failed.iter().any(|blocks| blocks.contains(&block));
        let mut missed = outcome.flaws.iter().flat_map(|flaw| flaw.blocks.clone());
        outcome.found.end >= self.contents.end && missed.all(has_failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{Damage, Flaw};

    #[test]
    fn what_is_missed_is_of_writes_that_failed_or_damage() {
        let mut written = Written::default();
        written.contents.add(3, 7, 1);
        written.failed = vec![3..6, 6..8];
        written.contents.add(10, 9, 1);
        let accounts_for = |end, missed: &[Range<u32>]| {
            let flaw = |blocks: &Range<u32>| Flaw {
                damage: Damage::BatchHeader,
                blocks: blocks.clone(),
                torn: true,
                explained: true,
            };
            written.accounts_for(&Outcome {
                found: Contents {
                    end,
                    ..Contents::default()
                },
                flaws: missed.iter().map(flaw).collect(),
                suspects: Vec::new(),
                doubt: None,
                settled: 1,
                is_complete: false,
            })
        };
        let [one, both, all] = [3..6, 3..8, 3..10];
        assert!(accounts_for(10, &[]));
        assert!(accounts_for(10, &[one]));
        assert!(accounts_for(10, std::slice::from_ref(&both)));
        assert!(!accounts_for(8, &[both]), "the last one is missed");
        assert!(!accounts_for(10, &[all]));
    }
}
