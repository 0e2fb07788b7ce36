//! Descriptors that other processes have sent, and who closes them.
//!
//! A peer may send anything, and closing what is no shared memory can take as long as it likes. So a
//! thread does that, one for the process. Who keeps it busy is not followed: from a process of which
//! too many descriptors wait, nothing more is taken.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;

/// So many descriptors of one process that wait to be closed are too many. One message may bring more.
const WAITING_MAX: usize = 64;

/// A descriptor that another process may have given any end. Dropping it holds nobody up.
#[derive(Debug)]
pub(crate) struct Foreign {
    /// Always there, but while it is dropped.
    fd: Option<OwnedFd>,
    pid: Pid,
}

impl Foreign {
    /// A descriptor that has come from a process, or leads to one.
    pub(crate) fn new(fd: OwnedFd, pid: Pid) -> Self {
        Foreign { fd: Some(fd), pid }
    }

    /// Whose it is.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Closes one that is known not to take long.
    pub(crate) fn close(mut self) {
        self.fd = None;
    }
}

impl AsFd for Foreign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let fd = self.fd.as_ref().expect("it is there until it is dropped");
        fd.as_fd()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else {
            return;
        };
        // Shared memory closes at once.
        if rustix::fs::fcntl_get_seals(&fd).is_err() {
            close_aside(fd, self.pid);
        }
    }
}

/// Whether too many descriptors of a process wait to be closed.
pub(crate) fn has_too_many(pid: Pid) -> bool {
    // Mostly there are none at all.
    WAITING.load(Ordering::Relaxed) > 0
        && lock().counts.get(&pid.as_raw_nonzero().get()) >= Some(&WAITING_MAX)
}

#[derive(Debug)]
struct Closer {
    waiting: VecDeque<(OwnedFd, Pid)>,
    /// For each process, those that wait and the one that is being closed.
    counts: BTreeMap<i32, usize>,
    /// There is a thread, which ends when nothing is left.
    is_running: bool,
}

static CLOSER: Mutex<Closer> = Mutex::new(Closer {
    waiting: VecDeque::new(),
    counts: BTreeMap::new(),
    is_running: false,
});

/// How many there are of all processes.
static WAITING: AtomicUsize = AtomicUsize::new(0);

fn lock() -> MutexGuard<'static, Closer> {
    // Every change is a single step.
    CLOSER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn close_aside(fd: OwnedFd, pid: Pid) {
    let starts = {
        let mut closer = lock();
        closer.waiting.push_back((fd, pid));
        *closer.counts.entry(pid.as_raw_nonzero().get()).or_default() += 1;
        WAITING.fetch_add(1, Ordering::Relaxed);
        !std::mem::replace(&mut closer.is_running, true)
    };
    if !starts {
        return;
    }
    let thread = std::thread::Builder::new().name("nic-soft close".into());
    if let Err(error) = thread.spawn(close_all) {
        // With the next one it is tried again.
        lock().is_running = false;
        tracing::debug!(%error, "no thread closes the descriptors of peers");
    }
}

fn close_all() {
    while let Some((fd, pid)) = next() {
        drop(fd);
        let pid = pid.as_raw_nonzero().get();
        let mut closer = lock();
        if let Some(count) = closer.counts.get_mut(&pid) {
            *count -= 1;
            if *count == 0 {
                closer.counts.remove(&pid);
            }
        }
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

fn next() -> Option<(OwnedFd, Pid)> {
    let mut closer = lock();
    let next = closer.waiting.pop_front();
    closer.is_running = next.is_some();
    next
}
