//! Binding windows of the first kind: a call that posts the request.

use std::ffi::c_int;

use verbs::{Op, PostReason};

use super::qp::Qp;
use super::request::send_flags;
use crate::abi;
use crate::abi::errno::{Errno, code, errno_of_post};
use crate::memory::window::bind;

/// `ibv_bind_mw`, which has looked at the window's kind and domain.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut abi::Qp,
    mw: *mut abi::Mw,
    asked: *mut abi::MwBind,
) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { bind_first(qp, mw, &*asked) })
}

/// # Safety
/// As libibverbs' callers promise.
unsafe fn bind_first(qp: *mut abi::Qp, mw: *mut abi::Mw, asked: &abi::MwBind) -> Result<(), Errno> {
    let info = asked.bind_info;
    if info.mw_access_flags & abi::ACCESS_ZERO_BASED != 0 {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise; the key is changed as a program reads it that has asked for it.
    unsafe {
        let old = (*mw).rkey;
        // As `ibv_inc_rkey` does.
        let new = (old & !0xff) | (old.wrapping_add(1) & 0xff);
        let request = (asked.wr_id, asked.send_flags);
        let posted = post_alone(Qp::of(qp), bind(new, &info), request);
        posted.map_err(errno_of_post)?;
        (*mw).rkey = new;
    }
    Ok(())
}

/// Posts a request without bytes that a call stands for.
fn post_alone(qp: &Qp, op: Op, (id, flags): (u64, u32)) -> Result<(), PostReason> {
    let mut sender = qp.send.lock();
    let (half, batch) = sender.parts();
    batch.clear();
    let draft = batch.gather(op, None, &[])?;
    draft.id(id).flags(send_flags(flags)).commit_gathered();
    half.post(batch).map_err(|error| error.reason)
}
