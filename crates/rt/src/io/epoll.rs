//! Sockets over epoll, for machines whose policy refuses io_uring.
//!
//! Each socket is registered once, edge-triggered, when it first blocks. An operation is tried
//! first; what the tries and the events say about readiness is remembered, so that a socket known
//! to be empty is not asked again.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags, sockopt};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::ops::{OpKey, Ops};
use super::{Backend, Completion, Descriptor, IoKind, Op};
use crate::task::Shared;

/// Events taken with one system call.
const EVENTS_MAX: usize = 256;
/// Turns between two looks at the sockets while the core is busy with other work.
const BUSY_TURNS: u32 = 8;

/// Event data above any descriptor.
const BELL: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
const WATCH: u64 = u64::MAX - 2;

/// What is known about one descriptor.
struct Socket {
    /// Whose state this is: a number is reused, a live allocation is not.
    owner: Weak<Descriptor>,
    readable: bool,
    /// The peer has closed: no further edge will tell of the end of the stream.
    hung_up: bool,
    connecting: bool,
    reader: Option<OpKey>,
    writer: Option<OpKey>,
}

pub(super) struct Epoll {
    epoll: OwnedFd,
    timer: OwnedFd,
    timer_armed: bool,
    ops: Ops,
    /// Registered sockets by descriptor.
    sockets: Vec<Option<Socket>>,
    /// Operations to try in the next turn.
    pending: VecDeque<OpKey>,
    events: Vec<epoll::Event>,
    watches: Vec<RawFd>,
    turns_unseen: u32,
    shared: Arc<Shared>,
}

enum Direction {
    Read,
    Write,
}

impl Op {
    fn direction(&self) -> Direction {
        match self {
            Op::Accept | Op::Recv(_) => Direction::Read,
            Op::Connect(_) | Op::Send { .. } => Direction::Write,
        }
    }
}

impl Epoll {
    pub(super) fn new(shared: Arc<Shared>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // Edge-triggered, so that neither has ever to be read.
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), edge)?;
        if let Some(bell) = &shared.bell {
            epoll::add(&epoll, bell, epoll::EventData::new_u64(BELL), edge)?;
        }
        Ok(Self {
            epoll,
            timer,
            timer_armed: false,
            ops: Ops::default(),
            sockets: Vec::new(),
            pending: VecDeque::new(),
            events: Vec::with_capacity(EVENTS_MAX),
            watches: Vec::new(),
            turns_unseen: 0,
            shared,
        })
    }

    /// Tries an operation; what would block waits for an event.
    fn attempt(&mut self, key: OpKey) {
        let Some(slot) = self.ops.slot_mut(key) else {
            return;
        };
        let fd = slot.fd.clone();
        let known = known(&mut self.sockets, &fd);
        let result = match &mut slot.op {
            Op::Recv(_) if known.as_ref().is_some_and(|s| !s.readable && !s.hung_up) => {
                Err(Errno::AGAIN)
            }
            Op::Recv(buf) => {
                self.shared.count_system_call();
                let room = buf.capacity() - buf.len();
                let result = retry_on_intr(|| {
                    net::recv(&*fd, spare_capacity(buf), RecvFlags::DONTWAIT).map(|(_, n)| n)
                });
                // A short read has emptied the socket; what comes later is a new edge.
                if let (Ok(received), Some(socket)) = (result, known) {
                    socket.readable = received == room;
                }
                result
            }
            Op::Send { .. } => loop {
                let Op::Send { buf, at, .. } = &slot.op else {
                    unreachable!("an operation stays what it is");
                };
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                self.shared.count_system_call();
                match retry_on_intr(|| net::send(&*fd, &buf[*at..], flags)) {
                    Ok(count) if slot.must_send_more(count) => {}
                    result => break result.map(|count| slot.sent().unwrap_or(count)),
                }
            },
            Op::Accept => {
                self.shared.count_system_call();
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                retry_on_intr(|| net::accept_with(&*fd, flags)).map(|connection| {
                    use std::os::fd::IntoRawFd;
                    usize::try_from(connection.into_raw_fd()).expect("descriptors are positive")
                })
            }
            Op::Connect(_) if known.as_ref().is_some_and(|s| s.connecting) => {
                // The socket has become writable: the attempt has ended, one way or the other.
                sockopt::socket_error(&*fd)
                    .and_then(|outcome| outcome)
                    .map(|()| 0)
            }
            Op::Connect(addr) => match net::connect(&*fd, &**addr) {
                Ok(()) => Ok(0),
                Err(Errno::INPROGRESS | Errno::INTR) => Err(Errno::INPROGRESS),
                Err(error) => {
                    // A full backlog of a Unix socket has no event to wait for.
                    self.ops.complete(key, Err(error));
                    return;
                }
            },
        };
        match result {
            Err(Errno::AGAIN | Errno::INPROGRESS) => {
                if let Err(error) = self.block(key, &fd, result == Err(Errno::INPROGRESS)) {
                    self.ops.complete(key, Err(error));
                }
            }
            result => self.ops.complete(key, result),
        }
    }

    /// Lets an operation wait for its socket.
    fn block(&mut self, key: OpKey, fd: &Rc<Descriptor>, connecting: bool) -> Result<(), Errno> {
        let Some(slot) = self.ops.slot_mut(key) else {
            return Ok(());
        };
        let direction = slot.op.direction();
        if known(&mut self.sockets, fd).is_none() {
            self.register(fd)?;
        }
        let socket = known(&mut self.sockets, fd).expect("just registered");
        socket.connecting = connecting;
        match direction {
            Direction::Read => {
                socket.readable = false;
                socket.reader = Some(key);
            }
            Direction::Write => socket.writer = Some(key),
        }
        Ok(())
    }

    /// Adds a socket to the set. What is ready already comes as the first event.
    fn register(&mut self, fd: &Rc<Descriptor>) -> Result<(), Errno> {
        let raw = fd.as_raw_fd();
        let data = epoll::EventData::new_u64(u64::try_from(raw).expect("descriptors are positive"));
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        epoll::add(&self.epoll, &**fd, data, flags)?;
        let index = usize::try_from(raw).expect("descriptors are positive");
        if index >= self.sockets.len() {
            self.sockets.resize_with(index + 1, || None);
        }
        self.sockets[index] = Some(Socket {
            owner: Rc::downgrade(fd),
            readable: true,
            hung_up: false,
            connecting: false,
            reader: None,
            writer: None,
        });
        Ok(())
    }

    /// Takes events and tries what they unblock. A zero timeout only looks.
    fn take_events(&mut self, timeout: Option<&Timespec>) -> io::Result<usize> {
        self.turns_unseen = 0;
        self.shared.count_system_call();
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        for event in &self.events {
            // Copied out: the kernel's layout is packed.
            let (flags, data) = (event.flags, event.data.u64());
            if matches!(data, BELL | TIMER | WATCH) {
                continue;
            }
            let index = usize::try_from(data).expect("a descriptor of ours");
            let Some(Some(socket)) = self.sockets.get_mut(index) else {
                continue;
            };
            let gone = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            socket.hung_up |= flags.intersects(gone | epoll::EventFlags::RDHUP);
            if flags.intersects(gone | epoll::EventFlags::IN | epoll::EventFlags::RDHUP) {
                socket.readable = true;
                self.pending.extend(socket.reader.take());
            }
            if flags.intersects(gone | epoll::EventFlags::OUT) {
                self.pending.extend(socket.writer.take());
            }
        }
        Ok(self.events.len())
    }

    fn set_timer(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if timeout.is_none() && !self.timer_armed {
            return Ok(());
        }
        self.timer_armed = timeout.is_some();
        // Zero would disarm it.
        let delay = timeout.map_or(Duration::ZERO, |t| t.max(Duration::from_nanos(1)));
        let spec = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec::try_from(delay).map_err(|_| io::ErrorKind::InvalidInput)?,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }
}

/// The state of a registered socket.
fn known<'a>(sockets: &'a mut [Option<Socket>], fd: &Rc<Descriptor>) -> Option<&'a mut Socket> {
    let index = usize::try_from(fd.as_raw_fd()).ok()?;
    sockets
        .get_mut(index)?
        .as_mut()
        .filter(|socket| std::ptr::eq(socket.owner.as_ptr(), Rc::as_ptr(fd)))
}

impl Backend for Epoll {
    fn kind(&self) -> IoKind {
        IoKind::Epoll
    }

    fn wants_nonblocking(&self) -> bool {
        true
    }

    fn start(&mut self, fd: Rc<Descriptor>, op: Op) -> OpKey {
        let key = self.ops.insert(fd, op);
        self.pending.push_back(key);
        key
    }

    fn poll(&mut self, key: OpKey, waker: &Waker) -> Poll<Completion> {
        self.ops.poll(key, waker)
    }

    fn cancel(&mut self, key: OpKey) {
        let Some(slot) = self.ops.slot_mut(key) else {
            return;
        };
        let fd = slot.fd.clone();
        if let Some(socket) = known(&mut self.sockets, &fd) {
            socket.reader.take_if(|reader| *reader == key);
            socket.writer.take_if(|writer| *writer == key);
        }
        if self.ops.orphan(key) {
            self.ops.complete(key, Err(Errno::CANCELED));
        }
    }

    fn turn(&mut self, quiet: bool) -> usize {
        let mut count = 0;
        if self.ops.running() > self.pending.len() {
            self.turns_unseen += 1;
            if quiet || self.turns_unseen >= BUSY_TURNS {
                let now = Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                match self.take_events(Some(&now)) {
                    Ok(events) => count += events,
                    Err(error) => panic!("epoll_wait failed: {error}"),
                }
            }
        }
        for _ in 0..self.pending.len() {
            let key = self.pending.pop_front().expect("counted");
            self.attempt(key);
            count += 1;
        }
        count
    }

    fn has_work(&mut self) -> bool {
        !self.pending.is_empty()
    }

    fn watch(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(WATCH);
        epoll::add(&self.epoll, fd.as_fd(), data, epoll::EventFlags::IN)?;
        self.watches.push(fd.as_raw_fd());
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let result = self
            .set_timer(timeout)
            .and_then(|()| self.take_events(None))
            .map(|_| ());
        self.unwatch();
        result
    }

    fn unwatch(&mut self) {
        for fd in self.watches.drain(..) {
            // SAFETY: a poller keeps its descriptor open from arm to disarm, and watches end in
            // between.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            if let Err(error) = epoll::delete(&self.epoll, fd) {
                tracing::warn!(%error, "a poller has closed the descriptor it is watched by");
            }
        }
    }
}
