//! Posting by `ibv_wr_*`: requests are composed one call after the other between `ibv_wr_start`, which takes the send queue's
//! lock, and `ibv_wr_complete`, which posts them and gives it back.

use std::ffi::{c_int, c_void};

use verbs::nic::SendHalf;
use verbs::{Dest, Op, PostReason, RemoteAddr, Rkey, SendBatch, Sge, Transport};

use crate::abi;
use crate::abi::errno::errno_of_post;
use crate::check;
use crate::context::fork;
use crate::memory::window;
use crate::queues::post::{dest, imm, send_flags};
use crate::queues::qp::Qp;

/// Requests of a list that are composed before they are posted.
const LIST: u32 = 256;

/// A send queue, and what is composed for it.
pub(crate) struct Sender {
    half: Box<dyn SendHalf>,
    pub(crate) batch: SendBatch,
    /// What `ibv_wr_*` have begun.
    begun: Option<Begun>,
    /// What a datagram is about whose address comes after that.
    early: Early,
    /// The first thing that was wrong since `ibv_wr_start`.
    wrong: Option<PostReason>,
    /// Requests that the queue has room for at least.
    room: u32,
}

/// The bytes of a datagram that were told before its address, which is unusual.
#[derive(Default)]
enum Early {
    #[default]
    Nothing,
    Elements(Vec<Sge>),
    Bytes(Vec<u8>),
}

/// A request of which nobody has said yet what bytes it is about.
struct Begun {
    op: Op,
    to: Option<Dest>,
    id: u64,
    flags: u32,
}

impl Sender {
    /// One that `ibv_wr_*` compose for has room for all that the queue has, as nothing is posted before `ibv_wr_complete`.
    pub(crate) fn new(half: Box<dyn SendHalf>, send_wr_max: u32, is_extended: bool) -> Self {
        let most = if is_extended { u32::MAX } else { LIST };
        let capacity = send_wr_max.clamp(1, most) as usize;
        let batch = SendBatch::new(half.limits(), capacity);
        Sender {
            half,
            batch,
            begun: None,
            early: Early::Nothing,
            wrong: None,
            room: 0,
        }
    }

    /// What lists are posted with.
    pub(crate) fn parts(&mut self) -> (&mut dyn SendHalf, &mut SendBatch) {
        self.room = 0;
        (&mut *self.half, &mut self.batch)
    }

    /// Whether a post would find room for some of the requests and not for all.
    fn has_no_room(&mut self) -> bool {
        let wanted = self.batch.len() as u32;
        if wanted > 1 && self.room < wanted {
            self.room = self.half.room();
        }
        let has_room = wanted <= self.room.max(1);
        self.room = self.room.saturating_sub(wanted);
        !has_room
    }

    /// Posts what is composed, for all of which there is room.
    fn post(&mut self) -> Result<(), PostReason> {
        let posted = self.half.post(&self.batch);
        posted.map_err(|error| error.reason)
    }

    fn note(&mut self, done: Result<(), PostReason>) {
        if let Err(reason) = done {
            self.wrong.get_or_insert(reason);
        }
    }

    /// Whether a datagram was begun of which nobody has said yet where it goes.
    fn waits_for_address(&self) -> bool {
        let is_datagram = self.batch.limits().transport == Transport::Ud;
        is_datagram && self.begun.as_ref().is_some_and(|begun| begun.to.is_none())
    }

    /// Ends the request that was begun, with these elements.
    fn gather(&mut self, sges: &[Sge]) {
        if self.waits_for_address() && !sges.is_empty() {
            self.early = Early::Elements(sges.to_vec());
            return;
        }
        let Some(Begun { op, to, id, flags }) = self.begun.take() else {
            return self.note(Err(PostReason::Payload));
        };
        let done = self.batch.gather(op, to, sges).map(|draft| {
            draft.id(id).flags(send_flags(flags)).commit_gathered();
        });
        self.note(done);
    }

    /// Ends it with these bytes.
    fn inline<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]> + Clone) {
        if self.waits_for_address() {
            self.early = Early::Bytes(parts.flatten().copied().collect());
            return;
        }
        let Some(Begun { op, to, id, flags }) = self.begun.take() else {
            return self.note(Err(PostReason::Payload));
        };
        let len = parts.clone().map(<[u8]>::len).sum();
        let pushed = self.batch.push_inline(op, to, len, (id, send_flags(flags)));
        let done = pushed.map(|mut room| {
            for part in parts {
                let (now, rest) = room.split_at_mut(part.len());
                now.copy_from_slice(part);
                room = rest;
            }
        });
        self.note(done);
    }

    /// Says where the datagram goes that was begun, and ends it if its bytes are known.
    fn address(&mut self, to: Option<Dest>) {
        let Some(begun) = &mut self.begun else {
            return self.note(Err(PostReason::Address));
        };
        begun.to = to;
        match std::mem::take(&mut self.early) {
            Early::Nothing => {}
            Early::Elements(sges) => self.gather(&sges),
            Early::Bytes(bytes) => self.inline(std::iter::once(&bytes[..])),
        }
    }

    /// Ends the one that was begun without a word on its bytes: it has none.
    fn end(&mut self) {
        if !matches!(self.early, Early::Nothing) {
            self.early = Early::Nothing;
            self.note(Err(PostReason::Address));
        }
        if self.begun.is_some() {
            self.gather(&[]);
        }
    }

    fn begin(&mut self, op: Op, id: u64, flags: u32) {
        self.end();
        self.begun = Some(Begun {
            op,
            to: None,
            id,
            flags,
        });
    }
}

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
    sender.batch.clear();
    (sender.begun, sender.wrong) = (None, None);
    sender.early = Early::Nothing;
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
    sender.end();
    // What the NIC refuses, it is seen to refuse; for anything else none of them are posted.
    let (done, is_told) = if let Some(reason) = sender.wrong {
        (Err(reason), false)
    } else if sender.has_no_room() {
        (Err(PostReason::QueueFull), false)
    } else {
        (sender.post(), true)
    };
    // SAFETY: the caller's promise.
    let ours = unsafe { Qp::of(qp.cast()) };
    if let (Err(reason), Some(state)) = (done, &ours.opened().check)
        && !is_told
    {
        let ids = sender.batch.wqes().iter().map(verbs::batch::Wqe::id);
        check::refused(state, ours.num(), ids, Some(reason));
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
    unsafe { sender(qp).gather(crate::queues::post::elements(list, count as c_int)) };
}
