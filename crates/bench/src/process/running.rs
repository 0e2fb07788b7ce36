//! Which servers run, for whoever has to stop them all at once.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long servers may take to end before their directories are removed.
const END_MAX: Duration = Duration::from_secs(2);

/// A process that has not been waited for, so that its number is still its own.
#[derive(Debug)]
struct Running {
    pid: u32,
    dir: PathBuf,
}

static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<Running>> {
    // Nothing under the lock panics.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn add(pid: u32, dir: &Path) {
    let dir = dir.to_path_buf();
    running().push(Running { pid, dir });
}

pub(super) fn remove(pid: u32) {
    running().retain(|one| one.pid != pid);
}

/// Asks all servers of this process to end, waits a little, and removes their directories: for a
/// process that was told to end and will not come to dropping them.
pub fn stop_all() {
    let all = running();
    for one in all.iter() {
        if let Some(pid) = Pid::from_raw(one.pid as i32) {
            // One that has ended already is what we want.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
    let began = Instant::now();
    while all.iter().any(|one| is_alive(one.pid)) && began.elapsed() < END_MAX {
        std::thread::sleep(Duration::from_millis(5));
    }
    for one in all.iter() {
        // There is nobody left to tell.
        let _ = std::fs::remove_dir_all(&one.dir);
    }
}

/// Whether a process has not ended; one that nobody has waited for is a zombie.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, fields)| !fields.starts_with('Z'))
}
