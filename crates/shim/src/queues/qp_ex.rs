//! Queue pairs that are made by `ibv_create_qp_ex`.

use super::compose;
use super::qp::{Offer, Qp, create};
use crate::abi;
use crate::abi::errno::pointer;

/// `ibv_create_qp_ex`, of which a `struct ibv_qp_init_attr` is the beginning.
pub(crate) unsafe extern "C" fn create_qp_ex(
    _context: *mut abi::Context,
    init: *mut abi::QpInitAttrEx,
) -> *mut abi::Qp {
    let known =
        abi::QP_INIT_ATTR_PD | abi::QP_INIT_ATTR_CREATE_FLAGS | abi::QP_INIT_ATTR_SEND_OPS_FLAGS;
    // SAFETY: the caller's promise.
    let asked = unsafe { &mut *init };
    if asked.comp_mask & !known != 0 {
        return pointer(Err(libc::EOPNOTSUPP));
    }
    if asked.comp_mask & abi::QP_INIT_ATTR_PD == 0 {
        return pointer(Err(libc::EINVAL));
    }
    let has_ops = asked.comp_mask & abi::QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    if has_ops && asked.send_ops_flags & !abi::SEND_OPS_KNOWN != 0 {
        return pointer(Err(libc::EOPNOTSUPP));
    }
    let flags = match asked.comp_mask & abi::QP_INIT_ATTR_CREATE_FLAGS {
        0 => 0,
        _ => asked.create_flags,
    };
    if flags & !abi::QP_CREATE_BLOCK_SELF_MCAST_LB != 0 {
        return pointer(Err(libc::EOPNOTSUPP));
    }
    // Only datagrams go to groups.
    if flags != 0 && asked.qp_type != abi::QPT_UD {
        return pointer(Err(libc::EINVAL));
    }
    // SAFETY: the caller's promise; the one structure begins with the other.
    pointer(unsafe {
        let base = &mut *init.cast::<abi::QpInitAttr>();
        let offer = has_ops.then_some(compose::offer as Offer);
        create(asked.pd, base, offer, flags != 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut abi::Qp) -> *mut abi::QpEx {
    // SAFETY: the caller's promise.
    match unsafe { Qp::of(qp) }.is_extended {
        true => qp.cast(),
        false => std::ptr::null_mut(),
    }
}
