//! A file system in a directory of this machine.
//!
//! ```text
//! DIR/rows/            the metadata engine: a journal and a database
//! DIR/data             segments of streams: a file, or a link to a drive
//! DIR/vervain.making   there only until the file system is made: the rest is of no use then
//! ```

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::time::Duration;

use block::{BlockError, Device, FileDevice};
use meta::Embedded;

use crate::local::segment_of;
use crate::{Local, LocalError, LocalFormat, LocalOptions, Parts};

/// The metadata engine's directory.
pub(crate) const ROWS: &str = "rows";
/// The device of the data.
pub(crate) const DATA: &str = "data";
/// Says that the file system is not made yet.
const MAKING: &str = "vervain.making";

/// How often, and how long, opening waits for the end of a killed process's last write: 30 s in all.
const ATTEMPTS_MAX: u32 = 3000;
const ATTEMPT: Duration = Duration::from_millis(10);

impl Local {
    /// Makes a file system in an empty directory, or one that is not there, or one where making it was
    /// interrupted: what that has left is removed.
    ///
    /// # Errors
    /// [`LocalError::NotEmpty`], [`LocalError::InUse`], no room, the device's.
    pub async fn format(
        core: &rt::Handle,
        dir: &Path,
        format: &LocalFormat,
    ) -> Result<(), LocalError> {
        if dir.exists() && !dir.is_dir() {
            return Err(LocalError::NotDirectory(dir.to_path_buf()));
        }
        fs::create_dir_all(dir).map_err(failed(dir))?;
        let making = begin_making(dir)?;
        make(core, dir, format).await?;
        sync(dir)?;
        fs::remove_file(dir.join(MAKING)).map_err(failed(&dir.join(MAKING)))?;
        sync(dir)?;
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync(parent)?;
        }
        drop(making);
        Ok(())
    }

    /// Whether there is something in a directory that can be opened.
    #[must_use]
    pub fn is_there(dir: &Path) -> bool {
        // A drive that is not there now is one that was.
        let has_data = dir.join(DATA).symlink_metadata().is_ok();
        dir.join(ROWS).is_dir() && has_data && !dir.join(MAKING).exists()
    }

    /// Whether a file system can be made in a directory: it is empty, not there, or has what is left of an
    /// interrupted making.
    #[must_use]
    pub fn can_make(dir: &Path) -> bool {
        let is_empty = fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none());
        is_empty || dir.join(MAKING).exists()
    }

    /// Opens the file system of a directory: nobody else can at the same time.
    ///
    /// # Errors
    /// [`LocalError`] says what is wrong with which part.
    pub async fn open(
        core: &rt::Handle,
        dir: &Path,
        options: &LocalOptions,
    ) -> Result<Self, LocalError> {
        check_directory(dir)?;
        let rows = Embedded::open(dir.join(ROWS), &meta::Options::existing())?;
        let device = open_device(core, &dir.join(DATA)).await?;
        let parts = Parts {
            engine: rows.handle(),
            device: &device,
        };
        Self::assemble(core, parts, options, Some(rows)).await
    }
}

/// Makes the parts, and the file system of them.
async fn make(core: &rt::Handle, dir: &Path, format: &LocalFormat) -> Result<(), LocalError> {
    // Drawn aside: it tells nothing of what the parts draw.
    let id = fastrand::Rng::with_seed(!format.seed).u128(..);
    let rows = Embedded::open(dir.join(ROWS), &meta::Options::create(id))?;
    let data = dir.join(DATA);
    let (device, segment_bytes) = match &format.drive {
        None => {
            let data_bytes = format.data_bytes / format.segment_bytes * format.segment_bytes;
            let device = FileDevice::open(&data, &block::Options::create(data_bytes))?;
            (device, format.segment_bytes)
        }
        Some(drive) => {
            link_to(&drive.path, &data)?;
            let device = FileDevice::open(&data, &block::Options::existing())?;
            let segment_bytes = segment_of(device.geometry().len);
            (device, segment_bytes)
        }
    };
    let format = &LocalFormat {
        segment_bytes,
        ..format.clone()
    };
    let parts = Parts {
        engine: rows.handle(),
        device: &device,
    };
    Local::format_parts(core, parts, format).await?;
    rows.close()?;
    Ok(())
}

/// Has the data's name lead to a drive.
fn link_to(drive: &Path, data: &Path) -> Result<(), LocalError> {
    let about = fs::metadata(drive).map_err(failed(drive))?;
    if !about.file_type().is_block_device() {
        return Err(LocalError::NotDrive(drive.to_path_buf()));
    }
    let path = std::path::absolute(drive).map_err(failed(drive))?;
    symlink(path, data).map_err(failed(data))
}

/// Whether there is a file system in a directory.
pub(crate) fn check_directory(dir: &Path) -> Result<(), LocalError> {
    if dir.exists() && !dir.is_dir() {
        return Err(LocalError::NotDirectory(dir.to_path_buf()));
    }
    if !Local::is_there(dir) {
        return Err(LocalError::NoFileSystem(dir.to_path_buf()));
    }
    Ok(())
}

pub(crate) fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> LocalError {
    let path = path.to_path_buf();
    move |source| LocalError::Io { path, source }
}

/// Has names in a directory survive the loss of power.
fn sync(dir: &Path) -> Result<(), LocalError> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(failed(dir))
}

/// Says in a directory that a file system is being made there, and removes what is left of an interrupted
/// making. The lock is the directory's own and holds as long as it is open: a file that is made and removed would
/// be another one for who opens it late.
fn begin_making(dir: &Path) -> Result<File, LocalError> {
    let path = dir.join(MAKING);
    let held = File::open(dir).map_err(failed(dir))?;
    match held.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(LocalError::InUse(dir.to_path_buf())),
        Err(TryLockError::Error(error)) => return Err(failed(dir)(error)),
    }
    // Only now: another may just have made one.
    if !Local::can_make(dir) {
        return Err(LocalError::NotEmpty(dir.to_path_buf()));
    }
    File::create(&path).map_err(failed(&path))?;
    sync(dir)?;
    let is_gone = |removed: std::io::Result<()>| match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let (rows, data) = (dir.join(ROWS), dir.join(DATA));
    is_gone(fs::remove_dir_all(&rows)).map_err(failed(&rows))?;
    is_gone(fs::remove_file(&data)).map_err(failed(&data))?;
    Ok(held)
}

/// Opens the device of the data. The rows are locked, so that only what is left of a killed process can hold
/// it: the kernel takes its time to end a ring, whose last write may be under way until then.
pub(crate) async fn open_device(core: &rt::Handle, path: &Path) -> Result<FileDevice, LocalError> {
    let mut attempts = 1;
    loop {
        match FileDevice::open(path, &block::Options::existing()) {
            Err(BlockError::InUse { .. }) if attempts < ATTEMPTS_MAX => {
                attempts += 1;
                core.sleep(ATTEMPT).await;
            }
            opened => return Ok(opened?),
        }
    }
}
