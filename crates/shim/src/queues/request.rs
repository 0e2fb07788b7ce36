//! What work requests consist of, as programs write it and as the NIC takes it.

use std::ffi::c_int;

use verbs::{Dest, Lkey, PostError, Qkey, QpNum, RecvBatch, SendFlags, Sge, UdDest};

use super::address::Ah;
use crate::abi;
use crate::abi::errno::errno_of_post;

const _: () = assert!(
    size_of::<Sge>() == size_of::<abi::Sge>()
        && std::mem::offset_of!(Sge, addr) == std::mem::offset_of!(abi::Sge, addr)
        && std::mem::offset_of!(Sge, len) == std::mem::offset_of!(abi::Sge, length)
        && std::mem::offset_of!(Sge, lkey) == std::mem::offset_of!(abi::Sge, lkey)
        && size_of::<Lkey>() == 4,
    "a program's elements are ours"
);

/// A request's elements.
///
/// # Safety
/// There are so many.
#[inline]
pub(crate) unsafe fn elements<'a>(list: *const abi::Sge, count: c_int) -> &'a [Sge] {
    if list.is_null() || count <= 0 {
        return &[];
    }
    // SAFETY: the caller's promise, and both are laid out the same.
    unsafe { std::slice::from_raw_parts(list.cast::<Sge>(), count as usize) }
}

#[inline]
pub(crate) fn send_flags(flags: u32) -> SendFlags {
    let bit = |bit, flag| {
        if flags & bit != 0 {
            flag
        } else {
            SendFlags::empty()
        }
    };
    bit(abi::SEND_SIGNALED, SendFlags::SIGNALED)
        | bit(abi::SEND_FENCE, SendFlags::FENCE)
        | bit(abi::SEND_SOLICITED, SendFlags::SOLICITED)
}

/// Immediate data is in network byte order where a program has it.
#[inline]
pub(crate) fn imm(data: u32) -> Option<u32> {
    Some(u32::from_be(data))
}

/// # Safety
/// Its address handle is there.
#[inline]
pub(crate) unsafe fn dest(ah: *mut abi::Ah, qpn: u32, qkey: u32) -> Option<Dest> {
    if ah.is_null() {
        return None;
    }
    let to = UdDest {
        // SAFETY: the caller's promise.
        ah: unsafe { Ah::of(ah) }.num,
        qpn: QpNum(qpn),
        qkey: Qkey(qkey),
    };
    Some(to.into())
}

/// Posts a list of RECVs.
///
/// # Safety
/// As libibverbs' callers promise.
pub(crate) unsafe fn post_recvs(
    batch: &mut RecvBatch,
    list: *mut abi::RecvWr,
    bad: *mut *mut abi::RecvWr,
    post: impl FnOnce(&RecvBatch) -> Result<(), PostError>,
) -> c_int {
    batch.clear();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: the caller's list.
        unsafe {
            let wr = &*next;
            batch.push(wr.wr_id, elements(wr.sg_list, wr.num_sge));
            next = wr.next;
        }
    }
    let Err(PostError { index, reason }) = post(batch) else {
        return 0;
    };
    let mut at = list;
    for _ in 0..index {
        // SAFETY: as above.
        at = unsafe { (*at).next };
    }
    // SAFETY: the caller's.
    unsafe { bad.write(at) };
    errno_of_post(reason)
}
