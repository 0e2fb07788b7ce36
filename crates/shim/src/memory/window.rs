//! Memory windows. Both kinds are bound by requests of a send queue.

use std::ffi::c_int;

use verbs::nic::{NicWindow, WindowKind};
use verbs::{Access, Lkey, Op, PostReason, Rkey, WindowBind};

use crate::abi;
use crate::abi::errno::{Errno, errno_of, pointer};
use crate::abi::theirs::Theirs;
use crate::context::opened::Opened;
use crate::memory::domain::{DomainUse, Pd};

/// A program's memory window.
#[repr(C)]
struct Window {
    _c: Theirs<abi::Mw>,
    _nic: Box<dyn NicWindow>,
    _domain: DomainUse,
}

/// `ibv_alloc_mw`.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut abi::Pd, kind: c_int) -> *mut abi::Mw {
    // SAFETY: the caller's promise.
    pointer(unsafe { alloc(pd, kind) })
}

/// # Safety
/// As libibverbs' callers promise.
unsafe fn alloc(pd: *mut abi::Pd, kind: c_int) -> Result<*mut abi::Mw, Errno> {
    let of_nic = match kind {
        abi::MW_TYPE_1 => WindowKind::First,
        abi::MW_TYPE_2 => WindowKind::Second,
        _ => return Err(libc::EINVAL),
    };
    // SAFETY: the caller's promise.
    let domain = unsafe { Pd::of(pd) };
    let opened = domain.opened().checked()?;
    let made = opened.nic.alloc_window(domain.num, of_nic);
    let nic = made.map_err(|error| errno_of(&error))?;
    let rkey = nic.rkey().0;
    let window = Window {
        _c: Theirs::new(abi::Mw {
            context: domain.opened().context(),
            pd,
            rkey,
            handle: rkey >> 16,
            kind,
        }),
        _nic: nic,
        // SAFETY: the caller's promise.
        _domain: unsafe { DomainUse::begin(pd) },
    };
    Ok(Box::into_raw(Box::new(window)).cast())
}

/// `ibv_dealloc_mw`.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut abi::Mw) -> c_int {
    // SAFETY: a context outlives what was made from it.
    if unsafe { Opened::of((*mw).context) }.is_inherited() {
        return 0;
    }
    // SAFETY: made by `alloc`, and of no more use to anybody.
    drop(unsafe { Box::from_raw(mw.cast::<Window>()) });
    0
}

/// What is to be bound.
///
/// # Safety
/// As libibverbs' callers promise.
pub(crate) unsafe fn bind(rkey: u32, info: &abi::MwBindInfo) -> Op {
    let lkey = match info.mr.is_null() {
        true => 0,
        // SAFETY: the caller's promise.
        false => unsafe { (*info.mr).lkey },
    };
    Op::BindWindow(WindowBind {
        rkey: Rkey(rkey),
        region: Lkey(lkey),
        addr: info.addr,
        len: info.length,
        access: Access::from_bits_retain(info.mw_access_flags) & Access::EVERYTHING,
        is_zero_based: info.mw_access_flags & abi::ACCESS_ZERO_BASED != 0,
    })
}

/// The request that binds a window of the second kind.
///
/// # Safety
/// As libibverbs' callers promise.
pub(crate) unsafe fn second(
    mw: *mut abi::Mw,
    rkey: u32,
    info: &abi::MwBindInfo,
) -> Result<Op, PostReason> {
    // SAFETY: the caller's promise.
    let of = unsafe { mw.as_ref() }.ok_or(PostReason::Payload)?;
    // Of the key the low bits are the program's.
    if of.kind != abi::MW_TYPE_2 || (of.rkey ^ rkey) & !0xff != 0 {
        return Err(PostReason::Payload);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { bind(rkey, info) })
}
