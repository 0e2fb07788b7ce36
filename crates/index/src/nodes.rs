//! Virtual nodes: which this owner has, by which epoch, and the numbers of new objects.

use std::collections::HashMap;

use files::{Error, FileId};

/// Serial numbers that a take-over, or a commit when they run out, sets aside.
pub(crate) const SERIALS_AHEAD: u64 = 1 << 16;

/// The first serial number of new objects; the root has 1.
pub(crate) const FIRST_SERIAL: u64 = 16;

/// A virtual node that this owner has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnNode {
    /// The version of its row: each transaction compares it.
    pub(crate) version: u64,
    /// The next serial number.
    pub(crate) next: u64,
    /// The first that is not set aside.
    pub(crate) end: u64,
    /// The version of the row that says so.
    pub(crate) serials_version: u64,
}

/// All virtual nodes that are known of.
#[derive(Default)]
pub(crate) struct Nodes {
    own: HashMap<u16, OwnNode>,
    /// The epochs of those that others have.
    lost: HashMap<u16, u64>,
    /// The numbers of `own`, to choose from.
    order: Vec<u16>,
}

impl Nodes {
    /// Takes note of a node that was taken over.
    pub(crate) fn add(&mut self, node: u16, own: OwnNode) {
        self.lost.remove(&node);
        if self.own.insert(node, own).is_none() {
            self.order.push(node);
        }
    }

    /// Takes note that another has taken a node over.
    pub(crate) fn lose(&mut self, node: u16, epoch: u64) {
        self.own.remove(&node);
        self.order.retain(|own| *own != node);
        self.lost.insert(node, epoch);
    }

    pub(crate) fn get(&self, node: u16) -> Option<&OwnNode> {
        self.own.get(&node)
    }

    pub(crate) fn get_mut(&mut self, node: u16) -> Option<&mut OwnNode> {
        self.own.get_mut(&node)
    }

    /// All that this owner has.
    pub(crate) fn own(&self) -> &[u16] {
        &self.order
    }

    /// Refuses what another owns.
    pub(crate) fn check(&self, node: u16) -> Result<(), Error> {
        match self.own.contains_key(&node) {
            true => Ok(()),
            false => Err(self.not_owner(node)),
        }
    }

    /// Where to ask instead.
    pub(crate) fn not_owner(&self, node: u16) -> Error {
        let epoch = self.lost.get(&node).copied().unwrap_or(0);
        Error::NotOwner { epoch }
    }

    /// A number for a new object on a node, if one is set aside.
    pub(crate) fn next_file(&mut self, node: u16) -> Option<FileId> {
        let own = self.own.get_mut(&node)?;
        if own.next == own.end {
            return None;
        }
        let file = FileId::new(node, own.next)?;
        own.next += 1;
        Some(file)
    }
}
