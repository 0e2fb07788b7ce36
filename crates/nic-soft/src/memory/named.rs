//! Ranges of this process's memory that peers name, which they do not reach themselves.

use verbs::Access;

use crate::contact::adapter::Adapter;
use crate::shared::cause::Cause;
use crate::shared::layout::mr_index;
use crate::shared::mr_entry::{self, Window};

/// A range that a peer names over a queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// The queue pair, and its protection domain.
    pub(super) qpn: u32,
    pub(super) pd: u32,
    /// The region's key.
    pub(super) key: u32,
    /// The first byte's address, as work requests name it.
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) needed: Access,
}

impl Named {
    /// Where it begins in this process, after the checks that a sender makes who maps the memory, in their order.
    pub(super) fn place(&self, adapter: &Adapter) -> Result<usize, Cause> {
        let entry = adapter.published().mrs.get(mr_index(self.key));
        let region = entry.and_then(|entry| mr_entry::describe(entry, self.key));
        let region = region.ok_or(Cause::RemoteKey)?;
        if region.pd != self.pd {
            return Err(Cause::RemoteDomain);
        }
        let is_its = |window: Window| window.qpn == 0 || window.qpn == self.qpn;
        if !region.window.is_none_or(is_its) {
            return Err(Cause::RemoteKey);
        }
        if !region.access.contains(self.needed) {
            return Err(Cause::RemoteRight);
        }
        let offset = region.offset(self.addr, self.len);
        let offset = offset.ok_or(Cause::RemoteRange)?;
        Ok(region.start.wrapping_add(offset) as usize)
    }
}
