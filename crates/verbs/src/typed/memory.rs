//! Memory regions and pieces of them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::ProtectionDomain;
use crate::names::{Lkey, RemoteAddr, Rkey};
use crate::nic::NicMr;
use crate::wr::Sge;

/// Registered memory. Cloning shares it; the last clone deregisters it.
#[derive(Clone, Debug)]
pub struct MemoryRegion {
    mr: Arc<dyn NicMr>,
    pd: ProtectionDomain,
    // What a region says of itself it always says, so that nothing of it is asked per request.
    addr: u64,
    len: usize,
    lkey: Lkey,
    rkey: Rkey,
}

impl MemoryRegion {
    pub(crate) fn new(mr: Arc<dyn NicMr>, pd: ProtectionDomain) -> Self {
        let (addr, len, lkey, rkey) = (mr.addr(), mr.len(), mr.lkey(), mr.rkey());
        MemoryRegion {
            mr,
            pd,
            addr,
            len,
            lkey,
            rkey,
        }
    }

    /// Its protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Its length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes; regions always have some.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key for local use.
    pub fn lkey(&self) -> Lkey {
        self.lkey
    }

    /// The key for peers.
    pub fn rkey(&self) -> Rkey {
        self.rkey
    }

    /// A piece of it for a local work request.
    ///
    /// # Panics
    /// When the range is outside the region, or longer than 4 GiB.
    #[inline]
    pub fn sge(&self, range: Range<usize>) -> Sge {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "outside the region"
        );
        let len = u32::try_from(range.len()).expect("an element is shorter than 4 GiB");
        Sge {
            addr: self.addr + range.start as u64,
            len,
            lkey: self.lkey,
        }
    }

    /// The address of its byte `offset`, for peers.
    ///
    /// # Panics
    /// When `offset` is outside the region.
    #[inline]
    pub fn remote(&self, offset: usize) -> RemoteAddr {
        assert!(offset <= self.len, "outside the region");
        RemoteAddr {
            addr: self.addr + offset as u64,
            rkey: self.rkey,
        }
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// When the range is outside the region.
    #[inline]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.mr.read(offset, bytes);
    }

    /// Copies bytes in, the last bytes last.
    ///
    /// # Panics
    /// When the range is outside the region.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.mr.write(offset, bytes);
    }

    /// The first byte in this process, for code that does its own copying; accesses that race with
    /// a NIC must go through [`crate::mem`] or atomics.
    ///
    /// # Panics
    /// When the memory lives in another process.
    pub fn as_ptr(&self) -> *mut u8 {
        self.mr
            .base()
            .expect("the region's memory is in this process")
            .as_ptr()
    }

    /// An aligned 8-byte word of it, to be polled.
    ///
    /// # Panics
    /// When the word is not aligned or outside the region.
    #[inline]
    pub fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
        let word = self.word(offset, 8);
        // SAFETY: inside the region, aligned, and alive as long as `self`; concurrent accesses are
        // atomic or come from a NIC.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    /// An aligned 4-byte word of it, to be polled.
    ///
    /// # Panics
    /// When the word is not aligned or outside the region.
    #[inline]
    pub fn atomic_u32(&self, offset: usize) -> &AtomicU32 {
        let word = self.word(offset, 4);
        // SAFETY: as in `atomic_u64`.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    #[inline]
    fn word(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= self.len() && len <= self.len() - offset,
            "outside the region"
        );
        let word = self.as_ptr().wrapping_add(offset);
        assert!((word as usize).is_multiple_of(len), "not aligned");
        word
    }
}
