//! Copies that peers ask for, between a stage of their inbox and memory of this process that they cannot reach.

use verbs::mem;

use crate::contact::adapter::Adapter;
use crate::contact::copy::{CopyRequest, Way};
use crate::contact::inbox::PeerInbox;
use crate::memory::named::Named;
use crate::memory::pages;
use crate::shared::cause::Cause;

/// Copies for a peer that has asked for it over a queue pair of a protection domain. The caller is inside an
/// operation that the quiescence knows of.
pub(crate) fn carry_out(
    adapter: &Adapter,
    pd: u32,
    request: &CopyRequest,
    inbox: &PeerInbox,
) -> Result<(), Cause> {
    let len = request.len;
    let named = Named {
        qpn: request.over.qpn,
        pd,
        key: request.key,
        addr: request.addr,
        len: len as u64,
        needed: request.needed(),
    };
    let place = named.place(adapter)?;
    // As for atomics.
    if !pages::fetch(place, len, request.way == Way::Write) {
        return Err(Cause::RemotePages);
    }
    let place = std::ptr::with_exposed_provenance_mut::<u8>(place);
    let stage = inbox.stage(request.stage);
    // SAFETY: a request's length is a stage's at most. The range lies in a region that stays until the caller's
    // operation is over, and its pages are there: whoever has registered it keeps it, and accesses it as others
    // may. What the peer writes to the stage meanwhile are bytes like others.
    unsafe {
        match request.way {
            Way::Write => mem::place(place, stage, len),
            Way::Read => mem::fetch(stage, place, len),
        }
    }
    Ok(())
}
