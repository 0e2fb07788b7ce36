//! What comes from a pipe, or goes into one: the other end may take its time.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rt::threads::Shutdown;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Bytes that a pipe takes at once when it takes any (`PIPE_BUF`, pipe(7)).
pub(super) const AT_ONCE: usize = 4096;

/// How long the core stands still at most: it has a lease to keep, and signals to look for.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// What the core's other work has then.
const LOOK_AWAY: Duration = Duration::from_millis(1);

/// Waits until there is something to read, or its end, or room for [`AT_ONCE`] bytes; or until a signal comes, by which
/// a read or a write would not end. What is no pipe is ready at once.
pub(super) async fn ready(
    core: &rt::Handle,
    file: impl AsFd,
    what: PollFlags,
    stop: &Shutdown,
) -> io::Result<()> {
    while !stop.is_triggered() {
        match poll(&mut [PollFd::new(&file, what)], Some(&LOOK_EVERY)) {
            Ok(0) | Err(Errno::INTR) => core.sleep(LOOK_AWAY).await,
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
