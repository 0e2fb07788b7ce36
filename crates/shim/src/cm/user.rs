//! The program's memory. The kernel refuses addresses that are none (`EFAULT`), so this does: it has the kernel copy.

use std::ffi::c_void;

use crate::abi::errno::Errno;

/// Copies from the program's memory.
///
/// # Safety
/// `at` is good for `len` bytes, or is nothing that can be read.
pub(super) unsafe fn read(at: u64, len: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0u8; len];
    let (ours, theirs) = vectors(bytes.as_mut_ptr() as u64, at, len);
    // SAFETY: of this process; ours is as long as it says, and of theirs the kernel finds out.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &ours, 1, &theirs, 1, 0) };
    match outcome(copied, len)? {
        Copied::All => {}
        // SAFETY: the caller's promise.
        Copied::Forbidden => unsafe {
            std::ptr::copy_nonoverlapping(at as *const u8, bytes.as_mut_ptr(), len);
        },
    }
    Ok(bytes)
}

/// Copies to the program's memory.
///
/// # Safety
/// `at` is good for as many bytes, which nobody else uses now, or is nothing that can be written.
pub(super) unsafe fn write(at: u64, bytes: &[u8]) -> Result<(), Errno> {
    let (ours, theirs) = vectors(bytes.as_ptr() as u64, at, bytes.len());
    // SAFETY: as in `read`.
    let copied = unsafe { libc::process_vm_writev(libc::getpid(), &ours, 1, &theirs, 1, 0) };
    match outcome(copied, bytes.len())? {
        Copied::All => {}
        // SAFETY: the caller's promise.
        Copied::Forbidden => unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len());
        },
    }
    Ok(())
}

enum Copied {
    All,
    /// A filter of system calls does not let us ask the kernel.
    Forbidden,
}

fn vectors(ours: u64, theirs: u64, len: usize) -> (libc::iovec, libc::iovec) {
    let vector = |at: u64| libc::iovec {
        iov_base: at as *mut c_void,
        iov_len: len,
    };
    (vector(ours), vector(theirs))
}

fn outcome(copied: isize, len: usize) -> Result<Copied, Errno> {
    if copied == len as isize {
        return Ok(Copied::All);
    }
    let errno = std::io::Error::last_os_error().raw_os_error();
    match errno.filter(|_| copied < 0) {
        Some(libc::EPERM | libc::ENOSYS) => Ok(Copied::Forbidden),
        _ => Err(libc::EFAULT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_addresses_are_refused() {
        // SAFETY: nothing is mapped at such addresses.
        unsafe {
            assert_eq!(write(0, &[1, 2, 3]), Err(libc::EFAULT));
            assert_eq!(read(8, 16), Err(libc::EFAULT));
            assert_eq!(read(u64::MAX - 4, 16), Err(libc::EFAULT));
        }
    }

    #[test]
    fn good_ones_are_copied() {
        let mut room = [0u8; 4];
        // SAFETY: `room` is there, and nobody else's.
        unsafe {
            write(room.as_mut_ptr() as u64, &[1, 2, 3]).expect("copied");
            assert_eq!(read(room.as_ptr() as u64, 4), Ok(vec![1, 2, 3, 0]));
        }
    }
}
