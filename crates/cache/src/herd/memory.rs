//! Registered memory, read and written while a NIC does the same.
//!
//! The only file of this module with unsafe code: it keeps the address of a region, so that a
//! sweep over many clients costs one load each and not a virtual call.

use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use verbs::typed::MemoryRegion;
use verbs::{Sge, mem};

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes of a word that a chunk is looked at by: an id's.
pub(super) const WORD: usize = 4;

/// A region of this process with its address at hand.
#[derive(Debug)]
pub(super) struct Memory {
    region: MemoryRegion,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the pointer is into `region`, which may be sent and shared itself; all accesses go
// through atomics and `verbs::mem`, which allow others to access the same bytes.
unsafe impl Send for Memory {}

impl Memory {
    /// Takes hold of a region.
    ///
    /// # Panics
    /// When its memory is not in this process.
    pub(super) fn new(region: MemoryRegion) -> Self {
        let base = NonNull::new(region.as_ptr()).expect("a region has an address");
        let len = region.len();
        assert!(
            (base.as_ptr() as usize).is_multiple_of(8),
            "a region is aligned to words"
        );
        Memory { region, base, len }
    }

    /// A piece for a local work request.
    pub(super) fn sge(&self, range: Range<usize>) -> Sge {
        self.region.sge(range)
    }

    /// Copies bytes in, the last bytes last.
    ///
    /// # Panics
    /// When the range is outside the region.
    #[inline]
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: the range was checked, and the region is alive as long as `self`.
        unsafe { mem::place(self.base.as_ptr().add(offset), bytes.as_ptr(), bytes.len()) };
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "outside the region"
        );
    }
}

/// Bytes that begin at a cache line: a request of one line, at the end of a slot of whole lines, then
/// touches one and not two, wherever the allocator has put them.
#[derive(Debug)]
pub(super) struct Lines(Box<[Line]>);

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

impl Lines {
    /// So many zeros, and what is left of the last line.
    pub(super) fn new(len: usize) -> Self {
        Lines(vec![Line([0; LINE]); len.div_ceil(LINE)].into())
    }
}

impl Deref for Lines {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: lines are bytes without gaps.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * LINE) }
    }
}

impl DerefMut for Lines {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and any bytes are a line.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * LINE) }
    }
}

/// A chunk: the part of a client's region that one core looks for requests in. Small, because a
/// sweep goes through those of all clients.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    base: NonNull<u8>,
    len: u32,
    _region: Arc<MemoryRegion>,
}

// SAFETY: as for `Memory`.
unsafe impl Send for Chunk {}

impl Chunk {
    /// Takes hold of a part of a region.
    ///
    /// # Panics
    /// When the memory is not in this process, or the part is not in it or not aligned to words.
    pub(super) fn new(region: Arc<MemoryRegion>, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= region.len(),
            "outside the region"
        );
        let base = region.as_ptr().wrapping_add(range.start);
        assert!(base.addr().is_multiple_of(8), "a chunk is aligned to words");
        Chunk {
            base: NonNull::new(base).expect("a region has an address"),
            len: u32::try_from(range.len()).expect("a chunk is shorter than 4 GiB"),
            _region: region,
        }
    }

    /// The word of this number: everything that its writer placed before it is visible as well.
    ///
    /// # Panics
    /// When it is outside the chunk.
    #[inline(always)]
    pub(super) fn word(&self, number: usize) -> u32 {
        assert!(number < self.len as usize / WORD, "outside the chunk");
        // SAFETY: aligned, because the base is, inside the chunk, which is inside the region, and
        // alive as long as `self`.
        let word = unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(number * WORD).cast()) };
        u32::from_le(word.load(Ordering::Acquire))
    }

    /// Copies bytes out: a snapshot that may be torn when a NIC writes at the same time.
    ///
    /// # Panics
    /// When the range is outside the chunk.
    #[inline(always)]
    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) {
        let len = self.len as usize;
        assert!(
            offset <= len && bytes.len() <= len - offset,
            "outside the chunk"
        );
        // SAFETY: the range was checked, and the region is alive as long as `self`.
        unsafe {
            mem::fetch(
                bytes.as_mut_ptr(),
                self.base.as_ptr().add(offset),
                bytes.len(),
            );
        }
    }
}
