//! Polling a completion at a time, as `ibv_start_poll`, `ibv_next_poll` and `ibv_end_poll` do: the queue's lock is held from
//! a start that finds something to the end.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use crate::abi;
use crate::cq::{self, Cq};
use crate::errno::{Errno, pointer};
use crate::fork;

/// `ibv_create_cq_ex`.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut abi::Context,
    init: *mut abi::CqInitAttrEx,
) -> *mut abi::CqEx {
    // SAFETY: the caller's promise.
    pointer(unsafe { create(context, &*init) })
}

/// # Safety
/// As libibverbs' callers promise.
unsafe fn create(
    context: *mut abi::Context,
    init: &abi::CqInitAttrEx,
) -> Result<*mut abi::CqEx, Errno> {
    let has_flags = init.comp_mask & abi::CQ_INIT_ATTR_MASK_FLAGS != 0;
    let is_known = init.comp_mask & !abi::CQ_INIT_ATTR_MASK_FLAGS == 0
        && init.wc_flags & !abi::WC_STANDARD_FLAGS == 0
        && (!has_flags || init.flags & !abi::CREATE_CQ_KNOWN == 0);
    if !is_known {
        return Err(libc::EOPNOTSUPP);
    }
    let depth = c_int::try_from(init.cqe).map_err(|_| libc::EINVAL)?;
    let vector = c_int::try_from(init.comp_vector).map_err(|_| libc::EINVAL)?;
    // SAFETY: the caller's promise.
    let cq = unsafe { cq::create(context, depth, init.cq_context, init.channel, vector)? };
    // SAFETY: made just now, and nobody else has it.
    let c = unsafe { &mut *cq };
    c.start_poll = Some(start);
    c.next_poll = Some(next);
    c.end_poll = Some(end);
    c.read_opcode = Some(opcode);
    c.read_vendor_err = Some(vendor_err);
    c.read_wc_flags = Some(wc_flags);
    let wants = |bit: u32| init.wc_flags >> bit & 1 == 1;
    c.read_byte_len = wants(0).then_some(byte_len);
    c.read_imm_data = wants(1).then_some(imm_data);
    c.read_qp_num = wants(2).then_some(qp_num);
    c.read_src_qp = wants(3).then_some(src_qp);
    c.read_slid = wants(4).then_some(no_number);
    c.read_sl = wants(5).then_some(no_level);
    c.read_dlid_path_bits = wants(6).then_some(no_level);
    Ok(cq)
}

/// Goes on to the next completion.
///
/// # Safety
/// The caller has the queue's lock.
unsafe fn advance(cq: *mut abi::CqEx) -> c_int {
    // SAFETY: the caller's promise; what is written are fields that the program reads after this.
    unsafe {
        let poller = &mut *Cq::of(cq).poller.as_mut_ptr();
        match poller.next() {
            Ok(Some(wc)) => {
                (*cq).status = wc.status as c_int;
                (*cq).wr_id = wc.id;
                0
            }
            Ok(None) => libc::ENOENT,
            Err(_) => libc::EIO,
        }
    }
}

unsafe extern "C" fn start(cq: *mut abi::CqEx, attr: *const abi::PollCqAttr) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { attr.as_ref() }.is_some_and(|attr| attr.comp_mask != 0) {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    let ours = unsafe { Cq::of(cq) };
    if ours.opened().is_inherited() {
        fork::tell();
        return libc::EIO;
    }
    let lock = &ours.poller;
    std::mem::forget(lock.lock());
    // SAFETY: locked just now.
    let found = unsafe { advance(cq) };
    if found == 0 {
        // SAFETY: the caller's promise.
        unsafe { Cq::of(cq) }
            .holder
            .store(cq::this_thread(), Ordering::Relaxed);
    } else {
        // SAFETY: locked above, and there is no end without a completion.
        unsafe { lock.force_unlock() };
    }
    found
}

unsafe extern "C" fn next(cq: *mut abi::CqEx) -> c_int {
    // SAFETY: the caller has started.
    unsafe { advance(cq) }
}

unsafe extern "C" fn end(cq: *mut abi::CqEx) {
    // SAFETY: the caller has started, and found something.
    unsafe {
        let cq = Cq::of(cq);
        cq.holder.store(0, Ordering::Relaxed);
        cq.poller.force_unlock();
    }
}

/// The completion that was gone on to last.
///
/// # Safety
/// The caller has the queue's lock.
unsafe fn current(cq: *mut abi::CqEx) -> verbs::Wc {
    // SAFETY: the caller's promise.
    unsafe { (*Cq::of(cq).poller.as_mut_ptr()).last() }
}

unsafe extern "C" fn opcode(cq: *mut abi::CqEx) -> c_int {
    // SAFETY: as the caller of `ibv_wc_read_*` promises, here and below.
    cq::opcode(unsafe { current(cq) }.opcode)
}

unsafe extern "C" fn vendor_err(cq: *mut abi::CqEx) -> u32 {
    // SAFETY: as above.
    unsafe { current(cq) }.vendor_err.0
}

unsafe extern "C" fn wc_flags(cq: *mut abi::CqEx) -> u32 {
    // SAFETY: as above.
    cq::flags(unsafe { current(cq) }.flags)
}

unsafe extern "C" fn byte_len(cq: *mut abi::CqEx) -> u32 {
    // SAFETY: as above.
    unsafe { current(cq) }.byte_len
}

unsafe extern "C" fn imm_data(cq: *mut abi::CqEx) -> u32 {
    // SAFETY: as above.
    unsafe { current(cq) }.imm.to_be()
}

unsafe extern "C" fn qp_num(cq: *mut abi::CqEx) -> u32 {
    // SAFETY: as above.
    unsafe { current(cq) }.qpn.0
}

unsafe extern "C" fn src_qp(cq: *mut abi::CqEx) -> u32 {
    // SAFETY: as above.
    unsafe { current(cq) }.src_qpn.0
}

/// What Ethernet has not.
unsafe extern "C" fn no_number(_cq: *mut abi::CqEx) -> u32 {
    0
}

unsafe extern "C" fn no_level(_cq: *mut abi::CqEx) -> u8 {
    0
}
