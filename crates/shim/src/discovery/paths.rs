//! Functions that take paths: those that lead to the device's places are answered from `places`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libc::{DIR, FILE, mode_t, size_t, ssize_t};

use crate::abi::errno::set_errno;
use crate::cm;
use crate::discovery::places::{Translated, program_name};
use crate::process::next;

// `open` and its kin take a mode only with some flags. Reading it without is reading a register, which
// passing it on does no harm.
macro_rules! opens {
    ($($symbol:literal $name:ident($($dir:ident)?);)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C-unwind" fn $name(
                $($dir: c_int,)?
                path: *const c_char,
                flags: c_int,
                mode: mode_t,
            ) -> c_int {
                // SAFETY: the caller's promise.
                if let Some(opened) = unsafe { cm::open_device(path, flags) } {
                    return opened;
                }
                // SAFETY: as above.
                let translated = unsafe { Translated::of(path) };
                let path = translated.as_ref().map_or(path, Translated::as_ptr);
                opens!(@next $symbol, ($($dir)?), path, flags, mode)
            }
        )*
    };
    (@next $symbol:literal, (), $($argument:expr),*) => {
        next!($symbol, fn(*const c_char, c_int, mode_t) -> c_int, $($argument),*)
    };
    (@next $symbol:literal, ($dir:ident), $($argument:expr),*) => {
        next!($symbol, fn(c_int, *const c_char, c_int, mode_t) -> c_int, $dir, $($argument),*)
    };
}

opens! {
    c"open" open();
    c"open64" open64();
    c"__open_2" __open_2();
    c"__open64_2" __open64_2();
    c"openat" openat(dir);
    c"openat64" openat64(dir);
    c"__openat_2" __openat_2(dir);
    c"__openat64_2" __openat64_2(dir);
}

// Arguments before the path, and behind it.
macro_rules! translates {
    ($($symbol:literal $name:ident(
        $($before:ident: $type_before:ty),*; $($behind:ident: $type_behind:ty),*
    ) -> $result:ty;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C-unwind" fn $name(
                $($before: $type_before,)*
                path: *const c_char,
                $($behind: $type_behind,)*
            ) -> $result {
                // SAFETY: the caller's promise.
                let translated = unsafe { Translated::of(path) };
                let path = translated.as_ref().map_or(path, Translated::as_ptr);
                next!(
                    $symbol,
                    fn($($type_before,)* *const c_char $(, $type_behind)*) -> $result,
                    $($before,)* path $(, $behind)*
                )
            }
        )*
    };
}

/// `scandir`'s list, filter and order, of whichever kind of entries.
type List = *mut *mut *mut c_void;
type Function = *const c_void;

// What `stat64` and the like fill is `stat` on 64-bit machines. Those with underscores are what programs call that were built
// before glibc 2.33, or with `_FORTIFY_SOURCE`.
translates! {
    c"fopen" fopen(; mode: *const c_char) -> *mut FILE;
    c"fopen64" fopen64(; mode: *const c_char) -> *mut FILE;
    c"access" access(; mode: c_int) -> c_int;
    c"eaccess" eaccess(; mode: c_int) -> c_int;
    c"euidaccess" euidaccess(; mode: c_int) -> c_int;
    c"faccessat" faccessat(dir: c_int; mode: c_int, flags: c_int) -> c_int;
    c"stat" stat(; to: *mut libc::stat) -> c_int;
    c"stat64" stat64(; to: *mut libc::stat) -> c_int;
    c"lstat" lstat(; to: *mut libc::stat) -> c_int;
    c"lstat64" lstat64(; to: *mut libc::stat) -> c_int;
    c"fstatat" fstatat(dir: c_int; to: *mut libc::stat, flags: c_int) -> c_int;
    c"fstatat64" fstatat64(dir: c_int; to: *mut libc::stat, flags: c_int) -> c_int;
    c"__xstat" __xstat(version: c_int; to: *mut libc::stat) -> c_int;
    c"__xstat64" __xstat64(version: c_int; to: *mut libc::stat) -> c_int;
    c"__lxstat" __lxstat(version: c_int; to: *mut libc::stat) -> c_int;
    c"__lxstat64" __lxstat64(version: c_int; to: *mut libc::stat) -> c_int;
    c"__fxstatat" __fxstatat(version: c_int, dir: c_int; to: *mut libc::stat, flags: c_int) -> c_int;
    c"__fxstatat64" __fxstatat64(version: c_int, dir: c_int; to: *mut libc::stat, flags: c_int) -> c_int;
    c"statx" statx(dir: c_int; flags: c_int, mask: c_uint, to: *mut c_void) -> c_int;
    c"opendir" opendir(;) -> *mut DIR;
    c"scandir" scandir(; list: List, filter: Function, order: Function) -> c_int;
    c"scandir64" scandir64(; list: List, filter: Function, order: Function) -> c_int;
    c"scandirat" scandirat(dir: c_int; list: List, filter: Function, order: Function) -> c_int;
    c"chdir" chdir(;) -> c_int;
    c"readlink" readlink(; to: *mut c_char, size: size_t) -> ssize_t;
    c"readlinkat" readlinkat(dir: c_int; to: *mut c_char, size: size_t) -> ssize_t;
    c"getxattr" getxattr(; name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t;
    c"lgetxattr" lgetxattr(; name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t;
    c"listxattr" listxattr(; to: *mut c_char, size: size_t) -> ssize_t;
    c"llistxattr" llistxattr(; to: *mut c_char, size: size_t) -> ssize_t;
    c"__readlink_chk" __readlink_chk(; to: *mut c_char, size: size_t, room: size_t) -> ssize_t;
}

/// The true name of a place of ours, as the program knows it, in memory of libc's; null with `errno` if there is none.
fn true_name(place: &Translated) -> *mut c_char {
    let (path, anywhere) = (place.as_ptr(), std::ptr::null_mut());
    let found = next!(
        c"realpath",
        fn(*const c_char, *mut c_char) -> *mut c_char,
        path,
        anywhere
    );
    if found.is_null() {
        return found;
    }
    // SAFETY: a string, which `realpath` has made; what it is for the program is a part of it.
    unsafe {
        let whole = CStr::from_ptr(found).to_bytes_with_nul();
        let name = program_name(whole);
        std::ptr::copy(name.as_ptr(), found.cast::<u8>(), name.len());
    }
    found
}

/// # Safety
/// As `realpath`; there is room for `room` bytes at `to`.
unsafe fn real_path(place: &Translated, to: *mut c_char, room: size_t) -> *mut c_char {
    let found = true_name(place);
    if found.is_null() || to.is_null() {
        return found;
    }
    // SAFETY: a string, which is looked at before it is freed.
    unsafe {
        let len = libc::strlen(found) + 1;
        let fits = len <= room;
        if fits {
            std::ptr::copy_nonoverlapping(found, to, len);
        }
        libc::free(found.cast());
        if fits {
            return to;
        }
    }
    set_errno(libc::ENAMETOOLONG);
    std::ptr::null_mut()
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's promise.
    match unsafe { Translated::of(path) } {
        // SAFETY: as above; there is that much room at least.
        Some(place) => unsafe { real_path(&place, to, libc::PATH_MAX as size_t) },
        None => next!(
            c"realpath",
            fn(*const c_char, *mut c_char) -> *mut c_char,
            path,
            to
        ),
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __realpath_chk(
    path: *const c_char,
    to: *mut c_char,
    room: size_t,
) -> *mut c_char {
    // SAFETY: the caller's promise.
    match unsafe { Translated::of(path) } {
        // SAFETY: as above.
        Some(place) => unsafe { real_path(&place, to, room) },
        None => next!(
            c"__realpath_chk",
            fn(*const c_char, *mut c_char, size_t) -> *mut c_char,
            path,
            to,
            room
        ),
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: the caller's promise.
    match unsafe { Translated::of(path) } {
        Some(place) => true_name(&place),
        None => next!(
            c"canonicalize_file_name",
            fn(*const c_char) -> *mut c_char,
            path
        ),
    }
}
