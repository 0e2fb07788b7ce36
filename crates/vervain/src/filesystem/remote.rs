//! `vervain fs ls`, `rm`, `mkdir`, `df`: a served file system without a mount.

use std::future::{Future, poll_fn};
use std::io::Write;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use anyhow::Context as _;
use nfs::client::{Client, ClientError, Entry, FileKind, Files, Options};
use nfs::wire::Nfsstat4;
use rt::net::Addr;
use rt::threads::Shutdown;
use serde_json::{Value, json};

use super::again::{IN_DOUBT, Passing, Patience, is_in_doubt};
use crate::cli::{FsPaths, FsServer, FsSome, show_size};
use crate::signals::INTERRUPTED;

/// Whether something may be done once more when it is not known whether it was carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Safe,
    Unsafe,
}

/// Files of a server, while its connection lasts.
pub(super) struct Asked<'a> {
    pub(super) core: &'a rt::Handle,
    pub(super) files: Files,
    pub(super) patience: &'a Patience,
    pub(super) stop: &'a Shutdown,
}

impl Asked<'_> {
    /// Rests before what failed is done again. An error: a signal came.
    pub(super) async fn rest(&self, rest: Duration) -> anyhow::Result<()> {
        or_stopped(self.stop, self.core.sleep(rest)).await
    }
}

/// Does something with the files of a server; tries again while the server restarts.
pub(super) fn with_files<T>(
    server: &FsServer,
    repeat: Repeat,
    stop: &Shutdown,
    mut work: impl AsyncFnMut(&Asked<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut core = rt::Core::new(rt::Config::default())?;
    let handle = core.handle();
    let patience = Patience::new(server);
    core.block_on(async {
        loop {
            let connecting = connect(&handle, server, &patience);
            let failed = match or_stopped(stop, connecting).await? {
                Ok(client) => {
                    let asked = Asked {
                        core: &handle,
                        files: Files::new(client.clone()),
                        patience: &patience,
                        stop,
                    };
                    let done = work(&asked).await;
                    // What was asked for is done; the server would find out by itself.
                    if let Err(error) = client.close().await {
                        tracing::debug!(%error, "the session was not ended");
                    }
                    match done {
                        Ok(done) => return Ok(done),
                        Err(error) => (error, repeat),
                    }
                }
                // Nothing was asked yet.
                Err(error) => (error, Repeat::Safe),
            };
            let (error, repeat) = failed;
            if repeat == Repeat::Unsafe && is_in_doubt(&error) {
                return Err(error.context(IN_DOUBT));
            }
            let Some(why) = Passing::of(&error) else {
                return Err(error);
            };
            match patience.next(why) {
                Some(rest) => or_stopped(stop, handle.sleep(rest)).await?,
                None => return Err(error),
            }
        }
    })
}

/// Waits for something, or for a signal, which is an error.
async fn or_stopped<T>(stop: &Shutdown, future: impl Future<Output = T>) -> anyhow::Result<T> {
    let (mut future, mut stopped) = (pin!(future), pin!(stop.wait()));
    poll_fn(|cx| {
        if let Poll::Ready(done) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        let stopped = stopped.as_mut().poll(cx);
        stopped.map(|()| Err(anyhow::anyhow!(INTERRUPTED)))
    })
    .await
}

async fn connect(
    core: &rt::Handle,
    server: &FsServer,
    patience: &Patience,
) -> anyhow::Result<Client> {
    let name = format!("vervain {} {}", std::process::id(), fastrand::u64(..));
    let mut options = Options::new(name, fastrand::u64(..));
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    options.user = (uid.as_raw(), gid.as_raw());
    options.silence = patience.silence().unwrap_or(options.silence);
    let address = server.address();
    let addr = Addr::Tcp(address);
    let mut connecting = pin!(Client::connect(core, &addr, options));
    let (most, tell) = patience.of_connecting();
    let client = match core.timeout(tell, connecting.as_mut()).await {
        Ok(client) => client,
        Err(_) if tell < most => {
            patience.tell(Passing::Away, most - tell);
            let rest = core.timeout(most - tell, connecting).await;
            rest.unwrap_or(Err(ClientError::Silent))
        }
        Err(_) => Err(ClientError::Silent),
    };
    client.with_context(|| format!("no NFS server answers at {address} (`vervain fs serve`)"))
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

pub(super) const fn kind(kind: FileKind) -> &'static str {
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
    with_files(
        &flags.server,
        Repeat::Safe,
        &Shutdown::new(),
        async |asked| {
            while let Some(path) = paths.get(done) {
                let entries = entries(&asked.files, path)
                    .await
                    .with_context(|| path.clone())?;
                show_entries(path, &entries, json)?;
                done += 1;
                asked.patience.worked();
            }
            Ok(())
        },
    )
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
pub(super) fn parts(path: &str) -> (&str, &str) {
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

/// Makes directories.
pub(super) fn mkdir(flags: &FsSome) -> anyhow::Result<()> {
    let mut done = 0;
    with_files(
        &flags.server,
        Repeat::Unsafe,
        &Shutdown::new(),
        async |asked| {
            while let Some(path) = flags.paths.get(done) {
                let made = asked.files.make_directory(path, 0o755).await;
                made.with_context(|| path.clone())?;
                done += 1;
                asked.patience.worked();
            }
            Ok(())
        },
    )
}

/// Removes files and empty directories; says false if one was not there.
pub(super) fn rm(flags: &FsSome) -> anyhow::Result<bool> {
    let (mut done, mut all) = (0, true);
    with_files(
        &flags.server,
        Repeat::Unsafe,
        &Shutdown::new(),
        async |asked| {
            while let Some(path) = flags.paths.get(done) {
                match asked.files.remove(path).await {
                    Ok(()) => {}
                    Err(ClientError::Status(Nfsstat4::NFS4ERR_NOENT)) => {
                        // Nothing to do about a terminal that is gone.
                        let _ = writeln!(std::io::stderr(), "{path}: no such file or directory");
                        all = false;
                    }
                    Err(error) => return Err(error).with_context(|| path.clone()),
                }
                done += 1;
                asked.patience.worked();
            }
            Ok(all)
        },
    )
}

/// The server's room.
pub(super) fn df(flags: &FsPaths, json: bool) -> anyhow::Result<()> {
    let paths = paths_or_root(flags);
    let mut done = 0;
    with_files(
        &flags.server,
        Repeat::Safe,
        &Shutdown::new(),
        async |asked| {
            while let Some(path) = paths.get(done) {
                let room = asked.files.room(path).await.with_context(|| path.clone())?;
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
                asked.patience.worked();
            }
            Ok(())
        },
    )
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
}
