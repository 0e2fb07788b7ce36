//! The sockets of a thread: each one read and written once a turn.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, epoll};

use super::RunError;
use super::connection::{Answer, Connection, Request};
use super::socket::{Socket, SocketConfig};
use super::target::Address;

/// Bytes read from a socket at once, unless a value is longer.
const READ_LEN: usize = 256 << 10;
/// Sockets that one look finds ready at most.
const EVENTS_MAX: usize = 256;
/// Looks in vain before the thread sleeps. Sleeping costs the server a wake-up for each answer, so
/// it comes after longer than an answer takes; while looking, the CPU is offered to others.
const LOOKS_BEFORE_SLEEP: u32 = 256;
/// Requests under way on each socket while items are stored beforehand.
const PRELOAD_WINDOW: usize = 64;

/// One socket, or many with an epoll instance over them.
pub(super) struct Sockets {
    config: SocketConfig,
    all: Vec<Member>,
    /// Those that take requests, in turn.
    ready: VecDeque<usize>,
    /// Those with something to write.
    dirty: Vec<usize>,
    /// Nothing for a single socket, which is asked itself.
    epoll: Option<OwnedFd>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Member {
    socket: Socket,
    is_ready: bool,
    is_dirty: bool,
    /// Whether epoll tells when it can be written again.
    is_watched: bool,
}

impl Sockets {
    pub(super) fn connect(
        address: &Address,
        count: usize,
        config: SocketConfig,
    ) -> Result<Self, RunError> {
        let mut all = Vec::with_capacity(count);
        let epoll = match count {
            1 => None,
            _ => Some(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?),
        };
        for at in 0..count {
            let socket = Socket::connect(address, config)?;
            if let Some(epoll) = &epoll {
                let data = epoll::EventData::new_u64(at as u64);
                epoll::add(epoll, &socket.door, data, epoll::EventFlags::IN).map_err(system)?;
            }
            all.push(Member {
                socket,
                is_ready: true,
                is_dirty: false,
                is_watched: false,
            });
        }
        Ok(Sockets {
            config,
            ready: (0..count).collect(),
            dirty: Vec::with_capacity(count),
            all,
            epoll,
            scratch: vec![0; READ_LEN],
        })
    }

    fn read(
        &mut self,
        at: usize,
        sink: &mut impl FnMut(u64, Answer<'_>),
    ) -> Result<usize, RunError> {
        let member = &mut self.all[at];
        let ended = member.socket.read(&mut self.scratch, sink)?;
        if !member.is_ready && member.socket.wants_more() {
            member.is_ready = true;
            self.ready.push_back(at);
        }
        Ok(ended)
    }

    /// Writes what was composed. What a socket does not take stays for the next turns.
    fn write(&mut self) -> Result<(), RunError> {
        let mut kept = 0;
        for index in 0..self.dirty.len() {
            let at = self.dirty[index];
            let member = &mut self.all[at];
            member.socket.write()?;
            member.is_dirty = member.socket.is_blocked();
            if member.is_dirty {
                self.dirty[kept] = at;
                kept += 1;
            }
            if let Some(epoll) = &self.epoll
                && member.is_watched != member.is_dirty
            {
                let mut flags = epoll::EventFlags::IN;
                flags.set(epoll::EventFlags::OUT, member.is_dirty);
                let data = epoll::EventData::new_u64(at as u64);
                epoll::modify(epoll, &member.socket.door, data, flags).map_err(system)?;
                member.is_watched = member.is_dirty;
            }
        }
        self.dirty.truncate(kept);
        Ok(())
    }

    /// Sleeps until a socket can be read, or written where that is due.
    fn sleep(&self) -> Result<(), RunError> {
        let timeout = Timespec {
            tv_sec: self.config.timeout.as_secs() as i64,
            tv_nsec: self.config.timeout.subsec_nanos().into(),
        };
        let mut flags = PollFlags::IN;
        let fd = match &self.epoll {
            Some(epoll) => epoll.as_fd(),
            None => {
                flags.set(PollFlags::OUT, !self.dirty.is_empty());
                self.all[0].socket.door.as_fd()
            }
        };
        match rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&timeout)) {
            Ok(0) => Err(RunError::Silent(self.config.timeout)),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(system(errno)),
        }
    }
}

fn system(errno: rustix::io::Errno) -> RunError {
    std::io::Error::from(errno).into()
}

impl Connection for Sockets {
    /// The next socket's turn has come to be filled first.
    fn turn(&mut self, _now_ns: u64) {
        if self.ready.len() > 1 {
            self.ready.rotate_left(1);
        }
    }

    #[inline]
    fn submit(&mut self, request: &Request<'_>, tag: u64) -> Result<bool, RunError> {
        let Some(&at) = self.ready.front() else {
            return Ok(false);
        };
        let member = &mut self.all[at];
        member.socket.submit(request, tag);
        if !member.is_dirty {
            member.is_dirty = true;
            self.dirty.push(at);
        }
        if member.socket.is_full() {
            member.is_ready = false;
            self.ready.pop_front();
        }
        Ok(true)
    }

    fn poll(
        &mut self,
        _now_ns: u64,
        sink: &mut impl FnMut(u64, Answer<'_>),
    ) -> Result<usize, RunError> {
        self.write()?;
        let Some(epoll) = &self.epoll else {
            return self.read(0, sink);
        };
        let mut events = [MaybeUninit::uninit(); EVENTS_MAX];
        let events = match epoll::wait(epoll, &mut events, Some(&Timespec::default())) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(0),
            Err(errno) => return Err(system(errno)),
        };
        let mut ended = 0;
        for event in events {
            // Of a packed structure a field is copied.
            let data = event.data;
            ended += self.read(data.u64() as usize, sink)?;
        }
        Ok(ended)
    }

    fn idle(&mut self, looks: u32, may_sleep: bool) -> Result<(), RunError> {
        if may_sleep && looks > LOOKS_BEFORE_SLEEP {
            return self.sleep();
        }
        std::thread::yield_now();
        Ok(())
    }

    fn preload(&mut self, on: bool) {
        let mut config = self.config;
        if on {
            config.window = config.window.max(PRELOAD_WINDOW);
        }
        self.ready.clear();
        for (at, member) in self.all.iter_mut().enumerate() {
            member.socket.configure(config);
            member.is_ready = true;
            self.ready.push_back(at);
        }
    }
}
