//! Atomics that peers ask for, on memory of this process that they do not map.

use std::sync::atomic::AtomicU64;

use verbs::Access;

use crate::contact::adapter::Adapter;
use crate::contact::atomic::AtomicRequest;
use crate::memory::pages;
use crate::shared::cause::Cause;
use crate::shared::layout::mr_index;
use crate::shared::mr_entry::{self, Window};

/// Carries an atomic out that has come over a queue pair of a protection domain, with the checks that a
/// sender makes who maps the memory, in their order. The caller is inside an operation that the
/// quiescence knows of.
pub(crate) fn carry_out(adapter: &Adapter, pd: u32, request: &AtomicRequest) -> Result<u64, Cause> {
    if !request.addr.is_multiple_of(8) {
        return Err(Cause::Misaligned);
    }
    let entry = adapter.published().mrs.get(mr_index(request.key));
    let region = entry.and_then(|entry| mr_entry::describe(entry, request.key));
    let region = region.ok_or(Cause::RemoteKey)?;
    if region.pd != pd {
        return Err(Cause::RemoteDomain);
    }
    let is_its = |window: Window| window.qpn == 0 || window.qpn == request.qpn;
    if !region.window.is_none_or(is_its) {
        return Err(Cause::RemoteKey);
    }
    if !region.access.contains(Access::REMOTE_ATOMIC) {
        return Err(Cause::RemoteRight);
    }
    let offset = region.offset(request.addr, 8).ok_or(Cause::RemoteRange)?;
    let place = region.start.wrapping_add(offset) as usize;
    if !place.is_multiple_of(8) {
        return Err(Cause::OutOfAtomics);
    }
    // A program that has unmapped memory before it deregistered it breaks its promise; its peer is told so, and the program goes on.
    if !pages::fetch(place, 8, true) {
        return Err(Cause::RemotePages);
    }
    let word = std::ptr::with_exposed_provenance_mut::<u64>(place);
    // SAFETY: eight aligned bytes of a region that stays until the caller's operation is over, and whose
    // page is there: whoever has registered it keeps it, and accesses it as others may.
    Ok(request.change.make(unsafe { AtomicU64::from_ptr(word) }))
}
