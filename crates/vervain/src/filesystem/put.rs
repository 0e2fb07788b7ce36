//! `vervain fs put`: a local file to the server, under a name of its own until it is whole.

use std::fs::File;
use std::io::{Read, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use nfs::client::{ClientError, FileKind, Files};
use nfs::wire::Nfsstat4;
use rt::threads::Shutdown;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use super::again::{Final, Passing};
use super::remote::{Asked, Repeat, parts, with_files};
use super::signals::{self, INTERRUPTED};
use crate::cli::{FsPut, show_size};

/// Bytes that are read of a local file at once.
const PIECE: usize = 1 << 20;

/// Bytes of a file's name that the name has that it is written under.
pub(super) const NAME_PART: usize = 100;

/// How long a signal waits until what was written so far is removed.
pub(super) const GIVE_UP_MAX: Duration = Duration::from_secs(5);

/// The mode of a file that is not there yet.
const NEW_MODE: u32 = 0o644;

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
    if let Some(Target { aside, .. }) = put.target.as_ref().filter(|_| put.is_left) {
        tracing::warn!("{aside} is left, and can be removed");
    }
    let (path, bytes) = match (done, put.given_up) {
        (Err(_), Some(first)) => return Err(first),
        (done, _) => done?,
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
    mode: u32,
}

struct Whole {
    bytes: u64,
    /// Tells it from others under its new name.
    handle: Option<Vec<u8>>,
    /// Its rename was asked for, and not answered.
    is_asked: bool,
}

impl Put<'_> {
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
                if let Err(error) = self.remove(&asked.files).await {
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
        match self.remove(&asked.files).await {
            Ok(()) => Err(error),
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
        Ok((target.path, bytes))
    }

    /// Where it goes: into a directory under its own name.
    async fn find(&self, files: &Files) -> anyhow::Result<Target> {
        let to = &self.flags.to;
        let mut path = to.clone();
        let mut found = look(files, &path).await?;
        if found == Some((FileKind::Directory, 0)) {
            let name = self.flags.from.file_name();
            let name = name.filter(|name| *name != "-");
            let name = name.context("standard input has no name: give it one")?;
            path = format!("{}/{}", to.trim_end_matches('/'), name.to_string_lossy());
            found = look(files, &path).await?;
        }
        let mode = match found {
            Some((FileKind::Other, _)) => bail!("{path} is no file, and is not replaced by one"),
            Some((FileKind::File, mode)) => mode,
            // The rename says what is wrong with a directory.
            _ => NEW_MODE,
        };
        let (directory, name) = parts(&path);
        let name = &name[..name.floor_char_boundary(NAME_PART)];
        let aside = format!("{directory}.{name}.vervain-{:016x}", self.random);
        Ok(Target { path, aside, mode })
    }

    /// Writes all of it, durably, under the other name.
    async fn write(&mut self, asked: &Asked<'_>, target: &Target) -> anyhow::Result<u64> {
        let Target { aside, mode, .. } = target;
        self.source.begin()?;
        self.is_left = true;
        let source = &mut self.source;
        let written = asked.files.write::<anyhow::Error>(aside, *mode, |piece| {
            asked.patience.goes_on();
            source.read(piece, asked.stop)
        });
        written.await
    }

    /// Gives it its name, and that alone again while somebody has the file that it replaces.
    async fn name(&mut self, asked: &Asked<'_>, target: &Target) -> anyhow::Result<u64> {
        let whole = self.whole.as_mut().expect("it was written before");
        let handle = match &whole.handle {
            Some(handle) => handle.clone(),
            None => {
                let found = asked.files.find(&target.aside).await?;
                whole.handle.insert(found.handle).clone()
            }
        };
        loop {
            let was_asked = std::mem::replace(&mut whole.is_asked, true);
            let error = match asked.files.rename(&target.aside, &target.path).await {
                Ok(()) => break,
                Err(ClientError::Status(Nfsstat4::NFS4ERR_NOENT)) if was_asked => {
                    // The answer of before was lost, if it has the name.
                    let found = asked.files.find(&target.path).await?;
                    if found.handle == handle {
                        break;
                    }
                    ClientError::Status(Nfsstat4::NFS4ERR_NOENT)
                }
                Err(error) => error,
            };
            let error = anyhow::Error::new(error);
            if Passing::of(&error) != Some(Passing::Busy) {
                return Err(error);
            }
            match asked.patience.next(Passing::Busy) {
                Some(rest) => asked.rest(rest).await?,
                None => return Err(error.context(Final("it is not replaced".into()))),
            }
        }
        self.is_left = false;
        Ok(whole.bytes)
    }

    /// Removes what was written so far.
    async fn remove(&mut self, files: &Files) -> Result<(), ClientError> {
        let Some(target) = self.target.as_ref().filter(|_| self.is_left) else {
            return Ok(());
        };
        match files.remove(&target.aside).await {
            Ok(()) | Err(ClientError::Status(Nfsstat4::NFS4ERR_NOENT)) => {
                self.is_left = false;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// What has a path, and a file's mode.
async fn look(files: &Files, path: &str) -> anyhow::Result<Option<(FileKind, u32)>> {
    match files.find(path).await {
        Ok(found) if found.kind == FileKind::File => Ok(Some((found.kind, found.mode))),
        Ok(found) => Ok(Some((found.kind, 0))),
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
    fn read(&mut self, piece: &mut Vec<u8>, stop: &Shutdown) -> anyhow::Result<()> {
        self.is_taken = true;
        while piece.len() < PIECE {
            if self.start.is_none() {
                self.wait(stop)?;
            }
            if stop.is_triggered() {
                bail!(INTERRUPTED);
            }
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

    /// Waits until there is something to read, or its end. A read would not end by a signal.
    fn wait(&self, stop: &Shutdown) -> anyhow::Result<()> {
        const LOOK_EVERY: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        while !stop.is_triggered() {
            let mut polled = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut polled, Some(&LOOK_EVERY)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
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
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; PIECE + 5]).expect("written");
        let mut source = Source::open(&path).expect("it is there");
        for _ in 0..2 {
            source.begin().expect("sought");
            let lens = [(); 3].map(|()| {
                let mut piece = Vec::new();
                source.read(&mut piece, &stop).expect("read");
                piece.len()
            });
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
        let mut piece = Vec::new();
        source.read(&mut piece, &stop).expect("read");
        assert_eq!((&*piece, source.can_begin_anew()), (&b"abc"[..], false));
        stop.trigger();
        let stopped = source.read(&mut piece, &stop).expect_err("a signal");
        assert_eq!(stopped.to_string(), INTERRUPTED);
    }
}
