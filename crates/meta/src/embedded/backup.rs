//! Copies in a file, directories from them, and reading everything.
//!
//! A backup, little-endian:
//!
//! ```text
//!  0         8         12        16        32          40
//!  +---------+---------+---------+---------+-----------+
//!  | magic   | version | zeros   | id      | revision  |
//!  +---------+---------+---------+---------+-----------+
//!  a row each, ascending by key
//!  +-------------+---------------+-------------+-----+-------+
//!  | key len u16 | value len u32 | version u64 | key | value |
//!  +-------------+---------------+-------------+-----+-------+
//!  +--------+------------+--------------------------------------------+
//!  | 0 u16  | rows u64   | crc u32: the CRC-32C of all bytes before it |
//!  +--------+------------+--------------------------------------------+
//! ```

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};

use block::crc32c;
use thiserror::Error;

use super::open::{OpenError, Opened, failed, lock_new, name_journal, open_base, write_journal};
use super::overlay::{Entry, Rows};
use super::{Embedded, Options, ROWS};
use crate::{BYTES_MAX, KEY_LEN_MAX, Key, MetaError, Row};

const MAGIC: &[u8; 8] = b"VervMBak";
const VERSION: u32 = 1;
/// Entries that go to the database at once when a directory is made of a backup.
const RESTORED_AT_ONCE: usize = 4096;

/// Why a backup was not made, or a directory not made of it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackupError {
    /// Reading the rows.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// Making the directory.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system refuses something.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// The step.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file is no backup, or not as it was written.
    #[error("{} is no whole backup: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
}

/// What [`Embedded::verify`] has found sound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// The last transaction's revision.
    pub revision: u64,
    /// Rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl Embedded {
    /// Writes all rows of one moment to a new file, while commits go on. Blocks: not for a core. Returns the
    /// revision of that moment. Copies the rows in memory under the lock that commits take, some
    /// milliseconds at most.
    ///
    /// # Errors
    /// See [`BackupError`]. The file is then removed; one that was there before is left alone.
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<u64, BackupError> {
        let path = path.as_ref();
        let io = |doing| {
            move |source| BackupError::Io {
                doing,
                path: path.to_owned(),
                source,
            }
        };
        let file = File::create_new(path).map_err(io("make"))?;
        let written = self.write_backup(path, file);
        if written.is_err()
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!(path = %path.display(), %error, "removing an unfinished backup");
        }
        written
    }

    fn write_backup(&self, path: &Path, file: File) -> Result<u64, BackupError> {
        let io = |doing| {
            move |source| BackupError::Io {
                doing,
                path: path.to_owned(),
                source,
            }
        };
        let overlay = &self.handle.overlay;
        let (revision, snapshot) = overlay.snapshot()?;
        let mut out = Summed::new(BufWriter::new(file));
        let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(io("write"));
        write(MAGIC)?;
        write(&VERSION.to_le_bytes())?;
        write(&[0; 4])?;
        write(&self.id.to_le_bytes())?;
        write(&revision.to_le_bytes())?;
        let mut rows = 0u64;
        for row in snapshot {
            let (key, row) = row.map_err(|error| overlay.read_error(&error.to_string()))?;
            // Both are within a transaction's limits.
            write(&(key.len() as u16).to_le_bytes())?;
            write(&(row.value.len() as u32).to_le_bytes())?;
            write(&row.version.to_le_bytes())?;
            write(&key)?;
            write(&row.value)?;
            rows += 1;
        }
        write(&[0; 2])?;
        write(&rows.to_le_bytes())?;
        let crc = out.crc;
        out.write_all(&crc.to_le_bytes()).map_err(io("write"))?;
        let file = out.inner.into_inner().map_err(|error| error.into_error());
        let file = file.map_err(io("write"))?;
        file.sync_all().map_err(io("sync"))?;
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = File::open(parent.unwrap_or(Path::new(".")));
        parent
            .and_then(|dir| dir.sync_all())
            .map_err(io("sync the directory of"))?;
        Ok(revision)
    }

    /// Makes a directory of a backup, with the id of `options`. Returns the backup's revision. The file is
    /// read twice, and nothing is made of one that is damaged.
    ///
    /// # Errors
    /// See [`BackupError`]; [`OpenError::Foreign`] if the directory has an engine already.
    pub fn restore(
        backup: impl AsRef<Path>,
        dir: impl AsRef<Path>,
        options: &Options,
    ) -> Result<u64, BackupError> {
        let (path, dir) = (backup.as_ref(), dir.as_ref());
        read_backup(path, |_, _| Ok(()))?;
        let (id, _lock) = lock_new(dir, options)?;
        let rows_path = dir.join(ROWS);
        let base = open_base(&rows_path, options)?;
        let cannot_write = |error: &dyn std::fmt::Display| failed("write", &rows_path, error);
        base.format(id).map_err(|error| cannot_write(&error))?;
        let mut rows = Rows::new();
        let revision = read_backup(path, |key, row| {
            rows.insert(key, Entry::from(row));
            if rows.len() == RESTORED_AT_ONCE {
                // Not `applied` before the end: a restore that is interrupted can be repeated.
                base.apply(&rows, 0, 0)
                    .map_err(|error| cannot_write(&error))?;
                rows.clear();
            }
            Ok(())
        })?;
        // What takes longest, before the rows count: they tell then by the journal beside them that the restore was
        // interrupted.
        write_journal(dir, id, options.area_len)?;
        base.apply(&rows, revision, 0)
            .map_err(|error| cannot_write(&error))?;
        base.close().map_err(|error| cannot_write(&error))?;
        name_journal(dir)?;
        Ok(revision)
    }

    /// Reads everything that a directory holds, which nobody may have open: the journal's records, every
    /// page of the database, every row. What the journal holds is brought to the database.
    ///
    /// # Errors
    /// [`OpenError::Damaged`] with what is wrong, and as [`Embedded::open`].
    pub fn verify(dir: impl AsRef<Path>, options: &Options) -> Result<Verified, OpenError> {
        let dir = dir.as_ref();
        let path = dir.join(ROWS);
        let mut opened = Opened::open(dir, options)?;
        let damaged = |why: &str| OpenError::Damaged {
            why: format!("{}: {why} (restore a backup)", path.display()),
        };
        match opened.base.check_integrity() {
            Ok(true) => {}
            Ok(false) => return Err(damaged("it had to be repaired")),
            Err(error) => return Err(damaged(&error.to_string())),
        }
        let mut verified = Verified {
            revision: opened.about.applied,
            ..Verified::default()
        };
        let rows = opened
            .base
            .read()
            .and_then(|read| read.range(&crate::Range::all()));
        for row in rows.map_err(|error| damaged(&error.to_string()))? {
            let (key, row) = row.map_err(|error| damaged(&error.to_string()))?;
            let bytes = key.len() + row.value.len();
            let is_sound = (1..=verified.revision).contains(&row.version)
                && (1..=KEY_LEN_MAX).contains(&key.len())
                && bytes <= BYTES_MAX;
            if !is_sound {
                return Err(damaged("a row that no transaction can have written"));
            }
            verified.rows += 1;
            verified.bytes += bytes as u64;
        }
        let closed = opened.base.close();
        closed.map_err(|error| failed("close", &path, &error))?;
        Ok(verified)
    }
}

/// Hands over each row of a backup, and returns its revision.
fn read_backup(
    path: &Path,
    mut deliver: impl FnMut(Key, Row) -> Result<(), OpenError>,
) -> Result<u64, BackupError> {
    let damaged = |why| BackupError::Damaged {
        path: path.to_owned(),
        why,
    };
    let file = File::open(path).map_err(|source| BackupError::Io {
        doing: "open",
        path: path.to_owned(),
        source,
    })?;
    let mut input = Summed::new(BufReader::new(file));
    let mut take = |len: usize| {
        let mut bytes = vec![0; len];
        let result = input.read_exact(&mut bytes);
        result
            .map(|()| (bytes, input.crc))
            .map_err(|source| match source.kind() {
                io::ErrorKind::UnexpectedEof => damaged("it ends too early"),
                _ => BackupError::Io {
                    doing: "read",
                    path: path.to_owned(),
                    source,
                },
            })
    };
    let header = take(40)?.0;
    if header[..8] != MAGIC[..] {
        return Err(damaged("it does not begin like one"));
    }
    if header[8..12] != VERSION.to_le_bytes() {
        return Err(damaged("it has another version"));
    }
    let u64_of = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    let revision = u64_of(&header[32..40]);
    let mut rows = 0u64;
    loop {
        let key_len = take(2)?.0;
        let key_len = usize::from(u16::from_le_bytes([key_len[0], key_len[1]]));
        if key_len == 0 {
            break;
        }
        let lengths = take(12)?.0;
        let value_len = u32::from_le_bytes(lengths[..4].try_into().expect("4 bytes")) as usize;
        if key_len > KEY_LEN_MAX || value_len > BYTES_MAX {
            return Err(damaged("a row is longer than any can be"));
        }
        let version = u64_of(&lengths[4..]);
        let key = Key::from(take(key_len)?.0);
        let value = take(value_len)?.0.into();
        let delivered = deliver(key, Row { value, version });
        delivered?;
        rows += 1;
    }
    let (count, crc) = take(8)?;
    if u64_of(&count) != rows || take(4)?.0 != crc.to_le_bytes() {
        return Err(damaged("its checksum is wrong"));
    }
    match take(1) {
        Err(BackupError::Damaged { .. }) => Ok(revision),
        Err(error) => Err(error),
        Ok(_) => Err(damaged("something follows its end")),
    }
}

/// A stream, and the checksum of what has passed.
struct Summed<T> {
    inner: T,
    crc: u32,
}

impl<T> Summed<T> {
    fn new(inner: T) -> Self {
        Self {
            inner,
            crc: crc32c::checksum(&[]),
        }
    }
}

impl<T: io::Write> Summed<T> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc = crc32c::append(self.crc, bytes);
        self.inner.write_all(bytes)
    }
}

impl<T: Read> Summed<T> {
    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(bytes)?;
        self.crc = crc32c::append(self.crc, bytes);
        Ok(())
    }
}
