//! Polling a completion at a time, as `ibv_start_poll`, `ibv_next_poll` and `ibv_end_poll` do: the queue's lock is held from
//! a start that finds something to the end.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use super::completion;
use super::cq::{self, Cq, Options, Stamp};
use crate::abi;
use crate::abi::errno::{Errno, pointer};
use crate::check::{self, POISON};
use crate::context::fork;
use crate::memory::domain::{DomainUse, Pd};

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
    let has = |bit| init.comp_mask & bit != 0;
    let flags = match has(abi::CQ_INIT_ATTR_MASK_FLAGS) {
        true => init.flags,
        false => 0,
    };
    let known_masks = abi::CQ_INIT_ATTR_MASK_FLAGS | abi::CQ_INIT_ATTR_MASK_PD;
    // One thread at a time waits for nobody at a lock.
    let known_flags = abi::CREATE_CQ_ATTR_SINGLE_THREADED | abi::CREATE_CQ_ATTR_IGNORE_OVERRUN;
    let is_known = init.comp_mask & !known_masks == 0
        && init.wc_flags & !KNOWN_FIELDS == 0
        && flags & !known_flags == 0;
    if !is_known {
        return Err(libc::EOPNOTSUPP);
    }
    let domain = has(abi::CQ_INIT_ATTR_MASK_PD).then_some(init.parent_domain);
    let domain = match domain {
        // SAFETY: the caller's promise.
        Some(pd) => match unsafe { pd.as_ref().is_some() && Pd::of(pd).is_parent() } {
            // SAFETY: as above.
            true => Some(unsafe { DomainUse::begin(pd) }),
            false => return Err(libc::EINVAL),
        },
        None => None,
    };
    let depth = c_int::try_from(init.cqe).map_err(|_| libc::EINVAL)?;
    let vector = c_int::try_from(init.comp_vector).map_err(|_| libc::EINVAL)?;
    // SAFETY: the caller's promise.
    let options = Options {
        domain,
        ignores_overrun: flags & abi::CREATE_CQ_ATTR_IGNORE_OVERRUN != 0,
        is_stamped: init.wc_flags & STAMPS != 0,
        offer: &|c| offer(c, init.wc_flags),
    };
    // SAFETY: as above.
    unsafe {
        cq::create(
            context,
            depth,
            init.cq_context,
            init.channel,
            vector,
            options,
        )
    }
}

/// Lets a program read of a completion what it has asked for.
fn offer(c: &mut abi::CqEx, fields: u64) {
    c.start_poll = Some(start);
    c.next_poll = Some(next);
    c.end_poll = Some(end);
    c.read_opcode = Some(opcode);
    c.read_vendor_err = Some(vendor_err);
    c.read_wc_flags = Some(wc_flags);
    let wants = |bit: u32| fields >> bit & 1 == 1;
    c.read_byte_len = wants(0).then_some(byte_len);
    c.read_imm_data = wants(1).then_some(imm_data);
    c.read_qp_num = wants(2).then_some(qp_num);
    c.read_src_qp = wants(3).then_some(src_qp);
    c.read_slid = wants(4).then_some(no_number);
    c.read_sl = wants(5).then_some(service_level);
    c.read_dlid_path_bits = wants(6).then_some(no_level);
    c.read_completion_ts = wants(7).then_some(completion_ts);
    c.read_cvlan = wants(8).then_some(no_vlan);
    c.read_flow_tag = wants(9).then_some(no_number);
    c.read_completion_wallclock_ns = wants(11).then_some(wallclock);
}

/// Time stamps of either clock.
const STAMPS: u64 =
    abi::WC_EX_WITH_COMPLETION_TIMESTAMP | abi::WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// What can be asked of a completion: all but what tag matching would add.
const KNOWN_FIELDS: u64 =
    abi::WC_STANDARD_FLAGS | STAMPS | abi::WC_EX_WITH_CVLAN | abi::WC_EX_WITH_FLOW_TAG;

/// `ibv_query_rt_values_ex`: the clock of completions, in nanoseconds, where a card has its cycles.
pub(crate) unsafe extern "C" fn query_rt_values(
    _context: *mut abi::Context,
    values: *mut abi::ValuesEx,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        if (*values).comp_mask & !abi::VALUES_MASK_RAW_CLOCK != 0 {
            return libc::EINVAL;
        }
        if (*values).comp_mask & abi::VALUES_MASK_RAW_CLOCK != 0 {
            (*values).raw_clock = libc::timespec {
                tv_sec: 0,
                tv_nsec: Stamp::now().ticks as i64,
            };
        }
    }
    0
}

/// Goes on to the next completion.
///
/// # Safety
/// The caller has the queue's lock.
unsafe fn advance(cq: *mut abi::CqEx) -> c_int {
    // SAFETY: the caller's promise; what is written are fields that the program reads after this.
    unsafe {
        let poller = &mut *Cq::of(cq).poller.as_mut_ptr();
        let found = poller.next();
        if Cq::of(cq).is_stamped && matches!(found, Ok(Some(_))) {
            poller.stamp = Stamp::now();
        }
        match found {
            Ok(Some(wc)) => {
                let check = Cq::of(cq).opened().check.as_deref();
                check::taken(check, std::slice::from_ref(&wc));
                (*cq).status = wc.status as c_int;
                (*cq).wr_id = wc.id;
                0
            }
            Ok(None) => {
                if check::is_on() {
                    check::drained(cq.addr());
                }
                libc::ENOENT
            }
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
    if unsafe { Cq::is_gone(cq, "ibv_start_poll") } {
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
    // A child may be forked between `start` and this.
    // SAFETY: the caller's promise.
    if unsafe { Cq::of(cq) }.opened().is_inherited() {
        fork::tell();
        return libc::EIO;
    }
    // SAFETY: the caller has started.
    unsafe { advance(cq) }
}

unsafe extern "C" fn end(cq: *mut abi::CqEx) {
    // SAFETY: the caller has started, and found something.
    unsafe {
        let cq = Cq::of(cq);
        if cq.opened().is_inherited() {
            return;
        }
        cq.holder.store(0, Ordering::Relaxed);
        cq.poller.force_unlock();
    }
}

/// A field of the completion that was gone on to last. With checks, what an error leaves undefined shows when it is used.
///
/// # Safety
/// The caller has the queue's lock.
unsafe fn field(cq: *mut abi::CqEx, of: impl FnOnce(&verbs::Wc) -> u32) -> u32 {
    // SAFETY: the caller's promise.
    let wc = unsafe { current(cq) };
    match !wc.is_ok() && check::is_on() {
        true => POISON,
        false => of(&wc),
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
    unsafe { field(cq, |wc| completion::opcode(wc.opcode) as u32) as c_int }
}

unsafe extern "C" fn vendor_err(cq: *mut abi::CqEx) -> u32 {
    // SAFETY: as above.
    unsafe { current(cq) }.vendor_err.0
}

unsafe extern "C" fn wc_flags(cq: *mut abi::CqEx) -> u32 {
    // SAFETY: as above.
    unsafe { field(cq, |wc| completion::flags(wc.flags)) }
}

unsafe extern "C" fn byte_len(cq: *mut abi::CqEx) -> u32 {
    // SAFETY: as above.
    unsafe { field(cq, |wc| wc.byte_len) }
}

unsafe extern "C" fn imm_data(cq: *mut abi::CqEx) -> u32 {
    // SAFETY: as above.
    unsafe { field(cq, completion::imm_or_key) }
}

unsafe extern "C" fn qp_num(cq: *mut abi::CqEx) -> u32 {
    // SAFETY: as above.
    unsafe { current(cq) }.qpn.0
}

unsafe extern "C" fn src_qp(cq: *mut abi::CqEx) -> u32 {
    // SAFETY: as above.
    unsafe { field(cq, |wc| wc.src_qpn.0) }
}

unsafe extern "C" fn service_level(cq: *mut abi::CqEx) -> u8 {
    // SAFETY: as above.
    unsafe { completion::service_level(&current(cq)) }
}

unsafe extern "C" fn completion_ts(cq: *mut abi::CqEx) -> u64 {
    // SAFETY: as above.
    unsafe { (*Cq::of(cq).poller.as_mut_ptr()).stamp.ticks }
}

unsafe extern "C" fn wallclock(cq: *mut abi::CqEx) -> u64 {
    // SAFETY: as above.
    unsafe { (*Cq::of(cq).poller.as_mut_ptr()).stamp.wallclock_ns }
}

/// There is none.
unsafe extern "C" fn no_vlan(_cq: *mut abi::CqEx) -> u16 {
    0
}

/// What Ethernet has not, nor a device that steers no flows.
unsafe extern "C" fn no_number(_cq: *mut abi::CqEx) -> u32 {
    0
}

unsafe extern "C" fn no_level(_cq: *mut abi::CqEx) -> u8 {
    0
}
