//! Who shares pages with whom.

use nebula::Address;

use super::{Index, Run};
use crate::ids::{Fid, Key};

impl Index {
    /// Those who may have a page of a record that names this root.
    pub(crate) fn family(&self, root: Fid) -> Vec<Key> {
        let only = || vec![Key::head(root)];
        self.families.get(&root).cloned().unwrap_or_else(only)
    }

    /// Whether anybody has page `page` at `at`.
    pub(crate) fn owners(&self, root: Fid, page: u16, at: Address) -> Vec<Key> {
        let mut family = self.family(root);
        family.retain(|key| self.has(*key, page, at));
        family
    }

    /// Whether `key` has page `page` at `at`.
    pub(crate) fn has(&self, key: Key, page: u16, at: Address) -> bool {
        let block = self.blocks.get(&key);
        block.is_some_and(|block| block.map.at(page) == Some(at))
    }

    /// A block has come into being.
    pub(super) fn join(&mut self, root: Fid, key: Key) {
        let head = Key::head(root);
        if key == head && !self.families.contains_key(&root) {
            return;
        }
        let is_alive = self.blocks.contains_key(&head);
        let family = self.families.entry(root).or_insert_with(|| {
            let first = Some(head).filter(|_| is_alive && key != head);
            first.into_iter().collect()
        });
        if !family.contains(&key) {
            family.push(key);
        }
    }

    /// A block has ended.
    pub(super) fn leave(&mut self, root: Fid, key: Key) {
        let Some(family) = self.families.get_mut(&root) else {
            return;
        };
        family.retain(|member| *member != key);
        if family.iter().all(|member| *member == Key::head(root)) {
            self.families.remove(&root);
        }
    }

    /// `key` is about to have these pages: those that nobody else has become valid.
    pub(super) fn count_in(&mut self, root: Fid, key: Key, run: &Run) {
        let count = self.unshared(root, key, run);
        if count > 0 {
            *self.valid.entry(run.at.extent).or_default() += count;
        }
    }

    /// `key` does not have these pages any more: those that nobody else has become garbage.
    pub(super) fn count_out(&mut self, root: Fid, key: Key, run: &Run) {
        let count = self.unshared(root, key, run);
        if count == 0 {
            return;
        }
        let valid = self.valid.get_mut(&run.at.extent);
        let valid = valid.expect("an extent with valid pages is counted");
        *valid = valid.checked_sub(count).expect("pages are counted once");
        if *valid == 0 {
            self.valid.remove(&run.at.extent);
        }
    }

    /// How many of these pages nobody but `key` has.
    fn unshared(&self, root: Fid, key: Key, run: &Run) -> u64 {
        let Some(family) = self.families.get(&root) else {
            return run.count.into();
        };
        let is_alone = |i: &u16| {
            let (page, at) = (run.page + i, run.at.plus(u32::from(*i)));
            let mut others = family.iter().filter(|other| **other != key);
            !others.any(|other| self.has(*other, page, at))
        };
        (0..run.count).filter(is_alone).count() as u64
    }
}
