//! The program's bytes, read so that memory which is not there does no harm.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use verbs::Sge;
use xxhash_rust::xxh3::xxh3_64;

use crate::process::Kept;
use crate::process::generation;

/// Requests of no more bytes are read as a whole; of others so many are.
const WHOLE: usize = 64 << 10;
/// Pieces of a long request that are read, spread evenly over it.
const PIECES: usize = 16;
const PIECE: usize = WHOLE / PIECES;

thread_local! {
    /// What was read last.
    static BYTES: RefCell<Kept<Vec<u8>>> = const { RefCell::new(Kept::new(Vec::new())) };
}

/// This process's number, which costs a system call to ask for. A child has another one.
fn this_process() -> libc::pid_t {
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    let generation = u64::from(generation()) << 32;
    let known = KNOWN.load(Ordering::Relaxed);
    if known != 0 && known & !u64::from(u32::MAX) == generation {
        return known as u32 as libc::pid_t;
    }
    let process = std::process::id();
    KNOWN.store(generation | u64::from(process), Ordering::Relaxed);
    process as libc::pid_t
}

/// What is read of a request's bytes: pieces of its elements.
fn pieces(elements: &[Sge]) -> Vec<libc::iovec> {
    let piece = |addr: u64, len: usize| libc::iovec {
        iov_base: addr as *mut c_void,
        iov_len: len,
    };
    let total: usize = elements.iter().map(|sge| sge.len as usize).sum();
    if total <= WHOLE {
        let whole = elements.iter().map(|sge| piece(sge.addr, sge.len as usize));
        return whole.collect();
    }
    let mut pieces = Vec::with_capacity(PIECES);
    // Where the next piece begins, the last of which ends with the request.
    let starts = (0..PIECES).map(|number| (total - PIECE) * number / (PIECES - 1));
    let mut starts = starts.peekable();
    // The end of the piece that goes on in the next element.
    let mut goes_on = 0;
    let mut before = 0;
    for sge in elements {
        let end = before + sge.len as usize;
        let mut part = |from: usize, to: usize| {
            let addr = sge.addr.wrapping_add((from - before) as u64);
            pieces.push(piece(addr, to - from));
        };
        if goes_on > before {
            part(before, goes_on.min(end));
        }
        while let Some(start) = starts.next_if(|start| *start < end) {
            goes_on = start + PIECE;
            part(start, goes_on.min(end));
        }
        before = end;
    }
    pieces
}

/// A hash of the bytes that elements name, or of parts where there are many; `None` when some are not there.
///
/// Cost: a system call, and a copy of at most 64 KiB.
pub(super) fn hash(elements: &[Sge]) -> Option<u64> {
    let pieces = pieces(elements);
    let len = pieces.iter().map(|piece| piece.iov_len).sum();
    let read = |bytes: &mut Vec<u8>| {
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        let local = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: len,
        };
        // By the kernel, which finds out whether they are there.
        // SAFETY: the kernel checks the ranges there, and there is room for all of them here.
        let copied = unsafe {
            let (there, count) = (pieces.as_ptr(), pieces.len() as u64);
            libc::process_vm_readv(this_process(), &raw const local, 1, there, count, 0)
        };
        (usize::try_from(copied) == Ok(len)).then(|| xxh3_64(&bytes[..len]))
    };
    let read_before = BYTES.try_with(|bytes| Some(read(&mut *bytes.try_borrow_mut().ok()?)));
    match read_before {
        Ok(Some(hash)) => hash,
        // The thread ends, or this is a signal's handler.
        _ => read(&mut Vec::new()),
    }
}

/// Whether all pages of a range are mapped. They may be others than those of before.
pub(super) fn are_mapped(start: usize, len: usize) -> bool {
    let page = rustix::param::page_size();
    let first = start & !(page - 1);
    let Some(end) = start
        .checked_add(len)
        .and_then(|end| end.checked_next_multiple_of(page))
    else {
        return false;
    };
    let len = end - first;
    // SAFETY: writes nothing: the kernel looks for the mappings, and there is nothing to do for memory.
    let done = unsafe { libc::msync(first as *mut c_void, len, libc::MS_ASYNC) };
    done == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(bytes: &[u8]) -> Sge {
        Sge {
            addr: bytes.as_ptr().expose_provenance() as u64,
            len: bytes.len() as u32,
            ..Sge::default()
        }
    }

    #[test]
    fn every_byte_of_a_short_request_counts() {
        let mut bytes = vec![0; WHOLE];
        let parts = |bytes: &[u8]| [element(&bytes[..100]), element(&bytes[100..])];
        let before = hash(&parts(&bytes)).expect("there");
        for at in [0, 99, 100, WHOLE - 1] {
            bytes[at] ^= 1;
            assert_ne!(hash(&parts(&bytes)), Some(before), "byte {at}");
            bytes[at] ^= 1;
        }
        assert_eq!(hash(&parts(&bytes)), Some(before));
    }

    #[test]
    fn both_ends_of_a_long_request_count_however_it_is_cut() {
        let mut bytes = vec![0; 3 << 20];
        let last = bytes.len() - 1;
        for cuts in [
            [1 << 20, 2 << 20],
            // Pieces go on over elements that are shorter than they are.
            [16, last],
            [last - 20, last - 9],
            [7, 30],
        ] {
            let parts = |bytes: &[u8]| {
                let [first, second] = cuts;
                let ends = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                ends.map(element)
            };
            let before = hash(&parts(&bytes)).expect("there");
            for at in [0, 20, PIECE - 1, last - PIECE + 1, last - 12, last] {
                bytes[at] ^= 1;
                assert_ne!(hash(&parts(&bytes)), Some(before), "{cuts:?}, byte {at}");
                bytes[at] ^= 1;
            }
            assert_eq!(hash(&parts(&bytes)), Some(before));
        }
    }

    #[test]
    fn memory_that_is_not_there_has_no_hash() {
        let nowhere = Sge {
            addr: 8,
            len: 8,
            ..Sge::default()
        };
        assert_eq!(hash(&[nowhere]), None);
        assert!(!are_mapped(8, 8));
        assert!(!are_mapped(usize::MAX, 8));
        assert!(are_mapped((&raw const nowhere).addr(), size_of::<Sge>()));
    }
}
