//! The index in memory: blocks and their pages, valid pages of each extent, ends of files, snapshots. It does
//! no I/O: records change it, in the order of the stream, the same way while they are written and when they
//! are read again.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `map` | one block's pages |
//! | `apply` | what each record does |
//! | `families` | who shares pages with whom |
//! | `snapshots` | which block is kept for which snapshot |
//! | `compare` | whether two are the same; valid pages counted again |
//!
//! **Families.** A clone has its pages at the same places of the stream as what it was made of, and so has what a
//! snapshot keeps. All that come from one block, its *root*, are a family. A page of a record can only
//! be that of members of the family that the record names, at the page's own number: who asks whether it is valid
//! looks there. Nearly all blocks have no family, and pay nothing.

mod apply;
mod compare;
mod families;
mod map;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(crate) use apply::Applied;
pub use compare::Difference;
pub(crate) use map::{PageMap, Run};

use crate::format::Owner;
use crate::ids::{Fid, Key, Volume};

/// A block, or what a snapshot has kept of it.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) root: Fid,
    pub(crate) volume: Volume,
    pub(crate) born: u32,
    pub(crate) changed: u32,
    pub(crate) map: PageMap,
}

impl Block {
    pub(crate) fn owner(&self, key: Key) -> Owner {
        Owner {
            key,
            volume: self.volume,
            born: self.born,
            changed: self.changed,
        }
    }
}

/// The end of a file, as records have told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    pub(crate) truncate_epoch: u32,
    pub(crate) end: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    blocks: BTreeMap<Key, Block>,
    /// By root; only families of more than the root itself.
    families: HashMap<Fid, Vec<Key>>,
    /// Valid pages of extents that have any.
    valid: BTreeMap<u32, u64>,
    ends: HashMap<[u8; 12], End>,
    snapshots: BTreeMap<Volume, BTreeSet<u32>>,
    /// Serial numbers below are given out.
    pub(crate) reserved: u64,
    /// The oldest checkpoint that may be used.
    pub(crate) checkpoint: u64,
}

impl Index {
    pub(crate) fn block(&self, key: Key) -> Option<&Block> {
        self.blocks.get(&key)
    }

    /// Blocks from `from` on, in their order.
    pub(crate) fn blocks_from(&self, from: Key) -> impl Iterator<Item = (&Key, &Block)> {
        self.blocks.range(from..)
    }

    /// Valid pages of an extent.
    pub(crate) fn valid_pages(&self, extent: u32) -> u64 {
        self.valid.get(&extent).copied().unwrap_or(0)
    }

    /// Valid pages of all extents.
    pub(crate) fn all_valid_pages(&self) -> u64 {
        self.valid.values().sum()
    }

    /// The extents that have valid pages.
    pub(crate) fn extents(&self) -> impl Iterator<Item = u32> + '_ {
        self.valid.keys().copied()
    }

    /// How many blocks there are, with those that snapshots keep.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn end_of(&self, handle: &[u8; 12]) -> Option<End> {
        self.ends.get(handle).copied()
    }

    pub(crate) fn forget_end(&mut self, handle: &[u8; 12]) {
        self.ends.remove(handle);
    }

    pub(crate) fn forget_ends(&mut self) {
        self.ends.clear();
    }

    pub(crate) fn ends(&self) -> impl Iterator<Item = (&[u8; 12], &End)> {
        self.ends.iter()
    }

    /// Takes what a file's end is said to be: that of the latest truncation counts, and there the greatest.
    pub(crate) fn tell_end(&mut self, handle: [u8; 12], told: End) {
        if told.end == 0 {
            return;
        }
        let end = self.ends.entry(handle).or_insert(told);
        *end = (*end).max(told);
    }

    /// Bytes that the index has in memory: of the maps exactly, of its trees and tables by their entries.
    pub(crate) fn memory_bytes(&self) -> usize {
        let maps: usize = self
            .blocks
            .values()
            .map(|block| block.map.heap_bytes())
            .sum();
        // A B-tree's nodes are two thirds full where keys come at random.
        let blocks = self.blocks.len() * (size_of::<Key>() + size_of::<Block>()) * 3 / 2;
        let ends = self.ends.capacity() * (size_of::<[u8; 12]>() + size_of::<End>() + 1);
        maps + blocks + ends + self.valid.len() * 24
    }
}
