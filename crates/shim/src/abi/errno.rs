//! Errors as libibverbs reports them: `errno`, and functions' results.

use std::ffi::c_int;

use verbs::{PostReason, VerbsError};

/// Why a call failed, as a number of `errno.h`.
pub(crate) type Errno = c_int;

/// As the manual pages name them.
pub(crate) fn errno_of(error: &VerbsError) -> Errno {
    match error {
        VerbsError::Limit { .. } => libc::EINVAL,
        VerbsError::Exhausted { .. } => libc::ENOMEM,
        VerbsError::Busy { .. } => libc::EBUSY,
        VerbsError::Unreachable { .. } => libc::ETIMEDOUT,
        VerbsError::Unsupported { .. } => libc::EOPNOTSUPP,
        VerbsError::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        // What the caller says makes no sense, in one of many ways.
        _ => libc::EINVAL,
    }
}

pub(crate) fn errno_of_post(reason: PostReason) -> Errno {
    match reason {
        PostReason::QueueFull => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}

pub(crate) fn set_errno(errno: Errno) {
    // SAFETY: it points to this thread's.
    unsafe { *libc::__errno_location() = errno };
}

/// The result of a function that returns what went wrong. It is in `errno` too, where programs look all the same.
pub(crate) fn code(result: Result<(), Errno>) -> c_int {
    result.map_or_else(
        |errno| {
            set_errno(errno);
            errno
        },
        |()| 0,
    )
}

/// The result of a function that returns -1 and says why in `errno`.
pub(crate) fn minus_one(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// The result of a function that returns a pointer, or null and says why in `errno`.
pub(crate) fn pointer<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|errno| {
        set_errno(errno);
        std::ptr::null_mut()
    })
}
