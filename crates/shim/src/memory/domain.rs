//! Protection domains, and what groups objects within one: parent domains and thread domains.
//!
//! A thread domain says that its objects are used by one thread at a time. Locks that nobody waits for cost little, so they stay.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use verbs::{PdNum, VerbsError};

use crate::abi;
use crate::abi::errno::{Errno, code, errno_of, pointer};
use crate::abi::theirs::Theirs;
use crate::check;
use crate::context::opened::Opened;

/// A program's protection domain, or a parent domain, which is another name for one.
#[repr(C)]
pub(crate) struct Pd {
    c: Theirs<abi::Pd>,
    pub(crate) num: PdNum,
    /// What a parent domain stands for, and the thread domain that it was made with.
    parent: Option<Parent>,
    /// Parent domains of this one; of a parent domain, the objects that were made with it.
    users: AtomicU32,
}

struct Parent {
    pd: *mut abi::Pd,
    td: *mut abi::Td,
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
        unsafe { Opened::of((*self.c.at()).context) }
    }

    /// Whether it is a parent domain.
    pub(crate) fn is_parent(&self) -> bool {
        self.parent.is_some()
    }
}

/// An object's use of a domain, which is not deallocated before. What a protection domain is used for the NIC counts too.
pub(crate) struct DomainUse(*mut abi::Pd);

// SAFETY: what it counts with is atomic.
unsafe impl Send for DomainUse {}
// SAFETY: as above.
unsafe impl Sync for DomainUse {}

impl DomainUse {
    /// # Safety
    /// `pd` is one of ours that is not deallocated meanwhile.
    pub(crate) unsafe fn begin(pd: *mut abi::Pd) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Pd::of(pd) }.users.fetch_add(1, Ordering::Relaxed);
        DomainUse(pd)
    }

    pub(crate) fn domain(&self) -> &Pd {
        // SAFETY: it is there as long as it is used.
        unsafe { Pd::of(self.0) }
    }
}

impl Drop for DomainUse {
    fn drop(&mut self) {
        self.domain().users.fetch_sub(1, Ordering::Release);
    }
}

fn made(
    context: *mut abi::Context,
    num: PdNum,
    handle: u32,
    parent: Option<Parent>,
) -> *mut abi::Pd {
    let pd = Pd {
        c: Theirs::new(abi::Pd { context, handle }),
        num,
        parent,
        users: AtomicU32::new(0),
    };
    Box::into_raw(Box::new(pd)).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut abi::Context) -> *mut abi::Pd {
    // SAFETY: the caller's promise.
    let opened = unsafe { Opened::of(context) }.checked();
    let num = opened.and_then(|opened| opened.nic.alloc_pd().map_err(|error| errno_of(&error)));
    pointer(num.map(|num| made(context, num, num.0, None)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut abi::Pd) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { dealloc(pd) })
}

/// # Safety
/// As libibverbs' callers promise.
unsafe fn dealloc(pd: *mut abi::Pd) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let ours = unsafe { Pd::of(pd) };
    if ours.opened().is_inherited() {
        return Ok(());
    }
    if ours.users.load(Ordering::Acquire) > 0 {
        if let Some(state) = &ours.opened().check {
            check::busy(state, "ibv_dealloc_pd");
        }
        return Err(libc::EBUSY);
    }
    match &ours.parent {
        None => {
            let done = ours.opened().nic.dealloc_pd(ours.num);
            if let (Err(VerbsError::Busy { .. }), Some(state)) = (&done, &ours.opened().check) {
                check::busy(state, "ibv_dealloc_pd");
            }
            done.map_err(|error| errno_of(&error))?;
        }
        // SAFETY: they are not deallocated before their parent domain.
        Some(parent) => unsafe {
            Pd::of(parent.pd).users.fetch_sub(1, Ordering::Release);
            if !parent.td.is_null() {
                Td::of(parent.td).users.fetch_sub(1, Ordering::Release);
            }
        },
    }
    // SAFETY: made by `made`, and of no more use to anybody.
    drop(unsafe { Box::from_raw(pd.cast::<Pd>()) });
    Ok(())
}

/// A program's thread domain.
#[repr(C)]
struct Td {
    _c: Theirs<abi::Td>,
    /// Parent domains that were made with it.
    users: AtomicU32,
}

impl Td {
    /// # Safety
    /// `td` is one of ours that is not deallocated meanwhile.
    unsafe fn of<'a>(td: *mut abi::Td) -> &'a Td {
        // SAFETY: ours begin with what the program holds.
        unsafe { &*td.cast::<Td>() }
    }
}

/// `ibv_alloc_td`.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut abi::Context,
    init: *mut abi::TdInitAttr,
) -> *mut abi::Td {
    // SAFETY: the caller's promise.
    let (opened, unknown) = unsafe { (Opened::of(context), (*init).comp_mask) };
    if let Err(errno) = opened.checked() {
        return pointer(Err(errno));
    }
    if unknown != 0 {
        return pointer(Err(libc::EINVAL));
    }
    let td = Td {
        _c: Theirs::new(abi::Td { context }),
        users: AtomicU32::new(0),
    };
    Box::into_raw(Box::new(td)).cast()
}

/// `ibv_dealloc_td`.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut abi::Td) -> c_int {
    // SAFETY: a context outlives what was made from it.
    if unsafe { Opened::of((*td).context) }.is_inherited() {
        return 0;
    }
    // SAFETY: the caller's promise.
    if unsafe { Td::of(td) }.users.load(Ordering::Acquire) > 0 {
        return libc::EBUSY;
    }
    // SAFETY: made by `alloc_td`, and of no more use to anybody.
    drop(unsafe { Box::from_raw(td.cast::<Td>()) });
    0
}

/// `ibv_alloc_parent_domain`.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut abi::Context,
    init: *mut abi::ParentDomainInitAttr,
) -> *mut abi::Pd {
    // SAFETY: the caller's promise.
    let asked = unsafe { *init };
    let known = abi::PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | abi::PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if asked.comp_mask & !known != 0 || asked.pd.is_null() {
        return pointer(Err(libc::EINVAL));
    }
    // SAFETY: the caller's promise.
    let of = unsafe { Pd::of(asked.pd) };
    if let Err(errno) = of.opened().checked() {
        return pointer(Err(errno));
    }
    if of.is_parent() {
        return pointer(Err(libc::EINVAL));
    }
    of.users.fetch_add(1, Ordering::Relaxed);
    if !asked.td.is_null() {
        // SAFETY: the caller's promise.
        unsafe { Td::of(asked.td) }
            .users
            .fetch_add(1, Ordering::Relaxed);
    }
    let parent = Parent {
        pd: asked.pd,
        td: asked.td,
    };
    made(context, of.num, of.num.0, Some(parent))
}
