//! Which servers run, for whoever has to stop them all at once.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long servers may take to end before their directories are removed.
const END_MAX: Duration = Duration::from_secs(2);

/// What would stay behind if this process ended now.
struct Running {
    /// Processes that have not been waited for, so that their numbers are still their own.
    pids: Vec<u32>,
    dirs: Vec<PathBuf>,
}

static RUNNING: Mutex<Running> = Mutex::new(Running {
    pids: Vec::new(),
    dirs: Vec::new(),
});

fn running() -> MutexGuard<'static, Running> {
    // A panic under the lock leaves the lists as they were.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server's directory. Dropping it removes it.
#[derive(Debug)]
pub struct Directory(Option<TempDir>);

impl Directory {
    /// Makes one.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn new() -> std::io::Result<Self> {
        let mut running = running();
        let dir = tempfile::Builder::new()
            .prefix("vervain-bench-")
            .tempdir()?;
        running.dirs.push(dir.path().to_path_buf());
        Ok(Directory(Some(dir)))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.as_ref().map_or(Path::new(""), TempDir::path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let mut running = running();
        running.dirs.retain(|dir| dir != self.path());
        // Removed here, while nobody else looks at the list.
        self.0 = None;
    }
}

/// Whether a directory is one of ours, which goes with its server.
pub(super) fn has_made(dir: &Path) -> bool {
    running().dirs.iter().any(|one| one == dir)
}

/// Starts a process, and knows of it from its first moment on.
pub(super) fn start(spawn: impl FnOnce() -> std::io::Result<Child>) -> std::io::Result<Child> {
    let mut running = running();
    let child = spawn()?;
    running.pids.push(child.id());
    Ok(child)
}

pub(super) fn remove(pid: u32) {
    running().pids.retain(|one| *one != pid);
}

/// Whether a process was started and has not been waited for.
pub(super) fn has(pid: u32) -> bool {
    running().pids.contains(&pid)
}

/// Asks all servers of this process to end, waits a little, and removes their directories: for a
/// process that was told to end and will not come to dropping them. From then on it can start no
/// server: whoever tries waits for the process to end.
pub fn stop_all() {
    let all = running();
    for pid in &all.pids {
        if let Some(pid) = Pid::from_raw(*pid as i32) {
            // One that has ended already is what we want.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
    let began = Instant::now();
    while all.pids.iter().any(|pid| is_alive(*pid)) && began.elapsed() < END_MAX {
        std::thread::sleep(Duration::from_millis(5));
    }
    for dir in &all.dirs {
        // There is nobody left to tell.
        let _ = std::fs::remove_dir_all(dir);
    }
    // Never unlocked: a measurement that sees its server end would go on to start the next one.
    std::mem::forget(all);
}

/// Whether a process has not ended; one that nobody has waited for is a zombie.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, fields)| !fields.starts_with('Z'))
}
