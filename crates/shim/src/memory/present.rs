//! Whether memory is there, as the kernel sees it: for regions that a card would have it pin, and for pages that are to be
//! fetched.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use crate::abi::errno::Errno;

/// Whether the kernel would pin memory for a card, to be written or to be read alone.
///
/// Costs three system calls, none of which looks at more than two pages.
///
/// # Errors
/// `EINVAL` for what no address space has, `EFAULT` for memory that is not mapped or that may not be written. Whether it may
/// be written is known of its first and its last page; before Linux 5.14 it is not known, and taken for granted.
pub(crate) fn pinnable(start: usize, len: usize, writes: bool) -> Result<(), Errno> {
    let page = rustix::param::page_size();
    let first = start & !(page - 1);
    let end = start
        .checked_add(len)
        .and_then(|end| end.checked_add(page - 1));
    let end = end.ok_or(libc::EINVAL)? & !(page - 1);
    // The kernel counts a region's pages by 32 bits.
    if len == 0 || u32::try_from((end - first) / page).is_err() {
        return Err(libc::EINVAL);
    }
    // Of memory's files nothing is written back so: the kernel only looks whether all of it is mapped. As `msync` does not,
    // this ends no thread that is being cancelled.
    // SAFETY: changes nothing.
    let is_mapped =
        unsafe { libc::syscall(libc::SYS_msync, first, end - first, libc::MS_ASYNC) } == 0;
    if !is_mapped {
        return Err(libc::EFAULT);
    }
    if writes {
        fetch(first, 1, libc::MADV_POPULATE_WRITE)?;
        fetch(end - page, 1, libc::MADV_POPULATE_WRITE)?;
    }
    Ok(())
}

/// Has pages be there, by `MADV_POPULATE_READ` or `MADV_POPULATE_WRITE`. Kernels before Linux 5.14 know neither, and fetch pages when
/// they are used.
///
/// # Errors
/// `EFAULT` for memory that is not there, or that may not be used so.
pub(crate) fn fetch(start: usize, len: usize, advice: c_int) -> Result<(), Errno> {
    match populate(start, len, advice) {
        true => Ok(()),
        // That it may not be used so is the same error as that the advice is not known.
        false if knows_populate() => Err(libc::EFAULT),
        false => Ok(()),
    }
}

fn populate(start: usize, len: usize, advice: c_int) -> bool {
    let first = start & !(rustix::param::page_size() - 1);
    // SAFETY: what the pages hold does not change.
    unsafe { libc::madvise(first as *mut c_void, start + len - first, advice) == 0 }
}

/// Whether the kernel fetches pages when it is told to.
fn knows_populate() -> bool {
    static KNOWS: OnceLock<bool> = OnceLock::new();
    *KNOWS.get_or_init(|| {
        let here = 0u8;
        populate((&raw const here).addr(), 1, libc::MADV_POPULATE_READ)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(len: usize, rights: c_int) -> usize {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at.addr()
    }

    #[test]
    fn memory_is_looked_at_to_its_end() {
        let page = rustix::param::page_size();
        let at = mapped(8 * page, libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(pinnable(at + 3, 8 * page - 3, true), Ok(()));
        assert_eq!(pinnable(at, 0, true), Err(libc::EINVAL));
        assert_eq!(pinnable(at, usize::MAX, true), Err(libc::EINVAL));
        assert_eq!(pinnable(at, 1 << 47, true), Err(libc::EINVAL));
        // SAFETY: memory of this test.
        unsafe {
            libc::munmap((at + 4 * page) as *mut c_void, page);
            libc::mprotect((at + 3 * page) as *mut c_void, page, libc::PROT_READ);
        }
        assert_eq!(
            pinnable(at, 4 * page + 1, false),
            Err(libc::EFAULT),
            "a hole"
        );
        assert_eq!(pinnable(at, 4 * page, false), Ok(()));
        if knows_populate() {
            assert_eq!(
                pinnable(at, 4 * page, true),
                Err(libc::EFAULT),
                "its last page"
            );
            assert_eq!(pinnable(at + 3 * page, 8, true), Err(libc::EFAULT));
        }
        assert_eq!(pinnable(at, 3 * page, true), Ok(()));
        // SAFETY: as above.
        unsafe { libc::munmap(at as *mut c_void, 8 * page) };
    }
}
