//! The file or drive that is measured on: one part of it for a store, the rest for bare writes.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use block::{BlockError, Device, Disk, Durable, Engine, FileDevice, Geometry, Options, Queue};
use rustix::fs::{FallocateFlags, fallocate, fstatfs};

/// What `statfs` calls a file system in memory.
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;
/// What is written at once when all blocks are written for the first time.
const FILL: usize = 1 << 20;
/// So many of these at the same time.
const FILLS: u64 = 16;
/// What a store looks at to know whether there is one already.
const HEAD: u64 = 1 << 20;

/// Where a measurement has its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// A file without a name in a directory. Nothing is left of it, whatever ends this process.
    Temporary(PathBuf),
    /// A file or a drive, whose contents are lost. It stays.
    Existing(PathBuf),
}

impl Location {
    /// In words.
    pub fn show(&self) -> String {
        match self {
            Location::Temporary(dir) => format!("a temporary file in {}", dir.display()),
            Location::Existing(path) => path.display().to_string(),
        }
    }
}

/// An open [`Location`].
#[derive(Debug)]
pub(super) struct OpenLocation {
    path: PathBuf,
    /// Keeps a file without a name there; nobody else can open it.
    #[expect(dead_code, reason = "held for its descriptor")]
    file: Option<File>,
}

impl OpenLocation {
    /// Opens it. A new file gets `len` bytes. Refused is what is no device, unless `in_memory`.
    pub(super) fn open(location: &Location, len: u64, in_memory: bool) -> anyhow::Result<Self> {
        match location {
            Location::Temporary(dir) => {
                let failed = || format!("cannot use {}", dir.display());
                let file = tempfile::tempfile_in(dir).with_context(failed)?;
                if !in_memory {
                    refuse_memory(&file, dir)?;
                }
                allocate(&file, len).with_context(failed)?;
                // By this name other processes reach it too.
                let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
                Ok(OpenLocation {
                    path: path.into(),
                    file: Some(file),
                })
            }
            Location::Existing(path) => {
                let failed = || format!("cannot use {}", path.display());
                let mut options = OpenOptions::new();
                let options = options.read(true).write(true).create(true).truncate(false);
                let mut file = options.open(path).with_context(failed)?;
                if !in_memory {
                    refuse_memory(&file, path)?;
                }
                let meta = file.metadata().with_context(failed)?;
                if meta.is_file() && meta.len() < len {
                    allocate(&file, len).with_context(failed)?;
                }
                // An earlier store, whose contents are lost anyway.
                let zeros = vec![0; FILL];
                for _ in 0..HEAD / FILL as u64 {
                    file.write_all(&zeros).with_context(failed)?;
                }
                file.sync_all().with_context(failed)?;
                Ok(OpenLocation {
                    path: path.clone(),
                    file: None,
                })
            }
        }
    }

    /// The name by which this and other processes open it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it as a device, once whoever had it open before has let go: what a killed process had
    /// under way may take a moment.
    pub(super) fn device(&self, engine: Engine) -> Result<FileDevice, BlockError> {
        open_device(&self.path, engine)
    }
}

/// Opens a device, once whoever had it open before has let go.
pub(super) fn open_device(path: &Path, engine: Engine) -> Result<FileDevice, BlockError> {
    let options = Options::existing().with_engine(engine);
    for _ in 0..1000 {
        match FileDevice::open(path, &options) {
            Err(BlockError::InUse { .. }) => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            opened => return opened,
        }
    }
    FileDevice::open(path, &options)
}

fn refuse_memory(file: &File, path: &Path) -> anyhow::Result<()> {
    let Ok(stat) = fstatfs(file) else {
        // What does not tell is taken as it is.
        return Ok(());
    };
    #[allow(clippy::unnecessary_cast, reason = "its type differs by platform")]
    let kind = stat.f_type as i64;
    ensure!(
        kind != TMPFS && kind != RAMFS,
        "{} is in memory (tmpfs), which is no device: what is measured there is how memory is \
         copied, and io_uring goes through threads of the kernel; name a directory on a disk with \
         --dir",
        path.display()
    );
    Ok(())
}

fn allocate(file: &File, len: u64) -> std::io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, len) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(len),
        Err(error) => Err(error.into()),
    }
}

/// Writes every block from `from` to `to` once, so that no later write is a file's first one of its
/// block, which costs the file system more than the device.
pub(super) fn fill(
    device: &FileDevice,
    from: u64,
    to: u64,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<()> {
    let disk = Disk::open(device, FILLS as usize)?;
    let mut random = fastrand::Rng::with_seed(1);
    let mut pattern = vec![0; FILL];
    random.fill(&mut pattern);
    let mut at = from;
    disk.block_on(async {
        while at < to {
            let mut writes = Vec::new();
            for _ in 0..FILLS {
                let len = (to - at).min(FILL as u64);
                if len == 0 {
                    break;
                }
                let mut buf = disk.buffer(len as usize);
                buf.copy_from_slice(&pattern[..len as usize]);
                writes.push(disk.write(buf, at, Durable::No));
                at += len;
            }
            for write in writes {
                write.await.0?;
            }
            let percent = (at - from) * 100 / (to - from).max(1);
            progress(&format!("writing every block once: {percent} %"));
        }
        disk.flush().await?;
        Ok(())
    })
}

/// The first bytes of a file as a device of their own, by calls that can be changed: queues that are
/// opened afterwards use the new ones.
#[derive(Debug)]
pub(super) struct Part {
    file: FileDevice,
    len: u64,
    engine: Mutex<Engine>,
}

impl Part {
    pub(super) fn new(file: &FileDevice, len: u64) -> Arc<Self> {
        Arc::new(Part {
            engine: Mutex::new(file.engine()),
            file: file.clone(),
            len,
        })
    }

    /// Queues that are opened from now on use these calls.
    pub(super) fn use_engine(&self, engine: Engine) {
        *self.engine.lock().unwrap_or_else(PoisonError::into_inner) = engine;
    }
}

impl Device for Part {
    fn name(&self) -> Arc<str> {
        self.file.name()
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            len: self.len,
            ..self.file.geometry()
        }
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, BlockError> {
        let engine = *self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        self.file.with_engine(engine).queue(depth)
    }
}
