//! Objects whose attributes have changed since their row was written.
//!
//! A write changes size, times and change number of its file; an entry those of its directory. They are
//! not committed each time. The first of them puts a *mark* beside the row, with a bound: the largest
//! change number that may be handed out without another commit. After a crash every marked object gets
//! the number above its bound, so that no number is seen twice, and a file's size is told from its
//! records. When nobody uses the object any more, its row is written and the mark removed.

use files::{ChangeInfo, Timestamp};

use crate::format::inode::Inode;

/// Change numbers that a mark is good for.
pub(crate) const CHANGES_A_MARK: u64 = 1 << 20;

/// A mark is renewed when fewer are left.
pub(crate) const CHANGES_LEFT_MIN: u64 = 1 << 10;

/// What is known of an object beyond its row.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    /// As it is now.
    pub(crate) inode: Inode,
    /// The row's version.
    pub(crate) version: u64,
    /// Whether the row may be another than what was read: a commit's end is open. It is read again.
    pub(crate) is_unsure: bool,
    /// Whether that commit may have been carried out.
    pub(crate) is_open_ended: bool,
    /// Bytes used, as the row has it.
    pub(crate) row_used: u64,
    /// The durable mark's bound; 0 if there is none.
    pub(crate) bound: u64,
    /// Whether bytes behind the end may be stored, and have to be cut off before the file grows.
    pub(crate) is_ragged: bool,
    /// Whether records may tell an end that is not the file's: of a write that was not carried out as a whole.
    pub(crate) has_stray_ends: bool,
    /// Whether blocks may occupy something else than was told: by a change that has failed, or whose end
    /// nobody has heard.
    pub(crate) is_miscounted: bool,
    /// Writes under way: each may still change the change number once.
    pub(crate) plans: u64,
    /// When it was last changed, in an order of its own.
    pub(crate) used_at: u64,
}

impl Live {
    pub(crate) fn new(inode: Inode, version: u64) -> Self {
        Self {
            row_used: inode.attributes.used,
            inode,
            version,
            is_unsure: false,
            is_open_ended: false,
            bound: 0,
            is_ragged: false,
            has_stray_ends: false,
            is_miscounted: false,
            plans: 0,
            used_at: 0,
        }
    }

    /// Whether a mark is needed for what comes next.
    pub(crate) fn needs_mark(&self) -> bool {
        self.bound < self.inode.attributes.change + self.plans + CHANGES_LEFT_MIN
    }

    /// Whether the mark is good for so many more changes.
    pub(crate) fn has_change_for(&self, more: u64) -> bool {
        self.inode.attributes.change + more <= self.bound
    }

    /// The bound of the next mark.
    pub(crate) fn next_bound(&self) -> u64 {
        let bound = self.inode.attributes.change + self.plans + CHANGES_A_MARK;
        bound.max(self.bound)
    }

    /// A write was not carried out as a whole: part of it may be stored, also behind the end.
    pub(crate) fn cut_short(&mut self, now: Timestamp) {
        self.is_ragged = true;
        self.has_stray_ends = true;
        self.changed_in_part(now);
    }

    /// A change of its data has failed: some of it may have been made, or all.
    pub(crate) fn changed_in_part(&mut self, now: Timestamp) {
        self.is_miscounted = true;
        self.touch(now);
    }

    /// Changes its contents: data, or entries.
    pub(crate) fn touch(&mut self, now: Timestamp) -> ChangeInfo {
        self.inode.touch(now)
    }
}

impl Inode {
    /// Notes a change of contents.
    pub(crate) fn touch(&mut self, now: Timestamp) -> ChangeInfo {
        self.attributes.mtime = now;
        self.touch_attributes(now)
    }

    /// Notes a change of attributes.
    pub(crate) fn touch_attributes(&mut self, now: Timestamp) -> ChangeInfo {
        let before = self.attributes.change;
        self.attributes.ctime = now;
        self.attributes.change = before + 1;
        ChangeInfo {
            before,
            after: before + 1,
        }
    }
}

impl Live {
    /// Bytes used that the row does not say.
    pub(crate) fn unwritten_bytes(&self) -> i64 {
        (self.inode.attributes.used as i64).wrapping_sub(self.row_used as i64)
    }

    /// Takes over what a row says, but for what is only in memory.
    pub(crate) fn take_row(&mut self, row: Inode, version: u64) {
        let before = std::mem::replace(&mut self.inode, row);
        let now = before.attributes;
        let was_cut = before.truncate_epoch != self.inode.truncate_epoch;
        let attributes = &mut self.inode.attributes;
        self.row_used = attributes.used;
        self.version = version;
        self.is_unsure = false;
        attributes.change = attributes.change.max(now.change);
        attributes.change += u64::from(std::mem::take(&mut self.is_open_ended));
        attributes.used = now.used;
        if was_cut {
            self.is_ragged = true;
        } else if attributes.kind == files::Kind::File {
            attributes.size = attributes.size.max(now.size);
        }
        attributes.mtime = attributes.mtime.max(now.mtime);
        attributes.ctime = attributes.ctime.max(now.ctime);
    }
}
