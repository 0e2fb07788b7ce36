//! The thread that hears peers. It is started by the first listener or call, and sleeps until somebody calls, answers or leaves,
//! or until a time is out.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno as Os;

use super::manager;
use crate::abi::errno::Errno;

/// Whom a socket or a time is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Token {
    /// The thread itself is to look at its times again.
    Wake,
    Id(u32),
    /// A caller that has not said what it asks for.
    Caller(u32),
    /// An event that comes late.
    Late(u32),
}

impl Token {
    fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            Token::Wake => 0,
            Token::Id(number) => 1 << 32 | u64::from(number),
            Token::Caller(number) => 2 << 32 | u64::from(number),
            Token::Late(number) => 3 << 32 | u64::from(number),
        })
    }

    fn of(data: epoll::EventData) -> Token {
        let number = data.u64() as u32;
        match data.u64() >> 32 {
            1 => Token::Id(number),
            2 => Token::Caller(number),
            3 => Token::Late(number),
            _ => Token::Wake,
        }
    }
}

/// What wakes the thread.
pub(super) struct Service {
    watched: Arc<Watched>,
}

struct Watched {
    epoll: OwnedFd,
    wake: OwnedFd,
}

impl Service {
    pub(super) fn start() -> Result<Service, Errno> {
        let watched = Watched::new().map_err(Os::raw_os_error)?;
        let watched = Arc::new(watched);
        let theirs = Arc::clone(&watched);
        without_signals(|| {
            let thread = std::thread::Builder::new().name("vervain-cm".into());
            thread.spawn(move || serve(&theirs))
        })
        .map_err(|_| libc::ENOMEM)?;
        Ok(Service { watched })
    }

    pub(super) fn watch(&self, socket: BorrowedFd<'_>, token: Token) -> Result<(), Errno> {
        epoll::add(
            &self.watched.epoll,
            socket,
            token.data(),
            epoll::EventFlags::IN,
        )
        .map_err(Os::raw_os_error)
    }

    /// A socket that is watched already is somebody else's now.
    pub(super) fn hand_over(&self, socket: BorrowedFd<'_>, token: Token) {
        let flags = epoll::EventFlags::IN;
        // It is watched, so that there is nothing to fail.
        let _ = epoll::modify(&self.watched.epoll, socket, token.data(), flags);
    }

    /// Before a socket is closed: a forked child may hold it open, and then its end would be heard again and again.
    pub(super) fn forget(&self, socket: BorrowedFd<'_>) {
        // One that was never watched needs nothing.
        let _ = epoll::delete(&self.watched.epoll, socket);
    }

    /// In a forked child, where there is no thread to close its descriptors.
    pub(super) fn close(self) {
        for fd in [&self.watched.epoll, &self.watched.wake] {
            // SAFETY: the thread's share of both is never let go of here, and nobody uses them any more.
            unsafe { rustix::io::close(fd.as_raw_fd()) };
        }
    }

    pub(super) fn wake(&self) {
        // A count that is full wakes it just as well.
        let _ = rustix::io::write(&self.watched.wake, &1u64.to_ne_bytes());
    }
}

impl Watched {
    fn new() -> rustix::io::Result<Watched> {
        let watched = Watched {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        };
        epoll::add(
            &watched.epoll,
            watched.wake.as_fd(),
            Token::Wake.data(),
            epoll::EventFlags::IN,
        )?;
        Ok(watched)
    }
}

/// A program's signals are its own threads' to handle.
fn without_signals<T>(run: impl FnOnce() -> T) -> T {
    // SAFETY: sets of signals, which the calls fill; a thread inherits the mask of who starts it.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let result = run();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        result
    }
}

/// Descriptors may run out while callers wait, which epoll would report at once again.
const PAUSE: Duration = Duration::from_millis(10);

fn serve(watched: &Watched) {
    let mut events = Vec::with_capacity(64);
    loop {
        let next = manager::lock().next_deadline();
        let left = next.map(|next| next.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        events.clear();
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&watched.epoll, room, timeout.as_ref()) {
            Ok(_) | Err(Os::INTR) => {}
            Err(_) => return,
        }
        let mut manager = manager::lock();
        let mut is_short = false;
        for event in &events {
            match Token::of(event.data) {
                Token::Wake => {
                    // Read so that it counts anew.
                    let _ = rustix::io::read(&watched.wake, &mut [0u8; 8]);
                }
                token => is_short |= manager.hear(token).is_err(),
            }
        }
        manager.expire(Instant::now());
        drop(manager);
        if is_short {
            std::thread::sleep(PAUSE);
        }
    }
}
