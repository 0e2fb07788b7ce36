//! Memory regions.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use verbs::nic::NicMr;
use verbs::{Access, Iova};

use crate::abi;
use crate::abi::errno::{Errno, code, errno_of, pointer, set_errno};
use crate::abi::theirs::Theirs;
use crate::check;
use crate::context::on_demand::OnDemand;
use crate::context::opened::Opened;
use crate::memory::born;
use crate::memory::domain::{DomainUse, Pd};
use crate::memory::present;

/// A program's memory region.
#[repr(C)]
struct Mr {
    c: Theirs<abi::Mr>,
    registered: Mutex<Registered>,
}

/// What a registration consists of.
struct Registered {
    region: Arc<dyn NicMr>,
    domain: DomainUse,
    /// As it was asked for.
    access: c_uint,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let lkey = self.region.lkey().0;
        self.domain
            .domain()
            .opened()
            .objects()
            .on_demand
            .remove(&lkey);
    }
}

impl Mr {
    /// # Safety
    /// `mr` is one of ours that is not deregistered meanwhile.
    unsafe fn of<'a>(mr: *mut abi::Mr) -> &'a Mr {
        // SAFETY: ours begin with what the program holds.
        unsafe { &*mr.cast::<Mr>() }
    }

    fn registered(&self) -> MutexGuard<'_, Registered> {
        // Every change is a single step.
        self.registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Registers memory.
///
/// # Safety
/// As libibverbs' callers promise: the memory stays until the region is deregistered.
unsafe fn register(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    asked: c_uint,
) -> Result<Registered, Errno> {
    // SAFETY: the caller's promise.
    let ours = unsafe { Pd::of(pd) };
    ours.opened().checked()?;
    let access = Access::from_bits_retain(asked);
    // Pages of any size are as good as huge ones.
    let ignored = Access::from_bits_retain(abi::ACCESS_HUGETLB | abi::ACCESS_ON_DEMAND);
    let granted = Access::EVERYTHING | Access::WINDOW_BIND;
    let absent = Access::from_bits_retain(abi::ACCESS_ZERO_BASED);
    if !(granted | Access::OPTIONAL | ignored | absent).contains(access) {
        return Err(libc::EINVAL);
    }
    if access.intersects(absent) {
        return Err(libc::EOPNOTSUPP);
    }
    let (nic, iova, access) = (&ours.opened().nic, Iova(iova), access & granted);
    if asked & abi::ACCESS_ON_DEMAND != 0 {
        // SAFETY: the caller's promise.
        return unsafe { register_on_demand(pd, addr.addr(), length, iova, (access, asked)) };
    }
    present::pinnable(addr.addr(), length, access.contains(Access::LOCAL_WRITE))?;
    let start = NonNull::new(addr.cast::<u8>()).ok_or(libc::EINVAL)?;
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
    Ok(Registered {
        region: region.map_err(|error| errno_of(&error))?,
        // SAFETY: the caller's promise.
        domain: unsafe { DomainUse::begin(pd) },
        access: asked,
    })
}

/// Registers addresses, at which the program maps what it likes: a range, or all of them, which is `NULL` and `SIZE_MAX`.
///
/// # Safety
/// As libibverbs' callers promise.
unsafe fn register_on_demand(
    pd: *mut abi::Pd,
    start: usize,
    len: usize,
    iova: Iova,
    (access, asked): (Access, c_uint),
) -> Result<Registered, Errno> {
    let is_everything = start == 0 && len == usize::MAX && iova == Iova(0);
    if start == 0 && !is_everything {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let ours = unsafe { Pd::of(pd) };
    // SAFETY: what the program's own loads and stores do there is as with a real device, which this process's compiler does not
    // see either.
    let region = unsafe {
        let nic = &ours.opened().nic;
        nic.register_on_demand(ours.num, start, len, iova, access)
    };
    let region = region.map_err(|error| errno_of(&error))?;
    let known = OnDemand {
        pd: ours.num,
        start,
        iova: iova.0,
        len,
        is_writable: access.contains(Access::LOCAL_WRITE),
    };
    let mut objects = ours.opened().objects();
    objects.on_demand.insert(region.lkey().0, known);
    drop(objects);
    Ok(Registered {
        region,
        // SAFETY: the caller's promise.
        domain: unsafe { DomainUse::begin(pd) },
        access: asked,
    })
}

/// # Safety
/// As [`register`].
unsafe fn create(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<*mut abi::Mr, Errno> {
    // SAFETY: the caller's promise.
    let registered = unsafe { register(pd, addr, length, iova, access)? };
    if let Some(state) = &registered.domain.domain().opened().check {
        check::registered(
            state,
            registered.domain.domain().num,
            addr.addr(),
            &*registered.region,
            Access::from_bits_retain(access),
        );
    }
    let c = abi::Mr {
        // SAFETY: the caller's promise.
        context: unsafe { Pd::of(pd) }.opened().context(),
        pd,
        addr,
        length,
        handle: registered.region.lkey().0 >> 16,
        lkey: registered.region.lkey().0,
        rkey: registered.region.rkey().0,
    };
    let mr = Mr {
        c: Theirs::new(c),
        registered: Mutex::new(registered),
    };
    Ok(Box::into_raw(Box::new(mr)).cast())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut abi::Mr {
    // SAFETY: the caller's promise.
    pointer(unsafe { create(pd, addr, length, addr as u64, access as c_uint) })
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
    pointer(unsafe { create(pd, addr, length, iova, access as c_uint) })
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
    pointer(unsafe { create(pd, addr, length, iova, access) })
}

/// Registers anew what changes, at the same place if it is not said where; the old registration stays if that fails, and so
/// the only error is the one that says so.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut abi::Mr,
    flags: c_int,
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { rereg(mr, flags, pd, (addr, length), access as c_uint) } {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno);
            abi::REREG_MR_ERR_INPUT
        }
    }
}

/// # Safety
/// As libibverbs' callers promise.
unsafe fn rereg(
    mr: *mut abi::Mr,
    flags: c_int,
    pd: *mut abi::Pd,
    (addr, length): (*mut c_void, usize),
    access: c_uint,
) -> Result<(), Errno> {
    let known =
        abi::REREG_MR_CHANGE_TRANSLATION | abi::REREG_MR_CHANGE_PD | abi::REREG_MR_CHANGE_ACCESS;
    let changes = |flag| flags & flag != 0;
    let is_moved = changes(abi::REREG_MR_CHANGE_TRANSLATION);
    let has_access = changes(abi::REREG_MR_CHANGE_ACCESS);
    if flags & !known != 0
        || (is_moved && (addr.is_null() || length == 0))
        || (access != 0 && !has_access)
    {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise; a context outlives what was made from it.
    let ours = unsafe {
        Opened::of((*mr).context).checked()?;
        Mr::of(mr)
    };
    let mut registered = ours.registered();
    if registered.region.has_windows() {
        return Err(libc::EBUSY);
    }
    // SAFETY: these are written here alone, under the lock.
    let now = unsafe { *mr };
    let pd = match changes(abi::REREG_MR_CHANGE_PD) {
        // SAFETY: the caller's promise.
        true if pd.is_null() || unsafe { (*pd).context } != now.context => {
            return Err(libc::EINVAL);
        }
        true => pd,
        false => now.pd,
    };
    let (addr, length, iova) = match is_moved {
        true => (addr, length, addr as u64),
        false => (now.addr, now.length, registered.region.addr()),
    };
    let access = if has_access {
        access
    } else {
        registered.access
    };
    // SAFETY: the caller's promise.
    let new = unsafe { register(pd, addr, length, iova, access)? };
    // The keys stay: peers know them, and requests that are posted name them.
    let nic = &new.domain.domain().opened().nic;
    let exchanged = nic.exchange_keys(registered.region.lkey(), new.region.lkey());
    exchanged.map_err(|error| errno_of(&error))?;
    new.domain
        .domain()
        .opened()
        .exchange_on_demand(registered.region.lkey(), new.region.lkey());
    if let Some(state) = &new.domain.domain().opened().check {
        let rights = Access::from_bits_retain(access);
        check::deregistered(state, now.lkey);
        check::registered(
            state,
            new.domain.domain().num,
            addr.addr(),
            &*new.region,
            rights,
        );
    }
    *registered = new;
    // SAFETY: as a program reads them that has asked for it.
    unsafe {
        (*mr).pd = pd;
        (*mr).addr = addr;
        (*mr).length = length;
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(mr: *mut abi::Mr) -> c_int {
    // SAFETY: the caller's promise.
    let (context, lkey) = unsafe { ((*mr).context, (*mr).lkey) };
    // SAFETY: a context outlives what was made from it.
    let opened = unsafe { Opened::of(context) };
    if opened.is_inherited() {
        return 0;
    }
    // SAFETY: the caller's promise.
    if unsafe { Mr::of(mr) }.registered().region.has_windows() {
        if let Some(state) = &opened.check {
            check::busy(state, "ibv_dereg_mr");
        }
        return code(Err(libc::EBUSY));
    }
    if let Some(state) = &opened.check {
        check::deregistered(state, lkey);
    }
    // SAFETY: made by `create`, and of no more use to anybody.
    drop(unsafe { Box::from_raw(mr.cast::<Mr>()) });
    0
}

/// `ibv_advise_mr`: has pages be there that are to be used soon.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut abi::Pd,
    advice: c_int,
    flags: u32,
    list: *mut abi::Sge,
    count: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { advise(pd, advice, flags, list, count) })
}

/// # Safety
/// As libibverbs' callers promise.
unsafe fn advise(
    pd: *mut abi::Pd,
    advice: c_int,
    flags: u32,
    list: *mut abi::Sge,
    count: u32,
) -> Result<(), Errno> {
    let (populate, writes) = match advice {
        abi::ADVISE_MR_ADVICE_PREFETCH => (Some(libc::MADV_POPULATE_READ), false),
        abi::ADVISE_MR_ADVICE_PREFETCH_WRITE => (Some(libc::MADV_POPULATE_WRITE), true),
        // Pages that are there are reached as they are.
        abi::ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => (None, false),
        _ => return Err(libc::ENOTSUP),
    };
    let is_synchronous = flags & abi::ADVISE_MR_FLAG_FLUSH != 0;
    if flags & !abi::ADVISE_MR_FLAG_FLUSH != 0 || list.is_null() || count == 0 {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's list.
    let list = unsafe { std::slice::from_raw_parts(list, count as usize) };
    // SAFETY: the caller's promise.
    let domain = unsafe { Pd::of(pd) };
    domain.opened().checked()?;
    let place = |sge: &abi::Sge| {
        let objects = domain.opened().objects();
        let known = objects.on_demand.get(&sge.lkey).ok_or(libc::ENOENT)?;
        known.place(domain.num, sge, writes)
    };
    let places: Result<Vec<(usize, usize)>, Errno> = list.iter().map(place).collect();
    let (places, Some(advice)) = (places?, populate) else {
        return Ok(());
    };
    for (start, len) in places {
        let done = present::fetch(start, len, advice);
        // Without that flag it is a hint.
        if is_synchronous {
            done?;
        }
    }
    Ok(())
}
