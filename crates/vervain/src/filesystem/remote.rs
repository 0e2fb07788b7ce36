//! `vervain fs ls`, `put`, `get`, `rm`, `mkdir`, `df`: a served file system without a mount.

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nfs::client::{Client, ClientError, Entry, FileKind, Files, Options};
use nfs::wire::Nfsstat4;
use rt::net::Addr;
use serde_json::{Value, json};

use super::again::{Passing, Patience};
use crate::cli::{FsGet, FsPaths, FsPut, FsServer, show_size};

/// Bytes that are read of a local file at once.
const PIECE: usize = 1 << 20;

/// Whether something may be done once more when it is not known whether it was carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Safe,
    Unsafe,
}

/// Does something with the files of a server; tries again while the server restarts.
fn with_files<T>(
    server: &FsServer,
    repeat: Repeat,
    mut work: impl AsyncFnMut(&Files) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut core = rt::Core::new(rt::Config::default())?;
    let handle = core.handle();
    let mut patience = Patience::new(server);
    core.block_on(async {
        loop {
            let failed = match connect(&handle, server).await {
                Ok(client) => match attempt(&client, &mut work).await {
                    Ok(done) => return Ok(done),
                    Err(error) => (Passing::of(&error), error, repeat),
                },
                // Nothing was asked yet.
                Err(error) => (Passing::of(&error), error, Repeat::Safe),
            };
            let (Some(why), error, repeat) = failed else {
                return Err(failed.1);
            };
            if why == Passing::Away && repeat == Repeat::Unsafe {
                return Err(error.context("it may have been carried out or not"));
            }
            match patience.next(why) {
                Some(rest) => handle.sleep(rest).await,
                None => return Err(error),
            }
        }
    })
}

async fn connect(core: &rt::Handle, server: &FsServer) -> anyhow::Result<Client> {
    let name = format!("vervain {} {}", std::process::id(), fastrand::u64(..));
    let mut options = Options::new(name, fastrand::u64(..));
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    options.user = (uid.as_raw(), gid.as_raw());
    let address = server.address();
    let client = Client::connect(core, &Addr::Tcp(address), options).await;
    client.with_context(|| format!("no NFS server answers at {address} (`vervain fs serve`)"))
}

async fn attempt<T>(
    client: &Client,
    work: &mut impl AsyncFnMut(&Files) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let done = work(&Files::new(client.clone())).await;
    // What was asked for is done; the server would find out by itself.
    if let Err(error) = client.clone().close().await {
        tracing::debug!(%error, "the session was not ended");
    }
    done
}

fn as_json(entry: &Entry) -> Value {
    json!({
        "name": String::from_utf8_lossy(&entry.name),
        "kind": kind(entry.found.kind),
        "size": entry.found.size,
        "mode": format!("{:o}", entry.found.mode),
        "links": entry.found.links,
        "owner": entry.found.owner,
        "group": entry.found.group,
        "modified_s": entry.found.modified_s,
    })
}

const fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Other => "other",
    }
}

/// A mode as `ls` shows it.
fn mode_text(kind: FileKind, mode: u32) -> String {
    let first = match kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Other => '?',
    };
    let bit = |at: u32, letter: char| if mode >> at & 1 == 1 { letter } else { '-' };
    let bits = (0..9)
        .rev()
        .map(|at| bit(at, ['x', 'w', 'r'][at as usize % 3]));
    std::iter::once(first).chain(bits).collect()
}

/// Lists directories; of anything else, itself.
pub(super) fn ls(flags: &FsPaths, json: bool) -> anyhow::Result<()> {
    let paths = paths_or_root(flags);
    let mut done = 0;
    with_files(&flags.server, Repeat::Safe, async |files| {
        while let Some(path) = paths.get(done) {
            let entries = entries(files, path).await.with_context(|| path.clone())?;
            show_entries(path, &entries, json)?;
            done += 1;
        }
        Ok(())
    })
}

fn paths_or_root(flags: &FsPaths) -> Vec<String> {
    if flags.paths.is_empty() {
        return vec!["/".to_string()];
    }
    flags.paths.clone()
}

/// What is in a directory, by name; of anything else, itself.
async fn entries(files: &Files, path: &str) -> Result<Vec<Entry>, ClientError> {
    let found = files.find(path).await?;
    let mut entries: Vec<Entry> = Vec::new();
    if found.kind == FileKind::Directory {
        files.list(&found, |page| entries.extend(page)).await?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
    } else {
        let (_, name) = parts(path);
        entries.push(Entry {
            name: name.as_bytes().to_vec(),
            found,
        });
    }
    Ok(entries)
}

/// A path's directory, with the `/` at its end, and its name there.
fn parts(path: &str) -> (&str, &str) {
    let trimmed = path.trim_end_matches('/');
    let name = trimmed.rfind('/').map_or(0, |at| at + 1);
    trimmed.split_at(name)
}

fn show_entries(path: &str, entries: &[Entry], json: bool) -> anyhow::Result<()> {
    let mut out = bench::print::output();
    if json {
        let listed: Vec<Value> = entries.iter().map(as_json).collect();
        writeln!(out, "{}", json!({ "path": path, "entries": listed }))?;
        return Ok(());
    }
    for Entry { name, found } in entries {
        let mode = mode_text(found.kind, found.mode);
        let (owner, group, size) = (&found.owner, &found.group, found.size);
        writeln!(
            out,
            "{mode} {owner:>5} {group:>5} {size:>12} {}",
            name.escape_ascii()
        )?;
    }
    Ok(())
}

/// Writes a local file, or standard input, to the server: under a name of its own until it is whole.
pub(super) fn put(flags: &FsPut, json: bool) -> anyhow::Result<()> {
    let is_stdin = flags.from.to_str() == Some("-");
    if !is_stdin {
        // What is wrong with it needs no server.
        File::open(&flags.from).with_context(|| flags.from.display().to_string())?;
    }
    // What was read of standard input does not come again.
    let repeat = if is_stdin {
        Repeat::Unsafe
    } else {
        Repeat::Safe
    };
    let (path, bytes) = with_files(&flags.server, repeat, async |files| {
        let path = target(files, flags).await?;
        let (directory, name) = parts(&path);
        let random = fastrand::u64(..);
        let aside = format!("{directory}.{name:.100}.vervain-{random:016x}");
        let written = write(files, flags, &aside).await;
        let named = match written {
            Ok(bytes) => files.rename(&aside, &path).await.map(|()| bytes),
            Err(error) => {
                let error = error.context(path.clone());
                return Err(give_up(files, &aside, error).await);
            }
        };
        match named {
            Ok(bytes) => Ok((path, bytes)),
            Err(error) => {
                let error = anyhow::Error::new(error).context(path.clone());
                Err(give_up(files, &aside, error).await)
            }
        }
    })?;
    let mut out = bench::print::output();
    if json {
        writeln!(out, "{}", json!({ "path": path, "bytes": bytes }))?;
    } else {
        writeln!(out, "{path}: {}", show_size(bytes as usize))?;
    }
    Ok(())
}

/// Where a file goes: into a directory under its own name.
async fn target(files: &Files, flags: &FsPut) -> anyhow::Result<String> {
    let path = flags.to.clone();
    match files.find(&path).await {
        Ok(found) if found.kind == FileKind::Directory => {
            let name = flags.from.file_name();
            let name = name.filter(|name| *name != "-");
            let name = name.context("standard input has no name: give it one")?;
            let name = name.to_string_lossy();
            Ok(format!("{}/{name}", path.trim_end_matches('/')))
        }
        Ok(found) if found.kind == FileKind::Other => {
            bail!("{path} is no file, and is not replaced by one")
        }
        Ok(_) | Err(ClientError::Status(Nfsstat4::NFS4ERR_NOENT)) => Ok(path),
        Err(error) => Err(error).context(path),
    }
}

async fn write(files: &Files, flags: &FsPut, to: &str) -> anyhow::Result<u64> {
    let mut from: Box<dyn Read> = match flags.from.to_str() {
        Some("-") => Box::new(std::io::stdin().lock()),
        _ => {
            let file = File::open(&flags.from);
            Box::new(file.with_context(|| flags.from.display().to_string())?)
        }
    };
    let written = files.write::<anyhow::Error>(to, 0o644, |piece| {
        let mut part = (&mut from).take(PIECE as u64);
        part.read_to_end(piece)?;
        Ok(())
    });
    written.await
}

/// Removes what was written so far; the error says where it is left if that cannot be done.
async fn give_up(files: &Files, aside: &str, error: anyhow::Error) -> anyhow::Error {
    match files.remove(aside).await {
        Ok(()) | Err(ClientError::Status(Nfsstat4::NFS4ERR_NOENT)) => error,
        Err(why) => {
            tracing::warn!(%why, "{aside} is left, and can be removed");
            error
        }
    }
}

/// Reads a file of the server to a local one, or to standard output.
pub(super) fn get(flags: &FsGet) -> anyhow::Result<()> {
    let to = flags.to.as_deref().filter(|to| to.to_str() != Some("-"));
    // What was written to standard output does not go away.
    let written = Cell::new(0);
    with_files(&flags.server, Repeat::Safe, async |files| {
        if written.get() > 0 && to.is_none() {
            bail!("the server went away in the middle of {}", flags.from);
        }
        let found = files
            .find(&flags.from)
            .await
            .with_context(|| flags.from.clone())?;
        if found.kind != FileKind::File {
            bail!("{} is no file but a {}", flags.from, kind(found.kind));
        }
        let mut local = Local::open(to)?;
        let read = files
            .read::<anyhow::Error>(&flags.from, |bytes| {
                written.set(written.get() + bytes.len());
                Ok(local.out.write_all(bytes)?)
            })
            .await;
        read.with_context(|| flags.from.clone())?;
        local.end()
    })
}

/// Where a file is read to: under a name of its own until it is whole.
struct Local {
    out: Box<dyn Write>,
    names: Option<(PathBuf, PathBuf)>,
}

impl Local {
    fn open(to: Option<&Path>) -> anyhow::Result<Self> {
        let Some(to) = to else {
            let out = Box::new(bench::print::output());
            return Ok(Self { out, names: None });
        };
        let shown = || to.display().to_string();
        // A device or a pipe is written to as it is.
        let is_special = std::fs::metadata(to).is_ok_and(|about| !about.is_file());
        if is_special {
            let file = File::options().write(true).open(to).with_context(shown)?;
            let out = Box::new(file);
            return Ok(Self { out, names: None });
        }
        let name = to.file_name().with_context(shown)?.to_string_lossy();
        let aside = to.with_file_name(format!(".{name:.100}.vervain-{}", std::process::id()));
        let file = File::create(&aside).with_context(shown)?;
        Ok(Self {
            out: Box::new(file),
            names: Some((aside, to.to_path_buf())),
        })
    }

    fn end(mut self) -> anyhow::Result<()> {
        self.out.flush()?;
        if let Some((aside, to)) = self.names.take() {
            let named = std::fs::rename(&aside, &to);
            named.with_context(|| to.display().to_string())?;
        }
        Ok(())
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some((aside, _)) = self.names.take()
            && let Err(error) = std::fs::remove_file(&aside)
        {
            tracing::warn!(%error, "{} is left, and can be removed", aside.display());
        }
    }
}

/// Makes directories.
pub(super) fn mkdir(flags: &FsPaths) -> anyhow::Result<()> {
    let mut done = 0;
    with_files(&flags.server, Repeat::Unsafe, async |files| {
        while let Some(path) = flags.paths.get(done) {
            let made = files.make_directory(path, 0o755).await;
            made.with_context(|| path.clone())?;
            done += 1;
        }
        Ok(())
    })
}

/// Removes files and empty directories; says false if one was not there.
pub(super) fn rm(flags: &FsPaths) -> anyhow::Result<bool> {
    let (mut done, mut all) = (0, true);
    with_files(&flags.server, Repeat::Unsafe, async |files| {
        while let Some(path) = flags.paths.get(done) {
            match files.remove(path).await {
                Ok(()) => {}
                Err(ClientError::Status(Nfsstat4::NFS4ERR_NOENT)) => {
                    eprintln!("{path}: no such file or directory");
                    all = false;
                }
                Err(error) => return Err(error).with_context(|| path.clone()),
            }
            done += 1;
        }
        Ok(all)
    })
}

/// The server's room.
pub(super) fn df(flags: &FsPaths, json: bool) -> anyhow::Result<()> {
    let paths = paths_or_root(flags);
    let mut done = 0;
    with_files(&flags.server, Repeat::Safe, async |files| {
        while let Some(path) = paths.get(done) {
            let room = files.room(path).await.with_context(|| path.clone())?;
            let mut out = bench::print::output();
            if json {
                let told = json!({
                    "path": path,
                    "bytes_total": room.bytes_total,
                    "bytes_free": room.bytes_free,
                    "files_total": room.files_total,
                    "files_free": room.files_free,
                });
                writeln!(out, "{told}")?;
            } else {
                let size = |bytes: u64| show_size(usize::try_from(bytes).unwrap_or(usize::MAX));
                writeln!(
                    out,
                    "{path}: {} of {} free",
                    size(room.bytes_free),
                    size(room.bytes_total)
                )?;
            }
            done += 1;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_those_of_ls() {
        assert_eq!(mode_text(FileKind::Directory, 0o755), "drwxr-xr-x");
        assert_eq!(mode_text(FileKind::File, 0o640), "-rw-r-----");
    }

    #[test]
    fn paths_have_a_directory_and_a_name() {
        assert_eq!(parts("/a/b/c"), ("/a/b/", "c"));
        assert_eq!(parts("/a/"), ("/", "a"));
        assert_eq!(parts("a"), ("", "a"));
    }

    #[test]
    fn a_local_file_has_its_name_only_when_it_is_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let to = dir.path().join("to");
        std::fs::write(&to, "before").expect("written");
        let mut given_up = Local::open(Some(&to)).expect("made");
        given_up.out.write_all(b"half").expect("written");
        drop(given_up);
        let names = || std::fs::read_dir(dir.path()).expect("listed").count();
        assert_eq!(
            (std::fs::read(&to).expect("read"), names()),
            (b"before".to_vec(), 1)
        );
        let mut whole = Local::open(Some(&to)).expect("made");
        whole.out.write_all(b"whole").expect("written");
        whole.end().expect("named");
        assert_eq!(
            (std::fs::read(&to).expect("read"), names()),
            (b"whole".to_vec(), 1)
        );
        let mut null = Local::open(Some(Path::new("/dev/null"))).expect("opened");
        null.out.write_all(b"nothing").expect("written");
        null.end().expect("nothing to name");
    }
}
