//! Shared memory: anonymous files, sealed against shrinking, and their mappings.

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags};
use verbs::VerbsError;

/// A mapped piece of shared memory. Unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// Bytes before its start that are mapped as well, because a mapping is whole pages.
    lead: usize,
    writable: bool,
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
        Mapping::from(file, 0, len, writable)
    }

    /// Maps `len` bytes of a file from an offset on.
    fn from(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        writable: bool,
    ) -> Result<Self, VerbsError> {
        let lead = (offset % rustix::param::page_size() as u64) as usize;
        let whole = len.saturating_add(lead);
        let protection = if writable {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice changes no existing memory.
        let start = unsafe {
            let (anywhere, from) = (std::ptr::null_mut(), offset - lead as u64);
            rustix::mm::mmap(anywhere, whole, protection, flags, file, from)
        }
        .map_err(|e| VerbsError::io("mapping shared memory", e))?;
        let start = start.cast::<u8>().wrapping_add(lead);
        let start = NonNull::new(start).expect("the kernel maps nothing at address 0");
        Ok(Mapping {
            start,
            len,
            lead,
            writable,
        })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Gives the memory behind whole pages of the mapping back; they read as zeros afterwards.
    pub(crate) fn discard(&self, addr: usize, len: usize) -> rustix::io::Result<()> {
        let offset = addr - self.start.as_ptr().addr();
        assert!(offset <= self.len && len <= self.len - offset);
        let at = self.start.as_ptr().wrapping_add(offset).cast();
        // SAFETY: the range lies in this mapping, whose users expect any bytes at any time.
        unsafe { rustix::mm::madvise(at, len, rustix::mm::Advice::LinuxRemove) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let first = self.start.as_ptr().wrapping_sub(self.lead);
        // SAFETY: the range is this mapping's own, and nobody holds it any more.
        let unmapped = unsafe { rustix::mm::munmap(first.cast::<c_void>(), self.lead + self.len) };
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

/// Where shared memory comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// Anonymous files, sealed.
    Memfd,
    /// Unnamed files in a directory, which nothing keeps a peer from cutting short.
    Directory(PathBuf),
}

impl Source {
    /// Anonymous files, unless the kernel refuses them or they are not wanted; then unnamed files
    /// in shared memory, or in the run directory.
    pub(crate) fn choose(memfd: bool, run_dir: &Path) -> Self {
        let refusal = match memfd.then(|| memfd_create("vervain-probe", MemfdFlags::CLOEXEC)) {
            Some(Ok(_)) => return Source::Memfd,
            Some(Err(e)) => e.to_string(),
            None => "not wanted".into(),
        };
        let shm = Path::new("/dev/shm");
        let place = if shm.is_dir() { shm } else { run_dir };
        let directory = place.to_path_buf();
        tracing::warn!(
            refusal,
            directory = %directory.display(),
            "no memfd: shared memory lies in unnamed files, and a peer's truncation could end this \
             process"
        );
        Source::Directory(directory)
    }

    /// Makes a file of zeros of `len` bytes and maps it. A memfd can neither shrink nor grow from
    /// then on, so that nobody who maps it can be made to touch memory beyond its end. The
    /// descriptor is the one to give to peers.
    pub(crate) fn create(
        &self,
        name: &str,
        len: usize,
        writers: Writers,
    ) -> Result<(OwnedFd, Mapping), VerbsError> {
        let file = self.open(name, len)?;
        let mapping = Mapping::new(file.as_fd(), len, true)?;
        Ok((self.for_peers(file, writers)?, mapping))
    }

    /// A file of zeros.
    pub(crate) fn open(&self, name: &str, len: usize) -> Result<OwnedFd, VerbsError> {
        let file = match self {
            Source::Memfd => {
                let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
                memfd_create(name, flags)
                    .map_err(|e| VerbsError::io("creating shared memory (memfd_create)", e))?
            }
            Source::Directory(directory) => {
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
                rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)
                    .map_err(|e| VerbsError::io("creating shared memory (O_TMPFILE)", e))?
            }
        };
        rustix::fs::ftruncate(&file, len as u64)
            .map_err(|e| VerbsError::io("sizing shared memory", e))?;
        Ok(file)
    }

    /// Seals a file that has all its writable mappings, and returns the descriptor for peers.
    pub(crate) fn for_peers(&self, file: OwnedFd, writers: Writers) -> Result<OwnedFd, VerbsError> {
        match self {
            Source::Memfd => {
                let mut seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
                seals.set(SealFlags::FUTURE_WRITE, writers == Writers::Owner);
                rustix::fs::fcntl_add_seals(&file, seals)
                    .map_err(|e| VerbsError::io("sealing shared memory", e))?;
                Ok(file)
            }
            Source::Directory(_) if writers == Writers::Owner => {
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                    .map_err(|e| VerbsError::io("opening shared memory for reading", e))
            }
            Source::Directory(_) => Ok(file),
        }
    }

    /// A descriptor for peers of a file that the caller has made, which must have so many bytes and not
    /// shrink. Peers that may only read get one that only reads; a hostile one can open it anew, because
    /// the file cannot be sealed: its owner may want to map it again.
    pub(crate) fn of_caller(
        &self,
        file: BorrowedFd<'_>,
        len: Option<u64>,
        writers: Writers,
    ) -> Result<OwnedFd, VerbsError> {
        let stat = rustix::fs::fstat(file)
            .map_err(|e| VerbsError::io("asking for the size of shared memory", e))?;
        if len.is_none_or(|len| (stat.st_size as u64) < len) {
            let why = "it ends before the region does";
            return Err(VerbsError::invalid("file of a memory region", why));
        }
        if *self == Source::Memfd {
            let seals = rustix::fs::fcntl_get_seals(file)
                .map_err(|e| VerbsError::io("asking for the seals of shared memory", e))?;
            if !seals.contains(SealFlags::SHRINK) {
                let why = "it is not sealed against shrinking, and peers would not map it";
                return Err(VerbsError::invalid("file of a memory region", why));
            }
        }
        let made = match writers {
            Writers::Everybody => rustix::io::fcntl_dupfd_cloexec(file, 0),
            Writers::Owner => {
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            }
        };
        made.map_err(|e| VerbsError::io("making a descriptor of shared memory", e))
    }

    /// Checks that a file from a peer has at least `len` bytes and cannot shrink, and maps it.
    pub(crate) fn map_foreign(
        &self,
        file: BorrowedFd<'_>,
        len: usize,
        writable: bool,
    ) -> Result<Mapping, VerbsError> {
        self.map_part(file, 0, len, writable)
    }

    /// The same for so many bytes from an offset on.
    pub(crate) fn map_part(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        writable: bool,
    ) -> Result<Mapping, VerbsError> {
        // Where we have no seals ourselves, we cannot ask them of others.
        if *self == Source::Memfd {
            let seals = rustix::fs::fcntl_get_seals(file)
                .map_err(|e| VerbsError::io("asking for a peer's seals", e))?;
            if !seals.contains(SealFlags::SHRINK) {
                let why = "it is not sealed against shrinking";
                return Err(VerbsError::invalid("peer's shared memory", why));
            }
            // Huge pages have seals as well, but touching them fails when there are none left.
            let system = rustix::fs::fstatfs(file)
                .map_err(|e| VerbsError::io("asking for a peer's file system", e))?;
            if system.f_type != libc::TMPFS_MAGIC {
                let why = "it is not a memfd of ordinary pages";
                return Err(VerbsError::invalid("peer's shared memory", why));
            }
        }
        let stat =
            rustix::fs::fstat(file).map_err(|e| VerbsError::io("asking for a peer's size", e))?;
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| (stat.st_size as u64) < end) {
            let bytes = stat.st_size;
            let why = format!("{bytes} bytes where {len} were announced from {offset} on");
            return Err(VerbsError::invalid("peer's shared memory", why));
        }
        Mapping::from(file, offset, len, writable)
    }
}
