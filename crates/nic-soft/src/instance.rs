//! Instance numbers: which of a GID's adapters this process is.
//!
//! Each adapter of a GID holds a number by a lock on a file in the run directory. The kernel drops
//! the lock with the process, however it ends, so that a crash frees the number. (A process that was
//! forked, and has not started another program, shares the lock and keeps it after a crash.)

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use verbs::{Gid, VerbsError};

use crate::layout::INSTANCES;

/// A number held.
#[derive(Debug)]
pub(crate) struct Instance {
    number: u32,
    directory: PathBuf,
    lock: File,
}

impl Instance {
    /// Takes the lowest free number on a GID.
    pub(crate) fn acquire(run_dir: &Path, gid: Gid) -> Result<Self, VerbsError> {
        let directory = directory_of(run_dir, gid);
        make_private(run_dir)?;
        make_private(&directory)?;
        for number in 0..INSTANCES {
            let path = directory.join(format!("{number}.lock"));
            let lock = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .map_err(|e| VerbsError::io("opening an instance's lock file", e))?;
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    let held = Instance {
                        number,
                        directory,
                        lock,
                    };
                    held.clean()
                        .map_err(|e| VerbsError::io("removing a dead instance's sockets", e))?;
                    return Ok(held);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => continue,
                Err(e) => return Err(VerbsError::io("locking an instance number", e)),
            }
        }
        Err(VerbsError::Exhausted {
            what: "instance numbers on this GID",
            max: INSTANCES.into(),
        })
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Where this instance listens for peers.
    pub(crate) fn socket(&self) -> PathBuf {
        socket_in(&self.directory, self.number)
    }

    /// Where one of this instance's completion channels is rung.
    pub(crate) fn channel(&self, channel: usize) -> PathBuf {
        channel_in(&self.directory, self.number, channel)
    }

    /// Removes the sockets that an instance of this number has left behind by dying.
    fn clean(&self) -> std::io::Result<()> {
        let prefix = format!("{}.", self.number);
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let ours = name.to_string_lossy().starts_with(&prefix);
            if !ours || !entry.file_type()?.is_socket() {
                continue;
            }
            match std::fs::remove_file(entry.path()) {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Closing the file would not do: a process that some thread is just starting has it too,
        // until it runs its program, and the lock is on what they share.
        if let Err(e) = rustix::fs::flock(&self.lock, FlockOperation::Unlock) {
            tracing::warn!(error = %e, number = self.number, "cannot unlock an instance number");
        }
    }
}

/// Where a completion channel of an instance of a GID is rung.
pub(crate) fn channel_of(run_dir: &Path, gid: Gid, number: u32, channel: usize) -> PathBuf {
    channel_in(&directory_of(run_dir, gid), number, channel)
}

fn channel_in(directory: &Path, number: u32, channel: usize) -> PathBuf {
    directory.join(format!("{number}.c{channel}"))
}

/// Where an instance of a GID listens for peers.
pub(crate) fn socket_of(run_dir: &Path, gid: Gid, number: u32) -> PathBuf {
    socket_in(&directory_of(run_dir, gid), number)
}

fn socket_in(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number}.sock"))
}

fn directory_of(run_dir: &Path, gid: Gid) -> PathBuf {
    let name = match gid.ipv4() {
        Some(address) => address.to_string(),
        None => gid.0.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    run_dir.join(name)
}

/// Makes a directory that only its owner can enter, or checks that it is one.
fn make_private(path: &Path) -> Result<(), VerbsError> {
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => {}
        Err(e) => return Err(VerbsError::io("creating the run directory", e)),
    }
    let meta = std::fs::symlink_metadata(path)
        .map_err(|e| VerbsError::io("looking at the run directory", e))?;
    let uid = rustix::process::geteuid().as_raw();
    if !meta.is_dir() || meta.uid() != uid {
        let why = format!("{} is not a directory of user {uid}", path.display());
        return Err(VerbsError::invalid("run directory", why));
    }
    if meta.permissions().mode() & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
            .map_err(|e| VerbsError::io("closing the run directory to others", e))?;
    }
    Ok(())
}
