//! Files and drives: opening, and by which calls they are used.

use std::fmt;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Once};

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, StatxFlags,
};
use rustix::io::Errno;
use thiserror::Error;

use super::aio::Aio;
use super::sync::Blocking;
use super::threads::Threads;
use super::uring::Uring;
use super::{BlockError, Device, Geometry, Queue};

/// Larger requests are split. The kernel's own limit is 2 GiB less a page, beyond which it cuts
/// transfers short; pieces of this size keep a long transfer from holding up everything else.
const IO_MAX: u32 = 1 << 20;
/// What is assumed of a file that does not tell (kernels before 6.1).
const BLOCK_UNKNOWN: u32 = 4096;
/// The least that devices are addressed by.
const SECTOR: u32 = 512;

/// By which calls a file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// io_uring: what a core submits in a turn is one system call, completions are none.
    Uring,
    /// Linux AIO: the same, where io_uring is refused.
    Aio,
    /// A pool of threads, one call each.
    Threads,
    /// The calling thread makes each call when the disk is polled, one after the other.
    Blocking,
}

impl Engine {
    /// All of them, the best first.
    pub const ALL: [Self; 4] = [Self::Uring, Self::Aio, Self::Threads, Self::Blocking];

    /// Its name on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Aio => "aio",
            Self::Threads => "threads",
            Self::Blocking => "blocking",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Not the name of an [`Engine`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("unknown engine {0:?} (known: uring, aio, threads, blocking)")]
pub struct UnknownEngine(String);

impl FromStr for Engine {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<Self, UnknownEngine> {
        let engine = Self::ALL.into_iter().find(|engine| engine.name() == name);
        engine.ok_or_else(|| UnknownEngine(name.to_owned()))
    }
}

/// Whether the system's page cache is between us and the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// `O_DIRECT` where the file supports it; otherwise through the page cache, with a warning.
    #[default]
    Avoid,
    /// `O_DIRECT`, or an error.
    Refuse,
    /// Through the page cache.
    Use,
}

/// How to open a file or a drive.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// By which calls; `None` takes the best that the system has.
    pub engine: Option<Engine>,
    /// Whether the page cache may be used.
    pub caching: Caching,
    /// The length of a file that does not exist yet, or is empty; its space is allocated at once. A
    /// file that exists must have this length.
    pub create_len: Option<u64>,
}

impl Options {
    /// A file or drive that exists.
    #[must_use]
    pub fn existing() -> Self {
        Self::default()
    }

    /// A file of `len` bytes, created if there is none.
    #[must_use]
    pub fn create(len: u64) -> Self {
        Self {
            create_len: Some(len),
            ..Self::default()
        }
    }

    /// By these calls.
    #[must_use]
    pub fn with_engine(mut self, engine: Engine) -> Self {
        self.engine = Some(engine);
        self
    }

    /// With or without the page cache.
    #[must_use]
    pub fn with_caching(mut self, caching: Caching) -> Self {
        self.caching = caching;
        self
    }
}

/// A file or a drive. Locked for as long as it or a queue of it lives: nobody else opens it as a device
/// meanwhile.
#[derive(Clone, Debug)]
pub struct FileDevice {
    file: Arc<OpenFile>,
    engine: Engine,
}

/// An open file, shared by the queues on it.
#[derive(Debug)]
pub(super) struct OpenFile {
    fd: OwnedFd,
    name: Arc<str>,
    geometry: Geometry,
    physical_block: u32,
    is_direct: bool,
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // A ring that was closed goes on holding its file for a while; the lock must not wait for that.
        // The descriptor is ours and locked, so nothing can fail.
        let _ = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
    }
}

impl FileDevice {
    /// Opens a regular file or a block device.
    ///
    /// # Errors
    /// If another process has it open as a device, if a drive is mounted, if the file is neither
    /// there nor to be created, or of another length than asked for; and whatever the system says.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self, BlockError> {
        let path = path.as_ref();
        let file = Arc::new(Opening { path, options }.open()?);
        let engine = options.engine.unwrap_or_else(|| best_engine(&file));
        Ok(Self { file, engine })
    }

    /// By which calls it is used.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// The same file by other calls; queues that are open keep theirs.
    #[must_use]
    pub fn with_engine(&self, engine: Engine) -> Self {
        Self {
            file: self.file.clone(),
            engine,
        }
    }

    /// Whether transfers bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.file.is_direct
    }
}

impl Device for FileDevice {
    fn name(&self) -> Arc<str> {
        self.file.name.clone()
    }

    fn geometry(&self) -> Geometry {
        self.file.geometry
    }

    fn physical_block(&self) -> u32 {
        self.file.physical_block
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, BlockError> {
        let file = self.file.clone();
        let engine = self.engine;
        let queue: Result<Box<dyn Queue>, _> = match engine {
            Engine::Uring => Uring::new(file, depth).map(|queue| Box::new(queue) as _),
            Engine::Aio => Aio::new(file, depth).map(|queue| Box::new(queue) as _),
            Engine::Threads => Threads::new(file, depth).map(|queue| Box::new(queue) as _),
            Engine::Blocking => Ok(Box::new(Blocking::new(file, depth))),
        };
        queue.map_err(|(doing, source)| BlockError::Queue {
            device: self.name(),
            engine: engine.name(),
            doing,
            depth,
            source,
        })
    }
}

/// A file on its way to being open.
struct Opening<'a> {
    path: &'a Path,
    options: &'a Options,
}

impl Opening<'_> {
    fn open(&self) -> Result<OpenFile, BlockError> {
        let (fd, mut is_direct) = self.open_fd()?;
        // Before anything is changed.
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(BlockError::InUse {
                    path: self.path.to_owned(),
                });
            }
            Err(source) => return Err(self.failed("lock", source)),
        }
        let stat = rustix::fs::fstat(&fd).map_err(|errno| self.failed("examine", errno))?;
        let len = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.file_len(&fd, stat.st_size.try_into().unwrap_or(0))?,
            FileType::BlockDevice => rustix::fs::seek(&fd, SeekFrom::End(0))
                .map_err(|errno| self.failed("find the size of", errno))?,
            _ => return Err(self.unsuitable("it is neither a file nor a block device".into())),
        };
        let mut block = SECTOR;
        if is_direct {
            match direct_block(&fd) {
                Some(found) => block = found,
                None => {
                    self.without_direct()?;
                    is_direct = false;
                    rustix::fs::fcntl_setfl(&fd, OFlags::empty())
                        .map_err(|errno| self.failed("switch off O_DIRECT for", errno))?;
                }
            }
        }
        let len = len - len % u64::from(block);
        if len == 0 {
            return Err(self.unsuitable(format!("it has less than a block of {block} bytes")));
        }
        Ok(OpenFile {
            fd,
            name: self.path.display().to_string().into(),
            geometry: Geometry {
                len,
                block,
                io_max: IO_MAX,
                boundary: None,
            },
            physical_block: physical_block(&stat).unwrap_or(0).max(block),
            is_direct,
        })
    }

    /// Opens the file, with `O_DIRECT` if that is wanted and possible.
    fn open_fd(&self) -> Result<(OwnedFd, bool), BlockError> {
        let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
        let is_drive = fs::metadata(self.path).is_ok_and(|meta| meta.file_type().is_block_device());
        if is_drive {
            // Refused while the drive is mounted, or part of something that is.
            flags |= OFlags::EXCL;
        } else if self.options.create_len.is_some() {
            flags |= OFlags::CREATE;
        }
        let mode = Mode::RUSR | Mode::WUSR;
        let open = |flags| rustix::fs::open(self.path, flags, mode);
        if self.options.caching != Caching::Use {
            match open(flags | OFlags::DIRECT) {
                Ok(fd) => return Ok((fd, true)),
                Err(Errno::INVAL) => self.without_direct()?,
                Err(errno) => return Err(self.open_failed(errno)),
            }
        }
        let fd = open(flags).map_err(|errno| self.open_failed(errno))?;
        Ok((fd, false))
    }

    fn open_failed(&self, errno: Errno) -> BlockError {
        match errno {
            Errno::BUSY => BlockError::InUse {
                path: self.path.to_owned(),
            },
            errno => self.failed("open", errno),
        }
    }

    /// Says that the page cache will be used, or refuses that.
    fn without_direct(&self) -> Result<(), BlockError> {
        if self.options.caching == Caching::Refuse {
            return Err(self.unsuitable("it does not support O_DIRECT".into()));
        }
        let path = self.path.display();
        tracing::warn!(%path, "no O_DIRECT here: data goes through the page cache");
        Ok(())
    }

    /// The length of a regular file, which is created and allocated if asked for.
    fn file_len(&self, fd: &OwnedFd, len: u64) -> Result<u64, BlockError> {
        let Some(wanted) = self.options.create_len else {
            return Ok(len);
        };
        if len == wanted {
            return Ok(len);
        }
        if len != 0 {
            return Err(self.unsuitable(format!("it has {len} bytes, not {wanted}")));
        }
        let doing = || format!("allocate {wanted} bytes for");
        match rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, wanted) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) => {
                let path = self.path.display();
                tracing::warn!(%path, "space cannot be reserved here: writes may find the disk full");
                rustix::fs::ftruncate(fd, wanted).map_err(|errno| self.failed(&doing(), errno))?;
            }
            Err(errno) => return Err(self.failed(&doing(), errno)),
        }
        self.sync_creation(fd)
            .map_err(|errno| self.failed("make durable", errno))?;
        Ok(wanted)
    }

    /// Makes the file's length and its name survive the loss of power.
    fn sync_creation(&self, fd: &OwnedFd) -> Result<(), Errno> {
        rustix::fs::fsync(fd)?;
        let parent = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(parent, flags, Mode::empty())?;
        rustix::fs::fsync(parent)
    }

    fn failed(&self, doing: &str, source: Errno) -> BlockError {
        BlockError::Open {
            path: self.path.to_owned(),
            doing: doing.to_owned(),
            source,
        }
    }

    fn unsuitable(&self, reason: String) -> BlockError {
        BlockError::Unsuitable {
            path: self.path.to_owned(),
            reason,
        }
    }
}

/// io_uring, or what works where the kernel or its policy refuses it.
fn best_engine(file: &Arc<OpenFile>) -> Engine {
    let Err((doing, error)) = Uring::new(file.clone(), 1) else {
        return Engine::Uring;
    };
    let engine = match Aio::new(file.clone(), 1) {
        // Through the page cache it would block its caller.
        Ok(_) if file.is_direct => Engine::Aio,
        _ => Engine::Threads,
    };
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        tracing::warn!(doing, %error, %engine, "io_uring is not available for block devices");
    });
    engine
}

/// What the drive that holds a file, or is one, writes at once, if the system knows.
fn physical_block(stat: &rustix::fs::Stat) -> Option<u32> {
    let is_drive = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    let device = if is_drive { stat.st_rdev } else { stat.st_dev };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // A partition has its drive's.
    ["queue", "../queue"].into_iter().find_map(|queue| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/physical_block_size");
        let text = fs::read_to_string(path).ok()?;
        let bytes: u32 = text.trim().parse().ok()?;
        bytes.is_power_of_two().then_some(bytes)
    })
}

/// What direct transfers of this file must be aligned to; `None` if there are none.
fn direct_block(fd: &OwnedFd) -> Option<u32> {
    let flags = AtFlags::EMPTY_PATH;
    let Ok(statx) = rustix::fs::statx(fd, "", flags, StatxFlags::DIOALIGN) else {
        return Some(BLOCK_UNKNOWN);
    };
    if statx.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Some(BLOCK_UNKNOWN);
    }
    let block = statx.stx_dio_mem_align.max(statx.stx_dio_offset_align);
    (block > 0).then(|| block.max(SECTOR).next_power_of_two())
}
