//! Membership: a process's place among those of its host, and how it reaches the others.
//!
//! The processes meet in a run directory, of which nothing outside of this file knows. Each adapter
//! of a GID holds an instance number by a lock on a file there. The kernel drops the lock with the
//! process, however it ends, so that a crash frees the number. (A process that was forked, and has
//! not started another program, shares the lock and keeps it after a crash.)

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use verbs::{Gid, VerbsError};

use crate::contact::doorbell::refuse_descriptors;
use crate::contact::private::make_private;
use crate::shared::layout::INSTANCES;

pub(crate) mod groups;

/// An instance number held.
#[derive(Debug)]
pub(crate) struct Membership {
    gid: Gid,
    number: u32,
    run_dir: PathBuf,
    directory: PathBuf,
    lock: File,
}

impl Membership {
    /// Takes the lowest free number on a GID.
    pub(crate) fn join(run_dir: &Path, gid: Gid) -> Result<Self, VerbsError> {
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
                    let held = Membership {
                        gid,
                        number,
                        run_dir: run_dir.to_path_buf(),
                        directory,
                        lock,
                    };
                    held.clean()
                        .and_then(|()| held.clean_groups())
                        .map_err(|e| VerbsError::io("removing what a dead instance has left", e))?;
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

    /// Begins to listen for peers.
    pub(crate) fn listen(&self) -> rustix::io::Result<OwnedFd> {
        let socket = contact_socket()?;
        refuse_descriptors(&socket);
        let path = socket_in(&self.directory, self.number);
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
        rustix::net::listen(&socket, 1024)?;
        Ok(socket)
    }

    /// Is found no more by those who look for it.
    pub(crate) fn leave(&self) {
        // A file that somebody removed already is as good as removed.
        let _ = std::fs::remove_file(socket_in(&self.directory, self.number));
    }

    /// Connects to whoever listens as an instance, which needs nobody's answer. One that takes no more
    /// connections just now is `AGAIN`.
    pub(crate) fn dial(&self, gid: Gid, instance: u32) -> rustix::io::Result<OwnedFd> {
        let directory = directory_of(&self.run_dir, gid);
        let address = SocketAddrUnix::new(socket_in(&directory, instance))?;
        let socket = contact_socket()?;
        rustix::net::connect(&socket, &address)?;
        Ok(socket)
    }

    /// Where one of this instance's completion channels is rung.
    pub(crate) fn own_channel(&self, channel: usize) -> PathBuf {
        channel_in(&self.directory, self.number, channel)
    }

    /// Where a completion channel of an instance is rung.
    pub(crate) fn channel_of(&self, gid: Gid, instance: u32, channel: usize) -> PathBuf {
        channel_in(&directory_of(&self.run_dir, gid), instance, channel)
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

impl Drop for Membership {
    fn drop(&mut self) {
        // Closing the file would not do: a process that some thread is just starting has it too,
        // until it runs its program, and the lock is on what they share.
        if let Err(e) = rustix::fs::flock(&self.lock, FlockOperation::Unlock) {
            tracing::warn!(error = %e, number = self.number, "cannot unlock an instance number");
        }
    }
}

/// A socket for contact with another process.
fn contact_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn channel_in(directory: &Path, number: u32, channel: usize) -> PathBuf {
    directory.join(format!("{number}.c{channel}"))
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
