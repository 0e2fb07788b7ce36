//! `vervain fs get`: a file of the server to a local one, or to standard output.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, ErrorKind, Seek as _, Write};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nfs::client::FileKind;
use rustix::event::PollFlags;
use rustix::fs::{PROC_SUPER_MAGIC, fstat, statfs};
use tempfile::NamedTempFile;

use super::again::{Final, Passing};
use super::kept::narrowed;
use super::pipe;
use super::put::{GIVE_UP_MAX, NAME_PART};
use super::remote::{Asked, Repeat, kind, with_files};
use crate::cli::FsGet;
use crate::signals::{self, INTERRUPTED};

/// The mode of a file that is not there yet, but for what umask takes from it.
const NEW_MODE: u32 = 0o666;

/// The mode of one that replaces another, until it is whole.
const PRIVATE_MODE: u32 = 0o600;

/// Links that are followed one after the other, as Linux follows them.
const LINKS_MAX: u32 = 40;

/// Reads a file of the server.
pub(super) fn run(flags: &FsGet) -> anyhow::Result<()> {
    let to = flags.to.as_deref().filter(|to| to.to_str() != Some("-"));
    let stop = signals::watch(Some(GIVE_UP_MAX))?;
    let mut local = None;
    with_files(&flags.server, Repeat::Safe, &stop, async |asked| {
        let found = asked.files.find(&flags.from).await;
        let found = found.with_context(|| flags.from.clone())?;
        if found.kind != FileKind::File {
            bail!("{} is no file but a {}", flags.from, kind(found.kind));
        }
        // Once: a pipe has one beginning.
        let local = match &mut local {
            Some(local) => local,
            none => none.insert(Local::open(to)?),
        };
        local.begin()?;
        let read = read(asked, &flags.from, local).await;
        let read = read.with_context(|| flags.from.clone());
        match read {
            Err(error) if Passing::of(&error).is_some() && !local.can_begin_anew() => {
                let what = "the server went away in the middle of it, and what was written stays";
                Err(error.context(Final(what.into())))
            }
            read => read,
        }
    })?;
    local.map_or(Ok(()), Local::end)
}

async fn read(asked: &Asked<'_>, from: &str, local: &mut Local) -> anyhow::Result<()> {
    let read = asked.files.read::<anyhow::Error>(from, async |bytes| {
        asked.patience.goes_on();
        for part in bytes.chunks(local.at_once()) {
            let client = Some(asked.files.client());
            pipe::ready(asked.core, client, local.fd(), PollFlags::OUT, asked.stop).await?;
            if asked.stop.is_triggered() {
                bail!(INTERRUPTED);
            }
            local.write(part)?;
        }
        Ok(())
    });
    read.await.map(drop)
}

/// Where a file is read to.
struct Local {
    to: To,
    written: u64,
}

enum To {
    Output(bench::print::Output, io::Stdout),
    /// A device or a pipe: it is written to as it is.
    Special(File),
    /// A file, under a name of its own until it is whole, and what it replaces then.
    File(NamedTempFile, PathBuf, Option<Box<Metadata>>),
}

impl Local {
    fn open(to: Option<&Path>) -> anyhow::Result<Self> {
        let to = match to {
            None => To::output(),
            Some(to) => To::open(to).with_context(|| to.display().to_string())?,
        };
        Ok(Self { to, written: 0 })
    }

    const fn can_begin_anew(&self) -> bool {
        self.written == 0 || matches!(self.to, To::File(..))
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        if let To::File(file, to, _) = &mut self.to {
            let emptied = file.as_file().set_len(0).and_then(|()| file.rewind());
            emptied.with_context(|| to.display().to_string())?;
        }
        Ok(())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.to {
            To::Output(_, out) => out.as_fd(),
            To::Special(file) => file.as_fd(),
            To::File(file, ..) => file.as_file().as_fd(),
        }
    }

    /// Bytes that are written at once: to what may be a pipe only as many as it has room for.
    const fn at_once(&self) -> usize {
        match self.to {
            To::File(..) => usize::MAX,
            _ => pipe::AT_ONCE,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.written += bytes.len() as u64;
        match &mut self.to {
            To::Output(out, _) => out.write_all(bytes)?,
            To::Special(file) => file.write_all(bytes)?,
            To::File(file, to, _) => {
                let written = file.write_all(bytes);
                written.with_context(|| to.display().to_string())?;
            }
        }
        Ok(())
    }

    fn end(self) -> anyhow::Result<()> {
        match self.to {
            To::Output(mut out, _) => out.flush()?,
            To::Special(mut file) => file.flush()?,
            To::File(file, to, old) => {
                let kept = old.map_or(Ok(()), |old| keep(file.as_file(), &old));
                kept.with_context(|| to.display().to_string())?;
                let named = file.persist(&to).map_err(|error| error.error);
                named.with_context(|| to.display().to_string())?;
            }
        }
        Ok(())
    }
}

impl To {
    fn output() -> Self {
        Self::Output(bench::print::output(), io::stdout())
    }

    fn open(to: &Path) -> io::Result<Self> {
        let to = follow(to)?;
        let about = match std::fs::metadata(&to) {
            Ok(about) => Some(about),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let output = fstat(io::stdout())?;
        let is_output = |about: &std::fs::Metadata| {
            (about.dev(), about.ino()) == (output.st_dev, output.st_ino)
        };
        if to.is_symlink() && about.as_ref().is_some_and(is_output) {
            return Ok(Self::output());
        }
        // What a descriptor has already stays, also of a file.
        if let Some(about) = &about
            && (to.is_symlink() || !about.is_file())
        {
            let mut how = File::options();
            let how = how.write(true).append(about.is_file());
            return how.open(&to).map(Self::Special);
        }
        let name = to.file_name().ok_or(ErrorKind::IsADirectory)?;
        let name = name.to_string_lossy();
        let name = &name[..name.floor_char_boundary(NAME_PART)];
        let directory = match to.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        let mode = about.as_ref().map_or(NEW_MODE, |_| PRIVATE_MODE);
        let file = tempfile::Builder::new()
            .prefix(&format!(".{name}.vervain-"))
            .rand_bytes(16)
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(directory)?;
        Ok(Self::File(file, to, about.map(Box::new)))
    }
}

/// Gives a file the owner, the group and the mode of the one that it replaces, as far as the system lets.
fn keep(file: &File, old: &Metadata) -> io::Result<()> {
    let is_set = |uid, gid| match fchown(file, uid, gid) {
        Ok(()) => Ok(true),
        // Also where a file system has no owners, or a namespace none of this number.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    };
    let new = file.metadata()?;
    let (mut owner, mut group) = (old.uid() == new.uid(), old.gid() == new.gid());
    if !owner {
        owner = is_set(Some(old.uid()), Some(old.gid()))?;
        group |= owner;
    }
    if !group {
        group = is_set(None, Some(old.gid()))?;
    }
    let mode = narrowed(old.mode() & 0o7777, owner, group);
    file.set_permissions(Permissions::from_mode(mode))
}

/// Where links lead, also to what is not there; a link of `/proc` is a descriptor, and stays.
fn follow(to: &Path) -> io::Result<PathBuf> {
    let mut path = to.to_path_buf();
    for _ in 0..LINKS_MAX {
        if !path.is_symlink() {
            return Ok(path);
        }
        let directory = match path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        if statfs(directory)?.f_type == PROC_SUPER_MAGIC {
            return Ok(path);
        }
        path = directory.canonicalize()?.join(std::fs::read_link(&path)?);
    }
    Err(rustix::io::Errno::LOOP.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory, and how many names it has.
    fn place() -> (tempfile::TempDir, impl Fn() -> usize) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().to_path_buf();
        let names = move || std::fs::read_dir(&path).expect("listed").count();
        (dir, names)
    }

    fn get(to: &Path, bytes: &[u8]) {
        let mut local = Local::open(Some(to)).expect("made");
        local.write(bytes).expect("written");
        local.end().expect("named");
    }

    #[test]
    fn a_local_file_has_its_name_only_when_it_is_whole() {
        let (dir, names) = place();
        let to = dir.path().join("to");
        std::fs::write(&to, "before").expect("written");
        let mut given_up = Local::open(Some(&to)).expect("made");
        given_up.write(b"half").expect("written");
        drop(given_up);
        let content = || std::fs::read(&to).expect("read");
        assert_eq!((content(), names()), (b"before".to_vec(), 1));
        let mut whole = Local::open(Some(&to)).expect("made");
        whole.write(b"half of it").expect("written");
        whole.begin().expect("emptied");
        whole.write(b"whole").expect("written");
        whole.end().expect("named");
        assert_eq!((content(), names()), (b"whole".to_vec(), 1));
        get(Path::new("/dev/null"), b"nothing");
    }

    #[test]
    fn links_stay_and_lead_to_what_is_written() {
        let (dir, names) = place();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir(path("below")).expect("made");
        std::fs::write(path("below/v1"), "old").expect("written");
        symlink("below/v1", path("first")).expect("made");
        symlink(path("first"), path("second")).expect("made");
        symlink("below/new", path("dangling")).expect("made");
        symlink("round", path("round")).expect("made");
        get(&path("second"), b"content");
        get(&path("dangling"), b"made");
        let read = |name: &str| std::fs::read_to_string(path(name)).expect("read");
        assert_eq!(
            (read("below/v1"), read("below/new")),
            ("content".into(), "made".into())
        );
        assert!(path("second").is_symlink() && path("dangling").is_symlink());
        assert_eq!(names(), 5);
        assert!(Local::open(Some(&path("round"))).is_err());
    }

    #[test]
    fn a_descriptor_is_written_to_as_it_is() {
        use std::os::fd::AsRawFd as _;
        let (dir, names) = place();
        let log = dir.path().join("log");
        std::fs::write(&log, "before ").expect("written");
        let open = File::options().append(true).open(&log).expect("opened");
        let link = dir.path().join("descriptor");
        symlink(format!("/proc/self/fd/{}", open.as_raw_fd()), &link).expect("made");
        get(&link, b"and after");
        assert_eq!(std::fs::read(&log).expect("read"), b"before and after");
        assert!(link.is_symlink());
        assert_eq!(names(), 2);
    }

    #[test]
    fn a_file_keeps_its_owner_if_that_can_be() {
        let (dir, _) = place();
        let to = dir.path().join("to");
        std::fs::write(&to, "before").expect("written");
        // Only root gives files away; others find that theirs stay theirs.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&to, Some(1234), Some(1235)).expect("set");
        }
        std::fs::set_permissions(&to, Permissions::from_mode(0o4640)).expect("set");
        let rights = || {
            let about = std::fs::metadata(&to).expect("it is there");
            (about.uid(), about.gid(), about.mode() & 0o7777)
        };
        let before = rights();
        get(&to, b"new");
        assert_eq!(rights(), before);
    }

    #[test]
    fn a_file_keeps_its_mode_and_long_names_have_room() {
        let (dir, names) = place();
        let to = dir.path().join("文".repeat(85));
        get(&to, b"new");
        std::fs::set_permissions(&to, Permissions::from_mode(0o600)).expect("set");
        get(&to, b"newer");
        let about = std::fs::metadata(&to).expect("it is there");
        assert_eq!((about.mode() & 0o7777, about.len(), names()), (0o600, 5, 1));
    }
}
