//! Atomics that peers ask for, on memory of this process that they do not map.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use rustix::mm::Advice;
use verbs::Access;

use crate::contact::adapter::Adapter;
use crate::contact::atomic::AtomicRequest;
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
    if !is_writable(place) {
        return Err(Cause::RemotePages);
    }
    let word = std::ptr::with_exposed_provenance_mut::<u64>(place);
    // SAFETY: eight aligned bytes of a region that stays until the caller's operation is over, and whose
    // page is there: whoever has registered it keeps it, and accesses it as others may.
    Ok(request.change.make(unsafe { AtomicU64::from_ptr(word) }))
}

/// Whether the page of a place is there to be written. A program that has unmapped memory before it
/// deregistered it breaks its promise; its peer is told so, and the program goes on.
fn is_writable(place: usize) -> bool {
    /// A kernel before 5.14 says of every page that it cannot tell.
    static CAN_BE_ASKED: OnceLock<bool> = OnceLock::new();
    let own = AtomicU64::new(0);
    let can_be_asked = || populate(own.as_ptr().expose_provenance()).is_ok();
    match *CAN_BE_ASKED.get_or_init(can_be_asked) {
        true => populate(place)
            .inspect_err(|error| tracing::debug!(%error, "a region's page is not there"))
            .is_ok(),
        false => true,
    }
}

/// Has the page of a place be there to be written.
fn populate(place: usize) -> rustix::io::Result<()> {
    let page = rustix::param::page_size();
    let start = std::ptr::with_exposed_provenance_mut(place & !(page - 1));
    // SAFETY: what the page holds does not change, nor who may do what there.
    unsafe { rustix::mm::madvise(start, page, Advice::LinuxPopulateWrite) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_not_there_are_known() {
        use rustix::mm::{MapFlags, ProtFlags};
        let page = rustix::param::page_size();
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), 2 * page, protection, flags)
        };
        let start = start.expect("memory");
        assert!(is_writable(start.expose_provenance() + 8));
        let second = start.wrapping_byte_add(page);
        // SAFETY: the mapping's second page, of which nobody knows.
        unsafe { rustix::mm::mprotect(second, page, rustix::mm::MprotectFlags::READ) }
            .expect("protected");
        assert!(!is_writable(second.addr()));
        // SAFETY: as above, both pages.
        unsafe { rustix::mm::munmap(start, 2 * page) }.expect("unmapped");
        assert!(!is_writable(start.addr()));
    }
}
