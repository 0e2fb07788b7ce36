//! Memory that the reference NIC reads and writes.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use verbs::mem;
use verbs::names::Iova;

/// Registered memory: allocated here, or the caller's.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    start: NonNull<u8>,
    len: usize,
    iova: Iova,
    /// Keeps allocated memory alive; the caller keeps its own.
    _own: Option<Arc<[AtomicU64]>>,
}

// SAFETY: the memory is only accessed through `mem` and atomics, which is allowed from any thread;
// it is valid as long as the region by `allocate` or by the promise made to `borrow`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed memory that starts on a cache line.
    pub(super) fn allocate(len: usize) -> Memory {
        // Seven words more leave room to start on a line.
        let words: Arc<[AtomicU64]> = (0..len.div_ceil(8) + 7)
            .map(|_| AtomicU64::new(0))
            .collect();
        let first = words.as_ptr().cast::<u8>().cast_mut();
        let start = first.wrapping_add(first.align_offset(64));
        let start = NonNull::new(start).expect("an allocation is not at address zero");
        Memory {
            start,
            len,
            iova: Iova::of(start),
            _own: Some(words),
        }
    }

    /// The caller's memory, under addresses of its choice.
    ///
    /// # Safety
    /// As [`verbs::nic::Nic::register`].
    pub(super) unsafe fn borrow(start: NonNull<u8>, len: usize, iova: Iova) -> Memory {
        Memory {
            start,
            len,
            iova,
            _own: None,
        }
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The address of its first byte in work requests.
    pub(super) fn addr(&self) -> u64 {
        self.iova.0
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "outside the region"
        );
        self.start.as_ptr().wrapping_add(offset)
    }

    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.at(offset, bytes.len());
        // SAFETY: `at` checked the range, and the memory is valid while it is registered.
        unsafe { mem::fetch(bytes.as_mut_ptr(), from, bytes.len()) };
    }

    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: `at` checked the range, and the memory is valid while it is registered.
        unsafe { mem::place(to, bytes.as_ptr(), bytes.len()) };
    }

    /// Replaces an aligned word and returns the value before.
    pub(super) fn update(&self, offset: usize, change: impl Fn(u64) -> u64) -> u64 {
        let word = self.at(offset, 8);
        assert!((word as usize).is_multiple_of(8), "not aligned");
        // SAFETY: `at` checked the range, the word is aligned, and concurrent accesses go through
        // atomics or `mem`.
        let word = unsafe { AtomicU64::from_ptr(word.cast()) };
        match word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(change(old))) {
            Ok(old) | Err(old) => old,
        }
    }
}
