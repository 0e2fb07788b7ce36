//! libc's functions that are answered for our descriptors, and passed on for all others.
//!
//! A program's own `write` comes by here too, so what is not ours costs a look at a bit. Opening the device comes from
//! `crate::interpose`, as all functions that take paths.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{size_t, ssize_t};

use super::events::Channel;
use super::{commands, fork, manager};
use crate::abi::errno::{Errno, set_errno};
use crate::process::next;

const DEVICE: &CStr = c"/dev/infiniband/rdma_cm";
/// Of a device that the kernel does not have: the major number of `misc` devices.
const MISC: c_uint = 10;

/// Descriptors that are event channels, as bits.
static OURS: [AtomicU64; FDS_MAX / 64] = [const { AtomicU64::new(0) }; FDS_MAX / 64];
/// No descriptor of ours is as high.
const FDS_MAX: usize = 1 << 16;

fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(fd).ok()?;
    Some((OURS.get(at / 64)?, 1 << (at % 64)))
}

fn is_ours(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// A descriptor has just been made, so that its number is nobody else's any more: a channel of this number was closed without libc.
pub(super) fn is_new(fd: RawFd) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

fn open_channel(flags: c_int) -> Result<RawFd, Errno> {
    fork::notice();
    let mut manager = manager::lock();
    let channel = Channel::open(flags & libc::O_NONBLOCK != 0)?;
    let fd = channel.number();
    let Some((word, bit)) = place(fd) else {
        drop(manager);
        next!(c"close", fn(c_int) -> c_int, fd);
        return Err(libc::EMFILE);
    };
    // One of this number may have been closed without libc.
    manager.close_channel(fd);
    word.fetch_or(bit, Ordering::Relaxed);
    manager.channels.insert(fd, channel);
    Ok(fd)
}

/// Opens what is at a path if it is the connection manager's device: a descriptor, or -1 with `errno`.
///
/// # Safety
/// `path` is null or a string.
pub(crate) unsafe fn open_device(path: *const c_char, flags: c_int) -> Option<c_int> {
    // SAFETY: the caller's promise.
    if path.is_null() || unsafe { CStr::from_ptr(path) } != DEVICE {
        return None;
    }
    Some(open_channel(flags).unwrap_or_else(|errno| {
        set_errno(errno);
        -1
    }))
}

/// Before a descriptor is closed, or becomes another file's.
fn let_go(fd: RawFd) {
    if let Some((word, bit)) = place(fd)
        && word.load(Ordering::Relaxed) & bit != 0
    {
        manager::lock().close_channel(fd);
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

fn let_go_of_all(first: c_uint, last: c_uint) {
    for (at, word) in OURS.iter().enumerate() {
        let mut bits = word.load(Ordering::Relaxed);
        while bits != 0 {
            let fd = (at * 64) as c_uint + bits.trailing_zeros();
            if (first..=last).contains(&fd) {
                let_go(fd as RawFd);
            }
            bits &= bits - 1;
        }
    }
}

/// What the real device would say of itself.
///
/// # Safety
/// `stat` has been filled.
unsafe fn as_device(stat: *mut libc::stat) {
    // librdmacm compares it with the number that the kernel tells, where the kernel has the device too.
    let real = rustix::fs::stat(DEVICE).map(|real| real.st_rdev);
    // SAFETY: the caller's promise.
    unsafe {
        (*stat).st_mode = libc::S_IFCHR | 0o600;
        (*stat).st_rdev = real.unwrap_or(libc::makedev(MISC, 0));
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(super) unsafe extern "C-unwind" fn write(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
) -> ssize_t {
    if !is_ours(fd) {
        return next!(
            c"write",
            fn(c_int, *const c_void, size_t) -> ssize_t,
            fd,
            bytes,
            len
        );
    }
    if !manager::lock().channels.contains_key(&fd) {
        // Inherited by a fork.
        set_errno(libc::ENODEV);
        return -1;
    }
    // SAFETY: the caller's promise.
    let written = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) };
    if commands::takes_event(written) {
        return write_for_event(fd, written);
    }
    // SAFETY: the caller's promise: its addresses are in there.
    result(unsafe { commands::carry_out(fd, written) }, len)
}

/// A thread that waits here may be cancelled, as in the kernel's `write`: nothing may be held meanwhile.
fn write_for_event(fd: RawFd, written: &[u8]) -> ssize_t {
    loop {
        let mut count = 0u64;
        let to = (&raw mut count).cast::<c_void>();
        let read = next!(
            c"read",
            fn(c_int, *mut c_void, size_t) -> ssize_t,
            fd,
            to,
            8
        );
        if read < 0 {
            return -1;
        }
        // SAFETY: as for `write`.
        match unsafe { commands::carry_out(fd, written) } {
            // What it was of has been destroyed just now.
            Err(libc::EAGAIN) => {}
            done => return result(done, written.len()),
        }
    }
}

fn result(done: Result<(), Errno>, len: size_t) -> ssize_t {
    match done {
        Ok(()) => len as ssize_t,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(super) extern "C-unwind" fn close(fd: c_int) -> c_int {
    let_go(fd);
    next!(c"close", fn(c_int) -> c_int, fd)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // With flags it may only mark them, for programs to come.
    if flags == 0 {
        let_go_of_all(first, last);
    }
    next!(
        c"close_range",
        fn(c_uint, c_uint, c_int) -> c_int,
        first,
        last,
        flags
    )
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C-unwind" fn closefrom(first: c_int) {
    let_go_of_all(first.max(0) as c_uint, c_uint::MAX);
    next!(c"closefrom", fn(c_int) -> (), first);
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C-unwind" fn dup2(from: c_int, to: c_int) -> c_int {
    if from != to {
        let_go(to);
    }
    next!(c"dup2", fn(c_int, c_int) -> c_int, from, to)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C-unwind" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    if from != to {
        let_go(to);
    }
    next!(c"dup3", fn(c_int, c_int, c_int) -> c_int, from, to, flags)
}

macro_rules! stats {
    ($($name:ident = $symbol:literal;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C-unwind" fn $name(fd: c_int, stat: *mut libc::stat) -> c_int {
                let done = next!($symbol, fn(c_int, *mut libc::stat) -> c_int, fd, stat);
                if done == 0 && is_ours(fd) {
                    // SAFETY: it has just been filled.
                    unsafe { as_device(stat) };
                }
                done
            }
        )*
    };
}

// The same structure on 64-bit machines.
stats! {
    fstat = c"fstat";
    fstat64 = c"fstat64";
}

/// As programs call it that were built before glibc 2.33.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __fxstat(version: c_int, fd: c_int, stat: *mut libc::stat) -> c_int {
    let done = next!(
        c"__fxstat",
        fn(c_int, c_int, *mut libc::stat) -> c_int,
        version,
        fd,
        stat
    );
    if done == 0 && is_ours(fd) {
        // SAFETY: it has just been filled.
        unsafe { as_device(stat) };
    }
    done
}
