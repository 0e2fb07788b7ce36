//! Shared receive queues.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use spin::mutex::SpinMutex;
use spin::relax::Yield;
use verbs::nic::NicSrq;
use verbs::{RecvBatch, SrqInit, SrqNum};

use super::request::post_recvs;
use crate::abi;
use crate::abi::errno::{code, errno_of, pointer};
use crate::abi::theirs::Theirs;
use crate::check;
use crate::context::events::wait;
use crate::context::opened::Opened;
use crate::memory::domain::{DomainUse, Pd};

/// A program's shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    c: Theirs<abi::Srq>,
    pub(crate) num: SrqNum,
    attr: abi::SrqAttr,
    queue: SpinMutex<(Box<dyn NicSrq>, RecvBatch), Yield>,
    /// Queue pairs that receive from it.
    users: AtomicU32,
    /// Events that the program was told of.
    reported: AtomicU32,
    _domain: DomainUse,
}

impl Srq {
    /// # Safety
    /// `srq` is one of ours that is not destroyed meanwhile.
    pub(crate) unsafe fn of<'a>(srq: *mut abi::Srq) -> &'a Srq {
        // SAFETY: ours begin with what the program holds.
        unsafe { &*srq.cast::<Srq>() }
    }

    /// Notes that the program is told of an event.
    pub(crate) fn report(&self) {
        self.reported.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether checks know that it was destroyed, which they tell of `call`.
    ///
    /// # Safety
    /// `srq` is or was one of ours.
    unsafe fn is_gone(srq: *mut abi::Srq, call: &str) -> bool {
        // SAFETY: the caller's promise; with checks the memory stays.
        check::is_on()
            && unsafe { (*srq).handle } == check::GONE
            && check::is_gone(srq.addr(), call)
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
    if attr.max_wr == 0 {
        return pointer(Err(libc::EINVAL));
    }
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
            c: Theirs::new(c),
            num: queue.num(),
            attr,
            queue: SpinMutex::new((queue, RecvBatch::default())),
            users: AtomicU32::new(0),
            reported: AtomicU32::new(0),
            // SAFETY: the caller's promise.
            _domain: unsafe { DomainUse::begin(pd) },
        };
        let (num, srq) = (srq.num, Box::into_raw(Box::new(srq)));
        domain.opened().objects().srqs.insert(num.0, srq.cast());
        srq.cast()
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(srq: *mut abi::Srq, attr: *mut abi::SrqAttr) -> c_int {
    // SAFETY: the caller's promise.
    let ours = unsafe { Srq::of(srq) };
    // In a child, whoever had the lock when it was forked has it for ever.
    // SAFETY: a context outlives what was made from it.
    if let Err(errno) = unsafe { Opened::of((*ours.c.at()).context) }.checked() {
        return code(Err(errno));
    }
    let srq_limit = ours.queue.lock().0.limit();
    let known = abi::SrqAttr {
        srq_limit,
        ..ours.attr
    };
    // SAFETY: the caller's.
    unsafe { attr.write(known) };
    0
}

/// Arms the limit. Queues keep their size, as the device's attributes say.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(
    srq: *mut abi::Srq,
    attr: *mut abi::SrqAttr,
    mask: c_int,
) -> c_int {
    if mask & !(abi::SRQ_MAX_WR | abi::SRQ_LIMIT) != 0 {
        return code(Err(libc::EINVAL));
    }
    if mask & abi::SRQ_MAX_WR != 0 {
        return code(Err(libc::EOPNOTSUPP));
    }
    if mask & abi::SRQ_LIMIT == 0 {
        return 0;
    }
    // SAFETY: the caller's promise; a context outlives what was made from it.
    let (ours, opened) = unsafe { (Srq::of(srq), Opened::of((*srq).context)) };
    if let Err(errno) = opened.checked() {
        return code(Err(errno));
    }
    // SAFETY: the caller's promise.
    let limit = unsafe { (*attr).srq_limit };
    let armed = ours.queue.lock().0.arm_limit(limit);
    code(armed.map_err(|error| errno_of(&error)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_srq(srq: *mut abi::Srq) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { Srq::is_gone(srq, "ibv_destroy_srq") } {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    let ours = unsafe { Srq::of(srq) };
    // SAFETY: a context outlives what was made from it.
    let opened = unsafe { Opened::of((*ours.c.at()).context) };
    if opened.is_inherited() {
        return 0;
    }
    if ours.users.load(Ordering::Acquire) > 0 {
        if let Some(state) = &opened.check {
            check::busy(state, "ibv_destroy_srq");
        }
        return libc::EBUSY;
    }
    if let Some(state) = &opened.check {
        check::destroy_srq(state, srq.addr(), ours.num.0);
    }
    opened.objects().srqs.remove(&ours.num.0);
    // SAFETY: as who acknowledges, for whom this waits.
    unsafe {
        let (mutex, cond) = (&raw mut (*srq).mutex, &raw mut (*srq).cond);
        wait(
            mutex,
            cond,
            &raw const (*srq).events_completed,
            &ours.reported,
        );
    }
    // SAFETY: made by `ibv_create_srq`, and of no more use to anybody.
    unsafe {
        (*srq).handle = check::GONE;
        check::give_back(srq.cast::<Srq>());
    }
    0
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut abi::Srq,
    list: *mut abi::RecvWr,
    bad: *mut *mut abi::RecvWr,
) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { Srq::is_gone(srq, "ibv_post_srq_recv") } {
        // SAFETY: the caller's.
        unsafe { bad.write(list) };
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    let mut queue = unsafe { Srq::of(srq) }.queue.lock();
    let (queue, batch) = &mut *queue;
    // SAFETY: as above.
    unsafe { post_recvs(batch, list, bad, |batch| queue.post(batch)) }
}
