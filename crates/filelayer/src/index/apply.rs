//! What each record does.

use nebula::Address;

use super::{Block, End, Index, PageMap, Run};
use crate::format::{Change, Copy, Entry, Head, Owner};
use crate::ids::{Fid, Key, Mark};

/// A record, as it is written or read again.
#[derive(Clone, Debug)]
pub(crate) struct Applied<'a> {
    pub(crate) head: &'a Head,
    /// The first page of its payload.
    pub(crate) at: Address,
    /// The checksums of its payload.
    pub(crate) sums: &'a [u32],
    /// The entries in its payload, of [`Head::Maps`].
    pub(crate) entries: &'a [Entry],
}

impl Index {
    /// Does what a record says. Applying a stretch of the stream again, from any record on to its end, changes
    /// nothing: the last record about a page decides.
    pub(crate) fn apply(&mut self, record: &Applied<'_>) {
        match record.head {
            Head::Change(change) => self.change(change, record),
            Head::Copy(copy) => self.copy(copy, record),
            Head::Maps { .. } => record
                .entries
                .iter()
                .for_each(|entry| self.become_of(entry)),
            Head::Free { key } => self.free(*key),
            Head::State {
                reserved,
                checkpoint,
            } => {
                self.reserved = self.reserved.max(*reserved);
                self.checkpoint = self.checkpoint.max(*checkpoint);
            }
            Head::End { mark } => self.tell_end_of(mark),
            Head::Snapshot {
                volume,
                epoch,
                is_taken,
            } => {
                self.set_snapshot(*volume, *epoch, *is_taken);
            }
            // These are in another stream.
            Head::Checkpoint(_) => (),
        }
    }

    fn change(&mut self, change: &Change, record: &Applied<'_>) {
        let key = Key::head(change.fid);
        self.tell_end_of(&change.mark);
        let epoch = change.mark.snapshot_epoch;
        let pages = record.sums.len() as u16;
        if pages > 0 || self.blocks.contains_key(&key) {
            let owner = Owner {
                key,
                volume: change.mark.volume(),
                born: epoch,
                changed: epoch,
            };
            let block = self.ensure(&owner, change.root);
            block.changed = block.changed.max(epoch);
        }
        self.remove(key, change.cut.0, change.cut.1);
        for (first, page, count) in change.places(pages) {
            let at = record.at.plus(first.into());
            let sums = &record.sums[usize::from(first)..usize::from(first + count)];
            self.insert(key, Run { page, count, at }, sums);
        }
        self.end_if_empty(key);
    }

    fn copy(&mut self, copy: &Copy, record: &Applied<'_>) {
        let tables = copy.table_pages();
        let at = record.at.plus(tables.into());
        let sums = &record.sums[usize::from(tables)..];
        let run = Run {
            page: copy.page,
            count: sums.len() as u16,
            at,
        };
        for owner in &copy.owners {
            let block = self.ensure(owner, copy.root);
            block.born = owner.born;
            block.changed = block.changed.max(owner.changed);
            self.insert(owner.key, run, sums);
        }
    }

    /// A block becomes what an entry says.
    fn become_of(&mut self, entry: &Entry) {
        let key = entry.owner.key;
        let block = self.ensure(&entry.owner, entry.root);
        block.born = entry.owner.born;
        block.changed = entry.owner.changed;
        for run in entry.map.runs() {
            self.count_in(entry.root, key, run);
        }
        let block = self.blocks.get_mut(&key).expect("it was ensured");
        let old = std::mem::take(&mut block.map);
        self.count_out_all(entry.root, key, &old);
        let block = self.blocks.get_mut(&key).expect("it was ensured");
        block.map = entry.map.clone();
        self.end_if_empty(key);
    }

    fn free(&mut self, key: Key) {
        if let Some(block) = self.blocks.remove(&key) {
            self.count_out_all(block.root, key, &block.map);
            self.leave(block.root, key);
        }
    }

    fn tell_end_of(&mut self, mark: &Mark) {
        let end = End {
            truncate_epoch: mark.truncate_epoch,
            end: mark.end,
        };
        self.tell_end(mark.handle, end);
    }

    /// The block, made if need be. One of another family was emptied before it came to this one: if pages are left,
    /// the record that removed them is gone, and so are younger ones about them, for good.
    fn ensure(&mut self, owner: &Owner, root: Fid) -> &mut Block {
        if self
            .blocks
            .get(&owner.key)
            .is_some_and(|block| block.root != root)
        {
            self.free(owner.key);
        }
        let mut is_new = false;
        self.blocks.entry(owner.key).or_insert_with(|| {
            is_new = true;
            Block {
                root,
                volume: owner.volume,
                born: owner.born,
                changed: owner.changed,
                map: PageMap::default(),
            }
        });
        if is_new {
            self.join(root, owner.key);
        }
        self.blocks.get_mut(&owner.key).expect("it is there")
    }

    fn insert(&mut self, key: Key, run: Run, sums: &[u32]) {
        if run.count == 0 {
            return;
        }
        let root = self.blocks[&key].root;
        self.count_in(root, key, &run);
        let mut old = Vec::new();
        let block = self.blocks.get_mut(&key).expect("it is there");
        block.map.insert(run, sums, |run| old.push(run));
        // A record that is applied again was counted in once more: this takes that back.
        for old in &old {
            self.count_out(root, key, old);
        }
    }

    fn remove(&mut self, key: Key, from: u16, to: u16) {
        let Some(block) = self.blocks.get_mut(&key) else {
            return;
        };
        let root = block.root;
        let mut old = Vec::new();
        block.map.remove(from, to, |run| old.push(run));
        for run in &old {
            self.count_out(root, key, run);
        }
    }

    fn count_out_all(&mut self, root: Fid, key: Key, map: &PageMap) {
        for run in map.runs() {
            self.count_out(root, key, run);
        }
    }

    /// A block without pages reads like none, and costs nothing. What a snapshot keeps stays, even if that is
    /// nothing.
    fn end_if_empty(&mut self, key: Key) {
        let block = self.blocks.get(&key);
        if key.label == crate::ids::HEAD && block.is_some_and(|block| block.map.is_empty()) {
            self.free(key);
        }
    }
}
