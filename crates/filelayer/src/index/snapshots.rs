//! Which block is kept for which snapshot.
//!
//! A snapshot of epoch `e` costs nothing when it is taken. The first change of a block with a higher epoch keeps
//! what the block was under the label `e`; it serves all snapshots from the one before that label on, as
//! far back as the block goes.

use crate::ids::{Fid, HEAD, Key, Volume};

use super::{Block, Index};

impl Index {
    pub(super) fn set_snapshot(&mut self, volume: Volume, epoch: u32, is_taken: bool) {
        let taken = self.snapshots.entry(volume).or_default();
        if is_taken {
            taken.insert(epoch);
        } else {
            taken.remove(&epoch);
        }
        if taken.is_empty() {
            self.snapshots.remove(&volume);
        }
    }

    /// All snapshots there are.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = (Volume, u32)> + '_ {
        let volumes = self.snapshots.iter();
        volumes.flat_map(|(volume, taken)| taken.iter().map(|epoch| (*volume, *epoch)))
    }

    pub(crate) fn has_snapshot(&self, volume: Volume, epoch: u32) -> bool {
        let taken = self.snapshots.get(&volume);
        taken.is_some_and(|taken| taken.contains(&epoch))
    }

    /// The label under which a block is to be kept before a change of epoch `epoch`.
    pub(crate) fn to_keep(&self, fid: Fid, epoch: u32) -> Option<u32> {
        let block = self.blocks.get(&Key::head(fid))?;
        let taken = self.snapshots.get(&block.volume)?;
        let kept = self.versions(fid).next_back();
        // Nothing before the last label, or before the last change, is what the block is now.
        let from = block.changed.max(kept.map_or(0, |label| label + 1));
        if from >= epoch {
            return None;
        }
        taken.range(from..epoch).next_back().copied()
    }

    /// The labels of what is kept of a block.
    pub(crate) fn versions(&self, fid: Fid) -> impl DoubleEndedIterator<Item = u32> + '_ {
        let kept = self.blocks.range(Key { fid, label: 0 }..Key::head(fid));
        kept.map(|(key, _)| key.label)
    }

    /// What a block was at a snapshot; `None` if it had no pages.
    pub(crate) fn at_snapshot(&self, fid: Fid, epoch: u32) -> Option<(Key, &Block)> {
        let from = Key { fid, label: epoch };
        let (key, block) = self.blocks.range(from..=Key::head(fid)).next()?;
        (block.born <= epoch).then_some((*key, block))
    }

    /// What no snapshot needs any more, of a volume: from `from` on, a hundred at most. The second is where to go on.
    pub(crate) fn unneeded(&self, volume: Volume, from: Key) -> (Vec<Key>, Option<Key>) {
        let mut found = Vec::new();
        let mut before: Option<Key> = None;
        for (seen, (key, block)) in self.blocks.range(from..).enumerate() {
            if seen == 1000 {
                return (found, Some(*key));
            }
            let since = match before.replace(*key) {
                Some(before) if before.fid == key.fid => before.label + 1,
                Some(_) => 0,
                // The search began in the middle of this block's labels.
                None => self.label_before(*key).map_or(0, |label| label + 1),
            };
            if key.label == HEAD || block.volume != volume {
                continue;
            }
            let taken = self.snapshots.get(&volume);
            let since = since.max(block.born);
            let is_needed = since <= key.label
                && taken.is_some_and(|taken| taken.range(since..=key.label).next().is_some());
            if !is_needed {
                found.push(*key);
            }
        }
        (found, None)
    }

    fn label_before(&self, key: Key) -> Option<u32> {
        let first = Key {
            fid: key.fid,
            label: 0,
        };
        let mut before = self.blocks.range(first..key);
        before.next_back().map(|(key, _)| key.label)
    }
}
