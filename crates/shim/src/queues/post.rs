//! Posting lists of work requests, as `ibv_post_send` and its like do.

use std::ffi::c_int;

use verbs::{Op, PostError, PostReason, RemoteAddr, Rkey, SendBatch};

use super::qp::Qp;
use super::request::{dest, elements, imm, post_recvs, send_flags};
use crate::abi;
use crate::abi::errno::errno_of_post;
use crate::check;
use crate::memory::window;

/// # Safety
/// The request's union is that of its operation.
#[inline]
unsafe fn operation(wr: &abi::SendWr) -> Result<Op, PostReason> {
    // SAFETY: numbers, whichever they are.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let remote = RemoteAddr {
        addr: rdma.remote_addr,
        rkey: Rkey(rdma.rkey),
    };
    let word = RemoteAddr {
        addr: atomic.remote_addr,
        rkey: Rkey(atomic.rkey),
    };
    Ok(match wr.opcode {
        abi::WR_SEND => Op::Send { imm: None },
        abi::WR_SEND_WITH_IMM => Op::Send {
            imm: imm(wr.imm_data),
        },
        abi::WR_RDMA_WRITE => Op::Write { remote, imm: None },
        abi::WR_RDMA_WRITE_WITH_IMM => Op::Write {
            remote,
            imm: imm(wr.imm_data),
        },
        abi::WR_RDMA_READ => Op::Read { remote },
        abi::WR_ATOMIC_CMP_AND_SWP => Op::CompareSwap {
            remote: word,
            expect: atomic.compare_add,
            swap: atomic.swap,
        },
        abi::WR_ATOMIC_FETCH_AND_ADD => Op::FetchAdd {
            remote: word,
            add: atomic.compare_add,
        },
        abi::WR_SEND_WITH_INV => Op::SendInvalidate {
            rkey: Rkey(wr.imm_data),
        },
        abi::WR_LOCAL_INV => Op::LocalInvalidate {
            rkey: Rkey(wr.imm_data),
        },
        // SAFETY: the caller's promise.
        abi::WR_BIND_MW => unsafe {
            let abi::SendBindMw {
                mw,
                rkey,
                bind_info,
            } = wr.bind_mw;
            window::second(mw, rkey, &bind_info)?
        },
        _ => return Err(PostReason::Payload),
    })
}

/// Composes a request.
///
/// # Safety
/// As libibverbs' callers promise.
#[inline]
unsafe fn compose(
    batch: &mut SendBatch,
    is_datagram: bool,
    wr: &abi::SendWr,
) -> Result<(), PostReason> {
    // SAFETY: the caller's promise, here and below.
    unsafe {
        let op = operation(wr)?;
        let ud = wr.wr.ud;
        let to = match is_datagram {
            true => dest(ud.ah, ud.remote_qpn, ud.remote_qkey),
            false => None,
        };
        let sges = elements(wr.sg_list, wr.num_sge);
        let flags = send_flags(wr.send_flags);
        if wr.send_flags & abi::SEND_INLINE == 0 {
            let draft = batch.gather(op, to, sges)?;
            draft.id(wr.wr_id).flags(flags).commit_gathered();
            return Ok(());
        }
        let len = sges.iter().map(|sge| sge.len as usize).sum();
        let room = batch.push_inline(op, to, len, (wr.wr_id, flags))?;
        let mut at = room.as_mut_ptr();
        for sge in sges {
            at.copy_from_nonoverlapping(sge.addr as *const u8, sge.len as usize);
            at = at.add(sge.len as usize);
        }
        Ok(())
    }
}

/// `ibv_post_send`.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut abi::Qp,
    list: *mut abi::SendWr,
    bad: *mut *mut abi::SendWr,
) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { Qp::is_gone(qp, "ibv_post_send") } {
        // SAFETY: the caller's.
        unsafe { bad.write(list) };
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    let ours = unsafe { Qp::of(qp) };
    let mut sender = ours.send.lock();
    let is_datagram = sender.has_dest();
    let (half, batch) = sender.parts();
    // The first request of the batch, and the next one to compose.
    let (mut first, mut next) = (list, list);
    loop {
        batch.clear();
        let mut refused = None;
        while !next.is_null() {
            // SAFETY: the caller's list.
            let wr = unsafe { &*next };
            // SAFETY: as above.
            match unsafe { compose(batch, is_datagram, wr) } {
                Ok(()) => next = wr.next,
                Err(reason) => {
                    refused = Some(reason);
                    break;
                }
            }
        }
        // Those before a bad one are posted, and what the NIC says of them comes first.
        if let Err(PostError { index, reason }) = half.post(batch) {
            for _ in 0..index {
                // SAFETY: as above.
                first = unsafe { (*first).next };
            }
            // SAFETY: the caller's.
            unsafe { bad.write(first) };
            tell_refused(ours, first, None);
            return errno_of_post(reason);
        }
        match refused {
            None => return 0,
            Some(PostReason::BatchFull) => first = next,
            Some(reason) => {
                // SAFETY: the caller's.
                unsafe { bad.write(next) };
                tell_refused(ours, next, Some(reason));
                return errno_of_post(reason);
            }
        }
    }
}

/// Has checks know which requests of a list were not posted; and why, if the NIC has not seen the first of them.
fn tell_refused(qp: &Qp, first: *mut abi::SendWr, reason: Option<PostReason>) {
    if let Some(state) = &qp.opened().check {
        // SAFETY: the caller's list, up to its end.
        let rest =
            std::iter::successors(unsafe { first.as_ref() }, |wr| unsafe { wr.next.as_ref() });
        check::refused(state, qp.num(), rest.map(|wr| wr.wr_id), reason);
    }
}

/// `ibv_post_recv`.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut abi::Qp,
    list: *mut abi::RecvWr,
    bad: *mut *mut abi::RecvWr,
) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { Qp::is_gone(qp, "ibv_post_recv") } {
        // SAFETY: the caller's.
        unsafe { bad.write(list) };
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    let mut recv = unsafe { Qp::of(qp) }.recv.lock();
    let (half, batch) = &mut *recv;
    // SAFETY: as above.
    unsafe { post_recvs(batch, list, bad, |batch| half.post(batch)) }
}
