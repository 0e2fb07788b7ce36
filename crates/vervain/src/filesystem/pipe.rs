//! What comes from a pipe, or goes into one: the other end may take its time.

use std::os::fd::AsFd;
use std::time::Duration;

use nfs::client::Client;
use rt::threads::Shutdown;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Bytes that a pipe takes at once when it takes any (`PIPE_BUF`, pipe(7)).
pub(super) const AT_ONCE: usize = 4096;

/// No waiting.
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// How long the core stands still at most: it has a lease to keep, and signals to look for.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// What the core's other work has then.
const LOOK_AWAY: Duration = Duration::from_millis(1);

/// Waits until there is something to read, or its end, or room for [`AT_ONCE`] bytes; or until a signal comes, by which
/// a read or a write would not end. What is no pipe is ready at once. Meanwhile what the client has open is kept: in turn
/// with its other calls, as their answers tell whether the server is there.
///
/// # Errors
/// The pipe's, or [`nfs::client::ClientError`].
pub(super) async fn ready(
    core: &rt::Handle,
    client: Option<&Client>,
    file: impl AsFd,
    what: PollFlags,
    stop: &Shutdown,
) -> anyhow::Result<()> {
    let is_ready = |wait| match poll(&mut [PollFd::new(&file, what)], Some(wait)) {
        Ok(0) | Err(Errno::INTR) => Ok(false),
        Ok(_) => Ok(true),
        Err(error) => Err(error),
    };
    while !stop.is_triggered() && !is_ready(&NOW)? {
        if let Some(client) = client {
            client.renew().await?;
        }
        match is_ready(&LOOK_EVERY)? {
            // The core finds out how late it is: many short waits are a long one.
            true => core.yield_now().await,
            false => core.sleep(LOOK_AWAY).await,
        }
    }
    Ok(())
}
