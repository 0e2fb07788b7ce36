//! What faults need of the process: its death, and descriptors that are readable for events of theirs.
//!
//! What happens to requests and completions is `verbs::decorate::Faulty`'s; connections are the connection manager's (`cm/faults.rs`).

mod alarm;

pub(crate) use alarm::Alarm;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::process::{Signal, getpid, kill_process};
use verbs::decorate::Outside;
use verbs::nic::Nic;

/// The process that has opened a device on which things go wrong.
#[derive(Debug)]
pub(crate) struct Process {
    /// Counts the events that wait.
    events: OwnedFd,
    /// Readable when those or the NIC's wait.
    both: OwnedFd,
}

impl Process {
    /// With the asynchronous events of a NIC.
    pub(crate) fn new(nic: &dyn Nic) -> rustix::io::Result<Self> {
        let events = counter()?;
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&both, events.as_fd())?;
        if let Some(fd) = nic.async_fd() {
            watch(&both, fd)?;
        }
        Ok(Process { events, both })
    }
}

impl Outside for Process {
    fn kill(&self) {
        // A process may always kill itself, and this does not return.
        let _ = kill_process(getpid(), Signal::KILL);
        // Unless it is the first one of its namespace, which signals of its own do not end.
        // SAFETY: nothing comes after this.
        unsafe { libc::_exit(128 + libc::SIGKILL) }
    }

    fn pause(&self, ms: u32) {
        std::thread::sleep(std::time::Duration::from_millis(ms.into()));
    }

    fn event_raised(&self) {
        add_one(&self.events);
    }

    fn event_taken(&self) {
        take_one(&self.events);
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.both.as_fd())
    }
}

/// A descriptor that is readable as long as it counts something.
fn counter() -> rustix::io::Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
    eventfd(0, flags)
}

fn add_one(counter: &OwnedFd) {
    // There are never so many that it is full.
    let _ = rustix::io::write(counter, &1u64.to_ne_bytes());
}

fn take_one(counter: &OwnedFd) {
    // Whoever takes an event has one of its counts.
    let _ = rustix::io::read(counter, &mut [0u8; 8]);
}

fn watch(epoll: &OwnedFd, fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let data = epoll::EventData::new_u64(0);
    epoll::add(epoll, fd, data, epoll::EventFlags::IN)
}
