//! Protection domains and memory regions.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;

use verbs::nic::NicMr;
use verbs::{Access, Iova, PdNum};

use crate::abi;
use crate::born;
use crate::device::Opened;
use crate::errno::{Errno, code, errno_of, pointer};

/// A program's protection domain.
#[repr(C)]
pub(crate) struct Pd {
    c: abi::Pd,
    pub(crate) num: PdNum,
}

impl Pd {
    /// # Safety
    /// `pd` is one of ours that is not deallocated meanwhile.
    pub(crate) unsafe fn of<'a>(pd: *mut abi::Pd) -> &'a Pd {
        // SAFETY: ours begin with what the program holds.
        unsafe { &*pd.cast::<Pd>() }
    }

    /// The context that it is of.
    pub(crate) fn opened(&self) -> &Opened {
        // SAFETY: a context outlives what was made from it.
        unsafe { Opened::of(self.c.context) }
    }
}

/// A program's memory region.
#[repr(C)]
struct Mr {
    c: abi::Mr,
    _region: Arc<dyn NicMr>,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut abi::Context) -> *mut abi::Pd {
    // SAFETY: the caller's promise.
    let opened = unsafe { Opened::of(context) };
    let made = opened
        .checked()
        .and_then(|opened| opened.nic.alloc_pd().map_err(|error| errno_of(&error)));
    let made = made.map(|num| {
        let c = abi::Pd {
            context,
            handle: num.0,
        };
        Box::into_raw(Box::new(Pd { c, num })).cast()
    });
    pointer(made)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut abi::Pd) -> c_int {
    // SAFETY: the caller's promise.
    let ours = unsafe { Pd::of(pd) };
    if ours.opened().is_inherited() {
        return 0;
    }
    let done = ours.opened().nic.dealloc_pd(ours.num);
    if done.is_ok() {
        // SAFETY: made by `ibv_alloc_pd`, and of no more use to anybody.
        drop(unsafe { Box::from_raw(pd.cast::<Pd>()) });
    }
    code(done.map_err(|error| errno_of(&error)))
}

/// # Safety
/// As libibverbs' callers promise: the memory stays until the region is deregistered.
unsafe fn register(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<*mut abi::Mr, Errno> {
    // SAFETY: the caller's promise.
    let ours = unsafe { Pd::of(pd) };
    ours.opened().checked()?;
    let access = Access::from_bits_retain(access);
    // Pages of any size are as good as huge ones.
    let hugetlb = Access::from_bits_retain(abi::ACCESS_HUGETLB);
    let known = Access::EVERYTHING | Access::OPTIONAL | hugetlb;
    if !known.contains(access) {
        return Err(libc::EOPNOTSUPP);
    }
    let start = NonNull::new(addr.cast::<u8>()).ok_or(libc::EINVAL)?;
    let (nic, iova, access) = (&ours.opened().nic, Iova(iova), access & Access::EVERYTHING);
    let file = born::file_of(addr.addr(), length);
    let in_file = ours.opened().soft.as_ref().zip(file.as_ref());
    // SAFETY: the memory stays, it is not moved, and it is this file's. What the program's own loads and stores do there is
    // as with a real device, which this process's compiler does not see either.
    let region = unsafe {
        match in_file {
            Some((soft, (file, at))) => soft
                .register_file(ours.num, start, length, iova, access, file.as_fd(), *at)
                // It may be that there is no descriptor left; peers reach it without.
                .or_else(|_| nic.register(ours.num, start, length, iova, access)),
            None => nic.register(ours.num, start, length, iova, access),
        }
    };
    let region = region.map_err(|error| errno_of(&error))?;
    let c = abi::Mr {
        context: ours.c.context,
        pd,
        addr,
        length,
        handle: region.lkey().0 >> 16,
        lkey: region.lkey().0,
        rkey: region.rkey().0,
    };
    Ok(Box::into_raw(Box::new(Mr { c, _region: region })).cast())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut abi::Mr {
    // SAFETY: the caller's promise.
    pointer(unsafe { register(pd, addr, length, addr as u64, access as c_uint) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut abi::Mr {
    // SAFETY: the caller's promise.
    pointer(unsafe { register(pd, addr, length, iova, access as c_uint) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut abi::Mr {
    // SAFETY: the caller's promise.
    pointer(unsafe { register(pd, addr, length, iova, access) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(mr: *mut abi::Mr) -> c_int {
    // SAFETY: a context outlives what was made from it.
    if unsafe { Opened::of((*mr).context) }.is_inherited() {
        return 0;
    }
    // SAFETY: made by `register`, and of no more use to anybody.
    drop(unsafe { Box::from_raw(mr.cast::<Mr>()) });
    0
}
