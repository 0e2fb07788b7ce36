//! What is known of a file system's directory beyond its contents: who has it open, when it was last used, and
//! where its process listens.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;

/// The socket that the serving process listens on.
const SOCKET: &str = "control";

/// Clocks may differ by so much before it is said.
const CLOCK_SLACK: Duration = Duration::from_secs(60);

/// The path of a directory's socket, which is as long as its name alone: a socket's path has 108 bytes at most.
pub(super) struct SocketPath {
    /// The path leads through it.
    _dir: File,
    pub(super) path: PathBuf,
}

impl SocketPath {
    pub(super) fn of(data: &Path) -> anyhow::Result<Self> {
        let dir = File::open(data).with_context(|| data.display().to_string())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd()));
        Ok(Self { _dir: dir, path })
    }
}

/// An error of a directory; if that is what is wrong, it says which process has it open, in place of which part of it.
pub(super) fn explain(data: &Path, error: fs::LocalError) -> anyhow::Error {
    let is_in_use = error.to_string().contains("in use");
    // Of a process that has gone the kernel may end a write, when this one has the rest already.
    let holders = ["rows", "data"].into_iter();
    let mut holders = holders.filter_map(|part| holder(&data.join(part)));
    match holders.find(|pid| is_in_use && *pid != std::process::id()) {
        Some(pid) => anyhow::anyhow!("{} is in use by process {pid}", data.display()),
        None => error.into(),
    }
}

/// What cannot be done with a directory: its path is said once.
pub(super) fn cannot(what: &str, data: &Path, error: &anyhow::Error) -> String {
    let data = data.display().to_string();
    match error.to_string().contains(&data) {
        true => format!("cannot {what}"),
        false => format!("cannot {what} {data}"),
    }
}

/// The living process that has a file system's directory open, if the kernel of this machine tells.
pub(super) fn process_of(data: &Path) -> Option<u32> {
    // A process that has gone has the lock for a while yet.
    holder(&data.join("rows")).filter(|pid| Path::new(&format!("/proc/{pid}")).exists())
}

/// The process that holds a lock on a path, if this machine's kernel tells.
fn holder(path: &Path) -> Option<u32> {
    let about = std::fs::metadata(path).ok()?;
    let device = about.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    holder_in(&locks, (major, minor), about.ino())
}

/// The same, of what stands in `/proc/locks` (proc_locks(5)):
/// `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`.
fn holder_in(locks: &str, (major, minor): (u32, u32), inode: u64) -> Option<u32> {
    let wanted = format!("{major:02x}:{minor:02x}:{inode}");
    let mut lines = locks
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line =
        lines.find(|words| words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&&*wanted))?;
    // Of a process that this one cannot see it is 0 or less.
    line[4].parse().ok().filter(|pid| *pid > 0)
}

/// How far the clock stands behind what the directory was last used at, if that is more than clocks differ.
pub(super) fn clock_went_back(data: &Path, now: SystemTime) -> Option<Duration> {
    let rows = std::fs::metadata(data.join("rows").join("rows.redb")).ok()?;
    let behind = rows.modified().ok()?.duration_since(now).ok()?;
    (behind > CLOCK_SLACK).then_some(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_of_locks_names_the_holder() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 08:01:99 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 1234 fd:0a:99 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 5 fd:0a:99 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE -1 fd:0a:98 0 EOF\n";
        assert_eq!(holder_in(locks, (0xfd, 0x0a), 99), Some(1234));
        assert_eq!(holder_in(locks, (0xfd, 0x0a), 98), None);
        assert_eq!(holder_in(locks, (8, 1), 99), None);
        assert_eq!(holder_in("", (8, 1), 99), None);
    }

    #[test]
    fn a_clock_that_stands_behind_the_last_use_is_noticed() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("rows")).expect("made");
        let rows = File::create(dir.path().join("rows/rows.redb")).expect("made");
        let now = SystemTime::now();
        rows.set_modified(now + Duration::from_secs(3600))
            .expect("set");
        let behind = clock_went_back(dir.path(), now).expect("an hour");
        assert!(behind > Duration::from_secs(3500));
        rows.set_modified(now + Duration::from_secs(30))
            .expect("set");
        assert_eq!(clock_went_back(dir.path(), now), None);
    }
}
