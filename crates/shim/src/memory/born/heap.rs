//! The allocator's functions for whole pages, and those that take what it gave out, in libc's place.
//!
//! All other memory is that of the next allocator in the process, be it libc's or another one's.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::check;

use super::lock::locked;
use super::table::may_touch;
use super::{HEAP, LEN_MAX, birth, is_awake, os};

unsafe extern "C" {
    fn __libc_realloc(start: *mut c_void, len: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, len: usize) -> *mut c_void;
    fn __libc_valloc(len: usize) -> *mut c_void;
    fn __libc_pvalloc(len: usize) -> *mut c_void;
}

/// The functions here that take back what was given out.
pub(super) const NAMES: [&CStr; 4] = [c"free", c"realloc", c"reallocarray", c"malloc_usable_size"];

/// A function of the next allocator, looked for when it is first called: that may be before this library's
/// own constructor has run.
struct Next {
    name: &'static CStr,
    found: AtomicUsize,
}

/// The thread that looks for such a function just now. Looking may free memory: the text of the error that
/// `dlsym` had before.
static LOOKING: AtomicUsize = AtomicUsize::new(0);

impl Next {
    const fn new(name: &'static CStr) -> Self {
        let found = AtomicUsize::new(0);
        Next { name, found }
    }

    /// Its address; none while it is being looked for, and where there is no such function.
    fn address(&self) -> Option<usize> {
        let found = self.found.load(Ordering::Relaxed);
        if found != 0 {
            return Some(found);
        }
        // SAFETY: it has no conditions.
        let own = unsafe { libc::pthread_self() as usize };
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let guards = match LOOKING.compare_exchange(0, own, success, failure) {
            Err(looking) if looking == own => return None,
            // Nobody waits for another thread that looks: it may wait for a lock of the linker's, which this
            // one may hold.
            guards => guards.is_ok(),
        };
        // SAFETY: the name is a string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if guards {
            LOOKING.store(0, Ordering::Relaxed);
        }
        let found = found.expose_provenance();
        self.found.store(found, Ordering::Relaxed);
        (found != 0).then_some(found)
    }
}

/// Calls the next function of a name and type, or what libc has in its place.
macro_rules! next {
    ($name:literal as $kind:ty, $else:expr) => {{
        static NEXT: Next = Next::new($name);
        match NEXT.address() {
            // SAFETY: the function that has this name has this type.
            Some(address) => unsafe {
                std::mem::transmute::<*const c_void, $kind>(std::ptr::with_exposed_provenance(
                    address,
                ))
            },
            None => $else,
        }
    }};
}

/// Shared memory for whoever wants whole pages, aligned.
fn pages(align: usize, len: usize) -> Option<*mut c_void> {
    let fits = (os::PAGE..=LEN_MAX).contains(&len);
    let wanted = align >= os::PAGE && align.is_power_of_two() && fits;
    if !wanted || !is_awake(HEAP) {
        return None;
    }
    let errno = os::errno();
    let born = birth(0, len, align, 0, true);
    os::set_errno(errno);
    born.map(std::ptr::with_exposed_provenance_mut)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, len: usize) -> c_int {
    type Kind = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
    unsafe extern "C" fn libcs(to: *mut *mut c_void, align: usize, len: usize) -> c_int {
        if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
            return libc::EINVAL;
        }
        // SAFETY: as `memalign`.
        let made = unsafe { __libc_memalign(align, len) };
        if made.is_null() {
            return libc::ENOMEM;
        }
        // SAFETY: the caller's.
        unsafe { *to = made };
        0
    }
    match pages(align, len) {
        Some(start) => {
            // SAFETY: the caller's.
            unsafe { *to = start };
            0
        }
        None => {
            let next = next!(c"posix_memalign" as Kind, libcs);
            // SAFETY: the caller's promise.
            unsafe { next(to, align, len) }
        }
    }
}

type Aligned = unsafe extern "C" fn(usize, usize) -> *mut c_void;

#[unsafe(no_mangle)]
unsafe extern "C" fn aligned_alloc(align: usize, len: usize) -> *mut c_void {
    pages(align, len).unwrap_or_else(|| {
        let next = next!(c"aligned_alloc" as Aligned, __libc_memalign);
        // SAFETY: the caller's promise.
        unsafe { next(align, len) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memalign(align: usize, len: usize) -> *mut c_void {
    pages(align, len).unwrap_or_else(|| {
        let next = next!(c"memalign" as Aligned, __libc_memalign);
        // SAFETY: the caller's promise.
        unsafe { next(align, len) }
    })
}

type OfLen = unsafe extern "C" fn(usize) -> *mut c_void;

#[unsafe(no_mangle)]
unsafe extern "C" fn valloc(len: usize) -> *mut c_void {
    pages(os::PAGE, len).unwrap_or_else(|| {
        let next = next!(c"valloc" as OfLen, __libc_valloc);
        // SAFETY: the caller's promise.
        unsafe { next(len) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pvalloc(len: usize) -> *mut c_void {
    pages(os::PAGE, len).unwrap_or_else(|| {
        let next = next!(c"pvalloc" as OfLen, __libc_pvalloc);
        // SAFETY: the caller's promise.
        unsafe { next(len) }
    })
}

/// How long memory is that was given out here, if it was. All of that begins at a page, which little of other
/// allocators' does.
fn len_of(start: *mut c_void) -> Option<usize> {
    let start = start.addr();
    if start == 0 || !start.is_multiple_of(os::PAGE) || !may_touch(start, 1) {
        return None;
    }
    locked(|table| table.heap(start).map(|(_, len)| len))
}

/// Takes memory back that was given out here; false when it was not.
fn take_back(start: *mut c_void) -> bool {
    if len_of(start).is_none() {
        return false;
    }
    let (start, errno) = (start.addr(), os::errno());
    let is_ours = locked(|table| {
        let Some((number, len)) = table.heap(start) else {
            return false;
        };
        // SAFETY: the caller gives it back, and nobody uses it any more.
        unsafe { os::munmap(start, len) };
        table.forget(start, len);
        table.forget_heap(number);
        true
    });
    os::set_errno(errno);
    is_ours
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(start: *mut c_void) {
    type Kind = unsafe extern "C" fn(*mut c_void);
    if check::may_lose(start.addr()) {
        // SAFETY: it is there until it is freed.
        check::loses("free", start.addr(), unsafe { malloc_usable_size(start) });
    }
    if !take_back(start) {
        let next = next!(c"free" as Kind, keep);
        // SAFETY: the caller's promise.
        unsafe { next(start) };
    }
}

/// While the next `free` is being looked for. Whose memory it is is not known yet, and it may be what the
/// call waits to free that led to the search.
unsafe extern "C" fn keep(_start: *mut c_void) {}

/// Has the search for `free` over before there are threads.
extern "C" fn search() {
    // SAFETY: there is nothing to free.
    unsafe { free(std::ptr::null_mut()) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static SEARCH: extern "C" fn() = search;

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(start: *mut c_void, len: usize) -> *mut c_void {
    // SAFETY: it is there until it is given back.
    let watched = check::may_lose(start.addr()).then(|| unsafe { malloc_usable_size(start) });
    // SAFETY: the caller's promise.
    let made = unsafe { resize(start, len) };
    if let Some(old_len) = watched
        && made != start
        && (!made.is_null() || len == 0)
    {
        let errno = os::errno();
        check::loses("realloc", start.addr(), old_len);
        os::set_errno(errno);
    }
    made
}

/// # Safety
/// As for `realloc`.
unsafe fn resize(start: *mut c_void, len: usize) -> *mut c_void {
    type Kind = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
    let Some(old_len) = len_of(start) else {
        let next = next!(c"realloc" as Kind, __libc_realloc);
        // SAFETY: the caller's promise.
        return unsafe { next(start, len) };
    };
    if len == 0 {
        take_back(start);
        return std::ptr::null_mut();
    }
    if len <= old_len && len > old_len / 2 {
        return start;
    }
    // SAFETY: it has no conditions.
    let made = unsafe { libc::malloc(len) };
    if !made.is_null() {
        // SAFETY: both are so long.
        unsafe { std::ptr::copy_nonoverlapping(start, made, len.min(old_len)) };
        take_back(start);
    }
    made
}

/// libc's own would call its own `realloc`, which knows nothing of this.
#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(start: *mut c_void, count: usize, each: usize) -> *mut c_void {
    match count.checked_mul(each) {
        // SAFETY: the caller's promise.
        Some(len) => unsafe { realloc(start, len) },
        None => {
            os::set_errno(libc::ENOMEM);
            std::ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(start: *mut c_void) -> usize {
    type Kind = unsafe extern "C" fn(*mut c_void) -> usize;
    /// Nothing is known of it: as little as there can be.
    unsafe extern "C" fn unknown(_start: *mut c_void) -> usize {
        0
    }
    len_of(start).unwrap_or_else(|| {
        let next = next!(c"malloc_usable_size" as Kind, unknown);
        // SAFETY: the caller's promise.
        unsafe { next(start) }
    })
}
