//! `vervain fs ls`, `put`, `get`, `rm`, `mkdir`, `df`: a served file system without a mount.

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use nfs::client::{Client, ClientError, Entry, FileKind, Files, Options};
use rt::net::Addr;
use serde_json::{Value, json};

use crate::cli::{FsGet, FsPaths, FsPut, show_size};

/// Bytes that are read of a local file at once.
const PIECE: usize = 1 << 20;

/// Does something with the files of a server.
fn with_files<T>(
    server: SocketAddr,
    work: impl AsyncFnOnce(&Files) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut core = rt::Core::new(rt::Config::default())?;
    let handle = core.handle();
    core.block_on(async {
        let name = format!("vervain {} {}", std::process::id(), fastrand::u64(..));
        let mut options = Options::new(name, fastrand::u64(..));
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        options.user = (uid.as_raw(), gid.as_raw());
        let client = Client::connect(&handle, &Addr::Tcp(server), options).await;
        let client = client
            .with_context(|| format!("no NFS server answers at {server} (`vervain fs serve`)"))?;
        let done = work(&Files::new(client.clone())).await;
        // What was asked for is done; the server would find out by itself.
        if let Err(error) = client.close().await {
            tracing::debug!(%error, "the session was not ended");
        }
        done
    })
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
    let paths = if flags.paths.is_empty() {
        vec!["/".to_string()]
    } else {
        flags.paths.clone()
    };
    with_files(flags.server.address(), async |files| {
        for path in &paths {
            let found = files.find(path).await.with_context(|| path.clone())?;
            let mut entries: Vec<Entry> = Vec::new();
            if found.kind == FileKind::Directory {
                let listed = files.list(&found, |page| entries.extend(page)).await;
                listed.with_context(|| path.clone())?;
                entries.sort_by(|a, b| a.name.cmp(&b.name));
            } else {
                let name = path
                    .trim_end_matches('/')
                    .rsplit('/')
                    .next()
                    .unwrap_or_default();
                entries.push(Entry {
                    name: name.as_bytes().to_vec(),
                    found,
                });
            }
            let mut out = std::io::stdout().lock();
            if json {
                let listed: Vec<Value> = entries.iter().map(as_json).collect();
                writeln!(out, "{}", json!({ "path": path, "entries": listed }))?;
                continue;
            }
            for Entry { name, found } in &entries {
                let mode = mode_text(found.kind, found.mode);
                let (owner, group, size) = (&found.owner, &found.group, found.size);
                write!(out, "{mode} {owner:>5} {group:>5} {size:>12} ")?;
                out.write_all(name.escape_ascii().to_string().as_bytes())?;
                writeln!(out)?;
            }
        }
        Ok(())
    })
}

/// Writes a local file, or standard input, to the server.
pub(super) fn put(flags: &FsPut, json: bool) -> anyhow::Result<()> {
    let mut from: Box<dyn Read> = match flags.from.to_str() {
        Some("-") => Box::new(std::io::stdin().lock()),
        _ => {
            let file = File::open(&flags.from);
            Box::new(file.with_context(|| flags.from.display().to_string())?)
        }
    };
    let written = with_files(flags.server.address(), async |files| {
        let mut path = flags.to.clone();
        // Into a directory: under its own name.
        let into = files.find(&path).await;
        if into.is_ok_and(|found| found.kind == FileKind::Directory) {
            let name = flags
                .from
                .file_name()
                .context("standard input has no name: give it one")?;
            path = format!("{}/{}", path.trim_end_matches('/'), name.to_string_lossy());
        }
        let written = files
            .write::<anyhow::Error>(&path, 0o644, |piece| {
                let mut part = (&mut from).take(PIECE as u64);
                part.read_to_end(piece)?;
                Ok(())
            })
            .await;
        written
            .with_context(|| path.clone())
            .map(|bytes| (path, bytes))
    })?;
    let (path, bytes) = written;
    if json {
        println!("{}", json!({ "path": path, "bytes": bytes }));
    } else {
        println!("{path}: {}", show_size(bytes as usize));
    }
    Ok(())
}

/// Reads a file of the server to a local one, or to standard output.
pub(super) fn get(flags: &FsGet) -> anyhow::Result<()> {
    with_files(flags.server.address(), async |files| {
        let found = files
            .find(&flags.from)
            .await
            .with_context(|| flags.from.clone())?;
        if found.kind != FileKind::File {
            bail!("{} is no file but a {}", flags.from, kind(found.kind));
        }
        let mut to: Box<dyn Write> = match &flags.to {
            Some(path) if path.to_str() != Some("-") => {
                Box::new(File::create(path).with_context(|| path.display().to_string())?)
            }
            _ => Box::new(std::io::stdout().lock()),
        };
        let read = files
            .read::<anyhow::Error>(&flags.from, |bytes| Ok(to.write_all(bytes)?))
            .await;
        read.with_context(|| flags.from.clone())?;
        to.flush()?;
        Ok(())
    })
}

/// Makes directories.
pub(super) fn mkdir(flags: &FsPaths) -> anyhow::Result<()> {
    with_files(flags.server.address(), async |files| {
        for path in &flags.paths {
            let made = files.make_directory(path, 0o755).await;
            made.with_context(|| path.clone())?;
        }
        Ok(())
    })
}

/// Removes files and empty directories; says false if one was not there.
pub(super) fn rm(flags: &FsPaths) -> anyhow::Result<bool> {
    with_files(flags.server.address(), async |files| {
        let mut all = true;
        for path in &flags.paths {
            match files.remove(path).await {
                Ok(()) => {}
                Err(ClientError::Status(nfs::wire::Nfsstat4::NFS4ERR_NOENT)) => {
                    eprintln!("{path}: no such file or directory");
                    all = false;
                }
                Err(error) => return Err(error).with_context(|| path.clone()),
            }
        }
        Ok(all)
    })
}

/// The server's room.
pub(super) fn df(flags: &FsPaths, json: bool) -> anyhow::Result<()> {
    let paths = if flags.paths.is_empty() {
        vec!["/".to_string()]
    } else {
        flags.paths.clone()
    };
    with_files(flags.server.address(), async |files| {
        for path in &paths {
            let room = files.room(path).await.with_context(|| path.clone())?;
            if json {
                let told = json!({
                    "path": path,
                    "bytes_total": room.bytes_total,
                    "bytes_free": room.bytes_free,
                    "files_total": room.files_total,
                    "files_free": room.files_free,
                });
                println!("{told}");
            } else {
                let size = |bytes: u64| show_size(usize::try_from(bytes).unwrap_or(usize::MAX));
                println!(
                    "{path}: {} of {} free",
                    size(room.bytes_free),
                    size(room.bytes_total)
                );
            }
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
}
