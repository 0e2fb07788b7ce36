//! The kernel's calls, without libc's functions, whose place is taken here.

use std::ffi::{c_int, c_long};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Bytes of a page. On a kernel with others nothing is shared.
pub(super) const PAGE: usize = 4096;

/// A file, whatever descriptors it has.
pub(super) type Id = (libc::dev_t, libc::ino_t);

/// So many bytes as whole pages have.
pub(super) fn whole_pages(len: usize) -> Option<usize> {
    let whole = len.checked_add(PAGE - 1)? & !(PAGE - 1);
    (whole > 0).then_some(whole)
}

fn failed(result: c_long) -> bool {
    result == -1
}

/// # Safety
/// As `mmap`.
pub(super) unsafe fn mmap(
    start: usize,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: RawFd,
    offset: i64,
) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_mmap, start, len, protection, flags, fd, offset) }
}

/// # Safety
/// As `munmap`.
pub(super) unsafe fn munmap(start: usize, len: usize) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_munmap, start, len) }
}

/// # Safety
/// As `mremap`.
pub(super) unsafe fn mremap(
    start: usize,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    to: usize,
) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_mremap, start, old_len, new_len, flags, to) }
}

/// # Safety
/// As `madvise`.
pub(super) unsafe fn madvise(start: usize, len: usize, advice: c_int) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_madvise, start, len, advice) }
}

/// # Safety
/// As `mprotect`.
pub(super) unsafe fn mprotect(start: usize, len: usize, protection: c_int) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_mprotect, start, len, protection) }
}

/// Whether files may have any length. Otherwise making a long one would kill the program.
pub(super) fn files_are_unlimited() -> bool {
    // SAFETY: numbers, for which zero is one.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: there is room for the limit.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    asked == 0 && limit.rlim_cur == libc::RLIM_INFINITY
}

/// Descriptors from here on are rarely a program's: one that numbers its own from below sees no change.
fn high_descriptors() -> c_int {
    // SAFETY: numbers, for which zero is one.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: there is room for the limit.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    match asked {
        0 => (limit.rlim_cur / 2).min(1 << 15) as c_int,
        _ => 0,
    }
}

/// A file of zeros that cannot shrink, because peers map it.
pub(super) fn file(len: usize) -> Option<(RawFd, Id)> {
    if !files_are_unlimited() {
        return None;
    }
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a string.
    let low = unsafe { libc::syscall(libc::SYS_memfd_create, c"vervain-born".as_ptr(), flags) };
    if failed(low) {
        return None;
    }
    let low = low as RawFd;
    // SAFETY: a descriptor of ours.
    let high = unsafe { libc::fcntl(low, libc::F_DUPFD_CLOEXEC, high_descriptors()) };
    close(low);
    if high < 0 {
        return None;
    }
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: as above.
    let made = set_len(high, len) && unsafe { libc::fcntl(high, libc::F_ADD_SEALS, seals) } == 0;
    let made = id(high).filter(|_| made).map(|id| (high, id));
    if made.is_none() {
        close(high);
    }
    made
}

pub(super) fn set_len(fd: RawFd, len: usize) -> bool {
    // SAFETY: a descriptor of ours.
    unsafe { libc::ftruncate(fd, len as libc::off_t) == 0 }
}

/// Which file a descriptor is of.
pub(super) fn id(fd: RawFd) -> Option<Id> {
    // SAFETY: numbers, for which zero is one.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: there is room for the answer.
    let asked = unsafe { libc::fstat(fd, &mut stat) };
    (asked == 0).then_some((stat.st_dev, stat.st_ino))
}

pub(super) fn close(fd: RawFd) {
    // SAFETY: the caller has looked whose it is.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

pub(crate) fn duplicate(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: a descriptor of ours.
    let made = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, high_descriptors()) };
    // SAFETY: a new descriptor, which nobody else knows.
    (made >= 0).then(|| unsafe { OwnedFd::from_raw_fd(made) })
}

/// Maps a file, aligned.
pub(super) fn map_file(
    hint: usize,
    len: usize,
    align: usize,
    flags: c_int,
    fd: RawFd,
) -> Option<usize> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    if align <= PAGE {
        // SAFETY: a new mapping where the kernel has room.
        let start = unsafe { mmap(hint, len, rights, libc::MAP_SHARED | flags, fd, 0) };
        return (!failed(start)).then_some(start as usize);
    }
    let reserved = len.checked_add(align)?;
    let nothing = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: as above.
    let place = unsafe { mmap(0, reserved, libc::PROT_NONE, nothing, -1, 0) };
    if failed(place) {
        return None;
    }
    let place = place as usize;
    let start = place.next_multiple_of(align);
    let flags = libc::MAP_SHARED | libc::MAP_FIXED | flags;
    // SAFETY: inside what was reserved just now, of which nobody else knows.
    unsafe {
        if failed(mmap(start, len, rights, flags, fd, 0)) {
            munmap(place, reserved);
            return None;
        }
        if start > place {
            munmap(place, start - place);
        }
        munmap(start + len, place + reserved - (start + len));
    }
    Some(start)
}

/// Gives the memory of a part of a file back; it reads as zeros then, in whatever maps it.
pub(super) fn punch(fd: RawFd, offset: usize, len: usize) -> bool {
    const KEEP_SIZE: c_int = 1;
    const PUNCH_HOLE: c_int = 2;
    let mode = KEEP_SIZE | PUNCH_HOLE;
    // SAFETY: a descriptor of ours; what is mapped there is the program's, which wants it discarded.
    let punched = unsafe { libc::syscall(libc::SYS_fallocate, fd, mode, offset, len) };
    !failed(punched)
}

pub(super) fn set_errno(code: c_int) {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = code };
}

pub(super) fn errno() -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() }
}
