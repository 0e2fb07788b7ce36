//! Atomics that peers ask for, on memory of this process that they do not map.

use std::sync::atomic::AtomicU64;

use verbs::Access;

use crate::contact::adapter::Adapter;
use crate::contact::atomic::AtomicRequest;
use crate::memory::named::Named;
use crate::memory::pages;
use crate::shared::cause::Cause;

/// Carries an atomic out that has come over a queue pair of a protection domain. The caller is inside an
/// operation that the quiescence knows of.
pub(crate) fn carry_out(adapter: &Adapter, pd: u32, request: &AtomicRequest) -> Result<u64, Cause> {
    if !request.addr.is_multiple_of(8) {
        return Err(Cause::Misaligned);
    }
    let named = Named {
        qpn: request.over.qpn,
        pd,
        key: request.key,
        addr: request.addr,
        len: 8,
        needed: Access::REMOTE_ATOMIC,
    };
    let place = named.place(adapter)?;
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
