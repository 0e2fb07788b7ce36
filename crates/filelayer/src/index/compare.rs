//! Whether two indexes are the same, and whether one is consistent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Block, Index};
use crate::ids::{Fid, Key};

/// What is different between two indexes, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference(pub String);

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Index {
    /// What of this index is not the same in `rebuilt`. Ends of files that were forgotten may come back, also
    /// where a record since has told a smaller one; and a block that has lost its oldest records may seem younger: neither changes an answer.
    pub(crate) fn difference(&self, rebuilt: &Self) -> Option<Difference> {
        let said = |what: String| Some(Difference(what));
        let keys: BTreeSet<&Key> = self.blocks.keys().chain(rebuilt.blocks.keys()).collect();
        for key in keys {
            let (Some(here), Some(there)) = (self.blocks.get(key), rebuilt.blocks.get(key)) else {
                return said(format!("{key:?} is only in one of them"));
            };
            if here.root != there.root || here.volume != there.volume || here.map != there.map {
                return said(format!("{key:?} is {here:?}, rebuilt {there:?}"));
            }
        }
        if self.valid != rebuilt.valid {
            let (here, there) = (&self.valid, &rebuilt.valid);
            return said(format!("valid pages are {here:?}, rebuilt {there:?}"));
        }
        if self.snapshots != rebuilt.snapshots {
            let (here, there) = (&self.snapshots, &rebuilt.snapshots);
            return said(format!("snapshots are {here:?}, rebuilt {there:?}"));
        }
        if self.reserved != rebuilt.reserved {
            let (here, there) = (self.reserved, rebuilt.reserved);
            return said(format!("serial numbers go to {here}, rebuilt {there}"));
        }
        let lost = self
            .ends
            .iter()
            .find(|(handle, end)| rebuilt.ends.get(*handle).is_none_or(|there| there < end));
        if let Some((handle, end)) = lost {
            let there = rebuilt.ends.get(handle);
            return said(format!("{handle:x?} ends at {end:?}, rebuilt {there:?}"));
        }
        None
    }

    /// Blocks that are not the same in `rebuilt`.
    pub(crate) fn differing<'a>(&'a self, rebuilt: &'a Self) -> impl Iterator<Item = Fid> + 'a {
        let differs = |(key, here): (&Key, &Block)| {
            let is_same = rebuilt.blocks.get(key).is_some_and(|there| {
                here.root == there.root && here.volume == there.volume && here.map == there.map
            });
            (!is_same).then_some(key.fid)
        };
        let more = rebuilt.blocks.keys();
        let more = more.filter(|key| !self.blocks.contains_key(key));
        let here = self.blocks.iter().filter_map(differs);
        here.chain(more.map(|key| key.fid))
    }

    /// What is wrong with the counts of valid pages: they are counted again, page by page.
    pub(crate) fn miscounted(&self) -> Option<Difference> {
        let mut seen = BTreeSet::new();
        for block in self.blocks.values() {
            for run in block.map.runs() {
                seen.extend((0..run.count).map(|i| run.at.plus(i.into())));
            }
        }
        let mut counted = BTreeMap::<u32, u64>::new();
        for at in seen {
            *counted.entry(at.extent).or_default() += 1;
        }
        let is_right = counted == self.valid;
        (!is_right).then(|| Difference(format!("{:?} are valid, not {:?}", counted, self.valid)))
    }
}
