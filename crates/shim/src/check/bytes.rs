//! The program's bytes, read so that memory which is not there does no harm.

use std::os::raw::c_void;

use verbs::Sge;
use xxhash_rust::xxh3::Xxh3;

/// Bytes that are read in one go.
const CHUNK: usize = 16 << 10;
/// Elements of no more bytes are read as a whole; of others their beginning, their end, and pieces in between.
const WHOLE: u64 = 64 << 10;
/// Pieces of a long element that are read.
const PIECES: u64 = 8;

/// Reads memory of this process, by the kernel; false where it is not there, or may not be read.
fn read(addr: u64, to: &mut [u8]) -> bool {
    let local = libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: to.len(),
    };
    let remote = libc::iovec {
        iov_base: addr as *mut c_void,
        iov_len: to.len(),
    };
    // SAFETY: the kernel checks the one range, and the other is the buffer.
    let copied = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    usize::try_from(copied) == Ok(to.len())
}

/// A hash of the bytes that elements name; `None` when some are not there.
///
/// Cost: a system call and a copy for each 16 KiB that is read, which are at most 128 KiB of an element.
pub(super) fn hash(elements: &[Sge]) -> Option<u64> {
    let mut hash = Xxh3::new();
    let mut buffer = [0; CHUNK];
    let mut take = |from: u64, len: u64| {
        let mut at = from;
        while at < from + len {
            let part = &mut buffer[..(from + len - at).min(CHUNK as u64) as usize];
            if !read(at, part) {
                return false;
            }
            hash.update(part);
            at += part.len() as u64;
        }
        true
    };
    for sge in elements {
        let len = u64::from(sge.len);
        if len <= WHOLE {
            if !take(sge.addr, len) {
                return None;
            }
            continue;
        }
        let piece = CHUNK as u64;
        for number in 0..PIECES {
            let at = (len - piece) / (PIECES - 1) * number;
            let at = if number == PIECES - 1 {
                len - piece
            } else {
                at
            };
            if !take(sge.addr + at, piece) {
                return None;
            }
        }
    }
    Some(hash.digest())
}

/// Whether all pages of a range are mapped. They may be others than those of before.
pub(super) fn are_mapped(start: usize, len: usize) -> bool {
    let page = rustix::param::page_size();
    let first = start & !(page - 1);
    let len = (start + len).next_multiple_of(page) - first;
    // SAFETY: writes nothing: the kernel looks for the mappings, and there is nothing to do for memory.
    let done = unsafe { libc::msync(first as *mut c_void, len, libc::MS_ASYNC) };
    done == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM)
}
