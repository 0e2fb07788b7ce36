//! Forks: a child must not use what its parent has opened, and hears so at once.
//!
//! A NIC has threads and shared memory that are its process's. A child has neither the threads nor a right to the memory, so that
//! its polls would find nothing for ever, and what it destroys would be its parent's. In a child, therefore,
//! - posts, polls and arming fail: the functions that a context is called through are exchanged;
//! - calls that make or change something fail with `ENODEV`, and a sentence on standard error says once what to do;
//! - destroying succeeds, and leaves the parent's objects alone;
//! - the descriptors of completion channels and of asynchronous events are readable, so that nobody sleeps there.
//!
//! A device that is opened in the child works.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use crate::abi;
use crate::abi::errno::set_errno;
use crate::check;
use crate::process::{complain, forked};

/// Whether this process was told that what it has inherited is of no use.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// What a child has to be kept from.
struct Own {
    contexts: Vec<*mut abi::Context>,
    /// What programs sleep on.
    fds: Vec<RawFd>,
}

// SAFETY: the pointers are followed in a child only, which has one thread.
unsafe impl Send for Own {}

static OWN: Mutex<Own> = Mutex::new(Own {
    contexts: Vec::new(),
    fds: Vec::new(),
});

/// What is held while a thread forks, so that the child's copy is whole.
struct Held {
    own: MutexGuard<'static, Own>,
    _checks: check::Held,
}

struct Place(UnsafeCell<Option<Held>>);

// SAFETY: reached by the thread that holds `OWN`, or its double in a child.
unsafe impl Sync for Place {}

/// Not a thread's, which would be gone when a program forks at its end.
static HELD: Place = Place(UnsafeCell::new(None));

/// # Safety
/// The thread holds `OWN` since `before`.
unsafe fn held() -> Option<Held> {
    // SAFETY: the caller's promise.
    unsafe { (*HELD.0.get()).take() }
}

fn own() -> MutexGuard<'static, Own> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A context was made, which a child is not to use.
pub(crate) fn opened(context: *mut abi::Context) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: functions that stay as long as the process: this library is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
    });
    own().contexts.push(context);
}

/// Before a context goes.
pub(crate) fn closed(context: *mut abi::Context) {
    own().contexts.retain(|one| *one != context);
}

/// A descriptor was made that programs sleep on.
pub(crate) fn sleeps_on(fd: RawFd) {
    own().fds.push(fd);
}

/// Before such a descriptor is closed.
pub(crate) fn forget(fd: RawFd) {
    own().fds.retain(|one| *one != fd);
}

/// Says once that what a child has inherited is of no use.
#[cold]
pub(crate) fn tell() {
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        check::inherited();
        complain(
            "this process is a fork of one that has opened the device, and uses what it inherited",
            &"that is its parent's alone; open the device in the child instead",
        );
    }
}

unsafe extern "C" fn before() {
    let held = Held {
        own: own(),
        _checks: check::hold(),
    };
    // SAFETY: held.
    unsafe { *HELD.0.get() = Some(held) };
}

unsafe extern "C" fn after() {
    // SAFETY: `before` has taken it.
    drop(unsafe { held() });
}

unsafe extern "C" fn in_child() {
    forked();
    IS_TOLD.store(false, Ordering::Relaxed);
    // SAFETY: this thread's double has taken it in the parent.
    let Some(Held { mut own, .. }) = (unsafe { held() }) else {
        return;
    };
    for context in own.contexts.drain(..) {
        // SAFETY: it was not closed before the fork, and nobody else runs here.
        unsafe { bury(&mut (*context).ops) };
    }
    let fds = std::mem::take(&mut own.fds);
    if fds.is_empty() {
        return;
    }
    // SAFETY: makes a descriptor. If there is none left, the others stay as they are.
    let readable = unsafe { libc::eventfd(1, libc::EFD_CLOEXEC) };
    if readable >= 0 {
        for fd in fds {
            // SAFETY: ours, which the parent's objects keep, and which nobody reads here any more.
            unsafe { libc::dup3(readable, fd, libc::O_CLOEXEC) };
        }
        // SAFETY: made above.
        unsafe { libc::close(readable) };
    }
}

/// Exchanges what programs call by way of a context for functions that fail.
fn bury(ops: &mut abi::ContextOps) {
    ops.poll_cq = Some(poll);
    ops.req_notify_cq = Some(req_notify);
    ops.post_send = Some(post);
    ops.post_recv = Some(post);
    ops.post_srq_recv = Some(post);
    ops.bind_mw = Some(bind_mw);
}

unsafe extern "C" fn bind_mw(
    _qp: *mut abi::Qp,
    _mw: *mut abi::Mw,
    _asked: *mut abi::MwBind,
) -> c_int {
    tell();
    libc::EIO
}

unsafe extern "C" fn poll(_cq: *mut abi::CqEx, _max: c_int, _to: *mut abi::Wc) -> c_int {
    tell();
    set_errno(libc::EIO);
    -1
}

unsafe extern "C" fn req_notify(_cq: *mut abi::CqEx, _solicited_only: c_int) -> c_int {
    tell();
    libc::EIO
}

/// Posts nothing, to a queue of any kind.
unsafe extern "C" fn post<Q, R>(_queue: *mut Q, list: *mut R, bad: *mut *mut R) -> c_int {
    tell();
    // SAFETY: the caller's.
    unsafe { bad.write(list) };
    libc::EIO
}
