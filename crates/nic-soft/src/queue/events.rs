//! Asynchronous events of an adapter: waiting until its user takes them, and taken until the user
//! acknowledges them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use verbs::nic::AsyncEvent;
use verbs::{QpNum, VerbsError};

/// The events of an adapter. None is lost, however long nobody looks; an event that waits already is
/// not added again, so that there are at most a few for each object.
#[derive(Debug)]
pub(crate) struct Events {
    events: Mutex<Known>,
    /// Readable while events wait.
    readable: OwnedFd,
}

impl AsFd for Events {
    /// Readable while events wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

/// Whether an event is about a queue pair.
pub(crate) fn is_of(event: AsyncEvent, qpn: QpNum) -> bool {
    match event {
        AsyncEvent::QpFatal(own) | AsyncEvent::PeerGone(own) => own == qpn,
        _ => false,
    }
}

#[derive(Debug, Default)]
struct Known {
    waiting: VecDeque<AsyncEvent>,
    /// Taken and not acknowledged, each as often as it was taken.
    taken: Vec<AsyncEvent>,
}

impl Events {
    pub(crate) fn new() -> Result<Self, VerbsError> {
        let readable = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Events {
            events: Mutex::default(),
            readable: readable.map_err(|e| VerbsError::io("creating an eventfd", e))?,
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event about an object, unless the same one waits already or the object has gone: whoever
    /// lets it go says so before [`Events::forget`].
    pub(crate) fn raise(&self, event: AsyncEvent, is_gone: impl FnOnce() -> bool) {
        let mut known = self.known();
        if known.waiting.contains(&event) || is_gone() {
            return;
        }
        known.waiting.push_back(event);
        if known.waiting.len() == 1 {
            let rang = rustix::io::write(&self.readable, &1u64.to_ne_bytes());
            debug_assert!(rang.is_ok(), "an eventfd takes a 1");
        }
    }

    /// Takes the oldest event.
    pub(crate) fn take(&self) -> Option<AsyncEvent> {
        let mut known = self.known();
        let event = known.waiting.pop_front()?;
        known.taken.push(event);
        if known.waiting.is_empty() {
            self.still();
        }
        Some(event)
    }

    /// Forgets an event that was taken, once.
    pub(crate) fn acknowledge(&self, event: AsyncEvent) {
        let mut known = self.known();
        if let Some(index) = known.taken.iter().position(|&one| one == event) {
            known.taken.swap_remove(index);
        }
    }

    /// Drops what waits and is about an object that goes.
    pub(crate) fn forget(&self, is_about: impl Fn(AsyncEvent) -> bool) {
        let mut known = self.known();
        let waited = !known.waiting.is_empty();
        known.waiting.retain(|&event| !is_about(event));
        if waited && known.waiting.is_empty() {
            self.still();
        }
    }

    /// Whether an event that was taken, and not acknowledged yet, is about an object.
    pub(crate) fn is_taken(&self, is_about: impl Fn(AsyncEvent) -> bool) -> bool {
        self.known().taken.iter().any(|&event| is_about(event))
    }

    /// Nothing waits any more.
    fn still(&self) {
        let read = rustix::io::read(&self.readable, &mut [0; 8]);
        debug_assert!(read.is_ok(), "an eventfd that was rung is read at once");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_and_nothing_is_said_twice() {
        let events = Events::new().expect("a descriptor");
        for round in 0..3 {
            for qpn in 0..3000 {
                events.raise(AsyncEvent::QpFatal(QpNum(qpn)), || false);
                if round == 0 {
                    events.raise(AsyncEvent::PeerGone(QpNum(qpn)), || false);
                }
            }
        }
        for qpn in 0..3000 {
            assert_eq!(events.take(), Some(AsyncEvent::QpFatal(QpNum(qpn))));
            assert_eq!(events.take(), Some(AsyncEvent::PeerGone(QpNum(qpn))));
        }
        assert_eq!(events.take(), None);
    }

    #[test]
    fn an_event_counts_until_it_was_acknowledged_as_often_as_taken() {
        let events = Events::new().expect("a descriptor");
        let event = AsyncEvent::QpFatal(QpNum(7));
        let is_taken = || events.is_taken(|one| one == event);
        for _ in 0..2 {
            events.raise(event, || false);
            assert_eq!(events.take(), Some(event));
            assert!(is_taken());
        }
        events.acknowledge(event);
        assert!(is_taken());
        events.acknowledge(event);
        assert!(!is_taken());
        events.acknowledge(event);
    }

    #[test]
    fn events_of_what_goes_go_with_it() {
        let events = Events::new().expect("a descriptor");
        let is_readable = || {
            let mut fds = [rustix::event::PollFd::new(
                &events,
                rustix::event::PollFlags::IN,
            )];
            let timeout = rustix::event::Timespec::default();
            rustix::event::poll(&mut fds, Some(&timeout)).expect("looked") == 1
        };
        let (goes, stays) = (QpNum(1), QpNum(2));
        for qpn in [goes, stays] {
            events.raise(AsyncEvent::QpFatal(qpn), || false);
        }
        events.forget(|event| is_of(event, goes));
        assert!(is_readable());
        assert_eq!(events.take(), Some(AsyncEvent::QpFatal(stays)));
        assert!(!is_readable());
        events.raise(AsyncEvent::PeerGone(goes), || false);
        assert!(is_readable());
        events.forget(|event| is_of(event, goes));
        assert!(!is_readable());
        assert_eq!(events.take(), None);
    }
}
