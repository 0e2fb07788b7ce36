//! Opening a directory: making it, checking it, bringing it up to date.
//!
//! A directory is made under the lock of the directory itself, and its journal gets its name last: without
//! it there is nothing that anybody could have committed.

use std::fmt;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use block::{BlockError, Device, Disk, FileDevice, Options as FileOptions};
use redb::DatabaseError;
use rustix::fs::FlockOperation;
use thiserror::Error;

use super::base::{About, AboutError, Base, VERSION};
use super::commit::replay;
use super::journal::record::{BLOCK, Record};
use super::journal::{AREA_LEN_MIN, Journal, JournalError, len_for};
use super::overlay::Rows;
use super::{JOURNAL, Options, ROWS};

/// The journal's name until it is complete.
const JOURNAL_NEW: &str = "journal.new";

/// How often, and how long, opening waits for the end of a killed process's last write: 30 s in all.
const ATTEMPTS_MAX: u32 = 3000;
const ATTEMPT: Duration = Duration::from_millis(10);

/// Why an engine did not open.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or this one, has the directory open.
    #[error("{} is in use by another process (stop it, or choose another directory)", dir.display())]
    InUse {
        /// The engine's directory.
        dir: PathBuf,
    },
    /// What is there was not made by this crate.
    #[error("{} holds no metadata: {why} (choose an empty directory, or restore a backup)", dir.display())]
    Foreign {
        /// The engine's directory.
        dir: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Another version of this crate has made it.
    #[error("{} has version {found} of the layout, and this program reads version {known} (use the program that wrote it)", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// This program's.
        known: u32,
    },
    /// What is there is not what was written.
    #[error("metadata is damaged: {why}")]
    Damaged {
        /// What is wrong, and where.
        why: String,
    },
    /// The system or the device refuses something.
    #[error("cannot {doing} {}: {why}", path.display())]
    Io {
        /// The step.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        why: String,
    },
}

/// A directory that is open and up to date: every row is in the database.
pub(super) struct Opened {
    /// Locked for as long as this lives.
    pub(super) lock: File,
    pub(super) base: Base,
    pub(super) journal_device: Arc<dyn Device>,
    pub(super) about: About,
}

impl Opened {
    /// Opens a directory, which is made if `options` say with which id.
    pub(super) fn open(dir: &Path, options: &Options) -> Result<Self, OpenError> {
        let lock = lock(dir, options.create.is_some())?;
        let path = dir.join(JOURNAL);
        if !exists(&path)? {
            create(dir, options)?;
        }
        let device = open_journal(&path, options)?;
        let rows = dir.join(ROWS);
        if !exists(&rows)? {
            let why = format!("{} is missing (restore a backup)", rows.display());
            return Err(OpenError::Damaged { why });
        }
        let base = open_base(&rows, options)?;
        let (base, about) = bring_up_to_date(dir, base, &device)?;
        Ok(Self {
            lock,
            base,
            journal_device: Arc::new(device),
            about,
        })
    }
}

/// Opens the journal's file. The directory is locked, so that only what is left of a killed process can hold
/// the file: the kernel takes its time to end a ring, whose last write may be under way until then.
fn open_journal(path: &Path, options: &Options) -> Result<FileDevice, OpenError> {
    let journal = FileOptions::existing().with_engine(options.calls);
    let mut attempts = 1;
    loop {
        match FileDevice::open(path, &journal) {
            Ok(device) => return Ok(device),
            Err(BlockError::InUse { .. }) if attempts < ATTEMPTS_MAX => {
                attempts += 1;
                std::thread::sleep(ATTEMPT);
            }
            Err(error) => return Err(failed("open", path, &error)),
        }
    }
}

/// Locks the directory, which is made first if that is asked for.
fn lock(dir: &Path, make: bool) -> Result<File, OpenError> {
    if make {
        fs::create_dir_all(dir).map_err(|error| failed("make", dir, &error))?;
    }
    let lock = File::open(dir).map_err(|error| failed("open", dir, &error))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::InUse { dir: dir.into() }),
        Err(error) => Err(failed("lock", dir, &error)),
    }
}

/// Makes an empty directory one of this crate.
fn create(dir: &Path, options: &Options) -> Result<(), OpenError> {
    let Some(id) = options.create else {
        return Err(foreign(dir, format!("there is no {JOURNAL}")));
    };
    clear_attempt(dir, options)?;
    let rows = dir.join(ROWS);
    let base = open_base(&rows, options)?;
    let made = base.format(id);
    made.map_err(|error| failed("write", &rows, &error))?;
    base.close()
        .map_err(|error| failed("write", &rows, &error))?;
    create_journal(dir, id, options.area_len)
}

/// Locks a directory that is about to be filled. Returns the id that it is to have.
pub(super) fn lock_new(dir: &Path, options: &Options) -> Result<(u128, File), OpenError> {
    let Some(id) = options.create else {
        return Err(foreign(dir, "it is not to be made".into()));
    };
    let lock = lock(dir, true)?;
    if exists(&dir.join(JOURNAL))? {
        return Err(foreign(dir, "it has metadata already".into()));
    }
    clear_attempt(dir, options)?;
    Ok((id, lock))
}

/// Removes what an interrupted attempt has left that made the directory. Whatever may be more is an error: a database
/// that cannot be read now, or not by this program, may have everything.
fn clear_attempt(dir: &Path, options: &Options) -> Result<(), OpenError> {
    let rows = dir.join(ROWS);
    if !exists(&rows)? {
        return Ok(());
    }
    if !has_no_beginning(&rows)? {
        let base = open_base(&rows, options)?;
        let cannot_read = |error: redb::Error| failed("read", &rows, &error);
        match base.about().map_err(cannot_read)? {
            Ok(about) if about.applied == 0 => {}
            Ok(about) if has_journal_of(dir, about.id, options)? => {}
            Ok(_) => {
                let why = format!("{ROWS} has rows, and {JOURNAL} is missing");
                return Err(foreign(dir, why));
            }
            Err(AboutError::Foreign) if base.is_begun().map_err(cannot_read)? => {}
            Err(error) => return Err(of_about(dir, error)),
        }
    }
    fs::remove_file(&rows).map_err(|error| failed("remove", &rows, &error))
}

/// Whether making a database was interrupted before it was one: redb writes its magic last.
fn has_no_beginning(rows: &Path) -> Result<bool, OpenError> {
    let mut magic = [0; 9];
    let read = File::open(rows).and_then(|mut file| {
        let len = file.metadata()?.len().min(magic.len() as u64);
        file.read_exact(&mut magic[..len as usize])
    });
    read.map_err(|error| failed("read", rows, &error))?;
    Ok(magic == [0; 9])
}

/// Whether a restore was interrupted at its end: its journal is complete, but for its name.
fn has_journal_of(dir: &Path, id: u128, options: &Options) -> Result<bool, OpenError> {
    let path = dir.join(JOURNAL_NEW);
    if !exists(&path)? {
        return Ok(false);
    }
    let device = open_journal(&path, options)?;
    let disk = Disk::open(&device, 4).map_err(|error| failed("open", &path, &error))?;
    match disk.block_on(Journal::open(disk.clone())) {
        Ok(journal) => Ok(journal.id() == id),
        Err(JournalError::Block(error)) => Err(failed("read", &path, &error)),
        Err(_) => Ok(false),
    }
}

fn foreign(dir: &Path, why: String) -> OpenError {
    OpenError::Foreign {
        dir: dir.to_owned(),
        why,
    }
}

/// Makes the journal, complete or not at all.
fn create_journal(dir: &Path, id: u128, area_len: u64) -> Result<(), OpenError> {
    write_journal(dir, id, area_len)?;
    name_journal(dir)
}

/// Makes the journal, durably, but for its name: without it the directory is none of this crate.
pub(super) fn write_journal(dir: &Path, id: u128, area_len: u64) -> Result<(), OpenError> {
    let path = dir.join(JOURNAL_NEW);
    if exists(&path)? {
        fs::remove_file(&path).map_err(|error| failed("remove", &path, &error))?;
    }
    let area_len = area_len.max(AREA_LEN_MIN).next_multiple_of(BLOCK as u64);
    let device = FileDevice::open(&path, &FileOptions::create(len_for(area_len)));
    let device = device.map_err(|error| failed("make", &path, &error))?;
    let disk = Disk::open(&device, 4).map_err(|error| failed("open", &path, &error))?;
    let written = disk.block_on(Journal::format(&disk, id));
    written.map_err(|error| failed("write", &path, &error))?;
    sync(dir)
}

/// Gives the journal its name, durably.
pub(super) fn name_journal(dir: &Path) -> Result<(), OpenError> {
    let (path, name) = (dir.join(JOURNAL_NEW), dir.join(JOURNAL));
    fs::rename(&path, &name).map_err(|error| failed("rename", &path, &error))?;
    sync(dir)
}

fn sync(dir: &Path) -> Result<(), OpenError> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|error| failed("sync", dir, &error))
}

/// Opens the database of rows.
pub(super) fn open_base(path: &Path, options: &Options) -> Result<Base, OpenError> {
    Base::open(path, options.cache_len).map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { dir: path.into() },
        DatabaseError::Storage(redb::StorageError::Corrupted(why)) => OpenError::Damaged {
            why: format!("{}: {why} (restore a backup)", path.display()),
        },
        DatabaseError::Storage(redb::StorageError::Io(io))
            if io.kind() == std::io::ErrorKind::InvalidData =>
        {
            OpenError::Foreign {
                dir: path.parent().unwrap_or(path).into(),
                why: format!("{}: {io}", path.display()),
            }
        }
        error => failed("open", path, &error),
    })
}

/// Brings what only the journal has to the database.
pub(super) fn bring_up_to_date(
    dir: &Path,
    base: Base,
    device: &dyn Device,
) -> Result<(Base, About), OpenError> {
    let path = dir.join(ROWS);
    let about = base
        .about()
        .map_err(|error| failed("read", &path, &error))?;
    let mut about = about.map_err(|error| of_about(dir, error))?;
    let disk = Disk::open(device, 4).map_err(|error| failed("open", dir, &error))?;
    let mut rows = Rows::new();
    let recovered = disk.block_on(async {
        let journal = Journal::open(disk.clone()).await?;
        if journal.id() != about.id {
            return Err(JournalError::Foreign {
                name: disk.name().to_owned(),
                why: format!("it does not belong to the {ROWS} beside it"),
            });
        }
        let applied = about.applied;
        let mut deliver =
            |record: Record| replay(&mut rows, &mut about.applied, record.transactions);
        journal.recover(about.live, applied, &mut deliver).await
    });
    recovered.map_err(|error| of_journal(dir, error))?;
    // Neither of the epochs that were live is any more. What was not durable when it was read is now.
    about.live += 2;
    let applied = base.apply(&rows, about.applied, about.live);
    applied.map_err(|error| failed("write", &path, &error))?;
    Ok((base, about))
}

fn of_about(dir: &Path, error: AboutError) -> OpenError {
    let path = dir.join(ROWS);
    match error {
        AboutError::Foreign => OpenError::Foreign {
            dir: dir.to_owned(),
            why: format!("{} was made by another program", path.display()),
        },
        AboutError::Version(found) => OpenError::Version {
            path,
            found,
            known: VERSION,
        },
    }
}

fn of_journal(dir: &Path, error: JournalError) -> OpenError {
    let path = dir.join(JOURNAL);
    match error {
        JournalError::Block(error) => failed("read", &path, &error),
        JournalError::Foreign { name, why } => OpenError::Foreign {
            dir: dir.to_owned(),
            why: format!("{name}: {why}"),
        },
        JournalError::Version { found, .. } => OpenError::Version {
            path,
            found,
            known: super::journal::VERSION,
        },
        error @ JournalError::Damaged { .. } => OpenError::Damaged {
            why: error.to_string(),
        },
    }
}

pub(super) fn failed(doing: &'static str, path: &Path, error: &dyn fmt::Display) -> OpenError {
    OpenError::Io {
        doing,
        path: path.to_owned(),
        why: error.to_string(),
    }
}

fn exists(path: &Path) -> Result<bool, OpenError> {
    let exists = path.try_exists();
    exists.map_err(|error| failed("look for", path, &error))
}
