//! Posting by `ibv_wr_*`: requests are composed one call after the other between `ibv_wr_start`, which takes the send queue's
//! lock, and `ibv_wr_complete`, which posts them and gives it back.

use std::ffi::{c_int, c_void};

use verbs::{Op, PostReason, RemoteAddr, Rkey};

use super::qp::Qp;
use super::request::{dest, elements, imm};
use super::sender::Sender;
use crate::abi;
use crate::abi::errno::errno_of_post;
use crate::check;
use crate::context::fork;
use crate::memory::window;

/// Lets a program use `ibv_wr_*` on a queue pair.
pub(crate) fn offer(qp: &mut abi::QpEx) {
    qp.wr_atomic_cmp_swp = Some(atomic_cmp_swp);
    qp.wr_atomic_fetch_add = Some(atomic_fetch_add);
    qp.wr_rdma_read = Some(rdma_read);
    qp.wr_rdma_write = Some(rdma_write);
    qp.wr_rdma_write_imm = Some(rdma_write_imm);
    qp.wr_bind_mw = Some(bind_mw);
    qp.wr_local_inv = Some(local_inv);
    qp.wr_send_inv = Some(send_inv);
    qp.wr_send = Some(send);
    qp.wr_send_imm = Some(send_imm);
    qp.wr_set_ud_addr = Some(set_ud_addr);
    qp.wr_set_inline_data = Some(set_inline_data);
    qp.wr_set_inline_data_list = Some(set_inline_data_list);
    qp.wr_set_sge = Some(set_sge);
    qp.wr_set_sge_list = Some(set_sge_list);
    qp.wr_start = Some(start);
    qp.wr_complete = Some(complete);
    qp.wr_abort = Some(abort);
}

/// Has `ibv_wr_*` fail on a queue pair.
fn bury(qp: &mut abi::QpEx) {
    unsafe extern "C" fn fail(_qp: *mut abi::QpEx) -> c_int {
        libc::EIO
    }
    unsafe extern "C" fn nothing(_qp: *mut abi::QpEx) {}
    unsafe extern "C" fn no_atomic_add(_: *mut abi::QpEx, _: u32, _: u64, _: u64) {}
    unsafe extern "C" fn no_atomic_swap(_: *mut abi::QpEx, _: u32, _: u64, _: u64, _: u64) {}
    unsafe extern "C" fn no_rdma(_: *mut abi::QpEx, _: u32, _: u64) {}
    unsafe extern "C" fn no_rdma_imm(_: *mut abi::QpEx, _: u32, _: u64, _: u32) {}
    unsafe extern "C" fn no_imm(_: *mut abi::QpEx, _: u32) {}
    unsafe extern "C" fn no_window(
        _: *mut abi::QpEx,
        _: *mut abi::Mw,
        _: u32,
        _: *const abi::MwBindInfo,
    ) {
    }
    unsafe extern "C" fn no_addr(_: *mut abi::QpEx, _: *mut abi::Ah, _: u32, _: u32) {}
    unsafe extern "C" fn no_inline(_: *mut abi::QpEx, _: *mut c_void, _: usize) {}
    unsafe extern "C" fn no_bytes(_: *mut abi::QpEx, _: usize, _: *const abi::DataBuf) {}
    unsafe extern "C" fn no_sge(_: *mut abi::QpEx, _: u32, _: u64, _: u32) {}
    unsafe extern "C" fn no_sges(_: *mut abi::QpEx, _: usize, _: *const abi::Sge) {}
    qp.wr_atomic_cmp_swp = Some(no_atomic_swap);
    qp.wr_atomic_fetch_add = Some(no_atomic_add);
    qp.wr_rdma_read = Some(no_rdma);
    qp.wr_rdma_write = Some(no_rdma);
    qp.wr_rdma_write_imm = Some(no_rdma_imm);
    qp.wr_send = Some(nothing);
    qp.wr_send_imm = Some(no_imm);
    qp.wr_send_inv = Some(no_imm);
    qp.wr_local_inv = Some(no_imm);
    qp.wr_bind_mw = Some(no_window);
    qp.wr_set_ud_addr = Some(no_addr);
    qp.wr_set_inline_data = Some(no_inline);
    qp.wr_set_inline_data_list = Some(no_bytes);
    qp.wr_set_sge = Some(no_sge);
    qp.wr_set_sge_list = Some(no_sges);
    qp.wr_start = Some(nothing);
    qp.wr_complete = Some(fail);
    qp.wr_abort = Some(nothing);
}

/// The sender of a queue pair between `ibv_wr_start` and its end.
///
/// # Safety
/// This thread has called `ibv_wr_start`, and so has the lock.
unsafe fn sender<'a>(qp: *mut abi::QpEx) -> &'a mut Sender {
    // SAFETY: the caller's promise.
    unsafe { &mut *Qp::of(qp.cast()).send.as_mut_ptr() }
}

/// # Safety
/// As [`sender`].
unsafe fn begin(qp: *mut abi::QpEx, op: Op) {
    // SAFETY: the caller's promise.
    unsafe { sender(qp).begin(op, (*qp).wr_id, (*qp).wr_flags) };
}

fn at(rkey: u32, addr: u64) -> RemoteAddr {
    let rkey = Rkey(rkey);
    RemoteAddr { addr, rkey }
}

unsafe extern "C" fn start(qp: *mut abi::QpEx) {
    // SAFETY: the caller's promise.
    if unsafe { Qp::is_gone(qp.cast(), "ibv_wr_start") } {
        // What comes next would use memory that was given back. Nobody is told by a result.
        std::process::abort();
    }
    // SAFETY: the caller's promise.
    let ours = unsafe { Qp::of(qp.cast()) };
    if ours.opened().is_inherited() {
        fork::tell();
        // Whoever had the lock when this process was forked has it for ever.
        // SAFETY: as above.
        unsafe { bury(&mut *qp) };
        return;
    }
    let mut sender = ours.send.lock();
    sender.restart();
    // It is given back by `complete` or `abort`.
    std::mem::forget(sender);
}

unsafe extern "C" fn complete(qp: *mut abi::QpEx) -> c_int {
    // A child may be forked between `start` and this.
    // SAFETY: the caller's promise.
    if unsafe { Qp::of(qp.cast()) }.opened().is_inherited() {
        fork::tell();
        return libc::EIO;
    }
    // SAFETY: as `sender` says.
    let sender = unsafe { sender(qp) };
    let (done, is_told) = sender.complete();
    // SAFETY: the caller's promise.
    let ours = unsafe { Qp::of(qp.cast()) };
    if let (Err(reason), Some(state)) = (done, &ours.opened().check)
        && !is_told
    {
        check::refused(state, ours.num(), sender.ids(), Some(reason));
    }
    // SAFETY: this thread has it.
    unsafe { ours.send.force_unlock() };
    match done {
        Err(PostReason::BatchFull) => libc::ENOMEM,
        other => other.map_or_else(errno_of_post, |()| 0),
    }
}

unsafe extern "C" fn abort(qp: *mut abi::QpEx) {
    // SAFETY: the caller's promise.
    if unsafe { Qp::of(qp.cast()) }.opened().is_inherited() {
        return;
    }
    // SAFETY: this thread has it; the next `start` empties the batch.
    unsafe { Qp::of(qp.cast()).send.force_unlock() };
}

unsafe extern "C" fn atomic_cmp_swp(
    qp: *mut abi::QpEx,
    rkey: u32,
    addr: u64,
    expect: u64,
    swap: u64,
) {
    let op = Op::CompareSwap {
        remote: at(rkey, addr),
        expect,
        swap,
    };
    // SAFETY: the caller's promise.
    unsafe { begin(qp, op) };
}

unsafe extern "C" fn atomic_fetch_add(qp: *mut abi::QpEx, rkey: u32, addr: u64, add: u64) {
    let remote = at(rkey, addr);
    // SAFETY: the caller's promise.
    unsafe { begin(qp, Op::FetchAdd { remote, add }) };
}

unsafe extern "C" fn rdma_read(qp: *mut abi::QpEx, rkey: u32, addr: u64) {
    let remote = at(rkey, addr);
    // SAFETY: the caller's promise.
    unsafe { begin(qp, Op::Read { remote }) };
}

unsafe extern "C" fn rdma_write(qp: *mut abi::QpEx, rkey: u32, addr: u64) {
    let (remote, imm) = (at(rkey, addr), None);
    // SAFETY: the caller's promise.
    unsafe { begin(qp, Op::Write { remote, imm }) };
}

unsafe extern "C" fn rdma_write_imm(qp: *mut abi::QpEx, rkey: u32, addr: u64, data: u32) {
    let (remote, imm) = (at(rkey, addr), imm(data));
    // SAFETY: the caller's promise.
    unsafe { begin(qp, Op::Write { remote, imm }) };
}

unsafe extern "C" fn send(qp: *mut abi::QpEx) {
    // SAFETY: the caller's promise.
    unsafe { begin(qp, Op::Send { imm: None }) };
}

unsafe extern "C" fn send_imm(qp: *mut abi::QpEx, data: u32) {
    // SAFETY: the caller's promise.
    unsafe { begin(qp, Op::Send { imm: imm(data) }) };
}

unsafe extern "C" fn send_inv(qp: *mut abi::QpEx, key: u32) {
    let rkey = Rkey(key);
    // SAFETY: the caller's promise.
    unsafe { begin(qp, Op::SendInvalidate { rkey }) };
}

unsafe extern "C" fn local_inv(qp: *mut abi::QpEx, key: u32) {
    let rkey = Rkey(key);
    // SAFETY: the caller's promise.
    unsafe { begin(qp, Op::LocalInvalidate { rkey }) };
}

unsafe extern "C" fn bind_mw(
    qp: *mut abi::QpEx,
    mw: *mut abi::Mw,
    rkey: u32,
    info: *const abi::MwBindInfo,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match window::second(mw, rkey, &*info) {
            Ok(op) => begin(qp, op),
            Err(reason) => {
                sender(qp).end();
                sender(qp).note(Err(reason));
            }
        }
    }
}

unsafe extern "C" fn set_ud_addr(qp: *mut abi::QpEx, ah: *mut abi::Ah, qpn: u32, qkey: u32) {
    // SAFETY: the caller's promise.
    unsafe { sender(qp).address(dest(ah, qpn, qkey)) };
}

unsafe extern "C" fn set_inline_data(qp: *mut abi::QpEx, addr: *mut c_void, length: usize) {
    let part = abi::DataBuf { addr, length };
    // SAFETY: the caller's promise.
    unsafe { set_inline_data_list(qp, 1, &raw const part) };
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut abi::QpEx,
    count: usize,
    list: *const abi::DataBuf,
) {
    // SAFETY: the caller's promise: so many parts, each of so many bytes.
    unsafe {
        let parts = match count {
            0 => &[],
            _ => std::slice::from_raw_parts(list, count),
        };
        let bytes = |part: &'static abi::DataBuf| match part.length {
            0 => &[][..],
            len => std::slice::from_raw_parts(part.addr.cast::<u8>(), len),
        };
        sender(qp).inline(parts.iter().map(bytes));
    }
}

unsafe extern "C" fn set_sge(qp: *mut abi::QpEx, lkey: u32, addr: u64, length: u32) {
    let sge = abi::Sge { addr, length, lkey };
    // SAFETY: the caller's promise.
    unsafe { set_sge_list(qp, 1, &raw const sge) };
}

unsafe extern "C" fn set_sge_list(qp: *mut abi::QpEx, count: usize, list: *const abi::Sge) {
    // SAFETY: the caller's promise.
    unsafe { sender(qp).gather(elements(list, count as c_int)) };
}
