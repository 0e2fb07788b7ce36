//! Shared memory: anonymous files, sealed against shrinking, and their mappings.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use verbs::VerbsError;

/// A mapped piece of shared memory. Unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is plain memory of the process; whoever touches it does so through atomics
// and `verbs::mem`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file.
    pub(crate) fn new(
        file: BorrowedFd<'_>,
        len: usize,
        writable: bool,
    ) -> Result<Self, VerbsError> {
        let protection = if writable {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice changes no existing memory.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, file, 0) }
                .map_err(|e| VerbsError::io("mapping shared memory", e))?;
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at address 0");
        Ok(Mapping { start, len })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own, and nobody holds it any more.
        let unmapped =
            unsafe { rustix::mm::munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
        debug_assert!(unmapped.is_ok(), "unmapping one's own mapping");
    }
}

/// Who may map a shared file writable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writers {
    /// Its owner only.
    Owner,
    /// Peers as well.
    Everybody,
}

/// Makes a file of zeros of `len` bytes and maps it. It can neither shrink nor grow, so that nobody
/// who maps it can be made to touch memory beyond its end.
pub(crate) fn create(
    name: &str,
    len: usize,
    writers: Writers,
) -> Result<(OwnedFd, Mapping), VerbsError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(name, flags)
        .map_err(|e| VerbsError::io("creating shared memory (memfd_create)", e))?;
    rustix::fs::ftruncate(&file, len as u64)
        .map_err(|e| VerbsError::io("sizing shared memory", e))?;
    let mapping = Mapping::new(file.as_fd(), len, true)?;
    let mut seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    seals.set(SealFlags::FUTURE_WRITE, writers == Writers::Owner);
    rustix::fs::fcntl_add_seals(&file, seals)
        .map_err(|e| VerbsError::io("sealing shared memory", e))?;
    Ok((file, mapping))
}

/// Checks that a file from a peer has at least `len` bytes and cannot shrink, and maps it.
pub(crate) fn map_foreign(
    file: &OwnedFd,
    len: usize,
    writable: bool,
) -> Result<Mapping, VerbsError> {
    let seals = rustix::fs::fcntl_get_seals(file)
        .map_err(|e| VerbsError::io("asking for a peer's seals", e))?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(VerbsError::invalid(
            "peer's shared memory",
            "it is not sealed against shrinking",
        ));
    }
    let stat =
        rustix::fs::fstat(file).map_err(|e| VerbsError::io("asking for a peer's size", e))?;
    if (stat.st_size as u64) < len as u64 {
        let why = format!("{} bytes where {len} were announced", stat.st_size);
        return Err(VerbsError::invalid("peer's shared memory", why));
    }
    Mapping::new(file.as_fd(), len, writable)
}

/// Gives the memory behind a range of the file back; it reads as zeros afterwards.
pub(crate) fn punch(file: BorrowedFd<'_>, offset: u64, len: u64) -> rustix::io::Result<()> {
    use rustix::fs::FallocateFlags;
    rustix::fs::fallocate(
        file,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        offset,
        len,
    )
}
