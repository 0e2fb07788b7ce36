//! All identifiers and event channels of the process, under one lock.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::abi::{ConnParam, Private};
use super::events::{Channel, Event, Said};
use super::faults::{self, Late};
use super::groups::Joined;
use super::ids::{Id, State};
use super::peers::{Caller, Reached, Reason};
use super::service::{Service, Token};
use super::wire::Message;
use crate::abi::errno::Errno;

pub(super) struct Manager {
    pub(super) ids: BTreeMap<u32, Id>,
    pub(super) channels: BTreeMap<RawFd, Channel>,
    pub(super) callers: BTreeMap<u32, Caller>,
    pub(super) groups: BTreeMap<u32, Joined>,
    pub(super) reached: Reached,
    /// Events that come late, as a fault.
    pub(super) late: BTreeMap<u32, Late>,
    service: Option<Service>,
    deadlines: BTreeSet<(Instant, Token)>,
    /// Connections that have ended here, and whose other sides are not to hear of it.
    silent: Vec<OwnedFd>,
}

static MANAGER: Mutex<Manager> = Mutex::new(Manager {
    ids: BTreeMap::new(),
    channels: BTreeMap::new(),
    callers: BTreeMap::new(),
    groups: BTreeMap::new(),
    reached: Reached::none(),
    late: BTreeMap::new(),
    service: None,
    deadlines: BTreeSet::new(),
    silent: Vec::new(),
});

pub(super) fn lock() -> MutexGuard<'static, Manager> {
    MANAGER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lowest number that is free, as librdmacm's table is small.
pub(super) fn free_number<T>(taken: &BTreeMap<u32, T>) -> u32 {
    let mut free = 0;
    for &number in taken.keys() {
        if number != free {
            break;
        }
        free += 1;
    }
    free
}

impl Manager {
    /// An identifier of a channel.
    pub(super) fn id(&mut self, channel: RawFd, number: u32) -> Result<&mut Id, Errno> {
        let id = self.ids.get_mut(&number).ok_or(libc::ENOENT)?;
        (id.channel == channel).then_some(id).ok_or(libc::EINVAL)
    }

    /// Has the thread run that hears peers.
    pub(super) fn service(&mut self) -> Result<(), Errno> {
        if self.service.is_none() {
            self.service = Some(Service::start()?);
        }
        Ok(())
    }

    pub(super) fn started(&self) -> Result<&Service, Errno> {
        self.service.as_ref().ok_or(libc::ENOMEM)
    }

    /// Reports an event of an identifier. Of one that the program does not know yet, it hears nothing.
    pub(super) fn report(&mut self, number: u32, event: u32, status: i32, said: Option<Said>) {
        let Some(id) = self.ids.get(&number) else {
            return;
        };
        if id.uid == 0 {
            return;
        }
        let event = Event {
            id: number,
            charged: number,
            group: None,
            uid: id.uid,
            event,
            status,
            said: said.unwrap_or_else(|| nothing_said(id.is_datagram())),
        };
        self.deliver(id.channel, event);
    }

    /// Destroys an identifier.
    ///
    /// Returns how many of its events the program was given.
    pub(super) fn destroy(&mut self, number: u32) -> u32 {
        self.set_deadline(Token::Id(number), None);
        let Some(mut id) = self.ids.remove(&number) else {
            return 0;
        };
        faults::is_known(&mut id);
        match id.state {
            State::RequestReceived | State::ReplyReceived | State::ReplySent => {
                id.tell(&Message::Reject {
                    reason: Reason::Consumer as u32,
                    private: Private::new(&[]),
                });
            }
            State::Established => id.tell(&Message::Disconnect),
            _ => {}
        }
        let sockets = id.bound.drain(..).chain(id.socket.take());
        for socket in sockets.collect::<Vec<_>>() {
            self.close(socket);
        }
        self.groups.retain(|_, group| group.id != number);
        let is_its = |event: &Event| event.charged == number || event.id == number;
        let channel = self.channels.get_mut(&id.channel);
        let mut unseen = channel.map_or_else(Vec::new, |channel| channel.take(is_its));
        unseen.extend(self.take_late(is_its));
        for event in unseen {
            // Requests that the program will never see.
            if event.id != number {
                self.destroy(event.id);
            }
        }
        let callers = self.callers.iter();
        let callers: Vec<u32> = callers
            .filter(|(_, caller)| caller.listener == number)
            .map(|(&caller, _)| caller)
            .collect();
        for caller in callers {
            self.hang_up(caller);
        }
        id.events_reported
    }

    /// Forgets a channel that is being closed, and destroys what is on it.
    pub(super) fn close_channel(&mut self, channel: RawFd) {
        let on_it = self.ids.iter().filter(|(_, id)| id.channel == channel);
        let numbers: Vec<u32> = on_it.map(|(&number, _)| number).collect();
        for number in numbers {
            self.destroy(number);
        }
        self.channels.remove(&channel);
    }

    /// Leaves the other side of a connection without a word.
    pub(super) fn fall_silent(&mut self, number: u32) {
        let id = self.ids.get_mut(&number);
        if let Some(socket) = id.and_then(|id| id.socket.take()) {
            if let Some(service) = &self.service {
                service.forget(socket.as_fd());
            }
            self.silent.push(socket);
        }
    }

    /// Closes a socket that may be watched.
    pub(super) fn close(&self, socket: OwnedFd) {
        if let Some(service) = &self.service {
            service.forget(socket.as_fd());
        }
    }

    /// When the first time is out.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Sets the one time that somebody waits for; none for no more.
    pub(super) fn set_deadline(&mut self, token: Token, after: Option<Duration>) {
        let at = after.and_then(|after| Instant::now().checked_add(after));
        let kept = match token {
            Token::Id(number) => self.ids.get_mut(&number).map(|id| &mut id.deadline),
            Token::Caller(number) => self.callers.get_mut(&number).map(|one| &mut one.deadline),
            Token::Late(number) => self.late.get_mut(&number).map(|late| &mut late.deadline),
            Token::Wake => None,
        };
        let Some(kept) = kept else {
            return;
        };
        let before = std::mem::replace(kept, at);
        if let Some(before) = before {
            self.deadlines.remove(&(before, token));
        }
        let Some(at) = at else {
            return;
        };
        let is_first = self.next_deadline().is_none_or(|first| at < first);
        self.deadlines.insert((at, token));
        if let (true, Some(service)) = (is_first, &self.service) {
            service.wake();
        }
    }

    /// Whose time is out.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Token> {
        let &(at, token) = self.deadlines.first().filter(|(at, _)| *at <= now)?;
        self.deadlines.remove(&(at, token));
        match token {
            Token::Id(number) => {
                if let Some(id) = self.ids.get_mut(&number) {
                    id.deadline = None;
                }
            }
            Token::Caller(number) => {
                if let Some(caller) = self.callers.get_mut(&number) {
                    caller.deadline = None;
                }
            }
            Token::Late(number) => {
                if let Some(late) = self.late.get_mut(&number) {
                    late.deadline = None;
                }
            }
            Token::Wake => {}
        }
        Some(token)
    }

    /// In a forked child: nothing of its parent's is its own.
    pub(super) fn begin_anew(&mut self) {
        // The thread is not there any more, but what it holds is.
        if let Some(service) = self.service.take() {
            service.close();
        }
        self.ids.clear();
        self.channels.clear();
        self.callers.clear();
        self.groups.clear();
        self.late.clear();
        self.deadlines.clear();
        self.silent.clear();
    }
}

/// The events of each kind of queue pair say things of their own.
fn nothing_said(is_datagram: bool) -> Said {
    if is_datagram {
        return Said::Datagrams {
            private: Private::new(&[]),
            qp_num: 0,
            qkey: 0,
            to: None,
        };
    }
    Said::Connection(ConnParam::default())
}
