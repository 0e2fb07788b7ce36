//! Descriptors that programs sleep on.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno as Os;

use crate::abi::errno::Errno;

/// A descriptor that is readable when another one is, with flags of its own: whether a program's reads block is up to it.
pub(crate) fn readable_with(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let made = epoll::create(epoll::CreateFlags::CLOEXEC).and_then(|watch| {
        epoll::add(
            &watch,
            fd,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN,
        )?;
        Ok(watch)
    });
    made.map_err(Os::raw_os_error)
}

/// Whether a descriptor is readable now.
pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut watched = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, and no wait.
    unsafe { libc::poll(&raw mut watched, 1, 0) > 0 }
}

/// Whether a read that a signal has interrupted would go on: so it does with `SA_RESTART`, and which signal it was nobody says.
fn restarts() -> bool {
    (1..=libc::SIGRTMAX()).all(|signal| {
        // SAFETY: numbers and pointers, which are written.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: only asks.
        let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } == 0;
        let is_handled = known && ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        !is_handled || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// Takes what `next` has, waiting for it as a read of the descriptor would.
pub(crate) fn wait_for<T>(
    fd: BorrowedFd<'_>,
    mut next: impl FnMut() -> Result<Option<T>, Errno>,
) -> Result<T, Errno> {
    loop {
        if let Some(found) = wait_within(fd, &mut next, -1)? {
            return Ok(found);
        }
    }
}

/// As [`wait_for`], but gives up when the descriptor has not become readable for so many milliseconds; -1 is for ever.
pub(crate) fn wait_within<T>(
    fd: BorrowedFd<'_>,
    mut next: impl FnMut() -> Result<Option<T>, Errno>,
    patience_ms: c_int,
) -> Result<Option<T>, Errno> {
    loop {
        if let Some(found) = next()? {
            return Ok(Some(found));
        }
        let flags = rustix::fs::fcntl_getfl(fd).map_err(Os::raw_os_error)?;
        if flags.contains(rustix::fs::OFlags::NONBLOCK) {
            return Err(libc::EAGAIN);
        }
        let mut watched = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // libc's, at which a thread can be cancelled, as in the read that this stands for.
        // SAFETY: one entry.
        let ready = unsafe { libc::poll(&raw mut watched, 1, patience_ms) };
        if ready == 0 {
            return Ok(None);
        }
        if ready < 0 {
            let error = std::io::Error::last_os_error();
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            if errno != libc::EINTR || !restarts() {
                return Err(errno);
            }
        }
    }
}
