//! What the records of an extent need before the extent may go: valid pages are copied, and whatever else still
//! counts is said again at the stream's end.
//!
//! The rule that everything follows: *for each page, the last record about it that is left says what it is*.
//! So a removal is said again while older records, which would bring its pages back, may be left: in lower extents, or in
//! a checkpoint that does not know of it.

use std::collections::BTreeSet;

use nebula::Address;

use super::Inner;
use super::append::Item;
use super::open::Parsed;
use crate::error::FileError;
use crate::format::{Change, Copy, Entry, Head, Owner};
use crate::ids::{Fid, HEAD, Key, Mark, PAGE};
use crate::index::Index;

/// Holes of one block that are said again one by one; of more, all of the block is.
const HOLES_MAX: usize = 4;

/// A record of the extent that is to go.
pub(super) struct Old {
    pub(super) parsed: Parsed,
    /// Empty if none of its pages was valid when it was read.
    pub(super) payload: Vec<u8>,
}

/// What has to be appended for some records.
#[derive(Default)]
pub(super) struct Needs {
    pub(super) items: Vec<Item>,
    /// Pages that are copied.
    pub(super) pages: u32,
    /// Removals that are said again.
    pub(super) carried: u64,
    /// What a written block is stands in there, with the places of its pages.
    pub(super) says_places: bool,
}

/// Pages of a payload that are a block's: the first one's number there, in the block, and how many.
type Place = (u16, u16, u16);

impl Old {
    /// The family that its pages belong to, and where they are.
    fn places(&self) -> Option<(Fid, Vec<Place>)> {
        let pages = self.parsed.sums.len() as u16;
        match &self.parsed.head {
            Head::Change(change) => Some((change.root, change.places(pages).to_vec())),
            Head::Copy(copy) => {
                let tables = copy.table_pages();
                Some((copy.root, vec![(tables, copy.page, pages - tables)]))
            }
            _ => None,
        }
    }

    /// How many of its pages are valid.
    pub(super) fn needed(&self, index: &Index) -> u64 {
        let Some((root, places)) = self.places() else {
            return 0;
        };
        let count = places.into_iter().map(|(first, page, count)| {
            let at = |i: u16| self.parsed.at.plus((first + i).into());
            let is_valid = |i: &u16| !index.owners(root, page + i, at(*i)).is_empty();
            (0..count).filter(is_valid).count() as u64
        });
        count.sum()
    }

    /// Whether this page of it is valid.
    pub(super) fn needs(&self, index: &Index, at: Address) -> bool {
        let Some((root, places)) = self.places() else {
            return false;
        };
        places.into_iter().any(|(first, page, count)| {
            let is_it = |i: &u16| self.parsed.at.plus((first + i).into()) == at;
            let found = (0..count).find(is_it);
            found.is_some_and(|i| !index.owners(root, page + i, at).is_empty())
        })
    }

    /// The blocks that have to stand still while it is looked at.
    pub(super) fn blocks(&self, index: &Index, blocks: &mut BTreeSet<Fid>) {
        match &self.parsed.head {
            Head::Change(change) => {
                blocks.insert(change.fid);
                blocks.extend(index.family(change.root).iter().map(|key| key.fid));
            }
            Head::Copy(copy) => blocks.extend(index.family(copy.root).iter().map(|key| key.fid)),
            Head::Maps { .. } => {
                blocks.extend(self.parsed.entries.iter().map(|entry| entry.owner.key.fid));
            }
            Head::Free { key } => {
                blocks.insert(key.fid);
            }
            Head::State { .. } | Head::End { .. } => (),
            Head::Snapshot { .. } | Head::Checkpoint(_) => (),
        }
    }
}

/// The search for what some records need.
pub(super) struct Survey<'a> {
    inner: &'a Inner,
    extent: u32,
    /// Nothing that is left is older than this extent.
    is_oldest: bool,
    /// The rest is said later.
    moves_only: bool,
    needs: Needs,
    /// Blocks that are said again already.
    said: BTreeSet<Key>,
    copies: Vec<Item>,
}

impl<'a> Survey<'a> {
    /// If pages alone are to be moved, what snapshots keep of their blocks is said as well, which has to be there before
    /// them.
    pub(super) fn new(inner: &'a Inner, extent: u32, is_oldest: bool, moves_only: bool) -> Self {
        Self {
            inner,
            extent,
            is_oldest,
            moves_only,
            needs: Needs::default(),
            said: BTreeSet::new(),
            copies: Vec::new(),
        }
    }

    /// What these records need. Their blocks are locked.
    pub(super) fn run(mut self, records: &[Old]) -> Result<Needs, FileError> {
        let index = self.inner.index.borrow();
        for old in records {
            self.carry(&index, old);
            self.copy(&index, old)?;
        }
        // What blocks are is said first: copies change it.
        self.needs.items.append(&mut self.copies);
        Ok(self.needs)
    }

    fn carry(&mut self, index: &Index, old: &Old) {
        match &old.parsed.head {
            Head::Maps { .. } if self.moves_only => {
                for entry in &old.parsed.entries {
                    let key = entry.owner.key;
                    self.carry_block(index, key, key.label != HEAD);
                }
            }
            _ if self.moves_only => (),
            Head::Change(change) => {
                self.carry_end(index, &change.mark);
                if change.cut.0 < change.cut.1 && !self.is_oldest {
                    self.carry_cut(index, change);
                }
            }
            Head::Maps { .. } => {
                for entry in &old.parsed.entries {
                    self.carry_block(index, entry.owner.key, true);
                }
            }
            Head::Free { key } => self.carry_block(index, *key, !self.is_oldest),
            Head::End { mark } => self.carry_end(index, mark),
            Head::Snapshot { volume, epoch, .. } => {
                let is_taken = index.has_snapshot(*volume, *epoch);
                if is_taken || !self.is_oldest {
                    self.say(Head::Snapshot {
                        volume: *volume,
                        epoch: *epoch,
                        is_taken,
                    });
                }
            }
            Head::Copy(_) | Head::State { .. } | Head::Checkpoint(_) => (),
        }
    }

    fn say(&mut self, head: Head) {
        self.needs.items.push(self.inner.bare(head));
    }

    /// The end of a file, if this record alone may have told it.
    fn carry_end(&mut self, index: &Index, mark: &Mark) {
        let told = index.end_of(&mark.handle);
        let is_told = told
            .is_some_and(|told| told.end == mark.end && told.truncate_epoch == mark.truncate_epoch);
        if is_told {
            self.say(Head::End { mark: *mark });
        }
    }

    /// A removal: of the pages that are holes still. Those that are not have younger records.
    fn carry_cut(&mut self, index: &Index, change: &Change) {
        let key = Key::head(change.fid);
        let Some(block) = index.block(key) else {
            return self.carry_block(index, key, true);
        };
        let holes = block.map.holes(change.cut.0, change.cut.1);
        if holes.len() > HOLES_MAX {
            return self.carry_block(index, key, true);
        }
        let mut handle = [0; 12];
        handle[..4].copy_from_slice(&block.volume.0.to_be_bytes());
        let mark = Mark {
            handle,
            end: 0,
            truncate_epoch: 0,
            snapshot_epoch: block.changed,
        };
        let root = block.root;
        for cut in holes {
            self.needs.carried += 1;
            self.say(Head::Change(Change {
                fid: change.fid,
                root,
                mark,
                cut,
                first: 0,
                split: 0,
                second: 0,
            }));
        }
    }

    /// What a block is, or that it is not. The latter, and holes, only matter while something older is left.
    fn carry_block(&mut self, index: &Index, key: Key, is_needed: bool) {
        if !is_needed || !self.said.insert(key) {
            return;
        }
        match index.block(key) {
            Some(block) => {
                let entry = Entry {
                    owner: block.owner(key),
                    root: block.root,
                    map: block.map.clone(),
                };
                self.needs.says_places |= key.label == HEAD;
                self.needs.items.push(self.inner.maps(vec![entry]));
            }
            None if !self.is_oldest => {
                self.needs.carried += 1;
                self.say(Head::Free { key });
            }
            None => (),
        }
    }

    /// Copies valid pages.
    fn copy(&mut self, index: &Index, old: &Old) -> Result<(), FileError> {
        let Some((root, places)) = old.places() else {
            return Ok(());
        };
        for (first, page, count) in places {
            let mut i = 0;
            while i < count {
                let owners = |i: u16| {
                    let at = old.parsed.at.plus((first + i).into());
                    index.owners(root, page + i, at)
                };
                let here = owners(i);
                let end = (i + 1..count).find(|i| owners(*i) != here).unwrap_or(count);
                if !here.is_empty() {
                    self.copy_run(index, old, root, &here, (first + i, page + i, end - i))?;
                }
                i = end;
            }
        }
        Ok(())
    }

    /// Copies pages that the same blocks have.
    fn copy_run(
        &mut self,
        index: &Index,
        old: &Old,
        root: Fid,
        keys: &[Key],
        (first, page, count): Place,
    ) -> Result<(), FileError> {
        let sums = &old.parsed.sums[usize::from(first)..usize::from(first + count)];
        let same = |key: &Key| {
            let block = index.block(*key).expect("it has the page");
            block.map.sums(page, count) == sums
        };
        let from = usize::from(first) * PAGE;
        let bytes = old.payload.get(from..from + usize::from(count) * PAGE);
        let Some(bytes) = bytes.filter(|_| keys.iter().all(same)) else {
            let what = format!(
                "pages {page} to {} of {} are not these",
                page + count,
                keys[0].fid
            );
            let extent = self.extent;
            return Err(FileError::Invariant { extent, what });
        };
        let owner = |key: &Key| -> Owner { index.block(*key).expect("it has it").owner(*key) };
        let owners: Vec<Owner> = keys.iter().map(owner).collect();
        let copy = |page| Copy {
            root,
            page,
            owners: owners.clone(),
        };
        let tables = copy(page).table_pages();
        let most = usize::from(self.inner.record_pages() - tables) * PAGE;
        for (nth, bytes) in bytes.chunks(most).enumerate() {
            let copy = copy(page + (nth * most / PAGE) as u16);
            let pages = tables + (bytes.len() / PAGE) as u16;
            let table = copy.table();
            let mut item = self.inner.filled(Head::Copy(copy), pages);
            let payload = item.record.payload_mut();
            let (table_pages, rest) = payload.split_at_mut(usize::from(tables) * PAGE);
            if tables > 0 {
                table_pages.fill(0);
                table_pages[..table.len()].copy_from_slice(&table);
            }
            rest.copy_from_slice(bytes);
            self.copies.push(item);
        }
        self.needs.pages += u32::from(count);
        Ok(())
    }
}
