//! Shared receive queues.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use spin::mutex::SpinMutex;
use spin::relax::Yield;
use verbs::nic::NicSrq;
use verbs::{RecvBatch, SrqInit, SrqNum};

use crate::abi;
use crate::device::Opened;
use crate::errno::{errno_of, pointer};
use crate::memory::Pd;
use crate::post::post_recvs;

/// A program's shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    c: abi::Srq,
    pub(crate) num: SrqNum,
    attr: abi::SrqAttr,
    queue: SpinMutex<(Box<dyn NicSrq>, RecvBatch), Yield>,
    /// Queue pairs that receive from it.
    users: AtomicU32,
}

impl Srq {
    /// # Safety
    /// `srq` is one of ours that is not destroyed meanwhile.
    pub(crate) unsafe fn of<'a>(srq: *mut abi::Srq) -> &'a Srq {
        // SAFETY: ours begin with what the program holds.
        unsafe { &*srq.cast::<Srq>() }
    }

    pub(crate) fn add_user(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn drop_user(&self) {
        self.users.fetch_sub(1, Ordering::Release);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_srq(
    pd: *mut abi::Pd,
    init: *mut abi::SrqInitAttr,
) -> *mut abi::Srq {
    // SAFETY: the caller's promise.
    let (domain, asked) = unsafe { (Pd::of(pd), &mut *init) };
    let attr = asked.attr;
    let wanted = SrqInit::new(domain.num, attr.max_wr, attr.max_sge);
    let made = domain.opened().checked().and_then(|opened| {
        let made = opened.nic.create_srq(&wanted);
        made.map_err(|error| errno_of(&error))
    });
    pointer(made.map(|queue| {
        // SAFETY: numbers and pointers, for which zero says that there is none.
        let mut c: abi::Srq = unsafe { std::mem::zeroed() };
        c.context = domain.opened().context();
        c.srq_context = asked.srq_context;
        c.pd = pd;
        c.handle = queue.num().0;
        c.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
        c.cond = libc::PTHREAD_COND_INITIALIZER;
        let srq = Srq {
            c,
            num: queue.num(),
            attr,
            queue: SpinMutex::new((queue, RecvBatch::default())),
            users: AtomicU32::new(0),
        };
        Box::into_raw(Box::new(srq)).cast()
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(srq: *mut abi::Srq, attr: *mut abi::SrqAttr) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { attr.write(Srq::of(srq).attr) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_srq(srq: *mut abi::Srq) -> c_int {
    // SAFETY: a context outlives what was made from it.
    if unsafe { Opened::of((*srq).context) }.is_inherited() {
        return 0;
    }
    // SAFETY: the caller's promise.
    if unsafe { Srq::of(srq) }.users.load(Ordering::Acquire) > 0 {
        return libc::EBUSY;
    }
    // SAFETY: made by `ibv_create_srq`, and of no more use to anybody.
    drop(unsafe { Box::from_raw(srq.cast::<Srq>()) });
    0
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut abi::Srq,
    list: *mut abi::RecvWr,
    bad: *mut *mut abi::RecvWr,
) -> c_int {
    // SAFETY: the caller's promise.
    let mut queue = unsafe { Srq::of(srq) }.queue.lock();
    let (queue, batch) = &mut *queue;
    // SAFETY: as above.
    unsafe { post_recvs(batch, list, bad, |batch| queue.post(batch)) }
}
