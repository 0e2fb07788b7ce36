//! `vervain fs put`: a local file to the server, under a name of its own until it is whole.

use std::fs::File;
use std::io::{Read, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use nfs::client::{Changes, Client, ClientError, FileKind, Files, Found};
use nfs::wire::Nfsstat4;
use rt::threads::Shutdown;
use rustix::event::PollFlags;
use serde_json::json;

use super::again::{Final, IN_DOUBT, Passing, is_in_doubt};
use super::kept::narrowed;
use super::pipe;
use super::remote::{Asked, Repeat, parts, with_files};
use crate::cli::{FsPut, show_size};
use crate::signals::{self, INTERRUPTED};

/// Bytes that are read of a local file at once.
const PIECE: usize = 1 << 20;

/// Bytes of a file's name that the name has that it is written under.
pub(super) const NAME_PART: usize = 100;

/// How long a signal waits until what was written so far is removed.
pub(super) const GIVE_UP_MAX: Duration = Duration::from_secs(5);

/// The mode of a file that is not there yet.
const NEW_MODE: u32 = 0o644;

/// The mode of one that replaces another, until it is whole: nobody else may read what the other's group might not, and
/// its own user may open it again, whatever the other's mode.
const PRIVATE_MODE: u32 = 0o600;

/// Writes a local file, or standard input, to the server.
pub(super) fn run(flags: &FsPut, as_json: bool) -> anyhow::Result<()> {
    // What is wrong with it needs no server.
    let mut put = Put {
        source: Source::open(&flags.from)?,
        flags,
        random: fastrand::u64(..),
        target: None,
        whole: None,
        is_left: false,
        given_up: None,
    };
    let stop = signals::watch(Some(GIVE_UP_MAX))?;
    let done = with_files(&flags.server, Repeat::Safe, &stop, async |asked| {
        put.attempt(asked).await
    });
    let done = match (done, put.given_up.take()) {
        (Err(_), Some(first)) => Err(first),
        (done, _) => done,
    };
    let (path, bytes) = match (done, &put.target) {
        (Err(error), Some(Target { aside, .. })) if put.is_in_doubt() => {
            let what = format!("{IN_DOUBT} (it was not if {aside} is there, which can be removed)");
            return Err(error.context(what));
        }
        (done, target) => {
            if let Some(Target { aside, .. }) = target.as_ref().filter(|_| put.is_left) {
                tracing::warn!("{aside} is left, and can be removed");
            }
            done?
        }
    };
    let mut out = bench::print::output();
    if as_json {
        writeln!(out, "{}", json!({ "path": path, "bytes": bytes }))?;
    } else {
        writeln!(out, "{path}: {}", show_size(bytes as usize))?;
    }
    Ok(())
}

/// A file on its way.
struct Put<'a> {
    flags: &'a FsPut,
    source: Source,
    /// Of the name that it is written under: the same in all attempts, so that each takes over what the one before has
    /// left.
    random: u64,
    target: Option<Target>,
    /// All of it is there, durable.
    whole: Option<Whole>,
    /// Something may be there under the other name.
    is_left: bool,
    /// It was given up because of this, and what is left is to be removed.
    given_up: Option<anyhow::Error>,
}

/// Where it goes.
#[derive(Clone)]
struct Target {
    path: String,
    aside: String,
    /// The file that is there.
    old: Option<Found>,
}

struct Whole {
    bytes: u64,
    /// Tells it from others under its new name. It is known when all is done but the rename.
    handle: Option<Vec<u8>>,
    /// Its rename was asked for, and not answered.
    is_asked: bool,
}

impl Put<'_> {
    /// Whether nobody knows whether it has its name.
    fn is_in_doubt(&self) -> bool {
        self.whole.as_ref().is_some_and(|whole| whole.is_asked)
    }

    async fn attempt(&mut self, asked: &Asked<'_>) -> anyhow::Result<(String, u64)> {
        let error = match self.given_up.take() {
            Some(first) => first,
            None => match self.carry_out(asked).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            },
        };
        let why = Passing::of(&error);
        let may_again = self.whole.is_some() || self.source.can_begin_anew();
        match why {
            // It goes on under the same name.
            Some(Passing::Away | Passing::Lost) if may_again => return Err(error),
            Some(Passing::Busy) if self.whole.is_some() => return Err(error),
            Some(Passing::Busy) if may_again => {
                // This may be the last attempt. The file is the next one's if it cannot be removed.
                if let Err(error) = self.take_back(&asked.files).await {
                    tracing::debug!(%error, "it is removed later");
                }
                return Err(error);
            }
            _ => {}
        }
        let error = match why {
            Some(_) => error.context(Final(format!(
                "{} cannot be read again, and nothing was changed",
                self.source.name
            ))),
            None => error,
        };
        match self.take_back(&asked.files).await {
            Ok(None) => Err(error),
            Ok(Some(done)) => Ok(done),
            // Once more, when the server is there again, to remove it.
            Err(away) => {
                self.given_up = Some(error);
                Err(away.into())
            }
        }
    }

    async fn carry_out(&mut self, asked: &Asked<'_>) -> anyhow::Result<(String, u64)> {
        let target = match &self.target {
            Some(target) => target.clone(),
            None => {
                let found = self.find(&asked.files).await?;
                self.target.insert(found).clone()
            }
        };
        if self.whole.is_none() {
            let written = self.write(asked, &target).await;
            let bytes = written.with_context(|| target.path.clone())?;
            self.whole = Some(Whole {
                bytes,
                handle: None,
                is_asked: false,
            });
        }
        let bytes = self.name(asked, &target).await;
        let bytes = bytes.with_context(|| target.path.clone())?;
        self.is_left = false;
        Ok((target.path, bytes))
    }

    /// Where it goes: into a directory under its own name.
    async fn find(&self, files: &Files) -> anyhow::Result<Target> {
        let to = &self.flags.to;
        let mut path = to.clone();
        let mut found = look(files, &path).await?;
        let is_directory = |found: &Found| found.kind == FileKind::Directory;
        if found.as_ref().is_some_and(is_directory) {
            let name = self.flags.from.file_name();
            let name = name.filter(|name| *name != "-");
            let name = name.context("standard input has no name: give it one")?;
            path = format!("{}/{}", to.trim_end_matches('/'), name.to_string_lossy());
            found = look(files, &path).await?;
        }
        if found.as_ref().map(|found| found.kind) == Some(FileKind::Other) {
            bail!("{path} is no file, and is not replaced by one");
        }
        // The rename says what is wrong with a directory.
        let old = found.filter(|found| found.kind == FileKind::File);
        let (directory, name) = parts(&path);
        let name = &name[..name.floor_char_boundary(NAME_PART)];
        let aside = format!("{directory}.{name}.vervain-{:016x}", self.random);
        Ok(Target { path, aside, old })
    }

    /// Writes all of it, durably, under the other name.
    async fn write(&mut self, asked: &Asked<'_>, target: &Target) -> anyhow::Result<u64> {
        let mode = target.old.as_ref().map_or(NEW_MODE, |_| PRIVATE_MODE);
        self.source.begin()?;
        self.is_left = true;
        let (files, source) = (&asked.files, &mut self.source);
        let written = files.write::<anyhow::Error>(&target.aside, mode, async |piece| {
            asked.patience.goes_on();
            let client = Some(asked.files.client());
            source.read(piece, asked.core, client, asked.stop).await
        });
        written.await
    }

    /// Gives it its name, and that alone again while somebody has the file that it replaces.
    async fn name(&mut self, asked: &Asked<'_>, target: &Target) -> anyhow::Result<u64> {
        let whole = self.whole.as_mut().expect("it was written before");
        let handle = match &whole.handle {
            Some(handle) => handle.clone(),
            None => {
                let new = asked.files.find(&target.aside).await?;
                if let Some(old) = &target.old {
                    keep(&asked.files, &target.aside, &new, old).await?;
                }
                whole.handle.insert(new.handle).clone()
            }
        };
        loop {
            let was_asked = std::mem::replace(&mut whole.is_asked, true);
            let error = match asked.files.rename(&target.aside, &target.path).await {
                Ok(()) => break,
                // The answer of before was lost, if it has the name.
                Err(ClientError::Status(Nfsstat4::NFS4ERR_NOENT)) if was_asked => {
                    if has_name(&asked.files, target, &handle).await? {
                        break;
                    }
                    ClientError::Status(Nfsstat4::NFS4ERR_NOENT)
                }
                Err(error) => error,
            };
            let error = anyhow::Error::new(error);
            // What the server says of this request, it says of one before as well only if that was answered.
            whole.is_asked = was_asked || is_in_doubt(&error);
            if Passing::of(&error) != Some(Passing::Busy) {
                return Err(error);
            }
            match asked.patience.next(Passing::Busy) {
                Some(rest) => asked.rest(rest).await?,
                None => return Err(error.context(Final("it is not replaced".into()))),
            }
        }
        Ok(whole.bytes)
    }

    /// Removes what was written so far; or finds that it has got its name, by a rename that was not answered. What is
    /// removed does not get it later either, if the server is only slow.
    async fn take_back(&mut self, files: &Files) -> Result<Option<(String, u64)>, ClientError> {
        let Some(target) = self.target.as_ref().filter(|_| self.is_left) else {
            return Ok(None);
        };
        let mut done = None;
        match files.remove(&target.aside).await {
            Ok(()) => {
                if let Some(whole) = &mut self.whole {
                    whole.is_asked = false;
                }
            }
            Err(ClientError::Status(Nfsstat4::NFS4ERR_NOENT)) => {
                if let Some(whole) = self.whole.as_ref().filter(|whole| whole.is_asked)
                    && let Some(handle) = &whole.handle
                    && has_name(files, target, handle).await?
                {
                    done = Some((target.path.clone(), whole.bytes));
                }
            }
            Err(error) => return Err(error),
        }
        self.is_left = false;
        Ok(done)
    }
}

/// Whether what was written has its name.
async fn has_name(files: &Files, target: &Target, handle: &[u8]) -> Result<bool, ClientError> {
    match files.find(&target.path).await {
        Ok(found) => Ok(found.handle == handle),
        Err(ClientError::Status(Nfsstat4::NFS4ERR_NOENT)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives a file the owner, the group and the mode of the one that it replaces, in this order, as far as the server lets.
async fn keep(files: &Files, path: &str, new: &Found, old: &Found) -> Result<(), ClientError> {
    let is_set = async |owner: Option<&str>, group: Option<&str>| {
        let mode = None;
        match files.set(path, &Changes { mode, owner, group }).await {
            Ok(()) => Ok(true),
            Err(ClientError::Status(
                Nfsstat4::NFS4ERR_PERM
                | Nfsstat4::NFS4ERR_ACCESS
                | Nfsstat4::NFS4ERR_BADOWNER
                | Nfsstat4::NFS4ERR_ATTRNOTSUPP
                | Nfsstat4::NFS4ERR_INVAL
                | Nfsstat4::NFS4ERR_NOTSUPP,
            )) => Ok(false),
            Err(error) => Err(error),
        }
    };
    let (mut owner, mut group) = (old.owner == new.owner, old.group == new.group);
    if !owner {
        owner = is_set(Some(&old.owner), Some(&old.group)).await?;
        group |= owner;
    }
    if !group {
        group = is_set(None, Some(&old.group)).await?;
    }
    let mode = Some(narrowed(old.mode, owner, group));
    let changes = Changes {
        mode,
        ..Changes::default()
    };
    files.set(path, &changes).await
}

/// What has a path.
async fn look(files: &Files, path: &str) -> anyhow::Result<Option<Found>> {
    match files.find(path).await {
        Ok(found) => Ok(Some(found)),
        Err(ClientError::Status(Nfsstat4::NFS4ERR_NOENT)) => Ok(None),
        Err(error) => Err(error).with_context(|| path.to_string()),
    }
}

/// What is written: it is opened once, since a pipe has one beginning.
struct Source {
    file: File,
    name: String,
    /// Where it begins, of what can be read again.
    start: Option<u64>,
    is_taken: bool,
}

impl Source {
    fn open(from: &Path) -> anyhow::Result<Self> {
        let (file, name) = match from.to_str() {
            Some("-") => {
                let stdin = std::io::stdin().as_fd().try_clone_to_owned();
                (stdin.map(File::from), "standard input".to_string())
            }
            _ => (File::open(from), from.display().to_string()),
        };
        let mut file = file.with_context(|| name.clone())?;
        let about = file.metadata().with_context(|| name.clone())?;
        if about.is_dir() {
            bail!("{name} is a directory");
        }
        let start = match about.is_file() {
            true => Some(file.stream_position().with_context(|| name.clone())?),
            false => None,
        };
        Ok(Self {
            file,
            name,
            start,
            is_taken: false,
        })
    }

    const fn can_begin_anew(&self) -> bool {
        self.start.is_some() || !self.is_taken
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        if let Some(start) = self.start {
            let sought = self.file.seek(SeekFrom::Start(start));
            sought.with_context(|| self.name.clone())?;
        }
        Ok(())
    }

    /// Reads a piece, or less at the end.
    async fn read(
        &mut self,
        piece: &mut Vec<u8>,
        core: &rt::Handle,
        client: Option<&Client>,
        stop: &Shutdown,
    ) -> anyhow::Result<()> {
        while piece.len() < PIECE {
            let ready = pipe::ready(core, client, &self.file, PollFlags::IN, stop).await;
            ready.with_context(|| self.name.clone())?;
            if stop.is_triggered() {
                bail!(INTERRUPTED);
            }
            self.is_taken = true;
            let at = piece.len();
            piece.resize(PIECE, 0);
            let read = self.file.read(&mut piece[at..]);
            piece.truncate(at + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).with_context(|| self.name.clone()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_and_a_pipe_is_not() {
        let stop = Shutdown::new();
        let mut core = rt::Core::new(rt::Config::default()).expect("a core");
        let handle = core.handle();
        let mut read = |source: &mut Source| {
            let mut piece = Vec::new();
            let read = core.block_on(source.read(&mut piece, &handle, None, &stop));
            read.map(|()| piece)
        };
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; PIECE + 5]).expect("written");
        let mut source = Source::open(&path).expect("it is there");
        for _ in 0..2 {
            source.begin().expect("sought");
            let lens = [(); 3].map(|()| read(&mut source).expect("read").len());
            assert_eq!(lens, [PIECE, 5, 0]);
            assert!(source.can_begin_anew());
        }

        let (from, mut to) = std::io::pipe().expect("a pipe");
        let mut source = Source {
            file: File::from(std::os::fd::OwnedFd::from(from)),
            name: "a pipe".into(),
            start: None,
            is_taken: false,
        };
        assert!(source.can_begin_anew());
        to.write_all(b"abc").expect("written");
        drop(to);
        let piece = read(&mut source).expect("read");
        assert_eq!((&*piece, source.can_begin_anew()), (&b"abc"[..], false));
        stop.trigger();
        let stopped = read(&mut source).expect_err("a signal");
        assert_eq!(stopped.to_string(), INTERRUPTED);
    }
}
