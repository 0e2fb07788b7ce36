//! Queue pairs: making, changing, asking, destroying.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use spin::mutex::SpinMutex;
use spin::relax::Yield;
use verbs::nic::{QpCtl, RecvHalf};
use verbs::{Gid, QpInit, QpNum, RecvBatch};

use super::attributes::{caps, granted, qp_attr, qp_attr_back, state, state_number, transport};
use super::cq::Cq;
use super::sender::Sender;
use super::srq::Srq;
use crate::abi;
use crate::abi::errno::{Errno, code, errno_of, pointer};
use crate::abi::theirs::Theirs;
use crate::check;
use crate::context::events::wait;
use crate::context::opened::Opened;
use crate::memory::domain::{DomainUse, Pd};

/// A program's queue pair.
#[repr(C)]
pub(crate) struct Qp {
    c: Theirs<abi::QpEx>,
    ctl: Arc<dyn QpCtl>,
    pub(crate) send: SpinMutex<Sender, Yield>,
    pub(crate) recv: SpinMutex<(Box<dyn RecvHalf>, RecvBatch), Yield>,
    /// Every request makes a completion.
    signals_all: AtomicI32,
    /// Events that the program was told of.
    reported: AtomicU32,
    /// Whether the program may use `ibv_wr_*` on it.
    pub(super) is_extended: bool,
    _domain: DomainUse,
}

/// The fields of a `struct ibv_qp` that nobody changes.
struct Made {
    context: *mut abi::Context,
    qp_context: *mut c_void,
    send_cq: *mut abi::CqEx,
    recv_cq: *mut abi::CqEx,
    srq: *mut abi::Srq,
    qp_type: c_int,
}

impl Qp {
    /// # Safety
    /// `qp` is one of ours that is not destroyed meanwhile.
    pub(crate) unsafe fn of<'a>(qp: *mut abi::Qp) -> &'a Qp {
        // SAFETY: ours begin with what the program holds.
        unsafe { &*qp.cast::<Qp>() }
    }

    /// What it was made with.
    fn base(&self) -> Made {
        // SAFETY: what is read stays as it was made.
        unsafe {
            let base = &raw const (*self.c.at()).qp_base;
            Made {
                context: (*base).context,
                qp_context: (*base).qp_context,
                send_cq: (*base).send_cq,
                recv_cq: (*base).recv_cq,
                srq: (*base).srq,
                qp_type: (*base).qp_type,
            }
        }
    }

    /// Whether checks know that it was destroyed, which they tell of `call`.
    ///
    /// # Safety
    /// `qp` is or was one of ours.
    #[inline]
    pub(crate) unsafe fn is_gone(qp: *mut abi::Qp, call: &str) -> bool {
        // SAFETY: the caller's promise; with checks the memory stays.
        check::is_on() && unsafe { (*qp).handle } == check::GONE && check::is_gone(qp.addr(), call)
    }

    pub(crate) fn num(&self) -> QpNum {
        self.ctl.num()
    }

    pub(crate) fn has_srq(&self) -> bool {
        !self.base().srq.is_null()
    }

    /// Notes that the program is told of an event.
    pub(crate) fn report(&self) {
        self.reported.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn opened(&self) -> &Opened {
        // SAFETY: a context outlives what was made from it.
        unsafe { Opened::of(self.base().context) }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(pd: *mut abi::Pd, init: *mut abi::QpInitAttr) -> *mut abi::Qp {
    // SAFETY: the caller's promise.
    pointer(unsafe { create(pd, &mut *init, None, false) })
}

/// Puts the functions into a queue pair's structure that it has besides.
pub(super) type Offer = fn(&mut abi::QpEx);

/// # Safety
/// As libibverbs' callers promise.
pub(super) unsafe fn create(
    pd: *mut abi::Pd,
    asked: &mut abi::QpInitAttr,
    extended: Option<Offer>,
    blocks_own_multicast: bool,
) -> Result<*mut abi::Qp, Errno> {
    if asked.send_cq.is_null() || asked.recv_cq.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let (domain, send_cq, recv_cq) =
        unsafe { (Pd::of(pd), Cq::of(asked.send_cq), Cq::of(asked.recv_cq)) };
    // SAFETY: as above.
    let srq = (!asked.srq.is_null()).then(|| unsafe { Srq::of(asked.srq) });
    let transport = transport(asked.qp_type)?;
    let mut init = QpInit::new(domain.num, transport, send_cq.num, recv_cq.num);
    init.caps = caps(&asked.cap);
    // What nobody has asked for is not to ask too much of a small device.
    let most = domain.opened().nic.device().inline_max;
    let most = most.max(asked.cap.max_inline_data);
    init.caps.inline_max = init.caps.inline_max.min(most);
    init.srq = srq.map(|srq| srq.num);
    init.signal_all = asked.sq_sig_all != 0;
    init.blocks_own_multicast = blocks_own_multicast;
    let opened = domain.opened().checked()?;
    let parts = opened
        .nic
        .create_qp(&init)
        .map_err(|error| errno_of(&error))?;
    let caps = parts.ctl.caps();
    asked.cap = granted(&caps);
    let num = parts.num();
    // SAFETY: numbers, pointers and functions, for which zero says that there is none.
    let mut c: abi::QpEx = unsafe { std::mem::zeroed() };
    c.qp_base = abi::Qp {
        context: opened.context(),
        qp_context: asked.qp_context,
        pd,
        send_cq: asked.send_cq,
        recv_cq: asked.recv_cq,
        srq: asked.srq,
        handle: num.0,
        qp_num: num.0,
        state: 0,
        qp_type: asked.qp_type,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    if let Some(offer) = extended {
        offer(&mut c);
    }
    send_cq.add_user();
    recv_cq.add_user();
    if let Some(srq) = srq {
        srq.add_user();
    }
    let recv_wr_max = if srq.is_some() { 0 } else { caps.recv_wr_max };
    let qp = Box::into_raw(Box::new(Qp {
        c: Theirs::new(c),
        ctl: parts.ctl,
        send: SpinMutex::new(Sender::new(
            parts.send,
            caps.send_wr_max,
            extended.is_some(),
        )),
        recv: SpinMutex::new((
            parts.recv,
            RecvBatch::with_capacity((recv_wr_max as usize).min(64), caps.recv_sge_max as usize),
        )),
        signals_all: AtomicI32::new(asked.sq_sig_all),
        reported: AtomicU32::new(0),
        is_extended: extended.is_some(),
        // SAFETY: the caller's promise.
        _domain: unsafe { DomainUse::begin(pd) },
    }));
    opened.objects().qps.insert(num.0, qp.cast());
    Ok(qp.cast())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut abi::Qp, attr: *mut abi::QpAttr, mask: c_int) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { Qp::is_gone(qp, "ibv_modify_qp") } {
        return code(Err(libc::EINVAL));
    }
    // SAFETY: the caller's promise.
    let (ours, asked) = unsafe { (Qp::of(qp), &*attr) };
    let changed = change(ours, asked, mask);
    if changed.is_ok() && mask & abi::qp_attr::STATE != 0 {
        // SAFETY: as a program reads it that has changed it.
        unsafe { (*qp).state = asked.qp_state };
    }
    code(changed)
}

fn change(qp: &Qp, asked: &abi::QpAttr, mask: c_int) -> Result<(), Errno> {
    qp.opened().checked()?;
    let attr = qp_attr(asked, mask)?;
    if mask & abi::qp_attr::CUR_STATE != 0
        && qp.ctl.query().state != Some(state(asked.cur_qp_state)?)
    {
        return Err(libc::EINVAL);
    }
    qp.ctl.modify(&attr).map_err(|error| errno_of(&error))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    qp: *mut abi::Qp,
    attr: *mut abi::QpAttr,
    _mask: c_int,
    init: *mut abi::QpInitAttr,
) -> c_int {
    // SAFETY: the caller's promise.
    let ours = unsafe { Qp::of(qp) };
    if let Err(errno) = ours.opened().checked() {
        return code(Err(errno));
    }
    let (known, caps) = (ours.ctl.query(), ours.ctl.caps());
    let base = ours.base();
    // SAFETY: as above.
    unsafe {
        attr.write(qp_attr_back(&known, &caps));
        init.write(abi::QpInitAttr {
            qp_context: base.qp_context,
            send_cq: base.send_cq,
            recv_cq: base.recv_cq,
            srq: base.srq,
            cap: granted(&caps),
            qp_type: base.qp_type,
            sq_sig_all: ours.signals_all.load(Ordering::Relaxed),
        });
        (*qp).state = known.state.map_or(abi::QPS_UNKNOWN, state_number);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(qp: *mut abi::Qp) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { Qp::is_gone(qp, "ibv_destroy_qp") } {
        return code(Err(libc::EINVAL));
    }
    // SAFETY: the caller's promise.
    let ours = unsafe { Qp::of(qp) };
    if ours.opened().is_inherited() {
        return 0;
    }
    if let Some(state) = &ours.opened().check {
        let is_posting = ours.send.try_lock().is_none() || ours.recv.try_lock().is_none();
        check::destroy_qp(state, qp.addr(), ours.num().0, is_posting);
    }
    ours.opened().objects().qps.remove(&ours.num().0);
    let base = ours.base();
    // SAFETY: as who acknowledges, for whom this waits.
    unsafe {
        let (mutex, cond) = (&raw mut (*qp).mutex, &raw mut (*qp).cond);
        wait(
            mutex,
            cond,
            &raw const (*qp).events_completed,
            &(*qp.cast::<Qp>()).reported,
        );
    }
    // SAFETY: made by `create`, and of no more use to anybody.
    unsafe {
        (*qp).handle = check::GONE;
        check::give_back(qp.cast::<Qp>());
    }
    // SAFETY: they are not destroyed while they have queue pairs.
    unsafe {
        Cq::of(base.send_cq).drop_user();
        Cq::of(base.recv_cq).drop_user();
        if !base.srq.is_null() {
            Srq::of(base.srq).drop_user();
        }
    }
    0
}

/// The group that `ibv_attach_mcast` names. Its local identifier says nothing on Ethernet.
///
/// # Safety
/// As libibverbs' callers promise.
unsafe fn group(gid: *const [u8; 16]) -> Gid {
    // SAFETY: the caller's promise; a GID may lie anywhere.
    Gid(unsafe { gid.read_unaligned() })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_attach_mcast(qp: *mut abi::Qp, gid: *const [u8; 16], _lid: u16) -> c_int {
    // SAFETY: the caller's promise.
    let (ours, group) = unsafe { (Qp::of(qp), group(gid)) };
    let attached = ours.opened().checked().and_then(|_| {
        let attached = ours.ctl.attach_mcast(group);
        attached.map_err(|error| errno_of(&error))
    });
    code(attached)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_detach_mcast(qp: *mut abi::Qp, gid: *const [u8; 16], _lid: u16) -> c_int {
    // SAFETY: the caller's promise.
    let (ours, group) = unsafe { (Qp::of(qp), group(gid)) };
    // A child's parent is in its groups still.
    if ours.opened().is_inherited() {
        return 0;
    }
    let detached = ours.ctl.detach_mcast(group);
    code(detached.map_err(|error| errno_of(&error)))
}
