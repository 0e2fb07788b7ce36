//! Moving the caller's memory into shared memory, where it is.
//!
//! Peers can map a file, but not somebody's private pages. So page-aligned private memory is
//! copied into a file that is then mapped over it, at the same address; the caller notices nothing.
//! On deregistration the bytes move back into private pages, because an allocator expects its
//! memory to be private.

use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};
use verbs::VerbsError;

use crate::segment::{Mapping, Source, Writers};

/// Memory of the caller that lies in a shared file for the time being.
#[derive(Debug)]
pub(crate) struct Remapped {
    start: NonNull<u8>,
    len: usize,
    /// The same bytes at another address, to copy them from when the file goes.
    twin: Mapping,
}

// SAFETY: whoever touches the memory does so through atomics and `verbs::mem`.
unsafe impl Send for Remapped {}
// SAFETY: as above.
unsafe impl Sync for Remapped {}

impl Remapped {
    /// Moves memory, and returns the file for peers. `None` for memory that cannot be moved:
    /// parts of pages, files, shared memory.
    ///
    /// The caller's promise in `Nic::register` holds here: nobody else touches the memory during
    /// the call.
    pub(crate) fn new(
        source: &Source,
        start: NonNull<u8>,
        len: usize,
        writers: Writers,
    ) -> Result<Option<(OwnedFd, Self)>, VerbsError> {
        let page = rustix::param::page_size();
        let whole = (start.as_ptr() as usize).is_multiple_of(page) && len.is_multiple_of(page);
        if !whole || !is_private(start.as_ptr() as usize, len)? {
            return Ok(None);
        }
        let file = source.open("vervain-remapped", len)?;
        let twin = Mapping::new(file.as_fd(), len, true)?;
        // SAFETY: the caller's memory is readable, the new mapping writable, both for `len` bytes.
        unsafe { std::ptr::copy_nonoverlapping(start.as_ptr(), twin.start().as_ptr(), len) };
        let (protection, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::FIXED,
        );
        let at = start.as_ptr().cast::<c_void>();
        // SAFETY: the range is whole pages of the caller's private memory, whose bytes the file
        // holds; they are the same before and after.
        unsafe { rustix::mm::mmap(at, len, protection, flags, &file, 0) }
            .map_err(|e| VerbsError::io("moving memory into shared memory", e))?;
        let file = source.for_peers(file, writers)?;
        Ok(Some((file, Remapped { start, len, twin })))
    }
}

impl Drop for Remapped {
    fn drop(&mut self) {
        let (protection, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::FIXED,
        );
        let at = self.start.as_ptr().cast::<c_void>();
        // SAFETY: the range is the one that was moved; the bytes are copied back below, before
        // anybody can look: deregistering is the owner's own act.
        match unsafe { rustix::mm::mmap_anonymous(at, self.len, protection, flags) } {
            // SAFETY: both ranges have `len` bytes and do not overlap.
            Ok(_) => unsafe {
                std::ptr::copy_nonoverlapping(
                    self.twin.start().as_ptr(),
                    self.start.as_ptr(),
                    self.len,
                );
            },
            // The memory stays what it is: shared, and whole.
            Err(error) => tracing::warn!(%error, "memory stays in a shared file"),
        }
    }
}

/// Whether a range is private anonymous memory, readable and writable, all of it.
fn is_private(start: usize, len: usize) -> Result<bool, VerbsError> {
    let maps = std::fs::read_to_string("/proc/self/maps")
        .map_err(|e| VerbsError::io("reading /proc/self/maps", e))?;
    Ok(covers(&maps, start, start + len))
}

/// Whether the lines of a maps file cover `from..to` with such memory.
fn covers(maps: &str, from: usize, to: usize) -> bool {
    let mut reached = from;
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(rights), _, _, Some(inode)) = (
            words.next(),
            words.next(),
            words.next(),
            words.next(),
            words.next(),
        ) else {
            return false;
        };
        let Some((begin, end)) = range.split_once('-') else {
            return false;
        };
        let (Ok(begin), Ok(end)) = (
            usize::from_str_radix(begin, 16),
            usize::from_str_radix(end, 16),
        ) else {
            return false;
        };
        if end <= reached || begin >= to {
            continue;
        }
        let name = words.next().unwrap_or("");
        // A stack grows by faults below it, which a shared mapping in its way would break.
        let plain = name.is_empty() || name == "[heap]" || name.starts_with("[anon:");
        if begin > reached || !rights.starts_with("rw") || !rights.ends_with('p') {
            return false;
        }
        if inode != "0" || !plain {
            return false;
        }
        reached = end;
    }
    reached >= to
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0 [heap]
3000-4000 rw-p 00000000 00:00 0
4000-5000 r--p 00000000 00:00 0
5000-6000 rw-s 00000000 00:01 77 /memfd:x (deleted)
7000-8000 rw-p 00001000 08:01 99 /lib/x.so
8000-9000 rw-p 00000000 00:00 0 [stack]
9000-a000 rw-p 00000000 00:00 0 [anon:pool]
";

    #[test]
    fn only_private_anonymous_memory_can_be_moved() {
        for (from, to, expected) in [
            (0x1000, 0x4000, true),
            (0x2000, 0x3800, true),
            (0x3000, 0x5000, false),
            (0x5000, 0x6000, false),
            (0x6000, 0x7000, false),
            (0x7000, 0x8000, false),
            (0x8000, 0x9000, false),
            (0x9000, 0xa000, true),
            (0x9000, 0xb000, false),
        ] {
            assert_eq!(covers(MAPS, from, to), expected, "{from:x}-{to:x}");
        }
        assert!(!covers("nonsense", 0, 1));
    }
}
